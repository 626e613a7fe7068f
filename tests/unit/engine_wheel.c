/* The timing wheel against a plain list: nothing is visited too late, nothing is lost, and what is not due is looked at
 * seldom (C5 C8). */
#include "engine/wheel.h"

#include <string.h>

#include "tap.h"

#define N 2000
#define MS 1000000LL

static struct wheel_link links[N];
static int64_t due[N]; /* WHEEL_NEVER: not in it */
static unsigned long visits, early, lost, late;
static int64_t turn_now, last_turn;
static uint64_t seed = 88172645463325252ULL;

static uint64_t random_number(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static struct wheel_link *link_of(uint32_t entry)
{
	return &links[entry];
}

/* Times from a millisecond to two days ahead, each size as often as the others. */
static int64_t some_time(int64_t now)
{
	return now + (int64_t)(random_number() % (1ULL << (20 + random_number() % 28)));
}

static int64_t visit(uint32_t entry, int64_t now, void *context)
{
	(void)context;
	visits++;
	lost += due[entry] == WHEEL_NEVER;
	if (due[entry] > now) {
		early++;
		return due[entry];
	}
	/* It was not due at the turn before. */
	late += due[entry] <= last_turn;
	due[entry] = random_number() % 4 ? WHEEL_NEVER : some_time(now);
	return due[entry];
}

int main(void)
{
	static struct wheel w;
	int64_t now = 12345678901234LL;
	unsigned long added = 0, removed = 0, wrong_next = 0, overdue = 0, turns = 0;

	for (int i = 0; i < N; i++)
		due[i] = WHEEL_NEVER;
	wheel_start(&w, now);
	for (int round = 0; round < 60000; round++) {
		uint32_t entry = (uint32_t)(random_number() % N);
		if (due[entry] == WHEEL_NEVER) {
			due[entry] = some_time(now);
			wheel_add(&w, link_of, entry, due[entry]);
			added++;
		} else if (random_number() % 3 == 0) {
			wheel_remove(&w, link_of, entry);
			due[entry] = WHEEL_NEVER;
			removed++;
		}
		if (random_number() % 8)
			continue;
		turns++;
		turn_now = now;
		int64_t next = wheel_turn(&w, link_of, now, visit, NULL), soonest = WHEEL_NEVER;
		for (int i = 0; i < N; i++) {
			overdue += due[i] <= now;
			if (due[i] < soonest)
				soonest = due[i];
		}
		wrong_next += next > soonest;
		last_turn = now;
		/* On to what comes next, as the timer does, or somewhere before it. */
		if (next == WHEEL_NEVER)
			now += 5000 * MS;
		else if (random_number() % 3 && next > now)
			now = next;
		else
			now += (int64_t)(random_number() % (50 * MS));
	}
	tap_ok(added > 5000 && removed > 1000 && turns > 5000, "%lu entries, %lu removed, %lu turns, %lu visits", added,
		removed, turns, visits);
	tap_ok(overdue == 0, "after a turn nothing is overdue (%lu were)", overdue);
	tap_ok(late == 0 && lost == 0, "each is visited at the first turn after its time, and only while it is there");
	tap_ok(wrong_next == 0, "the next waking is never later than what is due first (%lu were)", wrong_next);
	tap_ok(early < 4 * added, "what is not due is looked at seldom: %lu times for %lu entries", early, added);

	/* Fifty thousand entries far ahead, one that is due: the turn looks at it alone. */
	wheel_start(&w, now);
	for (uint32_t i = 0; i < N; i++)
		due[i] = i ? now + 3600000 * MS : now + 100 * MS;
	for (uint32_t i = 0; i < N; i++)
		wheel_add(&w, link_of, i, due[i]);
	visits = 0;
	wheel_turn(&w, link_of, now + 101 * MS, visit, NULL);
	tap_ok(visits == 1, "one expiry among many costs one visit (%lu)", visits);
	return tap_done();
}
