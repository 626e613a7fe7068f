/* Is a group bypassed (`resil off`), and by which of the ways: its own flag in the region, its user's marker file
 * beside the regions, the machine's marker. Read by the command and the socket; the shim itself looks in
 * engine/guest.c. No malloc, no stdio. */
#ifndef RESIL_CORE_BYPASS_H
#define RESIL_CORE_BYPASS_H

#include "core/region.h"

enum { BYPASS_GROUP = 1, BYPASS_USER = 2, BYPASS_MACHINE = 4 };
#define BYPASS_MACHINE_DIR "/run/resil"
#define BYPASS_MACHINE_MARKER BYPASS_MACHINE_DIR "/off"

/* The markers. root: before the machine's ("/proc/PID/root" for another process's view, else ""); state_dir: of the
 * user, "" where it is not known. Two system calls. */
unsigned bypass_markers(const char *root, const char *state_dir);
/* All of it, for a region: the state directory is where its file lies (a private region's is not known). */
unsigned bypass_of(const struct region *r, const char *root);
/* "group", "user", "machine": the name of the i-th bit; null beyond. */
const char *bypass_name(unsigned i);

#endif
