/* See exchange.h: the doors. What a protocol says is told by feed_*.c. */
#include "engine/exchange.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/sys.h"
#include "base/tcpinfo.h"
#include "engine/feed.h"
#include "engine/guest.h"
#include "engine/service.h"
#include "engine/streams.h"
#include "wire/http2.h"

/* A send of so many octets takes no time worth a clock reading. */
#define AT_ONCE 16384

/* The client's first octets settle the protocol (A12). They are about to be sent. */
static void find_kind(struct feed *x, const struct octets *o)
{
	struct flow *f = x->f;
	size_t before = f->first_count;
	enum flow_kind asked = flow_kind_asked(f);
	if (o->is_blind) {
		flow_speaks(f, FLOW_PLAIN);
		return;
	}
	size_t n = before + octets_gather(f->first + before, sizeof f->first - before, o);
	enum sniff sniffed = sniff_client(f->first, n);
	if (asked == FLOW_PLAIN && sniffed != SNIFF_TLS && f->first[0] != FEED_TLS_FIRST) {
		flow_speaks(f, FLOW_PLAIN);
		return;
	}
	if (asked == FLOW_HTTP1 && sniffed != SNIFF_TLS && f->first[0] != FEED_TLS_FIRST)
		sniffed = SNIFF_HTTP1;
	switch (sniffed) {
	case SNIFF_MORE: f->first_count = (uint8_t)n; return;
	case SNIFF_HTTP1:
		if (flow_phase_of(flow_word(f)) == FLOW_ANSWERING) {
			/* To what was not seen (0-RTT), or to nothing: a call of its own (A4). */
			flow_mark(f, FLOW_IS_KEPT);
			feed_end_call(x, FLOW_IDLE, BREAKER_SUCCESS, 0);
		}
		http1_init(&f->http);
		flow_speaks(f, FLOW_HTTP1);
		if (before) {
			/* Sent in crumbs: those before belong to the request. */
			struct iovec crumbs = {f->first, before};
			struct octets first = {.iov = &crumbs, .count = 1, .limit = before};
			struct http1_mark mark;
			x->o = &first;
			http1_announce(&f->http, &crumbs, 1, before, &mark, feed_http1_event, x);
			http1_sent_only(&f->http, &mark, &crumbs, 1, before, before, feed_http1_event, x);
			x->o = o;
		}
		return;
	case SNIFF_TLS: feed_tls_begins(x, before); return;
	case SNIFF_H2:
		if (feed_http2_begins(x, before))
			return;
		feed_turn_opaque(x, BREAKER_SUCCESS);
		return;
	case SNIFF_STREAM:
		/* Not told apart here: that it connected is all that is known of it. */
		feed_turn_opaque(x, BREAKER_SUCCESS);
		return;
	case SNIFF_UNKNOWN: break;
	}
	enum records_kind records = before ? RECORDS_NONE : records_of_client(f->first, n);
	if (records != RECORDS_NONE) {
		flow_mark(f, FLOW_OWES);
		records_init(&f->records, records);
	}
	flow_speaks(f, records != RECORDS_NONE ? FLOW_RECORDS : FLOW_PLAIN);
	if (records != RECORDS_NONE)
		flow_turns_read(f);
}

static __attribute__((noinline)) void tries_to_read(struct slot *s, uint64_t word, int fd)
{
	struct flow *f = flow_hold(s, word);
	if (!f)
		return;
	if (feed_is_http2(f)) { /* a fork's child, whose timer is to be its own */
		flow_mark(f, FLOW_HAS_TRIED);
		service_bound(fd, flow_due_ns(f));
	} else if ((atomic_load_explicit(&f->marks, memory_order_relaxed) & (FLOW_HAS_TRIED | FLOW_HAS_LIMITS)) ==
		   FLOW_HAS_LIMITS) {
		uint64_t turn = flow_word(f);
		enum flow_phase phase = flow_phase_of(turn);
		/* libssl reads when it likes: only where that waits does the app wait for something. */
		bool is_idle_tls = phase == FLOW_FRESH && flow_is_tls(f) && atomic_load(&s->traits) & TRAIT_NONBLOCKING;
		if ((phase == FLOW_FRESH || phase == FLOW_WAITING || phase == FLOW_ANSWERING) && !is_idle_tls) {
			flow_unmark(f, FLOW_IS_FORGIVEN);
			flow_mark(f, FLOW_HAS_TRIED);
			if (phase == FLOW_FRESH)
				feed_used(f, turn, clock_now_ns());
			service_bound(fd, flow_due_ns(f));
		}
	}
	flow_let_go(f);
}

