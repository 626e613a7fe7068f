/* Sends eight octets and receives what comes back, so many times, on one connection.
 *
 * usage: exchanges PORT TIMES */
#include "tool.h"

int main(int argc, char **argv)
{
	char buf[64];
	int fd;

	must(argc == 3);
	fd = connected(atoi(argv[1]));
	for (int i = atoi(argv[2]); i > 0; i--) {
		must(send(fd, "question", 8, 0) == 8);
		must(recv(fd, buf, sizeof buf, 0) > 0);
	}
	return 0;
}
