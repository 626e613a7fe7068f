/* A circuit in use: the pure breaker applied to the shared word, with leases, counters and events. What the engine
 * calls. Lock-free, allocation-free, async-signal-safe; one clock reading is passed in by the caller. */
#ifndef RESIL_CORE_CIRCUIT_H
#define RESIL_CORE_CIRCUIT_H

#include "core/breaker.h"
#include "core/endpoint.h"
#include "core/failure.h"
#include "core/lease.h"
#include "core/member.h"
#include "core/region.h"

/* The admission of one call: what settle needs to give the verdict to the circuit that admitted it (A13). */
struct circuit_token {
	uint32_t destination;
	uint16_t generation;
	int8_t lease; /* slot, -1: no probe */
	bool is_admitted;
	bool is_unleased; /* a probe of a process that has no member record, and so can hold no lease */
	uint64_t lease_word;
	int64_t begun_ns;
	uint32_t life; /* of the destination when it admitted: after an eviction the verdict is nobody's */
};

/* Admits a call, or rejects it (counted, with an event for the first of a run): BREAKER_ADMIT and BREAKER_PROBE go on
 * with a token that must be settled once. Steps over B5, B6, B7 (collects dead holders), B15 (end of a forced mode),
 * B16. The rejecting path reads and adds only: no system call but for the collection of dead holders. rules: of the
 * caller's policy. */
enum breaker_decision circuit_admit(struct region *r, uint32_t destination, const struct breaker_rules *rules,
	int64_t now_ns, struct circuit_token *token);
/* The two everyday steps of a call without more than its place and generation: admitted by a closed circuit that
 * rejects nobody just then, and ended with nothing learnt of it. Of a destination that is there
 * (registry_find_or_add), in a region that may be written. False: nothing is done, circuit_admit and circuit_settle are
 * to be asked. The rules that circuit_admit would show are the caller's to keep
 * (circuit_keep_rules), now and then. */
static inline __attribute__((always_inline)) bool circuit_admit_plain(
	struct region *r, uint32_t destination, int64_t now_ns, uint16_t *generation)
{
	struct destination *d = &r->destinations[destination];
	uint64_t word = atomic_load_explicit(&d->breaker, memory_order_acquire);
	if (__builtin_expect(!breaker_is_closed(word) || atomic_load_explicit(&d->run, memory_order_relaxed), 0))
		return false;
	atomic_store_explicit(&d->last_used_ns, now_ns, memory_order_relaxed);
	*generation = breaker_word_generation(word);
	member_count_there(r, destination, 1);
	return true;
}
static inline __attribute__((always_inline)) bool circuit_settle_plain(
	struct region *r, uint32_t destination, uint32_t life, uint16_t generation)
{
	struct destination *d = &r->destinations[destination];
	if (__builtin_expect(atomic_load_explicit(&d->life, memory_order_acquire) != life ||
				     !breaker_stays(atomic_load_explicit(&d->breaker, memory_order_acquire), generation,
					     BREAKER_NEUTRAL),
		    0))
		return false;
	member_count_there(r, destination, -1);
	atomic_fetch_add_explicit(&d->neutral, 1, memory_order_relaxed);
	return true;
}
/* What the command shows of the policy's rules. */
void circuit_keep_rules(struct region *r, uint32_t destination, const struct breaker_rules *rules);

/* A call on a connection that is there already and whose requests cannot be told to the app as rejected (B20): counted
 * like any other; its verdict counts while the circuit is closed, and is stale else. The token must be settled. */
void circuit_pass(struct region *r, uint32_t destination, const struct breaker_rules *rules, int64_t now_ns,
	struct circuit_token *token);
/* An admission that a later gate has stopped (the bulkhead is full): as if it had never been, and a probe's lease is
 * free again (B7). A circuit that it has taken to half-open stays so: the next call probes. */
void circuit_withdraw(struct region *r, struct circuit_token *token);
/* The later gate would have, and only observes. */
void circuit_note_would_reject(struct region *r, uint32_t destination);
/* Is nothing to be rejected: by the policy, or by hand? */
bool circuit_is_observed(const struct region *r, uint32_t destination, const struct breaker_rules *rules);
/* Would it be rejected now (open, time not up; forced open)? Loads only; counts nothing. */
bool circuit_is_open(const struct region *r, uint32_t destination, const struct breaker_rules *rules, int64_t now_ns);
/* The verdict of a call; exactly once a token (clears is_admitted, further calls do nothing). counts: false when the
 * kind is not in trip_on: counted, neutral to the breaker (A14). latency_ns < 0: not recorded. */
