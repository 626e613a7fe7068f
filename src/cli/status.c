/* resil status, resil members, resil metrics: what the regions hold. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/nearby.h"
#include "core/member.h"

struct status {
	struct options o;
	const char *destination;
	bool wants_exit_code;
	int wanted; /* the destination's index in the group that is looked at */
	size_t shown, open;
};

static bool is_wanted(const struct status *s, uint32_t index)
{
	return !s->destination || s->wanted == (int)index;
}

/* Columns before DEST: the user where all are shown, the group where there are several. */
static size_t shown_before(const struct options *o, const struct groups *g)
{
	return o->all_users ? 2 : g->n > 1 ? 1 : 0;
}

static void status_row(struct table *t, const struct group *g, size_t before, const struct circuit_view *v)
{
	char state[64], retry[24] = "-", calls[24], rate[16] = "-", p50[24], p99[24], in_flight[24], rejected[24];
	bool has_latency = v->max_us > 0 || v->p99_us > 0;

	state_text(state, sizeof state, v);
	if (v->state == BREAKER_OPEN && v->mode != BREAKER_FORCED_OPEN && v->mode != BREAKER_FORCED_CLOSED)
		ms_text(retry, sizeof retry, v->retry_after_ms);
	if (v->state == BREAKER_OPEN && v->retry_after_ms == 0 && retry[0] != '-')
		snprintf(retry, sizeof retry, "due");
	if (v->mode_ends_ms && retry[0] == '-')
		ms_text(retry, sizeof retry, v->mode_ends_ms);
	snprintf(calls, sizeof calls, "%llu", (unsigned long long)render_total_calls(v));
	if (render_has_rate(v))
		snprintf(rate, sizeof rate, "%u.%02u%%", render_rate_hundredths(v) / 100,
			render_rate_hundredths(v) % 100);
	us_text(p50, sizeof p50, v->p50_us, has_latency);
	us_text(p99, sizeof p99, v->p99_us, has_latency);
	in_flight_text(in_flight, sizeof in_flight, v);
	snprintf(rejected, sizeof rejected, "%llu", (unsigned long long)v->rejected);
	const char *cells[] = {g->user, g->name, v->name, state, retry, calls, rate, p50, p99, in_flight, rejected};
	table_row(t, cells + 2 - before);
}

static void status_table(struct status *s, const struct groups *g, int64_t now_ns)
{
	static const char *const headers[] = {
		"USER", "GROUP", "DEST", "STATE", "RETRY", "CALLS", "ERR%", "P50", "P99", "INFLIGHT", "REJECTED"};
	size_t before = shown_before(&s->o, g);
	struct table *t = table_new(headers + 2 - before, 9 + before);
	struct circuit_view v;

	table_style(t, (int)before + 1, 0x1fcu << before);
	for (size_t i = 0; i < g->n; i++) {
		const struct region *r = &g->at[i].region;
		size_t n;
		uint32_t *sorted = groups_sorted(r, &n);
		s->wanted = s->destination ? nearby_find(r, s->destination) : -1;
		for (size_t d = 0; sorted && d < n; d++) {
			if (!is_wanted(s, sorted[d]))
				continue;
			circuit_view(r, sorted[d], now_ns, &v);
			s->shown++;
			s->open += view_is_open(&v);
			status_row(t, &g->at[i], before, &v);
		}
		free(sorted);
	}
	table_print(t);
}

static void status_json(struct status *s, const struct groups *g, int64_t now_ns)
{
	static char buffer[65536];
	struct circuit_view v;

	fputs("{\"groups\":[", stdout);
	for (size_t i = 0; i < g->n; i++) {
		const struct region *r = &g->at[i].region;
		struct text t = TEXT_ON(buffer);
		text_fmt(&t, "%s{\"group\":", i ? "," : "");
		text_json(&t, g->at[i].name);
		text_str(&t, ",\"user\":");
		text_json(&t, g->at[i].user);
		text_str(&t, ",\"bypass\":");
		render_bypass(&t, group_bypass(&g->at[i]));
		text_str(&t, ",\"destinations\":[");
		fputs(buffer, stdout);
		const char *comma = "";
		size_t n;
		uint32_t *sorted = groups_sorted(r, &n);
		s->wanted = s->destination ? nearby_find(r, s->destination) : -1;
		for (size_t d = 0; sorted && d < n; d++) {
			if (!is_wanted(s, sorted[d]))
				continue;
			circuit_view(r, sorted[d], now_ns, &v);
			s->shown++;
			s->open += view_is_open(&v);
			t = TEXT_ON(buffer);
			render_view(&t, &v);
			printf("%s%s", comma, buffer);
			comma = ",";
		}
		free(sorted);
		fputs("]}", stdout);
	}
	fputs("]}\n", stdout);
}

