/* The guest in this process: whether it does anything, under which group, with which region. Set up once by the constructor (hook/init.c); the region is
 * attached at the first guarded connect, and anew after a change of identity or when its file was removed (E15). */
#ifndef RESIL_ENGINE_GUEST_H
#define RESIL_ENGINE_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "core/identity.h"
#include "core/region.h"

/* Depth of vfork children on this thread's stack, kept by the vfork in hook/jump.S: their memory is the parent's, so they change nothing of ours (E3). */
extern __thread int guest_vfork_depth;

/* From the constructor. argv may be null. Reads the environment (strings are copied), the configuration; attaches nothing. */
void guest_init(int argc, char **argv);
/* May the hooks do anything here? False when disabled, skipped, under another libc, in a vfork child, or before guest_init. */
static inline bool guest_is_on(void)
{
	extern bool guest_on;
	return __builtin_expect(guest_on, 1) && guest_vfork_depth == 0;
}
/* A system call that the app's seccomp filter may not know is not to be made any more; no thread is started (E14). */
void guest_restrict(void);
bool guest_is_restricted(void);
/* exit or exec has begun: no new membership, no thread. */
void guest_leave(void);
bool guest_is_leaving(void);

const char *guest_group(void);
const char *guest_exe(void);
const char *guest_runtime_dir(void);

/* The region for a new call: attached when needed, with this process among its members; null when there is none to be had. At most once a second it looks
 * whether the file is still the one mapped, and whether `resil off` was said machine-wide; else loads only. */
struct region *guest_region(int64_t now_ns);
/* The region in use, without attaching. */
struct region *guest_region_now(void);
int64_t guest_attached_ns(void);
/* `resil off` was said for this group, user or machine. */
bool guest_is_bypassed(const struct region *r);
/* The identity changed (setuid and its family): the next call attaches under the new one. */
void guest_detach(void);
/* In a fork's child: not yet a member. */
void guest_forked(void);
/* Re-reads the configuration when the group was told to (`resil reload`); cheap otherwise. */
void guest_follow_reload(struct region *r);

#endif
