/* Many kept connections, a call on one after the other, each with limits that are met: what does the thread that holds
 * them cost? usage: many CONNECTIONS SECONDS [expire]; says "CALLS calls, US us of ALL": the processor time of the
 * timer. With `expire` one more connection asks and is never answered. As many servers as it takes are forks of this
 * program. */
#include <dirent.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tool.h"

#define PER_SERVER 8000

static void serve(int listener)
{
	int ep = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
	char line[64];

	must(epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e) == 0);
	for (;;) {
		struct epoll_event got[64];
		int n = epoll_wait(ep, got, 64, -1);

		for (int i = 0; i < n; i++) {
			int fd = got[i].data.fd;

			if (fd == listener) {
				fd = accept(listener, NULL, NULL);
				if (fd < 0)
					continue;
				e.data.fd = fd;
				epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
				continue;
			}
			ssize_t len = recv(fd, line, sizeof line, 0);
			if (len <= 0)
				close(fd);
			else if (line[0] != 'n') /* "never" */
				send(fd, "ok\n", 3, MSG_NOSIGNAL);
		}
	}
}

/* Time on a processor that the thread of that name has had, in us. Not the clock ticks of `stat`: those are samples,
 * and who wakes at a tick is met by each of them. */
static long time_of(const char *name)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	long long sum = 0, ns;

	must(tasks);
	while ((task = readdir(tasks))) {
		char path[300], text[64] = "";
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
		FILE *f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(text, sizeof text, f) && strstr(text, name)) {
			snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", task->d_name);
			FILE *times = fopen(path, "r");
			must(times && fscanf(times, "%lld", &ns) == 1);
			fclose(times);
			sum += ns;
		}
		fclose(f);
	}
	closedir(tasks);
	return (long)(sum / 1000);
}

int main(int argc, char **argv)
{
	must(argc >= 3);
	int n = atoi(argv[1]), servers = n / PER_SERVER + 1, *fds = calloc((size_t)n + 1, sizeof *fds);
	struct rlimit most;
	struct sockaddr_in at[8];
	pid_t pids[8];
	char answer[64];

	must(fds && servers <= 8 && getrlimit(RLIMIT_NOFILE, &most) == 0);
	most.rlim_cur = most.rlim_max;
	must(setrlimit(RLIMIT_NOFILE, &most) == 0 && most.rlim_cur > (rlim_t)n + 100);
	for (int i = 0; i < servers; i++) {
		int listener = new_socket(0);
		socklen_t len = sizeof at[i];

		at[i] = local_address(0);
		must(bind(listener, (struct sockaddr *)&at[i], sizeof at[i]) == 0 && listen(listener, 4096) == 0);
		must(getsockname(listener, (struct sockaddr *)&at[i], &len) == 0);
		pids[i] = fork();
		must(pids[i] >= 0);
		if (pids[i] == 0)
			serve(listener);
		close(listener);
	}
	for (int i = 0; i < n; i++) {
		fds[i] = new_socket(0);
		must(connect(fds[i], (struct sockaddr *)&at[i % servers], sizeof at[0]) == 0);
	}
	for (int i = 0; i < n; i++) /* the first call of each */
		must(send(fds[i], "ask\n", 4, 0) == 4 && recv(fds[i], answer, sizeof answer, 0) == 3);
	/* The kernel is asked once about each connection, when its first limit comes: that is over by then. */
	usleep(4000 * 1000);
	if (argc > 3)
		must(send(fds[0], "never\n", 6, 0) == 6);
	long before = time_of("resil-timer"), calls = 0;
	int end = now_ms() + atoi(argv[2]) * 1000;
	for (int i = 1; now_ms() < end; i = i % (n - 1) + 1, calls++)
		must(send(fds[i], "ask\n", 4, 0) == 4 && recv(fds[i], answer, sizeof answer, 0) == 3);
	long used = time_of("resil-timer") - before;
	if (argc > 3)
		must(recv(fds[0], answer, sizeof answer, 0) == -1 && errno == ETIMEDOUT);
	printf("%ld calls, %ld us of %ld\n", calls, used, 1000000L * atoi(argv[2]));
	for (int i = 0; i < servers; i++)
		must(kill(pids[i], SIGKILL) == 0 && waitpid(pids[i], NULL, 0) == pids[i]);
	return 0;
}
