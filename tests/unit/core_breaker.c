/* The pure breaker against a plain model written from the rules (B1, B2, B5, B8, B9, B10, B12, B14, B15, B16): every
 * kind of word with every event at telling moments, then long random histories in which the model keeps its own state,
 * with whole numbers for time and generation. */
#include <string.h>

#include "core/breaker.h"
#include "core_rules.h"
#include "tap.h"

#define TURN (1ll << 27) /* milliseconds until the tick comes round */

enum { CLOSED, HALF_OPEN, OPEN };
enum { AUTO, FORCED_OPEN, FORCED_CLOSED, OBSERVE };

struct model {
	int state, mode;
	int level;
	int count;
	long long generation;
	long long until;	 /* OPEN */
	long long healthy_since; /* CLOSED */
};

static uint64_t seed = 0x9e3779b97f4a7c15ull;

static uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static uint64_t below(uint64_t n)
{
	return next_random() % n;
}

/* ---- the model ---- */

static double least(double a, double b)
{
	return a < b ? a : b;
}

static double cap_of(const struct breaker_rules *r)
{
	double cap = r->recovery_max_ms > r->recovery_ms ? r->recovery_max_ms : r->recovery_ms;

	return cap > 43200000 ? 43200000 : cap < 1 ? 1 : cap;
}

/* Wait of a level in milliseconds, uncapped but for what no cap reaches. */
static double grown(const struct breaker_rules *r, int level)
{
	double factor = r->backoff_percent < 100 ? 1 : r->backoff_percent > 10000 ? 100 : r->backoff_percent / 100.0;
	double ms = r->recovery_ms ? r->recovery_ms : 1;

	for (int i = 0; i < level; i++)
		ms *= factor;
	return least(ms, 4320000000.0);
}

/* Does a wait fit a level: 80 % to 120 % of it for 20 % jitter, never 0, never over the cap? */
static bool fits(const struct breaker_rules *r, int level, double wait)
{
	double cap = cap_of(r), base = least(grown(r, level), cap), side = base * least(r->jitter_percent, 100) / 100;
	double low = least(
		base - side, 2 * cap - base - side); /* folded back: as far below the cap as it would have been above */

	return wait >= 1 && wait >= low - 2 && wait <= least(cap, base + side + 1);
}

static void model_move(struct model *m, int state)
{
	m->state = state;
	m->count = 0;
	m->generation++;
}

static void model_health(struct model *m, const struct breaker_rules *r, long long now)
{
	long long cap = (long long)cap_of(r), turns = (now - m->healthy_since) / cap;

	if (m->level == 0)
		return;
	for (long long i = 0; i < turns && m->level > 0; i++) {
		double half = grown(r, m->level) / 2 * (1 + 1e-9) + 0.002;
		while (m->level > 0 && grown(r, m->level) > half)
			m->level--;
	}
	m->healthy_since += turns * cap;
}

/* Returns whether it was stale; *opened: it went to open, the wait is to be checked. */
static bool model_settle(struct model *m, const struct breaker_rules *r, long long generation, bool is_probe,
	int outcome, long long now, bool *opened)
{
	*opened = false;
	if (generation != m->generation)
		return true;
	if (m->mode == FORCED_OPEN || m->mode == FORCED_CLOSED)
		return false;
	if (m->state == OPEN || (m->state == HALF_OPEN && !is_probe))
		return true;
	if (m->state == CLOSED) {
		model_health(m, r, now);
		if (outcome == BREAKER_SUCCESS)
			m->count = 0;
		if (outcome != BREAKER_FAILURE)
			return false;
		m->count = m->count + 1 > 4095 ? 4095 : m->count + 1;
		*opened = r->failure_threshold != 0 && ((uint32_t)m->count >= r->failure_threshold || m->count == 4095);
		if (*opened)
			model_move(m, OPEN);
		return false;
	}
	if (outcome == BREAKER_SUCCESS) {
		m->count = m->count + 1 > 4095 ? 4095 : m->count + 1;
		if ((uint32_t)m->count >= r->success_threshold || m->count == 4095) {
			model_move(m, CLOSED);
			m->healthy_since = now;
		}
	} else if (outcome == BREAKER_FAILURE) {
		if (grown(r, m->level) < cap_of(r) - 0.001 && m->level < 31)
			m->level++;
		*opened = true;
		model_move(m, OPEN);
	}
	return false;
}

