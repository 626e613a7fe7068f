/* See fault.h. Any thread, also in signal handlers; no lock, no allocation but the table of lines. The functions here
 * stand in for libc's: they return as those do, errno included, and leave errno as found where they inject nothing.
 *
 * A connection that was begun while faults are in force has a line, by its number: which destination it leads to, and
 * the life of the number it was made for (slot.h). Nothing is injected into a number before its cookie is compared. */
#include "engine/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/real.h"
#include "base/sys.h"
#include "core/faults.h"
#include "engine/detour.h"
#include "engine/fault_decide.h"
#include "engine/guest.h"
#include "engine/slot.h"
#include "policy/names.h"
#include "policy/policy.h"

#define LINES_MAX 65536u
#define PLACES 256u
#define VECTOR_MAX 16
#define SLICE_NS (10 * NS_PER_MS) /* between two slices, where no delay is given: or a reader would see them as one */

/* libc's own, once the layer is in. */
static struct real_table libc;
static _Atomic uint32_t is_in; /* mask of enum fault_call: those that lead here */

/* ---- destinations and lines ---- */

/* A destination that a connect has met: kept for the process's life. */
struct place {
	_Atomic uint32_t is_ready;
	struct addr addr;
	char name[NAMES_MAX + 1];	       /* "": a literal */
	char destination[REGION_NAME_MAX + 1]; /* name:port, ip:port, unix:path */
};
static struct place places[PLACES];
static _Atomic uint32_t place_count;

struct line {
	_Atomic uint64_t life; /* of the slot, and 1; 0: none */
	_Atomic uint64_t cookie;
	_Atomic uint32_t place; /* index + 1 */
	_Atomic uint32_t has_reset;
	_Atomic uint64_t reset_after, in;
};
static struct line *_Atomic lines;
_Atomic bool fault_has_lines;

static struct line *line_at(int fd)
{
	struct line *all = atomic_load_explicit(&lines, memory_order_acquire);
	return all && (uint32_t)fd < LINES_MAX ? &all[fd] : NULL;
}

static bool make_lines(void)
{
	struct line *none = NULL, *all;
	if (atomic_load(&lines))
		return true;
	all = sys_mmap(
		LINES_MAX * sizeof *all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(all))
		return false;
	atomic_store(&fault_has_lines, true);
	if (!atomic_compare_exchange_strong(&lines, &none, all))
		sys_munmap(all, LINES_MAX * sizeof *all);
	return true;
}

static uint64_t life_of(int fd)
{
	struct slot *s = slot_at(fd);
	return s ? slot_word(s) >> 32 << 1 | 1 : 0;
}

/* Of a connection that is on its way or there, still the same number's. */
static struct line *line_of(int fd)
{
	struct line *l = line_at(fd);
	uint64_t life = l ? atomic_load_explicit(&l->life, memory_order_relaxed) : 0;
	return life && life == life_of(fd) ? l : NULL;
}

/* Before anything is done to it: a number closed behind our back may be another's. */
static bool is_same_socket(const struct line *l, int fd)
{
	uint64_t cookie = atomic_load_explicit(&l->cookie, memory_order_relaxed);
	return !cookie || guest_is_restricted() || slot_read_cookie(fd) == cookie;
}

static void describe(struct place *p, const struct addr *a)
{
	struct name_ref ref;
	struct text t = TEXT_ON(p->destination);
	p->addr = *a;
	p->name[0] = p->destination[0] = '\0';
	if (names_find(a, &ref) && names_text(&ref, p->name))
		text_fmt(&t, "%s:%u", p->name, (unsigned)a->port);
	else
		addr_text(&t, a);
}

static bool is_place(const struct place *p, const struct place *of)
{
	return p->addr.family == of->addr.family && p->addr.port == of->addr.port && p->addr.scope == of->addr.scope &&
	       strcmp(p->destination, of->destination) == 0 &&
	       (of->addr.family == ADDR_UNIX || memcmp(p->addr.ip, of->addr.ip, sizeof p->addr.ip) == 0);
}

/* Its index + 1; 0: there are too many, and its octets are left alone. */
static uint32_t keep_place(const struct place *of)
{
	uint32_t n = atomic_load(&place_count);
	for (uint32_t i = 0; i < n && i < PLACES; i++)
		if (atomic_load_explicit(&places[i].is_ready, memory_order_acquire) && is_place(&places[i], of))
			return i + 1;
	if (n >= PLACES)
		return 0;
	uint32_t mine = atomic_fetch_add(&place_count, 1);
	if (mine >= PLACES)
		return 0;
	struct place *p = &places[mine];
	p->addr = of->addr;
	memcpy(p->name, of->name, sizeof p->name);
	memcpy(p->destination, of->destination, sizeof p->destination);
	atomic_store_explicit(&p->is_ready, 1, memory_order_release);
	return mine + 1;
}

