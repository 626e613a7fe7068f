/* See registry.h. Called on the connect path and by listings; any process, any thread; no lock, no system call.
 *
 * A slot's life: key_hash 0 -> claimed by CAS; name, policy, name_len written; ready_key = key (release). A claimer
 * that dies in between leaves a slot that the next one with this key fills with the same bytes. Two names of one hash
 * do not share a slot: once it is ready the name decides, and the other goes on to the next free one.
 *
 * Eviction: the breaker's word gets a new generation (a verdict of the old name is stale from here on), then one CAS
 * puts the new key in the place of the old one, which also makes the slot not ready; then life moves, counters are
 * cleared, name written, ready_key set. Slots never become free again but change hands in place, so a probe sequence
 * never has holes. Killed after the first step: the old circuit has lost a streak. After the second: the next with the
 * new key fills it, and what is left of the old counters shows under it.
 *
 * Two processes that meet one new name in a full registry may each evict another slot for it. So each looks again, once
 * it has one and before it writes the name: of two slots with one key the first in the probe sequence is the name's,
 * and the others are given up (life moves, the key becomes that of no name). Whoever kept their index finds another
 * life and looks the name up anew. Who dies before that leaves a slot that is not ready, and the next who meets it
 * looks in his place. */
#include "core/registry.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "core/bulkhead.h"
#include "core/member.h"
#include "core/shared.h"

static uint64_t key_of(const char *name, size_t len)
{
	uint64_t key = hash_mix(hash_bytes(HASH_START, name, len));

	return key > 1 ? key : 2; /* 0: a free slot; 1: KEY_GIVEN_UP */
}

/* The length as far as it can be believed. */
static size_t name_len(const struct destination *d)
{
	uint32_t len = atomic_load_explicit(&d->name_len, memory_order_relaxed);

	return len <= REGION_NAME_MAX ? len : REGION_NAME_MAX;
}

static bool has_name(const struct destination *d, const char *name, size_t len)
{
	if (name_len(d) != len)
		return false;
	for (size_t i = 0; i < len; i++)
		if (__atomic_load_n(&d->name[i], __ATOMIC_RELAXED) != name[i])
			return false;
	return true;
}

static bool is_ready(const struct destination *d)
{
	return atomic_load_explicit(&d->ready_key, memory_order_acquire) ==
	       atomic_load_explicit(&d->key_hash, memory_order_relaxed);
}

static void fill(struct destination *d, uint64_t key, const char *name, size_t len, const char *policy)
{
	shared_put_text(d->name, sizeof d->name, name);
	shared_put_text(d->policy, sizeof d->policy, policy ? policy : "");
	atomic_store_explicit(&d->name_len, (uint32_t)len, memory_order_relaxed);
	atomic_store_explicit(&d->ready_key, key, memory_order_release); /* partner: is_ready() */
}

int registry_find(const struct region *r, const char *name)
{
	size_t len = strlen(name);

	if (r->capacity == 0 || len > REGION_NAME_MAX)
		return -ENOENT;
	uint64_t key = key_of(name, len);
	uint32_t at = (uint32_t)(key % r->capacity);
	for (uint32_t i = 0; i < r->capacity; i++, at = at + 1 == r->capacity ? 0 : at + 1) {
		const struct destination *d = &r->destinations[at];
		uint64_t seen = atomic_load_explicit(&d->key_hash, memory_order_acquire);
		if (seen == 0)
			return -ENOENT;
		if (seen == key && is_ready(d) && has_name(d, name, len))
			return (int)at;
	}
	return -ENOENT;
}

/* ---- eviction ---- */

#define EVICTIONS 64 /* victims tried, while others use or take them */
#define KEY_GIVEN_UP                                                                                                   \
	1ull /* of a slot that lost against one with the same name: no name's, the first to be used again */

static bool may_go(const struct region *r, uint32_t at)
{
	const struct destination *d = &r->destinations[at];
	uint64_t word = atomic_load_explicit(&d->breaker, memory_order_acquire);

	if (atomic_load_explicit(&d->key_hash, memory_order_relaxed) == KEY_GIVEN_UP)
		return true;
	return is_ready(d) && breaker_state(word) == BREAKER_CLOSED && breaker_mode(word) == BREAKER_AUTO;
}

