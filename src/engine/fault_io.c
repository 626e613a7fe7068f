/* Faults at send and receive (fault_layer.h): errors that the socket's state allows, short counts, and the reset of a
 * connection that could not be led by a detour. Any thread, also in signal handlers; no lock, no allocation. A wrapper
 * a call, which returns as libc's does, errno included, and leaves errno as found where nothing is injected. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "base/clock.h"
#include "base/sys.h"
#include "engine/fault_decide.h"
#include "engine/fault_layer.h"
#include "engine/guest.h"

#define VECTOR_MAX 16

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
	struct fault_line *l = fault_line_of(fd);
	uint32_t place = l ? atomic_load_explicit(&l->place, memory_order_relaxed) : 0;
	const struct fault_rule *f;
	struct fault_rules r;
	int error = 0, saved = errno;
	if (!l || flags & (MSG_OOB | MSG_PEEK | MSG_ERRQUEUE) || !guest_is_on())
		return true;
	if (atomic_load_explicit(&l->has_reset, memory_order_relaxed)) {
		uint64_t in = atomic_load(&l->in), after = atomic_load(&l->reset_after);
		if (in >= after && call == FAULT_AT_RECV) {
			if (!fault_line_is_same(l, fd))
				return true;
			reset(fd);
			atomic_store(&l->has_reset, 0);
			errno = ECONNRESET;
			return false;
		}
		if (call == FAULT_AT_RECV && in < after && after - in < *limit)
			*limit = (size_t)(after - in);
	}
	if (!place || !fault_is_at_call(call))
		return true;
	int64_t now = clock_now_ns();
	fault_rules_begin(&r);
	while (!error && (f = fault_rules_next_for(&r, fault_place_at(place - 1), call)) != NULL) {
		if (f->type == FAULT_IS_ERRNO && !is_legal_now((int)f->value[FAULT_ERRNO], fd, flags))
			continue;
		if (!fault_decide(f, fault_place_at(place - 1)->destination, call, now, NULL))
			continue;
		if (f->type == FAULT_IS_ERRNO)
			error = (int)f->value[FAULT_ERRNO];
		else if (f->value[FAULT_SIZE] < *limit && !(flags & MSG_WAITALL))
			*limit = (size_t)f->value[FAULT_SIZE];
	}
	fault_rules_end(&r);
	fault_leave(now);
	errno = saved;
	if (!error || !fault_line_is_same(l, fd))
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
	struct fault_line *l = n > 0 && !(flags & MSG_PEEK) ? fault_line_of(fd) : NULL;
	if (!l || !atomic_load_explicit(&l->has_reset, memory_order_relaxed))
		return;
	uint64_t in = atomic_fetch_add(&l->in, (uint64_t)n) + (uint64_t)n;
	if (in >= atomic_load(&l->reset_after) && fault_line_is_same(l, fd)) {
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
#define MESSAGES_MAX 1024 /* that the kernel takes of one call */

/* The message of several with which the limit is reached: in part, for the length of a call. */
struct cut {
	struct msghdr *msg; /* null: none */
	struct iovec *its;
	size_t its_count;
	struct iovec some[VECTOR_MAX];
};

/* How many octets it has room for; no more than is asked. False: the kernel is to judge it. */
static bool measure(const struct msghdr *m, size_t most, size_t *all)
{
	*all = 0;
	if (m->msg_iovlen && !is_readable(m->msg_iov, m->msg_iovlen))
		return false;
	for (size_t i = 0; i < m->msg_iovlen && *all <= most; i++)
		*all = m->msg_iov[i].iov_len > most ? most + 1 : *all + m->msg_iov[i].iov_len;
	return true;
}

/* Of how many messages a call is to be. A stream may end it so at any octet: a call that has moved one in part ends
 * with it. What goes with control data belongs to these very octets: that message is the last, and whole. */
