/* Ways to begin a connection other than connect(2), addresses that are not plain, and interruptions. Says a line "WHAT
 * ERRNO" for each. usage: calls CASE PORT */
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

#include "tool.h"

static int port;

static void say(const char *what, long result)
{
	printf("%s %s\n", what, result < 0 ? errno_name(errno) : "0");
}

/* ---- TCP fast open (CN2) ---- */

static void case_sendto(void)
{
	struct sockaddr_in to = local_address(port);

	say("sendto",
		sendto(new_socket(0), "hello\n", 6, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof to));
}

static void case_sendmsg(void)
{
	struct sockaddr_in to = local_address(port);
	struct iovec part = {"hello\n", 6};
	struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};

	say("sendmsg", sendmsg(new_socket(0), &m, MSG_FASTOPEN | MSG_NOSIGNAL));
}

static void case_fastopen_connect(void)
{
	struct sockaddr_in to = local_address(port);
	int fd = new_socket(0), one = 1;

	must(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof one) == 0);
	long result = connect(fd, (struct sockaddr *)&to, sizeof to);
	if (result == 0)
		result = send(fd, "hello\n", 6, MSG_NOSIGNAL);
	say("fastopen_connect", result);
}

/* ---- syscall(2) (E12) ---- */

static void case_syscall(void)
{
	struct sockaddr_in to = local_address(port);
	int fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);

	say("connect", syscall(SYS_connect, fd, &to, sizeof to));
	say("close", syscall(SYS_close, fd));
	say("closed", syscall(SYS_close, fd));
	/* Six arguments pass untouched. */
	int file = memfd_create("six", 0);
	must(ftruncate(file, 8192) == 0 && pwrite(file, "second", 6, 4096) == 6);
	char *page = (char *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_SHARED, file, 4096);
	must(page != MAP_FAILED && !memcmp(page, "second", 6));
	say("nonsense", syscall(99999));
}

/* ---- addresses (CN6) ---- */

static void try_address(const char *what, const void *address, socklen_t len)
{
	int family = *(const sa_family_t *)address == AF_INET6 ? AF_INET6 : AF_INET;
	int fd = socket(family, SOCK_STREAM, 0);

	must(fd >= 0);
	say(what, connect(fd, address, len));
	close(fd);
}

static void case_addresses(void)
{
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_un local;
		unsigned char bytes[256];
	} a;

	memset(&a, 0, sizeof a);
	a.v4 = local_address(port);
	try_address("whole", &a, sizeof a.v4);
	try_address("oversized", &a, 28);
	try_address("largest", &a, 128);
	try_address("too_large", &a, 129);
	try_address("huge", &a, 0x7fffffff);
	try_address("negative", &a, (socklen_t)-1);
	try_address("short15", &a, 15);
	try_address("short4", &a, 4);
	try_address("short2", &a, 2);
	try_address("short1", &a, 1);
	try_address("empty", &a, 0);
	a.v4.sin_family = AF_UNIX;
	try_address("wrong_family", &a, sizeof a.v4);
	a.v4.sin_family = AF_UNSPEC;
	try_address("unspec", &a, sizeof a.v4);
	a.v4 = local_address(0);
	try_address("port0", &a, sizeof a.v4);

	memset(&a, 0, sizeof a);
	a.v6.sin6_family = AF_INET6;
	a.v6.sin6_port = htons((in_port_t)port);
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &a.v6.sin6_addr);
	try_address("mapped", &a, sizeof a.v6);
	try_address("mapped24", &a, 24); /* as old programs have it: without a scope id */
	try_address("mapped23", &a, 23);
	inet_pton(AF_INET6, "fe80::1", &a.v6.sin6_addr);
	a.v6.sin6_scope_id = 0;
	try_address("no_scope", &a, sizeof a.v6);
	a.v6.sin6_scope_id = 9999;
	try_address("no_such_scope", &a, sizeof a.v6);

	errno = 0;
	say("bad_pointer", connect(new_socket(0), (struct sockaddr *)8, sizeof a.v4)); /* NOLINT: on purpose */
	struct sockaddr_in to = local_address(port);
	say("bad_descriptor", connect(-1, (struct sockaddr *)&to, sizeof to));
	say("large_descriptor", connect(1 << 30, (struct sockaddr *)&to, sizeof to));
	say("no_socket", connect(STDIN_FILENO, (struct sockaddr *)&to, sizeof to));
}

/* A socket let go by AF_UNSPEC and used again, and one that is connected twice. */
static void case_again(void)
{
	struct sockaddr_in to = local_address(port);
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	int fd = new_socket(0);

	say("first", connect(fd, (struct sockaddr *)&to, sizeof to));
	say("second", connect(fd, (struct sockaddr *)&to, sizeof to));
	say("let_go", connect(fd, &none, sizeof none));
	say("third", connect(fd, (struct sockaddr *)&to, sizeof to));
}

/* ---- interruptions of a blocking connect (E1) ---- */

static void on_alarm(int number)
{
	(void)number;
}

static void interrupted(int flags)
{
	struct sockaddr_in to = local_address(port);
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
	struct itimerval soon = {.it_value = {0, 100000}};
	int fd = new_socket(0);

	must(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
	say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
}

static void case_eintr(void)
{
	interrupted(0);
}

static void case_restart(void)
{
	interrupted(SA_RESTART);
}

/* The app's own SO_SNDTIMEO is its own, before and after (C2). */
static void case_own_timeout(void)
{
	struct sockaddr_in to = local_address(port);
	struct timeval own = {0, 150000}, after = {9, 9};
	socklen_t len = sizeof after;
	int fd = new_socket(0);

	must(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &own, sizeof own) == 0);
	int begin = now_ms();
	say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
	int took = now_ms() - begin;
	must(took >= 149 && took < 290);
	must(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &after, &len) == 0);
	must(after.tv_sec == 0 && after.tv_usec >= 148000 && after.tv_usec <= 152000);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"sendto", case_sendto},
	{"sendmsg", case_sendmsg},
	{"fastopen_connect", case_fastopen_connect},
	{"syscall", case_syscall},
	{"addresses", case_addresses},
	{"again", case_again},
	{"eintr", case_eintr},
	{"restart", case_restart},
	{"own_timeout", case_own_timeout},
};

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	port = atoi(argv[2]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "calls: no case '%s'\n", argv[1]);
	return 2;
}
