/* What happens to descriptors while a connect's limit runs: a case a subcommand. Each ends with "ok", or says what is
 * not so. usage: descriptors CASE FULL_PORT ANSWER_PORT LIMIT_MS FULL_PORT: connects hang; ANSWER_PORT: a server;
 * LIMIT_MS: connect_timeout, 0 without the shim */
#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tool.h"

extern char **environ;
static int full, answer, limit;
static char **self;

/* ---- everything is closed while a limit runs (CP2, E6) ---- */

static void close_loop(void)
{
	struct rlimit most;

	must(getrlimit(RLIMIT_NOFILE, &most) == 0);
	int end = most.rlim_cur > 5000 ? 5000 : (int)most.rlim_cur;
	for (int fd = 3; fd < end; fd++)
		close(fd);
}

static void after_closing(void (*close_all)(void))
{
	int ends[2], seen[2];
	char byte = 0;

	pending_connect(full);
	close_all();
	must(pipe(ends) == 0 && ends[0] == 3 && ends[1] == 4);
	usleep(450000); /* the old limit has come due */
	must(write(ends[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'x');
	close_all();
	must(pipe(seen) == 0 && seen[0] == 3 && seen[1] == 4);
	int begin = now_ms();
	must_time_out(pending_connect(full), begin, limit);
}

static void by_close_range(void)
{
	must(close_range(3, ~0U, 0) == 0);
}

static void by_closefrom(void)
{
	closefrom(3);
}

static void case_close_range(void)
{
	after_closing(by_close_range);
}

static void case_close_loop(void)
{
	after_closing(close_loop);
}

static void case_closefrom(void)
{
	after_closing(by_closefrom);
}

/* CLOEXEC by range is no close: the limit goes on. */
static void case_close_range_cloexec(void)
{
	int begin = now_ms(), fd = pending_connect(full);

	must(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0);
	must(fcntl(fd, F_GETFD) == FD_CLOEXEC);
	must_time_out(fd, begin, limit);
}

/* In a child that is another program, while the parent's limit runs. */
static void case_exec(void)
{
	int begin = now_ms(), fd = pending_connect(full), status;
	pid_t child = fork();

	must(child >= 0);
	if (child == 0) {
		self[1] = "close_loop";
		must(freopen("/dev/null", "w", stdout));
		execve("/proc/self/exe", self, environ);
		_exit(126);
	}
	must_time_out(fd, begin, limit);
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- a vfork child (CP3, E3) ---- */

static void case_vfork(void)
{
	struct sockaddr_in to = local_address(answer);
	int begin = now_ms(), fd = pending_connect(full), held = connected(answer), status;
	pid_t child = vfork();

	if (child == 0) {
		int mine = socket(AF_INET, SOCK_STREAM, 0);

		if (mine < 0 || connect(mine, (struct sockaddr *)&to, sizeof to) != 0)
			_exit(3);
		dup2(mine, fd);
		dup2(mine, held);
		close(fd);
		syscall(SYS_close_range, 3, ~0U, 0);
		close_range(3, ~0U, 0);
		execl("/bin/true", "true", (char *)NULL);
		_exit(4);
	}
	must(child > 0);
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	must(send(held, "hello\n", 6, MSG_NOSIGNAL) == 6);
	char words[8];
	must(recv(held, words, sizeof words, 0) == 3 && memcmp(words, "ok\n", 3) == 0);
	must_time_out(fd, begin, limit);
}

/* The same by clone, as runtimes with their own spawn do it. */
static int cloned_fd, cloned_held;
static int clone_child(void *unused)
{
	(void)unused;
	close(cloned_fd);
	dup2(cloned_held, cloned_fd);
	close_range(3, ~0U, 0);
	execl("/bin/true", "true", (char *)NULL);
	return 4;
}

static void case_clone(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	int begin = now_ms(), status;

	cloned_fd = pending_connect(full);
	cloned_held = connected(answer);
	pid_t child = clone(clone_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	must(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	must_time_out(cloned_fd, begin, limit);
}

/* ---- closed behind the shim's back, and the number used again (CP4, C7) ---- */

static void reused_by_pipe(int fd)
{
	int ends[2];
	char byte = 0;

	must(pipe(ends) == 0 && (ends[0] == fd || ends[1] == fd));
	usleep(450000);
	must(write(ends[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'x');
}

static void reused_by_file(int fd)
{
	int file = memfd_create("file", 0);

	must(file == fd && write(file, "words", 5) == 5);
	usleep(450000);
	char words[5];
	must(pread(file, words, 5, 0) == 5 && memcmp(words, "words", 5) == 0);
	must(write(file, "more", 4) == 4);
}

static void reused_by_connection(int fd)
{
	int other = connected(answer);
	struct tcp_info info;
	socklen_t len = sizeof info;
	char words[8];

	must(other == fd);
	usleep(450000);
	must(so_error(other) == 0);
	must(getsockopt(other, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_state == TCP_ESTABLISHED);
	must(send(other, "hello\n", 6, MSG_NOSIGNAL) == 6 && recv(other, words, sizeof words, 0) == 3);
}

/* Another connect under way: the limit that ends it is its own. */
static void reused_by_connect(int fd)
{
	usleep(150000);
	int begin = now_ms(), other = pending_connect(full);

	must(other == fd);
	must_time_out(other, begin, limit);
}

static void by_raw_close(int fd)
{
	must(syscall(SYS_close, fd) == 0);
}

static void by_fclose(int fd)
{
	FILE *stream = fdopen(fd, "r+");

	must(stream && fclose(stream) == 0);
}

/* No hook sees this one. */
static void by_posix_trick(int fd)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(SYS_close), "D"(fd) : "rcx", "r11", "memory");
	must(result == 0);
}

static void reuse(void (*close_it)(int))
{
	void (*const uses[])(int) = {reused_by_pipe, reused_by_file, reused_by_connection, reused_by_connect};

	for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
		int fd = pending_connect(full);

		close_it(fd);
		uses[i](fd);
		close(fd);
		close_range(3, ~0U, 0);
	}
}

static void case_reuse_after_syscall(void)
{
	reuse(by_raw_close);
}

static void case_reuse_after_fclose(void)
{
	reuse(by_fclose);
}

static void case_reuse_unseen(void)
{
	reuse(by_posix_trick);
}

/* How often the timer has gone to sleep. */
static long timer_naps(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	char path[300], line[200];
	long naps = -1;

	must(tasks);
	while ((task = readdir(tasks))) {
		snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
		FILE *status = fopen(path, "r");
		bool is_timer = false;
		while (status && fgets(line, sizeof line, status)) {
			is_timer |= !strcmp(line, "Name:\tresil-timer\n");
			if (is_timer && sscanf(line, "voluntary_ctxt_switches: %ld", &naps) == 1)
				break;
		}
		if (status)
			fclose(status);
	}
	closedir(tasks);
	return naps;
}

/* Closed where no hook sees it, and the number left alone: the timer looks once and forgets it. */
static void case_forgotten(void)
{
	by_posix_trick(pending_connect(full));
	usleep(500000);
	long before = timer_naps();
	usleep(400000);
	long after = timer_naps();
	must(limit == 0 || (before > 0 && after - before <= 1));
}

/* A dup2, dup3 or close_range that fails has closed nothing: the limit goes on. */
static void case_failing(void)
{
	int begin = now_ms(), fd = pending_connect(full), ends[2];

	must(pipe(ends) == 0);
	must(dup2(9999, fd) == -1 && errno == EBADF);
	must(dup3(ends[0], fd, 0x40000000) == -1 && errno == EINVAL);
	must(close_range(3, ~0U, 0x80) == -1 && errno == EINVAL);
	must_time_out(fd, begin, limit);
}

/* dup2 onto a guarded number is its close (E12); dup3 likewise. */
static void case_dup2_onto(void)
{
	int ends[2];
	char byte = 0;

	must(pipe(ends) == 0);
	int fd = pending_connect(full), fd2 = pending_connect(full);
	must(dup2(ends[0], fd) == fd && dup3(ends[0], fd2, O_CLOEXEC) == fd2);
	usleep(450000);
	must(write(ends[1], "xy", 2) == 2 && read(fd, &byte, 1) == 1 && byte == 'x' && read(fd2, &byte, 1) == 1 &&
		byte == 'y');
}

/* ---- both numbers of a dup lead to the same call ---- */

static void case_dup(void)
{
	int begin = now_ms(), fd = pending_connect(full), other = dup(fd);

	must(other >= 0 && close(fd) == 0);
	must_time_out(other, begin, limit);
	begin = now_ms();
	fd = pending_connect(full);
	other = fcntl(fd, F_DUPFD_CLOEXEC, 100);
	must(other >= 100 && close(fd) == 0);
	must_time_out(other, begin, limit);
}

/* The end is read on one number, while the other has the call (answer: a port that refuses). */
static void case_twin_reads(void)
{
	int fd = pending_connect(answer), twin = dup(fd);
	struct pollfd p = {.fd = twin, .events = POLLOUT};

	must(twin >= 0 && poll(&p, 1, 5000) == 1);
	must(so_error(twin) == ECONNREFUSED);
	must(close(twin) == 0 && close(fd) == 0);
}

/* One of the two is closed while it is pending: no hang-up, the other goes on. */
static void case_twin_closes(void)
{
	int begin = now_ms(), fd = pending_connect(full), twin = dup(fd);

	must(twin >= 0);
	usleep(50000);
	must(close(twin) == 0);
	must_time_out(fd, begin, limit);
}

/* ---- fork: the limit holds for whoever waits (E4) ---- */

static void case_fork(void)
{
	int begin = now_ms(), fd = pending_connect(full), status;
	pid_t child = fork();

	must(child >= 0);
	if (child == 0) {
		must_time_out(fd, begin, limit);
		begin = now_ms();
		must_time_out(pending_connect(full), begin, limit);
		_exit(0);
	}
	must_time_out(fd, begin, limit);
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A child that stays when its parents have gone; it says by a pipe that its limit held. */
static void daemon_by(void (*leave)(void))
{
	int begin = now_ms(), fd = pending_connect(full), ends[2], status;
	char byte;

	must(pipe(ends) == 0);
	pid_t child = fork();
	must(child >= 0);
	if (child == 0) {
		leave();
		must_time_out(fd, begin, limit);
		_exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
	}
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(fd);
	close(ends[1]);
	must(read(ends[0], &byte, 1) == 1 && byte == 'x');
}

/* The classic way: fork, setsid, fork. */
static void leave_by_hand(void)
{
	must(setsid() >= 0);
	pid_t grandchild = fork();
	must(grandchild >= 0);
	if (grandchild > 0)
		_exit(0);
}

/* libc's daemon(), whose fork and setsid pass no hook but its own. */
static void leave_by_libc(void)
{
	must(daemon(1, 1) == 0);
}

static void case_daemon(void)
{
	daemon_by(leave_by_hand);
}

static void case_libc_daemon(void)
{
	daemon_by(leave_by_libc);
}

/* The program wants every number that could be one of ours for itself, between one limit and the next; twice, so that
 * ours have moved when they are wanted again. */
static void case_wanted_numbers(void)
{
	int file = open("/dev/zero", O_RDONLY);
	char byte;

	must(file >= 0);
	for (int round = 0; round < 2; round++) {
		int begin = now_ms(), fd = pending_connect(full);

		must_time_out(fd, begin, limit);
		close(fd);
		int from = round ? 800 : 960, to = round ? 960 : 1024;
		for (int n = from; n < to; n++)
			must(dup2(file, n) == n);
		begin = now_ms();
		fd = pending_connect(full);
		must_time_out(fd, begin, limit);
		close(fd);
		for (int n = from; n < to; n++)
			must(read(n, &byte, 1) == 1 && byte == 0);
	}
}

/* ---- no descriptor left (E6) ---- */

/* Started with `ulimit -n 64`. */
static void case_emfile(void)
{
	int begin = now_ms(), fd = pending_connect(full);
	while (dup(STDERR_FILENO) >= 0)
		;
	must(errno == EMFILE);
	must_time_out(fd, begin, limit);
}

/* The program lowers its own limit, below the numbers that were reserved at its start. */
static void case_emfile_lowered(void)
{
	struct rlimit few = {64, 64};

	must(setrlimit(RLIMIT_NOFILE, &few) == 0);
	case_emfile();
}

/* ---- 0, 1 and 2 are closed (CP5): run as descriptors CASE ... <&- >&- 2>&- ---- */

static void case_bare_start(void)
{
	for (int fd = 0; fd < 3; fd++)
		must(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
	int begin = now_ms(), fd = pending_connect(full);
	must(fd == 0);
	must(new_socket(0) == 1);
	must_time_out(fd, begin, limit);
	must(open("/dev/null", O_RDWR) == 2);
	_exit(0); /* saying "ok" would write into the sockets */
}

/* ---- streams that are no sockets (CP7) ---- */

static void case_streams(void)
{
	char buffer[32], *grown = NULL, line[16];
	size_t size = 0;
	int ends[2];

	FILE *f = fmemopen(buffer, sizeof buffer, "w");
	must(f && fputs("words", f) >= 0 && fclose(f) == 0 && !strcmp(buffer, "words"));
	f = open_memstream(&grown, &size);
	must(f && fputs("more", f) >= 0 && fclose(f) == 0 && size == 4);
	free(grown);
	must(pipe(ends) == 0);
	f = fdopen(ends[1], "w");
	must(f && fputs("through\n", f) >= 0 && fclose(f) == 0);
	must(fcntl(ends[1], F_GETFD) == -1);
	must(read(ends[0], line, sizeof line) == 8 && close(ends[0]) == 0);
	f = popen("echo child", "r");
	must(f && fgets(line, sizeof line, f) && !strcmp(line, "child\n") && pclose(f) == 0);
}

/* ---- closed in the middle, a thousand times (CN5) ---- */

static void case_close_midway(void)
{
	for (int i = 0; i < 1000; i++)
		must(close(pending_connect(full)) == 0);
}

/* ---- SO_ERROR is read once and stays (C11): a second look at an expired connect says the same ---- */

static void case_sticky(void)
{
	int begin = now_ms(), fd = pending_connect(full);
	char byte;

	must_time_out(fd, begin, limit);
	if (limit == 0)
		return;
	must(so_error(fd) == ETIMEDOUT);
	must(recv(fd, &byte, 1, 0) == -1 && errno == ETIMEDOUT);
	must(send(fd, "x", 1, 0) == -1 && errno == ETIMEDOUT); /* and no SIGPIPE */
	must(write(fd, "x", 1) == -1 && errno == ETIMEDOUT);
	must(close(fd) == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"close_range", case_close_range},
	{"close_loop", case_close_loop},
	{"closefrom", case_closefrom},
	{"close_range_cloexec", case_close_range_cloexec},
	{"exec", case_exec},
	{"vfork", case_vfork},
	{"clone", case_clone},
	{"forgotten", case_forgotten},
	{"failing", case_failing},
	{"twin_reads", case_twin_reads},
	{"twin_closes", case_twin_closes},
	{"reuse_after_syscall", case_reuse_after_syscall},
	{"reuse_after_fclose", case_reuse_after_fclose},
	{"reuse_unseen", case_reuse_unseen},
	{"dup2_onto", case_dup2_onto},
	{"dup", case_dup},
	{"fork", case_fork},
	{"daemon", case_daemon},
	{"wanted_numbers", case_wanted_numbers},
	{"libc_daemon", case_libc_daemon},
	{"emfile", case_emfile},
	{"emfile_lowered", case_emfile_lowered},
	{"bare_start", case_bare_start},
	{"streams", case_streams},
	{"close_midway", case_close_midway},
	{"sticky", case_sticky},
};

int main(int argc, char **argv)
{
	int errno_at_main = errno;

	if (argc != 5)
		return 2;
	self = argv;
	full = atoi(argv[2]);
	answer = atoi(argv[3]);
	limit = atoi(argv[4]);
	must(errno_at_main == 0); /* CP8: whatever came before main left no trace */
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			puts("ok");
			return 0;
		}
	}
	fprintf(stderr, "descriptors: no case '%s'\n", argv[1]);
	return 2;
}
