/* See wheel.h. A bucket of level 0 is a tick, of level n 256^n ticks. An entry stands at the lowest level at which it
 * and now share all higher digits; when now enters a bucket of a higher level, that bucket is dealt out to the levels
 * below. So within a level buckets ahead of now are in order of time. */
#include "engine/wheel.h"

#include <string.h>

#define TICK_SHIFT 22
#define DIGIT_BITS 8
#define DIGIT(tick, level) ((uint32_t)((tick) >> (DIGIT_BITS * (level))) & (WHEEL_BUCKETS - 1))

static uint64_t tick_of(int64_t ns)
{
	return ns > 0 ? (uint64_t)ns >> TICK_SHIFT : 0;
}

void wheel_start(struct wheel *w, int64_t now_ns)
{
	memset(w, 0, sizeof *w);
	w->tick = tick_of(now_ns);
}

static void put(struct wheel *w, wheel_link_of *link, uint32_t entry, int64_t due_ns)
{
	uint64_t at = tick_of(due_ns), last = w->tick | 0xffffff;
	if (at < w->tick)
		at = w->tick;
	if (at > last)
		at = last; /* beyond the highest level: looked at when that is entered */
	unsigned level = 0;
	while (level < WHEEL_LEVELS - 1 && at >> (DIGIT_BITS * (level + 1)) != w->tick >> (DIGIT_BITS * (level + 1)))
		level++;
	uint32_t i = DIGIT(at, level);
	uint64_t bit = 1ULL << (i % 64);
	if (!(w->used[level][i / 64] & bit)) {
		w->used[level][i / 64] |= bit;
		w->head[level][i] = 0;
		w->soonest[level][i] = WHEEL_NEVER;
	}
	uint32_t first = w->head[level][i];
	*link(entry) = (struct wheel_link){first, WHEEL_FIRST | (level * WHEEL_BUCKETS + i)};
	if (first)
		link(first - 1)->prev = entry + 1;
	w->head[level][i] = entry + 1;
	if (due_ns < w->soonest[level][i])
		w->soonest[level][i] = due_ns;
}

void wheel_add(struct wheel *w, wheel_link_of *link, uint32_t entry, int64_t due_ns)
{
	w->count++;
	put(w, link, entry, due_ns);
}

void wheel_remove(struct wheel *w, wheel_link_of *link, uint32_t entry)
{
	struct wheel_link *l = link(entry);
	if (l->next)
		link(l->next - 1)->prev = l->prev;
	w->count--;
	if (!(l->prev & WHEEL_FIRST)) {
		link(l->prev - 1)->next = l->next;
		return;
	}
	uint32_t level = (l->prev & ~WHEEL_FIRST) / WHEEL_BUCKETS, i = l->prev % WHEEL_BUCKETS;
	w->head[level][i] = l->next;
	if (!l->next)
		w->used[level][i / 64] &= ~(1ULL << (i % 64));
}

static uint32_t take_bucket(struct wheel *w, unsigned level, uint32_t i)
{
	if (!(w->used[level][i / 64] & 1ULL << (i % 64)))
		return 0;
	w->used[level][i / 64] &= ~(1ULL << (i % 64));
	return w->head[level][i];
}

/* First used bucket of a level at `from` or after, WHEEL_BUCKETS when there is none. */
static uint32_t first_used(const struct wheel *w, unsigned level, uint32_t from)
{
	for (uint32_t word = from / 64; word < WHEEL_BUCKETS / 64; word++) {
		uint64_t bits = w->used[level][word];
		if (word == from / 64)
			bits &= ~0ULL << (from % 64);
		if (bits)
			return word * 64 + (uint32_t)__builtin_ctzll(bits);
	}
	return WHEEL_BUCKETS;
}

/* One bucket of the present tick. */
static void visit_bucket(
	struct wheel *w, wheel_link_of *link, uint32_t list, int64_t now_ns, wheel_visit *visit, void *context)
{
	while (list) {
		uint32_t entry = list - 1;
		list = link(entry)->next;
		if (list)
			link(list - 1)->prev = 0; /* in no bucket any more: the next of a list in hand */
		int64_t due = visit(entry, now_ns, context);
		if (due == WHEEL_NEVER)
			w->count--;
		else
			put(w, link, entry, due > now_ns ? due : now_ns + 1);
	}
}

/* What stood in a bucket of a higher level that now has entered. An entry's time is not known here: each is visited,
 * which tells it. */
static void enter(struct wheel *w, wheel_link_of *link, int64_t now_ns, wheel_visit *visit, void *context)
{
	for (unsigned level = WHEEL_LEVELS - 1; level > 0; level--)
		if ((w->tick & ((1ULL << (DIGIT_BITS * level)) - 1)) == 0)
			visit_bucket(w, link, take_bucket(w, level, DIGIT(w->tick, level)), now_ns, visit, context);
}

int64_t wheel_turn(struct wheel *w, wheel_link_of *link, int64_t now_ns, wheel_visit *visit, void *context)
{
	uint64_t now_tick = tick_of(now_ns);
	if (w->count == 0 && now_tick > w->tick)
		w->tick = now_tick;
	for (;;) {
		visit_bucket(w, link, take_bucket(w, 0, DIGIT(w->tick, 0)), now_ns, visit, context);
		if (w->tick >= now_tick)
			break;
		/* On to the next bucket in use of this round, or the next round. */
		uint32_t next = first_used(w, 0, DIGIT(w->tick, 0) + 1);
		uint64_t to = (w->tick & ~(uint64_t)(WHEEL_BUCKETS - 1)) + next;
		if (next == WHEEL_BUCKETS && first_used(w, 1, DIGIT(w->tick, 1) + 1) == WHEEL_BUCKETS) {
			/* Nothing in the rounds of level 1 either: to the end of those. */
			to = (w->tick | 0xffff) + 1;
		}
		w->tick = to < now_tick ? to : now_tick;
		if (w->tick == to)
			enter(w, link, now_ns, visit, context);
	}
	for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
		uint32_t i = first_used(w, level, DIGIT(w->tick, level));
		if (i < WHEEL_BUCKETS)
			return w->soonest[level][i];
	}
	return WHEEL_NEVER;
}
