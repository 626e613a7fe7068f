/* See exchange.h. */
#include "engine/exchange.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/real.h"
#include "base/sys.h"
#include "base/tcpinfo.h"
#include "engine/call.h"
#include "engine/guest.h"
#include "engine/inside.h"
#include "engine/service.h"
#include "engine/streams.h"
#include "engine/wheel.h"
#include "wire/http1_skim.h"
#include "wire/http2.h"

/* Between connect and the first octet so long: the connection was made ahead of need, and the call begins now. */
#define AHEAD_NS NS_PER_S
/* A send of so many octets takes no time worth a clock reading. */
#define AT_ONCE 16384
/* The first octet of a ClientHello. */
#define TLS_FIRST 22

/* One feed of octets: what its events have to know. The clock is read once, and only when something begins or ends. */
struct feed {
	struct flow *f;
	struct slot *s;
	uint64_t word; /* the slot's */
	int fd;
	bool is_rejected;
	bool is_over; /* nothing is learnt from it any more */
	bool must_arm;
	bool is_announcing; /* the octets have not gone yet */
	bool has_begun, has_ended;
	size_t http2_at; /* HTTP/1 ends there, by an upgrade; 0: it does not */
	int64_t due_ns;	 /* HTTP/2: the soonest limit of what began */
	int64_t now_ns;
};

static int64_t now_of(struct feed *x)
{
	if (!x->now_ns)
		x->now_ns = clock_now_ns();
	return x->now_ns;
}

/* Calls cannot be told apart from here on: the one in progress has its verdict, if any, and its limits are off. */
static void turn_opaque(struct feed *x, enum breaker_outcome outcome)
{
	struct flow *f = x->f;
	atomic_store(&f->kind, FLOW_OPAQUE);
	for (int i = 0; i < 100; i++) {
		uint64_t word = flow_word(f);
		if (flow_phase_of(word) == FLOW_OVER || flow_end_call(f, word, FLOW_OVER, outcome, 0, now_of(x)))
			break;
	}
	x->is_over = true;
}

/* Ends the call in progress, whatever phase it is in. */
static void end_call(struct feed *x, enum flow_phase to, enum breaker_outcome outcome, enum failure_kind kind)
{
	for (int i = 0; i < 100; i++) {
		uint64_t word = flow_word(x->f);
		enum flow_phase phase = flow_phase_of(word);
		if (phase == FLOW_OVER || phase == FLOW_OWNED || (phase == FLOW_IDLE && to == FLOW_IDLE) ||
			flow_end_call(x->f, word, to, outcome, kind, now_of(x)))
			return;
	}
}

/* The answer is whole: its status is the verdict. */
static void end_by_status(struct feed *x, enum flow_phase to)
{
	enum failure_kind kind;
	enum breaker_outcome outcome = flow_outcome_of(atomic_load(&x->f->status), &kind);
	end_call(x, to, outcome, kind);
}

/* ---- HTTP/2 ---- */

static bool is_http2(const struct flow *f)
{
	return atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_HTTP2;
}

static struct streams_turn turn_of(const struct feed *x)
{
	return (struct streams_turn){.f = x->f, .fd = x->fd, .now_ns = x->now_ns, .due_ns = WHEEL_NEVER};
}

static void turned(struct feed *x, const struct streams_turn *t)
{
	x->now_ns = t->now_ns;
	x->is_over |= t->is_over;
	if (t->due_ns == WHEEL_NEVER)
		return;
	x->due_ns = x->due_ns && x->due_ns < t->due_ns ? x->due_ns : t->due_ns;
	x->must_arm = true;
}

/* From here on its streams are its calls. */
static void turn_http2(struct flow *f)
{
	flow_mark(f, FLOW_HAS_TRIED); /* both sides speak, whatever is asked */
	atomic_store(&f->kind, FLOW_HTTP2);
}

/* The client's preface is about to be sent; `before` octets of it have gone. */
static bool begins_http2(struct feed *x, size_t before)
{
	struct flow *f = x->f;
	/* Octets of the server that came first belong to its frames: known, if they could be told (received_some). */
	bool is_late = atomic_load(&f->in) && !flow_has(f, FLOW_IS_INSIDE);
	if (!atomic_load(&f->streams) && (is_late || !streams_attach(f)))
		return false;
	turn_http2(f);
	atomic_store(&f->asked_ns, now_of(x));
	if (before) {
		struct iovec crumbs = {f->first, before};
		struct octets o = {.iov = &crumbs, .count = 1, .limit = before};
		struct streams_turn t = turn_of(x);
		streams_sent(&t, &o, before);
		turned(x, &t);
	}
	return true;
}

