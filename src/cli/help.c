/* resil help [VERB], resil version. */
#include "cli/cli.h"

#include <string.h>

static void print_list(void)
{
	const struct verb *v;
	printf("resil guards the connections of unmodified programs: circuit breakers and time limits by "
	       "LD_PRELOAD.\n\n"
	       "Usage: resil VERB [OPTIONS]\n\n");
	for (size_t i = 0; (v = verb_at(i)) != NULL; i++)
		printf("  %-9s %s\n", v->name, v->summary);
	printf("\n'resil help VERB' tells more. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration,\n"
	       "3 no such destination or group, 4 not permitted.\n");
}

static void print_json(const struct verb *v)
{
	char at[16384] = "";
	struct text t = TEXT_ON(at);
	text_str(&t, "{\"verb\":");
	text_json(&t, v->name);
	text_str(&t, ",\"arguments\":");
	text_json(&t, v->arguments);
	text_str(&t, ",\"summary\":");
	text_json(&t, v->summary);
	text_str(&t, ",\"help\":");
	text_json(&t, v->help);
	printf("%s}", at);
}

static int run_help(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
	struct options o = {0};
	const struct verb *wanted = NULL, *v;
	int option;

	while ((option = getopt_long(argc, argv, "jh", longs, NULL)) != -1) {
		int code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (argc - optind > 1)
		return usage_error(verb, "one verb at a time, not also '%s'", argv[optind + 1]);
	if (optind < argc && !(wanted = verb_find(argv[optind])))
		return unknown_verb(argv[optind]);
	if (!o.is_json) {
		if (wanted)
			verb_print_help(wanted, stdout);
		else
			print_list();
		return EXIT_DONE;
	}
	fputs("{\"verbs\":[", stdout);
	for (size_t i = 0; !wanted && (v = verb_at(i)) != NULL; i++) {
		fputs(i ? "," : "", stdout);
		print_json(v);
	}
	if (wanted)
		print_json(wanted);
	puts("]}");
	return EXIT_DONE;
}

const struct verb verb_help = {
	.name = "help",
	.arguments = "[VERB] [--json]",
	.summary = "this, or what a verb does",
	.help = "Lists the verbs, or tells about one: usage, options, an example, exit codes.\n\n"
		"Example:\n  resil help force\n\nExit codes: 0 done, 2 no such verb.\n",
	.run = run_help,
};

static int run_version(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
	struct options o = {0};
	int option;
	while ((option = getopt_long(argc, argv, "jh", longs, NULL)) != -1) {
		int code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return usage_error(verb, "'%s' is too much", argv[optind]);
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
