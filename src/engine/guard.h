/* Who is this connect for, and what are its limits: address and learned name -> destination in the region and policy,
 * by value. Answers are kept in a small cache, so that the everyday connect costs a few dozen instructions here. */
#ifndef RESIL_ENGINE_GUARD_H
#define RESIL_ENGINE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "core/breaker.h"
#include "core/region.h"

struct guard {
	struct region *region;
	uint32_t destination; /* index in the region; undefined unless has_circuit */
	bool has_circuit;     /* breaker on or observed, and a place in the registry */
	bool is_group;	      /* several addresses may make one call (A3): its name has more than one */
	uint32_t name;	      /* identity of the name (entry and version), 0: none */
	uint32_t bit;	      /* this address, as a mask of one bit among the name's */
	uint32_t all;	      /* mask of the name's current addresses */
	struct breaker_rules rules;
	int64_t connect_timeout_ns; /* 0: off */
	int reject_errno;
};

/* False: not guarded at all (no policy, no region, bypassed). */
bool guard_find(const struct addr *a, int64_t now_ns, struct guard *g);
void guard_forked(void);

#endif
