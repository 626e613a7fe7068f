/* Detours: a connect that is led, on the app's own descriptor, to an end point within this process, served by a thread
 * of ours: a relay that shapes, a canned reply, the cache, the spool. Readiness is then the kernel's own truth for
 * every kind of event loop.
 *
 *   app's socket ──(loopback)── inner ══ our thread ══ upstream ── the destination
 *                                          └ or: reply, cache, spool
 *
 * The app's connect goes to a listener of ours that drops every SYN, so it hangs as a connect does that is under way;
 * once the upstream is connected, `inner`, bound to the listener's port, connects to the app's port, and TCP's
 * simultaneous open completes it. Nothing is completed before its upstream is, no stranger can enter, and no event is
 * seen that the app would not see. Where the upstream fails, the app's connect fails with the upstream's errno.
 *
 * The thread has a table of descriptors of its own: its sockets cannot be met by the app's close loops, take none of
 * its numbers, and no child inherits them. Two numbers are held in the app's table (ownfd.h): a pair of sockets over
 * which a connect hands over, and in which all of the thread's sockets lie while it is joined for a fork. */
#ifndef RESIL_ENGINE_DETOUR_H
#define RESIL_ENGINE_DETOUR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "wire/shape.h"

struct onward;
enum detour_kind { DETOUR_RELAY, DETOUR_REPLY, DETOUR_CACHE, DETOUR_SPOOL, DETOUR_STATUS };

struct detour_ask {
	enum detour_kind kind;
	/* Where the app asked to go: what getpeername says (D11). RELAY: and where the upstream goes, unless `via` is
	 * given (another place, e.g. a secondary behind a relay). */
	const struct sockaddr *to;
	socklen_t len;
	const struct sockaddr *via;
	socklen_t via_len;
	int64_t limit_at_ns; /* a blocking connect fails with ETIMEDOUT at this time; 0: none. Who does not block is
				bounded by the timer, as ever */
	const struct shape_rules *up; /* RELAY: app to destination; null: unshaped. Copied */
	const struct shape_rules *down;
	int64_t hold_ns; /* it is not completed before; SHAPE_NEVER: never, and nothing is sent to the destination */
	/* Who stands below the hooks himself (a layer of faults): libc's own connect; null: real.connect. */
	int (*connect)(int fd, const struct sockaddr *to, socklen_t len);
	uint32_t mark;		     /* the caller's own, for detour_lift */
	const char *path;	     /* REPLY: the file. SPOOL: the directory. STATUS: its number. Copied */
	const char *host;	     /* CACHE: name of the destination as the policy has it, "name:port". Copied */
	bool is_teed;		     /* RELAY: good answers go to the cache, as `host`'s */
	int64_t max_age_ns;	     /* CACHE: nothing older is served */
	const struct onward *onward; /* CACHE: the rest of the chain; null: none. Copied */
};

/* connect(2) by way of a detour: 0, or -1 and errno, as connect has them (EINPROGRESS where the socket does not block).
 * DETOUR_CANNOT: there is no way here (a filter, no thread, no loopback, a bound device, no descriptor...), nothing has
 * been done, errno is as it was, and the caller goes on without. For the connect hook, on the app's thread. */
#define DETOUR_CANNOT (-2)
int detour_connect(int fd, const struct detour_ask *ask);

#ifdef RESIL_TEST_DETOUR
/* Test build: RESIL_TEST_DETOUR says which detour every guarded connect takes (detour_test.c). */
bool detour_test(struct detour_ask *ask);
#endif

/* connect(2) on a number whose detoured connect is under way, or has just failed: goes on with it. DETOUR_CANNOT: there
 * is none. Who calls detour_connect below blocking.h has this to ask first, since that calls connect again and again.
 */
int detour_connect_again(int fd, int (*connect)(int fd, const struct sockaddr *to, socklen_t len));

/* Has any socket of this process ever been detoured? All below return at once where none has. */
extern __attribute__((visibility("hidden"))) _Atomic bool detour_any;

/* The kernel has said `err` of a connect, of input or output, or by SO_ERROR: what it is for the app. The thread ends a
 * socket whose upstream has failed, and the kernel calls that a reset. */
int detour_error_slow(int fd, int err);
static inline int detour_error(int fd, int err)
{
	return __builtin_expect(atomic_load_explicit(&detour_any, memory_order_relaxed), 0) ? detour_error_slow(fd, err)
											    : err;
}

/* getpeername and getsockname have succeeded: puts in what the app asked for (D11). */
void detour_name(int fd, bool is_peer, struct sockaddr *addr, socklen_t cap, socklen_t *len);
/* The number is closed or replaced, its pending connect given up (before the kernel does it). */
void detour_closing_slow(int fd);
static inline void detour_closing(int fd)
{
	if (__builtin_expect(atomic_load_explicit(&detour_any, memory_order_relaxed), 0))
		detour_closing_slow(fd);
}
/* dup: both lead to the same. */
void detour_dupped_slow(int from, int to);
static inline void detour_dupped(int from, int to)
{
	if (__builtin_expect(atomic_load_explicit(&detour_any, memory_order_relaxed), 0))
		detour_dupped_slow(from, to);
}

/* Is it one of our own listeners: a step of a detour, and no destination? For who stands below real.connect. */
struct addr;
bool detour_is_door(const struct addr *a);

/* All relays that began with this mark of the caller's (a fault's number) are no longer shaped. */
void detour_lift(uint32_t mark);

/* ---- the thread (service.h) ---- */
void detour_run(const _Atomic uint32_t *stop);
void detour_wake(void);
bool detour_is_any(void);
/* Before the thread starts, on whoever starts it: the pair of sockets. False: not to be had. */
bool detour_prepare(void);
/* In a fork's child, whose parent serves them (also after daemon(): they end with it). */
void detour_forked(void);
/* Is it this process that they are of, or its parent, whose memory a child like vfork's has? */
bool detour_is_ours(void);
/* The thread joined: is there one that the next program, or children, may have, or that has octets on their way? */
bool detour_will_pass(bool is_to_children);
/* Has this process forked since it made one? */
bool detour_is_shared(void);
/* In a process that is for nothing else (keeper.h): serves those that lie in the pair, until none is left. */
void detour_keep(void);
/* The process is about to end: what the app has sent is passed on first, as the kernel would. */
void detour_flush(void);

#endif
