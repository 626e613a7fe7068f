/* The picture of a circuit for status, JSON and metrics (circuit.h). Reads only; the region may be mapped read-only, be
 * in use, or hold anything. */
#include "core/circuit.h"

#include <string.h>

#include "base/clock.h"
#include "core/bulkhead.h"
#include "core/events.h"
#include "core/faults.h"
#include "core/lease.h"
#include "core/member.h"
#include "core/registry.h"
#include "core/shared.h"

static uint64_t get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

/* The word as the next call would find it: a forced mode whose time is over is none (B15). */
static void view_state(const struct destination *d, int64_t now_ns, struct circuit_view *view)
{
	uint64_t word = atomic_load_explicit(&d->breaker, memory_order_acquire), until = get(&d->mode_until_ms);
	uint64_t now_ms = (uint64_t)(now_ns / NS_PER_MS);
	struct breaker_rules rules = {
		.recovery_max_ms = atomic_load_explicit(&d->rule_recovery_max_ms, memory_order_relaxed)};

	if (breaker_mode(word) != BREAKER_AUTO && until != 0 && now_ms >= until)
		word = breaker_set_mode(word, BREAKER_AUTO, now_ns / NS_PER_MS);
	else if (breaker_mode(word) != BREAKER_AUTO && until != 0)
		view->mode_ends_ms = until - now_ms;
	view->state = breaker_state(word);
	view->mode = breaker_mode(word);
	view->level = breaker_level(word);
	view->consecutive_failures = view->state == BREAKER_CLOSED ? breaker_count(word) : 0;
	if (view->mode == BREAKER_FORCED_OPEN && until > now_ms)
		view->retry_after_ms = until - now_ms < UINT32_MAX ? (uint32_t)(until - now_ms) : UINT32_MAX;
	else
		view->retry_after_ms = breaker_retry_after_ms(word, &rules, now_ns / NS_PER_MS);
	/* The tick has come round (37 hours): see unused_for_long in circuit.c. */
	if (view->mode != BREAKER_FORCED_OPEN &&
		now_ns - view->last_used_ns > (int64_t)BREAKER_WAIT_MAX_MS * NS_PER_MS + NS_PER_S)
		view->retry_after_ms = 0;
}

static void view_recent(const struct destination *d, int64_t now_ns, struct circuit_view *view)
{
	uint64_t word = atomic_load_explicit(&d->breaker, memory_order_acquire);
	uint32_t window = atomic_load_explicit(&d->rule_window, memory_order_relaxed);

	view->minimum_calls =
		window_minimum(window, atomic_load_explicit(&d->rule_minimum_calls, memory_order_relaxed));
	view->has_slow = atomic_load_explicit(&d->rule_slow_ms, memory_order_relaxed) != 0;
	view->recent = window_sum(&d->window, window, breaker_generation(word), now_ns / NS_PER_MS);
}

/* From its event where that is still in the ring: all of one piece. Else from the fields beside the circuit. */
static void view_last(const struct region *r, const struct destination *d, struct circuit_view *view)
{
	uint64_t last = get(&d->last_from_to);
	struct event e;

	if (last == 0)
		return;
	view->has_last = true;
	view->last_from = breaker_state(last >> 2 & 3);
	view->last_to = breaker_state(last & 3);
	if (events_read(r, last >> 4, &e) && e.type == EVENT_TRANSITION && strcmp(e.destination, view->name) == 0) {
		text_copy(view->last_reason, sizeof view->last_reason, e.reason);
		view->last_wall_ns = e.wall_ns;
		return;
	}
	shared_get_text(view->last_reason, d->last_reason, sizeof view->last_reason);
	view->last_wall_ns = atomic_load_explicit(&d->last_wall_ns, memory_order_relaxed);
}

static void view_faults(const struct region *r, struct circuit_view *view)
{
	char name[32], destination[REGION_NAME_MAX + 1];
	uint64_t hits;
	for (int i = 0; (i = faults_next_count(r, (uint32_t)i, name, destination, &hits)) >= 0; i++) {
		if (strcmp(destination, view->name) != 0)
			continue;
		unsigned k = 0;
		while (k < view->fault_count && strcmp(view->faults[k].name, name) != 0)
			k++;
		if (k == sizeof view->faults / sizeof view->faults[0])
			continue;
		if (k == view->fault_count)
			memcpy(view->faults[view->fault_count++].name, name, sizeof name);
		view->faults[k].hits += hits;
	}
}

