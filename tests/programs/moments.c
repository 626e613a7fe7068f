/* Connects at odd moments of a process's life, and what they leave untouched. usage: moments CASE PORT; nobody's port.
 * Says "ok". The cases that print more are compared with what they print without the shim. */
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "tool.h"

static int port;

static int attempt(int flags)
{
	struct sockaddr_in to = local_address(port);
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0), error = 0;

	if (fd < 0)
		return errno;
	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
		error = errno;
	if (error == EINPROGRESS) {
		socklen_t len = sizeof error;
		poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 5000);
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
			error = errno;
	}
	close(fd);
	return error;
}

/* ---- no malloc on the way (E2): the program's own allocator tells ---- */

static _Thread_local volatile int is_watched;
static _Atomic int allocations;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

void *malloc(size_t n)
{
	allocations += is_watched;
	return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
	allocations += is_watched;
	return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
	allocations += is_watched;
	return __libc_realloc(p, n);
}
void free(void *p)
{
	allocations += is_watched;
	__libc_free(p);
}

static void case_allocations(void)
{
	char byte;

	is_watched = 1;
	for (int i = 0; i < 8; i++)
		must(attempt(i % 2 ? SOCK_NONBLOCK : 0) == ECONNREFUSED);
	int fd = new_socket(0);
	must(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && recv(fd, &byte, 1, MSG_DONTWAIT) == -1);
	must(read(fd, &byte, 1) == -1 && shutdown(fd, SHUT_RDWR) == -1);
	must(close(dup(fd)) == 0 && close(fd) == 0);
	is_watched = 0;
	must(allocations == 0);
	puts("ok");
}

/* ---- before main and after exit began ---- */

static int before_main;

static void after_exit(void)
{
	if (port && attempt(0) == ECONNREFUSED && attempt(SOCK_NONBLOCK) == ECONNREFUSED) {
		puts("after exit: ok");
		fflush(stdout);
	}
}

__attribute__((constructor)) static void early(int argc, char **argv)
{
	if (argc != 3 || strcmp(argv[1], "edges") != 0)
		return;
	port = atoi(argv[2]);
	before_main = attempt(0) == ECONNREFUSED && attempt(SOCK_NONBLOCK) == ECONNREFUSED;
}

__attribute__((destructor)) static void late(void)
{
	if (before_main)
		after_exit();
}

static void case_edges(void)
{
	must(before_main);
	must(atexit(after_exit) == 0);
	must(attempt(0) == ECONNREFUSED);
	puts("ok");
}

/* ---- between fork and exec, while other threads connect and allocate ---- */

static _Atomic int is_over;

static void *busy(void *unused)
{
	(void)unused;
	while (!is_over) {
		void *p = __libc_malloc(3000);
		must(attempt(SOCK_NONBLOCK) == ECONNREFUSED);
		__libc_free(p);
	}
	return NULL;
}

static void case_fork_exec(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		must(pthread_create(&threads[i], NULL, busy, NULL) == 0);
	for (int i = 0; i < 25; i++) {
		int status;
		pid_t child = fork();
		must(child >= 0);
		if (child == 0) {
			if (attempt(0) != ECONNREFUSED || attempt(SOCK_NONBLOCK) != ECONNREFUSED)
				_exit(1);
			execl("/bin/true", "true", (char *)NULL);
			_exit(2);
		}
		must(waitpid(child, &status, 0) == child && status == 0);
	}
	is_over = 1;
	for (int i = 0; i < 4; i++)
		must(pthread_join(threads[i], NULL) == 0);
	puts("ok");
}

/* ---- in a signal handler that interrupts malloc ---- */

static volatile sig_atomic_t has_connected;

static void on_signal(int sig)
{
	int saved = errno;

	(void)sig;
	has_connected = attempt(SOCK_NONBLOCK) == ECONNREFUSED;
	errno = saved;
}

static void *idle(void *unused)
{
	pause();
	return unused;
}

