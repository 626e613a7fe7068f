/* Latency histogram in shared memory: log-linear, 16 steps an octave (relative error under 3.2 %), from 1 us
 * to 70 minutes; recorded by one relaxed increment, from any process, and read without a lock. */
#ifndef RESIL_CORE_LATENCY_H
#define RESIL_CORE_LATENCY_H

#include <stdatomic.h>
#include <stdint.h>

#define LATENCY_BUCKETS 464

struct latency {
	_Atomic uint32_t count[LATENCY_BUCKETS];
	_Atomic uint64_t sum_us;
	_Atomic uint64_t max_us;
};

/* Of a value, up to which the largest one is to be raised. */
void latency_raise(struct latency *l, uint64_t us);

#define LATENCY_STEPS 16u
#define LATENCY_STEP_BITS 4u
/* Buckets: 0..15 us one each, then 16 to every octave of 16<<o .. 32<<o us. */
static inline uint32_t latency_bucket(uint64_t us)
{
	if (us < LATENCY_STEPS)
		return (uint32_t)us;
	if (us >> 32)
		return LATENCY_BUCKETS - 1;
	uint32_t octave = 63u - (uint32_t)__builtin_clzll(us) - LATENCY_STEP_BITS;
	return LATENCY_STEPS + octave * LATENCY_STEPS + ((uint32_t)(us >> octave) & (LATENCY_STEPS - 1));
}
static inline void latency_record(struct latency *l, int64_t ns)
{
	if (ns < 0)
		return;
	uint64_t us = (uint64_t)ns / 1000;
	atomic_fetch_add_explicit(&l->count[latency_bucket(us)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&l->sum_us, us, memory_order_relaxed);
	if (__builtin_expect(us > atomic_load_explicit(&l->max_us, memory_order_relaxed), 0))
		latency_raise(l, us);
}
/* The value below which `percent` (0..100, may be fractional in hundredths: 9990 = 99.9 %) of the records lie, in us; 0
 * when empty. */
uint64_t latency_quantile_us(const struct latency *l, uint32_t hundredths);
/* Records at or below `us`, for cumulative buckets. */
uint64_t latency_count_until(const struct latency *l, uint64_t us);
uint64_t latency_total(const struct latency *l);

#endif
