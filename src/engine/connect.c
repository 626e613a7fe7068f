/* See connect.h. Called by the hooks on any thread. */
#include "engine/connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/real.h"
#include "base/sys.h"
#include "core/circuit.h"
#include "engine/admission.h"
#include "engine/ambient.h"
#include "engine/blocking.h"
#include "engine/cache.h"
#include "engine/call.h"
#include "engine/detour.h"
#include "engine/fallback.h"
#include "engine/fault.h"
#include "engine/guard.h"
#include "engine/guest.h"
#include "engine/lifetime.h"
#include "engine/outcome.h"
#include "engine/process.h"
#include "engine/service.h"
#include "policy/ambient.h"

/* ---- what a socket is, where socket() was not seen ---- */

static int option(int fd, int name)
{
	int value = 0;
	socklen_t len = sizeof value;
	int r = sys_getsockopt(fd, SOL_SOCKET, name, &value, &len);
	return r < 0 ? r : value;
}

/* Inherited, received, or from a raw system call: look, once. False: nothing that we guard. */
static bool adopt(struct slot *s, int fd, const struct addr *a)
{
	if (option(fd, SO_TYPE) != SOCK_STREAM || option(fd, SO_ACCEPTCONN) != 0)
		return false;
	int protocol = option(fd, SO_PROTOCOL);
	bool is_unix = a->family == ADDR_UNIX;
	if (!is_unix && protocol != IPPROTO_TCP && protocol != 262 /* IPPROTO_MPTCP */)
		return false;
	int flags = sys_fcntl(fd, F_GETFL, 0);
	struct timeval tv = {0};
	socklen_t len = sizeof tv;
	sys_getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, &len);
	slot_begin(fd, true, (is_unix ? TRAIT_UNIX : 0u) | (flags > 0 && flags & O_NONBLOCK ? TRAIT_NONBLOCKING : 0u));
	atomic_store(&s->send_timeout_us, slot_timeout_us(&tv));
	return true;
}

/* ---- a new connect ---- */

/* What a connect that is let through carries from admission to its first outcome. guard, begun_ns: also of one that is
 * not. */
struct attempt {
	struct guard guard;
	struct slot *slot;
	uint64_t word; /* CONNECTING, this life */
	int64_t begun_ns;
	int64_t limit_ns;      /* 0: none */
	int64_t call_begun_ns; /* where there is a fallback, */
	int found_errno;       /* and what errno was before */
	bool is_nonblocking;
	bool is_refused; /* by the breaker, and a fallback may stand in */
};

static inline __attribute__((always_inline)) bool is_rejected(
	const struct guard *g, int64_t now_ns, struct circuit_token *token)
{
	if (__builtin_expect(g->is_group || call_send_was_rejected, 0) &&
		circuit_is_open(g->region, g->destination, &g->rules, now_ns) && call_is_rejected_again(g, now_ns))
		return true;
	if (circuit_admit(g->region, g->destination, &g->rules, now_ns, token) != BREAKER_REJECT)
		return false;
	if (g->is_group)
		call_was_rejected(g, now_ns);
	return true;
}

/* What is left for this connect: its own limit, of the call's deadline, and of the ambient one (C2, C3). At least a
 * microsecond: one that has passed ends it at once, and as a limit. */
static inline __attribute__((always_inline)) int64_t limit_of(
	const struct guard *g, uint32_t call, uint32_t traits, int64_t now_ns)
{
	const struct guard_limits *l = &g->limits;
	int64_t limit = traits & TRAIT_UNIX ? 0 : l->connect_ns;
	int64_t until = l->deadline_ns ? call_begun_ns(call) + l->deadline_ns : INT64_MAX, ambient = ambient_ns();
	if (ambient && ambient < until)
		until = ambient;
	if (until == INT64_MAX)
		return limit;
	int64_t left = until - now_ns > 1000 ? until - now_ns : 1000;
	return limit && limit < left ? limit : left;
}

