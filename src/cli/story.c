/* See story.h. */
#include "cli/story.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/errname.h"
#include "cli/place.h"
#include "core/bypass.h"
#include "core/member.h"
#include "policy/policy.h"

void age_text(struct text *t, int64_t ns)
{
	uint64_t s = ns > 0 ? (uint64_t)(ns / NS_PER_S) : 0;
	if (s < 60) {
		text_fmt(t, "%llus", (unsigned long long)s);
	} else if (s < 3600) {
		text_fmt(t, "%llum", (unsigned long long)(s / 60));
		text_padded(t, s % 60, 2);
		text_char(t, 's');
	} else if (s < 86400) {
		text_fmt(t, "%lluh", (unsigned long long)(s / 3600));
		text_padded(t, s / 60 % 60, 2);
		text_char(t, 'm');
	} else {
		text_fmt(t, "%llud", (unsigned long long)(s / 86400));
		text_padded(t, s / 3600 % 24, 2);
		text_char(t, 'h');
	}
}

void event_text(struct text *t, const struct region *r, const struct event *e)
{
	switch (e->type) {
	case EVENT_TRANSITION:
		text_fmt(t, "%s -> %s", breaker_state_name((enum breaker_state)e->from),
			breaker_state_name((enum breaker_state)e->to));
		if (e->reason[0])
			text_fmt(t, ": %s", e->reason);
		if (e->value > 0)
			text_fmt(t, "; %lld had been rejected", (long long)e->value);
		if (e->to == BREAKER_OPEN && e->retry_after_ms >= 0) {
			char ms[24];
			ms_text(ms, sizeof ms, (uint64_t)e->retry_after_ms);
			text_fmt(t, "; next probe in %s", ms);
		}
		return;
	case EVENT_REJECTED:
		text_fmt(t, "%llu rejected", (unsigned long long)events_run_length(r, e));
		if (event_is_bulkhead(e))
			text_fmt(t, ": %s", e->reason);
		return;
	case EVENT_DEADLINE:
		text_fmt(t, "%s limit of ", e->reason);
		text_duration(t, e->value);
		return;
	case EVENT_FAULT: text_fmt(t, "%s, %lld so far", e->reason, (long long)e->value); return;
	case EVENT_RELOAD: text_fmt(t, "generation %lld", (long long)e->value); return;
	default: text_str(t, e->reason);
	}
}

/* ---- reading ---- */

static bool is_look_up(const struct story *s)
{
	return strncmp(s->view.name, "dns:", 4) == 0;
}

/* Variables of a member; a path among them that is relative is so to its working directory. */
static pid_t env_pid;
static const char *member_getenv(const char *name)
{
	static char path[4200];
	const char *value = pid_getenv(name);
	if (!value || value[0] == '/' || value[0] == '\0' || strcmp(name, "RESIL_CONF") != 0)
		return value;
	snprintf(path, sizeof path, "/proc/%d/cwd/%s", (int)env_pid, value);
	return path;
}

bool story_settings(struct settings *s, const struct group *g, pid_t *member)
{
	const struct region *r = &g->region;
	*member = 0;
	for (unsigned i = 0; g->through == 0 && i < REGION_MEMBERS; i++) {
		uint64_t id = atomic_load(&r->members[i].id);
		if (id == 0 || !member_is_alive(id) || !pid_environ_load(env_pid = member_pid(id)))
			continue;
		*member = env_pid;
		return settings_load_as(s, NULL, pid_getenv("RESIL_SET"), member_getenv);
	}
	return settings_load(s, NULL, own_getenv("RESIL_SET"));
}

/* Back through the ring: the transitions of this destination since it last was closed; or, where it is closed now,
 * those of the time before. */
