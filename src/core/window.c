/* See window.h. Called with every verdict, on any thread of any process. Nothing read from the region is used for more
 * than arithmetic (E10). */
#include "core/window.h"

#define VALID WINDOW_VALID
#define FAILED WINDOW_FAILED
#define SLOW WINDOW_SLOW_CALL
#define ENTRY_SHIFT WINDOW_ENTRY_SHIFT
#define ENTRY_GENERATION WINDOW_ENTRY_GENERATION

#define COUNT_BITS 14
#define COUNT_MASK 0x3fffu
#define SLOW_SHIFT 0
#define FAILED_SHIFT COUNT_BITS
#define CALLS_SHIFT (2 * COUNT_BITS)
#define MARK_SHIFT (3 * COUNT_BITS)
#define BUCKET_MARK 0x3fffu
#define TICK_SHIFT 56
#define BUCKET_TICK 0xffu

_Static_assert((WINDOW_ENTRIES & (WINDOW_ENTRIES - 1)) == 0, "the ring's position wraps with next");
_Static_assert(WINDOW_CALLS_MAX + 12 <= WINDOW_ENTRIES, "those being written stand before the window");
_Static_assert(WINDOW_SHOWN <= WINDOW_CALLS_MAX, "the shown ones are there");

static uint32_t calls_in(uint64_t bucket)
{
	return (uint32_t)(bucket >> CALLS_SHIFT) & COUNT_MASK;
}

static uint32_t failed_in(uint64_t bucket)
{
	return (uint32_t)(bucket >> FAILED_SHIFT) & COUNT_MASK;
}

static uint32_t slow_in(uint64_t bucket)
{
	return (uint32_t)(bucket >> SLOW_SHIFT) & COUNT_MASK;
}

/* Buckets of another window are in other ticks: they look like another generation's. */
static uint32_t mark_of(uint32_t window, uint16_t generation)
{
	return (generation ^ (window * 0x9e3779b1u) >> 18) & BUCKET_MARK;
}

static uint64_t bucket_of(uint64_t tick, uint32_t mark)
{
	return (tick & BUCKET_TICK) << TICK_SHIFT | (uint64_t)mark << MARK_SHIFT;
}

/* The window's length in ms; anything from a damaged or foreign number is brought into its limits. */
static uint64_t length_ms(uint32_t window)
{
	uint32_t ms = window & ~WINDOW_IS_TIME;

	return ms < WINDOW_MS_MIN ? WINDOW_MS_MIN : ms > WINDOW_MS_MAX ? WINDOW_MS_MAX : ms;
}

static uint64_t tick_of(uint32_t window, int64_t now_ms)
{
	return (uint64_t)now_ms * WINDOW_BUCKETS / length_ms(window);
}

/* Ticks since the bucket's; one a little ahead (a clock read later by another) is of now. */
static uint32_t age_of(uint64_t bucket, uint64_t tick)
{
	uint32_t age = ((uint32_t)tick - (uint32_t)(bucket >> TICK_SHIFT)) & BUCKET_TICK;

	return age > BUCKET_TICK - WINDOW_BUCKETS ? 0 : age;
}

/* Empties what has left the window: all of it after a gap. */
static void clear(struct window *w, uint64_t tick, bool all)
{
	for (uint32_t i = 0; i < WINDOW_BUCKETS; i++) {
		uint64_t seen = atomic_load_explicit(&w->bucket[i], memory_order_relaxed);
		if (seen != 0 && (all || age_of(seen, tick) >= WINDOW_BUCKETS))
			atomic_compare_exchange_strong_explicit(
				&w->bucket[i], &seen, 0, memory_order_relaxed, memory_order_relaxed);
	}
}

static uint64_t add(uint64_t bucket, bool has_failed, bool is_slow)
{
	uint64_t calls = calls_in(bucket), failed = failed_in(bucket), slow = slow_in(bucket);

	if (calls == COUNT_MASK) {
		calls = (calls + 1) / 2;
		failed = (failed + 1) / 2;
		slow = (slow + 1) / 2;
	}
	/* Damage: no share of the calls is more than all of them. */
	failed = (failed < calls ? failed : calls) + has_failed;
	slow = (slow < calls ? slow : calls) + is_slow;
	return (bucket >> MARK_SHIFT) << MARK_SHIFT | (calls + 1) << CALLS_SHIFT | failed << FAILED_SHIFT |
	       slow << SLOW_SHIFT;
}

