/* Destinations by name: open addressing in the region, slots claimed by CAS and filled idempotently. */
#ifndef RESIL_CORE_REGISTRY_H
#define RESIL_CORE_REGISTRY_H

#include "core/region.h"

/* The index of a destination, made when absent; -ENOSPC when the registry is full and nothing in it may go (counted;
 * the caller runs unguarded), -ENAMETOOLONG beyond REGION_NAME_MAX. policy: the section's name, kept for display.
 *
 * A full registry evicts the least recently used circuit that is closed, in no mode set by hand, and has no call in
 * flight; open, half-open and forced ones never go (B17). `life` of the destination moves with that: who keeps an index
 * (guards, tokens) keeps it too, and an index with another life is another's. */
int registry_find_or_add(struct region *r, const char *name, const char *policy, int64_t now_ns);
/* -ENOENT when it is not there. */
int registry_find(const struct region *r, const char *name);
/* Next used and ready index at or after `from`, or -1. For listings. */
int registry_next(const struct region *r, uint32_t from);
/* A bounded, NUL-terminated copy of a name, whatever the region holds (E10). */
void registry_name(const struct region *r, uint32_t index, char name[REGION_NAME_MAX + 1]);

#endif
