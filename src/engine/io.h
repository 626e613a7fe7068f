/* Input and output on a watched slot: one door for the hooks. What there is to learn depends on the slot's state: the
 * outcome of a connect (outcome.h), the calls of a flow (exchange.h), or nothing but the end that we have set. */
#ifndef RESIL_ENGINE_IO_H
#define RESIL_ENGINE_IO_H

#include <stdbool.h>
#include <sys/types.h>

#include "engine/exchange.h"
#include "engine/slot.h"

/* From before the system call to after it; on the hook's stack. */
struct io {
	struct slot *slot;
	int fd;
	uint64_t word;
	bool is_quiet; /* a send that must raise no SIGPIPE: asked for by us, not by the app */
	struct sending sending;
};

/* The everyday case, on its own so that it stays short: a flow that is not framed, in the midst of an answer (receive)
 * or of a request (send). Null: not so. What comes of it is nothing but a count, if it still is so after the call. */
static inline struct flow *io_midst(struct slot *s, uint64_t word, enum flow_phase phase)
{
	struct flow *f = slot_state_of(word) == SLOT_FLOWING ? flow_peek(s, word) : (struct flow *)0;
	return f && !flow_is_framed(f) && flow_phase_of(flow_word(f)) == phase ? f : (struct flow *)0;
}
/* After a receive that began in the midst of an answer, and is no longer that: all of the end. */
ssize_t io_received_late(struct slot *s, uint64_t word, int fd, void *buf, size_t n, ssize_t result, int flags);
/* After a send that began in the midst of a request, and failed. */
ssize_t io_sent_late(struct slot *s, uint64_t word, int fd, size_t n, ssize_t result);
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
ssize_t io_send_end(struct io *io, const struct octets *o, ssize_t result);

#endif
