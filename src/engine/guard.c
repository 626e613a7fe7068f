/* See guard.h. On every guarded connect, any thread.
 *
 * The cache is direct-mapped; an entry has a sequence (odd while written) and is used only under the same region,
 * configuration and name. Writers claim by CAS and give up when another is at it; a writer stopped half-way leaves the
 * entry odd, which is a miss for ever (emptied in a fork's child). */
#include "engine/guard.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "core/circuit.h"
#include "core/endpoint.h"
#include "core/registry.h"
#include "engine/ambient.h"
#include "engine/blocking.h"
#include "engine/guest.h"
#include "policy/names.h"
#include "policy/policy.h"
#include "policy/route.h"

#define CACHE 256u /* what the top eight bits of the hash tell apart */
/* The registry's record of last use and the policy's section change rarely: an entry is looked up anew after this long.
 */
#define STALE_NS 1000000000LL

struct cached {
	_Atomic uint32_t seq;
	uint32_t generation; /* of the configuration */
	struct addr addr;
	int64_t made_ns;
	_Atomic uint32_t kept; /* number of the guard, where it is kept; 0: it is not */
	bool is_guarded;
	struct guard guard;
};

static struct cached cache[CACHE];

/* Guards that are kept: written once, by whoever claims the place, and never again, so that a number is good for the
 * life of the process. Whoever finds no place near the one that the guard's hash gives (a configuration reloaded with
 * ever other values, destinations evicted over and over) is not kept, and takes the longer road. */
#define KEPT_LOOKS 8u
struct guard_kept guard_kept_table[GUARDS_KEPT]; /* 0: none */
static _Atomic uint32_t kept_state[GUARDS_KEPT];
enum { KEPT_FREE, KEPT_CLAIMED, KEPT_READY };

static uint32_t kept_of(const struct guard *found)
{
	/* Which of its name's addresses it is, is of no consequence where it is the only one, and moves with look-ups.
	 */
	struct guard own = *found, *g = &own;
	own.bit = own.all = 0;
	uint32_t first = (uint32_t)hash_bytes(HASH_START, g, sizeof *g);
	for (uint32_t i = 0; i < KEPT_LOOKS; i++) {
		uint32_t number = (first + i) % GUARDS_KEPT, state = KEPT_FREE;
		struct guard_kept *k = &guard_kept_table[number];
		if (number == 0)
			continue;
		if (atomic_compare_exchange_strong_explicit(
			    &kept_state[number], &state, KEPT_CLAIMED, memory_order_acquire, memory_order_acquire)) {
			int64_t us = blocking_piece_us(g->limits.connect_ns);
			k->guard = *g;
			k->piece.s = us / 1000000;
			k->piece.us = us % 1000000;
			atomic_store_explicit(&kept_state[number], KEPT_READY, memory_order_release);
			return number;
		}
		if (state == KEPT_READY && memcmp(&k->guard, g, sizeof *g) == 0)
			return number;
	}
	return 0;
}

static struct cached *cache_place(const struct addr *a)
{
	uint64_t x, y;
	memcpy(&x, a->ip, 8);
	memcpy(&y, a->ip + 8, 8);
	/* Spread well enough by one multiplication each: the cache is our own, and small. */
	uint64_t h = (x + a->scope) * 0x9e3779b97f4a7c15ULL ^ (y + a->port);
	return &cache[(h * 0x9e3779b97f4a7c15ULL) >> 56];
}

