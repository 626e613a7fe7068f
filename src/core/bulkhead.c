/* See bulkhead.h. Called by the engine for calls to destinations that have a bulkhead, on any thread and in signal
 * handlers; looking for the dead by the command and the control thread, too. */
#include "core/bulkhead.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/sys.h"
#include "core/adapt.h"
#include "core/events.h"
#include "core/member.h"
#include "core/registry.h"

#define TAKEN 1ull
#define GENERATION_BITS 39
#define GENERATION_MASK ((1ull << GENERATION_BITS) - 1)
/* A hold: the slot's number + 1, above what it keeps of the generation; the destination above that. */
#define HELD_GENERATION 0xffffffffull
#define INDEX_SHIFT 32
#define DESTINATION_SHIFT 48
#define TICKET_MASK ((1ull << 40) - 1)
#define COLLECT_EVERY_NS (100 * NS_PER_MS)
#define LOOK_EVERY_NS (80 * NS_PER_MS)
#define SIGN_OF_LIFE_NS NS_PER_S
#define TELL_EVERY_NS (10 * NS_PER_S)
#define SPAN_CALLS_MAX 60000u /* the count has 16 bits */

_Static_assert(1 + GENERATION_BITS == MEMBER_OWNER_SHIFT, "what is the owner's lies above");
_Static_assert(REGION_CAPACITY_MAX <= 0xffff, "no hold is BULKHEAD_UNBOUNDED");
_Static_assert(BULKHEAD_MAX > BULKHEAD_OWN && BULKHEAD_MAX < BULKHEAD_ADAPTIVE, "shown beside a bit");
_Static_assert((BULKHEAD_MAX - BULKHEAD_OWN) / BULKHEAD_BLOCK < REGION_BLOCKS, "one destination has room");

static const uint64_t wait_bounds_us[BULKHEAD_WAITS] = {1000, 5000, 10000, 50000, 100000, 500000, 1000000, 5000000};

static inline struct bulkhead *of(const struct region *r, uint32_t destination)
{
	return &r->destinations[destination].bulkhead;
}

