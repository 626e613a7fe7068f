/* What a hook costs: many calls of one kind, marked for strace and callgrind.
 * usage: cost rejected|blocking|async PORT TIMES
 *        cost hooks TIMES ROUNDS [RESIL]
 *   rejected: the circuit is opened by five refusals first. Every measured connect is between two calls of getppid(2),
 * which strace shows, and inside of measured(), which callgrind's --toggle-collect counts.
 *   hooks: one callgrind dump a section and round, named `section round`. A section is TIMES calls of one kind on
 * descriptors made beforehand, so that the counts of two runs differ by nothing but the calls (tests/bench). Both ends
 * of every connection are here. RESIL, the command: before anything is measured faults are put in at connect, send and
 * receive, met, and lifted. */
// link: -lssl -lcrypto
#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <valgrind/callgrind.h>

#include "tool.h"

__attribute__((noinline)) int measured(int fd, const struct sockaddr_in *to);
int measured(int fd, const struct sockaddr_in *to)
{
	return connect(fd, (const struct sockaddr *)to, sizeof *to);
}

static void mark(void)
{
	/* Not by syscall(2): that is one of the taken names. */
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getppid) : "rcx", "r11", "memory");
}

/* ---- sections ---- */

enum { TIMES_MAX = 256 };
static int times;
static struct sockaddr_in server, nobody; /* one listens, the other is bound only: refused */
static int listener, file;
static int many[TIMES_MAX]; /* descriptors that a section makes, uses up or connects */

/* The two ends of a stream; the far one is nobody's business. */
struct stream {
	int near, far;
};

static char byte = 'x';
static struct iovec vec = {&byte, 1};
static struct msghdr msg = {.msg_iov = &vec, .msg_iovlen = 1};
static struct mmsghdr msgs = {.msg_hdr = {.msg_iov = &vec, .msg_iovlen = 1}};

/* clang-format off */
static const struct transfer {
	const char *name;
	char direction; /* i: far has sent before; o: far takes it afterwards; -: neither */
	int number;
} transfers[] = {
	{"read", 'i', 0}, {"readv", 'i', 1}, {"recv", 'i', 2}, {"recvfrom", 'i', 3}, {"recvmsg", 'i', 4},
	{"recvmmsg", 'i', 5},
	{"write", 'o', 10}, {"writev", 'o', 11}, {"send", 'o', 12}, {"sendto", 'o', 13}, {"sendmsg", 'o', 14},
	{"sendmmsg", 'o', 15}, {"sendfile", 'o', 16},
	{"fcntl F_GETFL", '-', 20}, {"fcntl F_SETFL", '-', 21}, {"ioctl FIONREAD", '-', 22},
	{"getsockopt", '-', 23}, {"setsockopt", '-', 24}, {"poll", '-', 25},
};

#define TIMES(call, right)                                                                                             \
	for (int i = 0; i < times; i++)                                                                                \
		must((call) == (right));                                                                               \
	break
/* clang-format on */

static void transfer(int number, int fd)
{
	int value = 1;
	socklen_t len = sizeof value;
	off_t at = 0;
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	switch (number) {
	case 0: TIMES(read(fd, &byte, 1), 1);
	case 1: TIMES(readv(fd, &vec, 1), 1);
	case 2: TIMES(recv(fd, &byte, 1, 0), 1);
	case 3: TIMES(recvfrom(fd, &byte, 1, 0, NULL, NULL), 1);
	case 4: TIMES(recvmsg(fd, &msg, 0), 1);
	case 5: TIMES(recvmmsg(fd, &msgs, 1, 0, NULL), 1);
	case 10: TIMES(write(fd, &byte, 1), 1);
	case 11: TIMES(writev(fd, &vec, 1), 1);
	case 12: TIMES(send(fd, &byte, 1, 0), 1);
	case 13: TIMES(sendto(fd, &byte, 1, 0, NULL, 0), 1);
	case 14: TIMES(sendmsg(fd, &msg, 0), 1);
	case 15: TIMES(sendmmsg(fd, &msgs, 1, 0), 1);
	case 16: TIMES((at = 0, sendfile(fd, file, &at, 1)), 1);
	case 20: TIMES(fcntl(fd, F_GETFL) >= 0, 1);
	case 21: TIMES(fcntl(fd, F_SETFL, 0), 0);
	case 22: TIMES(ioctl(fd, FIONREAD, &value), 0);
	case 23: TIMES(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len), 0);
	case 24: TIMES(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value), 0);
	case 25: TIMES(poll(&p, 1, 0), 1);
	default: must(0);
	}
}