/* Options that the policy asks for, where the app has set none (CONTRACT `keepalive`, `tcp_user_timeout`). True: set.
 */
static bool set_if_unset(int fd, int level, int name, int value)
{
	int now = 0;
	socklen_t len = sizeof now;
	return sys_getsockopt(fd, level, name, &now, &len) == 0 && now == 0 &&
	       sys_setsockopt(fd, level, name, &value, sizeof value) == 0;
}

static __attribute__((noinline)) void tune(int fd, const struct guard *g)
{
	int idle = g->limits.keepalive_s;
	if (guest_is_restricted())
		return;
	if (idle && set_if_unset(fd, SOL_SOCKET, SO_KEEPALIVE, 1))
		sys_setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	if (g->user_timeout_ms)
		set_if_unset(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)g->user_timeout_ms);
}

/* The call is not to be: errno, unless something stands in. call_begun_ns 0: not asked yet. */
static inline enum connect_begun refuse(struct attempt *at, int64_t call_begun_ns)
{
	const struct guard *g = &at->guard;
	if (__builtin_expect(g->has_fallback, 0)) {
		at->is_refused = true;
		at->call_begun_ns = call_begun_ns ? call_begun_ns : call_would_begin_ns(g, at->begun_ns);
		at->found_errno = errno;
	}
	errno = g->reject_errno;
	return CONNECT_REJECTED;
}

/* A handler has ended the wait, and nothing is under way, though many who are told EINTR wait for the outcome then: a
 * socket that was never connected is writable and has no error. So it has one: ours. A further connect begins anew. */
static void tell_interrupted(struct slot *s, uint64_t word, int fd)
{
	atomic_store(&s->cookie, slot_read_cookie(fd));
	atomic_fetch_or(&s->traits, TRAIT_TOLD);
	slot_change(s, word, SLOT_EXPIRED, true);
	errno = EINTR;
}

/* The bulkhead, behind the circuit: TRACKED with a slot and the call that has it (CALL_NONE: there is none to be had),
 * or REJECTED and errno. at->begun_ns moves on with a wait. */
static __attribute__((noinline)) enum connect_begun begin_bounded(
	struct slot *s, int fd, struct attempt *at, struct circuit_token *token, uint32_t *call)
{
	const struct guard *g = &at->guard;
	int64_t *now_ns = &at->begun_ns;
	uint64_t word = slot_word(s);
	bool is_blocking = !(atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_NONBLOCKING);
	int64_t begun_ns = call_would_begin_ns(g, *now_ns);
	struct admission_patience patience = admission_patience(
		g, is_blocking, begun_ns, atomic_load_explicit(&s->send_timeout_us, memory_order_relaxed), *now_ns);
	struct admission_slot slot = {0};
	switch (admission_of_connect(g, token, &patience, *now_ns, &slot)) {
	case ADMISSION_GRANTED: break;
	case ADMISSION_LATE: errno = ETIMEDOUT; return CONNECT_REJECTED;
	case ADMISSION_INTERRUPTED: tell_interrupted(s, word, fd); return CONNECT_REJECTED;
	default: return refuse(at, begun_ns);
	}
	*now_ns = slot.held_ns;
	bool is_closed = slot.waited_ns && slot_word(s) != word; /* by another thread, while we waited */
	*call = is_closed ? CALL_NONE : call_begin_since(g, token, begun_ns, *now_ns);
	if (*call != CALL_NONE) {
		call_put_slot(*call, &slot);
		return CONNECT_TRACKED;
	}
	admission_release(g, slot.hold, *now_ns);
	if (!is_closed)
		return CONNECT_TRACKED;
	errno = EBADF;
	circuit_settle(g->region, token, &g->rules, BREAKER_NEUTRAL, 0, false, *now_ns, -1);
	return CONNECT_REJECTED;
}