static inline void count(_Atomic uint64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void raise_to(_Atomic uint32_t *field, uint32_t value)
{
	uint32_t seen = atomic_load_explicit(field, memory_order_relaxed);

	while (seen < value &&
		!atomic_compare_exchange_weak_explicit(field, &seen, value, memory_order_seq_cst, memory_order_relaxed))
		;
}

/* ---- slots ---- */

/* The block that is the destination's n-th. Null: there is none, or none left to be had. */
static struct bulkhead_block *block_of(const struct region *r, uint32_t destination, uint32_t n, bool makes)
{
	uint64_t key = (uint64_t)(destination + 1) << 16 | n;
	uint32_t at = (uint32_t)hash_mix(key) % REGION_BLOCKS;

	for (uint32_t i = 0; i < REGION_BLOCKS; i++, at = (at + 1) % REGION_BLOCKS) {
		struct bulkhead_block *b = &r->blocks[at];
		uint64_t seen = atomic_load_explicit(&b->key, memory_order_acquire);
		if (seen == 0 && makes &&
			atomic_compare_exchange_strong_explicit(
				&b->key, &seen, key, memory_order_acq_rel, memory_order_acquire))
			return b;
		if (seen == key)
			return b;
		if (seen == 0)
			return NULL;
	}
	return NULL;
}

/* Slot i, and how many lie in a row from it on. Null: there is none. */
static _Atomic uint64_t *run_at(const struct region *r, uint32_t destination, uint32_t i, bool makes, uint32_t *length)
{
	if (i < BULKHEAD_OWN) {
		*length = BULKHEAD_OWN - i;
		return &of(r, destination)->slot[i];
	}
	uint32_t beyond = i - BULKHEAD_OWN, in = beyond % BULKHEAD_BLOCK;
	struct bulkhead_block *b = block_of(r, destination, beyond / BULKHEAD_BLOCK, makes);
	*length = BULKHEAD_BLOCK - in;
	return b ? &b->slot[in] : NULL;
}

static uint32_t high_of(const struct region *r, uint32_t destination)
{
	uint32_t high = atomic_load_explicit(&of(r, destination)->high, memory_order_seq_cst);

	return high < BULKHEAD_MAX ? high : BULKHEAD_MAX;
}

uint32_t bulkhead_in_use(const struct region *r, uint32_t destination)
{
	uint32_t n = 0, high, length;

	if (destination >= r->capacity)
		return 0;
	high = high_of(r, destination);
	for (uint32_t i = 0; i < high; i += length) {
		const _Atomic uint64_t *slots = run_at(r, destination, i, false, &length);
		for (uint32_t k = 0; slots && k < length && i + k < high; k++)
			n += (atomic_load_explicit(&slots[k], memory_order_seq_cst) & TAKEN) != 0;
	}
	return n;
}

uint32_t bulkhead_limit(const struct region *r, uint32_t destination, const struct bulkhead_rules *rules)
{
	uint32_t max = rules->max < 1 ? 1 : rules->max < BULKHEAD_MAX ? rules->max : BULKHEAD_MAX;

	if (!rules->is_adaptive || destination >= r->capacity)
		return max;
	return adapt_limit(atomic_load_explicit(&of(r, destination)->adapt, memory_order_relaxed), max);
}

/* The hold of the first free slot below the limit, or 0. */
static uint64_t claim(struct region *r, uint32_t destination, uint32_t limit, uint64_t owner)
{
	struct bulkhead *b = of(r, destination);
	uint32_t length;

	for (uint32_t i = 0; i < limit; i += length) {
		_Atomic uint64_t *slots = run_at(r, destination, i, true, &length);
		if (!slots)
			break; /* no room for more */
		for (uint32_t k = 0; k < length && i + k < limit; k++) {
			uint64_t seen = atomic_load_explicit(&slots[k], memory_order_seq_cst);
			if (seen & TAKEN)
				continue;
			uint64_t generation = ((seen >> 1) + 1) & GENERATION_MASK;
			generation += generation == 0;
			raise_to(&b->high, i + k + 1);
			if (atomic_compare_exchange_strong_explicit(&slots[k], &seen, owner | generation << 1 | TAKEN,
				    memory_order_seq_cst, memory_order_relaxed))
				return (uint64_t)destination << DESTINATION_SHIFT |
				       (uint64_t)(i + k + 1) << INDEX_SHIFT | (generation & HELD_GENERATION);
		}
	}
	return 0;
}

static uint32_t index_of(uint64_t hold)
{
	return (uint32_t)(hold >> INDEX_SHIFT & 0xffff) - 1; /* of none: out of range */
}

static bool give_back(struct region *r, uint64_t hold)
{
	uint32_t destination = (uint32_t)(hold >> DESTINATION_SHIFT), index = index_of(hold), length;
	int32_t me = region_me(r);

	if (destination >= r->capacity || index >= BULKHEAD_MAX || me < 0)
		return false;
	_Atomic uint64_t *slot = run_at(r, destination, index, false, &length);
	if (!slot)
		return false;
	uint64_t seen = atomic_load_explicit(slot, memory_order_relaxed);
	bool is_it = (seen & TAKEN) && (seen >> 1 & HELD_GENERATION) == (hold & HELD_GENERATION) &&
		     (seen & MEMBER_OWNER_MASK) == member_owner(r, me);
	return is_it && atomic_compare_exchange_strong_explicit(
				slot, &seen, seen & GENERATION_MASK << 1, memory_order_seq_cst, memory_order_relaxed);
}

/* ---- the queue ---- */

static uint32_t waiters_high(const struct region *r)
{
	uint32_t high = atomic_load_explicit(&r->header->waiters_high, memory_order_seq_cst);

	return high < REGION_WAITERS ? high : REGION_WAITERS;
}

/* The ticket of a record that is in the destination's queue, and shows signs of life; 0: none. */
static uint64_t ticket_of(const struct waiter *w, uint32_t destination, int64_t now_ns)
{
	uint64_t ticket = atomic_load_explicit(&w->word, memory_order_seq_cst) & TICKET_MASK;

	if (ticket == 0 ||
		atomic_load_explicit(&w->where, memory_order_seq_cst) != ((uint64_t)destination << 40 | ticket))
		return 0;
	int64_t silent = now_ns - atomic_load_explicit(&w->seen_ns, memory_order_relaxed);
	/* Another processor may have read a later clock; far ahead is damage. */
	if (silent >= SIGN_OF_LIFE_NS || silent <= -SIGN_OF_LIFE_NS)
		return 0;
	return now_ns - atomic_load_explicit(&w->until_ns, memory_order_relaxed) < SIGN_OF_LIFE_NS ? ticket : 0;
}

static bool may_have_waiters(const struct bulkhead *b, int64_t now_ns)
{
	return now_ns < atomic_load_explicit(&b->waits_until_ns, memory_order_seq_cst);
}

/* The first in the queue; its record in *first, REGION_WAITERS: nobody waits. */
static uint64_t first_ticket(const struct region *r, uint32_t destination, int64_t now_ns, uint32_t *first)
{
	uint64_t least = 0;
	uint32_t n = waiters_high(r);

	*first = REGION_WAITERS;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t ticket = ticket_of(&r->waiters[i], destination, now_ns);
		if (ticket == 0 || (least != 0 && ticket >= least))
			continue;
		least = ticket;
		*first = i;
	}
	return least;
}

