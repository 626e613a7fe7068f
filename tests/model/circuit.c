/* The circuit against the plain model of it (model.h).
 *   circuit reachable            every state the model can reach under small rules, every event, every time step
 *   circuit histories N [SEED]   N random histories; a failing one is shrunk to its shortest form and printed
 *   circuit broken               the model with a rule turned wrong, one after another: each must be found out
 * Without arguments (make check): all of it, for a few seconds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/tap.h"
#include "base/clock.h"
#include "core/circuit.h"
#include "core/events.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/registry.h"
#include "model.h"

/* ---- the circuit ---- */

static struct region region; /* the last process's hold; each has its own record */
static struct region hold[PROCESSES];
static uint64_t start_ticks;

struct both {
	struct model m;
	struct circuit_token token[CALLS];
	struct destination d;
	uint64_t seq; /* of the last event seen */
	unsigned long events[3][3];
};

static struct both b; /* the one under test; its destination is region.destinations[0] */
static char complaint[400];

static bool differs(const char *what, long long is, long long should)
{
	if (is == should)
		return false;
	snprintf(complaint, sizeof complaint, "%s is %lld, not %lld", what, is, should);
	return true;
}

static void join(int process)
{
	hold[process] = region;
	member_join(&hold[process], getpid(), start_ticks, "model", 1);
}

static void make_region(void)
{
	start_ticks = identity_start_ticks(getpid(), NULL);
	if (region_attach_private(&region, "model", 1) != 0 || registry_find_or_add(&region, "model:1", "", 1) != 0)
		abort();
	b.d = region.destinations[0];
	for (int i = 0; i < PROCESSES; i++)
		join(i);
}

/* As it was made, at START_MS. Events go on. */
static void begin_anew(const struct breaker_rules *r)
{
	static struct destination as_made;
	static bool is_kept;

	if (!is_kept) {
		make_region();
		as_made = region.destinations[0];
		is_kept = true;
	}
	memcpy(&region.destinations[0], &as_made, sizeof as_made);
	for (int i = 0; i < PROCESSES; i++)
		if (region.members[hold[i].me].id != hold[i].my_id)
			join(i);
	for (int i = 0; i < PROCESSES; i++)
		for (int k = 0; k < MEMBER_USES; k++)
			if (hold[i].me >= 0)
				region.members[hold[i].me].use[k] = 0;
	memset(&b, 0, sizeof b);
	b.m.now = b.m.healthy_since = START_MS;
	b.m.wait = r->recovery_ms;
	b.seq = region.header->event_seq;
}

/* Every event that has come: a transition each, as the model has made them. */
static bool events_differ(void)
{
	uint64_t newest = region.header->event_seq;
	struct event e;

	while (b.seq < newest) {
		if (!events_read(&region, ++b.seq, &e)) {
			snprintf(complaint, sizeof complaint, "an event cannot be read");
			return true;
		}
		if (e.type == EVENT_TRANSITION)
			b.events[e.from][e.to]++;
	}
	for (int i = 0; i < 9; i++)
		if (differs("events of one transition", (long long)b.events[i / 3][i % 3],
			    (long long)b.m.n.moves[i / 3][i % 3]))
			return true;
	return false;
}