static bool same_addr(const struct addr *a, const struct addr *b)
{
	return a->family == b->family && a->port == b->port && a->scope == b->scope &&
	       memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

/* The name of an address, as the cache compares it; zero without one. */
struct name_key {
	uint32_t name, bit, all;
};

static inline struct name_key key_of(const struct name_ref *ref)
{
	return (struct name_key){.name = names_identity(ref), .bit = 1u << ref->bit, .all = ref->current};
}

static bool cache_get(const struct addr *a, const struct region *r, const struct name_key *key, int64_t now_ns,
	struct guard *g, bool *is_guarded)
{
	if (a->family != ADDR_INET)
		return false;
	struct cached *e = cache_place(a);
	uint32_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);
	bool is_miss = seq == 0 || (seq & 1) || e->generation != policy_generation() || !same_addr(&e->addr, a) ||
		       e->guard.name != key->name || e->guard.all != key->all || e->guard.bit != key->bit ||
		       e->guard.region != r || now_ns - e->made_ns > STALE_NS;
	if (__builtin_expect(is_miss, 0))
		return false;
	*g = e->guard;
	*is_guarded = e->is_guarded;
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&e->seq, memory_order_relaxed) == seq && guard_is_current(g);
}

static void cache_put(const struct addr *a, const struct guard *g, uint32_t generation, int64_t now_ns, bool is_guarded,
	uint32_t kept)
{
	if (a->family != ADDR_INET)
		return; /* paths are longer than the key that is compared, and rare */
	struct cached *e = cache_place(a);
	uint32_t seq = atomic_load_explicit(&e->seq, memory_order_relaxed);
	if ((seq & 1) || !atomic_compare_exchange_strong_explicit(
				 &e->seq, &seq, seq + 1, memory_order_acquire, memory_order_relaxed))
		return;
	atomic_thread_fence(memory_order_release); /* the odd sequence before what it announces */
	e->generation = generation;
	e->addr = *a;
	e->made_ns = now_ns;
	e->is_guarded = is_guarded;
	e->guard = *g;
	atomic_store_explicit(&e->kept, kept, memory_order_relaxed);
	atomic_store_explicit(&e->seq, seq + 2, memory_order_release);
}

/* The circuit's name (CONTRACT, `key`): name:port, ip:port, unix:path, or the section. */
static bool circuit_name(char *to, size_t cap, const struct policy *p, const struct addr *a, const char *name)
{
	struct text t = {.at = to, .cap = cap};
	to[0] = '\0';
	if (p->key == POLICY_KEY_SECTION && p->section[0]) {
		text_str(&t, p->section);
	} else if (name && p->key != POLICY_KEY_ADDRESS && p->key != POLICY_KEY_SECTION) {
		text_str(&t, name);
		text_char(&t, ':');
		text_u64(&t, a->port);
	} else {
		addr_text(&t, a);
	}
	return !t.is_cut;
}

/* Names of fields, by value in the cache as a number: a few for the life of the process. */
#define HEADERS_MAX 16 /* the number has five bits */
static struct {
	_Atomic uint32_t is_ready;
	char name[64];
} headers[HEADERS_MAX];
static _Atomic uint32_t header_count;

const char *guard_header_name(uint8_t header)
{
	return headers[header - 1].name;
}

static uint8_t header_number(const char *name)
{
	if (!name[0])
		return 0;
	for (uint32_t i = 0; i < HEADERS_MAX && i < atomic_load(&header_count); i++)
		if (atomic_load(&headers[i].is_ready) && strcmp(headers[i].name, name) == 0)
			return (uint8_t)(i + 1);
	uint32_t mine = atomic_fetch_add(&header_count, 1);
	if (mine >= HEADERS_MAX)
		return 0; /* a configuration reloaded with ever other names */
	text_copy(headers[mine].name, sizeof headers[mine].name, name);
	atomic_store(&headers[mine].is_ready, 1);
	return (uint8_t)(mine + 1);
}

/* Rules of bulkheads, by value in the cache as a number: as many as a process meets in its life. */
#define BULKHEADS_MAX 255
static struct {
	_Atomic uint32_t is_ready;
	struct bulkhead_rules rules;
} bulkheads[BULKHEADS_MAX];
static _Atomic uint32_t bulkhead_count;

const struct bulkhead_rules *guard_bulkhead(const struct guard *g)
{
	return &bulkheads[g->limits.bulkhead - 1].rules;
}

