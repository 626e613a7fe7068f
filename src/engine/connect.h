/* What starts a connection is admitted or rejected here. Its outcome is learnt in outcome.h, its descriptor's end in
 * lifetime.h. */
#ifndef RESIL_ENGINE_CONNECT_H
#define RESIL_ENGINE_CONNECT_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* connect(2) under guard: returns as it does, errno set on -1. */
int connect_guarded(int fd, const struct sockaddr *to, socklen_t len);
/* The same where the clock has been read; 0: it has not. */
int connect_guarded_since(int fd, const struct sockaddr *to, socklen_t len, int64_t now_ns);
/* The same for a guard that is kept, and has been admitted by its circuit just now (everyday.c). */
struct circuit_token;
struct guard;
struct slot;
int connect_admitted(struct slot *s, int fd, const struct sockaddr *to, socklen_t len, const struct guard *g,
	const struct circuit_token *token, int64_t now_ns);
/* The connect of the slot's life in `word` (CONNECTING) has returned r, and errno: its first outcome. Returns r, errno
 * as it is. */
int connect_settle(struct slot *s, uint64_t word, int fd, int r, const struct sockaddr *to, socklen_t len,
	int64_t begun_ns, int64_t limit_ns);

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
