/* Threads that connect to a destination whose circuit is open, each on a processor of its own: the processor time of
 * one rejected connect, in ns, the mean of all threads; with what is shared between them, it grows. usage: rejections
 * PORT THREADS MILLISECONDS [PROCESSES]    nobody must listen at PORT: it is refused until it opens */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES_MAX 16
static struct sockaddr_in to;
static int threads, milliseconds, processor_count;
static struct shared {
	_Atomic int ready;
	_Atomic unsigned long long connects, ns;
} * shared;
static int all;

static long long clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void *run(void *number)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unsigned long long n = 0;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)((long)number % processor_count), &set);
	sched_setaffinity(0, sizeof set, &set);
	for (shared->ready++; shared->ready < all;)
		;
	long long until = clock_ns(CLOCK_MONOTONIC) + milliseconds * 1000000ll,
		  begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	while (n % 256 || clock_ns(CLOCK_MONOTONIC) < until) {
		if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno != ECONNREFUSED)
			exit(4);
		n++;
	}
	shared->ns += (unsigned long long)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin);
	shared->connects += n;
	return NULL;
}

static int process(int first)
{
	pthread_t thread[64];

	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, run, (void *)(long)(first + i)) != 0)
			return 3;
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	return 0;
}

int main(int argc, char **argv)
{
	int processes = argc == 5 ? atoi(argv[4]) : 1, failed = 0;

	if (argc < 4)
		return 2;
	threads = atoi(argv[2]);
	milliseconds = atoi(argv[3]);
	all = threads * processes;
	processor_count = (int)sysconf(_SC_NPROCESSORS_ONLN);
	if (threads < 1 || threads > 64 || processes < 1 || processes > PROCESSES_MAX)
		return 2;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	to.sin_family = AF_INET;
	to.sin_port = htons((in_port_t)atoi(argv[1]));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 20; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		connect(fd, (struct sockaddr *)&to, sizeof to);
		close(fd);
	}
	for (int i = 1; i < processes; i++)
		if (fork() == 0)
			_exit(process(i * threads));
	failed = process(0);
	for (int status; wait(&status) > 0;)
		failed |= !WIFEXITED(status) || WEXITSTATUS(status);
	printf("%llu\n", shared->ns / (shared->connects ? shared->connects : 1));
	return failed;
}
