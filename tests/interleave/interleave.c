/* The lock-free parts of src/core under every order of their steps. The very code runs, compiled with points.h, as two
 * or three threads of one scheduler; each atomic operation is a step. Depth first through all orders with at most so
 * many preemptions (changes of thread where the running one could go on), each from the same beginning; and, in the
 * scenarios that say so, with one thread killed at each of its steps in turn, as by SIGKILL: it never goes on, and its
 * member is dead. Sequentially consistent orders only: weaker ones are TSan's and the hammering tests' (core_circuit).
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "../unit/tap.h"
#include "base/clock.h"
#include "core/bulkhead.h"
#include "core/circuit.h"
#include "core/events.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/registry.h"

#define THREADS 3
#define STACK 262144
#define CHOICES 4096
#define CAPACITY 2
#define NOW (1000 * NS_PER_S)

void interleave_point(void);
void interleave_byte(void);

/* ---- the scheduler ---- */

/* A context to begin a thread; jumps to change between them, since swapcontext() asks the kernel each time. */
static ucontext_t begin_back, begin_thread[THREADS];
static jmp_buf back, thread[THREADS];
static bool has_begun[THREADS];
static char stack[THREADS][STACK];
static int count, running = -1;
static bool is_over[THREADS], is_killed[THREADS];
static void (*body[THREADS])(int);

/* The order that is tried: who runs at each step. What was chosen before a change of mind is replayed. */
static uint8_t choice[CHOICES];
static uint8_t could[CHOICES]; /* threads that could have run there, as bits */
static int8_t ran_before[CHOICES];
static int steps, fixed;
static int kill_thread, kill_at; /* the thread dies before that step of its own; -1: none */
static int own_steps[THREADS];
static unsigned bytes;

void interleave_point(void)
{
	if (running < 0)
		return;
	int me = running;
	running = -1;
	if (_setjmp(thread[me]) == 0)
		_longjmp(back, 1);
}

void interleave_byte(void)
{
	if (running >= 0 && ++bytes % 160 == 0)
		interleave_point();
}

static void enter(int i)
{
	body[i](i);
	is_over[i] = true;
	running = -1;
	_longjmp(back, 1);
}

/* Until its next point. */
static void go_on(int i)
{
	running = i;
	if (_setjmp(back) == 0) {
		if (has_begun[i])
			_longjmp(thread[i], 1);
		has_begun[i] = true;
		swapcontext(&begin_back, &begin_thread[i]);
	}
	running = -1;
}

/* Runs one order; false: it is longer than can be told. */
static bool run(void)
{
	volatile int last = -1;

	steps = 0;
	bytes = 0;
	for (int i = 0; i < count; i++) {
		is_over[i] = is_killed[i] = false;
		own_steps[i] = 0;
		has_begun[i] = false;
		getcontext(&begin_thread[i]);
		begin_thread[i].uc_stack.ss_sp = stack[i];
		begin_thread[i].uc_stack.ss_size = STACK;
		begin_thread[i].uc_link = &begin_back;
		makecontext(&begin_thread[i], (void (*)(void))enter, 1, i);
	}
	for (;;) {
		uint8_t may = 0;
		for (int i = 0; i < count; i++)
			if (!is_over[i])
				may |= (uint8_t)(1u << i);
		if (!may)
			return true;
		if (steps == CHOICES)
			return false;
		int next = last >= 0 && may >> last & 1 ? last : __builtin_ctz(may);
		if (steps < fixed)
			next = choice[steps];
		choice[steps] = (uint8_t)next;
		could[steps] = may;
		ran_before[steps] = (int8_t)last;
		steps++;
		last = next;
		if (next == kill_thread && own_steps[next]++ == kill_at) {
			is_over[next] = is_killed[next] = true;
			continue;
		}
		go_on(next);
	}
}

