/* What a host may do that the shim must live with. usage: hosted CASE PORT; says "ok". */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "tool.h"

static int port;

static int try_connect(int flags)
{
	struct sockaddr_in to = local_address(port);
	int fd = new_socket(flags), error = 0;

	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
		error = errno;
	if (error == EINPROGRESS) {
		poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 2000);
		socklen_t len = sizeof error;
		must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	}
	close(fd);
	return error;
}

/* The main thread leaves, and no other is there: the process must end, though it had a pending connect and, after a
 * second, a socket of ours. */
static void case_alone(void)
{
	for (int i = 0; i < 2; i++) {
		struct sockaddr_in to = local_address(port);
		connect(new_socket(SOCK_NONBLOCK), (struct sockaddr *)&to, sizeof to);
		usleep(1100000);
	}
	puts("ok");
	fflush(stdout);
	pthread_exit(NULL);
}

/* A filter that kills on every system call but those that the program itself makes from here on. */
enum way { BY_PRCTL, BY_SYSCALL_PRCTL, BY_SYSCALL_SECCOMP };

static void filter_all_but_own(enum way way)
{
	static const int allowed[] = {
		SYS_socket, SYS_connect, SYS_close, SYS_poll, SYS_write, SYS_exit_group, SYS_clock_gettime};
	enum { N = sizeof allowed / sizeof allowed[0] };
	struct sock_filter code[N + 3];

	code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < N; i++)
		code[i + 1] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], (unsigned char)(N - i), 0);
	code[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = N + 3, .filter = code};

	/* Asked in vain first, as programs do to find out whether it is there: nothing is given up for that. */
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT);
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (way == BY_PRCTL)
		must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	else if (way == BY_SYSCALL_PRCTL)
		must(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	else
		must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}

static void under_filter(enum way way)
{
	struct sockaddr_in to = local_address(port);

	must(try_connect(0) == ECONNREFUSED);
	must(try_connect(SOCK_NONBLOCK) == ECONNREFUSED);
	usleep(1100000); /* so that a thread of ours could be there */
	must(try_connect(SOCK_NONBLOCK) == ECONNREFUSED);
	filter_all_but_own(way);
	for (int i = 0; i < 8; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == -1 && errno == ECONNREFUSED);
		close(fd);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == -1);
		must(errno == ECONNREFUSED || errno == EINPROGRESS);
		poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 1000);
		close(fd);
	}
	must(write(STDOUT_FILENO, "ok\n", 3) == 3);
	syscall(SYS_exit_group, 0);
}

static void case_seccomp(void)
{
	under_filter(BY_PRCTL);
}

static void case_seccomp_syscall(void)
{
	under_filter(BY_SYSCALL_SECCOMP);
}

static void case_seccomp_syscall_prctl(void)
{
	under_filter(BY_SYSCALL_PRCTL);
}

/* setuid() asks every thread by a signal of libc's own: ours must not have blocked it (E13). */
static void case_setuid(void)
{
	for (int i = 0; i < 3; i++) {
		try_connect(SOCK_NONBLOCK);
		usleep(600000);
	}
	must(setuid(getuid()) == 0);
	puts("ok");
}

/* connect in a handler that interrupts connects, over and over (E2). */
static volatile sig_atomic_t in_handler;
static void on_signal(int sig)
{
	int saved = errno;

	(void)sig;
	in_handler++;
	try_connect(0);
	errno = saved;
}

static void case_handler(void)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pid_t self = getpid();

	must(sigaction(SIGUSR1, &sa, NULL) == 0);
	pid_t child = fork();
	must(child >= 0);
	if (child == 0) {
		for (int i = 0; i < 2000 && kill(self, SIGUSR1) == 0; i++)
			usleep(200);
		_exit(0);
	}
	while (waitpid(child, NULL, WNOHANG) == 0)
		for (int i = 0; i < 20; i++)
			must(try_connect(i % 2 ? SOCK_NONBLOCK : 0) == ECONNREFUSED);
	must(in_handler > 10);
	puts("ok");
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* A blocking connect to a full queue, a signal after 100 ms; how it ends, and that the socket is as it was. */
static int interrupted(int flags, int *took_ms)
{
	struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = flags};
	struct itimerval soon = {.it_value.tv_usec = 100000};
	struct sockaddr_in to = local_address(port);
	struct timeval left;
	socklen_t len = sizeof left;
	int fd = new_socket(0), begin = now_ms();

	must(sigaction(SIGALRM, &sa, NULL) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
	int error = connect(fd, (struct sockaddr *)&to, sizeof to) == 0 ? 0 : errno;
	*took_ms = now_ms() - begin;
	must(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, &len) == 0 && left.tv_sec == 0 && left.tv_usec == 0);
	if (error == ETIMEDOUT) {
		int pending;
		len = sizeof pending;
		must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &pending, &len) == 0 && pending == 0);
	}
	close(fd);
	return error;
}

