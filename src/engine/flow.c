/* See flow.h. Called by the hooks of any thread and by the timer. */
#include "engine/flow.h"

#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/tcpinfo.h"
#include "core/circuit.h"
#include "engine/admission.h"
#include "engine/ambient.h"
#include "engine/call.h"
#include "engine/feed.h"
#include "engine/guest.h"
#include "engine/pool.h"
#include "engine/process.h"
#include "engine/service.h"
#include "engine/streams.h"
#include "engine/wheel.h"
#include "policy/policy.h"

/* A request on a kept connection that meets its end so soon: the server had dropped it before (A7). */
#define DROPPED_NS NS_PER_S
/* How long a thread waits for another that begins a flow. */
#define START_NS (100 * NS_PER_MS)

struct pool flow_pool = {
	.size = sizeof(struct flow), .link_at = offsetof(struct flow, next_free), .most = 1u << 20, .tight = 1024};

/* ---- its life ---- */

static uint32_t index_of(const struct flow *f)
{
	return (uint32_t)(f - (const struct flow *)(const void *)flow_pool.base);
}

static enum flow_kind kind_of(enum policy_protocol protocol)
{
	switch (protocol) {
	case POLICY_PROTOCOL_HTTP1: return FLOW_HTTP1;
	case POLICY_PROTOCOL_REQUEST: return FLOW_PLAIN;
	case POLICY_PROTOCOL_ONEWAY: return FLOW_ONEWAY;
	default: return FLOW_UNKNOWN;
	}
}

enum flow_kind flow_kind_asked(const struct flow *f)
{
	return kind_of((enum policy_protocol)f->guard.limits.protocol);
}

static bool has_limits(const struct guard_limits *l, enum flow_kind kind)
{
	return kind != FLOW_OPAQUE && kind != FLOW_ONEWAY && guard_bounds(l);
}

static void fill(
	struct flow *f, uint32_t call, int64_t begun_ns, int64_t connected_ns, uint32_t generation, uint32_t forks)
{
	f->guard = *call_guard(call);
	f->kept = call_is_short(call) ? call_short_number(call) : (uint32_t)FLOW_KEPT_UNASKED;
	f->generation = generation;
	f->named = 0;
	f->connected_ns = connected_ns;
	f->first_count = 0;
	f->carried_count = 0;
	enum flow_kind kind = kind_of((enum policy_protocol)f->guard.limits.protocol);
	records_init(&f->records, RECORDS_NONE);
	tls_records_init(&f->tls);
	atomic_store_explicit(&f->tls_object, NULL, memory_order_relaxed);
	uint32_t marks = (f->guard.limits.protocol == POLICY_PROTOCOL_REQUEST ? FLOW_OWES : 0u) |
			 (has_limits(&f->guard.limits, kind) ? FLOW_HAS_LIMITS : 0u);
	/* What is asked for may be inside of TLS. */
	if (kind == FLOW_HTTP1 || kind == FLOW_PLAIN)
		kind = FLOW_UNKNOWN;
	marks |= kind <= FLOW_UNKNOWN ? FLOW_IS_HEARD : 0u;
	atomic_store_explicit(&f->kind, kind, memory_order_relaxed);
	atomic_store_explicit(&f->marks, marks, memory_order_relaxed);
	atomic_store_explicit(&f->begun_ns, begun_ns, memory_order_relaxed);
	atomic_store_explicit(&f->asked_ns, connected_ns, memory_order_relaxed);
	atomic_store_explicit(&f->heard_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&f->in, 0, memory_order_relaxed);
	atomic_store_explicit(&f->out, 0, memory_order_relaxed);
	atomic_store_explicit(&f->forks, forks, memory_order_relaxed);
	atomic_store_explicit(&f->status, 0, memory_order_relaxed);
	atomic_store_explicit(&f->call, call + 1, memory_order_relaxed);
	atomic_store_explicit(&f->paths, 1, memory_order_relaxed);
	uint64_t turn = flow_word(f) >> 32;
	atomic_store_explicit(&f->word, (turn + 1) << 32 | FLOW_FRESH, memory_order_release);
	atomic_store_explicit(&f->refs, 1, memory_order_release);
}

/* From now on the slot leads to it. False: closed meanwhile by another thread. */
static bool lead_to(struct slot *s, uint64_t word, struct flow *f, int64_t now_ns)
{
	uint32_t index = index_of(f);
	if (slot_put_call(s, word, index) && slot_change(s, word, SLOT_FLOWING, false))
		return true;
	if (slot_take_call(s, word) == index) {
		flow_hung_up(f, -1, FLOW_OVER, now_ns);
		flow_let_go(f);
	} /* else that close has taken it over */
	return false;
}

