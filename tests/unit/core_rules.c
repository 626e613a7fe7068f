/* The rules of a circuit that need more than its word, as stories with a clock of the test's own: rates over windows
 * (B8-B10), the registry's evictions (B17), a service that moved (B21), a probe that only connects (B7), the event of a
 * transition whose maker was killed (B4). Cases CB6, CB12, CB14. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/circuit.h"
#include "core/events.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/registry.h"
#include "tap.h"

#define MS NS_PER_MS
#define START (1000 * NS_PER_S)

static struct region region;
static int64_t now = START;

static void fresh_region(uint32_t capacity)
{
	region_close(&region);
	if (region_attach_private(&region, "app", capacity) != 0)
		abort();
	member_join(&region, getpid(), identity_start_ticks(getpid(), NULL), "test", now);
}

static struct breaker_rules rates(uint32_t window, uint32_t minimum)
{
	return (struct breaker_rules){.success_threshold = 1,
		.half_open_max_calls = 1,
		.recovery_ms = 1000,
		.recovery_max_ms = 30000,
		.backoff_percent = 200,
		.probe_timeout_ms = 30000,
		.window = window,
		.failure_rate_percent = 50,
		.slow_rate_percent = 100,
		.minimum_calls = minimum};
}

static enum breaker_decision calls(
	uint32_t at, const struct breaker_rules *r, int n, enum breaker_outcome outcome, int64_t lasts_ns)
{
	enum breaker_decision d = BREAKER_ADMIT;
	struct circuit_token token;

	for (int i = 0; i < n; i++) {
		d = circuit_admit(&region, at, r, now, &token);
		circuit_settle(&region, &token, r, outcome, FAILURE_RESET, true, now, lasts_ns);
	}
	return d;
}

static const struct circuit_view *look(uint32_t at)
{
	static struct circuit_view v;

	circuit_view(&region, at, now, &v);
	return &v;
}

static enum breaker_state state(uint32_t at)
{
	return look(at)->state;
}

static uint32_t place(const char *name)
{
	return (uint32_t)registry_find_or_add(&region, name, "", now);
}

/* ---- rates ---- */

static void by_calls(void)
{
	fresh_region(8);
	struct breaker_rules r = rates(10, 4);
	uint32_t at = place("calls:1");

	calls(at, &r, 3, BREAKER_FAILURE, 0);
	tap_ok(state(at) == BREAKER_CLOSED, "three failures of three, below minimum_calls: closed");
	tap_ok(look(at)->consecutive_failures == 3, "failure_threshold 0: the streak alone opens nothing (B10)");
	calls(at, &r, 1, BREAKER_SUCCESS, 0);
	tap_ok(state(at) == BREAKER_OPEN && strcmp(look(at)->last_reason, "75.00% failed (3 of 4 calls)") == 0,
		"the fourth call, a success, makes it a rate: %s", look(at)->last_reason);
	tap_ok(look(at)->recent.calls == 0, "the window restarts with the transition (B9)");
	now += 1000 * MS;
	calls(at, &r, 1, BREAKER_SUCCESS, 0);
	tap_ok(state(at) == BREAKER_CLOSED && look(at)->recent.calls == 0, "and with the next");
	calls(at, &r, 5, BREAKER_SUCCESS, 0);
	calls(at, &r, 4, BREAKER_FAILURE, 0);
	tap_ok(state(at) == BREAKER_CLOSED, "four of nine: closed");
	calls(at, &r, 1, BREAKER_NEUTRAL, 0);
	tap_ok(look(at)->recent.calls == 9, "a neutral verdict is in no denominator (B11)");
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	tap_ok(state(at) == BREAKER_OPEN, "five of ten: at the threshold, open (B10)");

	/* What is eleven calls old is out of it. */
	r.failure_rate_percent = 60;
	at = place("slides:1");
	calls(at, &r, 5, BREAKER_SUCCESS, 0);
	calls(at, &r, 5, BREAKER_FAILURE, 0);
	calls(at, &r, 5, BREAKER_SUCCESS, 0);
	tap_ok(look(at)->recent.calls == 10 && look(at)->recent.failed == 5, "the last ten calls: %u of %u",
		look(at)->recent.failed, look(at)->recent.calls);
	calls(at, &r, 5, BREAKER_FAILURE, 0);
	tap_ok(state(at) == BREAKER_CLOSED && look(at)->recent.failed == 5, "the failures before have left it");
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	tap_ok(state(at) == BREAKER_OPEN, "six of the last ten: open");
}