/* ---- rules ---- */

/* Those of the configuration first, then those added at run time. */
struct rules {
	const struct config *config, *added;
	uint32_t next;
	bool is_added;
};

static void rules_begin(struct rules *r)
{
	*r = (struct rules){.config = policy_acquire(), .added = policy_acquire_faults()};
}

static void rules_end(struct rules *r)
{
	policy_release(r->config);
	policy_release(r->added);
}

static const struct fault_rule *rules_next(struct rules *r, const struct config **of)
{
	const struct fault_rule *f = NULL;
	if (!r->is_added) {
		*of = r->config;
		f = r->config ? config_fault(r->config, r->next++) : NULL;
		if (f)
			return f;
		r->is_added = true;
		r->next = 0;
	}
	*of = r->added;
	return r->added ? config_fault(r->added, r->next++) : NULL;
}

/* The next rule for this call to this place that may hit. */
static const struct fault_rule *next_for(struct rules *r, const struct place *p, enum fault_call call)
{
	const struct config *of;
	const struct fault_rule *f;
	struct target target = {.addr = &p->addr, .name = p->name[0] ? p->name : NULL, .exe = guest_exe()};
	while ((f = rules_next(r, &of)) != NULL)
		if (fault_is_at(f, call) && fault_may_hit(f) && config_fault_fits(of, f, &target))
			return f;
	return NULL;
}

/* ---- marks: which relays are whose ---- */

/* A relay's mark is of its rules together; when one of them is over, it is lifted. */
#define MARKED_RULES 8
#define MARKS 64
struct marked {
	uint32_t mark, count;
	uint32_t rule[MARKED_RULES];
};
static struct marked marks[MARKS];
static _Atomic uint32_t mark_count, marks_busy;

static uint32_t fault_mark(const struct fault_rule *f)
{
	uint64_t h = hash_bytes(HASH_START ^ f->number, f->name, strlen(f->name));
	return (uint32_t)hash_mix(hash_bytes(h, f->value, sizeof f->value)) | 1;
}

static void keep_marked(const struct marked *m)
{
	uint32_t n = atomic_load(&mark_count);
	for (uint32_t i = 0; i < n && i < MARKS; i++)
		if (marks[i].mark == m->mark)
			return;
	if (n >= MARKS || atomic_exchange(&marks_busy, 1))
		return; /* lifted with the process */
	n = atomic_load(&mark_count);
	if (n < MARKS) {
		marks[n] = *m;
		atomic_store(&mark_count, n + 1);
	}
	atomic_store(&marks_busy, 0);
}

/* Is the rule of this mark there still, and in its time? */
static bool is_in_force(uint32_t mark, int64_t now_ns)
{
	struct rules r;
	const struct config *of;
	const struct fault_rule *f;
	bool is_so = false;
	rules_begin(&r);
	while (!is_so && (f = rules_next(&r, &of)) != NULL)
		is_so = fault_mark(f) == mark && fault_is_on(f, now_ns);
	rules_end(&r);
	return is_so;
}

static void lift_those_over(int64_t now_ns)
{
	if (atomic_load(&mark_count) == 0 || atomic_exchange(&marks_busy, 1))
		return;
	for (uint32_t i = 0; i < atomic_load(&mark_count);) {
		bool is_on = true;
		for (uint32_t k = 0; k < marks[i].count; k++)
			is_on &= is_in_force(marks[i].rule[k], now_ns);
		if (is_on) {
			i++;
			continue;
		}
		detour_lift(marks[i].mark);
		uint32_t last = atomic_load(&mark_count) - 1;
		marks[i] = marks[last];
		atomic_store(&mark_count, last);
	}
	atomic_store(&marks_busy, 0);
}

/* ---- connect ---- */

static int errno_of(const struct fault_rule *f)
{
	switch ((enum fault_type)f->type) {
	case FAULT_IS_REFUSE: return ECONNREFUSED;
	case FAULT_IS_UNREACHABLE: return EHOSTUNREACH;
	case FAULT_IS_ERRNO: return (int)f->value[FAULT_ERRNO];
	default: return 0;
	}
}

/* What becomes of a connection that is begun. */
struct fate {
	int error; /* 0: it goes */
	int64_t hold_ns;
	bool is_shaped, has_mark;
	uint32_t mark;	 /* of its rules together */
	uint32_t status; /* of HTTP; 0: the server's own */
	struct shape_rules up, down;
};

