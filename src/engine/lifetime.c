/* See lifetime.h. Called by the hooks on any thread, by the fork handlers and at exit. */
#include "engine/lifetime.h"

#include <errno.h>

#include "base/clock.h"
#include "engine/asked.h"
#include "engine/call.h"
#include "engine/deadline.h"
#include "engine/detour.h"
#include "engine/fault.h"
#include "engine/flow.h"
#include "engine/guest.h"
#include "engine/outcome.h"
#include "engine/process.h"
#include "engine/service.h"

/* Another number leads to the same pending socket: the call stays with it, or goes over to it. False: there is none. */
static bool hand_over(struct slot *s, uint64_t word, int fd)
{
	uint64_t cookie = atomic_load(&s->cookie);
	for (int other = 0; cookie && other <= slot_highest(); other++) {
		struct slot *o = slot_at(other);
		uint64_t its = slot_word(o);
		if (other == fd || slot_state_of(its) != SLOT_CONNECTING || atomic_load(&o->cookie) != cookie)
			continue;
		bool has_own = slot_peek_call(o, its) != CALL_NONE;
		uint32_t call = outcome_finish(s, word, SLOT_FREE);
		if (call == CALL_NONE || has_own)
			return true;
		slot_put_call(o, its, call);
		/* It may have ended between the look and the store: then nobody takes the call but us. */
		if (slot_word(o) != its && slot_take_call(o, its) == call)
			call_attempt_dropped(call, clock_now_ns());
		return true;
	}
	return false;
}

static inline void uncount(struct slot *s)
{
	if (!(atomic_fetch_and(&s->traits, ~(uint32_t)TRAIT_COUNTED) & TRAIT_COUNTED))
		return;
	struct region *r = guest_region_now();
	int32_t me = r ? __atomic_load_n(&r->me, __ATOMIC_RELAXED) : -1; /* may leave meanwhile */
	if (me >= 0 && atomic_load(&r->members[me].connections) > 0)
		atomic_fetch_sub_explicit(&r->members[me].connections, 1, memory_order_relaxed);
}

/* The end of a connection that no hook has seen used, and of its call. */
static inline __attribute__((always_inline)) void unused_closing(struct slot *s, uint64_t word, int fd)
{
	uint32_t call = slot_take_call(s, word);
	if (__builtin_expect(call == SLOT_NO_CALL, 0))
		return;
	bool is_used = flow_is_used_unseen(s, fd);
	if (__builtin_expect(is_used || !call_is_short(call) || !call_end_short(call), 0))
		flow_unused_ends(s, call, fd, is_used);
}

static __attribute__((noinline)) void closing_otherwise(struct slot *s, int fd);

void lifetime_closing(int fd)
{
	struct slot *s = slot_at(fd);
	if (!s)
		return;
	uint64_t word = slot_word(s);
	if (slot_state_of(word) == SLOT_FREE)
		return;
	process_check();
	word = slot_word(s);
	bool is_detoured = atomic_load_explicit(&detour_any, memory_order_relaxed);
	if (slot_state_of(word) != SLOT_OPEN || __builtin_expect(is_detoured, 0)) {
		closing_otherwise(s, fd);
		return;
	}
	/* Nothing here touches errno. */
	unused_closing(s, word, fd);
	uncount(s);
	slot_end(s);
	deadline_let_pass(fd);
}

static void closing_otherwise(struct slot *s, int fd)
{
	int saved = errno;
	detour_closing(fd);
	uint64_t word = slot_word(s);
	if (slot_state_of(word) == SLOT_CONNECTING) {
		bool has_twin = atomic_load(&s->traits) & TRAIT_TWIN;
		if (!has_twin || !hand_over(s, word, fd))
			outcome_hung_up(s, word, fd, SLOT_FREE, clock_now_ns());
		word = slot_word(s); /* it may have been connected all the while */
	}
	if (slot_state_of(word) != SLOT_CONNECTING)
		flow_closing(s, word, fd, clock_now_ns());
	uncount(s);
	slot_end(s);
	deadline_let_pass(fd);
	errno = saved;
}

void lifetime_cancelled(int fd)
{
	struct slot *s = slot_at(fd);
	if (!s)
		return;
	uint64_t word = slot_word(s);
	if (slot_state_of(word) == SLOT_FREE || slot_state_of(word) == SLOT_SOCKET)
		return;
	int saved = errno;
	int64_t begun = atomic_load(&s->begun_ns), now = clock_now_ns();
	uint32_t call, endpoint = atomic_load(&s->endpoint);
	if (slot_state_of(word) != SLOT_CONNECTING)
		flow_closing(s, word, -1, now);
	outcome_finish_socket(s, word, SLOT_SOCKET, &call);
	if (call != CALL_NONE)
		call_attempt_abandoned(call, endpoint, begun, now);
	uncount(s);
	slot_begin_again(fd);
	errno = saved;
}

