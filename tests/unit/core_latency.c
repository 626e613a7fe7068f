/* Quantiles of the latency histogram within 5 % (core/latency.h), against a sorted copy of the same values. */
#include <string.h>

#include "core/latency.h"
#include "tap.h"

#define N 20000

static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool is_near(uint64_t got, uint64_t truth)
{
	uint64_t off = got > truth ? got - truth : truth - got;

	return off * 100 <= truth * 5 || off <= 1;
}

/* Values of one kind: even, exponential-like over many octaves, or a few far outliers. */
static uint64_t value(int kind)
{
	if (kind == 0)
		return next_random() % 100000;
	if (kind == 1)
		return (1 + next_random() % 1000) << (next_random() % 22);
	return next_random() % 100 == 0 ? 4000000 + next_random() % 1000000 : 200 + next_random() % 50;
}

static void against_sorted(int kind, const char *name)
{
	static struct latency l;
	static uint64_t v[N];
	static const uint32_t at[] = {1, 100, 1000, 2500, 5000, 7500, 9000, 9500, 9900, 9990, 9999};

	memset(&l, 0, sizeof l);
	for (int i = 0; i < N; i++) {
		v[i] = value(kind);
		latency_record(&l, (int64_t)v[i] * 1000 + (int64_t)(next_random() % 1000));
	}
	qsort(v, N, sizeof v[0], by_value);
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
		uint64_t rank = ((uint64_t)N * at[i] + 9999) / 10000;
		uint64_t got = latency_quantile_us(&l, at[i]);
		tap_expect(is_near(got, v[rank - 1]), "%s: quantile %u is %llu, not %llu", name, at[i],
			(unsigned long long)got, (unsigned long long)v[rank - 1]);
	}
	tap_expect(latency_quantile_us(&l, 10000) == v[N - 1], "the maximum is exact");
	tap_expect(latency_total(&l) == N, "all are counted");
	for (uint64_t bound = 1; bound < 1u << 31; bound *= 3) {
		uint64_t truth = 0, low = 0;
		for (int i = 0; i < N; i++) {
			truth += v[i] <= bound;
			low += v[i] <= bound - bound / 15;
		}
		uint64_t got = latency_count_until(&l, bound);
		tap_expect(got <= truth && got >= low, "%llu at or below %llu, not %llu..%llu", (unsigned long long)got,
			(unsigned long long)bound, (unsigned long long)low, (unsigned long long)truth);
	}
	tap_all(name);
}

/* What is shown, over eight decades: p50, p90, p99 and the largest of records around each value from 1 us to 100 s, and
 * of all decades at once. No slack of a microsecond. */
static void as_promised(void)
{
	static struct latency l;
	static uint64_t v[2000];
	static const uint32_t shown[] = {5000, 9000, 9900, 10000};
	const int n = (int)(sizeof v / sizeof v[0]);

	for (uint64_t base = 1; base <= 100000000; base = base < 40 ? base + 1 : base + base / 7) {
		for (int spread = 0; spread < 3; spread++) {
			memset(&l, 0, sizeof l);
			for (int i = 0; i < n; i++) {
				/* around the value; up to three times it; anywhere from 1 us to it */
				uint64_t us = spread == 0   ? base + next_random() % (base / 50 + 1)
					      : spread == 1 ? base + next_random() % (2 * base + 1)
							    : 1 + (base >> next_random() % 27) % base;
				v[i] = us > 100000000 ? 100000000 : us;
				latency_record(&l, (int64_t)v[i] * 1000);
			}
			qsort(v, (size_t)n, sizeof v[0], by_value);
			for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
				uint64_t truth = v[((uint64_t)n * shown[i] + 9999) / 10000 - 1];
				uint64_t got = latency_quantile_us(&l, shown[i]),
					 off = got > truth ? got - truth : truth - got;
				tap_expect(off * 20 < truth, "quantile %u of about %llu us is shown as %llu, not %llu",
					shown[i], (unsigned long long)base, (unsigned long long)got,
					(unsigned long long)truth);
			}
		}
	}
	tap_all("p50, p90, p99 and the largest from 1 us to 100 s: under 5 % off");
}

/* One record: every quantile is that value, within half a bucket. */
static void single_values(void)
{
	static struct latency l;

	for (uint64_t us = 0; us < 1ull << 32; us = us < 5000 ? us + 1 : us + us / 37) {
		memset(&l, 0, sizeof l);
		latency_record(&l, (int64_t)us * 1000 + 999);
		uint64_t got = latency_quantile_us(&l, 5000), off = got > us ? got - us : us - got;
		tap_expect(off * 32 <= us, "%llu is shown as %llu", (unsigned long long)us, (unsigned long long)got);
	}
	tap_all("a single value is shown within 1/32");
}

static void edges(void)
{
	static struct latency l;

	tap_ok(latency_quantile_us(&l, 5000) == 0 && latency_total(&l) == 0, "empty: 0");
	latency_record(&l, -1);
	tap_ok(latency_total(&l) == 0, "negative: not recorded");
	latency_record(&l, INT64_MAX);
	tap_ok(latency_total(&l) == 1 && latency_quantile_us(&l, 10000) == (uint64_t)INT64_MAX / 1000,
		"the largest is kept in the last bucket");
	tap_ok(latency_count_until(&l, UINT64_MAX) == 0, "the last bucket has no upper bound");
	memset(&l, 0xff, sizeof l);
	latency_record(&l, 5000);
	latency_quantile_us(&l, 9999);
	latency_count_until(&l, UINT64_MAX);
	tap_ok(latency_total(&l) > 0, "E10: any bytes can be read");
}

int main(void)
{
	against_sorted(0, "even values within 5 %");
	against_sorted(1, "values over 32 octaves within 5 %");
	against_sorted(2, "rare outliers within 5 %");
	as_promised();
	single_values();
	edges();
	return tap_done();
}