/* A stream of which nothing is to be learnt: the connection alone has a slot of the bulkhead. */
static __attribute__((noinline)) void holds_only(struct flow *f, struct slot *s, uint64_t word, int64_t now_ns)
{
	flow_speaks(f, FLOW_OPAQUE);
	flow_unmark(f, FLOW_HAS_LIMITS);
	if (!lead_to(s, word, f, now_ns))
		return;
	flow_end_call(f, flow_word(f), FLOW_OVER, BREAKER_SUCCESS, 0, now_ns);
	slot_change(s, (word & ~0xffULL) | SLOT_FLOWING, SLOT_CONNECTED, false);
}

void flow_open(struct slot *s, uint64_t word, int fd, uint32_t call, int64_t begun_ns, int64_t now_ns)
{
	const struct guard *g = call_guard(call);
	if (!call_connected(call, atomic_load_explicit(&s->endpoint, memory_order_relaxed), now_ns))
		return;
	const struct guard_limits *l = &g->limits;
	bool is_stream = l->protocol == POLICY_PROTOCOL_STREAM;
	bool is_asked_for = g->has_circuit || g->may_be_named || l->header || guard_bounds(l);
	bool learns = (!is_stream && is_asked_for) || g->limits.bulkhead;
	uint32_t index = learns ? pool_take(&flow_pool) : POOL_NONE;
	if (index == POOL_NONE) {
		call_end(call, BREAKER_SUCCESS, 0, now_ns, now_ns - begun_ns);
		return;
	}
	struct flow *f = pool_at(&flow_pool, index);
	fill(f, call, begun_ns, now_ns, policy_generation(), process_forks());
	if (is_stream) {
		holds_only(f, s, word, now_ns);
		return;
	}
	bool is_bound = flow_has(f, FLOW_HAS_LIMITS);
	/* What the timer ends must be known by more than its number (C7). */
	if (is_bound && !atomic_load(&s->cookie))
		atomic_store(&s->cookie, slot_read_cookie(fd));
	if (lead_to(s, word, f, now_ns) && is_bound)
		service_bound(fd, flow_due_ns(f));
}

/* When the connect of an OPEN slot began, which another thread may be telling just now (outcome_opened). Before the
 * call is taken: then it is of this life. */
static int64_t begun_of_open(const struct slot *s)
{
	int64_t begun = atomic_load_explicit(&s->deadline_ns, memory_order_relaxed),
		connected = atomic_load_explicit(&s->begun_ns, memory_order_relaxed);
	return begun && begun < connected ? begun : connected;
}

/* A flow for the call, that the caller has taken from the slot. False: there is none to be had. */
static bool start(struct slot *s, uint64_t word, uint32_t call, int64_t begun_ns)
{
	uint32_t index = pool_take(&flow_pool);
	if (index == POOL_NONE) {
		slot_change(s, word, SLOT_CONNECTED, false);
		return false;
	}
	struct flow *f = pool_at(&flow_pool, index);
	int64_t connected_ns = atomic_load_explicit(&s->begun_ns, memory_order_relaxed);
	fill(f, call, begun_ns, connected_ns, atomic_load_explicit(&s->generation, memory_order_relaxed),
		atomic_load_explicit(&s->forks, memory_order_relaxed));
	lead_to(s, word, f, connected_ns);
	return true;
}

/* This thread is making a flow: a handler that interrupts it waits for nobody. */
static __thread bool is_starting;

/* Another thread makes the slot's flow, and may wait for our processor: octets that pass meanwhile would be seen by
 * nobody, and what is sent unseen makes of its answer the beginning of the talk. */
static __attribute__((noinline)) void wait_for_start(struct slot *s, uint64_t word)
{
	int64_t until = 0;
	for (int i = 0; slot_word(s) == word && !is_starting; i++) {
		if (i < 1000)
			continue;
		int64_t now = clock_now_ns();
		until = until ? until : now + START_NS;
		if (now >= until || guest_is_restricted()) {
			slot_change(s, word, SLOT_CONNECTED, false); /* nobody waits for it twice */
			return;
		}
		sched_yield();
	}
}

uint64_t flow_start(struct slot *s, uint64_t word)
{
	int64_t begun = begun_of_open(s);
	uint32_t call = slot_take_call(s, word);
	if (call == SLOT_NO_CALL) {
		wait_for_start(s, word);
		return slot_word(s);
	}
	begun = call_began_at(call, begun);
	is_starting = true;
	bool is_made = start(s, word, call, begun);
	is_starting = false;
	if (!is_made) {
		int64_t now = clock_now_ns();
		call_end(call, BREAKER_SUCCESS, 0, now, now - begun);
	}
	return slot_word(s);
}

void flow_start_inherited(struct slot *s, uint64_t word)
{
	uint32_t call = slot_take_call(s, word);
	if (call != SLOT_NO_CALL)
		start(s, word, call, call_began_at(call, begun_of_open(s)));
	else /* a thread of the parent's was about to make it, or to end it */
		slot_change(s, word, SLOT_CONNECTED, false);
}

