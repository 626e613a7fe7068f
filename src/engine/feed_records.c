/* Answers of known length: RESP, PostgreSQL, MySQL (feed.h). */
#include "engine/feed.h"

void feed_records_sent(struct flow *f, const struct octets *o, size_t gone)
{
	for (int i = 0; i < o->count && gone > 0; i++) {
		size_t n = o->iov[i].iov_len < gone ? o->iov[i].iov_len : gone;
		records_sent(&f->records, o->iov[i].iov_base, n);
		gone -= n;
	}
}

/* The server is there for nobody: the call in progress has failed by that, but what a kept connection meets at once was
 * said to nobody in particular (A7). */
static void is_away(struct feed *x)
{
	uint64_t word = flow_word(x->f);
	enum flow_phase phase = flow_phase_of(word);
	if (phase == FLOW_IDLE || phase == FLOW_OVER)
		return;
	bool is_dropped = flow_is_dropped_kept(x->f, feed_now(x));
	feed_end_call(x, FLOW_OVER, is_dropped ? BREAKER_NEUTRAL : BREAKER_FAILURE, FAILURE_HTTP_GATEWAY);
	x->is_over = true;
}

/* A step of the login is done: the call is the one that it was made for, and goes on with the first request (A1). */
static void login_goes_on(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	if (flow_phase_of(word) != FLOW_ANSWERING)
		return;
	flow_unmark(f, FLOW_IS_ASKING | FLOW_HAS_TRIED);
	atomic_store_explicit(&f->asked_ns, feed_now(x), memory_order_relaxed);
	if (flow_step(f, word, FLOW_FRESH))
		feed_waits(x);
	x->must_arm = true;
}

void feed_records_came(struct feed *x, const struct octets *o, size_t n)
{
	struct flow *f = x->f;
	enum records_at at = records_now(&f->records);
	feed_answer_begins(x);
	for (int i = 0; i < o->count && n > 0; i++) {
		size_t piece = o->iov[i].iov_len < n ? o->iov[i].iov_len : n;
		at = records_received(&f->records, o->iov[i].iov_base, piece);
		n -= piece;
	}
	if (__builtin_expect(records_is_away(&f->records), 0)) {
		is_away(x);
		return;
	}
	uint64_t word = flow_word(f);
	switch (at) {
	case RECORDS_WHOLE:
		if (__builtin_expect(records_is_opening(&f->records), 0)) {
			login_goes_on(x);
			break;
		}
		flow_mark(f, FLOW_IS_KEPT);
		feed_end_call(x, FLOW_IDLE, BREAKER_SUCCESS, 0);
		break;
	case RECORDS_AWAITED: /* what came was a notice, or the end of one answer of several */
		if (flow_phase_of(word) == FLOW_ANSWERING) {
			atomic_store(&f->asked_ns, feed_now(x));
			flow_step(f, word, FLOW_WAITING);
			x->must_arm = true;
		}
		break;
	case RECORDS_LOST: flow_speaks(f, FLOW_PLAIN); break;
	default: break;
	}
}
