/* The last calls of a circuit, as far as its rate rules ask for them (`sliding_window`): how many, how many failed, how
 * many were slow. In shared memory, recorded by whoever gives a verdict, without a lock.
 *
 * Two forms beside each other, since members may be configured differently for a while (a reload):
 *  entry   a ring of the last calls, one store each: valid 1 | failed 1 | slow 1 | generation, low 13
 *  bucket  time in WINDOW_BUCKETS equal parts, one compare-and-swap a call:
 *          tick, low 8 | mark 14 | calls 14 | failed 14 | slow 14; the mark is of the generation and of the window
 * Both carry the generation of the breaker's word, so that the very compare-and-swap of a transition empties the window
 * (B9): nothing has to be cleared after it, and a crash leaves nothing to be cleared. Told modulo 8192 transitions
 * (16384 for time) while the calls are still in place; the verdicts that make transitions are recorded, too, and push
 * them out.
 *
 * Time: a call counts from its own time until the bucket of it is WINDOW_BUCKETS parts old, which is between 31/32 and
 * the whole of the window. A gap as long as the window empties it, however long the gap was: whoever records after it
 * clears every bucket (`last_ms`, whole, not modulo anything); and whoever begins a new bucket clears those that have
 * left the window, so that no tick is ever compared with one 256 parts older. A crash in between leaves that to the
 * next. A bucket that would overflow (16383 calls) halves all three: its rates stay.
 *
 * Two who record at the same moment see each other or are seen: both stores are sequentially consistent and go before
 * the look, so that a rate that has been reached is seen by one of them. */
#ifndef RESIL_CORE_WINDOW_H
#define RESIL_CORE_WINDOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/breaker.h"

#define WINDOW_IS_TIME 0x80000000u
#define WINDOW_CALLS_MAX 500u
#define WINDOW_MS_MIN 1000u
#define WINDOW_MS_MAX 3600000u /* 1 h */
#define WINDOW_SHOWN 100u      /* calls for the displayed rate where no window is set */
#define WINDOW_ENTRIES 512u
#define WINDOW_BUCKETS 32u

struct window {
	_Atomic uint32_t next;	  /* calls recorded so far: position in entry[] */
	_Atomic uint64_t last_ms; /* CLOCK_MONOTONIC, of the last call recorded by time */
	_Atomic uint64_t bucket[WINDOW_BUCKETS];
	_Atomic uint16_t entry[WINDOW_ENTRIES];
};

struct window_sum {
	uint32_t calls, failed, slow;
};

/* What the rule of a window asks beyond the entry. */
void window_record_for_rule(
	struct window *w, uint32_t window, uint16_t generation, bool has_failed, bool is_slow, int64_t now_ms);

#define WINDOW_VALID 1u
#define WINDOW_FAILED 2u
#define WINDOW_SLOW_CALL 4u
#define WINDOW_ENTRY_SHIFT 3
#define WINDOW_ENTRY_GENERATION 0x1fffu
/* A verdict that counts, under the generation that admitted it. */
static inline void window_record(
	struct window *w, uint32_t window, uint16_t generation, bool has_failed, bool is_slow, int64_t now_ms)
{
	uint32_t position = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
	uint16_t entry = (uint16_t)((generation & WINDOW_ENTRY_GENERATION) << WINDOW_ENTRY_SHIFT | WINDOW_VALID |
				    (has_failed ? WINDOW_FAILED : 0) | (is_slow ? WINDOW_SLOW_CALL : 0));

	atomic_store_explicit(&w->entry[position % WINDOW_ENTRIES], entry, memory_order_relaxed);
	/* Only a rule has others to look at. */
	if (__builtin_expect(window != 0, 0))
		window_record_for_rule(w, window, generation, has_failed, is_slow, now_ms);
}
/* What the window holds for this generation; off: the last WINDOW_SHOWN. Reads only. */
struct window_sum window_sum(const struct window *w, uint32_t window, uint16_t generation, int64_t now_ms);

/* Which rate is at or above its threshold (B10: never ==)? minimum_calls beyond a window of calls is that window. */
enum window_verdict { WINDOW_QUIET, WINDOW_FAILURES, WINDOW_SLOW };
enum window_verdict window_judge(const struct window_sum *sum, const struct breaker_rules *rules);
/* Calls before a rate counts. */
uint32_t window_minimum(uint32_t window, uint32_t minimum_calls);

#endif
