/* Events, members and the configuration as JSON (CONTRACT 6). Called by the socket's thread and by the command. */
#include "control/render.h"

#include <string.h>

#include "base/clock.h"
#include "core/member.h"
#include "policy/policy.h"

static void json_bounded(struct text *t, const char *s, size_t cap)
{
	text_json_n(t, s, strnlen(s, cap));
}

static void json_field(struct text *t, const char *key, const char *s, size_t cap)
{
	text_fmt(t, ",\"%s\":", key);
	json_bounded(t, s, cap);
}

/* text_time counts years as they are; a damaged region must not make it print a billion of them. */
static int64_t sane_wall(int64_t wall_ns)
{
	return wall_ns < 0 ? 0 : wall_ns;
}

static void event_details(struct text *t, const struct region *r, const struct event *e)
{
	switch (e->type) {
	case EVENT_TRANSITION:
		text_fmt(t, ",\"from\":\"%s\",\"to\":\"%s\"", breaker_state_name((enum breaker_state)(e->from & 3)),
			breaker_state_name((enum breaker_state)(e->to & 3)));
		json_field(t, "reason", e->reason, sizeof e->reason);
		text_str(t, ",\"retry_after_ms\":");
		if (e->retry_after_ms >= 0)
			text_i64(t, e->retry_after_ms);
		else
			text_str(t, "null");
		if (e->value > 0) {
			text_str(t, ",\"rejected\":"); /* the length of the run that it ended */
			text_i64(t, e->value);
		}
		return;
	case EVENT_REJECTED:
		json_field(t, "reason", e->reason, sizeof e->reason);
		text_str(t, ",\"count\":");
		text_u64(t, events_run_length(r, e));
		return;
	case EVENT_DEADLINE:
		json_field(t, "phase", e->reason, sizeof e->reason);
		text_str(t, ",\"limit_ms\":");
		text_i64(t, e->value / NS_PER_MS);
		return;
	case EVENT_FAULT:
		json_field(t, "fault", e->reason, strcspn(e->reason, " "));
		text_str(t, ",\"count\":");
		text_i64(t, e->value);
		return;
	case EVENT_RELOAD:
		text_str(t, ",\"generation\":");
		text_i64(t, e->value);
		return;
	default:
		if (e->reason[0])
			json_field(t, "reason", e->reason, sizeof e->reason);
	}
}

void render_event(struct text *t, const struct region *r, const struct event *e)
{
	text_str(t, "{\"seq\":");
	text_u64(t, e->seq);
	text_str(t, ",\"time\":\"");
	text_time(t, sane_wall(e->wall_ns));
	text_str(t, "\",\"pid\":");
	text_u64(t, e->pid);
	json_field(t, "exe", e->exe, sizeof e->exe);
	json_field(t, "group", r->header->group, sizeof r->header->group);
	text_fmt(t, ",\"type\":\"%s\",\"destination\":",
		e->type < EVENT_TYPE_COUNT ? event_type_name((enum event_type)e->type) : "unknown");
	if (e->destination[0])
		json_bounded(t, e->destination, sizeof e->destination);
	else
		text_str(t, "null");
	event_details(t, r, e);
	text_str(t, "}\n");
}

bool render_next_event(const struct region *r, struct render_cursor *cursor, int64_t now_ns, struct event *e)
{
	uint64_t oldest, newest;
	events_range(r, &oldest, &newest);
	if (cursor->seq < oldest && oldest > 0)
		cursor->seq = oldest - 1;
	/* At most one lap: whatever the counters say in a damaged region. */
	for (unsigned i = 0; i < REGION_EVENTS && cursor->seq < newest; i++) {
		if (events_read(r, cursor->seq + 1, e)) {
			cursor->seq++;
			cursor->missing_ns = 0;
			return true;
		}
		/* Given out, not yet written: its writer is between two instructions, or dead. A follower that went
		 * past it would lose it. */
		if (cursor->is_patient && cursor->missing_ns == 0)
			cursor->missing_ns = now_ns;
		if (cursor->is_patient && now_ns - cursor->missing_ns < NS_PER_S)
			return false;
		cursor->seq++;
		cursor->missing_ns = 0;
	}
	return false;
}

static bool lives_here(uint64_t id, const void *ctx)
{
	(void)ctx;
	return member_is_alive(id);
}

void render_members(struct text *t, const struct region *r, int64_t now_ns)
{
	render_members_where(t, r, now_ns, lives_here, NULL);
}