/* A shape of one direction: what two rules ask of the same kind, the first has. */
static void shape(struct shape_rules *s, const struct fault_rule *f, uint64_t seed)
{
	int64_t delay = (int64_t)f->value[FAULT_DELAY];
	switch ((enum fault_type)f->type) {
	case FAULT_IS_LATENCY:
		if (s->delay_ns || s->jitter_ns)
			return;
		s->seed = seed;
		s->delay_ns = delay;
		s->jitter_ns = (int64_t)f->value[FAULT_JITTER];
		s->distribution = (uint8_t)f->value[FAULT_DISTRIBUTION];
		return;
	case FAULT_IS_BANDWIDTH: s->rate = s->rate ? s->rate : f->value[FAULT_RATE]; return;
	case FAULT_IS_BLACKHOLE:
		if (!s->has_hole)
			s->hole_after = f->value[FAULT_AFTER_BYTES];
		s->has_hole = true;
		return;
	case FAULT_IS_LIMIT_DATA:
		if (!s->has_limit)
			s->limit = f->value[FAULT_BYTES];
		s->has_limit = true;
		return;
	case FAULT_IS_RESET:
		if (!s->has_reset) {
			s->reset_after = f->value[FAULT_AFTER_BYTES];
			s->reset_delay_ns = delay;
		}
		s->has_reset = true;
		return;
	case FAULT_IS_SLOW_CLOSE: s->close_delay_ns = s->close_delay_ns ? s->close_delay_ns : delay; return;
	case FAULT_IS_SLICER:
		if (!s->slice) {
			s->slice = f->value[FAULT_SIZE];
			s->slice_delay_ns = delay ? delay : SLICE_NS;
		}
		return;
	case FAULT_IS_CORRUPT:
		s->seed = s->seed ? s->seed : seed;
		s->corrupt_ppm = s->corrupt_ppm ? s->corrupt_ppm : (uint32_t)f->value[FAULT_SHARE];
		return;
	default: return;
	}
}

static void ask_rule(struct fate *fate, const struct fault_rule *f, uint64_t seed)
{
	bool is_up = f->value[FAULT_DIRECTION] != FAULT_DOWN, is_down = f->value[FAULT_DIRECTION] != FAULT_UP;
	fate->error = errno_of(f);
	if (fate->error)
		return;
	fate->has_mark = true;
	fate->mark = fate->mark * 31 + fault_mark(f);
	if (f->type == FAULT_IS_HANG) {
		fate->hold_ns = SHAPE_NEVER;
		return;
	}
	if (f->type == FAULT_IS_SLOW_CONNECT) {
		const struct shape_rules delay = {.delay_ns = (int64_t)f->value[FAULT_DELAY],
			.jitter_ns = (int64_t)f->value[FAULT_JITTER],
			.distribution = (uint8_t)f->value[FAULT_DISTRIBUTION]};
		int64_t hold = shape_delay_ns(&delay, seed);
		fate->hold_ns = hold > fate->hold_ns ? hold : fate->hold_ns;
		return;
	}
	if (f->type == FAULT_IS_HTTP) {
		fate->status = fate->status ? fate->status : (uint32_t)f->value[FAULT_STATUS];
		return;
	}
	fate->is_shaped = true;
	if (is_up)
		shape(&fate->up, f, seed);
	if (is_down)
		shape(&fate->down, f, seed ^ 1);
}

static void ask_rules(struct fate *fate, const struct place *p)
{
	struct rules r;
	const struct fault_rule *f;
	struct marked marked = {.count = 0};
	int64_t now = clock_now_ns();
	*fate = (struct fate){.error = 0};
	rules_begin(&r);
	while (!fate->error && (f = next_for(&r, p, FAULT_AT_CONNECT)) != NULL) {
		uint64_t seed;
		if (!fault_decide(f, p->destination, FAULT_AT_CONNECT, now, &seed))
			continue;
		ask_rule(fate, f, seed);
		if (marked.count < MARKED_RULES)
			marked.rule[marked.count++] = fault_mark(f);
	}
	rules_end(&r);
	if (fate->has_mark && !fate->error) {
		marked.mark = fate->mark;
		keep_marked(&marked);
	}
}

/* Waited for in pieces, or asked after. */
static int go_on(int fd, const struct sockaddr *to, socklen_t len)
{
	int r = detour_connect_again(fd, libc.connect);
	return r != DETOUR_CANNOT ? r : libc.connect(fd, to, len);
}

