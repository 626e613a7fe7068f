/* Deadlines: one wheel, one verb. A pending connect or a flow with a limit is pushed on a lock-free list; the timer
 * thread (service.c) takes it into its wheel, ends those whose time is up, and the kernel wakes whoever waits for them,
 * however they wait. A deadline that is met costs nothing: the thread finds it so when it comes to it. */
#ifndef RESIL_ENGINE_DEADLINE_H
#define RESIL_ENGINE_DEADLINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Something of fd's is due at that time, and its slot or flow says so already. True when the timer must be woken (or
 * started). A load and a branch where the timer comes by before that anyway. */
bool deadline_arm(int fd, int64_t at_ns);
/* Is anything in the list? */
bool deadline_is_any(void);
/* Reserves what the timer needs to end a socket where no descriptor is left (E6). Before the first limit is in force;
 * by the timer, or by who starts it. False: not to be had. */
bool deadline_reserve(void);
/* The timer thread's body: returns when *stop is set, when nothing has been armed for a second, or when only our
 * threads remain. */
void deadline_run(const _Atomic uint32_t *stop);
/* Wakes deadline_run. */
void deadline_wake(void);
/* The timer is ending this very descriptor: waits until it is done (microseconds; bounded), so that a close cannot
 * leave our dup behind (C7). */
extern __attribute__((visibility("hidden"))) _Atomic int deadline_ending; /* the number that the timer ends; -1: none */
void deadline_wait(int fd);
static inline void deadline_let_pass(int fd)
{
	/* The caller has changed the slot, then looks here; the timer publishes the number here, then looks at the
	 * slot: one sees the other. */
	atomic_thread_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load(&deadline_ending) == fd, 0))
		deadline_wait(fd);
}
/* In a fork's child: the thread is gone, the list empty; what is still to be bounded is armed again (connect_forked).
 */
void deadline_forked(void);

#endif
