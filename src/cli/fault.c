/* resil fault add|ls|rm|clear: faults in programs that run. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/faults_admin.h"

struct asked {
	struct options o;
	struct how_long how_long;
};

/* "TYPE DEST KEY=VALUE ...", as one. */
static bool join(char *to, size_t cap, char **words, int n)
{
	struct text t = {.at = to, .cap = cap};
	to[0] = '\0';
	for (int i = 0; i < n; i++)
		text_fmt(&t, "%s%s", i ? " " : "", words[i]);
	return !t.is_cut;
}

static int exit_code_of(int err)
{
	return err == -EINVAL || err == -EEXIST ? EXIT_USAGE : err == -ESRCH ? EXIT_ABSENT : EXIT_FAILED;
}

/* To every group that is meant and has living processes. */
static int add(const struct verb *verb, const struct asked *a, char **words, int n)
{
	char spec[FAULT_SPEC_MAX + 1], name[FAULT_NAME_MAX + 1] = "", first[FAULT_NAME_MAX + 1] = "",
							     where_at[1024] = "";
	struct text where = TEXT_ON(where_at);
	struct groups g;
	size_t done = 0;
	int64_t now = clock_now_ns();

	if (n < 2)
		return usage_error(verb, "a fault is due: TYPE DEST [KEY=VALUE]...");
	if (!join(spec, sizeof spec, words, n))
		return usage_error(verb, "the fault is too long");
	int wrong = how_long_check(verb, &a->how_long, " (until the last process of the group has ended)");
	if (wrong >= 0)
		return wrong;
	int code = groups_open(&g, &a->o, true), first_code = EXIT_ABSENT;
	if (code)
		return code;
	char error_at[2600] = "";
	for (size_t i = 0; i < g.n; i++) {
		struct text error = TEXT_ON(error_at);
		int err = faults_admin_add(
			&g.at[i].region, spec, a->how_long.for_ns, now, name, &error, group_member_lives, &g.at[i]);
		if (err == -EINVAL || err == -EEXIST) {
			fprintf(stderr, "resil fault: %s\n", error_at);
			groups_close(&g);
			return EXIT_USAGE;
		}
		if (err) {
			first_code = exit_code_of(err);
			continue;
		}
		if (!done)
			snprintf(first, sizeof first, "%s", name);
		text_fmt(&where, "%s%s", done ? ", " : "", g.at[i].name);
		done++;
		if (a->o.is_json)
			continue;
		printf(out_is_terminal() ? "%s is in force in group %s\n" : "%s\t%s\n", name, g.at[i].name);
	}
	if (a->o.is_json) {
		char json_at[2048] = "";
		struct text json = TEXT_ON(json_at);
		text_str(&json, "{\"name\":");
		text_json(&json, first);
		text_fmt(&json, ",\"groups\":%u}", (unsigned)done);
		puts(json_at);
	}
	if (done)
		fprintf(stderr, "resil: in force in %s%s; lift it with: resil fault rm %s%s\n", where_at,
			where.is_cut ? " and more" : "", first, options_again(&a->o, NULL));
	else
		fprintf(stderr, "resil fault: %s\n",
			error_at[0]
				? error_at
				: "no group of yours has a living process: use 'resil run --fault' or a [fault NAME] "
				  "section");
	groups_close(&g);
	return done ? EXIT_DONE : first_code;
}

static void left_text(char *to, size_t cap, int64_t left_ns)
{
	if (left_ns < 0)
		snprintf(to, cap, "-");
	else
		ms_text(to, cap, (uint64_t)(left_ns / NS_PER_MS));
}

