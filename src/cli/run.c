/* resil run: checks, sets the environment, becomes the program. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/binary.h"
#include "cli/settings.h"
#include "cli/shim.h"
#include "policy/ambient.h"
#include "policy/fault.h"

#define JOURNAL_PATH_MAX 511 /* the shim keeps no more of it */

/* ---- the shim ---- */

/* Beside the command's folder `self` (its first n bytes): where make puts it, then where make install does, whatever
 * the prefix. */
static bool find_beside(char *to, size_t cap, const char *self, size_t n)
{
	if (snprintf(to, cap, "%.*s/" SHIM_NAME, (int)n, self) < (int)cap && access(to, R_OK) == 0)
		return true;
	const char *up = n > 0 ? memrchr(self, '/', n) : NULL;
	return up && snprintf(to, cap, "%.*s/lib/" SHIM_NAME, (int)(up - self), self) < (int)cap &&
	       access(to, R_OK) == 0;
}

bool shim_find(char *to, size_t cap)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n > 0) {
		self[n] = '\0';
		const char *slash = strrchr(self, '/');
		if (slash && find_beside(to, cap, self, (size_t)(slash - self)))
			return true;
	}
	snprintf(to, cap, "%s/lib/" SHIM_NAME, RESIL_PREFIX);
	if (access(to, R_OK) == 0)
		return true;
	if (n > 0)
		snprintf(to, cap, "%.*s/" SHIM_NAME " or %s/lib/" SHIM_NAME, (int)(strrchr(self, '/') - self), self,
			RESIL_PREFIX);
	return false;
}

bool shim_is_in(const char *list)
{
	for (const char *p = list; p && *p;) {
		size_t n = strcspn(p, ": \t\n"), m = sizeof SHIM_NAME - 1;
		if (n >= m && memcmp(p + n - m, SHIM_NAME, m) == 0 && (n == m || p[n - m - 1] == '/'))
			return true;
		p += n;
		p += *p != '\0';
	}
	return false;
}

/* The shim first, then what was there, without another copy of the shim. */
static bool preload(const char *shim)
{
	const char *old = getenv("LD_PRELOAD");
	size_t cap = strlen(shim) + (old ? strlen(old) : 0) + 2;
	char *list = malloc(cap);
	if (!list)
		return false;
	struct text t = {.at = list, .cap = cap};
	text_str(&t, shim);
	for (const char *p = old; p && *p;) {
		size_t n = strcspn(p, ": \t\n");
		char one[PATH_MAX];
		if (n > 0 && n < sizeof one) {
			memcpy(one, p, n);
			one[n] = '\0';
			if (!shim_is_in(one)) {
				text_char(&t, ':');
				text_str(&t, one);
			}
		}
		p += n;
		p += *p != '\0';
	}
	bool is_set = setenv("LD_PRELOAD", list, 1) == 0;
	free(list);
	return is_set;
}

/* ---- options ---- */

struct plan {
	const char *config, *group, *journal, *replay;
	char *set, *faults;
	bool has_faults;       /* the configuration has, too */
	const char **settings; /* each -s, room for all of argv */
	size_t n_settings;
	bool is_required, is_verbose;
	int64_t start_ns;    /* what is relative counts from here */
	int64_t deadline_ns; /* absolute, CLOCK_MONOTONIC; 0: none */
};

/* -s KEY=VALUE, onto what RESIL_SET has: later ones win. */
static bool add_setting(struct plan *p, const char *setting)
{
	const char *old = p->set ? p->set : getenv("RESIL_SET");
	char *all;
	if (asprintf(&all, "%s%s%s", old ? old : "", old && old[0] ? ";" : "", setting) < 0)
		return false;
	free(p->set);
	p->set = all;
	p->settings[p->n_settings++] = setting;
	return true;
}

/* --fault SPEC, onto what RESIL_FAULTS has: a line each. */
static bool add_fault(struct plan *p, const char *spec)
{
	const char *old = p->faults ? p->faults : getenv("RESIL_FAULTS");
	char *all;
	if (asprintf(&all, "%s%s%s", old ? old : "", old && old[0] ? "\n" : "", spec) < 0)
		return false;
	free(p->faults);
	p->faults = all;
	return true;
}

/* --deadline: the last one holds, as for every option. */
static bool set_deadline(struct plan *p, const char *s, struct text *errors)
{
	int64_t ns = ambient_duration("--deadline", s, errors);
	p->deadline_ns = p->start_ns + ns;
	return ns > 0;
}

