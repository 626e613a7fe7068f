/* getaddrinfo_a and its kin. usage: later HOW NAME...     says for each name the answer or the error, then the time in
 * ms HOW: wait; nowait (polls gai_error); suspend (gai_suspend until all are over); thread, signal (told by that);
 * cancel (each by gai_cancel, while they are under way: says its result first); cancel-after (once they are over);
 * short (gai_suspend with 50 ms: says its result, then waits); interrupt (a signal ends gai_suspend: says its result).
 */
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tool.h"

#define MOST 64

static atomic_int told, value;

static const char *name_of(int error)
{
	static const struct {
		int error;
		const char *name;
	} names[] = {{EAI_AGAIN, "EAI_AGAIN"}, {EAI_FAIL, "EAI_FAIL"}, {EAI_NONAME, "EAI_NONAME"},
		{EAI_NODATA, "EAI_NODATA"}, {EAI_INPROGRESS, "EAI_INPROGRESS"}, {EAI_CANCELED, "EAI_CANCELED"},
		{EAI_NOTCANCELED, "EAI_NOTCANCELED"}, {EAI_ALLDONE, "EAI_ALLDONE"}, {EAI_INTR, "EAI_INTR"},
		{EAI_SYSTEM, "EAI_SYSTEM"}, {0, "0"}};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].error == error)
			return names[i].name;
	return "?";
}

static void by_thread(union sigval v)
{
	sigset_t mask;
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	must(!sigismember(&mask, SIGTERM)); /* as libc's: nothing is blocked in it */
	atomic_store(&value, v.sival_int);
	atomic_store(&told, 1);
}

static void by_signal(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	must(info->si_code == SI_ASYNCNL && info->si_pid == getpid());
	atomic_store(&value, info->si_value.sival_int);
	atomic_store(&told, 1);
}

static void nothing(int signal)
{
	(void)signal;
}

static bool is_any_in_progress(struct gaicb *const list[], int n)
{
	for (int i = 0; i < n; i++)
		if (list[i] && gai_error(list[i]) == EAI_INPROGRESS)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	must(argc >= 3 && argc - 2 < MOST);
	const char *how = argv[1];
	int n = argc - 2 + 1, begin = now_ms(), result;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET};
	struct gaicb requests[MOST], *list[MOST] = {NULL}; /* a null one among them */
	for (int i = 1; i < n; i++) {
		requests[i] = (struct gaicb){.ar_name = argv[i + 1], .ar_request = &hints};
		list[i] = &requests[i];
	}
	struct sigevent event = {.sigev_notify = SIGEV_NONE, .sigev_value.sival_int = 42};
	bool is_thread = strcmp(how, "thread") == 0, is_signal = strcmp(how, "signal") == 0;
	if (is_thread) {
		event.sigev_notify = SIGEV_THREAD;
		event.sigev_notify_function = by_thread;
	} else if (is_signal) {
		struct sigaction action = {.sa_sigaction = by_signal, .sa_flags = SA_SIGINFO};
		sigaction(SIGUSR1, &action, NULL);
		event.sigev_notify = SIGEV_SIGNAL;
		event.sigev_signo = SIGUSR1;
	}
	must(getaddrinfo_a(99, list, n, NULL) == EAI_SYSTEM && errno == EINVAL);
	must(getaddrinfo_a(strcmp(how, "wait") == 0 ? GAI_WAIT : GAI_NOWAIT, list, n, &event) == 0);
	const struct gaicb *const *as_const = (const struct gaicb *const *)list;
	if (strcmp(how, "wait") == 0)
		must(!is_any_in_progress(list, n));
	if (strcmp(how, "short") == 0) {
		struct timespec t = {.tv_nsec = 50000000};
		printf("%s ", name_of(gai_suspend(as_const, n, &t)));
	}
	if (strcmp(how, "interrupt") == 0) {
		struct sigaction action = {.sa_handler = nothing};
		sigaction(SIGALRM, &action, NULL);
		ualarm(50000, 50000);
		printf("%s ", name_of(gai_suspend(as_const, n, NULL)));
		ualarm(0, 0);
	}
	bool is_after = strcmp(how, "cancel-after") == 0;
	while (is_after && is_any_in_progress(list, n))
		usleep(1000);
	if (is_after || strcmp(how, "cancel") == 0) {
		usleep(50000);
		for (int i = 1; i < n; i++)
			printf("%s ", name_of(gai_cancel(list[i])));
	}
	if (strcmp(how, "suspend") == 0) {
		while (is_any_in_progress(list, n)) {
			result = gai_suspend(as_const, n, NULL);
			must(result == 0 || result == EAI_ALLDONE);
		}
		must(gai_suspend(as_const, n, NULL) == EAI_ALLDONE);
	}
	while (is_any_in_progress(list, n) || ((is_thread || is_signal) && !atomic_load(&told)))
		usleep(1000);
	if (is_thread || is_signal)
		must(atomic_load(&value) == 42);
	for (int i = 1; i < n; i++) {
		char text[64];
		result = gai_error(list[i]);
		must((result == 0) == (requests[i].ar_result != NULL));
		printf("%s ",
			result ? name_of(result)
			       : inet_ntop(AF_INET, &((struct sockaddr_in *)requests[i].ar_result->ai_addr)->sin_addr,
					 text, sizeof text));
		if (result == 0)
			freeaddrinfo(requests[i].ar_result);
	}
	printf("%d\n", now_ms() - begin);
	return 0;
}