static void view_bulkhead(const struct region *r, uint32_t destination, int64_t now_ns, struct circuit_view *view)
{
	const struct bulkhead *b = &r->destinations[destination].bulkhead;
	uint32_t shown = atomic_load_explicit(&b->shown, memory_order_relaxed);
	struct bulkhead_rules rules = {
		.max = shown & ~BULKHEAD_ADAPTIVE, .is_adaptive = (shown & BULKHEAD_ADAPTIVE) != 0};

	view->bulkhead_rejected = get(&b->rejected);
	view->bulkhead_reclaimed = get(&b->reclaimed);
	view->rejected += view->bulkhead_rejected;
	view->bulkhead_in_use = bulkhead_in_use(r, destination);
	if (rules.max == 0)
		return;
	view->bulkhead_limit = bulkhead_limit(r, destination, &rules);
	view->bulkhead_waiting = bulkhead_waiting(r, destination, now_ns);
}

void circuit_view(const struct region *r, uint32_t destination, int64_t now_ns, struct circuit_view *view)
{
	memset(view, 0, sizeof *view);
	if (destination >= r->capacity)
		return;
	const struct destination *d = &r->destinations[destination];

	registry_name(r, destination, view->name);
	shared_get_text(view->policy, d->policy, sizeof view->policy);
	view->last_used_ns = atomic_load_explicit(&d->last_used_ns, memory_order_relaxed);
	view_state(d, now_ns, view);
	view->success = get(&d->success);
	view->failure = get(&d->failure);
	view->neutral = get(&d->neutral);
	view->rejected = region_rejected(d);
	view_bulkhead(r, destination, now_ns, view);
	view->would_reject = get(&d->would_reject);
	view->stale = get(&d->stale);
	for (int i = 0; i < FAILURE_KIND_COUNT; i++)
		view->kinds[i] = get(&d->kinds[i]);
	for (int i = 0; i < 5; i++)
		view->probe_results[i] = get(&d->probe_results[i]);
	for (int i = 0; i < 9; i++)
		view->transitions[i / 3][i % 3] = get(&d->transitions[i / 3][i % 3]);
	view->opened_total = get(&d->opened_total);
	view->late_look_ups = get(&d->late_look_ups);
	view->stale_answers = get(&d->stale_answers);
	view_faults(r, view);
	for (int i = 0; i < DEGRADED_SOURCE_COUNT; i++)
		view->fallbacks[i] = get(&d->fallbacks[i]);
	view->degraded = degraded_now(r, destination);
	int at = -1;
	while (view->endpoint_count < sizeof view->endpoints / sizeof view->endpoints[0]) {
		struct endpoint_view *e = &view->endpoints[view->endpoint_count];
		at = endpoint_next(r, destination, (uint32_t)(at + 1), now_ns, e);
		if (at < 0)
			break;
		view->endpoint_count++;
		view->ejected_count += e->ejected_for_ms > 0;
	}
	view->in_flight = member_calls_in_flight(r, destination);
	view_recent(d, now_ns, view);
	view->p50_us = latency_quantile_us(&d->latency, 5000);
	view->p90_us = latency_quantile_us(&d->latency, 9000);
	view->p99_us = latency_quantile_us(&d->latency, 9900);
	view->max_us = latency_quantile_us(&d->latency, 10000);
	view->probes_in_flight = lease_in_flight(r, destination);
	uint32_t rule = atomic_load_explicit(&d->rule_half_open_max, memory_order_relaxed);
	view->is_observed = (rule & REGION_RULE_OBSERVED) != 0;
	view->probes_max = rule & ~REGION_RULE_OBSERVED;
	if (view->probes_max > BREAKER_PROBES_MAX)
		view->probes_max = BREAKER_PROBES_MAX;
	view_last(r, d, view);
}