static uint8_t bulkhead_number(const struct policy *p)
{
	struct bulkhead_rules rules = {
		.max = p->max_concurrent, .wait_ms = p->max_wait_ms, .is_adaptive = p->adaptive == POLICY_ADAPTIVE_ON};
	if (!rules.max)
		return 0;
	for (uint32_t i = 0; i < BULKHEADS_MAX && i < atomic_load(&bulkhead_count); i++) {
		const struct bulkhead_rules *known = &bulkheads[i].rules;
		if (atomic_load(&bulkheads[i].is_ready) && known->max == rules.max && known->wait_ms == rules.wait_ms &&
			known->is_adaptive == rules.is_adaptive)
			return (uint8_t)(i + 1);
	}
	uint32_t mine = atomic_fetch_add(&bulkhead_count, 1);
	if (mine >= BULKHEADS_MAX) {
		static bool said;
		log_once(&said,
			"max_concurrent has been set to more values than are kept: those beyond are not enforced");
		return 0; /* a configuration reloaded with ever other ones */
	}
	bulkheads[mine].rules = rules;
	atomic_store(&bulkheads[mine].is_ready, 1);
	return (uint8_t)(mine + 1);
}

static struct guard_limits limits_of(const struct policy *p)
{
	return (struct guard_limits){
		.connect_ns = p->connect_timeout_ns,
		.answer_ns = p->answer_timeout_ns,
		.stall_ns = p->stall_timeout_ns,
		.deadline_ns = p->deadline_ns,
		.abandon_ns = p->abandon_after_ns,
		.trip_mask = p->trip_mask,
		.protocol = (unsigned)p->protocol & 7u,
		.keepalive_s = (uint16_t)(p->keepalive_ns / NS_PER_S), /* 9 h at most */
		.header = (unsigned)header_number(p->deadline_header) & 31u,
		.bulkhead = bulkhead_number(p),
	};
}

static void take_values(struct guard *g, const struct policy *p, const struct addr *a)
{
	g->rules = p->rules;
	g->rules.recovery_max_ms = policy_recovery_max_ms(p, a);
	g->limits = limits_of(p);
	g->user_timeout_ms = (uint32_t)(p->tcp_user_timeout_ns / NS_PER_MS);
	g->reject_errno = (uint8_t)p->reject_errno; /* Linux has 133 */
	g->enforces = p->breaker == POLICY_BREAKER_OFF;
	if (g->enforces) {
		/* What counts calls for a bulkhead opens for nothing. */
		g->rules.failure_threshold = g->rules.window = 0;
		g->rules.is_observed = true;
	}
}

/* The circuit that its policy and its name make, and what hangs on there being one; after take_values. */
static void take_circuit(struct guard *g, const struct config *c, const struct policy *p, const struct addr *a,
	const char *name, const struct name_ref *ref, int64_t now_ns)
{
	char circuit[REGION_NAME_MAX + 1];
	guard_move(g, 0);
	if ((p->breaker != POLICY_BREAKER_OFF || g->limits.bulkhead) &&
		circuit_name(circuit, sizeof circuit, p, a, name)) {
		int at = registry_find_or_add(g->region, circuit, p->section, now_ns);
		if (at >= 0 && ref && p->key != POLICY_KEY_ADDRESS && p->key != POLICY_KEY_SECTION) {
			uint32_t hashes[NAMES_ADDRESSES];
			circuit_know(g->region, (uint32_t)at, hashes, names_current(ref, hashes), now_ns);
		}
		if (at >= 0)
			guard_move(g, guard_place_at(g->region, (uint32_t)at));
	}
	if (!g->has_circuit)
		g->limits.bulkhead = 0;
	else if (!g->limits.bulkhead)
		bulkhead_is_off(g->region, g->destination);
	bool is_by_request = p->key == POLICY_KEY_METHOD || p->key == POLICY_KEY_ROUTE;
	g->section = g->has_circuit && is_by_request ? (uint16_t)(config_policy_index(c, p) + 1) : 0;
}

