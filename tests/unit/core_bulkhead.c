/* Bulkheads in a shared region: slots, queue and what the dead leave, as stories; then processes that hammer one, and
 * are killed at random moments (D1, D2, D3, CD3, CD8). */
#include "core/bulkhead.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/circuit.h"
#include "core/events.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/registry.h"
#include "core_app.h"
#include "core_rules.h"
#include "tap.h"

#define MS NS_PER_MS
#define PROCESSES 8

static struct report {
	_Atomic int inside, inside_max, ready;
	_Atomic uint64_t calls, full, waits;
	_Atomic uint64_t last_ticket, out_of_order;
	_Atomic bool must_stop;
} * report;

static pid_t child(void (*body)(struct region *r, uint32_t at, const struct bulkhead_rules *rules), uint32_t at,
	const struct bulkhead_rules *rules)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct region r;
		attach(&r);
		body(&r, at, rules);
		member_leave(&r);
		_exit(0);
	}
	return pid;
}

/* ---- slots ---- */

static void test_slots(struct region *r)
{
	struct bulkhead_rules two = {.max = 2};
	uint32_t at = fresh(r, "slots:1");
	int64_t now = clock_now_ns();
	uint64_t a = bulkhead_take(r, at, &two, 0, now), b = bulkhead_take(r, at, &two, 0, now);

	tap_ok(a && b && a != b && bulkhead_in_use(r, at) == 2, "two of two");
	tap_ok(bulkhead_take(r, at, &two, 0, now) == 0, "the third finds it full");
	tap_ok(bulkhead_release(r, a, now) && bulkhead_in_use(r, at) == 1, "one is given back");
	uint64_t c = bulkhead_take(r, at, &two, 0, now);
	tap_ok(c && c != a, "and taken again, by another claim");
	tap_ok(!bulkhead_release(r, a, now) && bulkhead_in_use(r, at) == 2,
		"D1: given back a second time it frees nobody's");
	tap_ok(bulkhead_release(r, b, now) && bulkhead_release(r, c, now) && bulkhead_in_use(r, at) == 0,
		"all are free");
	tap_ok(!bulkhead_release(r, 0, now) && !bulkhead_release(r, UINT64_MAX - 1, now),
		"no hold, and nonsense, free none");
}

static void test_many(struct region *r)
{
	static uint64_t hold[BULKHEAD_MAX + 1];
	struct bulkhead_rules all = {.max = BULKHEAD_MAX}, ten = {.max = 10};
	uint32_t at = fresh(r, "many:1"), other = fresh(r, "many:2"), third = fresh(r, "many:3"), n = 0, m = 0, t = 0;
	int64_t now = clock_now_ns();

	while (n <= BULKHEAD_MAX && (hold[n] = bulkhead_take(r, at, &all, 0, now)) != 0)
		n++;
	tap_ok(n == BULKHEAD_MAX && bulkhead_in_use(r, at) == n, "the largest limit has room: %u", n);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = i + 1; k < n && k < i + 3; k++)
			tap_expect(hold[i] != hold[k], "%u and %u", i, k);
	tap_all("each claim is another");
	while (bulkhead_take(r, other, &all, 0, now))
		m++;
	while (bulkhead_take(r, third, &all, 0, now))
		t++;
	tap_ok(m == BULKHEAD_MAX && t == BULKHEAD_OWN, "a second such one too; a third has its own: %u, %u", m, t);
	tap_ok(bulkhead_take(r, at, &ten, 0, now) == 0, "B18: a shrunken limit lets nobody in before it is met");
	for (uint32_t i = 0; i < n - 10; i++)
		tap_expect(bulkhead_release(r, hold[i], now), "%u", i);
	tap_all("all but ten are given back, the lowest first");
	tap_ok(bulkhead_take(r, at, &ten, 0, now) == 0 && bulkhead_in_use(r, at) == 10,
		"ten above it are ten of ten, though the lowest are free");
	bulkhead_release(r, hold[n - 1], now);
	tap_ok(bulkhead_take(r, at, &ten, 0, now) != 0 && bulkhead_take(r, at, &ten, 0, now) == 0, "nine let one in");
	tap_ok(region_valid(r, NULL), "the region is as it should be");
}

static void test_no_record(struct region *r)
{
	struct bulkhead_rules one = {.max = 1};
	struct region stranger = *r;
	uint32_t at = fresh(r, "stranger:1");

	stranger.me = -1;
	tap_ok(bulkhead_take(&stranger, at, &one, 0, 1) == BULKHEAD_UNBOUNDED && bulkhead_in_use(r, at) == 0,
		"a process without a record goes on without a slot");
	tap_ok(!bulkhead_release(&stranger, BULKHEAD_UNBOUNDED, 1), "and gives none back");
}

