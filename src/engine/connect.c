/* See connect.h. Called by the hooks on any thread; the timer calls connect_succeeded and connect_forget. */
#include "engine/connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/un.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/real.h"
#include "base/sys.h"
#include "core/circuit.h"
#include "engine/blocking.h"
#include "engine/call.h"
#include "engine/deadline.h"
#include "engine/guard.h"
#include "engine/guest.h"
#include "engine/process.h"
#include "engine/service.h"

/* TCP's state, TCP_CLOSE when it is no TCP socket. One system call. */
static int tcp_state(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof info;
	info.tcpi_state = TCP_CLOSE;
	return sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_state : TCP_CLOSE;
}

static bool tcp_is_connected(int fd)
{
	int state = tcp_state(fd);
	return state != TCP_CLOSE && state != TCP_SYN_SENT && state != TCP_SYN_RECV && state != TCP_LISTEN;
}

/* Wins the change out of CONNECTING; returns the call to tell (index), or CALL_NONE when there is nothing to tell or another thread was faster. */
static uint32_t finish(struct slot *s, uint64_t word, enum slot_state to)
{
	if (slot_state_of(word) != SLOT_CONNECTING || !slot_change(s, word, to, false))
		return CALL_NONE;
	return atomic_exchange(&s->call, 0) - 1; /* 0 - 1 is CALL_NONE */
}

void connect_succeeded(struct slot *s, uint64_t word, int64_t now_ns)
{
	uint32_t call = finish(s, word, SLOT_CONNECTED);
	if (call == CALL_NONE)
		return;
	struct region *r = guest_region_now();
	if (r && r->me >= 0) {
		atomic_fetch_or(&s->traits, TRAIT_COUNTED);
		atomic_fetch_add_explicit(&r->members[r->me].connections, 1, memory_order_relaxed);
	}
	call_attempt_succeeded(call, now_ns);
}

void connect_forget(struct slot *s, uint64_t word, int64_t now_ns)
{
	uint32_t call = finish(s, word, SLOT_FREE);
	if (call != CALL_NONE)
		call_attempt_dropped(call, now_ns);
}

/* ENETUNREACH from a host without any route to there is local trouble (A6): a datagram socket's connect asks the routing table and sends nothing. */
static bool has_route(const struct sockaddr *to, socklen_t len)
{
	if (!to)
		return true; /* learnt later: the network said it */
	int probe = sys_socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (probe < 0)
		return true;
	int r = sys_connect(probe, to, len);
	sys_close(probe);
	return r != -ENETUNREACH;
}

/* The connect failed with err (positive). to: where it went, when that is still known. */
static void failed(struct slot *s, uint64_t word, int err, const struct sockaddr *to, socklen_t len, int64_t now_ns)
{
	uint32_t call = finish(s, word, SLOT_SOCKET);
	if (call == CALL_NONE)
		return;
	enum failure_kind kind;
	bool routed = err != ENETUNREACH || has_route(to, len);
	if (failure_of_connect(err, routed, &kind) == CONNECT_FAILED)
		call_attempt_failed(call, kind, now_ns);
	else
		call_attempt_is_local(call, now_ns);
}

/* The app lets go of a pending connect: what does the kernel know of it? */
static void hung_up(struct slot *s, uint64_t word, int fd, enum slot_state to, int64_t now_ns)
{
	int err = 0;
	socklen_t len = sizeof err;
	bool is_same = atomic_load(&s->cookie) == 0 || slot_is_same(s, fd);
	bool is_readable = is_same && sys_getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0;
	if (is_readable && err) {
		failed(s, word, err, NULL, 0, now_ns);
		return;
	}
	int state = is_readable ? tcp_state(fd) : TCP_CLOSE;
	if (state != TCP_CLOSE && state != TCP_SYN_SENT && state != TCP_SYN_RECV) {
		connect_succeeded(s, word, now_ns);
		return;
	}
	int64_t begun = atomic_load(&s->begun_ns);
	uint32_t call = finish(s, word, to);
	if (call == CALL_NONE)
		return;
	if (state == TCP_CLOSE)
		call_attempt_dropped(call, now_ns);
	else
		call_attempt_abandoned(call, begun, now_ns);
}

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
	struct timeval tv = { 0 };
	socklen_t len = sizeof tv;
	sys_getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, &len);
	slot_begin(fd, true, (is_unix ? TRAIT_UNIX : 0u) | (flags > 0 && flags & O_NONBLOCK ? TRAIT_NONBLOCKING : 0u));
	atomic_store(&s->send_timeout_us, (int64_t)tv.tv_sec * 1000000 + tv.tv_usec);
	return true;
}

