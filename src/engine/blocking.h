/* A blocking connect under a limit, without a thread: SO_SNDTIMEO bounds the kernel's own wait. */
#ifndef RESIL_ENGINE_BLOCKING_H
#define RESIL_ENGINE_BLOCKING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "engine/slot.h"

/* connect(2), begun at now_ns, that ends by deadline_ns (CLOCK_MONOTONIC) with ETIMEDOUT, never before. s, word: its
 * slot and the life of it; when that is over, another thread has closed the number, and it is touched no more. The
 * socket's own SO_SNDTIMEO (slot.send_timeout_us) is restored; where it is the shorter one it holds as without us
 * (EINPROGRESS). Returns as connect does. */
int blocking_connect(int fd, const struct sockaddr *to, socklen_t len, int64_t now_ns, int64_t deadline_ns,
	const struct slot *s, uint64_t word);
/* The same in two steps, for a socket without a SO_SNDTIMEO of its own: the caller has set the first piece, of a limit
 * as long as the whole, and called connect, which has returned r. saved: errno before it. */
int blocking_go_on(int fd, const struct sockaddr *to, socklen_t len, int64_t now_ns, int64_t deadline_ns,
	const struct slot *s, uint64_t word, int r, int saved);
int64_t blocking_piece_us(int64_t limit_ns);
/* Has the app no handler without SA_RESTART? Then the kernel would have restarted what a signal has ended. */
bool blocking_handlers_restart(void);
/* SO_SNDTIMEO of a socket; 0: none. */
void blocking_set_timeout(int fd, int64_t us);

#endif
