/* The descriptor table: a flat array of slots indexed by descriptor, in a lazily backed mapping. An untracked
 * descriptor costs a load and a branch.
 *
 *            socket()            connect()                  outcome learnt         there is more to learn
 *   FREE ---------------> SOCKET ----------> CONNECTING ----------------------> CONNECTED <-----> FLOWING (flow.h)
 *    |                      |     (STARTING      |  |                               |
 *    |                      |      on the way)   |  |                               |
 *    ^                      ^                    |  |                               |
 *    |                      +---- it failed -----+  +-- the timer: limit passed --> EXPIRED (answers ETIMEDOUT until
 * close)
 *    +--- close, dup2 onto it, reuse ------------------------------------------------+   (FLOWING too)
 *
 * Between CONNECTING and FLOWING lies OPEN, where no limit wants more: connected, and not used so far. The slot leads
 * to the call still; whoever uses the connection first makes its flow, and a close ends the call without one.
 *
 * The state changes by compare-and-swap, together with a generation that moves with each new life of the number.
 * STARTING is owned by the thread that won it: it alone writes the fields of the new life. Whoever wins the change out
 * of CONNECTING gives the verdict, so there is one; the call that hears it is marked with the generation, so that a
 * close and a new connect on the number in between cannot lend it theirs. A number closed behind our back (fclose
 * inside libc, raw system calls) is recognised by its SO_COOKIE before anything is answered or ended in its name (C7).
 */
#ifndef RESIL_ENGINE_SLOT_H
#define RESIL_ENGINE_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* From CONNECTING on, input and output mean something to us. */
enum slot_state {
	SLOT_FREE,
	SLOT_SOCKET,
	SLOT_STARTING,
	SLOT_CONNECTED,
	SLOT_CONNECTING,
	SLOT_OPEN, /* connected, and not used yet: the slot still leads to the call */
	SLOT_FLOWING,
	SLOT_EXPIRED
};

/* What is known of the socket, in slot.traits. */
enum slot_trait {
	TRAIT_NONBLOCKING = 1 << 0,
	TRAIT_UNIX = 1 << 1,
	TRAIT_EARLY = 1 << 2, /* TCP_FASTOPEN_CONNECT: connect and the first send say nothing of the peer */
	TRAIT_TWIN = 1 << 3,  /* dup'd while connecting: another number leads to the same socket */
	TRAIT_TOLD = 1 << 4,  /* the app has learnt of the expiry by connect or SO_ERROR */
	TRAIT_BOUNDED =
		1 << 6, /* a blocking connect has set SO_SNDTIMEO for itself; left so when a handler jumps out of it */
	TRAIT_COUNTED = 1 << 5,	  /* counted in the member's open connections */
	TRAIT_INHERITED = 1 << 7, /* in a fork's child: its connect was under way, and the call is the parent's */
};

struct slot {
	_Atomic uint64_t word;		 /* state (low 8) | generation (high 32); any thread, CAS */
	_Atomic uint64_t cookie;	 /* SO_COOKIE of the socket in CONNECTING and EXPIRED; 0: not read */
	_Atomic int64_t deadline_ns;	 /* connect's limit; 0: none. Written before the slot is armed. OPEN: when its
					    connect began */
	_Atomic int64_t begun_ns;	 /* when its connect began; OPEN: when it was connected */
	_Atomic int64_t send_timeout_us; /* the app's own SO_SNDTIMEO, 0: none */
	_Atomic uint64_t
		call; /* generation (high 32) | index + 1 of its call, then of its flow; 0: none. slot_take_call */
	_Atomic uint32_t traits;
	_Atomic uint32_t forks; /* OPEN: process_forks and policy_generation when it was connected */
	_Atomic uint32_t generation;
	_Atomic uint32_t endpoint; /* handle of the address that its connect goes to (core/endpoint.h), 0: none. Of a
				      short call: how many us before its connect it began */
};
_Static_assert(sizeof(struct slot) == 64, "a slot is a cache line");

/* Hidden: read by one instruction, not by way of the global offset table. */
extern __attribute__((visibility("hidden"))) struct slot *slot_table;
extern __attribute__((visibility("hidden")))
uint32_t slot_count; /* 0 until the first socket: then every descriptor is untracked */

static inline enum slot_state slot_state_of(uint64_t word)
{
	return (enum slot_state)(word & 0xff);
}

static inline uint64_t slot_word(const struct slot *s)
{
	return atomic_load_explicit(&s->word, memory_order_acquire);
}

/* The slot of a descriptor, or null when it is beyond the table (or there is none). */
static inline struct slot *slot_at(int fd)
{
	/* Acquire: the count is published after the table. */
	return (uint32_t)fd < __atomic_load_n(&slot_count, __ATOMIC_ACQUIRE) ? &slot_table[fd] : (struct slot *)0;
}

