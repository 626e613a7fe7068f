/* See everyday.h. Called by the connect hook on any thread.
 *
 * The steps and their order are those of connect.c, which says why; here is what is left of them where the guard is
 * kept: one call of one attempt, not yet written out (call.h), that no bulkhead, deadline or fallback knows of. */
#include "engine/everyday.h"

#include <errno.h>
#include <sys/time.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/hot.h"
#include "base/real.h"
#include "base/sys.h"
#include "core/circuit.h"
#include "engine/ambient.h"
#include "engine/blocking.h"
#include "engine/call.h"
#include "engine/connect.h"
#include "engine/detour.h"
#include "engine/guard.h"
#include "engine/guest.h"
#include "engine/outcome.h"
#include "engine/process.h"
#include "engine/service.h"
#include "engine/slot.h"

/* Is there anything that asks more of a connect than its own guard? */
static inline bool is_more_asked(void)
{
#ifdef RESIL_TEST_DETOUR
	return true; /* connect.c has them */
#else
	return ambient_ns() || atomic_load_explicit(&call_live_groups, memory_order_relaxed) ||
	       call_send_was_rejected || atomic_load_explicit(&detour_any, memory_order_relaxed) ||
	       guest_is_restricted();
#endif
}

/* The circuit is not closed, or a run of rejections ends. */
static __attribute__((noinline)) int connect_if_admitted(
	const struct guard *g, struct slot *s, int fd, const struct sockaddr *to, socklen_t len, int64_t now_ns)
{
	struct circuit_token token;
	if (circuit_admit(g->region, g->destination, &g->rules, now_ns, &token) != BREAKER_REJECT)
		return connect_admitted(s, fd, to, len, g, &token, now_ns);
	errno = g->reject_errno;
	return -1;
}

/* A blocking connect within its limit, on a socket without a SO_SNDTIMEO of its own: blocking.h, without its divisions.
 */
static inline __attribute__((always_inline)) int connect_bounded(const struct guard_kept *k, struct slot *s,
	uint64_t word, int fd, const struct sockaddr *to, socklen_t len, int64_t now_ns)
{
	int saved = errno;
	atomic_fetch_or_explicit(&s->traits, TRAIT_BOUNDED, memory_order_relaxed);
	sys_setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &k->piece, sizeof(struct timeval));
	int r = real.connect(fd, to, len);
	if (__builtin_expect(r == 0 && slot_word(s) == word &&
				     atomic_load_explicit(&s->send_timeout_us, memory_order_relaxed) == 0,
		    1)) {
		static const struct timeval none;
		sys_setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
	} else {
		r = blocking_go_on(fd, to, len, now_ns, now_ns + k->guard.limits.connect_ns, s, word, r, saved);
	}
	atomic_fetch_and_explicit(&s->traits, ~(uint32_t)TRAIT_BOUNDED, memory_order_relaxed);
	return r;
}
_Static_assert(sizeof((struct guard_kept *)0)->piece == sizeof(struct timeval), "64 bits each");

/* The same where the socket has one. */
static __attribute__((noinline)) int connect_bounded_twice(const struct guard *g, struct slot *s, uint64_t word, int fd,
	const struct sockaddr *to, socklen_t len, int64_t now_ns)
{
	atomic_fetch_or_explicit(&s->traits, TRAIT_BOUNDED, memory_order_relaxed);
	int r = blocking_connect(fd, to, len, now_ns, now_ns + g->limits.connect_ns, s, word);
	atomic_fetch_and_explicit(&s->traits, ~(uint32_t)TRAIT_BOUNDED, memory_order_relaxed);
	return r;
}

/* By how much the call's look-up goes before its connect. */
static __attribute__((noinline)) uint32_t looked_up_ahead_us(const struct guard *g, int64_t now_ns)
{
	int64_t us = (now_ns - call_would_begin_ns(g, now_ns)) / 1000;
	return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

/* Another thread has the descriptor. */
static __attribute__((noinline, cold)) int connect_of_another(
	uint32_t call, int fd, const struct sockaddr *to, socklen_t len, int64_t now_ns)
{
	call_attempt_dropped(call, now_ns);
	return real.connect(fd, to, len);
}

HOT_FRAME int everyday_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	struct addr a;
	process_check();
	struct slot *s = slot_at(fd);
	if (__builtin_expect(!s || is_more_asked() || !addr_from_sockaddr(&a, to, len), 0))
		return connect_guarded(fd, to, len);
	uint64_t word = slot_word(s);
	uint32_t traits = atomic_load_explicit(&s->traits, memory_order_relaxed);
	if (__builtin_expect(slot_state_of(word) != SLOT_SOCKET || (traits & ~(uint32_t)TRAIT_NONBLOCKING), 0))
		return connect_guarded(fd, to, len);
	int64_t now = clock_now_ns();
	uint32_t kept = guard_find_kept(&a, now);
	const struct guard_kept *k = guard_kept(kept);
	const struct guard *g = &k->guard;
	uint16_t generation;
	if (__builtin_expect(!kept, 0))
		return connect_guarded_since(fd, to, len, now);
	if (__builtin_expect(!circuit_admit_plain(g->region, g->destination, now, &generation), 0))
		return connect_if_admitted(g, s, fd, to, len, now);
	uint32_t call = call_begin_short(kept, generation), ahead_us = 0;
	if (__builtin_expect(guard_has_learnt_name(g), 0))
		ahead_us = looked_up_ahead_us(g, now);
	if (__builtin_expect(!slot_change(s, word, SLOT_STARTING, true), 0))
		return connect_of_another(call, fd, to, len, now);
	word = (word & ~0xffULL) + (1ULL << 32) + SLOT_STARTING;
	int64_t limit = g->limits.connect_ns;
	atomic_store_explicit(&s->begun_ns, now, memory_order_relaxed);
	atomic_store_explicit(&s->deadline_ns, limit ? now + limit : 0, memory_order_relaxed);
	atomic_store_explicit(&s->cookie, 0, memory_order_relaxed);
	atomic_store_explicit(&s->endpoint, ahead_us, memory_order_relaxed);
	slot_put_call(s, word, call);
	if (__builtin_expect(!slot_change(s, word, SLOT_CONNECTING, false), 0)) {
		slot_take_call(s, word);
		return connect_of_another(call, fd, to, len, now);
	}
	word = (word & ~0xffULL) + SLOT_CONNECTING;
	guest_look_again(now);
	service_follow(g->region, now);
	int r;
	if ((traits & TRAIT_NONBLOCKING) || !limit)
		r = real.connect(fd, to, len);
	else if (__builtin_expect(atomic_load_explicit(&s->send_timeout_us, memory_order_relaxed) == 0, 1))
		r = connect_bounded(k, s, word, fd, to, len, now);
	else
		r = connect_bounded_twice(g, s, word, fd, to, len, now);
	uint32_t since = atomic_load_explicit(&s->traits, memory_order_relaxed);
	if (__builtin_expect(r == 0 && !(since & (TRAIT_TWIN | TRAIT_EARLY | TRAIT_INHERITED)), 1)) {
		outcome_opened(s, word, clock_now_ns());
		return 0;
	}
	return connect_settle(s, word, fd, r, to, len, now, limit);
}
