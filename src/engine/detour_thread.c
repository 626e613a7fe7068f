/* See detour.h and detour_record.h: the thread. It owns every record that was handed over, waits by epoll in a table of
 * descriptors of its own, and blocks nowhere else but in the files of end points.
 *
 * Joined for a fork it puts its sockets, as messages, into the pair (their numbers die with its table; what is on its
 * way in a socket stays open), and the next one takes them out again. */
#include <errno.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/clock.h"
#include "base/sys.h"
#include "engine/cache.h"
#include "engine/detour_record.h"
#include "engine/fault.h"
#include "engine/keeper.h"
#include "engine/outcome.h"
#include "engine/relay.h"
#include "engine/service.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CLOSE_RANGE_UNSHARE_FLAG 2u

#define IDLE_NS (3 * NS_PER_S) /* with no detour alive the thread stays so long */
#define SLICE_NS NS_PER_S      /* and it looks this often whether it is to stop, and whether the app is there */
#define EVENTS 64
/* Between its being handed over and its SYN the app's thread has a few instructions to go, unless it is not scheduled.
 */
#define EAGER_LOOKS 64
#define LOOK_NS NS_PER_MS
#define NEVER_CONNECTS_NS (10 * NS_PER_S)
#define SPOOL_FLUSH_NS (30 * NS_PER_S) /* exit waits so long for a disk, where other threads go on writing */
/* A blocking connect that has failed is watched for so long, until it has returned. */
#define FAILED_NS (100 * NS_PER_MS)
/* A keeper, once nobody has the app's side: so long it waits for what a shape holds back. The kernel's own patience
 * with a closed socket. */
#define GONE_NS (60 * NS_PER_S)
#define PAIR_TAG UINT64_MAX

static struct {
	pid_t tid; /* whose table the numbers below are of */
	pid_t pid; /* of whose process */
	bool is_keeper;
	int epoll, from, to; /* to, from: the two ends of the pair */
	int listener4, listener6;
	struct detour *alive[DETOURS_MAX];
	uint32_t count;
	int64_t idle_since_ns;
} me = {.epoll = -1, .listener4 = -1, .listener6 = -1};

static _Atomic uint32_t flush_asked, flush_done; /* futex: counts */

/* ---- its own table, and the listeners ---- */

static bool leave_table(void)
{
	int a = atomic_load(&detour_pair[0]), b = atomic_load(&detour_pair[1]);
	unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);
	/* One that begins above our numbers copies only what is below it. */
	if (a < 0 || b < 0 || SYS3(SYS_close_range, high + 1, ~0U, CLOSE_RANGE_UNSHARE_FLAG) != 0)
		return false;
	if (low > 0)
		SYS3(SYS_close_range, 0, low - 1, 0);
	if (high - low > 1)
		SYS3(SYS_close_range, low + 1, high - 1, 0);
	/* Nothing of ours stands where the standard ones are looked for. */
	for (int i = 0; i < 3; i++)
		sys_open("/dev/null", O_RDWR | O_CLOEXEC, 0);
	return true;
}

/* Bound, listening, and deaf: SYNs are dropped by a filter, so that whoever connects here waits. Returns the port in
 * network order, 0 when it cannot be. */
static uint16_t listen_deaf(int family, int *fd)
{
	static const int on = 1;
	struct sock_filter drop_all = {.code = BPF_RET | BPF_K, .k = 0};
	struct sock_fprog program = {.len = 1, .filter = &drop_all};
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} at;
	memset(&at, 0, sizeof at);
	socklen_t len = family == AF_INET ? sizeof at.in : sizeof at.in6;
	at.sa.sa_family = (sa_family_t)family;
	if (family == AF_INET)
		at.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		at.in6.sin6_addr = in6addr_loopback;
	*fd = sys_socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return 0;
	/* The filter before listen: there is no moment in which a SYN is answered. */
	if (sys_setsockopt(*fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0 &&
		sys_setsockopt(*fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0 &&
		sys_bind(*fd, &at.sa, len) == 0 && sys_listen(*fd, 1) == 0 && sys_getsockname(*fd, &at.sa, &len) == 0)
		return family == AF_INET ? at.in.sin_port : at.in6.sin6_port;
	sys_close(*fd);
	*fd = -1;
	return 0;
}

static void open_doors(void)
{
	if (me.listener4 < 0)
		atomic_store(&detour_doors.port4, listen_deaf(AF_INET, &me.listener4));
	if (me.listener6 < 0)
		atomic_store(&detour_doors.port6, listen_deaf(AF_INET6, &me.listener6));
	atomic_store(&detour_doors.netns, me.listener4 >= 0 ? detour_netns(me.listener4) : 0);
}

/* ---- events ---- */

static uint64_t tag_of(const struct detour *d, enum detour_socket which)
{
	return (uint64_t)d->life << 32 | (uint64_t)d->index << 2 | which;
}

static void ask_events(struct detour *d, enum detour_socket which, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.u64 = tag_of(d, which)};
	bool is_known = d->is_watched[which];
	if (d->socket[which] < 0 || d->is_silent[which] || (is_known && d->events[which] == events))
		return;
	if (sys_epoll_ctl(me.epoll, is_known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, d->socket[which], &e) != 0)
		return;
	d->is_watched[which] = true;
	d->events[which] = events;
}

