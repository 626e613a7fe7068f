/* The command `resil`: a table of verbs (main.c), one file a verb, and what they share. An ordinary program: malloc and
 * stdio are welcome here. It reads the regions' files directly, so it works with no guarded process alive. */
#ifndef RESIL_CLI_CLI_H
#define RESIL_CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/text.h"
#include "control/render.h"
#include "core/region.h"

/* Exit codes (CONTRACT 7); `run` has its own (CONTRACT 2). */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_ABSENT = 3, EXIT_DENIED = 4 };
enum { RUN_FAILED = 125, RUN_CANNOT = 126, RUN_ABSENT = 127 };

struct verb {
	const char *name;
	const char *arguments; /* "[DEST] [--exit-code]" */
	const char *summary;   /* for the list of verbs */
	const char *help;      /* what it does, options, an example, exit codes */
	int (*run)(const struct verb *verb, int argc, char **argv);
};

extern const struct verb verb_run, verb_status, verb_top, verb_why, verb_events, verb_which, verb_check, verb_doctor,
	verb_advise, verb_verify, verb_fault, verb_force, verb_reset, verb_off, verb_on, verb_reload, verb_metrics,
	verb_members, verb_export, verb_replay, verb_complete, verb_version, verb_help;
/* Null beyond the end; by name, null: none. */
const struct verb *verb_at(size_t i);
const struct verb *verb_find(const char *name);
/* Says so on stderr, with what is near or else all there are; returns EXIT_USAGE. */
int unknown_verb(const char *name);
void verb_print_help(const struct verb *v, FILE *to);

/* ---- options that most verbs have ---- */

struct options {
	const char *group;
	bool is_json, all_users;
	pid_t pid;     /* 0: this one's namespaces */
	bool is_quiet; /* a group that is not there is no news (doctor) */
};
#define OPTIONS_SHORT "g:p:jh"
#define OPTIONS_LONG                                                                                                   \
	{"group", required_argument, NULL, 'g'}, {"pid", required_argument, NULL, 'p'},                                \
		{"json", no_argument, NULL, 'j'}, {"all-users", no_argument, NULL, 'A'},                               \
	{                                                                                                              \
		"help", no_argument, NULL, 'h'                                                                         \
	}
#define OPTIONS_HELP                                                                                                   \
	"  -g, --group GROUP   this group only (default: all of yours)\n"                                              \
	"  -p, --pid PID       as that process sees it: its user, root directory and namespaces\n"                     \
	"      --all-users     every user's groups (root)\n"                                                           \
	"  -j, --json          JSON\n"
/* Takes one option that getopt_long returned. -1: taken, go on; else the exit code to leave with. */
int options_take(const struct verb *verb, struct options *o, int option);
/* A time as people write it, 1ms at least. -1, or the exit code to leave with, said on stderr. */
int option_time(const struct verb *verb, const char *given, int64_t *ns);
/* How long what a verb sets is to hold: --for TIME or --forever, one of the two. Like options_take; OPTION_IS_ANOTHER:
 * not one of these. */
struct how_long {
	int64_t for_ns; /* 0: not given */
	bool is_forever;
};
#define HOW_LONG                                                                                                       \
	{"for", required_argument, NULL, 'F'},                                                                         \
	{                                                                                                              \
		"forever", no_argument, NULL, 'E'                                                                      \
	}
