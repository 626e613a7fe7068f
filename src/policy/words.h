/* The types of keys.h whose values are words. For value.c, which reads and shows the numbers itself. */
#ifndef RESIL_POLICY_WORDS_H
#define RESIL_POLICY_WORDS_H

#include "policy/value.h"

/* Each reads n bytes; false: fault says why. */
bool words_read_choice(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault);
bool words_read_errno(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault);
bool words_read_kinds(const struct value_row *row, const char *s, size_t n, uint64_t *mask, struct fault *fault);
bool words_read_field_name(const struct value_row *row, const char *s, size_t n, char name[POLICY_FIELD_NAME_MAX + 1],
	struct fault *fault);
void words_kinds_text(struct text *t, uint64_t mask);
void words_errno_text(struct text *t, uint64_t number);
/* "a, b or c" */
void words_list_text(struct text *t, const char *const *words);

#endif