/* The next order after this one, with at most so many preemptions; false: that was the last. */
static bool next_order(int preemptions)
{
	for (int at = steps - 1; at >= 0; at--) {
		int used = 0;
		for (int i = 0; i < at; i++)
			used += ran_before[i] >= 0 && choice[i] != ran_before[i] && could[i] >> ran_before[i] & 1;
		/* In the order of trial: the one that ran before, then the others upwards. */
		int before = ran_before[at] >= 0 && could[at] >> ran_before[at] & 1 ? ran_before[at] : -1;
		int first = before >= 0 ? before : __builtin_ctz(could[at]);
		int next = choice[at] == first ? -1 : choice[at];
		do
			next++;
		while (next < count && (next == first || !(could[at] >> next & 1)));
		if (next >= count || (before >= 0 && used + 1 > preemptions))
			continue;
		choice[at] = (uint8_t)next;
		fixed = at + 1;
		return true;
	}
	return false;
}

/* ---- what is shared ---- */

static struct region region, hold[THREADS];
static struct destination as_made[CAPACITY], as_begun[CAPACITY];
static struct region_header header;
static struct member members[THREADS];
static struct waiter waiters[THREADS];
static uint64_t first_seq;
static struct circuit_token token[THREADS];
static enum breaker_decision decision[THREADS];
static int place[THREADS];
static uint64_t start_ticks;
static int64_t now = NOW;
static struct breaker_rules rules = {.failure_threshold = 1,
	.success_threshold = 1,
	.half_open_max_calls = 1,
	.recovery_ms = 1000,
	.recovery_max_ms = 8000,
	.backoff_percent = 200,
	.probe_timeout_ms = 500,
	.minimum_calls = 1};

static void join_all(void)
{
	for (int i = 0; i < THREADS; i++)
		if (hold[i].me >= 0)
			region.members[hold[i].me].id = 0;
	for (int i = 0; i < THREADS; i++) {
		hold[i] = region;
		member_join(&hold[i], getpid(), start_ticks, "interleave", 1);
	}
}

static void make(void)
{
	start_ticks = identity_start_ticks(getpid(), NULL);
	circuit_set_seed(1);
	if (region_attach_private(&region, "interleave", CAPACITY) != 0)
		abort();
	for (int i = 0; i < THREADS; i++)
		hold[i].me = -1;
	memcpy(as_made, region.destinations, sizeof as_made);
}

static void begin_anew(void)
{
	memcpy(region.destinations, as_begun, sizeof as_begun);
	for (int i = 0; i < THREADS; i++)
		memcpy(&region.members[hold[i].me], &members[i], sizeof members[i]);
	memcpy(region.waiters, waiters, sizeof waiters);
	region.header->waiters_high = header.waiters_high;
	region.header->tickets = header.tickets;
	region.header->registry_full = header.registry_full;
	region.header->registry_evictions = header.registry_evictions;
	first_seq = region.header->event_seq;
	memset(decision, -1, sizeof decision);
	memset(place, -1, sizeof place);
}

static void begun(void)
{
	for (int i = 0; i < THREADS; i++)
		memcpy(&members[i], &region.members[hold[i].me], sizeof members[i]);
	memcpy(as_begun, region.destinations, sizeof as_begun);
	memcpy(waiters, region.waiters, sizeof waiters);
	header.waiters_high = region.header->waiters_high;
	header.tickets = region.header->tickets;
	header.registry_full = region.header->registry_full;
	header.registry_evictions = region.header->registry_evictions;
}

static void clean(void)
{
	memcpy(region.destinations, as_made, sizeof as_made);
	memset(region.waiters, 0, sizeof waiters);
	region.header->waiters_high = 0;
	join_all();
	now = NOW;
	memset(token, 0, sizeof token);
}

static struct destination *first(void)
{
	return &region.destinations[0];
}

static unsigned transitions(const char *name)
{
	struct event e;
	unsigned n = 0;

	for (uint64_t seq = first_seq + 1; seq <= region.header->event_seq; seq++)
		n += events_read(&region, seq, &e) && e.type == EVENT_TRANSITION &&
		     (!name || strcmp(e.destination, name) == 0);
	return n;
}

