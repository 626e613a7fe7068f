/* The layer of faults from inside: what its parts say to one another. fault.c knows which rules there are and puts the
 * layer in and takes it out; a part a kind of call stands in for libc's functions: fault_connect.c, fault_io.c,
 * fault_look_up.c.
 *
 * A connection that was begun while faults are in force has a line (fault_line.c), by its number: which destination it
 * leads to, and the life of the number it was made for (slot.h). Nothing is injected into a number before its cookie is
 * compared. */
#ifndef RESIL_ENGINE_FAULT_LAYER_H
#define RESIL_ENGINE_FAULT_LAYER_H

#include <stdatomic.h>

#include "base/addr.h"
#include "base/real.h"
#include "engine/slot.h"
#include "policy/fault.h"
#include "policy/names.h"

/* libc's own, once the layer is in. Written before that alone. */
extern __attribute__((visibility("hidden"))) struct real_table fault_libc;
#define FAULT_PUT(name, ours) __atomic_store_n(&real.name, is_on ? (ours) : fault_libc.name, __ATOMIC_RELEASE)
#define FAULT_AT(call) (1u << FAULT_AT_##call)

/* ---- rules (fault.c): those of the configuration first, then those added at run time ---- */
struct fault_rules {
	const struct config *config, *added;
	uint32_t next;
	bool is_added;
};
void fault_rules_begin(struct fault_rules *r);
void fault_rules_end(struct fault_rules *r);
const struct fault_rule *fault_rules_next(struct fault_rules *r, const struct config **of);
struct fault_place;
/* The next rule for this call to this place that may hit. */
const struct fault_rule *fault_rules_next_for(struct fault_rules *r, const struct fault_place *p, enum fault_call call);
/* At a call that led here: rules whose time is over are met no more. */
void fault_leave(int64_t now_ns);
/* Does any rule lead calls of this kind here? */
bool fault_is_at_call(enum fault_call call);

/* ---- destinations and lines (fault_line.c) ---- */

/* A destination that a connect has met: kept for the process's life. */
struct fault_place {
	_Atomic uint32_t is_ready;
	struct addr addr;
	char name[NAMES_MAX + 1];	       /* "": a literal */
	char destination[REGION_NAME_MAX + 1]; /* name:port, ip:port, unix:path */
};
void fault_place_describe(struct fault_place *p, const struct addr *a);
/* Its index + 1; 0: there are too many, and its octets are left alone. */
uint32_t fault_place_keep(const struct fault_place *of);
const struct fault_place *fault_place_at(uint32_t index);

struct fault_line {
	_Atomic uint64_t life; /* of the slot, and 1; 0: none */
	_Atomic uint64_t cookie;
	_Atomic uint32_t place; /* index + 1 */
	_Atomic uint32_t has_reset;
	_Atomic uint64_t reset_after, in;
};
#define FAULT_LINES_MAX 65536u
extern __attribute__((visibility("hidden"))) struct fault_line *_Atomic fault_lines;
bool fault_lines_make(void);

static inline struct fault_line *fault_line_at(int fd)
{
	struct fault_line *all = atomic_load_explicit(&fault_lines, memory_order_acquire);
	return all && (uint32_t)fd < FAULT_LINES_MAX ? &all[fd] : NULL;
}

static inline uint64_t fault_life_of(int fd)
{
	struct slot *s = slot_at(fd);
	return s ? slot_word(s) >> 32 << 1 | 1 : 0;
}

/* Of a connection that is on its way or there, still the same number's. */
static inline struct fault_line *fault_line_of(int fd)
{
	struct fault_line *l = fault_line_at(fd);
	uint64_t life = l ? atomic_load_explicit(&l->life, memory_order_relaxed) : 0;
	return life && life == fault_life_of(fd) ? l : NULL;
}

/* Before anything is done to it: a number closed behind our back may be another's. */
bool fault_line_is_same(const struct fault_line *l, int fd);

/* ---- connect (fault_connect.c) ---- */
void fault_connect_put(bool is_on);
/* A send that is the connect: false: it is to fail, errno says with what. */
bool fault_may_connect(const struct sockaddr *to, socklen_t len);
/* Relays whose rules are over are lifted. */
void fault_marks_lift(int64_t now_ns);
void fault_marks_forked(void);

/* ---- the others ---- */
void fault_io_put_send(bool is_on);
void fault_io_put_recv(bool is_on);
void fault_io_put_both(bool is_on);
void fault_look_up_put(bool is_on);

#endif
