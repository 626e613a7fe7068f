/* See fault.h: which rules there are, and the layer put in and taken out. What it does at a call is in fault_connect.c,
 * fault_io.c and fault_look_up.c. Any thread, also in signal handlers; no lock. */
#include "engine/fault.h"

#include "base/clock.h"
#include "core/faults.h"
#include "engine/fault_decide.h"
#include "engine/fault_layer.h"
#include "engine/guest.h"
#include "policy/policy.h"

struct real_table fault_libc;
static _Atomic uint32_t is_in; /* mask of enum fault_call: those that lead here */
/* When the first of the rules is over for good: who meets the layer then takes it out. INT64_MAX: none will be. */
static _Atomic int64_t over_at_ns = INT64_MAX;

bool fault_is_at_call(enum fault_call call)
{
	return atomic_load_explicit(&is_in, memory_order_relaxed) >> call & 1;
}

/* ---- rules ---- */

void fault_rules_begin(struct fault_rules *r)
{
	*r = (struct fault_rules){.config = policy_acquire(), .added = policy_acquire_faults()};
}

void fault_rules_end(struct fault_rules *r)
{
	policy_release(r->config);
	policy_release(r->added);
}

const struct fault_rule *fault_rules_next(struct fault_rules *r, const struct config **of)
{
	const struct fault_rule *f = NULL;
	if (!r->is_added) {
		*of = r->config;
		f = r->config ? config_fault(r->config, r->next++) : NULL;
		if (f)
			return f;
		r->is_added = true;
		r->next = 0;
	}
	*of = r->added;
	return r->added ? config_fault(r->added, r->next++) : NULL;
}

const struct fault_rule *fault_rules_next_for(struct fault_rules *r, const struct fault_place *p, enum fault_call call)
{
	const struct config *of;
	const struct fault_rule *f;
	struct target target = {.addr = &p->addr, .name = p->name[0] ? p->name : NULL, .exe = guest_exe()};
	while ((f = fault_rules_next(r, &of)) != NULL)
		if (fault_is_at(f, call) && fault_may_hit(f) && config_fault_fits(of, f, &target))
			return f;
	return NULL;
}

/* ---- in and out ---- */

/* The calls at which any rule may hit, now or later; what a reset needs to know is learnt at all of them. *over_ns:
 * when that changes by itself. */
static uint32_t wanted(int64_t now_ns, int64_t *over_ns)
{
	struct fault_rules r;
	const struct config *of;
	const struct fault_rule *f;
	uint32_t mask = 0;
	*over_ns = INT64_MAX;
	fault_rules_begin(&r);
	while ((f = fault_rules_next(&r, &of)) != NULL) {
		int64_t end = fault_ends_ns(f);
		if (!fault_may_hit(f) || now_ns >= end)
			continue;
		*over_ns = end < *over_ns ? end : *over_ns;
		mask |= (uint32_t)f->value[FAULT_CALLS];
		if (f->type == FAULT_IS_RESET)
			mask |= FAULT_AT(SEND) | FAULT_AT(RECV);
	}
	fault_rules_end(&r);
	return mask & (FAULT_AT(SEND) | FAULT_AT(RECV)) ? mask | FAULT_AT(CONNECT) : mask;
}

static void put(void)
{
	int64_t over_ns;
	uint32_t mask = wanted(clock_now_ns(), &over_ns), was = atomic_load(&is_in);
	atomic_store_explicit(&over_at_ns, over_ns, memory_order_relaxed);
	if (mask == was || (mask && !fault_lines_make()))
		return;
	if (!fault_libc.connect)
		fault_libc = real;
	atomic_store(&is_in, mask);
	/* A copy of a number made while there is no layer has no line, and costs what it did. */
	atomic_store(&fault_has_lines, mask != 0);
	fault_connect_put(mask & FAULT_AT(CONNECT));
	fault_look_up_put(mask & FAULT_AT(RESOLVE));
	fault_io_put_send(mask & FAULT_AT(SEND));
	fault_io_put_recv(mask & FAULT_AT(RECV));
	fault_io_put_both(mask & (FAULT_AT(SEND) | FAULT_AT(RECV)));
}

void fault_init(void)
{
	fault_decide_init();
	put();
}

static _Atomic uint32_t seen; /* header->fault_seq */
static _Atomic uint32_t busy, is_due;

void fault_forked(void)
{
	atomic_store(&busy, 0);
	fault_marks_forked();
	fault_decide_forked();
}

static void take_over(struct region *r)
{
	static struct faults_rule rules[REGION_FAULTS];
	struct fault_given given[REGION_FAULTS];
	uint32_t n = 0;
	int64_t now = clock_now_ns();
	for (uint32_t i = 0; i < REGION_FAULTS; i++) {
		if (!faults_read(r, i, now, &rules[n]))
			continue;
		given[n] = (struct fault_given){rules[n].spec, rules[n].number, rules[n].begun_ns, rules[n].until_ns};
		n++;
	}
	struct config *c = config_load_faults(given, n);
	if (c && policy_install_faults(c) != 0)
		config_free(c);
}

/* Whoever finds another at it has left word, and that one does it once more. Not for ever: the words may be damaged. */
static void settle(struct region *r)
{
	atomic_store(&is_due, 1);
	for (int i = 0; i < 4 && atomic_load(&is_due) && !atomic_exchange(&busy, 1); i++) {
		atomic_store(&is_due, 0);
		uint32_t asked = r ? atomic_load_explicit(&r->header->fault_seq, memory_order_acquire) : 0;
		if (r && atomic_exchange(&seen, asked) != asked)
			take_over(r);
		put();
		fault_marks_lift(clock_now_ns());
		atomic_store(&busy, 0);
	}
}

void fault_follow(struct region *r)
{
	settle(r);
}

void fault_leave(int64_t now_ns)
{
	if (now_ns >= atomic_load_explicit(&over_at_ns, memory_order_relaxed))
		settle(NULL);
}

void fault_look(int64_t now_ns)
{
	struct region *r = guest_region_now();
	if (r && atomic_load_explicit(&r->header->fault_seq, memory_order_relaxed) != atomic_load(&seen))
		settle(r);
	else
		fault_marks_lift(now_ns);
}

void fault_attached(struct region *r)
{
	const struct config *added = policy_acquire_faults();
	policy_release(added);
	faults_drop_orphans(r);
	/* Another region's, too, are over. */
	if (added || atomic_load(&r->header->fault_seq))
		atomic_store(&seen, atomic_load(&r->header->fault_seq) - 1);
	fault_follow(r);
}