static bool is_turn_of(const struct region *r, uint32_t destination, uint64_t ticket, int64_t now_ns)
{
	uint32_t first;

	if (!may_have_waiters(of(r, destination), now_ns))
		return true;
	uint64_t least = first_ticket(r, destination, now_ns, &first);
	return least == 0 || (ticket != 0 && ticket <= least);
}

static void ring_first(struct region *r, uint32_t destination, int64_t now_ns)
{
	uint32_t first;

	if (!may_have_waiters(of(r, destination), now_ns) || first_ticket(r, destination, now_ns, &first) == 0)
		return;
	atomic_fetch_add_explicit(&r->waiters[first].bell, 1, memory_order_seq_cst);
	if (!r->is_quiet)
		sys_futex_wake_shared(&r->waiters[first].bell, 1);
}

/* Frees a record whose owner is dead, or whose time is long over. */
static bool free_waiter(struct region *r, struct waiter *w, int64_t now_ns)
{
	uint64_t word = atomic_load_explicit(&w->word, memory_order_acquire), where;

	if (word == 0)
		return false;
	where = atomic_load_explicit(&w->where, memory_order_acquire);
	bool is_published = (where & TICKET_MASK) == (word & TICKET_MASK);
	bool is_over =
		is_published && now_ns - atomic_load_explicit(&w->until_ns, memory_order_relaxed) >= SIGN_OF_LIFE_NS;
	if (!is_over && member_holds(r, word))
		return false;
	return atomic_compare_exchange_strong_explicit(&w->word, &word, 0, memory_order_seq_cst, memory_order_relaxed);
}

static bool take_place(struct region *r, uint64_t word, uint32_t *index)
{
	for (uint32_t i = 0; i < REGION_WAITERS; i++) {
		uint64_t seen = atomic_load_explicit(&r->waiters[i].word, memory_order_relaxed);
		if (seen != 0)
			continue;
		raise_to(&r->header->waiters_high, i + 1);
		if (!atomic_compare_exchange_strong_explicit(
			    &r->waiters[i].word, &seen, word, memory_order_seq_cst, memory_order_relaxed))
			continue;
		*index = i;
		return true;
	}
	return false;
}

bool bulkhead_queue(
	struct region *r, uint32_t destination, int64_t until_ns, int64_t now_ns, struct bulkhead_place *place)
{
	int32_t me = region_me(r);

	place->ticket = 0;
	if (destination >= r->capacity || me < 0 || r->is_quiet || r->is_read_only)
		return false;
	uint64_t ticket = (atomic_fetch_add_explicit(&r->header->tickets, 1, memory_order_seq_cst) + 1) & TICKET_MASK;
	uint64_t word = member_owner(r, me) | ticket;
	if (ticket == 0)
		return false;
	if (!take_place(r, word, &place->index)) {
		for (uint32_t i = 0; i < REGION_WAITERS; i++)
			free_waiter(r, &r->waiters[i], now_ns);
		if (!take_place(r, word, &place->index))
			return false;
	}
	struct waiter *w = &r->waiters[place->index];
	atomic_store_explicit(&w->until_ns, until_ns, memory_order_relaxed);
	atomic_store_explicit(&w->seen_ns, now_ns, memory_order_relaxed);
	/* Before the publication: who sees it not yet, sees no waiter either. */
	struct bulkhead *b = of(r, destination);
	int64_t until = atomic_load_explicit(&b->waits_until_ns, memory_order_relaxed),
		last = until_ns + SIGN_OF_LIFE_NS;
	while (until < last && !atomic_compare_exchange_weak_explicit(
				       &b->waits_until_ns, &until, last, memory_order_seq_cst, memory_order_relaxed))
		;
	atomic_store_explicit(&w->where, (uint64_t)destination << 40 | ticket, memory_order_seq_cst);
	place->ticket = ticket;
	place->bell = atomic_load_explicit(&w->bell, memory_order_seq_cst);
	return true;
}

