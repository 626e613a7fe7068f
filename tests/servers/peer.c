/* A server that behaves as it is told: the other side of the tests and of the demo. One thread, one port, no
 * dependency.
 *
 * usage: peer ADDRESS PORT MODE [PIPE]        ADDRESS: 127.0.0.1, ::1, ...; PORT 0: any free one
 * MODE, and later each line on stdin: one of the table `modes` below, `all`, or `quit`. With PIPE, which it makes, each
 * line in that. Says on stdout, a line each: MODE PORT                          the mode is in force
 *   accepted PEERPORT
 *   all are accepted                   to `all`: whose connect had succeeded before
 *   closed PEERPORT MS IN OUT WHO      MS from accept to end; IN, OUT: when the last octet was received and sent (-1:
 *                                      none); WHO ended it: reset, end (the client), peer (we) */
// link: -static
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS_MAX 900
#define FILLERS_MAX 16

#define DRIP_MS 270
#define BODY 100 /* octets that an answer which stays unfinished promises */

enum door { LISTENS, REFUSES, FULL };
enum welcome { STAY, CLOSE, RESET };
enum reply { NOTHING, WHOLE, UNAVAILABLE, HEAD, HEAD_AND_HALF, OCTETS };
enum ending { SILENCE, ENDS, RESETS };

/* clang-format off */
static const struct mode {
	const char *name;
	enum door door;       /* FULL: the queue is full, SYNs are dropped and connects hang, as behind a dead router */
	enum welcome welcome; /* what becomes of a connection at once */
	enum reply reply;     /* what comes at once when something was received */
	int delay_ms;         /* this much later */
	int drip_ms;          /* and then an octet at a time, so far apart (also instead of HEAD where it is not HTTP) */
	enum ending ending;   /* and then */
} modes[] = {
	/* HTTP requests get 200, RESP +OK, everything else "ok\n" */
	{"answer",      LISTENS, STAY,  WHOLE,         0,    0,       SILENCE},
	{"slow",        LISTENS, STAY,  WHOLE,         1500, 0,       SILENCE},
	/* never says a word */
	{"hang",        LISTENS, STAY,  NOTHING,       0,    0,       SILENCE},
	/* an answer that promises more than what comes */
	{"drip",        LISTENS, STAY,  HEAD,          0,    DRIP_MS, SILENCE},
	{"half",        LISTENS, STAY,  HEAD_AND_HALF, 0,    0,       SILENCE},
	{"cut",         LISTENS, STAY,  HEAD_AND_HALF, 0,    0,       RESETS},
	{"early",       LISTENS, STAY,  HEAD_AND_HALF, 0,    0,       ENDS},
	/* speaks first, and drips, whatever the client says */
	{"trickle",     LISTENS, STAY,  OCTETS,        0,    DRIP_MS, SILENCE},
	/* HTTP 503 on a kept connection, RESP -LOADING, PostgreSQL's FATAL 57P03 */
	{"unavailable", LISTENS, STAY,  UNAVAILABLE,   0,    0,       SILENCE},
	{"close",       LISTENS, CLOSE, NOTHING,       0,    0,       SILENCE},
	{"reset",       LISTENS, RESET, NOTHING,       0,    0,       SILENCE},
	/* nobody listens; the port stays ours, so no one else gets it */
	{"refuse",      REFUSES, STAY,  NOTHING,       0,    0,       SILENCE},
	{"full",        FULL,    STAY,  NOTHING,       0,    0,       SILENCE},
};
/* clang-format on */
#define MODE_COUNT (sizeof modes / sizeof *modes)

enum protocol { UNKNOWN, HTTP, RESP, POSTGRES };