static int wrong(const struct verb *verb, const char *what, const char *value)
{
	usage_error(verb, what, value);
	return RUN_FAILED;
}

/* Fills the plan. -1: go on; else the exit code. */
static int read_options(const struct verb *verb, int argc, char **argv, struct plan *p)
{
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'},
		{"group", required_argument, NULL, 'g'},
		{"set", required_argument, NULL, 's'},
		{"deadline", required_argument, NULL, 'd'},
		{"fault", required_argument, NULL, 'f'},
		{"journal", required_argument, NULL, 'J'},
		{"replay", required_argument, NULL, 'R'},
		{"require", no_argument, NULL, 'r'},
		{"verbose", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	char why[400] = "";
	struct text errors = TEXT_ON(why);
	int option;

	p->settings = calloc((size_t)argc, sizeof *p->settings);
	if (!p->settings)
		return RUN_FAILED;
	while ((option = getopt_long(argc, argv, "+c:g:s:vh", longs, NULL)) != -1) {
		switch (option) {
		case 'c':
			if (!optarg[0])
				return wrong(verb, "%s", "a file has a name");
			p->config = optarg;
			break;
		case 'g':
			if (!optarg[0])
				return wrong(verb, "%s", "a group has a name");
			p->group = optarg;
			break;
		case 's':
			if (!strchr(optarg, '=') || strchr(optarg, ';'))
				return wrong(verb, "'%s' is not KEY=VALUE", optarg);
			if (!add_setting(p, optarg))
				return RUN_FAILED;
			break;
		case 'd':
			if (strcmp(optarg, "--") == 0)
				return wrong(verb, "%s", "--deadline: a time is due, such as 5s");
			if (set_deadline(p, optarg, &errors))
				break;
			why[strcspn(why, "\n")] = '\0';
			return wrong(verb, "%s", why);
		case 'f':
			if (strchr(optarg, '\n') || strspn(optarg, " \t") == strlen(optarg))
				return wrong(verb, "'%s' is no fault: TYPE DESTINATION [KEY=VALUE]...", optarg);
			if (!add_fault(p, optarg))
				return RUN_FAILED;
			break;
		case 'J': p->journal = optarg; break;
		case 'R': p->replay = optarg; break;
		case 'r': p->is_required = true; break;
		case 'v': p->is_verbose = true; break;
		case 'h': verb_print_help(verb, stdout); return EXIT_DONE;
		default: fprintf(stderr, "Try 'resil help run'.\n"); return RUN_FAILED;
		}
	}
	return optind < argc ? -1 : wrong(verb, "%s", "a program to run is due");
}

/* ---- checks ---- */

/* The -s that a fault of RESIL_SET is from, null: none. Its keys are read one by one, so each -s has the same line for
 * itself. */
static const char *setting_at_fault(const struct plan *p, const char *line, size_t n)
{
	for (size_t i = 0; i < p->n_settings; i++) {
		char why[8192] = "";
		struct text errors = TEXT_ON(why);
		struct config_source source = {.set = p->settings[i]};
		int faults = 0;
		struct config *c = config_load(&source, &errors, &faults);
		if (c)
			config_free(c);
		if (faults && strncmp(why, line, n) == 0 && (why[n] == '\n' || why[n] == '\0'))
			return p->settings[i];
	}
	return NULL;
}

static void print_faults(const struct plan *p, const struct settings *s)
{
	static const char name[] = "RESIL_SET", faults[] = "RESIL_FAULTS";
	size_t skip = sizeof name - 1;
	for (const char *line = s->errors; *line;) {
		size_t n = strcspn(line, "\n");
		const char *setting = strncmp(line, name, skip) == 0 ? setting_at_fault(p, line, n) : NULL;
		if (p->faults && strncmp(line, faults, sizeof faults - 1) == 0)
			fprintf(stderr, "--fault%.*s\n", (int)(n - (sizeof faults - 1)), line + sizeof faults - 1);
		else if (setting)
			fprintf(stderr, "-s %s%.*s\n", setting, (int)(n - skip), line + skip);
		else
			fprintf(stderr, "%.*s\n", (int)n, line);
		line += n + (line[n] == '\n');
	}
	if (s->is_cut)
		fputs("(and more)\n", stderr);
}

static bool configuration_is_right(struct plan *p)
{
	struct settings s;
	if (!settings_load_checked(&s, p->config, p->set ? p->set : getenv("RESIL_SET"),
		    p->faults ? p->faults : getenv("RESIL_FAULTS"))) {
		fputs("resil run: no memory for the configuration\n", stderr);
		return false;
	}
	if (!p->is_verbose) /* which sets it */
		settings_check_log(&s, true);
	bool is_right = s.faults == 0;
	p->has_faults = config_fault(s.config, 0) != NULL;
	print_faults(p, &s);
	settings_free(&s);
	return is_right;
}

/* -1: it can be started; else the exit code. */
static int check_program(const struct plan *p, const char *command)
{
	static struct binary b;
	binary_look(&b, command);
	switch (b.reach) {
	case BINARY_REACHED: return -1;
	case BINARY_UNREACHED: fprintf(stderr, "resil run: %s\n", b.why); return p->is_required ? RUN_CANNOT : -1;
	case BINARY_ABSENT: fprintf(stderr, "resil run: %s\n", b.why); return RUN_ABSENT;
	default: fprintf(stderr, "resil run: %s\n", b.why); return RUN_CANNOT;
	}
}

/* An outer deadline can only be shortened (C4). False: it was said what is wrong with it. */
static bool take_ambient(struct plan *p)
{
	char why[1000] = "";
	struct text errors = TEXT_ON(why);
	int64_t outer = ambient_read(getenv("RESIL_DEADLINE_AT"), getenv("RESIL_DEADLINE"), p->start_ns, &errors);
	for (char *line = strtok(why, "\n"); line; line = strtok(NULL, "\n"))
		fprintf(stderr, "resil run: %s\n", line);
	p->deadline_ns = ambient_earlier(p->deadline_ns, outer);
	return errors.len == 0;
}

/* The absolute one says all: the relative one would start anew in every process. */
static bool set_ambient(const struct plan *p)
{
	char at[24];
	if (p->deadline_ns == 0)
		return true;
	snprintf(at, sizeof at, "%lld", (long long)p->deadline_ns);
	return setenv("RESIL_DEADLINE_AT", at, 1) == 0 && unsetenv("RESIL_DEADLINE") == 0;
}

/* As it is from here, wherever the program goes. */
static bool set_path(const char *name, const char *path)
{
	char here[PATH_MAX], full[2 * PATH_MAX];
	if (!path)
		return true;
	if (path[0] == '/' || !getcwd(here, sizeof here))
		return setenv(name, path, 1) == 0;
	snprintf(full, sizeof full, "%s/%s", here, path);
	return setenv(name, full, 1) == 0;
}

/* Is its first line one that a journal has (fault_decide.c)? An empty one hit nothing. */
static bool is_journal(const char *path)
{
	char line[512];
	int after = 0;
	FILE *f = fopen(path, "re");
	bool is_one = f && (!fgets(line, sizeof line, f) ||
				   (sscanf(line, "hit %*s %*s %*u %*s%n", &after) == 0 && after > 0) ||
				   (sscanf(line, "miss %*s %*s %*u %*s%n", &after) == 0 && after > 0));
	if (f)
		fclose(f);
	return is_one;
}

/* The shim says nothing where it can neither write the one nor read the other: it is told here. */
static bool journals_are_right(const struct plan *p)
{
	struct stat st;
	const char *why = NULL;
	char here[PATH_MAX];
	size_t most = JOURNAL_PATH_MAX, before = getcwd(here, sizeof here) ? strlen(here) + 1 : 0;
	if (p->replay) {
		if (strlen(p->replay) + (p->replay[0] == '/' ? 0 : before) > most)
			why = "the path is too long";
		else if (stat(p->replay, &st) != 0 || access(p->replay, R_OK) != 0)
			why = strerror(errno);
		else if (!S_ISREG(st.st_mode))
			why = "not a regular file";
		else if (!is_journal(p->replay))
			why = "no journal: its first line is not 'hit' or 'miss', a fault's name, a call, its number, "
			      "a "
			      "destination";
		if (why) {
			fprintf(stderr, "resil run: --replay: %s: %s\n", p->replay, why);
			return false;
		}
	}
	if (p->journal) {
		int fd = open(p->journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		if (strlen(p->journal) + (p->journal[0] == '/' ? 0 : before) > most)
			why = "the path is too long";
		else if (fd < 0)
			why = errno == ELOOP ? "a symbolic link" : strerror(errno);
		if (fd >= 0)
			close(fd);
		if (why)
			fprintf(stderr, "resil run: --journal: %s: %s\n", p->journal, why);
	}
	return !why;
}

static bool set_environment(const struct plan *p)
{
	char absolute[PATH_MAX];
	bool is_set = true;
	/* The program may change its directory before the shim reads the file again. */
	if (p->config)
		is_set &= setenv("RESIL_CONF", realpath(p->config, absolute) ? absolute : p->config, 1) == 0;
	if (p->group)
		is_set &= setenv("RESIL_GROUP", p->group, 1) == 0;
	if (p->set)
		is_set &= setenv("RESIL_SET", p->set, 1) == 0;
	if (p->is_verbose)
		is_set &= setenv("RESIL_LOG", "stderr", 1) == 0;
	if (p->faults)
		is_set &= setenv("RESIL_FAULTS", p->faults, 1) == 0;
	/* Numbers begin anew with each run, and times count from its start. */
	if (p->has_faults) {
		char run[24];
		snprintf(run, sizeof run, "%lld", (long long)p->start_ns);
		is_set &= setenv("RESIL_RUN", run, 1) == 0;
	}
	is_set &= set_path("RESIL_JOURNAL", p->journal) && set_path("RESIL_REPLAY", p->replay);
	return is_set && set_ambient(p);
}

static int run_run(const struct verb *verb, int argc, char **argv)
{
	char shim[PATH_MAX];
	struct plan p = {.start_ns = clock_now_ns()};

	int code = read_options(verb, argc, argv, &p);
	if (code >= 0)
		return code;
	char **command = argv + optind;
	if (!take_ambient(&p) || !configuration_is_right(&p) || !journals_are_right(&p)) {
		fprintf(stderr, "resil run: %s is not started\n", command[0]);
		return RUN_FAILED;
	}
	if (!shim_find(shim, sizeof shim)) {
		fprintf(stderr, "resil run: the shim is not found at %s\n", shim);
		return RUN_FAILED;
	}
	code = check_program(&p, command[0]);
	if (code >= 0)
		return code;
	if (!set_environment(&p) || !preload(shim)) {
		fputs("resil run: no memory for the environment\n", stderr);
		return RUN_FAILED;
	}
	execvp(command[0], command);
	int err = errno;
	fprintf(stderr, "resil run: %s: %s\n", command[0], strerror(err));
	return err == ENOENT ? RUN_ABSENT : RUN_CANNOT;
}

const struct verb verb_run = {
	.name = "run",
	.arguments = "[-c FILE] [-g GROUP] [-s KEY=VALUE]... [--deadline TIME] [--fault SPEC]... [--require] [-v] [--] "
		     "PROGRAM "
		     "[ARGUMENT]...",
	.summary = "runs a program under the shim",
	.help = "Checks the configuration and whether the shim can reach the program, then becomes the program, with "
		"LD_PRELOAD set.\n\n"
		"Options:\n"
		"  -c, --config FILE    this configuration (RESIL_CONF)\n"
		"  -g, --group GROUP    shares its circuits with this group (RESIL_GROUP; default: by the program's "
		"name)\n"
		"  -s, --set KEY=VALUE  overrides a value of [defaults] (RESIL_SET); may repeat\n"
		"      --deadline TIME  what the program and all it starts have left from now on, such as 5s "
		"(RESIL_DEADLINE_AT);\n"
		"                       inside another one it can only shorten\n"
		"      --fault SPEC     injects a fault: 'TYPE DEST [KEY=VALUE]...' ('resil help fault' has types and "
		"keys); may "
		"repeat\n"
		"      --journal FILE   writes down which calls faults have hit and which not\n"
		"      --replay FILE    hits the calls that were hit in that journal, and no others\n"
		"      --require        does not start a program that the shim cannot reach (126)\n"
		"  -v, --verbose        the shim logs to stderr (RESIL_LOG=stderr)\n\n"
		"Example:\n  resil run -s connect_timeout=300ms curl http://api.internal/\n\n"
		"Exit codes: the program's own; 125 resil failed or the configuration or a deadline has faults,\n"
		"126 the program cannot be run, 127 it is not found.\n",
	.run = run_run,
};
