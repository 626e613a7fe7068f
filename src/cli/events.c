/* resil events [-f] [--since SEQ]. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/story.h"
#include "control/params.h"

struct source {
	struct region region;
	char name[65];
	struct render_cursor cursor;
	bool is_seen;
};

struct watch {
	struct options o;
	bool follows;
	uint64_t since;
	struct source *at;
	size_t n;
};

/* ---- one event ---- */

static void print_plain(const struct source *s, const struct event *e)
{
	char line_at[1024] = "", detail_at[256], time_at[40];
	struct text line = TEXT_ON(line_at), detail = TEXT_ON(detail_at), time = TEXT_ON(time_at);
	bool is_terminal = out_is_terminal();
	const char *destination = e->destination[0] ? e->destination : "-";

	text_time(&time, e->wall_ns);
	detail_at[0] = '\0';
	event_text(&detail, &s->region, e);
	if (is_terminal)
		text_fmt(&line, "%s  %s  %s  %s  %s  (%s %u)", time_at, s->name, destination,
			event_type_name((enum event_type)e->type), detail_at, e->exe, e->pid);
	else
		text_fmt(&line, "%llu\t%s\t%s\t%u\t%s\t%s\t%s\t%s", (unsigned long long)e->seq, time_at, s->name,
			e->pid, e->exe, event_type_name((enum event_type)e->type), destination, detail_at);
	for (char *p = line_at; *p; p++)
		if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
			*p = '?';
	puts(line_at);
}

static void print_event(const struct watch *w, const struct source *s, const struct event *e)
{
	char json_at[8192] = "";
	if (w->o.is_json) {
		struct text json = TEXT_ON(json_at);
		render_event(&json, &s->region, e);
		fputs(json_at, stdout);
	} else {
		print_plain(s, e);
	}
}

/* ---- all of them, by time ---- */

struct found {
	struct event e;
	const struct source *s;
};

static int by_time(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	if (x->e.wall_ns != y->e.wall_ns)
		return x->e.wall_ns < y->e.wall_ns ? -1 : 1;
	return x->e.seq < y->e.seq ? -1 : 1;
}

static void print_new(struct watch *w)
{
	struct found *found = NULL;
	size_t n = 0, room = 0;
	int64_t now_ns = clock_now_ns();

	for (size_t i = 0; i < w->n; i++) {
		for (;;) {
			if (n == room) {
				struct found *more = realloc(found, (room = room ? room * 2 : 256) * sizeof *more);
				if (!more)
					break;
				found = more;
			}
			if (!render_next_event(&w->at[i].region, &w->at[i].cursor, now_ns, &found[n].e))
				break;
			found[n++].s = &w->at[i];
		}
	}
	if (n)
		qsort(found, n, sizeof *found, by_time);
	for (size_t i = 0; i < n; i++)
		print_event(w, found[i].s, &found[i].e);
	free(found);
}

/* Takes groups that are new (also a region made again under the same name), lets go of those that are gone. */
static int look_for_groups(struct watch *w, bool is_first)
{
	struct groups g;
	int code = groups_open(&g, &w->o, false);
	if (code)
		return code;
	for (size_t i = 0; i < w->n; i++)
		w->at[i].is_seen = false;
	for (size_t i = 0; i < g.n; i++) {
		struct source *known = NULL;
		for (size_t k = 0; k < w->n && !known; k++)
			if (w->at[k].region.ino == g.at[i].region.ino && w->at[k].region.dev == g.at[i].region.dev)
				known = &w->at[k];
		if (known) {
			known->is_seen = true;
			region_close(&g.at[i].region);
			continue;
		}
		struct source *more = realloc(w->at, (w->n + 1) * sizeof *more);
		if (!more) {
			region_close(&g.at[i].region);
			continue;
		}
		w->at = more;
		w->at[w->n] = (struct source){.region = g.at[i].region,
			.is_seen = true,
			.cursor = {.seq = is_first ? w->since : 0, .is_patient = w->follows}};
		memcpy(w->at[w->n].name, g.at[i].name, sizeof g.at[i].name);
		w->n++;
	}
	free(g.at);
	size_t kept = 0;
	for (size_t i = 0; i < w->n; i++) {
		if (w->at[i].is_seen)
			w->at[kept++] = w->at[i];
		else
			region_close(&w->at[i].region);
	}
	w->n = kept;
	return 0;
}

static int run_events(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {
		OPTIONS_LONG, {"follow", no_argument, NULL, 'f'}, {"since", required_argument, NULL, 's'}, {0}};
	struct watch w = {0};
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT "fs:", longs, NULL)) != -1) {
		if (option == 'f') {
			w.follows = true;
			continue;
		}
		if (option == 's') {
			if (!params_u64(optarg, &w.since))
				return usage_error(verb, "'%s' is no event's number", optarg);
			continue;
		}
		int code = options_take(verb, &w.o, option);
		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return usage_error(verb, "'%s' is too much", argv[optind]);
	int code = look_for_groups(&w, true);
	if (code) {
		free(w.at);
		return code;
	}
	print_new(&w);
	for (unsigned round = 1; w.follows; round++) {
		if (fflush(stdout) != 0) {
			code = EXIT_FAILED;
			break;
		}
		nanosleep(&(struct timespec){.tv_nsec = NS_PER_S / 10}, NULL);
		/* A group that was asked for by name and whose region is gone for now: wait for the next one, quietly.
		 */
		if (round % 10 == 0 && !w.o.group)
			look_for_groups(&w, false);
		print_new(&w);
	}
	for (size_t i = 0; i < w.n; i++)
		region_close(&w.at[i].region);
	free(w.at);
	return code;
}

const struct verb verb_events = {
	.name = "events",
	.arguments = "[-f] [--since SEQ] [-g GROUP] [-p PID] [--all-users] [--json]",
	.summary = "what happened: transitions, rejections, reloads",
	.help = "Prints the last events of each group (512 are kept), oldest first; in a pipe tab-separated:\n"
		"SEQ TIME GROUP PID EXE TYPE DEST DETAIL.\n\n"
		"Options:\n  -f, --follow        go on with new ones as they come\n"
		"  -s, --since SEQ     only those after this number\n" OPTIONS_HELP
		"\nExample:\n  resil events -f --json | jq 'select(.type == \"transition\")'\n\n"
		"Exit codes: 0 done, 2 wrong usage, 3 no such group, 4 not permitted.\n",
	.run = run_events,
};