static char section_name[80];

static void section_begin(const char *name, const char *which, int round)
{
	snprintf(section_name, sizeof section_name, "%s, %s %d", name, which, round);
	CALLGRIND_ZERO_STATS;
}

static void section_end(void)
{
	CALLGRIND_DUMP_STATS_AT(section_name);
}

static void close_many(void)
{
	for (int i = 0; i < times; i++)
		must(close(many[i]) == 0);
}

/* only: of this name; null: all. */
static void transfers_of(struct stream s, const char *only, const char *which, int round)
{
	static char block[TIMES_MAX];

	for (size_t i = 0; i < sizeof transfers / sizeof transfers[0]; i++) {
		const struct transfer *t = &transfers[i];
		if (only && strcmp(only, t->name))
			continue;
		if (t->direction == 'i')
			must(write(s.far, block, (size_t)times) == times);
		section_begin(t->name, which, round);
		transfer(t->number, s.near);
		section_end();
		if (t->direction == 'o')
			for (ssize_t left = times, got; left > 0; left -= got)
				must((got = read(s.far, block, (size_t)left)) > 0);
	}
}

/* A frame of DATA, whole, in the midst of a stream. */
#define FRAME "\0\0\1\0\0\0\0\0\1x"
enum { FRAME_LENGTH = sizeof FRAME - 1 };

static void drain(int fd, size_t n)
{
	static char to[TIMES_MAX * FRAME_LENGTH];

	for (ssize_t got; n > 0; n -= (size_t)got)
		must((got = read(fd, to, n < sizeof to ? n : sizeof to)) > 0);
}

