/* Prometheus text format 0.0.4, one table row a metric. A family's HELP and TYPE come once and all its series together,
 * over all regions. Only what is counted today is listed: a metric that is always 0 would be taken for health. Called
 * by the socket's thread and by the command. */
#include "control/render.h"

#include <string.h>

#include "core/bulkhead.h"
#include "core/faults.h"
#include "core/registry.h"

/* Upper bounds of the histogram's buckets, in us, and as the format writes them (seconds). */
static const struct {
	uint64_t us;
	const char *seconds;
} buckets[] = {
	{500, "0.0005"},
	{1000, "0.001"},
	{2500, "0.0025"},
	{5000, "0.005"},
	{10000, "0.01"},
	{25000, "0.025"},
	{50000, "0.05"},
	{100000, "0.1"},
	{250000, "0.25"},
	{500000, "0.5"},
	{1000000, "1"},
	{2500000, "2.5"},
	{5000000, "5"},
	{10000000, "10"},
	{30000000, "30"},
	{60000000, "60"},
};

struct series {
	struct text *t;
	const char *metric;
	const struct region *r;
	const char *user; /* null: no such label */
	uint32_t index;
	const struct circuit_view *v;
};

static void label_value(struct text *t, const char *s, size_t cap)
{
	size_t n = strnlen(s, cap);
	text_char(t, '"');
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '\n')
			text_str(t, "\\n");
		else if (s[i] == '"' || s[i] == '\\')
			text_fmt(t, "\\%c", s[i]);
		else if ((unsigned char)s[i] >= 0x20 && (unsigned char)s[i] < 0x7f)
			text_char(t, s[i]);
		else
			text_char(t, '?'); /* names are printable ASCII unless the region is damaged */
	}
	text_char(t, '"');
}

static void group_labels(struct text *t, const struct region *r, const char *user)
{
	text_str(t, "{group=");
	label_value(t, r->header->group, sizeof r->header->group);
	if (!user)
		return;
	text_str(t, ",user=");
	label_value(t, user, strlen(user));
}

static void series_head(const struct series *s, const char *suffix)
{
	text_fmt(s->t, "%s%s", s->metric, suffix);
	group_labels(s->t, s->r, s->user);
	text_str(s->t, ",destination=");
	label_value(s->t, s->v->name, sizeof s->v->name);
}

static void series_value(const struct series *s, uint64_t value)
{
	text_str(s->t, "} ");
	text_u64(s->t, value);
	text_char(s->t, '\n');
}

static void plain(const struct series *s, uint64_t value)
{
	series_head(s, "");
	series_value(s, value);
}

static void labelled(const struct series *s, const char *label, const char *label_text, uint64_t value)
{
	series_head(s, "");
	text_fmt(s->t, ",%s=\"%s\"", label, label_text);
	series_value(s, value);
}

static void put_state(const struct series *s)
{
	plain(s, s->v->state == BREAKER_CLOSED ? 0 : s->v->state == BREAKER_HALF_OPEN ? 1 : 2);
}

static void put_mode(const struct series *s)
{
	plain(s, (uint64_t)circuit_shown_mode(s->v));
}

static void put_calls(const struct series *s)
{
	labelled(s, "outcome", "success", s->v->success);
	labelled(s, "outcome", "failure", s->v->failure);
	labelled(s, "outcome", "neutral", s->v->neutral);
	labelled(s, "outcome", "circuit_open", s->v->rejected - s->v->bulkhead_rejected);
	labelled(s, "outcome", "bulkhead_full", s->v->bulkhead_rejected);
}

static void put_failures(const struct series *s)
{
	for (int k = 0; k < FAILURE_KIND_COUNT; k++)
		if (s->v->kinds[k])
			labelled(s, "kind", failure_name((enum failure_kind)k), s->v->kinds[k]);
}

/* A histogram: counts at or below each bound, which may be a moment apart; each bucket stays between its neighbours,
 * and +Inf equals _count, as the format asks. */
static void put_bucket(const struct series *s, const char *bound, uint64_t n)
{
	series_head(s, "_bucket");
	text_fmt(s->t, ",le=\"%s\"", bound);
	series_value(s, n);
}

static void put_sum(const struct series *s, uint64_t sum_us, uint64_t total)
{
	series_head(s, "_sum");
	text_fmt(s->t, "} %llu.", (unsigned long long)(sum_us / 1000000));
	text_padded(s->t, sum_us % 1000000, 6);
	text_char(s->t, '\n');
	series_head(s, "_count");
	series_value(s, total);
}

