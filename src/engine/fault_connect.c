/* Faults at connect (fault_layer.h): an errno in its place, or a detour that holds it up and shapes what follows. Any
 * thread; no lock, no allocation. Returns as libc's does, errno included. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/sys.h"
#include "engine/detour.h"
#include "engine/fault.h"
#include "engine/fault_decide.h"
#include "engine/fault_layer.h"
#include "engine/guest.h"

#define SLICE_NS (10 * NS_PER_MS) /* between two slices, where no delay is given: or a reader would see them as one */

/* ---- marks: which relays are whose ---- */

/* A relay's mark is of its rules together; when one of them is over, it is lifted. */
#define MARKED_RULES 8
#define MARKS 64
struct marked {
	uint32_t mark, count;
	uint32_t rule[MARKED_RULES];
	int64_t over_ns; /* since when one of them is over; 0: it is not */
};
/* A connect that has kept its mark, and whose relay is not there yet, is lifted by a later look. */
#define MARK_KEPT_NS (2 * NS_PER_S)
static struct marked marks[MARKS];
static _Atomic uint32_t mark_count, marks_busy;

static uint32_t mark_of(const struct fault_rule *f)
{
	uint64_t h = hash_bytes(HASH_START ^ f->number, f->name, strlen(f->name));
	return (uint32_t)hash_mix(hash_bytes(h, f->value, sizeof f->value)) | 1;
}

/* For a moment others have it: not for ever, we may have interrupted one of them. */
static bool take_marks(void)
{
	for (int i = 0; i < 100; i++) {
		if (!atomic_exchange(&marks_busy, 1))
			return true;
		sys_poll(NULL, 0, &(struct timespec){0, 100000});
	}
	return false;
}

static void keep_marked(const struct marked *m)
{
	if (!take_marks())
		return; /* lifted with the process */
	uint32_t n = atomic_load(&mark_count), i = 0;
	while (i < n && marks[i].mark != m->mark)
		i++;
	if (i == n && n < MARKS) {
		marks[n] = *m;
		atomic_store(&mark_count, n + 1);
	}
	atomic_store(&marks_busy, 0);
}

/* Is the rule of this mark there still, and in its time? */
static bool is_in_force(uint32_t mark, int64_t now_ns)
{
	struct fault_rules r;
	const struct config *of;
	const struct fault_rule *f;
	bool is_so = false;
	fault_rules_begin(&r);
	while (!is_so && (f = fault_rules_next(&r, &of)) != NULL)
		is_so = mark_of(f) == mark && fault_is_on(f, now_ns);
	fault_rules_end(&r);
	return is_so;
}

void fault_marks_lift(int64_t now_ns)
{
	if (atomic_load(&mark_count) == 0 || atomic_exchange(&marks_busy, 1))
		return;
	for (uint32_t i = 0; i < atomic_load(&mark_count);) {
		bool is_on = true;
		for (uint32_t k = 0; k < marks[i].count; k++)
			is_on &= is_in_force(marks[i].rule[k], now_ns);
		struct marked *m = &marks[i];
		if (!is_on)
			detour_lift(m->mark);
		if (is_on || m->over_ns == 0 || now_ns - m->over_ns < MARK_KEPT_NS) {
			m->over_ns = is_on ? 0 : m->over_ns ? m->over_ns : now_ns;
			i++;
			continue;
		}
		uint32_t last = atomic_load(&mark_count) - 1;
		*m = marks[last];
		atomic_store(&mark_count, last);
	}
	atomic_store(&marks_busy, 0);
}

void fault_marks_forked(void)
{
	atomic_store(&marks_busy, 0);
}

/* ---- what becomes of it ---- */

static int errno_of(const struct fault_rule *f)
{
	switch ((enum fault_type)f->type) {
	case FAULT_IS_REFUSE: return ECONNREFUSED;
	case FAULT_IS_UNREACHABLE: return EHOSTUNREACH;
	case FAULT_IS_ERRNO: return (int)f->value[FAULT_ERRNO];
	default: return 0;
	}
}