static void record_time(
	struct window *w, uint32_t window, uint16_t generation, bool has_failed, bool is_slow, int64_t now_ms)
{
	uint64_t tick = tick_of(window, now_ms), fresh = bucket_of(tick, mark_of(window, generation));
	uint64_t last = atomic_load_explicit(&w->last_ms, memory_order_relaxed), now = (uint64_t)now_ms;
	_Atomic uint64_t *at = &w->bucket[tick % WINDOW_BUCKETS];
	uint64_t seen = atomic_load_explicit(at, memory_order_relaxed), next;

	/* Before anything of now is written: killed after it, the next one finds the same gap. A time to come is
	 * damage. */
	if (last > now + length_ms(window) || (now > last && now - last >= length_ms(window)))
		clear(w, tick, true);
	else if (seen >> MARK_SHIFT != fresh >> MARK_SHIFT)
		clear(w, tick, false);
	if (last != now)
		atomic_store_explicit(&w->last_ms, now, memory_order_relaxed);
	seen = atomic_load_explicit(at, memory_order_relaxed);
	do
		next = add(seen >> MARK_SHIFT == fresh >> MARK_SHIFT ? seen : fresh, has_failed, is_slow);
	while (!atomic_compare_exchange_weak_explicit(at, &seen, next, memory_order_seq_cst, memory_order_relaxed));
}

void window_record_for_rule(
	struct window *w, uint32_t window, uint16_t generation, bool has_failed, bool is_slow, int64_t now_ms)
{
	if (window & WINDOW_IS_TIME)
		record_time(w, window, generation, has_failed, is_slow, now_ms);
	else
		atomic_thread_fence(memory_order_seq_cst);
}

static struct window_sum sum_calls(const struct window *w, uint32_t window, uint16_t generation)
{
	struct window_sum sum = {0, 0, 0};
	uint32_t next = atomic_load_explicit(&w->next, memory_order_relaxed);
	uint32_t n = window == 0 ? WINDOW_SHOWN : window > WINDOW_CALLS_MAX ? WINDOW_CALLS_MAX : window;

	for (uint32_t i = 1; i <= n; i++) {
		uint16_t e = atomic_load_explicit(&w->entry[(next - i) % WINDOW_ENTRIES], memory_order_relaxed);
		if (!(e & VALID) || (uint32_t)(e >> ENTRY_SHIFT) != (generation & ENTRY_GENERATION))
			continue;
		sum.calls++;
		sum.failed += (e & FAILED) != 0;
		sum.slow += (e & SLOW) != 0;
	}
	return sum;
}

static struct window_sum sum_time(const struct window *w, uint32_t window, uint16_t generation, int64_t now_ms)
{
	struct window_sum sum = {0, 0, 0};
	uint64_t tick = tick_of(window, now_ms), now = (uint64_t)now_ms;
	uint64_t last = atomic_load_explicit(&w->last_ms, memory_order_relaxed);
	uint32_t mark = mark_of(window, generation);

	if (last > now + length_ms(window) || (now > last && now - last >= length_ms(window)))
		return sum;
	for (uint32_t i = 0; i < WINDOW_BUCKETS; i++) {
		uint64_t bucket = atomic_load_explicit(&w->bucket[i], memory_order_relaxed);
		if ((bucket >> MARK_SHIFT & BUCKET_MARK) != mark || age_of(bucket, tick) >= WINDOW_BUCKETS)
			continue;
		sum.calls += calls_in(bucket);
		sum.failed += failed_in(bucket);
		sum.slow += slow_in(bucket);
	}
	return sum;
}

struct window_sum window_sum(const struct window *w, uint32_t window, uint16_t generation, int64_t now_ms)
{
	return window & WINDOW_IS_TIME ? sum_time(w, window, generation, now_ms) : sum_calls(w, window, generation);
}

uint32_t window_minimum(uint32_t window, uint32_t minimum_calls)
{
	if (window && !(window & WINDOW_IS_TIME) && minimum_calls > window)
		return window;
	return minimum_calls ? minimum_calls : 1;
}

enum window_verdict window_judge(const struct window_sum *sum, const struct breaker_rules *rules)
{
	if (rules->window == 0 || sum->calls == 0 || sum->calls < window_minimum(rules->window, rules->minimum_calls))
		return WINDOW_QUIET;
	if (rules->failure_rate_percent && sum->failed &&
		(uint64_t)sum->failed * 100 >= (uint64_t)sum->calls * rules->failure_rate_percent)
		return WINDOW_FAILURES;
	if (rules->slow_call_ms && rules->slow_rate_percent && sum->slow &&
		(uint64_t)sum->slow * 100 >= (uint64_t)sum->calls * rules->slow_rate_percent)
		return WINDOW_SLOW;
	return WINDOW_QUIET;
}
