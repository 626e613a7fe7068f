/* Circuits in a shared region: the rules as stories with a clock of the test's own, then processes and threads that
 * hammer, and holders killed at random moments (A3, A14, B2-B7, B11, B12, B15, B16, B18, B19). */
#include <pthread.h>
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
#include "core/lease.h"
#include "core/member.h"
#include "core/region.h"
#include "core/registry.h"
#include "core_app.h"
#include "core_rules.h"
#include "tap.h"

#define MS NS_PER_MS

static struct report {
	_Atomic int ready;
	_Atomic int in_probe, in_probe_max;
	_Atomic uint64_t probes, calls, rejected, stale;
	_Atomic uint64_t events[3][3];
	_Atomic uint64_t holding; /* the child's steps, for the killer */
} * report;

static const struct breaker_rules plain = RULES(5, 1, 1, 1000, 30000, 200, 0, 30000, false);

/* One call from admission to verdict. */
static enum breaker_decision call(
	struct region *r, uint32_t at, const struct breaker_rules *rules, enum breaker_outcome outcome, int64_t now)
{
	struct circuit_token token;
	enum breaker_decision d = circuit_admit(r, at, rules, now, &token);

	circuit_settle(r, &token, rules, outcome, FAILURE_REFUSED, true, now, 1000);
	return d;
}

static uint64_t count_events(const struct region *r, enum event_type type, const char *destination)
{
	uint64_t oldest, newest, n = 0;
	struct event e;

	events_range(r, &oldest, &newest);
	for (uint64_t seq = oldest; seq <= newest; seq++)
		n += events_read(r, seq, &e) && e.type == type && strcmp(e.destination, destination) == 0;
	return n;
}

static struct circuit_view *look(const struct region *r, uint32_t at, int64_t now)
{
	static struct circuit_view view;

	circuit_view(r, at, now, &view);
	return &view;
}

/* ---- stories ---- */

static void opening(struct region *r)
{
	uint32_t at = fresh(r, "dead:1");
	int64_t now = 100000 * MS;

	for (int i = 0; i < 5; i++)
		tap_expect(call(r, at, &plain, BREAKER_FAILURE, now) == BREAKER_ADMIT, "call %d passes", i);
	for (int i = 0; i < 10; i++)
		tap_expect(call(r, at, &plain, BREAKER_FAILURE, now) == BREAKER_REJECT, "call %d is rejected", i);
	tap_all("five failures open it, the sixth call is rejected");
	struct circuit_view *v = look(r, at, now);
	tap_ok(v->state == BREAKER_OPEN && v->failure == 5 && v->kinds[FAILURE_REFUSED] == 5 && v->rejected == 10 &&
			v->success + v->neutral == 0 && v->opened_total == 1 && v->transitions[0][2] == 1 &&
			v->in_flight == 0 && v->retry_after_ms == 1000,
		"counted: 5 failures, 10 rejections (B11)");
	tap_ok(v->has_last && strcmp(v->last_reason, "5 consecutive failures (last: refused)") == 0, "reason: %s",
		v->last_reason);
	tap_ok(v->recent.calls == 0, "B9: the window restarts");
	tap_ok(count_events(r, EVENT_TRANSITION, "dead:1") == 1 && count_events(r, EVENT_REJECTED, "dead:1") == 1,
		"one transition event, one for the run of rejections");
	tap_ok(look(r, at, now + 5000 * MS)->retry_after_ms == 0 && look(r, at, now)->state == BREAKER_OPEN,
		"B16: time up says 0, also with no traffic");
	struct circuit_token probe, other;
	now += 1000 * MS;
	tap_ok(circuit_admit(r, at, &plain, now, &probe) == BREAKER_PROBE && probe.lease == 0,
		"B5: the call that moves it to half-open is a probe");
	tap_ok(circuit_admit(r, at, &plain, now, &other) == BREAKER_REJECT && !other.is_admitted,
		"B6: no free slot: rejected at once");
	v = look(r, at, now);
	tap_ok(v->state == BREAKER_HALF_OPEN && v->probes_in_flight == 1 && v->probes_max == 1 && v->in_flight == 1,
		"one probe in flight");
	uint64_t seq = r->header->event_seq;
	struct event e;
	tap_ok(events_read(r, seq - 1, &e) && e.type == EVENT_TRANSITION && e.value == 10 && e.to == BREAKER_HALF_OPEN,
		"its event tells the length of the run");
	circuit_settle(r, &probe, &plain, BREAKER_NEUTRAL, FAILURE_REFUSED, true, now, -1);
	tap_ok(look(r, at, now)->state == BREAKER_HALF_OPEN && look(r, at, now)->probes_in_flight == 0,
		"B7: a neutral probe leaves half-open and frees its slot");
	tap_ok(call(r, at, &plain, BREAKER_FAILURE, now) == BREAKER_PROBE && look(r, at, now)->state == BREAKER_OPEN &&
			look(r, at, now)->retry_after_ms == 2000 &&
			strcmp(look(r, at, now)->last_reason, "probe failed (refused)") == 0,
		"a failed probe reopens, for longer");
	now += 2000 * MS;
	tap_ok(call(r, at, &plain, BREAKER_SUCCESS, now) == BREAKER_PROBE &&
			look(r, at, now)->state == BREAKER_CLOSED &&
			strcmp(look(r, at, now)->last_reason, "probe succeeded") == 0,
		"a probe that succeeds closes");
	v = look(r, at, now);
	tap_ok(v->probe_results[PROBE_SUCCESS] == 1 && v->probe_results[PROBE_FAILURE] == 1 &&
			v->probe_results[PROBE_NEUTRAL] == 1,
		"probes are counted by result");
	tap_ok(count_events(r, EVENT_TRANSITION, "dead:1") == 5, "five transitions, five events");
}

