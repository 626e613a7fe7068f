/* Probe leases (B5, B7): the slots of a half-open circuit. Holding one is the right to probe, so `at most n probes in
 * flight` is the number of slots, and a death at any instruction leaks none: a slot whose holder is dead is taken over
 * by CAS.
 *
 * A lease is one word, low bit first; 0 is a free slot:
 *    taken 1 | pending 7 | generation, low 12 | since 20 | reuse 14 | member 10
 *  member, reuse  the holder's record and the claim of it (struct member, id): the holder lives while that record
 * carries that claim and its process lives. Exact until a record is claimed 16384 times during one lease. since taken
 * at, in ticks of 64 ms modulo 18 hours (probe_timeout is 12 h at most). A lease is never found expired in the tick it
 *                 was taken in, so two leases of one process in one slot differ: a late release frees no slot but its
 * own (B3). generation     the one it probes for; a verdict by expiry is for that one only. pending        0: no; 127:
 * its call has only connected, nothing was sent yet; else 1 + tick modulo 126 at which the first address of the call
 * failed while others may follow (A3); without a further attempt within a second whoever looks declares the failure.
 * Writers: the holder (take from 0, pending, release to 0) and whoever collects (to 0), each by CAS of the exact word
 * seen. A crash at any line leaves either 0 or a word whose holder is dead.
 */
#ifndef RESIL_CORE_LEASE_H
#define RESIL_CORE_LEASE_H

#include "core/region.h"

enum probe_result { PROBE_SUCCESS, PROBE_FAILURE, PROBE_NEUTRAL, PROBE_EXPIRED, PROBE_OWNER_DIED };

/* Takes a free slot below `max` for this member (r->me); returns its index and the word, or -EAGAIN. Does not look
 * whether holders live. */
int lease_take(
	struct region *r, uint32_t destination, uint32_t max, uint16_t generation, int64_t now_ns, uint64_t *word);
/* Frees it if it is still ours (the word is unchanged but for the pending bit); false when it was taken over. */
bool lease_release(struct region *r, uint32_t destination, int slot, uint64_t word);
/* Is it still ours? Then it is as if taken now, and *word says so: it cannot expire before it is released. */
bool lease_renew(struct region *r, uint32_t destination, int slot, uint64_t *word, int64_t now_ns);
/* How far the call is: under way; waiting for another address (A3); connected, with nothing sent yet (B7). */
enum lease_use { LEASE_BUSY, LEASE_PENDING, LEASE_UNUSED };
/* Reads the clock (vDSO). */
void lease_note(struct region *r, uint32_t destination, int slot, uint64_t word, enum lease_use use);
/* Looks at every holder, at most once in 100 ms a destination: the dead are freed (owner_died), leases beyond
 * probe_timeout are freed and reported through expired() (failed, by the low 12 bits of the generation they were taken
 * in; is_unused: neutral, it had only connected), those pending for over a second likewise. Returns the number freed.
 */
int lease_collect(struct region *r, uint32_t destination, uint32_t probe_timeout_ms, int64_t now_ns,
	void (*expired)(struct region *r, uint32_t destination, uint16_t generation_low, bool is_unused, void *ctx),
	void *ctx);
uint32_t lease_in_flight(const struct region *r, uint32_t destination);

#endif
