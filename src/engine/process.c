/* See process.h.
 *
 * A fork is seen twice: by the handlers that libc runs for fork(), and by a page that the kernel wipes in any child
 * with memory of its own (MADV_WIPEONFORK), which also catches _Fork and raw clone. A vfork child shares our memory, so
 * the page is intact there: guest_vfork_depth tells (hook/jump.S). */
#include "engine/process.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/ownfd.h"
#include "base/sys.h"
#include "core/member.h"
#include "engine/call.h"
#include "engine/deadline.h"
#include "engine/detour.h"
#include "engine/fault.h"
#include "engine/guard.h"
#include "engine/guest.h"
#include "engine/lifetime.h"
#include "engine/service.h"
#include "policy/names.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* glibc's; weak because musl, which may load us into its own children, has none (E16). */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso)
	__attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

_Atomic uint32_t *process_alive;
_Atomic uint32_t process_fork_count;
static void (*leave_control)(void);

static void reset_in_child(void)
{
	if (process_alive)
		atomic_store(process_alive, 1);
	atomic_fetch_add(&process_fork_count, 1);
	ownfd_drop_all();
	guest_forked();
	call_forked();
	admission_forked();
	guard_forked();
	fault_forked();
	names_forked();
	deadline_forked();
	lifetime_forked();
	detour_forked();
	service_forked();
}

static void before_fork(void)
{
	if (guest_is_on())
		service_pause(false);
}

static void in_parent(void)
{
	atomic_fetch_add(&process_fork_count, 1);
	if (guest_is_on())
		service_resume();
}

static void in_child(void)
{
	if (guest_is_on())
		reset_in_child();
}

void process_init(int argc, char **argv)
{
	keeper_init(argc, argv);
	void *page = sys_mmap(4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!sys_is_error(page)) {
		if (sys_madvise(page, 4096, MADV_WIPEONFORK) == 0) {
			process_alive = page;
			atomic_store(process_alive, 1);
		} else {
			sys_munmap(page, 4096);
		}
	}
	if (__register_atfork)
		__register_atfork(before_fork, in_parent, in_child, &__dso_handle);
}

void process_is_child(void)
{
	reset_in_child();
}

/* The process goes on as another program: what it holds of a group is given back as at exit, with a way back should
 * exec fail. */
static void give_back(void)
{
	if (call_live_count() > 0 || admission_held() > 0)
		lifetime_exiting();
	struct region *r = guest_region_now();
	if (!r || guest_is_restricted())
		return; /* under a filter the record is left to whoever finds us gone */
	if (leave_control)
		leave_control();
	member_leave(r);
}

struct keeper process_execs(void)
{
	process_check();
	give_back();
	if (guest_region_now())
		atomic_store(&guest_must_join, true);
	return keeper_make();
}

void process_exec_failed(struct keeper *k)
{
	if (k->word >= 0)
		keeper_recall(k);
}

void process_set_leave(void (*leave)(void))
{
	leave_control = leave;
}

void process_exits(void)
{
	static _Atomic bool has_left;
	process_check();
	if (atomic_exchange(&has_left, true))
		return;
	detour_flush();
	keeper_make_for_children(false);
	guest_leave();
	give_back();
}