/* The long way: match the policy, find or make the circuit. */
static bool look_up(const struct config *c, const struct addr *a, const char *name, const struct name_ref *ref,
	int64_t now_ns, struct guard *g)
{
	bool has_name = name != NULL;
	struct target target = {.addr = a, .name = name, .exe = guest_exe()};
	const struct policy *p = config_match(c, &target, NULL);
	if (!p)
		return false;
	take_values(g, p, a);
	g->has_fallback = p->fallback && p->breaker != POLICY_BREAKER_OBSERVE;
	g->has_cache = g->has_fallback && strstr(p->fallback, "cache(");
	g->may_be_named = config_has_sni(c) && a->family == ADDR_INET;
	/* With a circuit an address, each address is a call of its own. */
	g->is_group = has_name && p->key != POLICY_KEY_ADDRESS && (g->all & g->bit) && (g->all & (g->all - 1));
	take_circuit(g, c, p, a, name, ref, now_ns);
	g->endpoint = 0;
	if (ref && p->eject == POLICY_EJECT_ON && (g->all & g->bit) && (g->all & (g->all - 1)))
		g->endpoint = endpoint_find_or_add(
			g->region, endpoint_name_hash(name), a, g->has_circuit ? (int)g->destination : -1, now_ns);
	const struct guard_limits *l = &g->limits;
	g->opens_late = (g->has_circuit || g->may_be_named) && !g->limits.bulkhead && !g->endpoint && !g->is_group &&
			!guard_bounds(l) && l->protocol != POLICY_PROTOCOL_STREAM;
	bool is_asked_for = g->has_circuit || g->has_fallback || g->may_be_named || g->endpoint;
	return is_asked_for || l->connect_ns || l->header || guard_bounds(l);
}

uint64_t guard_find_request(
	const struct guard *origin, uint32_t generation, const struct guard_request *q, int64_t now_ns)
{
	char name[REGION_NAME_MAX + 1];
	struct text t = TEXT_ON(name);
	struct guard g = *origin;
	const struct config *c = policy_acquire();
	const struct policy *p = c && generation == policy_generation() ? config_policy(c, origin->section - 1u) : NULL;
	bool is_by_request = p && (p->key == POLICY_KEY_METHOD || p->key == POLICY_KEY_ROUTE);
	if (is_by_request && origin->has_circuit) {
		registry_name(g.region, g.destination, name);
		t.len = strlen(name);
		text_char(&t, ' ');
		size_t n;
		const char *route =
			p->key == POLICY_KEY_ROUTE ? route_find(p->route, q->target, q->target_length, &n) : NULL;
		if (route)
			text_bytes(&t, route, n);
		else
			text_str(&t, p->key == POLICY_KEY_METHOD ? route_method(q->method, q->method_length)
								 : ROUTE_UNKNOWN);
		int at = !t.is_cut && guard_is_current(origin)
				 ? registry_find_or_add(g.region, name, p->section, now_ns)
				 : -1;
		if (at >= 0) {
			g.destination = (uint32_t)at;
			g.life = atomic_load_explicit(&g.region->destinations[at].life, memory_order_acquire);
		}
	}
	policy_release(c);
	return guard_place(&g);
}

/* As names are written; false: it is none. */
static bool clean_said(char to[NAMES_MAX + 1], const char *said, size_t n)
{
	char text[NAMES_MAX + 1];
	const char *port = memchr(said, ':', n); /* of a Host */
	n = port ? (size_t)(port - said) : n;
	if (n == 0 || n > NAMES_MAX || memchr(said, '\0', n))
		return false;
	memcpy(text, said, n);
	text[n] = '\0';
	return names_clean(to, text) > 0;
}

