/* Options that verbs share. */
#include "cli/cli.h"

#include <stdlib.h>

#include "base/clock.h"
#include "control/params.h"
#include "core/identity.h"

int options_take(const struct verb *verb, struct options *o, int option)
{
	char *end;
	switch (option) {
	case 'g': o->group = optarg; return optarg[0] ? -1 : usage_error(verb, "a group has a name");
	case 'j': o->is_json = true; return -1;
	case 'A': o->all_users = true; return -1;
	case 'p': {
		long pid = strtol(optarg, &end, 10);
		if (*end || pid <= 0 || pid > 0x7fffffff)
			return usage_error(verb, "'%s' is no process id", optarg);
		o->pid = (pid_t)pid;
		return -1;
	}
	case 'h': verb_print_help(verb, stdout); return EXIT_DONE;
	default: fprintf(stderr, "Try 'resil help %s'.\n", verb->name); return EXIT_USAGE;
	}
}

int option_time(const struct verb *verb, const char *given, int64_t *ns)
{
	if (params_duration(given, ns) && *ns >= NS_PER_MS)
		return -1;
	return usage_error(verb, "'%s' is no time; 10m, 90s and 1h are", given);
}

int how_long_take(const struct verb *verb, struct how_long *h, int option)
{
	if (option == 'F') {
		int wrong = option_time(verb, optarg, &h->for_ns);
		if (wrong < 0 && h->for_ns > PARAMS_HOLDS_MAX_NS)
			wrong = usage_error(verb,
				"'%s' is too long: 8760h (a year) is the most; --forever holds until told otherwise",
				optarg);
		return wrong;
	}
	if (option != 'E')
		return OPTION_IS_ANOTHER;
	h->is_forever = true;
	return -1;
}

int how_long_check(const struct verb *verb, const struct how_long *h, const char *why)
{
	if (h->for_ns && h->is_forever)
		return usage_error(verb, "--for and --forever exclude each other");
	return h->for_ns || h->is_forever ? -1 : usage_error(verb, "say --for 10m or --forever%s", why);
}

const char *options_again(const struct options *o, const char *group)
{
	static char at[GROUP_MAX + 64];
	struct text t = TEXT_ON(at);
	at[0] = '\0';
	if (!group)
		group = o->group;
	if (group)
		text_fmt(&t, " -g %s", group);
	if (o->pid)
		text_fmt(&t, " -p %d", (int)o->pid);
	if (o->all_users)
		text_str(&t, " --all-users");
	return at;
}
