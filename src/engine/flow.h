/* A flow: what happens on a connected, guarded socket, call after call. Several descriptors may lead to one (dup), and
 * it lives as long as one of them does or a hook is in it. One word decides who acts:
 *
 *   FRESH ──sent──> WAITING ──first octet of the answer──> ANSWERING ──its end──> IDLE ──next request──> WAITING ...
 *     └──── received (the server speaks first, A4) ──────────^
 *   any of them ── the verdict by whoever wins the change ──> IDLE, or OVER: nothing is learnt from it any more
 *
 * The word carries a turn, which moves with each call: a verdict can hit only the call it was meant for. OWNED is the
 * moment in which one thread writes the fields of a new call.
 */
#ifndef RESIL_ENGINE_FLOW_H
#define RESIL_ENGINE_FLOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tcpinfo.h"
#include "core/breaker.h"
#include "engine/guard.h"
#include "engine/guest.h"
#include "engine/pool.h"
#include "engine/process.h"
#include "engine/slot.h"
#include "wire/deadline_header.h"
#include "wire/http1.h"
#include "wire/records.h"
#include "wire/sniff.h"
#include "wire/tls_records.h"

enum flow_phase { FLOW_IDLE, FLOW_OWNED, FLOW_FRESH, FLOW_WAITING, FLOW_ANSWERING, FLOW_OVER };

/* How calls are told apart on it. Those whose answers' ends are known come first, then TLS, the unsettled one next: the
 * hooks' short roads compare but once. */
enum flow_kind {
	FLOW_HTTP1,   /* framed */
	FLOW_HTTP2,   /* framed: each stream is a call (streams.h); the flow has one only before the first */
	FLOW_RECORDS, /* answers of known length: RESP, PostgreSQL, MySQL */
	FLOW_TLS,     /* seen from outside: its records tell the handshake, and turns of speaking (A10) */
	FLOW_UNKNOWN, /* the client has not spoken yet */
	FLOW_PLAIN,   /* each request one answer, told apart by turns of speaking (A2) */
	FLOW_ONEWAY,  /* no answers are owed */
	FLOW_OPAQUE,  /* calls cannot be told apart: no limits, one verdict at most */
};

enum flow_mark {
	FLOW_HAS_TRIED = 1 << 0,    /* the app has tried to read: it waits for an answer */
	FLOW_OWES = 1 << 1,	    /* its protocol answers each request */
	FLOW_IS_KEPT = 1 << 2,	    /* a call has been answered on it before (A7) */
	FLOW_IS_ASKING = 1 << 3,    /* the request is not whole yet */
	FLOW_IS_WHOLE = 1 << 4,	    /* the answer is whole, the client may wait for the end of the stream (A2) */
	FLOW_HAS_WAITED = 1 << 5,   /* its own SO_RCVTIMEO ran out (A5) */
	FLOW_IS_UNSEEN = 1 << 6,    /* octets pass that no hook sees: judged by the kernel's times (C10) */
	FLOW_HAS_LIMITS = 1 << 7,   /* an answer, a stall, a deadline: the timer has something to do with it */
	FLOW_IS_FORGIVEN = 1 << 10, /* the timer has found that it may owe nothing: no limits until the app reads */
	FLOW_IS_SEEN = 1 << 14,	    /* the kernel has been asked: hooks see every octet of it */
	FLOW_HAS_SENT = 1 << 8,	    /* since the timer looked */
	FLOW_IS_INSIDE = 1 << 11, /* TLS seen from inside: kind is of what is in it, its ciphertext only counts (A9) */
	FLOW_MAY_HAVE_ANSWERED = 1 << 12, /* TLS from outside: what came is an answer or a ticket (A10) */
	FLOW_IS_REJECTED = 1 << 13,	  /* inside TLS: the next octets that go are refused (B20) */
	FLOW_IS_CUT = 1 << 16,	    /* inside TLS: its ciphertext has ended, and what came before may lie unread */
	FLOW_IS_RESET = 1 << 17,    /* and so by a reset */
	FLOW_IS_TUNNEL = 1 << 19,   /* by CONNECT, opaque: its first octets tell whether TLS goes on there */
	FLOW_MAY_BE_MANY = 1 << 15, /* TLS from outside, many calls perhaps: some came, and nobody has read it yet */
	FLOW_IS_HEARD = 1 << 18,    /* its kind is FLOW_UNKNOWN or one before: what is sent is looked at */
	FLOW_IS_INHERITED =
		1 << 9, /* its call is a forked parent's: its limits hold here, the verdict is not ours (E4) */
};