/* ---- the dead ---- */

static void holds_two_and_a_place(struct region *r, uint32_t at, const struct bulkhead_rules *rules)
{
	struct bulkhead_place place;

	bulkhead_take(r, at, rules, 0, clock_now_ns());
	bulkhead_take(r, at, rules, 0, clock_now_ns());
	bulkhead_queue(r, at, clock_now_ns() + 100 * NS_PER_S, clock_now_ns(), &place);
	atomic_fetch_add(&report->ready, 1);
	pause();
}

static void test_dead(struct region *r)
{
	struct bulkhead_rules two = {.max = 2};
	uint32_t at = fresh(r, "dead:1");

	atomic_store(&report->ready, 0);
	pid_t pid = child(holds_two_and_a_place, at, &two);
	while (atomic_load(&report->ready) == 0)
		sched_yield();
	int64_t now = clock_now_ns();
	tap_ok(bulkhead_in_use(r, at) == 2 && bulkhead_waiting(r, at, now) == 1 &&
			bulkhead_take(r, at, &two, 0, now) == 0,
		"another process has both, and waits");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	now += 100 * MS;
	tap_ok(bulkhead_collect(r, at, now) == 3 && bulkhead_in_use(r, at) == 0 && bulkhead_waiting(r, at, now) == 0,
		"D1 CD8: killed, it has neither slots nor a place");
	tap_ok(r->destinations[at].bulkhead.reclaimed == 2, "two were taken back");
	uint64_t hold = bulkhead_take(r, at, &two, 0, now);
	tap_ok(hold && bulkhead_release(r, hold, now), "and serve the next");
	/* Nobody has looked: who finds it full does. */
	atomic_store(&report->ready, 0);
	pid = child(holds_two_and_a_place, at, &two);
	while (atomic_load(&report->ready) == 0)
		sched_yield();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	now = clock_now_ns() + 200 * MS;
	hold = bulkhead_take(r, at, &two, 0, now);
	tap_ok(hold != 0, "a call that finds it full looks whether the holders live");
	bulkhead_release(r, hold, now);
}

/* ---- the queue ---- */

static void test_queue(struct region *r)
{
	struct bulkhead_rules one = {.max = 1};
	struct bulkhead_place first, second;
	uint32_t at = fresh(r, "queue:1");
	int64_t now = clock_now_ns(), until = now + NS_PER_S;
	uint64_t hold = bulkhead_take(r, at, &one, 0, now);

	tap_ok(bulkhead_queue(r, at, until, now, &first) && bulkhead_queue(r, at, until, now, &second) &&
			first.ticket < second.ticket && bulkhead_waiting(r, at, now) == 2,
		"two places, in order");
	uint32_t rang = r->waiters[first.index].bell;
	bulkhead_release(r, hold, now);
	tap_ok(r->waiters[first.index].bell == rang + 1 && r->waiters[second.index].bell == second.bell,
		"a free slot rings for the first, and for nobody else");
	tap_ok(bulkhead_take(r, at, &one, 0, now) == 0, "D2: a newcomer passes it by");
	tap_ok(bulkhead_take(r, at, &one, second.ticket, now) == 0, "so does the second");
	hold = bulkhead_take(r, at, &one, first.ticket, now);
	tap_ok(hold != 0, "it is the first's");
	bulkhead_leave(r, at, &first, 5 * MS, now);
	tap_ok(r->waiters[second.index].bell == second.bell + 1, "who leaves rings for the next");
	tap_ok(bulkhead_take(r, at, &one, second.ticket, now) == 0, "which finds it full");
	bulkhead_leave(r, at, &second, -1, now);
	bulkhead_release(r, hold, now);
	tap_ok(bulkhead_waiting(r, at, now) == 0 && (hold = bulkhead_take(r, at, &one, 0, now)) != 0,
		"D2: who gave up leaves no trace");
	bulkhead_release(r, hold, now);
	tap_ok(r->destinations[at].bulkhead.waited[1] == 1 && r->destinations[at].bulkhead.waited_us == 5000,
		"a wait that was worth it is recorded, one in vain is not");

	/* One that is stopped, and one that a handler has jumped out of. */
	bulkhead_queue(r, at, now + 100 * NS_PER_S, now, &first);
	tap_ok(bulkhead_take(r, at, &one, 0, now + 900 * MS) == 0, "one that slept 0.9 s ago is minded");
	hold = bulkhead_take(r, at, &one, 0, now + NS_PER_S);
	tap_ok(hold != 0, "one that has shown no life for a second is not");
	bulkhead_release(r, hold, now);
	bulkhead_collect(r, at, now + 200 * NS_PER_S);
	tap_ok(r->waiters[first.index].word == 0, "and its place is free when its time is long over");
	bulkhead_queue(r, at, until, now, &second);
	tap_ok(second.index == first.index, "for another");
	bulkhead_leave(r, at, &first, -1, now);
	tap_ok(bulkhead_waiting(r, at, now) == 1, "which the first, come back, does not take from it");
	bulkhead_leave(r, at, &second, -1, now);
}

