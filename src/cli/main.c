/* The table of verbs. */
#include "cli/cli.h"

#include <stdarg.h>
#include <string.h>

#include "control/nearby.h"

static const struct verb *const verbs[] = {
	&verb_run,
	&verb_status,
	&verb_top,
	&verb_why,
	&verb_events,
	&verb_which,
	&verb_check,
	&verb_doctor,
	&verb_advise,
	&verb_verify,
	&verb_fault,
	&verb_force,
	&verb_reset,
	&verb_off,
	&verb_on,
	&verb_reload,
	&verb_members,
	&verb_metrics,
	&verb_export,
	&verb_replay,
	&verb_complete,
	&verb_version,
	&verb_help,
};

const struct verb *verb_at(size_t i)
{
	return i < sizeof verbs / sizeof verbs[0] ? verbs[i] : NULL;
}

const struct verb *verb_find(const char *name)
{
	const struct verb *v;
	for (size_t i = 0; (v = verb_at(i)) != NULL; i++)
		if (strcmp(v->name, name) == 0)
			return v;
	return NULL;
}

void verb_print_help(const struct verb *v, FILE *to)
{
	fprintf(to, "Usage: resil %s%s%s\n\n%s", v->name, v->arguments[0] ? " " : "", v->arguments, v->help);
}

int usage_error(const struct verb *verb, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fprintf(stderr, "resil %s: ", verb->name);
	vfprintf(stderr, fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): va_start is above */
	va_end(ap);
	fprintf(stderr, "\nTry 'resil help %s'.\n", verb->name);
	return EXIT_USAGE;
}

int unknown_verb(const char *name)
{
	const struct verb *v, *nearest = NULL;
	unsigned least = 256;
	for (size_t i = 0; (v = verb_at(i)) != NULL; i++) {
		unsigned distance = nearby_distance(name, v->name);
		if (distance < least && nearby_is_near(name, v->name)) {
			least = distance;
			nearest = v;
		}
	}
	fprintf(stderr, "resil: no such verb '%s'", name);
	if (nearest)
		fprintf(stderr, "; did you mean '%s'?", nearest->name);
	for (size_t i = 0; !nearest && (v = verb_at(i)) != NULL; i++)
		fprintf(stderr, "%s%s", i ? ", " : "; there are ", v->name);
	fprintf(stderr, "\nTry 'resil help'.\n");
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		verb_help.run(&verb_help, 1, argv);
		return EXIT_USAGE;
	}
	const char *name = argv[1];
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
		name = "version";
	const struct verb *v = verb_find(name);
	if (!v)
		return unknown_verb(name);
	char as[64];
	snprintf(as, sizeof as, "resil %s", v->name);
	argv[1] = as;
	int code = v->run(v, argc - 1, argv + 1);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		perror("resil: standard output");
		return code ? code : EXIT_FAILED;
	}
	return code;
}
