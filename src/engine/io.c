/* See io.h. */
#include "engine/io.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "engine/guest.h"
#include "engine/outcome.h"
#include "engine/service.h"

__thread uint32_t io_ended;

static bool is_same_life(const struct io *io, uint64_t word)
{
	return word >> 32 == io->word >> 32;
}

/* The slot's word, for one who uses the connection: its flow is made at the latest now. */
static uint64_t word_in_use(struct slot *s)
{
	uint64_t word = slot_word(s);
	return slot_state_of(word) == SLOT_OPEN ? flow_start(s, word) : word;
}

void io_shut(struct slot *s, int fd)
{
	uint64_t word = word_in_use(s);
	if (slot_state_of(word) == SLOT_FLOWING)
		exchange_shut(s, word, fd);
}

/* Ended by us? Answers before entering the kernel (C11). */
static __attribute__((noinline)) bool may_go_on_otherwise(struct io *io, struct slot *s, int fd)
{
	io->word = io->sending.word = word_in_use(s);
	switch (slot_state_of(io->word)) {
	case SLOT_EXPIRED:
		if (!slot_is_same(s, fd))
			return true;
		io_ended++;
		errno = ETIMEDOUT;
		return false;
	case SLOT_CONNECTING: outcome_keep(s, fd); return true;
	default: return true;
	}
}

static inline bool may_go_on(struct io *io, struct slot *s, int fd)
{
	/* Not all of it: the mark of a send is large, and written when it is needed. */
	io->slot = s;
	io->fd = fd;
	io->word = io->sending.word = slot_word(s);
	io->is_quiet = false;
	io->sending.flow = NULL;
	io->sending.edit_count = 0;
	return slot_state_of(io->word) == SLOT_FLOWING || may_go_on_otherwise(io, s, fd);
}

bool io_receive_begin(struct io *io, struct slot *s, int fd)
{
	if (!may_go_on(io, s, fd))
		return false;
	if (slot_state_of(io->word) == SLOT_FLOWING)
		exchange_receives(s, io->word, fd);
	return true;
}

/* Nothing has told yet that a non-blocking connect is over, and the app sends. Told behind the send, another thread may
 * have read the answer before its request was known: once a connection that is worth a system call. */
static __attribute__((noinline)) void look_before_first_send(struct io *io, struct slot *s, int fd)
{
	bool is_early = atomic_load_explicit(&s->traits, memory_order_relaxed) & TRAIT_EARLY;
	if (!guest_is_restricted() && !is_early && !outcome_is_pending(s, fd))
		io->word = io->sending.word = word_in_use(s);
}

bool io_send_begin(struct io *io, struct slot *s, int fd, const struct octets *o)
{
	int saved = errno;
	if (!may_go_on(io, s, fd))
		return false;
	if (__builtin_expect(slot_state_of(io->word) == SLOT_CONNECTING, 0))
		look_before_first_send(io, s, fd);
	if (slot_state_of(io->word) == SLOT_FLOWING && !exchange_sends(s, io->word, fd, o, &io->sending))
		return false;
	errno = saved;
	return true;
}

int io_send_flags(struct io *io, int flags)
{
	const struct flow *f = slot_state_of(io->word) == SLOT_FLOWING ? flow_peek(io->slot, io->word) : NULL;
	if (!f || !flow_has(f, FLOW_HAS_LIMITS) || flags & MSG_NOSIGNAL || guest_is_restricted())
		return flags;
	io->is_quiet = true;
	return flags | MSG_NOSIGNAL;
}

ssize_t io_send_edited(struct io *io, const struct octets *o, int flags)
{
	bool is_blocking = !(flags & MSG_DONTWAIT) && !(atomic_load(&io->slot->traits) & TRAIT_NONBLOCKING);
	return exchange_send_edited(io->fd, o, &io->sending, io_send_flags(io, flags), is_blocking);
}

/* The timer ended it while we waited: what the kernel says of that is translated. */
static bool was_ended(const struct io *io, uint64_t word, ssize_t result)
{
	bool is_so = slot_state_of(word) == SLOT_EXPIRED && is_same_life(io, word) && result <= 0 &&
		     slot_is_same(io->slot, io->fd);
	io_ended += is_so;
	return is_so;
}

ssize_t io_receive_end(struct io *io, const struct octets *o, ssize_t result, int flags)
{
	int err = errno;
	if (slot_state_of(io->word) == SLOT_CONNECTING) {
		result = outcome_io_end(io->slot, io->fd, result, IO_IN);
		err = errno;
	}
	uint64_t word = word_in_use(io->slot);
	if (slot_state_of(word) == SLOT_FLOWING && is_same_life(io, word)) {
		exchange_received(io->slot, word, io->fd, o, result, err, flags);
	} else if (was_ended(io, word, result) && !(result == 0 && o->limit == 0)) {
		result = -1;
		err = ETIMEDOUT;
	}
	errno = err;
	return result;
}

static void look_on(struct io *io, int fd, uint64_t word)
{
	io->slot = slot_of(fd);
	io->fd = fd;
	io->word = word;
	io->is_quiet = false;
	io->sending.edit_count = 0;
}

ssize_t io_asked_otherwise(struct io *io, int fd, uint64_t word, const struct octets *o, ssize_t result)
{
	look_on(io, fd, word);
	return io_send_end(io, o, result);
}

ssize_t io_received_late(int fd, uint64_t word, const struct octets *o, ssize_t result, int flags)
{
	struct io io = {.slot = slot_of(fd), .fd = fd, .word = word};
	if (!guest_is_on())
		return result;
	return io_receive_end(&io, o, result, flags);
}

static void raise_pipe(void)
{
	SYS3(SYS_tgkill, sys_getpid(), sys_gettid(), SIGPIPE);
}

ssize_t io_send_end(struct io *io, const struct octets *o, ssize_t result)
{
	int err = errno;
	uint64_t word;
	if (slot_state_of(io->word) == SLOT_CONNECTING) {
		result = outcome_io_end(io->slot, io->fd, result, IO_OUT);
		err = errno;
		word = word_in_use(io->slot);
		/* The send itself has told that it is connected: its octets are the first of the flow. */
		if (slot_state_of(word) == SLOT_FLOWING && is_same_life(io, word) && result > 0)
			exchange_sends(io->slot, word, io->fd, o, &io->sending);
	}
	if (slot_state_of(io->sending.word) == SLOT_FLOWING)
		exchange_sent(io->slot, io->fd, o, &io->sending, result, err);
	word = slot_word(io->slot);
	if (was_ended(io, word, result)) {
		result = -1;
		err = ETIMEDOUT;
	} else if (result < 0 && err == EPIPE && io->is_quiet) {
		raise_pipe();
	}
	errno = err;
	return result;
}

ssize_t io_sent_late(int fd, uint64_t word, ssize_t result)
{
	struct io io = {.slot = slot_of(fd), .fd = fd, .word = word};
	struct octets o = {.is_blind = true};
	if (!guest_is_on())
		return result;
	io.sending.word = word;
	return io_send_end(&io, &o, result);
}
