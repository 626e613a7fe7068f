/* A request is sent, and a fork's child waits for its answer, in one of the ways that programs wait. The parent has gone
 * (daemon) or waits for the child (fork). usage: inherit PORT fork|daemon recv|poll; says "ERRNO MS". */
#include <sys/wait.h>

#include "tool.h"

int main(int argc, char **argv)
{
	must(argc == 4);
	int fd = connected(atoi(argv[1])), begin = now_ms(), status, ends[2];
	char answer[64];

	must(send(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27, 0) == 27 && pipe(ends) == 0);
	pid_t child = fork();
	must(child >= 0);
	if (child > 0) {
		close(fd);
		close(ends[1]);
		must(waitpid(child, &status, 0) == child);
		ssize_t n = read(ends[0], answer, sizeof answer - 1);
		must(n > 0);
		answer[n] = '\0';
		fputs(answer, stdout);
		return 0;
	}
	if (!strcmp(argv[2], "daemon"))
		must(daemon(1, 1) == 0);
	if (!strcmp(argv[3], "poll"))
		poll(&(struct pollfd){fd, POLLIN, 0}, 1, 5000);
	ssize_t n = recv(fd, answer, sizeof answer, 0);
	int error = n < 0 ? errno : n == 0 ? ENODATA : 0;
	dprintf(ends[1], "%s %d\n", errno_name(error), now_ms() - begin);
	_exit(0);
}
