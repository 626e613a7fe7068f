/* See detour.h: the app's side. The connect hook, on any thread; the hooks of names and of the life of descriptors. */
#include "engine/detour.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/ownfd.h"
#include "base/real.h"
#include "base/sys.h"
#include "base/text.h"
#include "engine/detour_record.h"
#include "engine/guest.h"
#include "engine/process.h"
#include "engine/service.h"
#include "engine/slot.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#define READY_NS NS_PER_S

union name {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* What the hooks know of a number. Written by the connect hook, the cookie last; by dup; `error` by the thread.
 * Believed only where the cookie is the socket's. */
struct place {
	_Atomic uint64_t cookie; /* 0: nothing */
	uint32_t index, life;	 /* of the record, while it is pending */
	_Atomic int error;
	union name peer, local; /* sa_family 0: what the kernel says */
	union name door;	/* where its connect goes */
	socklen_t door_len;
};

struct pool detour_pool = {
	.size = sizeof(struct detour), .link_at = offsetof(struct detour, next_free), .most = DETOURS_MAX, .tight = 8};
_Atomic bool detour_any;
_Atomic int detour_pair[2] = {-1, -1};
_Atomic uint32_t detour_count;
_Atomic bool detour_is_deserted;
struct detour_doors detour_doors;
static struct place *places; /* as many as there are slots */

static bool map_places(void)
{
	if (__atomic_load_n(&places, __ATOMIC_ACQUIRE))
		return true;
	size_t size = slot_count * sizeof(struct place);
	struct place *at = sys_mmap(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(at))
		return false;
	struct place *none = NULL;
	if (!__atomic_compare_exchange_n(&places, &none, at, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		sys_munmap(at, size);
	return true;
}

static struct place *place_of(int fd)
{
	struct place *at = __atomic_load_n(&places, __ATOMIC_ACQUIRE);
	return at && (uint32_t)fd < slot_count ? &at[fd] : NULL;
}

/* The place that speaks of the very socket at fd. */
static struct place *known(int fd)
{
	struct place *p = place_of(fd);
	uint64_t cookie = p ? atomic_load_explicit(&p->cookie, memory_order_acquire) : 0;
	return cookie && !guest_is_restricted() && slot_read_cookie(fd) == cookie ? p : NULL;
}

/* ---- the pair ---- */

bool detour_prepare(void)
{
	int a = ownfd_follow(atomic_load(&detour_pair[0])), b = ownfd_follow(atomic_load(&detour_pair[1]));
	atomic_store(&detour_pair[0], a);
	atomic_store(&detour_pair[1], b);
	atomic_store(&detour_doors.state, 0);
	atomic_store(&detour_is_deserted, false);
	if (a >= 0 && b >= 0 && ownfd_is_intact(a) && ownfd_is_intact(b))
		return true;
	ownfd_close(a);
	ownfd_close(b);
	atomic_store(&detour_pair[0], -1);
	atomic_store(&detour_pair[1], -1);
	int pair[2] = {-1, -1};
	if (sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
		return false;
	a = ownfd_adopt(pair[0]);
	b = ownfd_adopt(pair[1]);
	if (a < 0 || b < 0) {
		ownfd_close(a);
		ownfd_close(b);
		return false;
	}
	atomic_store(&detour_pair[0], a);
	atomic_store(&detour_pair[1], b);
	return true;
}

int detour_post(int pair, const struct detour_message *m, const int *fds, int n)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(DETOUR_SOCKETS * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)m, .iov_len = sizeof *m};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (n > 0) {
		memset(&control, 0, sizeof control);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, (size_t)n * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
	}
	ssize_t r = sys_sendmsg(pair, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	return r < 0 ? (int)r : 0;
}

/* From the app's table. False: the pair is not there (any more). */
static int post(const struct detour_message *m, const int *fds, int n)
{
	int at = ownfd_follow(atomic_load(&detour_pair[0]));
	atomic_store(&detour_pair[0], at);
	return at >= 0 && ownfd_is_intact(at) ? detour_post(at, m, fds, n) : -EBADF;
}

void detour_wake(void)
{
	const struct detour_message m = {.word = DETOUR_WAKE};
	post(&m, NULL, 0);
}

bool detour_is_any(void)
{
	return atomic_load(&detour_count) > 0 && atomic_load(&detour_doors.state) != 2 &&
	       !atomic_load(&detour_is_deserted);
}

static bool doors_are_open(void)
{
	int64_t until = clock_now_ns() + READY_NS;
	struct timespec ts = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
	while (atomic_load(&detour_doors.state) == 0)
		if (sys_futex_wait(&detour_doors.state, 0, &ts) == -ETIMEDOUT)
			break;
	return atomic_load(&detour_doors.state) == 1;
}

bool detour_is_door(const struct addr *a)
{
	static const uint8_t v4[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}, v6[16] = {[15] = 1};
	if (!atomic_load_explicit(&detour_any, memory_order_relaxed) || a->family != ADDR_INET)
		return false;
	uint16_t port = htons(a->port);
	return (memcmp(a->ip, v4, sizeof v4) == 0 && port == atomic_load(&detour_doors.port4)) ||
	       (memcmp(a->ip, v6, sizeof v6) == 0 && port == atomic_load(&detour_doors.port6));
}

/* ---- asking ---- */

/* What the asking thread carries. */
struct way_in {
	int fd, inner, upstream;
	int domain;
	union name bound; /* the app's own local address, sa_family 0: none */
	union name door;  /* where the app's connect is to go */
	socklen_t door_len;
	struct detour *d;
	uint32_t life; /* of the record: it may be another's by the time that connect returns */
	int (*connect)(int fd, const struct sockaddr *to, socklen_t len);
};

static int option(int fd, int level, int name, int missing)
{
	int value = 0;
	socklen_t len = sizeof value;
	return sys_getsockopt(fd, level, name, &value, &len) == 0 ? value : missing;
}

uint64_t detour_netns(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof cookie;
	return sys_getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) == 0 ? cookie : 0;
}

static bool is_mapped(const struct in6_addr *a)
{
	return IN6_IS_ADDR_V4MAPPED(a);
}

/* Is this a socket that can be led through the door, and through which? */
static bool find_door(struct way_in *in, const struct detour_ask *ask)
{
	int fd = in->fd;
	socklen_t len = sizeof in->bound;
	in->domain = option(fd, SOL_SOCKET, SO_DOMAIN, AF_UNSPEC);
	if ((in->domain != AF_INET && in->domain != AF_INET6) || ask->to->sa_family != in->domain ||
		(ask->via && ask->via->sa_family != in->domain) ||
		option(fd, SOL_SOCKET, SO_PROTOCOL, 0) != IPPROTO_TCP ||
		option(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 0) != 0)
		return false;
	memset(&in->bound, 0, sizeof in->bound);
	if (sys_getsockname(fd, &in->bound.sa, &len) != 0)
		return false;
	memset(&in->door, 0, sizeof in->door);
	if (in->domain == AF_INET) {
		in->door.in.sin_family = AF_INET;
		in->door.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		in->door_len = sizeof in->door.in;
		return true;
	}
	const struct sockaddr_in6 *to = (const struct sockaddr_in6 *)(const void *)ask->to;
	bool is_v4 = is_mapped(&to->sin6_addr);
	in->door.in6.sin6_family = AF_INET6;
	in->door_len = sizeof in->door.in6;
	if (is_v4)
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &in->door.in6.sin6_addr);
	else
		in->door.in6.sin6_addr = in6addr_loopback;
	return true;
}

static bool is_v4_door(const struct way_in *in)
{
	return in->domain == AF_INET || is_mapped(&in->door.in6.sin6_addr);
}

/* The port, once the thread stands. */
static bool knock(struct way_in *in)
{
	uint16_t port4 = (uint16_t)atomic_load(&detour_doors.port4), port6 = (uint16_t)atomic_load(&detour_doors.port6);
	if (in->domain == AF_INET6 && !is_mapped(&in->door.in6.sin6_addr) && !port6) {
		/* ::1 is not there (disable_ipv6 on lo): an IPv6 socket may still reach the other. */
		if (option(in->fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) != 0)
			return false;
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &in->door.in6.sin6_addr);
	}
	uint16_t port = is_v4_door(in) ? port4 : port6;
	if (in->domain == AF_INET)
		in->door.in.sin_port = port;
	else
		in->door.in6.sin6_port = port;
	uint64_t netns = detour_netns(in->fd);
	return port != 0 && netns == atomic_load(&detour_doors.netns);
}

