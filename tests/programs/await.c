/* A non-blocking connect, awaited and read in every way that programs have. Says "ERRNO MS".
 * usage: await poll|select|level|edge|early  error|connect|write  PORT
 *   early: epoll edge, registered before the connect (as nginx does)
 *   error: SO_ERROR, connect: a second connect, write: just a send */
#include <sys/epoll.h>
#include <sys/select.h>

#include "tool.h"

static int epoll_add(int fd, unsigned events)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = {.events = events, .data.fd = fd};

	must(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
	return ep;
}

static void epoll_await(int ep, int fd)
{
	struct epoll_event e;
	int n;

	/* A socket that is not connecting yet is "hung up": the early registration hears that too. */
	do {
		n = epoll_wait(ep, &e, 1, 5000);
		must(n == 1 && e.data.fd == fd);
	} while (!(e.events & (EPOLLOUT | EPOLLERR)));
}

/* A whole call: that it connected says little of a server. */
static void exchange(int fd)
{
	char answer[64];

	must(send(fd, "hello\n", 6, MSG_NOSIGNAL) == 6 && poll(&(struct pollfd){fd, POLLIN, 0}, 1, 5000) == 1);
	must(recv(fd, answer, sizeof answer, 0) > 0);
}

int main(int argc, char **argv)
{
	must(argc == 4);
	const char *way = argv[1], *end = argv[2];
	struct sockaddr_in to = local_address(atoi(argv[3]));
	int fd = new_socket(SOCK_NONBLOCK), begin = now_ms(), result = 0, ep = -1;

	if (!strcmp(way, "early"))
		ep = epoll_add(fd, EPOLLOUT | EPOLLIN | EPOLLRDHUP | EPOLLET);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) {
		printf("0 0\n");
		exchange(fd);
		return 0;
	}
	if (errno != EINPROGRESS) {
		printf("%s %d\n", errno_name(errno), now_ms() - begin);
		return 1;
	}
	if (!strcmp(way, "poll")) {
		must(poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 5000) == 1);
	} else if (!strcmp(way, "select")) {
		fd_set writable;
		struct timeval limit = {5, 0};

		FD_ZERO(&writable);
		FD_SET(fd, &writable);
		must(select(fd + 1, NULL, &writable, NULL, &limit) == 1);
	} else if (!strcmp(way, "early")) {
		epoll_await(ep, fd);
	} else {
		ep = epoll_add(fd, !strcmp(way, "edge") ? EPOLLOUT | EPOLLET : EPOLLOUT);
		epoll_await(ep, fd);
	}
	int took = now_ms() - begin;
	if (!strcmp(end, "error")) {
		result = so_error(fd);
	} else if (!strcmp(end, "connect")) {
		if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EISCONN)
			result = errno;
	} else {
		result = send(fd, "x", 1, MSG_NOSIGNAL) == 1 ? 0 : errno;
	}
	printf("%s %d\n", errno_name(result), took);
	if (result == 0)
		exchange(fd);
	return result != 0;
}