static void silence(struct detour *d, enum detour_socket which)
{
	struct epoll_event none = {0};
	if (d->is_watched[which])
		sys_epoll_ctl(me.epoll, EPOLL_CTL_DEL, d->socket[which], &none);
	d->is_watched[which] = false;
	d->is_silent[which] = true;
}

static void shut(struct detour *d, enum detour_socket which, bool is_reset)
{
	static const struct linger now = {.l_onoff = 1};
	int fd = d->socket[which];
	if (fd < 0)
		return;
	if (is_reset)
		sys_setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	sys_close(fd);
	d->socket[which] = -1;
	d->is_watched[which] = false;
}

/* The app's own socket: nobody waits for us any more from here on. Its number closed, it would still be watched: the
 * file is the app's. */
static void let_go_of_app(struct detour *d)
{
	if (d->is_watched[DETOUR_APP])
		silence(d, DETOUR_APP);
	shut(d, DETOUR_APP, false);
	atomic_store(&d->holds_app, 0);
}

static void finish(struct detour *d, bool is_reset)
{
	if (d->has_begun)
		d->end->finish(d);
	if (d->is_teed && d->phase == DETOUR_FLOWS)
		cache_tee_finish(d);
	onward_finish(d);
	let_go_of_app(d);
	shut(d, DETOUR_INNER, is_reset);
	shut(d, DETOUR_UPSTREAM, is_reset);
	d->phase = DETOUR_FREE;
	d->life++; /* events of its sockets that are told already are nobody's, also once the record is another's */
	for (uint32_t i = 0; i < me.count; i++)
		if (me.alive[i] == d)
			me.alive[i] = me.alive[--me.count];
	/* The rooms' memory goes back: a server that needed many at once does not keep them. */
	uintptr_t from = ((uintptr_t)d->room + 4095) & ~(uintptr_t)4095,
		  to = ((uintptr_t)d + sizeof *d) & ~(uintptr_t)4095;
	sys_madvise((void *)from, to - from, MADV_DONTNEED);
	uint32_t index = d->index;
	pool_give(&detour_pool, index);
	atomic_fetch_sub(&detour_count, 1);
}

/* ---- towards the connection ---- */

static int tcp_state(int fd)
{
	return outcome_tcp_state(fd);
}

static int so_error(int fd)
{
	int err = 0;
	socklen_t len = sizeof err;
	int r = sys_getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	return r < 0 ? -r : err;
}

/* The app's connect ends with err. */
static void fail(struct detour *d, int err)
{
	detour_tell_error(d->cookie, err); /* before it is woken */
	silence(d, DETOUR_APP);
	if (sys_disconnect(d->socket[DETOUR_APP]) < 0)
		sys_shutdown(d->socket[DETOUR_APP], SHUT_RDWR);
	if (!d->is_blocking) {
		finish(d, false);
		return;
	}
	/* A signal handler, or the end of a piece of its time (blocking.h), may have had it between two calls of
	 * connect: the second one begins anew, and nobody would come. */
	shut(d, DETOUR_INNER, false);
	shut(d, DETOUR_UPSTREAM, false);
	d->phase = DETOUR_FAILED;
	d->asked_at_ns = d->look_at_ns = clock_now_ns();
}

static void fail_again(struct detour *d, int64_t now_ns)
{
	if (now_ns >= d->asked_at_ns + FAILED_NS) {
		finish(d, false);
		return;
	}
	if (tcp_state(d->socket[DETOUR_APP]) == TCP_SYN_SENT)
		sys_disconnect(d->socket[DETOUR_APP]);
	d->look_at_ns = now_ns + 2 * LOOK_NS;
}