static void put_duration(const struct series *s)
{
	const struct latency *l = &s->r->destinations[s->index].latency;
	uint64_t total = latency_total(l), sum_us = atomic_load_explicit(&l->sum_us, memory_order_relaxed), below = 0;

	for (size_t i = 0; i < sizeof buckets / sizeof buckets[0]; i++) {
		uint64_t n = latency_count_until(l, buckets[i].us);
		below = n < below ? below : n > total ? total : n;
		put_bucket(s, buckets[i].seconds, below);
	}
	put_bucket(s, "+Inf", total);
	put_sum(s, sum_us, total);
}

static void put_bulkhead_limit(const struct series *s)
{
	if (s->v->bulkhead_limit)
		plain(s, s->v->bulkhead_limit);
}

static void put_bulkhead_wait(const struct series *s)
{
	static const char *const bounds[BULKHEAD_WAITS + 1] = {
		"0.001", "0.005", "0.01", "0.05", "0.1", "0.5", "1", "5", "+Inf"};
	const struct bulkhead *b = &s->r->destinations[s->index].bulkhead;
	uint64_t total = 0;

	if (!s->v->bulkhead_limit)
		return;
	for (int i = 0; i <= BULKHEAD_WAITS; i++) {
		total += atomic_load_explicit(&b->waited[i], memory_order_relaxed);
		put_bucket(s, bounds[i], total);
	}
	put_sum(s, atomic_load_explicit(&b->waited_us, memory_order_relaxed), total);
}

static void put_bulkhead_reclaimed(const struct series *s)
{
	if (s->v->bulkhead_limit || s->v->bulkhead_reclaimed)
		plain(s, s->v->bulkhead_reclaimed);
}

static void put_in_flight(const struct series *s)
{
	plain(s, s->v->in_flight);
}

static void put_transitions(const struct series *s)
{
	for (int from = 0; from < 3; from++) {
		for (int to = 0; to < 3; to++) {
			if (from == to)
				continue;
			series_head(s, "");
			text_fmt(s->t, ",from=\"%s\",to=\"%s\"", breaker_state_name((enum breaker_state)from),
				breaker_state_name((enum breaker_state)to));
			series_value(s, s->v->transitions[from][to]);
		}
	}
}

static void put_probes(const struct series *s)
{
	static const char *const results[5] = {"success", "failure", "neutral", "expired", "owner_died"};
	for (int i = 0; i < 5; i++)
		labelled(s, "result", results[i], s->v->probe_results[i]);
}

static void put_stale(const struct series *s)
{
	plain(s, s->v->stale);
}

static void put_deadlines(const struct series *s)
{
	labelled(s, "phase", "resolve", s->v->late_look_ups);
	labelled(s, "phase", "connect", s->v->kinds[FAILURE_CONNECT_TIMEOUT]);
	labelled(s, "phase", "answer", s->v->kinds[FAILURE_ANSWER_TIMEOUT]);
	labelled(s, "phase", "stall", s->v->kinds[FAILURE_STALL_TIMEOUT]);
	labelled(s, "phase", "call", s->v->kinds[FAILURE_DEADLINE]);
}

static void put_ejected(const struct series *s)
{
	plain(s, s->v->ejected_count);
}

static void put_fallbacks(const struct series *s)
{
	if (s->v->stale_answers)
		labelled(s, "source", "stale_dns", s->v->stale_answers);
	for (int i = 0; i < DEGRADED_SOURCE_COUNT; i++)
		if (s->v->fallbacks[i])
			labelled(s, "source", degraded_source_name((enum degraded_source)i), s->v->fallbacks[i]);
}