static int probes(void)
{
	int n = 0;

	for (int i = 0; i < count; i++)
		n += decision[i] == BREAKER_PROBE && !is_killed[i];
	return n;
}

/* What holds after any order: events for all generations, in a row; the region as it ought to be. */
static void holds(const char *name)
{
	struct event e;
	int generation = -1;
	char why[200] = "";
	struct text t = TEXT_ON(why);

	for (uint64_t seq = first_seq + 1; seq <= region.header->event_seq; seq++) {
		if (!events_read(&region, seq, &e) || e.type != EVENT_TRANSITION)
			continue;
		tap_expect(generation < 0 || e.generation == (uint8_t)(generation + 1), "%s: generation %d after %d",
			name, e.generation, generation);
		generation = e.generation;
	}
	static unsigned turn;
	if (turn++ % 32 == 0)
		tap_expect(region_valid(&region, &t), "%s: %s", name, why);
}

/* ---- scenarios ---- */

static void open_circuit(void)
{
	struct circuit_token t;

	registry_find_or_add(&region, "a:1", "", now);
	circuit_admit(&hold[0], 0, &rules, now, &t);
	circuit_settle(&hold[0], &t, &rules, BREAKER_FAILURE, FAILURE_RESET, true, now, 1);
}

static void admits(int i)
{
	decision[i] = circuit_admit(&hold[i], 0, &rules, now, &token[i]);
}

static void settles(int i, enum breaker_outcome outcome)
{
	circuit_settle(&hold[i], &token[i], &rules, outcome, FAILURE_RESET, true, now, 1);
}

static void fails(int i)
{
	settles(i, BREAKER_FAILURE);
}

static void succeeds(int i)
{
	settles(i, BREAKER_SUCCESS);
}

static void admits_and_fails(int i)
{
	admits(i);
	if (decision[i] != BREAKER_REJECT)
		fails(i);
}

/* All at the expiry (B4 B5 B6). */
static void at_expiry(void)
{
	open_circuit();
	now += 1000 * NS_PER_MS;
}

static void one_probe(void)
{
	unsigned dead = 0;

	for (int i = 0; i < count; i++)
		dead += is_killed[i];
	tap_expect(probes() <= 1 && probes() + (int)dead >= 1, "%d probes", probes());
	if (!dead)
		tap_expect(transitions("a:1") == 1 && breaker_state(first()->breaker) == BREAKER_HALF_OPEN,
			"%u transitions", transitions("a:1"));
	/* Whoever was killed at whatever step: within a second it is probed again, and all is told. */
	struct circuit_token t;
	now += 200 * NS_PER_MS;
	if (probes() == 0)
		tap_expect(circuit_admit(&hold[count - 1], 0, &rules, now, &t) == BREAKER_PROBE, "nobody probes again");
	else
		for (int i = 0; i < count; i++)
			if (decision[i] == BREAKER_PROBE && !is_killed[i])
				t = token[i];
	circuit_settle(&hold[count - 1], &t, &rules, BREAKER_SUCCESS, 0, true, now, 1);
	tap_expect(breaker_state(first()->breaker) == BREAKER_CLOSED && transitions("a:1") == 2 &&
			   lease_in_flight(&region, 0) == 0,
		"closed: state %d, %u transitions, %u slots", (int)breaker_state(first()->breaker), transitions("a:1"),
		lease_in_flight(&region, 0));
	now = NOW + 1000 * NS_PER_MS;
}

/* Several calls of a closed circuit fail at once: one opens, one event. */
static void three_calls(void)
{
	registry_find_or_add(&region, "a:1", "", now);
	for (int i = 0; i < count; i++)
		admits(i);
}

