/* fork, exec and exit: what the parent keeps, what the child starts with (E3, E4). */
#ifndef RESIL_ENGINE_PROCESS_H
#define RESIL_ENGINE_PROCESS_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/keeper.h"

/* From the constructor: registers the fork handlers. */
void process_init(int argc, char **argv);
/* Are we the child of a fork that no handler saw (_Fork, raw clone)? One load; resets what belongs to the parent when
 * so. */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t
	*process_alive; /* 1 in the process that made it, 0 in a fork's child; null: not to be had */
void process_is_child(void);
static inline void process_check(void)
{
	if (__builtin_expect(process_alive && atomic_load_explicit(process_alive, memory_order_relaxed) == 0, 0))
		process_is_child();
}
/* How often this process has forked, and its ancestors before it: a socket that is older may be shared (E4). */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t process_fork_count;
static inline uint32_t process_forks(void)
{
	return atomic_load_explicit(&process_fork_count, memory_order_relaxed);
}
/* exec begins: verdicts that wait are declared, membership and the socket given back. If exec fails the app goes on:
 * the next call joins again, and process_exec_failed takes back what was made for it. */
struct keeper process_execs(void);
void process_exec_failed(struct keeper *k);
/* exit or _exit: verdicts, membership and the socket are given back. Once. */
void process_exits(void);
/* For process_exits: the control room's part. */
void process_set_leave(void (*leave)(void));

#endif