static void stale(struct region *r)
{
	uint32_t at = fresh(r, "stale:1");
	int64_t now = 200000 * MS;
	struct circuit_token early, late, probe;

	circuit_admit(r, at, &plain, now, &early);
	circuit_admit(r, at, &plain, now, &late);
	for (int i = 0; i < 5; i++)
		call(r, at, &plain, BREAKER_FAILURE, now);
	circuit_settle(r, &early, &plain, BREAKER_SUCCESS, FAILURE_REFUSED, true, now, -1);
	struct circuit_view *v = look(r, at, now);
	tap_ok(v->state == BREAKER_OPEN && v->stale == 1 && v->success == 1,
		"B2: a late success while open does not close it, and is counted as stale");
	now += 1000 * MS;
	circuit_admit(r, at, &plain, now, &probe);
	circuit_settle(r, &late, &plain, BREAKER_FAILURE, FAILURE_REFUSED, true, now, -1);
	v = look(r, at, now);
	tap_ok(v->state == BREAKER_HALF_OPEN && v->stale == 2 && v->probes_in_flight == 1,
		"B2, B3: a late failure neither reopens it nor frees a slot");
	circuit_settle(r, &late, &plain, BREAKER_FAILURE, FAILURE_REFUSED, true, now, -1);
	tap_ok(look(r, at, now)->stale == 2, "a token is settled once");
	circuit_settle(r, &probe, &plain, BREAKER_SUCCESS, FAILURE_REFUSED, true, now, 7000000);
	v = look(r, at, now);
	tap_ok(v->state == BREAKER_CLOSED && v->p99_us > 6700 && v->p99_us <= 7000 && v->max_us == 7000 &&
			v->p50_us == 1,
		"its probe closes it; latency is kept");
}

static void expiry(struct region *r)
{
	uint32_t at = fresh(r, "expiry:1");
	struct breaker_rules rules = plain;
	int64_t now = clock_now_ns();
	struct circuit_token hung, again;

	rules.failure_threshold = 1;
	rules.probe_timeout_ms = 500;
	call(r, at, &rules, BREAKER_FAILURE, now);
	now += 1000 * MS;
	circuit_admit(r, at, &rules, now, &hung);
	tap_ok(circuit_admit(r, at, &rules, now + 450 * MS, &again) == BREAKER_REJECT &&
			look(r, at, now)->state == BREAKER_HALF_OPEN,
		"a probe may take its time");
	tap_ok(circuit_admit(r, at, &rules, now + 700 * MS, &again) == BREAKER_REJECT &&
			look(r, at, now + 700 * MS)->state == BREAKER_OPEN,
		"B7: no verdict by probe_timeout: failed");
	struct circuit_view *v = look(r, at, now + 700 * MS);
	tap_ok(v->probe_results[PROBE_EXPIRED] == 1 && v->kinds[FAILURE_PROBE_TIMEOUT] == 1 && v->failure == 2 &&
			v->probes_in_flight == 0 && strcmp(v->last_reason, "probe failed (probe_timeout)") == 0,
		"counted as expired (%s)", v->last_reason);
	now += 3000 * MS;
	tap_ok(circuit_admit(r, at, &rules, now, &again) == BREAKER_PROBE, "and probed again when it is time");
	circuit_settle(r, &hung, &rules, BREAKER_SUCCESS, FAILURE_REFUSED, true, now, -1);
	v = look(r, at, now);
	tap_ok(v->state == BREAKER_HALF_OPEN && v->stale == 1 && v->success == 0 && v->probes_in_flight == 1,
		"A1, B3: its late verdict is none, and frees no slot but its own");
	circuit_settle(r, &again, &rules, BREAKER_SUCCESS, FAILURE_REFUSED, true, now, -1);

	call(r, at, &rules, BREAKER_FAILURE, now);
	rules.probe_timeout_ms = 30000;
	now = clock_now_ns() + 10 * NS_PER_S;
	tap_expect(circuit_admit(r, at, &rules, now, &hung) == BREAKER_PROBE, "a probe");
	circuit_note(r, &hung, LEASE_PENDING); /* stamps with the real clock: ten seconds before this story's */
	circuit_note(r, &hung, LEASE_BUSY);
	tap_expect(circuit_admit(r, at, &rules, now + 200 * MS, &again) == BREAKER_REJECT &&
			   look(r, at, now)->state == BREAKER_HALF_OPEN,
		"a further attempt was made: not judged");
	circuit_settle(r, &hung, &rules, BREAKER_SUCCESS, FAILURE_REFUSED, true, now, -1);
	call(r, at, &rules, BREAKER_FAILURE, now);
	now = clock_now_ns();
	circuit_reset(r, at, now);
	call(r, at, &rules, BREAKER_FAILURE, now - 2000 * MS);
	tap_expect(circuit_admit(r, at, &rules, now, &hung) == BREAKER_PROBE, "a probe");
	circuit_note(r, &hung, LEASE_PENDING);
	tap_expect(circuit_admit(r, at, &rules, now + 500 * MS, &again) == BREAKER_REJECT &&
			   look(r, at, now)->state == BREAKER_HALF_OPEN,
		"half a second: waits");
	tap_expect(circuit_admit(r, at, &rules, now + 1300 * MS, &again) == BREAKER_REJECT &&
			   look(r, at, now)->state == BREAKER_OPEN,
		"over a second: failed");
	circuit_settle(r, &hung, &rules, BREAKER_SUCCESS, FAILURE_REFUSED, true, now, -1);
	tap_all("A3: a probe without a further attempt within a second has failed, by whoever looks");
}

