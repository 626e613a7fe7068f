/* The value of `fallback`: what stands in for a destination, tried from left to right. Checked once, while the
 * configuration is read, and kept as text with its paths made absolute; taken apart step by step by whoever walks it.
 * Pure: no memory, no system call but getcwd where a configuration file was named by a relative path. */
#ifndef RESIL_POLICY_CHAIN_H
#define RESIL_POLICY_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/degraded.h"

#define CHAIN_STEPS_MAX 8
#define CHAIN_TEXT_MAX 900 /* with its paths made absolute; a line of a file holds it */

struct chain_step {
	enum degraded_source source;
	const char *text; /* "backup.internal:8080", "cache(1h)", "reply:/etc/resil/none.http", "errno:ETIMEDOUT" */
	const char *rest; /* REPLY, SPOOL: the path */
	char host[256];	  /* SECONDARY: an address without brackets, or a name in lower case */
	uint16_t port;	  /* SECONDARY */
	int64_t age_ns;	  /* CACHE */
	int error;	  /* ERRNO */
};

/* The next step of a chain in force; false at its end. at: into a copy of the policy's text, which is cut up. */
bool chain_next(char **at, struct chain_step *step);

struct config;
struct fault;
/* Reads n bytes and keeps them in the configuration; null, and false with the fault, where they are none, null and true
 * for `off` and nothing. has_file: relative paths are of the configuration file's folder; without one there are none.
 */
bool chain_read(struct config *c, const char *s, size_t n, bool has_file, const char **kept, struct fault *fault);

#endif
