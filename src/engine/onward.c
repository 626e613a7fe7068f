/* See onward.h. The thread of detours alone. */
#include "engine/onward.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/clock.h"
#include "base/sys.h"
#include "base/text.h"
#include "engine/detour_record.h"
#include "engine/outcome.h"

static void count(const struct onward *o, enum degraded_source source, const char *step)
{
	if (o->guard.has_circuit && guard_is_current(&o->guard))
		degraded_count(o->guard.region, o->guard.destination, source, step, o->cause);
}

void onward_served(struct detour *d)
{
	struct onward *o = &d->onward;
	if (!o->is_counted)
		count(o, DEGRADED_CACHE, o->text);
	o->is_counted = true;
	o->until_ns = 0; /* what is asked next on this connection is another call */
}

/* ---- another server ---- */

static const struct onward_place *place_of(const struct onward *o)
{
	return &o->places[o->place];
}

static void settle(struct onward *o, enum breaker_outcome outcome, enum failure_kind kind, int64_t now_ns)
{
	const struct guard *g = &place_of(o)->guard;
	if (o->token.is_admitted)
		circuit_settle(g->region, &o->token, &g->rules, outcome, kind, g->limits.trip_mask >> kind & 1, now_ns,
			outcome == BREAKER_SUCCESS ? now_ns - o->token.begun_ns : -1);
	o->token.is_admitted = false;
}

/* Its place in the bulkhead is held to the end of the connection: what is asked on it is not read. */
static void release(struct onward *o, int64_t now_ns)
{
	if (o->slot.hold)
		admission_release(&place_of(o)->guard, o->slot.hold, now_ns);
	o->slot.hold = 0;
}

static bool is_admitted(struct onward *o, int64_t now_ns)
{
	const struct guard *g = &place_of(o)->guard;
	struct admission_patience none = {.deadline_ns = INT64_MAX};
	o->token = (struct circuit_token){.lease = -1, .begun_ns = now_ns};
	o->slot = (struct admission_slot){0};
	if (!place_of(o)->is_guarded || !g->has_circuit)
		return true;
	return guard_is_current(g) &&
	       circuit_admit(g->region, g->destination, &g->rules, now_ns, &o->token) != BREAKER_REJECT &&
	       (!g->limits.bulkhead ||
		       admission_of_connect(g, &o->token, &none, now_ns, &o->slot) == ADMISSION_GRANTED);
}

static void bound(struct onward *o, int64_t limit_ns, int64_t now_ns)
{
	o->limit_ns = place_of(o)->is_guarded && limit_ns ? now_ns + limit_ns : 0;
	if (o->until_ns && (!o->limit_ns || o->until_ns < o->limit_ns))
		o->limit_ns = o->until_ns;
}

static void leave_upstream(struct detour *d)
{
	if (d->socket[DETOUR_UPSTREAM] >= 0)
		sys_close(d->socket[DETOUR_UPSTREAM]);
	d->socket[DETOUR_UPSTREAM] = -1;
	d->is_watched[DETOUR_UPSTREAM] = d->is_silent[DETOUR_UPSTREAM] = d->has_failed[DETOUR_UPSTREAM] = false;
}

/* What an errno of its connect says of it. */
static void failed(struct onward *o, int err, int64_t now_ns)
{
	enum failure_kind kind = FAILURE_REFUSED;
	bool is_its = failure_of_connect(err, true, &kind) == CONNECT_FAILED;
	settle(o, is_its ? BREAKER_FAILURE : BREAKER_NEUTRAL, kind, now_ns);
	release(o, now_ns);
}

/* Begins a connect to the place. False: it is the next one's turn. */
static bool connects(struct detour *d, int64_t now_ns)
{
	static const int on = 1;
	struct onward *o = &d->onward;
	const struct onward_place *p = place_of(o);
	bool is_v6 = p->to.sin6_family == AF_INET6;
	if (!is_admitted(o, now_ns))
		return false;
	int fd = sys_socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r = fd < 0 ? fd
		       : sys_connect(fd, (const struct sockaddr *)(const void *)&p->to,
				 is_v6 ? sizeof p->to : sizeof(struct sockaddr_in));
	d->socket[DETOUR_UPSTREAM] = fd;
	if (r != 0 && r != -EINPROGRESS) {
		failed(o, -r, now_ns);
		leave_upstream(d);
		return false;
	}
	sys_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	sys_setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
	bound(o, p->guard.limits.connect_ns, now_ns);
	return true;
}

/* The next address of the step that is tried, from o->place on. */
static bool connects_to_some(struct detour *d, int64_t now_ns)
{
	struct onward *o = &d->onward;
	for (; o->place < o->count; o->place++)
		if (place_of(o)->step + 1u == o->step && connects(d, now_ns))
			return true;
	return false;
}

static int begin(struct detour *d, int64_t now_ns)
{
	(void)now_ns;
	d->onward.place = 0;
	return connects_to_some(d, now_ns) ? 0 : ECONNREFUSED;
}

