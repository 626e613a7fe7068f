/* Keys `method` and `route`: the circuit that a request of HTTP/1 asks (feed.h).
 *
 * The connect's call is the origin's. Once the line of a request is whole, its call moves to the circuit of that
 * request, which has to let it through (B20); for the origin the connect was a success. Requests sent before those
 * before them were answered pass, each under its own circuit. */
#include <string.h>

#include "engine/feed.h"
#include "engine/pool.h"
#include "policy/policy.h"

#define PENDING 16u    /* HTTP1_PENDING_MAX: beyond it nothing is framed */
#define LINE_MAX 1024u /* of a request's line that came in crumbs; what is longer is judged by that */
_Static_assert(PENDING == HTTP1_PENDING_MAX, "a ring of those that are pending");

/* What is known of a flow's requests. The sending side writes all but `answered`, the receiving side reads `places` of
 * those whose turn comes. Numbers are modulo 256, as in http1.h. */
struct requests {
	uint64_t origin; /* guard_place() */
	_Atomic uint8_t answered;
	uint8_t begun;
	bool is_open; /* the line of the newest is not whole yet */
	uint16_t length;
	_Atomic uint64_t places[PENDING];
	_Atomic uint32_t next_free;
	char line[LINE_MAX];
	struct http1_host host; /* of the newest, while it is to come */
};

static struct pool pool = {.size = sizeof(struct requests),
	.link_at = offsetof(struct requests, next_free),
	.most = 1u << 16,
	.tight = 256};

static struct requests *requests_of(const struct flow *f)
{
	uint32_t index = atomic_load_explicit(&f->requests, memory_order_relaxed);
	return index ? pool_at(&pool, index - 1) : NULL;
}

static struct requests *attach(struct flow *f)
{
	struct requests *r = requests_of(f);
	uint32_t index = r ? POOL_NONE : pool_take(&pool);
	if (index == POOL_NONE)
		return r;
	r = pool_at(&pool, index);
	r->origin = guard_place(&f->guard);
	/* By a reload those before it may have been sent without: they are the origin's. */
	unsigned pending = http1_pending(&f->http);
	r->begun = (uint8_t)(pending > 0 ? pending - 1 : 0);
	for (unsigned i = 0; i < PENDING; i++)
		atomic_store_explicit(&r->places[i], r->origin, memory_order_relaxed);
	r->is_open = false;
	r->host.at = (struct http1_host_at){.state = HTTP1_HOST_OVER};
	atomic_store_explicit(&r->answered, 0, memory_order_relaxed);
	atomic_store(&f->requests, index + 1);
	return r;
}

void feed_requests_release(struct flow *f)
{
	pool_give(&pool, atomic_exchange_explicit(&f->requests, 0, memory_order_relaxed) - 1);
}

/* The circuit of a line: its own, or the origin's where it has none. */
static uint64_t place_of(struct feed *x, struct requests *r)
{
	struct flow *f = x->f;
	struct guard origin = f->guard;
	guard_move(&origin, r->origin);
	size_t n = r->length;
	const char *blank = memchr(r->line, ' ', n);
	size_t method = blank ? (size_t)(blank - r->line) : n;
	const char *target = blank ? blank + 1 : r->line + n;
	size_t left = n - (size_t)(target - r->line);
	const char *end = memchr(target, ' ', left);
	struct guard_request q = {r->line, method, target, end ? (size_t)(end - target) : left};
	return guard_find_request(&origin, f->generation, &q, feed_now(x));
}

/* It is the turn of that request, whose call may be under way. */
static void take_turn(struct feed *x, uint64_t place)
{
	struct flow *f = x->f;
	uint64_t word = flow_word(f);
	x->must_arm = true;
	if (flow_phase_of(word) == FLOW_FRESH) {
		feed_used(f, word, feed_now(x));
		word = flow_word(f);
	}
	if (flow_phase_of(word) == FLOW_IDLE) {
		feed_let(x, flow_begin_call(f, word, feed_gate(x), place, x->fd, feed_now(x)));
	} else if (flow_phase_of(word) == FLOW_WAITING && guard_place(&f->guard) != place) {
		/* To the origin a connection that has come to a request is well; a request in crumbs was nothing. */
		enum breaker_outcome outcome = flow_has(f, FLOW_IS_KEPT) ? BREAKER_NEUTRAL : BREAKER_SUCCESS;
		struct guard to = f->guard;
		guard_move(&to, place);
		feed_let(x, flow_move_call(f, word, feed_gate(x), &to, outcome, x->fd, feed_now(x)));
	}
}

/* The octets from `at` on belong to the line of the newest request. True: it is whole, or as long as it is looked at.
 */
static bool append(struct requests *r, const struct octets *o, size_t at)
{
	size_t left = o->limit;
	for (int i = 0; i < o->count && left > 0; i++) {
		const char *p = o->iov[i].iov_base;
		size_t n = o->iov[i].iov_len < left ? o->iov[i].iov_len : left;
		left -= n;
		if (at >= n) {
			at -= n;
			continue;
		}
		p += at;
		n -= at;
		at = 0;
		size_t room = LINE_MAX - r->length;
		const char *end = memchr(p, '\n', n < room ? n : room);
		size_t piece = end ? (size_t)(end - p) : n < room ? n : room;
		memcpy(r->line + r->length, p, piece);
		r->length = (uint16_t)(r->length + piece);
		if (end || r->length == LINE_MAX)
			return true;
	}
	return false;
}