static int64_t used_ns(const struct destination *d)
{
	if (atomic_load_explicit(&d->key_hash, memory_order_relaxed) == KEY_GIVEN_UP)
		return INT64_MIN;
	return atomic_load_explicit(&d->last_used_ns, memory_order_relaxed);
}

/* The least recently used one that was used after `after` and may go, or -1. */
static int oldest(const struct region *r, int64_t after)
{
	int best = -1;
	int64_t best_ns = INT64_MAX;

	for (uint32_t i = 0; i < r->capacity; i++) {
		int64_t used = used_ns(&r->destinations[i]);
		if (used >= after && (best < 0 || used < best_ns) && may_go(r, i)) {
			best = (int)i;
			best_ns = used;
		}
	}
	return best;
}

static void clear_counter(_Atomic uint64_t *counter)
{
	atomic_store_explicit(counter, 0, memory_order_relaxed);
}

/* What the old name has left, but for the word, its generation and what goes with that. */
static void clear(struct destination *d)
{
	for (int i = 0; i < REGION_SHARDS; i++)
		clear_counter(&d->shard[i].rejected);
	_Atomic uint64_t *const counters[] = {&d->success, &d->failure, &d->neutral, &d->would_reject, &d->stale,
		&d->run, &d->opened_total, &d->last_from_to, &d->mode_until_ms, &d->late_look_ups, &d->stale_answers,
		&d->latency.sum_us, &d->latency.max_us};
	for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
		clear_counter(counters[i]);
	for (int i = 0; i < FAILURE_KIND_COUNT; i++)
		clear_counter(&d->kinds[i]);
	for (int i = 0; i < 9; i++)
		clear_counter(&d->transitions[i / 3][i % 3]);
	for (int i = 0; i < 5; i++)
		clear_counter(&d->probe_results[i]);
	for (int i = 0; i < DEGRADED_SOURCE_COUNT; i++)
		clear_counter(&d->fallbacks[i]);
	atomic_store_explicit(&d->fallback_run, 0, memory_order_relaxed);
	for (int i = 0; i < LATENCY_BUCKETS; i++)
		atomic_store_explicit(&d->latency.count[i], 0, memory_order_relaxed);
	for (int i = 0; i < REGION_ADDRESSES; i++)
		atomic_store_explicit(&d->known[i], 0, memory_order_relaxed);
	atomic_store_explicit(&d->has_answered, 0, memory_order_relaxed);
	atomic_store_explicit(&d->last_success_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&d->stale_told_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&d->holders_checked_ms, 0, memory_order_relaxed);
	bulkhead_clear(d);
}

static bool is_in_use(const struct region *r, uint32_t at)
{
	for (uint32_t i = 0; i < BREAKER_PROBES_MAX; i++)
		if (atomic_load_explicit(&r->destinations[at].lease[i], memory_order_relaxed) != 0)
			return true;
	return member_calls_in_flight(r, at) != 0 || bulkhead_in_use(r, at) != 0;
}

/* The word of the old name's circuit ends with its generation, told as such: no event belongs to that. False: it has
 * just been used, or is no longer one that may go. */
static bool end_circuit(struct destination *d, int64_t now_ns)
{
	uint64_t word = atomic_load_explicit(&d->breaker, memory_order_acquire);
	uint64_t told = atomic_load_explicit(&d->told, memory_order_relaxed);

	if (atomic_load_explicit(&d->key_hash, memory_order_relaxed) != KEY_GIVEN_UP &&
		(breaker_state(word) != BREAKER_CLOSED || breaker_mode(word) != BREAKER_AUTO))
		return false;
	uint64_t next = breaker_reset(breaker_set_mode(word, BREAKER_AUTO, now_ns / NS_PER_MS), now_ns / NS_PER_MS);
	if (!atomic_compare_exchange_strong_explicit(
		    &d->breaker, &word, next, memory_order_acq_rel, memory_order_relaxed))
		return false;
	atomic_compare_exchange_strong_explicit(
		&d->told, &told, breaker_generation(next), memory_order_release, memory_order_relaxed);
	return true;
}