/* Options of the app's that mean something on the way to the destination. */
static void copy_options(int from, int to)
{
	static const struct {
		int level, name;
	} options[] = {{SOL_SOCKET, SO_KEEPALIVE}, {SOL_SOCKET, SO_PRIORITY}, {SOL_SOCKET, SO_MARK},
		{IPPROTO_IP, IP_TOS}, {IPPROTO_IP, IP_TTL}, {IPPROTO_TCP, TCP_KEEPIDLE}, {IPPROTO_TCP, TCP_KEEPINTVL},
		{IPPROTO_TCP, TCP_KEEPCNT}, {IPPROTO_TCP, TCP_USER_TIMEOUT}, {IPPROTO_TCP, TCP_SYNCNT},
		{IPPROTO_TCP, TCP_MAXSEG}};
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
		int theirs = option(from, options[i].level, options[i].name, -1);
		int ours = option(to, options[i].level, options[i].name, -1);
		if (theirs >= 0 && theirs != ours)
			sys_setsockopt(to, options[i].level, options[i].name, &theirs, sizeof theirs);
	}
}

static int make_inner(struct way_in *in)
{
	static const int on = 1;
	bool is_v4 = is_v4_door(in);
	int fd = sys_socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	union name at;
	memset(&at, 0, sizeof at);
	if (is_v4) {
		at.in.sin_family = AF_INET;
		at.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		at.in.sin_port = in->domain == AF_INET ? in->door.in.sin_port : in->door.in6.sin6_port;
	} else {
		at.in6 = in->door.in6;
	}
	sys_setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
	sys_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	int r = sys_bind(fd, &at.sa, is_v4 ? sizeof at.in : sizeof at.in6);
	if (r == 0 && detour_netns(fd) != detour_netns(in->fd))
		r = -EXDEV;
	if (r != 0) {
		sys_close(fd);
		return r;
	}
	return fd;
}

