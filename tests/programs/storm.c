/* Calls of every kind at once, on many threads, against a server in the same process that answers, stalls, drips, breaks
 * off or resets: a storm for what a flow's life must survive. usage: storm SECONDS THREADS; says "N calls". */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tool.h"

static int port;
static _Atomic bool is_over;
static _Atomic long calls;

static unsigned next_random(unsigned *seed)
{
	return *seed = *seed * 1103515245u + 12345u, *seed >> 8;
}

/* ---- the server: what it does is asked for in the path ---- */

static void *serve(void *arg)
{
	int fd = (int)(long)arg;
	char request[4096];
	ssize_t n;

	while ((n = recv(fd, request, sizeof request - 1, 0)) > 0) {
		request[n] = '\0';
		for (char *at = request; (at = strstr(at, "GET /")); at += 5) {
			char how = at[5];
			const char *whole = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
			struct linger now = {1, 0};

			if (how == 's') { /* stalls */
				send(fd, whole, 45, MSG_NOSIGNAL);
				usleep(300000);
			} else if (how == 'd') { /* drips */
				for (int i = 0; i < (int)strlen(whole); i += 4, usleep(20000))
					if (send(fd, whole + i, strlen(whole) - (size_t)i < 4 ? strlen(whole) - (size_t)i : 4, MSG_NOSIGNAL) < 0)
						break;
			} else if (how == 'h') { /* hangs */
				usleep(300000);
			} else if (how == 'b') { /* breaks off */
				send(fd, whole, 45, MSG_NOSIGNAL);
				close(fd);
				return NULL;
			} else if (how == 'r') { /* resets */
				setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
				close(fd);
				return NULL;
			} else {
				send(fd, whole, strlen(whole), MSG_NOSIGNAL);
			}
		}
	}
	close(fd);
	return NULL;
}

static void *accept_all(void *arg)
{
	int listener = (int)(long)arg;

	while (!atomic_load(&is_over)) {
		int fd = accept(listener, NULL, NULL);
		pthread_t thread;

		if (fd < 0)
			continue;
		if (pthread_create(&thread, NULL, serve, (void *)(long)fd) == 0)
			pthread_detach(thread);
		else
			close(fd);
	}
	return NULL;
}

/* ---- the clients ---- */

static bool ask(int fd, const char *how)
{
	char request[300];
	int n = 0;

	for (; *how; how++)
		n += snprintf(request + n, sizeof request - (size_t)n, "GET /%c HTTP/1.1\r\nHost: a\r\n\r\n", *how);
	return send(fd, request, (size_t)n, MSG_NOSIGNAL) == n;
}

static bool hear(int fd, int answers)
{
	char answer[512];
	size_t wanted = 48 * (size_t)answers, got = 0;

	while (got < wanted) {
		ssize_t n = recv(fd, answer, sizeof answer, 0);

		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

static void *close_later(void *arg)
{
	usleep(10000);
	shutdown((int)(long)arg, SHUT_RDWR); /* close alone would leave the other waiting */
	close((int)(long)arg);
	return NULL;
}

static void *client(void *arg)
{
	unsigned seed = (unsigned)(long)arg * 7919u + 1;
	struct sockaddr_in to = local_address(port);

	while (!atomic_load(&is_over)) {
		int fd = new_socket(0), other;
		pthread_t thread;

		if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
			close(fd);
			usleep(1000);
			continue;
		}
		for (int i = 0; i < 6; i++) {
			bool goes_on = true;

			atomic_fetch_add(&calls, 1);
			switch (next_random(&seed) % 14) {
			case 0: goes_on = ask(fd, "s") && hear(fd, 1); break;
			case 1: goes_on = ask(fd, "d") && hear(fd, 1); break;
			case 2: goes_on = ask(fd, "h") && hear(fd, 1); break;
			case 3: goes_on = ask(fd, "b") && hear(fd, 1); break;
			case 4: goes_on = ask(fd, "r") && hear(fd, 1); break;
			case 5: goes_on = ask(fd, "ooo") && hear(fd, 3); break;
			case 6: /* lets go in the middle */
				ask(fd, "h");
				goes_on = false;
				break;
			case 7: /* asks on one number, hears on another */
				other = dup(fd);
				goes_on = ask(fd, "o") && hear(other, 1);
				close(other);
				break;
			case 8: /* goes on with the copy */
				other = dup(fd);
				close(fd);
				fd = other;
				break;
			case 9: /* closed by another thread while it waits; the number is another's soon */
				other = dup(fd);
				close(fd);
				if (pthread_create(&thread, NULL, close_later, (void *)(long)other) == 0) {
					ask(other, "h");
					hear(other, 1);
					pthread_join(thread, NULL);
				}
				fd = -1;
				goes_on = false;
				break;
			default: goes_on = ask(fd, "o") && hear(fd, 1);
			}
			if (!goes_on)
				break;
		}
		if (fd >= 0)
			close(fd);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	must(argc == 3);
	int threads = atoi(argv[2]), listener = new_socket(0);
	struct sockaddr_in at = local_address(0);
	socklen_t len = sizeof at;
	pthread_t acceptor, clients[64];

	must(threads > 0 && threads <= 64);
	must(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 100) == 0);
	must(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	port = ntohs(at.sin_port);
	must(pthread_create(&acceptor, NULL, accept_all, (void *)(long)listener) == 0);
	for (int i = 0; i < threads; i++)
		must(pthread_create(&clients[i], NULL, client, (void *)(long)i) == 0);
	sleep((unsigned)atoi(argv[1]));
	atomic_store(&is_over, true);
	for (int i = 0; i < threads; i++)
		must(pthread_join(clients[i], NULL) == 0);
	printf("%ld calls %d\n", atomic_load(&calls), port);
	return 0;
}