/* HTTP/1 was left for HTTP/2 (h2c): the request in progress goes on as its first stream. */
static void upgrades(struct feed *x)
{
	struct streams_turn t = turn_of(x);
	if (!streams_attach(x->f)) {
		x->http2_at = 0;
		turn_opaque(x, BREAKER_SUCCESS);
		return;
	}
	streams_upgraded(&t);
	turn_http2(x->f);
	turned(x, &t);
}

static void received_http2(struct feed *x, const struct octets *o, size_t from, size_t n)
{
	struct streams_turn t = turn_of(x);
	streams_received(&t, o, from, n);
	turned(x, &t);
}

/* ---- the end of a connection ---- */

/* The other side has ended it, or the network has, in the middle of a call. */
static void broke_off(struct feed *x, enum failure_kind kind)
{
	if (is_http2(x->f)) {
		struct streams_turn t = turn_of(x);
		streams_broke_off(&t, kind);
		turned(x, &t);
		return;
	}
	uint64_t word = flow_word(x->f);
	if (flow_phase_of(word) == FLOW_ANSWERING && flow_has(x->f, FLOW_IS_WHOLE)) {
		/* The answer was whole before (an early 413): it stands (A7). */
		end_by_status(x, FLOW_OVER);
		x->is_over = true;
		return;
	}
	if ((kind == FAILURE_RESET || kind == FAILURE_EOF) && flow_phase_of(word) != FLOW_ANSWERING &&
		flow_is_refused(x->f, true))
		kind = FAILURE_TLS; /* octets that it did not take make its close a reset */
	bool is_dropped = flow_phase_of(word) == FLOW_WAITING && flow_is_dropped_kept(x->f, now_of(x));
	end_call(x, FLOW_OVER, is_dropped ? BREAKER_NEUTRAL : BREAKER_FAILURE, kind);
	x->is_over = true;
}

/* The first use of the connection: the connect's own call goes on, or begins now where that was made ahead of need. */
static void is_used(struct flow *f, uint64_t fresh, int64_t now_ns)
{
	/* Since the connect, or the end of a handshake. */
	int64_t idle = now_ns - atomic_load(&f->asked_ns), deadline = f->guard.limits.deadline_ns;
	if (idle > AHEAD_NS || (deadline && idle > deadline / 2))
		atomic_store(&f->begun_ns, now_ns);
	atomic_store(&f->asked_ns, now_ns);
	uint32_t call = atomic_load(&f->call);
	if (call)
		call_used(call - 1);
	flow_step(f, fresh, FLOW_WAITING);
}

/* The octets of a request begin. */
static void begins(struct feed *x, bool must_admit)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	x->must_arm = true;
	switch (flow_phase_of(word)) {
	case FLOW_FRESH: is_used(f, word, now_of(x)); return;
	case FLOW_IDLE:
		if (!flow_begin_call(f, word, must_admit, x->fd, now_of(x)))
			x->is_rejected = true;
		return;
	default: return; /* pipelined behind one in progress: its turn comes */
	}
}

/* The first octet of an answer. */
static void answer_begins(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	enum flow_phase phase = flow_phase_of(word);
	if (phase != FLOW_WAITING && phase != FLOW_FRESH)
		return;
	atomic_store_explicit(&f->heard_in, atomic_load_explicit(&f->in, memory_order_relaxed), memory_order_relaxed);
	atomic_store_explicit(&f->heard_ns, now_of(x), memory_order_relaxed);
	flow_step(f, word, FLOW_ANSWERING);
	flow_note_answer(f);
	x->must_arm = true;
}

/* ---- HTTP/1 ---- */

