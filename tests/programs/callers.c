/* Many callers of one HTTP server at once: each thread makes its calls one after the other, each on a connection of its
 * own; after a refusal a moment later. Says "ok N refused N other N longest MS" (of those that were answered) when all
 * have ended. usage: callers THREADS CALLS PORT PATH [ready]      ready: waits for a byte, or the end, on stdin */
#include <pthread.h>
#include <stdatomic.h>

#include "tool.h"

static int calls, port;
static const char *path;
static atomic_int answered, refused, others, longest;

static int one_call(void)
{
	struct sockaddr_in to = local_address(port);
	char text[512];
	int fd = new_socket(0), n = snprintf(text, sizeof text, "GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", path);

	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 || send(fd, text, (size_t)n, MSG_NOSIGNAL) != n ||
		recv(fd, text, sizeof text, 0) <= 0) {
		int error = errno;
		close(fd);
		return error ? error : ENODATA;
	}
	close(fd);
	return 0;
}

static void *caller(void *unused)
{
	for (int i = 0; i < calls; i++) {
		int begin = now_ms(), error = one_call(), took = now_ms() - begin, most = longest;
		if (error == 0)
			while (took > most && !atomic_compare_exchange_weak(&longest, &most, took))
				;
		if (error == ECONNREFUSED)
			usleep(10000); /* as one would */
		atomic_fetch_add(error == 0 ? &answered : error == ECONNREFUSED ? &refused : &others, 1);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[256];
	char byte;

	if (argc < 5)
		return 2;
	int count = atoi(argv[1]);
	calls = atoi(argv[2]);
	port = atoi(argv[3]);
	path = argv[4];
	must(count <= 256);
	if (argc > 5)
		must(read(STDIN_FILENO, &byte, 1) >= 0);
	for (int i = 0; i < count; i++)
		must(pthread_create(&threads[i], NULL, caller, NULL) == 0);
	for (int i = 0; i < count; i++)
		must(pthread_join(threads[i], NULL) == 0);
	printf("ok %d refused %d other %d longest %d\n", answered, refused, others, longest);
	return 0;
}
