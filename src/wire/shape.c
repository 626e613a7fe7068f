/* See shape.h. */
#include "wire/shape.h"

#include "base/hash.h"

#define NS_PER_S 1000000000LL
/* What a line may catch up on after whoever looks came late, or could not pass it on. */
#define CATCH_UP_NS 250000000LL
/* How often a line is worth looking at. */
#define LINE_LOOK_NS 10000000LL
/* No delay or sum of delays comes near the end of a clock. */
#define DELAY_MAX_NS (365LL * 24 * 3600 * NS_PER_S)

static uint64_t draw(const struct shape_rules *r, uint64_t salt, uint64_t number)
{
	return hash_mix(r->seed ^ hash_mix(number + salt * 0x9e3779b97f4a7c15ULL));
}

static uint64_t square_root(uint64_t v)
{
	uint64_t root = 0;
	for (uint64_t bit = 1ULL << 31; bit; bit >>= 1)
		if ((root | bit) * (root | bit) <= v)
			root |= bit;
	return root;
}

/* In 1/65536 of the standard deviation: twelve uniform ones less their mean. */
static int64_t normal(uint64_t random)
{
	int64_t sum = 0;
	for (unsigned i = 0; i < 3; i++) {
		uint64_t bits = hash_mix(random + i);
		for (unsigned k = 0; k < 4; k++)
			sum += (int64_t)(bits >> 16 * k & 0xffff);
	}
	return sum - INT64_C(6) * 65536;
}

int64_t shape_delay_ns(const struct shape_rules *r, uint64_t random)
{
	int64_t jitter = r->jitter_ns < DELAY_MAX_NS ? r->jitter_ns : DELAY_MAX_NS, off = 0;
	if (jitter > 0 && r->distribution == SHAPE_UNIFORM) {
		off = (int64_t)(random % (2 * (uint64_t)jitter + 1)) - jitter;
	} else if (jitter > 0 && r->distribution == SHAPE_NORMAL) {
		off = (int64_t)((__int128)jitter * normal(random) / 65536);
	} else if (jitter > 0) {
		/* P(X > x) = 1 / x^2 for x from 1 to 65536; X - 1 is 1 on average. */
		uint64_t root = square_root((random >> 32) + 1); /* 65536 times the root of a uniform one */
		off = (int64_t)((__int128)jitter * (65536 - (int64_t)root) / (int64_t)root);
	}
	int64_t delay = r->delay_ns + off;
	return delay < 0 ? 0 : delay < DELAY_MAX_NS ? delay : DELAY_MAX_NS;
}

void shape_begin(struct shape *s, const struct shape_rules *rules, int64_t now_ns)
{
	s->rules = *rules;
	s->came = s->ripe = s->passed = s->seen = 0;
	s->last_due_ns = s->slice_ns = INT64_MIN;
	s->end_ns = s->reset_ns = SHAPE_NEVER;
	s->line_base_ns = now_ns;
	s->line_carried = 0;
	s->was_in_hole = false;
	s->first = s->count = 0;
}

/* ---- the delay ---- */

static bool is_delayed(const struct shape_rules *r)
{
	return r->delay_ns > 0 || r->jitter_ns > 0;
}

static int64_t due_of(struct shape *s, uint64_t salt, int64_t now_ns)
{
	int64_t due = now_ns + shape_delay_ns(&s->rules, draw(&s->rules, salt, s->came));
	if (due < s->last_due_ns)
		due = s->last_due_ns;
	s->last_due_ns = due;
	return due;
}

/* The line is idle and octets come to it. */
static void reach_line(struct shape *s, int64_t at_ns)
{
	uint64_t rate = s->rules.rate;
	if (rate == 0 || s->ripe != s->passed || at_ns <= s->line_base_ns)
		return;
	unsigned __int128 could = (unsigned __int128)(uint64_t)(at_ns - s->line_base_ns) * rate / NS_PER_S;
	if (could < s->line_carried)
		return; /* the last octet is on it still */
	s->line_base_ns = at_ns;
	s->line_carried = 0;
}

void shape_came(struct shape *s, size_t n, int64_t now_ns)
{
	if (n == 0)
		return;
	/* In place of the first octet. */
	if (s->rules.has_reset && s->rules.reset_after == 0 && s->reset_ns == SHAPE_NEVER)
		s->reset_ns = now_ns + s->rules.reset_delay_ns;
	if (!is_delayed(&s->rules)) {
		reach_line(s, now_ns);
		s->came += n;
		if (s->count == 0)
			s->ripe = s->came;
		else
			s->mark[(s->first + s->count - 1) % SHAPE_MARKS].until = s->came;
		return;
	}
	int64_t due = due_of(s, 1, now_ns);
	s->came += n;
	struct shape_mark *last = &s->mark[(s->first + s->count - 1) % SHAPE_MARKS];
	/* Pieces that follow one another closely share a mark, so that a long stream of small ones needs no more than
	 * there are: the first of them is late by less than a hundredth. */
	if (s->count > 0 && (s->count == SHAPE_MARKS || now_ns - last->made_ns < s->rules.delay_ns / 128)) {
		last->due_ns = due;
		last->until = s->came;
		return;
	}
	s->mark[(s->first + s->count++) % SHAPE_MARKS] =
		(struct shape_mark){.due_ns = due, .until = s->came, .made_ns = now_ns};
}

void shape_ended(struct shape *s, int64_t now_ns)
{
	if (s->end_ns != SHAPE_NEVER)
		return;
	s->end_ns = (is_delayed(&s->rules) ? due_of(s, 1, now_ns) : now_ns) + s->rules.close_delay_ns;
}