/* Of a descriptor for which slot_at has found one. */
static inline struct slot *slot_of(int fd)
{
	return &slot_table[(uint32_t)fd];
}

/* Has an I/O hook something to do with it: a connect whose outcome is not known, a flow, or an expired one? Then *s is
 * its slot, and *word as that is. */
static inline bool slot_look(int fd, struct slot **s, uint64_t *word)
{
	if ((uint32_t)fd >= __atomic_load_n(&slot_count, __ATOMIC_ACQUIRE))
		return false;
	*s = slot_of(fd);
	*word = slot_word(*s);
	return (*word & 0xff) >= SLOT_CONNECTING;
}
static inline struct slot *slot_watched(int fd)
{
	struct slot *s;
	uint64_t word;
	return slot_look(fd, &s, &word) ? s : (struct slot *)0;
}

/* Makes the table, once; false when there is no memory for one. Sized by the hard limit of descriptors, our own ceiling
 * and RLIMIT_AS. */
bool slot_table_map(void);
static inline bool slot_table_make(void)
{
	return __builtin_expect(__atomic_load_n(&slot_count, __ATOMIC_ACQUIRE) != 0, 1) || slot_table_map();
}
/* Changes the state when the word is still `seen`; generation: +1 when is_new_life. */
static inline bool slot_change(struct slot *s, uint64_t seen, enum slot_state to, bool is_new_life)
{
	uint64_t next = (seen & ~0xffULL) + (uint64_t)to + ((uint64_t)is_new_life << 32);
	return atomic_compare_exchange_strong_explicit(
		&s->word, &seen, next, memory_order_acq_rel, memory_order_relaxed);
}
/* The number is untracked from here on; what is written of a life that has ended means nothing. */
static inline void slot_end(struct slot *s)
{
	uint64_t seen = slot_word(s);
	while (slot_state_of(seen) != SLOT_FREE && !slot_change(s, seen, SLOT_FREE, true))
		seen = slot_word(s);
}
/* The call of the slot's life in `word`, or once it is connected the number of its flow. put: by the owner of STARTING,
 * or for a twin. take: once, by whoever gives the verdict; SLOT_NO_CALL when there is none, or it belongs to another
 * life. */
#define SLOT_NO_CALL UINT32_MAX
static inline bool slot_put_call(struct slot *s, uint64_t word, uint32_t call)
{
	uint64_t seen = atomic_load_explicit(&s->call, memory_order_relaxed);
	do {
		if ((int32_t)((uint32_t)(seen >> 32) - (uint32_t)(word >> 32)) > 0)
			return false; /* of a later life */
	} while (!atomic_compare_exchange_weak(&s->call, &seen, (word & ~0xffffffffULL) | (call + 1)));
	return true;
}
/* index + 1, of whichever life. */
static inline uint32_t slot_peek_number(const struct slot *s)
{
	const _Atomic uint32_t *half = (const _Atomic uint32_t *)(const void *)&s->call;
	return atomic_load_explicit(&half[__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__], memory_order_acquire);
}
static inline uint32_t slot_peek_call(struct slot *s, uint64_t word)
{
	uint64_t call = atomic_load_explicit(&s->call, memory_order_acquire);
	return call >> 32 == word >> 32 ? (uint32_t)call - 1 : SLOT_NO_CALL; /* 0 - 1: none */
}
static inline uint32_t slot_take_call(struct slot *s, uint64_t word)
{
	uint64_t call = atomic_load_explicit(&s->call, memory_order_acquire);
	if (call >> 32 != word >> 32 || !(uint32_t)call || !atomic_compare_exchange_strong(&s->call, &call, 0))
		return SLOT_NO_CALL;
	return (uint32_t)call - 1;
}
/* Highest descriptor ever tracked, for scans at exit and fork. */
int slot_highest(void);
/* A new life of the number as a socket with these traits, or untracked (is_socket false). The caller has settled what
 * was there. */
void slot_begin(int fd, bool is_socket, uint32_t traits);
struct timeval;
/* SO_SNDTIMEO in microseconds; 0: for ever, which the kernel also takes very long and negative times for. */
int64_t slot_timeout_us(const struct timeval *tv);
/* A new life as the same socket: what it is and what the app has set on it stay, its connect is over. */
void slot_begin_again(int fd);
/* Reads SO_COOKIE; 0 when it is no socket. One system call. */
uint64_t slot_read_cookie(int fd);
/* Is the socket at fd still the slot's? Reads the cookie. */
bool slot_is_same(const struct slot *s, int fd);

#endif
