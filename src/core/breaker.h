/* The circuit breaker of one destination as one 64-bit word, and its transitions as pure functions
 * (word, event, now) -> word. No clock, no memory, no atomics here: circuit.h applies them by compare-and-swap,
 * and tests enumerate them against a model written from the rules.
 *
 *             failures reach a threshold                  until is past, a probe takes a lease
 *    CLOSED ------------------------------> OPEN <----------------------------> HALF_OPEN
 *      ^                                     ^            a probe fails             |
 *      |                                     +--------------------------------------+
 *      +----------------------------------------------------------------------------+
 *                          success_threshold probes have succeeded
 *
 * Layout, low bit first:
 *    state 2 | mode 2 | level 5 | count 12 | generation 16 | tick 27
 *  level       how often it reopened: the wait is recovery_timeout * backoff^level, capped (B14). It stops growing
 * where the cap is reached; each recovery_max of being closed lowers it until the wait it stands for is halved. Jitter
 * that would pass the cap is folded back below it: no until is later than now + recovery_max count       CLOSED:
 * failure streak; HALF_OPEN: successful probes generation  new with each transition; verdicts of another are stale (B2)
 *  tick        OPEN: until, CLOSED: since when healthy; milliseconds modulo 2^27 (37 hours, read within half of it)
 * Probe slots are no count in here but leases (lease.h), so that a death leaks none.
 */
#ifndef RESIL_CORE_BREAKER_H
#define RESIL_CORE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum breaker_state { BREAKER_CLOSED, BREAKER_HALF_OPEN, BREAKER_OPEN };
enum breaker_mode { BREAKER_AUTO, BREAKER_FORCED_OPEN, BREAKER_FORCED_CLOSED, BREAKER_OBSERVE };

#define BREAKER_COUNT_MAX 4095u	      /* largest failure_threshold and success_threshold */
#define BREAKER_WAIT_MAX_MS 43200000u /* 12 h: largest recovery_timeout and recovery_max */
#define BREAKER_PROBES_MAX 64u	      /* largest half_open_max_calls */

/* What the policy asks for, by value. */
struct breaker_rules {
	uint32_t failure_threshold; /* consecutive failures that open; 0: never by streak */
	uint32_t success_threshold; /* successful probes that close, 1.. */
	uint32_t recovery_ms;	    /* first wait */
	uint32_t recovery_max_ms;   /* cap; never below recovery_ms */
	uint32_t probe_timeout_ms;

	/* The rate rules (window.h). */
	uint32_t window;	/* 0: off; calls, 1..WINDOW_CALLS_MAX; with WINDOW_IS_TIME: milliseconds */
	uint32_t minimum_calls; /* before a rate counts, 1.. */
	uint32_t slow_call_ms;	/* a call that takes so long is slow; 0: off */

	uint16_t half_open_max_calls;			 /* probes in flight at once, 1..BREAKER_PROBES_MAX */
	uint16_t backoff_percent;			 /* 200: each reopening doubles the wait; 100..10000 */
	uint8_t jitter_percent;				 /* 20: the wait is spread over 80 % to 120 %; 0..100 */
	uint8_t failure_rate_percent, slow_rate_percent; /* open at or above, 1..100 */
	bool is_observed;				 /* policy breaker = observe: decides, never rejects */
};

enum breaker_decision {
	BREAKER_ADMIT,	/* go on, closed (or forced closed, or observed) */
	BREAKER_PROBE,	/* go on if you hold a lease: a probe. When `next` differs this call makes the transition */
	BREAKER_REJECT, /* fail fast */
};

struct breaker_admission {
	uint64_t next; /* the word after it; equal to the old one when nothing changes */
	enum breaker_decision decision;
	bool would_reject; /* observed: passed, but would have been rejected (B15) */
};

enum breaker_outcome { BREAKER_SUCCESS, BREAKER_FAILURE, BREAKER_NEUTRAL };

struct breaker_settlement {
	uint64_t next;
	bool is_stale;	    /* of another generation: changed nothing (B2) */
	bool is_transition; /* state changed: the caller whose CAS wins writes the event (B4) */
};

