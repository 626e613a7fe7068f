/* See member.h. Joining and leaving: once a process; counting calls: every admission, any thread; reaping: whoever
 * finds a dead one.
 *
 * A record's life: id 0 -> (CAS) ours -> 0. The claim number in the id comes from a counter that is never reset, so a
 * record claimed again is told from the one before, by leases too. use[] is emptied before the id is freed: each count
 * is exchanged for 0 and so handed to exactly one reaper; one that dies half-way leaves the rest to the next. */
#include "core/member.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/sys.h"
#include "core/events.h"
#include "core/identity.h"
#include "core/shared.h"

#define PID_SHIFT 42
#define START_SHIFT 14
#define START_MASK ((1ull << 28) - 1)
#define REUSE_MASK ((1u << 14) - 1)
#define REAP_AT_JOIN 64 /* records looked at when the table is full: bounds the first connect of the 1025th process */

static uint64_t make_id(pid_t pid, uint64_t start_ticks, uint32_t reuse)
{
	return (uint64_t)(uint32_t)pid << PID_SHIFT | (start_ticks & START_MASK) << START_SHIFT | (reuse & REUSE_MASK);
}

pid_t member_pid(uint64_t id)
{
	return (pid_t)(id >> PID_SHIFT);
}

bool member_is_alive(uint64_t id)
{
	pid_t pid = member_pid(id);
	char state = 0;

	if (pid <= 0)
		return false;
	uint64_t start = identity_start_ticks(pid, &state);
	if (start == 0) {
		/* No such process, or no /proc to ask. */
		return sys_kill(pid, 0) != -ESRCH;
	}
	if (state == 'Z' || state == 'X' || state == 'x')
		return false;
	return (start & START_MASK) == ((id >> START_SHIFT) & START_MASK);
}

_Static_assert(REGION_MEMBERS <= 1u << 10, "the owner of a lease has 10 bits for the record");

bool member_holds(struct region *r, uint64_t lease)
{
	uint32_t index = (uint32_t)(lease >> 54) % REGION_MEMBERS;
	uint64_t id = atomic_load_explicit(&r->members[index].id, memory_order_acquire);

	/* Left, or the record is another claim's: whoever held this lease is gone. */
	if (id == 0 || (id & REUSE_MASK) != (lease >> MEMBER_OWNER_SHIFT & REUSE_MASK))
		return false;
	if (member_is_alive(id))
		return true;
	member_reap(r, index, id);
	return false;
}

static void base_name(char out[32], const char *path)
{
	const char *slash = strrchr(path, '/');

	text_copy(out, 32, slash ? slash + 1 : path);
}

static bool claim(struct region *r, uint32_t index, pid_t pid, uint64_t start_ticks, const char *exe, int64_t now_ns)
{
	struct member *m = &r->members[index];
	uint64_t seen = 0;
	char name[32];

	if (atomic_load_explicit(&m->id, memory_order_relaxed) != 0)
		return false;
	uint32_t reuse = atomic_fetch_add_explicit(&m->claims, 1, memory_order_relaxed) + 1;
	uint64_t id = make_id(pid, start_ticks, reuse);
	if (!atomic_compare_exchange_strong_explicit(&m->id, &seen, id, memory_order_acq_rel, memory_order_relaxed))
		return false;
	for (int i = 0; i < MEMBER_USES; i++)
		atomic_store_explicit(&m->use[i], 0, memory_order_relaxed);
	atomic_store_explicit(&m->connections, 0, memory_order_relaxed);
	base_name(name, exe ? exe : "");
	shared_put_text(m->exe, sizeof m->exe, name);
	atomic_store_explicit(&m->since_ns, now_ns, memory_order_release);
	r->me = (int32_t)index;
	r->my_id = id;
	return true;
}

