/* See later.h. Asked on any thread; allocates as libc's does. */
#include "engine/later.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/oldlibc.h"
#include "base/real.h"
#include "base/sys.h"
#include "engine/pool.h"
#include "engine/thread.h"

OLDLIBC(pthread_create);
OLDLIBC(pthread_sigmask);

#define THREADS 20 /* as libc */
/* Among requests of libc's, whose end nobody tells us. */
#define LOOK_NS (20 * NS_PER_MS)

enum state { FREE, QUEUED, RUNNING, ENDING, CANCELED };

struct request {
	_Atomic uint32_t word; /* generation << 3 | state */
	_Atomic uint32_t next_free;
	_Atomic int64_t asked_ns;
	struct gaicb *_Atomic cb;
	later_look_up *look_up;
	uint32_t batch;
	char *node, *service; /* copies: a canceled one's caller may free its own */
	bool has_hints;
	struct addrinfo hints;
};

/* Those of one call. `left` counts the call itself, too, until it has handed in all. */
struct batch {
	_Atomic uint32_t left;
	_Atomic uint32_t next_free;
	bool is_waited;
	struct sigevent event;
};

static struct pool requests = {
	.size = sizeof(struct request), .link_at = offsetof(struct request, next_free), .most = 4096, .tight = 128};
static struct pool batches = {
	.size = sizeof(struct batch), .link_at = offsetof(struct batch, next_free), .most = 4096, .tight = 128};
static _Atomic int helpers;
static _Atomic uint32_t finished; /* futex: moves with each request that is over */

static struct request *at(uint32_t index)
{
	return pool_at(&requests, index);
}

static enum state state_of(uint32_t word)
{
	return (enum state)(word & 7);
}

static bool step(struct request *r, uint32_t seen, enum state to)
{
	return atomic_compare_exchange_strong(&r->word, &seen, (seen & ~7u) | (uint32_t)to);
}

static void say(struct gaicb *cb, int result)
{
	__atomic_store_n(&cb->__return, result, __ATOMIC_RELEASE);
}

static bool is_in_progress(const struct gaicb *cb)
{
	return cb && __atomic_load_n(&cb->__return, __ATOMIC_ACQUIRE) == EAI_INPROGRESS;
}

static void give_back(uint32_t index)
{
	struct request *r = at(index);
	free(r->node);
	free(r->service);
	atomic_store(&r->cb, NULL);
	atomic_store(&r->word, (atomic_load(&r->word) & ~7u) + 8); /* FREE, of another generation */
	pool_give(&requests, index);
}

/* ---- telling ---- */

struct told {
	void (*tell)(union sigval value);
	union sigval value;
};

static void *tell_by_thread(void *arg)
{
	struct told told = *(struct told *)arg;
	sigset_t none;
	free(arg);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	told.tell(told.value);
	return NULL;
}

static bool start_thread(const pthread_attr_t *wanted, void *(*body)(void *), void *arg)
{
	struct thread_quiet q;
	pthread_attr_t detached;
	pthread_t thread;
	thread_quiet_begin(&q);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	bool is_started = pthread_create(&thread, wanted ? wanted : &detached, body, arg) == 0;
	pthread_attr_destroy(&detached);
	thread_quiet_end(&q);
	return is_started;
}

static void notify(const struct sigevent *e)
{
	if (e->sigev_notify == SIGEV_SIGNAL) {
		siginfo_t info = {.si_signo = e->sigev_signo, .si_code = SI_ASYNCNL};
		info.si_pid = (pid_t)sys_getpid();
		info.si_uid = getuid();
		info.si_value = e->sigev_value;
		SYS3(SYS_rt_sigqueueinfo, info.si_pid, e->sigev_signo, &info);
	} else if (e->sigev_notify == SIGEV_THREAD) {
		struct told *told = malloc(sizeof *told);
		if (!told)
			return;
		*told = (struct told){e->sigev_notify_function, e->sigev_value};
		if (!start_thread(e->sigev_notify_attributes, tell_by_thread, told))
			free(told);
	}
}

/* One of the batch is over, or all of it has been handed in. */
static void count_down(uint32_t index)
{
	struct batch *b = pool_at(&batches, index);
	bool is_waited = b->is_waited;
	if (atomic_fetch_sub(&b->left, 1) == 1 && !is_waited) {
		struct sigevent event = b->event;
		pool_give(&batches, index);
		notify(&event);
	} else if (is_waited) {
		sys_futex_wake(&b->left, 1);
	}
}