void lifetime_dupped(int from, int to)
{
	struct slot *a = slot_at(from), *b = slot_at(to);
	if (!a || !b || a == b)
		return;
	uint64_t word = slot_word(a);
	if (slot_state_of(word) == SLOT_FREE || slot_state_of(word) == SLOT_STARTING)
		return;
	if (slot_state_of(word) == SLOT_OPEN)
		word = flow_start(a, word);
	slot_begin(to, true, atomic_load(&a->traits) & ~(uint32_t)TRAIT_COUNTED);
	detour_dupped(from, to);
	fault_share(from, to);
	asked_dupped(from, to);
	atomic_store(&b->send_timeout_us, atomic_load(&a->send_timeout_us));
	atomic_store(&b->begun_ns, atomic_load(&a->begun_ns));
	atomic_store(&b->deadline_ns, atomic_load(&a->deadline_ns));
	atomic_store(&b->endpoint, atomic_load(&a->endpoint));
	if (slot_state_of(word) == SLOT_SOCKET)
		return;
	if (slot_state_of(word) == SLOT_FLOWING || slot_state_of(word) == SLOT_CONNECTED) {
		uint64_t its = slot_word(b);
		if (slot_change(b, its, SLOT_CONNECTED, false))
			flow_share(a, word, b, (its & ~0xffULL) | SLOT_CONNECTED);
		return;
	}
	if (!atomic_load(&a->cookie))
		atomic_store(&a->cookie, slot_read_cookie(from));
	atomic_store(&b->cookie, atomic_load(&a->cookie));
	if (slot_state_of(word) == SLOT_CONNECTING) {
		atomic_fetch_or(&a->traits, TRAIT_TWIN);
		atomic_fetch_or(&b->traits, TRAIT_TWIN);
	}
	slot_change(b, slot_word(b), slot_state_of(word), false);
	if (slot_state_of(word) == SLOT_CONNECTING && atomic_load(&b->deadline_ns))
		service_bound(to, atomic_load(&b->deadline_ns));
}

void lifetime_exiting(void)
{
	int64_t now = clock_now_ns();
	for (int fd = 0; (call_live_count() > 0 || admission_held() > 0) && fd <= slot_highest(); fd++) {
		struct slot *s = slot_at(fd);
		uint64_t word = slot_word(s);
		if (slot_state_of(word) == SLOT_CONNECTING && slot_peek_call(s, word) != CALL_NONE)
			outcome_hung_up(s, word, fd, SLOT_FREE, now);
		word = slot_word(s);
		if (slot_state_of(word) == SLOT_OPEN || slot_state_of(word) == SLOT_FLOWING ||
			slot_state_of(word) == SLOT_CONNECTED)
			flow_closing(s, word, fd, now);
		/* Should exec fail, it has no call any more that a flow could be made of. */
		if (slot_state_of(word) == SLOT_OPEN)
			slot_change(s, word, SLOT_CONNECTED, false);
	}
	call_declare(true, now);
}

void lifetime_forked(void)
{
	for (int fd = 0; fd <= slot_highest(); fd++) {
		struct slot *s = slot_at(fd);
		if (slot_state_of(slot_word(s)) == SLOT_OPEN)
			flow_start_inherited(s, slot_word(s));
		if (slot_state_of(slot_word(s)) == SLOT_CONNECTING) {
			atomic_store(&s->call, 0);
			atomic_fetch_or(&s->traits, TRAIT_INHERITED); /* a handler may return into it */
		} else {
			flow_forked(s);
		}
		/* Another thread of the parent's stood in the middle of a connect. */
		if (slot_state_of(slot_word(s)) == SLOT_STARTING) {
			atomic_store(&s->call, 0);
			slot_change(s, slot_word(s), SLOT_SOCKET, false);
		}
		atomic_fetch_and(&s->traits, ~(uint32_t)TRAIT_COUNTED);
		if (slot_state_of(slot_word(s)) == SLOT_CONNECTING && atomic_load(&s->cookie) &&
			atomic_load(&s->deadline_ns))
			deadline_arm(fd, atomic_load(&s->deadline_ns));
		else if (slot_state_of(slot_word(s)) == SLOT_FLOWING)
			deadline_arm(fd, flow_due_of(s));
	}
}