/* now_ns 0: the clock has not been read. */
static inline void release_hold(struct flow *f, int64_t now_ns)
{
	if (__builtin_expect(atomic_load_explicit(&f->hold, memory_order_relaxed) != 0, 0))
		admission_release(&f->guard, atomic_exchange(&f->hold, 0), now_ns ? now_ns : clock_now_ns());
}

void flow_gone(struct flow *f)
{
	if (atomic_load_explicit(&f->streams, memory_order_relaxed))
		streams_release(f);
	if (atomic_load_explicit(&f->requests, memory_order_relaxed))
		feed_requests_release(f);
	release_hold(f, 0);
	pool_give(&flow_pool, index_of(f));
}

bool flow_is_of(const struct flow *f, struct slot *s, uint64_t word)
{
	uint32_t index = slot_peek_call(s, word);
	return index != SLOT_NO_CALL && pool_at(&flow_pool, index) == f;
}

/* In other states what the slot leads to is a call, or is its owner's to say. */
static bool leads_to_flow(uint64_t word)
{
	enum slot_state state = slot_state_of(word);
	return state == SLOT_FLOWING || state == SLOT_CONNECTED || state == SLOT_EXPIRED;
}

/* The other descriptors that lead to it: one of them is armed in the place of one that goes. */
static void arm_another(const struct flow *f, int but)
{
	if (!flow_has(f, FLOW_HAS_LIMITS))
		return;
	for (int fd = 0; fd <= slot_highest(); fd++) {
		struct slot *s = slot_at(fd);
		uint64_t word = slot_word(s);
		if (fd == but || slot_state_of(word) != SLOT_FLOWING || !flow_is_of(f, s, word))
			continue;
		service_bound(fd, flow_due_ns(f));
		return;
	}
}

void flow_closing(struct slot *s, uint64_t word, int fd, int64_t now_ns)
{
	if (slot_state_of(word) == SLOT_OPEN) {
		uint32_t call = slot_take_call(s, word);
		if (call != SLOT_NO_CALL)
			flow_unused_ends(s, call, fd, flow_is_used_unseen(s, fd));
		return;
	}
	uint32_t index = leads_to_flow(word) ? slot_take_call(s, word) : SLOT_NO_CALL;
	if (index == SLOT_NO_CALL)
		return;
	struct flow *f = pool_at(&flow_pool, index);
	if (atomic_fetch_sub(&f->paths, 1) == 1) {
		flow_hung_up(f, fd, FLOW_OVER, now_ns);
		release_hold(f, now_ns);
	} else {
		arm_another(f, fd);
	}
	flow_let_go(f);
}

void flow_share(struct slot *from, uint64_t word, struct slot *to, uint64_t to_word)
{
	struct flow *f = flow_hold(from, word);
	if (!f)
		return;
	atomic_fetch_add(&f->paths, 1);
	atomic_store(&to->cookie, atomic_load(&from->cookie));
	if (slot_put_call(to, to_word, index_of(f)) && slot_change(to, to_word, SLOT_FLOWING, false))
		return; /* what was held is the new path's */
	atomic_fetch_sub(&f->paths, 1);
	flow_let_go(f);
}

void flow_forked(struct slot *s)
{
	uint64_t word = slot_word(s);
	struct flow *f = leads_to_flow(word) ? flow_hold(s, word) : NULL;
	if (!f)
		return;
	enum flow_phase phase = flow_phase_of(flow_word(f));
	bool is_in_call = atomic_exchange(&f->call, 0) != 0;
	atomic_store(&f->hold, 0);
	if (phase == FLOW_OWNED)
		atomic_store(&f->word, (flow_word(f) & ~0xffULL) | FLOW_IDLE);
	else if (is_in_call)
		flow_mark(f, FLOW_IS_INHERITED);
	streams_forked(f);
	flow_unmark(f, FLOW_HAS_TRIED); /* the next receive sees to it that a timer of this process's is there */
	flow_let_go(f);
}

/* ---- its calls ---- */

/* The word of the next turn, once the fields of its call are written by the owner. */
static inline __attribute__((always_inline)) bool set_out(
	struct flow *f, uint64_t owned, uint32_t call, int64_t begun_ns, int64_t now_ns)
{
	atomic_store_explicit(&f->call, call + 1, memory_order_relaxed);
	atomic_store_explicit(&f->begun_ns, begun_ns, memory_order_relaxed);
	atomic_store_explicit(&f->asked_ns, now_ns, memory_order_relaxed);
	atomic_store_explicit(&f->heard_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&f->forks, process_forks(), memory_order_relaxed);
	atomic_store_explicit(&f->status, 0, memory_order_relaxed);
	flow_unmark(f, FLOW_HAS_TRIED | FLOW_IS_FORGIVEN | FLOW_IS_INHERITED | FLOW_IS_WHOLE | FLOW_HAS_WAITED |
			       FLOW_HAS_SENT | FLOW_MAY_HAVE_ANSWERED);
	uint64_t next = ((owned >> 32) + 1) << 32 | FLOW_WAITING;
	return atomic_compare_exchange_strong(&f->word, &owned, next);
}