static void limits(void)
{
	static const uint32_t windows[] = {1, 2, 499, 500, WINDOW_IS_TIME | 1000, WINDOW_IS_TIME | 3600000};
	fresh_region(16);

	for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
		char name[16];
		struct breaker_rules r = rates(windows[w], 1);
		snprintf(name, sizeof name, "limit:%zu", w);
		uint32_t at = place(name);
		r.failure_rate_percent = 1;
		calls(at, &r, 1, BREAKER_SUCCESS, 0);
		tap_expect(state(at) == BREAKER_CLOSED, "%s: no failure is no rate", name);
		calls(at, &r, 1, BREAKER_FAILURE, 0);
		tap_expect(state(at) == BREAKER_OPEN, "%s: one of two is over 1 %%", name);
		now += 40000 * MS;
		calls(at, &r, 1, BREAKER_SUCCESS, 0);
		r.failure_rate_percent = 100;
		r.minimum_calls = 1000000;
		uint32_t n = windows[w] & WINDOW_IS_TIME ? 600 : windows[w];
		calls(at, &r, (int)n - 1, BREAKER_FAILURE, 0);
		tap_expect(state(at) == BREAKER_CLOSED, "%s: %u failures, not yet enough", name, n - 1);
		calls(at, &r, 1, BREAKER_FAILURE, 0);
		tap_expect((state(at) == BREAKER_OPEN) == !(windows[w] & WINDOW_IS_TIME),
			"%s: minimum_calls is never more than a window of calls holds", name);
	}
	tap_all("B10: windows of 1, 2, the largest number of calls and both times, rates of 1 %% and 100 %% (CB8)");
}

static void by_time(void)
{
	fresh_region(8);
	struct breaker_rules r = rates(WINDOW_IS_TIME | 60000, 20);
	uint32_t at = place("time:1");

	r.failure_rate_percent = 60;
	calls(at, &r, 19, BREAKER_FAILURE, 0);
	now += 61 * NS_PER_S;
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	tap_ok(state(at) == BREAKER_CLOSED && look(at)->recent.calls == 1,
		"an idle gap of 61 s empties a window of 60 s");
	fresh_region(8);
	at = place("time:2");
	calls(at, &r, 10, BREAKER_SUCCESS, 0);
	now += 30 * NS_PER_S;
	calls(at, &r, 10, BREAKER_FAILURE, 0);
	tap_ok(state(at) == BREAKER_CLOSED && look(at)->recent.calls == 20, "ten of twenty within the minute: closed");
	now += 31 * NS_PER_S;
	calls(at, &r, 1, BREAKER_SUCCESS, 0);
	tap_ok(look(at)->recent.calls == 11 && look(at)->recent.failed == 10, "the first ten have left it (%u of %u)",
		look(at)->recent.failed, look(at)->recent.calls);
	calls(at, &r, 9, BREAKER_FAILURE, 0);
	tap_ok(state(at) == BREAKER_OPEN, "nineteen of twenty: open");

	/* Calls at every moment: each is there for at least 31/32 of the window and never longer than it. */
	fresh_region(8);
	at = place("time:3");
	r.failure_rate_percent = 100;
	for (int i = 0; i < 4000; i++) {
		now += (1 + i % 7) * 37 * MS;
		calls(at, &r, 1, i % 2 ? BREAKER_SUCCESS : BREAKER_FAILURE, 0);
		int64_t at_least = 0, at_most = 0, when = now;
		for (int k = i; k >= 0 && now - when < 61 * NS_PER_S; when -= (1 + k % 7) * 37 * MS, k--) {
			at_most += now - when < 60 * NS_PER_S;
			at_least += now - when <= 60 * NS_PER_S / 32 * 31;
		}
		uint32_t n = look(at)->recent.calls;
		tap_expect(n >= at_least && n <= at_most, "call %d: %u calls, not %lld to %lld", i, n,
			(long long)at_least, (long long)at_most);
	}
	tap_all("a call counts for 31/32 to 32/32 of the time");

	/* However long the gap: turns of the ticks, too, that a window of 60 s is told by (256 parts are 480 s). */
	static const int64_t gaps[] = {60, 61, 479, 480, 481, 479 + 480 * 9, 480 * 10, 3600, 86400, 86400 * 365};
	for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++) {
		fresh_region(8);
		at = place("gap:1");
		calls(at, &r, 19, BREAKER_FAILURE, 0);
		now += gaps[i] * NS_PER_S;
		tap_expect(look(at)->recent.calls == 0, "after %lld s it is empty to look at", (long long)gaps[i]);
		calls(at, &r, 1, BREAKER_FAILURE, 0);
		tap_expect(state(at) == BREAKER_CLOSED && look(at)->recent.calls == 1, "after %lld s: %u calls",
			(long long)gaps[i], look(at)->recent.calls);
		now += 480 * NS_PER_S - gaps[i] % 480 * NS_PER_S;
	}
	tap_all("an idle gap empties a time window, however long (B9)");

	fresh_region(8);
	at = place("many:1");
	r.minimum_calls = 1000000;
	calls(at, &r, 30000, BREAKER_SUCCESS, 0);
	calls(at, &r, 30000, BREAKER_FAILURE, 0);
	const struct window_sum *sum = &look(at)->recent;
	tap_ok(sum->calls > 8000 && sum->calls <= 16383 && sum->failed > sum->calls / 2 && sum->failed < sum->calls,
		"more calls than a part can count: it stays a rate (%u of %u)", sum->failed, sum->calls);
}