uint64_t breaker_new(void); /* closed, auto, generation 0 */
enum breaker_state breaker_state(uint64_t word);
enum breaker_mode breaker_mode(uint64_t word);
uint32_t breaker_count(uint64_t word);
uint32_t breaker_level(uint64_t word);
uint16_t breaker_generation(uint64_t word);

/* now_ms: CLOCK_MONOTONIC milliseconds, the whole number (reduced inside). */
struct breaker_admission breaker_admit(uint64_t word, const struct breaker_rules *rules, int64_t now_ms);
/* generation: the one the call was admitted under; is_probe: it holds a lease. random: any 64 bits, for the jitter. */
struct breaker_settlement breaker_settle(uint64_t word, const struct breaker_rules *rules, uint16_t generation,
	bool is_probe, enum breaker_outcome outcome, int64_t now_ms, uint64_t random);
/* A closed word of that generation opens, for what its window holds: same wait, same transition as by its streak. Any
 * other word stays. */
struct breaker_settlement breaker_trip(
	uint64_t word, const struct breaker_rules *rules, uint16_t generation, int64_t now_ms, uint64_t random);
/* Sets a mode by hand (B15). Forced modes show as their state, always begin a new generation, and go before
 * `is_observed`. AUTO after FORCED_OPEN makes the next call a probe; after FORCED_CLOSED it starts closed. */
uint64_t breaker_set_mode(uint64_t word, enum breaker_mode mode, int64_t now_ms);
/* Closed, streak and level 0, new generation; the mode stays, and forced open stays open. */
uint64_t breaker_reset(uint64_t word, int64_t now_ms);
/* An open word whose wait is over: for callers who know from a longer clock that the tick has come round (circuit.c).
 */
uint64_t breaker_expire(uint64_t word, int64_t now_ms);
/* Milliseconds until a probe is let through: 0 when due, not open or forced; never beyond recovery_max (B14, B16). */
uint32_t breaker_retry_after_ms(uint64_t word, const struct breaker_rules *rules, int64_t now_ms);

/* Without a call. */
static inline uint16_t breaker_word_generation(uint64_t word)
{
	return (uint16_t)(word >> 21);
}
/* Closed, and no mode set by hand: all are admitted. */
static inline bool breaker_is_closed(uint64_t word)
{
	return (word & 0xf) == BREAKER_CLOSED; /* 0xf: state and mode at once; auto is 0 */
}
/* The two everyday answers, without a call: closed and open with time to go, no mode set by hand, not observed.
 * Everything else is breaker_admit's to decide. */
enum breaker_plain { BREAKER_PLAIN_ADMIT, BREAKER_PLAIN_REJECT, BREAKER_NOT_PLAIN };
#define BREAKER_TICK_MASK ((1u << 27) - 1)
static inline enum breaker_plain breaker_plain(uint64_t word, const struct breaker_rules *rules, int64_t now_ms)
{
	uint32_t cap = rules->recovery_max_ms > rules->recovery_ms ? rules->recovery_max_ms : rules->recovery_ms;
	uint32_t left = ((uint32_t)(word >> 37) - (uint32_t)now_ms) & BREAKER_TICK_MASK;

	if (breaker_is_closed(word))
		return BREAKER_PLAIN_ADMIT;
	if ((word & 0xf) == BREAKER_OPEN && !rules->is_observed && left - 1 < cap)
		return BREAKER_PLAIN_REJECT;
	return BREAKER_NOT_PLAIN;
}

/* The everyday verdict that leaves the word as it is: closed, no mode set by hand, level and streak 0, of this
 * generation; a success, or a neutral one. */
static inline bool breaker_stays(uint64_t word, uint16_t generation, enum breaker_outcome outcome)
{
	return outcome != BREAKER_FAILURE && (word & ((1ULL << 37) - 1)) == (uint64_t)generation << 21;
}

const char *breaker_state_name(enum breaker_state state); /* "closed" "half_open" "open" */
const char *breaker_mode_name(enum breaker_mode mode);	  /* "auto" "forced_open" "forced_closed" "observe" */

#endif
