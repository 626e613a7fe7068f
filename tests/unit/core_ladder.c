/* How the wait of a circuit grows, and how it is halved back (B14): each reopening a rung up, each recovery_max of
 * health one down again, whatever the traffic meanwhile. On the circuit in its region, with a clock of our own. */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/circuit.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/registry.h"
#include "core_rules.h"
#include "tap.h"

static struct region region;
static int64_t now = 1000 * NS_PER_S;
static uint32_t at;

static void anew(void)
{
	region_close(&region);
	if (region_attach_private(&region, "ladder", 8) != 0)
		abort();
	member_join(&region, getpid(), identity_start_ticks(getpid(), NULL), "test", now);
	at = (uint32_t)registry_find_or_add(&region, "a:1", "", now);
}

static void later(long long ms)
{
	now += ms * NS_PER_MS;
}

static enum breaker_decision call(const struct breaker_rules *r, enum breaker_outcome outcome)
{
	struct circuit_token token;
	enum breaker_decision d = circuit_admit(&region, at, r, now, &token);

	circuit_settle(&region, &token, r, outcome, FAILURE_RESET, true, now, 1);
	return d;
}

static enum breaker_state state(void)
{
	return breaker_state(region.destinations[at].breaker);
}

static long long wait_ms(const struct breaker_rules *r)
{
	return breaker_retry_after_ms(region.destinations[at].breaker, r, now / NS_PER_MS);
}

/* Fails until it is open; the wait that it begins, which is seen to its end. */
static long long opens(const struct breaker_rules *r)
{
	for (int i = 0; i < 100 && state() == BREAKER_CLOSED; i++)
		call(r, BREAKER_FAILURE);
	long long wait = wait_ms(r);
	later(wait - 1);
	tap_expect(
		state() == BREAKER_OPEN && call(r, BREAKER_FAILURE) == BREAKER_REJECT, "%lld ms: over too soon", wait);
	later(1);
	return wait;
}

static long long reopens(const struct breaker_rules *r)
{
	tap_expect(call(r, BREAKER_FAILURE) == BREAKER_PROBE, "no probe is due");
	return opens(r);
}

static void closes(const struct breaker_rules *r)
{
	tap_expect(call(r, BREAKER_SUCCESS) == BREAKER_PROBE && state() == BREAKER_CLOSED, "it does not close");
}

/* Up to the top of it, and closed there. */
static void climb(const struct breaker_rules *r)
{
	anew();
	opens(r);
	for (int i = 0; i < 12; i++)
		reopens(r);
	closes(r);
}

/* What passes through it while it is well. */
enum traffic { IDLE, SUCCESSES, STREAKS, NEUTRAL_ONES, TRAFFICS };
static void be_well(const struct breaker_rules *r, long long ms, enum traffic traffic)
{
	static const long long apart[] = {0, 130, 700, 1900};
	long long until = ms, step = apart[traffic];

	for (; traffic != IDLE && until > step; until -= step) {
		later(step);
		if (traffic == STREAKS)
			call(r, BREAKER_FAILURE);
		call(r, traffic == NEUTRAL_ONES ? BREAKER_NEUTRAL : BREAKER_SUCCESS);
	}
	later(until);
	if (traffic != IDLE && traffic != NEUTRAL_ONES)
		call(r, BREAKER_SUCCESS);
}

static const struct breaker_rules doubling = RULES(2, 1, 1, 1000, 8000, 200, 0, 30000, false);

static void up(void)
{
	static const long long rungs[] = {1000, 2000, 4000, 8000, 8000, 8000};

	anew();
	for (int i = 0; i < 6; i++) {
		long long wait = i == 0 ? opens(&doubling) : reopens(&doubling);
		tap_expect(wait == rungs[i], "opening %d waits %lld ms, not %lld", i + 1, wait, rungs[i]);
	}
	tap_all("each failing probe doubles the wait, up to recovery_max (B14)");
}

static void down(void)
{
	static const struct {
		long long well_ms, wait_ms;
	} rungs[] = {{0, 8000}, {7999, 8000}, {8000, 4000}, {15999, 4000}, {16000, 2000}, {24000, 1000}, {32000, 1000},
		{36000000, 1000}};

	for (int traffic = 0; traffic < TRAFFICS; traffic++)
		for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
			if (traffic != IDLE && rungs[i].well_ms > 100000)
				continue;
			climb(&doubling);
			be_well(&doubling, rungs[i].well_ms, (enum traffic)traffic);
			long long wait = opens(&doubling);
			tap_expect(wait == rungs[i].wait_ms, "well for %lld ms (traffic %d) it waits %lld ms, not %lld",
				rungs[i].well_ms, traffic, wait, rungs[i].wait_ms);
		}
	tap_all("each whole recovery_max of health halves the wait, whatever passes meanwhile (B14)");
}

