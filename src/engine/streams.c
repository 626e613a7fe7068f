/* See streams.h. Fed by the hooks of any thread, one sending and one receiving at a time; judged by the timer; closed
 * by whoever closes. */
#include "engine/streams.h"

#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/hot.h"
#include "base/tcpinfo.h"
#include "engine/ambient.h"
#include "engine/call.h"
#include "engine/exchange.h"
#include "engine/guest.h"
#include "engine/process.h"
#include "engine/wheel.h"
#include "wire/http2.h"

enum stream_phase { STREAM_FREE, STREAM_OWNED, STREAM_WAITING, STREAM_ANSWERING, STREAM_JUDGED, STREAM_TUNNEL };

enum stream_mark {
	STREAM_IS_ASKING = 1 << 0,  /* the request is not whole yet */
	STREAM_IS_CONNECT = 1 << 1, /* from its 2xx on it is no call */
	STREAM_IS_HEADED = 1 << 2,  /* what follows in HEADERS are trailers */
};

struct stream {
	_Atomic uint64_t word; /* number (high 32) | phase (low 8) */
	_Atomic uint32_t call; /* index + 1, 0: none */
	_Atomic uint32_t marks;
	_Atomic int64_t begun_ns;
	_Atomic int64_t asked_ns; /* its last octet so far was sent no later */
	_Atomic int64_t heard_ns; /* an octet of its answer came no earlier */
	_Atomic int64_t own_ns;	  /* the app's own end of it (grpc-timeout); 0: none */
	_Atomic int64_t limit_ns; /* JUDGED: it has passed one of so long; 0: one that ends no socket */
	_Atomic int64_t again_ns; /* JUDGED: when to look whether the peer is silent still */
	_Atomic int64_t window;	  /* octets that the server may send on it */
	_Atomic uint32_t status;  /* HPACK_ABSENT, HPACK_UNSEEN */
	_Atomic uint32_t grpc_status;
	uint32_t forks; /* process_forks at its begin */
};

struct streams {
	struct http2 http;
	_Atomic uint32_t next_free;
	_Atomic uint32_t highest;   /* number begun so far */
	_Atomic uint32_t processed; /* by a GOAWAY: those above it never will be */
	_Atomic uint32_t reach;	    /* no stream lies farther behind where its number leads */
	_Atomic int64_t window, first_window;
	_Atomic int64_t granted_ns; /* when the client last opened a window that was shut */
	/* The timer's, where the kernel does not tell when the last octet came: when it found that more had. */
	int64_t heard_ns;
	uint64_t heard_in;
	struct stream table[STREAMS_MAX];
};

static struct pool pool = {
	.size = sizeof(struct streams), .link_at = offsetof(struct streams, next_free), .most = 1u << 16, .tight = 256};

/* The kernel's times are in its ticks: a limit is never met early for that. */
#define KERNEL_SLACK_NS (4 * NS_PER_MS)
/* Octets that no hook sees: the kernel's count has been ahead of ours for so long. */
#define UNSEEN_MS 20
#define LEFT_LYING_MS 100
#define AHEAD_NS NS_PER_S

static struct streams *streams_of(const struct flow *f)
{
	uint32_t index = atomic_load_explicit(&f->streams, memory_order_acquire);
	return index ? pool_at(&pool, index - 1) : NULL;
}

static int64_t now_of(struct streams_turn *t)
{
	if (!t->now_ns)
		t->now_ns = clock_now_ns();
	return t->now_ns;
}

