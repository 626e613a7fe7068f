/* See relay.h.
 *
 * Each way has a source and a sink: the app's side (inner) and the upstream, or an end point in its place. The end of a
 * way passes on as shutdown(SHUT_WR), once all before it has gone, so a half-closed connection stays one. When one side
 * is reset, what it had sent before is still passed on, then the other side is reset; what was under way to it is gone,
 * as it would be without us. Urgent data is passed on as ordinary data (SO_OOBINLINE). */
#include "engine/relay.h"

#include <errno.h>

#include "base/clock.h"
#include "base/sys.h"
#include "engine/cache.h"

/* Turns of one way before others get theirs. */
#define TURNS 16
/* An end point has said all: so long it takes in what the app still sends. */
#define LAST_NS (5 * NS_PER_S)

static enum detour_socket source_of(enum detour_way_name way)
{
	return way == DETOUR_UP ? DETOUR_INNER : DETOUR_UPSTREAM;
}

static enum detour_socket sink_of(enum detour_way_name way)
{
	return way == DETOUR_UP ? DETOUR_UPSTREAM : DETOUR_INNER;
}

/* Is there a socket at this end of the way, or an end point that takes and gives by itself? */
static bool is_socket(const struct detour *d, enum detour_socket which)
{
	return which == DETOUR_INNER || !d->end;
}

/* ---- in ---- */

void relay_came(struct detour_way *w, uint32_t n, int64_t now_ns)
{
	if (w->is_shaped) {
		uint32_t piece;
		uint8_t *at = detour_back(w, &piece);
		shape_corrupt(&w->shape, at, n);
		shape_came(&w->shape, n, now_ns);
	}
	detour_put(w, n);
}

void relay_ended(struct detour_way *w, int64_t now_ns)
{
	w->has_ended = true;
	if (w->is_shaped)
		shape_ended(&w->shape, now_ns);
}

/* True: something has come in. */
static bool take_in(struct detour *d, enum detour_way_name name, int64_t now_ns)
{
	struct detour_way *w = &d->way[name];
	enum detour_socket from = source_of(name);
	uint32_t room;
	uint8_t *at = detour_back(w, &room);
	if (w->has_ended || room == 0 || !is_socket(d, from))
		return false;
	ssize_t n = sys_recv(d->socket[from], at, room, MSG_DONTWAIT);
	if (n > 0) {
		if (d->is_teed)
			cache_tee(d, name, at, (uint32_t)n, now_ns);
		relay_came(w, (uint32_t)n, now_ns);
		w->has_come = true;
		return true;
	}
	if (n == -EAGAIN || n == -EINTR)
		return false;
	/* The kernel says an error once: whoever comes after it is told an orderly end. */
	if (n < 0)
		d->has_failed[from] = true;
	relay_ended(w, now_ns);
	return true;
}

/* ---- out ---- */

/* How much of what waits may go now. */
static uint32_t allowed(struct detour *d, struct detour_way *w, int64_t now_ns, enum shape_end *end)
{
	*end = w->has_ended && w->len == 0 ? SHAPE_END : SHAPE_ON;
	if (!w->is_shaped)
		return w->len;
	struct shape_say say = shape_look(&w->shape, now_ns);
	*end = say.end;
	if (say.again_ns < d->look_at_ns)
		d->look_at_ns = say.again_ns;
	return say.pass < w->len ? (uint32_t)say.pass : w->len;
}

static void has_passed(struct detour_way *w, uint32_t n, int64_t now_ns)
{
	detour_took(w, n);
	if (w->is_shaped)
		shape_passed(&w->shape, n, now_ns);
}

/* Both sides are told an orderly end. What they still say is nobody's: it is taken in for a while, or it would reset
 * the connection, and what was said before with it. */
static void cut(struct detour *d, int64_t now_ns)
{
	for (enum detour_way_name i = DETOUR_UP; i <= DETOUR_DOWN; i++) {
		if (!d->way[i].is_passed_on && is_socket(d, sink_of(i)))
			sys_shutdown(d->socket[sink_of(i)], SHUT_WR);
		d->way[i].is_passed_on = true;
	}
	d->is_cut = true;
	d->over_at_ns = now_ns + LAST_NS;
}

/* True: something has gone. *is_reset: both sides are to meet a reset now. */
static bool pass_on(struct detour *d, enum detour_way_name name, int64_t now_ns, bool *is_reset)
{
	struct detour_way *w = &d->way[name];
	enum detour_socket to = sink_of(name);
	enum shape_end end;
	if (w->is_passed_on || !is_socket(d, to))
		return false;
	uint32_t may = allowed(d, w, now_ns, &end), piece;
	if (end == SHAPE_RESET) {
		*is_reset = true;
		return false;
	}
	const uint8_t *at = detour_front(w, &piece);
	if (may > piece)
		may = piece;
	if (may > 0) {
		ssize_t n = sys_send(d->socket[to], at, may, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0) {
			w->is_full = false;
			has_passed(w, (uint32_t)n, now_ns);
			return true;
		}
		w->is_full = n == -EAGAIN || n == -EINTR;
		if (w->is_full)
			return false;
		d->has_failed[to] = true;
		return false;
	}
	if (end != SHAPE_END)
		return false;
	if (d->has_failed[source_of(name)]) {
		*is_reset = true;
		return false;
	}
	sys_shutdown(d->socket[to], SHUT_WR);
	w->is_passed_on = true;
	/* limit_data ends a way in its midst, and with it the connection. */
	if (w->len > 0 || !w->has_ended)
		cut(d, now_ns);
	return true;
}

