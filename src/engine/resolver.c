/* See resolver.h. Look-ups are asked on any thread; what is asked of libc here allocates as libc does. */
#include "engine/resolver.h"

#include <errno.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/real.h"
#include "base/sys.h"
#include "engine/guest.h"
#include "engine/pool.h"
#include "engine/thread.h"

/* Another libc has not got them: its programs start under our preload all the same, and nothing of ours runs in them
 * (E16). */
extern __typeof__(res_ninit) res_ninit __attribute__((weak));
extern __typeof__(res_nclose) res_nclose __attribute__((weak));

#define IDLE_NS NS_PER_S
#define A_NAME_MAX (RESOLVER_THREADS / 4) /* threads busy with one name */
#define HOST_BYTES 65536u		  /* a host's names and addresses */
#define PATIENCE_NS (30 * NS_PER_S)
#define SLEEP_NS (20 * NS_PER_MS) /* for a busy thread to be seen asleep */

enum record_state { FREE, QUEUED, RUNNING, DONE, LEFT };

struct record {
	_Atomic uint32_t word; /* generation << 3 | state; the caller's futex */
	_Atomic uint32_t next_free;
	_Atomic int64_t asked_ns;
	_Atomic uint32_t name; /* hash, never 0 */
	int64_t until_ns;
	enum resolver_kind kind;
	int family;
	bool has_service, has_hints;
	struct addrinfo hints;
	uint8_t address[16];
	socklen_t address_len;
	char node[NI_MAXHOST + 1], service[64];
	/* the answer; the thread's until DONE */
	int result, error, host_error;
	struct addrinfo *list;
	struct hostent host, *found;
	char *bytes; /* a mapping of HOST_BYTES, of BY_*; null: none */
};

/*   NONE -> STARTING -> IDLE <-> BUSY       STARTING is the starter's, STOPPING and JOINING are the joiner's
 *                        | STOPPING  | DONE: it has returned by itself
 *                        +-> NONE <--+ (joined)                                                          */
enum worker_state { NONE, STARTING, IDLE, BUSY, STOPPING, ENDED, JOINING };

struct worker {
	_Atomic uint32_t state; /* a futex for who waits for BUSY to end */
	_Atomic uint32_t name;	/* hash of what it looks up, 0: nothing */
	_Atomic int tid;
	pthread_t thread;
};

static struct pool records = {
	.size = sizeof(struct record), .link_at = offsetof(struct record, next_free), .most = 4096, .tight = 128};
static struct worker workers[RESOLVER_THREADS];
static _Atomic uint32_t work; /* futex: moves with each question, and to end the idle */
static _Atomic int queued, idle, pauses;
static __thread bool is_worker;
/* What this thread waits for; still set when it asks again, a signal handler has jumped out of the wait. */
static __thread struct {
	uint32_t index, word; /* index + 1 */
} waiting;

static struct record *at(uint32_t index)
{
	return pool_at(&records, index);
}

static enum record_state state_of(uint32_t word)
{
	return (enum record_state)(word & 7);
}

static uint32_t with_state(uint32_t word, enum record_state state)
{
	return (word & ~7u) | (uint32_t)state;
}

static bool change(_Atomic uint32_t *word, uint32_t seen, uint32_t to)
{
	return atomic_compare_exchange_strong(word, &seen, to);
}

/* ---- records ---- */

static void give_back(uint32_t index)
{
	struct record *r = at(index);
	if (r->bytes)
		sys_munmap(r->bytes, HOST_BYTES);
	r->bytes = NULL;
	atomic_fetch_and(&r->word, ~7u); /* FREE */
	pool_give(&records, index);
}

static void drop_answer(struct record *r)
{
	if (r->list)
		real_freeaddrinfo(r->list);
	r->list = NULL;
}

static bool fits(const struct resolver_question *q)
{
	return q->kind == RESOLVER_BY_ADDRESS
		       ? q->address_len <= sizeof((struct record *)0)->address
		       : strlen(q->node) < sizeof((struct record *)0)->node &&
				 (!q->service || strlen(q->service) < sizeof((struct record *)0)->service);
}

