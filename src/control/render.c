/* Destinations and health as JSON (CONTRACT 6). Called by the socket's thread and by the command; reads the region with
 * bounds of its own (E10). */
#include "control/render.h"

#include <string.h>

#include "core/bypass.h"
#include "core/registry.h"

static void json_key(struct text *t, const char *key)
{
	text_fmt(t, "\"%s\":", key);
}

static void json_u64(struct text *t, const char *key, uint64_t v, const char *end)
{
	json_key(t, key);
	text_u64(t, v);
	text_str(t, end);
}

uint32_t render_rate_hundredths(const struct circuit_view *v)
{
	return v->recent.calls ? (uint32_t)((uint64_t)v->recent.failed * 10000 / v->recent.calls) : 0;
}

uint64_t render_total_calls(const struct circuit_view *v)
{
	return v->success + v->failure + v->neutral + v->rejected;
}

bool render_has_rate(const struct circuit_view *v)
{
	return v->recent.calls >= v->minimum_calls;
}

static void json_hundredths(struct text *t, bool is_known, uint32_t hundredths)
{
	if (!is_known) {
		text_str(t, "null");
		return;
	}
	text_char(t, '"');
	text_hundredths(t, hundredths);
	text_str(t, "%\"");
}

static void json_rate(struct text *t, const struct circuit_view *v)
{
	json_hundredths(t, render_has_rate(v), render_rate_hundredths(v));
}

bool render_is_healthy(const struct circuit_view *v)
{
	if (v->mode == BREAKER_FORCED_OPEN || v->degraded)
		return false;
	return v->state == BREAKER_CLOSED && (!render_has_rate(v) || render_rate_hundredths(v) < 5000);
}

void render_bypass(struct text *t, unsigned bypass)
{
	const char *comma = "";
	text_char(t, '[');
	for (unsigned i = 0; bypass_name(i); i++) {
		if (!(bypass >> i & 1))
			continue;
		text_fmt(t, "%s\"%s\"", comma, bypass_name(i));
		comma = ",";
	}
	text_char(t, ']');
}

/* From where it is served at present. */
static void json_degraded(struct text *t, const struct circuit_view *v)
{
	const char *comma = "";
	text_str(t, "\"degraded\":[");
	for (int i = 0; i < DEGRADED_SOURCE_COUNT; i++) {
		if (!(v->degraded >> i & 1))
			continue;
		text_fmt(t, "%s\"%s\"", comma, degraded_source_name((enum degraded_source)i));
		comma = ",";
	}
	text_char(t, ']');
}

bool render_health(struct text *t, const struct region *r, unsigned bypass, int64_t now_ns)
{
	struct circuit_view v;
	bool is_healthy = true;

	for (int i = registry_next(r, 0); i >= 0 && is_healthy; i = registry_next(r, (uint32_t)i + 1)) {
		circuit_view(r, (uint32_t)i, now_ns, &v);
		is_healthy = render_is_healthy(&v);
	}
	text_fmt(t, "{\"status\":\"%s\",\"bypass\":", is_healthy ? "healthy" : "degraded");
	render_bypass(t, bypass);
	text_str(t, ",\"breakers\":{");
	const char *comma = "";
	for (int i = registry_next(r, 0); i >= 0; i = registry_next(r, (uint32_t)i + 1)) {
		circuit_view(r, (uint32_t)i, now_ns, &v);
		text_str(t, comma);
		comma = ",";
		text_json(t, v.name);
		text_fmt(t, ":{\"state\":\"%s\",\"failure_rate\":", breaker_state_name(v.state));
		json_rate(t, &v);
		text_char(t, ',');
		json_u64(t, "total_calls", render_total_calls(&v), ",");
		json_u64(t, "retry_after_ms", v.retry_after_ms, v.degraded ? "," : "}");
		if (v.degraded) {
			json_degraded(t, &v);
			text_char(t, '}');
		}
	}
	text_str(t, "}}\n");
	return is_healthy;
}

static void json_ms(struct text *t, const char *key, uint64_t us, bool is_known, const char *end)
{
	json_key(t, key);
	if (is_known) {
		text_u64(t, us / 1000);
		text_char(t, '.');
		text_padded(t, us % 1000, 3);
	} else {
		text_str(t, "null");
	}
	text_str(t, end);
}

static void json_counts(struct text *t, const struct circuit_view *v)
{
	text_str(t, "\"calls\":{");
	json_u64(t, "total", render_total_calls(v), ",");
	json_u64(t, "success", v->success, ",");
	json_u64(t, "failure", v->failure, ",");
	json_u64(t, "neutral", v->neutral, ",");
	json_u64(t, "rejected", v->rejected, ",");
	json_u64(t, "in_flight", v->in_flight, "},\"failures\":{");
	const char *comma = "";
	for (int k = 0; k < FAILURE_KIND_COUNT; k++) {
		if (v->kinds[k] == 0)
			continue;
		text_str(t, comma);
		comma = ",";
		json_u64(t, failure_name((enum failure_kind)k), v->kinds[k], "");
	}
	text_str(t, "},\"latency_ms\":{");
	bool is_known = v->max_us > 0 || v->p99_us > 0;
	json_ms(t, "p50", v->p50_us, is_known, ",");
	json_ms(t, "p90", v->p90_us, is_known, ",");
	json_ms(t, "p99", v->p99_us, is_known, ",");
	json_ms(t, "max", v->max_us, is_known, "},\"probes\":{");
	json_u64(t, "in_flight", v->probes_in_flight, ",");
	json_u64(t, "max", v->probes_max, "},");
}

