/* Connects, and says of each attempt in a line "ERRNO MICROSECONDS" (0 for a connection). The caller counts.
 *
 * usage: dial [-n TIMES] [-i INTERVAL_MS] [-u] [-a] [-k SECONDS] [-x] [-b] HOST PORT
 *   -n  so many times (1)
 *   -i  waits so long between them (0)
 *   -u  until one is connected, within the times
 *   -a  non-blocking: awaited with poll, read by SO_ERROR
 *   -k  keeps the last connection so long before it exits
 *   -x  says "hello" on each connection and waits for its answer: a call, where a connection alone says little
 *   -b  waits for a byte (or the end) on stdin before the first
 * HOST: a literal, or a name, whose addresses are tried in turn. Exit code: 0 when the last attempt was connected,
 * else 1. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static int attempt(const struct addrinfo *a, bool is_async, int *fd)
{
	int error = 0;
	socklen_t len = sizeof error;

	*fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | (is_async ? SOCK_NONBLOCK : 0), 0);
	if (*fd < 0)
		return errno;
	if (connect(*fd, a->ai_addr, a->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS || !is_async)
		return errno;
	if (poll(&(struct pollfd){*fd, POLLOUT, 0}, 1, 60000) != 1)
		return ETIME; /* not one of the errors that a connect has */
	if (getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		return errno;
	return error;
}

static int exchange(int fd)
{
	char answer[64];

	if (send(fd, "hello\n", 6, MSG_NOSIGNAL) != 6 || poll(&(struct pollfd){fd, POLLIN, 0}, 1, 60000) != 1)
		return errno;
	ssize_t n = recv(fd, answer, sizeof answer, 0);
	return n > 0 ? 0 : n == 0 ? ENODATA : errno;
}

int main(int argc, char **argv)
{
	int times = 1, interval = 0, keep = 0, option, error = 0, fd = -1;
	bool until = false, is_async = false, exchanges = false, waits = false;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;

	while ((option = getopt(argc, argv, "n:i:uak:xb")) != -1) {
		switch (option) {
		case 'n': times = atoi(optarg); break;
		case 'i': interval = atoi(optarg); break;
		case 'u': until = true; break;
		case 'a': is_async = true; break;
		case 'k': keep = atoi(optarg); break;
		case 'x': exchanges = true; break;
		case 'b': waits = true; break;
		default: return 2;
		}
	}
	if (argc - optind != 2)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (waits) {
		char byte;

		if (read(STDIN_FILENO, &byte, 1) < 0)
			return 2;
	}
	for (int i = 0; i < times; i++) {
		long long begin;

		if (fd >= 0)
			close(fd);
		if (i > 0 && interval > 0)
			usleep((useconds_t)interval * 1000);
		error = getaddrinfo(argv[optind], argv[optind + 1], &hints, &list);
		if (error != 0) {
			fprintf(stderr, "dial: %s\n", gai_strerror(error));
			return 3;
		}
		begin = now_us();
		for (struct addrinfo *a = list; a; a = a->ai_next) {
			error = attempt(a, is_async, &fd);
			if (error == 0 || !a->ai_next)
				break;
			close(fd);
		}
		if (error == 0 && exchanges)
			error = exchange(fd);
		printf("%s %lld\n", error ? strerrorname_np(error) : "0", now_us() - begin);
		freeaddrinfo(list);
		if (until && error == 0)
			break;
	}
	sleep((unsigned)keep);
	return error != 0;
}
