/* A thread is cancelled in the middle of its connect. usage: cancel FULL_PORT AFTER_MS */
#include <pthread.h>

#include "tool.h"

static int port, fd = -1;

static void *body(void *unused)
{
	struct sockaddr_in to = local_address(port);

	connect(fd, (struct sockaddr *)&to, sizeof to);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *result;

	must(argc == 3);
	port = atoi(argv[1]);
	fd = new_socket(0);
	must(pthread_create(&thread, NULL, body, NULL) == 0);
	usleep((useconds_t)atoi(argv[2]) * 1000);
	must(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	must(close(fd) == 0);
	puts("ok");
	return 0;
}
