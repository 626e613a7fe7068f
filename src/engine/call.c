/* See call.h. Called by hooks on any thread and by the service thread. */
#include "engine/call.h"

#include "base/clock.h"
#include "base/sys.h"
#include "core/endpoint.h"
#include "core/events.h"
#include "core/registry.h"
#include "engine/guest.h"
#include "engine/pool.h"
#include "policy/names.h"

enum state { FREE, LIVE, SETTLED, CONNECTED };

struct call {
	_Atomic uint64_t word;
	struct guard guard;
	struct circuit_token token;
	_Atomic int64_t last_attempt_ns;
	_Atomic uint32_t last_kind; /* of the last failed attempt */
	_Atomic bool is_group;	    /* until one has connected */
	uintptr_t thread;
	_Atomic uint64_t hold; /* of the bulkhead; 0 in every record that is free */
	int64_t held_ns, waited_ns;
	_Atomic uint32_t next_free; /* index + 1 */
};

static struct pool pool = {
	.size = sizeof(struct call), .link_at = offsetof(struct call, next_free), .most = 1u << 20, .tight = 1024};
_Atomic uint32_t call_live;
_Atomic uint32_t call_live_groups;

#define TAG(word) ((uint32_t)((word) >> 48))
#define TRIED(word) ((uint32_t)((word) >> 16))
#define FLYING(word) ((uint32_t)((word) >> 8) & 0xff)
#define HAS_FAILED(word) ((bool)((word) >> 2 & 1))
#define STATE(word) ((enum state)((word)&3))
#define FLYING_MAX 0xffu

static uint64_t word_make(uint32_t tag, uint32_t tried, uint32_t flying, bool failed, enum state state)
{
	return (uint64_t)(tag & 0xffff) << 48 | (uint64_t)tried << 16 | (uint64_t)(flying & 0xff) << 8 |
	       (uint64_t)failed << 2 | (uint64_t)state;
}

static struct call *at(uint32_t index)
{
	return pool_at(&pool, index);
}

/* No further connect may ride on it. */
static inline void leave_group(struct call *c)
{
	if (atomic_load_explicit(&c->is_group, memory_order_relaxed) && atomic_exchange(&c->is_group, false))
		atomic_fetch_sub(&call_live_groups, 1);
}

static inline void give(uint32_t index)
{
	leave_group(at(index));
	atomic_fetch_sub(&call_live, 1);
	pool_give(&pool, index);
}

/* A call to a name begins with the look-up before it, on whichever thread that was made (curl has one for it). */
int64_t call_would_begin_ns(const struct guard *g, int64_t now_ns)
{
	int64_t began = guard_has_learnt_name(g) ? names_take_look_up(names_entry_of(g->name), now_ns) : 0;
	return began && began < now_ns ? began : now_ns;
}

static inline uint32_t begin(const struct guard *g, const struct circuit_token *token, int64_t begun_ns, int64_t now_ns,
	bool is_group, enum state state)
{
	uint32_t index = pool_take(&pool);
	if (index == CALL_NONE)
		return CALL_NONE;
	struct call *c = at(index);
	c->guard = *g;
	c->guard.is_group = is_group;
	c->token = *token;
	c->token.begun_ns = begun_ns;
	atomic_store_explicit(&c->is_group, is_group, memory_order_relaxed);
	c->thread = guest_thread();
	atomic_store_explicit(&c->last_attempt_ns, now_ns, memory_order_relaxed);
	atomic_fetch_add(&call_live, 1);
	if (is_group)
		atomic_fetch_add(&call_live_groups, 1);
	uint64_t word = atomic_load_explicit(&c->word, memory_order_relaxed);
	atomic_store_explicit(&c->word, word_make(TAG(word) + 1, g->bit, 1, false, state), memory_order_release);
	return index;
}

uint32_t call_begin(const struct guard *g, const struct circuit_token *token, int64_t now_ns)
{
	return begin(g, token, call_would_begin_ns(g, now_ns), now_ns, g->is_group, LIVE);
}

uint32_t call_begin_since(const struct guard *g, const struct circuit_token *token, int64_t begun_ns, int64_t now_ns)
{
	return begin(g, token, begun_ns, now_ns, g->is_group, LIVE);
}

void call_put_slot(uint32_t call, const struct admission_slot *slot)
{
	struct call *c = at(call);
	c->held_ns = slot->held_ns;
	c->waited_ns = slot->waited_ns;
	atomic_store(&c->hold, slot->hold);
}

