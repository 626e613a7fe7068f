/* What each test begins with, in one process: makes DIRECTORY/home, and the pipe DIRECTORY/nap, from which nothing ever
 * comes (nap in lib/common.bash). What stays behind then ends the children of the test's process once that has run for
 * far too long, and leaves DIRECTORY/kept, for which the test fails. It goes with the test.
 *
 * usage: keeper PID SECONDS DIRECTORY */
// link: -static
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void end_children_of(const char *pid)
{
	char path[300];
	struct dirent *each;

	snprintf(path, sizeof path, "/proc/%s/task", pid);
	DIR *tasks = opendir(path);

	while (tasks && (each = readdir(tasks))) {
		int child;

		if (each->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/%s/task/%s/children", pid, each->d_name);
		FILE *children = fopen(path, "r");

		while (children && fscanf(children, "%d", &child) == 1)
			kill(child, SIGKILL);
		if (children)
			fclose(children);
	}
	if (tasks)
		closedir(tasks);
}

int main(int argc, char **argv)
{
	char path[4096];

	if (argc != 4) {
		fprintf(stderr, "usage: keeper PID SECONDS DIRECTORY\n");
		return 2;
	}
	snprintf(path, sizeof path, "%s/home", argv[3]);
	if (mkdir(path, 0755) != 0 && errno != EEXIST) {
		fprintf(stderr, "keeper: %s: %s\n", path, strerror(errno));
		return 1;
	}
	snprintf(path, sizeof path, "%s/nap", argv[3]);
	if (mkfifo(path, 0600) != 0 && errno != EEXIST) {
		fprintf(stderr, "keeper: %s: %s\n", path, strerror(errno));
		return 1;
	}
	/* Its own, before the test can be gone and its number another's. */
	struct pollfd test = {.fd = (int)syscall(SYS_pidfd_open, atoi(argv[1]), 0), .events = POLLIN};

	if (test.fd < 0) {
		perror("keeper: pidfd_open");
		return 1;
	}
	pid_t child = fork();

	if (child < 0) {
		perror("keeper: fork");
		return 1;
	}
	if (child > 0)
		return 0;
	/* The words on stderr go where the test's go; nobody waits for the end of that. */
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	setsid();
	if (poll(&test, 1, atoi(argv[2]) * 1000) == 0) {
		fprintf(stderr, "# the test has run for %s s: its children are ended\n", argv[2]);
		snprintf(path, sizeof path, "%s/kept", argv[3]);
		FILE *told = fopen(path, "w");

		if (told)
			fclose(told);
		end_children_of(argv[1]);
	}
	return 0;
}