/* Where there is no way round: a reset can be made at the app's own calls, the rest is left out. */
static void keep_reset(struct line *l, const struct fate *fate)
{
	atomic_store(&l->reset_after, fate->down.reset_after);
	atomic_store(&l->has_reset, fate->down.has_reset && fate->down.reset_delay_ns == 0);
}

static int fault_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	struct addr a;
	struct place p;
	struct fate fate;
	int saved = errno;
	uint64_t life = life_of(fd);
	struct line *l = line_at(fd);
	if (!life || !l || !addr_from_sockaddr(&a, to, len) || !guest_is_on() || guest_is_restricted())
		return libc.connect(fd, to, len);
	if (detour_is_door(&a) && atomic_load(&l->life) != life)
		return libc.connect(fd, to, len); /* a detour of a fallback's */
	/* The same attempt again. */
	if (atomic_load(&l->life) == life)
		return go_on(fd, to, len);
	describe(&p, &a);
	ask_rules(&fate, &p);
	atomic_store(&l->life, 0);
	if (fate.error) {
		errno = fate.error;
		return -1;
	}
	atomic_store(&l->place, keep_place(&p));
	atomic_store(&l->has_reset, 0);
	atomic_store(&l->in, 0);
	atomic_store(&l->cookie, slot_read_cookie(fd));
	atomic_store(&l->life, life);
	errno = saved;
	if (!fate.has_mark)
		return libc.connect(fd, to, len);
	char status[8] = "";
	struct text number = TEXT_ON(status);
	text_u64(&number, fate.status);
	const struct detour_ask ask = {.kind = fate.status ? DETOUR_STATUS : DETOUR_RELAY,
		.to = to,
		.len = len,
		.path = status,
		.connect = libc.connect,
		.up = fate.is_shaped ? &fate.up : NULL,
		.down = fate.is_shaped ? &fate.down : NULL,
		.hold_ns = fate.hold_ns,
		.mark = fate.mark};
	int r = a.family == ADDR_INET ? detour_connect(fd, &ask) : DETOUR_CANNOT;
	if (r != DETOUR_CANNOT)
		return r;
	keep_reset(l, &fate);
	errno = saved;
	return libc.connect(fd, to, len);
}

/* The send is the connect: only what a call can end with. */
static bool may_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	struct addr a;
	struct place p;
	struct fate fate;
	int saved = errno;
	if (!addr_from_sockaddr(&a, to, len) || !guest_is_on() || guest_is_restricted())
		return true;
	(void)fd;
	describe(&p, &a);
	ask_rules(&fate, &p);
	errno = fate.error ? fate.error : saved;
	return !fate.error;
}

void fault_share_slow(int from, int to)
{
	struct line *l = line_of(from), *other = line_at(to);
	uint64_t life = life_of(to);
	if (!l || !other || !life)
		return;
	atomic_store(&other->place, atomic_load(&l->place));
	atomic_store(&other->has_reset, atomic_load(&l->has_reset));
	atomic_store(&other->reset_after, atomic_load(&l->reset_after));
	atomic_store(&other->in, atomic_load(&l->in));
	atomic_store(&other->cookie, atomic_load(&l->cookie));
	atomic_store(&other->life, life);
}

/* ---- send and receive ---- */

static bool is_blocking(int fd, int flags)
{
	int its = guest_is_restricted() ? -1 : sys_fcntl(fd, F_GETFL, 0);
	return !(flags & MSG_DONTWAIT) && its >= 0 && !(its & O_NONBLOCK);
}

/* Only where the socket's mode lets the call end so. */
static bool is_legal_now(int error, int fd, int flags)
{
	if (error != EAGAIN && error != EINTR)
		return true;
	return !guest_is_restricted() && is_blocking(fd, flags) == (error == EINTR);
}

/* Both ends meet a reset: the peer's is the kernel's doing. */
static void reset(int fd)
{
	if (!guest_is_restricted() && sys_disconnect(fd) < 0)
		sys_shutdown(fd, SHUT_RDWR);
}

static bool ends_connection(int error)
{
	return error == ECONNRESET || error == EPIPE || error == ETIMEDOUT;
}

static void raise_pipe(void)
{
	SYS3(SYS_tgkill, sys_getpid(), sys_gettid(), SIGPIPE);
}

