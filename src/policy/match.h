/* Patterns of `match`: read once, tried on every connect. */
#ifndef RESIL_POLICY_MATCH_H
#define RESIL_POLICY_MATCH_H

#include "policy/inside.h"

/* Reads one pattern (n bytes, blanks stripped, commas gone). false: fault says why. Text goes into the pool of c. */
bool match_read(struct pattern *p, struct config *c, const char *s, size_t n, struct fault *fault);
/* Does it fit where a connect goes? Not for PATTERN_EXE. */
bool match_fits(const struct pattern *p, const struct target *target, size_t name_len);
/* A name against a pattern in which `*` stands for any bytes. */
bool match_glob(const char *pattern, size_t n, const char *name);

#endif