#define OPTION_IS_ANOTHER (-2)
int how_long_take(const struct verb *verb, struct how_long *h, int option);
/* why: behind "say --for 10m or --forever". */
int how_long_check(const struct verb *verb, const struct how_long *h, const char *why);
/* A message with the verb before it on stderr, and how to get help; returns EXIT_USAGE. */
int usage_error(const struct verb *verb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- groups ---- */

struct group {
	struct region region;
	char name[65];
	char path[256];
	char user[40]; /* whose it is */
	char root[32]; /* -p: "/proc/PID/root", before that process's paths; else "" */
	pid_t through; /* -p into another pid namespace: the members' ids mean pids in there; else 0 */
};
struct groups {
	struct group *at;
	size_t n;
	bool has_users;	  /* of all users */
	bool is_troubled; /* a file was passed over that the shim would not take either */
};
/* The state directory, and the suffix that region files of the wanted namespaces have; with -p as that process has
 * them. 0 or an exit code, said on stderr. */
int groups_place(const struct options *o, char dir[256], char suffix[64]);
/* Opens what the options ask for, sorted by name. 0; or an exit code, said on stderr (a group that is not there:
 * EXIT_ABSENT). */
int groups_open(struct groups *g, const struct options *o, bool is_for_change);
void groups_close(struct groups *g);
/* Is something wrong, so that programs go without shared circuits or pass unguarded: the state directory (asked before
 * opening), a region? Said on stderr. */
bool groups_say_refused(const struct options *o);
bool groups_say_damaged(const struct groups *g);
/* Does a member live (in its own pid namespace)? ctx: the group. */
bool group_member_lives(uint64_t id, const void *group);
/* Calls of members that were killed are in flight no more; where it can be told and the region may be written. */
void groups_freshen(struct groups *g);
/* Which bypasses hold for a group now (core/bypass.h), and a word about each on stderr with what undoes it. Those of
 * the user and the machine are said once, and also where there is no group yet. False: none holds. */
unsigned group_bypass(const struct group *g);
bool groups_say_bypass(const struct groups *g, const struct options *o);
/* Which faults are on, a line each on stderr with what lifts it. */
void groups_say_faults(const struct groups *g, const struct options *o);
void groups_say_faults_as(const struct groups *g, const struct options *o, void (*say)(const char *line));
/* " -g GROUP -p PID --all-users", as far as they were given: for commands that undo. group: null: the options' own. */
const char *options_again(const struct options *o, const char *group);
/* The destinations of a region by name: malloc'd indices, *n of them. */
uint32_t *groups_sorted(const struct region *r, size_t *n);
/* "no such destination", with what is near, on stderr. Returns EXIT_ABSENT. */
int groups_lack(const struct groups *g, const char *destination);
/* Variables of this process, or with -p of that one. */
const char *own_getenv(const char *name);
bool pid_environ_load(pid_t pid);
const char *pid_getenv(const char *name);
/* The path of a group's socket as this process can reach it; false: none. */
bool groups_socket(const struct options *o, const struct group *g, char *path, size_t cap);

/* ---- output ---- */

bool out_is_terminal(void);
/* A table on a terminal; tab-separated, without header, in a pipe. Cells are copied, control bytes shown as '?'. */
struct table;
struct table *table_new(const char *const *headers, size_t columns);
/* state_column: coloured by its words on a terminal unless NO_COLOR; right: bit mask of columns aligned to the right.
 */
void table_style(struct table *t, int state_column, unsigned right);
void table_row(struct table *t, const char *const *cells);
void table_print(struct table *t);
/* "closed", "open", "half_open", "forced_open", "forced_closed", "observe:open". */
void state_text(char *to, size_t cap, const struct circuit_view *v);
bool view_is_open(const struct circuit_view *v);
/* Every place of its bulkhead is taken. */
bool view_is_full(const struct circuit_view *v);
/* Calls in flight; where there is a limit the places that are taken, of how many: "3/20". */
void in_flight_text(char *to, size_t cap, const struct circuit_view *v);
/* "962ms", "1.5s". */
void ms_text(char *to, size_t cap, uint64_t ms);
/* A destination as a shell takes it: in quotes where its name has what shells act on (circuits of requests have blanks
 * and stars). Until the next call. */
#define SHELL_WORD_MAX (4 * REGION_NAME_MAX + 3)
const char *shell_word(const char *name);
/* "850us", "1.2ms", "3.4s"; "-" when it is not known. */
void us_text(char *to, size_t cap, uint64_t us, bool is_known);
/* Calls fn with a buffer, again with a larger one until all fits, and prints it. */
void print_rendered(void (*fn)(struct text *t, const void *ctx), const void *ctx);

/* Prometheus text of a struct groups (ctx), for print_rendered. */
void metrics_text(struct text *t, const void *ctx);

/* ---- the socket ---- */

/* One request to a group's socket. Returns the HTTP status with *body malloc'd and terminated, or -errno (nobody there:
 * -ENOENT, -ECONNREFUSED). */
int socket_request(const char *path, const char *method, const char *target, char **body);

#endif
