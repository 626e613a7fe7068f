/* See admission.h. Called by connects and sends of any thread. */
#include "engine/admission.h"

#include <errno.h>

#include "base/clock.h"
#include "engine/ambient.h"
#include "engine/blocking.h"
#include "engine/call.h"
#include "engine/guest.h"

static _Atomic uint32_t held;

uint32_t admission_held(void)
{
	return atomic_load_explicit(&held, memory_order_relaxed);
}

void admission_forked(void)
{
	atomic_store(&held, 0);
}

static void grant(struct admission_slot *slot, uint64_t hold, int64_t now_ns)
{
	if (hold == BULKHEAD_UNBOUNDED)
		hold = 0;
	if (hold)
		atomic_fetch_add_explicit(&held, 1, memory_order_relaxed);
	*slot = (struct admission_slot){.hold = hold, .held_ns = now_ns};
}

void admission_release(const struct guard *g, uint64_t hold, int64_t now_ns)
{
	if (!hold)
		return;
	atomic_fetch_sub_explicit(&held, 1, memory_order_relaxed);
	bulkhead_release(g->region, hold, now_ns);
}

struct admission_patience admission_patience(
	const struct guard *g, bool is_blocking, int64_t begun_ns, int64_t own_us, int64_t now_ns)
{
	struct admission_patience p = {.deadline_ns = INT64_MAX, .minds_signals = true};
	const struct bulkhead_rules *rules = guard_bulkhead(g);
	int64_t ambient = ambient_ns();
	if (!is_blocking || !rules->wait_ms || guest_is_restricted())
		return p;
	if (g->limits.deadline_ns)
		p.deadline_ns = begun_ns + g->limits.deadline_ns;
	if (ambient && ambient < p.deadline_ns)
		p.deadline_ns = ambient;
	p.until_ns = now_ns + (int64_t)rules->wait_ms * NS_PER_MS;
	if (own_us > 0 && now_ns + own_us * 1000 < p.until_ns)
		p.until_ns = now_ns + own_us * 1000;
	if (p.deadline_ns < p.until_ns)
		p.until_ns = p.deadline_ns;
	return p;
}

/* Waits for its turn. The circuit's token is settled. */
static enum admission wait_for(const struct guard *g, struct circuit_token *token,
	const struct admission_patience *patience, int64_t now_ns, struct admission_slot *slot)
{
	const struct bulkhead_rules *rules = guard_bulkhead(g);
	struct bulkhead_place place;
	int64_t begun_ns = now_ns;
	enum admission end = ADMISSION_FULL;
	uint64_t hold = 0;

	if (!bulkhead_queue(g->region, g->destination, patience->until_ns, now_ns, &place))
		return ADMISSION_FULL;
	for (;;) {
		hold = bulkhead_take(g->region, g->destination, rules, place.ticket, now_ns);
		if (hold || now_ns >= patience->until_ns || !guard_is_current(g))
			break;
		int err = bulkhead_sleep(g->region, &place, patience->until_ns, now_ns);
		now_ns = clock_now_ns();
		if (err == -EINTR && patience->minds_signals && !blocking_handlers_restart()) {
			end = ADMISSION_INTERRUPTED;
			break;
		}
	}
	bulkhead_leave(g->region, g->destination, &place, hold ? now_ns - begun_ns : -1, now_ns);
	if (!hold)
		return end == ADMISSION_FULL && now_ns >= patience->deadline_ns ? ADMISSION_LATE : end;
	if (circuit_admit(g->region, g->destination, &g->rules, now_ns, token) == BREAKER_REJECT) {
		if (hold != BULKHEAD_UNBOUNDED)
			bulkhead_release(g->region, hold, now_ns);
		return ADMISSION_OPEN;
	}
	grant(slot, hold, now_ns);
	slot->waited_ns = now_ns - begun_ns;
	return ADMISSION_GRANTED;
}

/* Where none is free. */
static __attribute__((noinline)) enum admission full(const struct guard *g, struct circuit_token *token,
	const struct admission_patience *patience, bool is_again, int64_t now_ns, struct admission_slot *slot)
{
	if (circuit_is_observed(g->region, g->destination, &g->rules) && !guard_enforces(g)) {
		circuit_note_would_reject(g->region, g->destination);
		grant(slot, 0, now_ns);
		return ADMISSION_GRANTED;
	}
	circuit_withdraw(g->region, token);
	/* Another address of a call that has waited: it does not wait again, and is not counted again (B11). */
	enum admission end = ADMISSION_FULL;
	if (patience->until_ns && !is_again)
		end = wait_for(g, token, patience, now_ns, slot);
	if (!is_again && (end == ADMISSION_FULL || end == ADMISSION_LATE))
		bulkhead_rejected(g->region, g->destination, clock_now_ns());
	return end;
}

static bool takes_at_once(const struct guard *g, int64_t now_ns, struct admission_slot *slot)
{
	uint64_t hold = bulkhead_take(g->region, g->destination, guard_bulkhead(g), 0, now_ns);
	if (hold)
		grant(slot, hold, now_ns);
	return hold != 0;
}

enum admission admission_of_connect(const struct guard *g, struct circuit_token *token,
	const struct admission_patience *patience, int64_t now_ns, struct admission_slot *slot)
{
	if (takes_at_once(g, now_ns, slot))
		return ADMISSION_GRANTED;
	bool is_again = (g->is_group || call_send_was_rejected) && call_is_rejected_again(g, now_ns);
	enum admission end = full(g, token, patience, is_again, now_ns, slot);
	if (end != ADMISSION_GRANTED && end != ADMISSION_INTERRUPTED && !is_again && g->is_group)
		call_was_rejected(g, clock_now_ns());
	return end;
}

enum admission admission_of_send(const struct guard *g, struct circuit_token *token,
	const struct admission_patience *patience, int64_t now_ns, struct admission_slot *slot)
{
	if (takes_at_once(g, now_ns, slot))
		return ADMISSION_GRANTED;
	return full(g, token, patience, false, now_ns, slot);
}

void admission_of_pass(const struct guard *g, int64_t now_ns, struct admission_slot *slot)
{
	if (!takes_at_once(g, now_ns, slot))
		grant(slot, 0, now_ns);
}
