/* See call.h. Called by hooks on any thread and by the service thread. */
#include "engine/call.h"

#include "base/clock.h"
#include "base/sys.h"
#include "core/events.h"
#include "core/registry.h"
#include "engine/guest.h"

#define POOL 65536u
#define POOL_TIGHT 1024u /* under a limit of address space */

enum state { FREE, LIVE, SETTLED };

struct call {
	_Atomic uint64_t word;
	struct region *region;
	struct circuit_token token;
	struct breaker_rules rules;
	_Atomic int64_t last_attempt_ns;
	_Atomic uint32_t last_kind; /* of the last failed attempt */
	uint32_t name;
	uint32_t all;
	uint32_t destination;
	bool has_circuit;
	bool is_group;
	uintptr_t thread;
	_Atomic uint32_t next_free; /* index + 1 */
};

static struct call *pool;
static uint32_t pool_size;
static _Atomic uintptr_t pool_owner; /* the thread that makes it */
static _Atomic uint32_t high;	     /* records ever used */
static _Atomic uint64_t free_list;   /* tag 32 | index + 1 */
static _Atomic uint32_t live;
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

static bool pool_make(void)
{
	if (__atomic_load_n(&pool, __ATOMIC_ACQUIRE))
		return true;
	if (guest_is_restricted())
		return false;
	struct rlimit space = {.rlim_cur = RLIM_INFINITY};
	sys_getrlimit(RLIMIT_AS, &space);
	uint32_t n = space.rlim_cur == RLIM_INFINITY ? POOL : POOL_TIGHT;
	size_t size = n * sizeof(struct call);
	void *at = sys_mmap(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(at))
		return false;
	/* The size goes with the mapping: another thread may have seen another limit. */
	uintptr_t nobody = 0;
	if (!atomic_compare_exchange_strong(&pool_owner, &nobody, guest_thread())) {
		sys_munmap(at, size);
		return __atomic_load_n(&pool, __ATOMIC_ACQUIRE) != NULL;
	}
	pool_size = n;
	__atomic_store_n(&pool, at, __ATOMIC_RELEASE);
	return true;
}

static uint32_t pool_take(void)
{
	if (!pool_make())
		return CALL_NONE;
	uint64_t head = atomic_load_explicit(&free_list, memory_order_acquire);
	while ((uint32_t)head) {
		uint32_t index = (uint32_t)head - 1;
		uint64_t next =
			((head >> 32) + 1) << 32 | atomic_load_explicit(&pool[index].next_free, memory_order_relaxed);
		if (atomic_compare_exchange_weak_explicit(
			    &free_list, &head, next, memory_order_acq_rel, memory_order_acquire))
			return index;
	}
	uint32_t index = atomic_fetch_add(&high, 1);
	if (index < pool_size)
		return index;
	atomic_fetch_sub(&high, 1);
	return CALL_NONE;
}

static void pool_give(uint32_t index)
{
	struct call *c = &pool[index];
	if (c->is_group)
		atomic_fetch_sub(&call_live_groups, 1);
	atomic_fetch_sub(&live, 1);
	uint64_t head = atomic_load_explicit(&free_list, memory_order_relaxed), next;
	do {
		atomic_store_explicit(&c->next_free, (uint32_t)head, memory_order_relaxed);
		next = ((head >> 32) + 1) << 32 | (index + 1);
	} while (!atomic_compare_exchange_weak_explicit(
		&free_list, &head, next, memory_order_release, memory_order_relaxed));
}

uint32_t call_begin(const struct guard *g, const struct circuit_token *token, int64_t now_ns)
{
	uint32_t index = pool_take();
	if (index == CALL_NONE)
		return CALL_NONE;
	struct call *c = &pool[index];
	c->region = g->region;
	c->token = *token;
	c->rules = g->rules;
	c->name = g->name;
	c->all = g->all;
	c->destination = g->destination;
	c->has_circuit = g->has_circuit;
	c->is_group = g->is_group;
	c->thread = guest_thread();
	atomic_store_explicit(&c->last_attempt_ns, now_ns, memory_order_relaxed);
	atomic_fetch_add(&live, 1);
	if (c->is_group)
		atomic_fetch_add(&call_live_groups, 1);
	uint64_t word = atomic_load_explicit(&c->word, memory_order_relaxed);
	atomic_store_explicit(&c->word, word_make(TAG(word) + 1, g->bit, 1, false, LIVE), memory_order_release);
	return index;
}

