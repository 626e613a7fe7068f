/* Input and output on a watched slot: one door for the hooks. What there is to learn depends on the slot's state: the
 * outcome of a connect (outcome.h), the calls of a flow (exchange.h), or nothing but the end that we have set. */
#ifndef RESIL_ENGINE_IO_H
#define RESIL_ENGINE_IO_H

#include <stdbool.h>
#include <sys/types.h>

#include "engine/exchange.h"
#include "engine/slot.h"

/* How often this thread was answered that we have ended a socket. */
extern __thread uint32_t io_ended;

/* From before the system call to after it; on the hook's stack. */
struct io {
	struct slot *slot;
	int fd;
	uint64_t word;
	bool is_quiet; /* a send that must raise no SIGPIPE: asked for by us, not by the app */
	struct sending sending;
};

ssize_t io_send_end(struct io *io, const struct octets *o, ssize_t result);

/* The short roads: what the everyday receive and send in the midst of a call that is not framed do, without a struct
 * io. begin: the flow, and its word (so that turn, phase and the flow's own life are compared at once), or null: the
 * long road. What comes of it is nothing but a count, if it still is so after the call. */
static inline struct flow *io_flow(const struct slot *s)
{
	/* Of a slot that flows: its life need not be compared, since a flow put there by an earlier one is gone from
	 * there before the next begins. None (closed by another thread a moment ago) is the record before the first:
	 * zero, in the midst of nothing. */
	uint32_t number = slot_peek_number(s);
	return (struct flow *)(void *)flow_pool.none + number;
}
static inline bool io_is_midst_of_answer(const struct slot *s, uint64_t word, struct flow **f, uint64_t *turn)
{
	if (slot_state_of(word) != SLOT_FLOWING)
		return false;
	*f = io_flow(s);
	*turn = flow_word(*f);
	return __builtin_expect(flow_phase_of(*turn) == FLOW_ANSWERING, 1) &&
	       (__builtin_expect(!flow_is_read(*f), 1) || flow_is_ciphertext(*f));
}
/* A kind that is read comes with another word (flow_turns_read). */
static inline bool io_counted(struct flow *f, uint64_t turn, ssize_t got)
{
	if (__builtin_expect(got <= 0 || flow_word(f) != turn, 0))
		return false;
	atomic_fetch_add_explicit(&f->in, (uint64_t)got, memory_order_relaxed);
	return true;
}
/* The midst of a request that is not framed, and the protocol is settled: a send changes nothing. Whatever may end in
 * an error that we have to look at, or in our own end of it, takes the other road. */
static inline bool io_is_midst_of_request(const struct slot *s, uint64_t word)
{
	if (slot_state_of(word) != SLOT_FLOWING)
		return false;
	const struct flow *f = io_flow(s);
	if (__builtin_expect(
		    flow_phase_of(flow_word(f)) == FLOW_WAITING && !flow_has(f, FLOW_IS_HEARD | FLOW_HAS_LIMITS), 1))
		return true;
	f = io_flow(s); /* anew: kept, it would cost the everyday road an instruction */
	return flow_is_ciphertext(f) && !flow_has(f, FLOW_HAS_LIMITS);
}
/* Octets of HTTP in clear. Without limits a send that goes whole has nothing to do after its system call but to be
 * counted; a receive has nothing to do before it, of HTTP/2 with limits, too, once the app has tried. */
