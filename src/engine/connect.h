/* Connects, from admission to verdict: what starts a connection is admitted or rejected here, and its outcome is learnt however the app learns it: from connect
 * itself, a second connect, SO_ERROR, the first input or output, close, or the timer. */
#ifndef RESIL_ENGINE_CONNECT_H
#define RESIL_ENGINE_CONNECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/failure.h"
#include "engine/slot.h"

/* connect(2) under guard: returns as it does, errno set on -1. */
int connect_guarded(int fd, const struct sockaddr *to, socklen_t len);

/* An implicit connect (MSG_FASTOPEN). begin: REJECTED sets errno; TRACKED must be ended with the send's result. */
enum connect_begun { CONNECT_PASSES, CONNECT_REJECTED, CONNECT_TRACKED };
enum connect_begun connect_fastopen_begin(int fd, const struct sockaddr *to, socklen_t len);
void connect_fastopen_end(int fd, ssize_t result, int err);

/* Input and output on a watched slot (slot_watched). begin: false when the socket was ended by us: errno is ETIMEDOUT. end: learns from the result; returns
 * what the app is to see, errno as it is to see it. */
enum io_direction { IO_IN, IO_OUT };
bool connect_io_begin(struct slot *s, int fd);
ssize_t connect_io_end(struct slot *s, int fd, ssize_t result, enum io_direction direction);

/* SO_ERROR was read as `err` (0: none) from a watched slot; returns what the app is to see. */
int connect_so_error(struct slot *s, int fd, int err);
/* The descriptor is about to be closed or replaced: gives the verdict that is due, and frees the slot. Before the real close. */
void connect_closing(int fd);
/* The app ended the connect but keeps the socket (shutdown, connect to AF_UNSPEC). */
void connect_cancelled(int fd);
/* The number `to` now leads to the socket of `from`. to's slot is free. */
void connect_dupped(int from, int to);
/* At exit: the verdicts of connects in progress (exit is a hang-up, A5). */
void connect_exiting(void);
/* In a fork's child: connects in progress belong to the parent; their limits are kept. Returns true when some are armed. */
bool connect_forked(void);

/* For the timer: the outcome of the connect in `word`'s life of the slot. */
void connect_succeeded(struct slot *s, uint64_t word, int64_t now_ns);
void connect_forget(struct slot *s, uint64_t word, int64_t now_ns);

#endif
