/* Runs a command for so long at most, under the shim or not, as `timeout -k 2 SECONDS env [LD_PRELOAD=SHIM] COMMAND`
 * does, by one small program in place of two: most of the suite's processes are started by it.
 *
 * usage: limited SECONDS [-p SHIM] COMMAND [ARGUMENT]...
 * Ends as the command does (128 and the signal's number where one ended it), with 124 where the time was over (137
 * where it had to be killed two seconds later), 126 or 127 where there is no such command. */
// link: -static
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 2

extern char **environ;

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* To the command and to whatever it has started; we are of the same group, and deaf to it. */
static void tell(pid_t child, int signal_number)
{
	if (signal_number != SIGKILL)
		signal(signal_number, SIG_IGN);
	kill(child, signal_number);
	kill(0, signal_number);
	kill(child, SIGCONT);
}

static pid_t begin(char **command, const sigset_t *before)
{
	static const int ours[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGALRM, SIGTTIN, SIGTTOU, SIGCHLD};
	posix_spawnattr_t how;
	sigset_t defaults;
	pid_t child;

	sigemptyset(&defaults);
	for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
		sigaddset(&defaults, ours[i]);
	posix_spawnattr_init(&how);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&how, before);
	posix_spawnattr_setsigdefault(&how, &defaults);
	int error = posix_spawnp(&child, command[0], NULL, &how, command, environ);

	if (error) {
		fprintf(stderr, "limited: %s: %s\n", command[0], strerror(error));
		exit(error == ENOENT ? 127 : 126);
	}
	return child;
}

int main(int argc, char **argv)
{
	char **command = argv + 2;
	sigset_t waited, before;
	bool is_late = false;

	if (argc < 3 || (strcmp(argv[2], "-p") == 0 && argc < 5)) {
		fprintf(stderr, "usage: limited SECONDS [-p SHIM] COMMAND [ARGUMENT]...\n");
		return 125;
	}
	if (strcmp(argv[2], "-p") == 0) {
		setenv("LD_PRELOAD", argv[3], 1);
		command = argv + 4;
	} else {
		unsetenv("LD_PRELOAD");
	}
	setpgid(0, 0);
	sigemptyset(&waited);
	sigaddset(&waited, SIGCHLD);
	sigaddset(&waited, SIGTERM);
	sigaddset(&waited, SIGINT);
	sigaddset(&waited, SIGHUP);
	sigprocmask(SIG_BLOCK, &waited, &before);
	signal(SIGCHLD, SIG_DFL);
	pid_t child = begin(command, &before);
	long end = now_ms() + atol(argv[1]) * 1000;

	for (;;) {
		long left = end - now_ms();
		struct timespec t = {left > 0 ? left / 1000 : 0, left > 0 ? left % 1000 * 1000000 : 0};
		int status, got = sigtimedwait(&waited, NULL, &t);

		if (waitpid(child, &status, WNOHANG) == child) {
			if (is_late)
				return 124;
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		}
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && is_late) {
			tell(child, SIGKILL); /* us too: 137 */
		} else if (got < 0) {
			is_late = true;
			tell(child, SIGTERM);
			end = now_ms() + PATIENCE_S * 1000;
		} else if (got != SIGCHLD) {
			tell(child, got);
		}
	}
}