/* What becomes of a connection that is begun. */
struct fate {
	int error; /* 0: it goes */
	int64_t hold_ns;
	bool is_shaped, has_mark;
	uint32_t mark;	 /* of its rules together */
	uint32_t status; /* of HTTP; 0: the server's own */
	struct shape_rules up, down;
};

/* A shape of one direction: what two rules ask of the same kind, the first has. */
static void shape(struct shape_rules *s, const struct fault_rule *f, uint64_t seed)
{
	int64_t delay = (int64_t)f->value[FAULT_DELAY];
	switch ((enum fault_type)f->type) {
	case FAULT_IS_LATENCY:
		if (s->delay_ns || s->jitter_ns)
			return;
		s->seed = seed;
		s->delay_ns = delay;
		s->jitter_ns = (int64_t)f->value[FAULT_JITTER];
		s->distribution = (uint8_t)f->value[FAULT_DISTRIBUTION];
		return;
	case FAULT_IS_BANDWIDTH: s->rate = s->rate ? s->rate : f->value[FAULT_RATE]; return;
	case FAULT_IS_BLACKHOLE:
		if (!s->has_hole)
			s->hole_after = f->value[FAULT_AFTER_BYTES];
		s->has_hole = true;
		return;
	case FAULT_IS_LIMIT_DATA:
		if (!s->has_limit)
			s->limit = f->value[FAULT_BYTES];
		s->has_limit = true;
		return;
	case FAULT_IS_RESET:
		if (!s->has_reset) {
			s->reset_after = f->value[FAULT_AFTER_BYTES];
			s->reset_delay_ns = delay;
		}
		s->has_reset = true;
		return;
	case FAULT_IS_SLOW_CLOSE: s->close_delay_ns = s->close_delay_ns ? s->close_delay_ns : delay; return;
	case FAULT_IS_SLICER:
		if (!s->slice) {
			s->slice = f->value[FAULT_SIZE];
			s->slice_delay_ns = delay ? delay : SLICE_NS;
		}
		return;
	case FAULT_IS_CORRUPT:
		s->seed = s->seed ? s->seed : seed;
		s->corrupt_ppm = s->corrupt_ppm ? s->corrupt_ppm : (uint32_t)f->value[FAULT_SHARE];
		return;
	default: return;
	}
}

static void ask_rule(struct fate *fate, const struct fault_rule *f, uint64_t seed)
{
	bool is_up = f->value[FAULT_DIRECTION] != FAULT_DOWN, is_down = f->value[FAULT_DIRECTION] != FAULT_UP;
	fate->error = errno_of(f);
	if (fate->error)
		return;
	fate->has_mark = true;
	fate->mark = fate->mark * 31 + mark_of(f);
	if (f->type == FAULT_IS_HANG) {
		fate->hold_ns = SHAPE_NEVER;
		return;
	}
	if (f->type == FAULT_IS_SLOW_CONNECT) {
		const struct shape_rules delay = {.delay_ns = (int64_t)f->value[FAULT_DELAY],
			.jitter_ns = (int64_t)f->value[FAULT_JITTER],
			.distribution = (uint8_t)f->value[FAULT_DISTRIBUTION]};
		int64_t hold = shape_delay_ns(&delay, seed);
		fate->hold_ns = hold > fate->hold_ns ? hold : fate->hold_ns;
		return;
	}
	if (f->type == FAULT_IS_HTTP) {
		fate->status = fate->status ? fate->status : (uint32_t)f->value[FAULT_STATUS];
		return;
	}
	fate->is_shaped = true;
	if (is_up)
		shape(&fate->up, f, seed);
	if (is_down)
		shape(&fate->down, f, seed ^ 1);
}

