/* The event ring of a region: the last REGION_EVENTS events, written by any member without a lock. */
#ifndef RESIL_CORE_EVENTS_H
#define RESIL_CORE_EVENTS_H

#include "core/region.h"

/* X(ENUMERATOR, "name") */
/* clang-format off */
#define EVENT_TYPES(X)                                                                                                 \
	X(TRANSITION, "transition")                                                                                    \
	X(REJECTED, "rejected")                                                                                        \
	X(DEADLINE, "deadline")                                                                                        \
	X(EJECTED, "ejected")                                                                                          \
	X(RETURNED, "returned")                                                                                        \
	X(FALLBACK, "fallback")                                                                                        \
	X(FAULT, "fault")                                                                                              \
	X(RELOAD, "reload")                                                                                            \
	X(CONFIG_ERROR, "config_error")                                                                                \
	X(ATTACH, "attach")                                                                                            \
	X(DETACH, "detach")
/* clang-format on */

enum event_type {
#define X(name, text) EVENT_##name,
	EVENT_TYPES(X)
#undef X
		EVENT_TYPE_COUNT
};

/* A slot's life: seq 0, body, check, seq (release). A reader takes seq (acquire), body, seq again, and believes the
 * body only when check, which covers seq too, agrees: a writer that died half-way leaves a slot that no reader takes
 * until it is written over a lap later, and two writers a lap apart in one slot leave a body that agrees with neither.
 */

/* An event that must be left exactly once, though its writer may die at any line (circuit.c): written where no reader
 * takes it yet, made known elsewhere by its seq, then shown; whoever finds it known and not shown shows it. Showing
 * what another has written over meanwhile does nothing. hear: tells the listener, after it is shown. */
uint64_t events_prepare(struct region *r, struct event *e);
void events_show(struct region *r, uint64_t seq);
void events_hear(const struct event *e);
/* Writes one; seq, check, wall_ns, pid and exe are filled in here (exe and pid from r->me when there is one). Returns
 * its seq. */
uint64_t events_add(struct region *r, struct event *e);
/* Tells that the configuration of this generation (config_seq) is read: whoever of the group has read it first. */
void events_add_reload(struct region *r, uint32_t generation);
/* Called in the process that wrote an event, after it is in the ring, on the thread that did it (any thread, a signal
 * handler too): for the log. Set once, before the first event. */
void events_set_listener(void (*listener)(const struct event *e));
/* In retry_after_ms of a `rejected` event: by the bulkhead, which has no such time; `value` is how many since the event
 * before. */
#define EVENT_BULKHEAD_FULL (-2)
static inline bool event_is_bulkhead(const struct event *e)
{
	return e->type == EVENT_REJECTED && e->retry_after_ms == EVENT_BULKHEAD_FULL;
}
/* Copies event `seq` into e; false when it is not there (not yet, overwritten, torn). */
bool events_read(const struct region *r, uint64_t seq, struct event *e);
/* Oldest and newest seq that may be read; newest 0: none. */
void events_range(const struct region *r, uint64_t *oldest, uint64_t *newest);
/* How many rejections the run has that a `rejected` event began: so far, or until it ended where the ring still tells;
 * 1 at least. Looks through the ring. */
uint64_t events_run_length(const struct region *r, const struct event *e);
const char *event_type_name(enum event_type type);

#endif