void render_members_where(struct text *t, const struct region *r, int64_t now_ns,
	bool (*is_alive)(uint64_t id, const void *ctx), const void *ctx)
{
	const char *comma = "";
	uint64_t owner = atomic_load_explicit(&r->header->control_owner, memory_order_relaxed);
	text_char(t, '[');
	for (unsigned i = 0; i < REGION_MEMBERS; i++) {
		const struct member *m = &r->members[i];
		uint64_t id = atomic_load_explicit(&m->id, memory_order_acquire);
		if (id == 0 || !is_alive(id, ctx))
			continue;
		int64_t since_ns = atomic_load_explicit(&m->since_ns, memory_order_relaxed);
		text_fmt(t, "%s{\"pid\":%d", comma, (int)member_pid(id));
		comma = ",";
		json_field(t, "executable", m->exe, sizeof m->exe);
		text_str(t, ",\"since\":\"");
		text_time(t, sane_wall(clock_wall_ns() - (since_ns > 0 && since_ns < now_ns ? now_ns - since_ns : 0)));
		text_str(t, "\",\"connections\":");
		text_u64(t, atomic_load_explicit(&m->connections, memory_order_relaxed));
		text_fmt(t, ",\"serves_socket\":%s}", id == owner ? "true" : "false");
	}
	text_char(t, ']');
}

/* A value and where it comes from: each rendered into a small buffer first, since they need escaping. */
#define VALUE_MAX 1024

static void config_pair(
	struct text *t, const char *name, const struct text *value, const struct text *origin, const char *comma)
{
	text_fmt(t, "%s\"%s\":{\"value\":", comma, name);
	text_json_n(t, value->at, value->len);
	text_str(t, ",\"origin\":");
	text_json_n(t, origin->at, origin->len);
	text_char(t, '}');
}

void render_policy_value(struct text *value, struct text *origin, const struct config *c, const struct policy *p,
	enum config_key key, const struct addr *addr)
{
	config_value_text(value, p, key);
	config_origin_text(origin, c, p, key);
	if (key != KEY_RECOVERY_MAX || !addr || policy_recovery_max_ms(p, addr) == p->rules.recovery_max_ms)
		return;
	value->len = 0;
	text_duration(value, (int64_t)policy_recovery_max_ms(p, addr) * NS_PER_MS);
	text_str(origin, ", for this machine's own addresses");
}

void render_policy_values(struct text *t, const struct config *c, const struct policy *p, const struct addr *addr)
{
	static const char *const names[] = {
#define X(name, text, type, field, initial, min, max, sentence) text,
		POLICY_KEYS(X)
#undef X
	};
	char value_at[VALUE_MAX], origin_at[VALUE_MAX];
	text_char(t, '{');
	for (int key = 0; key < KEY_COUNT; key++) {
		struct text value = TEXT_ON(value_at), origin = TEXT_ON(origin_at);
		render_policy_value(&value, &origin, c, p, (enum config_key)key, addr);
		config_pair(t, names[key], &value, &origin, key ? "," : "");
	}
	text_char(t, '}');
}

static void config_settings(struct text *t, const struct config *c)
{
	static const char *const names[] = {
#define X(name, text, type, initial, min, max, sentence) text,
		RESIL_SETTINGS(X)
#undef X
	};
	char value_at[VALUE_MAX], origin_at[VALUE_MAX];
	for (int s = 0; s < SETTING_COUNT; s++) {
		struct text value = TEXT_ON(value_at), origin = TEXT_ON(origin_at);
		config_setting_text(&value, c, (enum config_setting)s);
		config_setting_origin_text(&origin, c, (enum config_setting)s);
		config_pair(t, names[s], &value, &origin, s ? "," : "");
	}
}

void render_config(struct text *t, const struct config *c)
{
	char patterns_at[4096];
	const struct policy *p;

	text_str(t, "{\"file\":");
	if (config_file(c)[0])
		text_json(t, config_file(c));
	else
		text_str(t, "null");
	text_fmt(t, ",\"broken\":%s,\"resil\":{", config_is_broken(c) ? "true" : "false");
	config_settings(t, c);
	text_str(t, "},\"policies\":[");
	for (uint32_t i = 0; (p = config_policy(c, i)) != NULL; i++) {
		struct text patterns = TEXT_ON(patterns_at);
		patterns_at[0] = '\0';
		if (p->section[0])
			config_patterns_text(&patterns, c, p);
		text_fmt(t, "%s{\"section\":", i ? "," : "");
		text_json(t, p->section[0] ? p->section : "defaults");
		text_fmt(t, ",\"line\":%u,\"match\":", p->line);
		text_json_n(t, patterns.at, patterns.len);
		text_str(t, ",\"values\":");
		render_policy_values(t, c, p, NULL);
		text_char(t, '}');
	}
	text_str(t, "]}\n");
}
