/* Taken: input and output. A descriptor that nothing is to be learnt from costs one load and a branch; no lock, no
 * allocation, no system call is added. */
#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "base/addr.h"
#include "base/hot.h"
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

/* The same, of a number that a door has just found so. */
static inline struct slot *found(int fd)
{
	return guest_is_on() ? slot_of(fd) : NULL;
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

static inline struct octets uncounted(size_t n)
{
	return (struct octets){.limit = n, .is_blind = true, .is_uncounted = true};
}

/* ---- receiving ---- */

/* A hook is a load, a branch and a jump to the real function. When the slot is watched a short road for the midst of a
 * call that is not framed (io.h) comes first; it keeps no register over the system call, or all roads would have to
 * save and restore them. The others are functions of their own for the same reason. */
#define COLD static __attribute__((noinline))
/* on: what follows when the slot s, whose word is `word`, is watched. */
#define DOOR(type, name, params, args, on)                                                                             \
	EXPORT HOT_FRAME type name params                                                                               \
	{                                                                                                              \
		struct slot *s;                                                                                        \
		uint64_t word;                                                                                         \
		if (__builtin_expect(!slot_look(fd, &s, &word), 1))                                                    \
			return real.name args;                                                                         \
		on;                                                                                                    \
	}                                                                                                              \
	_Static_assert(1, "a semicolon follows")

/* The parameters of a call, kept in memory over it for its rare end: in registers they would have to be saved and
 * restored each time. */
#define KEEP(x)                                                                                                        \
	__typeof__(x) kept_##x = x;                                                                                    \
	__asm__ volatile("" : "+m"(kept_##x));
#define KEEP_3(a, b, c) KEEP(a) KEEP(b) KEEP(c)
#define KEEP_4(a, ...) KEEP(a) KEEP_3(__VA_ARGS__)
#define KEEP_5(a, ...) KEEP(a) KEEP_4(__VA_ARGS__)
#define KEEP_6(a, ...) KEEP(a) KEEP_5(__VA_ARGS__)
#define KEEP_7(a, ...) KEEP(a) KEEP_6(__VA_ARGS__)
#define KEPT_3(a, b, c) kept_##a, kept_##b, kept_##c
#define KEPT_4(a, ...) kept_##a, KEPT_3(__VA_ARGS__)
#define KEPT_5(a, ...) kept_##a, KEPT_4(__VA_ARGS__)
#define KEPT_6(a, ...) kept_##a, KEPT_5(__VA_ARGS__)
#define KEPT_7(a, ...) kept_##a, KEPT_6(__VA_ARGS__)
#define OF_COUNT(a, b, c, d, e, f, g, name, ...) name
#define KEEP_ARGS(...) OF_COUNT(__VA_ARGS__, KEEP_7, KEEP_6, KEEP_5, KEEP_4, KEEP_3)(__VA_ARGS__)
#define KEPT_ARGS(...) OF_COUNT(__VA_ARGS__, KEPT_7, KEPT_6, KEPT_5, KEPT_4, KEPT_3)(__VA_ARGS__)
/* Not every parameter says where the octets are. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define LATE_PARAMS(...) (uint64_t word, ssize_t result, __VA_ARGS__)
#define LATE_ARGS(...) (kept_word, got, KEPT_ARGS(__VA_ARGS__))

/* In the midst of an answer octets are counted. */
#define RECEIVING_ON(type, name, args, flags)                                                                          \
	uint64_t turn;                                                                                                 \
	struct flow *f;                                                                                                \
	if ((flags) & (MSG_PEEK | MSG_ERRQUEUE | MSG_OOB))                                                             \
		return name##_slow args;                                                                               \
	if (__builtin_expect(!io_is_midst_of_answer(s, word, &f, &turn), 0))                                           \
		return name##_otherwise args;                                                                          \
	KEEP_ARGS args KEEP(f) KEEP(turn) KEEP(word) ssize_t got = real.name args;                                     \
	return __builtin_expect(io_counted(kept_f, kept_turn, got), 1) ? (type)got : name##_late LATE_ARGS args

/* where: the octets, in terms of the parameters and `one`; flags: MSG_...; is_ours: looked at only when watched. */
#define TAKE_RECEIVE(type, name, params, args, where, flags, is_ours)                                                  \
	COLD type name##_slow params                                                                                   \
	{                                                                                                              \
		struct slot *s = found(fd);                                                                            \
		struct iovec one;                                                                                      \
		struct io io;                                                                                          \
		(void)one;                                                                                             \
		if (!s || !(is_ours))                                                                                  \
			return real.name args;                                                                         \
		if (!io_receive_begin(&io, s, fd))                                                                     \
			return -1;                                                                                     \
		ssize_t got = real.name args;                                                                          \
		struct octets o = where;                                                                               \
		return (type)io_receive_end(&io, &o, got, flags);                                                      \
	}                                                                                                              \
	COLD type name##_late LATE_PARAMS params                                                                       \
	{                                                                                                              \
		struct iovec one;                                                                                      \
		(void)one;                                                                                             \
		struct octets o = where;                                                                               \
		return (type)io_received_late(fd, word, &o, result, flags);                                            \
	}                                                                                                              \
	COLD HOT_FRAME type name##_otherwise params                                                                     \
	{                                                                                                              \
		uint64_t word = slot_word(slot_of(fd));                                                                \
		struct iovec one;                                                                                      \
		(void)one;                                                                                             \
		if (!io_receives_plain_http(slot_of(fd), word))                                                        \
			return name##_slow args;                                                                       \
		if (!guest_is_on())                                                                                    \
			return real.name args;                                                                         \
		ssize_t got = real.name args;                                                                          \
		struct octets o = where;                                                                               \
		return __builtin_expect(io_came(fd, word, &o, got), 1)                                                 \
			       ? (type)got                                                                             \
			       : (type)io_received_late(fd, word, &o, got, flags);                                     \
	}                                                                                                              \
	DOOR(type, name, params, args, RECEIVING_ON(type, name, args, flags))

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

TAKE_RECEIVE(ssize_t, recv, (int fd, void *buf, size_t n, int flags), (fd, buf, n, flags),
	received_in(&one, buf, n, flags), flags, is_data(flags));

TAKE_RECEIVE(ssize_t, recvfrom,
	(int fd, void *restrict buf, size_t n, int flags, struct sockaddr *restrict from, socklen_t *restrict len),
	(fd, buf, n, flags, from, len), received_in(&one, buf, n, flags), flags, is_data(flags));

TAKE_RECEIVE(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags),
	flags &MSG_TRUNC ? unseen(1) : in_message(msg), flags, is_data(flags));

TAKE_RECEIVE(ssize_t, read, (int fd, void *buf, size_t n), (fd, buf, n), in_buffer(&one, buf, n), 0, true);
ALIAS(read, __read);

TAKE_RECEIVE(
	ssize_t, readv, (int fd, const struct iovec *iov, int n), (fd, iov, n), in_vector(iov, (size_t)n), 0, true);

/* Several messages of a stream: counted, not read. */
TAKE_RECEIVE(int, recvmmsg, (int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout),
	(fd, msgs, n, flags, timeout), uncounted(n), flags, is_data(flags));

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
#define SENDING(type, name, its, where, flags, call, otherwise)                                                        \
	struct slot *s = its;                                                                                          \
	struct iovec one;                                                                                              \
	struct io io;                                                                                                  \
	(void)one;                                                                                                     \
	if (!s)                                                                                                        \
		return otherwise;                                                                                      \
	struct octets o = (flags)&MSG_OOB ? unseen(0) : where;                                                         \
	o.how = (flags);                                                                                               \
	if (!io_send_begin(&io, s, fd, &o))                                                                            \
		return -1;                                                                                             \
	return (type)io_send_end(&io, &o, io_is_edited(&io) ? io_send_edited(&io, &o, flags) : (call))

/* A plain request of HTTP/1, whole as a rule, or frames of HTTP/2. */
#define SENDING_PLAIN(type, name, args, where, flags)                                                                  \
	uint64_t word = slot_word(slot_of(fd));                                                                        \
	struct iovec one;                                                                                              \
	struct io io;                                                                                                  \
	(void)one;                                                                                                     \
	if (!io_sends_plain_http(slot_of(fd), word) || (flags) & ~MSG_NOSIGNAL || !guest_is_on())                      \
		return name##_slow args;                                                                               \
	struct octets o = where;                                                                                       \
	enum exchange_asked asked = io_asks(&io, fd, word, &o);                                                        \
	if (__builtin_expect(asked != EXCHANGE_ASKED, 0))                                                              \
		return asked == EXCHANGE_REJECTED ? -1 : name##_slow args;                                             \
	return (type)io_asked(&io, fd, word, &o, real.name args)

/* In the midst of a request nothing is learnt but a failure. */
#define SENDING_ON(type, name, args)                                                                                   \
	if (__builtin_expect(!io_is_midst_of_request(s, word), 0))                                                     \
		return name##_otherwise args;                                                                          \
	KEEP(fd) KEEP(word) ssize_t gone = real.name args;                                                             \
	return __builtin_expect(gone >= 0, 1) ? (type)gone : (type)io_sent_late(kept_fd, kept_word, gone)

#define TAKE_SEND(type, name, params, args, where, flags, call)                                                        \
	COLD type name##_slow params                                                                                   \
	{                                                                                                              \
		SENDING(type, name, found(fd), where, flags, call, real.name args);                                    \
	}                                                                                                              \
	COLD type name##_otherwise params                                                                              \
	{                                                                                                              \
		SENDING_PLAIN(type, name, args, where, flags);                                                         \
	}                                                                                                              \
	DOOR(type, name, params, args, SENDING_ON(type, name, args))

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

TAKE_SEND(ssize_t, send, (int fd, const void *buf, size_t n, int flags), (fd, buf, n, flags), sent_from(&one, buf, n),
	flags, real.send(fd, buf, n, io_send_flags(&io, flags)));
ALIAS(send, __send);

TAKE_SEND(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n), sent_from(&one, buf, n), 0,
	write_quietly(&io, buf, n));
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

/* As TAKE_SEND; to, to_len: where it may go. */
#define TAKE_SEND_TO(type, name, params, args, to, to_len, where, call)                                                \
	COLD type name##_slow params                                                                                   \
	{                                                                                                              \
		if (may_connect(flags, to)) {                                                                          \
			enum connect_begun begun = connect_fastopen_begin(fd, to, to_len);                             \
			if (begun == CONNECT_REJECTED)                                                                 \
				return -1;                                                                             \
			if (begun == CONNECT_TRACKED)                                                                  \
				return (type)connect_fastopen_end(fd, real.name args);                                 \
		}                                                                                                      \
		SENDING(type, name, watched(fd), where, flags, call, real.name args);                                  \
	}                                                                                                              \
	COLD type name##_otherwise params                                                                              \
	{                                                                                                              \
		if (flags & MSG_FASTOPEN)                                                                              \
			return name##_slow args;                                                                       \
		SENDING_PLAIN(type, name, args, where, flags);                                                         \
	}                                                                                                              \
	EXPORT HOT_FRAME type name params                                                                               \
	{                                                                                                              \
		struct slot *s;                                                                                        \
		uint64_t word;                                                                                         \
		if (__builtin_expect(flags & MSG_FASTOPEN, 0))                                                         \
			return name##_slow args;                                                                       \
		if (__builtin_expect(!slot_look(fd, &s, &word), 1))                                                    \
			return real.name args;                                                                         \
		SENDING_ON(type, name, args);                                                                          \
	}                                                                                                              \
	_Static_assert(1, "a semicolon follows")

TAKE_SEND_TO(ssize_t, sendto, (int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len),
	(fd, buf, n, flags, to, len), to, len, sent_from(&one, buf, n),
	real.sendto(fd, buf, n, io_send_flags(&io, flags), to, len));

TAKE_SEND_TO(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags),
	msg ? msg->msg_name : NULL, msg->msg_namelen, in_message(msg),
	real.sendmsg(fd, msg, io_send_flags(&io, flags)));

TAKE_SEND_TO(int, sendmmsg, (int fd, struct mmsghdr *msgs, unsigned n, int flags), (fd, msgs, n, flags),
	n > 0 && msgs ? msgs->msg_hdr.msg_name : NULL, msgs->msg_hdr.msg_namelen, uncounted(n),
	real.sendmmsg(fd, msgs, n, io_send_flags(&io, flags)));
