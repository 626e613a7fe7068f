/* The last good answers to look-ups of a group, in its region, so that a new process has them too: what `stale_dns`
 * gives when the resolver fails (D9). Up to REGION_KNOWN names, the one that was looked up longest ago gives way.
 *
 * A slot's life: key 0, body, check, key (release). A reader takes key (acquire), body, key again, and believes the
 * body only when check agrees: a writer that died half-way, or two at once, leave a slot that nobody reads until the
 * name is written again. Any process, any thread; no lock, no system call. */
#ifndef RESIL_CORE_KNOWN_H
#define RESIL_CORE_KNOWN_H

#include "base/addr.h"
#include "core/region.h"

/* name: clean (names.h). family: of the look-up, AF_UNSPEC for both; what is kept of the other family stays. */
void known_store(
	struct region *r, const char *name, int family, const struct addr *addrs, unsigned count, int64_t now_ns);
/* The addresses of the last good answers for a family, none older than max_age_ns; their age, the oldest one's, in
 * age_ns. 0: none. */
unsigned known_find(const struct region *r, const char *name, int family, int64_t max_age_ns, int64_t now_ns,
	struct addr addrs[REGION_KNOWN_ADDRESSES], int64_t *age_ns);

#endif