/* The first connect of a process, in a handler, at a moment when malloc may hold a lock. */
static void interrupted_malloc(int after_us)
{
	pthread_t thread;
	struct sigaction sa = {.sa_handler = on_signal};
	struct itimerval soon = {.it_value.tv_usec = after_us};

	/* With one thread libc takes no lock. */
	must(pthread_create(&thread, NULL, idle, NULL) == 0);
	sigset_t alarm_only;
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	must(pthread_kill(thread, 0) == 0 && sigaction(SIGALRM, &sa, NULL) == 0);
	must(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	while (!has_connected) {
		void *kept[40];
		for (size_t i = 0; i < 40; i++)
			kept[i] = __libc_malloc(2000 + i * 512);
		for (size_t i = 0; i < 40; i++)
			__libc_free(kept[i]);
	}
	_exit(0);
}

static void case_in_malloc(void)
{
	for (int i = 0; i < 150; i++) {
		int status, begin = now_ms();
		pid_t child = fork();
		must(child >= 0);
		if (child == 0)
			interrupted_malloc(1000 + i * 37);
		while (waitpid(child, &status, WNOHANG) == 0) {
			if (now_ms() - begin > 10000) {
				kill(child, SIGKILL);
				fprintf(stderr, "round %d hangs\n", i);
				exit(1);
			}
			usleep(1000);
		}
		must(status == 0);
	}
	puts("ok");
}

/* ---- what is nobody else's (E8) ---- */

static void tell_state(void)
{
	sigset_t mask;
	struct sigaction sa;
	struct itimerval timer;
	mode_t umask_now = umask(077);
	char here[4096];

	umask(umask_now);
	must(sigprocmask(SIG_BLOCK, NULL, &mask) == 0);
	printf("random %d %ld %ld locale %s umask %o priority %d here %s\nblocked", rand(), random(), lrand48(),
		setlocale(LC_ALL, NULL), umask_now, getpriority(PRIO_PROCESS, 0), getcwd(here, sizeof here));
	for (int sig = 1; sig < 65; sig++)
		if (sigismember(&mask, sig) == 1)
			printf(" %d", sig);
	printf("\nhandled");
	for (int sig = 1; sig < 65; sig++)
		if (sigaction(sig, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL)
			printf(" %d", sig);
	must(getitimer(ITIMER_REAL, &timer) == 0 && sigpending(&mask) == 0);
	printf("\ntimer %ld pending %d\n", (long)timer.it_value.tv_sec, sigisemptyset(&mask));
}

static int errno_at_main;

static void case_state(void)
{
	sigset_t some;

	printf("errno at main %d\n", errno_at_main);
	tell_state();
	sigemptyset(&some);
	sigaddset(&some, SIGUSR1);
	must(sigprocmask(SIG_BLOCK, &some, NULL) == 0);
	for (int i = 0; i < 4; i++)
		must(attempt(i % 2 ? SOCK_NONBLOCK : 0) == ECONNREFUSED);
	tell_state();
	usleep(1100000); /* from here on the socket is served */
	for (int i = 0; i < 8; i++)
		must(attempt(i % 2 ? SOCK_NONBLOCK : 0) == ECONNREFUSED);
	tell_state();
	puts("ok");
}

/* ---- another identity (E15): nobody's, by each way there is, and back where there is one ---- */

static int set_resuid(uid_t uid)
{
	return setresuid(uid, uid, uid);
}
static int set_reuid(uid_t uid)
{
	return setreuid(uid, uid);
}

static int regions_of(uid_t uid)
{
	char command[200];

	snprintf(command, sizeof command,
		"exit $(find /dev/shm/resil-%u -user %u -name 'moments.*' 2>/dev/null | wc -l)", uid, uid);
	return WEXITSTATUS(system(command));
}

static void case_identity(void)
{
	int (*const ways[])(uid_t) = {setuid, set_resuid, set_reuid, seteuid};

	must(attempt(0) == ECONNREFUSED && regions_of(0) == 1);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		uid_t uid = 65000 + (uid_t)i;
		int status;
		pid_t child = fork();
		must(child >= 0);
		if (child == 0) {
			must(attempt(0) == ECONNREFUSED);
			must(ways[i](uid) == 0);
			must(attempt(0) == ECONNREFUSED && attempt(SOCK_NONBLOCK) == ECONNREFUSED);
			must(regions_of(uid) == 1);
			if (ways[i] == seteuid) {
				must(seteuid(0) == 0 && attempt(0) == ECONNREFUSED);
				must(regions_of(0) == 1);
			}
			_exit(0);
		}
		must(waitpid(child, &status, 0) == child && status == 0);
		must(regions_of(0) == 1);
	}
	puts("ok");
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"allocations", case_allocations},
	{"edges", case_edges},
	{"fork_exec", case_fork_exec},
	{"in_malloc", case_in_malloc},
	{"state", case_state},
	{"identity", case_identity},
};

int main(int argc, char **argv)
{
	errno_at_main = errno;
	if (argc != 3)
		return 2;
	port = atoi(argv[2]);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "moments: no case '%s'\n", argv[1]);
	return 2;
}