static void hour_of_silence(void)
{
	fresh_region(8);
	struct breaker_rules r = rates(WINDOW_IS_TIME | 60000, 50);
	uint32_t at = place("silence:1");

	calls(at, &r, 40, BREAKER_FAILURE, 0);
	tap_expect(state(at) == BREAKER_CLOSED, "forty failures, fifty would count");
	now += 3600 * NS_PER_S;
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	tap_expect(state(at) == BREAKER_CLOSED && look(at)->recent.calls == 1 && look(at)->recent.failed == 1,
		"%u calls in the window", look(at)->recent.calls);
	tap_all("forty failures, an hour of silence, one failure: a window of one (CB14)");
}

static void drained(void)
{
	fresh_region(8);
	for (int i = 0; i < 2; i++) {
		struct breaker_rules r = rates(i ? WINDOW_IS_TIME | 2000 : 20, 20);
		uint32_t at = place(i ? "drained:2" : "drained:1");
		calls(at, &r, 20, BREAKER_FAILURE, 0);
		tap_expect(state(at) == BREAKER_OPEN, "opened by its rate");
		now += 60 * NS_PER_S; /* the window has drained meanwhile */
		tap_expect(calls(at, &r, 1, BREAKER_FAILURE, 0) == BREAKER_PROBE && state(at) == BREAKER_OPEN,
			"one failing probe, far below minimum_calls");
		tap_expect(look(at)->opened_total == 2, "opened %u times", (unsigned)look(at)->opened_total);
		now += 60 * NS_PER_S;
		calls(at, &r, 1, BREAKER_SUCCESS, 0);
		calls(at, &r, 19, BREAKER_FAILURE, 0);
		tap_expect(state(at) == BREAKER_CLOSED, "closed, it counts from nothing");
	}
	tap_all("a rate rule whose window has drained: one failing probe reopens (CB6 B8)");
}

