/* Calls: what the app experiences as one use of a destination, over one or several addresses of its name (A3). A call
 * is admitted once, its attempts (connects) ride on that admission, and it is settled once:
 *
 *    begin ──> LIVE, attempts in flight ──> one connects: CONNECTED, its connection's flow settles it (flow.h)
 *                │ all in flight ended, the last by failure
 *                ├── no untried address left: settled as that failure
 *                └── else it waits: a further connect rides on; after a second, or at exit, whoever looks declares the
 * failure
 *
 * Private to the process. Records come from a pool without a lock (a tagged free list). One word a call holds what must
 * change together: tag 16 | tried 32 | in flight 8 | failed 1 | state 2
 */
#ifndef RESIL_ENGINE_CALL_H
#define RESIL_ENGINE_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/circuit.h"
#include "engine/admission.h"
#include "engine/guard.h"

#define CALL_NONE UINT32_MAX /* SLOT_NO_CALL */
/* A call waits so long for another address of its name before its failure is declared. */
#define CALL_PATIENCE_NS 1000000000LL
/* A call of a kept guard (guard.h), to one address and no probe, needs no record: its number says all of it, but when
 * it began, which its slot knows, then its flow. It is in flight like any. */
#define CALL_SHORT 0x80000000u
#define CALL_SHORT_KEPT 16 /* the guard's number 11 | generation that admitted it 16 */
_Static_assert(GUARDS_KEPT <= 1 << 11, "and none is CALL_NONE");
static inline bool call_is_short(uint32_t call)
{
	return (call & CALL_SHORT) != 0; /* and it is not CALL_NONE */
}
extern __attribute__((visibility("hidden"))) _Atomic uint32_t call_live;
static inline uint32_t call_begin_short(uint32_t kept, uint16_t generation)
{
	atomic_fetch_add_explicit(&call_live, 1, memory_order_relaxed);
	return CALL_SHORT | kept << CALL_SHORT_KEPT | generation;
}
static inline uint32_t call_short_number(uint32_t call)
{
	return (call & ~CALL_SHORT) >> CALL_SHORT_KEPT;
}
static inline const struct guard *call_short_guard(uint32_t call)
{
	return &guard_kept(call_short_number(call))->guard;
}
/* It ends neutral. False: it is to be ended by call_end. */
static inline bool call_end_short(uint32_t call)
{
	const struct guard *g = call_short_guard(call);
	if (!circuit_settle_plain(g->region, g->destination, g->life, (uint16_t)call))
		return false;
	atomic_fetch_sub_explicit(&call_live, 1, memory_order_relaxed);
	return true;
}
/* A record for a short one that goes on by other rules than those of its guard: its number from then on. CALL_NONE:
 * there is none to be had, and it goes on as it is. */
uint32_t call_write_out(uint32_t call, int64_t begun_ns);
/* Starts a call for an admitted connect, with one attempt in flight. CALL_NONE when the pool is exhausted (the token
 * stays the caller's). */
uint32_t call_begin(const struct guard *g, const struct circuit_token *token, int64_t now_ns);
/* The same where it has been asked before when the call begins (call_would_begin_ns), and it may have waited since. */
uint32_t call_begin_since(const struct guard *g, const struct circuit_token *token, int64_t begun_ns, int64_t now_ns);
/* Its slot of the bulkhead, where its guard has one: the call gives it back with its verdict, unless the connection
 * takes it over. The waiting before it is in no latency. */
void call_put_slot(uint32_t call, const struct admission_slot *slot);
uint64_t call_take_hold(uint32_t call);
/* A call under way that this connect continues: same destination and name, an address it has not tried, within a second
 * of its last attempt; this thread's own first. Counts the attempt. CALL_NONE: none, admit anew. Also declares failures
 * that have waited too long. */
uint32_t call_find_ride(const struct guard *g, int64_t now_ns);
extern __attribute__((
	visibility("hidden"))) _Atomic uint32_t call_live_groups; /* calls under way that several addresses may make */
static inline uint32_t call_ride(const struct guard *g, int64_t now_ns)
{
	return __builtin_expect(atomic_load_explicit(&call_live_groups, memory_order_relaxed) == 0, 1)
		       ? CALL_NONE
		       : call_find_ride(g, now_ns);
}
/* A rejected call may go on to its name's other addresses: those rejections are of the same call, which is counted once
 * (B11). True for such a one; call after call_ride found nothing, and call_was_rejected when a call is. */
