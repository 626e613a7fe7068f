/* The plain model of a circuit, written from the rules (SEMANTICS B), not from the code: lists and whole numbers where
 * the circuit has packed words, ticks and parts of a window. And histories of what may happen to one, made at random
 * from a seed. Compared with the circuit itself by circuit.c, and with processes under the shim by replay.c. */
#ifndef RESIL_TESTS_MODEL_H
#define RESIL_TESTS_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/circuit.h"

#define START_MS 1000000ll
#define PROCESSES 3
#define CALLS 12
#define STEPS 64
#define WINDOW STEPS /* more calls than that no history has */

/* ---- the model ---- */

enum wrong {
	RIGHT,
	WRONG_NEUTRAL_ENDS_STREAK,
	WRONG_STALE_COUNTS,
	WRONG_NO_BACKOFF,
	WRONG_WINDOW_STAYS,
	WRONG_ONE_PROBE_MORE,
	WRONG_DEAD_HOLD,
	WRONG_FORCED_ENDS,
	WRONG_STRICT,
	WRONG_COUNT
};
static const char *const wrongs[] = {"nothing", "a neutral verdict ends a streak (B12)", "a late verdict counts (B2)",
	"reopening does not multiply the wait (B14)", "a transition leaves the window (B9)",
	"a probe more than allowed (B5)", "the dead hold their slots (B7)", "recovery ends a forced mode (B15)",
	"thresholds are passed, not reached (B10)"};
static enum wrong wrong;
/* Where time is the world's: what is as near to a bound as this may be on either side of it. */
static long long slack_ms;

struct verdict_at {
	long long at;
	bool failed, slow;
};

struct a_call {
	bool is_live, is_probe;
	bool has_lost;	/* its slot was taken away: judged */
	bool is_unused; /* only connected so far */
	int process;
	long long taken_at;
	long generation;
};

struct counters {
	unsigned long success, failure, neutral, rejected, would_reject, stale, opened;
	unsigned long moves[3][3];
};

struct model {
	int state, mode;
	long generation;
	long long until, mode_until; /* 0: no end */
	long long healthy_since;
	long long wait; /* of the next opening */
	unsigned streak, good;
	struct verdict_at window[WINDOW];
	unsigned in_window;
	struct a_call call[CALLS];
	bool is_dead[PROCESSES];
	long long looked_at; /* holders, last */
	struct counters n;
	long long now;
};

static long long cap_of(const struct breaker_rules *r)
{
	return r->recovery_max_ms > r->recovery_ms ? r->recovery_max_ms : r->recovery_ms;
}

static bool reached(unsigned long long n, unsigned long long threshold)
{
	return wrong == WRONG_STRICT ? n > threshold : n >= threshold;
}

static void move_to(struct model *m, int state)
{
	m->generation++;
	m->n.moves[m->state][state] += state != m->state;
	m->n.opened += state == BREAKER_OPEN && m->state != BREAKER_OPEN;
	m->state = state;
	m->streak = m->good = 0;
	if (wrong != WRONG_WINDOW_STAYS)
		m->in_window = 0;
}

static void open_it(struct model *m)
{
	move_to(m, BREAKER_OPEN);
	m->until = m->now + m->wait;
}

static void set_mode(struct model *m, const struct breaker_rules *r, int mode, long long lasts)
{
	int old = m->mode;

	if (mode != BREAKER_AUTO)
		m->mode_until = lasts ? m->now + lasts : 0;
	m->mode = mode;
	if (mode == BREAKER_FORCED_OPEN || mode == BREAKER_FORCED_CLOSED) {
		move_to(m, mode == BREAKER_FORCED_OPEN ? BREAKER_OPEN : BREAKER_CLOSED);
		m->wait = r->recovery_ms;
		m->until = m->healthy_since = m->now;
	} else if (old == BREAKER_FORCED_OPEN) {
		move_to(m, BREAKER_OPEN);
		m->until = m->now;
	} else if (old == BREAKER_FORCED_CLOSED) {
		move_to(m, BREAKER_CLOSED);
		m->healthy_since = m->now;
	}
}

/* B14: each recovery_max of health halves the wait back. */
static void recover(struct model *m, const struct breaker_rules *r)
{
	while (m->wait > r->recovery_ms && m->now - m->healthy_since >= cap_of(r)) {
		m->wait = m->wait / 2 > r->recovery_ms ? m->wait / 2 : r->recovery_ms;
		m->healthy_since += cap_of(r);
	}
}