static struct sockaddr_storage address; /* with the port once it is known */
static socklen_t address_len;
static const struct mode *mode;
static int listener = -1;
static struct client {
	int fd, port;
	enum protocol protocol;
	const struct mode *mode; /* of the answer under way */
	int begin, in, out;	 /* ms: when accepted, and since then; in, out: -1 for none */
	int due;		 /* when the next step is, or -1 */
	int sent, at_once;	 /* octets of the answer */
} clients[CLIENTS_MAX];
static int client_count;
static int fillers[FILLERS_MAX];
static int filler_count;

static void die(const char *what)
{
	fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int)(t.tv_sec % 100000 * 1000 + t.tv_nsec / 1000000);
}

static int port_of(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
					      : ((const struct sockaddr_in *)a)->sin_port);
}

static void set_address(const char *host, const char *port)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&address;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address;
	in_port_t number = htons((in_port_t)atoi(port));

	if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = number;
		address_len = sizeof *in;
	} else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = number;
		address_len = sizeof *in6;
	} else {
		errno = EINVAL;
		die(host);
	}
}

/* A socket on our port, bound but not listening yet: connects to it are refused. */
static int bind_socket(void)
{
	int one = 1;
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (address.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	/* A probe of the queue that came to nothing may hold the port for a moment. */
	for (int tries = 0; bind(fd, (struct sockaddr *)&address, address_len) != 0; tries++) {
		if (errno != EADDRINUSE || tries == 100)
			die("bind");
		usleep(10000);
	}
	if (port_of(&address) == 0 && getsockname(fd, (struct sockaddr *)&address, &address_len) != 0)
		die("getsockname");
	return fd;
}

static bool is_filler(const struct sockaddr_storage *a)
{
	for (int i = 0; i < filler_count; i++) {
		struct sockaddr_storage own;
		socklen_t len = sizeof own;

		if (getsockname(fillers[i], (struct sockaddr *)&own, &len) == 0 && port_of(&own) == port_of(a))
			return true;
	}
	return false;
}

/* Connects to ourselves until one is left hanging: then the queue is full. */
static void fill_queue(void)
{
	while (filler_count < FILLERS_MAX) {
		int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		struct pollfd p = {.fd = fd, .events = POLLOUT};

		if (fd < 0)
			die("socket");
		if (connect(fd, (struct sockaddr *)&address, address_len) != 0 && errno != EINPROGRESS)
			die("connect");
		if (poll(&p, 1, 150) == 0) {
			close(fd);
			return;
		}
		fillers[filler_count++] = fd;
	}
	errno = ENOBUFS;
	die("the queue does not fill");
}

static void drop_fillers(void)
{
	while (filler_count > 0)
		close(fillers[--filler_count]);
}

static void reset_socket(int fd)
{
	struct linger now = {1, 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(fd);
}

static void drop_client(int i, const char *who)
{
	const struct client *c = &clients[i];

	printf("closed %d %d %d %d %s\n", c->port, now_ms() - c->begin, c->in, c->out, who);
	close(c->fd);
	clients[i] = clients[--client_count];
}

static void enter(const struct mode *next)
{
	bool was_listening = listener >= 0 && mode->door == LISTENS;
	bool listens = next->door == LISTENS;

	if (listener >= 0 && !(was_listening && listens)) {
		close(listener);
		listener = -1;
	}
	if (!listens)
		while (client_count > 0)
			drop_client(0, "peer");
	drop_fillers();
	mode = next;
	if (listener < 0) {
		listener = bind_socket();
		if (mode->door != REFUSES && listen(listener, mode->door == FULL ? 0 : 511) != 0)
			die("listen");
	}
	if (mode->door == FULL)
		fill_queue();
	printf("%s %d\n", mode->name, port_of(&address));
}

/* False: nobody is at the door. */
static bool accept_one(void)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof from;
	int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return false;
	if (is_filler(&from)) {
		close(fd);
		return true;
	}
	printf("accepted %d\n", port_of(&from));
	if (mode->welcome == RESET) {
		reset_socket(fd);
	} else if (mode->welcome == CLOSE || client_count == CLIENTS_MAX) {
		close(fd);
	} else {
		struct client *c = &clients[client_count++];

		*c = (struct client){
			.fd = fd, .port = port_of(&from), .begin = now_ms(), .in = -1, .out = -1, .due = -1};
		if (mode->reply == OCTETS) {
			c->mode = mode;
			c->due = c->begin + mode->drip_ms;
		}
	}
	return true;
}

static void accept_all(void)
{
	while (mode->door == LISTENS && accept_one())
		;
	printf("all are accepted\n");
}

static enum protocol protocol_of(const char *buf, ssize_t n)
{
	if (memmem(buf, (size_t)n, " HTTP/1.", 8))
		return HTTP;
	if (buf[0] == '*')
		return RESP;
	return buf[0] == '\0' ? POSTGRES : UNKNOWN; /* its first message begins with its length */
}

/* The answer that the mode and the protocol ask for: its octets, and how many come at once. */
static int answer_of(const struct client *c, char *buf, size_t size, int *at_once)
{
	static const char *const unfinished[] = {
		[UNKNOWN] = "",
		[HTTP] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n",
		[RESP] = "$100\r\n",
		[POSTGRES] = "E\0\0\0\150",
	};
	static const char ok[] =
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
	static const char unavailable[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: "
					  "text/plain\r\nContent-Length: 12\r\n\r\nunavailable\n";
	static const char starting[] = "E\0\0\0\67SFATAL\0C57P03\0Mthe database system is starting up\0";
	const char *head = "";
	int len, body = 0;

	switch (c->mode->reply) {
	case WHOLE:
		head = c->protocol == HTTP ? ok : c->protocol == RESP ? "+OK\r\n" : "ok\n";
		len = (int)strlen(head);
		break;
	case UNAVAILABLE:
		head = c->protocol == HTTP	 ? unavailable
		       : c->protocol == RESP	 ? "-LOADING the dataset is being loaded\r\n"
		       : c->protocol == POSTGRES ? starting
						 : "unavailable\n";
		len = c->protocol == POSTGRES ? (int)sizeof starting : (int)strlen(head);
		break;
	default:
		head = unfinished[c->protocol];
		len = c->protocol == POSTGRES ? 5 : (int)strlen(head);
		body = BODY;
		break;
	}
	if ((size_t)(len + body) > size)
		return 0;
	memcpy(buf, head, (size_t)len);
	memset(buf + len, 'x', (size_t)body);
	switch (c->mode->reply) {
	case HEAD: *at_once = c->protocol == HTTP ? len : 0; break;
	case HEAD_AND_HALF: *at_once = len + body / 2; break;
	case OCTETS: *at_once = 0; break;
	default: *at_once = len; break;
	}
	return len + body;
}

/* The next step of the answer. false: the connection is gone. */
static bool step(int i)
{
	struct client *c = &clients[i];
	char buf[1024];
	int at_once = 0, len = answer_of(c, buf, sizeof buf, &at_once), now = now_ms();
	int n = c->sent < at_once ? at_once - c->sent : c->mode->drip_ms && c->sent < len ? 1 : 0;

	c->due = -1;
	if (n > 0) {
		if (send(c->fd, buf + c->sent, (size_t)n, MSG_NOSIGNAL) != n) {
			drop_client(i, "reset");
			return false;
		}
		c->sent += n;
		c->out = now - c->begin;
	} else if (c->sent >= at_once && c->mode->ending != SILENCE) {
		if (c->mode->ending == RESETS) {
			struct linger at_close = {1, 0};

			setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_close, sizeof at_close);
		}
		drop_client(i, "peer");
		return false;
	}
	if (c->mode->drip_ms && c->sent < len)
		c->due = now + c->mode->drip_ms;
	else if (c->mode->ending != SILENCE)
		c->due = now + 20; /* what was sent has arrived by then */
	if (c->mode->reply == WHOLE && c->protocol == HTTP)
		shutdown(c->fd, SHUT_WR);
	return true;
}

static void serve(int i)
{
	struct client *c = &clients[i];
	char buf[8192];
	ssize_t n = recv(c->fd, buf, sizeof buf, 0);

	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			drop_client(i, n == 0 ? "end" : "reset");
		return;
	}
	c->in = now_ms() - c->begin;
	if (mode->reply == NOTHING || mode->reply == OCTETS)
		return;
	/* One that is under way goes on. */
	if (c->mode && c->mode->reply != WHOLE && c->mode->reply != UNAVAILABLE)
		return;
	c->mode = mode;
	c->protocol = protocol_of(buf, n);
	c->sent = 0;
	if (mode->delay_ms > 0 || (mode->reply == HEAD && c->protocol != HTTP))
		c->due = c->begin + c->in + (mode->delay_ms > 0 ? mode->delay_ms : mode->drip_ms);
	else
		step(i);
}

