/* Reading a fault from its text, for parse.c, assign.c (sections) and fault.c (specifications). Called while a
 * configuration is read; no state of its own. */
#ifndef RESIL_POLICY_FAULT_READ_H
#define RESIL_POLICY_FAULT_READ_H

#include "policy/inside.h"

/* Index of a name, or -1. */
int fault_find_type(const char *s, size_t n);
int fault_find_param(const char *s, size_t n);
extern const char *const fault_type_names[FAULT_TYPE_COUNT + 1];
extern const char *const fault_param_names[FAULT_PARAM_COUNT + 1];

bool fault_name_is_right(const char *s, size_t n);
/* False: why says what is wrong with the value. */
bool fault_read_param(enum fault_param param, const char *s, size_t n, uint64_t *value, struct fault *why);
/* The type is missing, or none: n bytes of it. */
void fault_complain_type(struct complaints *out, uint32_t line, const char *s, size_t n);
/* No such parameter of any type. place: where it stands. */
void fault_complain_param(struct complaints *out, uint32_t line, const char *place, const char *s, size_t n);
/* When all of it is read (type is known): what does not belong to the type, what is missing, defaults. lines: of each
 * parameter, null: none has one. line: its beginning. False: it was complained. */
bool fault_settle(struct fault_rule *f, struct complaints *out, const uint32_t *lines, uint32_t line);
/* What a specification takes of the pool and patterns at most is known from its length. Lines of them, onto a
 * configuration. */
void fault_read_specs(struct config *c, const char *specs, struct complaints *out);
/* One of n bytes. */
void fault_read_spec(struct config *c, const char *s, size_t n, struct complaints *out);

#endif