static bool states_differ(const struct breaker_rules *r)
{
	struct destination *d = &region.destinations[0];
	const struct model *m = &b.m;
	uint64_t word = d->breaker;
	bool is_waiting = m->state == BREAKER_OPEN && m->mode != BREAKER_FORCED_OPEN && m->now < m->until;

	if (differs("the state", breaker_state(word), m->state) || differs("the mode", breaker_mode(word), m->mode) ||
		differs("the generation", breaker_generation(word), m->generation & 65535) ||
		differs("the count", breaker_count(word),
			m->state == BREAKER_CLOSED	? (long long)m->streak
			: m->state == BREAKER_HALF_OPEN ? (long long)m->good
							: 0) ||
		differs("retry_after", breaker_retry_after_ms(word, r, m->now), is_waiting ? m->until - m->now : 0) ||
		differs("probes in flight", lease_in_flight(&region, 0), held(m)))
		return true;
	if (differs("success", (long long)d->success, (long long)m->n.success) ||
		differs("failure", (long long)d->failure, (long long)m->n.failure) ||
		differs("neutral", (long long)d->neutral, (long long)m->n.neutral) ||
		differs("rejected", (long long)region_rejected(d), (long long)m->n.rejected) ||
		differs("would_reject", (long long)d->would_reject, (long long)m->n.would_reject) ||
		differs("stale", (long long)d->stale, (long long)m->n.stale))
		return true;
	if (m->state == BREAKER_CLOSED) {
		struct window_sum is = window_sum(&d->window, r->window, breaker_generation(word), m->now);
		struct window_sum least = in_window(m, r, false), most = in_window(m, r, true);
		if (is.calls < least.calls || is.calls > most.calls || is.failed < least.failed ||
			is.failed > most.failed || is.slow < least.slow || is.slow > most.slow) {
			snprintf(complaint, sizeof complaint, "the window holds %u/%u/%u, not %u/%u/%u to %u/%u/%u",
				is.calls, is.failed, is.slow, least.calls, least.failed, least.slow, most.calls,
				most.failed, most.slow);
			return true;
		}
	}
	return events_differ();
}

/* One step on both sides: false when they part. */
static bool step(const struct breaker_rules *r, const struct op *op)
{
	struct model *m = &b.m;
	struct destination *d = &region.destinations[0];
	int64_t now_ns;
	int at;

	m->now += op->ms;
	now_ns = m->now * NS_PER_MS;
	switch (op->kind) {
	case OP_ADMIT: {
		struct circuit_token token;
		int process = op->a % PROCESSES, room = 0;
		for (int i = 0; i < CALLS; i++)
			room += !m->call[i].is_live;
		if (room == 0)
			return true;
		if (m->is_dead[process]) {
			/* Another process in its place; what the dead one holds is told by its record. */
			for (int i = 0; i < CALLS; i++)
				if (m->call[i].is_live && m->call[i].process == process && m->call[i].is_probe &&
					!m->call[i].has_lost)
					return true; /* one at a time: until that is collected */
			for (int i = 0; i < CALLS; i++)
				if (m->call[i].process == process)
					m->call[i].is_live = false;
			m->is_dead[process] = false;
			join(process);
		}
		int decision = circuit_admit(&hold[process], 0, r, now_ns, &token);
		bool gone[CALLS];
		for (int i = 0; i < CALLS; i++)
			gone[i] = m->call[i].is_live && m->call[i].is_probe && !m->call[i].has_lost &&
				  ((d->lease[b.token[i].lease] ^ b.token[i].lease_word) & ~0xfeull) != 0;
		int free_at = 0;
		while (m->call[free_at].is_live)
			free_at++;
		if (differs("the decision", decision, model_admit(m, r, process, gone)))
			return false;
		if (decision != BREAKER_REJECT)
			b.token[free_at] = token;
		break;
	}
	case OP_SETTLE: {
		at = nth_live(m, op->a);
		if (at < 0)
			return true;
		int outcome = op->b % 3;
		bool counts = op->b / 3 % 4 != 0, is_slow = op->b / 12 % 3 == 0;
		uint64_t opened = d->opened_total;
		circuit_settle(&hold[m->call[at].process], &b.token[at], r, (enum breaker_outcome)outcome,
			FAILURE_RESET, counts, now_ns, is_slow ? 1000 * NS_PER_MS : 1);
		model_settle(
			m, r, &m->call[at], outcome, counts, is_slow && r->slow_call_ms, d->opened_total != opened);
		break;
	}
	case OP_USE:
		at = nth_live(m, op->a);
		if (at < 0 || !m->call[at].is_probe)
			return true;
		m->call[at].is_unused = op->b & 1;
		if (!m->call[at].has_lost)
			circuit_note(&hold[m->call[at].process], &b.token[at], op->b & 1 ? LEASE_UNUSED : LEASE_BUSY);
		break;
	case OP_DIE: {
		int process = op->a % PROCESSES;
		if (m->is_dead[process])
			return true;
		/* What reaping leaves: its record free, its calls neutral (A5). */
		for (int i = 0; i < CALLS; i++)
			m->n.neutral += m->call[i].is_live && m->call[i].process == process;
		member_reap(&region, (uint32_t)hold[process].me, hold[process].my_id);
		m->is_dead[process] = true;
		for (int i = 0; i < CALLS; i++)
			if (m->call[i].process == process && (!m->call[i].is_probe || m->call[i].has_lost))
				m->call[i].is_live = false;
		break;
	}
	case OP_FORCE: {
		long long lasts = op->b % 3 ? op->b % 7 * 700 : 0;
		circuit_force(&region, 0, (enum breaker_mode)(op->a % 4), (uint64_t)lasts, now_ns);
		set_mode(m, r, op->a % 4, lasts);
		break;
	}
	case OP_RESET:
		circuit_reset(&region, 0, now_ns);
		move_to(m, m->mode == BREAKER_FORCED_OPEN ? BREAKER_OPEN : BREAKER_CLOSED);
		m->wait = r->recovery_ms;
		m->until = m->healthy_since = m->now;
		break;
	default: break;
	}
	return !states_differ(r);
}

