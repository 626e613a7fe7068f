/* Connects, says nothing, and reads ten bytes as a program does that has a time-out per read only.
 *
 * usage: drip_reader read|poll|stdio PORT
 * Says "BYTES HOW MS": how many came, how it ended (`all`, `end`, or the errno), and ms since before the connect. */
#include "tool.h"

#define WANTED 10

int main(int argc, char **argv)
{
	const char *how = "all", *kind = argc == 3 ? argv[1] : "";
	struct sockaddr_in to = local_address(argc == 3 ? atoi(argv[2]) : 0);
	int begin = now_ms(), fd = new_socket(0), got = 0;
	FILE *stream = NULL;

	must(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	if (!strcmp(kind, "stdio"))
		must((stream = fdopen(fd, "r")) != NULL);
	while (got < WANTED) {
		ssize_t n;
		char byte;

		if (!strcmp(kind, "poll"))
			must(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 5000) == 1);
		if (stream) {
			errno = 0;
			n = fgetc(stream) != EOF ? 1 : ferror(stream) ? -1 : 0;
		} else {
			n = read(fd, &byte, 1);
		}
		if (n <= 0) {
			how = n == 0 ? "end" : errno_name(errno);
			break;
		}
		got++;
	}
	printf("%d %s %d\n", got, how, now_ms() - begin);
	return 0;
}
