/* See service.h. Called by connects of any thread and by the fork handlers.
 *
 * A worker:   NONE --start--> RUNS --it returned--> DONE --join--> NONE
 * CLAIMED while one thread starts or joins it; DONE only from RUNS, so that a claim has one owner: libc runs the fork
 * handlers of several threads side by side.
 */
#include "engine/service.h"

#include <sched.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/ownfd.h"
#include "base/sys.h"
#include "core/identity.h"
#include "engine/ambient.h"
#include "engine/deadline.h"
#include "engine/detour.h"
#include "engine/guest.h"
#include "engine/later.h"
#include "engine/resolver.h"
#include "engine/thread.h"
#include "policy/policy.h"

enum state { NONE, CLAIMED, RUNS, DONE };

struct worker {
	const char *name;
	void (*run)(const _Atomic uint32_t *stop);
	void (*wake)(void);
	bool (*prepare)(void);	 /* on its starter, before it is; false: it is not to be */
	bool (*is_needed)(void); /* once it has returned: it goes on where it is after all */
	_Atomic uint32_t state;
	_Atomic uint32_t stop;
	_Atomic int64_t not_before_ns; /* after a failed start, or when it found nothing to do */
	pthread_t thread;
};

static struct service_control control;
static _Atomic int pauses;
static _Atomic bool is_daemon;
_Atomic bool service_is_due;
_Atomic int64_t service_look_at_ns;

static void run_control(const _Atomic uint32_t *stop);
static void wake_control(void);

static bool prepare_timer(void)
{
	deadline_reserve();
	return true;
}

static struct worker timer = {.name = "resil-timer",
	.run = deadline_run,
	.wake = deadline_wake,
	.prepare = prepare_timer,
	.is_needed = deadline_is_any};
static struct worker detours = {.name = "resil-detour",
	.run = detour_run,
	.wake = detour_wake,
	.prepare = detour_prepare,
	.is_needed = detour_is_any};
static struct worker socket_server = {.name = "resil-control", .run = run_control, .wake = wake_control};

void service_set_control(const struct service_control *c)
{
	control = *c;
}

static void wake_control(void)
{
	control.wake();
}

static void run_control(const _Atomic uint32_t *stop)
{
	int r = control.run(stop);
	/* Not needed, or not to be had: look again later, not at each connect. */
	if (r != 0)
		atomic_store(&socket_server.not_before_ns, clock_now_ns() + (r > 0 ? 1 : 5) * NS_PER_S);
}

static void *body(void *arg)
{
	struct worker *w = arg;
	/* The starter has the state until it has stored our id: only then may anyone join us. stop: it has been claimed
	 * again, to end us. */
	while (atomic_load(&w->state) == CLAIMED && !atomic_load(&w->stop))
		sched_yield();
	thread_name(w->name);
	for (;;) {
		w->run(&w->stop);
		/* Claimed meanwhile: whoever claimed it joins us, and the state is theirs. */
		uint32_t seen = RUNS;
		if (!atomic_compare_exchange_strong(&w->state, &seen, DONE))
			return NULL;
		/* Armed between its last look and DONE, by someone who saw it running: go on. */
		seen = DONE;
		if (!w->is_needed || !w->is_needed() || !atomic_compare_exchange_strong(&w->state, &seen, RUNS))
			return NULL;
	}
}

/* A try at it; *again: a pause that stood in the way has ended meanwhile, and nobody else will start it. */
static bool try_start(struct worker *w, bool *again)
{
	uint32_t seen = atomic_load(&w->state);
	*again = false;
	if (seen == RUNS)
		return true;
	if (seen == CLAIMED || atomic_load(&pauses) || clock_now_ns() < atomic_load(&w->not_before_ns) ||
		!atomic_compare_exchange_strong(&w->state, &seen, CLAIMED))
		return false;
	/* A pause counts itself, then looks at the states; we take the state, then look at the pauses: one of us sees
	 * the other. */
	if (atomic_load(&pauses)) {
		atomic_store(&w->state, seen);
		*again = atomic_load(&pauses) == 0;
		return false;
	}
	if (seen == DONE)
		thread_join(w->thread);
	atomic_store(&w->stop, 0);
	if ((w->prepare && !w->prepare()) || !thread_start(&w->thread, body, w)) {
		static bool said;
		log_once(&said,
			"no thread is to be had: limits of pending connects, detours and the socket are not in force");
		atomic_store(&w->not_before_ns, clock_now_ns() + NS_PER_S);
		atomic_store(&w->state, NONE);
		return false;
	}
	atomic_store(&w->state, RUNS);
	return true;
}

static bool start_quietly(struct worker *w)
{
	bool runs, again;
	do
		runs = try_start(w, &again);
	while (again);
	return runs;
}

/* True when it runs. The new thread inherits the mask: every signal blocked. */
static bool start(struct worker *w)
{
	uint32_t state = atomic_load(&w->state);
	if (state == RUNS || state == CLAIMED)
		return state == RUNS;
	if (guest_is_restricted() || guest_is_leaving())
		return false;
	struct thread_quiet q;
	thread_quiet_begin(&q);
	bool runs = start_quietly(w);
	thread_quiet_end(&q);
	return runs;
}