static void answer_ends(struct feed *x, const struct http1_event *e)
{
	struct flow *f = x->f;
	if (e->closes && !e->until_close) {
		flow_mark(f, FLOW_IS_WHOLE); /* the client may wait for the end of the stream (A2) */
		return;
	}
	flow_mark(f, FLOW_IS_KEPT);
	end_by_status(x, FLOW_IDLE);
	if (http1_pending(&f->http) > 0) {
		/* The next of those that were sent together: its turn begins. */
		uint64_t word = flow_word(f);
		if (flow_phase_of(word) == FLOW_IDLE)
			flow_begin_call(f, word, false, x->fd, now_of(x));
		x->must_arm = true;
	}
}

/* The whole request is with the kernel: from here on an answer is due. */
static void request_ended(struct feed *x)
{
	struct flow *f = x->f;
	if (!flow_has(f, FLOW_IS_ASKING))
		return;
	flow_unmark(f, FLOW_IS_ASKING);
	atomic_store_explicit(&f->asked_ns, now_of(x), memory_order_relaxed);
	x->must_arm = true;
}

/* It cannot be framed any more (a parse error, too many pipelined): its limits are off (A8), but what ends it before
 * any answer still tells. */
static void lose_track(struct feed *x)
{
	struct flow *f = x->f;
	atomic_store(&f->kind, FLOW_OPAQUE);
	if (flow_phase_of(flow_word(f)) != FLOW_ANSWERING)
		return;
	end_call(x, FLOW_OVER, BREAKER_SUCCESS, 0);
	x->is_over = true;
}

/* A head of 101: to what? */
static bool is_granted_h2c(const struct http1_event *e)
{
	size_t n = 0;
	const char *to = e->head ? http1_field(e->head, e->head_length, "Upgrade", &n) : NULL;
	return to && n == 3 && strncasecmp(to, "h2c", 3) == 0;
}

static void on_http1(void *context, const struct http1_event *e)
{
	struct feed *x = context;
	struct flow *f = x->f;
	uint64_t word;
	switch (e->what) {
	case HTTP1_REQUEST_BEGINS:
		flow_mark(f, FLOW_IS_ASKING);
		begins(x, true);
		x->has_begun = true;
		x->has_ended = false;
		break;
	case HTTP1_REQUEST_HEAD: break;
	case HTTP1_REQUEST_ENDS:
		x->has_ended = true;
		if (!x->is_announcing)
			request_ended(x);
		break;
	case HTTP1_ANSWER_BEGINS: answer_begins(x); break;
	case HTTP1_INTERIM:
		word = flow_word(f);
		if (flow_phase_of(word) == FLOW_ANSWERING)
			flow_step(f, word, FLOW_WAITING);
		break;
	case HTTP1_ANSWER_HEAD:
		answer_begins(x);
		atomic_store_explicit(&f->status, e->status, memory_order_relaxed);
		if (__builtin_expect(e->status == 101, 0))
			x->http2_at = is_granted_h2c(e) ? e->at : 0;
		break;
	case HTTP1_ANSWER_ENDS: answer_ends(x, e); break;
	case HTTP1_UNSOLICITED: break;
	case HTTP1_CUT: broke_off(x, FAILURE_EOF); break;
	case HTTP1_OPAQUE:
		if (e->why == HTTP1_WHY_UPGRADE && x->http2_at)
			upgrades(x);
		else if (e->why == HTTP1_WHY_UPGRADE || e->why == HTTP1_WHY_TUNNEL)
			turn_opaque(x, BREAKER_SUCCESS);
		else
			lose_track(x);
		break;
	}
}

/* ---- what it speaks ---- */

static size_t gather(uint8_t *to, size_t room, const struct octets *o)
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

/* It begins to speak TLS, with the octets that are about to be sent. */
static void tls_begins(struct feed *x, size_t before)
{
	struct flow *f = x->f;
	struct iovec crumbs = {f->first, before};
	struct tls_mark mark;
	tls_records_init(&f->tls);
	flow_mark(f, FLOW_OWES);
	atomic_store(&f->kind, FLOW_TLS);
	if (before)
		tls_records_announce(&f->tls, &crumbs, 1, before, &mark);
}

