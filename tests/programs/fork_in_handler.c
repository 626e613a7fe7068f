/* A handler forks in the midst of a blocking connect, and both sides return into it. It succeeds, and the child, whose
 * call it is not, uses the connection at once. Says "ok". usage: fork_in_handler */
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "tool.h"

static int listener;
static volatile pid_t child = -1;

static void drain(void)
{
	while (accept4(listener, NULL, NULL, SOCK_NONBLOCK) >= 0)
		;
}

static void on_alarm(int sig)
{
	(void)sig;
	child = fork();
	if (child != 0)
		drain(); /* the next SYN is taken */
}

int main(void)
{
	struct sockaddr_in at = local_address(0);
	socklen_t len = sizeof at;
	int status;

	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	must(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 0) == 0);
	must(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	for (int i = 0; i < 3; i++) {
		int filler = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		must(connect(filler, (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
	}
	must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_alarm, .sa_flags = SA_RESTART}, NULL) == 0);
	must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_usec = 200000}}, NULL) == 0);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	must(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
	must(child >= 0);
	int begun = now_ms();
	for (int i = 0; i < 20; i++) {
		char c;
		must(recv(fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	}
	in_time(now_ms() - begun, 1000);
	if (child == 0)
		_exit(0);
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	puts("ok");
	return 0;
}
