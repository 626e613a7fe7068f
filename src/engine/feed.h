/* One feed of octets into a flow (flow.h): the inside of exchange.c, which owns the doors. feed.c has what a call goes
 * through whatever its connection speaks; feed_http1.c, feed_http2.c, feed_records.c and feed_tls.c what each of them
 * says. Whoever calls holds the flow. */
#ifndef RESIL_ENGINE_FEED_H
#define RESIL_ENGINE_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/exchange.h"
#include "engine/flow.h"
#include "engine/streams.h"
#include "engine/wheel.h"
#include "wire/http1_host.h"

/* Between connect and the first octet so long: the connection was made ahead of need, and the call begins now. */
#define FEED_AHEAD_NS NS_PER_S
/* The first octet of a ClientHello. */
#define FEED_TLS_FIRST 22

/* What its events have to know. The clock is read once, and only when something begins or ends. */
struct feed {
	struct flow *f;
	struct slot *s;
	uint64_t word; /* the slot's */
	int fd;
	const struct octets *o; /* HTTP/1: what is announced */
	bool is_rejected, is_interrupted;
	bool is_over; /* nothing is learnt from it any more */
	bool must_arm;
	bool is_announcing; /* the octets have not gone yet */
	bool has_begun, has_ended;
	size_t http2_at; /* HTTP/1 ends there, by an upgrade; 0: it does not */
	int64_t due_ns;	 /* HTTP/2: the soonest limit of what began */
	int64_t now_ns;
};

static inline int64_t feed_now(struct feed *x)
{
	if (!x->now_ns)
		x->now_ns = clock_now_ns();
	return x->now_ns;
}

/* ---- any connection (feed.c) ---- */

/* Calls cannot be told apart from here on: the one in progress has its verdict, if any, and its limits are off. */
void feed_turn_opaque(struct feed *x, enum breaker_outcome outcome);
/* Ends the call in progress, whatever phase it is in. */
void feed_end_call(struct feed *x, enum flow_phase to, enum breaker_outcome outcome, enum failure_kind kind);
/* The answer is whole: its status is the verdict. */
void feed_end_by_status(struct feed *x, enum flow_phase to);
/* The other side has ended it, or the network has, in the middle of a call. */
void feed_broke_off(struct feed *x, enum failure_kind kind);
/* The first use of the connection: the connect's own call goes on, or begins now where that was made ahead of need. */
void feed_used(struct flow *f, uint64_t fresh, int64_t now_ns);
/* It has been made ready (a handshake, a login) and nothing has been asked for: a probe is one that only connected
 * (B7). */
void feed_waits(struct feed *x);
/* How one that can be rejected is let in, and what became of it. */
enum flow_gate feed_gate_bounded(const struct feed *x);
static inline enum flow_gate feed_gate(const struct feed *x)
{
	const struct guard *g = &x->f->guard;
	/* What has no bulkhead may be about to move to where there is one. */
	return __builtin_expect((g->limits.bulkhead | g->may_be_named) == 0, 1) ? FLOW_ASKS : feed_gate_bounded(x);
}
static inline void feed_let(struct feed *x, enum flow_begun begun)
{
	x->is_rejected = begun != FLOW_BEGUN;
	x->is_interrupted = begun == FLOW_INTERRUPTED;
	if (x->f->guard.limits.bulkhead)
		x->now_ns = 0; /* it may have waited */
}
/* The octets of a request begin. */
static inline void feed_begins(struct feed *x, bool must_admit)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	x->must_arm = true;
	switch (flow_phase_of(word)) {
	case FLOW_FRESH: feed_used(f, word, feed_now(x)); return;
	case FLOW_IDLE:
		feed_let(x, flow_begin_call(f, word, must_admit ? feed_gate(x) : FLOW_PASSES, GUARD_PLACE_KEPT, x->fd,
				    feed_now(x)));
		return;
	default: return; /* pipelined behind one in progress: its turn comes */
	}
}
/* The first octet of an answer. */
void feed_answer_begins(struct feed *x);
/* It cannot be framed any more (a parse error, too many pipelined): its limits are off (A8), but what ends it before
 * any answer still tells. */
void feed_lose_track(struct feed *x);
/* Unframed: a write after octets were received begins a new call (A2), one before continues the request. */
void feed_turn_sends(struct feed *x);
/* Answered, somehow, and it cannot be told apart any more: that is all that can be told of it. */
static inline void feed_end_opaque(struct feed *x)
{
	if (__builtin_expect(atomic_load_explicit(&x->f->kind, memory_order_relaxed) != FLOW_OPAQUE, 1) || x->is_over ||
		flow_has(x->f, FLOW_IS_TUNNEL))
		return;
	flow_note_answer(x->f);
	feed_end_call(x, FLOW_OVER, BREAKER_SUCCESS, 0);
	x->is_over = true;
}
/* The send that is announced is not to be, errno says why; its flow is let go. */
void feed_reject(struct feed *x, const struct octets *o, struct sending *sending, uint32_t kind);
/* The feed is done: what it has brought about is made known to the slot and the timer. */
void feed_make_known(struct feed *x);
static inline void feed_finish(struct feed *x)
{
	if (x->is_over || (x->must_arm && flow_has(x->f, FLOW_HAS_LIMITS)))
		feed_make_known(x);
}
/* The first octets, no more than room; returns how many. */
size_t octets_gather(uint8_t *to, size_t room, const struct octets *o);

