/* Taken: input and output. A descriptor that nothing is to be learnt from costs one load and a branch; no lock, no
 * allocation, no system call is added. */
#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "base/addr.h"
#include "base/real.h"
#include "engine/connect.h"
#include "engine/guest.h"
#include "engine/io.h"
#include "hook/export.h"

/* The slot when this descriptor's input or output means something to us. */
static inline struct slot *watched(int fd)
{
	struct slot *s = slot_watched(fd);
	return __builtin_expect(s != NULL, 0) && guest_is_on() ? s : NULL;
}

/* ---- where the octets are ---- */

static inline struct octets in_buffer(struct iovec *one, const void *buf, size_t n)
{
	*one = (struct iovec){(void *)(uintptr_t)buf, n};
	return (struct octets){.iov = one, .count = 1, .limit = n};
}

/* A vector is read where the app's own call would have the kernel read it; what it cannot have mapped is the kernel's
 * to refuse. */
static inline struct octets in_vector(const struct iovec *iov, size_t count)
{
	struct octets o = {.iov = iov, .count = (int)count};
	if (count > 1024 || (count && !addr_may_be_mapped(iov)))
		return (struct octets){.is_blind = true, .limit = 1};
	for (size_t i = 0; i < count; i++) {
		if (iov[i].iov_len && !addr_may_be_mapped(iov[i].iov_base))
			return (struct octets){.is_blind = true, .limit = 1};
		o.limit += iov[i].iov_len;
	}
	return o;
}

static inline struct octets in_message(const struct msghdr *msg)
{
	if (!msg || !addr_may_be_mapped(msg))
		return (struct octets){.is_blind = true, .limit = 1};
	struct octets o = in_vector(msg->msg_iov, msg->msg_iovlen);
	o.is_fixed = msg->msg_controllen > 0; /* what goes with it belongs to these very octets */
	return o;
}

static inline struct octets unseen(size_t n)
{
	return (struct octets){.limit = n, .is_blind = true};
}

/* ---- receiving ---- */

/* A hook is a load, a branch and a jump to the real function. What follows when the slot is watched is a function of
 * its own: in one body with it the compiler would save and restore registers on the everyday road (14 instructions
 * more). where the octets are, flags, is_ours: looked at only then. */
#define COLD static __attribute__((noinline))
#define DOOR(type, name, params, args)                                                                                 \
	EXPORT type name params                                                                                        \
	{                                                                                                              \
		return __builtin_expect(slot_watched(fd) != NULL, 0) ? name##_watched args : real.name args;           \
	}                                                                                                              \
	_Static_assert(1, "a semicolon follows")
#define TAKE_RECEIVE(type, name, params, args, where, flags, is_ours)                                                  \
	COLD type name##_watched params                                                                                \
	{                                                                                                              \
		struct slot *s = (is_ours) ? watched(fd) : NULL;                                                       \
		struct iovec one;                                                                                      \
		struct io io;                                                                                          \
		(void)one;                                                                                             \
		if (!s)                                                                                                \
			return real.name args;                                                                         \
		if (!io_receive_begin(&io, s, fd))                                                                     \
			return -1;                                                                                     \
		ssize_t got = real.name args;                                                                          \
		struct octets o = where;                                                                               \
		return (type)io_receive_end(&io, &o, got, flags);                                                      \
	}                                                                                                              \
	DOOR(type, name, params, args)

/* Error reports and urgent bytes are not data (A15). */
static inline bool is_data(int flags)
{
	return (flags & (MSG_ERRQUEUE | MSG_OOB)) == 0;
}

/* MSG_TRUNC throws the octets away. */
static inline struct octets received_in(struct iovec *one, const void *buf, size_t n, int flags)
{
	return flags & MSG_TRUNC ? unseen(n) : in_buffer(one, buf, n);
}

