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

#include "engine/exchange.h"

/* Something is to be found. */
extern __attribute__((visibility("hidden"))) _Atomic bool inside_any;

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