/* Its cb has what came of it. */
static void is_over(uint32_t batch)
{
	atomic_fetch_add(&finished, 1);
	sys_futex_wake(&finished, INT32_MAX);
	count_down(batch);
}

/* ---- answering ---- */

/* The one that has waited longest, RUNNING then; *word: as it is. */
static uint32_t take(uint32_t *word)
{
	for (;;) {
		uint32_t n = pool_high(&requests), best = POOL_NONE;
		for (uint32_t i = 0; i < n; i++) {
			uint32_t seen = atomic_load(&at(i)->word);
			if (state_of(seen) != QUEUED || (best != POOL_NONE && at(i)->asked_ns >= at(best)->asked_ns))
				continue;
			best = i;
			*word = seen;
		}
		if (best == POOL_NONE)
			return POOL_NONE;
		if (step(at(best), *word, RUNNING)) {
			*word = (*word & ~7u) | RUNNING;
			return best;
		}
	}
}

static void answer(uint32_t index, uint32_t word)
{
	struct request *r = at(index);
	struct addrinfo *list = NULL;
	int result = r->look_up(r->node, r->service, r->has_hints ? &r->hints : NULL, &list,
		atomic_load_explicit(&r->asked_ns, memory_order_relaxed));
	if (!step(r, word, ENDING)) {
		if (result == 0 && list)
			real_freeaddrinfo(list);
		give_back(index);
		return;
	}
	uint32_t batch = r->batch;
	struct gaicb *cb = atomic_load(&r->cb);
	cb->ar_result = result == 0 ? list : NULL;
	say(cb, result);
	give_back(index);
	is_over(batch);
}

static bool claim_helper(void)
{
	int n = atomic_load(&helpers);
	while (n < THREADS)
		if (atomic_compare_exchange_weak(&helpers, &n, n + 1))
			return true;
	return false;
}

static bool is_any_queued(void)
{
	uint32_t n = pool_high(&requests);
	for (uint32_t i = 0; i < n; i++)
		if (state_of(atomic_load(&at(i)->word)) == QUEUED)
			return true;
	return false;
}

static void *help(void *unused)
{
	(void)unused;
	thread_name("resil-later");
	for (;;) {
		uint32_t word, index = take(&word);
		if (index != POOL_NONE) {
			answer(index, word);
			continue;
		}
		/* Not counted any more, then a last look: who asks has queued before it counts us. */
		atomic_fetch_sub(&helpers, 1);
		if (!is_any_queued() || !claim_helper())
			return NULL;
	}
}

/* Somebody to answer it. False: nobody is, and nobody is to be had. */
static bool provide_helper(void)
{
	if (claim_helper()) {
		if (start_thread(NULL, help, NULL))
			return true;
		atomic_fetch_sub(&helpers, 1);
	}
	return atomic_load(&helpers) > 0;
}

/* ---- asking ---- */

/* A copy; null where there is nothing to copy, or no memory for it. */
static char *copy_of(const char *text)
{
	return text ? strdup(text) : NULL;
}

/* True: it is canceled, by whoever makes the change. */
static bool cancel_at(uint32_t index, uint32_t word)
{
	struct request *r = at(index);
	struct gaicb *cb = atomic_load(&r->cb);
	uint32_t batch = r->batch;
	bool may_be = state_of(word) == QUEUED || state_of(word) == RUNNING;
	if (!cb || !may_be || !step(r, word, CANCELED))
		return false;
	say(cb, EAI_CANCELED);
	if (state_of(word) == QUEUED)
		give_back(index);
	is_over(batch);
	return true;
}

static bool enqueue(struct gaicb *cb, uint32_t batch, later_look_up *look_up)
{
	uint32_t index = pool_take(&requests);
	if (index == POOL_NONE)
		return false;
	struct request *r = at(index);
	const struct addrinfo *hints = cb->ar_request;
	r->look_up = look_up;
	r->batch = batch;
	r->has_hints = hints != NULL;
	if (hints)
		r->hints = (struct addrinfo){.ai_flags = hints->ai_flags,
			.ai_family = hints->ai_family,
			.ai_socktype = hints->ai_socktype,
			.ai_protocol = hints->ai_protocol};
	char *node = copy_of(cb->ar_name), *service = copy_of(cb->ar_service);
	if ((cb->ar_name && !node) || (cb->ar_service && !service)) {
		free(node);
		free(service);
		r->node = r->service = NULL;
		give_back(index);
		return false;
	}
	r->node = node;
	r->service = service;
	atomic_store(&r->asked_ns, clock_now_ns());
	atomic_store(&r->cb, cb);
	say(cb, EAI_INPROGRESS);
	struct batch *b = pool_at(&batches, batch);
	atomic_fetch_add(&b->left, 1);
	uint32_t word = (atomic_load(&r->word) & ~7u) | QUEUED;
	atomic_store(&r->word, word);
	/* Nobody to be had: not asked, unless a helper has it already. */
	return provide_helper() || !cancel_at(index, word);
}

