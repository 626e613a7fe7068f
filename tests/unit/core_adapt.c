/* The limit that follows latency (D3), against simulated servers: calls at once in, latency out. */
#include "core/adapt.h"

#include "core/bulkhead.h"
#include "tap.h"

#define CEILING 100

static uint32_t limit_at(uint64_t state)
{
	return adapt_limit(state, CEILING);
}

/* A server of so many workers, each call taking so long: what is beyond waits its turn. */
static uint64_t served(uint32_t workers, uint64_t us, uint32_t at_once)
{
	return at_once <= workers ? us : us * at_once / workers;
}

/* So many spans with as many calls at once as the limit lets in of `wanted`. */
static uint64_t run(uint64_t state, uint32_t spans, uint32_t workers, uint64_t us, uint32_t wanted)
{
	for (uint32_t i = 0; i < spans; i++) {
		uint32_t limit = limit_at(state), peak = wanted < limit ? wanted : limit;
		state = adapt_next(state, CEILING, adapt_clip_us(state, served(workers, us, peak)), peak);
	}
	return state;
}

static void test_bounds(void)
{
	static const uint32_t ceilings[] = {1, 2, 3, 10, 100, 1000, BULKHEAD_MAX};
	uint64_t x = 1;

	for (unsigned c = 0; c < sizeof ceilings / sizeof ceilings[0]; c++)
		for (uint64_t state = 0, i = 0; i < 20000; i++) {
			x = x * 6364136223846793005ull + 1442695040888963407ull;
			uint64_t before = state;
			uint32_t ceiling = ceilings[c], was = adapt_limit(before, ceiling);
			state = i % 1000 == 999
					? x
					: adapt_next(state, ceiling, x >> (x & 63), (uint32_t)(x >> 40) % ceiling + 1);
			uint32_t is = adapt_limit(state, ceiling);
			tap_expect(is >= 1 && is <= ceiling, "limit %u of %u", is, ceiling);
			bool is_damaged = i % 1000 == 999 || i % 1000 == 0;
			/* A tenth down and a fifth of the root up at the most, and what is rounded. */
			tap_expect(is_damaged || (is + 1 + was / 10 >= was && is <= was + 2 + was / 5), "from %u to %u",
				was, is);
		}
	tap_all("D3: never below 1 or above max_concurrent, and little moved by one span, whatever comes");
	tap_ok(adapt_limit(0, 20) == 20 && adapt_limit(0, 0) == 1, "nothing known: the ceiling");
	tap_ok(adapt_limit(adapt_next(0, 20, 1000, 20), 5) == 5, "a lower ceiling holds at once (B18)");
}

static void test_one_value(void)
{
	uint64_t usual = run(0, 100, CEILING, 10000, CEILING);
	uint32_t before = limit_at(usual);
	uint64_t unlucky = (9 * 10000 + adapt_clip_us(usual, 60000000)) / ADAPT_CALLS;
	uint64_t lucky = (9 * 10000 + adapt_clip_us(usual, 1)) / ADAPT_CALLS;

	tap_ok(limit_at(adapt_next(usual, CEILING, unlucky, CEILING)) == before,
		"D3: one call of a minute among ten of 10 ms moves the limit not at all");
	tap_ok(limit_at(adapt_next(usual, CEILING, lucky, CEILING)) == before, "nor does one of a microsecond");
}

static void test_load(void)
{
	uint64_t healthy = run(0, 200, CEILING, 10000, 50);
	tap_ok(limit_at(healthy) == CEILING, "a server with room for all: the ceiling (%u)", limit_at(healthy));
	/* Half of its workers go: what is let in queues there. */
	uint64_t loaded = run(healthy, 30, 20, 10000, CEILING);
	uint32_t limit = limit_at(loaded);
	tap_ok(limit < 60 && limit >= 10,
		"a server that has lost four fifths of its workers: from 100 to %u in 30 spans", limit);
	uint64_t again = run(loaded, 300, CEILING, 10000, CEILING);
	tap_ok(limit_at(again) >= 95, "they are back: %u", limit_at(again));
	uint64_t idle = run(loaded, 100, 20, 10000, 2);
	tap_ok(limit_at(idle) == limit, "two calls at once say nothing of how many would be too many");
	uint64_t dead = healthy;
	for (int i = 0; i < 10; i++)
		dead = adapt_next(dead, CEILING, adapt_clip_us(dead, 60000000), limit_at(dead));
	tap_ok(limit_at(dead) < CEILING * 2 / 3, "one that hangs: %u in ten spans", limit_at(dead));
}

static void test_growth(void)
{
	uint64_t state = run(run(0, 1, 20, 10000, CEILING), 0, 0, 0, 0);
	uint32_t last = limit_at(state), falls = 0;

	/* Learnt under load, what is slow counts as usual: nothing is taken from the app for it. */
	for (int i = 0; i < 50; i++) {
		state = run(state, 1, 20, 10000, CEILING);
		falls += limit_at(state) < last;
		last = limit_at(state);
	}
	tap_ok(last == CEILING && falls == 0, "met under load for the first time: left alone");
}

int main(void)
{
	test_bounds();
	test_one_value();
	test_load();
	test_growth();
	return tap_done();
}