static void mark_limits(struct flow *f)
{
	if (has_limits(&f->guard.limits, (enum flow_kind)atomic_load(&f->kind)))
		flow_mark(f, FLOW_HAS_LIMITS);
	else
		flow_unmark(f, FLOW_HAS_LIMITS);
}

/* Who is at the other end. */
static bool peer_of(int fd, struct addr *a)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;
	return !guest_is_restricted() && SYS3(SYS_getpeername, fd, &peer, &len) == 0 &&
	       addr_from_sockaddr(a, (struct sockaddr *)&peer, len);
}

/* A reload reaches the next call on a kept connection, too: rules and limits are looked up again; the circuit stays,
 * unless the registry has given its place away. */
__attribute__((noinline)) void flow_follow_reload(struct flow *f, int fd, int64_t now_ns)
{
	struct addr a;
	struct guard g;
	bool is_evicted = !guard_is_current(&f->guard);
	f->kept = (uint32_t)FLOW_KEPT_UNASKED;
	f->generation = policy_generation();
	f->guard.has_circuit &= !is_evicted;
	if (!peer_of(fd, &a) || !guard_find(&a, now_ns, &g))
		return;
	if (is_evicted) { /* B17: it has another place by now */
		f->guard.has_circuit = g.has_circuit;
		f->guard.destination = g.destination;
		f->guard.life = g.life;
		f->guard.region = g.region;
	}
	f->guard.rules = g.rules;
	f->guard.limits = g.limits;
	f->guard.reject_errno = g.reject_errno;
	f->guard.section = g.section;
	f->guard.enforces = g.enforces;
	f->guard.may_be_named = g.may_be_named && !f->guard.is_secondary;
	if (!f->guard.has_circuit)
		f->guard.limits.bulkhead = 0;
	mark_limits(f);
}

static inline __attribute__((always_inline)) bool is_rejected(
	const struct flow *f, int64_t now_ns, struct circuit_token *token)
{
	const struct guard *g = &f->guard;
	/* Another connection for the request that was rejected on a kept one: still the same call (B11). */
	bool is_again = __builtin_expect(g->section != 0, 0) && call_send_was_rejected && !flow_has(f, FLOW_IS_KEPT);
	if (is_again && circuit_is_open(g->region, g->destination, &g->rules, now_ns) &&
		call_is_rejected_again(g, now_ns))
		return true;
	if (circuit_admit(g->region, g->destination, &g->rules, now_ns, token) != BREAKER_REJECT)
		return false;
	if (flow_has(f, FLOW_IS_KEPT))
		call_was_rejected_at_send(g, now_ns);
	return true;
}

/* A slot of the bulkhead for the flow's next call, unless the connection has one. The circuit has let it pass. */
static __attribute__((noinline)) enum flow_begun take_slot(
	struct flow *f, enum flow_gate gate, struct circuit_token *token, int64_t now_ns, struct admission_slot *slot)
{
	const struct guard *g = &f->guard;
	*slot = (struct admission_slot){.held_ns = now_ns};
	if (atomic_load(&f->hold))
		return FLOW_BEGUN;
	if (gate == FLOW_PASSES) {
		admission_of_pass(g, now_ns, slot);
		return FLOW_BEGUN;
	}
	struct admission_patience patience = admission_patience(g, gate != FLOW_ASKS, now_ns, 0, now_ns);
	patience.minds_signals = gate == FLOW_WAITS;
	switch (admission_of_send(g, token, &patience, now_ns, slot)) {
	case ADMISSION_GRANTED: return FLOW_BEGUN;
	case ADMISSION_INTERRUPTED: return FLOW_INTERRUPTED;
	default:
		if (flow_has(f, FLOW_IS_KEPT))
			call_was_rejected_at_send(g, clock_now_ns());
		return FLOW_REJECTED;
	}
}

/* By the one thread that has the flow's next call to make. *call: CALL_NONE where there is none. *now_ns moves on with
 * a wait. */
