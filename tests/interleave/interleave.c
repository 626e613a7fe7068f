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
#include "core/degraded.h"
#include "core/events.h"
#include "core/faults.h"
#include "core/identity.h"
#include "core/known.h"
#include "core/member.h"
#include "core/registry.h"

#define THREADS 3
#define STACK 262144
#define CHOICES 4096
#define CAPACITY 2
#define NOW (1000 * NS_PER_S)

void interleave_point(void);
void interleave_relaxed(void);
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
static int kill_thread, kill_at; /* the thread dies before that operation of its own; -1: none */
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

/* Nobody else goes on here, but it may be as far as it comes. */
void interleave_relaxed(void)
{
	if (running < 0 || running != kill_thread || own_steps[running]++ != kill_at)
		return;
	is_over[running] = is_killed[running] = true;
	running = -1;
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
		if (!(may >> next & 1)) {
			tap_expect(false, "an order cannot be repeated: something is not as it was begun with");
			return true;
		}
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

/* What a scenario uses beside these: it says so, and finds it zeroed, and then as it was begun with. */
static struct {
	void *at, *copy;
	size_t n;
} kept[3];
static int kept_count;

static void keep(void *at, size_t n)
{
	memset(at, 0, n);
	kept[kept_count].at = at;
	kept[kept_count].copy = malloc(n);
	kept[kept_count++].n = n;
}

static void begin_anew(void)
{
	for (int i = 0; i < kept_count; i++)
		memcpy(kept[i].at, kept[i].copy, kept[i].n);
	memcpy(region.destinations, as_begun, sizeof as_begun);
	for (int i = 0; i < THREADS; i++)
		memcpy(&region.members[hold[i].me], &members[i], sizeof members[i]);
	memcpy(region.waiters, waiters, sizeof waiters);
	region.header->waiters_high = header.waiters_high;
	region.header->tickets = header.tickets;
	region.header->registry_full = header.registry_full;
	region.header->registry_evictions = header.registry_evictions;
	/* The ring, too: whether the event of the last transition is there decides the way of the next one. */
	for (uint64_t seq = first_seq + 1; seq <= region.header->event_seq; seq++)
		memset(&region.events[seq % REGION_EVENTS], 0, sizeof region.events[0]);
	region.header->event_seq = first_seq;
	memset(decision, -1, sizeof decision);
	memset(place, -1, sizeof place);
}

static void begun(void)
{
	for (int i = 0; i < kept_count; i++)
		memcpy(kept[i].copy, kept[i].at, kept[i].n);
	for (int i = 0; i < THREADS; i++)
		memcpy(&members[i], &region.members[hold[i].me], sizeof members[i]);
	memcpy(as_begun, region.destinations, sizeof as_begun);
	memcpy(waiters, region.waiters, sizeof waiters);
	first_seq = region.header->event_seq;
	header.waiters_high = region.header->waiters_high;
	header.tickets = region.header->tickets;
	header.registry_full = region.header->registry_full;
	header.registry_evictions = region.header->registry_evictions;
}

static void clean(void)
{
	for (int i = 0; i < kept_count; i++) {
		memset(kept[i].at, 0, kept[i].n);
		free(kept[i].copy);
	}
	kept_count = 0;
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

static void empty_circuit(void)
{
	registry_find_or_add(&region, "a:1", "", now);
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

static void all_are_awake(void)
{
	unsigned sleeping = 0, rung = 0, have = 0;

	for (int i = 0; i < count; i++) {
		sleeping += place_of[i].ticket != 0;
		rung += place_of[i].ticket != 0 && is_rung(i);
		have += hold_of[i] != 0;
	}
	if (!is_dead() && bulkhead_in_use(&region, 0) == 0)
		tap_expect(sleeping == 0 || rung > 0, "all sleep, and the slot is free");
	tap_expect(have <= 1 || is_dead(), "two have it");
}

static void nobody_sleeps_by_a_free_slot(void)
{
	all_are_awake();
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

/* Who waits for it may die at any step of that, or who was to give it back: whoever lives and waits has the slot at his
 * next look, in the order of arrival. */
static void second_holds(void)
{
	begin_slots();
	held_before = bulkhead_take(&hold[1], 0, &one_slot, 0, now);
	first()->bulkhead.checked_ns = now;
}

static void the_next_is_served(void)
{
	int64_t later = now + 200 * NS_PER_MS;

	all_are_awake();
	for (int i = 0; i < count; i++)
		if (!is_killed[i] && hold_of[i])
			tap_expect(bulkhead_release(&hold[i], hold_of[i], now), "a hold is none");
	if (!is_dead() && bulkhead_in_use(&region, 0) != 0)
		tap_expect(false, "not given back");
	for (;; later += 200 * NS_PER_MS) {
		int next = -1;
		for (int i = 0; i < count; i++)
			if (!is_killed[i] && place_of[i].ticket &&
				(next < 0 || place_of[i].ticket < place_of[next].ticket))
				next = i;
		if (next < 0)
			break;
		uint64_t one = bulkhead_take(&hold[next], 0, &one_slot, place_of[next].ticket, later);
		tap_expect(one != 0, "who waits longest does not get it");
		bulkhead_leave(&hold[next], 0, &place_of[next], 0, later);
		bulkhead_release(&hold[next], one, later);
	}
	memset(hold_of, 0, sizeof hold_of);
	now = later;
	is_whole(&one_slot);
	for (uint32_t i = 0; i < REGION_WAITERS && i < region.header->waiters_high; i++)
		tap_expect(region.waiters[i].word == 0, "a place in the queue is left taken");
}

/* A limit that has shrunk: one slot above it is taken, so those below are nobody's until it is free. */
static bool is_above_free; /* or about to be */

static void shrunken(void)
{
	begin_slots();
	uint64_t below = bulkhead_take(&hold[2], 0, &two_slots, 0, now);
	held_before = bulkhead_take(&hold[2], 0, &two_slots, 0, now);
	bulkhead_release(&hold[2], below, now);
	first()->bulkhead.checked_ns = now;
	keep(&is_above_free, sizeof is_above_free);
}

static void frees_above(int i)
{
	is_above_free = true;
	gives_back(i);
}

static void takes_below(int i)
{
	takes_one(i);
	tap_expect(hold_of[i] == 0 || is_above_free, "one below was had while one above is taken");
}

static void one_at_most(void)
{
	uint32_t n = 0;

	for (int i = 0; i < count; i++)
		n += !is_killed[i] && hold_of[i] != 0;
	tap_expect(n <= 1 && bulkhead_in_use(&region, 0) <= 2, "%u hold one of one", n);
	if (bulkhead_in_use(&region, 0) > n && !is_dead())
		tap_expect(bulkhead_release(&hold[2], held_before, now) && n == 0, "the slot above is lost");
	if (is_killed[2])
		region.members[hold[2].me].id = 0;
	is_whole(&one_slot);
}

/* Beyond a destination's own: a block of the region's. */
static const struct bulkhead_rules beyond = {.max = BULKHEAD_OWN + 1};

static void fill_own(uint32_t destination)
{
	for (uint32_t i = 0; i < BULKHEAD_OWN; i++)
		bulkhead_take(&hold[2], destination, &beyond, 0, now);
	region.destinations[destination].bulkhead.checked_ns = now;
}

static void own_are_taken(void)
{
	keep(region.blocks, sizeof region.blocks[0] * REGION_BLOCKS);
	begin_slots();
	fill_own(0);
}

static void takes_beyond(int i)
{
	hold_of[i] = 0;
	hold_of[i] = bulkhead_take(&hold[i], 0, &beyond, 0, now);
}

static void one_is_beyond(void)
{
	int64_t later = now + 200 * NS_PER_MS;
	uint32_t n = (uint32_t)(hold_of[0] != 0 && !is_killed[0]) + (hold_of[1] != 0 && !is_killed[1]), blocks = 0;

	tap_expect(n <= 1 && (n == 1 || is_dead()), "%u hold the one beyond", n);
	for (int i = 0; i < REGION_BLOCKS; i++)
		blocks += region.blocks[i].key != 0;
	tap_expect(blocks == 1, "%u blocks", blocks);
	for (int i = 0; i < 2; i++)
		if (hold_of[i] && !is_killed[i])
			bulkhead_release(&hold[i], hold_of[i], now);
	bulkhead_collect(&hold[1], 0, later);
	tap_expect(bulkhead_in_use(&region, 0) == BULKHEAD_OWN, "%u are taken", bulkhead_in_use(&region, 0));
	tap_expect(bulkhead_take(&hold[1], 0, &beyond, 0, later) != 0 &&
			   bulkhead_take(&hold[1], 0, &beyond, 0, later) == 0,
		"not one more");
}

/* Two destinations that both need the last block there is. */
static void one_block_is_left(void)
{
	own_are_taken();
	registry_find_or_add(&region, "b:1", "", now);
	fill_own(1);
	for (int i = 0; i < REGION_BLOCKS; i++)
		if (i != 7)
			region.blocks[i].key = (uint64_t)(1000 + i) << 16;
}

static void takes_the_last_block(int i)
{
	hold_of[i] = 0;
	hold_of[i] = bulkhead_take(&hold[i], (uint32_t)i, &beyond, 0, now);
}

static void one_has_the_block(void)
{
	uint32_t n = (uint32_t)(hold_of[0] != 0 && !is_killed[0]) + (hold_of[1] != 0 && !is_killed[1]);

	tap_expect(n <= 1 && (n == 1 || is_dead()), "%u have it", n);
	tap_expect(region.blocks[7].key != 0, "nobody's");
	for (uint32_t i = 0; i < 2; i++)
		tap_expect(bulkhead_in_use(&region, i) == BULKHEAD_OWN + (uint32_t)(hold_of[i] != 0 && !is_killed[i]) ||
				   (is_killed[i] && bulkhead_in_use(&region, i) == BULKHEAD_OWN + 1),
			"%u of %u are taken", bulkhead_in_use(&region, i), i);
}

/* ---- rejections (B11): counted in shards, a run of them told by one event and by its length ---- */

static void a_second_run(void)
{
	struct circuit_token t;

	open_circuit();
	for (int i = 0; i < 5; i++)
		circuit_admit(&hold[0], 0, &rules, now, &t);
	now += 1000 * NS_PER_MS;
	circuit_admit(&hold[0], 0, &rules, now, &t);
	circuit_settle(&hold[0], &t, &rules, BREAKER_FAILURE, FAILURE_RESET, true, now, 1);
}

static void a_run_of_two(void)
{
	struct event e;
	struct circuit_token t;
	uint64_t before = 5, rejected = region_rejected(first());
	unsigned told = 0, dead = 0;
	int64_t length = -1;

	for (int i = 0; i < count; i++)
		dead += is_killed[i];
	for (uint64_t seq = first_seq + 1; seq <= region.header->event_seq; seq++)
		told += events_read(&region, seq, &e) && e.type == EVENT_REJECTED;
	tap_expect(
		rejected <= before + 2 && rejected + dead >= before + 2, "%llu rejected", (unsigned long long)rejected);
	tap_expect(told <= 1 && told + dead >= 1, "%u events of a run", told);
	tap_expect(circuit_admit(&hold[1], 0, &rules, now + 4000 * NS_PER_MS, &t) == BREAKER_PROBE, "no probe");
	for (uint64_t seq = first_seq + 1; seq <= region.header->event_seq; seq++)
		if (events_read(&region, seq, &e) && e.type == EVENT_TRANSITION)
			length = e.value;
	tap_expect(length >= 0 && length <= (int64_t)(rejected - before) && length + (int)dead >= 1,
		"a run of %lld, of %llu", (long long)length, (unsigned long long)(rejected - before));
}

/* ---- in a destination's place (D4): each use counted, a run told once ---- */

static void degrades(int i)
{
	degraded_count(&hold[i], 0, DEGRADED_REPLY, "reply", "rejected");
}

static void a_success_to_come(void)
{
	registry_find_or_add(&region, "a:1", "", now);
	for (int i = 0; i < count; i++)
		admits(i);
}

static unsigned fallback_events(void)
{
	struct event e;
	unsigned n = 0;

	for (uint64_t seq = first_seq + 1; seq <= region.header->event_seq; seq++)
		n += events_read(&region, seq, &e) && e.type == EVENT_FALLBACK;
	return n;
}

static void told_once(void)
{
	unsigned dead = (unsigned)is_killed[0] + is_killed[1];

	tap_expect(
		first()->fallbacks[DEGRADED_REPLY] <= 2 && first()->fallbacks[DEGRADED_REPLY] + dead >= 2, "counted");
	tap_expect(fallback_events() <= 1 && fallback_events() + dead >= 1, "%u events", fallback_events());
}

static void told_once_a_run(void)
{
	tap_expect(first()->fallbacks[DEGRADED_REPLY] == 2, "counted");
	/* A success between the two, or before both or behind them. */
	tap_expect(fallback_events() == 1 || fallback_events() == 2, "%u events", fallback_events());
	tap_expect(
		degraded_now(&region, 0) == 0 || degraded_now(&region, 0) == 1u << DEGRADED_REPLY, "of another source");
}

/* ---- faults: rules as text, counts that number the calls ---- */

static int64_t number_of[THREADS];
static struct fault_count *count_of[THREADS];

static void no_faults(void)
{
	keep(region.faults, sizeof region.faults[0] * REGION_FAULTS);
	memset(number_of, 0, sizeof number_of);
}

static void one_place_left(void)
{
	no_faults();
	for (int i = 1; i < REGION_FAULTS; i++)
		faults_add(&hold[0], "latency x:1 delay=1ms", now, 0);
}

static void adds_fault(int i)
{
	char spec[REGION_FAULT_SPEC];

	number_of[i] = 0;
	memset(spec, 'a' + i, sizeof spec - 1);
	spec[sizeof spec - 1] = '\0';
	number_of[i] = faults_add(&hold[i], spec, now, 0);
}

/* Rules of ours in force, each whole. */
static unsigned faults_seen(void)
{
	struct faults_rule rule;
	unsigned n = 0;

	for (uint32_t at = 0; at < REGION_FAULTS; at++) {
		if (!faults_read(&region, at, now, &rule) || rule.spec[0] == 'l')
			continue;
		n++;
		tap_expect(
			strspn(rule.spec, (char[]){rule.spec[0], 0}) == REGION_FAULT_SPEC - 1, "a torn rule was read");
	}
	return n;
}

static void reads_faults(int i)
{
	(void)i;
	faults_seen();
}

static void removes_what_it_reads(int i)
{
	struct faults_rule rule;

	(void)i;
	for (uint32_t at = 0; at < 2; at++)
		if (faults_read(&region, at, now, &rule) && rule.spec[0] != 'l')
			tap_expect(faults_remove(&region, at, &rule) || is_dead(), "another has taken it out");
}

static void both_in_force(void)
{
	unsigned dead = (unsigned)is_killed[0] + is_killed[1];

	tap_expect(number_of[0] != number_of[1] || dead, "one number for two");
	tap_expect(faults_seen() + dead >= 2, "%u of two", faults_seen());
	/* A place that a dead one has claimed is anybody's a second later. */
	now += 2 * NS_PER_S;
	for (int i = (int)faults_seen(); dead && i < REGION_FAULTS; i++)
		tap_expect(faults_add(&hold[2], "latency x:1 delay=1ms", now, 0) > 0, "a place is lost");
	now -= 2 * NS_PER_S;
}

static void one_in_force(void)
{
	unsigned dead = is_killed[0];

	tap_expect(faults_seen() <= 1 && faults_seen() + dead >= 1, "%u in one place", faults_seen());
	tap_expect((number_of[0] > 0) + (number_of[1] > 0) + (int)dead >= 1, "nobody had it");
	tap_expect(dead || number_of[0] <= 0 || number_of[1] <= 0, "both had it");
}

static void in_force_or_out(void)
{
	tap_expect(faults_seen() <= 2, "%u rules", faults_seen());
}

static bool is_given_away;

static void no_counts(void)
{
	is_given_away = false;
	keep(region.fault_counts, sizeof region.fault_counts[0] * REGION_FAULT_COUNTS);
}

static void counts_full(void)
{
	char name[16];

	no_counts();
	is_given_away = true;
	for (int i = 0; i < REGION_FAULT_COUNTS; i++) {
		snprintf(name, sizeof name, "d%d:1", i);
		atomic_fetch_add(&faults_count(&hold[0], 7, "old", name, now - 1000 + i)->calls, 9);
	}
}

static void counts_call(int i)
{
	count_of[i] = NULL;
	struct fault_count *c = faults_count(&hold[i], 1, "refuse", "a:1", now);
	interleave_point();
	atomic_fetch_add(&c->calls, 1);
	count_of[i] = c;
}

static void numbered_once(void)
{
	unsigned places = 0;
	uint64_t calls = 0;
	struct fault_count *c = faults_count(&hold[2], 1, "refuse", "a:1", now);
	unsigned dead = (unsigned)is_killed[0] + is_killed[1];

	for (int i = 0; i < REGION_FAULT_COUNTS; i++)
		if (region.fault_counts[i].key == c->key) {
			places++;
			calls += region.fault_counts[i].calls;
		}
	tap_expect(places == 1, "%u places", places);
	/* One that is given away begins anew, and a call that comes between has a number that comes again (faults.h).
	 */
	tap_expect(calls + dead >= (is_given_away ? 1 : 2), "%llu calls numbered", (unsigned long long)calls);
	tap_expect(strcmp(c->fault, "refuse") == 0 && strcmp(c->destination, "a:1") == 0 && c->ready_key == c->key,
		"named %s %s", c->fault, c->destination);
}

/* ---- members ---- */

static void two_places(void)
{
	keep(region.members, sizeof region.members[0] * REGION_MEMBERS);
	keep(hold, sizeof hold);
	join_all();
}

static void leaves_and_joins(int i)
{
	hold[i].my_id = 0;
	hold[i].me = -1;
	member_join(&hold[i], getpid(), start_ticks, "interleave", now);
}

static void each_has_one(void)
{
	tap_expect(is_dead() || (hold[0].me >= 0 && hold[1].me >= 0 && hold[0].me != hold[1].me), "one record for two");
	for (int i = 0; i < 2; i++)
		tap_expect(is_killed[i] || region.members[hold[i].me].id == hold[i].my_id, "it is another's");
}

static void counts_two_calls(int i)
{
	(void)i; /* two threads of one process, and two destinations */
	member_count_elsewhere(&hold[0], 1, 1);
	member_count_elsewhere(&hold[0], 0, 1);
	member_count_elsewhere(&hold[0], 1, -1);
}

static void two_in_flight(void)
{
	tap_expect(member_calls_in_flight(&region, 0) == 2 && member_calls_in_flight(&region, 1) == 0,
		"%u and %u in flight", member_calls_in_flight(&region, 0), member_calls_in_flight(&region, 1));
}

static uint64_t dead_id;
static void one_died(void)
{
	registry_find_or_add(&region, "a:1", "", now);
	dead_id = region.members[hold[2].me].id;
	for (int i = 0; i < 3; i++)
		member_count_elsewhere(&hold[2], 0, 1);
}

static void reaps(int i)
{
	member_reap(&hold[i], (uint32_t)hold[2].me, dead_id);
}

static void reaped_once(void)
{
	tap_expect(first()->neutral <= 3 && (first()->neutral == 3 || is_dead()), "%llu neutral",
		(unsigned long long)first()->neutral);
	member_reap(&hold[1], (uint32_t)hold[2].me, dead_id);
	tap_expect(region.members[hold[2].me].id == 0, "the record is left");
}

/* ---- answers to look-ups ---- */

static void nothing_known(void)
{
	keep(region.known, sizeof region.known[0] * REGION_KNOWN);
}

static void stores(int i)
{
	struct addr a[3];

	memset(a, 0, sizeof a);
	for (int k = 0; k < 3; k++) {
		a[k].family = ADDR_INET;
		memset(a[k].ip, 0x20 + i, sizeof a[k].ip);
		a[k].ip[15] = (uint8_t)k;
	}
	known_store(&hold[i], "name.internal", AF_UNSPEC, a, 3, now);
}

static unsigned finds_known(void)
{
	struct addr a[REGION_KNOWN_ADDRESSES];
	int64_t age;
	unsigned n = known_find(&region, "name.internal", AF_UNSPEC, NS_PER_S, now, a, &age);

	tap_expect(n == 0 || n == 3, "%u of three addresses", n);
	for (unsigned k = 0; k < n; k++)
		tap_expect(a[k].ip[0] == a[0].ip[0] && a[k].ip[14] == a[0].ip[0] && a[k].ip[15] == k, "a torn answer");
	return n;
}

static void looks_known_up(int i)
{
	(void)i;
	finds_known();
}

static void one_answer(void)
{
	finds_known();
	/* Whatever two at once, or a dead one, have left: the next one is kept. */
	stores(2);
	tap_expect(finds_known() == 3, "it is not kept");
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
	{"one who waits, killed, and a slot given back", 2, 3, true, second_holds, {waits, gives_back},
		the_next_is_served},
	{"one who waits, who gives back, and the next", 3, 2, true, second_holds, {waits, gives_back, waits},
		the_next_is_served},
	{"two who wait for a dead one's slot", 2, 2, true, dead_holder, {waits, waits}, the_next_is_served},
	{"a shrunken limit and two who take it", 3, 2, true, shrunken, {takes_below, takes_below, frees_above},
		one_at_most},
	{"a slot beyond one's own and two who take it", 2, 1, true, own_are_taken, {takes_beyond, takes_beyond},
		one_is_beyond},
	{"the last block and two who need it", 2, 1, true, one_block_is_left,
		{takes_the_last_block, takes_the_last_block}, one_has_the_block},
	{"a dead one's slot and two who look", 2, 3, true, dead_holder, {takes_one, takes_one}, one_has_it},
	{"a rate of calls reached by two", 2, 3, true, two_rate_calls, {fails, fails}, rate_opened},
	{"a rate in time reached by two", 2, 2, true, timed_rate_calls, {fails, fails}, rate_opened},
	{"two are rejected", 2, 3, true, a_second_run, {admits, admits}, a_run_of_two},
	{"two are served from elsewhere", 2, 3, true, empty_circuit, {degrades, degrades}, told_once},
	{"two are served from elsewhere, and one is not", 3, 2, false, a_success_to_come,
		{degrades, degrades, succeeds}, told_once_a_run},
	{"two faults and one who reads", 3, 2, true, no_faults, {adds_fault, adds_fault, reads_faults}, both_in_force},
	{"two faults and one place", 2, 2, true, one_place_left, {adds_fault, adds_fault}, one_in_force},
	{"two faults and one who takes them out", 3, 2, false, no_faults,
		{adds_fault, adds_fault, removes_what_it_reads}, in_force_or_out},
	{"two count a fault", 2, 2, true, no_counts, {counts_call, counts_call}, numbered_once},
	{"two count a fault, with no place", 2, 1, false, counts_full, {counts_call, counts_call}, numbered_once},
	{"two join", 2, 3, true, two_places, {leaves_and_joins, leaves_and_joins}, each_has_one},
	{"two calls of one process", 2, 3, false, empty_circuit, {counts_two_calls, counts_two_calls}, two_in_flight},
	{"a dead member and two who find it", 2, 3, true, one_died, {reaps, reaps}, reaped_once},
	{"two answers and one who looks", 3, 2, true, nothing_known, {stores, stores, looks_known_up}, one_answer},
};

static unsigned long explore(
	const struct scenario *s, const struct circuit_token tokens[THREADS], int64_t began, int preemptions, bool once)
{
	unsigned long orders = 0;

	fixed = 0;
	do {
		begin_anew();
		memcpy(token, tokens, sizeof token);
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
	} while (tap_quiet_failed == 0 && !once && next_order(preemptions + more));
	return orders;
}

static void try(const struct scenario *s)
{
	unsigned long orders = 0;

	clean();
	count = s->threads;
	for (int i = 0; i < count; i++)
		body[i] = s->body[i];
	plain_rules = rules;
	s->prepare();
	begun();
	struct circuit_token begun_tokens[THREADS];
	memcpy(begun_tokens, token, sizeof token);
	int64_t began = now;
	kill_thread = kill_at = -1;
	orders += explore(s, begun_tokens, began, s->preemptions, false);
	for (int t = 0; s->kills && t < count - 1; t++) {
		/* How many operations it has where nobody comes between. */
		kill_thread = t;
		kill_at = INT32_MAX;
		explore(s, begun_tokens, began, 0, true);
		int longest = own_steps[t];
		for (kill_at = 0; kill_at < longest + 8 && tap_quiet_failed == 0; kill_at++)
			orders += explore(s, begun_tokens, began, 1, false);
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
		more = 1, argc--, argv++;
	for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
		if (argc < 2 || strstr(scenarios[i].name, argv[1]))
			try(&scenarios[i]);
	return tap_done();
}