/* The one place where a verdict reaches the circuit; the caller has won the change from LIVE to SETTLED. */
static void settle(struct call *c, enum breaker_outcome outcome, int64_t now_ns)
{
	if (!c->has_circuit)
		return;
	enum failure_kind kind = (enum failure_kind)atomic_load_explicit(&c->last_kind, memory_order_relaxed);
	circuit_settle(c->region, &c->token, &c->rules, outcome, kind, true, now_ns,
		outcome == BREAKER_NEUTRAL ? -1 : now_ns - c->token.begun_ns);
}

/* Ends one attempt, and with it the call when it was the last and nothing is left to wait for. Frees the record with
 * the last attempt of a settled call. LOCAL: trouble of this machine (no route for this family): no news, but the
 * name's other addresses may follow. DROPPED: the app let go. */
enum end { END_SUCCESS, END_FAILURE, END_LOCAL, END_DROPPED };
static void attempt_end(uint32_t index, enum end end, int64_t now_ns)
{
	struct call *c = &pool[index];
	uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire), next;
	/* Patience runs from the end of an attempt: a first address may take its whole limit to fail. */
	if (end == END_FAILURE || end == END_LOCAL)
		atomic_store_explicit(&c->last_attempt_ns, now_ns, memory_order_relaxed);
	bool settles, waits;
	do {
		uint32_t flying = FLYING(word) - 1;
		bool failed = HAS_FAILED(word) || end == END_FAILURE;
		bool all_tried = (TRIED(word) & c->all) == c->all || !c->is_group;
		settles = STATE(word) == LIVE &&
			  (end == END_SUCCESS || (flying == 0 && (end == END_DROPPED || all_tried)));
		waits = STATE(word) == LIVE && !settles && flying == 0;
		/* The record stays referenced by this attempt until its circuit has heard: a settled one is not freed,
		 * one that waits is not boarded by another thread, nor declared. */
		next = word_make(TAG(word), TRIED(word), settles || waits ? flying + 1 : flying, failed,
			settles ? SETTLED : STATE(word));
	} while (!atomic_compare_exchange_weak_explicit(
		&c->word, &word, next, memory_order_acq_rel, memory_order_acquire));
	if (waits) {
		if (c->has_circuit)
			circuit_set_pending(c->region, &c->token, true);
		word = atomic_fetch_sub_explicit(&c->word, 1 << 8, memory_order_acq_rel);
		/* A signal handler of this thread's has boarded meanwhile: it is under way, or settled already. */
		if (STATE(word) == SETTLED && FLYING(word) == 1)
			pool_give(index);
		else if (FLYING(word) > 1 && c->has_circuit)
			circuit_set_pending(c->region, &c->token, false);
		return;
	}
	if (settles) {
		bool is_failure = end != END_DROPPED && HAS_FAILED(next);
		settle(c,
			end == END_SUCCESS ? BREAKER_SUCCESS
			: is_failure	   ? BREAKER_FAILURE
					   : BREAKER_NEUTRAL,
			now_ns);
		word = atomic_fetch_sub_explicit(&c->word, 1 << 8, memory_order_acq_rel);
		next = word - (1 << 8);
	}
	if (STATE(next) == SETTLED && FLYING(next) == 0)
		pool_give(index);
}

void call_attempt_succeeded(uint32_t call, int64_t now_ns)
{
	attempt_end(call, END_SUCCESS, now_ns);
}

void call_attempt_failed(uint32_t call, enum failure_kind kind, int64_t now_ns)
{
	atomic_store_explicit(&pool[call].last_kind, (uint32_t)kind, memory_order_relaxed);
	attempt_end(call, END_FAILURE, now_ns);
}

void call_attempt_is_local(uint32_t call, int64_t now_ns)
{
	attempt_end(call, END_LOCAL, now_ns);
}

void call_attempt_dropped(uint32_t call, int64_t now_ns)
{
	attempt_end(call, END_DROPPED, now_ns);
}