bool guard_find_named(
	const struct guard *now, const struct addr *a, const char *said, size_t n, int64_t now_ns, struct guard *g)
{
	char name[NAMES_MAX + 1], own[NAMES_MAX + 1];
	struct name_ref ref;
	if (!clean_said(name, said, n))
		return false;
	const struct config *c = policy_acquire();
	if (!c)
		return false;
	bool has_name = names_find(a, &ref) && names_text(&ref, own);
	struct target target = {.addr = a, .name = has_name ? own : NULL, .exe = guest_exe()};
	const struct policy *before = config_match(c, &target, NULL);
	target.said = name;
	const struct policy *p = config_match(c, &target, NULL);
	bool is_another = p && p != before;
	if (is_another) {
		*g = *now;
		take_values(g, p, a);
		take_circuit(g, c, p, a, name, NULL, now_ns);
	}
	policy_release(c);
	return is_another;
}

/* Is there nothing to be asked of it but its circuit (guard.h)? */
static bool may_be_kept(const struct guard *g)
{
	return g->opens_late && g->has_circuit && !g->region->is_read_only && !g->has_fallback && !g->enforces &&
	       !g->limits.keepalive_s && !g->user_timeout_ms && !g->section;
}

__attribute__((noinline)) uint32_t guard_number(const struct guard *g)
{
	if (!g->has_circuit || g->region->is_read_only || g->enforces || g->limits.bulkhead || g->section ||
		g->endpoint)
		return 0;
	circuit_keep_rules(g->region, g->destination, &g->rules);
	return kept_of(g);
}

/* Not in the cache: asks the policy and the registry. */
static __attribute__((noinline)) bool find_anew(
	const struct addr *a, const struct name_key *key, const struct name_ref *ref, int64_t now_ns, struct guard *g)
{
	uint32_t generation = policy_generation();
	const struct config *c = policy_acquire();
	if (!c)
		return false;
	g->name = key->name;
	g->bit = key->bit;
	g->all = key->all;
	char name[NAMES_MAX + 1];
	bool has_name = key->name && names_text(ref, name);
	bool is_guarded = look_up(c, a, has_name ? name : NULL, has_name ? ref : NULL, now_ns, g);
	policy_release(c);
	bool is_kept = is_guarded && may_be_kept(g);
	if (is_kept)
		circuit_keep_rules(g->region, g->destination, &g->rules);
	cache_put(a, g, generation, now_ns, is_guarded, is_kept ? kept_of(g) : 0);
	return is_guarded;
}

bool guard_find_place(
	const struct addr *a, const char *name, unsigned at, unsigned count, int64_t now_ns, struct guard *g)
{
	*g = (struct guard){.region = guest_region(now_ns)};
	if (!g->region || guest_is_bypassed(g->region))
		return false;
	const struct config *c = policy_acquire();
	if (!c)
		return false;
	if (name && count > 1 && count <= 32) {
		/* Even: none of the names that were learnt (guard_has_learnt_name). */
		g->name = (uint32_t)hash_bytes(HASH_START, name, strlen(name)) << 1 | 2;
		g->bit = 1u << at;
		g->all = count == 32 ? UINT32_MAX : (1u << count) - 1;
	}
	bool is_guarded = look_up(c, a, name, NULL, now_ns, g);
	policy_release(c);
	g->has_fallback = g->has_cache = false; /* one chain at a time */
	g->is_secondary = true;
	g->may_be_named = false;
	return is_guarded;
}

bool guard_fallback(const struct addr *a, char *chain, size_t cap)
{
	char name[NAMES_MAX + 1];
	struct name_ref ref;
	bool has_name = names_find(a, &ref) && names_text(&ref, name);
	struct target target = {.addr = a, .name = has_name ? name : NULL, .exe = guest_exe()};
	const struct config *c = policy_acquire();
	const struct policy *p = c ? config_match(c, &target, NULL) : NULL;
	bool has_one = p && p->fallback && text_copy(chain, cap, p->fallback);
	policy_release(c);
	return has_one;
}