static void json_endpoints(struct text *t, const struct circuit_view *v)
{
	for (unsigned i = 0; i < v->endpoint_count; i++) {
		const struct endpoint_view *e = &v->endpoints[i];
		char name[80] = "";
		struct text n = TEXT_ON(name);
		addr_text(&n, &e->addr);
		text_str(t, i ? ",{\"address\":" : "{\"address\":");
		text_json(t, name);
		text_fmt(t, ",\"state\":\"%s\",", e->ejected_for_ms ? "ejected" : "healthy");
		json_u64(t, "ejected_until_ms", e->ejected_for_ms, ",");
		json_u64(t, "consecutive_failures", e->failures, "}");
	}
}

void render_view(struct text *t, const struct circuit_view *v)
{
	text_str(t, "{\"name\":");
	text_json(t, v->name);
	text_str(t, ",\"policy\":");
	text_json_n(t, v->policy, strnlen(v->policy, sizeof v->policy));
	text_fmt(t, ",\"state\":\"%s\",\"mode\":\"%s\",", breaker_state_name(v->state),
		breaker_mode_name(circuit_shown_mode(v)));
	json_key(t, "mode_ends_ms");
	if (v->mode_ends_ms)
		text_u64(t, v->mode_ends_ms);
	else
		text_str(t, "null");
	text_char(t, ',');
	json_u64(t, "retry_after_ms", v->retry_after_ms, ",");
	json_u64(t, "consecutive_failures", v->consecutive_failures, ",\"failure_rate\":");
	json_rate(t, v);
	text_str(t, ",\"slow_call_rate\":");
	json_hundredths(t, render_has_rate(v) && v->has_slow,
		v->recent.calls ? (uint32_t)((uint64_t)v->recent.slow * 10000 / v->recent.calls) : 0);
	text_char(t, ',');
	json_counts(t, v);
	json_degraded(t, v);
	text_char(t, ',');
	json_u64(t, "opened_total", v->opened_total, ",\"last_transition\":");
	if (v->has_last) {
		text_fmt(t, "{\"from\":\"%s\",\"to\":\"%s\",\"reason\":", breaker_state_name(v->last_from),
			breaker_state_name(v->last_to));
		text_json_n(t, v->last_reason, strnlen(v->last_reason, sizeof v->last_reason));
		text_str(t, ",\"at\":\"");
		text_time(t, v->last_wall_ns);
		text_str(t, "\"}");
	} else {
		text_str(t, "null");
	}
	text_str(t, ",\"bulkhead\":{");
	json_u64(t, "in_use", v->bulkhead_in_use, ",\"limit\":");
	if (v->bulkhead_limit)
		text_u64(t, v->bulkhead_limit);
	else
		text_str(t, "null");
	text_char(t, ',');
	json_u64(t, "waiting", v->bulkhead_waiting, ",");
	json_u64(t, "rejected", v->bulkhead_rejected, "},\"endpoints\":[");
	json_endpoints(t, v);
	text_str(t, "],\"fallbacks\":{");
	const char *comma = "";
	if (v->stale_answers) {
		json_u64(t, "stale_dns", v->stale_answers, "");
		comma = ",";
	}
	for (int i = 0; i < DEGRADED_SOURCE_COUNT; i++) {
		if (v->fallbacks[i] == 0)
			continue;
		text_str(t, comma);
		json_u64(t, degraded_source_name((enum degraded_source)i), v->fallbacks[i], "");
		comma = ",";
	}
	text_str(t, "},\"faults\":{");
	for (unsigned i = 0; i < v->fault_count; i++) {
		text_str(t, i ? "," : "");
		text_json_n(t, v->faults[i].name, strnlen(v->faults[i].name, sizeof v->faults[i].name));
		text_char(t, ':');
		text_u64(t, v->faults[i].hits);
	}
	text_str(t, "}}");
}

void render_destination(struct text *t, const struct region *r, uint32_t index, int64_t now_ns)
{
	struct circuit_view v;
	circuit_view(r, index, now_ns, &v);
	render_view(t, &v);
}

void render_destinations(struct text *t, const struct region *r, int64_t now_ns)
{
	const char *comma = "";
	text_char(t, '[');
	for (int i = registry_next(r, 0); i >= 0; i = registry_next(r, (uint32_t)i + 1)) {
		text_str(t, comma);
		comma = ",";
		render_destination(t, r, (uint32_t)i, now_ns);
	}
	text_char(t, ']');
}
