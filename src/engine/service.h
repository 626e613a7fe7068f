/* The threads of the guest: the timer, the one that serves detours, and the one that serves the unix socket. Only where
 * they are needed, never from a constructor, every signal blocked, joined before fork, unshare and setns (E5). */
#ifndef RESIL_ENGINE_SERVICE_H
#define RESIL_ENGINE_SERVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/region.h"

/* The control room, which stands above this one. */
struct service_control {
	int (*run)(const _Atomic uint32_t *stop);
	void (*wake)(void);
	bool (*should_run)(const struct region *r);
	void (*forget)(void);
};
void service_set_control(const struct service_control *control);

/* Arms a descriptor (deadline_arm), with a timer there to serve it. */
void service_bound(int fd, int64_t at_ns);
/* On a hook of a pending connect: its timer must be of this process. A fork's child starts it only here, or when it
 * becomes a daemon: most children exec at once. */
void service_keep_timer(void);
/* daemon() or setsid(): from here on this process and its children keep the timer of inherited connects themselves
 * (E4). */
void service_becomes_daemon(void);
/* The thread of detours is there, or is started. False: none is to be had. */
bool service_detours(void);
/* On a guarded connect: starts the control thread when it is due (CONTRACT, `control`). What stands against it is asked
 * once a second. */
void service_look(struct region *r, int64_t now_ns);
extern __attribute__((visibility("hidden"))) _Atomic int64_t service_look_at_ns;
static inline void service_follow(struct region *r, int64_t now_ns)
{
	if (__builtin_expect(now_ns >= atomic_load_explicit(&service_look_at_ns, memory_order_relaxed), 0))
		service_look(r, now_ns);
}
/* The socket's thread was ended for a fork and is to go on: not at once, since Python 3.12 counts threads right after
 * fork, but at the next descriptor hook. */
extern __attribute__((visibility("hidden"))) _Atomic bool service_is_due;
void service_revive(void);
static inline void service_keep_socket(void)
{
	if (__builtin_expect(atomic_load_explicit(&service_is_due, memory_order_relaxed), 0))
		service_revive();
}
/* Ends and joins every thread of ours, and lets none start until service_resume(). Nests. One that is in the middle of
 * a look-up (resolver.h) cannot be ended: is_patient waits for it, as the app would have waited without us. */
void service_pause(bool is_patient);
/* Starts again what is needed at once: the timer when something is armed. The socket's thread follows
 * (service_keep_socket). */
void service_resume(void);
/* The main thread has left by pthread_exit and no other of the app's is there: our threads must not keep the process.
 * Two system calls at most. */
bool service_is_alone(void);
/* A seccomp filter is about to judge every system call: from here on none is made that the app did not ask for; our
 * threads and descriptors go before it comes (E14). */
void service_retire(void);
/* It did not come (the app only asked whether it could): all as before. */
void service_return(void);
/* In a fork's child: no thread of ours exists here. */
void service_forked(void);

#endif