/* Into one buffer: as TAKE_RECEIVE, with a short road for the midst of an answer. */
#define TAKE_RECEIVE_INTO(type, name, params, args, flags, is_ours)                                                    \
	COLD type name##_slow params                                                                                   \
	{                                                                                                              \
		struct slot *s = watched(fd);                                                                          \
		struct iovec one;                                                                                      \
		struct io io;                                                                                          \
		if (!s || !(is_ours))                                                                                  \
			return real.name args;                                                                         \
		if (!io_receive_begin(&io, s, fd))                                                                     \
			return -1;                                                                                     \
		ssize_t got = real.name args;                                                                          \
		struct octets o = received_in(&one, buf, n, flags);                                                    \
		return (type)io_receive_end(&io, &o, got, flags);                                                      \
	}                                                                                                              \
	COLD type name##_watched params                                                                                \
	{                                                                                                              \
		struct slot *s = slot_at(fd);                                                                          \
		uint64_t word = slot_word(s);                                                                          \
		struct flow *f = io_midst(s, word, FLOW_ANSWERING);                                                    \
		if (!f || !guest_is_on() || (flags) & (MSG_PEEK | MSG_ERRQUEUE | MSG_OOB))                             \
			return name##_slow args;                                                                       \
		ssize_t got = real.name args;                                                                          \
		if (__builtin_expect(got <= 0 || io_midst(s, word, FLOW_ANSWERING) != f, 0))                           \
			return (type)io_received_late(s, word, fd, buf, n, got, flags);                                \
		atomic_fetch_add_explicit(&f->in, (uint64_t)got, memory_order_relaxed);                                \
		return (type)got;                                                                                      \
	}                                                                                                              \
	DOOR(type, name, params, args)

TAKE_RECEIVE_INTO(ssize_t, recv, (int fd, void *buf, size_t n, int flags), (fd, buf, n, flags), flags, is_data(flags));

TAKE_RECEIVE_INTO(ssize_t, recvfrom,
	(int fd, void *restrict buf, size_t n, int flags, struct sockaddr *restrict from, socklen_t *restrict len),
	(fd, buf, n, flags, from, len), flags, is_data(flags));

TAKE_RECEIVE(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags),
	flags &MSG_TRUNC ? unseen(1) : in_message(msg), flags, is_data(flags));

TAKE_RECEIVE_INTO(ssize_t, read, (int fd, void *buf, size_t n), (fd, buf, n), 0, true);
ALIAS(read, __read);

TAKE_RECEIVE(
	ssize_t, readv, (int fd, const struct iovec *iov, int n), (fd, iov, n), in_vector(iov, (size_t)n), 0, true);

/* Several messages of a stream: counted, not read. */
TAKE_RECEIVE(int, recvmmsg, (int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout),
	(fd, msgs, n, flags, timeout), unseen(n), flags, is_data(flags));

/* The fortified forms check the buffer's size in libc and go on to the plain system call. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t size);
ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len);

TAKE_RECEIVE(ssize_t, __read_chk, (int fd, void *buf, size_t n, size_t size), (fd, buf, n, size),
	in_buffer(&one, buf, n), 0, true);

TAKE_RECEIVE(ssize_t, __recv_chk, (int fd, void *buf, size_t n, size_t size, int flags), (fd, buf, n, size, flags),
	received_in(&one, buf, n, flags), flags, is_data(flags));

TAKE_RECEIVE(ssize_t, __recvfrom_chk,
	(int fd, void *buf, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len),
	(fd, buf, n, size, flags, from, len), received_in(&one, buf, n, flags), flags, is_data(flags));

/* ---- sending ---- */

/* As TAKE_RECEIVE. call: what is made of it, with the flags that `quiet` gives a send of no flags or of these. */
#define SENDING(name, where, flags, call, otherwise)                                                                   \
	struct slot *s = watched(fd);                                                                                  \
	struct iovec one;                                                                                              \
	struct io io;                                                                                                  \
	(void)one;                                                                                                     \
	if (!s)                                                                                                        \
		return otherwise;                                                                                      \
	struct octets o = (flags)&MSG_OOB ? unseen(0) : where;                                                         \
	if (!io_send_begin(&io, s, fd, &o))                                                                            \
		return -1;                                                                                             \
	return io_send_end(&io, &o, io_is_edited(&io) ? io_send_edited(&io, &o, flags) : (call))