/* ---- both ---- */

/* One side is gone: what it sent before is passed on, the rest is not waited for. */
static enum relay_says turn_broken(struct detour *d, enum detour_way_name left, int64_t now_ns)
{
	struct detour_way *w = &d->way[left];
	enum detour_socket to = sink_of(left);
	bool is_reset = false;
	if (w->is_passed_on || d->has_failed[to] || !is_socket(d, to))
		return RELAY_IS_RESET;
	while (take_in(d, left, now_ns) || pass_on(d, left, now_ns, &is_reset))
		;
	return is_reset || d->has_failed[to] || w->is_passed_on ? RELAY_IS_RESET : RELAY_GOES_ON;
}

static bool turn_end_point(struct detour *d, int64_t now_ns)
{
	bool is_well = true;
	struct detour_way *up = &d->way[DETOUR_UP];
	if (!d->end)
		return true;
	if (d->way[DETOUR_DOWN].has_ended) {
		/* What lies unread when a socket is closed resets the connection, and the answer with it. */
		has_passed(up, up->len, now_ns);
		if (d->over_at_ns == 0)
			d->over_at_ns = now_ns + LAST_NS;
		if (d->over_at_ns < d->look_at_ns)
			d->look_at_ns = d->over_at_ns;
		return true;
	}
	int64_t again = d->end->turn(d, now_ns, &is_well);
	if (again < d->look_at_ns)
		d->look_at_ns = again;
	return is_well;
}

static void lift(struct detour *d, int64_t now_ns)
{
	atomic_store(&d->lifted, 0);
	for (int i = 0; i < 2; i++)
		if (d->way[i].is_shaped)
			shape_lift(&d->way[i].shape, now_ns);
}

static enum relay_says turn_cut(struct detour *d, int64_t now_ns)
{
	bool has_ended = true;
	for (enum detour_way_name i = DETOUR_UP; i <= DETOUR_DOWN; i++) {
		struct detour_way *w = &d->way[i];
		for (int turns = 0; turns < TURNS && take_in(d, i, now_ns); turns++)
			detour_took(w, w->len);
		has_ended &= w->has_ended || !is_socket(d, source_of(i));
	}
	d->look_at_ns = d->over_at_ns;
	return has_ended || now_ns >= d->over_at_ns ? RELAY_IS_OVER : RELAY_GOES_ON;
}

static bool is_up_over(const struct detour *d, int64_t now_ns)
{
	const struct detour_way *up = &d->way[DETOUR_UP];
	return d->end ? up->has_ended || now_ns >= d->over_at_ns : up->is_passed_on;
}

enum relay_says relay_turn(struct detour *d, int64_t now_ns)
{
	bool is_reset = false, moves = true;
	d->look_at_ns = SHAPE_NEVER;
	if (atomic_load_explicit(&d->lifted, memory_order_relaxed) == d->life)
		lift(d, now_ns);
	if (d->is_cut)
		return turn_cut(d, now_ns);
	for (int i = 0; i < TURNS && moves && !is_reset && !d->is_cut; i++) {
		moves = false;
		if (d->has_failed[DETOUR_UPSTREAM])
			return turn_broken(d, DETOUR_DOWN, now_ns);
		if (d->has_failed[DETOUR_INNER])
			return turn_broken(d, DETOUR_UP, now_ns);
		moves |= take_in(d, DETOUR_UP, now_ns);
		moves |= pass_on(d, DETOUR_UP, now_ns, &is_reset);
		moves |= take_in(d, DETOUR_DOWN, now_ns);
		if (!turn_end_point(d, now_ns))
			return RELAY_IS_RESET;
		moves |= pass_on(d, DETOUR_DOWN, now_ns, &is_reset);
	}
	if (is_reset)
		return RELAY_IS_RESET;
	if (d->is_cut)
		return turn_cut(d, now_ns);
	if (d->way[DETOUR_DOWN].is_passed_on && is_up_over(d, now_ns))
		return RELAY_IS_OVER;
	if (moves)
		d->look_at_ns = now_ns;
	return RELAY_GOES_ON;
}

uint32_t relay_events(const struct detour *d, enum detour_socket which)
{
	const enum detour_way_name from_it = which == DETOUR_INNER ? DETOUR_UP : DETOUR_DOWN;
	const struct detour_way *in = &d->way[from_it];
	const struct detour_way *out = &d->way[which == DETOUR_INNER ? DETOUR_DOWN : DETOUR_UP];
	uint32_t events = 0;
	if (which == DETOUR_UPSTREAM && d->end)
		return EPOLLOUT; /* it is being connected (onward.h) */
	/* What nobody is left to take is not read, and would be told for as long as the rest of the other way takes. */
	if (!in->has_ended && in->len < DETOUR_ROOM && !d->has_failed[sink_of(from_it)])
		events |= EPOLLIN;
	if (out->is_full && !out->is_passed_on)
		events |= EPOLLOUT;
	return events;
}

bool relay_flush(struct detour *d, int64_t now_ns)
{
	struct detour_way *up = &d->way[DETOUR_UP];
	up->is_shaped = false;
	relay_turn(d, now_ns);
	if (d->end == &cache_end)
		return true; /* which takes a request once its head is whole */
	int64_t more_until = d->end == &spool_end && !up->has_ended && !d->is_cut ? spool_expects_until(d) : 0;
	if (more_until > now_ns && more_until < d->look_at_ns)
		d->look_at_ns = more_until;
	return up->len == 0 && more_until <= now_ns;
}