static inline __attribute__((always_inline)) enum flow_begun make_call_here(
	struct flow *f, enum flow_gate gate, int fd, int64_t *now, uint32_t *call)
{
	int64_t now_ns = *now;
	struct admission_slot slot;
	const struct guard *g = &f->guard;
	struct circuit_token token;
	*call = CALL_NONE;
	guest_follow_reload(g->region);
	if (__builtin_expect(f->generation != policy_generation() || !guard_is_current(g), 0))
		flow_follow_reload(f, fd, now_ns);
	if (guest_is_bypassed(g->region))
		return FLOW_BEGUN;
	uint16_t generation;
	/* As the everyday connect's: no record. A closed circuit admits both those who ask and those who pass. */
	if (__builtin_expect(f->kept == (uint32_t)FLOW_KEPT_UNASKED, 0))
		f->kept = guard_number(g);
	uint32_t kept = f->kept;
	if (__builtin_expect(kept != FLOW_NOT_KEPT, 1) &&
		circuit_admit_plain(g->region, g->destination, now_ns, &generation)) {
		*call = call_begin_short(kept, generation);
		return FLOW_BEGUN;
	}
	token = (struct circuit_token){.lease = -1, .begun_ns = now_ns};
	if (g->has_circuit && gate != FLOW_PASSES && is_rejected(f, now_ns, &token))
		return FLOW_REJECTED;
	if (g->has_circuit && gate == FLOW_PASSES)
		circuit_pass(g->region, g->destination, &g->rules, now_ns, &token);
	if (__builtin_expect(g->limits.bulkhead != 0, 0)) {
		enum flow_begun begun = take_slot(f, gate, &token, now_ns, &slot);
		if (begun != FLOW_BEGUN)
			return begun;
		*now = slot.held_ns;
	}
	if (!call_begin_connected(g, &token, now_ns, call) && g->has_circuit) {
		circuit_settle(g->region, &token, &g->rules, BREAKER_NEUTRAL, 0, false, now_ns, -1);
		if (g->limits.bulkhead)
			/* cppcheck-suppress uninitStructMember ; taken above where there is one */
			admission_release(g, slot.hold, *now);
	} else if (__builtin_expect(g->limits.bulkhead != 0, 0)) {
		call_put_slot(*call, &slot);
	}
	return FLOW_BEGUN;
}

/* The same where it is not in everybody's way. */
static __attribute__((noinline)) enum flow_begun make_call(
	struct flow *f, enum flow_gate gate, int fd, int64_t *now, uint32_t *call)
{
	return make_call_here(f, gate, fd, now, call);
}

uint32_t flow_new_call(struct flow *f, int fd, int64_t now_ns)
{
	uint32_t call;
	make_call(f, FLOW_PASSES, fd, &now_ns, &call);
	return call + 1; /* CALL_NONE + 1: 0 */
}

enum flow_begun flow_begin_call(
	struct flow *f, uint64_t seen, enum flow_gate gate, uint64_t place, int fd, int64_t now_ns)
{
	int64_t begun_ns = now_ns;
	if (!flow_step(f, seen, FLOW_OWNED))
		return FLOW_BEGUN; /* another thread has */
	if (__builtin_expect(place != GUARD_PLACE_KEPT, 0)) {
		if (place != guard_place(&f->guard))
			release_hold(f, now_ns);
		guard_move(&f->guard, place);
		f->kept = (uint32_t)FLOW_KEPT_UNASKED;
	}
	uint64_t owned = (seen & ~0xffULL) | FLOW_OWNED;
	uint32_t call;
	enum flow_begun begun = make_call_here(f, gate, fd, &now_ns, &call);
	if (call == CALL_NONE) {
		flow_step(f, owned, FLOW_IDLE);
		return begun;
	}
	if (!set_out(f, owned, call, begun_ns, now_ns) && atomic_exchange(&f->call, 0) == call + 1)
		call_end(call, BREAKER_NEUTRAL, 0, now_ns, -1); /* closed meanwhile */
	return FLOW_BEGUN;
}

/* The connection's use of its slot goes on behind the call: it is not told where the next one begins, or ends. */
static bool keeps_slot(struct flow *f, enum flow_phase to, enum breaker_outcome outcome)
{
	enum flow_kind kind = (enum flow_kind)atomic_load(&f->kind);
	if (kind == FLOW_HTTP2)
		return false;
	if (kind == FLOW_HTTP1)
		return to == FLOW_IDLE && http1_pending(&f->http) > 0; /* the next is sent already */
	return to == FLOW_IDLE || outcome == BREAKER_SUCCESS;
}

/* A call ends whose guard has a bulkhead. */
static __attribute__((noinline)) void end_bounded(struct flow *f, uint32_t call, bool keeps,
	enum breaker_outcome outcome, enum failure_kind kind, int64_t now_ns, int64_t latency_ns)
{
	uint64_t hold = keeps ? call_take_hold(call) : 0, none = 0;
	if (hold && !atomic_compare_exchange_strong(&f->hold, &none, hold))
		admission_release(&f->guard, hold, now_ns); /* the next has one of its own by now */
	call_end(call, outcome, kind, now_ns, latency_ns);
	if (!keeps)
		release_hold(f, now_ns);
}

/* Its guard is another's from here on: a slot that the connection held of another destination is free. */
static void take_guard(struct flow *f, const struct guard *to, int64_t now_ns)
{
	if (guard_place(&f->guard) != guard_place(to))
		release_hold(f, now_ns);
	f->guard = *to;
	f->kept = (uint32_t)FLOW_KEPT_UNASKED;
	mark_limits(f);
}

/* The call goes on in its circuit by the rules of the flow's guard: with a slot of that one's bulkhead, where it is
 * another than before. */