/* at->guard, at->begun_ns: found by the caller. admitted: by its circuit already; null: it is to be asked. */
static inline __attribute__((always_inline)) enum connect_begun begin_guarded_here(
	struct slot *s, int fd, struct attempt *at, const struct circuit_token *admitted)
{
	const struct guard *g = &at->guard;
	int64_t now = at->begun_ns;
	at->is_refused = false;
	if (ambient_has_passed(now)) {
		errno = ETIMEDOUT; /* nothing reaches the network (C4) */
		return CONNECT_REJECTED;
	}
	uint32_t call = call_ride(g, now);
	if (call == CALL_NONE) {
		struct circuit_token token = {.lease = -1, .begun_ns = now};
		if (admitted)
			token = *admitted;
		else if (g->has_circuit && is_rejected(g, now, &token))
			return refuse(at, 0);
		if (__builtin_expect(g->limits.bulkhead == 0, 1))
			call = call_begin(g, &token, now);
		else if (begin_bounded(s, fd, at, &token, &call) != CONNECT_TRACKED)
			return CONNECT_REJECTED;
		now = at->begun_ns;
		if (call == CALL_NONE) {
			if (g->has_circuit)
				circuit_settle(g->region, &token, &g->rules, BREAKER_NEUTRAL, 0, false, now, -1);
			return CONNECT_PASSES;
		}
	}
	uint64_t word = slot_word(s);
	if (slot_state_of(word) != SLOT_SOCKET || !slot_change(s, word, SLOT_STARTING, true)) {
		/* Another thread connects the same descriptor: the slot is its. */
		call_attempt_dropped(call, now);
		return CONNECT_PASSES;
	}
	word = (word & ~0xffULL) + (1ULL << 32) + SLOT_STARTING;
	uint32_t traits = atomic_load_explicit(&s->traits, memory_order_relaxed);
	at->slot = s;
	at->is_nonblocking = traits & TRAIT_NONBLOCKING;
	at->limit_ns = limit_of(g, call, traits, now);
	if (__builtin_expect(g->has_fallback, 0)) {
		at->call_begun_ns = call_begun_ns(call);
		at->found_errno = errno;
	}
	atomic_store_explicit(&s->begun_ns, now, memory_order_relaxed);
	atomic_store_explicit(&s->deadline_ns, at->limit_ns ? now + at->limit_ns : 0, memory_order_relaxed);
	atomic_store_explicit(&s->cookie, 0, memory_order_relaxed);
	atomic_store_explicit(&s->endpoint, g->endpoint, memory_order_relaxed);
	const uint32_t past = TRAIT_TOLD | TRAIT_TWIN | TRAIT_INHERITED; /* of a connect before */
	if (traits & past)
		atomic_fetch_and_explicit(&s->traits, ~past, memory_order_relaxed);
	slot_put_call(s, word, call);
	/* Before the system call: another thread's event loop may see the outcome first. */
	if (!slot_change(s, word, SLOT_CONNECTING, false)) {
		/* Closed meanwhile by another thread. */
		slot_take_call(s, word);
		call_attempt_dropped(call, now);
		return CONNECT_PASSES;
	}
	at->word = (word & ~0xffULL) + SLOT_CONNECTING;
	if (__builtin_expect((g->limits.keepalive_s | g->user_timeout_ms) && !(traits & TRAIT_UNIX), 0))
		tune(fd, g);
	guest_look_again(now);
	service_follow(g->region, now);
	return CONNECT_TRACKED;
}

static inline __attribute__((always_inline)) enum connect_begun begin_here(
	struct slot *s, int fd, const struct addr *a, struct attempt *at, int64_t now_ns)
{
	at->begun_ns = now_ns;
	at->is_refused = false;
	detour_closing(fd); /* a former connect of this socket */
	return guard_find(a, at->begun_ns, &at->guard) ? begin_guarded_here(s, fd, at, NULL) : CONNECT_PASSES;
}

/* The same for those who are not in everybody's way. */
static __attribute__((noinline)) enum connect_begun begin_guarded(
	struct slot *s, int fd, struct attempt *at, const struct circuit_token *admitted)
{
	return begin_guarded_here(s, fd, at, admitted);
}
static __attribute__((noinline)) enum connect_begun begin(
	struct slot *s, int fd, const struct addr *a, struct attempt *at)
{
	return begin_here(s, fd, a, at, clock_now_ns());
}