/* A decision; *would_reject as the breaker says it. The move to half-open is made. */
static int model_admit(struct model *m, const struct breaker_rules *r, long long now, bool *would_reject)
{
	*would_reject = false;
	if (m->mode == FORCED_CLOSED)
		return BREAKER_ADMIT;
	if (m->mode == FORCED_OPEN)
		return BREAKER_REJECT;
	if (m->state == CLOSED)
		return BREAKER_ADMIT;
	if (m->state == HALF_OPEN)
		return BREAKER_PROBE;
	if (m->until > now && m->until - now <= (long long)cap_of(r)) {
		*would_reject = r->is_observed || m->mode == OBSERVE;
		return *would_reject ? BREAKER_ADMIT : BREAKER_REJECT;
	}
	model_move(m, HALF_OPEN);
	return BREAKER_PROBE;
}

static void model_set_mode(struct model *m, int mode, long long now)
{
	int old = m->mode;

	m->mode = mode;
	if (mode == FORCED_OPEN || (old == FORCED_OPEN && mode != FORCED_CLOSED)) {
		model_move(m, OPEN);
		m->until = now;
	} else if (mode == FORCED_CLOSED || old == FORCED_CLOSED) {
		model_move(m, CLOSED);
		m->healthy_since = now;
	}
	if (mode == FORCED_OPEN || mode == FORCED_CLOSED)
		m->level = 0;
}

/* ---- the word, read by its documented layout ---- */

static uint64_t make_word(
	unsigned state, unsigned mode, unsigned level, unsigned count, unsigned generation, long long tick)
{
	return state | mode << 2 | level << 4 | (uint64_t)count << 9 | (uint64_t)generation << 21 |
	       (uint64_t)(tick & (TURN - 1)) << 37;
}

static long long tick_of(uint64_t word)
{
	return (long long)(word >> 37);
}

static struct model model_of(uint64_t word, const struct breaker_rules *r, long long now)
{
	struct model m = {.state = (int)(word & 3),
		.mode = (int)(word >> 2 & 3),
		.level = (int)(word >> 4 & 31),
		.count = (int)(word >> 9 & 4095),
		.generation = (long long)(word >> 21 & 65535)};
	long long ahead = (tick_of(word) - now) & (TURN - 1);

	if (m.state == 3)
		m.state = CLOSED;
	m.until = ahead <= (long long)cap_of(r) ? now + ahead : now - 1;
	m.healthy_since = now - ((now - tick_of(word)) & (TURN - 1));
	return m;
}

/* Is the word what the model says? The wait of a new opening is the breaker's choice within its jitter; the model takes
 * it over. */
static void compare(
	uint64_t word, struct model *m, const struct breaker_rules *r, long long now, bool opened, const char *event)
{
	tap_expect((int)breaker_state(word) == m->state && (int)breaker_mode(word) == m->mode,
		"%s: state %d mode %d, not %d %d", event, (int)breaker_state(word), (int)breaker_mode(word), m->state,
		m->mode);
	tap_expect((int)breaker_count(word) == m->count, "%s: count %d, not %d", event, (int)breaker_count(word),
		m->count);
	tap_expect((int)breaker_level(word) == m->level, "%s: level %d, not %d (recovery %u, backoff %u, cap %.0f)",
		event, (int)breaker_level(word), m->level, r->recovery_ms, r->backoff_percent, cap_of(r));
	tap_expect(breaker_generation(word) == (m->generation & 65535), "%s: generation %d, not %lld", event,
		breaker_generation(word), m->generation);
	if (opened) {
		long long wait = (tick_of(word) - now) & (TURN - 1);
		tap_expect(fits(r, m->level, (double)wait),
			"%s: waits %lld ms at level %d (recovery %u, backoff %u, cap %.0f, jitter %u)", event, wait,
			m->level, r->recovery_ms, r->backoff_percent, cap_of(r), r->jitter_percent);
		tap_expect(
			(long long)breaker_retry_after_ms(word, r, now) == wait, "%s: retry_after is the wait", event);
		m->until = now + wait;
	}
	long long left = m->state == OPEN && (m->mode == AUTO || m->mode == OBSERVE) && m->until > now &&
					 m->until - now <= (long long)cap_of(r)
				 ? m->until - now
				 : 0;
	tap_expect((long long)breaker_retry_after_ms(word, r, now) == left, "%s: retry after %u, not %lld (B16)", event,
		breaker_retry_after_ms(word, r, now), left);
}

/* ---- one word, every event ---- */

