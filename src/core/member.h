/* The members of a group: who is in it, whether they live. */
#ifndef RESIL_CORE_MEMBER_H
#define RESIL_CORE_MEMBER_H

#include "core/region.h"

/* Takes a record for this process (pid and start_ticks from identity.h); sets r->me and r->my_id. A full table leaves
 * me = -1: such a process is guarded but never a probe. */
void member_join(struct region *r, pid_t pid, uint64_t start_ticks, const char *exe, int64_t now_ns);
void member_leave(struct region *r);
/* Does the process of this id live? Zombies do not; pid reuse is seen by the start time. Reads /proc/PID/stat
 * (kill(pid, 0) where /proc is not to be had). */
bool member_is_alive(uint64_t id);
pid_t member_pid(uint64_t id);
/* Whose a lease is (lease.h, bulkhead.h), its upper 24 bits: the record 10 | the claim of it, low 14. */
#define MEMBER_OWNER_SHIFT 40
#define MEMBER_OWNER_MASK (UINT64_MAX << MEMBER_OWNER_SHIFT)
static inline uint64_t member_owner(const struct region *r, int32_t me)
{
	return (uint64_t)(uint32_t)me << 54 | (r->my_id & 0x3fff) << MEMBER_OWNER_SHIFT;
}
/* Does the holder of that lease live? A dead one is reaped. */
bool member_holds(struct region *r, uint64_t lease);
/* Frees a dead member's record: its calls in flight become neutral (A5). Idempotent; any process may. */
void member_reap(struct region *r, uint32_t index, uint64_t id);
/* Looks at every member and reaps the dead. For the command and the control thread. */
void member_reap_dead(struct region *r);
/* This member's calls in flight at a destination, +1 or -1. Each has a place that is looked at first; any other will
 * do, too. */
void member_count_elsewhere(struct region *r, uint32_t destination, int by);
static inline void member_count_there(struct region *r, uint32_t destination, int by)
{
	uint32_t me = (uint32_t)__atomic_load_n(&r->me, __ATOMIC_RELAXED);
	if (me >= REGION_MEMBERS)
		return;
	_Atomic uint32_t *first = &r->members[me].use[destination % MEMBER_USES];
	uint32_t use = atomic_load_explicit(first, memory_order_relaxed);
	/* What it counts for this destination; for another it is beyond. From 0 to 0xfffe, or from 1 to 0xffff. */
	uint32_t calls = use - ((destination + 1) << 16), from = by > 0 ? 0 : 1;
	if (__builtin_expect(
		    calls - from >= 0xffff || !atomic_compare_exchange_strong_explicit(first, &use, use + (uint32_t)by,
						      memory_order_relaxed, memory_order_relaxed),
		    0))
		member_count_elsewhere(r, destination, by);
}
static inline void member_count_call(struct region *r, uint32_t destination, int by)
{
	if (destination < r->capacity)
		member_count_there(r, destination, by);
}
_Static_assert(REGION_CAPACITY_MAX < 0xffff, "a destination and one more fit into a use");
/* Sum over living records; display only. */
uint32_t member_calls_in_flight(const struct region *r, uint32_t destination);

#endif
