/* A host in want: of memory, threads, stack, static TLS, low descriptor numbers. usage: scarce CASE PORT [MORE];
 * the port is nobody's, and each connect must end as it does on a machine with plenty. Says "ok". */
// link: -ldl
#include <dlfcn.h>
#include <limits.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tool.h"

static int port;
static const char *more;

static int attempt(int flags)
{
	struct sockaddr_in to = local_address(port);
	int fd = new_socket(flags), error = 0;

	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
		error = errno;
	if (error == EINPROGRESS) {
		must(poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 5000) == 1);
		error = so_error(fd);
	}
	close(fd);
	return error;
}

static void all_refused(int times)
{
	for (int i = 0; i < times; i++)
		must(attempt(i % 2 ? SOCK_NONBLOCK : 0) == ECONNREFUSED);
}

static void must_end_well(pid_t child)
{
	int status;

	must(child > 0 && waitpid(child, &status, 0) == child);
	if (status != 0) {
		fprintf(stderr, "a child ended with %s %d\n", WIFSIGNALED(status) ? "signal" : "code",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		exit(1);
	}
}

/* ---- the smallest stack that a thread may have ---- */

static void *connect_on(void *unused)
{
	(void)unused;
	all_refused(8);
	return NULL;
}

static void *look_up(void *unused)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;

	(void)unused;
	must(getaddrinfo("localhost", "80", &hints, &found) == 0);
	freeaddrinfo(found);
	return NULL;
}

static void on_stack(size_t size, void *(*run)(void *))
{
	pthread_attr_t attr;
	pthread_t thread;

	must(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, size) == 0);
	must(pthread_create(&thread, &attr, run, NULL) == 0 && pthread_join(thread, NULL) == 0);
	pthread_attr_destroy(&attr);
}

static void case_stack(void)
{
	size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN);

	/* The first connect of the process is one of them: it attaches, and starts our threads. */
	for (int i = 0; i < 4; i++)
		on_stack(least, connect_on);
	/* libc's own look-up takes more than that. */
	for (int i = 0; i < 4; i++)
		on_stack(least + 32768, look_up);
	puts("ok");
}

/* ---- address space: whatever is left when the first connect comes ---- */

static rlim_t mapped(void)
{
	long pages;
	FILE *f = fopen("/proc/self/statm", "r");

	must(f && fscanf(f, "%ld", &pages) == 1);
	fclose(f);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void case_memory(void)
{
	for (rlim_t left = 0; left <= 16 << 20; left += left < 1 << 20 ? 64 << 10 : 1 << 20) {
		pid_t child = fork();
		if (child == 0) {
			struct rlimit limit = {mapped() + left, RLIM_INFINITY};
			must(setrlimit(RLIMIT_AS, &limit) == 0);
			all_refused(8);
			_exit(0);
		}
		must_end_well(child);
	}
	puts("ok");
}

/* ---- descriptors above 1024, below a limit as high as may be ---- */

static void case_descriptors(void)
{
	struct rlimit limit;
	int last;

	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	/* 2^30 where the kernel has it (fs.nr_open), else what there is. */
	struct rlimit high = {1 << 30, 1 << 30}, usual = {1 << 20, 1 << 20};
	if (setrlimit(RLIMIT_NOFILE, &high) != 0 && setrlimit(RLIMIT_NOFILE, &usual) != 0) {
		limit.rlim_cur = limit.rlim_max;
		must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}
	all_refused(2);
	do
		must((last = dup(0)) >= 0);
	while (last < 1500);
	int fd = new_socket(0);
	must(fd > 1500);
	close(fd);
	all_refused(6);
	/* A socket carried to the highest number. */
	struct sockaddr_in to = local_address(port);
	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	fd = new_socket(0);
	int top = dup2(fd, (int)limit.rlim_cur - 1);
	must(top == (int)limit.rlim_cur - 1);
	close(fd);
	must(connect(top, (struct sockaddr *)&to, sizeof to) == -1 && errno == ECONNREFUSED);
	must(close(top) == 0 && close(top) == -1 && errno == EBADF);
	puts("ok");
}

/* ---- no thread ---- */

static void *nothing(void *unused)
{
	return unused;
}

static void case_threads(void)
{
	pthread_t thread;
	struct rlimit none = {1, 1};

	must(setrlimit(RLIMIT_NPROC, &none) == 0);
	must(pthread_create(&thread, NULL, nothing, NULL) == EAGAIN);
	all_refused(8);
	usleep(1100000); /* from here on the socket would be served */
	all_refused(8);
	puts("ok");
}

/* ---- static TLS: MORE is a library with initial-exec TLS, copied for each load; says how many could be loaded ---- */

static void case_tls(void)
{
	char path[4096];
	int loaded = 0;

	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof path, "%s.%d", more, i);
		if (!dlopen(path, RTLD_NOW | RTLD_LOCAL))
			break;
		loaded++;
	}
	must(loaded > 0 && loaded < 64);
	all_refused(8);
	printf("%d libraries\n", loaded);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"stack", case_stack},
	{"memory", case_memory},
	{"descriptors", case_descriptors},
	{"threads", case_threads},
	{"tls", case_tls},
};

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	port = atoi(argv[2]);
	more = argv[3];
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "scarce: no case '%s'\n", argv[1]);
	return 2;
}