/* The number of the step at which they part, or -1. */
static int run(const struct breaker_rules *r, const struct op *ops, int n)
{
	begin_anew(r);
	for (int i = 0; i < n; i++)
		if (!step(r, &ops[i]))
			return i;
	return -1;
}

/* Leaves out what can be left out, then shortens waits, as long as they still part. */
static void shrink(void)
{
	struct op kept[STEPS];
	int parted = run(&history.rules, history.ops, history.n);

	history.n = parted + 1;
	for (bool goes_on = true; goes_on;) {
		goes_on = false;
		for (int size = history.n / 2 > 0 ? history.n / 2 : 1; size > 0; size /= 2)
			for (int at = 0; at + size <= history.n;) {
				memcpy(kept, history.ops, sizeof kept);
				int n = history.n;
				long long waited = 0;
				for (int i = at; i < at + size; i++)
					waited += history.ops[i].ms;
				memmove(&history.ops[at], &history.ops[at + size],
					(size_t)(n - at - size) * sizeof kept[0]);
				history.n = n - size;
				parted = history.n ? run(&history.rules, history.ops, history.n) : -1;
				if (parted < 0 && waited && at < history.n) { /* perhaps only the time was needed */
					history.ops[at].ms += waited;
					parted = run(&history.rules, history.ops, history.n);
				}
				if (parted >= 0) {
					history.n = parted + 1;
					goes_on = true;
				} else {
					memcpy(history.ops, kept, sizeof kept);
					history.n = n;
					at++;
				}
			}
		for (int i = 0; i < history.n; i++)
			for (long long less = history.ops[i].ms; less > 0; less /= 2) {
				if (less > history.ops[i].ms)
					continue;
				history.ops[i].ms -= less;
				parted = run(&history.rules, history.ops, history.n);
				if (parted < 0)
					history.ops[i].ms += less;
				else
					goes_on = true;
				if (parted >= 0)
					history.n = parted + 1;
			}
	}
	run(&history.rules, history.ops, history.n);
}

static void print_history(void)
{
	const struct breaker_rules *r = &history.rules;
	char text[160];

	printf("# rules: failure_threshold %u, success_threshold %u, half_open_max_calls %u, recovery %u to %u ms, "
	       "backoff %u%%, "
	       "probe_timeout %u ms%s, window %u%s, %u%% failed, %u%% slow%s, minimum %u\n",
		r->failure_threshold, r->success_threshold, r->half_open_max_calls, r->recovery_ms, r->recovery_max_ms,
		r->backoff_percent, r->probe_timeout_ms, r->is_observed ? ", observed" : "",
		r->window & ~WINDOW_IS_TIME, r->window & WINDOW_IS_TIME ? " ms" : " calls", r->failure_rate_percent,
		r->slow_rate_percent, r->slow_call_ms ? "" : " (off)", r->minimum_calls);
	for (int i = 0; i < history.n; i++) {
		op_text(text, sizeof text, &history.ops[i]);
		printf("#   %s\n", text);
	}
	printf("# then %s\n", complaint);
}

/* True: none parts. Else the first that does is in `history`, shrunk. */
static bool histories(uint64_t n, uint64_t first)
{
	for (uint64_t i = 0; i < n; i++) {
		make_history(first + i);
		if (run(&history.rules, history.ops, history.n) < 0)
			continue;
		shrink();
		return false;
	}
	return true;
}

/* ---- every reachable state ---- */