void call_attempt_abandoned(uint32_t call, int64_t begun_ns, int64_t now_ns)
{
	struct call *c = &pool[call];
	bool has_waited = now_ns - begun_ns >= CALL_ABANDON_NS;
	if (!has_waited || !c->has_circuit ||
		atomic_load_explicit(&c->region->destinations[c->destination].last_success_ns, memory_order_relaxed) >=
			begun_ns)
		call_attempt_dropped(call, now_ns);
	else
		call_attempt_failed(call, FAILURE_ABANDONED, now_ns);
}

bool call_is_probe(uint32_t call)
{
	return pool[call].has_circuit && pool[call].token.lease >= 0;
}

uint32_t call_live_count(void)
{
	return atomic_load_explicit(&live, memory_order_relaxed);
}

void call_tell_deadline(uint32_t call, int64_t limit_ns)
{
	struct call *c = &pool[call];
	if (!c->has_circuit)
		return;
	struct event e = {.type = EVENT_DEADLINE, .value = limit_ns, .retry_after_ms = -1};
	text_copy(e.reason, sizeof e.reason, "connect");
	registry_name(c->region, c->destination, e.destination);
	events_add(c->region, &e);
}

/* A call that waited for another address in vain: its failure stands. */
static void declare(uint32_t index, uint64_t word, int64_t now_ns)
{
	struct call *c = &pool[index];
	uint64_t settled = word_make(TAG(word), TRIED(word), 1, HAS_FAILED(word), SETTLED);
	if (!atomic_compare_exchange_strong(&c->word, &word, settled))
		return;
	settle(c, HAS_FAILED(settled) ? BREAKER_FAILURE : BREAKER_NEUTRAL, now_ns);
	atomic_fetch_sub(&c->word, 1 << 8);
	pool_give(index);
}

static bool is_waiting(uint64_t word)
{
	return STATE(word) == LIVE && FLYING(word) == 0;
}

void call_declare(bool all, int64_t now_ns)
{
	uint32_t n = atomic_load(&high), left = atomic_load(&call_live_groups);
	for (uint32_t i = 0; i < n && i < pool_size && left > 0; i++) {
		struct call *c = &pool[i];
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
	if (c->has_circuit)
		circuit_set_pending(c->region, &c->token, false);
	return true;
}

uint32_t call_find_ride(const struct guard *g, int64_t now_ns)
{
	uint32_t left = atomic_load_explicit(&call_live_groups, memory_order_relaxed);
	uint32_t n = atomic_load(&high), best = CALL_NONE;
	uint64_t best_word = 0;
	bool best_is_mine = false;
	for (uint32_t i = 0; i < n && i < pool_size && left > 0; i++) {
		struct call *c = &pool[i];
		uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);
		if (STATE(word) != LIVE || !c->is_group)
			continue;
		left--;
		if (now_ns - atomic_load_explicit(&c->last_attempt_ns, memory_order_relaxed) >= CALL_PATIENCE_NS) {
			if (is_waiting(word))
				declare(i, word, now_ns);
			continue;
		}
		if (!g->is_group || c->region != g->region || c->destination != g->destination || c->name != g->name ||
			(TRIED(word) & g->bit) || FLYING(word) == FLYING_MAX)
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
	return best != CALL_NONE && board(&pool[best], best_word, g->bit, now_ns) ? best : CALL_NONE;
}

/* This thread's last rejected call over several addresses. Rejections come back at once, so an app tries the next
 * address on the same thread. */
static __thread struct {
	uint32_t destination, name, tried;
	int64_t at_ns;
} rejected;

bool call_is_rejected_again(const struct guard *g, int64_t now_ns)
{
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
	uint32_t n = atomic_load(&high);
	for (uint32_t i = 0; i < n && i < pool_size; i++)
		atomic_store(&pool[i].word, word_make(TAG(atomic_load(&pool[i].word)) + 1, 0, 0, false, FREE));
	if (!pool)
		atomic_store(&pool_owner, 0); /* its maker is not here */
	atomic_store(&high, 0);
	atomic_store(&free_list, 0);
	atomic_store(&live, 0);
	atomic_store(&call_live_groups, 0);
}
