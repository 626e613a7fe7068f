/* See breaker.h. Pure: no clock, no memory, no atomics; called by circuit.c with the word it read, and by tests. */
#include "core/breaker.h"

#define STATE_SHIFT 0
#define MODE_SHIFT 2
#define LEVEL_SHIFT 4
#define COUNT_SHIFT 9
#define GENERATION_SHIFT 21
#define TICK_SHIFT 37
#define TICK_MASK ((1u << 27) - 1)
#define LEVEL_MAX 31u

/* Waits grow in microseconds, so that one millisecond times 1.5 grows at all. Beyond the ceiling every wait is the cap;
 * ceiling times the largest backoff stays far below 2^64. */
#define GROWN_MAX_US ((uint64_t)BREAKER_WAIT_MAX_MS * 1000u * 100u)

_Static_assert(GENERATION_SHIFT == 21 && TICK_SHIFT == 37 && BREAKER_CLOSED == 0 && BREAKER_AUTO == 0,
	"breaker_plain and breaker_stays know the layout");
_Static_assert(BREAKER_COUNT_MAX == (1u << (GENERATION_SHIFT - COUNT_SHIFT)) - 1, "count field");
_Static_assert(BREAKER_WAIT_MAX_MS < TICK_MASK / 2, "waits are told from the past by half the tick's range");

/* The word, unpacked. */
struct parts {
	enum breaker_state state;
	enum breaker_mode mode;
	uint32_t level, count;
	uint16_t generation;
	uint32_t tick;
};

static inline enum breaker_state state_of(uint64_t word)
{
	unsigned state = (unsigned)(word >> STATE_SHIFT) & 3;

	/* The fourth value only comes from damage, and damage fences nobody off. */
	return state <= BREAKER_OPEN ? (enum breaker_state)state : BREAKER_CLOSED;
}

static inline enum breaker_mode mode_of(uint64_t word)
{
	return (enum breaker_mode)((word >> MODE_SHIFT) & 3);
}

enum breaker_state breaker_state(uint64_t word)
{
	return state_of(word);
}

enum breaker_mode breaker_mode(uint64_t word)
{
	return mode_of(word);
}

uint32_t breaker_count(uint64_t word)
{
	return (uint32_t)(word >> COUNT_SHIFT) & BREAKER_COUNT_MAX;
}

uint32_t breaker_level(uint64_t word)
{
	return (uint32_t)(word >> LEVEL_SHIFT) & LEVEL_MAX;
}

uint16_t breaker_generation(uint64_t word)
{
	return (uint16_t)(word >> GENERATION_SHIFT);
}

static inline uint32_t tick_of(int64_t now_ms)
{
	return (uint32_t)((uint64_t)now_ms & TICK_MASK);
}

static inline uint32_t word_tick(uint64_t word)
{
	return (uint32_t)(word >> TICK_SHIFT);
}

static struct parts unpack(uint64_t word)
{
	return (struct parts){state_of(word), mode_of(word), breaker_level(word), breaker_count(word),
		breaker_generation(word), word_tick(word)};
}

static uint64_t pack(const struct parts *p)
{
	return (uint64_t)p->state << STATE_SHIFT | (uint64_t)p->mode << MODE_SHIFT | (uint64_t)p->level << LEVEL_SHIFT |
	       (uint64_t)p->count << COUNT_SHIFT | (uint64_t)p->generation << GENERATION_SHIFT |
	       (uint64_t)p->tick << TICK_SHIFT;
}

/* Every transition: new generation (B2), streak restarts (B9). */
static void move_to(struct parts *p, enum breaker_state state, uint32_t tick)
{
	p->state = state;
	p->count = 0;
	p->generation = (uint16_t)(p->generation + 1);
	p->tick = tick;
}

uint64_t breaker_new(void)
{
	return 0;
}

/* The longest wait: recovery_max, never below recovery_timeout, never 0, never beyond what the tick can tell. */
static inline uint32_t cap_ms(const struct breaker_rules *rules)
{
	uint32_t cap = rules->recovery_max_ms > rules->recovery_ms ? rules->recovery_max_ms : rules->recovery_ms;

	if (cap > BREAKER_WAIT_MAX_MS)
		return BREAKER_WAIT_MAX_MS;
	return cap ? cap : 1;
}

/* recovery_timeout * backoff^level in microseconds, not yet capped by recovery_max. */
static uint64_t grown_us(const struct breaker_rules *rules, uint32_t level)
{
	uint64_t us = (uint64_t)(rules->recovery_ms ? rules->recovery_ms : 1) * 1000u;
	uint64_t backoff = rules->backoff_percent < 100 ? 100 : rules->backoff_percent;

	if (backoff > 10000)
		backoff = 10000;
	for (uint32_t i = 0; i < level && us < GROWN_MAX_US; i++)
		us = us * backoff / 100;
	return us < GROWN_MAX_US ? us : GROWN_MAX_US;
}