uint64_t call_take_hold(uint32_t call)
{
	return call_is_short(call) ? 0 : atomic_exchange(&at(call)->hold, 0);
}

bool call_begin_connected(const struct guard *g, const struct circuit_token *token, int64_t now_ns, uint32_t *call)
{
	*call = begin(g, token, now_ns, now_ns, false, CONNECTED);
	return *call != CALL_NONE;
}

/* With a bulkhead: the verdict first, the slot after, as a probe's (circuit.c). */
static __attribute__((noinline)) void settle_bounded(
	struct call *c, enum breaker_outcome outcome, enum failure_kind kind, int64_t now_ns, int64_t latency_ns)
{
	const struct bulkhead_rules *rules = guard_bulkhead(&c->guard);
	/* Limits that have passed are latencies, too; what is refused at once is none. */
	bool is_long = kind == FAILURE_ANSWER_TIMEOUT || kind == FAILURE_STALL_TIMEOUT || kind == FAILURE_DEADLINE;
	if (rules->is_adaptive && latency_ns >= 0 &&
		(outcome == BREAKER_SUCCESS || (outcome == BREAKER_FAILURE && is_long)))
		bulkhead_learn(c->guard.region, c->guard.destination, rules,
			latency_ns - (c->held_ns - c->token.begun_ns), now_ns);
	if (latency_ns >= 0)
		latency_ns -= latency_ns > c->waited_ns ? c->waited_ns : latency_ns;
	circuit_settle(c->guard.region, &c->token, &c->guard.rules, outcome, kind,
		c->guard.limits.trip_mask >> kind & 1, now_ns, latency_ns);
	admission_release(&c->guard, atomic_exchange(&c->hold, 0), now_ns);
}

/* The one place where a verdict reaches the circuit; the caller has won the change from LIVE to SETTLED. */
static void settle_with(
	struct call *c, enum breaker_outcome outcome, enum failure_kind kind, int64_t now_ns, int64_t latency_ns)
{
	if (__builtin_expect(c->guard.limits.bulkhead != 0, 0))
		settle_bounded(c, outcome, kind, now_ns, latency_ns);
	else if (c->guard.has_circuit)
		circuit_settle(c->guard.region, &c->token, &c->guard.rules, outcome, kind,
			c->guard.limits.trip_mask >> kind & 1, now_ns, latency_ns);
}

static void settle(struct call *c, enum breaker_outcome outcome, int64_t now_ns)
{
	settle_with(c, outcome, (enum failure_kind)atomic_load_explicit(&c->last_kind, memory_order_relaxed), now_ns,
		outcome == BREAKER_NEUTRAL ? -1 : now_ns - c->token.begun_ns);
}

/* What admitted a short call. */
static struct circuit_token token_of_short(uint32_t call, int64_t begun_ns)
{
	const struct guard *g = call_short_guard(call);
	return (struct circuit_token){.destination = g->destination,
		.generation = (uint16_t)call,
		.lease = -1,
		.is_admitted = true,
		.begun_ns = begun_ns,
		.life = g->life};
}

static void settle_short(
	uint32_t call, enum breaker_outcome outcome, enum failure_kind kind, int64_t now_ns, int64_t latency_ns)
{
	const struct guard *g = call_short_guard(call);
	struct circuit_token token = token_of_short(call, latency_ns >= 0 ? now_ns - latency_ns : now_ns);
	circuit_settle(
		g->region, &token, &g->rules, outcome, kind, g->limits.trip_mask >> kind & 1, now_ns, latency_ns);
	atomic_fetch_sub_explicit(&call_live, 1, memory_order_relaxed);
}

/* Ends one attempt, and with it the call when it was the last and nothing is left to wait for. Frees the record with
 * the last attempt of a settled call. LOCAL: trouble of this machine (no route for this family): no news, but the
 * name's other addresses may follow. DROPPED: the app let go.
 * True: the call is over, and not by being dropped. */
