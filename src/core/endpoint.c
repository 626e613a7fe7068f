/* See endpoint.h. Any process, any thread, signal handlers too; no lock, no system call. */
#include "core/endpoint.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "core/events.h"
#include "core/registry.h"
#include "core/shared.h"

#define REACH 16u
#define TRIES 100
#define LEVEL_MAX 31u
#define COUNT_MAX 4095u
#define UNTIL_MASK ((1ULL << 40) - 1)
#define DEFAULT_THRESHOLD 5u /* failure_threshold = 0 says never by a streak of the circuit's */

#define EJECTED(word) ((bool)((word)&1))
#define LEVEL(word) ((uint32_t)((word) >> 1) & LEVEL_MAX)
#define COUNT(word) ((uint32_t)((word) >> 6) & COUNT_MAX)
#define UNTIL(word) ((int64_t)((word) >> 24 & UNTIL_MASK))

static uint64_t word_make(int64_t until_ms, uint32_t count, uint32_t level, bool is_ejected)
{
	return ((uint64_t)until_ms & UNTIL_MASK) << 24 | (uint64_t)(count < COUNT_MAX ? count : COUNT_MAX) << 6 |
	       (uint64_t)(level < LEVEL_MAX ? level : LEVEL_MAX) << 1 | is_ejected;
}

/* ---- the word ---- */

static uint32_t longest_ms(const struct breaker_rules *rules)
{
	return rules->recovery_max_ms > rules->recovery_ms ? rules->recovery_max_ms : rules->recovery_ms;
}

static uint32_t wait_ms(const struct breaker_rules *rules, uint32_t level)
{
	uint64_t wait = rules->recovery_ms, longest = longest_ms(rules);
	for (uint32_t i = 0; i < level && wait < longest; i++)
		wait = wait * (rules->backoff_percent > 100 ? rules->backoff_percent : 100) / 100;
	return (uint32_t)(wait < longest ? wait : longest);
}

uint32_t endpoint_failures(uint64_t word)
{
	return COUNT(word);
}

uint32_t endpoint_ejected_for_ms(uint64_t word, int64_t now_ms)
{
	int64_t left = UNTIL(word) - now_ms;
	/* Longer than any wait is damage. */
	return EJECTED(word) && left > 0 && left <= BREAKER_WAIT_MAX_MS ? (uint32_t)left : 0;
}

uint64_t endpoint_after_failure(
	uint64_t word, const struct breaker_rules *rules, bool is_dead, int64_t now_ms, bool *is_ejecting)
{
	uint32_t count = COUNT(word) + 1, level = LEVEL(word);
	uint32_t threshold = rules->failure_threshold ? rules->failure_threshold : DEFAULT_THRESHOLD;
	*is_ejecting = false;
	if (endpoint_ejected_for_ms(word, now_ms))
		return word_make(UNTIL(word), count, level, true); /* one that all the others' failures led to */
	/* After an ejection the first failure is enough: nothing has been heard of it since. */
	if (!is_dead && !EJECTED(word) && count < threshold)
		return word_make(UNTIL(word), count, level, false);
	*is_ejecting = true;
	if (EJECTED(word)) {
		level++;
	} else if (level > 0) {
		/* UNTIL: since when it has been healthy. */
		int64_t healthy = now_ms - UNTIL(word), longest = longest_ms(rules);
		int64_t back = longest > 0 && healthy > 0 ? healthy / longest : 0;
		level = back > (int64_t)level ? 0 : level - (uint32_t)back;
	}
	while (level > 0 && wait_ms(rules, level - 1) == wait_ms(rules, level))
		level--; /* it stops growing where the wait does */
	return word_make(now_ms + wait_ms(rules, level), count, level, true);
}

uint64_t endpoint_after_success(uint64_t word, int64_t now_ms, bool *is_returning)
{
	*is_returning = EJECTED(word);
	if (EJECTED(word))
		return word_make(now_ms, 0, LEVEL(word) + 1, false);
	return word_make(UNTIL(word), 0, LEVEL(word), false);
}