static void slow_calls(void)
{
	fresh_region(8);
	struct breaker_rules r = rates(10, 5);
	uint32_t at = place("slow:1");

	r.slow_call_ms = 200;
	r.slow_rate_percent = 80;
	calls(at, &r, 4, BREAKER_SUCCESS, 200 * MS);
	calls(at, &r, 1, BREAKER_SUCCESS, 200 * MS - 1);
	tap_ok(state(at) == BREAKER_OPEN && strcmp(look(at)->last_reason, "80.00% slow (4 of 5 calls)") == 0,
		"four of five took slow_call_duration: %s", look(at)->last_reason);
	now += 2000 * MS;
	calls(at, &r, 1, BREAKER_SUCCESS, 900 * MS);
	tap_ok(state(at) == BREAKER_CLOSED, "a slow probe that succeeds closes");
	calls(at, &r, 2, BREAKER_FAILURE, 900 * MS);
	calls(at, &r, 3, BREAKER_SUCCESS, 1 * MS);
	tap_ok(state(at) == BREAKER_CLOSED && look(at)->recent.slow == 2,
		"failures are slow, too, and 40 %% are not 80");
	at = place("slow:2");
	r.slow_call_ms = 0;
	calls(at, &r, 9, BREAKER_SUCCESS, 900 * MS);
	tap_ok(state(at) == BREAKER_CLOSED && look(at)->recent.slow == 0, "slow_call_duration off: nothing is slow");
}

static void late_verdicts(void)
{
	fresh_region(8);
	struct breaker_rules r = rates(10, 4);
	uint32_t at = place("late:1");
	struct circuit_token held[6];

	for (int i = 0; i < 6; i++)
		circuit_admit(&region, at, &r, now, &held[i]);
	calls(at, &r, 4, BREAKER_FAILURE, 0);
	now += 1000 * MS;
	calls(at, &r, 1, BREAKER_SUCCESS, 0);
	for (int i = 0; i < 6; i++)
		circuit_settle(&region, &held[i], &r, BREAKER_FAILURE, FAILURE_RESET, true, now, 0);
	tap_ok(state(at) == BREAKER_CLOSED && look(at)->recent.calls == 0 && look(at)->stale == 6,
		"verdicts from before the opening are in no window (B2)");
}

static void streak_of_one(void)
{
	fresh_region(8);
	struct breaker_rules r = rates(0, 20);
	uint32_t at = place("one:1");

	r.failure_threshold = 2;
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	calls(at, &r, 100, BREAKER_SUCCESS, 0);
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	tap_ok(state(at) == BREAKER_CLOSED && look(at)->consecutive_failures == 1,
		"failure, a hundred successes, failure: a streak of one (CB12)");
	tap_ok(look(at)->recent.calls == 100 && look(at)->recent.failed == 1, "shown: the last hundred calls");
}

/* ---- evictions ---- */

static bool is_there(const char *name)
{
	return registry_find(&region, name) >= 0;
}

