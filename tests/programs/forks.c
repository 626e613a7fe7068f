/* One thread forks in a loop while others connect, look names up and meet limits (CP6). Says "ok"; hanging is the
 * failure. usage: forks FULL_PORT ANSWER_PORT REFUSE_PORT */
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "tool.h"

#define CHILDREN 8

static int ports[3];
static atomic_int is_over;

static void try_connect(int port, int flags)
{
	struct sockaddr_in to = local_address(port);
	int fd = new_socket(flags);

	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno == EINPROGRESS) {
		poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 30);
		so_error(fd);
	}
	close(fd);
}

static void *worker(void *arg)
{
	int kind = *(int *)arg;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;

	while (!is_over) {
		if (kind == 3) {
			if (getaddrinfo("localhost", "80", &hints, &list) == 0)
				freeaddrinfo(list);
		} else {
			try_connect(ports[kind], kind == 0 ? SOCK_NONBLOCK : 0);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	int kinds[4] = {0, 1, 2, 3};

	must(argc == 4);
	for (int i = 0; i < 3; i++)
		ports[i] = atoi(argv[1 + i]);
	for (int i = 0; i < 4; i++)
		must(pthread_create(&threads[i], NULL, worker, &kinds[i]) == 0);
	/* Some children at a time: while all are waited for, the threads meet no fork. */
	for (int i = 0; i < 100 + CHILDREN; i++) {
		pid_t child = 0;

		if (i >= CHILDREN) {
			int status;

			must(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
		}
		if (i < 100)
			child = fork();
		must(child >= 0);
		if (i < 100 && child == 0) {
			try_connect(ports[1], 0);
			try_connect(ports[0], SOCK_NONBLOCK);
			_exit(0);
		}
	}
	is_over = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	puts("ok");
	return 0;
}
