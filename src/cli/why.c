/* resil why [DEST]: the story of each circuit that is meant. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/story.h"
#include "control/nearby.h"

struct telling {
	struct options o;
	const char *destination;
	size_t told;
};

static void tell(struct telling *w, const struct group *g, uint32_t index, const struct settings *s, pid_t member)
{
	static char at[65536];
	struct text t = TEXT_ON(at);
	struct story story;

	at[0] = '\0';
	story_read(&story, g, index, s, member);
	/* Without a name: those that are not as they should be. */
	if (!w->destination && !view_is_open(&story.view) && !view_is_full(&story.view) &&
		story.view.mode == BREAKER_AUTO && !story.view.degraded)
		return;
	if (w->o.is_json) {
		story_json(&t, &story, &w->o);
		printf("%s%s", w->told ? "," : "", at);
	} else {
		story_text(&t, &story, &w->o);
		for (char *p = at; *p; p++)
			if (((unsigned char)*p < 0x20 && *p != '\n') || *p == 0x7f)
				*p = '?';
		printf("%s%s", w->told ? "\n" : "", at);
	}
	w->told++;
}

static void tell_group(struct telling *w, const struct group *g)
{
	struct settings s;
	pid_t member;
	int found = w->destination ? nearby_find(&g->region, w->destination) : 0;
	if (found < 0)
		return;
	if (!story_settings(&s, g, &member))
		return;
	if (w->destination) {
		tell(w, g, (uint32_t)found, &s, member);
	} else {
		size_t n;
		uint32_t *sorted = groups_sorted(&g->region, &n);
		for (size_t i = 0; sorted && i < n; i++)
			tell(w, g, sorted[i], &s, member);
		free(sorted);
	}
	if (s.faults && !w->o.is_json)
		fprintf(stderr, "resil: %s has faults, with which the shim only observes: 'resil check' names them\n",
			s.path[0] ? s.path : "RESIL_SET");
	settings_free(&s);
}

static int run_why(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, {0}};
	struct telling w = {0};
	struct groups g;
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		int code = options_take(verb, &w.o, option);
		if (code >= 0)
			return code;
	}
	if (argc - optind > 1)
		return usage_error(verb, "one destination at a time, not also '%s'", argv[optind + 1]);
	w.destination = optind < argc ? argv[optind] : NULL;
	int code = groups_open(&g, &w.o, false);
	if (code)
		return code;
	groups_freshen(&g);
	if (w.o.is_json)
		fputs("{\"stories\":[", stdout);
	for (size_t i = 0; i < g.n; i++)
		tell_group(&w, &g.at[i]);
	if (w.o.is_json)
		puts("]}");
	groups_say_bypass(&g, &w.o);
	groups_say_faults(&g, &w.o);
	if (w.told == 0 && w.destination)
		code = groups_lack(&g, w.destination);
	else if (w.told == 0 && g.n == 0)
		fputs("resil: nothing there yet: no guarded program has made a connection\n", stderr);
	else if (w.told == 0)
		fputs("resil: every circuit is closed: resil rejects nothing; what fails, fails at its destination\n",
			stderr);
	groups_close(&g);
	return code;
}

const struct verb verb_why = {
	.name = "why",
	.arguments = "[DEST] [-g GROUP] [-p PID] [--all-users] [--json]",
	.summary = "why a circuit is open, since when, and how to stop it",
	.help = "Tells in plain words what resil does to a destination's calls now, since when, which failures opened "
		"the "
		"circuit,\n"
		"whose rule that was (file and line), when the next probe is due, and the commands that stop it.\n"
		"Without DEST: every circuit that is not closed, is set by hand, or has all places of max_concurrent "
		"taken.\n\n"
		"The rule is looked up in the configuration of a living process of the group, else in the one that a "
		"program started\nhere would have. Failures are counted since the group's first call.\n\n"
		"Options:\n" OPTIONS_HELP "\nExample:\n  resil why api.internal:443\n\n"
		"Exit codes: 0 done, 2 wrong usage, 3 no such destination or group, 4 not permitted.\n",
	.run = run_why,
};