static void test_no_room(struct region *r)
{
	static struct bulkhead_place place[REGION_WAITERS];
	struct bulkhead_place more;
	uint32_t at = fresh(r, "room:1"), n = 0;
	int64_t now = clock_now_ns();

	while (n < REGION_WAITERS && bulkhead_queue(r, at, now + NS_PER_S, now, &place[n]))
		n++;
	tap_ok(n == REGION_WAITERS && !bulkhead_queue(r, at, now + NS_PER_S, now, &more),
		"%u wait; there is no room for more", n);
	for (uint32_t i = 0; i < n; i++)
		bulkhead_leave(r, at, &place[i], -1, now);
	tap_ok(bulkhead_waiting(r, at, now) == 0 && bulkhead_queue(r, at, now + NS_PER_S, now, &more), "all have left");
	bulkhead_leave(r, at, &more, -1, now);
}

static void test_rejections(struct region *r)
{
	uint32_t at = fresh(r, "rejections:1");
	struct circuit_view view;
	struct event e;
	uint64_t seq = r->header->event_seq;
	int64_t now = clock_now_ns();

	for (int i = 0; i < 3; i++)
		bulkhead_rejected(r, at, now);
	tap_ok(r->header->event_seq == seq + 1 && events_read(r, seq + 1, &e) && e.type == EVENT_REJECTED &&
			strcmp(e.reason, "bulkhead full") == 0 && events_run_length(r, &e) == 1,
		"three rejections are told once");
	bulkhead_rejected(r, at, now + 10 * NS_PER_S);
	tap_ok(events_read(r, seq + 2, &e) && events_run_length(r, &e) == 3,
		"and ten seconds later how many there were");
	circuit_view(r, at, now, &view);
	tap_ok(view.bulkhead_rejected == 4 && view.rejected == 4 && view.failure == 0,
		"counted as rejected, and no failure");
}

/* ---- adaptive ---- */

static void test_adaptive(struct region *r)
{
	struct bulkhead_rules rules = {.max = 50, .is_adaptive = true};
	uint32_t at = fresh(r, "adaptive:1");
	int64_t now = clock_now_ns();

	tap_ok(bulkhead_limit(r, at, &rules) == 50, "nothing known: the ceiling");
	for (int span = 0; span < 60; span++, now += 100 * MS)
		for (int i = 0; i < 20; i++) {
			uint64_t hold[50];
			uint32_t n = 0, limit = bulkhead_limit(r, at, &rules);
			while (n < 50 && (hold[n] = bulkhead_take(r, at, &rules, 0, now)))
				n++;
			tap_expect(n == limit, "%u of %u", n, limit);
			for (uint32_t k = 0; k < n; k++) {
				bulkhead_learn(r, at, &rules, span < 20 ? 10 * MS : n > 10 ? n * MS * 4 : 10 * MS, now);
				bulkhead_release(r, hold[k], now);
			}
		}
	tap_all("at each moment as many as the limit says");
	uint32_t limit = bulkhead_limit(r, at, &rules);
	tap_ok(limit >= 1 && limit < 40, "D3: a server that queues behind ten gets fewer: %u", limit);
}

/* ---- processes ---- */

static void hammers(struct region *r, uint32_t at, const struct bulkhead_rules *rules)
{
	uint64_t x = (uint64_t)getpid();

	while (!atomic_load(&report->must_stop)) {
		uint64_t hold = bulkhead_take(r, at, rules, 0, clock_now_ns());
		if (hold == 0) {
			atomic_fetch_add(&report->full, 1);
			sched_yield();
			continue;
		}
		int now = atomic_fetch_add(&report->inside, 1) + 1, max = atomic_load(&report->inside_max);
		while (now > max && !atomic_compare_exchange_weak(&report->inside_max, &max, now))
			;
		x = x * 6364136223846793005ull + 1;
		if (x >> 62 == 0)
			sched_yield();
		atomic_fetch_sub(&report->inside, 1);
		atomic_fetch_add(&report->calls, 1);
		bulkhead_release(r, hold, clock_now_ns());
	}
}