static void fill(struct record *r, const struct resolver_question *q, int64_t until_ns)
{
	atomic_store_explicit(&r->asked_ns, clock_now_ns(), memory_order_relaxed);
	r->until_ns = until_ns;
	r->kind = q->kind;
	r->family = q->family;
	r->has_service = q->service != NULL;
	r->has_hints = q->hints != NULL;
	r->list = NULL;
	r->found = NULL;
	r->address_len = q->address_len;
	if (q->kind == RESOLVER_BY_ADDRESS)
		memcpy(r->address, q->address, q->address_len);
	else
		strcpy(r->node, q->node);
	if (q->service)
		strcpy(r->service, q->service);
	if (q->hints)
		r->hints = (struct addrinfo){.ai_flags = q->hints->ai_flags,
			.ai_family = q->hints->ai_family,
			.ai_socktype = q->hints->ai_socktype,
			.ai_protocol = q->hints->ai_protocol};
	uint64_t hash = q->kind == RESOLVER_BY_ADDRESS ? hash_bytes(HASH_START, q->address, q->address_len)
						       : hash_bytes(HASH_START, q->node, strlen(q->node));
	atomic_store_explicit(&r->name, (uint32_t)hash_mix(hash) | 1, memory_order_relaxed);
}

/* ---- what a thread does ---- */

/* This thread's resolver as the files say now, but that it gives up soon after the limit, when nobody waits any more:
 * within a limit of n seconds the first server has n seconds either way. */
static void prepare_resolver(int64_t left_ns)
{
	struct __res_state *s = __res_state();
	int seconds = left_ns < NS_PER_S	 ? 1
		      : left_ns > 100 * NS_PER_S ? 100
						 : (int)((left_ns + NS_PER_S - 1) / NS_PER_S);
	if (s->options & RES_INIT)
		res_nclose(s);
	if (res_ninit(s) != 0)
		return;
	if (s->retrans > seconds)
		s->retrans = seconds;
	int tries = s->retrans > 0 ? (seconds + s->retrans - 1) / s->retrans : 1;
	if (s->retry > tries)
		s->retry = tries;
}