/* Unix sockets are guarded only where a match names them: the others must not even attach us. */
static bool is_named(const struct addr *a)
{
	const struct config *c = policy_acquire();
	struct target target = {.addr = a, .exe = guest_exe()};
	bool named = c && config_match(c, &target, NULL);
	policy_release(c);
	return named;
}

bool guard_find(const struct addr *a, int64_t now_ns, struct guard *g)
{
	if (__builtin_expect(a->family == ADDR_UNIX, 0) && !is_named(a))
		return false;
	struct region *r = guest_region(now_ns);
	if (!r)
		return false;
	if (guest_is_bypassed(r)) {
		/* Nothing is admitted meanwhile, so only here it is seen that the bypass has ended. */
		guest_look_again(now_ns);
		return false;
	}
	guest_follow_reload(r);
	struct name_ref ref;
	struct name_key key = {0};
	if (names_find(a, &ref))
		key = key_of(&ref);
	bool is_guarded;
	if (cache_get(a, r, &key, now_ns, g, &is_guarded))
		return is_guarded;
	*g = (struct guard){.region = r};
	return find_anew(a, &key, &ref, now_ns, g);
}

static inline __attribute__((always_inline)) uint32_t find_kept(
	const struct addr *a, const struct region *r, const struct name_key *key, int64_t now_ns)
{
	struct cached *e = cache_place(a);
	uint32_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);
	uint32_t kept = atomic_load_explicit(&e->kept, memory_order_relaxed);
	/* All that an ADDR_INET is told by; unix_len is 0 in it. */
	uint64_t its[3], own[3];
	_Static_assert(offsetof(struct addr, ip) + 16 == sizeof its, "");
	memcpy(its, &e->addr, sizeof its);
	memcpy(own, a, sizeof own);
	uint64_t differs = (its[0] ^ own[0]) | (its[1] ^ own[1]) | (its[2] ^ own[2]) |
			   (e->generation ^ policy_generation()) | (e->guard.name ^ key->name);
	if (key->name) /* without one both are 0 */
		differs |= (e->guard.bit ^ key->bit) | (e->guard.all ^ key->all);
	bool is_stale = now_ns - e->made_ns > STALE_NS;
	atomic_thread_fence(memory_order_acquire);
	const struct guard *g = &guard_kept_table[kept].guard; /* of none: a region of null */
	if (__builtin_expect(differs || is_stale || (seq & 1) ||
				     atomic_load_explicit(&e->seq, memory_order_relaxed) != seq || g->region != r ||
				     atomic_load_explicit(
					     &r->destinations[g->destination].life, memory_order_acquire) != g->life,
		    0))
		return 0;
	return kept;
}

static __attribute__((noinline)) uint32_t find_kept_by_name(
	const struct addr *a, const struct region *r, int64_t now_ns)
{
	struct name_ref ref;
	struct name_key key = {0};
	if (names_search(a, &ref))
		key = key_of(&ref);
	return find_kept(a, r, &key, now_ns);
}

uint32_t guard_find_kept(const struct addr *a, int64_t now_ns)
{
	static const struct name_key none;
	const struct region *r = guest_region_now();
	if (__builtin_expect(!r || atomic_load_explicit(&guest_must_join, memory_order_relaxed) ||
				     guest_is_bypassed(r) ||
				     atomic_load_explicit(&r->header->reload_seq, memory_order_relaxed) !=
					     atomic_load_explicit(&guest_reload_seen, memory_order_relaxed) ||
				     a->family != ADDR_INET,
		    0))
		return 0;
	if (atomic_load_explicit(&names_table, memory_order_relaxed))
		return find_kept_by_name(a, r, now_ns);
	return find_kept(a, r, &none, now_ns);
}

void guard_forked(void)
{
	for (uint32_t i = 0; i < CACHE; i++)
		if (atomic_load(&cache[i].seq) & 1)
			atomic_store(&cache[i].seq, 0);
}
