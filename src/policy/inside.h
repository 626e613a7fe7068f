/* The inside of a configuration: shared by the files of this room, by nobody else. One mapping of its own a
 * configuration: struct config | sections | patterns | pool of text. Written while it is read (config_load), never
 * after. */
#ifndef RESIL_POLICY_INSIDE_H
#define RESIL_POLICY_INSIDE_H

#include "policy/complain.h"
#include "policy/config.h"
#include "policy/fault.h"

_Static_assert(CONFIG_POLICIES_MAX == 512 && CONFIG_MATCHES_MAX == 4096 && CONFIG_FILE_MAX == 4194304 &&
		       CONFIG_SECTION_MAX == 63 && CONFIG_SET_MAX == 4095,
	"messages and resil.conf(5) name these numbers");

enum pattern_kind {
	PATTERN_ANY,	/* `*`, `*:443` */
	PATTERN_HOST,	/* a name, as it was looked up */
	PATTERN_SUFFIX, /* `*.suffix`: host is ".suffix" */
	PATTERN_NET,	/* an address or a net of them, whatever name led there */
	PATTERN_UNIX,	/* a path, or @name */
	PATTERN_SNI,	/* a name that the connection itself says; `sni:*.suffix`: host is ".suffix" */
	PATTERN_EXE,	/* limits its section to executables */
};

struct pattern {
	uint8_t kind;	    /* enum pattern_kind */
	bool is_v4;	    /* NET: never fits the other family, ::/0 neither */
	uint16_t low, high; /* ports; 0 to 65535: any */
	uint16_t host_len;
	uint32_t scope;		  /* NET: 0: any zone */
	uint64_t net[2], mask[2]; /* NET: as they lie in memory, network order */
	const char *host;	  /* lower case, no trailing dot; a path; a name of an executable */
	const char *text;	  /* as it was written */
};

struct section {
	struct policy policy;
	struct match_list match;
};

struct config {
	size_t size; /* of the mapping */
	bool is_broken;
	bool guards_look_ups, has_sni;
	bool looks_at_files; /* while it is read: config_source */
	enum state_kind state;
	enum control_kind control;
	uint32_t max_destinations;
	uint32_t setting_line[SETTING_COUNT]; /* 0: built-in */
	const char *file, *log, *skip_exe;
	uint32_t section_count, section_room;
	uint32_t pattern_count, pattern_room;
	uint32_t fault_count, fault_room;
	size_t pool_len, pool_room;
	struct section *sections;
	struct pattern *patterns;
	struct fault_rule *faults;
	char *pool;
	struct section defaults;
};

/* Copies n bytes into the pool, terminated; null when it is full. */
const char *config_keep(struct config *c, const char *s, size_t n);

/* Adds a blank and n bytes to what was kept last. False: it is full. */
bool config_keep_on(struct config *c, const char *s, size_t n);

/* source.c: a file in memory. */
struct source_bytes {
	char *at; /* null: nothing was read */
	size_t len;
	size_t mapped;
	uint32_t lines, brackets, commas; /* upper bounds for what it can hold */
};
/* Reads a regular file of at most CONFIG_FILE_MAX bytes of text. False when it was not read: with a fault, or,
 * is_optional and absent, without one. */
bool source_read(struct source_bytes *b, const char *file, bool is_optional, struct complaints *out);
void source_free(struct source_bytes *b);

/* parse.c: applies a file to [resil], [defaults] (origin ORIGIN_FILE_DEFAULTS) and new sections (ORIGIN_FILE_SECTION,
 * their other keys unset). */
void parse_file(struct config *c, const struct source_bytes *b, struct complaints *out);
/* assign.c: the text of RESIL_SET onto the defaults. */
void assign_set(struct config *c, const char *set, struct complaints *out);

#endif
