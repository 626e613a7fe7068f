/* What the small programs of the suites share: a destination, a pending connect, a clock, and a way to say what was
 * wrong. */
#ifndef TESTS_TOOL_H
#define TESTS_TOOL_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline int now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int)(t.tv_sec % 100000 * 1000 + t.tv_nsec / 1000000);
}

static inline const char *errno_name(int error)
{
	return error ? strerrorname_np(error) : "0";
}

/* Says what is wrong, with the line, and ends. On both ways out, since one of them may be closed. */
#define must(claim)                                                                                                    \
	do {                                                                                                           \
		if (!(claim)) {                                                                                        \
			fprintf(stderr, "line %d: not so: %s (errno %s)\n", __LINE__, #claim, errno_name(errno));      \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* On a crowded machine a time may be: the test runs again (TEST_LATE, lib/common.bash). */
static inline void in_time(int took_ms, int limit_ms)
{
	const char *allowance = getenv("TEST_ALLOWANCE_MS"), *path = getenv("TEST_LATE");

	if (took_ms < limit_ms + (allowance ? atoi(allowance) : 0))
		return;
	FILE *late = path ? fopen(path, "w") : NULL;

	if (late)
		fclose(late);
	fprintf(stderr, "took %d ms; less than %d are right\n", took_ms, limit_ms);
	exit(1);
}

static inline struct sockaddr_in local_address(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((in_port_t)port)};

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static inline int new_socket(int flags)
{
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0);

	must(fd >= 0);
	return fd;
}

/* A connect under way to a local port whose queue is full. */
static inline int pending_connect(int port)
{
	struct sockaddr_in to = local_address(port);
	int fd = new_socket(SOCK_NONBLOCK);

	must(connect(fd, (struct sockaddr *)&to, sizeof to) == -1 && errno == EINPROGRESS);
	return fd;
}

static inline int connected(int port)
{
	struct sockaddr_in to = local_address(port);
	int fd = new_socket(0);

	must(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

static inline int so_error(int fd)
{
	int error = 0;
	socklen_t len = sizeof error;

	must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	return error;
}

/* Whatever is late on a crowded machine, and is no fault of ours: the test runs again (too_late in lib/common.bash). */
static inline void is_late(void)
{
	const char *path = getenv("TEST_LATE");
	FILE *file = path ? fopen(path, "w") : NULL;

	if (file)
		fclose(file);
}

/* The pending connect must end with ETIMEDOUT, limit ms after `begin` (slack: TEST_ALLOWANCE_MS, 20 on top). limit 0,
 * without the shim: it is still pending 400 ms later. */
static inline void must_time_out(int fd, int begin, int limit)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	const char *allowance = getenv("TEST_ALLOWANCE_MS");
	int slack = 20 + (allowance ? atoi(allowance) : 0);

	if (limit == 0) {
		must(poll(&p, 1, 400) == 0);
		return;
	}
	must(poll(&p, 1, 5000) == 1);
	int took = now_ms() - begin;
	int error = so_error(fd);
	if (error == ETIMEDOUT && took > limit + slack)
		is_late();
	if (error != ETIMEDOUT || took < limit - 1 || took > limit + slack) {
		fprintf(stderr, "a connect with a limit of %d ms ended after %d ms with %s\n", limit, took,
			errno_name(error));
		exit(1);
	}
}

#endif