_Static_assert((FLOW_HAS_TRIED ^ FLOW_OWES ^ FLOW_IS_KEPT ^ FLOW_IS_ASKING ^ FLOW_IS_WHOLE ^ FLOW_HAS_WAITED ^
		       FLOW_IS_UNSEEN ^ FLOW_HAS_LIMITS ^ FLOW_HAS_SENT ^ FLOW_IS_INHERITED ^ FLOW_IS_FORGIVEN ^
		       FLOW_IS_INSIDE ^ FLOW_MAY_HAVE_ANSWERED ^ FLOW_IS_REJECTED ^ FLOW_IS_SEEN ^ FLOW_MAY_BE_MANY ^
		       FLOW_IS_CUT ^ FLOW_IS_RESET ^ FLOW_IS_HEARD ^ FLOW_IS_TUNNEL) == (1 << 20) - 1,
	"each has a bit of its own");

struct flow {
	_Alignas(64) _Atomic uint64_t word; /* turn (high 32) | phase (low 8) */
	_Atomic uint32_t refs;		    /* descriptors that lead here and hooks that are in it; 0: free */
	_Atomic uint32_t paths;		    /* descriptors that lead here */
	_Atomic uint32_t next_free;
	_Atomic uint32_t call;	  /* index + 1 of the call in progress; taken by whoever wins the change that ends it */
	_Atomic uint32_t marks;	  /* enum flow_mark */
	_Atomic uint32_t streams; /* HTTP/2: index + 1 of their record; 0: none */
	_Atomic int64_t begun_ns; /* the call in progress */
	_Atomic int64_t asked_ns; /* its last octet so far was sent no later */
	_Atomic int64_t heard_ns; /* an octet of its answer came no earlier; 0: none yet */
	_Atomic uint64_t in, out; /* octets that hooks have seen */
	_Atomic uint64_t heard_in; /* `in` behind the first read of the answer in progress */
	_Atomic uint32_t forks;	   /* process_forks at the begin of the call: the socket may be shared since (E4) */
	_Atomic uint32_t status;   /* of the HTTP answer in progress */
	_Atomic uint32_t kind;	   /* enum flow_kind */
	_Atomic uint32_t requests; /* keys method and route: index + 1 of their record (feed_requests.c); 0: none */
	_Atomic uint64_t hold;	   /* its slot of the bulkhead, where no call has it; 0 in every record that is free */
	int64_t connected_ns;
	struct guard guard;
	uint32_t generation; /* of the configuration that guard is of */
	uint32_t named;	     /* the generation in which what the connection says was looked at; 0: not yet */
	uint32_t kept;	     /* the number by which that guard is kept as it is (guard.h), or as below */
	uint8_t first[SNIFF_CLIENT_MAX]; /* the client's first octets, until they settle what it speaks */
	uint8_t first_count;
	uint8_t carried_count;
	struct http1 http;
	struct records records;
	struct tls_records tls;
	_Atomic int tls_fd;		  /* where its ClientHello went */
	_Atomic(const void *) tls_object; /* inside: the TLS library's */
	/* Of the deadline header, left by a send that stopped in them: they go with the next; carried_count of them. */
	struct deadline_header_edit carried[DEADLINE_HEADER_CARRY];
};
_Static_assert(sizeof(struct flow) == 1024, "a power of two: every receive and send comes from a number to its flow");

enum { FLOW_NOT_KEPT, FLOW_KEPT_UNASKED = -1 };

