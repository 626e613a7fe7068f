/* A region with foreign bytes in it: patches of (offset 3, length 1, bytes) over a right one, then all that reads or
 * works on it. It lies in memory whose ends are watched. What is shown of it stays JSON (E10). */
#include "../unit/control_help.h"
#include "control/nearby.h"
#include "control/render.h"
#include "core/identity.h"
#include "core/lease.h"
#include "core/member.h"
#include "core/registry.h"
#include "fuzz.h"

#define CAPACITY 6
#define NOW (5 * NS_PER_S)

static struct region right, region;
static const struct breaker_rules rules = {.failure_threshold = 2,
	.success_threshold = 1,
	.half_open_max_calls = 4,
	.recovery_ms = 1,
	.recovery_max_ms = 4,
	.backoff_percent = 200,
	.jitter_percent = 20,
	.probe_timeout_ms = 1,
	.window = 30};

/* The same region in memory from malloc: one byte before or behind it is found. */
static void move_to(struct region *r, char *at)
{
	const char *from = (const char *)right.header;
	*r = right;
	r->header = (struct region_header *)(void *)at;
	r->members = (struct member *)(void *)(at + ((const char *)right.members - from));
	r->events = (struct event *)(void *)(at + ((const char *)right.events - from));
	r->faults = (struct fault_entry *)(void *)(at + ((const char *)right.faults - from));
	r->fault_counts = (struct fault_count *)(void *)(at + ((const char *)right.fault_counts - from));
	r->destinations = (struct destination *)(void *)(at + ((const char *)right.destinations - from));
}

static void use(struct region *r, uint32_t index, unsigned how)
{
	struct circuit_token token;
	if (circuit_admit(r, index, &rules, NOW, &token) != BREAKER_REJECT) {
		circuit_note(r, &token, (enum lease_use)(how % 3));
		member_count_call(r, index, 1);
		circuit_settle(r, &token, &rules, (enum breaker_outcome)(how % 3),
			(enum failure_kind)(how % FAILURE_KIND_COUNT), true, NOW, 5000);
		member_count_call(r, index, -1);
	}
	circuit_is_open(r, index, &rules, NOW);
}

static void prepare(void)
{
	static const char *const names[] = {"h1:80", "h2:80", "[::1]:443"};
	claim(region_attach_private(&right, "fuzz", CAPACITY) == 0);
	member_join(&right, getpid(), identity_start_ticks(getpid(), NULL), "fuzz", 1);
	for (int round = 0; round < 4; round++)
		for (size_t i = 0; i < 3; i++)
			use(&right, (uint32_t)registry_find_or_add(&right, names[i], "p", 1), (unsigned)i);
	char *at = aligned_alloc(64, right.size);
	claim(at);
	move_to(&region, at);
}

/* The parts are small beside the whole: an offset counts in the header, a member, an event or a destination. */
static size_t place(const uint8_t *at)
{
	size_t offset = at[0] | (size_t)at[1] << 8;
	const char *base = (const char *)right.header;
	switch (at[2] & 7) {
	case 0: return offset % sizeof(struct region_header);
	case 1: return (size_t)((const char *)right.members - base) + offset % (sizeof(struct member) * 4);
	case 4: return (size_t)((const char *)right.faults - base) + offset % (sizeof(struct fault_entry) * 4);
	case 5: return (size_t)((const char *)right.fault_counts - base) + offset % (sizeof(struct fault_count) * 8);
	case 2: return (size_t)((const char *)right.events - base) + offset % (sizeof(struct event) * 40);
	default:
		return (size_t)((const char *)right.destinations - base) +
		       offset % (sizeof(struct destination) * CAPACITY);
	}
}

static void patch(char *to, const uint8_t *data, size_t size)
{
	while (size > 4) {
		size_t at = place(data), n = data[3] % 65;
		data += 4;
		size -= 4;
		if (n > size)
			n = size;
		if (n > right.size - at)
			n = right.size - at;
		memcpy(to + at, data, n);
		data += n;
		size -= n;
	}
}

static char shown_at[4 << 20];

static struct text fresh(void)
{
	shown_at[0] = '\0';
	return (struct text){.at = shown_at, .cap = sizeof shown_at};
}

static bool nobody_lives(uint64_t id, const void *ctx)
{
	(void)ctx;
	return id & 1;
}

static void show(const struct region *r)
{
	static struct circuit_view view;
	char name[REGION_NAME_MAX + 1];
	const struct region *all[2] = {r, r};
	struct render_cursor cursor = {0};
	struct event e;

	struct text t = fresh();
	render_health(&t, r, 0, NOW);
	claim(t.is_cut || json_is_valid(shown_at));
	t = fresh();
	render_destinations(&t, r, NOW);
	claim(t.is_cut || json_is_valid(shown_at));
	t = fresh();
	render_members_where(&t, r, NOW, nobody_lives, NULL);
	claim(t.is_cut || json_is_valid(shown_at));
	unsigned events = 0;
	while (render_next_event(r, &cursor, NOW, &e)) {
		claim(++events <= REGION_EVENTS);
		t = fresh();
		render_event(&t, r, &e);
		claim(json_is_valid(shown_at));
	}
	t = fresh();
	render_metrics(&t, all, 2, NOW);
	t = fresh();
	nearby_destinations(&t, r, "h3:80");
	for (int i = registry_next(r, 0); i >= 0; i = registry_next(r, (uint32_t)i + 1)) {
		claim(i < CAPACITY);
		registry_name(r, (uint32_t)i, name);
		circuit_view(r, (uint32_t)i, NOW, &view);
		claim(strlen(view.name) <= REGION_NAME_MAX);
		claim(view.mode == BREAKER_FORCED_OPEN || view.retry_after_ms <= BREAKER_WAIT_MAX_MS);
		claim(view.probes_in_flight <= BREAKER_PROBES_MAX);
	}
	char why_at[200] = "";
	struct text why = TEXT_ON(why_at);
	if (!region_valid(r, &why))
		claim(why.len > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (!right.header)
		prepare();
	memcpy(region.header, right.header, right.size);
	move_to(&region, (char *)region.header);
	patch((char *)region.header, data + 1, size - 1);
	show(&region);
	int at = registry_find_or_add(&region, data[0] & 1 ? "h1:80" : "new:1", "p", NOW);
	claim(at < CAPACITY);
	for (uint32_t i = 0; i < CAPACITY; i++)
		use(&region, i, data[0] >> 1);
	circuit_force(&region, data[0] % CAPACITY, (enum breaker_mode)(data[0] & 3), data[0] & 4 ? 1 : 0, NOW);
	circuit_reset(&region, (data[0] >> 3) % CAPACITY, NOW);
	for (uint32_t i = 0; i < 4; i++)
		member_reap(&region, i, region.members[i].id);
	member_calls_in_flight(&region, 0);
	member_leave(&region);
	if (data[0] & 64)
		show(&region);
	return 0;
}