int bulkhead_sleep(struct region *r, struct bulkhead_place *place, int64_t until_ns, int64_t now_ns)
{
	if (place->ticket == 0 || place->index >= REGION_WAITERS)
		return 0;
	struct waiter *w = &r->waiters[place->index];
	int64_t wake_ns = now_ns + LOOK_EVERY_NS < until_ns ? now_ns + LOOK_EVERY_NS : until_ns;
	struct timespec at = {.tv_sec = wake_ns / NS_PER_S, .tv_nsec = wake_ns % NS_PER_S};

	atomic_store_explicit(&w->seen_ns, now_ns, memory_order_relaxed);
	int err = sys_futex_wait_shared(&w->bell, place->bell, &at);
	place->bell = atomic_load_explicit(&w->bell, memory_order_seq_cst);
	return err == -EINTR ? -EINTR : 0;
}

static void note_wait(struct bulkhead *b, int64_t waited_ns)
{
	uint64_t us = waited_ns > 0 ? (uint64_t)waited_ns / 1000 : 0;
	int part = 0;

	while (part < BULKHEAD_WAITS && us > wait_bounds_us[part])
		part++;
	count(&b->waited[part]);
	atomic_fetch_add_explicit(&b->waited_us, us, memory_order_relaxed);
}

void bulkhead_leave(
	struct region *r, uint32_t destination, struct bulkhead_place *place, int64_t has_waited_ns, int64_t now_ns)
{
	int32_t me = region_me(r);

	if (place->ticket == 0 || place->index >= REGION_WAITERS || destination >= r->capacity)
		return;
	/* Not ours any more: freed as one whose time was over. */
	uint64_t word = atomic_load_explicit(&r->waiters[place->index].word, memory_order_relaxed);
	if ((word & TICKET_MASK) == place->ticket && (me < 0 || (word & MEMBER_OWNER_MASK) == member_owner(r, me)))
		atomic_compare_exchange_strong_explicit(
			&r->waiters[place->index].word, &word, 0, memory_order_seq_cst, memory_order_relaxed);
	place->ticket = 0;
	if (has_waited_ns >= 0)
		note_wait(of(r, destination), has_waited_ns);
	ring_first(r, destination, now_ns);
}

uint32_t bulkhead_waiting(const struct region *r, uint32_t destination, int64_t now_ns)
{
	uint32_t n = 0, high = waiters_high(r);

	for (uint32_t i = 0; destination < r->capacity && i < high; i++)
		n += ticket_of(&r->waiters[i], destination, now_ns) != 0;
	return n;
}

/* ---- the dead ---- */

/* Members that have been seen to live: each is looked at once. */
struct census {
	uint64_t lives[REGION_MEMBERS / 64];
};

static bool holds(struct region *r, struct census *census, uint64_t word)
{
	uint32_t index = (uint32_t)(word >> 54) % REGION_MEMBERS;
	uint64_t bit = 1ull << (index % 64);

	if (census->lives[index / 64] & bit) {
		/* It lives; is the lease of its present claim? */
		uint64_t id = atomic_load_explicit(&r->members[index].id, memory_order_relaxed);
		return id != 0 && (id & 0x3fff) == (word >> MEMBER_OWNER_SHIFT & 0x3fff);
	}
	bool lives = member_holds(r, word);
	if (lives)
		census->lives[index / 64] |= bit;
	return lives;
}

static uint32_t free_slots(struct region *r, uint32_t destination)
{
	uint32_t freed = 0, high = high_of(r, destination), length;
	struct census census = {0};

	for (uint32_t i = 0; i < high; i += length) {
		_Atomic uint64_t *slots = run_at(r, destination, i, false, &length);
		for (uint32_t k = 0; slots && k < length && i + k < high; k++) {
			uint64_t seen = atomic_load_explicit(&slots[k], memory_order_acquire);
			if (!(seen & TAKEN) || holds(r, &census, seen))
				continue;
			freed += atomic_compare_exchange_strong_explicit(&slots[k], &seen, seen & GENERATION_MASK << 1,
				memory_order_seq_cst, memory_order_relaxed);
		}
	}
	atomic_fetch_add_explicit(&of(r, destination)->reclaimed, freed, memory_order_relaxed);
	return freed;
}