/* What tells two states of the model apart, times as far as they matter from now on. */
struct essence {
	int8_t state, mode, streak, good, in_window, looked;
	int16_t until, mode_until, wait, healthy;
	int16_t window[8];
	int16_t call[4];
};

static int16_t ahead(long long at, long long now, long long most)
{
	long long left = at - now;

	return (int16_t)(left < 0 ? -1 : left > most ? most : left);
}

static struct essence essence_of(const struct model *m, const struct breaker_rules *r)
{
	struct essence e;
	int n = 0;

	memset(&e, 0, sizeof e);
	e.state = (int8_t)m->state;
	e.mode = (int8_t)m->mode;
	e.streak = (int8_t)(r->failure_threshold == 0 && m->streak > 3 ? 3 : m->streak);
	e.good = (int8_t)m->good;
	e.looked = m->looked_at && m->now - m->looked_at < 100;
	e.until = m->state == BREAKER_OPEN ? ahead(m->until, m->now, 30000) : 0;
	e.mode_until = m->mode != BREAKER_AUTO && m->mode_until ? ahead(m->mode_until, m->now, 30000) : 0;
	e.wait = (int16_t)m->wait;
	if (m->state == BREAKER_CLOSED && m->wait > r->recovery_ms)
		e.healthy = ahead(m->now, m->healthy_since, 2 * cap_of(r));
	unsigned rate = m->state == BREAKER_CLOSED ? r->window : 0; /* here always a few calls */
	for (unsigned i = m->in_window > rate ? m->in_window - rate : 0; i < m->in_window; i++)
		e.window[e.in_window++] = (int16_t)(m->window[i].failed | m->window[i].slow << 1);
	for (int i = 0; i < CALLS && n < 4; i++) {
		const struct a_call *c = &m->call[i];
		if (c->is_live)
			e.call[n++] = (int16_t)(1 | c->is_probe << 1 | c->has_lost << 2 | c->is_unused << 3 |
						(c->generation == m->generation) << 4 | m->is_dead[c->process] << 5 |
						(c->is_probe ? ahead(m->now, c->taken_at, 1500) / 500 << 6 : 0));
	}
	return e;
}

#define STATES_MAX 20000
static struct found {
	struct essence e;
	struct both at;
	struct destination d;
	struct region hold[PROCESSES];
} * found;
static uint32_t found_count, *found_index; /* + 1, by hash */
#define INDEX (1u << 18)

static bool note_state(const struct breaker_rules *r)
{
	struct essence e = essence_of(&b.m, r);
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < sizeof e; i++)
		h = (h ^ ((const uint8_t *)&e)[i]) * 0x100000001b3ull;
	uint32_t at = (uint32_t)(h >> 20) % INDEX;
	for (; found_index[at]; at = (at + 1) % INDEX)
		if (memcmp(&found[found_index[at] - 1].e, &e, sizeof e) == 0)
			return true;
	if (found_count == STATES_MAX)
		return false;
	struct found *f = &found[found_count++];
	found_index[at] = found_count;
	f->e = e;
	f->at = b;
	memcpy(&f->d, &region.destinations[0], sizeof f->d);
	memcpy(f->hold, hold, sizeof hold);
	return true;
}

/* The members' records are made anew for a state: a holder lives while its record carries its claim. */
static void back_to(const struct found *f)
{
	b = f->at;
	memcpy(&region.destinations[0], &f->d, sizeof f->d);
	memcpy(hold, f->hold, sizeof hold);
	for (uint32_t i = 0; i < REGION_MEMBERS; i++)
		region.members[i].id = 0;
	for (int i = 0; i < PROCESSES; i++)
		if (!b.m.is_dead[i] && hold[i].me >= 0) {
			region.members[hold[i].me].id = hold[i].my_id;
			for (int k = 0; k < MEMBER_USES; k++)
				region.members[hold[i].me].use[k] = 0;
			uint32_t in_flight = 0;
			for (int c = 0; c < CALLS; c++)
				in_flight += b.m.call[c].is_live && b.m.call[c].process == i;
			if (in_flight)
				region.members[hold[i].me].use[0] = 1u << 16 | in_flight;
		}
	b.seq = region.header->event_seq;
}

