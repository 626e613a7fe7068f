/* A blocking connect under a limit, without a thread: SO_SNDTIMEO bounds the kernel's own wait. */
#ifndef RESIL_ENGINE_BLOCKING_H
#define RESIL_ENGINE_BLOCKING_H

#include <stdint.h>
#include <sys/socket.h>

#include "engine/slot.h"

/* connect(2) that ends by deadline_ns (CLOCK_MONOTONIC) with ETIMEDOUT, never before. app_timeout_us: the socket's own
 * SO_SNDTIMEO (0: none), kept and restored; where it is the shorter one it holds as without us (EINPROGRESS). Returns
 * as connect does. */
int blocking_connect(int fd, const struct sockaddr *to, socklen_t len, int64_t deadline_ns, int64_t app_timeout_us,
	const struct slot *s, uint64_t word);

/* SO_SNDTIMEO of a socket; 0: none. */
void blocking_set_timeout(int fd, int64_t us);

#endif