static void what_is_left(void)
{
	/* 12 s: one rung, and half of the next. */
	climb(&doubling);
	be_well(&doubling, 12000, SUCCESSES);
	be_well(&doubling, 4000, SUCCESSES);
	tap_expect(opens(&doubling) == 2000, "12 s and 4 s are not 16 s");

	/* Down one, up one, and again: from where it is. */
	climb(&doubling);
	be_well(&doubling, 16000, SUCCESSES);
	tap_expect(opens(&doubling) == 2000 && reopens(&doubling) == 4000, "up again from the rung it was on");
	closes(&doubling);
	be_well(&doubling, 8000, IDLE);
	tap_expect(opens(&doubling) == 2000, "and down again");

	/* Only health counts: 5 s, an opening, and 5 s are no 8 s. */
	climb(&doubling);
	be_well(&doubling, 5000, SUCCESSES);
	tap_expect(opens(&doubling) == 8000, "5 s of health");
	closes(&doubling);
	be_well(&doubling, 5000, SUCCESSES);
	tap_expect(opens(&doubling) == 8000, "time spent open, or before it, was taken for health");
	tap_all("a part of a recovery_max is kept while it is well, and lost with an opening (B14)");
}

static void other_ladders(void)
{
	/* backoff, recovery_max, and the waits after each recovery_max of health */
	static const struct {
		uint16_t backoff;
		uint32_t max;
		long long down[7];
	} ladders[] = {
		{200, 30000, {30000, 16000, 8000, 4000, 2000, 1000, 1000}}, /* the default: the cap is no rung */
		{150, 8000, {8000, 5062, 2250, 1000, 1000, 1000, 1000}},
		{1000, 8000, {8000, 1000, 1000, 1000, 1000, 1000, 1000}},
		{100, 8000, {1000, 1000, 1000, 1000, 1000, 1000, 1000}},
		{200, 1000, {1000, 1000, 1000, 1000, 1000, 1000, 1000}},
	};

	for (size_t l = 0; l < sizeof ladders / sizeof ladders[0]; l++)
		for (int i = 0; i < 7; i++) {
			struct breaker_rules r =
				RULES(1, 1, 1, 1000, ladders[l].max, ladders[l].backoff, 0, 30000, false);
			climb(&r);
			later(i * (long long)ladders[l].max);
			long long wait = opens(&r);
			tap_expect(wait == ladders[l].down[i],
				"backoff %u %%, %d times recovery_max: %lld ms, not %lld", r.backoff_percent, i, wait,
				ladders[l].down[i]);
		}
	tap_all("it goes down by the rungs that it came up by, to half or the next one, never below the first (B14)");
}

static void other_ways(void)
{
	struct breaker_rules by_rate = RULES(0, 1, 1, 1000, 8000, 200, 0, 30000, false);

	by_rate.window = 4;
	by_rate.minimum_calls = 4;
	by_rate.failure_rate_percent = 100;
	climb(&by_rate);
	later(8000);
	tap_expect(opens(&by_rate) == 4000, "opened by its rate");

	climb(&doubling);
	circuit_reset(&region, at, now);
	tap_expect(opens(&doubling) == 1000, "a reset");

	climb(&doubling);
	circuit_force(&region, at, BREAKER_FORCED_CLOSED, 0, now);
	circuit_force(&region, at, BREAKER_AUTO, 0, now);
	tap_expect(opens(&doubling) == 1000, "a mode set by hand");

	climb(&doubling);
	circuit_force(&region, at, BREAKER_OBSERVE, 0, now);
	later(8000);
	circuit_force(&region, at, BREAKER_AUTO, 0, now);
	tap_expect(opens(&doubling) == 4000, "observe, which sets nothing back");
	tap_all("the ladder of rates is the same; reset and forced modes begin it anew, observe does not (B14 B15)");
}

int main(void)
{
	up();
	down();
	what_is_left();
	other_ladders();
	other_ways();
	return tap_done();
}