static void evictions(void)
{
	struct breaker_rules r = rates(0, 20);
	struct circuit_token token, held;
	char name[16];

	r.failure_threshold = 1;
	fresh_region(8);
	for (int i = 0; i < 8; i++) {
		snprintf(name, sizeof name, "h:%d", i);
		now += MS;
		calls(place(name), &r, 3, BREAKER_SUCCESS, 1000);
	}
	now += MS;
	calls(place("h:0"), &r, 1, BREAKER_SUCCESS, 1000); /* used again: h:1 is now the oldest */
	calls(place("h:1"), &r, 1, BREAKER_FAILURE, 1000); /* but open */
	now -= MS * 5;
	calls(place("h:2"), &r, 1, BREAKER_SUCCESS, 1000);
	now += MS * 5;
	circuit_force(&region, place("h:2"), BREAKER_FORCED_CLOSED, 0, now);
	circuit_admit(&region, place("h:3"), &r, now - MS * 5, &held); /* in flight */
	uint32_t victim = place("h:4"), life = region.destinations[victim].life;
	circuit_admit(&region, victim, &r, now - MS * 5, &token);
	circuit_settle(&region, &token, &r, BREAKER_SUCCESS, 0, true, now - MS * 5, 1000);
	uint16_t generation = breaker_generation(region.destinations[victim].breaker);
	for (int i = 5; i < 8; i++) {
		snprintf(name, sizeof name, "h:%d", i);
		calls(place(name), &r, 1, BREAKER_SUCCESS, 1000);
	}
	region.destinations[victim].late_look_ups = region.destinations[victim].stale_answers = 7;
	region.destinations[victim].stale_told_ns = now;
	uint32_t at = place("new:1");
	const struct destination *d = &region.destinations[at];
	tap_ok(d->late_look_ups == 0 && d->stale_answers == 0 && d->stale_told_ns == 0,
		"what was counted of a name's look-ups is not the next one's");
	tap_ok(at == victim && !is_there("h:4") && is_there("new:1"),
		"the least recently used closed circuit goes (B17)");
	tap_ok(is_there("h:1") && is_there("h:2") && is_there("h:3"),
		"not an open, a forced, or one with calls in flight");
	tap_ok(region.header->registry_evictions == 1 && region.header->registry_full == 0, "and it is counted");
	const struct circuit_view *v = look(at);
	tap_ok(strcmp(v->name, "new:1") == 0 && v->success == 0 && v->failure == 0 && v->max_us == 0 &&
			v->state == BREAKER_CLOSED && v->recent.calls == 0,
		"nothing of the old one is in it");
	tap_ok(region.destinations[at].life == life + 1 &&
			breaker_generation(region.destinations[at].breaker) != generation,
		"its life and its generation have moved");
	tap_ok(region_valid(&region, NULL), "the region is valid");

	/* A verdict of the one that has gone is nobody's. */
	fresh_region(1);
	at = place("old:1");
	circuit_admit(&region, at, &r, now, &token);
	member_count_call(&region, at, -1); /* as if its process had died and were reaped */
	tap_ok(place("other:1") == at, "the only place changes hands");
	circuit_settle(&region, &token, &r, BREAKER_FAILURE, FAILURE_RESET, true, now, 0);
	tap_ok(state(at) == BREAKER_CLOSED && look(at)->failure == 0 && look(at)->consecutive_failures == 0,
		"a late verdict of the old one changes and counts nothing");
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	tap_ok(registry_find_or_add(&region, "third:1", "", now) == -ENOSPC && region.header->registry_full == 1,
		"where nothing can go, the new one runs unguarded and is counted");
}

#define RACERS 4
#define NAMES 40
static pthread_barrier_t gate;

static void *racer(void *arg)
{
	struct region mine = region;
	char name[16];

	for (int round = 0; round < 500; round++) {
		pthread_barrier_wait(&gate);
		snprintf(name, sizeof name, "n:%d", round % NAMES);
		int at = registry_find_or_add(&mine, name, "", clock_now_ns());
		/* Whose index it is may change at any moment; what it never does is lead outside. */
		if (at >= 12)
			*(bool *)arg = true;
		pthread_barrier_wait(&gate);
	}
	return NULL;
}

/* All meet one new name in a full registry, time and again. */
static void evicted_by_all(void)
{
	pthread_t thread[RACERS];
	char name[REGION_NAME_MAX + 1], other[REGION_NAME_MAX + 1];
	bool is_outside = false;
	unsigned twice = 0;

	fresh_region(12);
	pthread_barrier_init(&gate, NULL, RACERS);
	for (int i = 0; i < RACERS; i++)
		pthread_create(&thread[i], NULL, racer, &is_outside);
	for (int i = 0; i < RACERS; i++)
		pthread_join(thread[i], NULL);
	for (int i = registry_next(&region, 0); i >= 0; i = registry_next(&region, (uint32_t)i + 1)) {
		registry_name(&region, (uint32_t)i, name);
		for (int k = registry_next(&region, (uint32_t)i + 1); k >= 0;
			k = registry_next(&region, (uint32_t)k + 1)) {
			registry_name(&region, (uint32_t)k, other);
			twice += strcmp(name, other) == 0;
		}
	}
	tap_ok(!is_outside && twice == 0 && region.header->registry_evictions > 400,
		"threads that meet the same new names in a full registry: no name has two places (%u; %llu evictions)",
		twice, (unsigned long long)region.header->registry_evictions);
	tap_ok(region_valid(&region, NULL), "the region is valid");
}

/* ---- a service that moved ---- */

