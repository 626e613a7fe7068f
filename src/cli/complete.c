/* resil complete -- WORD...: what may stand in place of the last word. The shells' completions (conf/completion) ask
 * this, so that verbs, options and keys have no second list: they come from the table of verbs with their help, and
 * from keys.h. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "control/nearby.h"
#include "core/registry.h"
#include "policy/keys.h"

static const char *prefix;

static void offer(const char *word, const char *meaning)
{
	if (strncmp(word, prefix, strlen(prefix)) != 0)
		return;
	for (const char *p = word; *p; p++)
		if ((unsigned char)*p <= 0x20 || *p == 0x7f)
			return; /* a shell would not take it as one word */
	printf("%s\t%s\n", word, meaning);
}

static void offer_verbs(void)
{
	const struct verb *v;
	for (size_t i = 0; (v = verb_at(i)) != NULL; i++)
		offer(v->name, v->summary);
}

static void offer_groups(bool is_destinations)
{
	struct options o = {0};
	struct groups g;
	char name[REGION_NAME_MAX + 1], state[48];
	if (groups_open(&g, &o, false))
		return;
	for (size_t i = 0; i < g.n; i++) {
		const struct region *r = &g.at[i].region;
		if (!is_destinations) {
			offer(g.at[i].name, "group");
			continue;
		}
		for (int d = registry_next(r, 0); d >= 0; d = registry_next(r, (uint32_t)d + 1)) {
			struct circuit_view v;
			circuit_view(r, (uint32_t)d, 0, &v);
			registry_name(r, (uint32_t)d, name);
			state_text(state, sizeof state, &v);
			offer(name, state);
		}
	}
	groups_close(&g);
}

static void offer_keys(void)
{
#define X(name, text, type, field, initial, min, max, sentence) offer(text "=", sentence);
	POLICY_KEYS(X)
#undef X
}

/* ---- options, as the help has them: "  -g, --group GROUP   this group only" ---- */

struct option_line {
	char brief[3], full[32], argument[32];
	char meaning[128];
};

static bool option_at(const char *line, struct option_line *o)
{
	const char *p = line + strspn(line, " ");
	memset(o, 0, sizeof *o);
	if (p == line || *p != '-')
		return false;
	if (p[1] != '-') {
		snprintf(o->brief, sizeof o->brief, "%.2s", p);
		p += 2 + (p[2] == ',' ? 2 : 0);
	}
	size_t n = strncmp(p, "--", 2) == 0 ? strcspn(p, " \n") : 0;
	snprintf(o->full, sizeof o->full, "%.*s", (int)n, p);
	p += n;
	if (*p == ' ' && p[1] >= 'A' && p[1] <= 'Z') {
		n = strcspn(++p, " \n");
		snprintf(o->argument, sizeof o->argument, "%.*s", (int)n, p);
		p += n;
	}
	p += strspn(p, " ");
	snprintf(o->meaning, sizeof o->meaning, "%.*s", (int)strcspn(p, "\n"), p);
	return o->full[0] || o->brief[0];
}

/* The option that this word is, of this verb. */
static bool option_of(const struct verb *v, const char *word, struct option_line *o)
{
	for (const char *line = v->help; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (option_at(line, o) && (strcmp(word, o->full) == 0 || strcmp(word, o->brief) == 0))
			return true;
	return false;
}

static void offer_options(const struct verb *v)
{
	struct option_line o;
	for (const char *line = v->help; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (option_at(line, &o))
			offer(o.full[0] ? o.full : o.brief, o.meaning);
}

static void offer_argument(const char *what)
{
	if (strcmp(what, "GROUP") == 0)
		offer_groups(false);
	else if (strcmp(what, "KEY=VALUE") == 0)
		offer_keys();
	else if (strcmp(what, "FILE") == 0 || strcmp(what, "DIR") == 0)
		puts(":files");
	else if (strcmp(what, "ORDER") == 0)
		for (const char *const *w =
				(const char *const[]){"state", "name", "calls", "errors", "retry", "p99", NULL};
			*w; w++)
			offer(*w, "order");
	else if (strcmp(what, "TIME") == 0)
		for (const char *const *w = (const char *const[]){"10s", "1m", "10m", "1h", NULL}; *w; w++)
			offer(*w, "time");
}

/* The words a|b|c among the arguments. */
static void offer_choices(const char *arguments)
{
	const char *bar = strchr(arguments, '|'), *from = bar;
	while (bar && from > arguments && from[-1] >= 'a' && from[-1] <= 'z')
		from--;
	while (bar && *from >= 'a' && *from <= 'z') {
		char word[32];
		size_t n = strspn(from, "abcdefghijklmnopqrstuvwxyz");
		snprintf(word, sizeof word, "%.*s", (int)n, from);
		offer(word, "");
		from += n + (from[n] == '|');
	}
}

static void offer_operand(const struct verb *v, unsigned nth)
{
	const char *a = v->arguments;
	bool is_destination =
		strncmp(a, "DEST", 4) == 0 || strncmp(a, "[DEST", 5) == 0 || strncmp(a, "HOST:PORT", 9) == 0;
	if (is_destination && nth == 0)
		offer_groups(true);
	else if (is_destination && nth == 1)
		offer_choices(a);
	else if (nth > 0)
		return;
	else if (strncmp(a, "[VERB", 5) == 0)
		offer_verbs();
	else if (strncmp(a, "[FILE", 5) == 0)
		puts(":files");
	else if (strncmp(a, "[COMMAND", 8) == 0)
		puts(":commands");
}

static int run_complete(const struct verb *verb, int argc, char **argv)
{
	struct option_line o;
	const struct verb *v;
	unsigned operands = 0;

	if (argc < 3 || strcmp(argv[1], "--") != 0) {
		if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
			verb_print_help(verb, stdout);
			return EXIT_DONE;
		}
		return usage_error(verb, "the words so far are due after --");
	}
	argv += 2;
	argc -= 2;
	prefix = argv[argc - 1];
	if (argc == 1) {
		offer_verbs();
		return EXIT_DONE;
	}
	v = verb_find(argv[0]);
	if (!v)
		return EXIT_DONE;
	for (int i = 1; i < argc - 1; i++) {
		bool is_end = strcmp(argv[i], "--") == 0;
		if (v == &verb_run && (is_end || argv[i][0] != '-')) {
			puts(is_end && i + 1 == argc - 1 ? ":commands" : ":files");
			return EXIT_DONE;
		}
		if (option_of(v, argv[i], &o) && o.argument[0]) {
			if (i + 1 == argc - 1) {
				offer_argument(o.argument);
				return EXIT_DONE;
			}
			i++;
		} else if (argv[i][0] != '-') {
			operands++;
		}
	}
	if (prefix[0] == '-')
		offer_options(v);
	else if (v == &verb_run)
		puts(":commands");
	else
		offer_operand(v, operands);
	return EXIT_DONE;
}

const struct verb verb_complete = {
	.name = "complete",
	.arguments = "-- WORD...",
	.summary = "what may come next on a command line, for shells",
	.help = "Prints what may stand in place of the last of the words that follow 'resil', a line each with its "
		"meaning after a "
		"tab;\n"
		":files and :commands stand for what the shell knows itself. bash, zsh and fish ask it by themselves "
		"where their\n"
		"completions are installed.\n\n"
		"Example:\n  resil complete -- force ''\n\nExit codes: 0 done, 2 wrong usage.\n",
	.run = run_complete,
};
