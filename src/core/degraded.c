/* See degraded.h. The run is a mask beside the counters: set here, cleared by circuit_settle with a success. A crash
 * between count and event leaves a run that is shown as degraded and has no event; the next run has one. */
#include "core/degraded.h"

#include <string.h>

#include "core/events.h"
#include "core/registry.h"

static const char *const names[] = {
#define X(name, text) [DEGRADED_##name] = text,
	DEGRADED_SOURCES(X)
#undef X
};

const char *degraded_source_name(enum degraded_source source)
{
	return (unsigned)source < DEGRADED_SOURCE_COUNT ? names[source] : "unknown";
}

void degraded_count(
	struct region *r, uint32_t destination, enum degraded_source source, const char *step, const char *cause)
{
	struct destination *d = &r->destinations[destination];
	atomic_fetch_add_explicit(&d->fallbacks[source], 1, memory_order_relaxed);
	if (atomic_load_explicit(&d->fallback_run, memory_order_relaxed) >> source & 1 ||
		atomic_fetch_or_explicit(&d->fallback_run, 1u << source, memory_order_relaxed) >> source & 1)
		return;
	struct event e;
	memset(&e, 0, sizeof e);
	e.type = EVENT_FALLBACK;
	e.retry_after_ms = -1;
	struct text reason = TEXT_ON(e.reason);
	text_fmt(&reason, "%s%s (%s)", source == DEGRADED_SECONDARY ? "secondary: " : "", step, cause);
	registry_name(r, destination, e.destination);
	events_add(r, &e);
}

uint32_t degraded_now(const struct region *r, uint32_t destination)
{
	return atomic_load_explicit(&r->destinations[destination].fallback_run, memory_order_relaxed) &
	       ((1u << DEGRADED_SOURCE_COUNT) - 1);
}