static void opened_once(void)
{
	unsigned dead = 0;
	for (int i = 0; i < count; i++)
		dead += is_killed[i];
	bool is_open = breaker_state(first()->breaker) == BREAKER_OPEN;
	tap_expect(is_open || dead == (unsigned)count, "not open");
	/* The event of one that was killed comes with the next transition. */
	struct circuit_token t;
	now += 1000 * NS_PER_MS;
	tap_expect(circuit_admit(&hold[count - 1], 0, &rules, now, &t) == BREAKER_PROBE && transitions("a:1") == 2,
		"%u transitions told", transitions("a:1"));
	tap_expect(dead || (first()->opened_total == 1 && first()->failure == (uint64_t)count), "counted");
	now = NOW;
}

/* A probe's verdict at the end of its time, and one who finds it expired (A1 B3 B7). */
static void expired_probe(void)
{
	at_expiry();
	admits(0);
	now += 5000 * NS_PER_MS;
}

static void one_verdict(void)
{
	uint64_t verdicts = first()->success + first()->failure;
	bool any_killed = is_killed[0] || is_killed[1] || is_killed[2];
	/* The opening's failure, and one of the two. A killed collector leaves a slot of its own, which is a dead
	 * one's. */
	tap_expect(verdicts == 2 || (any_killed && verdicts == 1), "%llu verdicts", (unsigned long long)verdicts - 1);
	tap_expect(first()->stale <= 1, "%llu stale", (unsigned long long)first()->stale);
	tap_expect(any_killed || lease_in_flight(&region, 0) == (uint32_t)probes(), "%u slots, %d probes",
		lease_in_flight(&region, 0), probes());
}

static void late_or_in_time(void)
{
	one_verdict();
	tap_expect(is_killed[0] || is_killed[1] || first()->success + first()->stale == 1, "neither in time nor late");
}

/* The name of all, in a registry with room and in a full one (B17). */
static void finds(int i)
{
	place[i] = registry_find_or_add(&hold[i], "new:1", "", now);
}

static void empty(void)
{
}

static void full(void)
{
	registry_find_or_add(&region, "a:1", "", now - 2);
	registry_find_or_add(&region, "b:1", "", now - 1);
}

static void one_place(void)
{
	int n = 0, at = registry_find_or_add(&hold[count - 1], "new:1", "", now);
	char name[REGION_NAME_MAX + 1];

	for (int i = registry_next(&region, 0); i >= 0; i = registry_next(&region, (uint32_t)i + 1)) {
		registry_name(&region, (uint32_t)i, name);
		n += strcmp(name, "new:1") == 0;
	}
	tap_expect(at >= 0 && n == 1, "at %d, %d places", at, n);
}

/* Two events and one who reads what is there, at any moment. */
static void tells(int i)
{
	struct event e = {.type = EVENT_FAULT, .retry_after_ms = i};

	snprintf(e.destination, sizeof e.destination, "%d:%d:%d:%d", i, i, i, i);
	memset(e.reason, 'a' + i, sizeof e.reason - 1);
	events_add(&hold[i], &e);
}

static void reads(int i)
{
	struct event e;

	(void)i;
	for (uint64_t seq = first_seq + 1; seq <= first_seq + 2; seq++) {
		if (!events_read(&region, seq, &e))
			continue;
		bool is_whole = strspn(e.reason, (char[]){(char)('a' + e.retry_after_ms), 0}) == sizeof e.reason - 1;
		tap_expect(is_whole && e.destination[0] == '0' + e.retry_after_ms, "a torn event was read");
	}
}

static void both_there(void)
{
	struct event e;

	for (uint64_t seq = first_seq + 1; seq <= first_seq + 2; seq++)
		tap_expect(is_killed[0] || is_killed[1] || events_read(&region, seq, &e), "an event is not there");
}

/* A rate reached by two at once: one of them sees it. */
static struct breaker_rules plain_rules;
static void two_rate_calls(void)
{
	plain_rules = rules;
	rules.failure_threshold = 0;
	rules.window = 10;
	rules.failure_rate_percent = 100;
	rules.minimum_calls = 2;
	three_calls();
}