/* The wait of an opening. Jitter spreads it evenly over both sides, and what would lie beyond the cap is folded back
 * below it: so the largest waits are still spread, and no until is ever later than now + recovery_max, which is what
 * tells a damaged one (B14). */
static uint32_t wait_ms(const struct breaker_rules *rules, uint32_t level, uint64_t random)
{
	uint64_t cap = cap_ms(rules), base = grown_us(rules, level) / 1000;
	uint64_t jitter = rules->jitter_percent < 100 ? rules->jitter_percent : 100;

	if (base > cap)
		base = cap;
	uint64_t side = base * jitter / 100;
	uint64_t wait = base - side + random % (2 * side + 1);
	if (wait > cap)
		wait = 2 * cap - wait;
	return wait ? (uint32_t)wait : 1;
}

/* Each recovery_max of health halves the wait (B14): the level falls until what it stands for is at most half. A call's
 * verdict does this, so an idle circuit is caught up at its next one. */
static void credit_health(struct parts *p, const struct breaker_rules *rules, uint32_t now)
{
	uint32_t cap = cap_ms(rules), steps;

	if (p->level == 0)
		return;
	steps = ((now - p->tick) & TICK_MASK) / cap;
	for (uint32_t i = 0; i < steps && p->level > 0; i++) {
		uint64_t half = grown_us(rules, p->level) / 2;
		while (p->level > 0 && grown_us(rules, p->level) > half)
			p->level--;
	}
	p->tick = (p->tick + steps * cap) & TICK_MASK;
}

/* Milliseconds to go; 0 when due. Whatever is farther off than the longest wait is damage or the long past: due (B14).
 */
static inline uint32_t left_ms(uint64_t word, const struct breaker_rules *rules, int64_t now_ms)
{
	uint32_t left = (word_tick(word) - tick_of(now_ms)) & TICK_MASK;

	return left <= cap_ms(rules) ? left : 0;
}

/* Out of line, so that a rejection carries none of it. */
static __attribute__((noinline)) uint64_t half_open(uint64_t word, int64_t now_ms)
{
	struct parts p = unpack(word);

	move_to(&p, BREAKER_HALF_OPEN, tick_of(now_ms));
	return pack(&p);
}

struct breaker_admission breaker_admit(uint64_t word, const struct breaker_rules *rules, int64_t now_ms)
{
	struct breaker_admission a = {.next = word, .decision = BREAKER_ADMIT};
	enum breaker_mode mode = mode_of(word);
	enum breaker_state state = state_of(word);

	/* A mode set by hand goes before the policy: an observed destination forced open does reject. */
	if (mode == BREAKER_FORCED_CLOSED)
		return a;
	if (mode == BREAKER_FORCED_OPEN) {
		a.decision = BREAKER_REJECT;
		return a;
	}
	if (state == BREAKER_CLOSED)
		return a;
	if (state == BREAKER_HALF_OPEN) {
		a.decision = BREAKER_PROBE;
		return a;
	}
	if (left_ms(word, rules, now_ms) > 0) {
		if (rules->is_observed || mode == BREAKER_OBSERVE)
			a.would_reject = true;
		else
			a.decision = BREAKER_REJECT;
		return a;
	}
	a.next = half_open(word, now_ms);
	a.decision = BREAKER_PROBE;
	return a;
}

static void settle_closed(
	struct parts *p, const struct breaker_rules *rules, enum breaker_outcome outcome, uint32_t now, uint64_t random)
{
	credit_health(p, rules, now);
	if (outcome == BREAKER_SUCCESS) {
		p->count = 0;
		return;
	}
	if (outcome != BREAKER_FAILURE) /* a neutral verdict does not end a streak (B12) */
		return;
	if (p->count < BREAKER_COUNT_MAX)
		p->count++;
	uint32_t threshold =
		rules->failure_threshold < BREAKER_COUNT_MAX ? rules->failure_threshold : BREAKER_COUNT_MAX;
	if (threshold > 0 && p->count >= threshold)
		move_to(p, BREAKER_OPEN, (now + wait_ms(rules, p->level, random)) & TICK_MASK);
}

static void settle_probe(
	struct parts *p, const struct breaker_rules *rules, enum breaker_outcome outcome, uint32_t now, uint64_t random)
{
	uint32_t threshold =
		rules->success_threshold < BREAKER_COUNT_MAX ? rules->success_threshold : BREAKER_COUNT_MAX;