static void waits_and_calls(struct region *r, uint32_t at, const struct bulkhead_rules *rules)
{
	while (!atomic_load(&report->must_stop)) {
		struct bulkhead_place place;
		int64_t now = clock_now_ns(), until = now + 60 * NS_PER_S;
		uint64_t hold = 0;
		if (!bulkhead_queue(r, at, until, now, &place))
			_exit(1);
		uint64_t ticket = place.ticket;
		while (!(hold = bulkhead_take(r, at, rules, place.ticket, now)) && now < until) {
			bulkhead_sleep(r, &place, until, now);
			now = clock_now_ns();
		}
		if (hold == 0)
			_exit(2);
		/* With one slot: who has it saw nobody with a smaller ticket, so they go up. */
		int inside = atomic_fetch_add(&report->inside, 1);
		if (inside > 0)
			atomic_store(&report->inside_max, inside + 1);
		uint64_t last = atomic_exchange(&report->last_ticket, ticket);
		atomic_fetch_add(&report->out_of_order, last > ticket);
		bulkhead_leave(r, at, &place, 0, now);
		atomic_fetch_sub(&report->inside, 1);
		atomic_fetch_add(&report->calls, 1);
		bulkhead_release(r, hold, clock_now_ns());
	}
}

static void clear_report(void)
{
	memset(report, 0, sizeof *report);
}