static void reachable(const struct breaker_rules *r, const char *name)
{
	static const long long waits[] = {0, 500};
	uint64_t compared = 0;
	bool is_whole = true;

	if (!found) {
		found = calloc(STATES_MAX, sizeof *found);
		found_index = calloc(INDEX, sizeof *found_index);
	}
	memset(found_index, 0, INDEX * sizeof *found_index);
	found_count = 0;
	begin_anew(r);
	note_state(r);
	for (uint32_t i = 0; i < found_count; i++) {
		for (int w = 0; w < 2; w++)
			for (int k = 0; k < 16; k++) {
				struct op op = {.ms = waits[w]};
				int live = 0;
				for (int c = 0; c < CALLS; c++)
					live += found[i].at.m.call[c].is_live;
				if (k < 2)
					op.kind = OP_ADMIT, op.a = k;
				else if (k < 8)
					op.kind = OP_SETTLE, op.a = (k - 2) / 3, op.b = (k - 2) % 3 + 3 + 12;
				else if (k < 12)
					op.kind = OP_FORCE, op.a = k - 8, op.b = k == 9;
				else
					op.kind = k == 12   ? OP_RESET
						  : k == 13 ? OP_DIE
						  : k == 14 ? OP_USE
							    : OP_WAIT,
					op.b = 1;
				if ((op.kind == OP_ADMIT && live >= 2))
					continue;
				back_to(&found[i]);
				compared++;
				if (!step(r, &op)) {
					char text[160];
					op_text(text, sizeof text, &op);
					tap_expect(false, "%s: state %d mode %d, %s: %s", name, found[i].e.state,
						found[i].e.mode, text, complaint);
					if (found_count > 40)
						goto out;
					continue;
				}
				is_whole &= note_state(r);
			}
	}
out:
	printf("# %s: %u states, %llu steps%s\n", name, found_count, (unsigned long long)compared,
		is_whole ? "" : " (of more states)");
	tap_expect(found_count > 100, "%s: only %u states", name, found_count);
}

static void all_reachable(void)
{
	static const struct breaker_rules rules[] = {
		{.failure_threshold = 2,
			.success_threshold = 1,
			.half_open_max_calls = 1,
			.recovery_ms = 500,
			.recovery_max_ms = 1000,
			.backoff_percent = 200,
			.probe_timeout_ms = 1000},
		{.failure_threshold = 1,
			.success_threshold = 2,
			.half_open_max_calls = 2,
			.recovery_ms = 150,
			.recovery_max_ms = 150,
			.backoff_percent = 100,
			.probe_timeout_ms = 500,
			.is_observed = true},
		{.failure_threshold = 0,
			.success_threshold = 1,
			.half_open_max_calls = 1,
			.recovery_ms = 500,
			.recovery_max_ms = 500,
			.backoff_percent = 200,
			.probe_timeout_ms = 500,
			.window = 3,
			.failure_rate_percent = 60,
			.slow_rate_percent = 100,
			.minimum_calls = 2},
	};

	reachable(&rules[0], "one probe");
	reachable(&rules[1], "two probes, observed");
	reachable(&rules[2], "by rate");
	tap_all("every reachable state, every event, every time step: as the model (B1-B16)");
}

static void all_broken(void)
{
	for (int w = 1; w < WRONG_COUNT; w++) {
		wrong = (enum wrong)w;
		bool found_out = !histories(20000, 1);
		if (found_out)
			print_history();
		tap_ok(found_out && history.n <= 12, "a model in which %s is found out, in %d steps", wrongs[w],
			history.n);
	}
	wrong = RIGHT;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 0) : 100000, first = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;

	if (argc < 3 && getenv("FUZZ_RUNS")) /* scripts/sanitize: a part of them will do */
		n = strtoull(getenv("FUZZ_RUNS"), NULL, 0) * 10;
	circuit_set_seed(1);
	if (!*what || strcmp(what, "reachable") == 0)
		all_reachable();
	if (!*what || strcmp(what, "histories") == 0) {
		bool is_right = histories(n, first);
		if (!is_right)
			print_history();
		tap_ok(is_right, "%llu random histories, as the model (B2-B16)", (unsigned long long)n);
	}
	if (!*what || strcmp(what, "broken") == 0)
		all_broken();
	return tap_done();
}