/* The client's first octets settle the protocol (A12). They are about to be sent. */
static void find_kind(struct feed *x, const struct octets *o)
{
	struct flow *f = x->f;
	size_t before = f->first_count;
	enum flow_kind asked = flow_kind_asked(f);
	if (o->is_blind) {
		atomic_store(&f->kind, FLOW_PLAIN);
		return;
	}
	size_t n = before + gather(f->first + before, sizeof f->first - before, o);
	enum sniff sniffed = sniff_client(f->first, n);
	if (asked == FLOW_PLAIN && sniffed != SNIFF_TLS && f->first[0] != TLS_FIRST) {
		atomic_store(&f->kind, FLOW_PLAIN);
		return;
	}
	if (asked == FLOW_HTTP1 && sniffed != SNIFF_TLS && f->first[0] != TLS_FIRST)
		sniffed = SNIFF_HTTP1;
	switch (sniffed) {
	case SNIFF_MORE: f->first_count = (uint8_t)n; return;
	case SNIFF_HTTP1:
		http1_init(&f->http);
		atomic_store(&f->kind, FLOW_HTTP1);
		if (before) {
			/* Sent in crumbs: those before belong to the request. */
			struct iovec crumbs = {f->first, before};
			struct http1_mark mark;
			http1_announce(&f->http, &crumbs, 1, before, &mark, on_http1, x);
			http1_sent_only(&f->http, &mark, &crumbs, 1, before, before, on_http1, x);
		}
		return;
	case SNIFF_TLS: tls_begins(x, before); return;
	case SNIFF_H2:
		if (begins_http2(x, before))
			return;
		turn_opaque(x, BREAKER_SUCCESS);
		return;
	case SNIFF_STREAM:
		/* Not told apart here: that it connected is all that is known of it. */
		turn_opaque(x, BREAKER_SUCCESS);
		return;
	case SNIFF_UNKNOWN: break;
	}
	enum records_kind records = before ? RECORDS_NONE : records_of_client(f->first, n);
	if (records != RECORDS_NONE) {
		flow_mark(f, FLOW_OWES);
		records_init(&f->records, records);
	}
	atomic_store(&f->kind, records != RECORDS_NONE ? FLOW_RECORDS : FLOW_PLAIN);
}

/* ---- the doors ---- */

static void finish(struct feed *x)
{
	struct flow *f = x->f;
	if (x->is_over) {
		slot_change(x->s, x->word, SLOT_CONNECTED, false); /* hooks pass it by from now on */
		return;
	}
	if (!x->must_arm || !flow_has(f, FLOW_HAS_LIMITS))
		return;
	if (__builtin_expect(!atomic_load_explicit(&x->s->cookie, memory_order_relaxed), 0))
		atomic_store(&x->s->cookie, slot_read_cookie(x->fd)); /* limits that came by a reload */
	service_bound(x->fd, x->due_ns ? x->due_ns : flow_due_ns(f));
}

