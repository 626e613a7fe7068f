/* Many threads connect at the same moment; how many met which end: a line "ERRNO COUNT" each, 0 for a connection.
 *
 * usage: threads COUNT ADDRESS PORT     IPv4 only. Released by a byte (or the end) on stdin. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in to;
static pthread_barrier_t barrier;
static atomic_int met[4096];

static void *run(void *unused)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)unused;
	pthread_barrier_wait(&barrier);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
		met[0]++;
	else
		met[errno]++;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[1024];
	int count = argc == 4 ? atoi(argv[1]) : 0;
	char byte;

	if (count < 1 || count > 1024)
		return 2;
	to.sin_family = AF_INET;
	to.sin_port = htons((in_port_t)atoi(argv[3]));
	if (inet_pton(AF_INET, argv[2], &to.sin_addr) != 1)
		return 2;
	pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, run, NULL) != 0)
			return 3;
	if (read(STDIN_FILENO, &byte, 1) < 0)
		return 3;
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4096; i++)
		if (met[i])
			printf("%s %d\n", i ? strerrorname_np(i) : "0", met[i]);
	return 0;
}