static int run_status(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, {"exit-code", no_argument, NULL, 'x'}, {0}};
	struct status s = {0};
	struct groups g;
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		if (option == 'x') {
			s.wants_exit_code = true;
			continue;
		}
		int code = options_take(verb, &s.o, option);
		if (code >= 0)
			return code;
	}
	if (argc - optind > 1)
		return usage_error(verb, "one destination at a time, not also '%s'", argv[optind + 1]);
	s.destination = optind < argc ? argv[optind] : NULL;
	/* What cannot be found is said once, here. */
	char dir[256], suffix[64];
	int code = groups_place(&s.o, dir, suffix);
	if (code)
		return code;
	bool is_wrong = groups_say_refused(&s.o);
	code = groups_open(&g, &s.o, false);
	if (code)
		return is_wrong ? EXIT_FAILED : code;
	is_wrong |= groups_say_damaged(&g);
	groups_freshen(&g);
	(s.o.is_json ? status_json : status_table)(&s, &g, clock_now_ns());
	groups_say_bypass(&g, &s.o);
	groups_say_faults(&g, &s.o);
	if (s.shown == 0 && s.destination)
		code = groups_lack(&g, s.destination);
	else if (s.shown == 0 && !s.o.is_json && !is_wrong)
		fputs("resil: nothing there yet: no guarded program has made a connection\n", stderr);
	if (s.wants_exit_code)
		code = s.shown == 0 ? EXIT_ABSENT : s.open ? EXIT_FAILED : EXIT_DONE;
	groups_close(&g);
	return is_wrong ? EXIT_FAILED : code;
}

const struct verb verb_status = {
	.name = "status",
	.arguments = "[DEST] [-g GROUP] [-p PID] [--all-users] [--json] [--exit-code]",
	.summary = "one row a destination: state, calls, errors, latency",
	.help = "Shows each destination's circuit. It reads the shared state itself: no guarded process need be "
		"alive.\n"
		"RETRY is the time to the next probe; ERR% counts the last 100 calls since the last change of state, "
		"and is - while they are fewer than 20; P50 and P99 are latencies.\n\n"
		"Options:\n" OPTIONS_HELP
		"      --exit-code     0 when all circuits are closed, 1 when some are not, 3 when nothing is there\n\n"
		"Example:\n  resil status api.internal:443 --exit-code || echo down\n\n"
		"Exit codes: 0 done, 1 something is wrong with the shared state, and is told, 2 wrong usage, 3 no "
		"such\n"
		"destination or group, 4 not permitted.\n",
	.run = run_status,
};

/* ---- members ---- */

static void members_group_json(struct text *t, const void *ctx)
{
	const struct group *g = ctx;
	text_str(t, "{\"group\":");
	text_json(t, g->name);
	text_str(t, ",\"user\":");
	text_json(t, g->user);
	text_str(t, ",\"members\":");
	render_members_where(t, &g->region, clock_now_ns(), group_member_lives, g);
	text_char(t, '}');
}

static void members_table(const struct options *o, const struct groups *g)
{
	static const char *const headers[] = {"USER", "GROUP", "PID", "EXE", "SINCE", "CONNECTIONS", "SERVES"};
	size_t before = o->all_users ? 2 : 1; /* what a group is called is asked of this verb */
	struct table *t = table_new(headers + 2 - before, 5 + before);
	int64_t now_ns = clock_now_ns();
	size_t shown = 0;

	for (size_t i = 0; i < g->n; i++) {
		const struct region *r = &g->at[i].region;
		uint64_t owner = atomic_load(&r->header->control_owner);
		for (unsigned m = 0; m < REGION_MEMBERS; m++) {
			uint64_t id = atomic_load(&r->members[m].id);
			char pid[16], exe[33] = "", since[40], connections[16];
			if (id == 0 || !group_member_lives(id, &g->at[i]))
				continue;
			struct text when = TEXT_ON(since);
			text_time(&when, clock_wall_ns() - (now_ns - atomic_load(&r->members[m].since_ns)));
			memcpy(exe, r->members[m].exe, 32);
			snprintf(pid, sizeof pid, "%d", (int)member_pid(id));
			snprintf(connections, sizeof connections, "%u", atomic_load(&r->members[m].connections));
			const char *cells[] = {
				g->at[i].user, g->at[i].name, pid, exe, since, connections, id == owner ? "yes" : "-"};
			table_row(t, cells + 2 - before);
			shown++;
		}
	}
	table_print(t);
	if (shown == 0)
		fputs("resil: no member is alive\n", stderr);
}

/* Options alone, and the groups they ask for. -1: go on. */
static int open_by_options(const struct verb *verb, int argc, char **argv, struct options *o, struct groups *g)
{
	static const struct option longs[] = {OPTIONS_LONG, {0}};
	int option;
	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		int code = options_take(verb, o, option);
		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return usage_error(verb, "'%s' is too much", argv[optind]);
	int code = groups_open(g, o, false);
	return code ? code : -1;
}

