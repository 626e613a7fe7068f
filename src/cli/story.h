/* The story of a circuit in plain words: what resil does to its calls now, since when and why, by whose rule, what
 * comes next, how to stop it. Read from the region and from the configuration that the group's programs have; told by
 * `resil why` and by the pane of `resil top`. */
#ifndef RESIL_CLI_STORY_H
#define RESIL_CLI_STORY_H

#include "cli/cli.h"
#include "cli/settings.h"
#include "core/circuit.h"
#include "core/events.h"

struct story {
	const struct group *group;
	uint32_t index;
	struct circuit_view view;
	unsigned bypass;    /* of core/bypass.h */
	int64_t now_ns;	    /* CLOCK_MONOTONIC */
	int64_t wall_ns;    /* the same moment */
	bool has_opening;   /* the first transition of the last episode that was not closed */
	bool is_begun_lost; /* the ring has forgotten how it began: `opening` is the oldest known of it */
	struct event opening;
	unsigned reopened;    /* probes that failed since */
	uint64_t rejected;    /* calls, since the opening */
	int64_t over_wall_ns; /* when it closed again; 0: it has not */
	int64_t forced_ms;    /* a mode by hand: what is left of it; 0: until told otherwise */
	const struct settings *settings;
	pid_t member; /* whose environment chose the configuration; 0: ours */
	const struct policy *policy;
};

/* The configuration that a living member of the group has, else the one that a program started here would have. False:
 * no memory. *member: whose. */
bool story_settings(struct settings *s, const struct group *g, pid_t *member);
void story_read(struct story *s, const struct group *g, uint32_t index, const struct settings *settings, pid_t member);
/* Does resil reject calls of it now (open or half-open, in force, not bypassed)? */
bool story_is_rejecting(const struct story *s);
/* Lines, each with its newline. o: for the commands that undo. */
void story_text(struct text *t, const struct story *s, const struct options *o);
void story_json(struct text *t, const struct story *s, const struct options *o);
/* What an event says beside its type and destination: "closed -> open: 5 consecutive failures (last: refused)". */
void event_text(struct text *t, const struct region *r, const struct event *e);
/* "3s", "2m10s", "5h02m", "3d04h". */
void age_text(struct text *t, int64_t ns);

#endif
