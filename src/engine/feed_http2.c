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