enum end { END_FAILURE, END_LOCAL, END_DROPPED };
static bool attempt_end(uint32_t index, enum end end, int64_t now_ns)
{
	if (call_is_short(index)) {
		settle_short(index, BREAKER_NEUTRAL, 0, now_ns, -1);
		return end != END_DROPPED;
	}
	struct call *c = at(index);
	uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire), next;
	/* Patience runs from the end of an attempt: a first address may take its whole limit to fail. */
	if (end == END_FAILURE || end == END_LOCAL)
		atomic_store_explicit(&c->last_attempt_ns, now_ns, memory_order_relaxed);
	bool settles, waits;
	do {
		uint32_t flying = FLYING(word) - 1;
		bool failed = HAS_FAILED(word) || end == END_FAILURE;
		bool all_tried = (TRIED(word) & c->guard.all) == c->guard.all || !c->is_group;
		settles = STATE(word) == LIVE && flying == 0 && (end == END_DROPPED || all_tried);
		waits = STATE(word) == LIVE && !settles && flying == 0;
		/* The record stays referenced by this attempt until its circuit has heard: a settled one is not freed,
		 * one that waits is not boarded by another thread, nor declared. */
		next = word_make(TAG(word), TRIED(word), settles || waits ? flying + 1 : flying, failed,
			settles ? SETTLED : STATE(word));
	} while (!atomic_compare_exchange_weak_explicit(
		&c->word, &word, next, memory_order_acq_rel, memory_order_acquire));
	if (waits) {
		if (c->guard.has_circuit)
			circuit_note(c->guard.region, &c->token, LEASE_PENDING);
		word = atomic_fetch_sub_explicit(&c->word, 1 << 8, memory_order_acq_rel);
		/* A signal handler of this thread's has boarded meanwhile: it is under way, or settled already. */
		if (STATE(word) == SETTLED && FLYING(word) == 1)
			give(index);
		else if (FLYING(word) > 1 && c->guard.has_circuit)
			circuit_note(c->guard.region, &c->token, LEASE_BUSY);
		return false;
	}
	if (settles) {
		bool is_failure = end != END_DROPPED && HAS_FAILED(next);
		settle(c, is_failure ? BREAKER_FAILURE : BREAKER_NEUTRAL, now_ns);
		word = atomic_fetch_sub_explicit(&c->word, 1 << 8, memory_order_acq_rel);
		next = word - (1 << 8);
	}
	if (STATE(next) == SETTLED && FLYING(next) == 0)
		give(index);
	return settles && end != END_DROPPED;
}

uint32_t call_write_out(uint32_t call, int64_t begun_ns)
{
	struct circuit_token token = token_of_short(call, begun_ns);
	uint32_t index = begin(call_short_guard(call), &token, begun_ns, begun_ns, false, CONNECTED);
	if (index != CALL_NONE)
		atomic_fetch_sub_explicit(&call_live, 1, memory_order_relaxed);
	return index;
}

bool call_connected(uint32_t call, uint32_t endpoint, int64_t now_ns)
{
	if (call_is_short(call))
		return true; /* nobody else is on it */
	struct call *c = at(call);
	uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);
	while (STATE(word) == LIVE)
		if (atomic_compare_exchange_weak_explicit(
			    &c->word, &word, (word & ~3ULL) | CONNECTED, memory_order_acq_rel, memory_order_acquire)) {
			leave_group(c);
			c->guard.endpoint = endpoint; /* not the first one's: who hears the verdict */
			if (call_is_probe(call))
				circuit_note(c->guard.region, &c->token, LEASE_UNUSED);
			return true;
		}
	attempt_end(call, END_DROPPED, now_ns);
	return false;
}

void call_used(uint32_t call)
{
	if (call_is_probe(call))
		circuit_note(at(call)->guard.region, &at(call)->token, LEASE_BUSY);
}

void call_unused(uint32_t call)
{
	if (call_is_probe(call))
		circuit_note(at(call)->guard.region, &at(call)->token, LEASE_UNUSED);
}

void call_end(uint32_t call, enum breaker_outcome outcome, enum failure_kind kind, int64_t now_ns, int64_t latency_ns)
{
	if (call_is_short(call)) {
		settle_short(call, outcome, kind, now_ns, latency_ns);
		return;
	}
	struct call *c = at(call);
	uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);
	while (!atomic_compare_exchange_weak_explicit(
		&c->word, &word, (word & ~3ULL) | SETTLED, memory_order_acq_rel, memory_order_acquire))
		;
	const struct guard *g = &c->guard;
	if (g->endpoint && outcome == BREAKER_SUCCESS)
		endpoint_succeeded(g->region, g->endpoint, now_ns);
	else if (g->endpoint && outcome == BREAKER_FAILURE && g->limits.trip_mask >> kind & 1)
		endpoint_failed(g->region, g->endpoint, &g->rules, kind, false, now_ns);
	settle_with(c, outcome, kind, now_ns, latency_ns);
	word = atomic_fetch_sub_explicit(&c->word, 1 << 8, memory_order_acq_rel);
	if (FLYING(word) == 1)
		give(call);
}