static unsigned held(const struct model *m)
{
	unsigned n = 0;

	for (int i = 0; i < CALLS; i++)
		n += m->call[i].is_live && m->call[i].is_probe && !m->call[i].has_lost;
	return n;
}

/* The calls of the window, as it is at this moment: at least and at most, since a call may leave it up to 1/32 early.
 */
static struct window_sum in_window(const struct model *m, const struct breaker_rules *r, bool at_most)
{
	struct window_sum sum = {0, 0, 0};
	long long length = r->window & ~WINDOW_IS_TIME;
	unsigned from = 0;

	if (!(r->window & WINDOW_IS_TIME)) {
		unsigned n = r->window ? r->window : WINDOW_SHOWN;
		from = m->in_window > n ? m->in_window - n : 0;
	}
	for (unsigned i = from; i < m->in_window; i++) {
		const struct verdict_at *v = &m->window[i];
		if ((r->window & WINDOW_IS_TIME) &&
			m->now - v->at >= (at_most ? length + slack_ms : length - length / 32 - slack_ms))
			continue;
		sum.calls++;
		sum.failed += v->failed;
		sum.slow += v->slow;
	}
	return sum;
}

static bool is_rate(const struct window_sum *s, const struct breaker_rules *r)
{
	unsigned minimum = r->minimum_calls;

	if (!r->window)
		return false;
	if (!(r->window & WINDOW_IS_TIME) && minimum > r->window)
		minimum = r->window;
	return s->calls >= minimum &&
	       ((s->failed && s->failed * 100 >= s->calls * r->failure_rate_percent) ||
		       (r->slow_call_ms && s->slow && s->slow * 100 >= s->calls * r->slow_rate_percent));
}

/* A probe's time is up: told in ticks of 64 ms, so within two of them either is right, and `freed` says which it was.
 */
static bool is_expired(const struct a_call *c, const struct model *m, const struct breaker_rules *r, bool gone)
{
	long long age = m->now - c->taken_at;

	return age >= r->probe_timeout_ms + 128 || (age >= r->probe_timeout_ms - slack_ms && gone);
}

static void probe_failed(struct model *m, const struct breaker_rules *r)
{
	if (wrong != WRONG_NO_BACKOFF)
		m->wait =
			m->wait * r->backoff_percent / 100 < cap_of(r) ? m->wait * r->backoff_percent / 100 : cap_of(r);
	open_it(m);
}

/* Full: do the holders live, and in time? Whether anything was freed. */
static bool collect(struct model *m, const struct breaker_rules *r, const bool gone[CALLS])
{
	bool any = false;

	if (m->looked_at && m->now - m->looked_at < 100)
		return false;
	m->looked_at = m->now;
	for (int i = 0; i < CALLS; i++) {
		struct a_call *c = &m->call[i];
		if (!c->is_live || !c->is_probe || c->has_lost)
			continue;
		if (m->is_dead[c->process]) {
			if (wrong == WRONG_DEAD_HOLD)
				continue;
			c->has_lost = true;
			any = true;
		} else if (is_expired(c, m, r, gone[i])) {
			c->has_lost = true;
			any = true;
			if (c->is_unused) {
				m->n.neutral++;
			} else {
				m->n.failure++;
				if (c->generation == m->generation)
					probe_failed(m, r);
			}
		}
	}
	return any;
}

static void begin(struct model *m, int process, bool is_probe)
{
	for (int i = 0; i < CALLS; i++)
		if (!m->call[i].is_live) {
			m->call[i] = (struct a_call){.is_live = true,
				.is_probe = is_probe,
				.process = process,
				.taken_at = m->now,
				.generation = m->generation};
			return;
		}
}