static uint32_t free_waiters(struct region *r, uint32_t destination, int64_t now_ns)
{
	uint32_t freed = 0, high = waiters_high(r);

	for (uint32_t i = 0; i < high; i++)
		if (atomic_load_explicit(&r->waiters[i].where, memory_order_relaxed) >> 40 == destination)
			freed += free_waiter(r, &r->waiters[i], now_ns);
	return freed;
}

/* May we look now, and does nobody else? */
static bool takes_the_look(struct bulkhead *b, int64_t now_ns)
{
	int64_t checked = atomic_load_explicit(&b->checked_ns, memory_order_relaxed);

	/* A time to come is damage, or a clock read a moment later: look at most once for that, too. */
	if (checked <= now_ns && checked > 0 && now_ns - checked < COLLECT_EVERY_NS)
		return false;
	return atomic_compare_exchange_strong_explicit(
		&b->checked_ns, &checked, now_ns, memory_order_relaxed, memory_order_relaxed);
}

uint32_t bulkhead_collect(struct region *r, uint32_t destination, int64_t now_ns)
{
	if (destination >= r->capacity || r->is_quiet || r->is_read_only || !takes_the_look(of(r, destination), now_ns))
		return 0;
	uint32_t freed = free_slots(r, destination), gone = free_waiters(r, destination, now_ns);
	if (freed + gone > 0)
		ring_first(r, destination, now_ns);
	return freed + gone;
}

void bulkhead_collect_all(struct region *r, int64_t now_ns)
{
	for (int i = registry_next(r, 0); i >= 0; i = registry_next(r, (uint32_t)i + 1))
		if (atomic_load_explicit(&of(r, (uint32_t)i)->high, memory_order_relaxed) != 0)
			bulkhead_collect(r, (uint32_t)i, now_ns);
}

/* ---- a call ---- */

static uint64_t try_to_take(
	struct region *r, uint32_t destination, uint32_t limit, int32_t me, uint64_t ticket, int64_t now_ns)
{
	if (!is_turn_of(r, destination, ticket, now_ns))
		return 0;
	uint64_t hold = claim(r, destination, limit, member_owner(r, me));
	if (hold == 0 || high_of(r, destination) <= limit || bulkhead_in_use(r, destination) <= limit)
		return hold;
	bulkhead_release(r, hold, now_ns);
	return 0;
}

uint64_t bulkhead_take(
	struct region *r, uint32_t destination, const struct bulkhead_rules *rules, uint64_t ticket, int64_t now_ns)
{
	int32_t me = region_me(r);

	if (destination >= r->capacity || me < 0 || r->is_read_only)
		return BULKHEAD_UNBOUNDED;
	struct bulkhead *b = of(r, destination);
	uint32_t limit = bulkhead_limit(r, destination, rules);
	uint32_t shown = rules->max | (rules->is_adaptive ? BULKHEAD_ADAPTIVE : 0);
	if (atomic_load_explicit(&b->shown, memory_order_relaxed) != shown)
		atomic_store_explicit(&b->shown, shown, memory_order_relaxed);
	uint64_t hold = try_to_take(r, destination, limit, me, ticket, now_ns);
	if (hold == 0 && bulkhead_collect(r, destination, now_ns) > 0)
		hold = try_to_take(r, destination, limit, me, ticket, now_ns);
	if (rules->is_adaptive)
		raise_to(&b->peak, hold ? index_of(hold) + 1 : limit);
	return hold;
}

bool bulkhead_release(struct region *r, uint64_t hold, int64_t now_ns)
{
	if (hold == 0 || hold == BULKHEAD_UNBOUNDED || r->is_read_only || !give_back(r, hold))
		return false;
	ring_first(r, (uint32_t)(hold >> DESTINATION_SHIFT), now_ns);
	return true;
}

