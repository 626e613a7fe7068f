/* See circuit.h. Called by the engine for every guarded call, on any thread, in signal handlers too, and by the control
 * socket and the command for forcing and resetting. Every loop is bounded, every value read from the region is checked:
 * it may hold anything (E10).
 *
 * Order of a probe's end (B5): verdict first, slot after. The other way round another call could take the slot and
 * begin under a circuit that is about to open. Order of its beginning: slot first, then the word; the loser of the word
 * looks again and keeps the slot only where the winner made the same transition, so holding a slot under the present
 * generation is being a probe. */
#include "core/circuit.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/sys.h"
#include "core/events.h"
#include "core/lease.h"
#include "core/member.h"
#include "core/registry.h"
#include "core/shared.h"
#include "core/window.h"

#define TRIES 1000 /* looks at a word that others keep changing */
#define OPEN_AT_MOST_NS (12LL * 3600 * NS_PER_S + NS_PER_S)
#define GENERATION_LOW 0xfffu /* what a lease keeps of it */

static _Atomic uint64_t seed;
static _Atomic bool has_seed;

void circuit_set_seed(uint64_t value)
{
	atomic_store_explicit(&seed, value, memory_order_relaxed);
	atomic_store_explicit(&has_seed, true, memory_order_release);
}

static uint64_t random_for(const struct destination *d, uint64_t word, int64_t now_ns)
{
	uint64_t from = atomic_load_explicit(&has_seed, memory_order_acquire)
				? atomic_load_explicit(&seed, memory_order_relaxed)
				: (uint64_t)now_ns;
	uint64_t key = atomic_load_explicit(&d->key_hash, memory_order_relaxed);

	return hash_mix(hash_mix(hash_mix(from) ^ key) ^ breaker_generation(word));
}