static __attribute__((noinline)) void tries_to_read(struct slot *s, uint64_t word, int fd)
{
	struct flow *f = flow_hold(s, word);
	if (!f)
		return;
	if (is_http2(f)) { /* a fork's child, whose timer is to be its own */
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
				is_used(f, turn, clock_now_ns());
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

/* ---- answers of known length ---- */

static void tell_records_sent(struct flow *f, const struct octets *o, size_t gone)
{
	for (int i = 0; i < o->count && gone > 0; i++) {
		size_t n = o->iov[i].iov_len < gone ? o->iov[i].iov_len : gone;
		records_sent(&f->records, o->iov[i].iov_base, n);
		gone -= n;
	}
}

static void records_came(struct feed *x, const struct octets *o, size_t n)
{
	struct flow *f = x->f;
	enum records_at at = records_now(&f->records);
	answer_begins(x);
	for (int i = 0; i < o->count && n > 0; i++) {
		size_t piece = o->iov[i].iov_len < n ? o->iov[i].iov_len : n;
		at = records_received(&f->records, o->iov[i].iov_base, piece);
		n -= piece;
	}
	uint64_t word = flow_word(f);
	switch (at) {
	case RECORDS_WHOLE:
		flow_mark(f, FLOW_IS_KEPT);
		end_call(x, FLOW_IDLE, BREAKER_SUCCESS, 0);
		break;
	case RECORDS_AWAITED: /* what came was a notice, or the end of one answer of several */
		if (flow_phase_of(word) == FLOW_ANSWERING) {
			atomic_store(&f->asked_ns, now_of(x));
			flow_step(f, word, FLOW_WAITING);
			x->must_arm = true;
		}
		break;
	case RECORDS_LOST: atomic_store(&f->kind, FLOW_PLAIN); break;
	default: break;
	}
}

/* ---- TLS from outside (A9, A10) ---- */

/* What is sent from here on is the application's. */
static void handshake_ends(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	flow_unmark(f, FLOW_IS_ASKING | FLOW_HAS_TRIED);
	atomic_store_explicit(&f->asked_ns, now_of(x), memory_order_relaxed);
	if (flow_phase_of(word) == FLOW_WAITING)
		flow_step(f, word, FLOW_FRESH);
	x->must_arm = true;
}

/* Refused, or an end, inside the handshake. */
static void tls_fails(struct feed *x)
{
	end_call(x, FLOW_OVER, BREAKER_FAILURE, FAILURE_TLS);
	x->is_over = true;
}

static void tls_lost(struct feed *x, bool was_shaking)
{
	if (was_shaking)
		tls_fails(x);
	else
		lose_track(x);
}

/* A flight of the handshake is about to go. */
static void handshake_goes(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	flow_unmark(f, FLOW_IS_ASKING);
	atomic_store_explicit(&f->asked_ns, now_of(x), memory_order_relaxed);
	if (flow_phase_of(word) == FLOW_ANSWERING)
		flow_step(f, word, FLOW_WAITING); /* what was said in clear before belongs to the same call */
	else
		begins(x, false);
	flow_mark(f, FLOW_HAS_SENT);
	x->must_arm = true;
}

static void plain_sends(struct feed *x);

static void tls_sends(struct feed *x, const struct octets *o, struct sending *sending)
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
	if (told & TLS_REFUSED)
		tls_fails(x);
	if (told & TLS_COMPLETE)
		handshake_ends(x);
	if (!(told & TLS_DATA))
		return;
	if (flow_has(f, FLOW_MAY_HAVE_ANSWERED)) {
		/* It was a ticket, most likely: the request goes on. */
		flow_unmark(f, FLOW_MAY_HAVE_ANSWERED);
		atomic_store_explicit(&f->asked_ns, now_of(x), memory_order_relaxed);
		x->must_arm = true;
	}
	plain_sends(x);
}

static void tls_came(struct feed *x, const struct octets *o, size_t n)
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
		if (tls_records_may_be_many(&f->tls)) {
			flow_note_answer(f);
			turn_opaque(x, BREAKER_SUCCESS);
			return;
		}
		answer_begins(x);
	}
	if (tls_records_in_midst(&f->tls))
		x->must_arm = true;
}

static void tls_ended(struct feed *x)
{
	struct flow *f = x->f;
	enum flow_phase phase = flow_phase_of(flow_word(f));
	bool is_idle = phase == FLOW_FRESH && now_of(x) - atomic_load(&f->asked_ns) > AHEAD_NS;
	if (phase == FLOW_ANSWERING && !tls_records_in_midst(&f->tls))
		end_call(x, FLOW_OVER, BREAKER_SUCCESS, 0);
	else if (flow_has(f, FLOW_MAY_HAVE_ANSWERED) || is_idle)
		end_call(x, FLOW_OVER, BREAKER_NEUTRAL, 0);
	else if (phase == FLOW_ANSWERING || phase == FLOW_WAITING || phase == FLOW_FRESH)
		broke_off(x, phase != FLOW_ANSWERING && flow_is_refused(f, false) ? FAILURE_TLS : FAILURE_EOF);
	x->is_over = true;
}

void exchange_turns_inside(struct flow *f)
{
	uint64_t word = flow_word(f);
	f->first_count = 0;
	flow_unmark(f, FLOW_IS_ASKING | FLOW_HAS_TRIED | FLOW_MAY_HAVE_ANSWERED | FLOW_OWES);
	if (flow_kind_asked(f) == FLOW_PLAIN)
		flow_mark(f, FLOW_OWES);
	/* With a memory BIO its last word of the handshake may not have gone yet. */
	if (flow_phase_of(word) == FLOW_WAITING && flow_is_shaking(f)) {
		atomic_store_explicit(&f->asked_ns, clock_now_ns(), memory_order_relaxed);
		flow_step(f, word, FLOW_FRESH);
	}
	atomic_store_explicit(&f->kind, FLOW_UNKNOWN, memory_order_release);
}

