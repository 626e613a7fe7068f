/* For the tests of src/policy: configurations from texts, and files in a directory of the test's own. */
#ifndef RESIL_TESTS_POLICY_LOAD_H
#define RESIL_TESTS_POLICY_LOAD_H

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/config.h"
#include "tap.h"

/* Two texts are the same. */
static inline bool same(const char *got, const char *want, const char *what)
{
	if (tap_ok(strcmp(got, want) == 0, "%s", what))
		return true;
	printf("# got:  %s\n# want: %s\n", got, want);
	return false;
}

static char load_dir[256];

static inline void load_rm_dir(void)
{
	char command[300];
	snprintf(command, sizeof command, "rm -rf '%s'", load_dir);
	if (load_dir[0] && system(command) != 0)
		fprintf(stderr, "# %s stays\n", load_dir);
}

static inline void load_mk_dir(void)
{
	const char *base = getenv("TMPDIR");
	if (!base) /* in memory: a disk is asked to write what is replaced ten thousand times */
		base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(load_dir, sizeof load_dir, "%s/resil-test-XXXXXX", base);
	if (!mkdtemp(load_dir)) {
		perror("mkdtemp");
		exit(1);
	}
	atexit(load_rm_dir);
}

/* The path of a file in the test's directory; written when bytes is not null. */
static inline const char *load_file(const char *name, const char *bytes, size_t n)
{
	static char path[512];
	snprintf(path, sizeof path, "%s/%s", load_dir, name);
	if (bytes) {
		FILE *f = fopen(path, "w");
		if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
			perror(path);
			exit(1);
		}
	}
	return path;
}

/* What a configuration was read with and what came of it. */
struct loaded {
	struct config *config;
	int faults;
	char errors[65536];
};
static struct loaded loaded;

static inline struct config *load(const char *file, const char *set)
{
	struct text errors = TEXT_ON(loaded.errors);
	struct config_source source = {.file = file, .set = set};
	config_free(loaded.config);
	loaded.errors[0] = '\0';
	loaded.config = config_load(&source, &errors, &loaded.faults);
	return loaded.config;
}

/* A configuration from a text. */
static inline struct config *load_text(const char *text)
{
	return load(load_file("resil.conf", text, strlen(text)), NULL);
}

static inline const char *value_of(const struct policy *p, enum config_key key)
{
	static char bytes[4][256];
	static unsigned next;
	struct text t = {.at = bytes[next % 4], .cap = sizeof bytes[0]};
	t.at[0] = '\0';
	next++;
	config_value_text(&t, p, key);
	return t.at;
}

static inline const char *origin_of(const struct policy *p, enum config_key key)
{
	static char bytes[4][1024];
	static unsigned next;
	struct text t = {.at = bytes[next % 4], .cap = sizeof bytes[0]};
	t.at[0] = '\0';
	next++;
	config_origin_text(&t, loaded.config, p, key);
	return t.at;
}

/* The policy of a section; "" for [defaults]; null: there is none. */
static inline const struct policy *policy_of(const char *section)
{
	const struct policy *p;
	for (uint32_t i = 0; (p = config_policy(loaded.config, i)); i++)
		if (strcmp(p->section, section) == 0)
			return p;
	return NULL;
}

#endif