static __attribute__((noinline)) bool settle_first_otherwise(struct slot *s, uint64_t word, int fd, int r, int err,
	const struct sockaddr *to, socklen_t len, int64_t begun_ns, int64_t limit_ns);

/* The first outcome: r and err of connect. True: the call is over, its destination was not to be had. */
static inline bool settle_first(
	const struct attempt *at, int fd, int r, int err, const struct sockaddr *to, socklen_t len)
{
	struct slot *s = at->slot;
	if (__builtin_expect(r == 0 && !(atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_EARLY), 1)) {
		outcome_succeeded(s, at->word, fd, clock_now_ns());
		return false;
	}
	return settle_first_otherwise(s, at->word, fd, r, err, to, len, at->begun_ns, at->limit_ns);
}

static bool settle_first_otherwise(struct slot *s, uint64_t word, int fd, int r, int err, const struct sockaddr *to,
	socklen_t len, int64_t begun_ns, int64_t limit_ns)
{
	uint32_t call = err == ETIMEDOUT ? slot_peek_call(s, word) : CALL_NONE;
	if (call != CALL_NONE && limit_ns && clock_now_ns() - begun_ns >= limit_ns)
		call_tell_deadline(call, "connect", limit_ns);
	if (r == 0) {
		if (outcome_is_connected(fd))
			outcome_succeeded(s, word, fd, clock_now_ns());
		return false; /* TCP_FASTOPEN_CONNECT: the first write sends the SYN; its limit begins there */
	}
	switch (err) {
	case EINPROGRESS:
	case EINTR: outcome_leave_pending(s, word, fd); return false;
	case EISCONN:
	case EALREADY:
		outcome_forget(s, word, begun_ns); /* connected or connecting since before we looked */
		return false;
	default: return outcome_failed(s, word, err, to, len, clock_now_ns());
	}
}

/* A second connect on a pending one: how ruby, redis-cli and haproxy learn the outcome. */
static int connect_again(struct slot *s, uint64_t word, int fd, const struct sockaddr *to, socklen_t len)
{
	outcome_keep(s, fd);
	/* A detour whose upstream has failed has left the socket free: asked, the kernel would connect it anew. */
	int said = detour_error(fd, ECONNRESET);
	bool has_failed = said != ECONNRESET;
	int r = has_failed ? -1 : real.connect(fd, to, len);
	int err = has_failed ? said : r < 0 ? errno : 0;
	int64_t now = clock_now_ns();
	if (r < 0 && outcome_was_ended_elsewhere(s, err, now))
		outcome_expired_elsewhere(s, word, now);
	if (slot_state_of(slot_word(s)) == SLOT_EXPIRED && r < 0 && slot_is_same(s, fd)) {
		atomic_fetch_or(&s->traits, TRAIT_TOLD);
		errno = ETIMEDOUT;
		return -1;
	}
	if (r == 0 || err == EISCONN)
		outcome_succeeded(s, word, fd, now);
	else if (err != EALREADY && err != EINPROGRESS && err != EINTR)
		outcome_failed(s, word, err, to, len, now);
	if (r < 0)
		errno = err;
	return r;
}

/* A connect on a socket that the timer ended tells the time-out once; the next one is a new connect. Returns true when
 * it was told now. */
static bool tell_expired(struct slot *s, int fd)
{
	bool is_same = slot_is_same(s, fd);
	if (is_same && !(atomic_fetch_or(&s->traits, TRAIT_TOLD) & TRAIT_TOLD)) {
		errno = ETIMEDOUT;
		return true;
	}
	if (is_same)
		slot_begin_again(fd);
	else
		slot_begin(fd, false, 0);
	return false;
}

