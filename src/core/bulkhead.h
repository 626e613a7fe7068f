/* The bulkhead of a destination: at most so many calls at once over all processes of the group (D1), those that may
 * wait served in the order of their arrival (D2), and a limit that follows latency where that is asked for (adapt.h).
 *
 * A slot is a lease: one word, low bit first; the upper three quarters as a probe's (lease.h)
 *    taken 1 | generation 39 | reuse 14 | member 10
 *  generation     moves with each claim and stays when the slot is freed. A hold is destination 16 | slot 16 |
 *generation, low 32: it frees that claim of its process and no other, however late (0 is none) member, reuse  the
 *holder's record and the claim of it Claiming a slot below the limit is the right to call, so there is no count to be
 *wrong, and none to repair.
 *
 * A death at any instruction: a slot is either free or carries its holder, and who finds all of them taken looks
 *whether the holders live, at most once in 100 ms a destination; so do those who wait, that often. Between the two
 *states there is no third. Per-member counts were the other way: the sum of them cannot be compared with the limit in
 *one step, so that two who come at once would both go back, or the sum has to be kept a second time, and to be
 *repaired.
 *
 * A destination has BULKHEAD_OWN slots of its own. Those beyond come in blocks that all destinations of the region
 *share: found by a hash of destination and number, claimed by CAS of the key from 0, and never given back, so that two
 *who need the same one meet at the same place, and one that a dead process has claimed is simply there. Blocks are an
 *index's, not a name's: after an eviction they serve whoever has the index. Where none is left, the limit is what there
 *is room for.
 *
 * A limit that shrinks (reload, adaptive) leaves slots taken above it: then whoever has claimed one below it counts
 *them all, and goes back where they are too many. Two who do so at once may both go back.
 *
 * A waiter is a record of the region, too: its word is ticket 40 | reuse 14 | member 10, and `where` says ticket and
 * destination again, written last: it is in the queue from then on. First is who has the smallest ticket. Not minded
 *are those that show no sign of life for a second (stopped) or whose time is over (a handler has jumped out of the
 *wait); the dead are freed by whoever looks for the holders of slots. A claim that was not published is its owner's
 *while that lives. A free slot belongs to the first in the queue: others pass it by while somebody waits. Who frees one
 *wakes the first; who leaves the queue, for whatever reason, wakes the next. A killed one cannot: hence the look each
 *100 ms.
 *
 * Lost wake-ups: a waiter publishes itself, tries, and sleeps if its `bell` has not moved since before it tried; who
 *frees a slot does that first and looks for waiters then. Both sides are sequentially consistent, so one sees the
 *other.
 *
 * Of the region nothing is believed but bits: indexes are bounded, loops are bounded (E10). */
#ifndef RESIL_CORE_BULKHEAD_H
#define RESIL_CORE_BULKHEAD_H

#include "core/region.h"

#define BULKHEAD_MAX 4096u /* largest max_concurrent */

/* What the policy asks for, by value. */
struct bulkhead_rules {
	uint32_t max;	  /* calls at once, 1..BULKHEAD_MAX */
	uint32_t wait_ms; /* how long a blocking connect may wait */
	bool is_adaptive;
};

/* The limit in force: 1..rules->max. */
uint32_t bulkhead_limit(const struct region *r, uint32_t destination, const struct bulkhead_rules *rules);

/* Takes a slot: the hold, never 0. 0: full, or others have been waiting for longer. ticket: of the caller's place in
 * the queue, 0: it has none. Looks for the dead where all are taken. BULKHEAD_UNBOUNDED: this process can hold none (no
 * record of its own), and goes on without. */
#define BULKHEAD_UNBOUNDED UINT64_MAX
uint64_t bulkhead_take(
	struct region *r, uint32_t destination, const struct bulkhead_rules *rules, uint64_t ticket, int64_t now_ns);
/* Frees the claim that the hold is of, if it still is; wakes the first who waits. False: it was not. */
bool bulkhead_release(struct region *r, uint64_t hold, int64_t now_ns);
/* How long a call has taken from its slot on: what an adaptive limit learns from. */
void bulkhead_learn(
	struct region *r, uint32_t destination, const struct bulkhead_rules *rules, int64_t took_ns, int64_t now_ns);
/* A call was rejected: counted, and told at most once in ten seconds. */
void bulkhead_rejected(struct region *r, uint32_t destination, int64_t now_ns);
/* The policy has no bulkhead (any more): it is not shown. */
void bulkhead_is_off(struct region *r, uint32_t destination);

/* A place in the queue. */
struct bulkhead_place {
	uint64_t ticket; /* 0: none */
	uint32_t index;
	uint32_t bell; /* as it was before the last try */
};
/* Joins it, until that time at the latest. False: there is no room. */
bool bulkhead_queue(
	struct region *r, uint32_t destination, int64_t until_ns, int64_t now_ns, struct bulkhead_place *place);
/* Sleeps until called, or for less than a tenth of a second, not longer than until. A handler that runs between two
 * sleeps is not told. Then try again (bulkhead_take). 0, or -EINTR.
 */
int bulkhead_sleep(struct region *r, struct bulkhead_place *place, int64_t until_ns, int64_t now_ns);
/* Leaves it, with a slot or without. has_waited_ns < 0: not recorded. */
void bulkhead_leave(
	struct region *r, uint32_t destination, struct bulkhead_place *place, int64_t has_waited_ns, int64_t now_ns);

/* Looks whether holders and waiters live, at most once in 100 ms: frees what the dead had; how many slots. */
uint32_t bulkhead_collect(struct region *r, uint32_t destination, int64_t now_ns);
/* Of every destination: for those who show them. */
void bulkhead_collect_all(struct region *r, int64_t now_ns);
/* Slots taken; the dead's too, until somebody has looked. */
uint32_t bulkhead_in_use(const struct region *r, uint32_t destination);
uint32_t bulkhead_waiting(const struct region *r, uint32_t destination, int64_t now_ns);
bool bulkhead_valid(const struct region *r, uint32_t destination);
/* With a new name in the place of an old one: what is counted. Slots and blocks stay. */
void bulkhead_clear(struct destination *d);

#endif