#define TAKE_SEND(type, name, params, args, where, flags, call)                                                        \
	COLD type name##_watched params                                                                                \
	{                                                                                                              \
		SENDING(name, where, flags, call, real.name args);                                                     \
	}                                                                                                              \
	DOOR(type, name, params, args)

static inline struct octets sent_from(struct iovec *one, const void *buf, size_t n)
{
	return n && !addr_may_be_mapped(buf) ? unseen(1) : in_buffer(one, buf, n);
}

/* write and writev raise SIGPIPE where a send need not: where we may end the socket it goes as one (C11). */
static ssize_t write_quietly(struct io *io, const void *buf, size_t n)
{
	int flags = io_send_flags(io, 0);
	if (!flags)
		return real.write(io->fd, buf, n);
	ssize_t r = real.send(io->fd, buf, n, flags);
	return r < 0 && errno == ENOTSOCK ? real.write(io->fd, buf, n) : r;
}

static ssize_t writev_quietly(struct io *io, const struct iovec *iov, int n)
{
	int flags = n > 0 && n <= 1024 ? io_send_flags(io, 0) : 0;
	if (!flags)
		return real.writev(io->fd, iov, n);
	struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};
	ssize_t r = real.sendmsg(io->fd, &msg, flags);
	return r < 0 && errno == ENOTSOCK ? real.writev(io->fd, iov, n) : r;
}

/* From one buffer: with a short road for the midst of a request. */
#define TAKE_SEND_FROM(type, name, params, args, flags, call)                                                          \
	COLD type name##_slow params                                                                                   \
	{                                                                                                              \
		SENDING(name, sent_from(&one, buf, n), flags, call, real.name args);                                   \
	}                                                                                                              \
	COLD type name##_watched params                                                                                \
	{                                                                                                              \
		struct slot *s = slot_at(fd);                                                                          \
		uint64_t word = slot_word(s);                                                                          \
		struct flow *f = io_midst(s, word, FLOW_WAITING);                                                      \
		/* Whatever may end in an error that we have to look at takes the other road. */                       \
		if (!f || !guest_is_on() || flow_has(f, FLOW_HAS_LIMITS))                                              \
			return name##_slow args;                                                                       \
		type gone = real.name args;                                                                            \
		if (__builtin_expect(gone < 0, 0))                                                                     \
			return (type)io_sent_late(s, word, fd, n, gone);                                               \
		return gone;                                                                                           \
	}                                                                                                              \
	DOOR(type, name, params, args)

TAKE_SEND_FROM(ssize_t, send, (int fd, const void *buf, size_t n, int flags), (fd, buf, n, flags), flags,
	real.send(fd, buf, n, io_send_flags(&io, flags)));
ALIAS(send, __send);

TAKE_SEND_FROM(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n), 0, write_quietly(&io, buf, n));
ALIAS(write, __write);

TAKE_SEND(ssize_t, writev, (int fd, const struct iovec *iov, int n), (fd, iov, n), in_vector(iov, (size_t)n), 0,
	writev_quietly(&io, iov, n));

TAKE_SEND(ssize_t, sendfile, (int fd, int in, off_t *at, size_t n), (fd, in, at, n), unseen(n), 0,
	real.sendfile(fd, in, at, n));

TAKE_SEND(ssize_t, sendfile64, (int fd, int in, off64_t *at, size_t n), (fd, in, at, n), unseen(n), 0,
	real.sendfile64(fd, in, at, n));