static void moved(void)
{
	fresh_region(8);
	struct breaker_rules r = rates(0, 20);
	const uint32_t old[] = {11, 12}, same[] = {12, 13}, other[] = {21}, more[] = {22};
	uint32_t at = place("moves:1");

	r.failure_threshold = 1;
	circuit_know(&region, at, old, 2, now);
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	circuit_know(&region, at, same, 2, now);
	tap_ok(look(at)->retry_after_ms == 1000, "a look-up that shares an address changes nothing");
	circuit_know(&region, at, other, 1, now);
	tap_ok(look(at)->retry_after_ms == 0 && state(at) == BREAKER_OPEN,
		"a look-up that shares none makes the probe due now (B21)");
	tap_ok(calls(at, &r, 1, BREAKER_FAILURE, 0) == BREAKER_PROBE && look(at)->retry_after_ms == 2000,
		"it is a probe like any other: failing, it waits longer");
	circuit_know(&region, at, old, 2, now);
	circuit_know(&region, at, other, 1, now);
	tap_ok(look(at)->retry_after_ms == 2000, "addresses known already do not make it due again");
	circuit_know(&region, at, more, 1, now);
	tap_ok(look(at)->retry_after_ms == 0, "each new one does, once");
	circuit_force(&region, at, BREAKER_FORCED_OPEN, 0, now);
	const uint32_t last[] = {31};
	circuit_know(&region, at, last, 1, now);
	tap_ok(look(at)->mode == BREAKER_FORCED_OPEN && calls(at, &r, 1, BREAKER_SUCCESS, 0) == BREAKER_REJECT,
		"forced open stays (B15)");
	at = place("moves:2");
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	circuit_know(&region, at, old, 2, now);
	tap_ok(look(at)->retry_after_ms == 1000, "where none were known nothing has moved");
}

/* ---- a probe that only connects ---- */

static void unused_probe(void)
{
	fresh_region(8);
	struct breaker_rules r = rates(0, 20);
	struct circuit_token held, next;
	uint32_t at = place("pool:1");

	r.failure_threshold = 1;
	r.probe_timeout_ms = 500;
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	now += 1000 * MS;
	circuit_admit(&region, at, &r, now, &held);
	circuit_note(&region, &held, LEASE_UNUSED);
	now += 5000 * MS;
	tap_ok(circuit_admit(&region, at, &r, now, &next) == BREAKER_PROBE && state(at) == BREAKER_HALF_OPEN &&
			look(at)->neutral == 1 && look(at)->probe_results[PROBE_NEUTRAL] == 1,
		"no verdict by probe_timeout, only connected: neutral, and the next connect probes (B7)");
	circuit_settle(&region, &held, &r, BREAKER_FAILURE, FAILURE_RESET, true, now, 0);
	tap_ok(look(at)->stale == 1 && state(at) == BREAKER_HALF_OPEN,
		"its own verdict is stale, and frees no slot (B3)");
	circuit_note(&region, &next, LEASE_UNUSED);
	circuit_note(&region, &next, LEASE_BUSY);
	now += 5000 * MS;
	circuit_admit(&region, at, &r, now, &held);
	tap_ok(state(at) == BREAKER_OPEN, "one that has sent has failed by then");
}

/* ---- events ---- */

static unsigned transitions_of(const char *name, char reason[176])
{
	uint64_t oldest, newest;
	struct event e;
	unsigned n = 0;

	events_range(&region, &oldest, &newest);
	for (uint64_t seq = oldest; seq <= newest; seq++)
		if (events_read(&region, seq, &e) && e.type == EVENT_TRANSITION && strcmp(e.destination, name) == 0) {
			n++;
			text_copy(reason, 176, e.reason);
		}
	return n;
}

/* What a process leaves that is killed between two lines of circuit.c, made by hand: nothing told; or told, not shown.
 */