static bool is_any_address(const union name *n)
{
	return n->sa.sa_family == AF_INET ? n->in.sin_addr.s_addr == htonl(INADDR_ANY)
					  : IN6_IS_ADDR_UNSPECIFIED(&n->in6.sin6_addr);
}

/* The socket that goes where the app wanted to; its connect begins here, so that what the kernel knows at once (no
 * route, no such address) is told at once. 0 or -errno; *is_said: it is the destination's. */
static int make_upstream(struct way_in *in, const struct detour_ask *ask, bool *is_said)
{
	static const int on = 1;
	const struct sockaddr *to = ask->via ? ask->via : ask->to;
	socklen_t len = ask->via ? ask->via_len : ask->len;
	int fd = sys_socket(in->domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	int only = in->domain == AF_INET6 ? option(in->fd, IPPROTO_IPV6, IPV6_V6ONLY, 0) : 0;
	if (in->domain == AF_INET6)
		sys_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
	copy_options(in->fd, fd);
	sys_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (in->bound.sa.sa_family && !is_any_address(&in->bound)) {
		/* The port is the app's own socket's: ours gets another. */
		union name from = in->bound;
		if (in->domain == AF_INET)
			from.in.sin_port = 0;
		else
			from.in6.sin6_port = 0;
		int r = sys_bind(fd, &from.sa, in->domain == AF_INET ? sizeof from.in : sizeof from.in6);
		if (r != 0) {
			sys_close(fd);
			return r;
		}
	}
	int r = sys_connect(fd, to, len);
	if (r != 0 && r != -EINPROGRESS) {
		*is_said = true;
		sys_close(fd);
		return r;
	}
	in->upstream = fd;
	return 0;
}

static struct detour *take_record(void)
{
	uint32_t index = pool_take(&detour_pool);
	if (index == POOL_NONE)
		return NULL;
	struct detour *d = detour_at(index);
	uint32_t life = d->life + 1 ? d->life + 1 : 1;
	/* All but what others may look at, and the rooms. */
	memset((char *)d + offsetof(struct detour, mark), 0,
		offsetof(struct detour, own) - offsetof(struct detour, mark));
	d->index = index;
	d->life = life;
	atomic_store(&d->lifted, 0);
	for (int i = 0; i < DETOUR_SOCKETS; i++)
		d->socket[i] = -1;
	for (int i = 0; i < 2; i++)
		d->way[i].room = d->room[i];
	atomic_store(&d->is_dropped, 0);
	atomic_store(&d->holds_app, life);
	atomic_fetch_add(&detour_count, 1);
	return d;
}

static void give_record(struct detour *d)
{
	atomic_store(&d->holds_app, 0);
	atomic_fetch_sub(&detour_count, 1);
	pool_give(&detour_pool, d->index);
}

static void fill_way(struct detour_way *w, const struct shape_rules *rules, int64_t now_ns)
{
	static const struct shape_rules none;
	w->is_shaped = rules != NULL;
	if (w->is_shaped)
		shape_begin(&w->shape, rules ? rules : &none, now_ns);
}

/* Null: the destination itself. */
static const struct detour_end *const ends[] = {[DETOUR_REPLY] = &reply_end,
	[DETOUR_SPOOL] = &spool_end,
	[DETOUR_STATUS] = &status_end,
	[DETOUR_CACHE] = &cache_end};

/* Is what it needs there? What cannot be served is the next step's (a chain of fallbacks). */
static bool is_there(const struct detour_ask *ask)
{
	struct stat st;
	if (ask->kind == DETOUR_RELAY)
		return true;
	if (ask->kind == DETOUR_CACHE)
		return ask->host != NULL; /* who asks has looked */
	if (!ends[ask->kind] || !ask->path || strlen(ask->path) >= DETOUR_PATH)
		return false;
	if (ask->kind == DETOUR_SPOOL) {
		sys_mkdir(ask->path, 0700);
		return sys_stat(ask->path, &st) == 0 && S_ISDIR(st.st_mode) && sys_access(ask->path, W_OK | X_OK) == 0;
	}
	return ask->kind != DETOUR_REPLY ||
	       (sys_stat(ask->path, &st) == 0 && S_ISREG(st.st_mode) && sys_access(ask->path, R_OK) == 0);
}

static void fill_record(struct detour *d, const struct way_in *in, const struct detour_ask *ask, int64_t now_ns)
{
	d->fd = in->fd;
	d->forks = process_forks();
	d->cookie = slot_read_cookie(in->fd);
	d->mark = ask->mark;
	d->limit_at_ns = ask->limit_at_ns;
	d->is_blocking = !(sys_fcntl(in->fd, F_GETFL, 0) & O_NONBLOCK);
	d->held_until_ns = ask->hold_ns == SHAPE_NEVER ? SHAPE_NEVER : now_ns + ask->hold_ns;
	d->has_upstream = in->upstream >= 0;
	d->end = ends[ask->kind];
	d->max_age_ns = ask->max_age_ns;
	d->is_teed = ask->is_teed && d->has_upstream;
	if (ask->onward)
		d->onward = *ask->onward;
	text_copy(d->path, sizeof d->path, ask->path ? ask->path : "");
	text_copy(d->host, sizeof d->host, ask->host ? ask->host : "");
	struct addr to;
	struct text t = TEXT_ON(d->to);
	if (addr_from_sockaddr(&to, ask->to, ask->len))
		addr_text(&t, &to);
	fill_way(&d->way[DETOUR_UP], ask->up, now_ns);
	fill_way(&d->way[DETOUR_DOWN], ask->down, now_ns);
}

/* As the kernel has the name of a peer. */
static void name_peer(union name *n, const struct detour_ask *ask)
{
	memset(n, 0, sizeof *n);
	memcpy(n, ask->to, ask->len < sizeof *n ? ask->len : sizeof *n);
	if (n->sa.sa_family == AF_INET) {
		memset(n->in.sin_zero, 0, sizeof n->in.sin_zero);
		if (n->in.sin_addr.s_addr == htonl(INADDR_ANY))
			n->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return;
	}
	n->in6.sin6_flowinfo = 0;
	if (ask->len < sizeof n->in6)
		n->in6.sin6_scope_id = 0;
	if (IN6_IS_ADDR_UNSPECIFIED(&n->in6.sin6_addr))
		n->in6.sin6_addr = in6addr_loopback;
}

static void fill_place(struct place *p, const struct way_in *in, const struct detour_ask *ask)
{
	atomic_store(&p->cookie, 0);
	p->index = in->d->index;
	p->life = in->d->life;
	atomic_store(&p->error, 0);
	name_peer(&p->peer, ask);
	p->door = in->door;
	p->door_len = in->door_len;
	memset(&p->local, 0, sizeof p->local);
	socklen_t len = sizeof p->local;
	if (in->upstream >= 0 && sys_getsockname(in->upstream, &p->local.sa, &len) != 0)
		p->local.sa.sa_family = 0;
	atomic_store_explicit(&p->cookie, in->d->cookie, memory_order_release);
}

/* A number of ours that stands in the app's table for a moment: only what we put there. */
static void close_own(int fd, uint64_t cookie)
{
	if (fd >= 0 && slot_read_cookie(fd) == cookie)
		sys_close(fd);
}

/* Makes what a detour needs and hands it over. 0: the app's connect is to go to in->door. */
static int hand_over(struct way_in *in, const struct detour_ask *ask, bool *is_said)
{
	struct place *p = place_of(in->fd);
	int64_t now = clock_now_ns();
	int r = 0;
	in->inner = make_inner(in);
	if (in->inner < 0)
		return in->inner;
	if (ask->kind == DETOUR_RELAY && ask->hold_ns != SHAPE_NEVER)
		r = make_upstream(in, ask, is_said);
	if (r == 0) {
		uint64_t cookies[] = {
			slot_read_cookie(in->inner), in->upstream >= 0 ? slot_read_cookie(in->upstream) : 0};
		fill_record(in->d, in, ask, now);
		fill_place(p, in, ask);
		const struct detour_message m = {.word = DETOUR_ASK,
			.index = in->d->index,
			.sockets = 1u << DETOUR_APP | 1u << DETOUR_INNER |
				   (in->upstream >= 0 ? 1u << DETOUR_UPSTREAM : 0)};
		const int fds[] = {in->fd, in->inner, in->upstream};
		in->d->phase = DETOUR_ASKED;
		atomic_store(&detour_any, true);
		r = post(&m, fds, in->upstream >= 0 ? 3 : 2);
		if (r != 0)
			atomic_store(&p->cookie, 0);
		close_own(in->inner, cookies[0]);
		close_own(in->upstream, cookies[1]);
		return r;
	}
	sys_close(in->inner);
	return r;
}

/* The thread lets go of what it has of the app's socket. */
static void drop(struct detour *d, uint32_t life)
{
	if (atomic_load(&d->holds_app) != life)
		return;
	atomic_store(&d->is_dropped, life);
	detour_wake();
	for (int i = 0; i < 10000 && atomic_load(&d->holds_app) == life; i++)
		sched_yield();
}

/* What the kernel keeps for the next who asks: the error of an end that was ours. */
static void clear_error(int fd)
{
	int told;
	socklen_t len = sizeof told;
	sys_getsockopt(fd, SOL_SOCKET, SO_ERROR, &told, &len);
}

/* The app's own connect, to the door; it waits in the kernel as it would without us. */
static int connect_there(struct way_in *in)
{
	int saved = errno;
	int r = in->connect(in->fd, &in->door.sa, in->door_len);
	int err = r < 0 ? errno : 0;
	if (r == 0 || err == EINPROGRESS || err == EINTR || err == EALREADY || err == EISCONN) {
		errno = r < 0 ? err : saved;
		return r;
	}
	int said = detour_error_slow(in->fd, err);
	struct place *p = place_of(in->fd);
	if (said != err) {
		clear_error(in->fd);
		drop(in->d, in->life);
		errno = said;
		return -1;
	}
	drop(in->d, in->life);
	if (err == ETIMEDOUT) {
		errno = err; /* the kernel has sent all the SYNs that it sends */
		return -1;
	}
	/* Not through this door: bound to where it does not lead, a filter on loopback. */
	if (p)
		atomic_store(&p->cookie, 0);
	errno = saved;
	return DETOUR_CANNOT;
}

int detour_connect(int fd, const struct detour_ask *ask)
{
	int saved = errno;
	struct slot *s = slot_at(fd);
	struct way_in in = {
		.fd = fd, .inner = -1, .upstream = -1, .connect = ask->connect ? ask->connect : real.connect};
	bool is_early = s && atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_EARLY;
	if (!is_there(ask) || !s || slot_state_of(slot_word(s)) == SLOT_FREE || is_early || guest_is_restricted() ||
		guest_is_leaving() || !map_places() || !find_door(&in, ask))
		return DETOUR_CANNOT;
	in.d = take_record();
	if (!in.d)
		return DETOUR_CANNOT;
	in.life = in.d->life;
	bool is_said = false;
	/* Counted before the thread is looked at: one that is about to leave sees it and stays. */
	int r = service_detours() && doors_are_open() && knock(&in) ? hand_over(&in, ask, &is_said) : -EAGAIN;
	if (r == 0)
		return connect_there(&in);
	give_record(in.d);
	errno = is_said ? -r : saved;
	return is_said ? -1 : DETOUR_CANNOT;
}

int detour_connect_again(int fd, int (*connect)(int fd, const struct sockaddr *to, socklen_t len))
{
	struct place *p = atomic_load_explicit(&detour_any, memory_order_relaxed) ? known(fd) : NULL;
	struct way_in in = {.fd = fd, .inner = -1, .upstream = -1, .connect = connect};
	if (!p)
		return DETOUR_CANNOT;
	in.d = detour_at(p->index);
	in.life = p->life;
	int said = atomic_load(&p->error);
	if (said) {
		clear_error(fd);
		drop(in.d, in.life);
		atomic_store(&p->cookie, 0);
		errno = said;
		return -1;
	}
	if (atomic_load(&in.d->holds_app) != in.life)
		return DETOUR_CANNOT; /* it is connected: the kernel says so */
	in.door = p->door;
	in.door_len = p->door_len;
	return connect_there(&in);
}

/* ---- what the other hooks ask ---- */

int detour_error_slow(int fd, int err)
{
	if (err != ECONNRESET && err != EPIPE && err != ENOTCONN)
		return err;
	struct place *p = known(fd);
	int said = p ? atomic_load(&p->error) : 0;
	return said ? said : err;
}

void detour_tell_error(uint64_t cookie, int err)
{
	for (int fd = 0; fd <= slot_highest(); fd++) {
		struct place *p = place_of(fd);
		if (p && atomic_load_explicit(&p->cookie, memory_order_acquire) == cookie)
			atomic_store(&p->error, err);
	}
}

void detour_name(int fd, bool is_peer, struct sockaddr *addr, socklen_t cap, socklen_t *len)
{
	if (!atomic_load_explicit(&detour_any, memory_order_relaxed))
		return;
	struct place *p = known(fd);
	const union name *n = p ? is_peer ? &p->peer : &p->local : NULL;
	if (!n || !n->sa.sa_family || (!is_peer && atomic_load(&p->error)))
		return;
	socklen_t all = n->sa.sa_family == AF_INET ? sizeof n->in : sizeof n->in6;
	memcpy(addr, n, cap < all ? cap : all);
	*len = all;
}

static bool has_twin(int fd, uint64_t cookie)
{
	for (int other = 0; other <= slot_highest(); other++) {
		struct place *p = place_of(other);
		if (other != fd && p && atomic_load(&p->cookie) == cookie && slot_read_cookie(other) == cookie)
			return true;
	}
	return false;
}

void detour_closing_slow(int fd)
{
	struct place *p = place_of(fd);
	uint64_t cookie = p ? atomic_load(&p->cookie) : 0;
	if (!cookie)
		return;
	struct detour *d = detour_at(p->index);
	uint32_t life = p->life;
	if (atomic_load(&d->holds_app) == life && slot_read_cookie(fd) == cookie && !has_twin(fd, cookie))
		drop(d, life);
	atomic_store(&p->cookie, 0);
}

void detour_dupped_slow(int from, int to)
{
	struct place *a = place_of(from), *b = place_of(to);
	uint64_t cookie = a ? atomic_load_explicit(&a->cookie, memory_order_acquire) : 0;
	if (!b || (!cookie && !atomic_load(&b->cookie)))
		return;
	atomic_store(&b->cookie, 0);
	if (!cookie)
		return; /* what it replaces was detoured, it is not */
	b->index = a->index;
	b->life = a->life;
	b->peer = a->peer;
	b->local = a->local;
	b->door = a->door;
	b->door_len = a->door_len;
	atomic_store(&b->error, atomic_load(&a->error));
	atomic_store_explicit(&b->cookie, cookie, memory_order_release);
}

static bool is_inherited(const struct detour *d)
{
	for (int fd = 0; fd <= slot_highest(); fd++) {
		struct place *p = place_of(fd);
		if (p && atomic_load(&p->cookie) == d->cookie && slot_read_cookie(fd) == d->cookie &&
			!(sys_fcntl(fd, F_GETFD, 0) & FD_CLOEXEC))
			return true;
	}
	return false;
}

bool detour_will_pass(bool is_to_children)
{
	bool is_any = false;
	for (uint32_t i = 0; detour_pool.base && i < pool_high(&detour_pool); i++) {
		struct detour *d = detour_at(i);
		if (d->phase == DETOUR_FREE)
			continue;
		d->is_inherited = is_to_children || is_inherited(d);
		is_any |= d->is_inherited || d->phase == DETOUR_FLOWS;
	}
	return is_any;
}

bool detour_is_shared(void)
{
	for (uint32_t i = 0; detour_is_any() && i < pool_high(&detour_pool); i++)
		if (detour_at(i)->phase != DETOUR_FREE && detour_at(i)->forks != process_forks())
			return true;
	return false;
}

void detour_lift(uint32_t mark)
{
	for (uint32_t i = 0; detour_pool.base && i < pool_high(&detour_pool); i++) {
		struct detour *d = detour_at(i);
		if (d->mark == mark)
			atomic_store(&d->lifted, d->life);
	}
	if (detour_is_any())
		detour_wake();
}