/* false: stdin has ended or said so. */
static bool obey(void)
{
	static char line[64];
	static size_t have;
	ssize_t n = read(STDIN_FILENO, line + have, sizeof line - 1 - have);
	char *end;

	if (n <= 0)
		return false;
	have += (size_t)n;
	line[have] = '\0';
	while ((end = strchr(line, '\n')) != NULL) {
		size_t i;

		*end = '\0';
		if (!strcmp(line, "quit"))
			return false;
		for (i = 0; i < MODE_COUNT && strcmp(line, modes[i].name) != 0; i++)
			;
		if (i < MODE_COUNT)
			enter(&modes[i]);
		else if (!strcmp(line, "all"))
			accept_all();
		else
			fprintf(stderr, "peer: what is '%s'?\n", line);
		have -= (size_t)(end + 1 - line);
		memmove(line, end + 1, have + 1);
	}
	return true;
}

/* Opened for both ways: it never ends, and each command may open and close it. */
static void listen_to(const char *pipe)
{
	int fd;

	unlink(pipe);
	if (mkfifo(pipe, 0600) != 0)
		die(pipe);
	fd = open(pipe, O_RDWR);
	if (fd < 0 || dup2(fd, STDIN_FILENO) < 0)
		die(pipe);
	close(fd);
}

