/* See latency.h. Any thread of any process; relaxed increments only.
 *
 * A quantile is the middle of its bucket, so it is off by half a bucket's width at most: 1/32. */
#include "core/latency.h"

#define STEPS LATENCY_STEPS

_Static_assert(LATENCY_BUCKETS == STEPS + 28 * STEPS, "16 single microseconds and 28 octaves reach 2^32 us");

/* Smallest value of a bucket; that of the bucket after the last is 2^32. */
static uint64_t bucket_start(uint32_t bucket)
{
	if (bucket < STEPS)
		return bucket;
	uint32_t octave = (bucket - STEPS) / STEPS;
	return (uint64_t)(STEPS + (bucket & (STEPS - 1))) << octave;
}

static uint64_t count_at(const struct latency *l, uint32_t bucket)
{
	return atomic_load_explicit(&l->count[bucket], memory_order_relaxed);
}

void latency_raise(struct latency *l, uint64_t us)
{
	uint64_t max = atomic_load_explicit(&l->max_us, memory_order_relaxed);
	while (us > max && !atomic_compare_exchange_weak_explicit(
				   &l->max_us, &max, us, memory_order_relaxed, memory_order_relaxed))
		;
}

uint64_t latency_total(const struct latency *l)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < LATENCY_BUCKETS; i++)
		total += count_at(l, i);
	return total;
}

uint64_t latency_quantile_us(const struct latency *l, uint32_t hundredths)
{
	uint64_t total = latency_total(l), max = atomic_load_explicit(&l->max_us, memory_order_relaxed), seen = 0;

	if (total == 0)
		return 0;
	if (hundredths >= 10000)
		return max;
	/* The rank from 1, rounded up: the median of one record is that record. total is under 2^32 * 464: no overflow.
	 */
	uint64_t rank = (total * hundredths + 9999) / 10000;
	if (rank == 0)
		rank = 1;
	for (uint32_t i = 0; i < LATENCY_BUCKETS; i++) {
		seen += count_at(l, i);
		if (seen < rank)
			continue;
		uint64_t middle = (bucket_start(i) + bucket_start(i + 1) - 1) / 2;
		return middle < max ? middle : max;
	}
	return max; /* others recorded or reset it meanwhile */
}

uint64_t latency_count_until(const struct latency *l, uint64_t us)
{
	uint64_t n = 0;

	/* A bucket belongs below a bound when all of it does, but for the last: that one has no end. */
	for (uint32_t i = 0; i < LATENCY_BUCKETS - 1 && bucket_start(i + 1) - 1 <= us; i++)
		n += count_at(l, i);
	return n;
}
