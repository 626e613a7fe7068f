/* resil doctor: is the house in order, can the shim reach a program, is it in a process and what does it see there. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/binary.h"
#include "cli/doctor.h"
#include "cli/settings.h"
#include "cli/shim.h"
#include "core/bypass.h"
#include "core/identity.h"

/* ---- findings ---- */

static bool is_json;
static size_t findings, problems;

void doctor_say(enum doctor_verdict verdict, const char *topic, const char *fmt, ...)
{
	static const char *const words[] = {"ok", "note", "problem"};
	char text[2048], json_at[16384] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap); /* NOLINT(clang-analyzer-valist.Uninitialized): va_start is above */
	va_end(ap);
	problems += verdict == DOCTOR_PROBLEM;
	if (is_json) {
		struct text t = TEXT_ON(json_at);
		text_fmt(&t, "%s{\"verdict\":\"%s\",\"topic\":", findings ? "," : "", words[verdict]);
		text_json(&t, topic);
		text_str(&t, ",\"text\":");
		text_json(&t, text);
		text_char(&t, '}');
		fputs(json_at, stdout);
	} else if (out_is_terminal()) {
		printf("%-8s %-14s %s\n", words[verdict], topic, text);
	} else {
		printf("%s\t%s\t%s\n", words[verdict], topic, text);
	}
	findings++;
}

/* ---- the environment ---- */

/* what: what follows where it is not there and cannot be made. */
static void look_at_dir(const char *topic, const char *dir, const char *what)
{
	char why_at[256] = "";
	struct text why = TEXT_ON(why_at);
	int err = identity_check_dir(dir, geteuid(), &why);
	if (err == -ENOENT) {
		char above[256];
		text_copy(above, sizeof above, dir);
		char *slash = strrchr(above, '/');
		if (slash && slash != above)
			*slash = '\0';
		if (slash && slash != above && access(above, W_OK | X_OK) != 0)
			doctor_say(DOCTOR_PROBLEM, topic, "%s cannot be made: %s cannot be written (%s): %s", dir,
				above, strerror(errno), what);
		else
			doctor_say(DOCTOR_OK, topic, "%s is not there yet; the first guarded program makes it", dir);
	} else if (err)
		doctor_say(DOCTOR_PROBLEM, topic, "%s %s", dir, why_at);
	else
		doctor_say(DOCTOR_OK, topic, "%s", dir);
}

static void look_at_dirs(void)
{
	char dir[256];
	if (identity_state_dir(dir, sizeof dir, geteuid(), own_getenv)) {
		look_at_dir("state", dir, "each process has circuits of its own");
	} else {
		doctor_say(DOCTOR_PROBLEM, "state", "RESIL_STATE_DIR is too long");
	}
	if (identity_runtime_dir(dir, sizeof dir, geteuid(), own_getenv))
		look_at_dir("sockets", dir, "there are no sockets");
	else
		doctor_say(DOCTOR_PROBLEM, "sockets", "the runtime directory's name is too long");
}

static void look_at_kernel(void)
{
	struct utsname u;
	if (uname(&u) == 0)
		doctor_say(DOCTOR_OK, "kernel", "%s %s %s", u.sysname, u.release, u.machine);
	/* Each is a fall-back where missing, so a note and no problem. */
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK) != 0)
		doctor_say(DOCTOR_NOTE, "kernel", "no MADV_WIPEONFORK (Linux 4.14): vfork cannot be told from fork");
	if (page != MAP_FAILED)
		munmap(page, 4096);
	if (syscall(SYS_close_range, ~0U, ~0U, 0) != 0 && errno == ENOSYS)
		doctor_say(DOCTOR_NOTE, "kernel", "no close_range (Linux 5.9)");
	if (access("/proc/self/stat", R_OK) != 0)
		doctor_say(DOCTOR_PROBLEM, "kernel",
			"/proc is not mounted: dead processes cannot be told from living ones");
}

static void look_at_namespaces(void)
{
	char file[GROUP_MAX + 64];
	if (identity_region_file(file, sizeof file, "GROUP", 0))
		doctor_say(DOCTOR_OK, "namespaces", "regions here are called %s", file);
	else
		doctor_say(DOCTOR_PROBLEM, "namespaces", "/proc/self/ns cannot be read: %s", strerror(errno));
}

static void look_at_configuration(void)
{
	struct settings s;
	if (!settings_load(&s, NULL, own_getenv("RESIL_SET")))
		return;
	if (s.faults)
		doctor_say(DOCTOR_PROBLEM, "configuration",
			"%d fault%s in %s: the shim only observes; 'resil check' names them", s.faults,
			s.faults > 1 ? "s" : "", config_file(s.config)[0] ? config_file(s.config) : "RESIL_SET");
	else
		doctor_say(DOCTOR_OK, "configuration", "%s",
			config_file(s.config)[0] ? config_file(s.config) : "built-in defaults");
	char why_at[512] = "";
	struct text why = TEXT_ON(why_at);
	const char *log = own_getenv("RESIL_LOG");
	if (log_check_target(log && *log ? log : config_log(s.config), &why) != 0)
		doctor_say(DOCTOR_PROBLEM, "log", "%s%s", log && *log ? "RESIL_LOG: " : "", why_at);
	settings_free(&s);
}