/* How many octets a call may move: *limit is lowered. False: it is to fail, errno says with what. */
static bool may_move(int fd, enum fault_call call, size_t *limit, int flags)
{
	struct line *l = line_of(fd);
	uint32_t place = l ? atomic_load_explicit(&l->place, memory_order_relaxed) : 0;
	const struct fault_rule *f;
	struct rules r;
	int error = 0, saved = errno;
	if (!l || flags & (MSG_OOB | MSG_PEEK | MSG_ERRQUEUE) || !guest_is_on())
		return true;
	if (atomic_load_explicit(&l->has_reset, memory_order_relaxed)) {
		uint64_t in = atomic_load(&l->in), after = atomic_load(&l->reset_after);
		if (in >= after && call == FAULT_AT_RECV) {
			if (!is_same_socket(l, fd))
				return true;
			reset(fd);
			atomic_store(&l->has_reset, 0);
			errno = ECONNRESET;
			return false;
		}
		if (call == FAULT_AT_RECV && in < after && after - in < *limit)
			*limit = (size_t)(after - in);
	}
	if (!place || !(atomic_load_explicit(&is_in, memory_order_relaxed) >> call & 1))
		return true;
	int64_t now = clock_now_ns();
	rules_begin(&r);
	while (!error && (f = next_for(&r, &places[place - 1], call)) != NULL) {
		if (f->type == FAULT_IS_ERRNO && !is_legal_now((int)f->value[FAULT_ERRNO], fd, flags))
			continue;
		if (!fault_decide(f, places[place - 1].destination, call, now, NULL))
			continue;
		if (f->type == FAULT_IS_ERRNO)
			error = (int)f->value[FAULT_ERRNO];
		else if (f->value[FAULT_SIZE] < *limit && !(flags & MSG_WAITALL))
			*limit = (size_t)f->value[FAULT_SIZE];
	}
	rules_end(&r);
	errno = saved;
	if (!error || !is_same_socket(l, fd))
		return true;
	if (ends_connection(error))
		reset(fd);
	if (error == EPIPE && !(flags & MSG_NOSIGNAL))
		raise_pipe();
	errno = error;
	return false;
}

/* What came in; at the octet where the reset is due, it comes with it. */
static void moved_in(int fd, ssize_t n, int flags)
{
	struct line *l = n > 0 && !(flags & MSG_PEEK) ? line_of(fd) : NULL;
	if (!l || !atomic_load_explicit(&l->has_reset, memory_order_relaxed))
		return;
	uint64_t in = atomic_fetch_add(&l->in, (uint64_t)n) + (uint64_t)n;
	if (in >= atomic_load(&l->reset_after) && is_same_socket(l, fd)) {
		int saved = errno;
		reset(fd);
		atomic_store(&l->has_reset, 0);
		errno = saved;
	}
}

/* The first `limit` octets of a vector. */
static int shorten(const struct iovec *iov, size_t count, size_t limit, struct iovec out[VECTOR_MAX])
{
	int n = 0;
	for (size_t i = 0; i < count && n < VECTOR_MAX && limit > 0; i++) {
		out[n] = iov[i];
		if (out[n].iov_len > limit)
			out[n].iov_len = limit;
		limit -= out[n++].iov_len;
	}
	return n;
}

static bool is_readable(const struct iovec *iov, size_t count)
{
	return count > 0 && count <= 1024 && addr_may_be_mapped(iov);
}

#define UNLIMITED SIZE_MAX
static size_t lesser(size_t a, size_t b)
{
	return a < b ? a : b;
}

static ssize_t fault_recv(int fd, void *buf, size_t n, int flags)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	ssize_t got = libc.recv(fd, buf, lesser(n, limit), flags);
	moved_in(fd, got, flags);
	return got;
}

static ssize_t fault_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	ssize_t got = libc.recvfrom(fd, buf, lesser(n, limit), flags, from, len);
	moved_in(fd, got, flags);
	return got;
}

static ssize_t fault_read(int fd, void *buf, size_t n)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, 0))
		return -1;
	ssize_t got = libc.read(fd, buf, lesser(n, limit));
	moved_in(fd, got, 0);
	return got;
}

static ssize_t fault_readv(int fd, const struct iovec *iov, int n)
{
	struct iovec some[VECTOR_MAX];
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, 0))
		return -1;
	bool is_short = limit != UNLIMITED && n > 0 && is_readable(iov, (size_t)n);
	int count = is_short ? shorten(iov, (size_t)n, limit, some) : 0;
	ssize_t got = is_short ? libc.readv(fd, some, count) : libc.readv(fd, iov, n);
	moved_in(fd, got, 0);
	return got;
}