/* ---- a new connect ---- */

/* What a connect that is let through carries from admission to its first outcome. */
struct attempt {
	struct slot *slot;
	uint64_t word;             /* CONNECTING, this life */
	int64_t begun_ns;
	int64_t limit_ns;          /* 0: none */
	bool is_nonblocking;
};

static enum connect_begun begin(int fd, struct slot *s, const struct addr *a, struct attempt *at)
{
	int64_t now = clock_now_ns();
	struct guard g;
	if (!guard_find(a, now, &g))
		return CONNECT_PASSES;
	uint32_t call = call_ride(&g, now);
	if (call == CALL_NONE) {
		struct circuit_token token = { .lease = -1, .begun_ns = now };
		if (g.has_circuit && circuit_admit(g.region, g.destination, &g.rules, now, &token) == BREAKER_REJECT) {
			errno = g.reject_errno;
			return CONNECT_REJECTED;
		}
		call = call_begin(&g, &token, now);
		if (call == CALL_NONE) {
			if (g.has_circuit)
				circuit_settle(g.region, &token, &g.rules, BREAKER_NEUTRAL, 0, false, now, -1);
			return CONNECT_PASSES;
		}
	}
	uint64_t word = slot_word(s);
	uint32_t traits = atomic_load_explicit(&s->traits, memory_order_relaxed);
	*at = (struct attempt){ .slot = s, .begun_ns = now, .is_nonblocking = traits & TRAIT_NONBLOCKING,
				.limit_ns = traits & TRAIT_UNIX ? 0 : g.connect_timeout_ns };
	atomic_store_explicit(&s->begun_ns, now, memory_order_relaxed);
	atomic_store_explicit(&s->deadline_ns, at->limit_ns ? now + at->limit_ns : 0, memory_order_relaxed);
	atomic_store_explicit(&s->cookie, 0, memory_order_relaxed);
	atomic_fetch_and_explicit(&s->traits, ~(uint32_t)(TRAIT_TOLD | TRAIT_TWIN), memory_order_relaxed);
	atomic_store_explicit(&s->call, call + 1, memory_order_relaxed);
	/* Before the system call: another thread's event loop may see the outcome first. */
	if (slot_state_of(word) != SLOT_SOCKET || !slot_change(s, word, SLOT_CONNECTING, true)) {
		call_attempt_dropped(call, now);
		return CONNECT_PASSES;
	}
	at->word = (word & ~0xffULL) + (1ULL << 32) + SLOT_CONNECTING;
	service_follow(g.region, now);
	(void)fd;
	return CONNECT_TRACKED;
}

/* It goes on without the caller: from now on the timer bounds it. */
static void leave_pending(const struct attempt *at, int fd)
{
	struct slot *s = at->slot;
	uint64_t cookie = at->limit_ns && !guest_is_restricted() ? slot_read_cookie(fd) : 0;
	if (!cookie)
		return;
	atomic_store(&s->cookie, cookie);
	if (deadline_arm(fd))
		service_wake_timer();
}

/* The first outcome: r and err of connect. */
static void settle_first(const struct attempt *at, int fd, int r, int err, const struct sockaddr *to, socklen_t len)
{
	struct slot *s = at->slot;
	uint32_t call = atomic_load_explicit(&s->call, memory_order_relaxed);
	if (err == ETIMEDOUT && call && at->limit_ns && clock_now_ns() - at->begun_ns >= at->limit_ns)
		call_tell_deadline(call - 1, at->limit_ns);
	if (r == 0) {
		bool is_early = atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_EARLY;
		if (!is_early || tcp_is_connected(fd))
			connect_succeeded(s, at->word, clock_now_ns());
		return; /* TCP_FASTOPEN_CONNECT: the first write sends the SYN; its limit begins there */
	}
	switch (err) {
	case EINPROGRESS:
	case EINTR:
		leave_pending(at, fd);
		return;
	case EISCONN:
	case EALREADY:
		connect_forget(s, at->word, at->begun_ns); /* connected or connecting since before we looked */
		return;
	default:
		failed(s, at->word, err, to, len, clock_now_ns());
	}
}

