/* The unix socket of a group (CONTRACT 6): HTTP/1.1 parsed by llhttp, many clients at once, a slow or silent one
 * disturbs nobody. Runs on a thread of the service's (engine/service.c) that blocks every signal; election and takeover
 * among the members live here too. No malloc: buffers are mmap'd. */
#ifndef RESIL_CONTROL_CONTROL_H
#define RESIL_CONTROL_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/region.h"

struct control_host {
	const char *group;
	const char *exe;
	const char *runtime_dir;	/* made and checked by control_run */
	pid_t private_pid;		/* state = private: the pid in the socket's name; else 0 */
	struct region *(*region)(void); /* the region in use now; null: none */
	bool (*is_alone)(void); /* the app's threads have all left: asked once a second, stops like stop; null: never */
	const _Atomic bool *is_off;   /* a marker of `resil off` was seen; null: not known */
	const _Atomic uint32_t *stop; /* non-zero: return at once, keeping the listening socket open */
};

/* Serves, or stands by to take over (control_should_run), until *stop. Returns 0 when stopped, 1 when it is not needed
 * here (others serve and stand by), -errno when the socket cannot be had (said once in the log; the caller backs off).
 */
int control_run(const struct control_host *host);
/* Ends a control_run from another thread: after *stop is set, wakes its poll. Safe anywhere. */
void control_wake(void);
/* Cheap question for the connect path (loads only): would control_run have something to do here (no living owner known,
 * or a standby place free)? */
bool control_should_run(const struct region *r);
/* In a fork's child: forgets everything that the parent's thread held (descriptors are dropped by ownfd_drop_all). */
void control_forget(void);
/* At exit: unlinks the socket if it is ours and lets go of ownership in the region. */
void control_leave(struct region *r);

#endif