static unsigned cut_messages(struct mmsghdr *msgs, unsigned n, size_t limit, bool is_send, struct cut *c)
{
	c->msg = NULL;
	if (limit == UNLIMITED || !addr_may_be_mapped(msgs))
		return n;
	for (unsigned i = 0; i < n && i < MESSAGES_MAX; i++) {
		struct msghdr *m = &msgs[i].msg_hdr;
		size_t all;
		if (!measure(m, limit, &all))
			return n;
		if (all < limit) {
			limit -= all;
			continue;
		}
		if (all > limit && !(is_send && m->msg_controllen)) {
			c->msg = m;
			c->its = m->msg_iov;
			c->its_count = m->msg_iovlen;
			m->msg_iovlen = (size_t)shorten(c->its, c->its_count, limit, c->some);
			m->msg_iov = c->some;
		}
		return i + 1;
	}
	return n;
}

static void mend(struct cut *c)
{
	if (!c->msg)
		return;
	c->msg->msg_iov = c->its;
	c->msg->msg_iovlen = c->its_count;
}

static size_t lesser(size_t a, size_t b)
{
	return a < b ? a : b;
}

static ssize_t fault_recv(int fd, void *buf, size_t n, int flags)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	ssize_t got = fault_libc.recv(fd, buf, lesser(n, limit), flags);
	moved_in(fd, got, flags);
	return got;
}

static ssize_t fault_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	ssize_t got = fault_libc.recvfrom(fd, buf, lesser(n, limit), flags, from, len);
	moved_in(fd, got, flags);
	return got;
}

static ssize_t fault_read(int fd, void *buf, size_t n)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, 0))
		return -1;
	ssize_t got = fault_libc.read(fd, buf, lesser(n, limit));
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
	ssize_t got = is_short ? fault_libc.readv(fd, some, count) : fault_libc.readv(fd, iov, n);
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
	ssize_t got = fault_libc.recvmsg(fd, msg, flags);
	if (is_short) {
		msg->msg_iov = its;
		msg->msg_iovlen = count;
	}
	moved_in(fd, got, flags);
	return got;
}

static int fault_recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout)
{
	struct cut c;
	size_t limit = UNLIMITED, in = 0;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	n = cut_messages(msgs, n, limit, false, &c);
	int got = fault_libc.recvmmsg(fd, msgs, n, flags, timeout);
	mend(&c);
	for (int i = 0; i < got; i++)
		in += msgs[i].msg_len;
	moved_in(fd, (ssize_t)in, flags);
	return got;
}

static ssize_t fault_read_chk(int fd, void *buf, size_t n, size_t size)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, 0))
		return -1;
	ssize_t got = fault_libc.__read_chk(fd, buf, n > size ? n : lesser(n, limit), size);
	moved_in(fd, got, 0);
	return got;
}

static ssize_t fault_recv_chk(int fd, void *buf, size_t n, size_t size, int flags)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	ssize_t got = fault_libc.__recv_chk(fd, buf, n > size ? n : lesser(n, limit), size, flags);
	moved_in(fd, got, flags);
	return got;
}

static ssize_t fault_recvfrom_chk(
	int fd, void *buf, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len)
{
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_RECV, &limit, flags))
		return -1;
	ssize_t got = fault_libc.__recvfrom_chk(fd, buf, n > size ? n : lesser(n, limit), size, flags, from, len);
	moved_in(fd, got, flags);
	return got;
}

static ssize_t fault_send(int fd, const void *buf, size_t n, int flags)
{
	size_t limit = UNLIMITED;
	return may_move(fd, FAULT_AT_SEND, &limit, flags) ? fault_libc.send(fd, buf, lesser(n, limit), flags) : -1;
}

static ssize_t fault_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	size_t limit = UNLIMITED;
	/* The send is the connect. */
	if (flags & MSG_FASTOPEN && to && !fault_may_connect(to, len))
		return -1;
	return may_move(fd, FAULT_AT_SEND, &limit, flags) ? fault_libc.sendto(fd, buf, lesser(n, limit), flags, to, len)
							  : -1;
}

static ssize_t fault_write(int fd, const void *buf, size_t n)
{
	size_t limit = UNLIMITED;
	return may_move(fd, FAULT_AT_SEND, &limit, 0) ? fault_libc.write(fd, buf, lesser(n, limit)) : -1;
}

