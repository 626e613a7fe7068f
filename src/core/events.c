/* See events.h. Any process, any thread, signal handlers too; no lock, no system call (both clocks are vDSO). */
#include "core/events.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/sys.h"
#include "base/text.h"
#include "core/member.h"
#include "core/registry.h"
#include "core/shared.h"

#define BODY offsetof(struct event, wall_ns)

_Static_assert(BODY == 16 && sizeof(struct event) % 8 == 0, "seq and check come before the body");

static void (*_Atomic listener)(const struct event *e);

void events_set_listener(void (*fn)(const struct event *e))
{
	atomic_store_explicit(&listener, fn, memory_order_release);
}

static uint64_t check_of(const struct event *e, uint64_t seq)
{
	uint64_t h = hash_bytes(HASH_START ^ hash_mix(seq), (const char *)e + BODY, sizeof *e - BODY);

	return hash_mix(h);
}

/* Zero behind the text: what lay in the caller's buffer is nobody's business, and the check covers it. */
static void tidy(char *text, size_t n)
{
	size_t len = strnlen(text, n - 1);

	memset(text + len, 0, n - len);
}

uint64_t events_prepare(struct region *r, struct event *e)
{
	if (!r->header || r->is_read_only)
		return 0;
	e->wall_ns = clock_wall_ns();
	if (e->type != EVENT_TRANSITION)
		e->generation = 0;
	int32_t me = region_me(r);
	if (me >= 0) {
		e->pid = (uint32_t)member_pid(r->my_id);
		shared_get_text(e->exe, r->members[me].exe, sizeof e->exe);
	} else {
		e->pid = (uint32_t)sys_getpid();
		memset(e->exe, 0, sizeof e->exe);
	}
	tidy(e->exe, sizeof e->exe);
	tidy(e->reason, sizeof e->reason);
	tidy(e->destination, sizeof e->destination);

	uint64_t seq;
	do
		seq = atomic_fetch_add_explicit(&r->header->event_seq, 1, memory_order_relaxed) + 1;
	while (seq == 0); /* damage only: 0 means "being written" */
	struct event *slot = &r->events[seq % REGION_EVENTS];
	uint64_t check = check_of(e, seq);

	atomic_store_explicit(&slot->seq, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release); /* partner: the reader's acquire fence before it reads seq again */
	shared_put((char *)slot + BODY, (const char *)e + BODY, sizeof *e - BODY);
	__atomic_store_n(&slot->check, check, __ATOMIC_RELEASE); /* partner: events_show()'s load */
	atomic_store_explicit(&e->seq, seq, memory_order_relaxed);
	e->check = check;
	return seq;
}

void events_hear(const struct event *e)
{
	void (*fn)(const struct event *) = atomic_load_explicit(&listener, memory_order_acquire);

	if (fn)
		fn(e);
}

uint64_t events_add(struct region *r, struct event *e)
{
	uint64_t seq = events_prepare(r, e);

	if (seq == 0)
		return 0;
	/* Its own, whatever has become of the slot: a writer a lap ahead makes the check fail. */
	atomic_store_explicit(
		&r->events[seq % REGION_EVENTS].seq, seq, memory_order_release); /* partner: the reader's first load */
	events_hear(e);
	return seq;
}

void events_add_reload(struct region *r, uint32_t generation)
{
	struct event e = {.type = EVENT_RELOAD, .retry_after_ms = -1, .value = generation};
	if (!r->header || r->is_read_only)
		return;
	uint32_t told = atomic_load_explicit(&r->header->reload_told, memory_order_relaxed);
	do
		if ((int32_t)(generation - told) <= 0)
			return;
	while (!atomic_compare_exchange_weak_explicit(
		&r->header->reload_told, &told, generation, memory_order_relaxed, memory_order_relaxed));
	text_copy(e.reason, sizeof e.reason, "read again");
	events_add(r, &e);
}

void events_show(struct region *r, uint64_t seq)
{
	struct event e;

	if (!r->header || r->is_read_only || seq == 0)
		return;
	struct event *slot = &r->events[seq % REGION_EVENTS];
	if (atomic_load_explicit(&slot->seq, memory_order_relaxed) != 0)
		return;
	e.check = __atomic_load_n(&slot->check, __ATOMIC_ACQUIRE);
	shared_get((char *)&e + BODY, (const char *)slot + BODY, sizeof e - BODY);
	uint64_t unseen = 0;
	if (e.check == check_of(&e, seq))
		atomic_compare_exchange_strong_explicit(
			&slot->seq, &unseen, seq, memory_order_release, memory_order_relaxed);
}

bool events_read(const struct region *r, uint64_t seq, struct event *e)
{
	if (!r->header || seq == 0)
		return false;
	const struct event *slot = &r->events[seq % REGION_EVENTS];
	if (atomic_load_explicit(&slot->seq, memory_order_acquire) != seq)
		return false;
	e->check = __atomic_load_n(&slot->check, __ATOMIC_RELAXED);
	shared_get((char *)e + BODY, (const char *)slot + BODY, sizeof *e - BODY);
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&slot->seq, memory_order_relaxed) != seq || e->check != check_of(e, seq))
		return false;
	atomic_store_explicit(&e->seq, seq, memory_order_relaxed);
	/* The check proves no more than that the bytes belong together: bound them all the same (E10). */
	e->exe[sizeof e->exe - 1] = e->reason[sizeof e->reason - 1] = e->destination[sizeof e->destination - 1] = '\0';
	return e->type < EVENT_TYPE_COUNT && e->from <= BREAKER_OPEN && e->to <= BREAKER_OPEN;
}

void events_range(const struct region *r, uint64_t *oldest, uint64_t *newest)
{
	*newest = r->header ? atomic_load_explicit(&r->header->event_seq, memory_order_acquire) : 0;
	*oldest = *newest > REGION_EVENTS ? *newest - REGION_EVENTS + 1 : 1;
}

/* The transition to half-open that ends a run carries its length (circuit.h). Where no later event of the destination
 * begins another run, the one that goes on is this one. */
uint64_t events_run_length(const struct region *r, const struct event *e)
{
	uint64_t oldest, newest, seq = atomic_load_explicit(&e->seq, memory_order_relaxed);
	struct event later;

	if (event_is_bulkhead(e))
		return e->value > 1 ? (uint64_t)e->value : 1;
	events_range(r, &oldest, &newest);
	if (seq < oldest)
		seq = oldest - 1;
	for (unsigned i = 0; i < REGION_EVENTS && seq < newest; i++) {
		if (!events_read(r, ++seq, &later) || strcmp(later.destination, e->destination) != 0)
			continue;
		if (later.type == EVENT_TRANSITION && later.value > 1)
			return (uint64_t)later.value;
		if (later.type == EVENT_REJECTED && !event_is_bulkhead(&later))
			return 1;
	}
	int index = registry_find(r, e->destination);
	if (index < 0)
		return 1;
	const struct destination *d = &r->destinations[index];
	uint64_t run = region_rejected(d) - atomic_load_explicit(&d->run, memory_order_relaxed) + 1;
	return run > 1 && run < UINT64_MAX / 2 ? run : 1;
}

const char *event_type_name(enum event_type type)
{
	static const char *const names[] = {
#define X(name, text) [EVENT_##name] = text,
		EVENT_TYPES(X)
#undef X
	};

	return (unsigned)type < EVENT_TYPE_COUNT ? names[type] : "unknown";
}