static int wait_all(const pid_t *pids, int n)
{
	int good = 0, status;

	for (int i = 0; i < n; i++)
		good += waitpid(pids[i], &status, 0) == pids[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	return good;
}

static void test_hammer(struct region *r)
{
	struct bulkhead_rules three = {.max = 3};
	uint32_t at = fresh(r, "hammer:1");
	pid_t pids[PROCESSES];

	clear_report();
	for (int i = 0; i < PROCESSES; i++)
		pids[i] = child(hammers, at, &three);
	while (atomic_load(&report->calls) < 20000)
		usleep(1000);
	atomic_store(&report->must_stop, true);
	int good = wait_all(pids, PROCESSES);
	tap_ok(good == PROCESSES && report->inside_max <= 3 && report->full > 0,
		"D1: eight processes, never more than three at once (%d; %llu calls, %llu found it full)",
		report->inside_max, (unsigned long long)report->calls, (unsigned long long)report->full);
	tap_ok(bulkhead_in_use(r, at) == 0, "and all is free after them");
}

static void test_order(struct region *r)
{
	struct bulkhead_rules one = {.max = 1};
	uint32_t at = fresh(r, "order:1");
	pid_t pids[PROCESSES];
	int64_t began = clock_now_ns();

	clear_report();
	for (int i = 0; i < PROCESSES; i++)
		pids[i] = child(waits_and_calls, at, &one);
	while (atomic_load(&report->calls) < 2000 && clock_now_ns() - began < 60 * NS_PER_S)
		usleep(1000);
	atomic_store(&report->must_stop, true);
	int good = wait_all(pids, PROCESSES);
	tap_ok(good == PROCESSES && report->inside_max == 0, "eight wait for one slot: none in vain, never two inside");
	/* A ticket is drawn a moment before it is in the queue: there the next may pass it. */
	tap_ok(report->out_of_order * 20 <= report->calls,
		"D2: in order of arrival (%llu of %llu were passed in that moment)",
		(unsigned long long)report->out_of_order, (unsigned long long)report->calls);
	tap_ok(bulkhead_waiting(r, at, clock_now_ns()) == 0 && bulkhead_in_use(r, at) == 0, "and nobody is left");
}

static void takes_and_waits(struct region *r, uint32_t at, const struct bulkhead_rules *rules)
{
	atomic_fetch_add(&report->ready, 1);
	for (;;) {
		struct bulkhead_place place;
		int64_t now = clock_now_ns();
		uint64_t hold = bulkhead_take(r, at, rules, 0, now);
		if (hold == 0 && bulkhead_queue(r, at, now + NS_PER_S, now, &place)) {
			bulkhead_sleep(r, &place, now + NS_PER_S, now);
			hold = bulkhead_take(r, at, rules, place.ticket, clock_now_ns());
			bulkhead_leave(r, at, &place, -1, clock_now_ns());
		}
		if (hold) {
			atomic_fetch_add(&report->calls, 1);
			bulkhead_release(r, hold, clock_now_ns());
		}
	}
}

static void test_killed(struct region *r)
{
	struct bulkhead_rules three = {.max = 3};
	uint32_t at = fresh(r, "killed:1");
	uint64_t x = 1;

	clear_report();
	pid_t pids[PROCESSES];
	for (int i = 0; i < PROCESSES; i++)
		pids[i] = child(takes_and_waits, at, &three);
	for (int i = 0; i < 150; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		usleep((useconds_t)(x >> 32) % 2000);
		kill(pids[i % PROCESSES], SIGKILL);
		waitpid(pids[i % PROCESSES], NULL, 0);
		pids[i % PROCESSES] = child(takes_and_waits, at, &three);
	}
	for (int i = 0; i < PROCESSES; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	tap_ok(report->calls > 0, "158 kills at random moments (%llu calls)", (unsigned long long)report->calls);
	int64_t now = clock_now_ns() + 100 * MS;
	bulkhead_collect(r, at, now);
	uint64_t hold[3];
	for (int i = 0; i < 3; i++)
		hold[i] = bulkhead_take(r, at, &three, 0, now);
	tap_ok(hold[0] && hold[1] && hold[2] && bulkhead_take(r, at, &three, 0, now) == 0 &&
			bulkhead_waiting(r, at, now) == 0,
		"D1: the capacity is whole, and nobody waits");
	for (int i = 0; i < 3; i++)
		bulkhead_release(r, hold[i], now);
	char why_at[200] = "";
	struct text why = TEXT_ON(why_at);
	tap_ok(region_valid(r, &why), "the region is as it should be %s", why_at);
	int left = 0;
	for (int i = 0; i < REGION_WAITERS; i++)
		left += r->waiters[i].word != 0;
	tap_ok(left == 0, "no place is left taken (%d)", left);
}

/* ---- with the circuit ---- */

static void test_probe_given_back(struct region *r)
{
	static const struct breaker_rules rules = RULES(1, 1, 1, 1000, 30000, 200, 0, 30000, false);
	uint32_t at = fresh(r, "probe:1");
	struct circuit_token token, other;
	int64_t now = clock_now_ns();

	circuit_admit(r, at, &rules, now, &token);
	circuit_settle(r, &token, &rules, BREAKER_FAILURE, FAILURE_RESET, true, now, 1);
	now += 1000 * MS;
	tap_ok(circuit_admit(r, at, &rules, now, &token) == BREAKER_PROBE && lease_in_flight(r, at) == 1, "a probe");
	circuit_withdraw(r, &token);
	circuit_withdraw(r, &token);
	struct circuit_view view;
	circuit_view(r, at, now, &view);
	tap_ok(lease_in_flight(r, at) == 0 && view.in_flight == 0 && view.neutral == 0 &&
			view.state == BREAKER_HALF_OPEN,
		"CB13: stopped by the bulkhead it gives its lease back, and no verdict");
	tap_ok(circuit_admit(r, at, &rules, now, &other) == BREAKER_PROBE, "the next call probes");
	circuit_settle(r, &other, &rules, BREAKER_SUCCESS, 0, true, now, 1);
	tap_ok(breaker_state(r->destinations[at].breaker) == BREAKER_CLOSED, "and closes it");
}

static void test_eviction(struct region *r)
{
	struct bulkhead_rules one = {.max = 1};
	char name[32];
	int at = registry_find_or_add(r, "kept:1", "", 1), i;
	int64_t now = clock_now_ns();
	uint64_t hold = bulkhead_take(r, (uint32_t)at, &one, 0, now);

	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "other:%d", i);
		registry_find_or_add(r, name, "", now + i);
	}
	tap_ok(registry_find(r, "kept:1") == at, "a destination with a slot in use gives its place to none");
	bulkhead_release(r, hold, now);
	for (; i < 80; i++) {
		snprintf(name, sizeof name, "other:%d", i);
		registry_find_or_add(r, name, "", now + i);
	}
	tap_ok(registry_find(r, "kept:1") < 0, "afterwards it does");
}

static void in_a_region_of_its_own(void (*test)(struct region *r))
{
	struct region r;

	unlink(path);
	attach(&r);
	test(&r);
	member_leave(&r);
	region_close(&r);
}

int main(void)
{
	snprintf(dir, sizeof dir, "/dev/shm/resil-test-%d", (int)getpid());
	if (identity_make_dir(dir) != 0)
		return 1;
	snprintf(path, sizeof path, "%s/%s", dir, FILE_NAME);
	report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED)
		return 1;
	static void (*const tests[])(struct region * r) = {test_slots, test_many, test_no_record, test_dead, test_queue,
		test_no_room, test_rejections, test_adaptive, test_hammer, test_order, test_killed,
		test_probe_given_back, test_eviction};
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
		in_a_region_of_its_own(tests[i]);
	unlink(path);
	rmdir(dir);
	return tap_done();
}
