/* See lease.h. Half-open circuits only, so never on a hot path; any process, any thread. */
#include "core/lease.h"

#include <errno.h>

#include "base/clock.h"
#include "core/member.h"

#define TAKEN 1ull
#define PENDING_SHIFT 1
#define PENDING_MASK (127ull << PENDING_SHIFT)
#define GENERATION_SHIFT 8
#define GENERATION_MASK 0xfffu
#define SINCE_SHIFT 20
#define SINCE_MASK 0xfffffu

#define TICK_MS 64
#define PENDING_TICKS 126u
#define UNUSED 127u
#define PENDING_LIMIT 16u /* a second and a bit */
/* Another processor may have read a slightly later clock: ages this close to a whole turn are 0. */
#define SINCE_SLACK 1024u
#define PENDING_SLACK 8u
#define COLLECT_EVERY_MS 100

_Static_assert(SINCE_SHIFT + 20 == MEMBER_OWNER_SHIFT, "what is the owner's lies above");

static uint32_t tick_of(int64_t now_ns)
{
	return (uint32_t)((uint64_t)(now_ns / NS_PER_MS) / TICK_MS);
}

static uint32_t slots_of(uint32_t max)
{
	return max < BREAKER_PROBES_MAX ? max : BREAKER_PROBES_MAX;
}

/* The lease of this member that has what `like` has, from now on. */
static uint64_t owned_by(const struct region *r, int32_t me, uint64_t like, int64_t now_ns)
{
	return TAKEN | (like & ((uint64_t)GENERATION_MASK << GENERATION_SHIFT)) |
	       (uint64_t)(tick_of(now_ns) & SINCE_MASK) << SINCE_SHIFT | member_owner(r, me);
}

static bool take_over(struct destination *d, uint32_t slot, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong_explicit(
		&d->lease[slot], &from, to, memory_order_acq_rel, memory_order_relaxed);
}

int lease_take(
	struct region *r, uint32_t destination, uint32_t max, uint16_t generation, int64_t now_ns, uint64_t *word)
{
	int32_t me = region_me(r);
	if (destination >= r->capacity || me < 0)
		return -EAGAIN;
	struct destination *d = &r->destinations[destination];
	uint64_t mine = owned_by(r, me, (uint64_t)(generation & GENERATION_MASK) << GENERATION_SHIFT, now_ns);
	uint32_t slots = slots_of(max ? max : 1);
	for (uint32_t i = 0; i < slots; i++) {
		uint64_t seen = atomic_load_explicit(&d->lease[i], memory_order_relaxed);
		if (seen & TAKEN)
			continue;
		if (atomic_compare_exchange_strong_explicit(
			    &d->lease[i], &seen, mine, memory_order_acq_rel, memory_order_relaxed)) {
			*word = mine;
			return (int)i;
		}
	}
	return -EAGAIN;
}

static bool is_same(uint64_t a, uint64_t b)
{
	return (a & ~PENDING_MASK) == (b & ~PENDING_MASK);
}

static _Atomic uint64_t *slot_at(const struct region *r, uint32_t destination, int slot)
{
	if (destination >= r->capacity || slot < 0 || slot >= (int)BREAKER_PROBES_MAX)
		return NULL;
	return &r->destinations[destination].lease[slot];
}

bool lease_release(struct region *r, uint32_t destination, int slot, uint64_t word)
{
	_Atomic uint64_t *at = slot_at(r, destination, slot);

	if (!at)
		return false;
	uint64_t seen = atomic_load_explicit(at, memory_order_relaxed);
	while (is_same(seen, word))
		if (atomic_compare_exchange_weak_explicit(at, &seen, 0, memory_order_acq_rel, memory_order_relaxed))
			return true;
	return false;
}

bool lease_renew(struct region *r, uint32_t destination, int slot, uint64_t *word, int64_t now_ns)
{
	_Atomic uint64_t *at = slot_at(r, destination, slot);

	if (!at)
		return false;
	uint64_t fresh = (*word & ~PENDING_MASK & ~((uint64_t)SINCE_MASK << SINCE_SHIFT)) |
			 (uint64_t)(tick_of(now_ns) & SINCE_MASK) << SINCE_SHIFT;
	uint64_t seen = atomic_load_explicit(at, memory_order_relaxed);
	while (is_same(seen, *word))
		if (atomic_compare_exchange_weak_explicit(
			    at, &seen, fresh, memory_order_acq_rel, memory_order_relaxed)) {
			*word = fresh;
			return true;
		}
	return false;
}

