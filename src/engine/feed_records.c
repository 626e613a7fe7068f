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
	uint64_t word = flow_word(f);
	switch (at) {
	case RECORDS_WHOLE:
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
	case RECORDS_LOST: atomic_store(&f->kind, FLOW_PLAIN); break;
	default: break;
	}
}