static void ask_rules(struct fate *fate, const struct fault_place *p)
{
	struct fault_rules r;
	const struct fault_rule *f;
	struct marked marked = {.count = 0};
	int64_t now = clock_now_ns();
	*fate = (struct fate){.error = 0};
	fault_rules_begin(&r);
	while (!fate->error && (f = fault_rules_next_for(&r, p, FAULT_AT_CONNECT)) != NULL) {
		uint64_t seed;
		if (!fault_decide(f, p->destination, FAULT_AT_CONNECT, now, &seed))
			continue;
		ask_rule(fate, f, seed);
		if (marked.count < MARKED_RULES)
			marked.rule[marked.count++] = mark_of(f);
	}
	fault_rules_end(&r);
	fault_leave(now);
	if (fate->has_mark && !fate->error) {
		marked.mark = fate->mark;
		keep_marked(&marked);
	}
}

/* Waited for in pieces, or asked after. */
static int go_on(int fd, const struct sockaddr *to, socklen_t len)
{
	int r = detour_connect_again(fd, fault_libc.connect);
	return r != DETOUR_CANNOT ? r : fault_libc.connect(fd, to, len);
}

/* Where there is no way round: a reset can be made at the app's own calls, the rest is left out. */
static void keep_reset(struct fault_line *l, const struct fate *fate)
{
	atomic_store(&l->reset_after, fate->down.reset_after);
	atomic_store(&l->has_reset, fate->down.has_reset && fate->down.reset_delay_ns == 0);
}

static int fault_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	struct addr a;
	struct fault_place p;
	struct fate fate;
	int saved = errno;
	uint64_t life = fault_life_of(fd);
	struct fault_line *l = fault_line_at(fd);
	if (!life || !l || !addr_from_sockaddr(&a, to, len) || !guest_is_on() || guest_is_restricted())
		return fault_libc.connect(fd, to, len);
	if (detour_is_door(&a) && atomic_load(&l->life) != life)
		return fault_libc.connect(fd, to, len); /* a detour of a fallback's */
	/* The same attempt again. */
	if (atomic_load(&l->life) == life)
		return go_on(fd, to, len);
	fault_place_describe(&p, &a);
	ask_rules(&fate, &p);
	atomic_store(&l->life, 0);
	if (fate.error) {
		errno = fate.error;
		return -1;
	}
	atomic_store(&l->place, fault_place_keep(&p));
	atomic_store(&l->has_reset, 0);
	atomic_store(&l->in, 0);
	atomic_store(&l->cookie, slot_read_cookie(fd));
	atomic_store(&l->life, life);
	errno = saved;
	if (!fate.has_mark)
		return fault_libc.connect(fd, to, len);
	char status[8] = "";
	struct text number = TEXT_ON(status);
	text_u64(&number, fate.status);
	const struct detour_ask ask = {.kind = fate.status ? DETOUR_STATUS : DETOUR_RELAY,
		.to = to,
		.len = len,
		.path = status,
		.connect = fault_libc.connect,
		.up = fate.is_shaped ? &fate.up : NULL,
		.down = fate.is_shaped ? &fate.down : NULL,
		.hold_ns = fate.hold_ns,
		.mark = fate.mark};
	int r = a.family == ADDR_INET ? detour_connect(fd, &ask) : DETOUR_CANNOT;
	if (r != DETOUR_CANNOT)
		return r;
	keep_reset(l, &fate);
	errno = saved;
	return fault_libc.connect(fd, to, len);
}

/* Only what a call can end with. */
bool fault_may_connect(const struct sockaddr *to, socklen_t len)
{
	struct addr a;
	struct fault_place p;
	struct fate fate;
	int saved = errno;
	if (!addr_from_sockaddr(&a, to, len) || !guest_is_on() || guest_is_restricted())
		return true;
	fault_place_describe(&p, &a);
	ask_rules(&fate, &p);
	errno = fate.error ? fate.error : saved;
	return !fate.error;
}

/* ---- in and out ---- */

bool fault_is_at_connect(void)
{
	return real.connect == fault_connect;
}

void fault_connect_put(bool is_on)
{
	FAULT_PUT(connect, fault_connect);
}