void lease_note(struct region *r, uint32_t destination, int slot, uint64_t word, enum lease_use use)
{
	_Atomic uint64_t *at = slot_at(r, destination, slot);

	if (!at)
		return;
	uint64_t value = use == LEASE_PENDING  ? tick_of(clock_now_ns()) % PENDING_TICKS + 1
			 : use == LEASE_UNUSED ? UNUSED
					       : 0;
	uint64_t stamp = value << PENDING_SHIFT;
	uint64_t seen = atomic_load_explicit(at, memory_order_relaxed);
	while (is_same(seen, word))
		if (atomic_compare_exchange_weak_explicit(
			    at, &seen, (seen & ~PENDING_MASK) | stamp, memory_order_acq_rel, memory_order_relaxed))
			return;
}

static bool is_expired(uint64_t lease, uint32_t probe_timeout_ms, uint32_t now)
{
	uint32_t age = (now - (uint32_t)(lease >> SINCE_SHIFT)) & SINCE_MASK;
	if (age < SINCE_MASK - SINCE_SLACK && age > 1 && (uint64_t)(age - 1) * TICK_MS >= probe_timeout_ms)
		return true;
	uint32_t stamp = (uint32_t)((lease & PENDING_MASK) >> PENDING_SHIFT);
	if (stamp == 0 || stamp == UNUSED)
		return false;
	/* Told modulo eight seconds: looked at in the wrong half second of them it waits for the next look. */
	uint32_t pending = (now % PENDING_TICKS + PENDING_TICKS - (stamp - 1)) % PENDING_TICKS;
	return pending > PENDING_LIMIT && pending < PENDING_TICKS - PENDING_SLACK;
}

int lease_collect(struct region *r, uint32_t destination, uint32_t probe_timeout_ms, int64_t now_ns,
	void (*expired)(struct region *r, uint32_t destination, uint16_t generation_low, bool is_unused, void *ctx),
	void *ctx)
{
	if (destination >= r->capacity)
		return 0;
	struct destination *d = &r->destinations[destination];
	int64_t now_ms = now_ns / NS_PER_MS;
	int64_t checked = atomic_load_explicit(&d->holders_checked_ms, memory_order_relaxed);
	/* A time to come is damage, or a clock read a moment later: look at most once for that, too. */
	if (checked <= now_ms && checked > 0 && now_ms - checked < COLLECT_EVERY_MS)
		return 0;
	if (!atomic_compare_exchange_strong_explicit(
		    &d->holders_checked_ms, &checked, now_ms, memory_order_relaxed, memory_order_relaxed))
		return 0;
	int freed = 0;
	int32_t me = region_me(r);
	for (uint32_t i = 0; i < BREAKER_PROBES_MAX; i++) {
		uint64_t lease = atomic_load_explicit(&d->lease[i], memory_order_acquire);
		if (!(lease & TAKEN))
			continue;
		if (!member_holds(r, lease)) {
			if (!take_over(d, i, lease, 0))
				continue;
			atomic_fetch_add_explicit(&d->probe_results[PROBE_OWNER_DIED], 1, memory_order_relaxed);
		} else if (me >= 0 && is_expired(lease, probe_timeout_ms, tick_of(now_ns))) {
			/* Taken over first, freed last: the verdict must go before the slot, or the next holder would
			 * begin under it (B5), and must not be given twice. Killed in between, we are a dead holder
			 * like any other. */
			uint64_t ours = owned_by(r, me, lease, now_ns);
			if (!take_over(d, i, lease, ours))
				continue;
			bool is_unused = (lease & PENDING_MASK) >> PENDING_SHIFT == UNUSED;
			atomic_fetch_add_explicit(
				&d->probe_results[is_unused ? PROBE_NEUTRAL : PROBE_EXPIRED], 1, memory_order_relaxed);
			if (expired)
				expired(r, destination, (uint16_t)((lease >> GENERATION_SHIFT) & GENERATION_MASK),
					is_unused, ctx);
			take_over(d, i, ours, 0);
		} else {
			continue;
		}
		freed++;
	}
	return freed;
}

uint32_t lease_in_flight(const struct region *r, uint32_t destination)
{
	uint32_t n = 0;

	if (destination >= r->capacity)
		return 0;
	for (uint32_t i = 0; i < BREAKER_PROBES_MAX; i++)
		n += (atomic_load_explicit(&r->destinations[destination].lease[i], memory_order_relaxed) & TAKEN) != 0;
	return n;
}
