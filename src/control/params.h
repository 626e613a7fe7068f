/* Small values as people write them: percent-encoded names, query parameters, numbers, durations. Used by the socket's
 * routes and by the command. Pure; no allocation, no locale. */
#ifndef RESIL_CONTROL_PARAMS_H
#define RESIL_CONTROL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Percent-decodes n bytes; false: a broken escape, an encoded NUL, or it does not fit. */
bool params_decode(char *to, size_t cap, const char *from, size_t n);
enum params_found { PARAMS_ABSENT, PARAMS_FOUND, PARAMS_BROKEN };
/* The first `key` of a query (without its '?'; null: none), decoded. "follow" alone counts as the empty value. */
enum params_found params_query(const char *query, const char *key, char *value, size_t cap);
/* Digits only; false: anything else, or too large. */
bool params_u64(const char *s, uint64_t *v);
/* `500ms`, `2s`, `5m`, `1h`, `1.5s`: a unit is due (CONTRACT). false: anything else, or beyond a hundred years. */
bool params_duration(const char *s, int64_t *ns);
/* The longest that what is set by hand holds for a time (8760h, as durations of the configuration): beyond it, for ever
 * is what is meant. */
#define PARAMS_HOLDS_MAX_NS 31536000000000000

#endif