static void read_episode(struct story *s)
{
	const struct region *r = &s->group->region;
	uint64_t oldest, newest;
	struct event e;
	bool is_over = s->view.state == BREAKER_CLOSED, is_whole = false;

	events_range(r, &oldest, &newest);
	for (uint64_t seq = newest, i = 0; seq >= oldest && seq > 0 && i < REGION_EVENTS && !is_whole; seq--, i++) {
		if (!events_read(r, seq, &e) || strcmp(e.destination, s->view.name) != 0)
			continue;
		if (e.type == EVENT_REJECTED && !event_is_bulkhead(&e) && (!is_over || s->over_wall_ns))
			s->rejected += events_run_length(r, &e);
		if (e.type != EVENT_TRANSITION)
			continue;
		if (e.to == BREAKER_CLOSED) {
			if (!is_over || s->over_wall_ns)
				break;
			s->over_wall_ns = e.wall_ns;
			continue;
		}
		s->opening = e;
		s->has_opening = true;
		s->reopened += e.from == BREAKER_HALF_OPEN && e.to == BREAKER_OPEN;
		is_whole = e.from == BREAKER_CLOSED;
	}
	s->is_begun_lost = s->has_opening && !is_whole;
	if (s->has_opening || !s->view.has_last || s->view.last_to == BREAKER_CLOSED)
		return;
	/* What lies beside the circuit outlives the ring. */
	s->has_opening = s->is_begun_lost = true;
	memset(&s->opening, 0, sizeof s->opening);
	s->opening.from = (uint8_t)s->view.last_from;
	s->opening.to = (uint8_t)s->view.last_to;
	s->opening.wall_ns = s->view.last_wall_ns;
	text_copy(s->opening.reason, sizeof s->opening.reason, s->view.last_reason);
}

void story_read(struct story *s, const struct group *g, uint32_t index, const struct settings *settings, pid_t member)
{
	const struct policy *p;
	memset(s, 0, sizeof *s);
	s->group = g;
	s->index = index;
	s->now_ns = clock_now_ns();
	s->wall_ns = clock_wall_ns();
	s->bypass = group_bypass(g);
	s->settings = settings;
	s->member = member;
	circuit_view(&g->region, index, s->now_ns, &s->view);
	uint64_t until = atomic_load(&g->region.destinations[index].mode_until_ms);
	if (s->view.mode != BREAKER_AUTO && until > (uint64_t)(s->now_ns / NS_PER_MS))
		s->forced_ms = (int64_t)(until - (uint64_t)(s->now_ns / NS_PER_MS));
	read_episode(s);
	/* The section is the one that matched when the circuit was made: no name is looked up here. */
	for (uint32_t i = 0; settings && (p = config_policy(settings->config, i)) != NULL; i++)
		if (strcmp(p->section, s->view.policy) == 0)
			s->policy = p;
	/* Circuits of look-ups carry no section: their rule goes by the name alone. */
	if (settings && is_look_up(s))
		s->policy = config_match_look_up(settings->config, s->view.name + 4, 0, NULL);
}

bool story_is_rejecting(const struct story *s)
{
	return s->bypass == 0 && view_is_open(&s->view) && circuit_shown_mode(&s->view) != BREAKER_OBSERVE;
}

/* ---- telling ---- */

static void since_text(struct text *t, const struct story *s, int64_t wall_ns)
{
	text_time(t, wall_ns < 0 ? 0 : wall_ns);
	text_str(t, " (");
	age_text(t, s->wall_ns - wall_ns);
	text_str(t, " ago)");
}

/* Of key = method or route: its calls are requests, asked for at their first send. */
static bool is_request(const struct story *s)
{
	return strncmp(s->view.name, "unix:", 5) != 0 && strchr(s->view.name, ' ');
}

/* Do its calls come from connects of other rules, by what they say (sni:)? */
static bool is_said(const struct story *s)
{
	struct place place;
	char name[REGION_NAME_MAX + 1];
	if (!s->policy || !config_has_sni(s->settings->config))
		return false;
	text_copy(name, sizeof name, s->view.name);
	if (place_read(name, &place) == NULL) {
		struct target target = {.addr = &place.addr, .name = place.name[0] ? place.name : NULL};
		if (config_match(s->settings->config, &target, NULL) == s->policy)
			return false;
		target.said = target.name;
		if (target.said)
			return config_match(s->settings->config, &target, NULL) == s->policy;
	}
	return config_is_said_only(s->settings->config, s->policy);
}

