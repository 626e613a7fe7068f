/* The guest in this process: whether it does anything, under which group, with which region. Set up once by the
 * constructor (hook/init.c); the region is attached at the first guarded connect, and anew after a change of identity
 * or when its file was removed (E15). */
#ifndef RESIL_ENGINE_GUEST_H
#define RESIL_ENGINE_GUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/identity.h"
#include "core/region.h"

/* Depth of vfork children on this thread's stack, kept by the vfork in hook/jump.S: their memory is the parent's, so
 * they change nothing of ours (E3). */
extern __thread int guest_vfork_depth;

/* Tells threads apart without a system call: the address of a thread-local. */
static inline uintptr_t guest_thread(void)
{
	return (uintptr_t)&guest_vfork_depth;
}
/* From the constructor. argv may be null. Reads the environment (strings are copied), the configuration; attaches
 * nothing. */
void guest_init(int argc, char **argv);
/* May the hooks do anything here? False when disabled, skipped, under another libc, in a vfork child, or before
 * guest_init. */
static inline bool guest_is_on(void)
{
	extern __attribute__((visibility("hidden"))) bool guest_on;
	return __builtin_expect(guest_on, 1) && guest_vfork_depth == 0;
}
/* A system call that the app's seccomp filter may not know is not to be made any more; no thread is started (E14). */
void guest_restrict(bool is_so);
extern __attribute__((visibility("hidden"))) _Atomic bool guest_restricted;
static inline bool guest_is_restricted(void)
{
	return __builtin_expect(atomic_load_explicit(&guest_restricted, memory_order_relaxed), 0);
}
/* exit or exec has begun: no new membership, no thread. */
void guest_leave(void);
bool guest_is_leaving(void);

const char *guest_group(void);
const char *guest_exe(void);
const char *guest_runtime_dir(void);
/* Where answers are kept (engine/cache.h); false: nowhere (private state). */
bool guest_cache_dir(char *dir, size_t cap);

/* The region in use; null before the first guarded call, and when it is to be attached anew. */
extern __attribute__((visibility("hidden"))) _Atomic(struct region *) guest_current;
/* Something of guest_region_slow's is to be done: a fork's child must join. */
extern __attribute__((visibility("hidden"))) _Atomic bool guest_must_join;
struct region *guest_region_slow(int64_t now_ns);
/* The region for a new call: attached when needed, with this process among its members; null when there is none to be
 * had. Everyday: two loads. */
static inline struct region *guest_region(int64_t now_ns)
{
	struct region *r = atomic_load_explicit(&guest_current, memory_order_acquire);
	if (__builtin_expect(r && !atomic_load_explicit(&guest_must_join, memory_order_relaxed), 1))
		return r;
	return guest_region_slow(now_ns);
}
/* The same where there is one already: nothing is made for a process that only looks. */
struct region *guest_region_there(int64_t now_ns);
static inline struct region *guest_region_now(void)
{
	return atomic_load_explicit(&guest_current, memory_order_acquire);
}
/* For a connect that was admitted: at most once a second looks whether the region's file is still the one mapped (E15),
 * and whether `resil off` was said. What it finds holds from the next call on. Rejected connects make no system call,
 * hence not there; an open circuit admits a probe often enough. */
void guest_look_again_now(int64_t now_ns);
extern __attribute__((visibility("hidden"))) _Atomic int64_t guest_look_at_ns;
static inline void guest_look_again(int64_t now_ns)
{
	if (__builtin_expect(now_ns >= atomic_load_explicit(&guest_look_at_ns, memory_order_relaxed), 0))
		guest_look_again_now(now_ns);
}
int64_t guest_attached_ns(void);
/* `resil off` was said for this group, user or machine. */
extern __attribute__((visibility("hidden"))) _Atomic bool guest_is_off; /* a marker file says so */
static inline bool guest_is_bypassed(const struct region *r)
{
	return __builtin_expect(atomic_load_explicit(&r->header->is_off, memory_order_relaxed) != 0 ||
					atomic_load_explicit(&guest_is_off, memory_order_relaxed),
		0);
}
/* The identity changed (setuid and its family): the next call attaches under the new one. */
void guest_detach(void);
/* In a fork's child: not yet a member. */
void guest_forked(void);
/* Re-reads the configuration when the group was told to (`resil reload`); cheap otherwise. */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t guest_reload_seen;
void guest_reload(struct region *r);
static inline void guest_follow_reload(struct region *r)
{
	if (__builtin_expect(atomic_load_explicit(&r->header->reload_seq, memory_order_relaxed) !=
				     atomic_load_explicit(&guest_reload_seen, memory_order_relaxed),
		    0))
		guest_reload(r);
}

#endif
