/* The files of the cache (cache.h), and what may be kept in them. The thread of detours alone. */
#ifndef RESIL_ENGINE_CACHE_STORE_H
#define RESIL_ENGINE_CACHE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/served.h"

#define CACHE_BODY_MAX (256u * 1024u)
#define CACHE_FILES_MAX 256u
#define CACHE_KEY_MAX 4096u
#define CACHE_VARY_MAX 4096u

/* A file: this, then key, vary, head and body. */
struct cached {
	char magic[8];
	uint64_t check; /* of all behind it */
	int64_t stored_ns, stored_wall_ns;
	int64_t age_s; /* that it had when it came */
	uint32_t key_len, vary_len, head_len, body_len;
	uint64_t unused;
};

/* Puts in dir/name of a destination's key; false: it does not fit. */
struct cache_key {
	char text[CACHE_KEY_MAX]; /* destination, host, target, a line each */
	uint32_t len;
	uint64_t hash;
};
/* Of a whole request; false: not one that is kept or served (another method than GET or HEAD, a body, no Host...). */
bool cache_key_make(struct cache_key *k, const char *destination, const struct served *request);
/* May its answer be kept? head: the answer's. */
bool cache_may_keep(const struct served *request, const char *head, uint32_t head_len, int status);
void cache_keep(const struct cache_key *k, const char *destination, const struct served *request, const char *head,
	uint32_t head_len, const void *body, uint32_t body_len);
/* What the app has changed is known no more. */
void cache_forget(const struct cache_key *k, const char *destination);
/* An open file whose content is whole, of this very request, and no older than max_age_ns; -1: none. *c its head,
 * *age_s how old it is. */
int cache_open(const struct cache_key *k, const char *destination, const struct served *request, int64_t max_age_ns,
	struct cached *c, int64_t *age_s);
/* The same file anew; -1: it is another by now. */
int cache_open_again(uint64_t hash, const char *destination, const struct cached *c);

#endif
