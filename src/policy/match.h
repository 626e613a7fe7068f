/* Names against patterns; the matching of destinations is config_match (config.h). */
#ifndef RESIL_POLICY_MATCH_H
#define RESIL_POLICY_MATCH_H

#include <stdbool.h>
#include <stddef.h>

/* A name against a pattern of n bytes in which `*` stands for any bytes. */
bool match_glob(const char *pattern, size_t n, const char *name);

#endif
