/* Taken: input and output. A descriptor that nothing is to be learnt from costs one load and a branch; no lock, no
 * allocation, no system call is added. */
#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "base/real.h"
#include "engine/connect.h"
#include "engine/guest.h"
#include "engine/outcome.h"
#include "hook/export.h"

/* The slot when this descriptor's input or output means something to us. */
static inline struct slot *watched(int fd)
{
	struct slot *s = slot_watched(fd);
	return __builtin_expect(s != NULL, 0) && guest_is_on() ? s : NULL;
}

/* A hook is a load, a branch and a jump to the real function. What follows when the slot is watched is a function of
 * its own: in one body with it the compiler would save and restore registers on the everyday road (14 instructions
 * more). is_ours: looked at only then. */
#define COLD static __attribute__((noinline, cold))
#define TAKE_IO(type, name, params, args, direction, is_ours)                                                          \
	COLD type name##_watched params                                                                                \
	{                                                                                                              \
		struct slot *s = (is_ours) ? watched(fd) : NULL;                                                       \
		if (!s)                                                                                                \
			return real.name args;                                                                         \
		if (!outcome_io_begin(s, fd))                                                                          \
			return -1;                                                                                     \
		return (type)outcome_io_end(s, fd, real.name args, direction);                                         \
	}                                                                                                              \
	EXPORT type name params                                                                                        \
	{                                                                                                              \
		return __builtin_expect(slot_watched(fd) != NULL, 0) ? name##_watched args : real.name args;           \
	}                                                                                                              \
	_Static_assert(1, "a semicolon follows")

/* Error reports and urgent bytes are not data (A15). */
static inline bool is_data(int flags)
{
	return (flags & (MSG_ERRQUEUE | MSG_OOB)) == 0;
}

TAKE_IO(ssize_t, recv, (int fd, void *buf, size_t n, int flags), (fd, buf, n, flags), IO_IN, is_data(flags));

TAKE_IO(ssize_t, recvfrom,
	(int fd, void *restrict buf, size_t n, int flags, struct sockaddr *restrict from, socklen_t *restrict len),
	(fd, buf, n, flags, from, len), IO_IN, is_data(flags));

TAKE_IO(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags), IO_IN, is_data(flags));

TAKE_IO(int, recvmmsg, (int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout),
	(fd, msgs, n, flags, timeout), IO_IN, is_data(flags));

TAKE_IO(ssize_t, read, (int fd, void *buf, size_t n), (fd, buf, n), IO_IN, true);
ALIAS(read, __read);

TAKE_IO(ssize_t, readv, (int fd, const struct iovec *iov, int n), (fd, iov, n), IO_IN, true);

/* The fortified forms check the buffer's size in libc and go on to the plain system call. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t size);
ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len);

TAKE_IO(ssize_t, __read_chk, (int fd, void *buf, size_t n, size_t size), (fd, buf, n, size), IO_IN, true);

TAKE_IO(ssize_t, __recv_chk, (int fd, void *buf, size_t n, size_t size, int flags), (fd, buf, n, size, flags), IO_IN,
	is_data(flags));

TAKE_IO(ssize_t, __recvfrom_chk,
	(int fd, void *buf, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len),
	(fd, buf, n, size, flags, from, len), IO_IN, is_data(flags));

TAKE_IO(ssize_t, send, (int fd, const void *buf, size_t n, int flags), (fd, buf, n, flags), IO_OUT, true);
ALIAS(send, __send);

TAKE_IO(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n), IO_OUT, true);
ALIAS(write, __write);

TAKE_IO(ssize_t, writev, (int fd, const struct iovec *iov, int n), (fd, iov, n), IO_OUT, true);

TAKE_IO(ssize_t, sendfile, (int fd, int in, off_t *at, size_t n), (fd, in, at, n), IO_OUT, true);

TAKE_IO(ssize_t, sendfile64, (int fd, int in, off64_t *at, size_t n), (fd, in, at, n), IO_OUT, true);

COLD ssize_t splice_watched(int in, off64_t *at_in, int out, off64_t *at_out, size_t n, unsigned flags)
{
	struct slot *from = watched(in), *to = watched(out);
	if (!from && !to)
		return real.splice(in, at_in, out, at_out, n, flags);
	if ((from && !outcome_io_begin(from, in)) || (to && !outcome_io_begin(to, out)))
		return -1;
	ssize_t r = real.splice(in, at_in, out, at_out, n, flags);
	/* An error may be of either end: only the one that can be told apart is believed. */
	if (to)
		return outcome_io_end(to, out, r, IO_OUT);
	return outcome_io_end(from, in, r, IO_IN);
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
	struct slot *s = watched(fd);
	if (!s)
		return real.sendto(fd, buf, n, flags, to, len);
	if (!outcome_io_begin(s, fd))
		return -1;
	return outcome_io_end(s, fd, real.sendto(fd, buf, n, flags, to, len), IO_OUT);
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
	struct slot *s = watched(fd);
	if (!s)
		return real.sendmsg(fd, msg, flags);
	if (!outcome_io_begin(s, fd))
		return -1;
	return outcome_io_end(s, fd, real.sendmsg(fd, msg, flags), IO_OUT);
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
	if (!s)
		return real.sendmmsg(fd, msgs, n, flags);
	if (!outcome_io_begin(s, fd))
		return -1;
	return (int)outcome_io_end(s, fd, real.sendmmsg(fd, msgs, n, flags), IO_OUT);
}

EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	return may_matter(fd, flags) ? sendmmsg_watched(fd, msgs, n, flags) : real.sendmmsg(fd, msgs, n, flags);
}
