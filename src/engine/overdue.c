/* The timer's side of a flow (flow.h): when a limit may have passed, and whether it truly has. Hooks leave only what
 * costs them nothing; here the kernel is asked, so that no limit cuts what is well: octets that no hook saw, an answer
 * that lies unread, a protocol gone quiet (C9, C10). */
#include <netinet/tcp.h>

#include "base/clock.h"
#include "base/tcpinfo.h"
#include "engine/ambient.h"
#include "engine/call.h"
#include "engine/flow.h"
#include "engine/streams.h"
#include "engine/wheel.h"

/* An unframed answer is over after so long without an octet (A2). */
#define QUIET_NS NS_PER_S
/* The kernel's times are in its ticks: a limit is never met early for that. */
#define KERNEL_SLACK_NS (4 * NS_PER_MS)
/* Unread for so long: the app is slow, not the server. */
#define LEFT_LYING_MS 100
/* A connection that was never used is looked at ever more seldom, up to this. */
#define UNUSED_AT_MOST_NS (60 * NS_PER_S)

static int64_t sooner(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t flow_deadline_at(const struct flow *f, bool is_new, int64_t now_ns)
{
	int64_t own = f->guard.limits.deadline_ns, ambient = ambient_ns();
	int64_t begun = is_new ? now_ns : atomic_load_explicit(&f->begun_ns, memory_order_relaxed);
	int64_t at = own ? begun + own : WHEEL_NEVER;
	return ambient ? sooner(at, ambient) : at;
}

/* The end of the whole call in progress: its own deadline and the ambient one. */
static int64_t deadline_at(const struct flow *f)
{
	return flow_deadline_at(f, false, 0);
}

static int64_t answer_at(const struct flow *f)
{
	int64_t limit = f->guard.limits.answer_ns;
	if (!limit || flow_has(f, FLOW_IS_ASKING | FLOW_MAY_HAVE_ANSWERED))
		return WHEEL_NEVER;
	return atomic_load_explicit(&f->asked_ns, memory_order_relaxed) + limit;
}

static int64_t stall_at(const struct flow *f)
{
	int64_t limit = f->guard.limits.stall_ns;
	if (!limit || !(flow_is_framed(f) || flow_is_in_record(f)))
		return WHEEL_NEVER; /* where an answer ends is not known: silence may be its end */
	return atomic_load_explicit(&f->heard_ns, memory_order_relaxed) + limit;
}

static int64_t shortest(const struct guard_limits *l)
{
	int64_t limit = l->answer_ns ? l->answer_ns : WHEEL_NEVER;
	limit = sooner(limit, l->stall_ns ? l->stall_ns : WHEEL_NEVER);
	return sooner(limit, l->deadline_ns ? l->deadline_ns : WHEEL_NEVER);
}

/* What no hook sees is looked at several times before its limit comes, to know by then how long it has gone on. */
static int64_t look_every(const struct flow *f)
{
	int64_t limit = shortest(&f->guard.limits);
	return limit == WHEEL_NEVER ? NS_PER_S : limit / 4 + 1;
}

int64_t flow_due_ns(const struct flow *f)
{
	uint32_t kind = atomic_load_explicit(&f->kind, memory_order_relaxed);
	if (kind == FLOW_HTTP2)
		return flow_has(f, FLOW_HAS_LIMITS) ? streams_due_ns(f) : WHEEL_NEVER;
	if (kind == FLOW_UNKNOWN && atomic_load_explicit(&f->streams, memory_order_relaxed))
		return WHEEL_NEVER; /* the server has said its SETTINGS, and nothing is asked of it */
	if (!flow_has(f, FLOW_HAS_LIMITS) || kind == FLOW_OPAQUE || kind == FLOW_ONEWAY ||
		(!atomic_load_explicit(&f->call, memory_order_relaxed) && !flow_has(f, FLOW_IS_INHERITED)))
		return WHEEL_NEVER;
	if (kind == FLOW_TLS && tls_records_may_be_many(&f->tls) && !flow_is_shaking(f))
		return WHEEL_NEVER; /* perhaps many calls at once, which cannot be told apart (A10) */
	switch (flow_phase_of(flow_word(f))) {
	case FLOW_FRESH: return sooner(deadline_at(f), f->connected_ns + look_every(f));
	case FLOW_WAITING:
		if (flow_has(f, FLOW_IS_FORGIVEN))
			return WHEEL_NEVER;
		return sooner(deadline_at(f), answer_at(f));
	case FLOW_ANSWERING: return sooner(deadline_at(f), stall_at(f));
	default: return WHEEL_NEVER;
	}
}

void flow_look(struct flow_view *v, int fd, int64_t now_ns)
{
	v->is_known = tcpinfo_read(fd, &v->info) && v->info.has_bytes;
	v->unread = tcpinfo_unread(fd);
	v->sent_ns = v->received_ns = 0;
	if (!v->is_known)
		return;
	uint64_t fin = v->info.state == TCP_CLOSE_WAIT || v->info.state == TCP_LAST_ACK;
	v->sent_ns = now_ns - v->info.last_data_sent_ms * NS_PER_MS;
	if (v->info.bytes_received > fin)
		v->received_ns = now_ns - v->info.last_data_recv_ms * NS_PER_MS;
}

/* More has come than hooks have seen and what lies unread (one octet is the peer's end), or more has gone. */
static bool has_unseen(const struct flow_view *v, const struct flow *f)
{
	/* What passes in TLS was never anywhere but in hooks: its handshake was. */
	if (!v->is_known || flow_is_tls(f))
		return false;
	/* A send that is under way, or just over, has sent octets that are not counted yet. */
	bool sends_more = !flow_is_framed(f) && v->info.notsent == 0 && v->info.last_data_sent_ms >= 20 &&
			  v->info.bytes_sent - v->info.bytes_repeated > atomic_load(&f->out);
	return sends_more || v->info.bytes_received > atomic_load(&f->in) + v->unread + 1;
}

/* Octets pass that no hook sees (stdio, io_uring, another process): from here on the kernel's times tell whether it
 * asks or answers. Returns when to look next, or 0 when the call is over by that. */
static int64_t follow_unseen(struct flow *f, const struct flow_view *v, int64_t now_ns)
{
	uint64_t word = flow_word(f);
	flow_mark(f, FLOW_IS_UNSEEN);
	flow_unmark(f, FLOW_IS_ASKING);
	flow_speaks(f, FLOW_PLAIN);
	bool is_answer = v->received_ns && v->received_ns >= v->sent_ns;
	/* A request behind an answer: the next call. Its deadline is its own. */
	if (atomic_load(&f->heard_ns) && v->sent_ns > atomic_load(&f->asked_ns) + KERNEL_SLACK_NS) {
		atomic_store(&f->begun_ns, v->sent_ns);
		atomic_store(&f->heard_ns, 0);
	}
	atomic_store(&f->asked_ns, v->sent_ns);
	enum flow_phase phase = is_answer ? FLOW_ANSWERING : FLOW_WAITING;
	if (is_answer && !atomic_load(&f->heard_ns))
		atomic_store(&f->heard_ns, v->received_ns);
	if (flow_phase_of(word) != phase && !flow_step(f, word, phase))
		return now_ns + NS_PER_MS;
	return 0;
}

static int64_t unused(const struct flow *f, int64_t now_ns)
{
	int64_t age = now_ns - f->connected_ns, least = look_every(f);
	return now_ns + sooner(age > least ? age : least, UNUSED_AT_MOST_NS);
}

/* The limit of the whole call has passed; an answer that is not framed may be over. Returns WHEEL_NEVER + 0 for "it has
 * truly passed". */
static int64_t look_at_plain_answer(struct flow *f, const struct flow_view *v, uint64_t word, int64_t now_ns)
{
	int64_t heard = atomic_load(&f->heard_ns), last = v->received_ns ? v->received_ns : heard;
	int64_t limit = deadline_at(f) - atomic_load(&f->begun_ns);
	if (now_ns - last >= QUIET_NS) {
		flow_end_call(f, word, FLOW_IDLE, BREAKER_SUCCESS, 0, now_ns);
		return WHEEL_NEVER;
	}
	/* Octets that go on and on are an answer in progress; a short one, and then quiet, is most likely whole. */
	if (last - heard >= limit / 3)
		return 0;
	return last + QUIET_NS;
}

/* Which limit has passed, truly; 0 with *next: none. */
enum limit { NONE, ANSWER, STALL, DEADLINE };

static enum limit passed(struct flow *f, const struct flow_view *v, uint64_t word, int64_t now_ns, int64_t *next)
{
	enum flow_phase phase = flow_phase_of(word);
	bool is_framed = flow_is_framed(f) || flow_is_in_record(f);
	if (phase == FLOW_WAITING && flow_may_owe_nothing(f)) {
		flow_mark(f, FLOW_IS_FORGIVEN); /* until the app tries to read */
		*next = WHEEL_NEVER;
		return NONE;
	}
	if (deadline_at(f) <= now_ns) {
		if (phase == FLOW_ANSWERING && !is_framed && (*next = look_at_plain_answer(f, v, word, now_ns)) != 0)
			return NONE;
		return DEADLINE;
	}
	if (phase == FLOW_WAITING && answer_at(f) <= now_ns) {
		/* Octets of the request wait in the kernel for a server that takes its time with them. */
		if (v->is_known && v->info.notsent) {
			*next = sooner(deadline_at(f), now_ns + f->guard.limits.answer_ns / 4 + 1);
			return NONE;
		}
		/* Sent since the time that is noted? A repeat of what was lost is not the app's. */
		if (v->is_known && v->info.retransmits == 0 &&
			v->sent_ns > atomic_load(&f->asked_ns) + KERNEL_SLACK_NS) {
			atomic_store(&f->asked_ns, v->sent_ns + KERNEL_SLACK_NS);
			*next = flow_due_ns(f);
			if (*next > now_ns)
				return NONE;
		}
		if (v->unread) {
			*next = sooner(deadline_at(f), now_ns + f->guard.limits.answer_ns);
			return NONE; /* the answer is there, the app is slow (C10) */
		}
		return ANSWER;
	}
	if (phase == FLOW_ANSWERING && stall_at(f) <= now_ns) {
		if (v->received_ns + KERNEL_SLACK_NS > atomic_load(&f->heard_ns))
			atomic_store(&f->heard_ns, v->received_ns + KERNEL_SLACK_NS);
		*next = flow_due_ns(f);
		if (*next > now_ns)
			return NONE;
		if (v->unread) {
			*next = sooner(deadline_at(f), now_ns + f->guard.limits.stall_ns);
			return NONE;
		}
		return STALL;
	}
	*next = flow_due_ns(f);
	return NONE;
}

static bool end(struct flow *f, const struct flow_view *v, uint64_t word, enum limit limit, int64_t now_ns)
{
	static const struct {
		enum failure_kind kind;
		const char *phase;
	} rows[] = {
		[ANSWER] = {FAILURE_ANSWER_TIMEOUT, "answer"},
		[STALL] = {FAILURE_STALL_TIMEOUT, "stall"},
		[DEADLINE] = {FAILURE_DEADLINE, "call"},
	};
	const struct guard_limits *l = &f->guard.limits;
	int64_t begun = atomic_load(&f->begun_ns), ambient = ambient_ns();
	enum breaker_outcome outcome = BREAKER_FAILURE;
	int64_t length = limit == ANSWER ? l->answer_ns : limit == STALL ? l->stall_ns : deadline_at(f) - begun;
	/* The answer lies there unread: the app was slow, not the server. */
	if (limit == DEADLINE && v->unread && v->is_known && v->info.last_data_recv_ms >= LEFT_LYING_MS)
		outcome = BREAKER_NEUTRAL;
	/* A deadline that the whole program ran into says little of who was asked last, for a moment. */
	if (limit == DEADLINE && ambient && ambient <= now_ns &&
		(!l->deadline_ns || begun + l->deadline_ns > ambient) &&
		(!l->abandon_ns || now_ns - begun < l->abandon_ns))
		outcome = BREAKER_NEUTRAL;
	uint32_t call = atomic_load(&f->call);
	length = (length + NS_PER_MS - 1) / NS_PER_MS *
		 NS_PER_MS; /* what is left of an ambient one is no round number */
	if (call)
		call_tell_deadline(call - 1, rows[limit].phase, length);
	return flow_end_call(f, word, FLOW_OVER, outcome, rows[limit].kind, now_ns);
}

int64_t flow_visit(struct flow *f, int64_t now_ns)
{
	int64_t due = flow_due_ns(f);
	uint64_t word = flow_word(f);
	if (due > now_ns || flow_phase_of(word) != FLOW_ANSWERING || flow_is_framed(f) || !flow_has(f, FLOW_IS_SEEN) ||
		flow_has(f, FLOW_IS_UNSEEN) || atomic_load(&f->in) != atomic_load(&f->heard_in))
		return due;
	/* As look_at_plain_answer would find, without asking the kernel. */
	int64_t quiet_at = atomic_load(&f->heard_ns) + QUIET_NS;
	if (quiet_at > now_ns)
		return quiet_at;
	flow_end_call(f, word, FLOW_IDLE, BREAKER_SUCCESS, 0, now_ns); /* unless it has another turn by now */
	return flow_due_ns(f);
}

int64_t flow_judge(struct flow *f, const struct flow_view *v, int64_t now_ns, bool may_end, bool *is_expired)
{
	*is_expired = false;
	int64_t due = flow_due_ns(f);
	if (due > now_ns)
		return due;
	if (atomic_load(&f->kind) == FLOW_HTTP2)
		return streams_judge(f, v, now_ns, may_end, is_expired);
	uint64_t word = flow_word(f);
	if (flow_phase_of(word) == FLOW_FRESH) {
		bool is_used = v->is_known && !flow_is_tls(f) && !flow_is_ready(f, FLOW_FRESH) &&
			       (v->info.bytes_sent || v->received_ns);
		if (!is_used)
			return unused(f, now_ns);
		if ((due = follow_unseen(f, v, now_ns)) != 0)
			return due;
	} else if (flow_has(f, FLOW_IS_UNSEEN) || has_unseen(v, f)) {
		if ((due = follow_unseen(f, v, now_ns)) != 0)
			return due;
	} else if (v->is_known) {
		flow_mark(f, FLOW_IS_SEEN);
	}
	word = flow_word(f);
	if ((due = flow_due_ns(f)) > now_ns && !flow_has(f, FLOW_IS_UNSEEN))
		return due;
	/* What no hook sees is looked at more often: its answer may be over. */
	if (flow_has(f, FLOW_IS_UNSEEN) && flow_phase_of(word) == FLOW_ANSWERING && v->received_ns &&
		now_ns - v->received_ns >= QUIET_NS) {
		flow_end_call(f, word, FLOW_IDLE, BREAKER_SUCCESS, 0, now_ns);
		return WHEEL_NEVER;
	}
	int64_t next = WHEEL_NEVER;
	enum limit limit = passed(f, v, word, now_ns, &next);
	if (limit == NONE)
		return flow_has(f, FLOW_IS_UNSEEN) ? sooner(next, now_ns + look_every(f)) : next;
	*is_expired = true;
	if (!may_end)
		return now_ns;
	if (!end(f, v, word, limit, now_ns)) {
		*is_expired = false;
		return flow_due_ns(f); /* it has ended meanwhile, or another call has begun */
	}
	return WHEEL_NEVER;
}