static void every_event(uint64_t word, const struct breaker_rules *r, long long now)
{
	bool would, opened;
	struct model m = model_of(word, r, now);
	struct breaker_admission a = breaker_admit(word, r, now);

	tap_expect((int)a.decision == model_admit(&m, r, now, &would) && a.would_reject == would,
		"admit: decision %d, would_reject %d (word %llx)", (int)a.decision, a.would_reject,
		(unsigned long long)word);
	enum breaker_plain plain = breaker_plain(word, r, now);
	tap_expect(plain == BREAKER_NOT_PLAIN ||
			   (a.next == word && !a.would_reject &&
				   a.decision == (plain == BREAKER_PLAIN_ADMIT ? BREAKER_ADMIT : BREAKER_REJECT)),
		"the everyday answer %d is not the whole one %d (word %llx)", (int)plain, (int)a.decision,
		(unsigned long long)word);
	if (a.next == word)
		tap_expect((int)breaker_generation(word) == (m.generation & 65535),
			"admit: an unchanged word where a transition was due");
	else
		compare(a.next, &m, r, now, false, "admit");

	int generation = breaker_generation(word);
	for (int outcome = 0; outcome < 3; outcome++)
		for (int probe = 0; probe < 2; probe++)
			for (int older = -1; older < 2; older++) {
				m = model_of(word, r, now);
				bool stale = model_settle(&m, r, generation + older, probe, outcome, now, &opened);
				struct breaker_settlement s = breaker_settle(word, r, (uint16_t)(generation + older),
					probe, (enum breaker_outcome)outcome, now, next_random());
				tap_expect(!breaker_stays(word, (uint16_t)(generation + older),
						   (enum breaker_outcome)outcome) ||
						   (s.next == word && !s.is_stale),
					"settle: the everyday verdict is not the whole one (word %llx)",
					(unsigned long long)word);
				tap_expect(s.is_stale == stale, "settle: stale %d (B2)", s.is_stale);
				tap_expect(s.is_transition == (m.generation != generation), "settle: transition %d",
					s.is_transition);
				if (stale)
					tap_expect(s.next == word, "B2: a stale verdict changes nothing");
				else if (s.next != word)
					compare(s.next, &m, r, now, opened, "settle");
				else
					tap_expect(m.generation == generation && m.count == (int)breaker_count(word) &&
							   m.level == (int)breaker_level(word),
						"settle: an unchanged word where a change was due");
			}
	for (int mode = 0; mode < 4; mode++) {
		m = model_of(word, r, now);
		model_set_mode(&m, mode, now);
		compare(breaker_set_mode(word, (enum breaker_mode)mode, now), &m, r, now, false, "set_mode");
	}
	m = model_of(word, r, now);
	model_move(&m, m.mode == FORCED_OPEN ? OPEN : CLOSED);
	m.level = 0;
	m.until = m.healthy_since = now;
	compare(breaker_reset(word, now), &m, r, now, false, "reset");
}

static const struct breaker_rules rule_sets[] = {
	/* failures successes probes recovery max backoff jitter probe observed */
	RULES(5, 1, 1, 1000, 30000, 200, 20, 30000, false),
	RULES(0, 1, 1, 1000, 30000, 200, 0, 30000, false),
	RULES(1, 1, 64, 1, 1, 10000, 100, 1, false),
	RULES(4095, 4095, 1, 43200000, 43200000, 10000, 100, 43200000, false),
	RULES(5, 2, 2, 100, 60000, 150, 20, 1000, true),
	RULES(2, 5, 3, 1000, 10, 100, 50, 1000, false),
	RULES(UINT32_MAX, 0, 0, 0, 0, 0, 200, 0, false),
	RULES(3, 3, 1, UINT32_MAX, UINT32_MAX, UINT16_MAX, UINT8_MAX, 1, true),
};