/* All but the call itself are over. No cancellation point: as libc's. */
static void wait_for(uint32_t batch)
{
	struct batch *b = pool_at(&batches, batch);
	for (uint32_t left; (left = atomic_load(&b->left)) > 1;)
		sys_futex_wait(&b->left, left, NULL);
	pool_give(&batches, batch);
}

int later_ask(int mode, struct gaicb *const list[], int n, const struct sigevent *event, later_look_up *look_up)
{
	uint32_t batch = pool_take(&batches);
	int result = 0, saved = errno;
	if (batch == POOL_NONE)
		return EAI_AGAIN;
	struct batch *b = pool_at(&batches, batch);
	b->is_waited = mode == GAI_WAIT;
	b->event = event && mode == GAI_NOWAIT ? *event : (struct sigevent){.sigev_notify = SIGEV_NONE};
	atomic_store(&b->left, 1);
	for (int i = 0; i < n; i++) {
		if (list[i] && !enqueue(list[i], batch, look_up)) {
			say(list[i], EAI_AGAIN);
			result = EAI_AGAIN;
		}
	}
	if (mode == GAI_WAIT)
		wait_for(batch);
	else
		count_down(batch);
	errno = saved;
	return result;
}

/* The request of a cb that is not over, or POOL_NONE. cb null: any that may be canceled. */
static uint32_t find(const struct gaicb *cb, uint32_t *word)
{
	uint32_t n = pool_high(&requests);
	for (uint32_t i = 0; i < n; i++) {
		*word = atomic_load(&at(i)->word);
		enum state state = state_of(*word);
		if (cb ? state != FREE && state != CANCELED && atomic_load(&at(i)->cb) == cb
		       : state == QUEUED || state == RUNNING)
			return i;
	}
	return POOL_NONE;
}

bool later_cancel(struct gaicb *request, int *result)
{
	uint32_t word, index = find(request, &word);
	if (index == POOL_NONE)
		return false;
	*result = EAI_NOTCANCELED;
	do
		*result = cancel_at(index, word) ? EAI_CANCELED : *result;
	while ((index = find(request, &word)) != POOL_NONE && state_of(word) != ENDING);
	return true;
}

static int count_in_progress(const struct gaicb *const list[], int n)
{
	int count = 0;
	for (int i = 0; i < n; i++)
		count += is_in_progress(list[i]);
	return count;
}

bool later_suspend(const struct gaicb *const list[], int n, const struct timespec *timeout, int *result)
{
	int begun = 0, ours = 0, saved = errno;
	int64_t until = timeout ? clock_now_ns() + timeout->tv_sec * NS_PER_S + timeout->tv_nsec : INT64_MAX;
	uint32_t word;
	for (int i = 0; i < n; i++) {
		if (!is_in_progress(list[i]))
			continue;
		begun++;
		ours += find(list[i], &word) != POOL_NONE;
	}
	if (ours == 0)
		return false;
	for (*result = 0;;) {
		uint32_t seen = atomic_load(&finished);
		int64_t now = clock_now_ns();
		if (count_in_progress(list, n) < begun)
			break;
		if (now >= until) {
			*result = EAI_AGAIN;
			break;
		}
		int64_t next = ours < begun && now + LOOK_NS < until ? now + LOOK_NS : until;
		struct timespec ts = {.tv_sec = next / NS_PER_S, .tv_nsec = next % NS_PER_S};
		if (sys_futex_wait(&finished, seen, next == INT64_MAX ? NULL : &ts) == -EINTR) {
			*result = EAI_INTR;
			break;
		}
	}
	errno = saved;
	return true;
}

void later_forked(void)
{
	uint32_t n = pool_high(&requests);
	for (uint32_t i = 0; i < n; i++)
		atomic_store(&at(i)->word, (atomic_load(&at(i)->word) & ~7u) + 8);
	pool_reset(&requests);
	pool_reset(&batches);
	atomic_store(&helpers, 0);
}