static void flow(struct detour *d, int64_t now_ns);

/* Completes the app's connect: from the listener's port to the app's. */
static void join(struct detour *d, int64_t now_ns)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} at;
	socklen_t len = sizeof at;
	int r = sys_getsockname(d->socket[DETOUR_APP], &at.sa, &len);
	if (r == 0 && at.sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&at.in6.sin6_addr)) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = at.in6.sin6_port};
		memcpy(&in.sin_addr, at.in6.sin6_addr.s6_addr + 12, 4);
		at.in = in;
		len = sizeof at.in;
	}
	r = r == 0 ? sys_connect(d->socket[DETOUR_INNER], &at.sa, len) : r;
	if (r != 0 && r != -EINPROGRESS) {
		fail(d, -r);
		return;
	}
	let_go_of_app(d);
	d->phase = DETOUR_JOINS;
	ask_events(d, DETOUR_INNER, EPOLLOUT);
	if (tcp_state(d->socket[DETOUR_INNER]) == TCP_ESTABLISHED)
		flow(d, now_ns);
}

/* The app's connect has been called when its SYN has gone. */
static bool has_begun(struct detour *d, int64_t now_ns)
{
	int state = tcp_state(d->socket[DETOUR_APP]);
	if (state == TCP_SYN_SENT)
		return true;
	d->looks++;
	d->look_at_ns = d->looks < EAGER_LOOKS ? now_ns : now_ns + LOOK_NS;
	if (d->looks < EAGER_LOOKS)
		SYS1(SYS_sched_yield, 0);
	return false;
}

static void wait_more(struct detour *d, int64_t now_ns)
{
	if (atomic_load_explicit(&d->lifted, memory_order_relaxed) == d->life) {
		atomic_store(&d->lifted, 0);
		/* Nobody was ever asked: a peer that has not answered all the while. */
		if (d->held_until_ns == SHAPE_NEVER) {
			fail(d, ETIMEDOUT);
			return;
		}
		d->held_until_ns = now_ns;
		for (int i = 0; i < 2; i++)
			if (d->way[i].is_shaped)
				shape_lift(&d->way[i].shape, now_ns);
	}
	if (d->limit_at_ns && now_ns >= d->limit_at_ns) {
		fail(d, ETIMEDOUT);
		return;
	}
	if (d->has_upstream && !d->is_up) {
		int state = tcp_state(d->socket[DETOUR_UPSTREAM]);
		if (state == TCP_CLOSE || d->has_failed[DETOUR_UPSTREAM]) {
			int err = so_error(d->socket[DETOUR_UPSTREAM]);
			fail(d, err ? err : ECONNRESET);
			return;
		}
		d->is_up = state != TCP_SYN_SENT && state != TCP_SYN_RECV;
		ask_events(d, DETOUR_UPSTREAM, d->is_up ? 0 : EPOLLOUT);
	}
	bool is_ready = d->is_up || (!d->has_upstream && d->held_until_ns != SHAPE_NEVER);
	if (is_ready && now_ns >= d->held_until_ns) {
		int err = d->end ? d->end->begin(d, now_ns) : 0;
		if (err) {
			fail(d, err);
			return;
		}
		d->has_begun = d->end != NULL;
		join(d, now_ns);
		return;
	}
	d->look_at_ns = d->limit_at_ns ? d->limit_at_ns : SHAPE_NEVER;
	if (is_ready && d->held_until_ns < d->look_at_ns)
		d->look_at_ns = d->held_until_ns;
}

static void flow(struct detour *d, int64_t now_ns)
{
	if (d->phase == DETOUR_JOINS) {
		int state = tcp_state(d->socket[DETOUR_INNER]);
		if (state == TCP_SYN_SENT || state == TCP_SYN_RECV) {
			d->look_at_ns = now_ns + SLICE_NS;
			return;
		}
		d->phase = DETOUR_FLOWS;
		if (d->is_teed)
			cache_tee_begin(d);
		if (state == TCP_CLOSE) {
			finish(d, true);
			return;
		}
	}
	if (d->end == &onward_end && !onward_look(d, now_ns)) {
		finish(d, true);
		return;
	}
	enum relay_says says = relay_turn(d, now_ns);
	if (says == RELAY_GOES_ON && d->onward.is_asking && !onward_goes_on(d, now_ns))
		says = RELAY_IS_RESET;
	if (says != RELAY_GOES_ON) {
		finish(d, says == RELAY_IS_RESET);
		return;
	}
	for (enum detour_socket i = DETOUR_INNER; i < DETOUR_SOCKETS; i++)
		if (d->has_failed[i])
			silence(d, i);
		else
			ask_events(d, i, relay_events(d, i));
}