/* ---- HTTP/1 ---- */

/* The parser's. context: the feed. */
void feed_http1_event(void *context, const struct http1_event *e);
/* The octets are about to be sent: what they begin and end. */
void feed_http1_announce(struct feed *x, const struct octets *o, struct sending *sending);
/* n octets of the server's. */
void feed_http1_came(struct feed *x, const struct octets *o, size_t n);
/* The whole request is with the kernel: from here on an answer is due. */
void feed_http1_asked(struct feed *x);
/* Less went than was announced: the request may not be whole after all. */
void feed_http1_sent_only(struct feed *x, const struct octets *o, const struct sending *sending, size_t gone);
/* The request in progress calls its server so (A13). */
void feed_http1_named(struct feed *x, const char *host, size_t length);
/* The time left, for the server to know (CONTRACT `deadline_header`). Before the octets are announced. */
void feed_http1_edits(struct feed *x, const struct octets *o, struct sending *sending);

/* Keys `method` and `route`: the circuit of each request; and a head in pieces, of which it is not known yet whom it
 * names (feed_requests.c). Once there is a record of it a flow keeps that, whatever a reload makes of its key. */
static inline bool feed_has_requests(const struct flow *f)
{
	return (f->guard.section | atomic_load_explicit(&f->requests, memory_order_relaxed)) != 0;
}
/* Before octets are announced; as a request begins, at that octet of x->o; after less has gone than was announced. */
void feed_requests_announce(struct feed *x, struct sending *sending);
void feed_requests_begins(struct feed *x, size_t at);
void feed_requests_taken_back(struct feed *x, const struct sending *sending);
/* The octets from `at` on belong to a head. */
void feed_requests_skim(struct http1_host *host, const struct octets *o, size_t at);
/* The rest of that of the request that begins is to come. */
void feed_requests_wait_for_host(struct flow *f, const struct http1_host *host);
/* The oldest is answered: the place of the next one's circuit, GUARD_PLACE_KEPT: none of its own. */
uint64_t feed_requests_answered(struct flow *f);
/* HTTP/1 ends: what comes is the origin's. */
void feed_requests_end(struct flow *f);
/* The flow's guard is another's from here on: what the requests have in common. */
void feed_requests_start(struct flow *f);
void feed_requests_release(struct flow *f);

/* ---- HTTP/2 ---- */

static inline bool feed_is_http2(const struct flow *f)
{
	return atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_HTTP2;
}
/* A turn of streams.h begins, and has ended. */
static inline struct streams_turn feed_http2_turn(const struct feed *x)
{
	return (struct streams_turn){.f = x->f, .fd = x->fd, .now_ns = x->now_ns, .due_ns = WHEEL_NEVER};
}

static inline void feed_http2_turned(struct feed *x, const struct streams_turn *t)
{
	x->now_ns = t->now_ns;
	x->is_over |= t->is_over;
	if (t->due_ns == WHEEL_NEVER)
		return;
	x->due_ns = x->due_ns && x->due_ns < t->due_ns ? x->due_ns : t->due_ns;
	x->must_arm = true;
}
/* The client's preface is about to be sent; `before` octets of it have gone. False: its streams cannot be told. */
bool feed_http2_begins(struct feed *x, size_t before);
/* HTTP/1 was left for HTTP/2 (h2c): the request in progress goes on as its first stream. */
void feed_http2_upgrades(struct feed *x);
/* Octets are about to be sent, and who is meant by them is not known yet (A13). */
void feed_http2_look_for_authority(struct feed *x, const struct octets *o);
static inline void feed_http2_came(struct feed *x, const struct octets *o, size_t from, size_t n)
{
	struct streams_turn t = feed_http2_turn(x);
	streams_received(&t, o, from, n);
	feed_http2_turned(x, &t);
}

/* ---- answers of known length ---- */

void feed_records_sent(struct flow *f, const struct octets *o, size_t gone);
void feed_records_came(struct feed *x, const struct octets *o, size_t n);

/* ---- TLS from outside (A9, A10) ---- */

/* After STARTTLS and its kin a ClientHello comes in the midst of a connection (A12). */
bool feed_tls_is_hello(const struct octets *o);
/* After CONNECT, too: a tunnel begins, and its first octets are about to be sent. True: it speaks TLS, and the call
 * goes on there; else it has succeeded, and nothing more is looked at (A8). */
void feed_tunnel_begins(struct feed *x);
bool feed_tunnel_sends(struct feed *x, const struct octets *o);
/* It begins to speak TLS, with the octets that are about to be sent; `before` have gone. */
void feed_tls_begins(struct feed *x, size_t before);
void feed_tls_sends(struct feed *x, const struct octets *o, struct sending *sending);
void feed_tls_came(struct feed *x, const struct octets *o, size_t n);
void feed_tls_ended(struct feed *x);

#endif
