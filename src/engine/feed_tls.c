/* TLS seen from outside, and its way to the inside (A9, A10; feed.h). */
#include "engine/feed.h"
#include "engine/inside.h"

void feed_tls_begins(struct feed *x, size_t before)
{
	struct flow *f = x->f;
	struct iovec crumbs = {f->first, before};
	struct tls_mark mark;
	tls_records_init(&f->tls);
	flow_mark(f, FLOW_OWES);
	flow_speaks(f, FLOW_TLS);
	if (before)
		tls_records_announce(&f->tls, &crumbs, 1, before, &mark);
}

void feed_tunnel_begins(struct feed *x)
{
	struct flow *f = x->f;
	flow_mark(f, FLOW_IS_HEARD | FLOW_IS_TUNNEL); /* what is sent next is looked at still */
	atomic_store(&f->kind, FLOW_OPAQUE);
	flow_note_answer(f);
	flow_unmark(f, FLOW_IS_WHOLE);
}

bool feed_tunnel_sends(struct feed *x, const struct octets *o)
{
	flow_unmark(x->f, FLOW_IS_TUNNEL | FLOW_IS_HEARD);
	if (feed_tls_is_hello(o)) {
		feed_tls_begins(x, 0);
		return true;
	}
	feed_end_opaque(x);
	return false;
}

/* What is sent from here on is the application's. */
static void handshake_ends(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	flow_unmark(f, FLOW_IS_ASKING | FLOW_HAS_TRIED);
	atomic_store_explicit(&f->asked_ns, feed_now(x), memory_order_relaxed);
	if (f->tls.has_early)
		flow_mark(f, FLOW_MAY_HAVE_ANSWERED); /* it was asked before, and may have been answered in the midst of
							 it */
	else if (flow_phase_of(word) == FLOW_WAITING && flow_step(f, word, FLOW_FRESH))
		feed_waits(x);
	x->must_arm = true;
}

/* Refused, or an end, inside the handshake. */
static void tls_fails(struct feed *x)
{
	feed_end_call(x, FLOW_OVER, BREAKER_FAILURE, FAILURE_TLS);
	x->is_over = true;
}

static void tls_lost(struct feed *x, bool was_shaking)
{
	if (was_shaking)
		tls_fails(x);
	else
		feed_lose_track(x);
}

/* A flight of the handshake is about to go. */
static void handshake_goes(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	flow_unmark(f, FLOW_IS_ASKING);
	atomic_store_explicit(&f->asked_ns, feed_now(x), memory_order_relaxed);
	if (flow_phase_of(word) == FLOW_ANSWERING)
		flow_step(f, word, FLOW_WAITING); /* what was said in clear before belongs to the same call */
	else
		feed_begins(x, f->named != 0); /* a hello whose wait for a slot was interrupted goes again, and asks */
	flow_mark(f, FLOW_HAS_SENT);
	x->must_arm = true;
}

void feed_tls_sends(struct feed *x, const struct octets *o, struct sending *sending)
{
	struct flow *f = x->f;
	bool was_shaking = flow_is_shaking(f);
	unsigned told =
		o->is_blind ? TLS_LOST : tls_records_announce(&f->tls, o->iov, o->count, o->limit, &sending->tls_mark);
	sending->is_announced = !o->is_blind;
	if (told & TLS_LOST) {
		tls_lost(x, false);
		return;
	}
	if (told & TLS_HELLO)
		inside_expect(f, x->fd);
	if (was_shaking)
		handshake_goes(x);
	if (x->is_rejected)
		return;
	if (__builtin_expect((told & TLS_HELLO) && f->guard.may_be_named, 0))
		feed_let(x, flow_name(f, f->tls.name, f->tls.name_length, feed_gate(x), x->fd, feed_now(x)));
	if (x->is_rejected)
		return;
	if (told & TLS_REFUSED)
		tls_fails(x);
	if (told & TLS_COMPLETE)
		handshake_ends(x);
	if (!(told & TLS_DATA))
		return;
	if (flow_has(f, FLOW_MAY_BE_MANY)) {
		feed_turn_opaque(x, BREAKER_SUCCESS);
		return;
	}
	if (flow_has(f, FLOW_MAY_HAVE_ANSWERED)) {
		/* It was a ticket, most likely: the request goes on. */
		flow_unmark(f, FLOW_MAY_HAVE_ANSWERED);
		atomic_store_explicit(&f->asked_ns, feed_now(x), memory_order_relaxed);
		x->must_arm = true;
	}
	feed_turn_sends(x);
}