/* Takes the place of the least recently used circuit, and leaves the name to be written. -ENOSPC: none may go. */
static int evict(struct region *r, uint64_t key, int64_t now_ns)
{
	int64_t after = INT64_MIN;

	for (int i = 0; i < EVICTIONS; i++) {
		int at = oldest(r, after);
		if (at < 0)
			return -ENOSPC;
		struct destination *d = &r->destinations[at];
		uint64_t old = atomic_load_explicit(&d->key_hash, memory_order_acquire);
		int64_t used = used_ns(d);
		if (is_in_use(r, (uint32_t)at)) {
			after = used == INT64_MAX ? used : used + 1;
			continue;
		}
		if (old == key || !may_go(r, (uint32_t)at) || !end_circuit(d, now_ns) ||
			!atomic_compare_exchange_strong_explicit(
				&d->key_hash, &old, key, memory_order_acq_rel, memory_order_relaxed))
			continue;
		atomic_fetch_add_explicit(&d->life, 1, memory_order_release); /* partner: circuit_settle() */
		clear(d);
		atomic_store_explicit(&d->last_used_ns, now_ns, memory_order_relaxed);
		atomic_fetch_add_explicit(&r->header->registry_evictions, 1, memory_order_relaxed);
		return at;
	}
	return -ENOSPC;
}

/* The first slot of that name, written; all others of it given up. So it is with one that a dead process has claimed
 * and not written, and with one that a living process is about to write: that comes here, too. */
static int keep_first(struct region *r, uint64_t key, const char *name, size_t len, const char *policy)
{
	int first = -ENOSPC;
	uint32_t at = (uint32_t)(key % r->capacity);

	for (uint32_t i = 0; i < r->capacity; i++, at = at + 1 == r->capacity ? 0 : at + 1) {
		struct destination *d = &r->destinations[at];
		uint64_t seen = atomic_load_explicit(&d->key_hash, memory_order_acquire);
		if (seen == 0)
			break;
		if (seen != key || (is_ready(d) && !has_name(d, name, len)))
			continue;
		if (first < 0) {
			first = (int)at;
			if (!is_ready(d))
				fill(d, key, name, len, policy);
		} else if (atomic_compare_exchange_strong_explicit(
				   &d->key_hash, &seen, KEY_GIVEN_UP, memory_order_acq_rel, memory_order_relaxed)) {
			atomic_fetch_add_explicit(&d->life, 1, memory_order_release);
		}
	}
	return first;
}

int registry_find_or_add(struct region *r, const char *name, const char *policy, int64_t now_ns)
{
	size_t len = strlen(name);

	if (len > REGION_NAME_MAX)
		return -ENAMETOOLONG;
	if (r->capacity == 0)
		return -ENOSPC;
	if (r->is_read_only)
		return registry_find(r, name);
	uint64_t key = key_of(name, len);
	uint32_t at = (uint32_t)(key % r->capacity);
	for (uint32_t i = 0; i < r->capacity; i++, at = at + 1 == r->capacity ? 0 : at + 1) {
		struct destination *d = &r->destinations[at];
		uint64_t seen = atomic_load_explicit(&d->key_hash, memory_order_acquire);
		if (seen == 0 && atomic_compare_exchange_strong_explicit(
					 &d->key_hash, &seen, key, memory_order_acq_rel, memory_order_acquire)) {
			fill(d, key, name, len, policy);
			atomic_store_explicit(&d->last_used_ns, now_ns, memory_order_relaxed);
			return (int)at;
		}
		if (seen != key)
			continue;
		/* Its claimer is at it this moment, or died at it: the same bytes either way. One that died at an
		 * eviction has not looked for others of the name. */
		if (!is_ready(d))
			return keep_first(r, key, name, len, policy);
		if (has_name(d, name, len))
			return (int)at;
	}
	int place = evict(r, key, now_ns);
	if (place >= 0)
		place = keep_first(r, key, name, len, policy);
	if (place < 0)
		atomic_fetch_add_explicit(&r->header->registry_full, 1, memory_order_relaxed);
	return place;
}

int registry_next(const struct region *r, uint32_t from)
{
	for (uint32_t i = from; i < r->capacity; i++)
		if (atomic_load_explicit(&r->destinations[i].key_hash, memory_order_acquire) != 0 &&
			is_ready(&r->destinations[i]))
			return (int)i;
	return -1;
}

void registry_name(const struct region *r, uint32_t index, char name[REGION_NAME_MAX + 1])
{
	name[0] = '\0';
	if (index >= r->capacity)
		return;
	const struct destination *d = &r->destinations[index];
	size_t len = name_len(d);
	shared_get(name, d->name, len);
	name[len] = '\0';
}