/* ---- slots ---- */

uint64_t endpoint_name_hash(const char *name)
{
	return hash_bytes(HASH_START, name, strlen(name));
}

/* The upper 48 bits of an id, never 0. */
static uint64_t key_of(uint64_t name_hash, const struct addr *a)
{
	uint64_t x, y;
	memcpy(&x, a->ip, 8);
	memcpy(&y, a->ip + 8, 8);
	return (hash_mix(name_hash ^ hash_mix(x ^ hash_mix(y ^ a->scope))) | 1ULL << 16) & ~0xffffULL;
}

static uint32_t start_of(uint64_t key)
{
	return (uint32_t)(key >> 17) % REGION_ENDPOINTS;
}

#define INDEX_BITS 10
_Static_assert(REGION_ENDPOINTS == 1u << INDEX_BITS, "a handle has room for an index");

static uint32_t handle_of(uint32_t at, uint64_t id)
{
	return ((uint32_t)(id >> 32) << INDEX_BITS | at) + 1; /* one in four thousand millions is 0: none */
}

static struct endpoint *of_handle(struct region *r, uint32_t handle)
{
	if (!handle || !r->endpoints || r->is_read_only)
		return NULL;
	uint32_t at = (handle - 1) % REGION_ENDPOINTS;
	uint64_t id = atomic_load_explicit(&r->endpoints[at].id, memory_order_acquire);
	return id && handle_of(at, id) == handle ? &r->endpoints[at] : NULL;
}

static uint32_t life_of(const struct region *r, uint32_t destination)
{
	return destination < r->capacity
		       ? atomic_load_explicit(&r->destinations[destination].life, memory_order_relaxed)
		       : 0;
}

static void fill(const struct region *r, struct endpoint *e, const struct addr *a, int destination, int64_t now_ns)
{
	shared_put(e->ip, a->ip, sizeof e->ip);
	__atomic_store_n(&e->scope, a->scope, __ATOMIC_RELAXED);
	atomic_store_explicit(&e->destination, (uint32_t)(destination + 1), memory_order_relaxed);
	atomic_store_explicit(&e->life, life_of(r, (uint32_t)destination), memory_order_relaxed);
	atomic_store_explicit(&e->used_ns, now_ns, memory_order_relaxed);
	atomic_store_explicit(&e->is_ready, 1, memory_order_release);
}

uint32_t endpoint_find_or_add(
	struct region *r, uint64_t name_hash, const struct addr *a, int destination, int64_t now_ns)
{
	if (!r->endpoints || r->is_read_only || a->family != ADDR_INET)
		return 0;
	uint64_t key = key_of(name_hash, a), id = key | a->port, victim_id = 0;
	uint32_t victim = 0;
	int64_t oldest = INT64_MAX;
	for (uint32_t i = 0; i < REACH; i++) {
		uint32_t at = (start_of(key) + i) % REGION_ENDPOINTS;
		struct endpoint *e = &r->endpoints[at];
		uint64_t seen = atomic_load_explicit(&e->id, memory_order_acquire);
		if (seen == 0 && atomic_compare_exchange_strong(&e->id, &seen, id))
			seen = id;
		if (seen == id) {
			fill(r, e, a, destination, now_ns);
			return handle_of(at, id);
		}
		int64_t used = atomic_load_explicit(&e->used_ns, memory_order_relaxed);
		if (used < oldest && !endpoint_ejected_for_ms(atomic_load(&e->word), now_ns / NS_PER_MS)) {
			oldest = used;
			victim = at;
			victim_id = seen;
		}
	}
	struct endpoint *e = &r->endpoints[victim];
	if (!victim_id || !atomic_compare_exchange_strong(&e->id, &victim_id, id))
		return 0;
	atomic_store(&e->word, 0);
	fill(r, e, a, destination, now_ns);
	return handle_of(victim, id);
}

