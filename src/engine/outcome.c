/* See outcome.h. Called by the hooks on any thread, and by the timer. */
#include "engine/outcome.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "base/clock.h"
#include "base/sys.h"
#include "engine/ambient.h"
#include "engine/blocking.h"
#include "engine/call.h"
#include "engine/detour.h"
#include "engine/flow.h"
#include "engine/guest.h"
#include "engine/process.h"
#include "engine/service.h"
#include "policy/policy.h"

/* TCP's state, TCP_CLOSE when it is no TCP socket. One system call. */
int outcome_tcp_state(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof info;
	info.tcpi_state = TCP_CLOSE;
	if (guest_is_restricted())
		return TCP_CLOSE;
	return sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_state : TCP_CLOSE;
}

static bool is_connected(int tcp_state)
{
	return tcp_state != TCP_CLOSE && tcp_state != TCP_SYN_SENT && tcp_state != TCP_SYN_RECV &&
	       tcp_state != TCP_LISTEN;
}

bool outcome_is_connected(int fd)
{
	return is_connected(outcome_tcp_state(fd));
}

uint32_t outcome_finish(struct slot *s, uint64_t word, enum slot_state to)
{
	if (slot_state_of(word) != SLOT_CONNECTING || !slot_change(s, word, to, false))
		return CALL_NONE;
	return slot_take_call(s, word);
}

bool outcome_finish_socket(struct slot *s, uint64_t word, enum slot_state to, uint32_t *call)
{
	uint64_t cookie = atomic_load(&s->cookie);
	bool has_twin = atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_TWIN;
	*call = CALL_NONE;
	if (slot_state_of(word) != SLOT_CONNECTING || !slot_change(s, word, to, false))
		return false;
	*call = slot_take_call(s, word);
	for (int other = 0; has_twin && cookie && other <= slot_highest(); other++) {
		struct slot *o = slot_at(other);
		uint64_t its = slot_word(o);
		if (slot_state_of(its) != SLOT_CONNECTING || atomic_load(&o->cookie) != cookie)
			continue;
		uint32_t its_call = outcome_finish(o, its, to);
		if (*call == CALL_NONE)
			*call = its_call;
	}
	return true;
}

/* As outcome_finish_socket: the call to tell. */
static uint32_t finish_socket(struct slot *s, uint64_t word, enum slot_state to)
{
	uint32_t call;
	outcome_finish_socket(s, word, to, &call);
	return call;
}

/* Most connections need no flow before their first octet, if that ever comes. A probe has one, which says that nothing
 * was sent yet (B7). */
static bool opens_late(struct slot *s, uint64_t word)
{
	uint32_t call = slot_peek_call(s, word);
	bool may = call != CALL_NONE && (call_is_short(call) || (call_guard(call)->opens_late && !call_is_probe(call)));
	return may && !ambient_ns() && !(atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_TWIN);
}

/* The outcome that wants a flow at once, or none. */
static __attribute__((noinline)) void succeeded_otherwise(struct slot *s, uint64_t word, int fd, int64_t now_ns)
{
	int64_t begun = atomic_load(&s->begun_ns) - atomic_load(&s->endpoint) * 1000LL; /* of a short call */
	uint32_t call = finish_socket(s, word, SLOT_CONNECTED);
	if (call == CALL_NONE)
		return;
	outcome_count_connection(s);
	flow_open(s, (word & ~0xffULL) | SLOT_CONNECTED, fd, call, call_began_at(call, begun), now_ns);
}

void outcome_succeeded(struct slot *s, uint64_t word, int fd, int64_t now_ns)
{
	if (__builtin_expect(slot_state_of(word) != SLOT_CONNECTING, 0))
		return;
	if (__builtin_expect(opens_late(s, word), 1)) {
		outcome_opened(s, word, now_ns);
		return;
	}
	succeeded_otherwise(s, word, fd, now_ns);
}

bool outcome_is_pending(struct slot *s, int fd)
{
	uint64_t word = slot_word(s);
	if (slot_state_of(word) != SLOT_CONNECTING)
		return false;
	if (!outcome_is_connected(fd))
		return true;
	outcome_succeeded(s, word, fd, clock_now_ns());
	return false;
}

void outcome_forget(struct slot *s, uint64_t word, int64_t now_ns)
{
	uint32_t call = outcome_finish(s, word, SLOT_FREE);
	if (call != CALL_NONE)
		call_attempt_dropped(call, now_ns);
}

