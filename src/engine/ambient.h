/* The ambient deadline: a moment by which this process wants its answers, handed down by whoever started it
 * (RESIL_DEADLINE_AT, RESIL_DEADLINE; CONTRACT section 2). Shared by every call. */
#ifndef RESIL_ENGINE_AMBIENT_H
#define RESIL_ENGINE_AMBIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern __attribute__((visibility("hidden"))) _Atomic int64_t ambient_at_ns;

/* CLOCK_MONOTONIC; 0: none. */
static inline int64_t ambient_ns(void)
{
	return atomic_load_explicit(&ambient_at_ns, memory_order_relaxed);
}
static inline bool ambient_has_passed(int64_t now_ns)
{
	int64_t at = ambient_ns();
	return __builtin_expect(at != 0, 0) && now_ns >= at;
}
/* From the constructor: reads the environment. */
void ambient_init(void);
/* setsid, daemon: whoever outlives its session outlives its deadline (C4). */
void ambient_drop(void);

#endif