void exchange_refused(struct slot *s, uint64_t word, int fd)
{
	struct flow *f = flow_hold(s, word);
	if (!f)
		return;
	struct feed x = {.f = f, .s = s, .word = word, .fd = fd};
	if (flow_phase_of(flow_word(f)) == FLOW_IDLE || flow_phase_of(flow_word(f)) == FLOW_OVER)
		end_call(&x, FLOW_OVER, BREAKER_NEUTRAL, 0);
	else
		broke_off(&x, FAILURE_TLS);
	x.is_over = true;
	finish(&x);
	flow_let_go(f);
}

/* After STARTTLS and its kin a ClientHello comes in the midst of a connection (A12). */
static bool is_hello(const struct octets *o)
{
	uint8_t first[11];
	if (o->is_blind || gather(first, sizeof first, o) < sizeof first || first[0] != TLS_FIRST)
		return false;
	return sniff_client(first, sizeof first) == SNIFF_TLS && first[9] == 3 && first[10] <= 4;
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
		received_http2(x, o, 0, n);
		return;
	}
	if (is_first && records_of_server(o->iov[0].iov_base, in_first) != RECORDS_NONE) {
		records_init(&f->records, records_of_server(o->iov[0].iov_base, in_first));
		atomic_store(&f->kind, kind = FLOW_RECORDS);
	}
	if (kind == FLOW_TLS)
		tls_came(x, o, n);
	else if (kind == FLOW_HTTP1 && o->is_blind)
		turn_opaque(x, BREAKER_SUCCESS);
	else if (kind == FLOW_RECORDS && o->is_blind)
		atomic_store(&f->kind, FLOW_PLAIN);
	else if (kind == FLOW_RECORDS)
		records_came(x, o, n);
	else if (kind == FLOW_HTTP1 && http1_is_framed(&f->http)) {
		http1_received_iov(&f->http, o->iov, o->count, n, on_http1, x);
		if (__builtin_expect(x->http2_at != 0, 0))
			received_http2(x, o, x->http2_at, n);
	} else if (is_first && sniff_server(o->iov[0].iov_base, in_first) == SNIFF_STREAM)
		turn_opaque(x, BREAKER_SUCCESS);
	else if (kind != FLOW_OPAQUE)
		answer_begins(x);
	/* Answered, somehow: all that can be told of it. */
	if (atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_OPAQUE && !x->is_over) {
		flow_note_answer(f);
		end_call(x, FLOW_OVER, BREAKER_SUCCESS, 0);
		x->is_over = true;
	}
}

static void stream_ended(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	enum flow_phase phase = flow_phase_of(word);
	bool is_idle_tls =
		phase == FLOW_FRESH && flow_has(f, FLOW_IS_INSIDE) && now_of(x) - atomic_load(&f->asked_ns) > AHEAD_NS;
	if (is_http2(f)) {
		broke_off(x, FAILURE_EOF);
	} else if (atomic_load(&f->kind) == FLOW_TLS) {
		tls_ended(x);
	} else if (is_idle_tls) {
		end_call(x, FLOW_OVER, BREAKER_NEUTRAL, 0);
	} else if (phase == FLOW_ANSWERING && flow_has(f, FLOW_IS_WHOLE)) {
		end_by_status(x, FLOW_OVER);
	} else if (atomic_load(&f->kind) == FLOW_HTTP1 && http1_is_framed(&f->http)) {
		http1_end_of_stream(&f->http, on_http1, x);
	} else if (phase == FLOW_ANSWERING && !flow_is_framed(f)) {
		end_call(x, FLOW_OVER, BREAKER_SUCCESS, 0);
	} else if (phase == FLOW_ANSWERING || phase == FLOW_WAITING || phase == FLOW_FRESH) {
		broke_off(x, FAILURE_EOF);
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
		case ETIMEDOUT: broke_off(&x, FAILURE_RESET); break;
		case EHOSTUNREACH:
		case ENETUNREACH: broke_off(&x, FAILURE_UNREACHABLE); break;
		default: break; /* EINTR, EFAULT...: says nothing of the peer */
		}
	}
	finish(&x);
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
	if (result > 0 && flow_only_counts(f, flow_word(f))) {
		if (!o->is_inside)
			atomic_fetch_add_explicit(&f->in, (uint64_t)result, memory_order_relaxed);
		return; /* in the midst of it */
	}
	received(s, word, fd, o, result, err);
}

