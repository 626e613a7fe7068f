/* The constructor and the destructor: the shim's life in a process. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/real.h"
#include "base/sys.h"
#include "control/control.h"
#include "engine/guest.h"
#include "engine/process.h"
#include "engine/service.h"
#include "policy/policy.h"

/* glibc's alone: under another libc (a musl child of a glibc parent) the shim stays inert (E16). */
extern const char *gnu_get_libc_version(void) __attribute__((weak));

void hook_syscall_init(void);

static pid_t private_pid(void)
{
	const struct config *c = policy_acquire();
	bool is_private = c && config_state(c) == STATE_PRIVATE;
	policy_release(c);
	return is_private ? sys_getpid() : 0;
}

static int serve(const _Atomic uint32_t *stop)
{
	struct control_host host = {
		.group = guest_group(),
		.exe = guest_exe(),
		.runtime_dir = guest_runtime_dir(),
		.private_pid = private_pid(),
		.region = guest_region_now,
		.is_alone = service_is_alone,
		.is_off = &guest_is_off,
		.stop = stop,
	};
	return control_run(&host);
}

static void leave(void)
{
	struct region *r = guest_region_now();
	if (r)
		control_leave(r);
}

__attribute__((constructor)) static void init(int argc, char **argv)
{
	int saved = errno;
	const char *disabled = env_at_start("RESIL_DISABLE");
	real_resolve();
	if (gnu_get_libc_version && !(disabled && strcmp(disabled, "1") == 0)) {
		hook_syscall_init();
		process_init(argc, argv);
		static const struct service_control control = {
			.run = serve,
			.wake = control_wake,
			.should_run = control_should_run,
			.forget = control_forget,
		};
		service_set_control(&control);
		process_set_leave(leave);
		guest_init(argc, argv);
	}
	errno = saved;
}

__attribute__((destructor)) static void fini(void)
{
	if (!guest_is_on())
		return;
	int saved = errno;
	process_exits();
	service_pause(false); /* joined, not left behind: some tools count threads at the end (ThreadSanitizer) */
	errno = saved;
}
