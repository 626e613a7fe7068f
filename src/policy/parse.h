/* What the two halves of reading share: parse.c takes the lines, assign.c gives their values a place. */
#ifndef RESIL_POLICY_PARSE_H
#define RESIL_POLICY_PARSE_H

#include <string.h>

#include "policy/fault_read.h"

enum place { PLACE_NOWHERE, PLACE_RESIL, PLACE_DEFAULTS, PLACE_DESTINATION, PLACE_FAULT, PLACE_UNKNOWN };
enum list { LIST_NONE, LIST_MATCH, LIST_SKIP_EXE, LIST_IGNORED };

/* Of [fault NAME]: `type` behind its parameters. */
#define SEEN_TYPE FAULT_PARAM_COUNT
_Static_assert((int)KEY_COUNT > (int)SETTING_COUNT && (int)KEY_COUNT > (int)SEEN_TYPE, "lines of any section's keys");
#define SEEN KEY_COUNT

struct parse {
	struct config *config;
	struct complaints *out;
	const char *at, *end; /* not yet read */
	uint32_t line;	      /* of the last one read */
	enum place place;
	struct section *section;  /* PLACE_DEFAULTS, PLACE_DESTINATION */
	struct fault_rule *fault; /* PLACE_FAULT */
	struct match_list *match; /* of the two that have one */
	bool is_wrong;		  /* PLACE_FAULT: it was complained of */
	uint32_t header_line, resil_line, defaults_line;
	uint32_t seen[SEEN];  /* lines of the keys of this section */
	bool has_match_key;   /* also a wrong one */
	bool is_unanswered;   /* inih was shown a line that must come back as a key */
	bool is_continuation; /* the line it was shown goes on with a list */
	enum list list;	      /* of the last key */
	bool is_list_open;    /* ... and its value ended in a comma */
	bool has_said_patterns, has_said_sections;
};

static inline bool parse_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static inline bool parse_is(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && memcmp(s, word, n) == 0;
}

static inline void parse_strip(const char **s, size_t *n)
{
	while (*n > 0 && parse_is_blank((*s)[0])) {
		(*s)++;
		(*n)--;
	}
	while (*n > 0 && parse_is_blank((*s)[*n - 1]))
		(*n)--;
}

/* assign.c: a key of the section that was entered, or what goes on with the list of the last one. Both say themselves
 * what is wrong. */
void assign_key(struct parse *p, const char *name, size_t n, const char *value, size_t len);
void assign_more(struct parse *p, const char *value, size_t len);
void assign_unknown(struct complaints *out, uint32_t line, enum place place, const char *name, size_t n);
/* "KEY is there twice, at lines FIRST and this one". */
void assign_twice(struct parse *p, const char *what, size_t n, uint32_t first);

#endif
