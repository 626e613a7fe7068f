/* Shaping: for the octets of one direction of a connection, given when they came in, what may pass on now and when to
 * look again. It holds no octets, only counts them: whoever has them (a relay) keeps them in the order in which they
 * came. No sockets, memory or clock; one thread at a time.
 *
 *   came in ──> corrupt ──> delay (each piece its own, never overtaking) ──> line of a rate ──> slices ──> ends ──>
 * passed
 *
 *      shape_begin
 *      shape_came(n) after n octets were taken in, shape_ended after the end of the stream was
 *      say = shape_look(now): pass on at most say.pass octets of the front, then shape_passed(what really went), and
 *            look again at once; where pass is 0, look again at say.again_ns or when something comes in
 *      say.end: SHAPE_END when the stream's end is to be passed on, SHAPE_RESET when both sides are to meet a reset
 */
#ifndef RESIL_WIRE_SHAPE_H
#define RESIL_WIRE_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHAPE_NEVER INT64_MAX
#define SHAPE_MARKS 256u /* pieces that wait with a time of their own; beyond, the last one takes in what follows */

enum shape_distribution { SHAPE_UNIFORM, SHAPE_NORMAL, SHAPE_PARETO };

/* All zero: what comes in passes on at once. */
struct shape_rules {
	uint64_t seed;
	/* latency. UNIFORM: delay - jitter to delay + jitter. NORMAL: jitter is the standard deviation. PARETO: never
	 * less than the delay, jitter more on average, ten times the jitter one time in a hundred. Never below zero. */
	int64_t delay_ns, jitter_ns;
	uint64_t rate;		/* bandwidth: octets a second, 0: any */
	uint64_t slice;		/* slicer: octets at most at a time, 0: any */
	int64_t slice_delay_ns; /* between two of them */
	uint64_t hole_after;	/* blackhole: nothing passes after so many */
	uint64_t reset_after;	/* reset: after so many, and so much later; after none: in place of the first */
	int64_t reset_delay_ns;
	uint64_t limit;		/* limit_data: the end after so many; after none: in place of the first */
	int64_t close_delay_ns; /* slow_close: the end passes so much later */
	uint32_t corrupt_ppm;	/* corrupt: octets of a million that are changed */
	uint8_t distribution;	/* enum shape_distribution */
	bool has_hole, has_reset, has_limit;
};

enum shape_end { SHAPE_ON, SHAPE_END, SHAPE_RESET };

struct shape_say {
	size_t pass;
	int64_t again_ns; /* SHAPE_NEVER: nothing changes until something comes in or passes */
	enum shape_end end;
};

struct shape {
	struct shape_rules rules;
	uint64_t came, ripe, passed; /* octets since the beginning; ripe: their delay is over */
	uint64_t seen;		     /* by shape_corrupt */
	int64_t last_due_ns;
	int64_t end_ns; /* when the end of the stream may pass; SHAPE_NEVER: it has not come */
	/* The line: from base on it has carried so many octets. */
	int64_t line_base_ns;
	uint64_t line_carried;
	int64_t slice_ns;      /* the next one goes no earlier */
	int64_t reset_ns;      /* SHAPE_NEVER: not yet due */
	bool was_in_hole;      /* something waits in it */
	uint32_t first, count; /* of mark */
	struct shape_mark {
		int64_t due_ns;
		uint64_t until; /* octets since the beginning */
		int64_t made_ns;
	} mark[SHAPE_MARKS];
};

void shape_begin(struct shape *s, const struct shape_rules *rules, int64_t now_ns);
void shape_came(struct shape *s, size_t n, int64_t now_ns);
void shape_ended(struct shape *s, int64_t now_ns);
struct shape_say shape_look(struct shape *s, int64_t now_ns);
void shape_passed(struct shape *s, size_t n, int64_t now_ns);
/* Changes octets in place, in the order in which they come, each once: before or after shape_came, before they go. How
 * many were changed. */
size_t shape_corrupt(struct shape *s, void *octets, size_t n);
/* The fault is over: what waits passes on at once, a black hole that has swallowed anything ends in a reset. */
void shape_lift(struct shape *s, int64_t now_ns);
/* One draw of a delay; random: any 64 bits, the same make the same. */
int64_t shape_delay_ns(const struct shape_rules *rules, uint64_t random);

#endif