/* ENETUNREACH from a host without any route to there is local trouble (A6): a datagram socket's connect asks the
 * routing table and sends nothing. */
static bool has_route(const struct sockaddr *to, socklen_t len)
{
	if (!to || guest_is_restricted())
		return true; /* learnt later: the network said it */
	int probe = sys_socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (probe < 0)
		return true;
	int r = sys_connect(probe, to, len);
	sys_close(probe);
	return r != -ENETUNREACH;
}

/* Is it past the limit that it was armed with? */
static bool has_passed(const struct slot *s, int64_t now_ns)
{
	int64_t at = atomic_load_explicit(&s->deadline_ns, memory_order_relaxed);
	return at != 0 && now_ns >= at && atomic_load(&s->cookie) != 0;
}

bool outcome_was_ended_elsewhere(const struct slot *s, int err, int64_t now_ns)
{
	return (err == ECONNRESET || err == EPIPE) && has_passed(s, now_ns);
}

void outcome_expired_elsewhere(struct slot *s, uint64_t word, int64_t now_ns)
{
	int64_t begun = atomic_load(&s->begun_ns);
	uint32_t endpoint = atomic_load(&s->endpoint), call = finish_socket(s, word, SLOT_EXPIRED);
	if (call != CALL_NONE)
		call_attempt_failed(call, endpoint, FAILURE_CONNECT_TIMEOUT, begun, now_ns);
}

/* The connect failed with err (positive). to: where it went, when that is still known. */
bool outcome_failed(struct slot *s, uint64_t word, int err, const struct sockaddr *to, socklen_t len, int64_t now_ns)
{
	int64_t begun = atomic_load(&s->begun_ns);
	uint32_t endpoint = atomic_load(&s->endpoint), call = finish_socket(s, word, SLOT_SOCKET);
	if (call == CALL_NONE)
		return false;
	enum failure_kind kind;
	bool routed = err != ENETUNREACH || has_route(to, len);
	if (failure_of_connect(err, routed, &kind) == CONNECT_FAILED)
		return call_attempt_failed(call, endpoint, kind, begun, now_ns);
	return call_attempt_is_local(call, now_ns) && err == ENETUNREACH;
}

/* The app lets go of a pending connect: what does the kernel know of it? */
void outcome_hung_up(struct slot *s, uint64_t word, int fd, enum slot_state to, int64_t now_ns)
{
	int state = outcome_tcp_state(fd);
	if (is_connected(state)) {
		outcome_succeeded(s, word, fd, now_ns);
		return;
	}
	int err = 0;
	socklen_t len = sizeof err;
	if (state == TCP_CLOSE && !guest_is_restricted() && sys_getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 &&
		err) {
		err = detour_error(fd, err);
		outcome_failed(s, word, outcome_was_ended_elsewhere(s, err, now_ns) ? ETIMEDOUT : err, NULL, 0, now_ns);
		return;
	}
	/* Its thread never came back from the blocking connect: cancelled (A6), or another thread closes under it. */
	bool is_cancelled = atomic_load(&s->traits) & TRAIT_BOUNDED;
	int64_t begun = atomic_load(&s->begun_ns);
	uint32_t endpoint = atomic_load(&s->endpoint), call = outcome_finish(s, word, to);
	if (call == CALL_NONE)
		return;
	if (state == TCP_CLOSE || is_cancelled)
		call_attempt_dropped(call, now_ns);
	else
		call_attempt_abandoned(call, endpoint, begun, now_ns);
}

void outcome_leave_pending(struct slot *s, uint64_t word, int fd)
{
	uint64_t cookie = atomic_load(&s->deadline_ns) && !guest_is_restricted() ? slot_read_cookie(fd) : 0;
	/* Over already, or closed by another thread and the number in use again. */
	if (!cookie || slot_word(s) != word)
		return;
	atomic_store(&s->cookie, cookie);
	service_bound(fd, atomic_load(&s->deadline_ns));
}

void outcome_keep(struct slot *s, int fd)
{
	/* A handler has jumped out of a blocking connect: what was borrowed for it goes back, and the timer bounds the
	 * rest. If another thread is in it still, it sets its piece again, and both limits are the same. */
	uint64_t word = slot_word(s);
	if (__builtin_expect(atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_BOUNDED, 0) &&
		slot_state_of(word) == SLOT_CONNECTING && !guest_is_restricted()) {
		atomic_fetch_and(&s->traits, ~(uint32_t)TRAIT_BOUNDED);
		blocking_set_timeout(fd, atomic_load(&s->send_timeout_us));
		outcome_leave_pending(s, word, fd);
	}
	service_keep_timer();
}