bool endpoint_is_ejected(
	const struct region *r, uint64_t name_hash, const struct addr *a, uint16_t port, int64_t now_ns)
{
	uint64_t key = key_of(name_hash, a);
	if (!r->endpoints)
		return false;
	for (uint32_t i = 0; i < REACH; i++) {
		const struct endpoint *e = &r->endpoints[(start_of(key) + i) % REGION_ENDPOINTS];
		uint64_t id = atomic_load_explicit(&e->id, memory_order_acquire);
		if (id == 0)
			return false;
		if ((id & ~0xffffULL) == key && (port == 0 || (uint16_t)id == port) &&
			endpoint_ejected_for_ms(
				atomic_load_explicit(&e->word, memory_order_acquire), now_ns / NS_PER_MS))
			return true;
	}
	return false;
}

static void addr_of(const struct endpoint *e, struct addr *a)
{
	*a = (struct addr){.family = ADDR_INET,
		.port = (uint16_t)atomic_load_explicit(&e->id, memory_order_relaxed),
		.scope = __atomic_load_n(&e->scope, __ATOMIC_RELAXED)};
	shared_get(a->ip, e->ip, sizeof a->ip);
}

static __attribute__((noinline, cold)) void tell(
	struct region *r, const struct endpoint *e, enum event_type type, const char *why, uint32_t for_ms)
{
	struct event event = {.type = (uint8_t)type, .value = for_ms, .retry_after_ms = -1};
	struct addr a;
	struct text t = TEXT_ON(event.reason);
	uint32_t destination = atomic_load_explicit(&e->destination, memory_order_relaxed);
	addr_of(e, &a);
	addr_text(&t, &a);
	if (why)
		text_fmt(&t, " (%s), for ", why);
	if (why)
		text_duration(&t, for_ms * NS_PER_MS);
	if (destination)
		registry_name(r, destination - 1, event.destination);
	events_add(r, &event);
}

void endpoint_failed(struct region *r, uint32_t handle, const struct breaker_rules *rules, enum failure_kind kind,
	bool is_dead, int64_t now_ns)
{
	struct endpoint *e = of_handle(r, handle);
	int64_t now_ms = now_ns / NS_PER_MS;
	for (int i = 0; e && i < TRIES; i++) {
		bool is_ejecting;
		uint64_t word = atomic_load(&e->word);
		uint64_t next = endpoint_after_failure(word, rules, is_dead, now_ms, &is_ejecting);
		if (!atomic_compare_exchange_strong(&e->word, &word, next))
			continue;
		if (is_ejecting)
			tell(r, e, EVENT_EJECTED, failure_name(kind), endpoint_ejected_for_ms(next, now_ms));
		return;
	}
}

void endpoint_succeeded(struct region *r, uint32_t handle, int64_t now_ns)
{
	struct endpoint *e = of_handle(r, handle);
	for (int i = 0; e && i < TRIES; i++) {
		bool is_returning;
		uint64_t word = atomic_load(&e->word);
		uint64_t next = endpoint_after_success(word, now_ns / NS_PER_MS, &is_returning);
		if (next == word)
			return; /* everyday */
		if (!atomic_compare_exchange_strong(&e->word, &word, next))
			continue;
		if (is_returning)
			tell(r, e, EVENT_RETURNED, NULL, 0);
		return;
	}
}

int endpoint_next(
	const struct region *r, uint32_t destination, uint32_t from, int64_t now_ns, struct endpoint_view *view)
{
	for (uint32_t i = from; r->endpoints && i < REGION_ENDPOINTS; i++) {
		const struct endpoint *e = &r->endpoints[i];
		if (atomic_load_explicit(&e->destination, memory_order_relaxed) != destination + 1 ||
			!atomic_load_explicit(&e->id, memory_order_relaxed) ||
			!atomic_load_explicit(&e->is_ready, memory_order_acquire) ||
			atomic_load_explicit(&e->life, memory_order_relaxed) != life_of(r, destination))
			continue;
		uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);
		addr_of(e, &view->addr);
		view->ejected_for_ms = endpoint_ejected_for_ms(word, now_ns / NS_PER_MS);
		view->failures = endpoint_failures(word);
		return (int)i;
	}
	return -1;
}