static void modes(struct region *r)
{
	uint32_t at = fresh(r, "modes:1");
	int64_t now = 300000 * MS;
	struct circuit_token token;

	circuit_force(r, at, BREAKER_FORCED_OPEN, 60000, now);
	tap_ok(call(r, at, &plain, BREAKER_SUCCESS, now + 59999 * MS) == BREAKER_REJECT &&
			look(r, at, now)->mode == BREAKER_FORCED_OPEN && look(r, at, now)->retry_after_ms == 60000,
		"B15: forced open for a minute rejects");
	tap_ok(look(r, at, now + 60000 * MS)->mode == BREAKER_AUTO &&
			call(r, at, &plain, BREAKER_SUCCESS, now + 60000 * MS) == BREAKER_PROBE &&
			look(r, at, now)->state == BREAKER_CLOSED,
		"B15: after it the next call probes");
	circuit_force(r, at, BREAKER_FORCED_CLOSED, 0, now);
	for (int i = 0; i < 20; i++)
		tap_expect(call(r, at, &plain, BREAKER_FAILURE, now + i * 100000000 * MS) == BREAKER_ADMIT,
			"forced closed passes all");
	tap_all("B15: forced closed holds until auto, whatever fails");
	circuit_force(r, at, BREAKER_AUTO, 0, now);
	tap_ok(look(r, at, now)->state == BREAKER_CLOSED && look(r, at, now)->consecutive_failures == 0,
		"auto after it starts closed");
	circuit_force(r, at, BREAKER_OBSERVE, 0, now);
	for (int i = 0; i < 8; i++)
		tap_expect(call(r, at, &plain, BREAKER_FAILURE, now) == BREAKER_ADMIT, "observed: call %d passes", i);
	struct circuit_view *v = look(r, at, now);
	tap_expect(v->state == BREAKER_OPEN && v->would_reject == 3 && v->rejected == 1,
		"observed: %d would have been rejected", (int)v->would_reject);
	tap_expect(circuit_admit(r, at, &plain, now + 1000 * MS, &token) == BREAKER_PROBE,
		"observed: a probe when the wait is over");
	tap_expect(call(r, at, &plain, BREAKER_FAILURE, now + 1000 * MS) == BREAKER_ADMIT &&
			   look(r, at, now)->state == BREAKER_HALF_OPEN,
		"beside it others pass");
	circuit_settle(r, &token, &plain, BREAKER_SUCCESS, FAILURE_REFUSED, true, now + 1000 * MS, -1);
	tap_expect(look(r, at, now)->state == BREAKER_CLOSED && look(r, at, now)->would_reject == 4, "and it closes");
	tap_all("B15: observe decides and counts, and rejects nobody");
	circuit_force(r, at, BREAKER_AUTO, 0, now);
	for (int i = 0; i < 5; i++)
		call(r, at, &plain, BREAKER_FAILURE, now);
	tap_ok(look(r, at, now)->state == BREAKER_OPEN, "open again");
	circuit_reset(r, at, now);
	tap_ok(call(r, at, &plain, BREAKER_SUCCESS, now) == BREAKER_ADMIT &&
			strcmp(look(r, at, now)->last_reason, "reset by hand") == 0,
		"reset by hand closes");
}

