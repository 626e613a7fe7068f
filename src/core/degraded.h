/* What is served in place of a destination that was not to be had: counted, and told once a run, so that everybody sees
 * that it is not the thing itself (D4). One row a source; the steps of a chain (policy/chain.h), the counters' names
 * and the metric's labels come from here. Lock-free; any process, any thread, signal handlers. */
#ifndef RESIL_CORE_DEGRADED_H
#define RESIL_CORE_DEGRADED_H

#include <stdint.h>

/* X(ENUMERATOR, "name") */
/* clang-format off */
#define DEGRADED_SOURCES(X)                                                                                            \
	X(SECONDARY, "secondary")                                                                                      \
	X(CACHE, "cache")                                                                                              \
	X(REPLY, "reply")                                                                                              \
	X(SPOOL, "spool")                                                                                              \
	X(ERRNO, "errno")
/* clang-format on */

enum degraded_source {
#define X(name, text) DEGRADED_##name,
	DEGRADED_SOURCES(X)
#undef X
		DEGRADED_SOURCE_COUNT
};

const char *degraded_source_name(enum degraded_source source);

struct region;
/* One call of the destination was served from there. step: as the configuration has it; cause: "rejected", a failure's
 * kind. The first of a run and source leaves an event (`fallback`); a run ends with the destination's next success. */
void degraded_count(
	struct region *r, uint32_t destination, enum degraded_source source, const char *step, const char *cause);
/* For display: the sources of the run that goes on, bit 1 << source; 0: none does. */
uint32_t degraded_now(const struct region *r, uint32_t destination);

#endif