/* Unframed: a write after octets were received begins a new call (A2), one before continues the request. */
static void plain_sends(struct feed *x)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	switch (flow_phase_of(word)) {
	case FLOW_ANSWERING:
		flow_mark(f, FLOW_IS_KEPT);
		end_call(x, FLOW_IDLE, BREAKER_SUCCESS, 0);
		begins(x, false);
		break;
	case FLOW_FRESH:
	case FLOW_IDLE: begins(x, false); break;
	case FLOW_WAITING: flow_mark(f, FLOW_HAS_SENT); break;
	default: break;
	}
}

/* The time left, for the server to know (CONTRACT `deadline_header`). Before the octets are announced. */
static void find_edits(struct feed *x, const struct octets *o, struct sending *sending)
{
	struct flow *f = x->f;
	bool is_new = flow_phase_of(flow_word(f)) == FLOW_IDLE;
	int64_t at = flow_deadline_at(f, is_new, now_of(x)), left = at - now_of(x);
	for (int i = 0; i < f->carried_count; i++)
		sending->edits[i] = f->carried[i];
	if (at == WHEEL_NEVER && !f->carried_count)
		return;
	sending->edit_count =
		deadline_header_find(&f->http, o->iov, o->count, o->limit, guard_header_name(f->guard.limits.header),
			left > 0 ? (uint64_t)(left / NS_PER_MS) : 0, sending->edits, f->carried_count);
}

#define PIECES 128

ssize_t exchange_send_edited(int fd, const struct octets *o, struct sending *sending, int flags, bool is_blocking)
{
	struct flow *f = sending->flow;
	const char *name = guard_header_name(f->guard.limits.header);
	char text[DEADLINE_HEADER_MAX][DEADLINE_HEADER_TEXT_MAX];
	struct iovec pieces[PIECES];
	for (;;) {
		int n = deadline_header_vector(
			sending->edits, sending->edit_count, name, o->iov, o->count, o->limit, pieces, PIECES, text);
		struct msghdr msg = {.msg_iov = pieces, .msg_iovlen = (size_t)n};
		ssize_t gone = real.sendmsg(fd, &msg, flags);
		if (gone < 0)
			return gone;
		size_t own = deadline_header_sent(sending->edits, &sending->edit_count, name, o->limit, (size_t)gone);
		f->carried_count = (uint8_t)sending->edit_count;
		for (int i = 0; i < sending->edit_count && i < DEADLINE_HEADER_CARRY; i++)
			f->carried[i] = sending->edits[i];
		if (own > 0)
			return (ssize_t)own;
		/* Only octets of ours went: of the app's none could, so far. */
		if (!is_blocking) {
			errno = EAGAIN;
			return -1;
		}
	}
}