/* Its connects are made; what is rejected is a send. */
static bool is_met_by_sends(const struct story *s)
{
	return is_request(s) || is_said(s);
}

static const char *reject_name(const struct story *s)
{
	if (is_look_up(s))
		return "EAI_FAIL";
	if (is_met_by_sends(s))
		return "ECONNRESET";
	const char *name = s->policy ? errname(s->policy->reject_errno) : NULL;
	return name ? name : "ECONNREFUSED";
}

/* A value and its origin as they hold for this destination: loopback has shorter waits. */
static void render_value(struct text *value, struct text *origin, const struct story *s, enum config_key key)
{
	char host[REGION_NAME_MAX + 1];
	struct addr a = {0};
	bool is_v6 = s->view.name[0] == '[';
	text_copy(host, sizeof host, s->view.name + is_v6);
	char *end = strrchr(host, is_v6 ? ']' : ':');
	if (end)
		*end = '\0';
	render_policy_value(
		value, origin, s->settings->config, s->policy, key, addr_from_literal(&a, host) ? &a : NULL);
}

static void value_text(struct text *t, const struct story *s, enum config_key key)
{
	static const char *const names[] = {
#define X(name, text, type, field, initial, min, max, sentence) text,
		POLICY_KEYS(X)
#undef X
	};
	char value_at[512] = "", origin_at[1024] = "";
	struct text value = TEXT_ON(value_at), origin = TEXT_ON(origin_at);
	render_value(&value, &origin, s, key);
	text_fmt(t, "%s = %s (%s)", names[key], value_at, origin_at);
}

static void tell_state(struct text *t, const struct story *s)
{
	const struct circuit_view *v = &s->view;
	enum breaker_mode mode = circuit_shown_mode(v);

	text_fmt(t, "%s in group %s", v->name, s->group->name);
	if (s->bypass) {
		text_fmt(t, ": resil is off here: every call passes, whatever the circuit says (%s)\n",
			breaker_state_name(v->state));
	} else if (v->mode == BREAKER_FORCED_CLOSED) {
		text_str(t, " is forced closed by hand: every call is let through, whatever comes of it\n");
	} else if (v->mode == BREAKER_FORCED_OPEN) {
		text_fmt(t,
			" is forced open by hand: resil rejects every call at once with %s; nothing reaches the "
			"network\n",
			reject_name(s));
	} else if (mode == BREAKER_OBSERVE) {
		text_fmt(t, " is only observed: it would be %s; resil rejects nothing\n", breaker_state_name(v->state));
	} else if (v->state == BREAKER_OPEN && v->degraded) {
		text_fmt(t,
			" is open: resil lets nothing through to it; something else serves in its place, and what that "
			"cannot serve is rejected with %s\n",
			reject_name(s));
	} else if (v->state == BREAKER_OPEN) {
		text_fmt(t, " is open: resil rejects its %s at once with %s; nothing %sreaches the network\n",
			is_look_up(s)	? "look-ups"
			: is_request(s) ? "requests"
					: "calls",
			reject_name(s), is_met_by_sends(s) ? "of them " : "");
	} else if (v->state == BREAKER_HALF_OPEN) {
		text_fmt(t,
			" is half-open: a probe finds out whether it is well again; resil rejects all other calls with "
			"%s\n",
			reject_name(s));
	} else if (view_is_full(v)) {
		text_fmt(t, " is closed, and %s taken: resil rejects further calls with %s%s\n",
			v->bulkhead_limit == 1 ? "its one place is" : "all of its places are", reject_name(s),
			s->policy && s->policy->max_wait_ms == 0 ? "" : ", or lets them wait");
	} else {
		text_str(t, " is closed: resil lets every call through; what fails now fails at the destination\n");
	}
	if (v->mode != BREAKER_AUTO) {
		text_str(t, "By hand: ");
		if (s->forced_ms) {
			text_str(t, "for ");
			age_text(t, s->forced_ms * NS_PER_MS);
			text_str(t, " yet\n");
		} else {
			text_str(t, "until told otherwise\n");
		}
	}
}