static const struct {
	const char *name, *type, *help;
	void (*put)(const struct series *s);
} families[] = {
	{"resil_circuit_state", "gauge", "State of the circuit: 0 closed, 1 half-open, 2 open.", put_state},
	{"resil_circuit_mode", "gauge", "Mode of the circuit: 0 auto, 1 forced open, 2 forced closed, 3 observe.",
		put_mode},
	{"resil_calls_total", "counter", "Calls by outcome.", put_calls},
	{"resil_failures_total", "counter", "Failed calls by kind.", put_failures},
	{"resil_call_duration_seconds", "histogram", "Duration of calls that were let through.", put_duration},
	{"resil_in_flight", "gauge", "Calls in flight.", put_in_flight},
	{"resil_circuit_transitions_total", "counter", "State changes of the circuit.", put_transitions},
	{"resil_probes_total", "counter", "Half-open probes by result.", put_probes},
	{"resil_stale_results_total", "counter",
		"Verdicts of calls begun before the last state change: they changed nothing.", put_stale},
	{"resil_deadline_exceeded_total", "counter", "Limits that ran out, by phase of the call.", put_deadlines},
	{"resil_bulkhead_limit", "gauge", "Calls that may be under way at once, where there is a limit.",
		put_bulkhead_limit},
	{"resil_bulkhead_wait_seconds", "histogram", "Waits of calls that then got a slot.", put_bulkhead_wait},
	{"resil_bulkhead_reclaimed_total", "counter", "Slots taken back from processes that had died.",
		put_bulkhead_reclaimed},
	{"resil_ejected_endpoints", "gauge", "Addresses that go last in look-ups.", put_ejected},
	{"resil_fallback_total", "counter", "Answers from another source than the destination.", put_fallbacks},
};

static void family_head(struct text *t, const char *name, const char *type, const char *help)
{
	text_fmt(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* By what was counted, not by circuit: a destination without one, or a look-up, has faults too. */
static void put_faults(struct text *t, const struct region *const *regions, const char *const *users, unsigned count)
{
	char fault[32], destination[REGION_NAME_MAX + 1];
	uint64_t hits;
	family_head(t, "resil_faults_injected_total", "counter", "Calls that an injected fault has hit.");
	for (unsigned g = 0; g < count; g++) {
		for (int i = 0; (i = faults_next_sum(regions[g], (uint32_t)i, fault, destination, &hits)) >= 0; i++) {
			text_str(t, "resil_faults_injected_total");
			group_labels(t, regions[g], users ? users[g] : NULL);
			text_str(t, ",destination=");
			label_value(t, destination, sizeof destination);
			text_str(t, ",fault=");
			label_value(t, fault, sizeof fault);
			text_fmt(t, "} %llu\n", (unsigned long long)hits);
		}
	}
}

void render_metrics(struct text *t, const struct region *const *regions, unsigned count, int64_t now_ns)
{
	render_metrics_of_users(t, regions, NULL, count, now_ns);
}

void render_metrics_of_users(
	struct text *t, const struct region *const *regions, const char *const *users, unsigned count, int64_t now_ns)
{
	struct circuit_view v;

	for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
		family_head(t, families[f].name, families[f].type, families[f].help);
		for (unsigned g = 0; g < count; g++) {
			const struct region *r = regions[g];
			for (int i = registry_next(r, 0); i >= 0; i = registry_next(r, (uint32_t)i + 1)) {
				circuit_view(r, (uint32_t)i, now_ns, &v);
				struct series s = {.t = t,
					.metric = families[f].name,
					.r = r,
					.user = users ? users[g] : NULL,
					.index = (uint32_t)i,
					.v = &v};
				families[f].put(&s);
			}
		}
	}
	put_faults(t, regions, users, count);
	family_head(t, "resil_registry_evictions_total", "counter", "Destinations that gave their place to another.");
	for (unsigned g = 0; g < count; g++) {
		text_str(t, "resil_registry_evictions_total{group=");
		label_value(t, regions[g]->header->group, sizeof regions[g]->header->group);
		text_str(t, "} ");
		text_u64(t, atomic_load_explicit(&regions[g]->header->registry_evictions, memory_order_relaxed));
		text_char(t, '\n');
	}
	family_head(t, "resil_unseen_streams_total", "counter", "HTTP/2 streams whose outcome could not be known.");
	for (unsigned g = 0; g < count; g++) {
		text_str(t, "resil_unseen_streams_total");
		group_labels(t, regions[g], users ? users[g] : NULL);
		text_fmt(t, "} %llu\n",
			(unsigned long long)atomic_load_explicit(
				&regions[g]->header->unseen_streams, memory_order_relaxed));
	}
	family_head(t, "resil_config_generation", "gauge", "Reloads of the configuration that the group was told of.");
	for (unsigned g = 0; g < count; g++) {
		text_str(t, "resil_config_generation");
		group_labels(t, regions[g], users ? users[g] : NULL);
		text_fmt(t, "} %u\n", atomic_load_explicit(&regions[g]->header->config_seq, memory_order_relaxed));
	}
	family_head(t, "resil_build_info", "gauge", "Always 1; the version is in the label.");
	text_fmt(t, "resil_build_info{version=\"%s\",layout=\"%u\"} 1\n", RESIL_VERSION, (unsigned)REGION_LAYOUT);
}
