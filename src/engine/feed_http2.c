/* HTTP/2: its streams are the calls (feed.h, streams.h). */
#include "engine/feed.h"

#include <errno.h>

/* From here on its streams are its calls. */
static void turn_http2(struct flow *f)
{
	flow_mark(f, FLOW_HAS_TRIED); /* both sides speak, whatever is asked */
	flow_speaks(f, FLOW_HTTP2);
}

bool feed_http2_begins(struct feed *x, size_t before)
{
	struct flow *f = x->f;
	/* Octets of the server that came first belong to its frames: known, if they could be told (received_some). */
	bool is_late = atomic_load(&f->in) && !flow_has(f, FLOW_IS_INSIDE);
	if (!atomic_load(&f->streams) && (is_late || !streams_attach(f)))
		return false;
	turn_http2(f);
	atomic_store(&f->asked_ns, feed_now(x));
	if (before) {
		struct iovec crumbs = {f->first, before};
		struct octets o = {.iov = &crumbs, .count = 1, .limit = before};
		struct streams_turn t = feed_http2_turn(x);
		streams_sent(&t, &o, before);
		feed_http2_turned(x, &t);
	}
	return true;
}

void feed_http2_upgrades(struct feed *x)
{
	struct streams_turn t = feed_http2_turn(x);
	if (!streams_attach(x->f)) {
		x->http2_at = 0;
		feed_turn_opaque(x, BREAKER_SUCCESS);
		return;
	}
	streams_upgraded(&t);
	feed_requests_end(x->f);
	turn_http2(x->f);
	feed_http2_turned(x, &t);
}

/* Once a connection. Its streams begin behind it: until then the connect's call is the flow's. */
void feed_http2_look_for_authority(struct feed *x, const struct octets *o)
{
	struct flow *f = x->f;
	char name[HTTP1_HOST_MAX];
	bool is_told;
	size_t n = streams_authority(f, o, name, sizeof name, &is_told);
	if (is_told)
		f->named = f->generation;
	if (n == 0)
		return;
	uint64_t word = flow_word(f);
	if (flow_phase_of(word) == FLOW_FRESH)
		feed_used(f, word, feed_now(x));
	feed_let(x, flow_name(f, name, n, feed_gate(x), x->fd, feed_now(x)));
}

enum exchange_asked exchange_asks_http2(struct flow *f, uint64_t word, const struct octets *o, struct sending *sending)
{
	bool is_named = !f->guard.may_be_named || f->named;
	if (!is_named || !streams_go_on(f, o->iov->iov_base, o->limit)) {
		flow_let_go(f);
		return EXCHANGE_OTHER;
	}
	sending->flow = f;
	sending->word = word;
	sending->kind = FLOW_HTTP2;
	sending->is_announced = false;
	sending->ends = true;
	return EXCHANGE_ASKED;
}

static __attribute__((noinline)) void came_otherwise(
	struct flow *f, struct slot *s, uint64_t word, int fd, const struct octets *o, size_t n)
{
	struct feed x = {.f = f, .s = s, .word = word, .fd = fd};
	int saved = errno;
	feed_http2_came(&x, o, 0, n);
	feed_finish(&x);
	errno = saved;
}

bool exchange_came_http2(struct flow *f, struct slot *s, uint64_t word, int fd, const struct octets *o, size_t n)
{
	atomic_fetch_add_explicit(&f->in, n, memory_order_relaxed);
	if (o->count != 1 || n > o->iov->iov_len || !streams_went_on(f, o->iov->iov_base, n))
		came_otherwise(f, s, word, fd, o, n);
	flow_let_go(f);
	return true;
}
