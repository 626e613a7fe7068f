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

/* Around the real call, which stays visible in the body. */
#define GUARD_IO(fd, direction, call) GUARD_IO_IF(true, fd, direction, call)
#define GUARD_IO_IF(condition, fd, direction, call)                                                                    \
	struct slot *s = (condition) ? watched(fd) : NULL;                                                             \
	if (__builtin_expect(!s, 1))                                                                                   \
		return call;                                                                                           \
	if (!outcome_io_begin(s, fd))                                                                                  \
		return -1;                                                                                             \
	return outcome_io_end(s, fd, call, direction)

/* Error reports and urgent bytes are not data (A15). */
static inline bool is_data(int flags)
{
	return (flags & (MSG_ERRQUEUE | MSG_OOB)) == 0;
}

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	GUARD_IO_IF(is_data(flags), fd, IO_IN, real.recv(fd, buf, n, flags));
}

EXPORT ssize_t recvfrom(
	int fd, void *restrict buf, size_t n, int flags, struct sockaddr *restrict from, socklen_t *restrict len)
{
	GUARD_IO_IF(is_data(flags), fd, IO_IN, real.recvfrom(fd, buf, n, flags, from, len));
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	GUARD_IO_IF(is_data(flags), fd, IO_IN, real.recvmsg(fd, msg, flags));
}

EXPORT int recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout)
{
	struct slot *s = is_data(flags) ? watched(fd) : NULL;
	if (!s)
		return real.recvmmsg(fd, msgs, n, flags, timeout);
	if (!outcome_io_begin(s, fd))
		return -1;
	return (int)outcome_io_end(s, fd, real.recvmmsg(fd, msgs, n, flags, timeout), IO_IN);
}

EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	GUARD_IO(fd, IO_IN, real.read(fd, buf, n));
}
ALIAS(read, __read);

EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	GUARD_IO(fd, IO_IN, real.readv(fd, iov, n));
}

/* The fortified forms check the buffer's size in libc and go on to the plain system call. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t size);
ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len);

EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t size)
{
	GUARD_IO(fd, IO_IN, real.__read_chk(fd, buf, n, size));
}

EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags)
{
	GUARD_IO_IF(is_data(flags), fd, IO_IN, real.__recv_chk(fd, buf, n, size, flags));
}

EXPORT ssize_t __recvfrom_chk(
	int fd, void *buf, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len)
{
	GUARD_IO_IF(is_data(flags), fd, IO_IN, real.__recvfrom_chk(fd, buf, n, size, flags, from, len));
}

EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	GUARD_IO(fd, IO_OUT, real.send(fd, buf, n, flags));
}
ALIAS(send, __send);

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	GUARD_IO(fd, IO_OUT, real.write(fd, buf, n));
}
ALIAS(write, __write);

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	GUARD_IO(fd, IO_OUT, real.writev(fd, iov, n));
}

EXPORT ssize_t sendfile(int out, int in, off_t *at, size_t n)
{
	GUARD_IO(out, IO_OUT, real.sendfile(out, in, at, n));
}

EXPORT ssize_t sendfile64(int out, int in, off64_t *at, size_t n)
{
	GUARD_IO(out, IO_OUT, real.sendfile64(out, in, at, n));
}

EXPORT ssize_t splice(int in, off64_t *at_in, int out, off64_t *at_out, size_t n, unsigned flags)
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

/* ---- sends that may be connects (MSG_FASTOPEN with an address) ---- */

static bool may_connect(int flags, const struct sockaddr *to)
{
	return __builtin_expect((flags & MSG_FASTOPEN) && to, 0) && guest_is_on();
}

EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	if (may_connect(flags, to)) {
		enum connect_begun begun = connect_fastopen_begin(fd, to, len);
		if (begun == CONNECT_REJECTED)
			return -1;
		if (begun == CONNECT_TRACKED)
			return connect_fastopen_end(fd, real.sendto(fd, buf, n, flags, to, len));
	}
	GUARD_IO(fd, IO_OUT, real.sendto(fd, buf, n, flags, to, len));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (may_connect(flags, msg ? msg->msg_name : NULL)) {
		enum connect_begun begun = connect_fastopen_begin(fd, msg->msg_name, msg->msg_namelen);
		if (begun == CONNECT_REJECTED)
			return -1;
		if (begun == CONNECT_TRACKED)
			return connect_fastopen_end(fd, real.sendmsg(fd, msg, flags));
	}
	GUARD_IO(fd, IO_OUT, real.sendmsg(fd, msg, flags));
}

EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
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