	switch (outcome) {
	case BREAKER_SUCCESS:
		if (p->count < BREAKER_COUNT_MAX)
			p->count++;
		if (p->count >= threshold)
			move_to(p, BREAKER_CLOSED, now);
		break;
	case BREAKER_FAILURE:
		/* Once the cap is reached the level stays: more would only have to be halved away again later. */
		if (p->level < LEVEL_MAX && grown_us(rules, p->level) < (uint64_t)cap_ms(rules) * 1000)
			p->level++;
		move_to(p, BREAKER_OPEN, (now + wait_ms(rules, p->level, random)) & TICK_MASK);
		break;
	default: break; /* neutral: still half-open, the next connect probes (B7) */
	}
}

struct breaker_settlement breaker_settle(uint64_t word, const struct breaker_rules *rules, uint16_t generation,
	bool is_probe, enum breaker_outcome outcome, int64_t now_ms, uint64_t random)
{
	struct breaker_settlement s = {.next = word};
	struct parts p = unpack(word);

	if (generation != p.generation) {
		s.is_stale = true;
		return s;
	}
	if (p.mode == BREAKER_FORCED_OPEN || p.mode == BREAKER_FORCED_CLOSED)
		return s;
	if (p.state == BREAKER_CLOSED) {
		settle_closed(&p, rules, outcome, tick_of(now_ms), random);
	} else if (p.state == BREAKER_HALF_OPEN && is_probe) {
		settle_probe(&p, rules, outcome, tick_of(now_ms), random);
	} else {
		/* Passed by observation while open or beside the probes: it neither closes nor extends. */
		s.is_stale = true;
		return s;
	}
	s.is_transition = p.generation != generation;
	s.next = pack(&p);
	return s;
}

struct breaker_settlement breaker_trip(
	uint64_t word, const struct breaker_rules *rules, uint16_t generation, int64_t now_ms, uint64_t random)
{
	struct breaker_settlement s = {.next = word, .is_stale = generation != breaker_generation(word)};
	struct parts p = unpack(word);

	if (s.is_stale || p.state != BREAKER_CLOSED || p.mode == BREAKER_FORCED_CLOSED)
		return s;
	move_to(&p, BREAKER_OPEN, (tick_of(now_ms) + wait_ms(rules, p.level, random)) & TICK_MASK);
	s.is_transition = true;
	s.next = pack(&p);
	return s;
}

uint64_t breaker_set_mode(uint64_t word, enum breaker_mode mode, int64_t now_ms)
{
	struct parts p = unpack(word);
	uint32_t now = tick_of(now_ms);
	enum breaker_mode old = p.mode;

	p.mode = mode;
	/* A forced mode begins anew, even over itself: the new generation is what an end of the earlier one, seen at
	 * the same moment by another process, fails its compare-and-swap on. */
	if (mode == BREAKER_FORCED_OPEN || mode == BREAKER_FORCED_CLOSED) {
		p.level = 0;
		move_to(&p, mode == BREAKER_FORCED_OPEN ? BREAKER_OPEN : BREAKER_CLOSED, now);
		return pack(&p);
	}
	if (old == BREAKER_FORCED_OPEN)
		move_to(&p, BREAKER_OPEN, now); /* due now: the next call probes */
	else if (old == BREAKER_FORCED_CLOSED)
		move_to(&p, BREAKER_CLOSED, now);
	return pack(&p);
}

uint64_t breaker_reset(uint64_t word, int64_t now_ms)
{
	struct parts p = unpack(word);

	/* The mode stays, and forced open shows as open, whatever is forgotten under it. */
	p.level = 0;
	move_to(&p, p.mode == BREAKER_FORCED_OPEN ? BREAKER_OPEN : BREAKER_CLOSED, tick_of(now_ms));
	return pack(&p);
}

uint64_t breaker_expire(uint64_t word, int64_t now_ms)
{
	struct parts p = unpack(word);

	if (p.state == BREAKER_OPEN)
		p.tick = tick_of(now_ms);
	return pack(&p);
}

uint32_t breaker_retry_after_ms(uint64_t word, const struct breaker_rules *rules, int64_t now_ms)
{
	enum breaker_mode mode = breaker_mode(word);

	if (breaker_state(word) != BREAKER_OPEN || mode == BREAKER_FORCED_OPEN || mode == BREAKER_FORCED_CLOSED)
		return 0;
	return left_ms(word, rules, now_ms);
}

const char *breaker_state_name(enum breaker_state state)
{
	static const char *const names[] = {"closed", "half_open", "open"};

	return (unsigned)state < 3 ? names[state] : "unknown";
}

const char *breaker_mode_name(enum breaker_mode mode)
{
	static const char *const names[] = {"auto", "forced_open", "forced_closed", "observe"};

	return (unsigned)mode < 4 ? names[mode] : "unknown";
}