void feed_tls_came(struct feed *x, const struct octets *o, size_t n)
{
	struct flow *f = x->f;
	bool was_shaking = flow_is_shaking(f);
	unsigned told = o->is_blind ? TLS_LOST : tls_records_received(&f->tls, o->iov, o->count, n);
	enum flow_phase phase = flow_phase_of(flow_word(f));
	if (told & TLS_LOST) {
		tls_lost(x, was_shaking);
		return;
	}
	if (told & TLS_REFUSED) {
		tls_fails(x);
		return;
	}
	if (told & TLS_COMPLETE)
		handshake_ends(x);
	else if (told & TLS_TURN && was_shaking && phase == FLOW_WAITING)
		flow_mark(f, FLOW_IS_ASKING); /* the client has all that it needs to go on */
	if (told & TLS_MAYBE && (phase == FLOW_WAITING || phase == FLOW_FRESH))
		flow_mark(f, FLOW_MAY_HAVE_ANSWERED);
	if (told & TLS_DATA) {
		flow_unmark(f, FLOW_MAY_HAVE_ANSWERED);
		if (flow_has(f, FLOW_MAY_BE_MANY)) {
			feed_turn_opaque(x, BREAKER_SUCCESS);
			return;
		}
		feed_answer_begins(x);
		/* A library that reads from memory is given it only now, and is tied by that: whoever reads or sends
		 * more without has a TLS of its own. */
		if (tls_records_may_be_many(&f->tls))
			flow_mark(f, FLOW_MAY_BE_MANY);
	}
	if (tls_records_in_midst(&f->tls))
		x->must_arm = true;
}

void feed_tls_ended(struct feed *x)
{
	struct flow *f = x->f;
	enum flow_phase phase = flow_phase_of(flow_word(f));
	bool is_idle = phase == FLOW_FRESH && feed_now(x) - atomic_load(&f->asked_ns) > FEED_AHEAD_NS;
	if (phase == FLOW_ANSWERING && !tls_records_in_midst(&f->tls))
		feed_end_call(x, FLOW_OVER, BREAKER_SUCCESS, 0);
	else if (flow_has(f, FLOW_MAY_HAVE_ANSWERED) || is_idle)
		feed_end_call(x, FLOW_OVER, BREAKER_NEUTRAL, 0);
	else if (phase == FLOW_ANSWERING || phase == FLOW_WAITING || phase == FLOW_FRESH)
		feed_broke_off(x, phase != FLOW_ANSWERING && flow_is_refused(f, false) ? FAILURE_TLS : FAILURE_EOF);
	x->is_over = true;
}

bool feed_tls_is_hello(const struct octets *o)
{
	uint8_t first[11];
	/* Nearly nothing else begins with its first octet. */
	if (o->count > 0 && o->iov->iov_len > 0 && o->limit > 0 && !o->is_blind &&
		*(const uint8_t *)o->iov->iov_base != FEED_TLS_FIRST)
		return false;
	if (o->is_blind || octets_gather(first, sizeof first, o) < sizeof first || first[0] != FEED_TLS_FIRST)
		return false;
	return sniff_client(first, sizeof first) == SNIFF_TLS && first[9] == 3 && first[10] <= 4;
}

void exchange_turns_inside(struct flow *f)
{
	uint64_t word = flow_word(f);
	f->first_count = 0;
	if (flow_has(f, FLOW_MAY_BE_MANY) && flow_phase_of(word) == FLOW_ANSWERING && flow_step(f, word, FLOW_FRESH))
		word = flow_word(f); /* it was what is about to be read */
	flow_unmark(f, FLOW_IS_ASKING | FLOW_HAS_TRIED | FLOW_MAY_HAVE_ANSWERED | FLOW_OWES | FLOW_MAY_BE_MANY);
	if (flow_kind_asked(f) == FLOW_PLAIN)
		flow_mark(f, FLOW_OWES);
	/* With a memory BIO its last word of the handshake may not have gone yet. */
	if (flow_phase_of(word) == FLOW_WAITING && flow_is_shaking(f) && !f->tls.has_early) {
		atomic_store_explicit(&f->asked_ns, clock_now_ns(), memory_order_relaxed);
		flow_step(f, word, FLOW_FRESH);
	}
	atomic_store_explicit(
		&f->kind, records_go_inside(&f->records) ? FLOW_RECORDS : FLOW_UNKNOWN, memory_order_release);
}

void exchange_refused(struct slot *s, uint64_t word, int fd)
{
	struct flow *f = flow_hold(s, word);
	if (!f)
		return;
	struct feed x = {.f = f, .s = s, .word = word, .fd = fd};
	if (flow_phase_of(flow_word(f)) == FLOW_IDLE || flow_phase_of(flow_word(f)) == FLOW_OVER)
		feed_end_call(&x, FLOW_OVER, BREAKER_NEUTRAL, 0);
	else
		feed_broke_off(&x, FAILURE_TLS);
	x.is_over = true;
	feed_finish(&x);
	flow_let_go(f);
}