void circuit_settle(struct region *r, struct circuit_token *token, const struct breaker_rules *rules,
	enum breaker_outcome outcome, enum failure_kind kind, bool counts, int64_t now_ns, int64_t latency_ns);
/* How far the call is (lease.h). Only of consequence to a probe. */
void circuit_note(struct region *r, const struct circuit_token *token, enum lease_use use);

/* The addresses (as hashes, never 0) that a look-up of the destination's name has just given. While it is closed they
 * are remembered; while it is open and none of them is among those remembered, the service has moved: its probe is due
 * now (B21). Those seen while open are remembered beside the others, so that a name with many addresses of which each
 * look-up tells another is asked once an address. */
void circuit_know(struct region *r, uint32_t destination, const uint32_t *hashes, unsigned n, int64_t now_ns);

/* In the child of a fork: it counts its rejections where its parent and its siblings do not. */
void circuit_forked(void);

/* Seed of the jitter: the same seed makes the same choices for the same destination and generation. Never set: from the
 * time. */
void circuit_set_seed(uint64_t seed);

/* By hand. for_ms 0: until told otherwise. Each leaves a transition event when the state changes. */
void circuit_force(struct region *r, uint32_t destination, enum breaker_mode mode, uint64_t for_ms, int64_t now_ns);
void circuit_reset(struct region *r, uint32_t destination, int64_t now_ns);

/* Events. Each transition leaves exactly one, whoever is killed where: whoever won the compare-and-swap prepares the
 * event, makes it known in `told` by compare-and-swap from the transition before, and shows it. Nobody makes the next
 * transition before he has seen this one told: where its winner was killed (or is only slow) he tells it, and shows
 * what was known and not shown; whoever comes second finds it told. The last one waits for the next to move or look by
 * hand. A run of rejections leaves one (`rejected`, value 1) at its first; the admission that ends the run takes its
 * length back to 0 and, where that admission is the transition to half-open, puts it into that event's `value`. */

/* One consistent enough picture for status, JSON and metrics. */
struct circuit_view {
	char name[REGION_NAME_MAX + 1];
	char policy[64];
	enum breaker_state state;
	enum breaker_mode mode; /* set by hand */
	bool is_observed;	/* breaker = observe, by the policy that last used it */
	uint32_t retry_after_ms;
	uint32_t consecutive_failures;
	uint32_t level;
	uint64_t success, failure, neutral, rejected, would_reject, stale; /* rejected: by circuit and bulkhead */
	uint32_t in_flight;
	uint64_t kinds[FAILURE_KIND_COUNT];
	struct window_sum recent; /* since the last transition: the window of the policy, else the last 100 calls */
	uint32_t minimum_calls;	  /* before recent makes a rate */
	bool has_slow;		  /* slow calls are told */
	uint64_t mode_ends_ms;	  /* until a mode set --for a time is over; 0: it has no end */
	uint64_t p50_us, p90_us, p99_us, max_us;
	uint32_t probes_in_flight, probes_max;
	uint64_t probe_results[5];
	uint64_t opened_total;
	uint64_t transitions[3][3];
	uint64_t late_look_ups, stale_answers; /* of "dns:NAME" */
	uint64_t fallbacks[DEGRADED_SOURCE_COUNT];
	uint32_t degraded; /* sources it is served from now, bit 1 << enum degraded_source */
	struct fault_view {
		char name[32];
		uint64_t hits;
	} faults[64]; /* those that hit its calls: as many as a configuration has */
	unsigned fault_count;
	struct endpoint_view endpoints[32];
	unsigned endpoint_count, ejected_count;
	uint32_t bulkhead_limit; /* 0: there is no bulkhead */
	uint32_t bulkhead_in_use, bulkhead_waiting;
	uint64_t bulkhead_rejected, bulkhead_reclaimed;
	bool has_last; /* the last transition */
	enum breaker_state last_from, last_to;
	char last_reason[48];
	int64_t last_wall_ns;
	int64_t last_used_ns;
};
/* The mode that is in force: observe also where the policy says so and nobody has set another. */
static inline enum breaker_mode circuit_shown_mode(const struct circuit_view *view)
{
	return view->mode == BREAKER_AUTO && view->is_observed ? BREAKER_OBSERVE : view->mode;
}
void circuit_view(const struct region *r, uint32_t destination, int64_t now_ns, struct circuit_view *view);

#endif