static int run_members(const struct verb *verb, int argc, char **argv)
{
	struct options o = {0};
	struct groups g = {0};
	int code = open_by_options(verb, argc, argv, &o, &g);
	if (code >= 0)
		return code;
	if (o.is_json) {
		fputs("{\"groups\":[", stdout);
		for (size_t i = 0; i < g.n; i++) {
			fputs(i ? "," : "", stdout);
			print_rendered(members_group_json, &g.at[i]);
		}
		fputs("]}\n", stdout);
	} else {
		members_table(&o, &g);
	}
	groups_close(&g);
	return EXIT_DONE;
}

const struct verb verb_members = {
	.name = "members",
	.arguments = "[-g GROUP] [-p PID] [--all-users] [--json]",
	.summary = "the living processes of each group",
	.help = "Lists the processes that share a group's circuits, since when, and how many guarded connections each "
		"has open.\n"
		"SERVES tells which of them answers on the group's unix socket.\n\n"
		"Options:\n" OPTIONS_HELP "\nExample:\n  resil members -g curl\n\n"
		"Exit codes: 0 done, 2 wrong usage, 3 no such group, 4 not permitted.\n",
	.run = run_members,
};

/* ---- metrics ---- */

/* Series of users that may have groups of one name are told apart by a label. */
void metrics_text(struct text *t, const void *ctx)
{
	const struct groups *g = ctx;
	const struct region **regions = calloc(g->n + 1, sizeof *regions);
	const char **users = calloc(g->n + 1, sizeof *users);
	for (size_t i = 0; regions && users && i < g->n; i++) {
		regions[i] = &g->at[i].region;
		users[i] = g->at[i].user;
	}
	if (regions && users)
		render_metrics_of_users(t, regions, g->has_users ? users : NULL, (unsigned)g->n, clock_now_ns());
	free(regions);
	free(users);
}

/* One sample of the text as an object. Label values are escaped there as in JSON; types are those of the last # TYPE.
 */
static void sample_json(struct text *t, const char *line, size_t n, const char *type)
{
	const char *brace = memchr(line, '{', n), *end = brace ? memrchr(line, '}', n) : NULL;
	const char *value = (end ? end : line) + strcspn(end ? end : line, " ") + 1;

	text_str(t, t->len ? ",{\"name\":" : "{\"name\":");
	text_json_n(t, line, (size_t)((brace ? brace : value - 1) - line));
	text_fmt(t, ",\"type\":\"%s\",\"labels\":{", type);
	for (const char *p = brace ? brace + 1 : NULL; p && p < end;) {
		size_t name = strcspn(p, "=");
		text_json_n(t, p, name);
		text_char(t, ':');
		const char *text = p += name + 1; /* at its quote */
		for (p++; *p != '"'; p++)
			p += *p == '\\';
		text_bytes(t, text, (size_t)(++p - text));
		if (*p == ',')
			text_char(t, *p++);
	}
	text_str(t, "},\"value\":");
	text_bytes(t, value, n - (size_t)(value - line));
	text_char(t, '}');
}

static void metrics_json(struct text *t, const void *ctx)
{
	struct text plain = {.cap = t->cap};
	char type[16] = "";

	plain.at = malloc(plain.cap);
	if (!plain.at)
		return;
	plain.at[0] = '\0';
	metrics_text(&plain, ctx);
	for (const char *line = plain.at; *line;) {
		size_t n = strcspn(line, "\n");
		if (strncmp(line, "# TYPE ", 7) == 0)
			snprintf(type, sizeof type, "%.*s", (int)(n - 8 - strcspn(line + 7, " ")),
				line + 8 + strcspn(line + 7, " "));
		else if (line[0] != '#' && n > 0)
			sample_json(t, line, n, type);
		line += n + (line[n] == '\n');
	}
	t->is_cut |= plain.is_cut;
	free(plain.at);
}

static int run_metrics(const struct verb *verb, int argc, char **argv)
{
	struct options o = {0};
	struct groups g = {0};
	int code = open_by_options(verb, argc, argv, &o, &g);
	if (code >= 0)
		return code;
	groups_freshen(&g);
	if (o.is_json) {
		fputs("{\"metrics\":[", stdout);
		print_rendered(metrics_json, &g);
		puts("]}");
	} else {
		print_rendered(metrics_text, &g);
	}
	groups_close(&g);
	return EXIT_DONE;
}

const struct verb verb_metrics = {
	.name = "metrics",
	.arguments = "[-g GROUP] [-p PID] [--all-users] [--json]",
	.summary = "Prometheus text of all groups",
	.help = "Prints the metrics of your groups in Prometheus' text format, from the shared state itself;\n"
		"with --all-users each series has a label user.\n\n"
		"Options:\n" OPTIONS_HELP
		"                      of metrics: {\"metrics\":[{\"name\",\"type\",\"labels\",\"value\"}]}\n\n"
		"Example:\n  resil metrics | grep resil_circuit_state\n\n"
		"Exit codes: 0 done, 2 wrong usage, 3 no such group, 4 not permitted.\n",
	.run = run_metrics,
};