COLD ssize_t splice_watched(int in, off64_t *at_in, int out, off64_t *at_out, size_t n, unsigned flags)
{
	struct slot *from = watched(in), *to = watched(out);
	struct octets o = unseen(n);
	struct io receive, send;
	if (from && !io_receive_begin(&receive, from, in))
		return -1;
	if (to && !io_send_begin(&send, to, out, &o))
		return -1;
	ssize_t r = real.splice(in, at_in, out, at_out, n, flags);
	/* An error may be of either end: where both are ours it is the reading one's, and the other hears of it by its
	 * next use. */
	if (to)
		r = io_send_end(&send, &o, from && r < 0 ? 0 : r);
	if (from)
		r = io_receive_end(&receive, &o, r, 0);
	return r;
}

EXPORT ssize_t splice(int in, off64_t *at_in, int out, off64_t *at_out, size_t n, unsigned flags)
{
	return __builtin_expect(slot_watched(in) || slot_watched(out), 0)
		       ? splice_watched(in, at_in, out, at_out, n, flags)
		       : real.splice(in, at_in, out, at_out, n, flags);
}

/* ---- sends that may be connects (MSG_FASTOPEN with an address) ---- */

static bool may_connect(int flags, const struct sockaddr *to)
{
	return __builtin_expect((flags & MSG_FASTOPEN) && to, 0) && guest_is_on();
}

static inline bool may_matter(int fd, int flags)
{
	return __builtin_expect((flags & MSG_FASTOPEN) || slot_watched(fd), 0);
}

COLD ssize_t sendto_watched(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	if (may_connect(flags, to)) {
		enum connect_begun begun = connect_fastopen_begin(fd, to, len);
		if (begun == CONNECT_REJECTED)
			return -1;
		if (begun == CONNECT_TRACKED)
			return connect_fastopen_end(fd, real.sendto(fd, buf, n, flags, to, len));
	}
	SENDING(sendto, sent_from(&one, buf, n), flags, real.sendto(fd, buf, n, io_send_flags(&io, flags), to, len),
		real.sendto(fd, buf, n, flags, to, len));
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	return may_matter(fd, flags) ? sendto_watched(fd, buf, n, flags, to, len)
				     : real.sendto(fd, buf, n, flags, to, len);
}

COLD ssize_t sendmsg_watched(int fd, const struct msghdr *msg, int flags)
{
	if (may_connect(flags, msg ? msg->msg_name : NULL)) {
		enum connect_begun begun = connect_fastopen_begin(fd, msg->msg_name, msg->msg_namelen);
		if (begun == CONNECT_REJECTED)
			return -1;
		if (begun == CONNECT_TRACKED)
			return connect_fastopen_end(fd, real.sendmsg(fd, msg, flags));
	}
	SENDING(sendmsg, in_message(msg), flags, real.sendmsg(fd, msg, io_send_flags(&io, flags)),
		real.sendmsg(fd, msg, flags));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return may_matter(fd, flags) ? sendmsg_watched(fd, msg, flags) : real.sendmsg(fd, msg, flags);
}

COLD int sendmmsg_watched(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	if (n > 0 && may_connect(flags, msgs ? msgs->msg_hdr.msg_name : NULL)) {
		enum connect_begun begun =
			connect_fastopen_begin(fd, msgs->msg_hdr.msg_name, msgs->msg_hdr.msg_namelen);
		if (begun == CONNECT_REJECTED)
			return -1;
		if (begun == CONNECT_TRACKED)
			return (int)connect_fastopen_end(fd, real.sendmmsg(fd, msgs, n, flags));
	}
	struct slot *s = watched(fd);
	struct octets o = unseen(n);
	struct io io;
	if (!s)
		return real.sendmmsg(fd, msgs, n, flags);
	if (!io_send_begin(&io, s, fd, &o))
		return -1;
	return (int)io_send_end(&io, &o, real.sendmmsg(fd, msgs, n, io_send_flags(&io, flags)));
}

EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	return may_matter(fd, flags) ? sendmmsg_watched(fd, msgs, n, flags) : real.sendmmsg(fd, msgs, n, flags);
}