static void tell_opening(struct text *t, const struct story *s)
{
	const struct event *e = &s->opening;
	if (!s->has_opening) {
		text_fmt(t, "Since when: %s\n",
			s->view.opened_total ? "its last opening is no longer among the events that are kept"
					     : "it has never been open");
		return;
	}
	text_fmt(t, "%s: ",
		s->over_wall_ns	   ? "Last opened"
		: s->is_begun_lost ? "Open at the latest since"
				   : "Since when");
	since_text(t, s, e->wall_ns);
	text_char(t, '\n');
	text_fmt(t, "Why: %s", e->reason[0] ? e->reason : "no reason was kept");
	if (e->pid && e->exe[0])
		text_fmt(t, ", the last one met by %s (pid %u)", e->exe, e->pid);
	else if (e->pid)
		text_fmt(t, ", done by process %u", e->pid);
	text_char(t, '\n');
	if (s->over_wall_ns) {
		text_str(t, "Closed again: ");
		since_text(t, s, s->over_wall_ns);
		text_fmt(t, ": %s\n", s->view.has_last ? s->view.last_reason : "");
	}
	text_fmt(t, "Meanwhile: %llu call%s rejected, %u probe%s failed\n", (unsigned long long)s->rejected,
		s->rejected == 1 ? "" : "s", s->reopened, s->reopened == 1 ? "" : "s");
}

static void tell_failures(struct text *t, const struct story *s)
{
	const struct circuit_view *v = &s->view;
	const char *comma = "";
	unsigned long long failed = v->failure, out = v->success + v->failure + v->neutral;
	text_fmt(t, "Failures of all time: %llu of %llu calls that went out", failed, out);
	for (int k = 0; k < FAILURE_KIND_COUNT; k++) {
		if (v->kinds[k] == 0)
			continue;
		text_fmt(t, "%s %s %llu", *comma ? comma : ":", failure_name((enum failure_kind)k),
			(unsigned long long)v->kinds[k]);
		comma = ",";
	}
	text_char(t, '\n');
}

/* From where its calls are served meanwhile, and how often they were. */
static void tell_fallbacks(struct text *t, const struct story *s)
{
	const struct circuit_view *v = &s->view;
	const char *before = "";
	uint64_t all = 0;
	for (int i = 0; i < DEGRADED_SOURCE_COUNT; i++)
		all += v->fallbacks[i];
	if (all == 0)
		return;
	text_str(t, v->degraded ? "In its place: " : "In its place now nothing; of all time: ");
	for (int i = 0; i < DEGRADED_SOURCE_COUNT; i++) {
		bool is_shown = v->degraded ? v->degraded >> i & 1 : v->fallbacks[i] != 0;
		if (!is_shown)
			continue;
		text_fmt(t, "%s%s (%llu calls of all time)", before, degraded_source_name((enum degraded_source)i),
			(unsigned long long)v->fallbacks[i]);
		before = ", ";
	}
	if (s->policy) {
		text_str(t, "; ");
		value_text(t, s, KEY_FALLBACK);
	}
	text_char(t, '\n');
}

static void tell_bulkhead(struct text *t, const struct story *s)
{
	const struct circuit_view *v = &s->view;
	if (!v->bulkhead_limit)
		return;
	text_fmt(t, "Bulkhead: %u of %u places taken, %u wait for one, %llu rejected for want of one",
		v->bulkhead_in_use, v->bulkhead_limit, v->bulkhead_waiting, (unsigned long long)v->bulkhead_rejected);
	if (s->policy) {
		text_str(t, "; ");
		value_text(t, s, KEY_MAX_CONCURRENT);
		text_str(t, ", ");
		value_text(t, s, KEY_MAX_WAIT);
	}
	text_char(t, '\n');
}