/* A handler without SA_RESTART ends a connect (E1). */
static void case_eintr(void)
{
	int took;

	must(interrupted(0, &took) == EINTR && took >= 99);
	in_time(took, 250);
	puts("ok");
}

/* One with SA_RESTART does not, under a limit of 400 ms either, although the kernel's own restart is off where
 * SO_SNDTIMEO is set. */
static void case_restart(void)
{
	int took;

	must(interrupted(SA_RESTART, &took) == ETIMEDOUT && took >= 399);
	puts("ok");
}

/* A pooled connection that was never used: connected, idle for a second, shut down. */
static void case_unused(void)
{
	for (int i = 0; i < 2; i++) {
		struct sockaddr_in to = local_address(port);
		int fd = new_socket(SOCK_NONBLOCK), error;
		socklen_t len = sizeof error;

		must(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS);
		must(poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 2000) == 1);
		must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
		usleep(1100000);
		must(shutdown(fd, SHUT_RDWR) == 0);
		close(fd);
	}
	puts("ok");
}

/* main has left by pthread_exit, one thread of the program's goes on: its limit holds. */
static void *wait_alone(void *unused)
{
	(void)unused;
	usleep(300000);
	int begin = now_ms(), fd = pending_connect(port), error = 0,
	    n = poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 5000);
	socklen_t len = sizeof error;

	must(n == 1 && now_ms() - begin >= 1399 && now_ms() - begin < 3000);
	must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ETIMEDOUT);
	puts("ok");
	fflush(stdout);
	_exit(0);
}

static void case_main_left(void)
{
	pthread_t thread;

	must(pthread_create(&thread, NULL, wait_alone, NULL) == 0);
	pthread_exit(NULL);
}

/* Several threads fork at once, each with a limit running: libc runs their handlers side by side. */
static void *fork_on(void *unused)
{
	(void)unused;
	for (int i = 0; i < 40; i++) {
		int begin = now_ms(), fd = pending_connect(port), status, error = 0;
		socklen_t len = sizeof error;
		pid_t child = fork();

		must(child >= 0);
		if (child == 0)
			_exit(0);
		must(waitpid(child, &status, 0) == child && status == 0);
		must(poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 3000) == 1 && now_ms() - begin >= 49);
		must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ETIMEDOUT);
		close(fd);
	}
	return NULL;
}

static void case_fork_race(void)
{
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		must(pthread_create(&threads[i], NULL, fork_on, NULL) == 0);
	for (int i = 0; i < 8; i++)
		must(pthread_join(threads[i], NULL) == 0);
	puts("ok");
}

/* The filter comes before the first connect, and main returns under it: nothing of ours may ask the system for
 * anything. */
static void case_seccomp_first(void)
{
	struct sockaddr_in to = local_address(port);

	filter_all_but_own(BY_PRCTL);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == -1 && errno == ECONNREFUSED);
	close(fd);
	must(write(STDOUT_FILENO, "ok\n", 3) == 3);
}

/* "For ever" in numbers that overflow ours; a blocking connect leaves the option, errno and blocking as they were (E1).
 */
static void case_for_ever(void)
{
	struct timeval tv = {.tv_sec = (time_t)(~0UL >> 1)}, after;
	struct sockaddr_in to = local_address(0);
	socklen_t len = sizeof to;
	int nobody = new_socket(0); /* listens, and never accepts: the kernel connects, nobody reads */

	must(bind(nobody, (struct sockaddr *)&to, sizeof to) == 0 && listen(nobody, 4) == 0);
	must(getsockname(nobody, (struct sockaddr *)&to, &len) == 0);
	len = sizeof after;
	int fd = new_socket(0);
	char block[65536] = {0};

	must(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv) == 0);
	errno = ENOTTY;
	must(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && errno == ENOTTY);
	must(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &after, &len) == 0 && after.tv_sec == 0 && after.tv_usec == 0);
	/* Nobody reads: it must block, not answer EAGAIN. */
	struct sigaction sa = {.sa_handler = on_alarm};
	must(sigaction(SIGALRM, &sa, NULL) == 0);
	alarm(1);
	ssize_t n;
	while ((n = send(fd, block, sizeof block, 0)) > 0)
		alarm(1);
	/* A part may have gone before the signal; the next one blocks until another. */
	must(n == -1 && errno == EINTR);
	puts("ok");
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"alone", case_alone},
	{"seccomp", case_seccomp},
	{"seccomp_syscall", case_seccomp_syscall},
	{"seccomp_syscall_prctl", case_seccomp_syscall_prctl},
	{"setuid", case_setuid},
	{"handler", case_handler},
	{"eintr", case_eintr},
	{"restart", case_restart},
	{"unused", case_unused},
	{"main_left", case_main_left},
	{"fork_race", case_fork_race},
	{"for_ever", case_for_ever},
	{"seccomp_first", case_seccomp_first},
};

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	port = atoi(argv[2]);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "hosted: no case '%s'\n", argv[1]);
	return 2;
}