void call_moved(uint32_t call, enum breaker_outcome outcome, int64_t now_ns, int64_t latency_ns)
{
	if (!call_is_short(call))
		at(call)->guard.endpoint = 0;
	call_end(call, outcome, 0, now_ns, latency_ns);
}

void call_follow(uint32_t call, const struct guard *g)
{
	at(call)->guard.rules = g->rules;
	at(call)->guard.limits = g->limits;
}

struct circuit_token *call_token(uint32_t call)
{
	return &at(call)->token;
}

const struct guard *call_guard(uint32_t call)
{
	return call_is_short(call) ? call_short_guard(call) : &at(call)->guard;
}

int64_t call_begun_ns(uint32_t call)
{
	return at(call)->token.begun_ns;
}

bool call_attempt_failed(uint32_t call, uint32_t endpoint, enum failure_kind kind, int64_t begun_ns, int64_t now_ns)
{
	if (call_is_short(call)) {
		settle_short(call, BREAKER_FAILURE, kind, now_ns, now_ns - (begun_ns - endpoint * 1000LL));
		return true;
	}
	const struct guard *g = call_guard(call);
	if (endpoint && g->limits.trip_mask >> kind & 1)
		endpoint_failed(g->region, endpoint, &g->rules, kind, true, now_ns);
	atomic_store_explicit(&at(call)->last_kind, (uint32_t)kind, memory_order_relaxed);
	return attempt_end(call, END_FAILURE, now_ns);
}

bool call_attempt_is_local(uint32_t call, int64_t now_ns)
{
	return attempt_end(call, END_LOCAL, now_ns);
}

void call_attempt_dropped(uint32_t call, int64_t now_ns)
{
	attempt_end(call, END_DROPPED, now_ns);
}

void call_attempt_abandoned(uint32_t call, uint32_t endpoint, int64_t begun_ns, int64_t now_ns)
{
	int64_t limit = call_guard(call)->limits.abandon_ns;
	bool has_waited = limit && now_ns - begun_ns >= limit;
	if (!has_waited || call_has_succeeded_since(call, begun_ns))
		call_attempt_dropped(call, now_ns);
	else
		call_attempt_failed(call, endpoint, FAILURE_ABANDONED, begun_ns, now_ns);
}

bool call_has_succeeded_since(uint32_t call, int64_t since_ns)
{
	const struct guard *g = call_guard(call);
	return g->has_circuit && atomic_load_explicit(&g->region->destinations[g->destination].last_success_ns,
					 memory_order_relaxed) >= since_ns;
}

bool call_is_probe(uint32_t call)
{
	return !call_is_short(call) && at(call)->guard.has_circuit && at(call)->token.lease >= 0;
}

uint32_t call_live_count(void)
{
	return atomic_load_explicit(&call_live, memory_order_relaxed);
}

void call_tell_deadline(uint32_t call, const char *phase, int64_t limit_ns)
{
	const struct guard *g = call_guard(call);
	if (!g->has_circuit)
		return;
	struct event e = {.type = EVENT_DEADLINE, .value = limit_ns, .retry_after_ms = -1};
	text_copy(e.reason, sizeof e.reason, phase);
	registry_name(g->region, g->destination, e.destination);
	events_add(g->region, &e);
}

/* A call that waited for another address in vain: its failure stands. */
static void declare(uint32_t index, uint64_t word, int64_t now_ns)
{
	struct call *c = at(index);
	uint64_t settled = word_make(TAG(word), TRIED(word), 1, HAS_FAILED(word), SETTLED);
	if (!atomic_compare_exchange_strong(&c->word, &word, settled))
		return;
	settle(c, HAS_FAILED(settled) ? BREAKER_FAILURE : BREAKER_NEUTRAL, now_ns);
	atomic_fetch_sub(&c->word, 1 << 8);
	give(index);
}

static bool is_waiting(uint64_t word)
{
	return STATE(word) == LIVE && FLYING(word) == 0;
}