static enum flow_begun follow_call(struct flow *f, uint32_t call, enum flow_gate gate, int64_t *now_ns)
{
	struct admission_slot slot;
	const struct guard *g = &f->guard;
	bool has_other = call_guard(call)->limits.bulkhead != g->limits.bulkhead;
	if (has_other) {
		admission_release(g, call_take_hold(call), *now_ns);
		release_hold(f, *now_ns);
	}
	call_follow(call, g);
	if (!has_other || !g->limits.bulkhead)
		return FLOW_BEGUN;
	struct circuit_token *token = call_token(call);
	int64_t begun_ns = token->begun_ns;
	enum flow_begun begun = take_slot(f, gate, token, *now_ns, &slot);
	token->begun_ns = begun_ns; /* a wait has admitted it anew */
	if (begun == FLOW_BEGUN) {
		call_put_slot(call, &slot);
		*now_ns = slot.held_ns;
	}
	return begun;
}

/* The flow is OWNED, and its call's circuit the same as before. */
static enum flow_begun follow(struct flow *f, uint64_t owned, enum flow_gate gate, uint32_t call, int64_t now_ns)
{
	if (call && call_is_short(call - 1)) {
		uint32_t written = call_write_out(call - 1, atomic_load_explicit(&f->begun_ns, memory_order_relaxed));
		call = written == CALL_NONE ? call : written + 1;
	}
	bool has_record = call && !call_is_short(call - 1);
	enum flow_begun begun = has_record ? follow_call(f, call - 1, gate, &now_ns) : FLOW_BEGUN;
	if (begun != FLOW_BEGUN) { /* its circuit knows nothing of it any more */
		call_moved(call - 1, BREAKER_NEUTRAL, now_ns, -1);
		flow_step(f, owned, FLOW_IDLE);
		return begun;
	}
	atomic_store(&f->call, call);
	if (!flow_step(f, owned, FLOW_WAITING) && call && atomic_exchange(&f->call, 0) == call)
		call_end(call - 1, BREAKER_NEUTRAL, 0, now_ns, -1);
	return FLOW_BEGUN;
}

enum flow_begun flow_move_call(struct flow *f, uint64_t seen, enum flow_gate gate, const struct guard *to,
	enum breaker_outcome outcome, int fd, int64_t now_ns)
{
	int64_t begun = atomic_load_explicit(&f->begun_ns, memory_order_relaxed);
	uint64_t owned = (seen & ~0xffULL) | FLOW_OWNED;
	if (!flow_step(f, seen, FLOW_OWNED))
		return FLOW_BEGUN; /* ended meanwhile */
	bool is_same = guard_place(&f->guard) == guard_place(to);
	uint32_t call = atomic_exchange(&f->call, 0);
	take_guard(f, to, now_ns);
	if (is_same)
		return follow(f, owned, gate, call, now_ns);
	if (call)
		call_moved(call - 1, outcome, now_ns,
			outcome == BREAKER_SUCCESS ? f->connected_ns - call_began_at(call - 1, begun) : -1);
	enum flow_begun let = make_call(f, gate, fd, &now_ns, &call);
	if (call == CALL_NONE)
		flow_step(f, owned, FLOW_IDLE);
	else if (!set_out(f, owned, call, begun, now_ns) && atomic_exchange(&f->call, 0) == call + 1)
		call_end(call, BREAKER_NEUTRAL, 0, now_ns, -1);
	return let;
}

enum flow_begun flow_name(struct flow *f, const char *said, size_t n, enum flow_gate gate, int fd, int64_t now_ns)
{
	struct addr a;
	struct guard g;
	if (f->generation != policy_generation())
		flow_follow_reload(f, fd, now_ns);
	f->named = f->generation;
	if (!peer_of(fd, &a) || !guard_find_named(&f->guard, &a, said, n, now_ns, &g))
		return FLOW_BEGUN;
	uint64_t word = flow_word(f);
	uint32_t call = atomic_load(&f->call);
	if (flow_phase_of(word) != FLOW_WAITING) {
		take_guard(f, &g, now_ns);
		return FLOW_BEGUN;
	}
	/* Neutral there (A13); but a probe has found what it was sent for, and nothing else would ever close that
	 * circuit. */
	bool is_probe = call && call_is_probe(call - 1);
	return flow_move_call(f, word, gate, &g, is_probe ? BREAKER_SUCCESS : BREAKER_NEUTRAL, fd, now_ns);
}