static inline void count(_Atomic uint64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static bool swap_word(struct destination *d, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong_explicit(
		&d->breaker, &from, to, memory_order_acq_rel, memory_order_relaxed);
}

static inline uint64_t load_word(const struct destination *d)
{
	return atomic_load_explicit(&d->breaker, memory_order_acquire);
}

/* Ends a run of rejections; its length. */
static inline uint64_t end_run(struct destination *d)
{
	uint64_t run;

	if (atomic_load_explicit(&d->run, memory_order_relaxed) == 0 ||
		(run = atomic_exchange_explicit(&d->run, 0, memory_order_relaxed)) == 0)
		return 0;
	return region_rejected(d) - run + 1;
}

/* This thread's part of what all count who are rejected: threads of a process have different ones while there are
 * enough, and processes begin at different ones: by their pid, so that workers forked one after the other do not share
 * theirs. */
static _Atomic uint32_t threads;
static __thread uint32_t my_shard; /* + 1; 0: none yet */

static __attribute__((noinline, cold)) uint32_t take_shard(const struct region *r)
{
	uint32_t n = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + (uint32_t)member_pid(r->my_id);

	return my_shard = n % REGION_SHARDS + 1;
}

void circuit_forked(void)
{
	my_shard = 0;
}

static inline _Atomic uint64_t *rejected_of(const struct region *r, struct destination *d)
{
	uint32_t shard = my_shard;

	return &d->shard[(__builtin_expect(shard == 0, 0) ? take_shard(r) : shard) - 1].rejected;
}

#define TOLD_SEQ_SHIFT 18
#define TOLD_SEQ_MASK ((1ull << 46) - 1)

static uint64_t told_make(uint64_t word, uint64_t seq)
{
	return breaker_generation(word) | (uint64_t)breaker_state(word) << 16 | (seq & TOLD_SEQ_MASK) << TOLD_SEQ_SHIFT;
}

static uint16_t told_generation(uint64_t told)
{
	return (uint16_t)told;
}

static enum breaker_state told_state(uint64_t told)
{
	unsigned state = (unsigned)(told >> 16) & 3;

	return state <= BREAKER_OPEN ? (enum breaker_state)state : BREAKER_CLOSED;
}

/* What a transition is told with. */
struct story {
	enum breaker_state from;
	const char *reason;
	const struct breaker_rules *rules; /* null: not known */
	uint64_t run;			   /* rejections that end with it */
};

/* For display. Two winners in a row may get here in the other order; the later event then stays the last one. */
static void note_last(struct destination *d, uint64_t seq, const struct event *e)
{
	uint64_t last = seq << 4 | (uint64_t)e->from << 2 | (uint64_t)e->to;
	uint64_t seen = atomic_load_explicit(&d->last_from_to, memory_order_relaxed);

	do
		if (seen >> 4 > seq && (seen >> 4) - seq < REGION_EVENTS)
			return;
	while (!atomic_compare_exchange_weak_explicit(
		&d->last_from_to, &seen, last, memory_order_release, memory_order_relaxed));
	atomic_store_explicit(&d->last_wall_ns, e->wall_ns, memory_order_relaxed);
	shared_put_text(d->last_reason, sizeof d->last_reason, e->reason);
}

/* The event of the transition to `to`, unless it is told already (circuit.h). Who tells it counts it. */
static __attribute__((noinline, cold)) void tell(
	struct region *r, uint32_t destination, uint64_t to, const struct story *story, int64_t now_ns)
{
	struct destination *d = &r->destinations[destination];
	enum breaker_state a = story->from, b = breaker_state(to);
	uint64_t told = atomic_load_explicit(&d->told, memory_order_acquire);
	struct event e;

	if (told_generation(told) == breaker_generation(to))
		return;
	memset(&e, 0, sizeof e);
	e.type = EVENT_TRANSITION;
	e.from = (uint8_t)a;
	e.to = (uint8_t)b;
	e.generation = (uint8_t)breaker_generation(to);
	e.retry_after_ms = b == BREAKER_OPEN && story->rules
				   ? (int64_t)breaker_retry_after_ms(to, story->rules, now_ns / NS_PER_MS)
				   : -1;
	e.value = (int64_t)story->run;
	text_copy(e.reason, sizeof e.reason, story->reason);
	registry_name(r, destination, e.destination);
	/* A mode set by hand, or a reset, where the state is so already: a new generation and nothing to tell. */
	uint64_t seq = a == b ? 0 : events_prepare(r, &e);
	do
		/* Told by another, or overtaken by those who told later ones. */
		if ((int16_t)(breaker_generation(to) - told_generation(told)) <= 0)
			return;
	while (!atomic_compare_exchange_weak_explicit(
		&d->told, &told, told_make(to, seq), memory_order_acq_rel, memory_order_acquire));
	if (seq == 0)
		return;
	events_show(r, seq);
	count(&d->transitions[a][b]);
	if (b == BREAKER_OPEN)
		count(&d->opened_total);
	note_last(d, seq, &e);
	events_hear(&e);
}

/* Before the next transition: the one that led to `word` is told and shown, or its winner was killed, or has not come
 * to it yet; how it came to be is then told by what can be seen. */
static inline bool is_told(const struct region *r, const struct destination *d, uint64_t word)
{
	uint64_t told = atomic_load_explicit(&d->told, memory_order_acquire), seq = told >> TOLD_SEQ_SHIFT;

	return told_generation(told) == breaker_generation(word) &&
	       (seq == 0 || atomic_load_explicit(&r->events[seq % REGION_EVENTS].seq, memory_order_relaxed) != 0);
}

static __attribute__((noinline, cold)) void tell_for_another(
	struct region *r, uint32_t destination, uint64_t word, int64_t now_ns)
{
	struct destination *d = &r->destinations[destination];
	uint64_t told = atomic_load_explicit(&d->told, memory_order_acquire);
	struct story story = {.from = told_state(told)};

	if (told_generation(told) == breaker_generation(word)) {
		events_show(r, told >> TOLD_SEQ_SHIFT);
		return;
	}
	enum breaker_state to = breaker_state(word);
	story.reason = breaker_mode(word) == BREAKER_FORCED_OPEN || breaker_mode(word) == BREAKER_FORCED_CLOSED
			       ? "set by hand"
		       : to == BREAKER_HALF_OPEN			    ? "recovery time over"
		       : to == BREAKER_OPEN && story.from == BREAKER_CLOSED ? "failures reached a threshold"
		       : to == BREAKER_OPEN				    ? "probe failed"
		       : story.from == BREAKER_HALF_OPEN		    ? "probes succeeded"
									    : "reset";
	tell(r, destination, word, &story, now_ns);
}

/* Makes the transition from one word to the next, and tells it: false where another was faster. */
static bool move(struct region *r, uint32_t destination, uint64_t from, uint64_t to, const char *reason,
	const struct breaker_rules *rules, int64_t now_ns, bool ends_run)
{
	struct destination *d = &r->destinations[destination];

	if (!is_told(r, d, from))
		tell_for_another(r, destination, from, now_ns);
	if (!swap_word(d, from, to))
		return false;
	struct story story = {breaker_state(from), reason, rules, ends_run ? end_run(d) : 0};
	/* unused_for_long() counts from here */
	atomic_store_explicit(&d->last_used_ns, now_ns, memory_order_relaxed);
	tell(r, destination, to, &story, now_ns);
	return true;
}

static __attribute__((noinline, cold)) void begin_run(
	struct region *r, uint32_t destination, uint64_t word, const struct breaker_rules *rules, int64_t now_ns)
{
	struct destination *d = &r->destinations[destination];
	uint64_t none = 0;
	struct event e;

	if (!atomic_compare_exchange_strong_explicit(
		    &d->run, &none, region_rejected(d), memory_order_relaxed, memory_order_relaxed))
		return;
	memset(&e, 0, sizeof e);
	e.type = EVENT_REJECTED;
	e.from = e.to = (uint8_t)breaker_state(word);
	e.retry_after_ms = breaker_retry_after_ms(word, rules, now_ns / NS_PER_MS);
	e.value = 1;
	text_copy(e.reason, sizeof e.reason,
		breaker_mode(word) == BREAKER_FORCED_OPEN  ? "forced open by hand"
		: breaker_state(word) == BREAKER_HALF_OPEN ? "half-open, no free probe"
							   : "open");
	registry_name(r, destination, e.destination);
	events_add(r, &e);
	/* Whose rules rejected: a policy that only observes does not (CONTRACT `mode`). */
	atomic_store_explicit(&d->rule_half_open_max,
		rules->half_open_max_calls | (rules->is_observed ? REGION_RULE_OBSERVED : 0), memory_order_relaxed);
}

static inline enum breaker_decision reject(
	struct region *r, uint32_t destination, uint64_t word, const struct breaker_rules *rules, int64_t now_ns)
{
	struct destination *d = &r->destinations[destination];

	count(rejected_of(r, d));
	if (__builtin_expect(atomic_load_explicit(&d->run, memory_order_relaxed) == 0, 0))
		begin_run(r, destination, word, rules, now_ns);
	return BREAKER_REJECT;
}

static inline void keep(_Atomic uint32_t *field, uint32_t value)
{
	if (atomic_load_explicit(field, memory_order_relaxed) != value)
		atomic_store_explicit(field, value, memory_order_relaxed);
}

static inline __attribute__((always_inline)) void keep_rules(struct destination *d, const struct breaker_rules *rules)
{
	uint32_t cap = rules->recovery_max_ms > rules->recovery_ms ? rules->recovery_max_ms : rules->recovery_ms;

	keep(&d->rule_recovery_max_ms, cap);
	keep(&d->rule_half_open_max, rules->half_open_max_calls | (rules->is_observed ? REGION_RULE_OBSERVED : 0));
	keep(&d->rule_window, rules->window);
	keep(&d->rule_minimum_calls, rules->minimum_calls);
	keep(&d->rule_slow_ms, rules->slow_call_ms);
}

void circuit_keep_rules(struct region *r, uint32_t destination, const struct breaker_rules *rules)
{
	if (destination < r->capacity && !r->is_read_only)
		keep_rules(&r->destinations[destination], rules);
}

static inline __attribute__((always_inline)) enum breaker_decision admit_here(struct region *r, uint32_t destination,
	uint64_t word, const struct breaker_rules *rules, int64_t now_ns, struct circuit_token *token)
{
	struct destination *d = &r->destinations[destination];

	keep_rules(d, rules);
	atomic_store_explicit(&d->last_used_ns, now_ns, memory_order_relaxed);
	token->destination = destination;
	token->generation = breaker_word_generation(word);
	token->life = atomic_load_explicit(&d->life, memory_order_relaxed);
	token->is_admitted = true;
	token->begun_ns = now_ns;
	member_count_call(r, destination, 1);
	return token->lease >= 0 || token->is_unleased ? BREAKER_PROBE : BREAKER_ADMIT;
}

/* The same where it is not in everybody's way. */
static __attribute__((noinline)) enum breaker_decision admit(struct region *r, uint32_t destination, uint64_t word,
	const struct breaker_rules *rules, int64_t now_ns, struct circuit_token *token)
{
	return admit_here(r, destination, word, rules, now_ns, token);
}

/* A mode that was set `--for` a time, and it is over (B15). Any mode but auto may be. */
static bool is_mode_over(const struct destination *d, uint64_t word, int64_t now_ns)
{
	if (breaker_mode(word) == BREAKER_AUTO)
		return false;
	uint64_t until = atomic_load_explicit(&d->mode_until_ms, memory_order_acquire);
	return until != 0 && (uint64_t)(now_ns / NS_PER_MS) >= until;
}

static __attribute__((noinline, cold)) void end_mode(
	struct region *r, uint32_t destination, uint64_t word, const struct breaker_rules *rules, int64_t now_ns)
{
	uint64_t next = breaker_set_mode(word, BREAKER_AUTO, now_ns / NS_PER_MS);

	if (breaker_generation(word) != breaker_generation(next))
		move(r, destination, word, next, "the time of the forced mode is over", rules, now_ns, false);
	else
		swap_word(&r->destinations[destination], word, next);
}

/* The tick of the word comes round after 37 hours. An open circuit that nobody has asked for longer than any wait lasts
 * is due, whatever its tick seems to say. */
static __attribute__((noinline, cold)) uint64_t unused_for_long(struct destination *d, uint64_t word, int64_t now_ns)
{
	int64_t used = atomic_load_explicit(&d->last_used_ns, memory_order_relaxed);

	atomic_store_explicit(&d->last_used_ns, now_ns, memory_order_relaxed);
	if (used < now_ns && now_ns - used > OPEN_AT_MOST_NS) {
		uint64_t due = breaker_expire(word, now_ns / NS_PER_MS);
		if (due != word && swap_word(d, word, due))
			return due;
	}
	return word;
}

static void probe_expired(struct region *r, uint32_t destination, uint16_t generation_low, bool is_unused, void *ctx);

struct expiry {
	const struct breaker_rules *rules;
	int64_t now_ns;
};

static int take_lease(struct region *r, uint32_t destination, const struct breaker_rules *rules, uint16_t generation,
	int64_t now_ns, uint64_t *lease)
{
	int slot = lease_take(r, destination, rules->half_open_max_calls, generation, now_ns, lease);
	struct expiry expiry = {rules, now_ns};

	if (slot >= 0 || region_me(r) < 0 || r->is_quiet)
		return slot;
	/* Full: the only moment at which anybody asks whether the holders still live (B7). */
	if (lease_collect(r, destination, rules->probe_timeout_ms, now_ns, probe_expired, &expiry) == 0)
		return -1;
	return lease_take(r, destination, rules->half_open_max_calls, generation, now_ns, lease);
}

static void drop_lease(struct region *r, uint32_t destination, struct circuit_token *token)
{
	if (token->lease >= 0)
		lease_release(r, destination, token->lease, token->lease_word);
	token->lease = -1;
}

/* Due or half-open, or the word moved under us. */
static __attribute__((noinline)) enum breaker_decision admit_slowly(struct region *r, uint32_t destination,
	const struct breaker_rules *rules, int64_t now_ns, struct circuit_token *token)
{
	struct destination *d = &r->destinations[destination];
	uint64_t word = load_word(d);

	for (int i = 0; i < TRIES; i++, word = load_word(d)) {
		if (is_mode_over(d, word, now_ns)) {
			end_mode(r, destination, word, rules, now_ns);
			continue;
		}
		struct breaker_admission a = breaker_admit(word, rules, now_ns / NS_PER_MS);
		bool is_observed = rules->is_observed || breaker_mode(word) == BREAKER_OBSERVE;
		uint16_t generation = breaker_generation(a.next);

		/* A slot taken for a generation that is not to be is no slot for this one. */
		if (token->lease >= 0 && (a.decision != BREAKER_PROBE || token->generation != generation))
			drop_lease(r, destination, token);
		token->is_unleased = false;
		if (a.decision == BREAKER_REJECT)
			return reject(r, destination, word, rules, now_ns);
		if (a.decision == BREAKER_ADMIT) {
			if (a.would_reject)
				count(&d->would_reject);
			else
				end_run(d);
			return admit(r, destination, word, rules, now_ns, token);
		}
		if (token->lease < 0) {
			int slot = take_lease(r, destination, rules, generation, now_ns, &token->lease_word);
			/* Without a record (the table is full, a filter forbids to ask who we are) it could never
			 * probe, and a circuit that only such processes use would stay open for ever. It probes without
			 * a lease where nobody holds one; its verdict counts like any probe's. */
			token->is_unleased = slot < 0 && region_me(r) < 0 && lease_in_flight(r, destination) == 0;
			if (slot < 0 && !token->is_unleased) {
				/* Full, or the holder's expiry has moved the word: only the same word makes it a
				 * rejection (B6). */
				if (load_word(d) != word)
					continue;
				if (!is_observed)
					return reject(r, destination, word, rules, now_ns);
				count(&d->would_reject);
				return admit(r, destination, word, rules, now_ns, token);
			}
			token->lease = (int8_t)(slot < 0 ? -1 : slot);
			token->generation = generation;
		}
		if (a.next == word) {
			/* Half-open: still so now that we hold the slot? Then nobody can have taken one too many. */
			if (load_word(d) != word)
				continue;
			end_run(d);
			return admit(r, destination, word, rules, now_ns, token);
		}
		if (move(r, destination, word, a.next, "recovery time over", rules, now_ns, true))
			return admit(r, destination, a.next, rules, now_ns, token);
	}
	/* Somebody changes it faster than we can look: damage. A probe needs a slot and we have none that counts, so
	 * reject. */
	drop_lease(r, destination, token);
	return reject(r, destination, word, rules, now_ns);
}

/* Open with time to go, the everyday rejection; and whatever is neither that nor closed. */
static __attribute__((noinline)) enum breaker_decision admit_unless_closed(struct region *r, uint32_t destination,
	uint64_t word, const struct breaker_rules *rules, int64_t now_ns, struct circuit_token *token)
{
	struct destination *d = &r->destinations[destination];

	if (breaker_plain(word, rules, now_ns / NS_PER_MS) != BREAKER_PLAIN_REJECT)
		return admit_slowly(r, destination, rules, now_ns, token);
	/* Once a second is enough for last_used, and keeps its line clean in the other processes' caches. */
	if (now_ns - atomic_load_explicit(&d->last_used_ns, memory_order_relaxed) > NS_PER_S &&
		unused_for_long(d, word, now_ns) != word)
		return admit_slowly(r, destination, rules, now_ns, token);
	return reject(r, destination, word, rules, now_ns);
}

enum breaker_decision circuit_admit(struct region *r, uint32_t destination, const struct breaker_rules *rules,
	int64_t now_ns, struct circuit_token *token)
{
	*token = (struct circuit_token){.lease = -1};
	if (destination >= r->capacity || r->is_read_only)
		return BREAKER_ADMIT; /* nothing to guard with: pass */
	struct destination *d = &r->destinations[destination];
	uint64_t word = load_word(d);

	if (__builtin_expect(breaker_is_closed(word), 1)) {
		end_run(d);
		return admit_here(r, destination, word, rules, now_ns, token);
	}
	return admit_unless_closed(r, destination, word, rules, now_ns, token);
}

void circuit_pass(struct region *r, uint32_t destination, const struct breaker_rules *rules, int64_t now_ns,
	struct circuit_token *token)
{
	*token = (struct circuit_token){.lease = -1};
	if (destination >= r->capacity || r->is_read_only)
		return;
	uint64_t word = load_word(&r->destinations[destination]);
	admit(r, destination, word, rules, now_ns, token);
	if (breaker_state(word) != BREAKER_CLOSED)
		token->generation--; /* of a time before: stale, whenever it comes */
}

void circuit_withdraw(struct region *r, struct circuit_token *token)
{
	if (!token->is_admitted)
		return;
	token->is_admitted = false;
	if (token->destination >= r->capacity || r->is_read_only)
		return;
	member_count_call(r, token->destination, -1);
	drop_lease(r, token->destination, token);
}

void circuit_note_would_reject(struct region *r, uint32_t destination)
{
	if (destination < r->capacity && !r->is_read_only)
		count(&r->destinations[destination].would_reject);
}

bool circuit_is_observed(const struct region *r, uint32_t destination, const struct breaker_rules *rules)
{
	if (rules->is_observed || destination >= r->capacity)
		return true;
	return breaker_mode(load_word(&r->destinations[destination])) == BREAKER_OBSERVE;
}

bool circuit_is_open(const struct region *r, uint32_t destination, const struct breaker_rules *rules, int64_t now_ns)
{
	if (destination >= r->capacity)
		return false;
	const struct destination *d = &r->destinations[destination];
	uint64_t word = load_word(d);
	enum breaker_plain plain = breaker_plain(word, rules, now_ns / NS_PER_MS);

	if (plain != BREAKER_NOT_PLAIN)
		return plain == BREAKER_PLAIN_REJECT;
	return breaker_admit(word, rules, now_ns / NS_PER_MS).decision == BREAKER_REJECT &&
	       !is_mode_over(d, word, now_ns);
}

static bool is_known(const struct destination *d, uint32_t hash)
{
	for (int i = 0; i < REGION_ADDRESSES; i++)
		if (atomic_load_explicit(&d->known[i], memory_order_relaxed) == hash)
			return true;
	return false;
}

static void remember(struct destination *d, uint32_t hash, int64_t now_ns)
{
	for (int i = 0; i < REGION_ADDRESSES; i++) {
		uint32_t seen = 0;
		if (atomic_compare_exchange_strong_explicit(
			    &d->known[i], &seen, hash, memory_order_relaxed, memory_order_relaxed))
			return;
	}
	/* Full: any may go. */
	atomic_store_explicit(&d->known[hash_mix((uint64_t)now_ns) % REGION_ADDRESSES], hash, memory_order_relaxed);
}

void circuit_know(struct region *r, uint32_t destination, const uint32_t *hashes, unsigned n, int64_t now_ns)
{
	if (destination >= r->capacity || r->is_read_only || n == 0)
		return;
	struct destination *d = &r->destinations[destination];
	uint64_t word = load_word(d);
	unsigned shared = 0, known = 0;

	if (n > REGION_ADDRESSES)
		n = REGION_ADDRESSES;
	for (unsigned i = 0; i < n; i++)
		shared += is_known(d, hashes[i]);
	for (int i = 0; i < REGION_ADDRESSES; i++)
		known += atomic_load_explicit(&d->known[i], memory_order_relaxed) != 0;
	if (breaker_state(word) == BREAKER_CLOSED && (shared < n || known > n)) {
		for (int i = 0; i < REGION_ADDRESSES; i++)
			atomic_store_explicit(&d->known[i], (unsigned)i < n ? hashes[i] : 0, memory_order_relaxed);
		return;
	}
	if (shared == n)
		return;
	for (unsigned i = 0; i < n; i++)
		if (!is_known(d, hashes[i]))
			remember(d, hashes[i], now_ns);
	if (shared == 0 && known > 0 && breaker_state(word) == BREAKER_OPEN &&
		breaker_mode(word) != BREAKER_FORCED_OPEN)
		/* Moved meanwhile: then it is another opening. */
		swap_word(d, word, breaker_expire(word, now_ns / NS_PER_MS));
}

static void explain(char reason[48], uint64_t from, uint64_t to, enum failure_kind kind)
{
	struct text t = {.at = reason, .cap = 48};

	if (breaker_state(from) == BREAKER_CLOSED) {
		uint32_t streak = breaker_count(from) + 1;
		if (streak == 1)
			text_fmt(&t, "1 failure (%s)", failure_name(kind));
		else if (streak < 100)
			text_fmt(&t, "%u consecutive failures (last: %s)", streak, failure_name(kind));
		else /* the longest kind would not fit */
			text_fmt(&t, "%u consecutive failures (%s)", streak, failure_name(kind));
	} else if (breaker_state(to) == BREAKER_OPEN) {
		text_fmt(&t, "probe failed (%s)", failure_name(kind));
	} else if (breaker_count(from) == 0) {
		text_str(&t, "probe succeeded");
	} else {
		text_fmt(&t, "%u probes succeeded", breaker_count(from) + 1);
	}
}

enum applied { APPLIED, APPLIED_MOVED, APPLIED_STALE };

/* Gives a verdict to the word. */
static __attribute__((noinline)) enum applied apply_slowly(struct region *r, uint32_t destination,
	const struct breaker_rules *rules, uint16_t generation, bool is_probe, enum breaker_outcome outcome,
	enum failure_kind kind, int64_t now_ns)
{
	struct destination *d = &r->destinations[destination];

	for (int i = 0; i < TRIES; i++) {
		uint64_t word = load_word(d);
		/* Only a failure may begin a wait. */
		uint64_t random = outcome == BREAKER_FAILURE ? random_for(d, word, now_ns) : 0;
		struct breaker_settlement s =
			breaker_settle(word, rules, generation, is_probe, outcome, now_ns / NS_PER_MS, random);
		if (s.is_stale)
			return APPLIED_STALE;
		if (s.next == word)
			return APPLIED;
		if (!s.is_transition) {
			if (swap_word(d, word, s.next))
				return APPLIED;
			continue;
		}
		char reason[48];
		explain(reason, word, s.next, kind);
		if (move(r, destination, word, s.next, reason, rules, now_ns, false))
			return APPLIED_MOVED;
	}
	return APPLIED;
}

static inline enum applied apply(struct region *r, uint32_t destination, const struct breaker_rules *rules,
	uint16_t generation, bool is_probe, enum breaker_outcome outcome, enum failure_kind kind, int64_t now_ns)
{
	if (breaker_stays(load_word(&r->destinations[destination]), generation, outcome))
		return APPLIED;
	return apply_slowly(r, destination, rules, generation, is_probe, outcome, kind, now_ns);
}

static void explain_rate(char reason[48], const struct window_sum *sum, bool is_slow)
{
	struct text t = {.at = reason, .cap = 48};
	uint32_t n = is_slow ? sum->slow : sum->failed;

	text_hundredths(&t, (uint32_t)((uint64_t)n * 10000 / sum->calls));
	text_fmt(&t, "%% %s (%u of %u calls)", is_slow ? "slow" : "failed", n, sum->calls);
}

/* The rate rules: what the window holds with this call in it. */
static __attribute__((noinline)) void judge_window(
	struct region *r, uint32_t destination, const struct breaker_rules *rules, uint16_t generation, int64_t now_ns)
{
	struct destination *d = &r->destinations[destination];
	struct window_sum sum = window_sum(&d->window, rules->window, generation, now_ns / NS_PER_MS);
	enum window_verdict verdict = window_judge(&sum, rules);
	char reason[48];

	if (verdict == WINDOW_QUIET)
		return;
	explain_rate(reason, &sum, verdict == WINDOW_SLOW);
	for (int i = 0; i < TRIES; i++) {
		uint64_t word = load_word(d);
		struct breaker_settlement s =
			breaker_trip(word, rules, generation, now_ns / NS_PER_MS, random_for(d, word, now_ns));
		if (!s.is_transition || move(r, destination, word, s.next, reason, rules, now_ns, false))
			return;
	}
}

/* What the verdict adds to the rates. One that moved the circuit belongs to the window that has ended with it (B9); it
 * is recorded all the same (window.h). */
static inline void note_rate(struct region *r, const struct circuit_token *token, const struct breaker_rules *rules,
	bool has_failed, bool has_moved, int64_t now_ns, int64_t latency_ns)
{
	int64_t lasted = latency_ns >= 0 ? latency_ns : now_ns - token->begun_ns;
	bool is_slow = rules->slow_call_ms && lasted >= rules->slow_call_ms * NS_PER_MS;

	window_record(&r->destinations[token->destination].window, rules->window, token->generation, has_failed,
		is_slow, now_ns / NS_PER_MS);
	if (__builtin_expect(rules->window != 0, 0) && !has_moved)
		judge_window(r, token->destination, rules, token->generation, now_ns);
}

static void note_failure(struct destination *d, enum failure_kind kind)
{
	count(&d->failure);
	if ((unsigned)kind < FAILURE_KIND_COUNT)
		count(&d->kinds[kind]);
}

/* A probe without a verdict in time (B7): it has failed, now; where nothing was sent it tells nothing. Its own verdict,
 * when it comes, is stale and counted as no more than that. */
static void probe_expired(struct region *r, uint32_t destination, uint16_t generation_low, bool is_unused, void *ctx)
{
	const struct expiry *expiry = ctx;
	struct destination *d = &r->destinations[destination];
	uint16_t generation = breaker_generation(load_word(d));

	if (is_unused) {
		count(&d->neutral);
		return;
	}
	note_failure(d, FAILURE_PROBE_TIMEOUT);
	if ((generation & GENERATION_LOW) == generation_low)
		apply(r, destination, expiry->rules, generation, true, BREAKER_FAILURE, FAILURE_PROBE_TIMEOUT,
			expiry->now_ns);
}

static inline void note_success(struct destination *d, int64_t now_ns)
{
	count(&d->success);
	atomic_store_explicit(&d->last_success_ns, now_ns, memory_order_relaxed);
	if (__builtin_expect(atomic_load_explicit(&d->fallback_run, memory_order_relaxed) != 0, 0))
		atomic_store_explicit(&d->fallback_run, 0, memory_order_relaxed);
}

static __attribute__((noinline)) void settle_otherwise(struct region *r, struct circuit_token *token,
	const struct breaker_rules *rules, enum breaker_outcome outcome, enum failure_kind kind, bool counts,
	int64_t now_ns, int64_t latency_ns);

void circuit_settle(struct region *r, struct circuit_token *token, const struct breaker_rules *rules,
	enum breaker_outcome outcome, enum failure_kind kind, bool counts, int64_t now_ns, int64_t latency_ns)
{
	uint32_t destination = token->destination;

	if (!token->is_admitted)
		return;
	if (destination >= r->capacity || r->is_read_only) {
		token->is_admitted = false;
		return;
	}
	/* The everyday verdict, of one that is no probe: the word stays as it is, and no rate is looked at. All else,
	 * in the same order, is settle_otherwise's. */
	struct destination *d = &r->destinations[destination];
	if (__builtin_expect(token->lease >= 0 || token->is_unleased || rules->window != 0 ||
				     token->life != atomic_load_explicit(&d->life, memory_order_acquire) ||
				     !breaker_stays(load_word(d), token->generation, outcome),
		    0)) {
		settle_otherwise(r, token, rules, outcome, kind, counts, now_ns, latency_ns);
		return;
	}
	token->is_admitted = false;
	member_count_call(r, destination, -1);
	if (latency_ns >= 0)
		latency_record(&d->latency, latency_ns);
	if (outcome != BREAKER_SUCCESS) { /* neutral */
		count(&d->neutral);
		return;
	}
	note_success(d, now_ns);
	note_rate(r, token, rules, false, false, now_ns, latency_ns);
}

static void settle_otherwise(struct region *r, struct circuit_token *token, const struct breaker_rules *rules,
	enum breaker_outcome outcome, enum failure_kind kind, bool counts, int64_t now_ns, int64_t latency_ns)
{
	uint32_t destination = token->destination;
	struct destination *d = &r->destinations[destination];
	bool is_leased = token->lease >= 0, is_probe = is_leased || token->is_unleased;
	enum breaker_outcome news = outcome == BREAKER_FAILURE && !counts ? BREAKER_NEUTRAL : outcome;

	token->is_admitted = false;
	member_count_call(r, destination, -1);
	if (token->life != atomic_load_explicit(&d->life, memory_order_acquire))
		return; /* its destination has gone, and this one is another's (B17) */
	/* Renewed, not only looked at: nobody may take it for expired between here and the verdict. */
	if (is_leased && !lease_renew(r, destination, token->lease, &token->lease_word, now_ns)) {
		count(&d->stale); /* expired: judged already, and one call has one verdict (A1) */
		return;
	}
	if (outcome == BREAKER_SUCCESS)
		note_success(d, now_ns);
	else if (outcome == BREAKER_FAILURE)
		note_failure(d, kind);
	else
		count(&d->neutral);
	if (latency_ns >= 0)
		latency_record(&d->latency, latency_ns);

	enum applied applied = apply(r, destination, rules, token->generation, is_probe, news, kind, now_ns);
	if (applied == APPLIED_STALE)
		count(&d->stale);
	else if (news != BREAKER_NEUTRAL)
		note_rate(r, token, rules, news == BREAKER_FAILURE, applied == APPLIED_MOVED, now_ns, latency_ns);
	if (is_probe) {
		count(&d->probe_results[news == BREAKER_SUCCESS	  ? PROBE_SUCCESS
					: news == BREAKER_FAILURE ? PROBE_FAILURE
								  : PROBE_NEUTRAL]);
		drop_lease(r, destination, token);
	}
}

void circuit_note(struct region *r, const struct circuit_token *token, enum lease_use use)
{
	if (token->is_admitted && token->lease >= 0 && !r->is_read_only)
		lease_note(r, token->destination, token->lease, token->lease_word, use);
}

void circuit_force(struct region *r, uint32_t destination, enum breaker_mode mode, uint64_t for_ms, int64_t now_ns)
{
	static const char *const reasons[] = {
		"set to auto by hand", "forced open by hand", "forced closed by hand", "set to observe by hand"};

	if (destination >= r->capacity || r->is_read_only || (unsigned)mode > BREAKER_OBSERVE)
		return;
	struct destination *d = &r->destinations[destination];
	/* The end before the mode, or a mode could be seen with the end of the one before it. Auto has none, and leaves
	 * the field alone: another `force` may just have set its own. */
	if (mode != BREAKER_AUTO)
		atomic_store_explicit(
			&d->mode_until_ms, for_ms ? (uint64_t)(now_ns / NS_PER_MS) + for_ms : 0, memory_order_release);
	for (int i = 0; i < TRIES; i++) {
		uint64_t word = load_word(d), next = breaker_set_mode(word, mode, now_ns / NS_PER_MS);
		if (next == word)
			return;
		if (breaker_generation(word) == breaker_generation(next)
				? swap_word(d, word, next)
				: move(r, destination, word, next, reasons[mode], NULL, now_ns, false))
			return;
	}
}

void circuit_reset(struct region *r, uint32_t destination, int64_t now_ns)
{
	if (destination >= r->capacity || r->is_read_only)
		return;
	struct destination *d = &r->destinations[destination];
	atomic_store_explicit(&d->fallback_run, 0, memory_order_relaxed);
	for (int i = 0; i < TRIES; i++) {
		uint64_t word = load_word(d);
		if (move(r, destination, word, breaker_reset(word, now_ns / NS_PER_MS), "reset by hand", NULL, now_ns,
			    false))
			return;
	}
}