static int list(const struct asked *a)
{
	static const char *const headers[] = {"USER", "GROUP", "NAME", "LEFT", "INJECTED", "FAULT"};
	struct groups g;
	int64_t now = clock_now_ns();
	int code = groups_open(&g, &a->o, false);
	if (code)
		return code;
	size_t skip = a->o.all_users ? 0 : 1;
	struct table *t = table_new(headers + skip, 6 - skip);
	table_style(t, -1, 3u << (3 - skip));
	if (a->o.is_json)
		fputs("{\"groups\":[", stdout);
	for (size_t i = 0; i < g.n; i++) {
		const struct region *r = &g.at[i].region;
		bool is_alive = faults_admin_has_members(r, group_member_lives, &g.at[i]);
		if (a->o.is_json) {
			static char json_at[65536];
			struct text json = TEXT_ON(json_at);
			json_at[0] = '\0';
			text_fmt(&json, "%s{\"group\":", i ? "," : "");
			text_json(&json, g.at[i].name);
			text_str(&json, ",\"faults\":");
			if (is_alive)
				faults_admin_list(&json, r, NULL, now);
			else
				text_str(&json, "[]");
			text_char(&json, '}');
			fputs(json_at, stdout);
			continue;
		}
		struct fault_shown shown;
		for (int at = 0; is_alive && (at = faults_admin_next(r, (uint32_t)at, now, &shown)) >= 0; at++) {
			char left[24], hits[24];
			left_text(left, sizeof left, shown.left_ns);
			snprintf(hits, sizeof hits, "%llu", (unsigned long long)shown.hits);
			const char *cells[] = {g.at[i].user, g.at[i].name, shown.name, left, hits, shown.spec};
			table_row(t, cells + skip);
		}
	}
	if (a->o.is_json)
		puts("]}");
	else
		table_print(t);
	groups_close(&g);
	return EXIT_DONE;
}

/* name null: all. */
static int take_out(const struct asked *a, const char *name)
{
	struct groups g;
	unsigned removed = 0;
	int code = groups_open(&g, &a->o, true);
	if (code)
		return code;
	for (size_t i = 0; i < g.n; i++) {
		unsigned here = faults_admin_remove(&g.at[i].region, name, clock_now_ns());
		if (here && !a->o.is_json)
			printf(out_is_terminal() ? "%u lifted in group %s\n" : "%u\t%s\n", here, g.at[i].name);
		removed += here;
	}
	if (a->o.is_json)
		printf("{\"lifted\":%u}\n", removed);
	if (name && !removed) {
		fprintf(stderr, "resil fault: no fault %s was added; 'resil fault ls%s' lists them\n", name,
			options_again(&a->o, NULL));
		code = EXIT_ABSENT;
	}
	groups_close(&g);
	return code;
}

static int run_fault(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, HOW_LONG, {0}};
	struct asked a = {0};
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		int code = how_long_take(verb, &a.how_long, option);
		if (code == OPTION_IS_ANOTHER)
			code = options_take(verb, &a.o, option);
		if (code >= 0)
			return code;
	}
	char **words = argv + optind;
	int n = argc - optind;
	const char *what = n > 0 ? words[0] : "";
	if (strcmp(what, "add") == 0)
		return add(verb, &a, words + 1, n - 1);
	if (a.how_long.for_ns || a.how_long.is_forever)
		return usage_error(verb, "--for and --forever are of 'resil fault add'");
	if (strcmp(what, "ls") == 0 && n == 1)
		return list(&a);
	if (strcmp(what, "clear") == 0 && n == 1)
		return take_out(&a, NULL);
	if (strcmp(what, "rm") == 0 && n == 2)
		return take_out(&a, words[1]);
	return usage_error(verb, "add TYPE DEST [KEY=VALUE]..., ls, rm NAME or clear is due");
}

#define TYPE_LINE(name, text, has, needs, at, unless_told, sentence) "  " text ": " sentence "\n"
#define PARAM_LINE(name, text, kind, initial, min, max, sentence) "  " text "=: " sentence "\n"
const struct verb verb_fault = {
	.name = "fault",
	.arguments = "add|ls|rm|clear [TYPE DEST [KEY=VALUE]... --for TIME|--forever] [NAME] [-g GROUP] [-p PID] "
		     "[--all-users] [--json]",
	.summary = "injects faults into programs that run",
	.help = "add puts a fault in force in every process of the group, from its next call on; without -g in every "
		"group "
		"of yours\nthat has a living process. rm lifts the one called NAME, clear all of them. A fault ends "
		"with "
		"its time, and with the last\nprocess of its group. Breakers, deadlines and fallbacks meet it as they "
		"would meet the real thing.\n\n"
		"Types:\n" FAULT_TYPES(
			TYPE_LINE) "\nKeys (name=NAME names it; resil.conf(5) tells which are of which "
				   "type):\n" FAULT_PARAMS(
					   PARAM_LINE) "\nOptions:\n      --for TIME      until then (10m, 90s, 1h; at "
						       "most 8760h)\n"
						       "      --forever       until the last process of the group has "
						       "ended; add takes one of the two\n" OPTIONS_HELP
						       "\nExample:\n  resil fault add refuse api.internal:443 "
						       "percent=30% --for 10m\n\n"
						       "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no such fault, "
						       "group or living process, 4 not permitted.\n",
	.run = run_fault,
};
