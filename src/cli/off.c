/* resil off, resil on: the bypass. A word in each region's header, seen at the next call, and marker files for groups
 * begun later. The word has a bit for each way in which it was set (core/bypass.h), so that one is undone without the
 * others. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bypass.h"
#include "core/identity.h"

#define HOST_DIR BYPASS_MACHINE_DIR
#define HOST_MARKER BYPASS_MACHINE_MARKER

static int failed(const char *what)
{
	int err = errno;
	fprintf(stderr, "resil: %s: %s\n", what, strerror(err));
	return err == EACCES || err == EPERM ? EXIT_DENIED : EXIT_FAILED;
}

static int set_marker(const char *path, bool is_off)
{
	if (!is_off)
		return unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR ? 0 : failed(path);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return failed(path);
	fchmod(fd, 0644);
	close(fd);
	return 0;
}

/* Every user's shim must be able to look for the marker; the directory is 0700 otherwise, as root's runtime directory.
 */
static int set_host_marker(bool is_off)
{
	if (is_off && mkdir(HOST_DIR, 0711) != 0 && errno != EEXIST)
		return failed(HOST_DIR);
	if (is_off && chmod(HOST_DIR, 0711) != 0)
		return failed(HOST_DIR);
	int code = set_marker(HOST_MARKER, is_off);
	if (!is_off && code == 0)
		chmod(HOST_DIR, 0700);
	return code;
}

static int set_user_marker(const struct options *o, bool is_off)
{
	char dir[256], suffix[64], path[300];
	int code = groups_place(o, dir, suffix);
	if (code)
		return code;
	/* Another process's directory is there, or it has no groups yet; making it through /proc would be made for the
	 * wrong owner. */
	int err = is_off && o->pid == 0 ? identity_make_dir(dir) : 0;
	if (err) {
		errno = -err;
		return failed(dir);
	}
	snprintf(path, sizeof path, "%s/off", dir);
	return set_marker(path, is_off);
}

static void print_json(const struct groups *g)
{
	char at[1024] = "";
	fputs("{\"groups\":[", stdout);
	for (size_t i = 0; i < g->n; i++) {
		struct text t = TEXT_ON(at);
		unsigned bypass = group_bypass(&g->at[i]);
		text_str(&t, "{\"group\":");
		text_json(&t, g->at[i].name);
		text_fmt(&t, ",\"off\":%s,\"bypass\":", bypass ? "true" : "false");
		render_bypass(&t, bypass);
		printf("%s%s}", i ? "," : "", at);
	}
	fputs("]}\n", stdout);
}

static void print_lines(const struct options *o, const struct groups *g, bool is_off)
{
	for (size_t i = 0; i < g->n; i++) {
		const struct group *one = &g->at[i];
		const char *state = !group_bypass(one) ? "on" : is_off || !out_is_terminal() ? "off" : "still off";
		if (!out_is_terminal())
			printf("%s\t%s\n", one->name, state);
		else if (o->all_users)
			printf("group %s of %s is %s\n", one->name, one->user, state);
		else
			printf("group %s is %s\n", one->name, state);
	}
}

/* Sets the flags and tells what holds then, which after `on` may still be another bypass. */
static int set_flags(const struct options *o, bool is_off, unsigned way)
{
	struct groups g;
	int code = groups_open(&g, o, true);
	if (code)
		return code;
	for (size_t i = 0; i < g.n; i++) {
		if (is_off)
			atomic_fetch_or(&g.at[i].region.header->is_off, way);
		else
			atomic_fetch_and(&g.at[i].region.header->is_off, ~way);
	}
	if (o->is_json)
		print_json(&g);
	else
		print_lines(o, &g, is_off);
	bool is_still_off = !is_off && groups_say_bypass(&g, o);
	groups_close(&g);
	return is_still_off ? EXIT_FAILED : EXIT_DONE;
}

static int run_switch(const struct verb *verb, int argc, char **argv, bool is_off)
{
	static const struct option longs[] = {OPTIONS_LONG, {"host", no_argument, NULL, 'H'}, {0}};
	struct options o = {0};
	bool is_host = false;
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		if (option == 'H') {
			is_host = true;
			continue;
		}
		int code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return usage_error(verb, "'%s' is too much; a group is named by -g", argv[optind]);
	if (is_host && (o.group || o.pid))
		return usage_error(verb, "--host is the whole machine: no -g and no -p");
	if (is_host && geteuid() != 0) {
		fputs("resil: --host is root's\n", stderr);
		return EXIT_DENIED;
	}
	/* --all-users alone leaves no marker: it is -g for each group there is. */
	unsigned way = is_host ? BYPASS_MACHINE : o.group || o.all_users ? BYPASS_GROUP : BYPASS_USER;
	o.all_users |= is_host;
	int code = is_host ? set_host_marker(is_off) : o.group || o.all_users ? 0 : set_user_marker(&o, is_off);
	if (code)
		return code;
	code = set_flags(&o, is_off, way);
	if (code == 0 && !o.group && !o.is_json)
		fprintf(stderr, "resil: %s%s%s%s%s\n",
			is_host	      ? "every program on this machine"
			: o.all_users ? "every group of every user"
			: o.pid	      ? "every group of that user, those to come as well,"
				      : "every group of yours, those to come as well,",
			is_off	  ? is_host ? " passes everything through" : " is off"
			: is_host ? " is guarded again"
				  : " is on again",
			is_off ? "; 'resil on" : "",
			!is_off	  ? ""
			: is_host ? " --host"
				  : options_again(&o, NULL),
			is_off ? "' undoes it" : "");
	return code;
}

static int run_off(const struct verb *verb, int argc, char **argv)
{
	return run_switch(verb, argc, argv, true);
}

static int run_on(const struct verb *verb, int argc, char **argv)
{
	return run_switch(verb, argc, argv, false);
}

const struct verb verb_off = {
	.name = "off",
	.arguments = "[-g GROUP] [-p PID] [--all-users] [--host] [--json]",
	.summary = "bypass: everything passes unguarded, seen at the next call",
	.help = "Without options: all groups of this user, those to come as well (a marker file in the state "
		"directory).\n\n"
		"Options:\n" OPTIONS_HELP "      --host          everything on this machine (root; " HOST_MARKER ")\n\n"
		"Example:\n  resil off -g curl\n\nExit codes: 0 done, 2 wrong usage, 3 no such group, 4 not "
		"permitted.\n",
	.run = run_off,
};

const struct verb verb_on = {
	.name = "on",
	.arguments = "[-g GROUP] [-p PID] [--all-users] [--host] [--json]",
	.summary = "ends the bypass",
	.help = "Undoes 'resil off' with the same options. Where another bypass still holds (all groups of the user, "
		"the "
		"machine) it says so: code 1.\n\n"
		"Options:\n" OPTIONS_HELP "      --host          everything on this machine (root)\n\n"
		"Example:\n  resil on -g curl\n\nExit codes: 0 done, 1 still off, 2 wrong usage, 3 no such group, 4 "
		"not "
		"permitted.\n",
	.run = run_on,
};
