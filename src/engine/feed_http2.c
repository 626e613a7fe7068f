/* HTTP/2: its streams are the calls (feed.h, streams.h). */
#include "engine/feed.h"

/* From here on its streams are its calls. */
static void turn_http2(struct flow *f)
{
	flow_mark(f, FLOW_HAS_TRIED); /* both sides speak, whatever is asked */
	atomic_store(&f->kind, FLOW_HTTP2);
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