/* The flow of a slot's life, not held: only for a look, or a mark that does no harm on another. Null: there is none. */
extern __attribute__((visibility("hidden"))) struct pool flow_pool;
static inline struct flow *flow_peek(struct slot *s, uint64_t word)
{
	uint32_t index = slot_peek_call(s, word);
	return index != SLOT_NO_CALL ? (struct flow *)(void *)flow_pool.base + index : (struct flow *)0;
}

static inline uint64_t flow_word(const struct flow *f)
{
	return atomic_load_explicit(&f->word, memory_order_acquire);
}
static inline enum flow_phase flow_phase_of(uint64_t word)
{
	return (enum flow_phase)(word & 0xff);
}
static inline bool flow_has(const struct flow *f, uint32_t marks)
{
	return (atomic_load_explicit(&f->marks, memory_order_relaxed) & marks) != 0;
}
static inline void flow_mark(struct flow *f, uint32_t marks)
{
	if ((atomic_load_explicit(&f->marks, memory_order_relaxed) & marks) != marks)
		atomic_fetch_or_explicit(&f->marks, marks, memory_order_relaxed);
}
static inline void flow_unmark(struct flow *f, uint32_t marks)
{
	if (flow_has(f, marks))
		atomic_fetch_and_explicit(&f->marks, ~marks, memory_order_relaxed);
}
/* It is of this kind from here on. */
static inline void flow_speaks(struct flow *f, enum flow_kind kind)
{
	if (kind <= FLOW_UNKNOWN)
		flow_mark(f, FLOW_IS_HEARD);
	atomic_store(&f->kind, (uint32_t)kind);
	if (kind > FLOW_UNKNOWN)
		flow_unmark(f, FLOW_IS_HEARD);
}
/* Is it known where its answers end? */
static inline bool flow_is_framed(const struct flow *f)
{
	return atomic_load_explicit(&f->kind, memory_order_relaxed) <= FLOW_RECORDS;
}
/* Do its octets have to be looked at, also in the midst of an answer? */
static inline bool flow_is_read(const struct flow *f)
{
	return atomic_load_explicit(&f->kind, memory_order_relaxed) <= FLOW_TLS;
}
/* The midst of an answer that is not read: its octets are counted, and there is nothing else to learn from them. */
static inline bool flow_only_counts(const struct flow *f, uint64_t word)
{
	return flow_phase_of(word) == FLOW_ANSWERING && !flow_is_read(f);
}
/* The phase is as it was, but its octets have to be looked at from here on: a receive that went out in the midst of an
 * answer learns so by the word, which has a count of that between turn and phase. */
static inline void flow_turns_read(struct flow *f)
{
	atomic_fetch_add_explicit(&f->word, 1u << 8, memory_order_acq_rel);
}
/* Seen from inside of TLS: what passes on the wire tells nothing, unless it is to be refused (B20). */
static inline bool flow_is_ciphertext(const struct flow *f)
{
	return (atomic_load_explicit(&f->marks, memory_order_relaxed) & (FLOW_IS_INSIDE | FLOW_IS_REJECTED)) ==
	       FLOW_IS_INSIDE;
}
/* In TLS from outside, before the end of the handshake. */
static inline bool flow_is_shaking(const struct flow *f)
{
	return atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_TLS && !tls_records_is_complete(&f->tls);
}
/* In the midst of a record of an answer, which is all that is known of it. */
static inline bool flow_is_in_record(const struct flow *f)
{
	return atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_TLS && tls_records_in_midst(&f->tls);
}
/* TLS, seen from outside or from inside. */
static inline bool flow_is_tls(const struct flow *f)
{
	return atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_TLS || flow_has(f, FLOW_IS_INSIDE);
}
/* Logged in, or on the way there, and nothing asked for: so pools warm up. */
static inline bool flow_is_ready(const struct flow *f, enum flow_phase phase)
{
	return phase == FLOW_FRESH && atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_RECORDS;
}
/* The phase, when the word is still `seen`. */
static inline bool flow_step(struct flow *f, uint64_t seen, enum flow_phase to)
{
	return atomic_compare_exchange_strong_explicit(
		&f->word, &seen, (seen & ~0xffULL) | (uint64_t)to, memory_order_acq_rel, memory_order_relaxed);
}

