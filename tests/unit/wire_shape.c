/* Shaping by a simulated clock: a relay that takes in what an app sends at times of its own, passes on what it may, and
 * looks again when it was told to. What passed when is compared with what the rules say; nothing is lost, doubled or
 * overtaken. */
#include "wire/shape.h"

#include <string.h>

#include "tap.h"

#define MS 1000000LL
#define S (1000 * MS)
#define ROOM (1 << 22)

static struct shape s;
static uint64_t random_state = 88172645463325252ULL;
static uint64_t random_number(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* What is sent: pieces at times. */
struct piece {
	int64_t at_ns;
	size_t n;
};

/* What was seen of it: when each octet came in and passed. */
static int64_t came_at[ROOM], passed_at[ROOM];
static size_t came, passed;
static unsigned long looks, writes, longest;
static enum shape_end end;
static int64_t end_ns;

/* late_ns: how late whoever looks comes at most; part: what a write takes at most, 0: all. lift_ns: 0: never. */
static void run(const struct shape_rules *r, const struct piece *p, size_t n, int64_t ended_ns, int64_t until_ns,
	int64_t late_ns, size_t part, int64_t lift_ns)
{
	int64_t now = 0;
	size_t next = 0;
	bool has_ended = false;
	came = passed = 0;
	looks = writes = longest = 0;
	end = SHAPE_ON;
	shape_begin(&s, r, 0);
	for (;;) {
		for (; next < n && p[next].at_ns <= now; next++) {
			for (size_t i = 0; i < p[next].n && came < ROOM; i++)
				came_at[came++] = now;
			shape_came(&s, p[next].n, now);
		}
		if (ended_ns && !has_ended && now >= ended_ns && next == n) {
			shape_ended(&s, now);
			has_ended = true;
		}
		if (lift_ns && now >= lift_ns) {
			shape_lift(&s, now);
			lift_ns = 0;
		}
		struct shape_say say = shape_look(&s, now);
		looks++;
		if (say.end != SHAPE_ON) {
			end = say.end;
			end_ns = now;
			return;
		}
		if (say.pass > 0) {
			size_t take = part && part < say.pass ? part : say.pass;
			for (size_t i = 0; i < take; i++)
				passed_at[passed++] = now;
			writes++;
			longest = take > longest ? take : longest;
			shape_passed(&s, take, now);
			continue;
		}
		int64_t then = say.again_ns;
		if (then != SHAPE_NEVER && then <= now) {
			tap_ok(false, "told to look again at a time that has come, at %lld", (long long)now);
			return;
		}
		if (then != SHAPE_NEVER && late_ns)
			then += (int64_t)(random_number() % (uint64_t)late_ns);
		if (next < n && p[next].at_ns < then)
			then = p[next].at_ns;
		if (ended_ns && !has_ended && ended_ns < then)
			then = ended_ns;
		if (lift_ns && lift_ns < then)
			then = lift_ns;
		if (then > until_ns)
			return;
		now = then;
	}
}

static struct piece pieces[20000];

static size_t some_pieces(size_t count, int64_t over_ns, size_t most)
{
	int64_t at = 0;
	for (size_t i = 0; i < count; i++) {
		at += (int64_t)(random_number() % (uint64_t)(2 * over_ns / (int64_t)count));
		pieces[i] = (struct piece){at, 1 + random_number() % most};
	}
	return count;
}

static void nothing_set(void)
{
	struct shape_rules r = {0};
	size_t n = some_pieces(500, 2 * S, 3000);
	run(&r, pieces, n, 3 * S, 10 * S, 0, 0, 0);
	bool at_once = came == passed;
	for (size_t i = 0; i < passed; i++)
		at_once &= came_at[i] == passed_at[i];
	tap_ok(at_once && end == SHAPE_END && end_ns == 3 * S, "without rules all passes on at once, and the end too");
}

static void latency(void)
{
	struct shape_rules r = {.delay_ns = 200 * MS, .jitter_ns = 50 * MS, .seed = 7};
	for (int round = 0; round < 20; round++) {
		r.seed = (uint64_t)round;
		size_t n = some_pieces(300, 10 * S, 200);
		run(&r, pieces, n, 30 * S, 60 * S, 0, 0, 0);
		int64_t least = INT64_MAX, most = 0, sum = 0;
		for (size_t i = 0; i < passed; i++) {
			int64_t took = passed_at[i] - came_at[i];
			least = took < least ? took : least;
			most = took > most ? took : most;
			sum += took;
			tap_expect(i == 0 || passed_at[i] >= passed_at[i - 1], "octet %zu overtakes", i);
		}
		tap_expect(came == passed, "%zu of %zu octets passed", passed, came);
		tap_expect(least >= 150 * MS && most <= 252 * MS, "delays from %lld to %lld us",
			(long long)least / 1000, (long long)most / 1000);
		tap_expect(sum / (int64_t)passed > 180 * MS && sum / (int64_t)passed < 235 * MS, "a mean of %lld us",
			(long long)(sum / (int64_t)passed / 1000));
		tap_expect(end == SHAPE_END && end_ns >= 30 * S + 150 * MS && end_ns <= 30 * S + 250 * MS,
			"the end at %lld us", (long long)end_ns / 1000);
	}
	tap_all("latency of 200 ms, 50 ms up and down: each octet within it, none overtakes, none is lost, the end is "
		"late too");

	/* Singly, so that order does not hold any of them up: the mean is the delay's. */
	for (size_t i = 0; i < 4000; i++)
		pieces[i] = (struct piece){(int64_t)i * S, 1};
	run(&r, pieces, 4000, 0, 5000 * S, 0, 0, 0);
	int64_t sum = 0;
	for (size_t i = 0; i < passed; i++)
		sum += passed_at[i] - came_at[i];
	tap_ok(passed == 4000 && sum / 4000 > 198 * MS && sum / 4000 < 202 * MS, "its mean is the delay: %lld us",
		(long long)(sum / 4000 / 1000));

	/* A stream of more pieces than there are marks. */
	r.jitter_ns = 0;
	for (size_t i = 0; i < 20000; i++)
		pieces[i] = (struct piece){(int64_t)i * 50000, 3};
	run(&r, pieces, 20000, 0, 100 * S, 0, 0, 0);
	int64_t least = INT64_MAX, most = 0;
	for (size_t i = 0; i < passed; i++) {
		int64_t took = passed_at[i] - came_at[i];
		least = took < least ? took : least;
		most = took > most ? took : most;
	}
	tap_ok(passed == 60000 && least >= 200 * MS && most <= 202 * MS,
		"20,000 pieces in a second are each late by the delay, within 1 %% (%lld to %lld us)",
		(long long)least / 1000, (long long)most / 1000);
}

static void distributions(void)
{
	struct shape_rules r = {.delay_ns = 100 * MS, .jitter_ns = 10 * MS, .distribution = SHAPE_NORMAL};
	int64_t sum = 0, squares = 0, over = 0, least = INT64_MAX;
	int n = 200000;
	for (int i = 0; i < n; i++) {
		int64_t off = shape_delay_ns(&r, random_number()) - 100 * MS;
		sum += off / 1000;
		squares += off / 1000 * (off / 1000);
	}
	tap_ok(sum / n > -100 && sum / n < 100 && squares / n > 9700LL * 9700 && squares / n < 10300LL * 10300,
		"normal: mean %lld us off, variance %lld", (long long)(sum / n), (long long)(squares / n));
	r.distribution = SHAPE_PARETO;
	for (int i = 0; i < n; i++) {
		int64_t off = shape_delay_ns(&r, random_number()) - 100 * MS;
		least = off < least ? off : least;
		over += off > 90 * MS;
	}
	tap_ok(least >= 0 && over > n / 100 * 9 / 10 && over < n / 100 * 11 / 10,
		"pareto: never less than the delay, %lld of 200,000 nine jitters over it", (long long)over);
	r = (struct shape_rules){.delay_ns = 10 * MS, .jitter_ns = 50 * MS};
	least = INT64_MAX;
	for (int i = 0; i < n; i++) {
		int64_t delay = shape_delay_ns(&r, random_number());
		least = delay < least ? delay : least;
	}
	tap_ok(least == 0, "a jitter above the delay never goes back in time");
	tap_ok(shape_delay_ns(&r, 42) == shape_delay_ns(&r, 42), "the same draw is the same delay");
}

static void bandwidth(void)
{
	static const uint64_t rates[] = {1, 100, 9600, 65536, 1000000};
	for (size_t k = 0; k < sizeof rates / sizeof rates[0]; k++) {
		struct shape_rules r = {.rate = rates[k]};
		/* More than ten seconds' worth, at once. */
		size_t all = rates[k] * 12 < ROOM ? rates[k] * 12 : ROOM;
		pieces[0] = (struct piece){0, all};
		run(&r, pieces, 1, 0, 1000 * S, 3 * MS, 0, 0);
		tap_expect(passed == all, "%llu a second: %zu of %zu", (unsigned long long)rates[k], passed, all);
		for (size_t i = 0; i < passed; i++) {
			/* Octet i is through when i + 1 have been carried; never before, and never long after. */
			int64_t due = (int64_t)((i + 1) * (unsigned long)S / rates[k]);
			tap_expect(passed_at[i] >= due - 1 && passed_at[i] <= due + 25 * MS + S / (int64_t)rates[k],
				"octet %zu of %llu a second after %lld us", i, (unsigned long long)rates[k],
				(long long)passed_at[i] / 1000);
		}
		double took = (double)passed_at[passed - 1] / 1e9, right = (double)all / (double)rates[k];
		tap_expect(took > right * 0.99 && took < right * 1.01, "%f s in place of %f", took, right);
		tap_expect(looks < 2 * 12 * 100 + 10, "%lu looks in 12 s", looks);
	}
	tap_all("a rate holds within 1 % over ten seconds, octet by octet, though looks come late");

	/* Idle time is no credit. */
	struct shape_rules r = {.rate = 1000};
	pieces[0] = (struct piece){0, 1000};
	pieces[1] = (struct piece){20 * S, 1000};
	run(&r, pieces, 2, 0, 100 * S, 0, 0, 0);
	tap_ok(passed == 2000 && passed_at[999] == 1 * S && passed_at[1999] == 21 * S && passed_at[1000] > 20 * S,
		"an idle line gives no credit: the second thousand takes a second as well");

	/* A reader that takes nothing for long gets no flood afterwards. */
	shape_begin(&s, &r, 0);
	shape_came(&s, 100000, 0);
	struct shape_say say = shape_look(&s, 30 * S);
	tap_ok(say.pass > 0 && say.pass <= 260, "what could not be passed on for long is not all caught up: %zu",
		say.pass);

	r.delay_ns = 100 * MS;
	pieces[0] = (struct piece){0, 2000};
	run(&r, pieces, 1, 0, 100 * S, 0, 0, 0);
	tap_ok(passed_at[1999] == 2100 * MS && passed_at[0] >= 100 * MS, "delay and rate add up");
}

static void slices(void)
{
	struct shape_rules r = {.slice = 7, .slice_delay_ns = 10 * MS};
	pieces[0] = (struct piece){0, 700};
	run(&r, pieces, 1, 5 * S, 10 * S, 0, 0, 0);
	tap_ok(passed == 700 && writes == 100 && longest == 7 && passed_at[699] == 990 * MS && end == SHAPE_END,
		"slices of 7, 10 ms apart: a hundred of them");
	run(&r, pieces, 1, 5 * S, 10 * S, 0, 3, 0);
	tap_ok(passed == 700 && longest == 3 && end == SHAPE_END, "writes that take less of a slice lose nothing");
}

static void ends(void)
{
	struct shape_rules r = {.has_limit = true, .limit = 100};
	pieces[0] = (struct piece){S, 60};
	pieces[1] = (struct piece){2 * S, 60};
	run(&r, pieces, 2, 0, 10 * S, 0, 0, 0);
	tap_ok(passed == 100 && end == SHAPE_END && end_ns == 2 * S, "limit_data: the end after exactly so many");
	r.limit = 0;
	run(&r, pieces, 2, 0, 10 * S, 0, 0, 0);
	tap_ok(passed == 0 && end == SHAPE_END && end_ns == S, "limit_data of none: in place of the first octet");

	r = (struct shape_rules){.has_reset = true, .reset_after = 100, .reset_delay_ns = 300 * MS};
	run(&r, pieces, 2, 0, 10 * S, 0, 0, 0);
	tap_ok(passed == 100 && end == SHAPE_RESET && end_ns == 2300 * MS,
		"reset: after exactly so many, and its delay");
	r.reset_after = 0;
	run(&r, pieces, 2, 0, 10 * S, 0, 0, 0);
	tap_ok(passed == 0 && end == SHAPE_RESET && end_ns == S + 300 * MS,
		"reset after none: in place of the first octet");
	r.reset_after = 1000;
	run(&r, pieces, 2, 3 * S, 10 * S, 0, 0, 0);
	tap_ok(passed == 120 && end == SHAPE_END && end_ns == 3 * S,
		"a stream that ends before the reset ends in order");

	r = (struct shape_rules){.has_hole = true, .hole_after = 80};
	run(&r, pieces, 2, 3 * S, 100 * S, 0, 0, 0);
	tap_ok(passed == 80 && end == SHAPE_ON, "blackhole: exactly so many, then neither octets nor the end");
	run(&r, pieces, 2, 3 * S, 100 * S, 0, 0, 50 * S);
	tap_ok(passed == 80 && end == SHAPE_RESET && end_ns == 50 * S, "a black hole that is lifted ends in a reset");
	r.hole_after = 1000;
	run(&r, pieces, 2, 90 * S, 100 * S, 0, 0, 50 * S);
	tap_ok(passed == 120 && end == SHAPE_END, "one that has swallowed nothing is lifted without a trace");

	r = (struct shape_rules){.close_delay_ns = 4 * S};
	run(&r, pieces, 2, 3 * S, 100 * S, 0, 0, 0);
	tap_ok(passed == 120 && passed_at[119] == 2 * S && end == SHAPE_END && end_ns == 7 * S,
		"slow_close: the octets at once, the end late");

	r = (struct shape_rules){.delay_ns = 20 * S, .rate = 10, .slice = 1, .slice_delay_ns = S};
	run(&r, pieces, 2, 3 * S, 100 * S, 0, 0, 5 * S);
	tap_ok(passed == 120 && passed_at[119] == 5 * S && end == SHAPE_END && end_ns == 5 * S,
		"lifted, what waits passes on at once (CF6)");
}

static void corruption(void)
{
	static unsigned char a[1000000], b[1000000];
	struct shape_rules r = {.corrupt_ppm = 1000, .seed = 3};
	size_t changed = 0, differ = 0, one_bit = 0;
	memset(a, 'x', sizeof a);
	memset(b, 'x', sizeof b);
	shape_begin(&s, &r, 0);
	size_t told = shape_corrupt(&s, a, sizeof a);
	for (size_t i = 0; i < sizeof a; i++) {
		changed += a[i] != 'x';
		one_bit += __builtin_popcount(a[i] ^ 'x') == 1;
	}
	tap_ok(changed == told && one_bit == told && changed > 850 && changed < 1150,
		"corrupt 0.1 %%: %zu of a million octets have one bit turned", changed);
	/* However it comes in pieces, the same octets are hit. */
	shape_begin(&s, &r, 0);
	for (size_t at = 0; at < sizeof b;) {
		size_t n = 1 + random_number() % 5000;
		n = n < sizeof b - at ? n : sizeof b - at;
		shape_corrupt(&s, b + at, n);
		at += n;
	}
	for (size_t i = 0; i < sizeof a; i++)
		differ += a[i] != b[i];
	tap_ok(differ == 0, "the same seed hits the same octets, in whatever pieces they come (CF2)");
	r.corrupt_ppm = 0;
	shape_begin(&s, &r, 0);
	tap_ok(shape_corrupt(&s, b, sizeof b) == 0 && memcmp(a, b, sizeof a) == 0,
		"a share of none changes nothing (CF5)");
}

/* Rules at random: whatever they are, nothing overtakes, is lost or doubled, and looks come to an end. */
static void anything(void)
{
	for (int round = 0; round < 2000; round++) {
		struct shape_rules r = {.seed = random_number()};
		if (random_number() % 2)
			r.delay_ns = (int64_t)(random_number() % (uint64_t)S);
		if (random_number() % 2)
			r.jitter_ns = (int64_t)(random_number() % (uint64_t)S);
		r.distribution = (uint8_t)(random_number() % 3);
		if (random_number() % 2)
			r.rate = 1 + random_number() % 1000000;
		if (random_number() % 2) {
			r.slice = 1 + random_number() % 100;
			r.slice_delay_ns = (int64_t)(random_number() % (uint64_t)(10 * MS));
		}
		if (random_number() % 4 == 0)
			r.close_delay_ns = (int64_t)(random_number() % (uint64_t)S);
		size_t n = some_pieces(1 + random_number() % 300, S, 50);
		int64_t ended = pieces[n - 1].at_ns + 1;
		bool is_lifted = random_number() % 4 == 0;
		run(&r, pieces, n, ended, 100000 * S, random_number() % 2 ? 5 * MS : 0, random_number() % 2 ? 13 : 0,
			is_lifted ? S / 2 : 0);
		tap_expect(came == passed && end == SHAPE_END && end_ns >= ended, "%zu of %zu", passed, came);
		for (size_t i = 0; i < passed; i++)
			tap_expect(passed_at[i] >= came_at[i] && (i == 0 || passed_at[i] >= passed_at[i - 1]),
				"octet %zu", i);
	}
	tap_all("2,000 sets of rules at random: every octet passes once, in order, and the end after them");
}

int main(void)
{
	nothing_set();
	latency();
	distributions();
	bandwidth();
	slices();
	ends();
	corruption();
	anything();
	return tap_done();
}
