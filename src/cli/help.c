/* resil help [VERB], resil version. */
#include "cli/cli.h"

#include <string.h>

static int run_help(const struct verb *verb, int argc, char **argv)
{
	(void)verb;
	if (argc > 1 && argv[1][0] != '-') {
		const struct verb *wanted = verb_find(argv[1]);
		if (!wanted)
			return usage_error(verb, "no such verb '%s'", argv[1]);
		verb_print_help(wanted, stdout);
		return EXIT_DONE;
	}
	const struct verb *v;
	printf("resil guards the connections of unmodified programs: circuit breakers and time limits by "
	       "LD_PRELOAD.\n\n"
	       "Usage: resil VERB [OPTIONS]\n\n");
	for (size_t i = 0; (v = verb_at(i)) != NULL; i++)
		printf("  %-9s %s\n", v->name, v->summary);
	printf("\n'resil help VERB' tells more. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration,\n"
	       "3 no such destination or group, 4 not permitted.\n");
	return EXIT_DONE;
}

const struct verb verb_help = {
	.name = "help",
	.arguments = "[VERB]",
	.summary = "this, or what a verb does",
	.help = "Lists the verbs, or tells about one: usage, options, an example, exit codes.\n\n"
		"Example:\n  resil help force\n\nExit codes: 0 done, 2 no such verb.\n",
	.run = run_help,
};

static int run_version(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, {0}};
	struct options o = {0};
	int option;
	while ((option = getopt_long(argc, argv, "jh", longs, NULL)) != -1) {
		int code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (o.is_json)
		printf("{\"version\":\"%s\",\"layout\":%d}\n", RESIL_VERSION, REGION_LAYOUT);
	else
		printf("resil %s\n", RESIL_VERSION);
	return EXIT_DONE;
}

const struct verb verb_version = {
	.name = "version",
	.arguments = "[--json]",
	.summary = "the version",
	.help = "Prints the version; with --json also the layout of the shared state that this command reads.\n\n"
		"Example:\n  resil version\n\nExit codes: 0 done, 2 wrong usage.\n",
	.run = run_version,
};