/* What the policy says of its protocol; FLOW_UNKNOWN: its octets are to tell. */
enum flow_kind flow_kind_asked(const struct flow *f);
/* The connect of `word`'s life (CONNECTED) has succeeded, and was call's, begun at begun_ns: the slot becomes FLOWING
 * where there is more to learn, else the call is settled by that alone. */
void flow_open(struct slot *s, uint64_t word, int fd, uint32_t call, int64_t begun_ns, int64_t now_ns);
/* The same for a slot that is OPEN, when its connection is first used. Returns the slot's word as it is then: FLOWING,
 * but where there is no flow to be had or another thread has closed it. */
uint64_t flow_start(struct slot *s, uint64_t word);
/* In a fork's child, whose parent has the calls. */
void flow_start_inherited(struct slot *s, uint64_t word);
/* The flow of a slot's life, held: it does not go away under the caller. Null: there is none (any more). */
void flow_gone(struct flow *f); /* nobody holds it any more */
static inline void flow_let_go(struct flow *f)
{
	if (__builtin_expect(atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) == 1, 0))
		flow_gone(f);
}
static inline struct flow *flow_hold(struct slot *s, uint64_t word)
{
	uint64_t led = atomic_load_explicit(&s->call, memory_order_acquire);
	if (__builtin_expect(led >> 32 != word >> 32 || !(uint32_t)led, 0))
		return (struct flow *)0;
	struct flow *f = (struct flow *)(void *)flow_pool.base + ((uint32_t)led - 1);
	uint32_t refs = atomic_load_explicit(&f->refs, memory_order_relaxed);
	do {
		if (refs == 0)
			return (struct flow *)0;
	} while (!atomic_compare_exchange_weak_explicit(
		&f->refs, &refs, refs + 1, memory_order_acquire, memory_order_relaxed));
	/* Does the slot lead to it still? Then it stays of this life while it is held. */
	if (__builtin_expect(atomic_load_explicit(&s->call, memory_order_acquire) == led, 1))
		return f;
	flow_let_go(f);
	return (struct flow *)0;
}
/* Does the slot's life in `word` lead to it? */
bool flow_is_of(const struct flow *f, struct slot *s, uint64_t word);
/* The descriptor's way to it ends (close, reuse; also of a slot that is OPEN): the last one's end is a hang-up of the
 * app's, and fd still leads to the socket. */
void flow_closing(struct slot *s, uint64_t word, int fd, int64_t now_ns);
/* Of a slot that is OPEN: does the kernel know of octets that no hook has seen (C10)? One system call. */
static inline bool flow_is_used_unseen(const struct slot *s, int fd)
{
	bool is_shared = atomic_load_explicit(&s->forks, memory_order_relaxed) != process_forks(); /* E4 */
	return !is_shared && fd >= 0 && !guest_is_restricted() && tcpinfo_may_be_used(fd);
}
/* The end of its call, which the caller has taken. is_used: as above. */
void flow_unused_ends(struct slot *s, uint32_t call, int fd, bool is_used);
/* Another descriptor, whose slot is in `to_word`, leads to the same socket. */
void flow_share(struct slot *from, uint64_t word, struct slot *to, uint64_t to_word);
/* In a fork's child: the calls in progress are the parent's. */
void flow_forked(struct slot *s);

/* How a call that begins on a connection which is there is let in: by the circuit and the bulkhead (B20); so that it
 * may wait where the bulkhead is full (D2), a handler's end of the wait being the send's, or not; or not at all, since
 * it cannot be rejected. */
enum flow_gate { FLOW_ASKS, FLOW_WAITS, FLOW_WAITS_ON, FLOW_PASSES };
enum flow_begun { FLOW_BEGUN, FLOW_REJECTED, FLOW_INTERRUPTED };
/* Begins it, only from IDLE or with the word as seen; for the circuit at place (guard_place) or that of the call before
 * (GUARD_PLACE_KEPT). */
enum flow_begun flow_begin_call(
	struct flow *f, uint64_t seen, enum flow_gate gate, uint64_t place, int fd, int64_t now_ns);