/* Which keys opened it, by the reason that circuit.c gives. */
static size_t keys_of(const struct story *s, enum config_key keys[4])
{
	bool is_failed = strstr(s->opening.reason, "% failed (") != NULL,
	     is_slow = strstr(s->opening.reason, "% slow (") != NULL;
	size_t n = 0;
	if (is_failed)
		keys[n++] = KEY_FAILURE_RATE_THRESHOLD;
	if (is_slow) {
		keys[n++] = KEY_SLOW_CALL_RATE_THRESHOLD;
		keys[n++] = KEY_SLOW_CALL_DURATION;
	}
	if (n == 0)
		keys[n++] = KEY_FAILURE_THRESHOLD;
	else
		keys[n++] = KEY_SLIDING_WINDOW;
	return n;
}

static void tell_rule(struct text *t, const struct story *s)
{
	if (!s->settings)
		return;
	if (!s->policy) {
		text_fmt(t, "Rule: [destination %s] when the circuit was made; the configuration has it no more\n",
			s->view.policy);
		return;
	}
	text_fmt(t, "Rule: [%s%s]", s->policy->section[0] ? "destination " : "defaults", s->policy->section);
	if (s->policy->section[0])
		text_fmt(t, " at %s:%u", config_file(s->settings->config), s->policy->line);
	enum config_key keys[4];
	size_t n = keys_of(s, keys);
	for (size_t i = 0; i < n; i++) {
		text_str(t, ", ");
		value_text(t, s, keys[i]);
	}
	if (s->member)
		text_fmt(t, "; as process %d has it\n", (int)s->member);
	else
		text_str(t, "; as a program started here would have it\n");
}

static void tell_next(struct text *t, const struct story *s)
{
	const struct circuit_view *v = &s->view;
	if (s->bypass || v->mode == BREAKER_FORCED_OPEN || v->mode == BREAKER_FORCED_CLOSED)
		return;
	if (v->state == BREAKER_HALF_OPEN) {
		text_fmt(t, "Next: %u of %u probes are under way\n", v->probes_in_flight, v->probes_max);
	} else if (v->state == BREAKER_OPEN) {
		char ms[24];
		ms_text(ms, sizeof ms, v->retry_after_ms);
		if (v->retry_after_ms)
			text_fmt(t, "Next: the first call in %s or later goes out as a probe", ms);
		else
			text_str(t, "Next: the time is up: the next call goes out as a probe");
		if (s->policy) {
			text_str(t, "; ");
			value_text(t, s, KEY_RECOVERY_TIMEOUT);
			text_str(t, ", ");
			value_text(t, s, KEY_RECOVERY_MAX);
		}
		text_char(t, '\n');
	}
}

struct undo {
	const char *what;
	char command[SHELL_WORD_MAX + 256];
};

/* What stops it, the mildest first. */
static size_t undo_of(const struct story *s, const struct options *o, struct undo out[4])
{
	const char *again = options_again(o, s->group->name);
	const char *name = shell_word(s->view.name);
	size_t n = 0;
	if (s->bypass) {
		out[n].what = "to have resil back";
		snprintf(out[n++].command, sizeof out->command, "resil on%s",
			s->bypass & BYPASS_MACHINE ? " --host"
			: s->bypass & BYPASS_GROUP ? again
						   : "");
		return n;
	}
	if (s->view.mode != BREAKER_AUTO) {
		out[n].what = "to undo what was set by hand";
		snprintf(out[n++].command, sizeof out->command, "resil force %s auto%s", name, again);
	}
	if (!story_is_rejecting(s)) {
		if (view_is_full(&s->view)) {
			out[n].what = "to switch resil off for the group";
			snprintf(out[n++].command, sizeof out->command, "resil off%s", again);
		}
		return n;
	}
	if (s->view.mode != BREAKER_FORCED_OPEN) {
		out[n].what = "to try again now";
		snprintf(out[n++].command, sizeof out->command, "resil reset %s%s", name, again);
	}
	out[n].what = "to let every call through";
	snprintf(out[n++].command, sizeof out->command, "resil force %s closed --for 10m%s", name, again);
	out[n].what = "to switch resil off for the group";
	snprintf(out[n++].command, sizeof out->command, "resil off%s", again);
	return n;
}