static void others(struct region *r)
{
	uint32_t at = fresh(r, "others:1");
	int64_t now = 400000 * MS;
	struct circuit_token token;

	for (int i = 0; i < 9; i++) {
		circuit_admit(r, at, &plain, now, &token);
		circuit_settle(r, &token, &plain, BREAKER_FAILURE, FAILURE_HTTP_5XX, false, now, -1);
	}
	struct circuit_view *v = look(r, at, now);
	tap_ok(v->state == BREAKER_CLOSED && v->consecutive_failures == 0 && v->kinds[FAILURE_HTTP_5XX] == 9 &&
			v->recent.calls == 0,
		"A14: a kind not in trip_on is counted, and neutral to streak and rate");
	for (int i = 0; i < 5; i++)
		call(r, at, &plain, BREAKER_FAILURE, now);
	int64_t later = now + (int64_t)(1ll << 27) * MS - 500 * MS;
	tap_ok(look(r, at, later)->retry_after_ms == 0 && circuit_admit(r, at, &plain, later, &token) == BREAKER_PROBE,
		"B16: unused until its tick has come round, it is due all the same");
	circuit_settle(r, &token, &plain, BREAKER_SUCCESS, FAILURE_REFUSED, true, later, -1);
	token.is_admitted = true;
	tap_ok(circuit_admit(r, 8, &plain, now, &token) == BREAKER_ADMIT && !token.is_admitted,
		"E10: an index out of range passes");

	uint32_t left = fresh(r, "left:1");
	struct breaker_rules first = plain;
	first.failure_threshold = 1;
	call(r, left, &first, BREAKER_FAILURE, now);
	tap_expect(circuit_admit(r, left, &first, now + 1000 * MS, &token) == BREAKER_PROBE, "a probe");
	tap_expect(circuit_admit(r, left, &first, now + 1000 * MS, &token) == BREAKER_REJECT, "its slot is taken");
	int32_t me = r->me;
	member_leave(r);
	member_join(r, getpid(), identity_start_ticks(getpid(), NULL), "again", now);
	tap_expect(r->me == me, "the same record, claimed anew");
	tap_expect(circuit_admit(r, left, &first, now + 1200 * MS, &token) == BREAKER_PROBE &&
			   look(r, left, now)->probe_results[PROBE_OWNER_DIED] == 1,
		"the slot of the claim before is free");
	circuit_settle(r, &token, &first, BREAKER_SUCCESS, FAILURE_REFUSED, true, now + 1200 * MS, -1);
	tap_all("B7: a holder that left without a verdict holds nothing, though its record is in use again");

	struct breaker_rules many = plain;
	many.half_open_max_calls = 3;
	many.success_threshold = 3;
	many.failure_threshold = 1;
	call(r, at, &many, BREAKER_FAILURE, later);
	struct circuit_token t[4];
	int64_t due = later + 1000 * MS;
	int probes = 0;
	for (int i = 0; i < 4; i++)
		probes += circuit_admit(r, at, &many, due, &t[i]) == BREAKER_PROBE;
	tap_ok(probes == 3 && look(r, at, due)->probes_in_flight == 3,
		"B5: three probes of three, the fourth rejected");
	for (int i = 0; i < 3; i++)
		circuit_settle(r, &t[i], &many, BREAKER_SUCCESS, FAILURE_REFUSED, true, due, -1);
	tap_ok(look(r, at, due)->state == BREAKER_CLOSED &&
			strcmp(look(r, at, due)->last_reason, "3 probes succeeded") == 0,
		"success_threshold probes close it");
}

static uint32_t wait_with_seed(struct region *r, uint32_t at, uint64_t seed, int64_t now)
{
	struct breaker_rules rules = plain;

	rules.failure_threshold = 1;
	rules.jitter_percent = 100;
	rules.recovery_ms = 10000;
	circuit_set_seed(seed);
	r->destinations[at].breaker = breaker_new();
	call(r, at, &rules, BREAKER_FAILURE, now);
	return look(r, at, now)->retry_after_ms;
}

static void seeds(struct region *r)
{
	uint32_t at = fresh(r, "seed:1"), a = wait_with_seed(r, at, 1, 1000 * MS),
		 b = wait_with_seed(r, at, 1, 2000 * MS), c = wait_with_seed(r, at, 2, 1000 * MS);

	tap_ok(a == b && a != c, "the same seed makes the same jitter (%u, %u), another one another (%u)", a, b, c);
}