/* gone: whose slot did the circuit give back while it looked? Only asked where both are right. */
static int model_admit(struct model *m, const struct breaker_rules *r, int process, const bool gone[CALLS])
{
	if (m->mode != BREAKER_AUTO && m->mode_until && m->now >= m->mode_until)
		set_mode(m, r, BREAKER_AUTO, 0);
	if (wrong == WRONG_FORCED_ENDS && m->mode == BREAKER_FORCED_OPEN && m->now >= m->until + r->recovery_ms)
		set_mode(m, r, BREAKER_AUTO, 0);
	if (m->mode == BREAKER_FORCED_OPEN) {
		m->n.rejected++;
		return BREAKER_REJECT;
	}
	bool is_observed = r->is_observed || m->mode == BREAKER_OBSERVE;
	if (m->mode == BREAKER_FORCED_CLOSED || m->state == BREAKER_CLOSED) {
		begin(m, process, false);
		return BREAKER_ADMIT;
	}
	unsigned most = r->half_open_max_calls + (wrong == WRONG_ONE_PROBE_MORE ? 1u : 0u);
	bool is_due = m->state == BREAKER_HALF_OPEN || m->now >= m->until;
	if (is_due && held(m) >= most && collect(m, r, gone))
		is_due = m->state == BREAKER_HALF_OPEN || m->now >= m->until;
	if (is_due && held(m) < most) {
		if (m->state == BREAKER_OPEN)
			move_to(m, BREAKER_HALF_OPEN);
		begin(m, process, true);
		return BREAKER_PROBE;
	}
	if (is_observed) {
		m->n.would_reject++;
		begin(m, process, false);
		return BREAKER_ADMIT;
	}
	m->n.rejected++;
	return BREAKER_REJECT;
}

/* opened: what the circuit did, where a window's edge leaves both right. */
static void model_settle(struct model *m, const struct breaker_rules *r, struct a_call *c, int outcome, bool counts,
	bool is_slow, bool opened)
{
	c->is_live = false;
	if (c->is_probe && c->has_lost) {
		m->n.stale++;
		return;
	}
	m->n.success += outcome == BREAKER_SUCCESS;
	m->n.failure += outcome == BREAKER_FAILURE;
	m->n.neutral += outcome == BREAKER_NEUTRAL;
	if (outcome == BREAKER_FAILURE && !counts)
		outcome = BREAKER_NEUTRAL;
	bool is_forced = m->mode == BREAKER_FORCED_OPEN || m->mode == BREAKER_FORCED_CLOSED;
	bool is_late = c->generation != m->generation ||
		       (!is_forced && m->state != BREAKER_CLOSED && !(m->state == BREAKER_HALF_OPEN && c->is_probe));
	if (is_late && wrong != WRONG_STALE_COUNTS) {
		m->n.stale++;
		return;
	}
	if (is_late) {
		m->n.stale++;
		if (m->state != BREAKER_CLOSED)
			return;
	}
	if (outcome != BREAKER_NEUTRAL && m->in_window < WINDOW)
		m->window[m->in_window++] = (struct verdict_at){m->now, outcome == BREAKER_FAILURE, is_slow};
	if (is_forced) {
		/* Nothing moves it (B15); a forced open one has no window to be seen. */
		return;
	}
	if (m->state == BREAKER_HALF_OPEN) {
		if (outcome == BREAKER_SUCCESS && reached(++m->good, r->success_threshold)) {
			move_to(m, BREAKER_CLOSED);
			m->healthy_since = m->now;
		} else if (outcome == BREAKER_FAILURE) {
			probe_failed(m, r);
		}
		return;
	}
	recover(m, r);
	if (outcome == BREAKER_SUCCESS || (outcome == BREAKER_NEUTRAL && wrong == WRONG_NEUTRAL_ENDS_STREAK))
		m->streak = 0;
	m->streak += outcome == BREAKER_FAILURE;
	if (outcome == BREAKER_FAILURE && r->failure_threshold && reached(m->streak, r->failure_threshold)) {
		open_it(m);
		return;
	}
	struct window_sum least = in_window(m, r, false), most = in_window(m, r, true);
	if (outcome == BREAKER_NEUTRAL)
		return;
	/* Between the two any part of the older calls may be gone already. */
	bool may_be_either = least.calls != most.calls;
	if (may_be_either ? opened : is_rate(&most, r))
		open_it(m);
}

/* ---- histories ---- */

struct op {
	enum { OP_ADMIT, OP_SETTLE, OP_WAIT, OP_DIE, OP_FORCE, OP_RESET, OP_USE, OP_KINDS } kind;
	int a, b;
	long long ms;
};

/* The n-th call, counted round, that a living process has under way; -1: there is none. */
static int nth_live(const struct model *m, int n)
{
	int live = 0, at = -1;

	for (int i = 0; i < CALLS; i++)
		live += m->call[i].is_live && !m->is_dead[m->call[i].process];
	if (live == 0)
		return -1;
	n %= live;
	for (int i = 0; i < CALLS && n >= 0; i++)
		if (m->call[i].is_live && !m->is_dead[m->call[i].process] && n-- == 0)
			at = i;
	return at;
}

