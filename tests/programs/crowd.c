/* A crowd before one server, a thread each: patient ones who call again and again, each on a new connection, and wait
 * as long as it takes; and impatient ones, who all begin at once in the middle of it, wait 1.1 s for an answer and hang
 * up.
 *
 * usage: crowd PORT PATIENT IMPATIENT [SECONDS]      SECONDS: how long patient ones go on beginning calls (4); the
 * impatient come after half of it, or at once where nobody is patient. Exit code: 0 when every patient call got an
 * answer and no impatient one did. */
#include "tool.h"

#include <pthread.h>
#include <stdatomic.h>

#define GIVE_UP_MS 1100
#define SPREAD_MS                                                                                                      \
	1500 /* the patient begin one after another within this time, so that there is always one who is served */

static int port, begin, patient, last_ms = 4000;
static atomic_int answered, unanswered, served, left;

/* true: an answer came in time. limit -1: any. */
static int call(int limit)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
	struct sockaddr_in to = local_address(port);
	int fd = new_socket(0), got = 0;
	char buf[512];

	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
		send(fd, request, sizeof request - 1, MSG_NOSIGNAL) == sizeof request - 1 &&
		poll(&(struct pollfd){fd, POLLIN, 0}, 1, limit) == 1)
		got = recv(fd, buf, sizeof buf, 0) > 0;
	close(fd);
	return got;
}

static void *be_patient(void *number)
{
	usleep((useconds_t)((long)number * SPREAD_MS * 1000 / patient));
	while (now_ms() - begin < last_ms)
		atomic_fetch_add(call(-1) ? &answered : &unanswered, 1);
	return NULL;
}

static void *be_impatient(void *unused)
{
	(void)unused;
	usleep(patient > 0 ? (useconds_t)last_ms * 500 : 0);
	atomic_fetch_add(call(GIVE_UP_MS) ? &served : &left, 1);
	return NULL;
}

int main(int argc, char **argv)
{
	int impatient, n = 0;
	pthread_t threads[512];

	must(argc >= 4);
	port = atoi(argv[1]);
	patient = atoi(argv[2]);
	impatient = atoi(argv[3]);
	if (argc > 4)
		last_ms = atoi(argv[4]) * 1000;
	must(patient + impatient <= (int)(sizeof threads / sizeof *threads));
	begin = now_ms();
	for (long i = 0; i < patient; i++)
		must(pthread_create(&threads[n++], NULL, be_patient, (void *)i) == 0);
	for (int i = 0; i < impatient; i++)
		must(pthread_create(&threads[n++], NULL, be_impatient, NULL) == 0);
	while (n > 0)
		pthread_join(threads[--n], NULL);
	printf("patient: %d answered, %d not; impatient: %d answered, %d left\n", answered, unanswered, served, left);
	return unanswered > 0 || served > 0 || left != impatient;
}
