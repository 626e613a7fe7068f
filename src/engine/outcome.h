/* How a connect ended, however the app learns it: from connect itself, a second connect, SO_ERROR, the first input or
 * output, close, or the timer. Whoever wins the slot's change out of CONNECTING gives the verdict to the call. */
#ifndef RESIL_ENGINE_OUTCOME_H
#define RESIL_ENGINE_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "engine/guest.h"
#include "engine/process.h"
#include "engine/slot.h"
#include "policy/policy.h"

/* Input or output while the connect was under way has ended with this result, and errno: learns from it. Returns what
 * the app is to see, errno as it is to see it; a later state of the slot is the caller's to look at (io.h). */
enum io_direction { IO_IN, IO_OUT };
ssize_t outcome_io_end(struct slot *s, int fd, ssize_t result, enum io_direction direction);
/* SO_ERROR was read as `err` (0: none) from a watched slot; returns what the app is to see. */
int outcome_so_error(struct slot *s, int fd, int err);

/* The outcome of the connect in `word`'s life of the slot; nothing when another thread was faster. */
void outcome_succeeded(struct slot *s, uint64_t word, int fd, int64_t now_ns);
/* Among the member's open connections. */
static inline void outcome_count_connection(struct slot *s)
{
	struct region *r = guest_region_now();
	int32_t me = r ? __atomic_load_n(&r->me, __ATOMIC_RELAXED) : -1; /* may leave meanwhile */
	if (me >= 0) {
		atomic_fetch_or(&s->traits, TRAIT_COUNTED);
		atomic_fetch_add_explicit(&r->members[me].connections, 1, memory_order_relaxed);
	}
}
/* The same where it is known that no flow is wanted yet: the slot becomes OPEN. */
static inline void outcome_opened(struct slot *s, uint64_t word, int64_t now_ns)
{
	/* No flow is wanted, so the address has no health, and what stands in its place is the call's look-up. */
	int64_t begun = atomic_load_explicit(&s->begun_ns, memory_order_relaxed) -
			atomic_load_explicit(&s->endpoint, memory_order_relaxed) * 1000LL;
	atomic_store_explicit(&s->forks, process_forks(), memory_order_relaxed);
	atomic_store_explicit(&s->generation, policy_generation(), memory_order_relaxed);
	if (!slot_change(s, word, SLOT_OPEN, false))
		return;
	/* Last: in CONNECTING they mean other things. Who uses the socket at this very moment takes the connect for one
	 * that took no time. */
	atomic_store_explicit(&s->begun_ns, now_ns, memory_order_relaxed);
	atomic_store_explicit(&s->deadline_ns, begun, memory_order_relaxed);
	outcome_count_connection(s);
}
/* err: positive. to: where it went, null when that is no longer known (the network said it later). True: the call is
 * over with it, and its destination was not to be had. */
bool outcome_failed(struct slot *s, uint64_t word, int err, const struct sockaddr *to, socklen_t len, int64_t now_ns);
/* The app lets go of it: what the kernel knows of it decides. */
void outcome_hung_up(struct slot *s, uint64_t word, int fd, enum slot_state to, int64_t now_ns);
/* It was no connect of ours, or the number is another socket's: no news. */
void outcome_forget(struct slot *s, uint64_t word, int64_t now_ns);
/* Another holder of the socket (a fork's other side) had the same limit, and its timer was first: to us that is our
 * limit, not a reset. */
bool outcome_was_ended_elsewhere(const struct slot *s, int err, int64_t now_ns);
void outcome_expired_elsewhere(struct slot *s, uint64_t word, int64_t now_ns);
/* The change itself, of this number alone: the call to tell (index), or CALL_NONE when there is nothing to tell or
 * another thread was faster. */
uint32_t outcome_finish(struct slot *s, uint64_t word, enum slot_state to);
/* The same for every number that leads to the socket (dup'd while connecting): one has the call, and all learn its end.
 * False when another thread was faster. */
bool outcome_finish_socket(struct slot *s, uint64_t word, enum slot_state to, uint32_t *call);
/* Is it still under way? One that has been connected meanwhile is told so. One system call. */
bool outcome_is_pending(struct slot *s, int fd);
/* At each hook of a pending connect: its limit must be in force in this process, whatever became of the call that began
 * it. */
void outcome_keep(struct slot *s, int fd);
/* The connect of `word`'s life goes on without its caller: from now on the timer bounds it. */
void outcome_leave_pending(struct slot *s, uint64_t word, int fd);

/* TCP's state, TCP_CLOSE when it is no TCP socket; one system call each. */
int outcome_tcp_state(int fd);
bool outcome_is_connected(int fd);

#endif
