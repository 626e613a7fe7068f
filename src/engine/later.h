/* getaddrinfo_a, where a rule or a deadline asks for something at look-ups: libc's own threads would pass every hook.
 * The requests are answered by threads of ours in the place of libc's, as many at most, each by the hook of
 * getaddrinfo: so each is bounded, known and counted as any look-up is. What is handed in is in `__return` of the app's
 * gaicb, where gai_error(3) finds it.
 *
 *   FREE --> QUEUED --> RUNNING --> ENDING --> FREE        a request; to CANCELED from QUEUED (freed at once) and
 * RUNNING
 *
 * No lock: a word a request, changed by compare-and-swap, its upper bits a generation. Threads go when there is nothing
 * to do. In a fork's child the requests are gone, as libc's are. */
#ifndef RESIL_ENGINE_LATER_H
#define RESIL_ENGINE_LATER_H

#include <netdb.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* asked_ns: the limit counts from there. */
typedef int later_look_up(
	const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res, int64_t asked_ns);

/* As getaddrinfo_a(3), mode checked. */
int later_ask(int mode, struct gaicb *const list[], int n, const struct sigevent *event, later_look_up *look_up);
/* As gai_suspend(3). False: none of them is ours. */
bool later_suspend(const struct gaicb *const list[], int n, const struct timespec *timeout, int *result);
/* As gai_cancel(3), null: all. Those under way are left to themselves: never EAI_NOTCANCELED but in the moment of their
 * end. False: it is not ours. */
bool later_cancel(struct gaicb *request, int *result);
void later_forked(void);

#endif