static void rate_opened(void)
{
	tap_expect(is_killed[0] || is_killed[1] || breaker_state(first()->breaker) == BREAKER_OPEN,
		"two of two have failed, and it is not open");
}

static void timed_rate_calls(void)
{
	two_rate_calls();
	rules.window = WINDOW_IS_TIME | 1000;
}

/* ---- the bulkhead (D1 D2) ---- */

static const struct bulkhead_rules one_slot = {.max = 1}, two_slots = {.max = 2};
static uint64_t hold_of[THREADS], held_before;
static struct bulkhead_place place_of[THREADS];
static uint32_t bell_before[THREADS];

static bool is_dead(void)
{
	return is_killed[0] || is_killed[1] || is_killed[2];
}

/* Slots in use by the living, and all of them free again once they have given theirs back: also what the dead had, as
 * soon as somebody looks, and nobody is left in the queue. */
static void is_whole(const struct bulkhead_rules *bounds)
{
	int64_t later = now + 200 * NS_PER_MS;

	for (int i = 0; i < count; i++)
		if (!is_killed[i] && hold_of[i])
			tap_expect(bulkhead_release(&hold[i], hold_of[i], now), "a hold is none");
	bulkhead_collect(&hold[count - 1], 0, later);
	tap_expect(bulkhead_in_use(&region, 0) == 0, "%u are left taken", bulkhead_in_use(&region, 0));
	for (int i = 0; i < count; i++)
		if (!is_killed[i] && place_of[i].ticket)
			bulkhead_leave(&hold[i], 0, &place_of[i], -1, later);
	tap_expect(bulkhead_waiting(&region, 0, later) == 0, "somebody is left in the queue");
	uint64_t all[2] = {0};
	for (uint32_t i = 0; i < bounds->max; i++)
		tap_expect(
			(all[i] = bulkhead_take(&hold[count - 1], 0, bounds, 0, later)) != 0, "a slot cannot be had");
	tap_expect(bulkhead_take(&hold[count - 1], 0, bounds, 0, later) == 0, "one too many");
	for (uint32_t i = 0; i < bounds->max; i++)
		bulkhead_release(&hold[count - 1], all[i], later);
}

static void begin_slots(void)
{
	registry_find_or_add(&region, "a:1", "", now);
	memset(hold_of, 0, sizeof hold_of);
	memset(place_of, 0, sizeof place_of);
}

static void one_is_held(void)
{
	begin_slots();
	held_before = bulkhead_take(&hold[0], 0, &one_slot, 0, now);
	first()->bulkhead.checked_ns = now; /* nobody looks for the dead meanwhile */
}

static void takes_one(int i)
{
	hold_of[i] = 0;
	hold_of[i] = bulkhead_take(&hold[i], 0, &one_slot, 0, now);
}

static void takes_of_two(int i)
{
	hold_of[i] = 0;
	hold_of[i] = bulkhead_take(&hold[i], 0, &two_slots, 0, now);
}

static void as_many_as(uint32_t max, const struct bulkhead_rules *bounds)
{
	uint32_t n = 0, dead = 0;

	for (int i = 0; i < count; i++) {
		n += !is_killed[i] && hold_of[i] != 0;
		dead += is_killed[i];
	}
	tap_expect(n <= max && n + dead >= max, "%u hold one of %u", n, max);
	is_whole(bounds);
}

static void one_has_it(void)
{
	as_many_as(1, &one_slot);
}

static void two_have_them(void)
{
	as_many_as(2, &two_slots);
}

/* Who gives it back, and another who takes it: never two, and a second giving back frees nothing. */
static void gives_back(int i)
{
	hold_of[i] = 0;
	bulkhead_release(&hold[i], held_before, now);
	tap_expect(!bulkhead_release(&hold[i], held_before, now), "given back twice");
}