static void visit(struct detour *d, int64_t now_ns)
{
	if (atomic_load(&d->is_dropped) == d->life && d->phase < DETOUR_JOINS) {
		finish(d, false);
		return;
	}
	if (d->phase == DETOUR_ASKED) {
		if (!has_begun(d, now_ns)) {
			if (now_ns >= d->asked_at_ns + NEVER_CONNECTS_NS)
				finish(d, false); /* its thread was ended, or jumped away */
			return;
		}
		d->phase = DETOUR_WAITS;
		ask_events(d, DETOUR_APP, 0); /* errors and its end are told unasked */
	}
	if (d->phase == DETOUR_FAILED)
		fail_again(d, now_ns);
	else if (d->phase == DETOUR_WAITS)
		wait_more(d, now_ns);
	else if (d->phase != DETOUR_FREE)
		flow(d, now_ns);
}

static void event(const struct epoll_event *e, int64_t now_ns)
{
	struct detour *d = detour_at((uint32_t)e->data.u64 >> 2);
	enum detour_socket which = (enum detour_socket)(e->data.u64 & 3);
	if (d->life != e->data.u64 >> 32 || d->phase == DETOUR_FREE)
		return; /* ended by an event before this one */
	if (which == DETOUR_APP) {
		/* The app has given up, or the timer has: there is nothing to complete. */
		if (e->events & (EPOLLHUP | EPOLLERR))
			finish(d, false);
		return;
	}
	if (e->events & EPOLLERR)
		d->has_failed[which] = true;
	else if (e->events & EPOLLHUP && d->phase == DETOUR_FLOWS)
		silence(d, which); /* both ends have been told: what is left in it is read without being called */
	visit(d, now_ns);
}

/* ---- the pair ---- */

static void take_sockets(struct detour *d, uint32_t mask, const int *fds, int n)
{
	for (int i = 0, at = 0; i < DETOUR_SOCKETS && at < n; i++)
		if (mask & 1u << i)
			d->socket[i] = fds[at++];
}

/* Who waited for a connect whose number has closed has gone with the program. What was asked for before the keeper was
 * made is in its memory, though the thread may not have come to it; what was asked later is not. */
