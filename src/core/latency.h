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

void latency_record(struct latency *l, int64_t ns);
/* The value below which `percent` (0..100, may be fractional in hundredths: 9990 = 99.9 %) of the records lie, in us; 0
 * when empty. */
uint64_t latency_quantile_us(const struct latency *l, uint32_t hundredths);
/* Records at or below `us`, for cumulative buckets. */
uint64_t latency_count_until(const struct latency *l, uint64_t us);
uint64_t latency_total(const struct latency *l);

#endif
