/* HTTP/1 (feed.h). */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/hot.h"
#include "base/real.h"
#include "engine/feed.h"
#include "engine/wheel.h"
#include "policy/policy.h"
#include "wire/http1_skim.h"

void feed_http1_named(struct feed *x, const char *host, size_t length)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	if (flow_phase_of(word) == FLOW_FRESH)
		feed_used(f, word, feed_now(x));
	x->must_arm = true;
	feed_requests_end(f);
	feed_let(x, flow_name(f, host, length, feed_gate(x), x->fd, feed_now(x)));
	feed_requests_start(f);
}

/* A request names its server: by `Host`, or in TLS by the hello before it. */
static __attribute__((noinline)) void look_for_host(struct feed *x, size_t at)
{
	struct flow *f = x->f;
	struct http1_host host;
	if (flow_has(f, FLOW_IS_INSIDE)) {
		if (f->tls.name_length)
			feed_http1_named(x, f->tls.name, f->tls.name_length);
		return;
	}
	http1_host_begin(&host);
	feed_requests_skim(&host, x->o, at);
	if (host.at.state == HTTP1_HOST_FOUND)
		feed_http1_named(x, host.name, host.at.length);
	else if (http1_host_is_open(&host))
		feed_requests_wait_for_host(f, &host);
}

/* Once a connection, and after a reload; in TLS the ClientHello was the first to tell. */
static __attribute__((noinline)) bool must_be_named(const struct flow *f)
{
	bool is_told = f->named || flow_has(f, FLOW_IS_INSIDE);
	return (!is_told || f->named != policy_generation()) && http1_pending(&f->http) <= 1;
}

static void answer_ends(struct feed *x, bool closes, bool until_close)
{
	struct flow *f = x->f;
	if (closes && !until_close) {
		flow_mark(f, FLOW_IS_WHOLE); /* the client may wait for the end of the stream (A2) */
		return;
	}
	flow_mark(f, FLOW_IS_KEPT);
	feed_end_by_status(x, FLOW_IDLE);
	uint64_t place = GUARD_PLACE_KEPT;
	if (__builtin_expect(feed_has_requests(f), 0))
		place = feed_requests_answered(f);
	if (http1_pending(&f->http) > 0) {
		/* The next of those that were sent together: its turn begins. */
		uint64_t word = flow_word(f);
		if (flow_phase_of(word) == FLOW_IDLE)
			flow_begin_call(f, word, FLOW_PASSES, place, x->fd, feed_now(x));
		x->must_arm = true;
	}
}

void feed_http1_asked(struct feed *x)
{
	struct flow *f = x->f;
	if (!flow_has(f, FLOW_IS_ASKING))
		return;
	flow_unmark(f, FLOW_IS_ASKING);
	atomic_store_explicit(&f->asked_ns, feed_now(x), memory_order_relaxed);
	x->must_arm = true;
}

/* A head of 101: to what? */
static bool is_granted_h2c(const struct http1_event *e)
{
	size_t n = 0;
	const char *to = e->head ? http1_field(e->head, e->head_length, "Upgrade", &n) : NULL;
	return to && n == 3 && strncasecmp(to, "h2c", 3) == 0;
}

void feed_http1_event(void *context, const struct http1_event *e)
{
	struct feed *x = context;
	struct flow *f = x->f;
	uint64_t word;
	switch (e->what) {
	case HTTP1_REQUEST_BEGINS:
		flow_mark(f, FLOW_IS_ASKING);
		if (__builtin_expect(f->guard.may_be_named, 0) && must_be_named(f))
			look_for_host(x, e->at);
		if (x->is_rejected)
			break;
		if (__builtin_expect(feed_has_requests(f), 0))
			feed_requests_begins(x, e->at);
		else
			feed_begins(x, true);
		x->has_begun = true;
		x->has_ended = false;
		break;
	case HTTP1_REQUEST_HEAD: break;
	case HTTP1_REQUEST_ENDS:
		x->has_ended = true;
		if (!x->is_announcing)
			feed_http1_asked(x);
		break;
	case HTTP1_ANSWER_BEGINS: feed_answer_begins(x); break;
	case HTTP1_INTERIM:
		word = flow_word(f);
		if (flow_phase_of(word) == FLOW_ANSWERING)
			flow_step(f, word, FLOW_WAITING);
		break;
	case HTTP1_ANSWER_HEAD:
		feed_answer_begins(x);
		atomic_store_explicit(&f->status, e->status, memory_order_relaxed);
		if (__builtin_expect(e->status == 101, 0))
			x->http2_at = is_granted_h2c(e) ? e->at : 0;
		break;
	case HTTP1_ANSWER_ENDS: answer_ends(x, e->closes, e->until_close); break;
	case HTTP1_UNSOLICITED: break;
	case HTTP1_CUT: feed_broke_off(x, FAILURE_EOF); break;
	case HTTP1_OPAQUE:
		if (e->why == HTTP1_WHY_UPGRADE && x->http2_at)
			feed_http2_upgrades(x);
		else if (e->why == HTTP1_WHY_TUNNEL && !flow_has(f, FLOW_IS_INSIDE))
			feed_tunnel_begins(x);
		else if (e->why == HTTP1_WHY_UPGRADE || e->why == HTTP1_WHY_TUNNEL)
			feed_turn_opaque(x, BREAKER_SUCCESS);
		else
			feed_lose_track(x);
		break;
	}
}

/* May it be read without events? Where something else is to be done at a request's first octet, no. */
static inline bool is_everyday(const struct flow *f, const struct octets *o)
{
	const struct guard *g = &f->guard;
	return o->count == 1 && !(g->limits.header | g->may_be_named | feed_has_requests(f));
}