bool flow_end_call(struct flow *f, uint64_t seen, enum flow_phase to, enum breaker_outcome outcome,
	enum failure_kind kind, int64_t now_ns)
{
	int64_t begun = atomic_load_explicit(&f->begun_ns, memory_order_relaxed);
	int64_t heard = atomic_load_explicit(&f->heard_ns, memory_order_relaxed);
	bool is_bounded = __builtin_expect(f->guard.limits.bulkhead != 0, 0),
	     keeps = is_bounded && keeps_slot(f, to, outcome);
	if (!flow_step(f, seen, to))
		return false;
	uint32_t call = atomic_exchange(&f->call, 0);
	if (!call)
		return true;
	/* The end of an answer that is not framed is not seen: its first octet is what is known. */
	int64_t end = outcome == BREAKER_SUCCESS && !flow_is_framed(f) && heard ? heard : now_ns;
	int64_t latency_ns = outcome == BREAKER_NEUTRAL ? -1 : end - begun;
	if (is_bounded)
		end_bounded(f, call - 1, keeps, outcome, kind, now_ns, latency_ns);
	else
		call_end(call - 1, outcome, kind, now_ns, latency_ns);
	return true;
}

bool flow_is_refused(const struct flow *f, bool is_reset)
{
	return (!is_reset && flow_is_shaking(f)) || (flow_is_tls(f) && f->tls.is_alone);
}

bool flow_is_dropped_kept(const struct flow *f, int64_t now_ns)
{
	return flow_has(f, FLOW_IS_KEPT) && now_ns - atomic_load(&f->begun_ns) < DROPPED_NS;
}

/* ---- the app lets go ---- */

static struct destination *destination_of(const struct guard *g)
{
	return g->has_circuit ? &g->region->destinations[g->destination] : NULL;
}

static bool never_answered(const struct guard *g)
{
	const struct destination *d = destination_of(g);
	return d && !atomic_load_explicit(&d->has_answered, memory_order_relaxed);
}

bool flow_may_owe_nothing(const struct flow *f)
{
	return atomic_load(&f->kind) == FLOW_PLAIN && !flow_has(f, FLOW_HAS_TRIED | FLOW_OWES | FLOW_IS_UNSEEN) &&
	       never_answered(&f->guard);
}

struct verdict {
	enum breaker_outcome outcome;
	enum failure_kind kind;
};
static const struct verdict success = {BREAKER_SUCCESS, 0}, neutral = {BREAKER_NEUTRAL, 0};

static struct verdict failure(enum failure_kind kind)
{
	return (struct verdict){BREAKER_FAILURE, kind};
}

/* A call in progress that the app lets go of. */
struct ending {
	const struct guard *guard;
	uint32_t call; /* index + 1, 0: none of ours */
	int64_t begun_ns;
	bool has_waited; /* its own SO_RCVTIMEO ran out */
};

/* A5: had it waited long enough, and is it alone with that? */
static struct verdict abandoned(const struct ending *e, int64_t waited_ns)
{
	int64_t limit = e->guard->limits.abandon_ns;
	bool is_long = limit && (waited_ns >= limit || e->has_waited);
	bool is_alone = !e->call || !call_has_succeeded_since(e->call - 1, e->begun_ns);
	return is_long && is_alone ? failure(FAILURE_ABANDONED) : neutral;
}

static bool is_ended_by_peer(const struct tcpinfo *info, int fd)
{
	return (info->state == TCP_CLOSE || info->state == TCP_CLOSE_WAIT) && tcpinfo_unread(fd) == 0;
}

/* No hook has seen an octet: pool warmers, or programs whose octets pass elsewhere (C10). info null: not known. What is
 * unused for the kernel, too, is neutral. */
static struct verdict verdict_of_unused(const struct ending *e, const struct tcpinfo *info, int fd, int64_t now_ns)
{
	if (!info || info->bytes_sent == 0)
		return info && info->bytes_received > 1 ? success : neutral;
	if (info->bytes_received > 1)
		return info->state == TCP_CLOSE ? failure(FAILURE_RESET) : success;
	if (is_ended_by_peer(info, fd))
		return failure(info->state == TCP_CLOSE ? FAILURE_RESET : FAILURE_EOF);
	/* Sent, taken, and by a destination that has never answered anybody: it may owe nothing (A12). */
	if (never_answered(e->guard) && info->unacked == 0 && info->notsent == 0)
		return success;
	return abandoned(e, now_ns - e->begun_ns);
}

/* The end of a connection that no hook has seen used, and its call's. */
static __attribute__((noinline)) void used_unseen_closes(struct slot *s, uint32_t call, int fd)
{
	struct tcpinfo info;
	int64_t begun = call_began_at(call, begun_of_open(s)), now = clock_now_ns();
	bool is_known = tcpinfo_read(fd, &info) && info.has_bytes;
	struct ending e = {.guard = call_guard(call), .call = call + 1, .begun_ns = begun};
	struct verdict v = verdict_of_unused(&e, is_known ? &info : NULL, fd, now);
	call_end(call, v.outcome, v.kind, now, v.outcome == BREAKER_NEUTRAL ? -1 : now - begun);
}

void flow_unused_ends(struct slot *s, uint32_t call, int fd, bool is_used)
{
	if (is_used)
		used_unseen_closes(s, call, fd);
	else
		call_end(call, BREAKER_NEUTRAL, 0, clock_now_ns(), -1);
}