static ssize_t fault_writev(int fd, const struct iovec *iov, int n)
{
	struct iovec some[VECTOR_MAX];
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_SEND, &limit, 0))
		return -1;
	if (limit == UNLIMITED || n <= 0 || !is_readable(iov, (size_t)n))
		return fault_libc.writev(fd, iov, n);
	int count = shorten(iov, (size_t)n, limit, some);
	return fault_libc.writev(fd, some, count);
}

static ssize_t fault_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct iovec some[VECTOR_MAX];
	size_t limit = UNLIMITED;
	if (flags & MSG_FASTOPEN && addr_may_be_mapped(msg) && msg->msg_name &&
		!fault_may_connect(msg->msg_name, msg->msg_namelen))
		return -1;
	if (!may_move(fd, FAULT_AT_SEND, &limit, flags))
		return -1;
	/* What goes with control data belongs to these very octets. */
	if (limit == UNLIMITED || !addr_may_be_mapped(msg) || msg->msg_controllen ||
		!is_readable(msg->msg_iov, msg->msg_iovlen))
		return fault_libc.sendmsg(fd, msg, flags);
	struct msghdr part = *msg;
	part.msg_iovlen = (size_t)shorten(msg->msg_iov, msg->msg_iovlen, limit, some);
	part.msg_iov = some;
	return fault_libc.sendmsg(fd, &part, flags);
}

static int fault_sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	struct cut c;
	size_t limit = UNLIMITED;
	if (!may_move(fd, FAULT_AT_SEND, &limit, flags))
		return -1;
	n = cut_messages(msgs, n, limit, true, &c);
	int gone = fault_libc.sendmmsg(fd, msgs, n, flags);
	mend(&c);
	return gone;
}

static ssize_t fault_sendfile(int out, int in, off_t *at, size_t n)
{
	size_t limit = UNLIMITED;
	return may_move(out, FAULT_AT_SEND, &limit, 0) ? fault_libc.sendfile(out, in, at, lesser(n, limit)) : -1;
}

static ssize_t fault_sendfile64(int out, int in, off64_t *at, size_t n)
{
	size_t limit = UNLIMITED;
	return may_move(out, FAULT_AT_SEND, &limit, 0) ? fault_libc.sendfile64(out, in, at, lesser(n, limit)) : -1;
}

static ssize_t fault_splice(int in, off64_t *at_in, int out, off64_t *at_out, size_t n, unsigned flags)
{
	size_t limit = UNLIMITED;
	if (!may_move(in, FAULT_AT_RECV, &limit, 0) || !may_move(out, FAULT_AT_SEND, &limit, 0))
		return -1;
	ssize_t got = fault_libc.splice(in, at_in, out, at_out, lesser(n, limit), flags);
	moved_in(in, got, 0);
	return got;
}

/* ---- in and out ---- */

void fault_io_put_send(bool is_on)
{
	FAULT_PUT(send, fault_send);
	FAULT_PUT(sendto, fault_sendto);
	FAULT_PUT(sendmsg, fault_sendmsg);
	FAULT_PUT(sendmmsg, fault_sendmmsg);
	FAULT_PUT(write, fault_write);
	FAULT_PUT(writev, fault_writev);
	FAULT_PUT(sendfile, fault_sendfile);
	FAULT_PUT(sendfile64, fault_sendfile64);
}

void fault_io_put_recv(bool is_on)
{
	FAULT_PUT(recv, fault_recv);
	FAULT_PUT(recvfrom, fault_recvfrom);
	FAULT_PUT(recvmsg, fault_recvmsg);
	FAULT_PUT(recvmmsg, fault_recvmmsg);
	FAULT_PUT(read, fault_read);
	FAULT_PUT(readv, fault_readv);
	FAULT_PUT(__read_chk, fault_read_chk);
	FAULT_PUT(__recv_chk, fault_recv_chk);
	FAULT_PUT(__recvfrom_chk, fault_recvfrom_chk);
}

void fault_io_put_both(bool is_on)
{
	FAULT_PUT(splice, fault_splice);
}