void member_join(struct region *r, pid_t pid, uint64_t start_ticks, const char *exe, int64_t now_ns)
{
	r->me = -1;
	r->my_id = 0;
	if (!r->header || r->is_read_only || pid <= 0)
		return;
	uint32_t start = (uint32_t)hash_mix((uint64_t)(uint32_t)pid) % REGION_MEMBERS;
	for (uint32_t i = 0; i < REGION_MEMBERS; i++)
		if (claim(r, (start + i) % REGION_MEMBERS, pid, start_ticks, exe, now_ns))
			return;
	for (uint32_t i = 0; i < REAP_AT_JOIN; i++) {
		uint32_t index = (start + i) % REGION_MEMBERS;
		uint64_t id = atomic_load_explicit(&r->members[index].id, memory_order_acquire);
		if (id != 0 && member_is_alive(id))
			continue;
		if (id != 0)
			member_reap(r, index, id);
		if (claim(r, index, pid, start_ticks, exe, now_ns))
			return;
	}
}

void member_reap(struct region *r, uint32_t index, uint64_t id)
{
	if (index >= REGION_MEMBERS || id == 0 || r->is_read_only)
		return;
	struct member *m = &r->members[index];
	for (int i = 0; i < MEMBER_USES; i++) {
		if (atomic_load_explicit(&m->id, memory_order_acquire) != id)
			return; /* somebody else has done it */
		uint32_t use = atomic_exchange_explicit(&m->use[i], 0, memory_order_acq_rel);
		uint32_t destination = (use >> 16) - 1; /* 0 wraps out of range: none */
		if ((use & 0xffff) != 0 && destination < r->capacity)
			atomic_fetch_add_explicit(
				&r->destinations[destination].neutral, use & 0xffff, memory_order_relaxed);
	}
	atomic_compare_exchange_strong_explicit(&m->id, &id, 0, memory_order_acq_rel, memory_order_relaxed);
}

void member_leave(struct region *r)
{
	/* A fork's child that has not joined yet still carries its parent's record: not its to free. */
	int32_t me = region_me(r);
	if (r->header && me >= 0 && member_pid(r->my_id) == sys_getpid()) {
		struct event e = {.type = EVENT_DETACH, .retry_after_ms = -1};
		events_add(r, &e); /* before: it carries the record's pid and name */
		member_reap(r, (uint32_t)me, r->my_id);
	}
	r->me = -1;
	r->my_id = 0;
}

void member_reap_dead(struct region *r)
{
	if (!r->header || r->is_read_only)
		return;
	for (uint32_t i = 0; i < REGION_MEMBERS; i++) {
		uint64_t id = atomic_load_explicit(&r->members[i].id, memory_order_acquire);
		if (id != 0 && !member_is_alive(id))
			member_reap(r, i, id);
	}
}

/* +1 takes an entry of this destination or an unused one; a process with more destinations in flight than MEMBER_USES
 * counts the first ones only, and -1 never goes below 0. */
void member_count_elsewhere(struct region *r, uint32_t destination, int by)
{
	int32_t me = region_me(r);
	if (me < 0)
		return;
	struct member *m = &r->members[me];
	for (uint32_t k = 0; k < MEMBER_USES; k++) {
		uint32_t i = (destination + k) % MEMBER_USES;
		uint32_t use = atomic_load_explicit(&m->use[i], memory_order_relaxed);
		for (;;) {
			bool is_ours = (use >> 16) == destination + 1;
			uint32_t count = use & 0xffff, next;
			if (by > 0 && is_ours && count < 0xffff)
				next = use + 1;
			else if (by > 0 && !is_ours && count == 0)
				next = (destination + 1) << 16 | 1;
			else if (by < 0 && is_ours && count > 0)
				next = use - 1;
			else
				break;
			if (atomic_compare_exchange_weak_explicit(
				    &m->use[i], &use, next, memory_order_relaxed, memory_order_relaxed))
				return;
		}
	}
}

uint32_t member_calls_in_flight(const struct region *r, uint32_t destination)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; r->members && i < REGION_MEMBERS; i++) {
		const struct member *m = &r->members[i];
		if (atomic_load_explicit(&m->id, memory_order_relaxed) == 0)
			continue;
		for (int k = 0; k < MEMBER_USES; k++) {
			uint32_t use = atomic_load_explicit(&m->use[k], memory_order_relaxed);
			if ((use >> 16) == destination + 1)
				sum += use & 0xffff;
		}
	}
	return sum;
}