/* The peer has ended it, and the app closes without having read that. */
static struct verdict ended_by_peer(const struct flow *f, const struct tcpinfo *info, int64_t now_ns)
{
	if (flow_is_dropped_kept(f, now_ns))
		return neutral;
	if (flow_is_refused(f, info->state == TCP_CLOSE))
		return failure(FAILURE_TLS);
	return failure(info->state == TCP_CLOSE ? FAILURE_RESET : FAILURE_EOF);
}

static bool is_told_failure(const struct flow *f, enum flow_kind kind, struct verdict *told)
{
	uint32_t status = kind == FLOW_HTTP1 ? atomic_load(&f->status) : 0;
	*told = neutral;
	if (status)
		told->outcome = flow_outcome_of(status, &told->kind);
	return told->outcome == BREAKER_FAILURE;
}

static struct verdict verdict_of_hang_up(const struct flow *f, enum flow_phase phase, int fd, int64_t now_ns)
{
	struct tcpinfo info = {.state = TCP_ESTABLISHED};
	bool asks = fd >= 0 && !guest_is_restricted() && phase != FLOW_IDLE;
	bool is_whole = flow_has(f, FLOW_IS_WHOLE);
	enum flow_kind kind = (enum flow_kind)atomic_load(&f->kind);
	if (phase == FLOW_ANSWERING && ((!flow_is_framed(f) && !flow_is_in_record(f)) || is_whole)) {
		struct verdict v = success;
		if (is_whole)
			v.outcome = flow_outcome_of(atomic_load(&f->status), &v.kind);
		return v;
	}
	if (atomic_load(&f->forks) != process_forks())
		return neutral; /* another process may go on with it (E4) */
	bool is_known = asks && tcpinfo_read(fd, &info) && info.has_bytes;
	struct ending e = {.guard = &f->guard,
		.call = atomic_load(&f->call),
		.begun_ns = atomic_load(&f->begun_ns),
		.has_waited = flow_has(f, FLOW_HAS_WAITED)};
	bool is_ended = is_known && is_ended_by_peer(&info, fd);
	if (kind == FLOW_HTTP2) {
		/* No stream has begun. SETTINGS are no answer, but tell that it lives. */
		if (!is_known || info.bytes_sent == 0 || info.bytes_received > 1)
			return neutral;
		return is_ended ? ended_by_peer(f, &info, now_ns) : abandoned(&e, now_ns - e.begun_ns);
	}
	if (flow_is_ready(f, phase))
		return neutral;
	/* A handshake, and nothing asked: so pools warm up, too; or its certificate was refused (A10). */
	if (phase == FLOW_FRESH && flow_is_tls(f))
		return is_ended && f->tls.is_alone && now_ns - atomic_load(&f->asked_ns) < NS_PER_S
			       ? failure(FAILURE_TLS)
			       : neutral;
	if (phase == FLOW_FRESH)
		return verdict_of_unused(&e, is_known ? &info : NULL, fd, now_ns);
	int64_t since_ms = is_known ? info.last_data_recv_ms : 0;
	struct verdict told;
	switch (phase) {
	case FLOW_WAITING:
		if (kind == FLOW_ONEWAY || flow_may_owe_nothing(f))
			return is_known && info.state != TCP_CLOSE && info.unacked == 0 && info.notsent == 0 ? success
													     : neutral;
		if (flow_has(f, FLOW_MAY_HAVE_ANSWERED))
			return neutral;
		if (is_ended)
			return ended_by_peer(f, &info, now_ns);
		return abandoned(&e, now_ns - e.begun_ns);
	case FLOW_ANSWERING:
		if (is_ended)
			return failure(info.state == TCP_CLOSE ? FAILURE_RESET : FAILURE_EOF);
		/* Its head has said it; what may follow makes it no better (wget and curl -f leave there). */
		if (is_told_failure(f, kind, &told))
			return told;
		return abandoned(&e, since_ms * NS_PER_MS);
	default: return neutral;
	}
}

void flow_hung_up(struct flow *f, int fd, enum flow_phase to, int64_t now_ns)
{
	if (atomic_load(&f->streams)) /* opaque by now, perhaps: one may have begun while the others were ended */
		streams_hung_up(f, fd, now_ns);
	for (int i = 0; i < 1000; i++) {
		uint64_t word = flow_word(f);
		enum flow_phase phase = flow_phase_of(word);
		if (phase == FLOW_OVER)
			return;
		if (phase == FLOW_OWNED || !atomic_load(&f->call)) {
			if (flow_step(f, word, to))
				return;
			continue;
		}
		struct verdict v = verdict_of_hang_up(f, phase, fd, now_ns);
		if (flow_end_call(f, word, to, v.outcome, v.kind, now_ns))
			return;
	}
}

int64_t flow_due_of(struct slot *s)
{
	struct flow *f = flow_hold(s, slot_word(s));
	if (!f)
		return WHEEL_NEVER;
	int64_t due = flow_due_ns(f);
	flow_let_go(f);
	return due;
}