/* ---- hammering ---- */

static const struct breaker_rules hammered = RULES(2, 2, 3, 2, 6, 200, 50, 1000, false);

static void note_event(const struct event *e)
{
	if (e->type == EVENT_TRANSITION)
		report->events[e->from][e->to]++;
}

static void hammer(struct region *r, uint32_t at, uint64_t x, int64_t until)
{
	struct circuit_token token;

	for (int64_t now; (now = clock_now_ns()) < until;) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		enum breaker_decision d = circuit_admit(r, at, &hammered, now, &token);
		if (d == BREAKER_REJECT) {
			report->rejected++;
			continue;
		}
		report->calls++;
		if (d == BREAKER_PROBE) {
			int n = ++report->in_probe, max = report->in_probe_max;
			while (n > max && !atomic_compare_exchange_weak(&report->in_probe_max, &max, n))
				;
			report->probes++;
			if (x >> 60 == 0)
				usleep(300);
			report->in_probe--;
		}
		unsigned dice = (unsigned)(x >> 40) % 10;
		circuit_settle(r, &token, &hammered,
			dice < 5   ? BREAKER_FAILURE
			: dice < 9 ? BREAKER_SUCCESS
				   : BREAKER_NEUTRAL,
			FAILURE_RESET, true, clock_now_ns(), 1000);
	}
}

static void judge(struct region *r, uint32_t at, const char *who)
{
	struct destination *d = &r->destinations[at];
	uint64_t(*t)[3] = look(r, at, clock_now_ns())->transitions;
	uint64_t all = 0;

	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 3; k++) {
			tap_expect(t[i][k] == report->events[i][k], "%d to %d: %llu transitions, %llu events", i, k,
				(unsigned long long)t[i][k], (unsigned long long)report->events[i][k]);
			all += t[i][k];
		}
	tap_expect(all > 30, "only %llu transitions", (unsigned long long)all);
	tap_expect((all & 65535) == breaker_generation(d->breaker), "each has its generation: %llu, %u",
		(unsigned long long)all, breaker_generation(d->breaker));
	tap_expect(d->opened_total == t[0][2] + t[1][2], "opened_total");
	int state = (int)breaker_state(d->breaker);
	tap_expect(t[0][2] - t[1][0] == (state != BREAKER_CLOSED), "closed is left as often as it is entered");
	tap_expect(t[0][2] + t[1][2] - t[2][1] == (state == BREAKER_OPEN), "and so is open");
	tap_expect(t[0][1] + t[2][0] == 0, "no transition that does not exist");
	printf("# %s: %llu transitions, %llu probes, %llu calls, %llu rejected, %llu stale\n", who,
		(unsigned long long)all, (unsigned long long)report->probes, (unsigned long long)report->calls,
		(unsigned long long)report->rejected, (unsigned long long)d->stale);
	tap_all("B4: exactly one event a transition, with its generation");
	tap_ok(report->in_probe_max <= 3 && report->in_probe_max > 1,
		"B5: never more than half_open_max_calls probes at once (%d of 3)", report->in_probe_max);
	tap_ok(d->success + d->failure + d->neutral == report->calls && region_rejected(d) == report->rejected,
		"every call is counted once");
	tap_ok(lease_in_flight(r, at) == 0 && member_calls_in_flight(r, at) == 0 && region_valid(r, NULL),
		"nothing is left in flight");
}

static void hammer_by_processes(struct region *r)
{
	uint32_t at = fresh(r, "hammer:1");
	int64_t until = clock_now_ns() + 1500 * MS;
	int good = 0, status;

	memset(report, 0, sizeof *report);
	events_set_listener(note_event);
	for (int i = 0; i < 8; i++)
		if (fork() == 0) {
			struct region mine;
			attach(&mine);
			hammer(&mine, at, (uint64_t)i + 1, until);
			member_leave(&mine);
			_exit(0);
		}
	for (int i = 0; i < 8; i++)
		good += wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	events_set_listener(NULL);
	tap_ok(good == 8, "eight processes hammer one circuit");
	judge(r, at, "processes");
}

struct thread {
	struct region *r;
	uint32_t at;
	int64_t until;
	uint64_t seed;
};

static void *hammer_thread(void *arg)
{
	struct thread *t = arg;

	hammer(t->r, t->at, t->seed, t->until);
	return NULL;
}