static void killed_makers(void)
{
	struct breaker_rules r = rates(0, 20);
	char reason[176] = "";

	r.failure_threshold = 2;
	fresh_region(8);
	uint32_t at = place("killed:1");
	struct destination *d = &region.destinations[at];
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	d->breaker = breaker_settle(
		d->breaker, &r, breaker_generation(d->breaker), false, BREAKER_FAILURE, now / NS_PER_MS, 0)
			     .next;
	tap_ok(state(at) == BREAKER_OPEN && transitions_of("killed:1", reason) == 0,
		"killed between the compare-and-swap and its event");
	now += 1000 * MS;
	calls(at, &r, 1, BREAKER_FAILURE, 0);
	tap_ok(transitions_of("killed:1", reason) == 3 && look(at)->transitions[0][2] == 1 &&
			look(at)->opened_total == 2,
		"the next transition tells it first: three transitions, three events (B4)");

	/* Told and not shown: the slot in the ring is whole, but for its number. */
	uint64_t seq = region.header->event_seq;
	region.events[seq % REGION_EVENTS].seq = 0;
	tap_ok(transitions_of("killed:1", reason) == 2, "killed before it is shown");
	now += 3000 * MS;
	calls(at, &r, 1, BREAKER_SUCCESS, 0);
	tap_ok(transitions_of("killed:1", reason) == 5 && state(at) == BREAKER_CLOSED, "whoever is next shows it");

	/* A mode set by hand where the state is so already tells nothing, and what follows is told once. */
	circuit_force(&region, at, BREAKER_FORCED_CLOSED, 0, now);
	circuit_reset(&region, at, now);
	circuit_force(&region, at, BREAKER_FORCED_OPEN, 10000, now);
	tap_ok(transitions_of("killed:1", reason) == 6 && strcmp(reason, "forced open by hand") == 0, "%s", reason);
	tap_ok(look(at)->mode_ends_ms == 10000 && look(at)->retry_after_ms == 10000, "when --for ends is shown (B15)");
	now += 10000 * MS;
	calls(at, &r, 1, BREAKER_SUCCESS, 0);
	tap_ok(transitions_of("killed:1", reason) == 8 && state(at) == BREAKER_CLOSED, "probed and closed again");
	tap_ok(region_valid(&region, NULL), "the region is valid");
}

/* ---- who writes where ---- */

static void *reject_much(void *rules)
{
	struct region mine = region;
	struct circuit_token token;

	for (int i = 0; i < 1000; i++)
		circuit_admit(&mine, 0, rules, now, &token);
	return NULL;
}

/* Rejections on several processors must not wait for each other: once a run has begun, each thread writes to a line of
 * its own and to nothing else. */
static void lines_of_rejections(void)
{
	static struct destination before;
	struct breaker_rules r = rates(0, 20);
	struct circuit_token token;
	pthread_t thread;
	unsigned lines = 0, elsewhere = 0;

	r.failure_threshold = 1;
	fresh_region(1);
	calls(place("lines:1"), &r, 1, BREAKER_FAILURE, 0);
	circuit_admit(&region, 0, &r, now, &token);
	struct destination *d = &region.destinations[0];
	for (int i = 0; i < REGION_SHARDS - 1; i++) {
		memcpy(&before, d, sizeof before);
		pthread_create(&thread, NULL, reject_much, &r);
		pthread_join(thread, NULL);
		unsigned written = 0;
		for (int k = 0; k < REGION_SHARDS; k++)
			written += d->shard[k].rejected != before.shard[k].rejected;
		tap_expect(written == 1, "thread %d writes to %u lines", i, written);
		memcpy(before.shard, d->shard, sizeof before.shard);
		elsewhere += memcmp(&before, d, sizeof before) != 0;
	}
	for (int k = 0; k < REGION_SHARDS; k++)
		lines += d->shard[k].rejected != 0;
	tap_expect(elsewhere == 0, "something else was written");
	tap_expect(lines == REGION_SHARDS, "eight threads use %u lines", lines);
	tap_expect((uintptr_t)&d->shard[0] % 64 == 0 && sizeof d->shard[0] == 64, "a line each");
	tap_expect(region_rejected(d) == 1000 * (REGION_SHARDS - 1) + 1, "all are counted");
	tap_all("rejections of different threads write to no line that others write to");
}

int main(void)
{
	by_calls();
	limits();
	by_time();
	hour_of_silence();
	drained();
	slow_calls();
	late_verdicts();
	streak_of_one();
	evictions();
	evicted_by_all();
	moved();
	unused_probe();
	killed_makers();
	lines_of_rejections();
	return tap_done();
}