static void look_at_bypass(void)
{
	struct options o = {0};
	char dir[256], suffix[64], path[300];
	if (own_getenv("RESIL_DISABLE"))
		doctor_say(
			DOCTOR_NOTE, "bypass", "RESIL_DISABLE is set here: programs started with it are not guarded");
	if (bypass_markers("", "") & BYPASS_MACHINE)
		doctor_say(DOCTOR_PROBLEM, "bypass", "the whole machine is off; root undoes it with 'resil on --host'");
	if (groups_place(&o, dir, suffix) == 0) {
		snprintf(path, sizeof path, "%s/off", dir);
		if (access(path, F_OK) == 0)
			doctor_say(DOCTOR_PROBLEM, "bypass", "all groups of this user are off; 'resil on' undoes it");
	}
}

static void say_fault(const char *line)
{
	doctor_say(DOCTOR_NOTE, "fault", "%s", line);
}

static void look_at_regions(void)
{
	struct options o = {0};
	struct groups g;
	char why_at[256];
	if (groups_open(&g, &o, false))
		return;
	for (size_t i = 0; i < g.n; i++) {
		struct text why = TEXT_ON(why_at);
		why_at[0] = '\0';
		if (!region_valid(&g.at[i].region, &why))
			doctor_say(DOCTOR_PROBLEM, "group",
				"%s: the region is damaged: %s; remove %s when none of its programs run", g.at[i].name,
				why_at, g.at[i].path);
		else if (atomic_load(&g.at[i].region.header->is_off) & BYPASS_GROUP)
			doctor_say(DOCTOR_PROBLEM, "group", "%s is off; 'resil on -g %s' undoes it", g.at[i].name,
				g.at[i].name);
		else
			doctor_say(DOCTOR_OK, "group", "%s", g.at[i].name);
		uint64_t full = atomic_load(&g.at[i].region.header->registry_full);
		if (full)
			doctor_say(DOCTOR_PROBLEM, "group",
				"%s: %llu calls ran unguarded for want of a place; raise max_destinations",
				g.at[i].name, (unsigned long long)full);
		uint64_t unseen = atomic_load(&g.at[i].region.header->unseen_streams);
		if (unseen)
			doctor_say(DOCTOR_NOTE, "group",
				"%s: %llu calls of HTTP/2 passed unseen, or their status did: more than 256 streams at "
				"once "
				"on a connection, or header tables far beyond the usual",
				g.at[i].name, (unsigned long long)unseen);
	}
	groups_say_faults_as(&g, &o, say_fault);
	groups_close(&g);
}

static void examine_environment(void)
{
	char shim[4200];
	if (shim_find(shim, sizeof shim))
		doctor_say(DOCTOR_OK, "shim", "%s", shim);
	else
		doctor_say(DOCTOR_PROBLEM, "shim", "not found at %s", shim);
	look_at_dirs();
	look_at_namespaces();
	look_at_kernel();
	look_at_configuration();
	look_at_bypass();
	look_at_regions();
}

/* ---- a program ---- */

static int examine_command(const char *command)
{
	static struct binary b;
	binary_look(&b, command);
	if (b.reach == BINARY_ABSENT || b.reach == BINARY_DENIED) {
		doctor_say(DOCTOR_PROBLEM, "program", "%s", b.why);
		return b.reach == BINARY_ABSENT ? EXIT_ABSENT : EXIT_DENIED;
	}
	doctor_say(DOCTOR_OK, "program", strcmp(b.path, b.program) == 0 ? "%s" : "%s, run by %s", b.path, b.program);
	if (b.reach == BINARY_UNREACHED)
		doctor_say(DOCTOR_PROBLEM, "reach", "%s", b.why);
	else if (b.is_go)
		doctor_say(DOCTOR_PROBLEM, "reach",
			"a Go program: it is loaded, but Go's network code calls the kernel itself; only what goes "
			"through libc (cgo) is seen");
	else
		doctor_say(DOCTOR_OK, "reach", "the shim can reach it: resil run %s", command);
	return EXIT_DONE;
}

static int run_doctor(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
	struct options o = {0};
	int option, code = EXIT_DONE;

	while ((option = getopt_long(argc, argv, "jh", longs, NULL)) != -1) {
		code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (argc - optind > 1)
		return usage_error(verb, "one command or process at a time, not also '%s'", argv[optind + 1]);
	is_json = o.is_json;
	const char *what = optind < argc ? argv[optind] : NULL;
	if (is_json)
		fputs("{\"findings\":[", stdout);
	code = EXIT_DONE;
	if (!what)
		examine_environment();
	else if (what[strspn(what, "0123456789")] == '\0' && what[0])
		code = doctor_examine_process((pid_t)strtol(what, NULL, 10));
	else
		code = examine_command(what);
	if (is_json)
		puts("]}");
	return code ? code : problems ? EXIT_FAILED : EXIT_DONE;
}

const struct verb verb_doctor = {
	.name = "doctor",
	.arguments = "[COMMAND | PID] [--json]",
	.summary = "can the shim reach it, is it in there, what does it see",
	.help = "Without argument: the environment, each line ok, note or problem. COMMAND: whether the shim can reach "
		"that program.\n"
		"PID: whether the shim is in that process, its group and record, and which of its outgoing TCP "
		"connections are guarded.\n\n"
		"Options:\n  -j, --json          {\"findings\":[{\"verdict\",\"topic\",\"text\"}]}\n\n"
		"Example:\n  resil doctor node\n\nExit codes: 0 no problem, 1 a problem, 2 wrong usage, 3 not found, 4 "
		"not permitted.\n",
	.run = run_doctor,
};