/* Brings the slot to SOCKET when a connect may begin there; false: let it pass untouched. */
static bool prepare_other(struct slot *s, int fd, const struct addr *a, enum slot_state state);
static inline bool prepare(struct slot *s, int fd, const struct addr *a)
{
	enum slot_state state = slot_state_of(slot_word(s));
	if (__builtin_expect(state != SLOT_SOCKET, 0))
		return prepare_other(s, fd, a, state);
	bool is_unix = atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_UNIX;
	return is_unix == (a->family == ADDR_UNIX);
}

static bool prepare_other(struct slot *s, int fd, const struct addr *a, enum slot_state state)
{
	if (state == SLOT_CONNECTED || state == SLOT_OPEN || state == SLOT_FLOWING) {
		if (a->family == ADDR_INET && outcome_tcp_state(fd) != TCP_CLOSE)
			return false; /* EISCONN is the kernel's to say */
		lifetime_closing(fd); /* ended and used again, or another socket on this number */
		state = SLOT_FREE;
	}
	return state == SLOT_FREE && !guest_is_restricted() && adopt(s, fd, a);
}

/* Is it to be led to an end point of ours, and to which? */
static inline bool wants_detour(const struct attempt *at, struct detour_ask *ask)
{
#ifdef RESIL_TEST_DETOUR
	ask->limit_at_ns = !at->is_nonblocking && at->limit_ns ? at->begun_ns + at->limit_ns : 0;
	return detour_test(ask);
#else
	(void)at;
	(void)ask;
	return false;
#endif
}

/* By way of a relay that keeps the good answers (`cache(AGE)`). DETOUR_CANNOT: not here. With faults in force, which
 * stand below us, those have the connection. */
static __attribute__((noinline, cold)) int connect_teed(
	const struct attempt *at, int fd, const struct sockaddr *to, socklen_t len)
{
	struct addr a;
	char host[280] = "";
	struct text t = TEXT_ON(host);
	if (fault_is_at_connect() || !addr_from_sockaddr(&a, to, len) || a.family != ADDR_INET)
		return DETOUR_CANNOT;
	cache_destination(&t, &a);
	const struct detour_ask ask = {.kind = DETOUR_RELAY,
		.to = to,
		.len = len,
		.limit_at_ns = !at->is_nonblocking && at->limit_ns ? at->begun_ns + at->limit_ns : 0,
		.is_teed = true,
		.host = host};
	return detour_connect(fd, &ask);
}

/* The connect of a slot in CONNECTING, as the app asked or in its place. *is_over: as settle_first. */
static inline __attribute__((always_inline)) int carry_out_here(
	const struct attempt *at, int fd, const struct sockaddr *to, socklen_t len, bool *is_over)
{
	struct slot *s = at->slot;
	struct detour_ask ask = {.to = to, .len = len};
	int r = wants_detour(at, &ask) ? detour_connect(fd, &ask) : DETOUR_CANNOT;
	if (r == DETOUR_CANNOT && __builtin_expect(at->guard.has_cache, 0))
		r = connect_teed(at, fd, to, len);
	if (r != DETOUR_CANNOT) {
		/* done */
	} else if (at->is_nonblocking || !at->limit_ns || guest_is_restricted()) {
		r = real.connect(fd, to, len);
	} else {
		atomic_fetch_or_explicit(&s->traits, TRAIT_BOUNDED, memory_order_relaxed);
		r = blocking_connect(fd, to, len, at->begun_ns, at->begun_ns + at->limit_ns, s, at->word);
		atomic_fetch_and_explicit(&s->traits, ~(uint32_t)TRAIT_BOUNDED, memory_order_relaxed);
	}
	int err = r < 0 ? errno : 0;
	*is_over = settle_first(at, fd, r, err, to, len);
	if (r < 0)
		errno = err;
	return r;
}

static __attribute__((noinline)) int carry_out(
	const struct attempt *at, int fd, const struct sockaddr *to, socklen_t len, bool *is_over)
{
	return carry_out_here(at, fd, to, len, is_over);
}

