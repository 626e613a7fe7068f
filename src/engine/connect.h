/* What starts a connection is admitted or rejected here. Its outcome is learnt in outcome.h, its descriptor's end in
 * lifetime.h. */
#ifndef RESIL_ENGINE_CONNECT_H
#define RESIL_ENGINE_CONNECT_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* connect(2) under guard: returns as it does, errno set on -1. */
int connect_guarded(int fd, const struct sockaddr *to, socklen_t len);

/* An implicit connect (MSG_FASTOPEN). begin: REJECTED sets errno; TRACKED must be ended with the send's result. */
enum connect_begun { CONNECT_PASSES, CONNECT_REJECTED, CONNECT_TRACKED };
enum connect_begun connect_fastopen_begin(int fd, const struct sockaddr *to, socklen_t len);
/* Returns what the app is to see, errno as it is to see it. */
ssize_t connect_fastopen_end(int fd, ssize_t result);

struct fallback_ask;
struct fallback_place;
/* For fallback.c: connects to another place in the one's stead that was asked for, under the other's guard and within
 * the call's deadline. The slot is in SOCKET. Returns as connect does; *begun: REJECTED where the other is refused,
 * too; *life: of the slot from now on. */
int connect_instead(
	const struct fallback_ask *ask, const struct fallback_place *place, uint64_t *life, enum connect_begun *begun);

#endif
