/* The ambient deadline: what a tree of processes has left, by RESIL_DEADLINE_AT and RESIL_DEADLINE. Pure; serves the
 * shim and `resil run`. */
#ifndef RESIL_POLICY_AMBIENT_H
#define RESIL_POLICY_AMBIENT_H

#include <stdint.h>

#include "base/text.h"

/* at: RESIL_DEADLINE_AT, nanoseconds of CLOCK_MONOTONIC; relative: RESIL_DEADLINE, such as `5s`, from now_ns on. Null
 * or empty: not given. The earlier of both in ns of CLOCK_MONOTONIC, perhaps past; 0: none. Each malformed one counts
 * as not given and is a line in errors (null: nobody asks). */
int64_t ambient_read(const char *at, const char *relative, int64_t now_ns, struct text *errors);
/* A duration of 1ms to 8760h in ns. 0: malformed, with a line in errors that begins with `name`. */
int64_t ambient_duration(const char *name, const char *s, struct text *errors);
/* The earlier of two absolute deadlines; 0 is none. */
int64_t ambient_earlier(int64_t a, int64_t b);

#endif
