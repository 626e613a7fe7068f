/* "did you mean": how near two names are, and which of the known ones are near a wanted one. Used by the socket's 404
 * and by the command. Pure. */
#ifndef RESIL_CONTROL_NEARBY_H
#define RESIL_CONTROL_NEARBY_H

#include <stdbool.h>

#include "base/text.h"
#include "core/region.h"

/* Edits (insert, delete, replace) that turn a into b; names beyond 255 bytes are compared by their first 255. */
unsigned nearby_distance(const char *a, const char *b);
/* Few enough edits, or one contains the other. */
bool nearby_is_near(const char *wanted, const char *known);
/* The destination of that name: as it is written, else (but for paths) in whatever case: names of hosts know none.
 * Negative: none. */
int nearby_find(const struct region *r, const char *name);
/* "did you mean 'api:443'?", or what there is ("there are 'a:1', 'b:2' and 7 more"), or that there is nothing yet. */
void nearby_destinations(struct text *t, const struct region *r, const char *wanted);

#endif
