/* See bypass.h. */
#include "core/bypass.h"

#include <string.h>

#include "base/sys.h"

static bool is_there(const char *before, const char *path)
{
	char whole[sizeof((struct region *)0)->path + 64];
	struct text t = TEXT_ON(whole);

	text_fmt(&t, "%s%s", before, path);
	return !t.is_cut && sys_access(whole, F_OK) == 0;
}

unsigned bypass_markers(const char *root, const char *state_dir)
{
	unsigned found = is_there(root, BYPASS_MACHINE_MARKER) ? BYPASS_MACHINE : 0;

	return found | (state_dir[0] && is_there(state_dir, "/off") ? BYPASS_USER : 0);
}

unsigned bypass_of(const struct region *r, const char *root)
{
	char dir[sizeof r->path];

	text_copy(dir, sizeof dir, r->path);
	char *slash = strrchr(dir, '/');
	if (slash)
		*slash = '\0';
	/* The group's own word tells by which ways it was set. */
	unsigned ways = atomic_load_explicit(&r->header->is_off, memory_order_relaxed);
	return bypass_markers(root, slash ? dir : "") | (ways & (BYPASS_GROUP | BYPASS_USER | BYPASS_MACHINE));
}

const char *bypass_name(unsigned i)
{
	static const char *const names[] = {"group", "user", "machine"};

	return i < sizeof names / sizeof names[0] ? names[i] : NULL;
}