static void enumerate(void)
{
	static const unsigned levels[] = {0, 1, 2, 5, 31}, counts[] = {0, 1, 4, 5, 4094, 4095},
			      generations[] = {0, 1, 65535};
	static const long long nows[] = {0, 1, TURN - 1, TURN, TURN + 5, 1000000000000ll};
	static const long long offsets[] = {0, 1, -1, 500, -500, 1000, 30000, 30001, -30000, -60001, 43200000, 43200001,
		-43200001, TURN / 2, TURN / 2 + 1};

	for (size_t r = 0; r < sizeof rule_sets / sizeof rule_sets[0]; r++)
		for (unsigned state = 0; state < 4; state++)
			for (unsigned mode = 0; mode < 4; mode++)
				for (size_t l = 0; l < 5; l++)
					for (size_t c = 0; c < 6; c++)
						for (size_t n = 0; n < 6; n++)
							for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++)
								every_event(make_word(state, mode, levels[l], counts[c],
										    generations[(c + n + o) % 3],
										    nows[n] + offsets[o]),
									&rule_sets[r], nows[n]);
	tap_all("every kind of word, every event, as the model (B2, B8, B9, B10, B12, B14, B15, B16)");
	for (int i = 0; i < 300000; i++)
		every_event(next_random(), &rule_sets[below(8)], (long long)below(1ull << 50));
	tap_all("random words and times (E10)");
}

/* ---- random histories ---- */

struct call {
	long long generation;
	uint16_t short_generation;
	bool is_probe;
};

static void random_rules(struct breaker_rules *r)
{
	static const uint16_t backoffs[] = {100, 150, 200, 300, 1000, 10000};

	*r = (struct breaker_rules){
		.failure_threshold = (uint32_t)below(7),
		.success_threshold = (uint32_t)(1 + below(4)),
		.half_open_max_calls = 1,
		.recovery_ms = (uint32_t)(1 + below(below(4) ? 5000 : 43200000)),
		.backoff_percent = backoffs[below(6)],
		.jitter_percent = (uint8_t)(below(3) * 50),
		.is_observed = below(4) == 0,
	};
	r->recovery_max_ms = (uint32_t)(below(4) ? r->recovery_ms * (1 + below(20)) : below(2000));
	if (r->recovery_max_ms > 43200000)
		r->recovery_max_ms = 43200000;
}

static void history(int steps)
{
	struct breaker_rules r;
	struct call calls[16];
	int in_flight = 0;
	long long now = (long long)below(1ull << 40);
	uint64_t word = breaker_new();
	struct model m = {.healthy_since = 0};

	random_rules(&r);
	for (int i = 0; i < steps; i++) {
		bool opened = false, would;
		/* Long silences, too, but none in which a waiting circuit's tick comes round: that is the caller's to
		 * tell (circuit.c). */
		now += (long long)(below(8) ? below(1 + (uint64_t)cap_of(&r) / 3)
					    : below((uint64_t)TURN / 2 - 50000000));
		switch (below(100)) {
		case 0:
			model_set_mode(&m, i & 3, now);
			word = breaker_set_mode(word, (enum breaker_mode)(i & 3), now);
			break;
		case 1:
			model_move(&m, m.mode == FORCED_OPEN ? OPEN : CLOSED);
			m.level = 0;
			m.until = m.healthy_since = now;
			word = breaker_reset(word, now);
			break;
		default:
			if (in_flight < 16 && (in_flight == 0 || below(2))) {
				int decision = model_admit(&m, &r, now, &would);
				struct breaker_admission a = breaker_admit(word, &r, now);
				tap_expect((int)a.decision == decision && a.would_reject == would,
					"history: decision %d, not %d", (int)a.decision, decision);
				word = a.next;
				if (decision != BREAKER_REJECT)
					calls[in_flight++] = (struct call){
						m.generation, breaker_generation(word), decision == BREAKER_PROBE};
			} else {
				struct call c = calls[below((uint64_t)in_flight)];
				for (int k = 0; k < in_flight; k++)
					if (memcmp(&calls[k], &c, sizeof c) == 0) {
						calls[k] = calls[--in_flight];
						break;
					}
				int outcome = (int)(below(10) < 6 ? BREAKER_FAILURE : below(3));
				bool stale = model_settle(&m, &r, c.generation, c.is_probe, outcome, now, &opened);
				struct breaker_settlement s = breaker_settle(word, &r, c.short_generation, c.is_probe,
					(enum breaker_outcome)outcome, now, next_random());
				tap_expect(s.is_stale == stale, "history: stale %d, not %d", s.is_stale, stale);
				word = s.next;
			}
		}
		if (m.level == 0)
			m.healthy_since = now; /* of no meaning then; keeps within the tick's range */
		compare(word, &m, &r, now, opened, "history");
	}
}

/* ---- single rules, told as stories ---- */

static uint64_t fail(uint64_t word, const struct breaker_rules *r, int n, long long now)
{
	for (int i = 0; i < n; i++)
		word = breaker_settle(word, r, breaker_generation(word), true, BREAKER_FAILURE, now, 0).next;
	return word;
}

