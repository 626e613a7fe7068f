/* A region of a test's own, shared like a group's: its folder and file, this process's place in it, and destinations.
 */
#ifndef RESIL_TESTS_CORE_APP_H
#define RESIL_TESTS_CORE_APP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/registry.h"

#define FILE_NAME "app.0123456789abcdef.v1"

static char dir[64], path[128];

static inline void attach(struct region *r)
{
	int why = 0;

	if (region_attach(r, dir, FILE_NAME, "app", 8, &why) != 0 || !r->is_shared) {
		printf("Bail out! no shared memory in %s: errno %d\n", dir, why);
		exit(1);
	}
	member_join(r, getpid(), identity_start_ticks(getpid(), NULL), "test", clock_now_ns());
}

static inline uint32_t fresh(struct region *r, const char *name)
{
	return (uint32_t)registry_find_or_add(r, name, "", 1);
}

#endif
