/* Look-ups from many threads while forks go on beside them. usage: lookups THREADS ROUNDS NAME [PORT]
 * Each thread looks NAME up (and connects where there is a PORT and an answer), ROUNDS times; main forks all the while,
 * and each fourth child looks the name up too, then all end by _exit. At the end no thread and no descriptor is left
 * that was not there before. Says "ok LOOK-UPS FORKS". */
#include <dirent.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "tool.h"

static const char *name, *port;
static int rounds;
static atomic_int done, running;

static int count(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;
	must(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int look_up_once(void)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET}, *list = NULL;
	int r = getaddrinfo(name, port, &hints, &list);
	must(r == 0 || r == EAI_AGAIN || r == EAI_FAIL);
	if (r == 0 && port) {
		int fd = new_socket(0);
		connect(fd, list->ai_addr, list->ai_addrlen);
		close(fd);
	}
	if (r == 0)
		freeaddrinfo(list);
	return r;
}

static void *run(void *unused)
{
	(void)unused;
	for (int i = 0; i < rounds; i++) {
		look_up_once();
		atomic_fetch_add(&done, 1);
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

int main(int argc, char **argv)
{
	must(argc >= 4);
	int n = atoi(argv[1]), forks = 0;
	pthread_t threads[256];
	rounds = atoi(argv[2]);
	name = argv[3];
	port = argc > 4 ? argv[4] : NULL;
	must(n <= 256);

	int fds = count("/proc/self/fd"), tasks = count("/proc/self/task");
	atomic_store(&running, n);
	for (int i = 0; i < n; i++)
		must(pthread_create(&threads[i], NULL, run, NULL) == 0);
	while (atomic_load(&running) > 0) {
		pid_t child = fork();
		int status;
		must(child >= 0);
		if (child == 0) {
			alarm(30);
			if (forks % 4 == 3)
				look_up_once();
			_exit(0);
		}
		must(waitpid(child, &status, 0) == child);
		if (status != 0)
			printf("the child %d ended with %#x\n", forks, (unsigned)status);
		must(status == 0);
		forks++;
	}
	for (int i = 0; i < n; i++)
		must(pthread_join(threads[i], NULL) == 0);
	/* The threads of the pool and what libc's look-ups hold open go by themselves, once the last of them has given
	 * up. */
	for (int i = 0; count("/proc/self/task") > tasks || count("/proc/self/fd") > fds; i++) {
		if (i == 2000) {
			printf("left: %d threads, %d descriptors\n", count("/proc/self/task") - tasks,
				count("/proc/self/fd") - fds);
			fflush(stdout);
			system("ls -l /proc/$PPID/fd; cat /proc/$PPID/task/*/comm");
			return 1;
		}
		usleep(10000);
	}
	printf("ok %d %d\n", atomic_load(&done), forks);
	return 0;
}
