/* The patterns of `match`, read from their text. match.c tries them. */
#ifndef RESIL_POLICY_PATTERN_H
#define RESIL_POLICY_PATTERN_H

#include "policy/inside.h"

/* Reads one pattern (n bytes, blanks stripped, commas gone). false: fault says why. Text goes into the pool of c. */
bool pattern_read(struct pattern *p, struct config *c, const char *s, size_t n, struct fault *fault);
/* Of a fault, which is decided before the connection says anything: false, and fault says so. */
bool pattern_refuse_said(struct fault *fault);

#endif