static void ripen(struct shape *s, int64_t now_ns)
{
	while (s->count > 0 && s->mark[s->first].due_ns <= now_ns) {
		reach_line(s, s->mark[s->first].due_ns);
		s->ripe = s->mark[s->first].until;
		s->first = (s->first + 1) % SHAPE_MARKS;
		s->count--;
	}
}

/* ---- what follows ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When the line has carried n more octets. */
static int64_t line_time(const struct shape *s, uint64_t n)
{
	unsigned __int128 ns =
		((unsigned __int128)(s->line_carried + n) * NS_PER_S + s->rules.rate - 1) / s->rules.rate;
	return ns > (unsigned __int128)DELAY_MAX_NS ? s->line_base_ns + DELAY_MAX_NS : s->line_base_ns + (int64_t)ns;
}

static uint64_t line_allows(struct shape *s, uint64_t n, int64_t now_ns, int64_t *again_ns)
{
	if (s->rules.rate == 0 || n == 0)
		return n;
	uint64_t worth = (uint64_t)((unsigned __int128)s->rules.rate * LINE_LOOK_NS / NS_PER_S);
	uint64_t wanted = least(n, worth > 0 ? worth : 1);
	/* Nobody came to look, or nothing could be passed on, for long: not all of that is caught up. */
	int64_t catch_up = line_time(s, wanted) - line_time(s, 0) + CATCH_UP_NS;
	if (now_ns - line_time(s, 0) > catch_up) {
		s->line_base_ns = now_ns - catch_up;
		s->line_carried = 0;
	}
	unsigned __int128 could = now_ns <= s->line_base_ns ? 0
							    : (unsigned __int128)(uint64_t)(now_ns - s->line_base_ns) *
								      s->rules.rate / NS_PER_S;
	uint64_t allowed = could <= s->line_carried	 ? 0
			   : could - s->line_carried < n ? (uint64_t)(could - s->line_carried)
							 : n;
	if (allowed >= wanted)
		return allowed;
	*again_ns = line_time(s, wanted);
	return 0;
}

static struct shape_say look_ripe(struct shape *s, int64_t now_ns)
{
	const struct shape_rules *r = &s->rules;
	struct shape_say say = {.again_ns = s->count > 0 ? s->mark[s->first].due_ns : SHAPE_NEVER};
	uint64_t n = s->ripe - s->passed;

	if (r->has_hole) {
		uint64_t left = r->hole_after > s->passed ? r->hole_after - s->passed : 0;
		s->was_in_hole |= left == 0 && (s->came > s->passed || s->end_ns != SHAPE_NEVER);
		n = least(n, left);
		if (left == 0) {
			say.again_ns = SHAPE_NEVER;
			return say;
		}
	}
	if (r->has_reset)
		n = least(n, r->reset_after > s->passed ? r->reset_after - s->passed : 0);
	if (r->has_limit) {
		n = least(n, r->limit > s->passed ? r->limit - s->passed : 0);
		/* None: in place of the first octet, as a reset. */
		if (s->passed >= r->limit && s->came > 0) {
			say.end = SHAPE_END;
			say.again_ns = SHAPE_NEVER;
			return say;
		}
	}
	if (s->passed == s->came && s->end_ns != SHAPE_NEVER && s->count == 0) {
		if (now_ns >= s->end_ns)
			say.end = SHAPE_END;
		say.again_ns = now_ns >= s->end_ns ? SHAPE_NEVER : s->end_ns;
		return say;
	}
	if (n == 0)
		return say;
	if (r->slice && now_ns < s->slice_ns) {
		say.again_ns = s->slice_ns;
		return say;
	}
	if (r->slice)
		n = least(n, r->slice);
	n = line_allows(s, n, now_ns, &say.again_ns);
	say.pass = (size_t)n;
	if (n > 0)
		say.again_ns = now_ns;
	return say;
}

struct shape_say shape_look(struct shape *s, int64_t now_ns)
{
	if (now_ns >= s->reset_ns)
		return (struct shape_say){.end = SHAPE_RESET, .again_ns = SHAPE_NEVER};
	ripen(s, now_ns);
	struct shape_say say = look_ripe(s, now_ns);
	/* Once it is certain, nothing but the reset is to come. */
	if (s->reset_ns != SHAPE_NEVER && say.pass == 0 && say.end == SHAPE_ON)
		say.again_ns = s->reset_ns;
	return say;
}

void shape_passed(struct shape *s, size_t n, int64_t now_ns)
{
	s->passed += n;
	s->line_carried += n;
	if (s->rules.slice)
		s->slice_ns = now_ns + s->rules.slice_delay_ns;
	if (s->rules.has_reset && s->reset_ns == SHAPE_NEVER && s->passed >= s->rules.reset_after)
		s->reset_ns = now_ns + s->rules.reset_delay_ns;
}

size_t shape_corrupt(struct shape *s, void *octets, size_t n)
{
	unsigned char *p = octets;
	size_t changed = 0;
	uint64_t share = s->rules.corrupt_ppm;
	if (share == 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t random = draw(&s->rules, 2, s->seen + i);
		if ((random >> 8) % 1000000 >= share)
			continue;
		p[i] ^= (unsigned char)(1u << (random & 7));
		changed++;
	}
	s->seen += n;
	return changed;
}

void shape_lift(struct shape *s, int64_t now_ns)
{
	bool in_hole = s->was_in_hole;
	s->rules = (struct shape_rules){.seed = s->rules.seed};
	s->count = 0;
	s->ripe = s->came;
	s->reset_ns = in_hole ? now_ns : SHAPE_NEVER;
	if (s->end_ns != SHAPE_NEVER && s->end_ns > now_ns)
		s->end_ns = now_ns;
}