/* A connect of the app's own has failed, errno says how; what the configuration has in its place. */
static __attribute__((noinline, cold)) int fall_back(const struct attempt *at, struct slot *s, int fd,
	const struct addr *a, const struct sockaddr *to, socklen_t len)
{
	enum failure_kind kind = FAILURE_UNREACHABLE;
	failure_of_connect(errno, true, &kind);
	struct fallback_ask ask = {.fd = fd,
		.slot = s,
		.life = at->is_refused ? slot_word(s) >> 32 : at->word >> 32,
		.asked = a,
		.to = to,
		.len = len,
		.guard = &at->guard,
		.error = errno,
		.found_errno = at->found_errno,
		.cause = at->is_refused ? "rejected" : failure_name(kind),
		.is_refused = at->is_refused};
	int64_t deadline = at->guard.limits.deadline_ns;
	ask.until_ns = ambient_earlier(deadline ? at->call_begun_ns + deadline : 0, ambient_ns());
	return fallback_connect(&ask);
}

int connect_settle(struct slot *s, uint64_t word, int fd, int r, const struct sockaddr *to, socklen_t len,
	int64_t begun_ns, int64_t limit_ns)
{
	int err = r < 0 ? errno : 0;
	if (__builtin_expect(err == EINPROGRESS, 1))
		outcome_leave_pending(s, word, fd);
	else if (r == 0 && !(atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_EARLY))
		outcome_succeeded(s, word, fd, clock_now_ns());
	else
		settle_first_otherwise(s, word, fd, r, err, to, len, begun_ns, limit_ns);
	if (r < 0)
		errno = err;
	return r;
}

int connect_guarded(int fd, const struct sockaddr *to, socklen_t len)
{
	return connect_guarded_since(fd, to, len, 0);
}

int connect_guarded_since(int fd, const struct sockaddr *to, socklen_t len, int64_t now_ns)
{
	struct addr a;
	if (!addr_from_sockaddr(&a, to, len)) {
		struct slot *pending = slot_watched(fd);
		if (pending)
			outcome_is_pending(pending, fd); /* connected meanwhile is no hang-up */
		int r = real.connect(fd, to, len);
		if (r == 0 && len >= sizeof to->sa_family && to->sa_family == AF_UNSPEC)
			lifetime_cancelled(fd);
		return r;
	}
	process_check();
	struct slot *s = slot_table_make() ? slot_at(fd) : NULL;
	if (!s)
		return real.connect(fd, to, len);
	uint64_t word = slot_word(s);
	if (slot_state_of(word) == SLOT_CONNECTING)
		return connect_again(s, word, fd, to, len);
	if (slot_state_of(word) == SLOT_EXPIRED && tell_expired(s, fd))
		return -1;
	/* Nothing on the way touches errno but a rejection: success leaves it as found. */
	struct attempt at;
	enum connect_begun begun =
		prepare(s, fd, &a) ? begin_here(s, fd, &a, &at, now_ns ? now_ns : clock_now_ns()) : CONNECT_PASSES;
	if (begun == CONNECT_REJECTED) {
		if (__builtin_expect(at.is_refused, 0))
			return fall_back(&at, s, fd, &a, to, len);
		return -1;
	}
	if (begun == CONNECT_PASSES)
		return real.connect(fd, to, len);
	bool may_fall_back = __builtin_expect(at.guard.has_fallback, 0) && !at.is_nonblocking, is_over;
	int r = carry_out_here(&at, fd, to, len, &is_over);
	return is_over && may_fall_back ? fall_back(&at, s, fd, &a, to, len) : r;
}

int connect_admitted(struct slot *s, int fd, const struct sockaddr *to, socklen_t len, const struct guard *g,
	const struct circuit_token *token, int64_t now_ns)
{
	struct attempt at = {.guard = *g, .begun_ns = now_ns};
	bool is_over;
	/* Nothing stands between its admission and its call: no other call to ride on, no bulkhead, no ambient
	 * deadline. */
	if (begin_guarded(s, fd, &at, token) != CONNECT_TRACKED)
		return real.connect(fd, to, len);
	return carry_out(&at, fd, to, len, &is_over);
}