static bool may_keep(struct detour *d, const struct detour_message *m)
{
	static const int on = 1, idle_s = 15, times = 3;
	int inner = d->socket[DETOUR_INNER];
	bool is_unknown = m->word == DETOUR_ASK && d->phase != DETOUR_ASKED;
	if (is_unknown || d->phase == DETOUR_FAILED || (d->phase < DETOUR_JOINS && !d->is_inherited))
		return false;
	/* Where the kernel does not tell that the app's side is closed, its silence does. */
	sys_setsockopt(inner, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	sys_setsockopt(inner, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
	sys_setsockopt(inner, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
	sys_setsockopt(inner, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
	return true;
}

static void arrive(const struct detour_message *m, const int *fds, int n, int64_t now_ns)
{
	if (m->word == DETOUR_LISTENERS) {
		me.listener4 = n > 0 && m->sockets & 1 ? fds[0] : -1;
		me.listener6 = n > 0 && m->sockets & 2 ? fds[n - 1] : -1;
		return;
	}
	if (m->word != DETOUR_ASK && m->word != DETOUR_KEPT)
		return;
	struct detour *d = detour_at(m->index);
	static const int on = 1;
	memset(d->is_watched, 0, sizeof d->is_watched);
	memset(d->is_silent, 0, sizeof d->is_silent);
	for (int i = 0; i < DETOUR_SOCKETS; i++)
		d->socket[i] = -1;
	take_sockets(d, m->sockets, fds, n);
	if (me.is_keeper && !may_keep(d, m)) {
		for (enum detour_socket i = DETOUR_APP; i < DETOUR_SOCKETS; i++)
			shut(d, i, false);
		return;
	}
	if (m->word == DETOUR_ASK) {
		d->asked_at_ns = now_ns;
		/* Urgent octets stay where they are among the others. */
		sys_setsockopt(d->socket[DETOUR_INNER], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
		if (d->has_upstream)
			sys_setsockopt(d->socket[DETOUR_UPSTREAM], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
	}
	if (d->phase == DETOUR_WAITS)
		ask_events(d, DETOUR_APP, 0);
	if (d->phase == DETOUR_JOINS)
		ask_events(d, DETOUR_INNER, EPOLLOUT);
	me.alive[me.count++] = d;
	visit(d, now_ns);
}

/* False: nothing more has come. */
static bool receive(int64_t now_ns)
{
	struct detour_message m = {.word = DETOUR_WAKE};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(DETOUR_SOCKETS * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = &m, .iov_len = sizeof m};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t r = sys_recvmsg(me.from, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (r != (ssize_t)sizeof m)
		return false;
	int fds[DETOUR_SOCKETS], n = 0;
	if (msg.msg_controllen >= sizeof(struct cmsghdr) && control.head.cmsg_type == SCM_RIGHTS) {
		n = (int)((control.head.cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(&control.head), (size_t)n * sizeof(int));
	}
	arrive(&m, fds, n, now_ns);
	return true;
}

/* Into the pair with all of it: our table ends with us. */
static void put_away(void)
{
	int listeners[2], n = 0;
	struct detour_message m = {.word = DETOUR_LISTENERS};
	if (me.listener4 >= 0) {
		listeners[n++] = me.listener4;
		m.sockets |= 1;
	}
	if (me.listener6 >= 0) {
		listeners[n++] = me.listener6;
		m.sockets |= 2;
	}
	/* Always: whoever asks at this moment has read their ports. */
	detour_post(me.to, &m, listeners, n);
	while (me.count > 0) {
		struct detour *d = me.alive[me.count - 1];
		int fds[DETOUR_SOCKETS];
		if (d->has_begun)
			d->end->put_away(d);
		struct detour_message kept = {.word = DETOUR_KEPT, .index = d->index};
		n = 0;
		for (int i = 0; i < DETOUR_SOCKETS; i++)
			if (d->socket[i] >= 0) {
				fds[n++] = d->socket[i];
				kept.sockets |= 1u << i;
			}
		if (detour_post(me.to, &kept, fds, n) != 0)
			finish(d, true); /* no room: more than its user may have on their way */
		else
			me.count--;
	}
	me.listener4 = me.listener6 = -1;
}

/* ---- the turn ---- */

/* What a new thread begins with. */
static bool set_up(void)
{
	me.tid = sys_gettid();
	me.pid = sys_getpid();
	me.count = 0;
	me.listener4 = me.listener6 = -1;
	if (!leave_table())
		return false;
	me.to = atomic_load(&detour_pair[0]);
	me.from = atomic_load(&detour_pair[1]);
	me.epoll = sys_epoll_create();
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = PAIR_TAG};
	if (me.epoll < 0 || sys_epoll_ctl(me.epoll, EPOLL_CTL_ADD, me.from, &e) != 0)
		return false;
	return true;
}

static void open_for_business(void)
{
	int64_t now = clock_now_ns();
	while (receive(now))
		;
	open_doors();
	atomic_store(&detour_doors.state, 1);
	sys_futex_wake(&detour_doors.state, 0x7fffffff);
}

/* When to look again. */
static int64_t flush_all(int64_t now_ns)
{
	uint32_t asked = atomic_load(&flush_asked);
	if (asked == atomic_load(&flush_done))
		return SHAPE_NEVER;
	for (uint32_t i = 0; i < me.count; i++) {
		struct detour *d = me.alive[i];
		if (d->phase == DETOUR_JOINS && d->end == &spool_end)
			return now_ns + LOOK_NS; /* the app may have written already */
		if (d->phase == DETOUR_FLOWS && !relay_flush(d, now_ns))
			return d->look_at_ns;
	}
	atomic_store(&flush_done, asked);
	sys_futex_wake(&flush_done, 0x7fffffff);
	return SHAPE_NEVER;
}

/* Visits what is due; returns when the next is. */
static int64_t due(int64_t now_ns)
{
	int64_t next = SHAPE_NEVER;
	for (uint32_t i = me.count; i-- > 0;) {
		struct detour *d = me.alive[i];
		if (d->look_at_ns <= now_ns || atomic_load_explicit(&d->lifted, memory_order_relaxed) == d->life ||
			atomic_load_explicit(&d->is_dropped, memory_order_relaxed) == d->life)
			visit(d, now_ns);
		if (i < me.count && me.alive[i] == d && d->look_at_ns < next)
			next = d->look_at_ns;
	}
	return next;
}

static int timeout_ms(int64_t next_ns, int64_t now_ns)
{
	int64_t left = next_ns - now_ns;
	if (next_ns == SHAPE_NEVER || left > SLICE_NS)
		left = SLICE_NS;
	return left <= 0 ? 0 : (int)((left + NS_PER_MS - 1) / NS_PER_MS);
}

static void serve(int64_t next_ns, int64_t now_ns)
{
	struct epoll_event events[EVENTS];
	int n = sys_epoll_wait(me.epoll, events, EVENTS, timeout_ms(next_ns, now_ns));
	now_ns = clock_now_ns();
	for (int i = 0; i < n; i++)
		if (events[i].data.u64 == PAIR_TAG)
			while (receive(now_ns))
				;
		else
			event(&events[i], now_ns);
}

void detour_run(const _Atomic uint32_t *stop)
{
	int64_t looked_around = clock_now_ns();
	if (me.tid != sys_gettid() && !set_up()) {
		atomic_store(&detour_doors.state, 2);
		sys_futex_wake(&detour_doors.state, 0x7fffffff);
		return;
	}
	if (atomic_load(&detour_doors.state) == 0)
		open_for_business();
	me.idle_since_ns = looked_around;
	while (!atomic_load(stop)) {
		int64_t now = clock_now_ns();
		int64_t next = due(now), flush_at = flush_all(now);
		next = flush_at < next ? flush_at : next;
		if (detour_is_any())
			me.idle_since_ns = now;
		else if (now - me.idle_since_ns >= IDLE_NS)
			return;
		if (now - looked_around >= SLICE_NS) {
			looked_around = now;
			fault_look(now);
			if (service_is_alone()) {
				atomic_store(&detour_is_deserted, true);
				return;
			}
		}
		serve(next, now);
	}
	put_away();
}

bool detour_is_ours(void)
{
	return sys_getpid() == me.pid;
}

/* Whom nobody has any more goes, once what was sent has been passed on. */
static void look_for_gone(int64_t now_ns)
{
	for (uint32_t i = me.count; i-- > 0;) {
		struct detour *d = me.alive[i];
		const struct detour_way *up = &d->way[DETOUR_UP];
		if (d->phase != DETOUR_FLOWS)
			continue;
		if (!d->gone_at_ns && (d->has_failed[DETOUR_INNER] ||
					      (up->has_ended && keeper_app_has_gone(d->socket[DETOUR_INNER]))))
			d->gone_at_ns = now_ns;
		if (d->gone_at_ns && (up->is_passed_on || now_ns - d->gone_at_ns >= GONE_NS))
			finish(d, false);
	}
}

void detour_keep(void)
{
	int64_t now = clock_now_ns(), looked_around = now;
	me.is_keeper = true;
	if (!set_up())
		return;
	while (receive(now))
		;
	while (me.count > 0) {
		int64_t next = due(now);
		if (now - looked_around >= SLICE_NS) {
			looked_around = now;
			fault_look(now);
			look_for_gone(now);
		}
		if (me.count > 0)
			serve(next, now);
		now = clock_now_ns();
	}
}

void detour_forked(void)
{
	me.tid = 0;
	me.count = 0;
	cache_forked();
	atomic_store(&detour_pair[0], -1); /* ownfd_drop_all has closed them */
	atomic_store(&detour_pair[1], -1);
	atomic_store(&detour_count, 0);
	atomic_store(&detour_doors.state, 0);
	for (uint32_t i = 0; detour_pool.base && i < pool_high(&detour_pool); i++)
		atomic_store(&detour_at(i)->holds_app, 0);
	pool_reset(&detour_pool);
}

void detour_flush(void)
{
	if (!detour_is_any())
		return;
	uint32_t asked = atomic_fetch_add(&flush_asked, 1) + 1;
	int64_t begun = clock_now_ns(), until = begun + NS_PER_S;
	uint64_t kept = atomic_load(&detour_spooled);
	detour_wake();
	for (uint32_t done; (done = atomic_load(&flush_done)) != asked;) {
		struct timespec ts = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
		if (sys_futex_wait(&flush_done, done, &ts) != -ETIMEDOUT)
			continue;
		/* A disk that is slow and goes on taking is waited for. */
		uint64_t more = atomic_load(&detour_spooled);
		if (more == kept || until - begun >= SPOOL_FLUSH_NS)
			return;
		kept = more;
		until += NS_PER_S;
	}
}
