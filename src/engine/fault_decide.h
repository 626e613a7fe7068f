/* Which call a fault hits. Decided by the seed, the fault's name, the destination, the kind of call and its number
 * among those of the destination, and by nothing else: the same seed hits the same calls, however threads and processes
 * interleave, and the app's own random state is not touched (CF2).
 *
 *   number n ── n < skip: left alone
 *            └─ turn (n - skip) / every, where that is whole: the first `count` of the turns that the percentage hits
 */
#ifndef RESIL_ENGINE_FAULT_DECIDE_H
#define RESIL_ENGINE_FAULT_DECIDE_H

#include "policy/fault.h"

/* What is known before any call. Copies what it needs of the environment. */
void fault_decide_init(void);
/* Is the rule in its time, and does it hit this call? Counts, writes the journal, leaves events. seed (may be null): of
 * the further choices of a call that is hit, such as how long its delays are. */
bool fault_decide(
	const struct fault_rule *f, const char *destination, enum fault_call call, int64_t now_ns, uint64_t *seed);
/* In a fork's child. */
void fault_decide_forked(void);
/* Is it in its time? Is that over, never to come again: when (INT64_MAX: never)? */
int64_t fault_ends_ns(const struct fault_rule *f);
bool fault_is_on(const struct fault_rule *f, int64_t now_ns);

#endif