/* A second connect on a pending one: how ruby, redis-cli and haproxy learn the outcome. */
static int connect_again(struct slot *s, uint64_t word, int fd, const struct sockaddr *to, socklen_t len)
{
	int r = real.connect(fd, to, len);
	int err = r < 0 ? errno : 0;
	int64_t now = clock_now_ns();
	if (slot_state_of(slot_word(s)) == SLOT_EXPIRED && r < 0 && slot_is_same(s, fd)) {
		atomic_fetch_or(&s->traits, TRAIT_TOLD);
		errno = ETIMEDOUT;
		return -1;
	}
	if (r == 0 || err == EISCONN)
		connect_succeeded(s, word, now);
	else if (err != EALREADY && err != EINPROGRESS && err != EINTR)
		failed(s, word, err, to, len, now);
	errno = err ? err : errno;
	return r;
}

/* A connect on a socket that the timer ended tells the time-out once; the next one is a new connect. Returns true when it was told now. */
static bool tell_expired(struct slot *s, int fd)
{
	bool is_same = slot_is_same(s, fd);
	if (is_same && !(atomic_fetch_or(&s->traits, TRAIT_TOLD) & TRAIT_TOLD)) {
		errno = ETIMEDOUT;
		return true;
	}
	uint32_t keep = is_same ? atomic_load(&s->traits) & (TRAIT_NONBLOCKING | TRAIT_UNIX) : 0;
	int64_t send_timeout = atomic_load(&s->send_timeout_us);
	slot_begin(fd, is_same, keep);
	if (is_same)
		atomic_store(&s->send_timeout_us, send_timeout);
	return false;
}

/* Brings the slot to SOCKET when a connect may begin there; false: let it pass untouched. */
static bool prepare(struct slot *s, int fd, const struct addr *a)
{
	enum slot_state state = slot_state_of(slot_word(s));
	if (state == SLOT_CONNECTED) {
		if (a->family == ADDR_INET && tcp_state(fd) != TCP_CLOSE)
			return false; /* EISCONN is the kernel's to say */
		connect_closing(fd); /* ended and used again, or another socket on this number */
		state = SLOT_FREE;
	}
	if (state == SLOT_FREE)
		return !guest_is_restricted() && adopt(s, fd, a);
	bool is_unix = atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_UNIX;
	return state == SLOT_SOCKET && is_unix == (a->family == ADDR_UNIX);
}