static ssize_t fault_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct iovec some[VECTOR_MAX], *its = NULL;
	size_t limit = UNLIMITED, count = 0;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	bool is_short = limit != UNLIMITED && addr_may_be_mapped(msg) && is_readable(msg->msg_iov, msg->msg_iovlen);
	if (is_short) {
		its = msg->msg_iov;
		count = msg->msg_iovlen;
		msg->msg_iovlen = (size_t)shorten(its, count, limit, some);
		msg->msg_iov = some;
	}
	ssize_t got = libc.recvmsg(fd, msg, flags);
	if (is_short) {
		msg->msg_iov = its;
		msg->msg_iovlen = count;
	}
	moved_in(fd, got, flags);
	return got;
}

static int fault_recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout)
{
	size_t limit = UNLIMITED;
	return may_move(fd, FAULT_AT_RECV, &limit, flags) ? libc.recvmmsg(fd, msgs, n, flags, timeout) : -1;
}

static ssize_t fault_read_chk(int fd, void *buf, size_t n, size_t size)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, 0))
		return -1;
	ssize_t got = libc.__read_chk(fd, buf, n > size ? n : lesser(n, limit), size);
	moved_in(fd, got, 0);
	return got;
}

static ssize_t fault_recv_chk(int fd, void *buf, size_t n, size_t size, int flags)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	ssize_t got = libc.__recv_chk(fd, buf, n > size ? n : lesser(n, limit), size, flags);
	moved_in(fd, got, flags);
	return got;
}

static ssize_t fault_recvfrom_chk(
	int fd, void *buf, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	ssize_t got = libc.__recvfrom_chk(fd, buf, n > size ? n : lesser(n, limit), size, flags, from, len);
	moved_in(fd, got, flags);
	return got;
}

static ssize_t fault_send(int fd, const void *buf, size_t n, int flags)
{
	size_t limit = UNLIMITED;
	return may_move(fd, FAULT_AT_SEND, &limit, flags) ? libc.send(fd, buf, lesser(n, limit), flags) : -1;
}

static ssize_t fault_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	size_t limit = UNLIMITED;
	/* The send is the connect. */
	if (flags & MSG_FASTOPEN && to && !may_connect(fd, to, len))
		return -1;
	return may_move(fd, FAULT_AT_SEND, &limit, flags) ? libc.sendto(fd, buf, lesser(n, limit), flags, to, len) : -1;
}

static ssize_t fault_write(int fd, const void *buf, size_t n)
{
	size_t limit = UNLIMITED;
	return may_move(fd, FAULT_AT_SEND, &limit, 0) ? libc.write(fd, buf, lesser(n, limit)) : -1;
}

static ssize_t fault_writev(int fd, const struct iovec *iov, int n)
{
	struct iovec some[VECTOR_MAX];
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_SEND, &limit, 0))
		return -1;
	if (limit == UNLIMITED || n <= 0 || !is_readable(iov, (size_t)n))
		return libc.writev(fd, iov, n);
	int count = shorten(iov, (size_t)n, limit, some);
	return libc.writev(fd, some, count);
}

static ssize_t fault_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct iovec some[VECTOR_MAX];
	size_t limit = UNLIMITED;
	if (flags & MSG_FASTOPEN && addr_may_be_mapped(msg) && msg->msg_name &&
		!may_connect(fd, msg->msg_name, msg->msg_namelen))
		return -1;
	if (!may_move(fd, FAULT_AT_SEND, &limit, flags))
		return -1;
	/* What goes with control data belongs to these very octets. */
	if (limit == UNLIMITED || !addr_may_be_mapped(msg) || msg->msg_controllen ||
		!is_readable(msg->msg_iov, msg->msg_iovlen))
		return libc.sendmsg(fd, msg, flags);
	struct msghdr part = *msg;
	part.msg_iovlen = (size_t)shorten(msg->msg_iov, msg->msg_iovlen, limit, some);
	part.msg_iov = some;
	return libc.sendmsg(fd, &part, flags);
}

static int fault_sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	size_t limit = UNLIMITED;
	return may_move(fd, FAULT_AT_SEND, &limit, flags) ? libc.sendmmsg(fd, msgs, n, flags) : -1;
}

static ssize_t fault_sendfile(int out, int in, off_t *at, size_t n)
{
	size_t limit = UNLIMITED;
	return may_move(out, FAULT_AT_SEND, &limit, 0) ? libc.sendfile(out, in, at, lesser(n, limit)) : -1;
}

static ssize_t fault_sendfile64(int out, int in, off64_t *at, size_t n)
{
	size_t limit = UNLIMITED;
	return may_move(out, FAULT_AT_SEND, &limit, 0) ? libc.sendfile64(out, in, at, lesser(n, limit)) : -1;
}

