/* A timing wheel over small numbers (descriptors): what is due is found at a cost that grows with what is due, not with
 * what waits. Pure and for one thread; memory comes with the caller's links. Ticks of 2^22 ns (4.2 ms) place an entry;
 * its exact time decides. Three levels of 256 buckets reach 19 hours ahead; what is further is looked at then. */
#ifndef RESIL_ENGINE_WHEEL_H
#define RESIL_ENGINE_WHEEL_H

#include <stdint.h>

#define WHEEL_NEVER INT64_MAX
#define WHEEL_LEVELS 3
#define WHEEL_BUCKETS 256

struct wheel {
	uint64_t tick; /* of the last turn */
	uint32_t count;
	uint64_t used[WHEEL_LEVELS][WHEEL_BUCKETS / 64];
	uint32_t head[WHEEL_LEVELS][WHEEL_BUCKETS]; /* entry + 1 */
	int64_t soonest[WHEEL_LEVELS][WHEEL_BUCKETS];
};

/* An entry's place in it: the wheel's alone while it is in. */
struct wheel_link {
	uint32_t next; /* entry + 1 */
	uint32_t prev; /* entry + 1, or the bucket whose first it is (WHEEL_FIRST | level * WHEEL_BUCKETS + bucket) */
};
#define WHEEL_FIRST 0x80000000u
typedef struct wheel_link *wheel_link_of(uint32_t entry);

/* Looks at an entry that was due: its next time, or WHEEL_NEVER to let it go. A time not later than now_ns is looked at
 * again at the next turn. */
typedef int64_t wheel_visit(uint32_t entry, int64_t now_ns, void *context);

/* Empty, from now on. */
void wheel_start(struct wheel *w, int64_t now_ns);
/* An entry that is not in it. */
void wheel_add(struct wheel *w, wheel_link_of *link, uint32_t entry, int64_t due_ns);
/* An entry that is in it goes. */
void wheel_remove(struct wheel *w, wheel_link_of *link, uint32_t entry);
/* Visits what is due by now_ns. Returns the soonest time at which a further turn has something to do (WHEEL_NEVER:
 * empty): never later than what is due first. */
int64_t wheel_turn(struct wheel *w, wheel_link_of *link, int64_t now_ns, wheel_visit *visit, void *context);

#endif
