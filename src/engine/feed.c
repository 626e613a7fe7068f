/* See feed.h: what a call goes through, whatever its connection speaks. */
#include "engine/feed.h"

#include <string.h>

#include "engine/call.h"
#include "engine/service.h"

void feed_turn_opaque(struct feed *x, enum breaker_outcome outcome)
{
	struct flow *f = x->f;
	flow_speaks(f, FLOW_OPAQUE);
	for (int i = 0; i < 100; i++) {
		uint64_t word = flow_word(f);
		if (flow_phase_of(word) == FLOW_OVER || flow_end_call(f, word, FLOW_OVER, outcome, 0, feed_now(x)))
			break;
	}
	x->is_over = true;
}

void feed_end_call(struct feed *x, enum flow_phase to, enum breaker_outcome outcome, enum failure_kind kind)
{
	for (int i = 0; i < 100; i++) {
		uint64_t word = flow_word(x->f);
		enum flow_phase phase = flow_phase_of(word);
		if (phase == FLOW_OVER || phase == FLOW_OWNED || (phase == FLOW_IDLE && to == FLOW_IDLE) ||
			flow_end_call(x->f, word, to, outcome, kind, feed_now(x)))
			return;
	}
}

void feed_end_by_status(struct feed *x, enum flow_phase to)
{
	enum failure_kind kind;
	enum breaker_outcome outcome = flow_outcome_of(atomic_load(&x->f->status), &kind);
	feed_end_call(x, to, outcome, kind);
}

void feed_broke_off(struct feed *x, enum failure_kind kind)
{
	if (feed_is_http2(x->f)) {
		struct streams_turn t = feed_http2_turn(x);
		streams_broke_off(&t, kind);
		feed_http2_turned(x, &t);
		return;
	}
	uint64_t word = flow_word(x->f);
	if (flow_phase_of(word) == FLOW_ANSWERING && flow_has(x->f, FLOW_IS_WHOLE)) {
		/* The answer was whole before (an early 413): it stands (A7). */
		feed_end_by_status(x, FLOW_OVER);
		x->is_over = true;
		return;
	}
	if ((kind == FAILURE_RESET || kind == FAILURE_EOF) && flow_phase_of(word) != FLOW_ANSWERING &&
		flow_is_refused(x->f, true))
		kind = FAILURE_TLS; /* octets that it did not take make its close a reset */
	bool is_dropped = (flow_phase_of(word) == FLOW_WAITING && flow_is_dropped_kept(x->f, feed_now(x))) ||
			  flow_is_ready(x->f, flow_phase_of(word));
	feed_end_call(x, FLOW_OVER, is_dropped ? BREAKER_NEUTRAL : BREAKER_FAILURE, kind);
	x->is_over = true;
}

void feed_used(struct flow *f, uint64_t fresh, int64_t now_ns)
{
	/* Since the connect, or the end of a handshake. */
	int64_t idle = now_ns - atomic_load(&f->asked_ns), deadline = f->guard.limits.deadline_ns;
	if (idle > FEED_AHEAD_NS || (deadline && idle > deadline / 2))
		atomic_store(&f->begun_ns, now_ns);
	atomic_store(&f->asked_ns, now_ns);
	uint32_t call = atomic_load(&f->call);
	if (call)
		call_used(call - 1);
	flow_step(f, fresh, FLOW_WAITING);
}

void feed_waits(struct feed *x)
{
	uint32_t call = atomic_load(&x->f->call);
	if (call)
		call_unused(call - 1);
}

/* Where the bulkhead is full: may this send wait? Inside of TLS it cannot be told of a signal. */
enum flow_gate feed_gate_bounded(const struct feed *x)
{
	if (!x->o || x->o->how & MSG_DONTWAIT ||
		atomic_load_explicit(&x->s->traits, memory_order_relaxed) & TRAIT_NONBLOCKING)
		return FLOW_ASKS;
	return x->o->is_inside ? FLOW_WAITS_ON : FLOW_WAITS;
}

void feed_answer_begins(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	enum flow_phase phase = flow_phase_of(word);
	if (phase != FLOW_WAITING && phase != FLOW_FRESH)
		return;
	atomic_store_explicit(&f->heard_in, atomic_load_explicit(&f->in, memory_order_relaxed), memory_order_relaxed);
	atomic_store_explicit(&f->heard_ns, feed_now(x), memory_order_relaxed);
	flow_step(f, word, FLOW_ANSWERING);
	flow_note_answer(f);
	x->must_arm = true;
}

void feed_lose_track(struct feed *x)
{
	struct flow *f = x->f;
	flow_speaks(f, FLOW_OPAQUE);
	if (flow_phase_of(flow_word(f)) != FLOW_ANSWERING)
		return;
	feed_end_call(x, FLOW_OVER, BREAKER_SUCCESS, 0);
	x->is_over = true;
}

void feed_turn_sends(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	switch (flow_phase_of(word)) {
	case FLOW_ANSWERING:
		flow_mark(f, FLOW_IS_KEPT);
		feed_end_call(x, FLOW_IDLE, BREAKER_SUCCESS, 0);
		feed_begins(x, false);
		break;
	case FLOW_FRESH:
	case FLOW_IDLE: feed_begins(x, false); break;
	case FLOW_WAITING: flow_mark(f, FLOW_HAS_SENT); break;
	default: break;
	}
}

size_t octets_gather(uint8_t *to, size_t room, const struct octets *o)
{
	size_t n = 0, left = o->limit;
	for (int i = 0; i < o->count && n < room && left > 0; i++) {
		size_t piece = o->iov[i].iov_len < left ? o->iov[i].iov_len : left;
		left -= piece;
		if (piece > room - n)
			piece = room - n;
		memcpy(to + n, o->iov[i].iov_base, piece);
		n += piece;
	}
	return n;
}

void feed_make_known(struct feed *x)
{
	struct flow *f = x->f;
	if (x->is_over) {
		slot_change(x->s, x->word, SLOT_CONNECTED, false); /* hooks pass it by from now on */
		return;
	}
	if (__builtin_expect(!atomic_load_explicit(&x->s->cookie, memory_order_relaxed), 0))
		atomic_store(&x->s->cookie, slot_read_cookie(x->fd)); /* limits that came by a reload */
	service_bound(x->fd, x->due_ns ? x->due_ns : flow_due_ns(f));
}
