/* The two clocks. Elapsed time is always CLOCK_MONOTONIC (B1); wall time is only shown.
 * Both are vDSO reads: no system call, safe in a signal handler. */
#ifndef RESIL_BASE_CLOCK_H
#define RESIL_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL

static inline int64_t clock_now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static inline int64_t clock_wall_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

#endif