static void stories(void)
{
	struct breaker_rules r = RULES(5, 1, 1, 1000, 8000, 200, 0, 30000, false);
	uint64_t w = fail(breaker_new(), &r, 4, 10);

	tap_ok(breaker_state(w) == BREAKER_CLOSED, "four failures of five leave it closed");
	w = breaker_settle(w, &r, 0, false, BREAKER_NEUTRAL, 10, 0).next;
	w = fail(w, &r, 1, 10);
	tap_ok(breaker_state(w) == BREAKER_OPEN, "B12: a neutral verdict does not end a failure streak");
	tap_ok(breaker_retry_after_ms(w, &r, 10) == 1000 && breaker_retry_after_ms(w, &r, 2000) == 0,
		"B16: time up says 0, without traffic");
	tap_ok(breaker_admit(w, &r, 1009).decision == BREAKER_REJECT &&
			breaker_admit(w, &r, 1010).decision == BREAKER_PROBE,
		"probes when it is time");

	static const uint32_t waits[] = {2000, 4000, 8000, 8000, 8000};
	long long now = 1010;
	for (int i = 0; i < 5; i++) {
		w = fail(breaker_admit(w, &r, now).next, &r, 1, now);
		tap_expect(breaker_retry_after_ms(w, &r, now) == waits[i], "reopening %d waits %u", i + 1,
			breaker_retry_after_ms(w, &r, now));
		now += waits[i];
	}
	tap_all("B14: each reopening doubles the wait, up to recovery_max");

	for (int health = 0; health < 4; health++) {
		static const uint32_t after[] = {8000, 4000, 2000, 1000};
		uint64_t x = breaker_admit(w, &r, now).next;
		x = breaker_settle(x, &r, breaker_generation(x), true, BREAKER_SUCCESS, now, 0).next;
		x = fail(x, &r, 5, now + health * 8000);
		tap_expect(breaker_state(x) == BREAKER_OPEN &&
				   breaker_retry_after_ms(x, &r, now + health * 8000) == after[health],
			"after %d s it waits %u", health * 8, breaker_retry_after_ms(x, &r, now + health * 8000));
	}
	tap_all("B14: each recovery_max of health halves the wait");

	struct breaker_rules j = RULES(1, 1, 1, 1000, 30000, 200, 20, 30000, false);
	uint32_t low = UINT32_MAX, high = 0;
	for (int i = 0; i < 20000; i++) {
		uint64_t x = breaker_settle(breaker_new(), &j, 0, false, BREAKER_FAILURE, 0, next_random()).next;
		uint32_t wait = breaker_retry_after_ms(x, &j, 0);
		low = wait < low ? wait : low;
		high = wait > high ? wait : high;
	}
	tap_ok(low >= 800 && low < 810 && high <= 1200 && high > 1190,
		"jitter goes both ways: %u to %u for 1000 +- 20 %%", low, high);
	j.recovery_max_ms = 1000;
	low = UINT32_MAX, high = 0;
	for (int i = 0; i < 20000; i++) {
		uint64_t x = breaker_settle(breaker_new(), &j, 0, false, BREAKER_FAILURE, 0, next_random()).next;
		uint32_t wait = breaker_retry_after_ms(x, &j, 0);
		low = wait < low ? wait : low;
		high = wait > high ? wait : high;
	}
	tap_ok(low >= 800 && low < 810 && high <= 1000 && high > 990, "at recovery_max it is folded below: %u to %u",
		low, high);

	uint64_t open = fail(breaker_new(), &r, 5, TURN - 500);
	tap_ok(breaker_retry_after_ms(open, &r, TURN - 500) == 1000 &&
			breaker_retry_after_ms(open, &r, TURN + 499) == 1 &&
			breaker_retry_after_ms(open, &r, TURN + 500) == 0,
		"B1: the tick wraps in the middle of a wait");
	tap_ok(breaker_retry_after_ms(make_word(OPEN, AUTO, 0, 0, 7, 9000), &r, 0) == 0,
		"B14: an until beyond recovery_max counts as expired");
	tap_ok(breaker_retry_after_ms(breaker_expire(open, TURN), &r, TURN) == 0 &&
			breaker_generation(breaker_expire(open, TURN)) == breaker_generation(open),
		"an expired wait is the same opening");
}

int main(void)
{
	stories();
	enumerate();
	for (int i = 0; i < 20000; i++)
		history(120);
	tap_all("random histories against the model");
	return tap_done();
}
