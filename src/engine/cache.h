/* The cache of `fallback = cache(AGE)` (D5): the last good answers to plain HTTP/1 GETs of destinations that have that
 * step, as files in the group's state directory. The thread of detours alone, but for cache_may_serve.
 *
 * Written by a tee: connections to such destinations go by way of a relay, which shows what it passes on. A file is
 * written beside and renamed, so that several processes may write at once and nobody meets half of one; its key stands
 * in it whole, and a check over all of it, so that another host's answer, or a torn one, is never served. */
#ifndef RESIL_ENGINE_CACHE_H
#define RESIL_ENGINE_CACHE_H

#include "base/addr.h"
#include "engine/detour_record.h"

/* "name:port" of where the app asked to go, or its address: the destination in a key. */
void cache_destination(struct text *t, const struct addr *a);
/* Is there anything of this destination's, and no older? What is not is the next step's. On any thread. */
bool cache_may_serve(const char *destination, int64_t max_age_ns);

/* The relay's own: what has come from the app (UP), and to it. */
void cache_tee_begin(struct detour *d);
void cache_tee(struct detour *d, enum detour_way_name way, const void *octets, uint32_t n, int64_t now_ns);
void cache_tee_finish(struct detour *d);
void cache_forked(void);

#endif