static ssize_t fault_splice(int in, off64_t *at_in, int out, off64_t *at_out, size_t n, unsigned flags)
{
	size_t limit = UNLIMITED;
	if (!may_move(in, FAULT_AT_RECV, &limit, 0) || !may_move(out, FAULT_AT_SEND, &limit, 0))
		return -1;
	ssize_t got = libc.splice(in, at_in, out, at_out, lesser(n, limit), flags);
	moved_in(in, got, 0);
	return got;
}

/* ---- look-ups ---- */

static void wait_ns(int64_t ns)
{
	int64_t until = clock_now_ns() + ns, left;
	while ((left = until - clock_now_ns()) > 0) {
		struct timespec t = {left / NS_PER_S, left % NS_PER_S};
		sys_poll(NULL, 0, &t);
	}
}

/* The error that a look-up is to end with: EAI_..., 0: none. Waits, where the fault says so. */
static int ask_look_up(const char *node, uint16_t port)
{
	char name[NAMES_MAX + 1], destination[REGION_NAME_MAX + 1] = "";
	struct addr literal;
	struct rules r;
	struct text t = TEXT_ON(destination);
	const struct fault_rule *f;
	const struct config *of;
	int error = 0, saved = errno;
	int64_t delay = 0, now = clock_now_ns();
	if (!node || !guest_is_on() || guest_is_restricted() || addr_from_literal(&literal, node) ||
		!names_clean(name, node))
		return 0;
	text_fmt(&t, "dns:%s", name);
	rules_begin(&r);
	while (!error && (f = rules_next(&r, &of)) != NULL) {
		if (!fault_is_at(f, FAULT_AT_RESOLVE) || !fault_may_hit(f) ||
			!config_fault_fits_look_up(of, f, name, port, guest_exe()) ||
			!fault_decide(f, destination, FAULT_AT_RESOLVE, now, NULL))
			continue;
		delay += (int64_t)f->value[FAULT_DELAY];
		switch ((enum fault_error)f->value[FAULT_ERROR]) {
		case FAULT_AGAIN: error = EAI_AGAIN; break;
		case FAULT_NONAME: error = EAI_NONAME; break;
		case FAULT_FAIL: error = EAI_FAIL; break;
		case FAULT_NO_ERROR: break;
		}
	}
	rules_end(&r);
	if (delay)
		wait_ns(delay);
	errno = saved;
	return error;
}

static int host_error_of(int error)
{
	return error == EAI_AGAIN ? TRY_AGAIN : error == EAI_NONAME ? HOST_NOT_FOUND : NO_RECOVERY;
}

static uint16_t port_of(const char *service)
{
	char *end = NULL;
	unsigned long port = service && *service >= '0' && *service <= '9' ? strtoul(service, &end, 10) : 0;
	return end && !*end && port < 65536 ? (uint16_t)port : 0;
}

static int fault_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
	int error = hints && hints->ai_flags & AI_NUMERICHOST ? 0 : ask_look_up(node, port_of(service));
	return error ? error : libc.getaddrinfo(node, service, hints, res);
}

static struct hostent *fault_gethostbyname(const char *name)
{
	int error = ask_look_up(name, 0);
	if (!error)
		return libc.gethostbyname(name);
	h_errno = host_error_of(error);
	return NULL;
}

static struct hostent *fault_gethostbyname2(const char *name, int family)
{
	int error = ask_look_up(name, 0);
	if (!error)
		return libc.gethostbyname2(name, family);
	h_errno = host_error_of(error);
	return NULL;
}

static int fault_gethostbyname_r(
	const char *name, struct hostent *ret, char *buf, size_t n, struct hostent **result, int *err)
{
	int error = ask_look_up(name, 0);
	if (!error)
		return libc.gethostbyname_r(name, ret, buf, n, result, err);
	*result = NULL;
	*err = host_error_of(error);
	return error == EAI_AGAIN ? EAGAIN : 0;
}

static int fault_gethostbyname2_r(
	const char *name, int family, struct hostent *ret, char *buf, size_t n, struct hostent **result, int *err)
{
	int error = ask_look_up(name, 0);
	if (!error)
		return libc.gethostbyname2_r(name, family, ret, buf, n, result, err);
	*result = NULL;
	*err = host_error_of(error);
	return error == EAI_AGAIN ? EAGAIN : 0;
}

/* ---- in and out ---- */

#define PUT(name, ours) __atomic_store_n(&real.name, is_on ? (ours) : libc.name, __ATOMIC_RELEASE)

bool fault_is_at_connect(void)
{
	return real.connect == fault_connect;
}

