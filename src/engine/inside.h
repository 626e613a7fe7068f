/* Flows whose TLS is seen from inside (A9): the calls of a TLS library are tied to the flow that carries their octets
 * by the ClientHello's random, seen on the wire and known to the TLS object; its descriptor may be -1 (memory BIOs), or
 * another's. What it reads and writes then goes to exchange.h as any octets, and the flow's ciphertext only counts.
 *
 *   FLOW_TLS ── inside_enter: the object's handshake is finished ──> FLOW_IS_INSIDE, kind as yet unknown
 *
 * Any thread; no lock, no allocation, no system call. A random has few places in a table: where all are taken by living
 * flows, this one stays seen from outside. */
#ifndef RESIL_ENGINE_INSIDE_H
#define RESIL_ENGINE_INSIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/exchange.h"

/* Something is to be found. */
extern __attribute__((visibility("hidden"))) _Atomic bool inside_any;
#define INSIDE_PLACES 8192
/* index + 1 of a flow, at its random's place or behind it; stale ones too */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t inside_places[INSIDE_PLACES];
/* Not of the first octets: old clients write the time there. */
static inline uint32_t inside_place(const uint8_t random[])
{
	uint32_t h;
	memcpy(&h, random + 8, sizeof h);
	return h % INSIDE_PLACES;
}

/* On the hook's stack, from before the library's function to after it. */
struct inside {
	struct flow *flow; /* looked at only: what acts on it holds it by the slot's word */
	struct slot *slot;
	uint64_t word;
	int fd;
	bool is_told; /* of a write that is under way */
	struct iovec one;
	struct octets octets;
	struct sending sending;
};

/* The flow's ClientHello is about to go. */
void inside_expect(struct flow *f, int fd);
/* Asked of an object when it is met first: is its handshake over, and is it a client's? */
typedef bool inside_may_tie(const void *context, const void *object, bool is_complete);
/* The flow that carries this TLS object; false: none of ours. */
bool inside_enter(struct inside *i, const uint8_t random[TLS_RANDOM], const void *object, inside_may_tie *may_tie,
	const void *context);

/* The short road: the flow that this object has been tied to before, by the first octets of its random, enough of them
 * to tell it from one that was at this address before. Neither held nor does its slot lead to it for certain: for
 * where there is nothing to tell. Null: inside_enter is to be asked. */
#define INSIDE_KNOWN 16
static inline struct flow *inside_known(const uint8_t random[INSIDE_KNOWN], const void *object)
{
	uint64_t a[2], b[2];
	uint32_t number = atomic_load_explicit(&inside_places[inside_place(random)], memory_order_acquire);
	/* None is the record before the first: zero, without an object. */
	struct flow *f = (struct flow *)(void *)flow_pool.none + number;
	const void *known = atomic_load_explicit(&f->tls_object, memory_order_acquire);
	memcpy(a, random, sizeof a);
	memcpy(b, f->tls.random, sizeof b);
	bool is_it = known == object && !((a[0] ^ b[0]) | (a[1] ^ b[1]));
	return __builtin_expect(is_it, 1) ? f : (struct flow *)0;
}
/* In the midst of an answer, or of a request, whose end is not framed, there is nothing to learn; and nothing of it to
 * say before a read where no limit waits for that. *turn: while the word is this it stays so. */
static inline bool inside_is_midst_of_answer(const struct flow *f, uint64_t *turn)
{
	uint32_t marks = atomic_load_explicit(&f->marks, memory_order_relaxed);
	*turn = flow_word(f);
	return __builtin_expect(flow_phase_of(*turn) == FLOW_ANSWERING, 1) &&
	       atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_PLAIN &&
	       (marks & (FLOW_HAS_TRIED | FLOW_HAS_LIMITS)) != FLOW_HAS_LIMITS;
}
/* Notes that it goes on. */
static inline bool inside_is_midst_of_request(struct flow *f)
{
	if (__builtin_expect(flow_phase_of(flow_word(f)) != FLOW_WAITING, 0) ||
		atomic_load_explicit(&f->kind, memory_order_relaxed) != FLOW_PLAIN)
		return false;
	flow_mark(f, FLOW_HAS_SENT);
	return true;
}

/* Before a read: the app wants one. */
void inside_reads(struct inside *i);
/* What was read, n octets of it; its orderly end (n 0). */
void inside_read(struct inside *i, const void *buf, size_t n);
/* There is nothing more to be read, for another reason than that the library waits for more: what ended the connection
 * meanwhile is told now. A library that reads from memory is given what came before the end only after it. */
void inside_ended(struct inside *i);
/* Before a write, and after it: how much of it went, 0 for none. */
void inside_writes(struct inside *i, const void *buf, size_t n);
void inside_wrote(struct inside *i, size_t gone);
/* The peer has refused to go on, by an alert, or what it sends is no TLS. */
void inside_refused(struct inside *i);

#endif