void story_text(struct text *t, const struct story *s, const struct options *o)
{
	struct undo undo[4];
	tell_state(t, s);
	tell_opening(t, s);
	tell_failures(t, s);
	tell_fallbacks(t, s);
	tell_bulkhead(t, s);
	tell_rule(t, s);
	tell_next(t, s);
	size_t n = undo_of(s, o, undo);
	for (size_t i = 0; i < n; i++)
		text_fmt(t, "%s%s: %s\n", i ? "         " : "Stop it, ", undo[i].what, undo[i].command);
}

/* ---- JSON ---- */

static void json_value(struct text *t, const struct story *s, enum config_key key, const char *name)
{
	char value_at[512] = "", origin_at[1024] = "";
	struct text value = TEXT_ON(value_at), origin = TEXT_ON(origin_at);
	render_value(&value, &origin, s, key);
	text_fmt(t, ",\"%s\":{\"value\":", name);
	text_json(t, value_at);
	text_str(t, ",\"origin\":");
	text_json(t, origin_at);
	text_char(t, '}');
}

static void json_time(struct text *t, const char *key, bool is_known, int64_t wall_ns)
{
	text_fmt(t, ",\"%s\":", key);
	if (!is_known) {
		text_str(t, "null");
		return;
	}
	text_char(t, '"');
	text_time(t, wall_ns < 0 ? 0 : wall_ns);
	text_char(t, '"');
}

void story_json(struct text *t, const struct story *s, const struct options *o)
{
	struct undo undo[4];
	text_str(t, "{\"group\":");
	text_json(t, s->group->name);
	text_str(t, ",\"user\":");
	text_json(t, s->group->user);
	text_fmt(t, ",\"rejecting\":%s,\"bypass\":", story_is_rejecting(s) ? "true" : "false");
	render_bypass(t, s->bypass);
	json_time(t, "opened_at", s->has_opening, s->opening.wall_ns);
	json_time(t, "closed_at", s->over_wall_ns != 0, s->over_wall_ns);
	text_str(t, ",\"reason\":");
	if (s->has_opening)
		text_json(t, s->opening.reason);
	else
		text_str(t, "null");
	text_fmt(t, ",\"pid\":%u,\"exe\":", s->opening.pid);
	text_json(t, s->opening.exe);
	text_fmt(t, ",\"rejected\":%llu,\"failed_probes\":%u,\"rule\":", (unsigned long long)s->rejected, s->reopened);
	if (s->policy) {
		text_str(t, "{\"section\":");
		text_json(t, s->policy->section[0] ? s->policy->section : "defaults");
		json_value(t, s, KEY_FAILURE_THRESHOLD, "failure_threshold");
		json_value(t, s, KEY_FAILURE_RATE_THRESHOLD, "failure_rate_threshold");
		json_value(t, s, KEY_SLOW_CALL_RATE_THRESHOLD, "slow_call_rate_threshold");
		json_value(t, s, KEY_SLIDING_WINDOW, "sliding_window");
		json_value(t, s, KEY_RECOVERY_TIMEOUT, "recovery_timeout");
		json_value(t, s, KEY_RECOVERY_MAX, "recovery_max");
		json_value(t, s, KEY_REJECT_ERRNO, "reject_errno");
		json_value(t, s, KEY_FALLBACK, "fallback");
		json_value(t, s, KEY_MAX_CONCURRENT, "max_concurrent");
		json_value(t, s, KEY_MAX_WAIT, "max_wait");
		text_char(t, '}');
	} else {
		text_str(t, "null");
	}
	text_str(t, ",\"undo\":[");
	size_t n = undo_of(s, o, undo);
	for (size_t i = 0; i < n; i++) {
		text_str(t, i ? "," : "");
		text_json(t, undo[i].command);
	}
	text_str(t, "],\"destination\":");
	render_view(t, &s->view);
	text_char(t, '}');
}
