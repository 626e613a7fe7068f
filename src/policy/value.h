/* The types of keys.h: each value as text and as number, both ways. Pure: no memory, no state. */
#ifndef RESIL_POLICY_VALUE_H
#define RESIL_POLICY_VALUE_H

#include <string.h>

#include "policy/complain.h"
#include "policy/config.h"

enum value_type {
	VALUE_CHOICE,
	VALUE_DURATION,
	VALUE_DURATION_MS,
	VALUE_WAIT,
	VALUE_COUNT,
	VALUE_LIMIT,
	VALUE_FACTOR,
	VALUE_PERCENT,
	VALUE_ERRNO,
	VALUE_SECONDS,
	VALUE_KINDS,
	VALUE_WINDOW,
	VALUE_FIELD_NAME,
	VALUE_ROUTES,
	VALUE_CHAIN,
	VALUE_TEXT
};

/* What any of them is. */
struct value {
	uint64_t number;		  /* all but FIELD_NAME and ROUTES; CHAIN: where its text is kept, 0: off */
	char name[POLICY_ROUTES_MAX + 1]; /* of these two; "": off */
};

/* A row of keys.h. */
struct value_row {
	const char *name;
	const char *initial;	    /* default, as a file would have it */
	const char *const *choices; /* VALUE_CHOICE: in the order of the enum, null-terminated */
	uint64_t min, max;
	uint16_t offset; /* of the field in struct policy */
	uint16_t width;	 /* of that field */
	uint8_t type;	 /* enum value_type */
};

extern const struct value_row value_keys[KEY_COUNT];
extern const struct value_row value_settings[SETTING_COUNT];
/* Names of all rows, null-terminated: for "did you mean". */
extern const char *const value_key_names[KEY_COUNT + 1];
extern const char *const value_setting_names[SETTING_COUNT + 1];

static inline bool value_is(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && memcmp(s, word, n) == 0;
}

/* The index of a name, or -1. */
int value_find_key(const char *name, size_t n);
int value_find_setting(const char *name, size_t n);

/* Reads n bytes, blanks already stripped; false: fault says why. VALUE_TEXT and VALUE_CHAIN are read in assign.c, which
 * has a place for them. */
bool value_read(const struct value_row *row, const char *s, size_t n, struct value *value, struct fault *fault);
/* As a file would have it: "10s", "off", "1.5", "20%", "ECONNREFUSED". */
void value_text(struct text *t, const struct value_row *row, const struct value *value);

/* A row's field of a policy. */
void value_store(struct policy *p, enum config_key key, const struct value *value);
void value_load(const struct policy *p, enum config_key key, struct value *value);

#endif