static int64_t sooner(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static enum stream_phase phase_of(uint64_t word)
{
	return (enum stream_phase)(word & 0xff);
}
static uint64_t word_make(uint32_t number, enum stream_phase phase)
{
	return (uint64_t)number << 32 | (uint64_t)phase;
}
static uint64_t word_of(const struct stream *s)
{
	return atomic_load_explicit(&s->word, memory_order_acquire);
}
static bool is_open(uint64_t word)
{
	return phase_of(word) == STREAM_WAITING || phase_of(word) == STREAM_ANSWERING;
}
static bool has(const struct stream *s, uint32_t marks)
{
	return (atomic_load_explicit(&s->marks, memory_order_relaxed) & marks) != 0;
}

static bool step(struct stream *s, uint64_t seen, enum stream_phase to)
{
	return atomic_compare_exchange_strong(&s->word, &seen, (seen & ~0xffULL) | (uint64_t)to);
}

static struct stream *find(struct streams *all, uint32_t number)
{
	uint32_t reach = atomic_load_explicit(&all->reach, memory_order_relaxed);
	for (uint32_t i = 0; i <= reach; i++) {
		struct stream *s = &all->table[((number >> 1) + i) % STREAMS_MAX];
		uint64_t word = word_of(s);
		if (word >> 32 == number && phase_of(word) > STREAM_OWNED)
			return s;
	}
	return NULL;
}

/* ---- verdicts ---- */

struct verdict {
	enum breaker_outcome outcome;
	enum failure_kind kind;
};
static const struct verdict success = {BREAKER_SUCCESS, 0}, neutral = {BREAKER_NEUTRAL, 0};

static struct verdict failure(enum failure_kind kind)
{
	return (struct verdict){BREAKER_FAILURE, kind};
}

/* The stream, as `seen`, goes to another phase, FREE: it is gone; a call that it has gets the verdict. False: it has
 * changed meanwhile. */
static bool settle(struct stream *s, uint64_t seen, enum stream_phase to, struct verdict v, int64_t now_ns)
{
	if (!step(s, seen, STREAM_OWNED))
		return false;
	uint32_t call = atomic_exchange(&s->call, 0);
	int64_t begun = atomic_load_explicit(&s->begun_ns, memory_order_relaxed);
	atomic_store_explicit(&s->word, to == STREAM_FREE ? 0 : (seen & ~0xffULL) | (uint64_t)to, memory_order_release);
	if (call)
		call_end(call - 1, v.outcome, v.kind, now_ns, v.outcome == BREAKER_NEUTRAL ? -1 : now_ns - begun);
	return true;
}

/* It is gone from the wire; if it has no verdict yet, this is it. */
static void ends(struct stream *s, struct verdict v, int64_t now_ns)
{
	for (int i = 0; i < 100; i++) {
		uint64_t word = word_of(s);
		if (phase_of(word) <= STREAM_OWNED || settle(s, word, STREAM_FREE, v, now_ns))
			return;
	}
}

/* A14, A8: the answer is whole. */
static struct verdict verdict_of_answer(const struct stream *s)
{
	uint32_t status = atomic_load_explicit(&s->status, memory_order_relaxed);
	struct verdict v = success;
	switch (atomic_load_explicit(&s->grpc_status, memory_order_relaxed)) {
	case 2:	 /* UNKNOWN */
	case 4:	 /* DEADLINE_EXCEEDED */
	case 8:	 /* RESOURCE_EXHAUSTED */
	case 13: /* INTERNAL */
	case 14: /* UNAVAILABLE */ return failure(FAILURE_GRPC);
	default: break;
	}
	/* Unseen: that it is whole is all that can be told of it. */
	if (status != HPACK_ABSENT && status != HPACK_UNSEEN)
		v.outcome = flow_outcome_of(status, &v.kind);
	return v;
}

static struct verdict verdict_of_reset(uint32_t code)
{
	/* Not begun to be processed, or not to be had by HTTP/2: it says so itself. */
	return code == HTTP2_REFUSED_STREAM || code == HTTP2_HTTP_1_1_REQUIRED ? neutral : failure(FAILURE_RESET);
}

/* A request on a kept connection that meets its end at once: the server had dropped it before (A7). */
static struct verdict verdict_of_break(
	const struct flow *f, const struct stream *s, uint64_t word, enum failure_kind kind, int64_t now_ns)
{
	bool is_dropped = phase_of(word) == STREAM_WAITING && flow_has(f, FLOW_IS_KEPT) &&
			  now_ns - atomic_load(&s->begun_ns) < NS_PER_S;
	return is_dropped ? neutral : failure(kind);
}

/* The app lets go of one (A5), or its own time has run out. silent_ns: so long nothing has come on the connection.
 * While the request is not whole the server owes nothing yet. */
static struct verdict verdict_of_hang_up(
	const struct flow *f, const struct stream *s, uint64_t word, int64_t silent_ns, int64_t now_ns)
{
	int64_t limit = f->guard.limits.abandon_ns, begun = atomic_load(&s->begun_ns), own = atomic_load(&s->own_ns);
	int64_t waited = phase_of(word) == STREAM_ANSWERING ? silent_ns : now_ns - begun;
	uint32_t call = atomic_load(&s->call);
	/* Time-outs are sent rounded up: to whole milliseconds, long ones by a hundredth or two. */
	bool has_run_out = own && now_ns >= own - NS_PER_MS - (own - begun) / 32;
	bool is_long = has_run_out || (!has(s, STREAM_IS_ASKING) && waited >= limit);
	if (!limit || !is_long || s->forks != process_forks() || (call && call_has_succeeded_since(call - 1, begun)))
		return neutral;
	return failure(has_run_out ? FAILURE_DEADLINE : FAILURE_ABANDONED);
}

/* ---- limits ---- */

enum limit { NONE, ANSWER, STALL, DEADLINE, OWN };

/* The limits of an open stream: the soonest, and which it is. */
static int64_t due_of(const struct flow *f, const struct stream *s, uint64_t word, enum limit *which)
{
	const struct guard_limits *l = &f->guard.limits;
	int64_t begun = atomic_load_explicit(&s->begun_ns, memory_order_relaxed), ambient = ambient_ns();
	int64_t own = atomic_load_explicit(&s->own_ns, memory_order_relaxed);
	int64_t due = l->deadline_ns ? begun + l->deadline_ns : WHEEL_NEVER, at = WHEEL_NEVER;
	*which = DEADLINE;
	if (ambient)
		due = sooner(due, ambient);
	if (own && own < due) {
		due = own;
		*which = OWN;
	}
	if (has(s, STREAM_IS_ASKING))
		return due;
	bool is_answering = phase_of(word) == STREAM_ANSWERING;
	if (is_answering && l->stall_ns)
		at = later(atomic_load_explicit(&s->heard_ns, memory_order_relaxed),
			     atomic_load_explicit(&s->asked_ns, memory_order_relaxed)) +
		     l->stall_ns; /* of an exchange in both directions the server owes the end only now */
	else if (!is_answering && l->answer_ns)
		at = atomic_load_explicit(&s->asked_ns, memory_order_relaxed) + l->answer_ns;
	if (at < due) {
		due = at;
		*which = is_answering ? STALL : ANSWER;
	}
	return due;
}

static void arm(struct streams_turn *t, const struct stream *s)
{
	enum limit which;
	uint64_t word = word_of(s);
	if (flow_has(t->f, FLOW_HAS_LIMITS) && is_open(word))
		t->due_ns = sooner(t->due_ns, due_of(t->f, s, word, &which));
}

/* ---- a stream begins ---- */

/* The connect's call, where no stream has it yet. */
static uint32_t take_own_call(struct streams_turn *t, int64_t *begun_ns)
{
	struct flow *f = t->f;
	for (int i = 0; i < 100; i++) {
		uint64_t word = flow_word(f);
		enum flow_phase phase = flow_phase_of(word);
		if (phase != FLOW_FRESH && phase != FLOW_WAITING && phase != FLOW_ANSWERING)
			return 0;
		int64_t begun = atomic_load(&f->begun_ns), idle = now_of(t) - f->connected_ns;
		int64_t deadline = f->guard.limits.deadline_ns;
		if (!flow_step(f, word, FLOW_IDLE))
			continue;
		/* Made ahead of need: the call begins now. */
		bool is_ahead = idle > AHEAD_NS || (deadline && idle > deadline / 2);
		*begun_ns = is_ahead ? t->now_ns : begun;
		uint32_t call = atomic_exchange(&f->call, 0);
		if (call)
			call_used(call - 1);
		return call;
	}
	return 0;
}

/* What cannot be known is said (`resil doctor`). */
static void note_unseen(const struct flow *f)
{
	if (f->guard.has_circuit)
		atomic_fetch_add_explicit(&f->guard.region->header->unseen_streams, 1, memory_order_relaxed);
}

/* One sender at a time. Those that stay open lie side by side, and whoever comes to them is led past them all. */
static struct stream *take_place(const struct flow *f, struct streams *all, uint32_t number)
{
	for (uint32_t i = 0; i < STREAMS_MAX; i++) {
		struct stream *s = &all->table[((number >> 1) + i) % STREAMS_MAX];
		uint64_t free = 0;
		if (word_of(s) || !atomic_compare_exchange_strong(&s->word, &free, word_make(number, STREAM_OWNED)))
			continue;
		if (i > atomic_load_explicit(&all->reach, memory_order_relaxed))
			atomic_store_explicit(&all->reach, i, memory_order_relaxed); /* the word's release tells it */
		return s;
	}
	static bool said;
	note_unseen(f);
	log_once(&said, "more streams are open on an HTTP/2 connection than are looked at: those beyond pass unseen");
	return NULL;
}

/* Without a call (bypassed, no room) nothing is to be told of it, and nothing bounds it. */
static void open_stream(struct stream *s, uint32_t number, uint32_t call, int64_t begun, int64_t now, uint32_t marks)
{
	atomic_store_explicit(&s->call, call, memory_order_relaxed);
	atomic_store_explicit(&s->marks, marks, memory_order_relaxed);
	atomic_store_explicit(&s->begun_ns, begun, memory_order_relaxed);
	atomic_store_explicit(&s->asked_ns, now, memory_order_relaxed);
	atomic_store_explicit(&s->heard_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&s->own_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&s->limit_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&s->status, HPACK_ABSENT, memory_order_relaxed);
	atomic_store_explicit(&s->grpc_status, HPACK_ABSENT, memory_order_relaxed);
	s->forks = process_forks();
	atomic_store_explicit(&s->word, word_make(number, call ? STREAM_WAITING : STREAM_TUNNEL), memory_order_release);
}

static void request_begins(struct streams_turn *t, struct streams *all, uint32_t number)
{
	if (!(number & 1) || number <= atomic_load_explicit(&all->highest, memory_order_relaxed))
		return; /* trailers, or announced before */
	atomic_store_explicit(&all->highest, number, memory_order_relaxed);
	struct stream *s = take_place(t->f, all, number);
	if (!s)
		return;
	int64_t begun = now_of(t);
	uint32_t call = take_own_call(t, &begun);
	if (!call)
		call = flow_new_call(t->f, t->fd, t->now_ns);
	atomic_store_explicit(&s->window, atomic_load(&all->first_window), memory_order_relaxed);
	open_stream(s, number, call, begun, t->now_ns, STREAM_IS_ASKING);
	if (number > atomic_load(&all->processed))
		ends(s, neutral, t->now_ns); /* the client has not heard the GOAWAY yet */
	else
		arm(t, s);
}

/* ---- what the wire tells ---- */

struct told {
	struct streams_turn *t;
	struct streams *all;
};

static void request_is_whole(struct streams_turn *t, struct stream *s)
{
	if (!has(s, STREAM_IS_ASKING))
		return;
	atomic_store_explicit(&s->asked_ns, now_of(t), memory_order_relaxed);
	atomic_fetch_and_explicit(&s->marks, ~(uint32_t)STREAM_IS_ASKING, memory_order_release);
	arm(t, s);
}

/* The longest are none: 99,999,999 hours are more than the clock has. */
static int64_t own_ns(int64_t begun_ns, uint32_t timeout)
{
	static const int64_t units[8] = {3600 * NS_PER_S, 60 * NS_PER_S, NS_PER_S, NS_PER_MS, 1000, 1};
	int64_t at;
	bool is_beyond = __builtin_mul_overflow((int64_t)(timeout >> 3), units[timeout & 7], &at) ||
			 __builtin_add_overflow(begun_ns, at, &at);
	return is_beyond ? 0 : at;
}

static void request_head(struct streams_turn *t, struct stream *s, const struct hpack_found *found)
{
	if (atomic_fetch_or(&s->marks, STREAM_IS_HEADED) & STREAM_IS_HEADED)
		return;
	if (found->grpc_timeout < HPACK_UNSEEN) {
		atomic_store(&s->own_ns, own_ns(atomic_load(&s->begun_ns), found->grpc_timeout));
		arm(t, s);
	}
	if (found->is_connect == 1) {
		atomic_fetch_or(&s->marks, STREAM_IS_CONNECT);
		request_is_whole(t, s);
	}
}

static int64_t silent_ns(int fd)
{
	struct tcpinfo info;
	if (fd < 0 || guest_is_restricted() || !tcpinfo_read(fd, &info) || !info.has_bytes)
		return 0;
	return info.last_data_recv_ms * NS_PER_MS;
}

static void cancelled(struct streams_turn *t, struct stream *s)
{
	for (int i = 0; i < 100; i++) {
		uint64_t word = word_of(s);
		if (phase_of(word) <= STREAM_OWNED)
			return;
		int64_t silent = phase_of(word) == STREAM_ANSWERING ? silent_ns(t->fd) : 0;
		if (settle(s, word, STREAM_FREE, verdict_of_hang_up(t->f, s, word, silent, now_of(t)), t->now_ns))
			return;
	}
}

static void opens(const struct told *x, _Atomic int64_t *window, uint32_t octets)
{
	if (atomic_fetch_add(window, octets) <= 0)
		atomic_store(&x->all->granted_ns, now_of(x->t));
}

static void windows_are(const struct told *x, uint32_t value)
{
	struct streams *all = x->all;
	int64_t more = (int64_t)value - atomic_exchange(&all->first_window, value);
	if (more > 0)
		atomic_store(&all->granted_ns, now_of(x->t));
	for (int i = 0; i < STREAMS_MAX; i++)
		if (phase_of(word_of(&all->table[i])) > STREAM_OWNED)
			atomic_fetch_add(&all->table[i].window, more);
}

static void on_sent(void *context, const struct http2_event *e)
{
	const struct told *x = context;
	struct stream *s;
	switch (e->what) {
	case HTTP2_REQUEST_BEGINS: request_begins(x->t, x->all, e->stream); return;
	case HTTP2_WINDOW_IS: windows_are(x, e->value); return;
	case HTTP2_GRANTED:
		if (!e->stream)
			opens(x, &x->all->window, e->value);
		break;
	default: break;
	}
	if (!(s = find(x->all, e->stream)))
		return;
	switch (e->what) {
	case HTTP2_REQUEST_HEAD: request_head(x->t, s, &e->found); break;
	case HTTP2_REQUEST_ENDS: request_is_whole(x->t, s); break;
	case HTTP2_CANCELLED: cancelled(x->t, s); break;
	case HTTP2_GRANTED: opens(x, &s->window, e->value); break;
	default: break;
	}
}

static void answer_begins(struct streams_turn *t, struct stream *s)
{
	uint64_t word = word_of(s);
	if (phase_of(word) != STREAM_WAITING)
		return;
	atomic_store_explicit(&s->heard_ns, now_of(t), memory_order_relaxed);
	if (!step(s, word, STREAM_ANSWERING))
		return;
	flow_note_answer(t->f);
	arm(t, s);
}

static void answer_head(struct streams_turn *t, struct stream *s, const struct hpack_found *found)
{
	uint64_t word = word_of(s);
	uint32_t status = found->status;
	if (status >= 100 && status < 200) {
		if (phase_of(word) == STREAM_ANSWERING && step(s, word, STREAM_WAITING))
			arm(t, s); /* no answer yet (A8) */
		return;
	}
	if (status != HPACK_ABSENT)
		atomic_store_explicit(&s->status, status, memory_order_relaxed);
	if (found->grpc_status != HPACK_ABSENT)
		atomic_store_explicit(&s->grpc_status, found->grpc_status, memory_order_relaxed);
	/* From here on it is a stream without calls. */
	if (has(s, STREAM_IS_CONNECT) && status >= 200 && status < 300 && is_open(word))
		settle(s, word, STREAM_TUNNEL, success, now_of(t));
}

static void answer_goes_on(const struct told *x, struct stream *s, uint32_t octets)
{
	atomic_fetch_sub_explicit(&x->all->window, octets, memory_order_relaxed);
	if (!s)
		return;
	atomic_fetch_sub_explicit(&s->window, octets, memory_order_relaxed);
	/* The clock is read only where a stall is to be told. */
	if (x->t->f->guard.limits.stall_ns && phase_of(word_of(s)) == STREAM_ANSWERING)
		atomic_store_explicit(&s->heard_ns, now_of(x->t), memory_order_relaxed);
}

/* The server will see to no stream above `last`: those are neutral, the app will ask anew. */
static void goes_away(struct streams_turn *t, struct streams *all, uint32_t last)
{
	atomic_store(&all->processed, last);
	for (int i = 0; i < STREAMS_MAX; i++)
		if (word_of(&all->table[i]) >> 32 > last)
			ends(&all->table[i], neutral, now_of(t));
}

static void on_received(void *context, const struct http2_event *e)
{
	const struct told *x = context;
	if (e->what == HTTP2_GOAWAY) {
		goes_away(x->t, x->all, e->stream);
		return;
	}
	struct stream *s = find(x->all, e->stream);
	if (e->what == HTTP2_ANSWER_DATA) {
		answer_goes_on(x, s, e->value);
		return;
	}
	if (!s)
		return;
	switch (e->what) {
	case HTTP2_ANSWER_BEGINS: answer_begins(x->t, s); break;
	case HTTP2_ANSWER_HEAD: answer_head(x->t, s, &e->found); break;
	case HTTP2_ANSWER_ENDS:
		flow_mark(x->t->f, FLOW_IS_KEPT);
		if (atomic_load_explicit(&s->status, memory_order_relaxed) == HPACK_UNSEEN ||
			atomic_load_explicit(&s->grpc_status, memory_order_relaxed) == HPACK_UNSEEN)
			note_unseen(x->t->f);
		ends(s, verdict_of_answer(s), now_of(x->t));
		break;
	case HTTP2_RESET: ends(s, verdict_of_reset(e->value), now_of(x->t)); break;
	default: break;
	}
}

/* ---- the doors ---- */

/* Every stream, and the flow's own call, is over. */
static void all_end(struct flow *f, struct streams *all, int64_t now_ns)
{
	for (int i = 0; i < STREAMS_MAX; i++)
		ends(&all->table[i], neutral, now_ns);
	for (int i = 0; i < 100; i++) {
		uint64_t word = flow_word(f);
		if (flow_phase_of(word) == FLOW_OVER || flow_end_call(f, word, FLOW_OVER, BREAKER_NEUTRAL, 0, now_ns))
			return;
	}
}

/* Its frames cannot be followed any more: from here on nothing is learnt, and nothing is bounded (A8). */
static void lost(struct streams_turn *t, struct streams *all)
{
	flow_speaks(t->f, FLOW_OPAQUE);
	all_end(t->f, all, now_of(t));
	t->is_over = true;
}

bool streams_attach(struct flow *f)
{
	uint32_t index = pool_take(&pool);
	if (index == POOL_NONE)
		return false;
	struct streams *all = pool_at(&pool, index);
	http2_init(&all->http);
	atomic_store(&all->highest, 0);
	atomic_store(&all->processed, UINT32_MAX);
	atomic_store(&all->reach, 0);
	atomic_store(&all->window, HTTP2_WINDOW);
	atomic_store(&all->first_window, HTTP2_WINDOW);
	atomic_store(&all->granted_ns, 0);
	all->heard_ns = 0;
	all->heard_in = 0;
	uint32_t none = 0;
	if (!atomic_compare_exchange_strong(&f->streams, &none, index + 1))
		pool_give(&pool, index); /* the other side was faster */
	return true;
}

void streams_release(struct flow *f)
{
	struct streams *all = streams_of(f);
	uint32_t index = atomic_exchange(&f->streams, 0);
	if (!index)
		return;
	/* All of it is as it was before the first: only what is used is ever written to. */
	for (int i = 0; i < STREAMS_MAX; i++)
		if (word_of(&all->table[i]))
			atomic_store_explicit(&all->table[i].word, 0, memory_order_relaxed);
	pool_give(&pool, index - 1);
}

void streams_upgraded(struct streams_turn *t)
{
	struct streams *all = streams_of(t->f);
	struct stream *s = all ? take_place(t->f, all, 1) : NULL;
	if (!s)
		return;
	int64_t begun = now_of(t), asked = atomic_load(&t->f->asked_ns);
	uint32_t call = take_own_call(t, &begun);
	atomic_store(&all->highest, 1);
	atomic_store_explicit(&s->window, HTTP2_WINDOW, memory_order_relaxed);
	open_stream(s, 1, call, atomic_load(&t->f->begun_ns), asked, STREAM_IS_HEADED);
	arm(t, s);
}

size_t streams_authority(const struct flow *f, const struct octets *o, char *name, size_t most, bool *is_told)
{
	const struct streams *all = streams_of(f);
	*is_told = false;
	return all && !o->is_blind ? http2_authority(&all->http, o->iov, o->count, o->limit, name, most, is_told) : 0;
}

void streams_announced(struct streams_turn *t, const struct octets *o)
{
	struct told x = {t, streams_of(t->f)};
	if (x.all && !o->is_blind)
		http2_announce(&x.all->http, o->iov, o->count, o->limit, on_sent, &x);
}

void streams_sent(struct streams_turn *t, const struct octets *o, size_t gone)
{
	struct told x = {t, streams_of(t->f)};
	if (!x.all)
		return;
	if (o->is_uncounted || !(o->is_blind ? http2_sent_unseen(&x.all->http, gone, on_sent, &x)
					     : http2_sent(&x.all->http, o->iov, o->count, gone, on_sent, &x)))
		lost(t, x.all);
}

void streams_received(struct streams_turn *t, const struct octets *o, size_t from, size_t n)
{
	struct told x = {t, streams_of(t->f)};
	if (!x.all)
		return;
	if (o->is_blind || !http2_received(&x.all->http, o->iov, o->count, from, n, on_received, &x))
		lost(t, x.all);
}

bool streams_go_on(const struct flow *f, const void *bytes, size_t n)
{
	const struct streams *all = streams_of(f);
	return all && http2_is_data(&all->http, bytes, n);
}

HOT_FRAME bool streams_went_on(struct flow *f, const void *bytes, size_t n)
{
	struct streams *all = streams_of(f);
	struct http2_data data;
	/* A stall is told by the clock. */
	if (!all || f->guard.limits.stall_ns || !http2_received_data(&all->http, bytes, n, &data))
		return false;
	struct stream *s = find(all, data.stream);
	atomic_fetch_sub_explicit(&all->window, data.octets, memory_order_relaxed);
	if (s)
		atomic_fetch_sub_explicit(&s->window, data.octets, memory_order_relaxed);
	return true;
}

/* The connect's own call, where no stream has it: what the server has said tells that it lives, and nothing was asked
 * of it. */
static void own_call_breaks(struct flow *f, enum failure_kind kind, int64_t now_ns)
{
	enum breaker_outcome outcome = atomic_load(&f->in) ? BREAKER_NEUTRAL : BREAKER_FAILURE;
	for (int i = 0; i < 100; i++) {
		uint64_t word = flow_word(f);
		if (flow_phase_of(word) == FLOW_OVER || flow_end_call(f, word, FLOW_OVER, outcome, kind, now_ns))
			return;
	}
}

void streams_broke_off(struct streams_turn *t, enum failure_kind kind)
{
	struct streams *all = streams_of(t->f);
	t->is_over = true;
	for (int i = 0; all && i < STREAMS_MAX; i++) {
		struct stream *s = &all->table[i];
		uint64_t word = word_of(s);
		if (phase_of(word) > STREAM_OWNED)
			ends(s, verdict_of_break(t->f, s, word, kind, now_of(t)), now_of(t));
	}
	own_call_breaks(t->f, kind, now_of(t));
}

void streams_hung_up(struct flow *f, int fd, int64_t now_ns)
{
	struct streams *all = streams_of(f);
	struct tcpinfo info = {.state = TCP_ESTABLISHED};
	bool has_asked = false, is_ended = false;
	for (int i = 0; all && i < STREAMS_MAX; i++) {
		struct stream *s = &all->table[i];
		for (int k = 0; k < 100; k++) {
			uint64_t word = word_of(s);
			if (phase_of(word) <= STREAM_OWNED)
				break;
			if (!has_asked && fd >= 0 && !guest_is_restricted() && tcpinfo_read(fd, &info))
				is_ended = (info.state == TCP_CLOSE || info.state == TCP_CLOSE_WAIT) &&
					   tcpinfo_unread(fd) == 0;
			has_asked = true;
			int64_t silent = info.has_bytes ? info.last_data_recv_ms * NS_PER_MS : 0;
			enum failure_kind kind = info.state == TCP_CLOSE ? FAILURE_RESET : FAILURE_EOF;
			struct verdict v = s->forks != process_forks() ? neutral
					   : is_ended		       ? verdict_of_break(f, s, word, kind, now_ns)
								       : verdict_of_hang_up(f, s, word, silent, now_ns);
			if (settle(s, word, STREAM_FREE, v, now_ns))
				break;
		}
	}
}

void streams_forked(struct flow *f)
{
	struct streams *all = streams_of(f);
	for (int i = 0; all && i < STREAMS_MAX; i++) {
		struct stream *s = &all->table[i];
		atomic_store(&s->call, 0); /* the parent's; its limits hold here too */
		if (phase_of(word_of(s)) == STREAM_OWNED)
			atomic_store(&s->word, 0);
	}
}

/* ---- the timer ---- */

/* A server is to speak once the client has, though nothing is asked of it yet. */
static int64_t preface_due_ns(const struct flow *f)
{
	enum flow_phase phase = flow_phase_of(flow_word(f));
	bool waits = phase == FLOW_FRESH || phase == FLOW_WAITING;
	int64_t answer = f->guard.limits.answer_ns;
	if (!waits || !atomic_load(&f->call) || atomic_load(&f->in))
		return WHEEL_NEVER;
	int64_t at = flow_deadline_at(f, false, 0);
	return answer ? sooner(at, atomic_load(&f->asked_ns) + answer) : at;
}

int64_t streams_due_ns(const struct flow *f)
{
	struct streams *all = streams_of(f);
	int64_t due = preface_due_ns(f);
	enum limit which;
	for (int i = 0; all && i < STREAMS_MAX; i++) {
		const struct stream *s = &all->table[i];
		uint64_t word = word_of(s);
		if (is_open(word))
			due = sooner(due, due_of(f, s, word, &which));
		else if (phase_of(word) == STREAM_JUDGED && atomic_load(&s->limit_ns))
			due = sooner(due, atomic_load(&s->again_ns));
	}
	return due;
}

static int64_t length_of(const struct flow *f, const struct stream *s, enum limit limit, int64_t due_ns)
{
	const struct guard_limits *l = &f->guard.limits;
	return limit == ANSWER ? l->answer_ns : limit == STALL ? l->stall_ns : due_ns - atomic_load(&s->begun_ns);
}

/* The server may send no more of it until the app lets it. */
static bool is_full(const struct streams *all, const struct stream *s)
{
	return atomic_load(&all->window) <= 0 || atomic_load(&s->window) <= 0;
}

/* May the app be what it waits for (C10)? Then its limit begins anew. */
static bool is_excused(
	const struct streams *all, struct stream *s, enum limit limit, const struct flow_view *v, int64_t now)
{
	if (limit == ANSWER && (v->unread || (v->is_known && v->info.notsent))) {
		atomic_store(&s->asked_ns, now);
		return true;
	}
	if (limit == STALL && (v->unread || is_full(all, s))) {
		atomic_store(&s->heard_ns, now);
		return true;
	}
	int64_t granted = atomic_load(&all->granted_ns);
	if (limit == STALL && granted > atomic_load(&s->heard_ns)) {
		atomic_store(&s->heard_ns, granted);
		return true;
	}
	return false;
}

static struct verdict verdict_of_limit(const struct flow *f, const struct stream *s, uint64_t word, enum limit limit,
	bool is_held_back, const struct flow_view *v, int64_t now_ns)
{
	const struct guard_limits *l = &f->guard.limits;
	int64_t begun = atomic_load(&s->begun_ns), ambient = ambient_ns();
	if (limit == OWN)
		return verdict_of_hang_up(f, s, word, 0, now_ns);
	if (limit == ANSWER)
		return failure(FAILURE_ANSWER_TIMEOUT);
	if (limit == STALL)
		return failure(FAILURE_STALL_TIMEOUT);
	/* What came lies there unread, or the app lets no more come: it was slow, not the server. */
	if (is_held_back || (v->unread && v->is_known && v->info.last_data_recv_ms >= LEFT_LYING_MS))
		return neutral;
	/* A deadline that the whole program ran into says little of who was asked last, for a moment. */
	bool is_ambient = ambient && ambient <= now_ns && (!l->deadline_ns || begun + l->deadline_ns > ambient);
	return is_ambient && (!l->abandon_ns || now_ns - begun < l->abandon_ns) ? neutral : failure(FAILURE_DEADLINE);
}

/* The stream has passed a limit, truly. */
static void judge(const struct flow *f, struct stream *s, uint64_t word, enum limit limit, int64_t due_ns,
	bool is_held_back, const struct flow_view *v, int64_t now_ns)
{
	static const char *const phases[] = {"", "answer", "stall", "call", "call"};
	struct verdict verdict = verdict_of_limit(f, s, word, limit, is_held_back, v, now_ns);
	int64_t length = length_of(f, s, limit, due_ns);
	if (!step(s, word, STREAM_OWNED))
		return;
	uint32_t call = atomic_exchange(&s->call, 0);
	if (call && limit != OWN) /* the event first: whoever is woken may exit before we go on */
		call_tell_deadline(call - 1, phases[limit], (length + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS);
	if (call)
		call_end(call - 1, verdict.outcome, verdict.kind, now_ns,
			verdict.outcome == BREAKER_NEUTRAL ? -1 : now_ns - atomic_load(&s->begun_ns));
	/* What the app ends itself, and what it holds back itself, ends no socket. */
	atomic_store(&s->limit_ns, limit == OWN || is_held_back ? 0 : length);
	atomic_store(&s->again_ns, now_ns);
	atomic_store_explicit(&s->word, (word & ~0xffULL) | STREAM_JUDGED, memory_order_release);
}

/* Since when the peer owes a word: since the first request that it has not said one to, else since its last. */
static int64_t owed_since(const struct streams *all, const struct flow_view *v)
{
	int64_t last = v->is_known ? v->received_ns : all->heard_ns, first = WHEEL_NEVER;
	for (int i = 0; i < STREAMS_MAX; i++) {
		const struct stream *s = &all->table[i];
		int64_t asked = atomic_load(&s->asked_ns);
		uint64_t word = word_of(s);
		if ((is_open(word) || phase_of(word) == STREAM_JUDGED) && asked > last + KERNEL_SLACK_NS)
			first = sooner(first, asked);
	}
	return first != WHEEL_NEVER ? first : last + KERNEL_SLACK_NS;
}

/* The longest limit that a stream has passed and for which the peer has been silent; 0: none, and each that is judged
 * says when to look again. */
static int64_t silent_for(struct streams *all, const struct flow_view *v, int64_t now_ns)
{
	int64_t owed = owed_since(all, v), longest = 0;
	for (int i = 0; i < STREAMS_MAX; i++) {
		struct stream *s = &all->table[i];
		int64_t limit = atomic_load(&s->limit_ns);
		if (phase_of(word_of(s)) != STREAM_JUDGED || !limit)
			continue;
		if (owed + limit > now_ns || v->unread)
			atomic_store(&s->again_ns, v->unread ? now_ns + limit : owed + limit);
		else if (limit > longest)
			longest = limit;
	}
	return longest;
}

/* The socket is about to be ended. Those that have waited for half of the limit share its cause; younger ones might
 * have been answered, and are neutral. */
static void end_silent(struct flow *f, struct streams *all, int64_t limit_ns, int64_t now_ns)
{
	for (int i = 0; i < STREAMS_MAX; i++) {
		struct stream *s = &all->table[i];
		if (phase_of(word_of(s)) == STREAM_WAITING && !has(s, STREAM_IS_ASKING) &&
			now_ns - atomic_load(&s->asked_ns) >= limit_ns / 2)
			ends(s, failure(FAILURE_ANSWER_TIMEOUT), now_ns);
	}
	all_end(f, all, now_ns);
}

static int64_t judge_preface(
	struct flow *f, const struct flow_view *v, int64_t now_ns, bool may_end, bool *is_expired, int64_t due_ns)
{
	uint64_t word = flow_word(f);
	int64_t at = flow_deadline_at(f, false, 0);
	if (v->received_ns || v->unread)
		return now_ns + NS_PER_S; /* it has come, the app has not read it */
	*is_expired = true;
	if (!may_end)
		return now_ns;
	bool is_deadline = at <= due_ns;
	uint32_t call = atomic_load(&f->call);
	if (call)
		call_tell_deadline(call - 1, is_deadline ? "call" : "answer",
			is_deadline ? at - atomic_load(&f->begun_ns) : f->guard.limits.answer_ns);
	*is_expired = flow_end_call(
		f, word, FLOW_OVER, BREAKER_FAILURE, is_deadline ? FAILURE_DEADLINE : FAILURE_ANSWER_TIMEOUT, now_ns);
	return *is_expired ? WHEEL_NEVER : now_ns + NS_PER_MS;
}

int64_t streams_judge(struct flow *f, const struct flow_view *v, int64_t now_ns, bool may_end, bool *is_expired)
{
	struct streams *all = streams_of(f);
	int64_t preface = preface_due_ns(f);
	uint64_t in = atomic_load(&f->in);
	*is_expired = false;
	if (!all)
		return WHEEL_NEVER;
	if (in != all->heard_in) {
		all->heard_in = in;
		all->heard_ns = now_ns;
	}
	/* Octets that no hook sees (C10): its frames cannot be followed. */
	if (v->is_known && v->info.last_data_recv_ms >= UNSEEN_MS && v->info.bytes_received > in + v->unread + 1) {
		flow_speaks(f, FLOW_OPAQUE);
		all_end(f, all, now_ns);
		return WHEEL_NEVER;
	}
	if (preface <= now_ns)
		return judge_preface(f, v, now_ns, may_end, is_expired, preface);
	for (int i = 0; i < STREAMS_MAX; i++) {
		struct stream *s = &all->table[i];
		uint64_t word = word_of(s);
		enum limit limit;
		if (!is_open(word))
			continue;
		int64_t due = due_of(f, s, word, &limit);
		if (due <= now_ns && !is_excused(all, s, limit, v, now_ns))
			judge(f, s, word, limit, due, phase_of(word) == STREAM_ANSWERING && is_full(all, s), v, now_ns);
	}
	int64_t silent = silent_for(all, v, now_ns);
	if (!silent)
		return streams_due_ns(f);
	*is_expired = true;
	if (!may_end)
		return now_ns;
	end_silent(f, all, silent, now_ns);
	return WHEEL_NEVER;
}
