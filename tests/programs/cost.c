/* What a connect costs: many of one kind, marked for strace and callgrind.
 * usage: cost rejected|blocking|async PORT TIMES
 *   rejected: the circuit is opened by five refusals first. Every measured connect is between two calls of getppid(2),
 * which strace shows, and inside of measured(), which callgrind's --toggle-collect counts. */
#include <sys/syscall.h>

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

int main(int argc, char **argv)
{
	must(argc == 4);
	struct sockaddr_in to = local_address(atoi(argv[2]));
	int times = atoi(argv[3]), is_rejected = !strcmp(argv[1], "rejected"), is_async = !strcmp(argv[1], "async");

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
		close(fd);
		mark();
	}
	return 0;
}