bool call_is_rejected_again(const struct guard *g, int64_t now_ns);
void call_was_rejected(const struct guard *g, int64_t now_ns);
/* A call on a kept connection was rejected at its first send: the reconnect that follows on this thread is of the same
 * call, and its rejection is not counted again (B11). */
extern __thread bool call_send_was_rejected;
void call_was_rejected_at_send(const struct guard *g, int64_t now_ns);
/* The outcome of one attempt, exactly once each. */
/* One has connected: from here on the call belongs to that connection, which ends it by call_end, once; no further
 * connect rides on it. False when another of its attempts was faster: this attempt is over, and heard. */
bool call_connected(uint32_t call, uint32_t endpoint, int64_t now_ns);
/* Its connection is used for the first time: a probe that only connected tells nothing (B7). The caller holds its flow.
 */
void call_used(uint32_t call);
/* It turns out that it was not: what it did made the connection ready, no more. */
void call_unused(uint32_t call);
/* The verdict of a connected call. kind: for a failure. latency_ns < 0: not recorded. */
void call_end(uint32_t call, enum breaker_outcome outcome, enum failure_kind kind, int64_t now_ns, int64_t latency_ns);
/* Whom it is for, and by what it is bounded. */
const struct guard *call_guard(uint32_t call);
/* When the call began: its first connect, or the look-up before it. Not of a short one. */
int64_t call_begun_ns(uint32_t call);
/* The same of any; of a short one that is short_ns, which its slot or flow knows. */
static inline int64_t call_began_at(uint32_t call, int64_t short_ns)
{
	return call_is_short(call) ? short_ns : call_begun_ns(call);
}
/* The same for a call that is to wait first, or is not to be, since its connect of now_ns is rejected. Once a call: its
 * look-up is taken. */
int64_t call_would_begin_ns(const struct guard *g, int64_t now_ns);
/* A call that begins on a connection which is there already, connected at once. False: none is to be had (the token is
 * the caller's to settle). */
bool call_begin_connected(const struct guard *g, const struct circuit_token *token, int64_t now_ns, uint32_t *call);
/* endpoint: the address that it went to (core/endpoint.h), which hears of it whatever becomes of the call. begun_ns: of
 * the attempt. Of a short call endpoint is what its slot has there (slot.h). True: the call is over with it, and
 * nothing came of it. */
bool call_attempt_failed(uint32_t call, uint32_t endpoint, enum failure_kind kind, int64_t begun_ns, int64_t now_ns);
/* Local trouble (A6): no news, the name's other addresses may follow. True as above. */
bool call_attempt_is_local(uint32_t call, int64_t now_ns);
/* The app let go of it: no news. */
void call_attempt_dropped(uint32_t call, int64_t now_ns);
/* The app hung up on an attempt begun at begun_ns: abandoned or neutral (A5). */
void call_attempt_abandoned(uint32_t call, uint32_t endpoint, int64_t begun_ns, int64_t now_ns);
/* It goes on as another circuit's (flow_move_call): its own has the outcome, its address hears from that other call. */
void call_moved(uint32_t call, enum breaker_outcome outcome, int64_t now_ns, int64_t latency_ns);
/* It goes on in the same circuit by other rules and limits. With another bulkhead it has no slot just then. Not a short
 * one. */
void call_follow(uint32_t call, const struct guard *g);
/* By whoever has taken the call, and no other may end it: its admission. Not of a short one. */
struct circuit_token *call_token(uint32_t call);
/* Is it a probe? Its outcome is worth a system call. */
bool call_is_probe(uint32_t call);
/* Declares what waits: at exit and exec all of it, else what has waited over a second. */
void call_declare(bool all, int64_t now_ns);
uint32_t call_live_count(void);
/* In a fork's child: the parent owns the calls in progress. */
void call_forked(void);
/* Has any call of its destination succeeded since (A5)? */
bool call_has_succeeded_since(uint32_t call, int64_t since_ns);
/* Leaves the event that a limit has passed ("connect", "answer", "stall", "call"). Before the verdict. */
void call_tell_deadline(uint32_t call, const char *phase, int64_t limit_ns);

#endif