static void given_once(void)
{
	uint32_t n = bulkhead_in_use(&region, 0);
	tap_expect(n == (hold_of[1] != 0) + (uint32_t)(hold_of[2] != 0 && count > 2) || is_dead(), "%u taken", n);
	tap_expect(!(hold_of[1] && hold_of[2] && count > 2), "two have it");
	if (is_killed[0] && bulkhead_in_use(&region, 0) != 0 && !hold_of[1])
		region.members[hold[0].me].id = 0;
	is_whole(&one_slot);
}

/* Who waits, up to its sleep: it has a slot, or its bell has rung, or whoever gives back has not come to it yet. */
static void waits(int i)
{
	hold_of[i] = 0;
	place_of[i].ticket = 0;
	if (!bulkhead_queue(&hold[i], 0, now + NS_PER_S, now, &place_of[i]))
		return;
	bell_before[i] = place_of[i].bell;
	hold_of[i] = bulkhead_take(&hold[i], 0, &one_slot, place_of[i].ticket, now);
	if (hold_of[i])
		bulkhead_leave(&hold[i], 0, &place_of[i], 0, now);
}

static bool is_rung(int i)
{
	return region.waiters[place_of[i].index].bell != bell_before[i];
}

static void nobody_sleeps_by_a_free_slot(void)
{
	if (!is_dead() && bulkhead_in_use(&region, 0) == 0)
		for (int i = 1; i < count; i++)
			tap_expect(place_of[i].ticket == 0 || is_rung(1) || (count > 2 && is_rung(2)),
				"all sleep, and the slot is free");
	tap_expect(!(hold_of[1] && hold_of[2] && count > 2) || is_dead(), "two have it");
	is_whole(&one_slot);
}

/* One that leaves in vain while a slot is given back. */
static void waits_in_vain(int i)
{
	waits(i);
	if (place_of[i].ticket)
		bulkhead_leave(&hold[i], 0, &place_of[i], -1, now);
}

static void left_without_a_trace(void)
{
	if (!is_dead() && count > 2 && bulkhead_in_use(&region, 0) == 0 && place_of[2].ticket)
		tap_expect(is_rung(2), "the next sleeps, and the slot is free");
	is_whole(&one_slot);
}

/* The dead's slot, seen by two at once. */
static void dead_holder(void)
{
	one_is_held();
	first()->bulkhead.checked_ns = 0;
	region.members[hold[0].me].id = 0;
	memcpy(&hold[0], &region, sizeof region);
	hold[0].me = -1;
	member_join(&hold[0], getpid(), start_ticks, "interleave", 1);
}

/* A mode set by hand against a verdict and an admission. */
static void forces(int i)
{
	circuit_force(&hold[i], 0, BREAKER_FORCED_OPEN, 0, now);
}

static void forced(void)
{
	tap_expect(is_killed[0] || (breaker_mode(first()->breaker) == BREAKER_FORCED_OPEN &&
					   breaker_state(first()->breaker) == BREAKER_OPEN),
		"not forced open");
}

