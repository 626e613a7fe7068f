/* Faults in force: a layer below everything else of ours. Where any is asked for, entries of the table of real
 * functions (base/real.h) lead here, and from here to libc: so breaker, deadline and fallback meet an injected error
 * exactly as the kernel's own, and where none is asked for there is nothing, not even a branch.
 *
 *   app ──> hook ──> engine ──> real.connect ──> fault_connect: hit? its errno   else libc's connect
 *
 * Which call is hit is decided by numbers (fault_decide.h). */
#ifndef RESIL_ENGINE_FAULT_H
#define RESIL_ENGINE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/region.h"

/* From the constructor, after the configuration is in force: what the environment asks for. */
void fault_init(void);
/* Rules may have changed: by a reload, or in the region. Puts the layer in, or takes it out. */
void fault_follow(struct region *r);
/* From the thread of detours, now and then: faults that are over are lifted from connections that hang in them. */
void fault_look(int64_t now_ns);
/* In a fork's child: what another thread was at is nobody's. */
void fault_forked(void);
/* Joined a group: rules that the region has are taken over. */
void fault_attached(struct region *r);
/* Does the layer stand below connect now? */
bool fault_is_at_connect(void);
/* Two numbers lead to one socket from now on. */
extern __attribute__((visibility("hidden"))) _Atomic bool fault_has_lines; /* now */
void fault_share_slow(int from, int to);
static inline void fault_share(int from, int to)
{
	if (__builtin_expect(atomic_load_explicit(&fault_has_lines, memory_order_relaxed), 0))
		fault_share_slow(from, to);
}

#endif