static void op_text(char *to, size_t n, const struct op *op)
{
	static const char *const modes[] = {"auto", "open", "closed", "observe"};
	static const char *const outcomes[] = {"success", "failure", "neutral"};
	char what[100];

	switch (op->kind) {
	case OP_ADMIT: snprintf(what, sizeof what, "process %d connects", op->a % PROCESSES); break;
	case OP_SETTLE:
		snprintf(what, sizeof what, "call %d ends: %s%s%s", op->a % CALLS, outcomes[op->b % 3],
			op->b / 3 % 4 ? "" : " (not in trip_on)", op->b / 12 % 3 ? "" : ", slow");
		break;
	case OP_USE:
		snprintf(what, sizeof what, "call %d %s", op->a % CALLS, op->b & 1 ? "only connects" : "sends");
		break;
	case OP_DIE: snprintf(what, sizeof what, "process %d is killed", op->a % PROCESSES); break;
	case OP_FORCE:
		snprintf(what, sizeof what, "force %s for %d ms", modes[op->a % 4], op->b % 3 ? op->b % 7 * 700 : 0);
		break;
	case OP_RESET: snprintf(what, sizeof what, "reset"); break;
	default: snprintf(what, sizeof what, "nothing"); break;
	}
	snprintf(to, n, "+%lld ms  %s", op->ms, what);
}

static uint64_t seed;

static uint64_t below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed * 0x2545f4914f6cdd1dull >> 11) % n;
}

static struct breaker_rules random_rules(void)
{
	struct breaker_rules r = {
		.failure_threshold = (uint32_t)below(5),
		.success_threshold = (uint32_t)(1 + below(3)),
		.half_open_max_calls = (uint16_t)(1 + below(3)),
		.recovery_ms = (uint32_t)(1 + below(4)) * 100,
		.backoff_percent = below(3) ? 200 : 100,
		.probe_timeout_ms = (uint32_t)(1 + below(5)) * 400,
		.is_observed = below(6) == 0,
		.failure_rate_percent = (uint8_t)(1 + below(100)),
		.slow_rate_percent = (uint8_t)(1 + below(100)),
		.minimum_calls = (uint32_t)(1 + below(8)),
		.slow_call_ms = below(2) ? 500 : 0,
	};

	r.recovery_max_ms = r.recovery_ms << below(6); /* halving goes back along the same ladder */
	r.window = (uint32_t)(below(3) == 0 ? 0 : below(2) ? 1 + below(12) : WINDOW_IS_TIME | (1000 + below(5000)));
	return r;
}

static struct op random_op(const struct breaker_rules *r)
{
	static const int kinds[] = {OP_ADMIT, OP_ADMIT, OP_ADMIT, OP_ADMIT, OP_ADMIT, OP_ADMIT, OP_SETTLE, OP_SETTLE,
		OP_SETTLE, OP_SETTLE, OP_SETTLE, OP_SETTLE, OP_WAIT, OP_USE, OP_DIE, OP_FORCE};
	int kind = kinds[below(16)];

	if ((kind == OP_FORCE || kind == OP_DIE) && below(4))
		kind = OP_ADMIT;
	if (kind == OP_FORCE && below(4) == 0)
		kind = OP_RESET;
	long long ms = 0;
	switch (below(8)) {
	case 0: ms = (long long)below(50); break;
	case 1: ms = r->recovery_ms; break;
	case 2: ms = (long long)below(r->recovery_ms * 2); break;
	case 3: ms = below(4) ? 0 : cap_of(r) + (long long)below(1000); break;
	case 4: ms = below(4) ? 0 : r->probe_timeout_ms + (long long)below(300); break;
	case 5: ms = below(64) ? 0 : (long long)below(60000000); break; /* 17 hours: leases tell 18 */
	default: break;
	}
	return (struct op){.kind = kind,
		.a = (int)below(1000),
		.b = (int)(below(10) < 5 ? 1 + 3 + 36 * below(10) : below(1000)),
		.ms = ms};
}

static struct {
	struct breaker_rules rules;
	struct op ops[STEPS];
	int n;
} history;

static void make_history(uint64_t from)
{
	seed = from * 0x9e3779b97f4a7c15ull | 1;
	below(1);
	history.rules = random_rules();
	history.n = 1 + (int)below(STEPS);
	for (int i = 0; i < history.n; i++)
		history.ops[i] = random_op(&history.rules);
}

#endif