void call_declare(bool all, int64_t now_ns)
{
	uint32_t n = pool_high(&pool), left = atomic_load(&call_live_groups);
	for (uint32_t i = 0; i < n && left > 0; i++) {
		struct call *c = at(i);
		uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);
		if (STATE(word) != LIVE || !c->is_group)
			continue;
		left--;
		if (is_waiting(word) && (all || now_ns - atomic_load(&c->last_attempt_ns) >= CALL_PATIENCE_NS))
			declare(i, word, now_ns);
	}
}

/* Takes the attempt up into call i, if it still may. */
static bool board(struct call *c, uint64_t word, uint32_t bit, int64_t now_ns)
{
	uint64_t next = word_make(TAG(word), TRIED(word) | bit, FLYING(word) + 1, HAS_FAILED(word), LIVE);
	if (!atomic_compare_exchange_strong(&c->word, &word, next))
		return false;
	atomic_store_explicit(&c->last_attempt_ns, now_ns, memory_order_relaxed);
	if (c->guard.has_circuit)
		circuit_note(c->guard.region, &c->token, LEASE_BUSY);
	return true;
}

uint32_t call_find_ride(const struct guard *g, int64_t now_ns)
{
	uint32_t left = atomic_load_explicit(&call_live_groups, memory_order_relaxed);
	uint32_t n = pool_high(&pool), best = CALL_NONE;
	uint64_t best_word = 0;
	bool best_is_mine = false;
	for (uint32_t i = 0; i < n && left > 0; i++) {
		struct call *c = at(i);
		uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);
		if (STATE(word) != LIVE || !c->is_group)
			continue;
		left--;
		if (now_ns - atomic_load_explicit(&c->last_attempt_ns, memory_order_relaxed) >= CALL_PATIENCE_NS) {
			if (is_waiting(word))
				declare(i, word, now_ns);
			continue;
		}
		if (!g->is_group || c->guard.region != g->region || c->guard.destination != g->destination ||
			c->guard.name != g->name || (TRIED(word) & g->bit) || FLYING(word) == FLYING_MAX)
			continue;
		bool is_mine = c->thread == guest_thread();
		/* Attempts side by side are made by one thread (happy eyeballs); one after another may wander between
		 * an event loop's threads. */
		if (!is_mine && FLYING(word) > 0)
			continue;
		if (best == CALL_NONE || (is_mine && !best_is_mine)) {
			best = i;
			best_word = word;
			best_is_mine = is_mine;
		}
	}
	return best != CALL_NONE && board(at(best), best_word, g->bit, now_ns) ? best : CALL_NONE;
}

/* This thread's last rejected call over several addresses. Rejections come back at once, so an app tries the next
 * address on the same thread. */
static __thread struct {
	uint32_t destination, name, tried;
	int64_t at_ns;
} rejected;

__thread bool call_send_was_rejected;

void call_was_rejected_at_send(const struct guard *g, int64_t now_ns)
{
	call_was_rejected(g, now_ns);
	call_send_was_rejected = true;
}

bool call_is_rejected_again(const struct guard *g, int64_t now_ns)
{
	if (call_send_was_rejected) {
		call_send_was_rejected = false;
		if (rejected.destination != g->destination || now_ns - rejected.at_ns >= CALL_PATIENCE_NS)
			return false;
		call_was_rejected(g, now_ns);
		return true;
	}
	if (rejected.name != g->name || rejected.destination != g->destination || (rejected.tried & g->bit) ||
		now_ns - rejected.at_ns >= CALL_PATIENCE_NS)
		return false;
	rejected.tried |= g->bit;
	rejected.at_ns = now_ns;
	return true;
}

void call_was_rejected(const struct guard *g, int64_t now_ns)
{
	rejected.destination = g->destination;
	rejected.name = g->name;
	rejected.tried = g->bit;
	rejected.at_ns = now_ns;
}

void call_forked(void)
{
	uint32_t n = pool_high(&pool);
	for (uint32_t i = 0; i < n; i++) {
		atomic_store(&at(i)->is_group, false);
		atomic_store(&at(i)->hold, 0);
		atomic_store(&at(i)->word, word_make(TAG(atomic_load(&at(i)->word)) + 1, 0, 0, false, FREE));
	}
	pool_reset(&pool);
	atomic_store(&call_live, 0);
	atomic_store(&call_live_groups, 0);
}
