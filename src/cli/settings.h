/* The configuration as the verbs read it: which file, what it says, faults on stderr. */
#ifndef RESIL_CLI_SETTINGS_H
#define RESIL_CLI_SETTINGS_H

#include "policy/config.h"

struct settings {
	struct config *config;
	int faults;
	char path[4096]; /* "" when none is read */
	char *errors;	 /* lines */
	bool is_cut;
};
/* file: -c, null: the contract's places. set: null: RESIL_SET is not looked at. False: no memory. */
bool settings_load(struct settings *s, const char *file, const char *set);
/* The same, and the files that values name must be there. */
bool settings_load_checked(struct settings *s, const char *file, const char *set, const char *faults);
/* The same with another process's variables. */
bool settings_load_as(
	struct settings *s, const char *file, const char *set, const char *(*getenv_fn)(const char *name));
/* And RESIL_FAULTS, which the two above take where no file is given; null: none. */
bool settings_load_with(struct settings *s, const char *file, const char *set, const char *faults,
	const char *(*getenv_fn)(const char *name));
/* RESIL_LOG as a further setting: a fault where it names no place. A file that cannot be written: a fault too, or with
 * is_lenient a remark on stderr. */
void settings_check_log(struct settings *s, bool is_lenient);
/* Right values that do not mean together what one would think (check_remarks.c): a line each. Not faults. */
void settings_remark(const struct settings *s, struct text *t);
void settings_print_errors(const struct settings *s);
void settings_free(struct settings *s);

#endif