void exchange_receives(struct slot *s, uint64_t word, int fd)
{
	const struct flow *f = flow_peek(s, word);
	if (f && (atomic_load_explicit(&f->marks, memory_order_relaxed) & (FLOW_HAS_TRIED | FLOW_HAS_LIMITS)) ==
			 FLOW_HAS_LIMITS)
		tries_to_read(s, word, fd);
}

static void received_some(struct feed *x, const struct octets *o, size_t n)
{
	struct flow *f = x->f;
	if (!o->is_inside)
		atomic_fetch_add_explicit(&f->in, n, memory_order_relaxed);
	uint32_t kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	bool is_first = kind == FLOW_UNKNOWN && flow_kind_asked(f) == FLOW_UNKNOWN && !f->first_count && !o->is_blind &&
			o->count > 0 && flow_phase_of(flow_word(f)) != FLOW_ANSWERING;
	size_t in_first = o->count > 0 && n > o->iov[0].iov_len ? o->iov[0].iov_len : n;
	/* A server of HTTP/2 may speak first: what it says is kept for when the client has settled the protocol. */
	if (is_first && !atomic_load(&f->streams) && http2_is_server(o->iov[0].iov_base, in_first))
		streams_attach(f);
	if (kind == FLOW_HTTP2 || (kind == FLOW_UNKNOWN && atomic_load(&f->streams))) {
		feed_http2_came(x, o, 0, n);
		return;
	}
	if (is_first && records_of_server(o->iov[0].iov_base, in_first) != RECORDS_NONE) {
		records_init(&f->records, records_of_server(o->iov[0].iov_base, in_first));
		flow_speaks(f, kind = FLOW_RECORDS);
	}
	if (kind == FLOW_TLS)
		feed_tls_came(x, o, n);
	else if (kind == FLOW_HTTP1 && o->is_blind)
		feed_turn_opaque(x, BREAKER_SUCCESS);
	else if (kind == FLOW_RECORDS && o->is_blind)
		flow_speaks(f, FLOW_PLAIN);
	else if (kind == FLOW_RECORDS)
		feed_records_came(x, o, n);
	else if (kind == FLOW_HTTP1 && http1_is_framed(&f->http))
		feed_http1_came(x, o, n);
	else if (is_first && sniff_server(o->iov[0].iov_base, in_first) == SNIFF_STREAM)
		feed_turn_opaque(x, BREAKER_SUCCESS);
	else if (kind != FLOW_OPAQUE)
		feed_answer_begins(x);
	feed_end_opaque(x);
}

static void stream_ended(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	enum flow_phase phase = flow_phase_of(word);
	bool is_idle_tls = phase == FLOW_FRESH && flow_has(f, FLOW_IS_INSIDE) &&
			   feed_now(x) - atomic_load(&f->asked_ns) > FEED_AHEAD_NS;
	if (feed_is_http2(f)) {
		feed_broke_off(x, FAILURE_EOF);
	} else if (atomic_load(&f->kind) == FLOW_TLS) {
		feed_tls_ended(x);
	} else if (is_idle_tls) {
		feed_end_call(x, FLOW_OVER, BREAKER_NEUTRAL, 0);
	} else if (phase == FLOW_ANSWERING && flow_has(f, FLOW_IS_WHOLE)) {
		feed_end_by_status(x, FLOW_OVER);
	} else if (atomic_load(&f->kind) == FLOW_HTTP1 && http1_is_framed(&f->http)) {
		http1_end_of_stream(&f->http, feed_http1_event, x);
	} else if (phase == FLOW_ANSWERING && !flow_is_framed(f)) {
		feed_end_call(x, FLOW_OVER, BREAKER_SUCCESS, 0);
	} else if (phase == FLOW_ANSWERING || phase == FLOW_WAITING || phase == FLOW_FRESH) {
		feed_broke_off(x, FAILURE_EOF);
	}
	x->is_over = true;
}

