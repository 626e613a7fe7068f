/* A limit of calls at once that follows latency (`adaptive`), as a pure function: no clock, no memory, no atomics here.
 * The rule is Gradient2's of Netflix's concurrency-limits, which is TCP Vegas' thought with an average in the place of
 * the least round trip: while calls take as long as they usually do, the limit grows by its square root; once they take
 * longer than half as much again, what is over is queueing, and the limit shrinks by that ratio. Both only by a fifth
 * of the way a step, so no step takes more than a tenth of it.
 *
 * A step is taken for a span of calls, not for a call, and each call counts for no more than four times the usual: one
 * lucky or unlucky latency among ADAPT_CALLS stays inside the tolerance (D3).
 *
 * The state is a word, 0 at first (nothing known: the limit is its ceiling), low bit first:
 *    limit, in 256ths 24 | usual latency, in us 40 */
#ifndef RESIL_CORE_ADAPT_H
#define RESIL_CORE_ADAPT_H

#include <stdint.h>

#define ADAPT_CALLS 10u /* a span has as many at least */
#define ADAPT_SPAN_MS 100

/* 1..ceiling. */
uint32_t adapt_limit(uint64_t state, uint32_t ceiling);
/* What a call that took so long counts for. */
uint64_t adapt_clip_us(uint64_t state, uint64_t us);
/* The state after a span of calls: what they took on average (clipped), and how many there were at once at the most. */
uint64_t adapt_next(uint64_t state, uint32_t ceiling, uint64_t mean_us, uint32_t peak);

#endif