int main(int argc, char **argv)
{
	size_t first = 0;

	if (argc != 4 && argc != 5) {
		fprintf(stderr, "usage: peer ADDRESS PORT MODE [PIPE], one of:");
		for (; first < MODE_COUNT; first++)
			fprintf(stderr, " %s", modes[first].name);
		fprintf(stderr, "\n");
		return 2;
	}
	while (first < MODE_COUNT && strcmp(argv[3], modes[first].name) != 0)
		first++;
	if (first == MODE_COUNT) {
		fprintf(stderr, "peer: no such mode: '%s'\n", argv[3]);
		return 2;
	}
	if (argc == 5)
		listen_to(argv[4]);
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	set_address(argv[1], argv[2]);
	enter(&modes[first]);
	for (;;) {
		struct pollfd p[2 + CLIENTS_MAX];
		int polled = client_count, wait = -1;

		p[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
		p[1] = (struct pollfd){.fd = mode->door == LISTENS ? listener : -1, .events = POLLIN};
		for (int i = 0, now = now_ms(); i < polled; i++) {
			int left = clients[i].due - now;

			p[2 + i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
			if (clients[i].due >= 0 && (wait < 0 || left < wait))
				wait = left > 0 ? left : 0;
		}
		if (poll(p, (nfds_t)(2 + polled), wait) < 0)
			continue;
		/* From the last to the first: dropping one moves the last into its place. */
		for (int i = polled - 1; i >= 0; i--)
			if (p[2 + i].revents)
				serve(i);
			else if (clients[i].due >= 0 && now_ms() >= clients[i].due)
				step(i);
		if (p[1].revents)
			accept_one();
		if (p[0].revents && !obey())
			return 0;
	}
}