static __attribute__((noinline)) void received(
	struct slot *s, uint64_t word, int fd, const struct octets *o, ssize_t result, int err)
{
	struct flow *f = flow_hold(s, word);
	if (!f)
		return;
	struct feed x = {.f = f, .s = s, .word = word, .fd = fd};
	if (result > 0) {
		received_some(&x, o, (size_t)result);
	} else if (result == 0) {
		stream_ended(&x);
	} else {
		switch (err) {
		case EAGAIN:
			flow_mark(f, FLOW_HAS_WAITED); /* a blocking one whose own SO_RCVTIMEO ran out (A5) */
			break;
		case ECONNRESET:
		case EPIPE:
		case ETIMEDOUT: feed_broke_off(&x, FAILURE_RESET); break;
		case EHOSTUNREACH:
		case ENETUNREACH: feed_broke_off(&x, FAILURE_UNREACHABLE); break;
		default: break; /* EINTR, EFAULT...: says nothing of the peer */
		}
	}
	feed_finish(&x);
	flow_let_go(f);
}

/* Seen from inside, before the first answer: is all that comes an alert, which the app may read by a function that is
 * not taken? */
static __attribute__((noinline)) void look_for_alert(struct slot *s, uint64_t word, const struct octets *o, size_t n)
{
	struct flow *f = flow_hold(s, word);
	if (!f)
		return;
	if (!o->is_blind)
		tls_records_received(&f->tls, o->iov, o->count, n);
	flow_let_go(f);
}

static bool is_nonblocking(const struct slot *s, int flags)
{
	return flags & MSG_DONTWAIT || atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_NONBLOCKING;
}

void exchange_received(
	struct slot *s, uint64_t word, int fd, const struct octets *o, ssize_t result, int err, int flags)
{
	if (result < 0 && (err == EINTR || (err == EAGAIN && is_nonblocking(s, flags))))
		return;
	struct flow *f = flow_peek(s, word);
	/* The octets come again (A15), or none were asked for. */
	if (!f || (result >= 0 && flags & MSG_PEEK) || (result == 0 && o->limit == 0))
		return;
	if (result > 0 && !o->is_inside && flow_has(f, FLOW_IS_INSIDE)) {
		atomic_fetch_add_explicit(&f->in, (uint64_t)result, memory_order_relaxed);
		if (flow_phase_of(flow_word(f)) != FLOW_ANSWERING && !flow_has(f, FLOW_IS_KEPT))
			look_for_alert(s, word, o, (size_t)result);
		return; /* what is in it is told by the TLS library */
	}
	if (!o->is_inside && flow_has(f, FLOW_IS_INSIDE) && (result == 0 || (result < 0 && err == ECONNRESET))) {
		flow_mark(f, result == 0 ? FLOW_IS_CUT : FLOW_IS_CUT | FLOW_IS_RESET);
		return; /* the library is to be asked for what came before */
	}
	if (result > 0 && flow_only_counts(f, flow_word(f))) {
		if (!o->is_inside)
			atomic_fetch_add_explicit(&f->in, (uint64_t)result, memory_order_relaxed);
		return; /* in the midst of it */
	}
	received(s, word, fd, o, result, err);
}

__attribute__((cold)) void feed_reject(struct feed *x, const struct octets *o, struct sending *sending, uint32_t kind)
{
	struct flow *f = x->f;
	if (sending->is_announced && kind == FLOW_HTTP1)
		feed_http1_sent_only(x, o, sending, 0);
	if (sending->is_announced && kind == FLOW_TLS)
		tls_records_sent_only(&f->tls, o->iov, o->count, 0, &sending->tls_mark);
	sending->flow = NULL;
	if (x->is_interrupted) {
		flow_let_go(f);
		errno = EINTR;
		return;
	}
	/* As on a connection that the server has dropped: whoever reads or polls it learns so, too. */
	uint64_t turn = flow_word(f);
	if (flow_phase_of(turn) == FLOW_IDLE)
		flow_step(f, turn, FLOW_OVER);
	if (o->is_inside)
		flow_mark(f, FLOW_IS_REJECTED); /* the TLS library's own send is what fails */
	else
		slot_change(x->s, x->word, SLOT_CONNECTED, false);
	if (!guest_is_restricted())
		sys_disconnect(x->fd);
	flow_let_go(f);
	errno = ECONNRESET;
}

