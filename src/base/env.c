/* See env.h. Called by constructors, on one thread. */
#include "base/env.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OURS "RESIL_"
#define OURS_LEN (sizeof OURS - 1)
#define OURS_MAX 32

static const char *ours[OURS_MAX];
static int ours_count = -1; /* OURS_MAX + 1: more than there is room for */

static void gather(void)
{
	ours_count = 0;
	for (char **at = environ; at && *at; at++) {
		if ((*at)[0] != OURS[0] || strncmp(*at, OURS, OURS_LEN) != 0)
			continue;
		if (ours_count < OURS_MAX)
			ours[ours_count] = *at;
		if (++ours_count > OURS_MAX)
			return;
	}
}

const char *env_at_start(const char *name)
{
	if (strncmp(name, OURS, OURS_LEN) != 0)
		return getenv(name);
	if (ours_count < 0)
		gather();
	if (ours_count > OURS_MAX)
		return getenv(name);
	size_t n = strlen(name);
	for (int i = 0; i < ours_count; i++)
		if (strncmp(ours[i], name, n) == 0 && ours[i][n] == '=')
			return ours[i] + n + 1;
	return NULL;
}
