/* Many kept connections in one process, and whether anybody in it wakes while nothing happens.
 * usage: kept blocking|async CONNECTIONS
 * A child, which ends with this process, accepts them and says nothing. Prints
 *   connections N
 *   rss_kb N          resident memory of the process with all of them
 *   threads N         the process's threads at rest
 *   settled_ms N      how long after the last connect the shim's timer had left
 *   wakings N         voluntary context switches of all threads but the main one in the three seconds after that */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "tool.h"

enum { SOURCES = 16, REST_MS = 3000, PATIENCE_MS = 30000 };

/* Each listens on a number of addresses' own port: 127.0.0.1 to .16, so that no pair of addresses runs out of ports. */
static int listen_at(int source, struct sockaddr_in *at)
{
	int fd = new_socket(0);
	socklen_t len = sizeof *at;

	*at = local_address(0);
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK + (in_addr_t)source);
	must(bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && listen(fd, 4096) == 0);
	must(getsockname(fd, (struct sockaddr *)at, &len) == 0);
	return fd;
}

static void serve(const int *listeners, pid_t parent)
{
	struct pollfd p[SOURCES];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	for (int i = 0; i < SOURCES; i++)
		p[i] = (struct pollfd){.fd = listeners[i], .events = POLLIN};
	for (;;) {
		must(poll(p, SOURCES, -1) > 0);
		for (int i = 0; i < SOURCES; i++)
			if (p[i].revents)
				must(accept(p[i].fd, NULL, NULL) >= 0);
	}
}

static bool read_line(const char *path, const char *key, char *to, size_t cap)
{
	char line[256];
	bool found = false;
	FILE *f = fopen(path, "r");

	if (!f)
		return false; /* a thread that has just ended */
	while (!found && fgets(line, sizeof line, f))
		if ((found = !strncmp(line, key, strlen(key))))
			snprintf(to, cap, "%s", line + strlen(key));
	fclose(f);
	return found;
}

struct others {
	long switches; /* how often they went to sleep */
	int count;
	bool has_timer;
};

/* All threads but the calling one. */
static struct others look(void)
{
	DIR *d = opendir("/proc/self/task");
	struct others o = {0};

	must(d != NULL);
	for (struct dirent *e; (e = readdir(d));) {
		char path[300], value[200];
		if (e->d_name[0] == '.' || atoi(e->d_name) == getpid())
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
		if (!read_line(path, "voluntary_ctxt_switches:", value, sizeof value))
			continue;
		o.switches += strtol(value, NULL, 10);
		o.count++;
		o.has_timer |= read_line(path, "Name:", value, sizeof value) && strstr(value, "resil-timer");
	}
	closedir(d);
	return o;
}

int main(int argc, char **argv)
{
	must(argc == 3);
	int is_async = !strcmp(argv[1], "async"), count = atoi(argv[2]), listeners[SOURCES];
	struct sockaddr_in at[SOURCES];
	struct rlimit files;
	char rss[200];

	must(getrlimit(RLIMIT_NOFILE, &files) == 0);
	files.rlim_cur = files.rlim_max;
	must(setrlimit(RLIMIT_NOFILE, &files) == 0);
	for (int i = 0; i < SOURCES; i++)
		listeners[i] = listen_at(i, &at[i]);
	pid_t me = getpid(), child = fork();
	must(child >= 0);
	if (child == 0)
		serve(listeners, me);
	for (int i = 0; i < count; i++) {
		const struct sockaddr_in *to = &at[i % SOURCES];
		int fd = new_socket(is_async ? SOCK_NONBLOCK : 0);
		if (connect(fd, (const struct sockaddr *)to, sizeof *to) != 0) {
			must(is_async && errno == EINPROGRESS);
			must(poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 10000) == 1 && so_error(fd) == 0);
		}
	}
	/* Limits are dropped lazily: the timer is there until the last of them would have passed. */
	int begin = now_ms();
	while (look().has_timer) {
		must(now_ms() - begin < PATIENCE_MS);
		poll(NULL, 0, 20);
	}
	int settled = now_ms() - begin;
	struct others before = look();
	poll(NULL, 0, REST_MS);
	struct others after = look();
	must(read_line("/proc/self/status", "VmRSS:", rss, sizeof rss));
	printf("connections %d\nrss_kb %ld\nthreads %d\nsettled_ms %d\nwakings %ld\n", count, strtol(rss, NULL, 10),
		after.count + 1, settled, after.switches - before.switches);
	return 0;
}
