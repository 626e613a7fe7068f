/* A guarded connection with a request under way ends where no hook sees it, and its number becomes another
 * connection's; then the old limit comes due (C7).
 *
 * usage: reuse fclose|inline  connect|pair  HUNG_PORT GOOD_PORT LIMIT_MS
 *   fclose: by the C library, inline: by a system call of the program's own
 *   connect: the number's next socket is connected by inline system calls, pair: it is one of a socketpair */
#include <sys/syscall.h>

#include "tool.h"

static long inline_call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}

static void exchange(int fd, int peer)
{
	char answer[64];

	must(send(fd, "hello\n", 6, MSG_NOSIGNAL) == 6);
	if (peer >= 0)
		must(read(peer, answer, 6) == 6 && write(peer, "ok\n", 3) == 3);
	must(recv(fd, answer, sizeof answer, 0) == 3);
}

int main(int argc, char **argv)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

	must(argc == 6);
	int hung = atoi(argv[3]), good = atoi(argv[4]), limit = atoi(argv[5]), peer = -1, now;
	struct sockaddr_in to = local_address(good);
	int fd = connected(hung);
	must(send(fd, request, sizeof request - 1, 0) == sizeof request - 1);
	if (!strcmp(argv[1], "fclose")) {
		FILE *stream = fdopen(fd, "r+");
		must(stream && fclose(stream) == 0);
	} else {
		must(inline_call(SYS_close, fd, 0, 0) == 0);
	}
	if (!strcmp(argv[2], "connect")) {
		now = (int)inline_call(SYS_socket, AF_INET, SOCK_STREAM, 0);
		must(now == fd && inline_call(SYS_connect, now, (long)&to, sizeof to) == 0);
	} else {
		int pair[2];
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
		now = pair[0];
		peer = pair[1];
		must(now == fd);
	}
	/* Its limit, twice and a little. */
	must(poll(&(struct pollfd){now, POLLIN, 0}, 1, limit * 2 + 100) == 0);
	exchange(now, peer);
	must(so_error(now) == 0);
	return 0;
}