static __attribute__((noinline)) bool sends(
	struct slot *s, uint64_t word, int fd, const struct octets *o, struct sending *sending)
{
	sending->is_announced = sending->was_asking = sending->ends = sending->begins = false;
	sending->edit_count = 0;
	struct flow *f = sending->flow = flow_hold(s, word);
	if (!f)
		return true;
	struct feed x = {.f = f, .s = s, .word = word, .fd = fd, .o = o};
	uint32_t kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	sending->first = f->first_count;
	if (__builtin_expect(kind == FLOW_UNKNOWN, 0) && o->limit > 0) {
		find_kind(&x, o);
		kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	}
	if (kind == FLOW_OPAQUE && flow_has(f, FLOW_IS_TUNNEL) && o->limit > 0 && feed_tunnel_sends(&x, o))
		kind = FLOW_TLS;
	if ((kind == FLOW_PLAIN || kind == FLOW_RECORDS) && feed_tls_is_hello(o)) {
		feed_tls_begins(&x, 0);
		kind = FLOW_TLS;
	}
	if (kind == FLOW_HTTP1 && o->is_blind) {
		/* A body that the kernel takes elsewhere: where the request ends is not known. */
		flow_speaks(f, FLOW_PLAIN);
		flow_mark(f, FLOW_OWES);
		flow_unmark(f, FLOW_IS_ASKING);
		kind = FLOW_PLAIN;
	}
	if (kind == FLOW_HTTP2) {
		if (__builtin_expect(f->guard.may_be_named && !f->named, 0) && !flow_has(f, FLOW_IS_INSIDE))
			feed_http2_look_for_authority(&x, o);
		struct streams_turn t = feed_http2_turn(&x);
		if (!x.is_rejected)
			streams_announced(&t, o);
		feed_http2_turned(&x, &t);
	} else if (kind == FLOW_HTTP1) {
		if (f->guard.limits.header && !o->is_fixed && http1_is_framed(&f->http))
			feed_http1_edits(&x, o, sending);
		feed_http1_announce(&x, o, sending);
	} else if (kind == FLOW_RECORDS) {
		enum flow_phase phase = flow_phase_of(flow_word(f));
		/* What opens a connection is told first: its answer may be one octet that means something else without
		 * it. */
		if (phase == FLOW_FRESH)
			feed_records_sent(f, o, o->limit);
		/* Logged in a while ago: a kept connection. */
		if (phase == FLOW_FRESH && records_is_opening(&f->records) &&
			feed_now(&x) - atomic_load(&f->asked_ns) > FEED_AHEAD_NS)
			flow_mark(f, FLOW_IS_KEPT);
		sending->is_announced = phase == FLOW_FRESH;
		if (phase == FLOW_FRESH || phase == FLOW_IDLE)
			feed_begins(&x, false);
		else if (phase == FLOW_WAITING)
			flow_mark(f, FLOW_HAS_SENT);
	} else if (kind == FLOW_TLS) {
		feed_tls_sends(&x, o, sending);
	} else if (kind == FLOW_PLAIN || kind == FLOW_ONEWAY || kind == FLOW_UNKNOWN) {
		if (o->limit > 0)
			feed_turn_sends(&x);
	}
	sending->kind = (uint8_t)kind;
	if (__builtin_expect(x.is_rejected, 0)) {
		feed_reject(&x, o, sending, kind);
		return false;
	}
	feed_finish(&x);
	return true;
}