/* The newest request's line is whole. */
static void decide(struct feed *x, struct requests *r)
{
	uint8_t number = (uint8_t)(r->begun - 1);
	r->is_open = false;
	uint64_t place = place_of(x, r);
	atomic_store(&r->places[number % PENDING], place); /* then look: whoever answers moves on, then looks here */
	if (number == atomic_load(&r->answered))
		take_turn(x, place);
}

void feed_requests_skim(struct http1_host *host, const struct octets *o, size_t at)
{
	size_t left = o->limit;
	for (int i = 0; i < o->count && left > 0 && http1_host_is_open(host); i++) {
		size_t n = o->iov[i].iov_len < left ? o->iov[i].iov_len : left;
		left -= n;
		if (at < n)
			http1_host_feed(host, (const char *)o->iov[i].iov_base + at, n - at);
		at -= at < n ? at : n;
	}
}

void feed_requests_wait_for_host(struct flow *f, const struct http1_host *host)
{
	struct requests *r = attach(f);
	if (r)
		r->host = *host;
}

/* More of a head that may name its server. */
static void look_for_host(struct feed *x, struct requests *r)
{
	feed_requests_skim(&r->host, x->o, 0);
	if (r->host.at.state != HTTP1_HOST_FOUND)
		return;
	feed_http1_named(x, r->host.name, r->host.at.length);
	/* Its line belongs to whom it names, too. */
	atomic_store(&r->places[(uint8_t)(r->begun - 1) % PENDING], r->origin);
	if (!r->is_open && !x->is_rejected)
		decide(x, r);
}

void feed_requests_announce(struct feed *x, struct sending *sending)
{
	struct requests *r = requests_of(x->f);
	sending->requests.begun = r ? r->begun : 0;
	sending->requests.is_open = r && r->is_open;
	sending->requests.length = r ? r->length : 0;
	sending->requests.host = r ? r->host.at : (struct http1_host_at){.state = HTTP1_HOST_OVER};
	if (r && http1_host_is_open(&r->host))
		look_for_host(x, r);
	if (r && r->is_open && !x->is_rejected && append(r, x->o, 0))
		decide(x, r);
}

/* A reload, or an eviction, may have given the origin another circuit. */
static void look_again(struct feed *x, struct requests *r)
{
	struct flow *f = x->f;
	struct guard origin = f->guard;
	guard_move(&origin, r->origin);
	if (f->generation == policy_generation() && guard_is_current(&origin))
		return;
	guard_move(&f->guard, r->origin);
	f->kept = (uint32_t)FLOW_KEPT_UNASKED;
	flow_follow_reload(f, x->fd, feed_now(x));
	r->origin = guard_place(&f->guard);
}

void feed_requests_begins(struct feed *x, size_t at)
{
	struct flow *f = x->f;
	struct requests *r = attach(f);
	if (!r) {
		feed_begins(x, true);
		return;
	}
	bool is_turn = r->begun == atomic_load(&r->answered);
	if (is_turn)
		look_again(x, r);
	atomic_store(&r->places[r->begun++ % PENDING], r->origin);
	r->length = 0;
	r->is_open = !append(r, x->o, at);
	if (!r->is_open) {
		decide(x, r);
		return;
	}
	uint64_t word = flow_word(f);
	if (is_turn && flow_phase_of(word) == FLOW_IDLE)
		feed_let(x, flow_begin_call(f, word, f->guard.section ? FLOW_PASSES : feed_gate(x), r->origin, x->fd,
				    feed_now(x)));
	else if (is_turn)
		feed_begins(x, false);
	x->must_arm = true;
}

void feed_requests_taken_back(struct feed *x, const struct sending *sending)
{
	struct requests *r = requests_of(x->f);
	if (!r)
		return;
	r->begun = sending->requests.begun;
	r->is_open = sending->requests.is_open;
	r->length = sending->requests.length;
	/* Named it stays; but where a handler has ended the wait, it asks again. */
	if (x->is_interrupted || r->host.at.state != HTTP1_HOST_FOUND) {
		r->host.at = sending->requests.host;
		if (http1_host_is_open(&r->host))
			feed_requests_skim(&r->host, x->o, 0);
	}
	if (r->is_open && append(r, x->o, 0))
		decide(x, r);
}

uint64_t feed_requests_answered(struct flow *f)
{
	struct requests *r = requests_of(f);
	if (!r)
		return GUARD_PLACE_KEPT;
	uint8_t next = (uint8_t)(atomic_fetch_add(&r->answered, 1) + 1);
	return atomic_load(&r->places[next % PENDING]);
}

void feed_requests_start(struct flow *f)
{
	struct requests *r = requests_of(f);
	if (r)
		r->origin = guard_place(&f->guard);
}

void feed_requests_end(struct flow *f)
{
	struct requests *r = requests_of(f);
	if (!r)
		return;
	guard_move(&f->guard, r->origin);
	f->kept = (uint32_t)FLOW_KEPT_UNASKED;
}