/* The call in progress, WAITING as seen, turns out to be another guard's. Another circuit is asked to admit it, and the
 * one before has the outcome; so is another bulkhead, and what was held of the one before is free. */
enum flow_begun flow_move_call(struct flow *f, uint64_t seen, enum flow_gate gate, const struct guard *to,
	enum breaker_outcome outcome, int fd, int64_t now_ns);
/* What the connection says of itself, the first n octets there (A13): a rule for that takes it over. */
enum flow_begun flow_name(struct flow *f, const char *said, size_t n, enum flow_gate gate, int fd, int64_t now_ns);
/* Rules and limits anew after a reload, the circuit's place after an eviction. */
void flow_follow_reload(struct flow *f, int fd, int64_t now_ns);
/* A call of one stream among others, that only passes (B20): index + 1, 0: none. One thread at a time. */
uint32_t flow_new_call(struct flow *f, int fd, int64_t now_ns);
/* Ends the call in progress when the word is still `seen`; true for the winner. */
bool flow_end_call(struct flow *f, uint64_t seen, enum flow_phase to, enum breaker_outcome outcome,
	enum failure_kind kind, int64_t now_ns);
/* The app lets go of it in the middle (A5). fd -1: what the kernel knows is not asked. */
void flow_hung_up(struct flow *f, int fd, enum flow_phase to, int64_t now_ns);

/* What an HTTP status says of the server (A8). */
static inline enum breaker_outcome flow_outcome_of(uint32_t status, enum failure_kind *kind)
{
	*kind = status >= 502 && status <= 504 ? FAILURE_HTTP_GATEWAY : FAILURE_HTTP_5XX;
	return status >= 500 ? BREAKER_FAILURE : BREAKER_SUCCESS;
}
/* An end now is a refusal inside the handshake, or most likely one after it (A9, A10). */
bool flow_is_refused(const struct flow *f, bool is_reset);
/* A request on a kept connection that met its end at once: the server had dropped it before (A7). */
bool flow_is_dropped_kept(const struct flow *f, int64_t now_ns);
/* Does it perhaps speak to one that never answers (A12)? */
bool flow_may_owe_nothing(const struct flow *f);
static inline void flow_note_answer(const struct flow *f)
{
	const struct guard *g = &f->guard;
	_Atomic uint32_t *answered = g->has_circuit ? &g->region->destinations[g->destination].has_answered : NULL;
	if (answered && __builtin_expect(!atomic_load_explicit(answered, memory_order_relaxed), 0))
		atomic_store_explicit(answered, 1, memory_order_relaxed);
}

/* The end of the whole call, its own deadline or the ambient one: CLOCK_MONOTONIC, WHEEL_NEVER: none. is_new: of a call
 * that begins now. (overdue.c) */
int64_t flow_deadline_at(const struct flow *f, bool is_new, int64_t now_ns);
/* When the timer has to look at it next; WHEEL_NEVER: not now. (overdue.c) */
int64_t flow_due_ns(const struct flow *f);
/* Of the slot's flow. (flow.c) */
int64_t flow_due_of(struct slot *s);

/* The timer's side (overdue.c); only its thread calls these. */

/* When to look at the flow, WHEEL_NEVER: not now. Costs no system call; an unframed answer that came in one read, and
 * nothing since, gets its verdict. */
int64_t flow_visit(struct flow *f, int64_t now_ns);
/* What the kernel knows of a connection, in our times. */
struct flow_view {
	struct tcpinfo info;
	bool is_known;
	uint32_t unread;
	int64_t sent_ns, received_ns; /* last; received 0: nothing yet */
};
void flow_look(struct flow_view *v, int fd, int64_t now_ns);
/* Judges a flow that is due by a view of its very socket. Returns when to look next, or WHEEL_NEVER. *is_expired: its
 * limit has passed; with may_end the call has its verdict, and the socket is to be ended. */
int64_t flow_judge(struct flow *f, const struct flow_view *v, int64_t now_ns, bool may_end, bool *is_expired);

#endif