bool exchange_sends(struct slot *s, uint64_t word, int fd, const struct octets *o, struct sending *sending)
{
	struct flow *f = flow_peek(s, word);
	sending->word = word;
	sending->flow = NULL;
	sending->edit_count = 0;
	if (!f || o->limit == 0)
		return true;
	if (!o->is_inside && flow_has(f, FLOW_IS_INSIDE)) {
		if (!flow_has(f, FLOW_IS_REJECTED))
			return true;
		errno = ECONNRESET;
		return false;
	}
	if (atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_PLAIN &&
		flow_phase_of(flow_word(f)) == FLOW_WAITING) {
		flow_mark(f, FLOW_HAS_SENT);
		return true; /* in the midst of it */
	}
	return sends(s, word, fd, o, sending);
}

static __attribute__((noinline)) void sent(
	struct slot *s, int fd, const struct octets *o, struct sending *sending, ssize_t result, int err)
{
	struct flow *f = sending->flow;
	struct feed x = {.f = f, .s = s, .word = sending->word, .fd = fd};
	uint32_t kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	size_t gone = result > 0 ? (size_t)result : 0;
	if (kind == FLOW_UNKNOWN && f->first_count > sending->first + gone)
		f->first_count = (uint8_t)(sending->first + gone); /* the others come again */
	if (kind != sending->kind)
		kind = FLOW_UNKNOWN; /* it has turned into something else meanwhile */
	if (kind == FLOW_HTTP2 && result > 0) {
		struct streams_turn t = feed_http2_turn(&x);
		streams_sent(&t, o, (size_t)result);
		feed_http2_turned(&x, &t);
	}
	if (kind == FLOW_RECORDS && !sending->is_announced && result > 0) {
		if (o->is_blind)
			flow_speaks(f, FLOW_PLAIN);
		else
			feed_records_sent(f, o, (size_t)result);
	}
	if (kind == FLOW_TLS && sending->is_announced && result != (ssize_t)o->limit)
		tls_records_sent_only(&f->tls, o->iov, o->count, result > 0 ? (size_t)result : 0, &sending->tls_mark);
	if (kind == FLOW_HTTP1 && sending->is_announced && result == (ssize_t)o->limit && sending->ends) {
		/* A small request went at once, when it began; a large one may have taken its time to be taken. */
		if (sending->begins && o->limit <= AT_ONCE)
			x.now_ns = atomic_load_explicit(&f->asked_ns, memory_order_relaxed);
		feed_http1_asked(&x);
		x.now_ns = 0;
	}
	if (kind == FLOW_HTTP1 && sending->is_announced && result != (ssize_t)o->limit) {
		if (sending->was_asking)
			flow_mark(f, FLOW_IS_ASKING);
		feed_http1_sent_only(&x, o, sending, result > 0 ? (size_t)result : 0);
	}
	if (result > 0 && !o->is_inside) {
		atomic_fetch_add_explicit(&f->out, (uint64_t)result, memory_order_relaxed);
	} else if (result < 0 && (err == EPIPE || err == ECONNRESET || err == ETIMEDOUT || err == EHOSTUNREACH)) {
		/* An answer that came before stands (A7): it may lie there unread. */
		if (guest_is_restricted() || tcpinfo_unread(fd) == 0)
			feed_broke_off(&x, err == EHOSTUNREACH ? FAILURE_UNREACHABLE : FAILURE_RESET);
	}
	feed_finish(&x);
	flow_let_go(f);
}

void exchange_sent(struct slot *s, int fd, const struct octets *o, struct sending *sending, ssize_t result, int err)
{
	if (!sending->flow) {
		struct flow *f = flow_peek(s, sending->word);
		if (!f)
			return;
		if (result > 0) {
			if (!o->is_inside)
				atomic_fetch_add_explicit(&f->out, (uint64_t)result, memory_order_relaxed);
			return;
		}
		if (result == 0 || err == EAGAIN || err == EINTR || !(sending->flow = flow_hold(s, sending->word)))
			return;
		sending->is_announced = false;
		sending->kind = FLOW_UNKNOWN;
	}
	sent(s, fd, o, sending, result, err);
}

void exchange_shut(struct slot *s, uint64_t word, int fd)
{
	struct flow *f = flow_hold(s, word);
	if (!f)
		return;
	flow_hung_up(f, fd, FLOW_OVER, clock_now_ns());
	flow_let_go(f);
}