int connect_guarded(int fd, const struct sockaddr *to, socklen_t len)
{
	struct addr a;
	if (!addr_from_sockaddr(&a, to, len)) {
		int r = real.connect(fd, to, len);
		if (r == 0 && len >= sizeof to->sa_family && to->sa_family == AF_UNSPEC)
			connect_cancelled(fd);
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
	int saved = errno;
	struct attempt at;
	enum connect_begun begun = prepare(s, fd, &a) ? begin(fd, s, &a, &at) : CONNECT_PASSES;
	if (begun == CONNECT_REJECTED)
		return -1;
	errno = saved;
	if (begun == CONNECT_PASSES)
		return real.connect(fd, to, len);
	int r = at.is_nonblocking || !at.limit_ns || guest_is_restricted() ?
			real.connect(fd, to, len) :
			blocking_connect(fd, to, len, at.begun_ns + at.limit_ns, atomic_load(&s->send_timeout_us));
	int err = r < 0 ? errno : 0;
	settle_first(&at, fd, r, err, to, len);
	errno = err ? err : saved;
	return r;
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
	enum connect_begun begun = prepare(s, fd, &a) ? begin(fd, s, &a, &at) : CONNECT_PASSES;
	if (begun == CONNECT_REJECTED)
		return begun;
	if (begun == CONNECT_TRACKED) {
		atomic_fetch_or(&s->traits, TRAIT_EARLY);
		leave_pending(&at, fd); /* a blocking send waits for the handshake inside: only the timer can bound it */
	}
	errno = saved;
	return begun;
}

void connect_fastopen_end(int fd, ssize_t result, int err)
{
	struct slot *s = slot_at(fd);
	uint64_t word = s ? slot_word(s) : 0;
	if (!s || slot_state_of(word) != SLOT_CONNECTING)
		return;
	if (result >= 0) {
		if (tcp_is_connected(fd))
			connect_succeeded(s, word, clock_now_ns());
	} else if (err == EISCONN) {
		connect_forget(s, word, clock_now_ns());
	} else if (err != EINPROGRESS && err != EALREADY && err != EINTR && err != EAGAIN) {
		failed(s, word, err == EOPNOTSUPP ? EINVAL : err, NULL, 0, clock_now_ns());
	}
}

/* ---- outcomes learnt later ---- */

bool connect_io_begin(struct slot *s, int fd)
{
	if (slot_state_of(slot_word(s)) != SLOT_EXPIRED || !slot_is_same(s, fd))
		return true;
	errno = ETIMEDOUT;
	return false;
}

/* The first write on a TCP_FASTOPEN_CONNECT socket sends the SYN: the limit begins now. */
static void begin_early_limit(struct slot *s, int fd)
{
	int64_t begun = atomic_load(&s->begun_ns), at = atomic_load(&s->deadline_ns);
	if (!at || atomic_load(&s->cookie) || guest_is_restricted())
		return;
	struct attempt again = { .slot = s, .limit_ns = at - begun };
	int64_t now = clock_now_ns();
	atomic_store(&s->begun_ns, now);
	atomic_store(&s->deadline_ns, now + again.limit_ns);
	leave_pending(&again, fd);
}

static void learn_from_io(struct slot *s, uint64_t word, int fd, ssize_t result, int err, enum io_direction direction)
{
	bool is_early = atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_EARLY;
	if (result >= 0) {
		if (!is_early || direction == IO_IN || tcp_is_connected(fd))
			connect_succeeded(s, word, clock_now_ns());
		else
			begin_early_limit(s, fd);
		return;
	}
	switch (err) {
	case EINPROGRESS:
		if (is_early)
			begin_early_limit(s, fd);
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
	case EOPNOTSUPP:
		return; /* says nothing of the peer */
	case EPIPE:
		failed(s, word, ECONNRESET, NULL, 0, clock_now_ns());
		return;
	default:
		failed(s, word, err, NULL, 0, clock_now_ns());
	}
}

ssize_t connect_io_end(struct slot *s, int fd, ssize_t result, enum io_direction direction)
{
	int err = errno;
	uint64_t word = slot_word(s);
	if (slot_state_of(word) == SLOT_CONNECTING) {
		learn_from_io(s, word, fd, result, err, direction);
	} else if (slot_state_of(word) == SLOT_EXPIRED && result <= 0 && slot_is_same(s, fd)) {
		/* The timer ended it while we waited. */
		result = -1;
		err = ETIMEDOUT;
	}
	errno = err;
	return result;
}

int connect_so_error(struct slot *s, int fd, int err)
{
	uint64_t word = slot_word(s);
	if (slot_state_of(word) == SLOT_EXPIRED) {
		if (!slot_is_same(s, fd))
			return err;
		atomic_fetch_or(&s->traits, TRAIT_TOLD);
		return ETIMEDOUT;
	}
	if (err) {
		failed(s, word, err, NULL, 0, clock_now_ns());
		return err;
	}
	/* No error may mean "not yet". The first input or output will tell; a probe holds others up, so it is worth a system call now. */
	uint32_t call = atomic_load(&s->call);
	if (slot_state_of(word) == SLOT_CONNECTING && call && call_is_probe(call - 1) && tcp_is_connected(fd))
		connect_succeeded(s, word, clock_now_ns());
	return 0;
}

/* ---- the end of descriptors ---- */

/* Another number leads to the same pending socket: it takes the call over. */
static bool hand_over(struct slot *s, uint64_t word, int fd)
{
	uint64_t cookie = atomic_load(&s->cookie);
	for (int other = 0; other <= slot_highest(); other++) {
		struct slot *o = slot_at(other);
		if (other == fd || slot_state_of(slot_word(o)) != SLOT_CONNECTING || atomic_load(&o->cookie) != cookie ||
		    atomic_load(&o->call))
			continue;
		uint32_t call = finish(s, word, SLOT_FREE);
		if (call != CALL_NONE)
			atomic_store(&o->call, call + 1);
		return true;
	}
	return false;
}

static void uncount(struct slot *s)
{
	if (!(atomic_fetch_and(&s->traits, ~(uint32_t)TRAIT_COUNTED) & TRAIT_COUNTED))
		return;
	struct region *r = guest_region_now();
	if (r && r->me >= 0 && atomic_load(&r->members[r->me].connections) > 0)
		atomic_fetch_sub_explicit(&r->members[r->me].connections, 1, memory_order_relaxed);
}

void connect_closing(int fd)
{
	struct slot *s = slot_at(fd);
	if (!s)
		return;
	uint64_t word = slot_word(s);
	if (slot_state_of(word) == SLOT_FREE)
		return;
	int saved = errno;
	process_check();
	word = slot_word(s);
	if (slot_state_of(word) == SLOT_CONNECTING) {
		bool has_twin = atomic_load(&s->traits) & TRAIT_TWIN;
		if (!has_twin || !hand_over(s, word, fd))
			hung_up(s, word, fd, SLOT_FREE, clock_now_ns());
	}
	uncount(s);
	slot_begin(fd, false, 0);
	deadline_let_pass(fd);
	errno = saved;
}

void connect_cancelled(int fd)
{
	struct slot *s = slot_at(fd);
	if (!s)
		return;
	uint64_t word = slot_word(s);
	if (slot_state_of(word) == SLOT_FREE || slot_state_of(word) == SLOT_SOCKET)
		return;
	int saved = errno;
	int64_t begun = atomic_load(&s->begun_ns), now = clock_now_ns();
	uint32_t call = finish(s, word, SLOT_SOCKET);
	if (call != CALL_NONE)
		call_attempt_abandoned(call, begun, now);
	uncount(s);
	uint32_t keep = atomic_load(&s->traits) & (TRAIT_NONBLOCKING | TRAIT_UNIX);
	int64_t send_timeout = atomic_load(&s->send_timeout_us);
	slot_begin(fd, true, keep);
	atomic_store(&s->send_timeout_us, send_timeout);
	errno = saved;
}

void connect_dupped(int from, int to)
{
	struct slot *a = slot_at(from), *b = slot_at(to);
	if (!a || !b || a == b)
		return;
	uint64_t word = slot_word(a);
	if (slot_state_of(word) == SLOT_FREE || slot_state_of(word) == SLOT_CONNECTED)
		return;
	slot_begin(to, true, atomic_load(&a->traits) & ~(uint32_t)TRAIT_COUNTED);
	atomic_store(&b->send_timeout_us, atomic_load(&a->send_timeout_us));
	atomic_store(&b->begun_ns, atomic_load(&a->begun_ns));
	atomic_store(&b->deadline_ns, atomic_load(&a->deadline_ns));
	if (slot_state_of(word) == SLOT_SOCKET)
		return;
	if (!atomic_load(&a->cookie))
		atomic_store(&a->cookie, slot_read_cookie(from));
	atomic_store(&b->cookie, atomic_load(&a->cookie));
	if (slot_state_of(word) == SLOT_CONNECTING) {
		atomic_fetch_or(&a->traits, TRAIT_TWIN);
		atomic_fetch_or(&b->traits, TRAIT_TWIN);
	}
	slot_change(b, slot_word(b), slot_state_of(word), false);
	if (slot_state_of(word) == SLOT_CONNECTING && atomic_load(&b->deadline_ns) && deadline_arm(to))
		service_wake_timer();
}

void connect_exiting(void)
{
	int64_t now = clock_now_ns();
	for (int fd = 0; call_live_count() > 0 && fd <= slot_highest(); fd++) {
		struct slot *s = slot_at(fd);
		uint64_t word = slot_word(s);
		if (slot_state_of(word) == SLOT_CONNECTING && atomic_load(&s->call))
			hung_up(s, word, fd, SLOT_FREE, now);
	}
	call_declare(true, now);
}

bool connect_forked(void)
{
	bool is_any = false;
	for (int fd = 0; fd <= slot_highest(); fd++) {
		struct slot *s = slot_at(fd);
		atomic_store(&s->call, 0);
		atomic_fetch_and(&s->traits, ~(uint32_t)TRAIT_COUNTED);
		if (slot_state_of(slot_word(s)) == SLOT_CONNECTING && atomic_load(&s->cookie))
			is_any = true;
	}
	return is_any;
}