int connect_instead(
	const struct fallback_ask *ask, const struct fallback_place *place, uint64_t *life, enum connect_begun *begun)
{
	struct attempt at = {.begun_ns = clock_now_ns()};
	detour_closing(ask->fd);
	bool is_over, is_guarded = guard_find_place(
			      &place->addr, place->name, place->number, place->count, at.begun_ns, &at.guard);
	int64_t left = ask->until_ns - at.begun_ns;
	/* It stands in for all that [defaults] covers, itself too. */
	if (addr_same_host(&place->addr, ask->asked) && place->addr.port == ask->asked->port) {
		*begun = CONNECT_REJECTED;
		return -1;
	}
	/* What is left of the call bounds it to its end (C3). */
	if (ask->until_ns && at.guard.region) {
		int64_t *deadline = &at.guard.limits.deadline_ns;
		*deadline = *deadline && *deadline < left ? *deadline : left;
		at.guard.opens_late = false;
		is_guarded = true;
	}
	*begun = is_guarded ? begin_guarded(ask->slot, ask->fd, &at, NULL) : CONNECT_PASSES;
	if (*begun == CONNECT_REJECTED)
		return -1;
	*life = slot_word(ask->slot) >> 32;
	if (*begun == CONNECT_PASSES && is_guarded) { /* another thread has the descriptor */
		errno = ask->error;
		return -1;
	}
	if (*begun == CONNECT_PASSES)
		return real.connect(ask->fd, place->to, place->len);
	*life = at.word >> 32;
	return carry_out(&at, ask->fd, place->to, place->len, &is_over);
}

/* ---- MSG_FASTOPEN: the send is the connect ---- */

enum connect_begun connect_fastopen_begin(int fd, const struct sockaddr *to, socklen_t len)
{
	struct addr a;
	int saved = errno;
	if (!addr_from_sockaddr(&a, to, len) || a.family != ADDR_INET)
		return CONNECT_PASSES;
	process_check();
	struct slot *s = slot_table_make() ? slot_at(fd) : NULL;
	if (!s || slot_state_of(slot_word(s)) == SLOT_CONNECTING)
		return CONNECT_PASSES;
	if (slot_state_of(slot_word(s)) == SLOT_EXPIRED && tell_expired(s, fd))
		return CONNECT_REJECTED;
	struct attempt at;
	enum connect_begun begun = prepare(s, fd, &a) ? begin(s, fd, &a, &at) : CONNECT_PASSES;
	if (begun == CONNECT_REJECTED)
		return begun;
	if (begun == CONNECT_TRACKED) {
		atomic_fetch_or(&s->traits, TRAIT_EARLY);
		/* A blocking send waits for the handshake inside: only the timer can bound it. */
		outcome_leave_pending(s, at.word, fd);
	}
	errno = saved;
	return begun;
}

ssize_t connect_fastopen_end(int fd, ssize_t result)
{
	struct slot *s = slot_at(fd);
	int err = errno;
	uint64_t word = s ? slot_word(s) : 0;
	if (!s)
		return result;
	if (slot_state_of(word) == SLOT_EXPIRED && result < 0 && slot_is_same(s, fd)) {
		errno = ETIMEDOUT;
		return result;
	}
	if (slot_state_of(word) != SLOT_CONNECTING)
		return result;
	if (result >= 0) {
		if (outcome_is_connected(fd))
			outcome_succeeded(s, word, fd, clock_now_ns());
	} else if (err == EISCONN) {
		outcome_forget(s, word, clock_now_ns());
	} else if (err != EINPROGRESS && err != EALREADY && err != EINTR && err != EAGAIN) {
		outcome_failed(s, word, err == EOPNOTSUPP ? EINVAL : err, NULL, 0, clock_now_ns());
	}
	errno = err;
	return result;
}
