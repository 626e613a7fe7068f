/* Threads of ours: how they are started and joined (E5, E13). */
#ifndef RESIL_ENGINE_THREAD_H
#define RESIL_ENGINE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* Around what a signal handler of the app's, forking or connecting, must not interrupt on this thread. Leaves errno
 * alone. */
struct thread_quiet {
	sigset_t mask;
	int err;
};
void thread_quiet_begin(struct thread_quiet *q);
void thread_quiet_end(const struct thread_quiet *q);

/* Both while quiet: the new thread inherits the mask, every signal blocked. False: none is to be had. */
bool thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg);
/* No cancellation point. */
void thread_join(pthread_t thread);
/* Its name, on itself. */
void thread_name(const char *name);

#endif