/* Only where that can be told without events; false: nothing was done. */
static inline bool announce_plain(struct feed *x, const struct octets *o, struct sending *sending)
{
	struct flow *f = x->f;
	bool is_whole;
	if (!is_everyday(f, o) ||
		!http1_announce_plain(&f->http, o->iov->iov_base, o->limit, &sending->mark, &is_whole))
		return false;
	sending->was_asking = flow_has(f, FLOW_IS_ASKING);
	sending->is_announced = sending->begins = true;
	sending->ends = is_whole;
	feed_begins(x, true);
	/* While it goes no answer is owed, which only limits ask. */
	if (!is_whole || flow_has(f, FLOW_HAS_LIMITS))
		flow_mark(f, FLOW_IS_ASKING);
	return true;
}

HOT_FRAME enum exchange_asked exchange_asks_http1(
	struct flow *f, struct slot *s, uint64_t word, int fd, const struct octets *o, struct sending *sending)
{
	int saved = errno;
	struct feed x = {.f = f, .s = s, .word = word, .fd = fd, .o = o};
	if (!announce_plain(&x, o, sending)) {
		flow_let_go(f);
		return EXCHANGE_OTHER;
	}
	sending->flow = f;
	sending->word = word;
	sending->kind = FLOW_HTTP1;
	if (__builtin_expect(x.is_rejected, 0)) {
		feed_reject(&x, o, sending, FLOW_HTTP1);
		return EXCHANGE_REJECTED;
	}
	feed_finish(&x);
	errno = saved;
	return EXCHANGE_ASKED;
}

void feed_http1_announce(struct feed *x, const struct octets *o, struct sending *sending)
{
	struct flow *f = x->f;
	if (flow_phase_of(flow_word(f)) == FLOW_WAITING)
		flow_mark(f, FLOW_HAS_SENT);
	if (announce_plain(x, o, sending))
		return;
	sending->was_asking = flow_has(f, FLOW_IS_ASKING);
	x->is_announcing = true;
	if (__builtin_expect(feed_has_requests(f), 0))
		feed_requests_announce(x, sending);
	sending->is_announced =
		http1_announce(&f->http, o->iov, o->count, o->limit, &sending->mark, feed_http1_event, x);
	sending->ends = x->has_ended;
	sending->begins = x->has_begun;
	x->is_announcing = false;
}

/* A plain answer has come: its head, and its end where that is here. */
static inline HOT_FRAME void answer_came(struct feed *x, const struct http1_plain *answer)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	atomic_store_explicit(&f->status, answer->status, memory_order_relaxed);
	/* All of it at once, and nothing waits behind it: between its begin and its end there is nothing to see. */
	if (answer->is_whole && !answer->closes && flow_phase_of(word) == FLOW_WAITING && !feed_has_requests(f) &&
		http1_pending(&f->http) == 0) {
		enum failure_kind kind;
		enum breaker_outcome outcome = flow_outcome_of(answer->status, &kind);
		flow_note_answer(f);
		flow_mark(f, FLOW_IS_KEPT);
		x->must_arm = true;
		if (flow_end_call(f, word, FLOW_IDLE, outcome, kind, feed_now(x)))
			return;
	}
	feed_answer_begins(x);
	if (answer->is_whole)
		answer_ends(x, answer->closes, false);
}

static inline __attribute__((always_inline)) void came(struct feed *x, const struct octets *o, size_t n)
{
	struct flow *f = x->f;
	struct http1_plain answer;
	size_t read = 0;
	if (o->count > 0 && n <= o->iov->iov_len)
		read = http1_received_plain(&f->http, o->iov->iov_base, n, &answer);
	if (read == 0) {
		http1_received_iov(&f->http, o->iov, o->count, n, feed_http1_event, x);
		if (__builtin_expect(x->http2_at != 0, 0))
			feed_http2_came(x, o, x->http2_at, n);
		return;
	}
	if (answer.status)
		answer_came(x, &answer);
	if (__builtin_expect(read < n, 0))
		http1_received(&f->http, (const char *)o->iov->iov_base + read, n - read, feed_http1_event, x);
}

void feed_http1_came(struct feed *x, const struct octets *o, size_t n)
{
	came(x, o, n);
}

HOT_FRAME bool exchange_came_http1(
	struct flow *f, struct slot *s, uint64_t word, int fd, const struct octets *o, size_t n)
{
	int saved = errno;
	struct feed x = {.f = f, .s = s, .word = word, .fd = fd};
	atomic_fetch_add_explicit(&f->in, n, memory_order_relaxed);
	came(&x, o, n);
	feed_end_opaque(&x);
	feed_finish(&x);
	flow_let_go(f);
	errno = saved;
	return true;
}

void feed_http1_sent_only(struct feed *x, const struct octets *o, const struct sending *sending, size_t gone)
{
	struct octets sent = *o;
	sent.limit = gone;
	x->o = &sent;
	if (feed_has_requests(x->f))
		feed_requests_taken_back(x, sending);
	http1_sent_only(&x->f->http, &sending->mark, o->iov, o->count, o->limit, gone, feed_http1_event, x);
	x->o = o;
}

void feed_http1_edits(struct feed *x, const struct octets *o, struct sending *sending)
{
	struct flow *f = x->f;
	bool is_new = flow_phase_of(flow_word(f)) == FLOW_IDLE;
	int64_t at = flow_deadline_at(f, is_new, feed_now(x)), left = at - feed_now(x);
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