static int64_t turn(struct detour *d, int64_t now_ns, bool *is_well)
{
	(void)now_ns;
	(void)is_well;
	return d->onward.limit_ns ? d->onward.limit_ns : SHAPE_NEVER;
}

static void nothing(struct detour *d)
{
	(void)d;
}

const struct detour_end onward_end = {.begin = begin, .turn = turn, .finish = nothing, .put_away = nothing};

bool onward_look(struct detour *d, int64_t now_ns)
{
	struct onward *o = &d->onward;
	int state = outcome_tcp_state(d->socket[DETOUR_UPSTREAM]);
	bool is_late = o->limit_ns && now_ns >= o->limit_ns, is_well = true;
	/* An error may have been told of the one before, whose number this one has. */
	d->has_failed[DETOUR_UPSTREAM] = d->is_silent[DETOUR_UPSTREAM] = false;
	if (state == TCP_CLOSE || (is_late && state == TCP_SYN_SENT)) {
		int err = 0;
		socklen_t len = sizeof err;
		sys_getsockopt(d->socket[DETOUR_UPSTREAM], SOL_SOCKET, SO_ERROR, &err, &len);
		failed(o, is_late ? ETIMEDOUT : err ? err : ECONNRESET, now_ns);
		leave_upstream(d);
		o->place++;
		if (!connects_to_some(d, now_ns))
			onward_go(d, now_ns, &is_well);
		return is_well;
	}
	if (state == TCP_SYN_SENT)
		return true;
	count(o, DEGRADED_SECONDARY, o->here);
	d->end = NULL;
	d->has_begun = false;
	d->has_upstream = d->is_up = true;
	o->is_asking = true;
	bound(o, place_of(o)->guard.limits.answer_ns, now_ns);
	return true;
}

bool onward_goes_on(struct detour *d, int64_t now_ns)
{
	struct onward *o = &d->onward;
	if (d->way[DETOUR_DOWN].has_come) {
		o->is_asking = false;
		settle(o, BREAKER_SUCCESS, FAILURE_EOF, now_ns);
		return true;
	}
	if (!o->limit_ns)
		return true;
	if (now_ns < o->limit_ns) {
		d->look_at_ns = o->limit_ns < d->look_at_ns ? o->limit_ns : d->look_at_ns;
		return true;
	}
	settle(o, BREAKER_FAILURE, o->limit_ns == o->until_ns ? FAILURE_DEADLINE : FAILURE_ANSWER_TIMEOUT, now_ns);
	detour_tell_error(d->cookie, ETIMEDOUT);
	return false;
}

void onward_finish(struct detour *d)
{
	struct onward *o = &d->onward;
	bool has_come = d->way[DETOUR_DOWN].has_come, has_failed = d->has_failed[DETOUR_UPSTREAM],
	     has_ended = d->way[DETOUR_DOWN].has_ended && o->is_asking;
	int64_t now_ns = o->token.is_admitted || o->slot.hold ? clock_now_ns() : 0;
	settle(o,
		has_come		  ? BREAKER_SUCCESS
		: has_failed || has_ended ? BREAKER_FAILURE
					  : BREAKER_NEUTRAL,
		has_failed ? FAILURE_RESET : FAILURE_EOF, now_ns);
	release(o, now_ns);
}

/* ---- the chain ---- */

static const struct detour_end *const ends[DEGRADED_SOURCE_COUNT] = {
	[DEGRADED_SECONDARY] = &onward_end,
	[DEGRADED_REPLY] = &reply_end,
	[DEGRADED_SPOOL] = &spool_end,
};

bool onward_go(struct detour *d, int64_t now_ns, bool *is_well)
{
	struct onward *o = &d->onward;
	char *at = o->chain + o->at;
	struct chain_step step;
	if (o->until_ns && now_ns >= o->until_ns) {
		detour_tell_error(d->cookie, ETIMEDOUT);
		*is_well = false;
		return true;
	}
	while (chain_next(&at, &step)) {
		o->at = (unsigned)(at - o->chain);
		o->step++;
		if (step.source == DEGRADED_ERRNO) {
			count(o, step.source, step.text);
			detour_tell_error(d->cookie, step.error); /* before it is woken */
			*is_well = false;
			return true;
		}
		const struct detour_end *end = ends[step.source];
		if (!end || (step.rest && strlen(step.rest) >= sizeof d->path))
			continue; /* another cache has no more than this one */
		d->end->finish(d);
		text_copy(o->here, sizeof o->here, step.text);
		text_copy(d->path, sizeof d->path, step.rest ? step.rest : "");
		if (step.source == DEGRADED_SPOOL)
			sys_mkdir(d->path, 0700);
		d->end = end;
		if (end->begin(d, now_ns) != 0)
			continue;
		if (end != &onward_end)
			count(o, step.source, step.text);
		return true;
	}
	if (d->end == &cache_end)
		return false;
	/* Nothing can be had: the cache says what it says without a chain. */
	d->end->finish(d);
	d->end = &cache_end;
	*is_well = cache_end.begin(d, now_ns) == 0;
	return true;
}