bool service_is_alone(void)
{
	struct stat st;
	/* One link each for . and .., the leader's remains, and our own threads. */
	nlink_t ours = 3u + (atomic_load(&timer.state) == RUNS) + (atomic_load(&socket_server.state) == RUNS) +
		       (atomic_load(&detours.state) == RUNS) + resolver_threads();
	if (sys_stat("/proc/self/task", &st) != 0 || st.st_nlink > ours)
		return false;
	return identity_main_has_ended();
}

/* Something was armed earlier than its next waking: wakes it, or starts it. */
static void wake_timer(void)
{
	if (atomic_load(&timer.state) == RUNS)
		deadline_wake();
	if (atomic_load(&timer.state) != RUNS)
		start(&timer);
}

void service_keep_timer(void)
{
	if (__builtin_expect(atomic_load_explicit(&timer.state, memory_order_relaxed) != RUNS, 0) && deadline_is_any())
		start(&timer);
}

void service_bound(int fd, int64_t at_ns)
{
	if (deadline_arm(fd, at_ns))
		wake_timer();
	else
		service_keep_timer();
}

bool service_detours(void)
{
	for (int i = 0; i < 10000; i++) {
		if (start(&detours))
			return true;
		/* A fork of another thread's, or its start: a moment. */
		if (!atomic_load(&pauses) && atomic_load(&detours.state) != CLAIMED)
			return false;
		sched_yield();
	}
	return false;
}

/* When to look again. */
static int64_t look(struct region *r, int64_t now_ns)
{
	int64_t not_before = atomic_load_explicit(&socket_server.not_before_ns, memory_order_relaxed);
	if (atomic_load_explicit(&socket_server.state, memory_order_relaxed) == RUNS || !control.run)
		return now_ns + NS_PER_S;
	if (now_ns < not_before)
		return not_before;
	const struct config *c = policy_acquire();
	enum control_kind kind = c ? config_control(c) : CONTROL_OFF;
	policy_release(c);
	if (kind == CONTROL_OFF)
		return now_ns + NS_PER_S;
	if (kind == CONTROL_AUTO && now_ns - guest_attached_ns() < NS_PER_S)
		return guest_attached_ns() + NS_PER_S;
	if (!control.should_run(r))
		return now_ns + NS_PER_S;
	/* Not started (a pause, no thread to be had): the next connect tries again. */
	return start(&socket_server) ? now_ns + NS_PER_S : now_ns;
}

void service_look(struct region *r, int64_t now_ns)
{
	atomic_store_explicit(&service_look_at_ns, look(r, now_ns), memory_order_relaxed);
}

static bool stop_quietly(struct worker *w)
{
	for (;;) {
		uint32_t seen = atomic_load(&w->state);
		if (seen == NONE)
			return false;
		if (seen == CLAIMED || !atomic_compare_exchange_strong(&w->state, &seen, CLAIMED)) {
			sched_yield(); /* another thread starts or joins it: a moment */
			continue;
		}
		atomic_store(&w->stop, 1);
		w->wake();
		thread_join(w->thread);
		atomic_store(&w->state, NONE);
		return seen == RUNS;
	}
}

/* Returns whether it was running. */
static bool stop(struct worker *w)
{
	if (atomic_load(&w->state) == NONE)
		return false;
	struct thread_quiet q;
	thread_quiet_begin(&q);
	bool was_running = stop_quietly(w);
	thread_quiet_end(&q);
	return was_running;
}

void service_pause(bool is_patient)
{
	atomic_fetch_add(&pauses, 1);
	resolver_pause(is_patient);
	stop(&timer);
	stop(&detours);
	if (stop(&socket_server))
		atomic_store(&service_is_due, true);
}

void service_revive(void)
{
	if (guest_is_on() && start(&socket_server))
		atomic_store(&service_is_due, false);
}

void service_resume(void)
{
	if (atomic_fetch_sub(&pauses, 1) == 1) {
		if (deadline_is_any())
			start(&timer);
		if (detour_is_any())
			start(&detours);
	}
	resolver_resume();
}

void service_retire(void)
{
	service_pause(true);
	if (control.forget)
		control.forget();
	ownfd_drop_all();
	guest_restrict(true);
}

void service_return(void)
{
	guest_restrict(false);
	service_resume();
}

void service_forked(void)
{
	atomic_store(&pauses, 0);
	resolver_forked();
	later_forked();
	atomic_store(&timer.state, NONE);
	atomic_store(&detours.state, NONE);
	atomic_store(&detours.not_before_ns, 0);
	atomic_store(&socket_server.state, NONE);
	atomic_store(&service_is_due, false);
	atomic_store(&timer.not_before_ns, 0);
	atomic_store(&socket_server.not_before_ns, 0);
	atomic_store(&service_look_at_ns, 0);
	if (control.forget)
		control.forget();
	/* A daemon's second fork: whoever is left may do nothing but poll. */
	if (atomic_load(&is_daemon))
		service_keep_timer();
}

void service_becomes_daemon(void)
{
	atomic_store(&is_daemon, true);
	ambient_drop();
	service_keep_timer();
}
