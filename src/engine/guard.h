/* Who is this connect for, and what are its limits: address and learned name -> destination in the region and policy,
 * by value. Answers are kept in a small cache, so that the everyday connect costs a few dozen instructions here. */
#ifndef RESIL_ENGINE_GUARD_H
#define RESIL_ENGINE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "core/breaker.h"
#include "core/bulkhead.h"
#include "core/region.h"
#include "engine/ambient.h"
#include "policy/config.h"

/* What a call is bounded by, from the policy; 0: off. */
struct guard_limits {
	int64_t connect_ns;
	int64_t answer_ns, stall_ns;
	int64_t deadline_ns;
	int64_t abandon_ns;
	uint32_t trip_mask;   /* bit 1 << enum failure_kind */
	uint16_t keepalive_s; /* a socket option; 0: off */
	uint8_t protocol : 3; /* enum policy_protocol */
	uint8_t header : 5;   /* deadline_header: guard_header_name(), 0: none */
	uint8_t bulkhead;     /* guard_bulkhead(), 0: none; the guard has a circuit then */
};

struct guard {
	struct region *region;
	uint32_t destination;  /* index in the region; undefined unless has_circuit */
	uint32_t life;	       /* of that index: with another it is another destination's (registry.h) */
	bool has_circuit : 1;  /* breaker on or observed, or a bulkhead; and a place in the registry */
	bool is_group : 1;     /* several addresses may make one call (A3): its name has more than one */
	bool opens_late : 1;   /* one address, no limit: a connection needs no flow before its first octet */
	bool has_cache : 1;    /* and `cache(AGE)` is in it: its good answers are kept */
	bool has_fallback : 1; /* a chain, and a policy that does not only observe */
	bool enforces : 1;     /* the bulkhead rejects though the circuit observes: breaker = off */
	bool is_secondary : 1; /* of a chain: what its connection is called is meant for the first, and moves nothing */
	bool may_be_named : 1; /* a rule by what the connection says (`sni:`) may take it over */
	uint8_t reject_errno;
	uint16_t section;	  /* keys `method` and `route`: the policy's index in the configuration + 1; else 0 */
	uint32_t name;		  /* names_identity of the name, 0: none */
	uint32_t bit;		  /* this address, as a mask of one bit among the name's */
	uint32_t all;		  /* mask of the name's current addresses */
	uint32_t user_timeout_ms; /* a socket option; 0: off */
	uint32_t endpoint;	  /* the address's health, where its name has several (core/endpoint.h); 0: not kept */
	struct breaker_rules rules;
	struct guard_limits limits;
};
_Static_assert(sizeof(struct guard) <= 128, "copied by every call: beyond it compilers make a loop of that");

/* A guard that is kept as it is for the life of the process, by its number: of connects that are one call, to one
 * address, by a closed circuit alone, with no limit but the connect's. Equal guards have one number. */
#define GUARDS_KEPT 2048
struct guard_kept {
	struct guard guard;
	struct {
		int64_t s, us;
	} piece; /* the first wait of a blocking connect (blocking.h); 0: it has no limit */
};
extern __attribute__((visibility("hidden"))) struct guard_kept guard_kept_table[GUARDS_KEPT];
static inline const struct guard_kept *guard_kept(uint32_t number)
{
	return &guard_kept_table[number];
}
/* Of a guard that is current: the number by which it is kept for the calls that go on by it on a connection which is
 * there, whatever their limits. 0: they need more (a bulkhead, a circuit by request, its address's health), or there is
 * no room. */
uint32_t guard_number(const struct guard *g);
/* The everyday answer: the number of the guard that is kept, 0: ask guard_find. */
uint32_t guard_find_kept(const struct addr *a, int64_t now_ns);

/* Is its name one of names.h's table? That of a place which the configuration names is not (guard_find_place). */
static inline bool guard_has_learnt_name(const struct guard *g)
{
	return g->name & 1;
}

/* Is the call bounded beyond its connect? */
static inline bool guard_bounds(const struct guard_limits *l)
{
	return l->answer_ns || l->stall_ns || l->deadline_ns || ambient_ns();
}
/* False: not guarded at all (no policy, no region, bypassed). */
bool guard_find(const struct addr *a, int64_t now_ns, struct guard *g);
/* The same for a place that the configuration names, whatever this process has looked up: a secondary. name: null where
 * it is an address; else this is the address number `at` of the name's `count`, which are one call (A3). Not from the
 * cache. */
bool guard_find_place(
	const struct addr *a, const char *name, unsigned at, unsigned count, int64_t now_ns, struct guard *g);
/* The chain of fallbacks in force for an address; false: none. */
bool guard_fallback(const struct addr *a, char *chain, size_t cap);
/* Is the circuit still this destination's? A full registry may have given its place away. One load. */
static inline bool guard_is_current(const struct guard *g)
{
	return !g->has_circuit ||
	       atomic_load_explicit(&g->region->destinations[g->destination].life, memory_order_acquire) == g->life;
}
/* A circuit as one word: 0 is none. */
#define GUARD_PLACE_KEPT UINT64_MAX
static inline uint64_t guard_place(const struct guard *g)
{
	return g->has_circuit ? ((uint64_t)g->destination + 1) << 32 | g->life : 0;
}
static inline uint64_t guard_place_at(const struct region *r, uint32_t destination)
{
	return ((uint64_t)destination + 1) << 32 |
	       atomic_load_explicit(&r->destinations[destination].life, memory_order_acquire);
}
static inline void guard_move(struct guard *g, uint64_t place)
{
	g->has_circuit = place != 0;
	g->destination = place ? (uint32_t)(place >> 32) - 1 : 0;
	g->life = (uint32_t)place;
}
/* A request's line, for keys `method` and `route`. */
struct guard_request {
	const char *method;
	size_t method_length;
	const char *target;
	size_t target_length;
};
/* Its circuit's place; the origin's, whose guard this is, where the policy gives it none of its own. generation: of the
 * configuration that origin->section is of. */
uint64_t guard_find_request(
	const struct guard *origin, uint32_t generation, const struct guard_request *q, int64_t now_ns);
/* The bulkhead's rules, where there is one. */
const struct bulkhead_rules *guard_bulkhead(const struct guard *g);
/* Does it reject where its circuit only observes? */
static inline bool guard_enforces(const struct guard *g)
{
	return g->enforces;
}
/* What the connection to a says of itself (n octets, as they came) has a rule of its own: its guard. False: it stays as
 * it is. */
bool guard_find_named(
	const struct guard *now, const struct addr *a, const char *said, size_t n, int64_t now_ns, struct guard *g);
/* The field name that limits.header stands for. */
const char *guard_header_name(uint8_t header);
void guard_forked(void);

#endif
