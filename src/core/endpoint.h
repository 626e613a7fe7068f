/* The health of each address of a name that has several, at one port, in the region: for ejection (`eject`, D10). Apart
 * from the name's circuit, which fails only when all of them have (A3); each address hears each attempt, and the
 * verdict of the call that it took.
 *
 *    healthy --- dead at connect, or failure_threshold failures in a row ---> ejected, for recovery_timeout, longer
 * each ^                                                                        |    time, recovery_max at most
 *       +---------------------------- a success, at any time -------------------+
 *
 * An ejection that is over counts as none in the order of addresses; the next failure there begins a longer one. Each
 * recovery_max of health takes one lengthening back. One word holds all of it, changed by pure functions and
 * compare-and-swap:  until_ms 40 | failures in a row 12 | level 5 | ejected 1  (low bit last)
 *
 * A slot: id claimed by CAS from 0 or from the one used longest ago that is not ejected; ip and scope are a function of
 * the id, is_ready says that they are there. A claimer that dies half-way leaves one that the next one fills. Handles
 * carry a part of the id: who holds one of a slot that went to another changes nothing there. */
#ifndef RESIL_CORE_ENDPOINT_H
#define RESIL_CORE_ENDPOINT_H

#include "base/addr.h"
#include "core/failure.h"
#include "core/region.h"

/* A hash of the name that the address was looked up for (clean, names.h). */
uint64_t endpoint_name_hash(const char *name);
/* The handle of an address (with its port) of a name, claimed when it is new; 0: no room. destination: for display, -1:
 * none. */
uint32_t endpoint_find_or_add(
	struct region *r, uint64_t name_hash, const struct addr *a, int destination, int64_t now_ns);
/* Is it ejected now? port 0: at any port that is known. */
bool endpoint_is_ejected(
	const struct region *r, uint64_t name_hash, const struct addr *a, uint16_t port, int64_t now_ns);
/* News of it. is_dead: it could not be connected to. Leaves an event when that ejects it, or brings it back. */
void endpoint_failed(struct region *r, uint32_t handle, const struct breaker_rules *rules, enum failure_kind kind,
	bool is_dead, int64_t now_ns);
void endpoint_succeeded(struct region *r, uint32_t handle, int64_t now_ns);

/* Pure. */
uint64_t endpoint_after_failure(
	uint64_t word, const struct breaker_rules *rules, bool is_dead, int64_t now_ms, bool *is_ejecting);
uint64_t endpoint_after_success(uint64_t word, int64_t now_ms, bool *is_returning);
/* Milliseconds that it stays ejected; 0: it is not. */
uint32_t endpoint_ejected_for_ms(uint64_t word, int64_t now_ms);
uint32_t endpoint_failures(uint64_t word);

/* For listings: those of a destination, one after another from `from` on. -1: no more. */
struct endpoint_view {
	struct addr addr;
	uint32_t ejected_for_ms, failures;
};
int endpoint_next(
	const struct region *r, uint32_t destination, uint32_t from, int64_t now_ns, struct endpoint_view *view);

#endif