/* The first write on a TCP_FASTOPEN_CONNECT socket sends the SYN: the limit begins now. */
static void begin_early_limit(struct slot *s, uint64_t word, int fd)
{
	int64_t begun = atomic_load(&s->begun_ns), at = atomic_load(&s->deadline_ns);
	if (!at || atomic_load(&s->cookie))
		return;
	int64_t now = clock_now_ns();
	atomic_store(&s->begun_ns, now);
	atomic_store(&s->deadline_ns, now + (at - begun));
	outcome_leave_pending(s, word, fd);
}

/* Others wait for its outcome: it is worth a system call. */
static bool is_probe(struct slot *s, uint64_t word)
{
	uint32_t call = slot_state_of(word) == SLOT_CONNECTING ? slot_peek_call(s, word) : CALL_NONE;
	return call != CALL_NONE && call_is_probe(call);
}

/* Its call is bounded beyond the connect: the limits of what follows begin here, whoever moves the octets. */
static bool has_call_limits(struct slot *s, uint64_t word)
{
	uint32_t call = slot_state_of(word) == SLOT_CONNECTING ? slot_peek_call(s, word) : CALL_NONE;
	if (call == CALL_NONE)
		return false;
	return guard_bounds(&call_guard(call)->limits);
}

static void learn_from_io(struct slot *s, uint64_t word, int fd, ssize_t result, int err, enum io_direction direction)
{
	bool is_early = atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_EARLY;
	if (result >= 0) {
		/* Closed where no hook saw it, and the number is something else's (C7): no news of the probe. */
		if (is_probe(s, word) && atomic_load(&s->cookie) && !slot_is_same(s, fd))
			outcome_forget(s, word, clock_now_ns());
		else if (!is_early || direction == IO_IN || outcome_is_connected(fd))
			outcome_succeeded(s, word, fd, clock_now_ns());
		else
			begin_early_limit(s, word, fd);
		return;
	}
	switch (err) {
	case EINPROGRESS:
		if (is_early)
			begin_early_limit(s, word, fd);
		return;
	case EAGAIN:
	case EALREADY:
	case EINTR:
	case ENOTCONN:
	case EBADF:
	case EFAULT:
	case EINVAL:
	case EMSGSIZE:
	case ENOTSOCK:
	case EOPNOTSUPP: return; /* says nothing of the peer */
	case EPIPE: outcome_failed(s, word, ECONNRESET, NULL, 0, clock_now_ns()); return;
	default: outcome_failed(s, word, err, NULL, 0, clock_now_ns());
	}
}

ssize_t outcome_io_end(struct slot *s, int fd, ssize_t result, enum io_direction direction)
{
	int err = result < 0 ? detour_error(fd, errno) : errno;
	uint64_t word = slot_word(s);
	if (result < 0 && slot_state_of(word) == SLOT_CONNECTING && outcome_was_ended_elsewhere(s, err, clock_now_ns()))
		outcome_expired_elsewhere(s, word, clock_now_ns());
	word = slot_word(s);
	if (slot_state_of(word) == SLOT_CONNECTING)
		learn_from_io(s, word, fd, result, err, direction);
	errno = err;
	return result;
}

int outcome_so_error(struct slot *s, int fd, int err)
{
	outcome_keep(s, fd);
	uint64_t word = slot_word(s);
	int64_t now = clock_now_ns();
	if (slot_state_of(word) == SLOT_CONNECTING && has_passed(s, now)) {
		/* A fork's other side may have ended it, and may have read the error too: then the kernel has none left
		 * for us. */
		if (err ? outcome_was_ended_elsewhere(s, err, now) : outcome_tcp_state(fd) == TCP_CLOSE)
			outcome_expired_elsewhere(s, word, now);
	}
	word = slot_word(s);
	if (slot_state_of(word) == SLOT_EXPIRED) {
		if (!slot_is_same(s, fd))
			return err;
		atomic_fetch_or(&s->traits, TRAIT_TOLD);
		return ETIMEDOUT;
	}
	if (err) {
		outcome_failed(s, word, err, NULL, 0, now);
		return err;
	}
	/* No error may mean "not yet". The first input or output will tell; a probe holds others up, and further limits
	 * begin now: that is worth a system call. */
	if ((is_probe(s, word) || has_call_limits(s, word)) && outcome_is_connected(fd))
		outcome_succeeded(s, word, fd, now);
	return 0;
}
