/* Where the app asked a socket to go that has gone elsewhere in its stead: what getpeername is to say (D11). Kept
 * beside the slots, by the slot's life, so that nothing has to be undone when the number is closed. */
#ifndef RESIL_ENGINE_ASKED_H
#define RESIL_ENGINE_ASKED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Has any? Where none has, nothing else here is reached. */
extern __attribute__((visibility("hidden"))) _Atomic bool asked_any;
/* life: of the slot, the upper half of its word. By whoever has connected it. */
void asked_keep(int fd, uint64_t life, const struct sockaddr *to, socklen_t len);
/* A dup: both say the same. */
void asked_dupped_slow(int from, int to);
static inline void asked_dupped(int from, int to)
{
	if (__builtin_expect(atomic_load_explicit(&asked_any, memory_order_acquire), 0))
		asked_dupped_slow(from, to);
}
/* getpeername has succeeded with *len: puts in what the app asked for, at most cap bytes of it, as the kernel would. */
void asked_name_slow(int fd, struct sockaddr *addr, socklen_t cap, socklen_t *len);
static inline void asked_name(int fd, struct sockaddr *addr, socklen_t cap, socklen_t *len)
{
	if (__builtin_expect(atomic_load_explicit(&asked_any, memory_order_acquire), 0))
		asked_name_slow(fd, addr, cap, len);
}

#endif
