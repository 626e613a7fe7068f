/* A server that behaves as it is told: the other side of the tests and of the demo. One thread, one port, no
 * dependency.
 *
 * usage: peer ADDRESS PORT MODE        ADDRESS: 127.0.0.1, ::1, ...; PORT 0: any free one
 * MODE, and later each line on stdin:
 *   answer   accepts; HTTP requests get 200, everything else gets "ok\n" back
 *   hang     accepts and never says a word
 *   close    accepts and closes at once
 *   reset    accepts and resets at once
 *   refuse   nobody listens: connections are refused; the port stays ours, so no one else gets it
 *   full     listens, but the queue is full: SYNs are dropped and connects hang, as behind a dead router
 *   quit     ends
 * Says on stdout, a line each: "MODE PORT" when the mode is in force, "accepted PEERPORT", "closed PEERPORT". */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS_MAX 900
#define FILLERS_MAX 16

enum mode { MODE_ANSWER, MODE_HANG, MODE_CLOSE, MODE_RESET, MODE_REFUSE, MODE_FULL, MODE_COUNT };
static const char *const mode_names[MODE_COUNT] = {"answer", "hang", "close", "reset", "refuse", "full"};

static struct sockaddr_storage address; /* with the port once it is known */
static socklen_t address_len;
static enum mode mode;
static int listener = -1;
static struct client {
	int fd, port;
} clients[CLIENTS_MAX];
static int client_count;
static int fillers[FILLERS_MAX];
static int filler_count;

static void die(const char *what)
{
	fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
	exit(1);
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

static void drop_client(int i)
{
	printf("closed %d\n", clients[i].port);
	close(clients[i].fd);
	clients[i] = clients[--client_count];
}

static void reset_socket(int fd)
{
	struct linger now = {1, 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(fd);
}

static void enter(enum mode next)
{
	bool was_listening = mode != MODE_REFUSE && mode != MODE_FULL && listener >= 0;
	bool listens = next != MODE_REFUSE && next != MODE_FULL;

	if (listener >= 0 && !(was_listening && listens)) {
		close(listener);
		listener = -1;
	}
	if (!listens)
		while (client_count > 0)
			drop_client(0);
	drop_fillers();
	mode = next;
	if (listener < 0) {
		listener = bind_socket();
		if (mode != MODE_REFUSE && listen(listener, mode == MODE_FULL ? 0 : 511) != 0)
			die("listen");
	}
	if (mode == MODE_FULL)
		fill_queue();
	printf("%s %d\n", mode_names[mode], port_of(&address));
}

static void accept_one(void)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof from;
	int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (is_filler(&from)) {
		close(fd);
		return;
	}
	printf("accepted %d\n", port_of(&from));
	if (mode == MODE_RESET) {
		reset_socket(fd);
	} else if (mode == MODE_CLOSE || client_count == CLIENTS_MAX) {
		close(fd);
	} else {
		clients[client_count++] = (struct client){fd, port_of(&from)};
	}
}

static void serve(int i)
{
	static const char http[] =
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
	char buf[8192];
	ssize_t n = recv(clients[i].fd, buf, sizeof buf - 1, 0);

	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			drop_client(i);
		return;
	}
	if (mode != MODE_ANSWER)
		return;
	buf[n] = '\0';
	if (strstr(buf, " HTTP/1.")) {
		if (send(clients[i].fd, http, sizeof http - 1, MSG_NOSIGNAL) > 0)
			shutdown(clients[i].fd, SHUT_WR);
	} else if (send(clients[i].fd, "ok\n", 3, MSG_NOSIGNAL) < 0) {
		drop_client(i);
	}
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
		int i;

		*end = '\0';
		if (!strcmp(line, "quit"))
			return false;
		for (i = 0; i < MODE_COUNT && strcmp(line, mode_names[i]) != 0; i++)
			;
		if (i == MODE_COUNT)
			fprintf(stderr, "peer: what is '%s'?\n", line);
		else
			enter((enum mode)i);
		have -= (size_t)(end + 1 - line);
		memmove(line, end + 1, have + 1);
	}
	return true;
}

int main(int argc, char **argv)
{
	int first = 0;

	if (argc != 4) {
		fprintf(stderr, "usage: peer ADDRESS PORT answer|hang|close|reset|refuse|full\n");
		return 2;
	}
	while (first < MODE_COUNT && strcmp(argv[3], mode_names[first]) != 0)
		first++;
	if (first == MODE_COUNT) {
		fprintf(stderr, "peer: no such mode: '%s'\n", argv[3]);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	set_address(argv[1], argv[2]);
	enter((enum mode)first);
	for (;;) {
		struct pollfd p[2 + CLIENTS_MAX];
		int polled = client_count;

		p[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
		p[1] = (struct pollfd){
			.fd = mode == MODE_REFUSE || mode == MODE_FULL ? -1 : listener, .events = POLLIN};
		for (int i = 0; i < polled; i++)
			p[2 + i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
		if (poll(p, (nfds_t)(2 + polled), -1) < 0)
			continue;
		/* From the last to the first: dropping one moves the last into its place. */
		for (int i = polled - 1; i >= 0; i--)
			if (p[2 + i].revents)
				serve(i);
		if (p[1].revents)
			accept_one();
		if (p[0].revents && !obey())
			return 0;
	}
}
