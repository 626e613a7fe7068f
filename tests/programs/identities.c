/* A server that changes between two users, over and over, with a connect under each. usage: identities PORT CHANGES
 * Prints how many regions it has mapped in the end. As root. */
#include "tool.h"

int main(int argc, char **argv)
{
	char line[512];
	int regions = 0;

	must(argc == 3);
	for (int i = 0; i < atoi(argv[2]); i++) {
		must(seteuid(i % 2 ? 0 : 65534) == 0);
		struct sockaddr_in to = local_address(atoi(argv[1]));
		int fd = new_socket(0);

		must(connect(fd, (struct sockaddr *)&to, sizeof to) == -1 && errno == ECONNREFUSED);
		close(fd);
	}
	must(seteuid(0) == 0);
	FILE *maps = fopen("/proc/self/maps", "r");
	must(maps);
	while (fgets(line, sizeof line, maps))
		regions += strstr(line, "/resil-") && strstr(line, " rw-s ");
	fclose(maps);
	printf("%d\n", regions);
	return 0;
}
