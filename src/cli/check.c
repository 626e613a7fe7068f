/* resil check, and the reading of the configuration for other verbs. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/settings.h"

#define ERRORS_MAX (1u << 20)

static bool load(struct settings *s, const char *file, const char *set, const char *faults,
	const char *(*getenv_fn)(const char *name), bool looks_at_files)
{
	struct config_source source = {
		.set = set, .faults = faults && *faults ? faults : NULL, .looks_at_files = looks_at_files};
	memset(s, 0, sizeof *s);
	s->errors = malloc(ERRORS_MAX);
	if (!s->errors)
		return false;
	struct text errors = {.at = s->errors, .cap = ERRORS_MAX};
	s->errors[0] = '\0';
	if (file) {
		text_copy(s->path, sizeof s->path, file);
		source.file = file;
	} else if (config_find_file(s->path, sizeof s->path, &source.is_optional, getenv_fn)) {
		source.file = s->path;
	}
	s->config = config_load(&source, &errors, &s->faults);
	s->is_cut = errors.is_cut;
	if (!s->config)
		settings_free(s);
	return s->config != NULL;
}

bool settings_load(struct settings *s, const char *file, const char *set)
{
	return settings_load_as(s, file, set, own_getenv);
}

bool settings_load_as(struct settings *s, const char *file, const char *set, const char *(*getenv_fn)(const char *name))
{
	return settings_load_with(s, file, set, file ? NULL : getenv_fn("RESIL_FAULTS"), getenv_fn);
}

bool settings_load_with(struct settings *s, const char *file, const char *set, const char *faults,
	const char *(*getenv_fn)(const char *name))
{
	return load(s, file, set, faults, getenv_fn, false);
}

bool settings_load_checked(struct settings *s, const char *file, const char *set, const char *faults)
{
	return load(s, file, set, faults, own_getenv, true);
}

void settings_check_log(struct settings *s, bool is_lenient)
{
	char why_at[512] = "";
	struct text why = TEXT_ON(why_at), errors = {.at = s->errors, .cap = ERRORS_MAX, .len = strlen(s->errors)};
	const char *log = own_getenv("RESIL_LOG");
	int err = log ? log_check_target(log, &why) : 0;

	if (err == 0)
		return;
	if (is_lenient && err != -EINVAL) {
		fprintf(stderr, "resil: RESIL_LOG: %s\n", why_at);
		return;
	}
	text_fmt(&errors, "%sRESIL_LOG: %s\n", errors.len && s->errors[errors.len - 1] != '\n' ? "\n" : "", why_at);
	s->is_cut |= errors.is_cut;
	s->faults++;
}

void settings_print_errors(const struct settings *s)
{
	fputs(s->errors, stderr);
	if (s->errors[0] && s->errors[strlen(s->errors) - 1] != '\n')
		fputc('\n', stderr);
	if (s->is_cut)
		fputs("(and more)\n", stderr);
}

void settings_free(struct settings *s)
{
	if (s->config)
		config_free(s->config);
	free(s->errors);
	s->config = NULL;
	s->errors = NULL;
}

static void put_lines(struct text *t, const char *lines)
{
	const char *comma = "";
	for (const char *line = lines; *line;) {
		size_t n = strcspn(line, "\n");
		if (n) {
			text_str(t, comma);
			text_json_n(t, line, n);
			comma = ",";
		}
		line += n + (line[n] == '\n');
	}
}

static void print_json(const struct settings *s, const char *remarks)
{
	size_t cap = (strlen(s->errors) + strlen(remarks)) * 6 + 4096;
	struct text t = {.at = malloc(cap), .cap = cap};
	if (!t.at)
		return;
	t.at[0] = '\0';
	text_fmt(&t, "{\"valid\":%s,\"file\":", s->faults ? "false" : "true");
	if (config_file(s->config)[0])
		text_json(&t, config_file(s->config));
	else
		text_str(&t, "null");
	text_str(&t, ",\"errors\":[");
	put_lines(&t, s->errors);
	text_str(&t, "],\"remarks\":[");
	put_lines(&t, remarks);
	text_str(&t, "]}");
	puts(t.at);
	free(t.at);
}

static int run_check(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
	struct options o = {0};
	struct settings s;
	int option;

	while ((option = getopt_long(argc, argv, "jh", longs, NULL)) != -1) {
		int code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (argc - optind > 1)
		return usage_error(verb, "one file at a time, not also '%s'", argv[optind + 1]);
	const char *file = optind < argc ? argv[optind] : NULL;
	if (file && !file[0])
		return usage_error(verb, "a file has a name");
	if (!settings_load_checked(
		    &s, file, file ? NULL : own_getenv("RESIL_SET"), file ? NULL : own_getenv("RESIL_FAULTS"))) {
		fputs("resil: no memory for the configuration\n", stderr);
		return EXIT_FAILED;
	}
	if (!file)
		settings_check_log(&s, false);
	static char remarks[1u << 16];
	struct text t = TEXT_ON(remarks);
	if (!s.faults)
		settings_remark(&s, &t);
	if (o.is_json)
		print_json(&s, remarks);
	settings_print_errors(&s);
	fputs(remarks, stderr);
	int code = s.faults ? EXIT_USAGE : EXIT_DONE;
	settings_free(&s);
	return code;
}

const struct verb verb_check = {
	.name = "check",
	.arguments = "[FILE] [--json]",
	.summary = "validates the configuration",
	.help = "Reads FILE, or the configuration that a program started here would have (RESIL_SET and RESIL_LOG "
		"included), and "
		"names every\n"
		"fault with its line on stderr; where it has none, also values that are right and do not mean together "
		"what one would\nthink (remarks). Prints nothing when all is right.\n\n"
		"Options:\n  -j, --json          {\"valid\":...,\"errors\":[...],\"remarks\":[...]} on stdout\n\n"
		"Example:\n  resil check /etc/resil/resil.conf\n\nExit codes: 0 right, 2 it has faults.\n",
	.run = run_check,
};