static void hammer_by_threads(struct region *r)
{
	pthread_t id[4];
	struct thread t[4];
	uint32_t at = fresh(r, "threads:1");

	memset(report, 0, sizeof *report);
	events_set_listener(note_event);
	for (int i = 0; i < 4; i++) {
		t[i] = (struct thread){r, at, clock_now_ns() + 700 * MS, (uint64_t)i + 77};
		pthread_create(&id[i], NULL, hammer_thread, &t[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(id[i], NULL);
	events_set_listener(NULL);
	judge(r, at, "threads");
}

/* ---- killed holders ---- */

/* Probes without end, and is killed somewhere in it: mostly while it holds the slot, sometimes while it takes or frees
 * it. */
static void hold(uint32_t at, const struct breaker_rules *rules, int round)
{
	struct region mine;
	struct circuit_token token;

	attach(&mine);
	for (;;) {
		enum breaker_decision d = circuit_admit(&mine, at, rules, clock_now_ns(), &token);
		if (d == BREAKER_PROBE) {
			report->holding++;
			if (round % 3 == 0)
				for (;;)
					pause();
		}
		circuit_settle(&mine, &token, rules, BREAKER_NEUTRAL, FAILURE_REFUSED, true, clock_now_ns(), -1);
	}
}

static void kill_holders(struct region *r)
{
	uint32_t at = fresh(r, "killed:1");
	struct breaker_rules rules = RULES(1, 1, 1, 1, 1, 100, 0, 30000, false);
	int64_t worst = 0;
	uint64_t held = 0;

	srandom(1);
	for (int round = 0; round < 40; round++) {
		struct circuit_token token;
		circuit_reset(r, at, clock_now_ns());
		call(r, at, &rules, BREAKER_FAILURE, clock_now_ns() - 10 * MS);
		report->holding = 0;
		pid_t pid = fork();
		if (pid == 0)
			hold(at, &rules, round);
		while (report->holding == 0)
			sched_yield();
		usleep((unsigned)random() % 2000);
		kill(pid, SIGKILL);
		int64_t killed = clock_now_ns(), now = killed;
		held += lease_in_flight(r, at);
		enum breaker_decision d;
		do {
			now = clock_now_ns();
			d = circuit_admit(r, at, &rules, now, &token);
			if (d == BREAKER_REJECT)
				usleep(2000);
		} while (d != BREAKER_PROBE && now - killed < 3 * NS_PER_S);
		worst = now - killed > worst ? now - killed : worst;
		tap_expect(d == BREAKER_PROBE && now - killed < NS_PER_S, "round %d: %lld ms", round,
			(long long)((now - killed) / MS));
		circuit_settle(r, &token, &rules, BREAKER_SUCCESS, FAILURE_REFUSED, true, now, -1);
		tap_expect(look(r, at, now)->state == BREAKER_CLOSED && lease_in_flight(r, at) == 0,
			"round %d: the probe closes it", round);
		/* Not until now: a zombie holds nothing. */
		waitpid(pid, NULL, 0);
	}
	printf("# slots held at death: %llu of 40; freed by reaping: %llu; slowest %lld ms\n", (unsigned long long)held,
		(unsigned long long)r->destinations[at].probe_results[PROBE_OWNER_DIED], (long long)(worst / MS));
	tap_expect(r->destinations[at].probe_results[PROBE_OWNER_DIED] >= held / 2 && held >= 13,
		"the test met held slots");
	tap_all("B7: a holder killed at any moment: probed again within a second");
}

/* ---- between processes ---- */

static void between_processes(struct region *r)
{
	uint32_t at = fresh(r, "between:1");
	int64_t now = clock_now_ns();
	int status;

	for (int i = 0; i < 5; i++)
		call(r, at, &plain, BREAKER_FAILURE, now);
	pid_t pid = fork();
	if (pid == 0) {
		struct region mine;
		attach(&mine);
		int mine_at = registry_find(&mine, "between:1");
		_exit(mine_at >= 0 && call(&mine, (uint32_t)mine_at, &plain, BREAKER_SUCCESS, clock_now_ns()) ==
						BREAKER_REJECT
				? 0
				: 1);
	}
	waitpid(pid, &status, 0);
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		"B18, B19: a new process meets the open circuit at its first call");
	tap_ok(look(r, at, now)->state == BREAKER_OPEN && look(r, at, now)->rejected == 1, "and has reset nothing");
}

/* A process without a member record: the table is full, or a filter forbids to ask who we are. Alone it must find the
 * way back too. */
/* Workers forked ahead: siblings must not wait for each other's lines, nor for their parent's. */
static void lines_of_workers(struct region *r)
{
	uint32_t at = fresh(r, "workers:1");
	pid_t worker[REGION_SHARDS];
	int lines = 0;

	report->ready = 0;
	circuit_force(r, at, BREAKER_FORCED_OPEN, 0, clock_now_ns());
	pid_t pid = getpid();
	circuit_forked();
	for (int i = 1; i < REGION_SHARDS; i++) {
		worker[i] = fork();
		if (worker[i] == 0) {
			circuit_forked();
			member_join(r, pid + i, 1, "worker", clock_now_ns());
			call(r, at, &plain, BREAKER_SUCCESS, clock_now_ns());
			report->ready = i;
			pause(); /* a record of the dead is given to the next one */
		}
		while (report->ready != i)
			sched_yield();
	}
	call(r, at, &plain, BREAKER_SUCCESS, clock_now_ns());
	for (int i = 1; i < REGION_SHARDS; i++) {
		kill(worker[i], SIGKILL);
		waitpid(worker[i], NULL, 0);
	}
	for (int i = 0; i < REGION_SHARDS; i++)
		lines += r->destinations[at].shard[i].rejected == 1;
	tap_ok(lines == REGION_SHARDS, "a program and its %d workers count their rejections in %d lines",
		REGION_SHARDS - 1, lines);
}

static void without_record(struct region *r)
{
	uint32_t at = fresh(r, "nobody:1");
	struct region nobody = *r;
	int64_t now = 50 * NS_PER_S;

	nobody.me = -1;
	nobody.my_id = 0;
	for (int i = 0; i < 5; i++)
		call(&nobody, at, &plain, BREAKER_FAILURE, now);
	tap_ok(call(&nobody, at, &plain, BREAKER_SUCCESS, now) == BREAKER_REJECT,
		"open for those without a record too");
	now += 2 * NS_PER_S;
	tap_ok(call(&nobody, at, &plain, BREAKER_FAILURE, now) == BREAKER_PROBE,
		"B5: one of them probes when the wait is over");
	tap_ok(call(&nobody, at, &plain, BREAKER_SUCCESS, now) == BREAKER_REJECT, "its failure opens again");
	now += 5 * NS_PER_S;
	struct circuit_token held;
	tap_ok(circuit_admit(r, at, &plain, now, &held) == BREAKER_PROBE, "a member probes with a lease");
	tap_ok(call(&nobody, at, &plain, BREAKER_SUCCESS, now) == BREAKER_REJECT,
		"B5: beside a lease nobody probes without one");
	circuit_settle(r, &held, &plain, BREAKER_NEUTRAL, FAILURE_REFUSED, true, now, -1);
	tap_ok(call(&nobody, at, &plain, BREAKER_SUCCESS, now) == BREAKER_PROBE,
		"in half-open it probes where no lease is held");
	struct circuit_view v;
	circuit_view(r, at, now, &v);
	tap_ok(v.state == BREAKER_CLOSED, "and its success closes");
}

/* A probe's verdict and the end of its time at the same moment: one of them is its verdict (A1, B7). Needs two probes
 * to close, or the first verdict would move the generation and make the second stale anyway. */
static struct region *race_region;
static pthread_barrier_t race_start, race_end;
static uint32_t race_at;
static struct circuit_token race_token;
static int64_t race_now;
static const struct breaker_rules race_rules = RULES(1, 2, 1, 1000, 1000, 100, 0, 1000, false);
#define RACES 20000

static void *race_collector(void *unused)
{
	for (int i = 0; i < RACES; i++) {
		struct circuit_token other;

		pthread_barrier_wait(&race_start);
		circuit_admit(race_region, race_at, &race_rules, race_now, &other);
		circuit_settle(race_region, &other, &race_rules, BREAKER_NEUTRAL, 0, true, race_now, -1);
		pthread_barrier_wait(&race_end);
	}
	return unused;
}

static void race_at_probe_timeout(struct region *r)
{
	pthread_t thread;
	unsigned long both = 0, settled = 0, expired = 0;

	race_region = r;
	race_at = fresh(r, "race.test:1");
	struct destination *d = &r->destinations[race_at];
	pthread_barrier_init(&race_start, NULL, 2);
	pthread_barrier_init(&race_end, NULL, 2);
	pthread_create(&thread, NULL, race_collector, NULL);
	int64_t now = 1000 * NS_PER_S;
	for (int i = 0; i < RACES; i++) {
		circuit_reset(race_region, race_at, now);
		struct circuit_token first;
		circuit_admit(race_region, race_at, &race_rules, now, &first);
		circuit_settle(race_region, &first, &race_rules, BREAKER_FAILURE, FAILURE_REFUSED, true, now, -1);
		now += 2 * NS_PER_S;
		if (circuit_admit(race_region, race_at, &race_rules, now, &race_token) != BREAKER_PROBE)
			tap_expect(false, "no probe in round %d", i);
		uint64_t success = d->success, timeouts = d->kinds[FAILURE_PROBE_TIMEOUT];
		race_now = now += 2 * NS_PER_S;
		pthread_barrier_wait(&race_start);
		circuit_settle(race_region, &race_token, &race_rules, BREAKER_SUCCESS, 0, true, race_now, -1);
		pthread_barrier_wait(&race_end);
		uint64_t gained = d->success - success, failed = d->kinds[FAILURE_PROBE_TIMEOUT] - timeouts;
		both += gained + failed != 1;
		settled += gained;
		expired += failed;
		now += 2 * NS_PER_S;
	}
	pthread_join(thread, NULL);
	tap_ok(both == 0,
		"a verdict at the very end of probe_timeout: one of the two, %d times (A1 B7; in time %lu, late %lu, "
		"both or none %lu)",
		RACES, settled, expired, both);
}

/* The short roads do what the long ones do, or nothing. */
static bool both_same(struct region *r, uint32_t a, uint32_t b, int64_t now)
{
	struct circuit_view one = *look(r, a, now), *two = look(r, b, now);

	memcpy(one.name, two->name, sizeof one.name);
	return memcmp(&one, two, sizeof one) == 0;
}

static void short_roads(struct region *r)
{
	uint32_t a = fresh(r, "long:1"), b = fresh(r, "short:1");
	struct destination *d = &r->destinations[b];
	int64_t now = 100000 * MS;
	struct circuit_token token;
	uint16_t generation = 0xffff;

	circuit_keep_rules(r, b, &plain);
	tap_ok(circuit_admit(r, a, &plain, now, &token) == BREAKER_ADMIT &&
			circuit_admit_plain(r, b, now, &generation) && generation == token.generation &&
			both_same(r, a, b, now) && look(r, b, now)->in_flight == 1,
		"a call is admitted by the short road as by the long one");
	circuit_settle(r, &token, &plain, BREAKER_NEUTRAL, 0, true, now, -1);
	tap_ok(circuit_settle_plain(r, b, d->life, generation) && both_same(r, a, b, now) &&
			look(r, b, now)->in_flight == 0 && look(r, b, now)->neutral == 1,
		"and ends neutral");
	tap_ok(!circuit_settle_plain(r, b, d->life + 1, generation) && both_same(r, a, b, now),
		"not where the place is another destination's by now (B17)");
	tap_ok(!circuit_settle_plain(r, b, d->life, (uint16_t)(generation + 1)) && both_same(r, a, b, now),
		"nor of another generation (B2)");
	call(r, a, &plain, BREAKER_FAILURE, now);
	call(r, b, &plain, BREAKER_FAILURE, now);
	tap_ok(!circuit_settle_plain(r, b, d->life, generation) && both_same(r, a, b, now),
		"nor where a streak goes on: the long road leaves it (B12)");
	for (int i = 0; i < 4; i++) {
		call(r, a, &plain, BREAKER_FAILURE, now);
		call(r, b, &plain, BREAKER_FAILURE, now);
	}
	tap_ok(!circuit_admit_plain(r, b, now, &generation) && look(r, b, now)->state == BREAKER_OPEN &&
			look(r, b, now)->in_flight == 0,
		"nobody is admitted while it is open");
	call(r, b, &plain, BREAKER_FAILURE, now);
	now += 1000 * MS;
	tap_ok(!circuit_admit_plain(r, b, now, &generation) && look(r, b, now)->state == BREAKER_OPEN,
		"nor when its time is up: that is a probe's (B5)");
	circuit_reset(r, b, now);
	tap_ok(look(r, b, now)->state == BREAKER_CLOSED && d->run != 0 && !circuit_admit_plain(r, b, now, &generation),
		"nor while a run of rejections has not ended");
	call(r, b, &plain, BREAKER_NEUTRAL, now);
	tap_ok(d->run == 0 && circuit_admit_plain(r, b, now, &generation) &&
			circuit_settle_plain(r, b, d->life, generation),
		"the long road has ended it");
	circuit_force(r, b, BREAKER_FORCED_CLOSED, 0, now);
	tap_ok(!circuit_admit_plain(r, b, now, &generation) && look(r, b, now)->in_flight == 0,
		"nor in a mode set by hand (B15)");
}

int main(void)
{
	struct region r;
	void (*const stories[])(struct region *) = {opening, stale, expiry, modes, others, seeds, without_record,
		short_roads, lines_of_workers, between_processes, hammer_by_processes, hammer_by_threads,
		race_at_probe_timeout, kill_holders};

	report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(dir, sizeof dir, "%s/resil-circuit-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (report == MAP_FAILED || !mkdtemp(dir))
		abort();
	snprintf(path, sizeof path, "%s/" FILE_NAME, dir);
	for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
		/* Each in a region of its own: eight destinations and 512 events are soon full. */
		unlink(path);
		attach(&r);
		stories[i](&r);
		tap_ok(region_valid(&r, NULL), "the region is valid");
		member_leave(&r);
		region_close(&r);
	}
	unlink(path);
	rmdir(dir);
	return tap_done();
}