/* Stream 1 is open, and its answer has begun. */
static struct stream http2_connected(void)
{
	static const char asks[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0\1\1\4\0\0\0\1\x83";
	static const char answers[] = "\0\0\0\4\0\0\0\0\0\0\0\1\1\4\0\0\0\1\x88";
	struct stream s = {.near = connected(ntohs(server.sin_port))};

	must((s.far = accept(listener, NULL, NULL)) >= 0);
	must(write(s.near, asks, sizeof asks - 1) == sizeof asks - 1);
	must(write(s.far, answers, sizeof answers - 1) == sizeof answers - 1);
	drain(s.far, sizeof asks - 1);
	drain(s.near, sizeof answers - 1);
	return s;
}

static void frames(struct stream s, int round)
{
	char frame[FRAME_LENGTH];

	for (int i = 0; i < times; i++)
		must(write(s.far, FRAME, FRAME_LENGTH) == FRAME_LENGTH);
	section_begin("read", "a frame of HTTP/2", round);
	for (int i = 0; i < times; i++)
		must(read(s.near, frame, FRAME_LENGTH) == FRAME_LENGTH);
	section_end();
	section_begin("write", "a frame of HTTP/2", round);
	for (int i = 0; i < times; i++)
		must(write(s.near, FRAME, FRAME_LENGTH) == FRAME_LENGTH);
	section_end();
	drain(s.far, (size_t)times * FRAME_LENGTH);
}

/* A request and its answer on a kept connection; the other end's read and write, which mean nothing to the shim, are in
 * it. */
static const struct talk {
	const char *name, *ask, *answer;
} http1 = {"HTTP/1", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 204 None\r\n\r\n"},
  resp = {"RESP", "*1\r\n$4\r\nPING\r\n", "+PONG\r\n"}, unframed = {"unframed", "stats\n", "12 34\n"},
  limited = {"unframed, with limits", "stats\n", "12 34\n"};

static void exchanges(struct stream s, const struct talk *t, int round)
{
	size_t ask = strlen(t->ask), answer = strlen(t->answer);
	char to[64];

	section_begin("request and answer", t->name, round);
	for (int i = 0; i < times; i++) {
		must(write(s.near, t->ask, ask) == (ssize_t)ask);
		must(read(s.far, to, sizeof to) == (ssize_t)ask);
		must(write(s.far, t->answer, answer) == (ssize_t)answer);
		must(read(s.near, to, sizeof to) == (ssize_t)answer);
	}
	section_end();
}

/* Of a connection of its own; the first exchange settles what it speaks. */
static void exchanges_at(const struct sockaddr_in *at, int listening, const struct talk *t, int rounds)
{
	struct stream s = {.near = new_socket(0)};

	must(measured(s.near, at) == 0 && (s.far = accept(listening, NULL, NULL)) >= 0);
	for (int i = 0; i < rounds; i++)
		exchanges(s, t, i);
	close(s.near);
	close(s.far);
}

static void copies_of(int fd, const char *which, int round)
{
	section_begin("dup", which, round);
	for (int i = 0; i < times; i++)
		must((many[i] = dup(fd)) >= 0);
	section_end();
	section_begin("dup2", which, round);
	for (int i = 0; i < times; i++)
		must(dup2(fd, many[i]) == many[i]);
	section_end();
	section_begin("dup3", which, round);
	for (int i = 0; i < times; i++)
		must(dup3(fd, many[i], O_CLOEXEC) == many[i]);
	section_end();
	close_many();
	section_begin("fcntl F_DUPFD_CLOEXEC", which, round);
	for (int i = 0; i < times; i++)
		must((many[i] = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0);
	section_end();
	section_begin("close of a copy", which, round);
	close_many();
	section_end();
}

static void sockets(int flags)
{
	for (int i = 0; i < times; i++)
		must((many[i] = socket(AF_INET, SOCK_STREAM | flags, 0)) >= 0);
}

static void accept_many(void)
{
	int fds[TIMES_MAX];

	for (int i = 0; i < times; i++)
		must((fds[i] = accept(listener, NULL, NULL)) >= 0);
	for (int i = 0; i < times; i++)
		must(close(fds[i]) == 0);
}

static void connects(int round)
{
	section_begin("socket", "stream", round);
	sockets(0);
	section_end();
	section_begin("connect", "blocking", round);
	for (int i = 0; i < times; i++)
		must(connect(many[i], (struct sockaddr *)&server, sizeof server) == 0);
	section_end();
	section_begin("shutdown", "tracked", round);
	for (int i = 0; i < times; i++)
		must(shutdown(many[i], SHUT_WR) == 0);
	section_end();
	section_begin("close", "tracked", round);
	close_many();
	section_end();
	accept_many();

	sockets(0);
	section_begin("connect and close", "blocking", round);
	for (int i = 0; i < times; i++) {
		must(connect(many[i], (struct sockaddr *)&server, sizeof server) == 0);
		must(close(many[i]) == 0);
	}
	section_end();
	accept_many();
}

/* TLS to ourselves, without certificates; the far end's object is not ours to look at. */
static void tls_pair(struct stream s, SSL *ends[2])
{
	SSL_CTX *contexts[2] = {SSL_CTX_new(TLS_client_method()), SSL_CTX_new(TLS_server_method())};

	for (int i = 0; i < 2; i++) {
		must(contexts[i] && SSL_CTX_set_max_proto_version(contexts[i], TLS1_2_VERSION));
		must(SSL_CTX_set_cipher_list(contexts[i], "AECDH-AES128-SHA:@SECLEVEL=0"));
		must((ends[i] = SSL_new(contexts[i])) && SSL_set_fd(ends[i], i ? s.far : s.near));
		must(fcntl(i ? s.far : s.near, F_SETFL, O_NONBLOCK) == 0);
	}
	SSL_set_connect_state(ends[0]);
	SSL_set_accept_state(ends[1]);
	for (int left = 3; left;)
		for (int i = 0; i < 2; i++)
			if (left & 1 << i && SSL_do_handshake(ends[i]) == 1)
				left &= ~(1 << i);
	must(fcntl(s.near, F_SETFL, 0) == 0 && fcntl(s.far, F_SETFL, 0) == 0);
}

/* In the midst of a request, and of an answer. */
static void tls_records(SSL *ends[2], int round)
{
	char c;

	section_begin("SSL_write", "tracked", round);
	for (int i = 0; i < times; i++)
		must(SSL_write(ends[0], "x", 1) == 1);
	section_end();
	for (int i = 0; i < times; i++)
		must(SSL_read(ends[1], &c, 1) == 1);
	for (int i = 0; i <= times; i++)
		must(SSL_write(ends[1], "x", 1) == 1);
	must(SSL_read(ends[0], &c, 1) == 1);
	section_begin("SSL_read", "tracked", round);
	for (int i = 0; i < times; i++)
		must(SSL_read(ends[0], &c, 1) == 1);
	section_end();
	must(SSL_write(ends[0], "x", 1) == 1 && SSL_read(ends[1], &c, 1) == 1);
}

/* The first of them starts the thread that holds limits. */
static void pending_connects(int round)
{
	sockets(SOCK_NONBLOCK);
	section_begin("connect, SO_ERROR, write, close", "non-blocking", round);
	for (int i = 0; i < times; i++) {
		must(connect(many[i], (struct sockaddr *)&server, sizeof server) == -1 && errno == EINPROGRESS);
		must(so_error(many[i]) == 0);
		must(write(many[i], &byte, 1) == 1);
		must(close(many[i]) == 0);
	}
	section_end();

	section_begin("accept", "each", round);
	for (int i = 0; i < times; i++)
		must((many[i] = accept(listener, NULL, NULL)) >= 0);
	section_end();
	section_begin("close", "untracked", round);
	close_many();
	section_end();
}

static void refused(int round)
{
	sockets(0);
	section_begin("connect", "rejected", round);
	for (int i = 0; i < times; i++)
		must(connect(many[i], (struct sockaddr *)&nobody, sizeof nobody) == -1 && errno == ECONNREFUSED);
	section_end();
	close_many();
}

/* host: the last octet of its address. */
static int bound(struct sockaddr_in *at, int listens, int host)
{
	int fd = new_socket(0);
	socklen_t len = sizeof *at;

	*at = local_address(0);
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + (in_addr_t)host);
	must(bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && (!listens || listen(fd, TIMES_MAX + 1) == 0));
	must(getsockname(fd, (struct sockaddr *)at, &len) == 0);
	return fd;
}

/* Once it has joined its group. */
static void faults_come_and_go(const char *resil)
{
	char command[2048], to[] = "127.0.0.1:65535", c[2];

	snprintf(to, sizeof to, "127.0.0.1:%d", ntohs(server.sin_port));
	snprintf(command, sizeof command,
		"%1$s fault add errno %2$s errno=EACCES count=1 --forever -g cost && "
		"%1$s fault add short_io %2$s size=1 --forever -g cost",
		resil, to);
	must(system(command) == 0);
	int fd = new_socket(0);
	must(measured(fd, &server) == -1 && errno == EACCES);
	must(measured(fd, &server) == 0);
	int far = accept(listener, NULL, NULL);
	must(far >= 0 && write(fd, "ab", 2) == 1 && write(far, "ab", 2) == 2 && read(fd, c, 2) == 1);
	snprintf(command, sizeof command, "%s fault clear -g cost", resil);
	must(system(command) == 0);
	close(fd);
	close(far);
	/* The next connect finds them gone. */
	fd = connected(ntohs(server.sin_port));
	must((far = accept(listener, NULL, NULL)) >= 0);
	must(write(fd, "ab", 2) == 2 && write(far, "ab", 2) == 2 && read(fd, c, 2) == 2);
	close(fd);
	close(far);
}

/* resil null: without faults. */
static void hooks(int rounds, const char *resil)
{
	must(times > 0 && times <= TIMES_MAX);
	int pair[2], fd;
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	must((file = memfd_create("", 0)) >= 0 && write(file, "x", 1) == 1);
	/* No socket was made yet: there is no table. */
	for (int i = 0; i < rounds; i++)
		transfers_of((struct stream){pair[0], pair[1]}, NULL, "no socket yet", i);
	listener = bound(&server, 1, 1);
	must((fd = bound(&nobody, 0, 1)) >= 0);
	fd = connected(ntohs(server.sin_port));
	int far = accept(listener, NULL, NULL);
	must(far >= 0);
	if (resil)
		faults_come_and_go(resil);
	/* The sixth finds the circuit open; the first rejection leaves an event. */
	for (int i = 0; i < 6; i++) {
		int once = new_socket(0);
		must(measured(once, &nobody) == -1 && errno == ECONNREFUSED);
		must(close(once) == 0);
	}
	for (int i = 0; i < rounds; i++) {
		transfers_of((struct stream){pair[0], pair[1]}, NULL, "untracked", i);
		transfers_of((struct stream){fd, far}, NULL, "tracked", i);
		copies_of(pair[0], "untracked", i);
		copies_of(fd, "tracked", i);
	}
	struct stream http2 = http2_connected();
	for (int i = 0; i < rounds; i++)
		frames(http2, i);
	SSL *ends[2];
	fd = connected(ntohs(server.sin_port));
	must((far = accept(listener, NULL, NULL)) >= 0);
	tls_pair((struct stream){fd, far}, ends);
	for (int i = 0; i < rounds; i++)
		tls_records(ends, i);
	exchanges_at(&server, listener, &http1, rounds);
	exchanges_at(&server, listener, &resp, rounds);
	exchanges_at(&server, listener, &unframed, rounds);
	for (int i = 0; i < rounds; i++) {
		connects(i);
		refused(i);
	}
	for (int i = 0; i < rounds; i++)
		pending_connects(i);
	for (int i = 0; i < rounds; i++) {
		transfers_of((struct stream){pair[0], pair[1]}, "read", "beside a thread of ours", i);
		transfers_of((struct stream){pair[0], pair[1]}, "write", "beside a thread of ours", i);
	}
	/* Last: limits bring the thread that holds them, too. */
	struct sockaddr_in bounding;
	must((fd = bound(&bounding, 1, 2)) >= 0);
	exchanges_at(&bounding, fd, &limited, rounds);
}

int main(int argc, char **argv)
{
	must(argc == 4 || argc == 5);
	if (!strcmp(argv[1], "hooks")) {
		times = atoi(argv[2]);
		hooks(atoi(argv[3]), argv[4]);
		return 0;
	}
	struct sockaddr_in to = local_address(atoi(argv[2]));
	int is_rejected = !strcmp(argv[1], "rejected"), is_async = !strcmp(argv[1], "async");

	times = atoi(argv[3]);
	if (is_rejected) {
		for (int i = 0; i < 5; i++) {
			int fd = new_socket(0);

			must(connect(fd, (struct sockaddr *)&to, sizeof to) == -1 && errno == ECONNREFUSED);
			close(fd);
		}
		int fd = new_socket(0);
		must(measured(fd, &to) == -1); /* the first rejection leaves an event */
		mark();
		for (int i = 0; i < times; i++)
			must(measured(fd, &to) == -1 && errno == ECONNREFUSED);
		mark();
		return 0;
	}
	for (int i = 0; i < times; i++) {
		mark();
		int fd = new_socket(is_async ? SOCK_NONBLOCK : 0);
		int result = measured(fd, &to);
		if (is_async && result != 0) {
			must(errno == EINPROGRESS && poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 5000) == 1);
			result = so_error(fd);
		}
		must(result == 0);
		mark();
		close(fd);
	}
	return 0;
}