static __attribute__((noinline)) bool sends(
	struct slot *s, uint64_t word, int fd, const struct octets *o, struct sending *sending)
{
	sending->is_announced = sending->was_asking = sending->ends = sending->begins = false;
	sending->edit_count = 0;
	struct flow *f = sending->flow = flow_hold(s, word);
	if (!f)
		return true;
	struct feed x = {.f = f, .s = s, .word = word, .fd = fd};
	uint32_t kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	if (__builtin_expect(kind == FLOW_UNKNOWN, 0) && o->limit > 0) {
		find_kind(&x, o);
		kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	}
	if ((kind == FLOW_PLAIN || kind == FLOW_RECORDS) && is_hello(o)) {
		tls_begins(&x, 0);
		kind = FLOW_TLS;
	}
	if (kind == FLOW_HTTP1 && o->is_blind) {
		/* A body that the kernel takes elsewhere: where the request ends is not known. */
		atomic_store(&f->kind, FLOW_PLAIN);
		flow_mark(f, FLOW_OWES);
		flow_unmark(f, FLOW_IS_ASKING);
		kind = FLOW_PLAIN;
	}
	if (kind == FLOW_HTTP2) {
		struct streams_turn t = turn_of(&x);
		streams_announced(&t, o);
		turned(&x, &t);
	} else if (kind == FLOW_HTTP1) {
		sending->was_asking = flow_has(f, FLOW_IS_ASKING);
		if (f->guard.limits.header && !o->is_fixed && http1_is_framed(&f->http))
			find_edits(&x, o, sending);
		if (flow_phase_of(flow_word(f)) == FLOW_WAITING)
			flow_mark(f, FLOW_HAS_SENT);
		x.is_announcing = true;
		sending->is_announced =
			http1_announce(&f->http, o->iov, o->count, o->limit, &sending->mark, on_http1, &x);
		sending->ends = x.has_ended;
		sending->begins = x.has_begun;
		x.is_announcing = false;
	} else if (kind == FLOW_RECORDS) {
		enum flow_phase phase = flow_phase_of(flow_word(f));
		/* What opens a connection is told first: its answer may be one octet that means something else without
		 * it. */
		if (phase == FLOW_FRESH)
			tell_records_sent(f, o, o->limit);
		sending->is_announced = phase == FLOW_FRESH;
		if (phase == FLOW_FRESH || phase == FLOW_IDLE)
			begins(&x, false);
		else if (phase == FLOW_WAITING)
			flow_mark(f, FLOW_HAS_SENT);
	} else if (kind == FLOW_TLS) {
		tls_sends(&x, o, sending);
	} else if (kind == FLOW_PLAIN || kind == FLOW_ONEWAY || kind == FLOW_UNKNOWN) {
		if (o->limit > 0)
			plain_sends(&x);
	}
	sending->kind = (uint8_t)kind;
	if (x.is_rejected) {
		if (sending->is_announced && kind == FLOW_HTTP1)
			http1_sent_only(&f->http, &sending->mark, o->iov, o->count, o->limit, 0, on_http1, &x);
		/* As on a connection that the server has dropped: whoever reads or polls it learns so, too. */
		uint64_t turn = flow_word(f);
		if (flow_phase_of(turn) == FLOW_IDLE)
			flow_step(f, turn, FLOW_OVER);
		if (o->is_inside)
			flow_mark(f, FLOW_IS_REJECTED); /* the TLS library's own send is what fails */
		else
			slot_change(s, word, SLOT_CONNECTED, false);
		if (!guest_is_restricted())
			sys_disconnect(fd);
		flow_let_go(f);
		sending->flow = NULL;
		errno = ECONNRESET;
		return false;
	}
	finish(&x);
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
	if (kind != sending->kind)
		kind = FLOW_UNKNOWN; /* it has turned into something else meanwhile */
	if (kind == FLOW_HTTP2 && result > 0) {
		struct streams_turn t = turn_of(&x);
		streams_sent(&t, o, (size_t)result);
		turned(&x, &t);
	}
	if (kind == FLOW_RECORDS && !sending->is_announced && result > 0) {
		if (o->is_blind)
			atomic_store(&f->kind, FLOW_PLAIN);
		else
			tell_records_sent(f, o, (size_t)result);
	}
	if (kind == FLOW_TLS && sending->is_announced && result != (ssize_t)o->limit)
		tls_records_sent_only(&f->tls, o->iov, o->count, result > 0 ? (size_t)result : 0, &sending->tls_mark);
	if (kind == FLOW_HTTP1 && sending->is_announced && result == (ssize_t)o->limit && sending->ends) {
		/* A small request went at once, when it began; a large one may have taken its time to be taken. */
		if (sending->begins && o->limit <= AT_ONCE)
			x.now_ns = atomic_load_explicit(&f->asked_ns, memory_order_relaxed);
		request_ended(&x);
		x.now_ns = 0;
	}
	if (kind == FLOW_HTTP1 && sending->is_announced && result != (ssize_t)o->limit) {
		/* Less went than was announced: the request may not be whole after all. */
		if (sending->was_asking)
			flow_mark(f, FLOW_IS_ASKING);
		http1_sent_only(&f->http, &sending->mark, o->iov, o->count, o->limit, result > 0 ? (size_t)result : 0,
			on_http1, &x);
	}
	if (result > 0 && !o->is_inside) {
		atomic_fetch_add_explicit(&f->out, (uint64_t)result, memory_order_relaxed);
	} else if (result < 0 && (err == EPIPE || err == ECONNRESET || err == ETIMEDOUT || err == EHOSTUNREACH)) {
		/* An answer that came before stands (A7): it may lie there unread. */
		if (guest_is_restricted() || tcpinfo_unread(fd) == 0)
			broke_off(&x, err == EHOSTUNREACH ? FAILURE_UNREACHABLE : FAILURE_RESET);
	}
	finish(&x);
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
