/* Is a region what its writers would have left? For tests and `resil doctor`, not for safety: nothing relies on it
 * (region.h). */
#include "core/region.h"

#include <string.h>

#include "base/hash.h"
#include "core/bulkhead.h"
#include "core/registry.h"

static bool fault(struct text *why, const char *what, uint32_t index)
{
	if (why)
		text_fmt(why, "%s (index %u)", what, index);
	return false;
}

static bool destination_valid(const struct region *r, uint32_t i, struct text *why)
{
	const struct destination *d = &r->destinations[i];
	uint64_t key = atomic_load_explicit(&d->key_hash, memory_order_acquire);
	uint64_t word = atomic_load_explicit(&d->breaker, memory_order_acquire), last;
	char name[REGION_NAME_MAX + 1];

	if (key == 0)
		return true;
	if (atomic_load_explicit(&d->ready_key, memory_order_acquire) != key)
		return true; /* being made, or its maker has died at it */
	if (atomic_load_explicit(&d->name_len, memory_order_relaxed) > REGION_NAME_MAX)
		return fault(why, "a name is too long", i);
	registry_name(r, i, name);
	size_t len = strlen(name);
	uint64_t hash = hash_mix(hash_bytes(HASH_START, name, len));
	if (len != atomic_load_explicit(&d->name_len, memory_order_relaxed) || (hash > 1 ? hash : 2) != key)
		return fault(why, "a name does not belong to its key", i);
	if ((word & 3) > BREAKER_OPEN)
		return fault(why, "a breaker is in no state", i);
	if ((breaker_mode(word) == BREAKER_FORCED_OPEN && breaker_state(word) != BREAKER_OPEN) ||
		(breaker_mode(word) == BREAKER_FORCED_CLOSED && breaker_state(word) != BREAKER_CLOSED))
		return fault(why, "a forced breaker is in another state than its mode", i);
	for (int k = 0; k < (int)BREAKER_PROBES_MAX; k++) {
		uint64_t lease = atomic_load_explicit(&d->lease[k], memory_order_relaxed);
		if (lease != 0 && !(lease & 1))
			return fault(why, "a lease is neither free nor taken", i);
	}
	if (!bulkhead_valid(r, i))
		return fault(why, "a bulkhead's slots are not as claimed", i);
	last = atomic_load_explicit(&d->last_from_to, memory_order_relaxed);
	if (last != 0 && ((last & 3) > BREAKER_OPEN || (last >> 2 & 3) > BREAKER_OPEN))
		return fault(why, "a last transition is of no state", i);
	return true;
}

static bool member_valid(const struct region *r, uint32_t i, struct text *why)
{
	const struct member *m = &r->members[i];

	if (atomic_load_explicit(&m->id, memory_order_acquire) == 0)
		return true;
	for (int k = 0; k < MEMBER_USES; k++) {
		uint32_t use = atomic_load_explicit(&m->use[k], memory_order_relaxed);
		if ((use & 0xffff) != 0 && ((use >> 16) == 0 || (use >> 16) > r->capacity))
			return fault(why, "a member counts calls of no destination", i);
	}
	return true;
}

bool region_valid(const struct region *r, struct text *why)
{
	const struct region_header *h = r->header;

	if (!h)
		return fault(why, "not attached", 0);
	if (memcmp(h->magic, "resil\0\0", sizeof h->magic) != 0 || h->layout != REGION_LAYOUT)
		return fault(why, "the header is not a region's", 0);
	if (h->capacity != r->capacity || h->size != r->size || r->size != region_size(r->capacity))
		return fault(why, "the header tells another size", 0);
	for (uint32_t i = 0; i < REGION_MEMBERS; i++)
		if (!member_valid(r, i, why))
			return false;
	for (uint32_t i = 0; i < r->capacity; i++)
		if (!destination_valid(r, i, why))
			return false;
	uint64_t newest = atomic_load_explicit(&h->event_seq, memory_order_acquire);
	for (uint32_t i = 0; i < REGION_EVENTS; i++) {
		uint64_t seq = atomic_load_explicit(&r->events[i].seq, memory_order_acquire);
		/* One written while we look may be newer than what we read first. */
		if (seq != 0 && (seq % REGION_EVENTS != i || (seq > newest && seq > atomic_load_explicit(&h->event_seq,
											    memory_order_acquire))))
			return fault(why, "an event is in another's place", i);
	}
	return true;
}