static void look_up(struct record *r)
{
	prepare_resolver(r->until_ns - clock_now_ns());
	errno = 0;
	h_errno = 0;
	switch (r->kind) {
	case RESOLVER_ADDRINFO:
		r->result = real.getaddrinfo(
			r->node, r->has_service ? r->service : NULL, r->has_hints ? &r->hints : NULL, &r->list);
		if (r->result != 0)
			r->list = NULL;
		break;
	case RESOLVER_BY_NAME:
	case RESOLVER_BY_ADDRESS:
		r->bytes = sys_mmap(HOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (sys_is_error(r->bytes)) {
			r->bytes = NULL;
			r->result = errno = ENOMEM;
			r->host_error = NETDB_INTERNAL;
			break;
		}
		if (r->kind == RESOLVER_BY_ADDRESS)
			r->result = real.gethostbyaddr_r(r->address, r->address_len, r->family, &r->host, r->bytes,
				HOST_BYTES, &r->found, &r->host_error);
		else if (r->family == AF_UNSPEC)
			r->result = real.gethostbyname_r(
				r->node, &r->host, r->bytes, HOST_BYTES, &r->found, &r->host_error);
		else
			r->result = real.gethostbyname2_r(
				r->node, r->family, &r->host, r->bytes, HOST_BYTES, &r->found, &r->host_error);
		break;
	}
	r->error = errno;
}

static unsigned busy_with(uint32_t name)
{
	unsigned n = 0;
	for (int i = 0; i < RESOLVER_THREADS; i++)
		n += atomic_load_explicit(&workers[i].name, memory_order_relaxed) == name;
	return n;
}

/* The question that has waited longest among those whose name may have another thread; RUNNING then. */
static uint32_t take_question(struct worker *w)
{
	for (;;) {
		uint32_t n = pool_high(&records), best = POOL_NONE, best_word = 0;
		for (uint32_t i = 0; i < n; i++) {
			struct record *r = at(i);
			uint32_t word = atomic_load(&r->word);
			if (state_of(word) == QUEUED && (best == POOL_NONE || r->asked_ns < at(best)->asked_ns) &&
				busy_with(r->name) < A_NAME_MAX) {
				best = i;
				best_word = word;
			}
		}
		if (best == POOL_NONE)
			return POOL_NONE;
		atomic_store(&w->name, at(best)->name);
		if (change(&at(best)->word, best_word, with_state(best_word, RUNNING))) {
			atomic_fetch_sub(&queued, 1);
			return best;
		}
	}
}

static void answer(uint32_t index)
{
	struct record *r = at(index);
	look_up(r);
	uint32_t word = atomic_load(&r->word);
	if (state_of(word) == RUNNING && change(&r->word, word, with_state(word, DONE))) {
		sys_futex_wake(&r->word, 1);
		return;
	}
	drop_answer(r); /* LEFT */
	give_back(index);
}

static void answer_all(struct worker *w)
{
	while (!atomic_load(&pauses)) {
		uint32_t index = take_question(w);
		if (index == POOL_NONE)
			break;
		answer(index);
		atomic_store(&w->name, 0); /* or it would count against the next question for the same name */
	}
	atomic_store(&w->name, 0);
}

static void end(struct worker *w)
{
	atomic_store(&w->state, ENDED);
	sys_futex_wake(&w->state, INT32_MAX);
}

static void *body(void *arg)
{
	struct worker *w = arg;
	is_worker = true;
	atomic_store(&w->tid, sys_gettid());
	while (atomic_load(&w->state) == STARTING)
		sched_yield(); /* our id is being stored */
	thread_name("resil-resolver");
	for (int64_t idle_since = clock_now_ns();;) {
		uint32_t seen = atomic_load(&work);
		if (!change(&w->state, IDLE, BUSY))
			return NULL; /* STOPPING */
		atomic_fetch_sub(&idle, 1);
		int64_t began = clock_now_ns();
		answer_all(w);
		int64_t now = clock_now_ns();
		if (now - began > NS_PER_MS)
			idle_since = now;
		/* A pause counts itself, then looks at the states; we change ours, then look for pauses. Not idle any
		 * more, then a last look at the questions: who asks looks at the idle after it has asked. */
		if (now - idle_since >= IDLE_NS) {
			end(w);
			return NULL;
		}
		atomic_fetch_add(&idle, 1);
		atomic_store(&w->state, IDLE);
		if (atomic_load(&pauses)) {
			if (change(&w->state, IDLE, BUSY)) {
				atomic_fetch_sub(&idle, 1);
				end(w);
			}
			return NULL;
		}
		int64_t until = idle_since + IDLE_NS;
		struct timespec ts = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
		sys_futex_wait(&work, seen, &ts);
	}
}

/* ---- starting and ending them ---- */

static bool start_one(void)
{
	for (int i = 0; i < RESOLVER_THREADS; i++) {
		struct worker *w = &workers[i];
		uint32_t state = atomic_load(&w->state);
		if ((state != NONE && state != ENDED) || !change(&w->state, state, STARTING))
			continue;
		if (state == ENDED)
			thread_join(w->thread);
		/* Claimed first, then the look: a pause sees one of both. */
		if (atomic_load(&pauses) || !thread_start(&w->thread, body, w)) {
			atomic_store(&w->state, NONE);
			return false;
		}
		atomic_fetch_add(&idle, 1);
		atomic_store(&w->state, IDLE);
		return true;
	}
	return false;
}

unsigned resolver_threads(void)
{
	unsigned n = 0;
	for (int i = 0; i < RESOLVER_THREADS; i++) {
		uint32_t state = atomic_load(&workers[i].state);
		n += state == IDLE || state == BUSY || state == STOPPING;
	}
	return n;
}

/* Somebody to answer what was asked; false: nobody, and nobody is to be had. */
static bool provide_threads(uint32_t name)
{
	if (atomic_load(&queued) > atomic_load(&idle) && busy_with(name) < A_NAME_MAX && !atomic_load(&pauses)) {
		struct thread_quiet q;
		thread_quiet_begin(&q);
		start_one();
		thread_quiet_end(&q);
	}
	if (atomic_load(&idle) > 0)
		sys_futex_wake(&work, 1);
	return resolver_threads() > 0 || atomic_load(&pauses);
}

/* Busy with libc's look-up: is it asleep in one of the calls in which a resolver waits, holding nothing? */
static bool is_asleep(int tid)
{
	static const long waits[] = {
#ifdef SYS_poll
		SYS_poll, SYS_epoll_wait, SYS_select,
#endif
		SYS_ppoll, SYS_epoll_pwait, SYS_pselect6};
	char path[64], said[32];
	struct text t = TEXT_ON(path);
	text_fmt(&t, "/proc/self/task/%d/syscall", tid);
	int fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return true; /* not to be known */
	ssize_t n = sys_read(fd, said, sizeof said - 1);
	sys_close(fd);
	long number = 0;
	ssize_t i = 0;
	for (; i < n && said[i] >= '0' && said[i] <= '9'; i++)
		number = number * 10 + (said[i] - '0');
	for (size_t k = 0; i > 0 && k < sizeof waits / sizeof waits[0]; k++)
		if (number == waits[k])
			return true;
	return false;
}

/* In the middle of libc's look-up. */
static void let_sleep(struct worker *w)
{
	int64_t begun = clock_now_ns();
	while (atomic_load(&w->state) == BUSY && !is_asleep(atomic_load(&w->tid)) && clock_now_ns() - begun < SLEEP_NS)
		sched_yield();
}

static void wait_for(struct worker *w)
{
	int64_t until = clock_now_ns() + PATIENCE_NS;
	struct timespec ts = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
	while (atomic_load(&w->state) == BUSY && clock_now_ns() < until)
		sys_futex_wait(&w->state, BUSY, &ts);
}

static void stop_one(struct worker *w, bool is_patient)
{
	for (;;) {
		uint32_t state = atomic_load(&w->state);
		switch ((enum worker_state)state) {
		case NONE: return;
		case BUSY:
			if (is_patient)
				wait_for(w);
			else
				let_sleep(w);
			if (atomic_load(&w->state) == BUSY)
				return;
			continue;
		case IDLE:
			if (!change(&w->state, IDLE, STOPPING))
				continue;
			atomic_fetch_sub(&idle, 1);
			atomic_fetch_add(&work, 1);
			sys_futex_wake(&work, INT32_MAX);
			break;
		case ENDED:
			if (!change(&w->state, ENDED, JOINING))
				continue;
			break;
		case STARTING:
		case STOPPING:
		case JOINING: sched_yield(); continue;
		}
		thread_join(w->thread);
		atomic_store(&w->state, NONE);
		return;
	}
}

void resolver_pause(bool is_patient)
{
	struct thread_quiet q;
	bool is_any = false;
	atomic_fetch_add(&pauses, 1);
	for (int i = 0; i < RESOLVER_THREADS; i++)
		is_any |= atomic_load(&workers[i].state) != NONE;
	if (!is_any)
		return;
	thread_quiet_begin(&q);
	for (int i = 0; i < RESOLVER_THREADS; i++)
		stop_one(&workers[i], is_patient);
	thread_quiet_end(&q);
}

void resolver_resume(void)
{
	struct thread_quiet q;
	if (atomic_fetch_sub(&pauses, 1) != 1 || atomic_load(&queued) == 0 || guest_is_leaving())
		return;
	thread_quiet_begin(&q);
	for (int i = atomic_load(&queued); i > 0 && start_one(); i--)
		;
	thread_quiet_end(&q);
}

void resolver_forked(void)
{
	for (int i = 0; i < RESOLVER_THREADS; i++) {
		atomic_store(&workers[i].state, NONE);
		atomic_store(&workers[i].name, 0);
	}
	/* Another generation, for who waits below the signal handler that has forked. Answers are left alone: a thread
	 * of the parent's may have stood in the middle of one. */
	uint32_t n = pool_high(&records);
	for (uint32_t i = 0; i < n; i++) {
		atomic_store(&at(i)->word, with_state(atomic_load(&at(i)->word) + 8, FREE));
		at(i)->bytes = NULL;
	}
	pool_reset(&records);
	atomic_store(&queued, 0);
	atomic_store(&idle, 0);
	atomic_store(&pauses, 0);
	is_worker = false;
}

/* ---- asking ---- */

/* Settings of the app's own for this thread (_res, res_init by hand): only libc here and now follows them. */
static bool has_own_settings(void)
{
	struct __res_state *mine = __res_state(), fresh;
	if (!(mine->options & RES_INIT))
		return false;
	memset(&fresh, 0, sizeof fresh);
	if (res_ninit(&fresh) != 0)
		return true;
	bool is_same = mine->options == fresh.options && mine->retrans == fresh.retrans && mine->retry == fresh.retry &&
		       mine->nscount == fresh.nscount && mine->ndots == fresh.ndots &&
		       strncmp(mine->defdname, fresh.defdname, sizeof fresh.defdname) == 0;
	for (int i = 0; is_same && i < fresh.nscount && i < MAXNS; i++) {
		const struct sockaddr_in *a = &mine->nsaddr_list[i], *b = &fresh.nsaddr_list[i];
		is_same = a->sin_family == b->sin_family &&
			  (a->sin_family != AF_INET ||
				  (a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr));
	}
	res_nclose(&fresh);
	return !is_same;
}

static void wait_for_answer(struct record *r, uint32_t word, int64_t until_ns)
{
	struct timespec ts = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
	uint32_t now = atomic_load(&r->word);
	while (now >> 3 == word >> 3 && state_of(now) != DONE && clock_now_ns() < until_ns) {
		sys_futex_wait(&r->word, now, &ts);
		now = atomic_load(&r->word); /* whatever the futex said */
	}
}

/* The wait is over. True: with an answer, which is the caller's; false: the record is not ours any more. */
static bool leave(uint32_t index, uint32_t word)
{
	struct record *r = at(index);
	for (;;) {
		uint32_t now = atomic_load(&r->word);
		if (now >> 3 != word >> 3)
			return false;
		switch (state_of(now)) {
		case DONE: return true;
		case QUEUED:
			if (!change(&r->word, now, with_state(now, FREE)))
				continue;
			atomic_fetch_sub(&queued, 1);
			give_back(index);
			return false;
		case RUNNING:
			if (!change(&r->word, now, with_state(now, LEFT)))
				continue;
			return false;
		case FREE:
		case LEFT: return false;
		}
	}
}

static void leave_abandoned(void)
{
	uint32_t index = waiting.index - 1;
	waiting.index = 0;
	if (leave(index, waiting.word)) {
		drop_answer(at(index));
		give_back(index);
	}
}

enum resolver_end resolver_ask(const struct resolver_question *q, int64_t until_ns, struct resolver_answer *answer)
{
	int saved = errno;
	if (waiting.index)
		leave_abandoned();
	if (is_worker || guest_is_restricted() || guest_is_leaving() || !fits(q) || has_own_settings())
		return RESOLVER_IN_PLACE;
	uint32_t index = pool_take(&records);
	if (index == POOL_NONE)
		return RESOLVER_IN_PLACE;
	struct record *r = at(index);
	fill(r, q, until_ns);
	uint32_t word = with_state(atomic_load(&r->word) + 8, QUEUED);
	atomic_store(&r->word, word);
	atomic_fetch_add(&queued, 1);
	atomic_fetch_add(&work, 1);
	if (!provide_threads(r->name)) {
		static bool said;
		log_once(&said, "no thread is to be had: look-ups have no limit");
		if (!leave(index, word)) {
			errno = saved;
			return RESOLVER_IN_PLACE;
		}
	}
	waiting.word = word;
	waiting.index = index + 1;
	wait_for_answer(r, word, until_ns);
	waiting.index = 0;
	if (!leave(index, word)) {
		errno = saved;
		return RESOLVER_LATE;
	}
	*answer = (struct resolver_answer){.result = r->result,
		.error = r->error,
		.host_error = r->host_error,
		.list = r->list,
		.host = r->found,
		.record = index};
	r->list = NULL;
	errno = saved;
	return RESOLVER_ANSWERED;
}

void resolver_release(const struct resolver_answer *answer)
{
	give_back(answer->record);
}

/* ---- hosts ---- */

struct room {
	char *at;
	size_t left;
};

static void *room_take(struct room *room, size_t n, size_t align)
{
	size_t pad = (size_t)(-(uintptr_t)room->at) & (align - 1);
	if (room->left < pad || room->left - pad < n)
		return NULL;
	char *at_ = room->at + pad;
	room->at = at_ + n;
	room->left -= pad + n;
	return at_;
}

static char **copy_list(struct room *room, char **from, size_t bytes)
{
	size_t n = 0;
	while (from && from[n])
		n++;
	char **to = room_take(room, (n + 1) * sizeof *to, sizeof *to);
	for (size_t i = 0; to && i < n; i++) {
		size_t size = bytes ? bytes : strlen(from[i]) + 1;
		to[i] = room_take(room, size, bytes ? 8 : 1);
		if (!to[i])
			return NULL;
		memcpy(to[i], from[i], size);
	}
	if (to)
		to[n] = NULL;
	return to;
}

bool resolver_copy_host(const struct hostent *from, struct hostent *to, char *buf, size_t n)
{
	struct room room = {buf, n};
	to->h_addrtype = from->h_addrtype;
	to->h_length = from->h_length;
	to->h_addr_list = copy_list(&room, from->h_addr_list, (size_t)from->h_length);
	to->h_aliases = to->h_addr_list ? copy_list(&room, from->h_aliases, 0) : NULL;
	size_t size = strlen(from->h_name) + 1;
	to->h_name = to->h_aliases ? room_take(&room, size, 1) : NULL;
	if (to->h_name)
		memcpy(to->h_name, from->h_name, size);
	return to->h_name != NULL;
}