/* Preemptions: what fits a few seconds; `interleave all` adds one. */
static int more;
static const struct scenario {
	const char *name;
	int threads, preemptions;
	bool kills; /* each thread, at each of its steps */
	void (*prepare)(void);
	void (*body[THREADS])(int);
	void (*judge)(void);
} scenarios[] = {
	{"two at the expiry", 2, 3, true, at_expiry, {admits, admits}, one_probe},
	{"three at the expiry", 3, 2, false, at_expiry, {admits, admits, admits}, one_probe},
	{"three failures at once", 3, 2, false, three_calls, {fails, fails, fails}, opened_once},
	{"two failures at once", 2, 2, true, three_calls, {fails, fails}, opened_once},
	{"a verdict and an expiry", 2, 3, true, expired_probe, {succeeds, admits}, late_or_in_time},
	{"an expiry seen by two", 3, 2, false, expired_probe, {fails, admits, admits_and_fails}, one_verdict},
	{"a verdict, a mode by hand, an admission", 3, 2, false, expired_probe, {forces, succeeds, admits}, forced},
	{"a new name, with room", 2, 3, true, empty, {finds, finds}, one_place},
	{"a new name, in a full registry", 2, 2, true, full, {finds, finds}, one_place},
	{"two writers and a reader", 3, 2, true, empty, {tells, tells, reads}, both_there},
	{"a slot and two who take it", 2, 3, true, begin_slots, {takes_one, takes_one}, one_has_it},
	{"two slots and three", 3, 2, true, begin_slots, {takes_of_two, takes_of_two, takes_of_two}, two_have_them},
	{"a slot given back and taken", 2, 3, true, one_is_held, {gives_back, takes_one}, given_once},
	{"a slot given back and two who take it", 3, 2, false, one_is_held, {gives_back, takes_one, takes_one},
		given_once},
	{"a slot given back and one who waits", 2, 3, true, one_is_held, {gives_back, waits},
		nobody_sleeps_by_a_free_slot},
	{"a slot given back and two who wait", 3, 2, false, one_is_held, {gives_back, waits, waits},
		nobody_sleeps_by_a_free_slot},
	{"one who waits in vain, and the next", 3, 2, true, one_is_held, {gives_back, waits_in_vain, waits},
		left_without_a_trace},
	{"a dead one's slot and two who look", 2, 3, true, dead_holder, {takes_one, takes_one}, one_has_it},
	{"a rate of calls reached by two", 2, 3, true, two_rate_calls, {fails, fails}, rate_opened},
	{"a rate in time reached by two", 2, 2, true, timed_rate_calls, {fails, fails}, rate_opened},
};

static unsigned long explore(const struct scenario *s)
{
	unsigned long orders = 0;
	struct circuit_token kept[THREADS];
	int64_t began;

	fixed = 0;
	memcpy(kept, token, sizeof kept);
	began = now;
	do {
		begin_anew();
		memcpy(token, kept, sizeof kept);
		now = began;
		if (!run()) {
			tap_expect(false, "%s: it does not end", s->name);
			break;
		}
		orders++;
		for (int i = 0; i < count; i++)
			if (is_killed[i])
				region.members[hold[i].me].id = 0;
		s->judge();
		holds(s->name);
	} while (tap_quiet_failed == 0 && next_order(s->preemptions + more));
	return orders;
}

static void try(const struct scenario *s)
{
	unsigned long orders = 0;
	int longest[THREADS] = {0};

	clean();
	count = s->threads;
	for (int i = 0; i < count; i++)
		body[i] = s->body[i];
	plain_rules = rules;
	s->prepare();
	begun();
	struct circuit_token kept[THREADS];
	memcpy(kept, token, sizeof kept);
	int64_t began = now;
	kill_thread = kill_at = -1;
	orders += explore(s);
	/* How many steps each has where nobody comes between. */
	for (int i = 0; i < steps; i++)
		longest[choice[i]]++;
	for (int t = 0; s->kills && t < count - 1; t++)
		for (int at = 0; at < longest[t] + 8 && tap_quiet_failed == 0; at++) {
			kill_thread = t;
			kill_at = at;
			memcpy(token, kept, sizeof kept);
			now = began;
			struct scenario fewer = *s;
			fewer.preemptions = 1;
			orders += explore(&fewer);
		}
	kill_thread = kill_at = -1;
	rules = plain_rules;
	if (tap_quiet_failed)
		for (int i = 0; i < steps; i++)
			if (i == 0 || choice[i] != choice[i - 1])
				printf("# from step %d on thread %d runs\n", i, choice[i]);
	char name[160];
	snprintf(name, sizeof name, "%s: %lu orders%s", s->name, orders, s->kills ? ", each killed at each step" : "");
	tap_all(name);
}

int main(int argc, char **argv)
{
	make();
	if (argc > 1 && strcmp(argv[1], "all") == 0)
		more = 1, argc = 1;
	for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
		if (argc < 2 || strstr(scenarios[i].name, argv[1]))
			try(&scenarios[i]);
	return tap_done();
}