void bulkhead_learn(
	struct region *r, uint32_t destination, const struct bulkhead_rules *rules, int64_t took_ns, int64_t now_ns)
{
	if (destination >= r->capacity || r->is_read_only)
		return;
	struct bulkhead *b = of(r, destination);
	uint64_t state = atomic_load_explicit(&b->adapt, memory_order_relaxed);
	uint64_t us = adapt_clip_us(state, took_ns > 0 ? (uint64_t)took_ns / 1000 : 0);
	if (us > UINT32_MAX)
		us = UINT32_MAX; /* so many fit the sum */
	uint64_t span = atomic_fetch_add_explicit(&b->span, us << 16 | 1, memory_order_relaxed) + (us << 16 | 1);
	uint32_t calls = (uint32_t)(span & 0xffff);
	int64_t since = atomic_load_explicit(&b->span_ns, memory_order_relaxed);
	bool is_young = since <= now_ns && now_ns - since < ADAPT_SPAN_MS * NS_PER_MS;
	if (calls < ADAPT_CALLS || (is_young && calls < SPAN_CALLS_MAX))
		return;
	/* One ends it; a span that its ender dies with is lost, and another begins. */
	if (!atomic_compare_exchange_strong_explicit(
		    &b->span_ns, &since, now_ns, memory_order_relaxed, memory_order_relaxed))
		return;
	span = atomic_exchange_explicit(&b->span, 0, memory_order_relaxed);
	calls = (uint32_t)(span & 0xffff);
	uint32_t peak = atomic_exchange_explicit(&b->peak, 0, memory_order_relaxed);
	if (calls == 0)
		return;
	while (!atomic_compare_exchange_weak_explicit(&b->adapt, &state,
		adapt_next(state, rules->max, (span >> 16) / calls, peak), memory_order_relaxed, memory_order_relaxed))
		;
}

void bulkhead_rejected(struct region *r, uint32_t destination, int64_t now_ns)
{
	if (destination >= r->capacity || r->is_read_only)
		return;
	struct bulkhead *b = of(r, destination);
	uint64_t all = atomic_fetch_add_explicit(&b->rejected, 1, memory_order_relaxed) + 1;
	int64_t told_ns = atomic_load_explicit(&b->told_ns, memory_order_relaxed);
	bool is_recent = told_ns != 0 && told_ns <= now_ns && now_ns - told_ns < TELL_EVERY_NS;
	if (is_recent || !atomic_compare_exchange_strong_explicit(
				 &b->told_ns, &told_ns, now_ns, memory_order_relaxed, memory_order_relaxed))
		return;
	uint64_t told = atomic_exchange_explicit(&b->told, all, memory_order_relaxed);
	struct event e;
	memset(&e, 0, sizeof e);
	e.type = EVENT_REJECTED;
	e.retry_after_ms = EVENT_BULKHEAD_FULL;
	e.value = all > told ? (int64_t)(all - told) : 1;
	e.from = e.to = (uint8_t)breaker_state(
		atomic_load_explicit(&r->destinations[destination].breaker, memory_order_relaxed));
	text_copy(e.reason, sizeof e.reason, "bulkhead full");
	registry_name(r, destination, e.destination);
	events_add(r, &e);
}

void bulkhead_is_off(struct region *r, uint32_t destination)
{
	if (destination >= r->capacity || r->is_read_only)
		return;
	struct bulkhead *b = of(r, destination);
	if (atomic_load_explicit(&b->shown, memory_order_relaxed) != 0)
		atomic_store_explicit(&b->shown, 0, memory_order_relaxed);
}

void bulkhead_clear(struct destination *d)
{
	struct bulkhead *b = &d->bulkhead;
	_Atomic uint64_t *const counters[] = {
		&b->rejected, &b->told, &b->reclaimed, &b->adapt, &b->span, &b->waited_us};

	for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
		atomic_store_explicit(counters[i], 0, memory_order_relaxed);
	for (int i = 0; i <= BULKHEAD_WAITS; i++)
		atomic_store_explicit(&b->waited[i], 0, memory_order_relaxed);
	atomic_store_explicit(&b->shown, 0, memory_order_relaxed);
	atomic_store_explicit(&b->told_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&b->peak, 0, memory_order_relaxed);
}

bool bulkhead_valid(const struct region *r, uint32_t destination)
{
	uint32_t high = atomic_load_explicit(&of(r, destination)->high, memory_order_relaxed), length;

	if (high > BULKHEAD_MAX || (atomic_load_explicit(&of(r, destination)->shown, memory_order_relaxed) &
					   ~BULKHEAD_ADAPTIVE) > BULKHEAD_MAX)
		return false;
	/* A free slot has no holder. */
	for (uint32_t i = 0; i < high; i += length) {
		const _Atomic uint64_t *slots = run_at(r, destination, i, false, &length);
		for (uint32_t k = 0; slots && k < length && i + k < high; k++) {
			uint64_t seen = atomic_load_explicit(&slots[k], memory_order_relaxed);
			if (!(seen & TAKEN) && (seen & MEMBER_OWNER_MASK))
				return false;
		}
	}
	return true;
}