static inline bool io_sends_plain_http(const struct slot *s, uint64_t word)
{
	if (slot_state_of(word) != SLOT_FLOWING)
		return false;
	const struct flow *f = io_flow(s);
	/* The record before the first is no flow, and of this kind: whoever holds it learns so. */
	return atomic_load_explicit(&f->kind, memory_order_relaxed) <= FLOW_HTTP2 &&
	       !flow_has(f, FLOW_IS_INSIDE | FLOW_HAS_LIMITS);
}
static inline bool io_receives_plain_http(const struct slot *s, uint64_t word)
{
	if (slot_state_of(word) != SLOT_FLOWING)
		return false;
	const struct flow *f = io_flow(s);
	uint32_t kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	uint32_t marks = atomic_load_explicit(&f->marks, memory_order_relaxed);
	if (kind == FLOW_HTTP2)
		return (marks & (FLOW_IS_INSIDE | FLOW_HAS_TRIED)) == FLOW_HAS_TRIED;
	return kind == FLOW_HTTP1 && !(marks & (FLOW_IS_INSIDE | FLOW_HAS_LIMITS));
}
/* Before such a send, of flags that change nothing. */
static inline __attribute__((always_inline)) enum exchange_asked io_asks(
	struct io *io, int fd, uint64_t word, const struct octets *o)
{
	struct slot *s = slot_of(fd);
	struct flow *f = o->is_blind || o->count != 1 || o->limit == 0 ? NULL : flow_hold(s, word);
	if (__builtin_expect(!f, 0))
		return EXCHANGE_OTHER;
	uint32_t kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	if (kind == FLOW_HTTP1)
		return exchange_asks_http1(f, s, word, fd, o, &io->sending);
	if (kind == FLOW_HTTP2)
		return exchange_asks_http2(f, word, o, &io->sending);
	flow_let_go(f);
	return EXCHANGE_OTHER;
}
/* Limits have come with the very call, by a reload. */
static inline bool io_asked_has_limits(const struct io *io)
{
	return __builtin_expect(flow_has(io->sending.flow, FLOW_HAS_LIMITS), 0);
}
/* After it, where it was asked. */
ssize_t io_asked_otherwise(struct io *io, int fd, uint64_t word, const struct octets *o, ssize_t result);
static inline ssize_t io_asked(struct io *io, int fd, uint64_t word, const struct octets *o, ssize_t result)
{
	struct flow *f = io->sending.flow;
	if (__builtin_expect(result != (ssize_t)o->limit || !io->sending.ends || io_asked_has_limits(io), 0))
		return io_asked_otherwise(io, fd, word, o, result);
	atomic_fetch_add_explicit(&f->out, (uint64_t)result, memory_order_relaxed);
	flow_let_go(f);
	return result;
}
/* After a receive: false: io_received_late has all of it to do, as where it was ended or closed meanwhile. */
static inline __attribute__((always_inline)) bool io_came(int fd, uint64_t word, const struct octets *o, ssize_t result)
{
	struct slot *s = slot_of(fd);
	struct flow *f = result > 0 && !o->is_blind && slot_word(s) == word ? flow_hold(s, word) : NULL;
	if (!f)
		return false;
	uint32_t kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	if (kind == FLOW_HTTP1)
		return exchange_came_http1(f, s, word, fd, o, (size_t)result);
	if (kind == FLOW_HTTP2)
		return exchange_came_http2(f, s, word, fd, o, (size_t)result);
	flow_let_go(f);
	return false;
}
/* After a receive that began in the midst of an answer, and is no longer that: all of the end. */
ssize_t io_received_late(int fd, uint64_t word, const struct octets *o, ssize_t result, int flags);
/* After a send that began in the midst of a request, and failed. */
ssize_t io_sent_late(int fd, uint64_t word, ssize_t result);
/* The app ends both directions itself. */
void io_shut(struct slot *s, int fd);
/* False: the socket was ended by us, or the call is rejected: errno says which, -1 is to be returned. */
bool io_receive_begin(struct io *io, struct slot *s, int fd);
bool io_send_begin(struct io *io, struct slot *s, int fd, const struct octets *o);
/* The flags for a send: with MSG_NOSIGNAL where we may end the socket ourselves (C11). is_quiet is set then. */
int io_send_flags(struct io *io, int flags);
/* The octets are to be sent otherwise than the app has them: by this, instead of its own call. */
static inline bool io_is_edited(const struct io *io)
{
	return __builtin_expect(io->sending.edit_count > 0, 0);
}
ssize_t io_send_edited(struct io *io, const struct octets *o, int flags);
/* What the app is to see of the system call's result, errno as it is to see it. flags: MSG_... of a receive. */
ssize_t io_receive_end(struct io *io, const struct octets *o, ssize_t result, int flags);

#endif
