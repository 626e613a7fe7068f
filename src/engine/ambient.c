/* See ambient.h. */
#include "engine/ambient.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/text.h"
#include "policy/ambient.h"

_Atomic int64_t ambient_at_ns;

void ambient_init(void)
{
	const char *at = env_at_start("RESIL_DEADLINE_AT"), *relative = env_at_start("RESIL_DEADLINE");
	if ((!at || !*at) && (!relative || !*relative))
		return;
	char errors[400];
	struct text t = TEXT_ON(errors);
	errors[0] = '\0';
	atomic_store(&ambient_at_ns, ambient_read(at, relative, clock_now_ns(), &t));
	if (errors[0])
		log_line(errors);
}

void ambient_drop(void)
{
	atomic_store(&ambient_at_ns, 0);
}