static void put_connect(bool is_on)
{
	PUT(connect, fault_connect);
}

static void put_resolve(bool is_on)
{
	PUT(getaddrinfo, fault_getaddrinfo);
	PUT(gethostbyname, fault_gethostbyname);
	PUT(gethostbyname2, fault_gethostbyname2);
	PUT(gethostbyname_r, fault_gethostbyname_r);
	PUT(gethostbyname2_r, fault_gethostbyname2_r);
}

static void put_send(bool is_on)
{
	PUT(send, fault_send);
	PUT(sendto, fault_sendto);
	PUT(sendmsg, fault_sendmsg);
	PUT(sendmmsg, fault_sendmmsg);
	PUT(write, fault_write);
	PUT(writev, fault_writev);
	PUT(sendfile, fault_sendfile);
	PUT(sendfile64, fault_sendfile64);
}

static void put_recv(bool is_on)
{
	PUT(recv, fault_recv);
	PUT(recvfrom, fault_recvfrom);
	PUT(recvmsg, fault_recvmsg);
	PUT(recvmmsg, fault_recvmmsg);
	PUT(read, fault_read);
	PUT(readv, fault_readv);
	PUT(__read_chk, fault_read_chk);
	PUT(__recv_chk, fault_recv_chk);
	PUT(__recvfrom_chk, fault_recvfrom_chk);
}

#define AT(call) (1u << FAULT_AT_##call)

/* The calls at which any rule may hit; what a reset needs to know is learnt at all of them. */
static uint32_t wanted(void)
{
	struct rules r;
	const struct config *of;
	const struct fault_rule *f;
	uint32_t mask = 0;
	rules_begin(&r);
	while ((f = rules_next(&r, &of)) != NULL) {
		if (!fault_may_hit(f))
			continue;
		mask |= (uint32_t)f->value[FAULT_CALLS];
		if (f->type == FAULT_IS_RESET)
			mask |= AT(SEND) | AT(RECV);
	}
	rules_end(&r);
	return mask & (AT(SEND) | AT(RECV)) ? mask | AT(CONNECT) : mask;
}

static void put(void)
{
	uint32_t mask = wanted(), was = atomic_load(&is_in);
	if (mask == was || (mask && !make_lines()))
		return;
	if (!libc.connect)
		libc = real;
	atomic_store(&is_in, mask);
	put_connect(mask & AT(CONNECT));
	put_resolve(mask & AT(RESOLVE));
	put_send(mask & AT(SEND));
	put_recv(mask & AT(RECV));
	bool is_on = mask & (AT(SEND) | AT(RECV));
	PUT(splice, fault_splice);
}

void fault_init(void)
{
	fault_decide_init();
	put();
}

static _Atomic uint32_t seen; /* header->fault_seq */
static _Atomic uint32_t busy;

void fault_forked(void)
{
	atomic_store(&busy, 0);
	atomic_store(&marks_busy, 0);
	fault_decide_forked();
}

static void take_over(struct region *r)
{
	static struct faults_rule rules[REGION_FAULTS];
	struct fault_given given[REGION_FAULTS];
	uint32_t n = 0;
	int64_t now = clock_now_ns();
	for (uint32_t i = 0; i < REGION_FAULTS; i++) {
		if (!faults_read(r, i, now, &rules[n]))
			continue;
		given[n] = (struct fault_given){rules[n].spec, rules[n].number, rules[n].begun_ns, rules[n].until_ns};
		n++;
	}
	struct config *c = config_load_faults(given, n);
	if (c && policy_install_faults(c) != 0)
		config_free(c);
}

void fault_follow(struct region *r)
{
	uint32_t asked = atomic_load_explicit(&r->header->fault_seq, memory_order_acquire);
	if (atomic_exchange(&busy, 1))
		return;
	if (atomic_exchange(&seen, asked) != asked)
		take_over(r);
	put();
	lift_those_over(clock_now_ns());
	atomic_store(&busy, 0);
}

void fault_look(int64_t now_ns)
{
	struct region *r = guest_region_now();
	if (r && atomic_load_explicit(&r->header->fault_seq, memory_order_relaxed) != atomic_load(&seen))
		fault_follow(r);
	else
		lift_those_over(now_ns);
}

void fault_attached(struct region *r)
{
	const struct config *added = policy_acquire_faults();
	policy_release(added);
	faults_drop_orphans(r);
	/* Another region's, too, are over. */
	if (added || atomic_load(&r->header->fault_seq))
		atomic_store(&seen, atomic_load(&r->header->fault_seq) - 1);
	fault_follow(r);
}
