/* What tests of the cache share: its tee and its end point without sockets, and a folder for its files. */
#ifndef RESIL_TESTS_ENGINE_CACHE_HELP_H
#define RESIL_TESTS_ENGINE_CACHE_HELP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "engine/cache.h"
#include "engine/cache_store.h"
#include "engine/guest.h"
#include "engine/outcome.h"

#define HERE "h.test:80"
#define OCTETS 65536

static char dir[64];
static struct detour tee_at, end_at;
static int64_t max_age_ns = 3600 * NS_PER_S;

bool guest_cache_dir(char *to, size_t cap)
{
	return text_copy(to, cap, dir);
}

/* What only a chain behind the cache calls: there is none here. */
void detour_tell_error(uint64_t cookie, int err)
{
	(void)cookie;
	(void)err;
	abort();
}
int outcome_tcp_state(int fd)
{
	(void)fd;
	abort();
}
enum admission admission_of_connect(const struct guard *g, struct circuit_token *token,
	const struct admission_patience *patience, int64_t now_ns, struct admission_slot *slot)
{
	(void)g, (void)token, (void)patience, (void)now_ns, (void)slot;
	abort();
}
void admission_release(const struct guard *g, uint64_t hold, int64_t now_ns)
{
	(void)g, (void)hold, (void)now_ns;
	abort();
}

static uint64_t random_state = 88172645463325252ULL;
static inline uint32_t random_below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 33) % n;
}

static inline unsigned files(void)
{
	unsigned n = 0;
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static inline void path_of(char path[400], const char *name)
{
	snprintf(path, 400, "%s/%s", dir, name);
}

static inline void empty(void)
{
	char path[400];
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));) {
		path_of(path, e->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
}

/* ---- octets ---- */

struct octets {
	char at[OCTETS];
	uint32_t n;
};

static inline struct octets string(const char *s)
{
	static struct octets o;
	o.n = (uint32_t)strlen(s);
	memcpy(o.at, s, o.n);
	return o;
}

enum cut { WHOLE, EACH, RANDOM, CUTS };

static inline void show(struct detour *d, enum detour_way_name way, const struct octets *o, enum cut cut)
{
	for (uint32_t at = 0, n; at < o->n; at += n) {
		n = cut == WHOLE ? o->n : cut == EACH ? 1 : 1 + random_below(40);
		if (n > o->n - at)
			n = o->n - at;
		cache_tee(d, way, o->at + at, n, 0);
	}
}

static inline void pass_by(const char *host, const struct octets *request, const struct octets *answer, enum cut cut)
{
	struct detour *d = &tee_at;
	text_copy(d->host, sizeof d->host, host);
	cache_tee_begin(d);
	show(d, DETOUR_UP, request, cut);
	show(d, DETOUR_DOWN, answer, cut);
	cache_tee_finish(d);
}

/* What the end point says to a request; false: a reset. */
static inline bool ask(const char *host, const struct octets *request, enum cut cut, struct octets *answer)
{
	struct detour *d = &end_at;
	bool is_well = true;
	memset(d, 0, offsetof(struct detour, room));
	for (int i = 0; i < 2; i++)
		d->way[i].room = d->room[i];
	text_copy(d->host, sizeof d->host, host);
	d->max_age_ns = max_age_ns;
	d->end = &cache_end;
	for (int i = 0; i < DETOUR_SOCKETS; i++)
		d->socket[i] = -1;
	answer->n = 0;
	if (cache_end.begin(d, 0) != 0)
		return false;
	for (uint32_t at = 0, n, room; is_well && at < request->n; at += n) {
		uint8_t *to = detour_back(&d->way[DETOUR_UP], &room);
		n = cut == WHOLE ? request->n : cut == EACH ? 1 : 1 + random_below(40);
		n = n > request->n - at ? request->n - at : n;
		n = n > room ? room : n;
		memcpy(to, request->at + at, n);
		detour_put(&d->way[DETOUR_UP], n);
		cache_end.turn(d, 0, &is_well);
		for (uint32_t some; d->way[DETOUR_DOWN].len > 0; detour_took(&d->way[DETOUR_DOWN], some)) {
			const uint8_t *from = detour_front(&d->way[DETOUR_DOWN], &some);
			if (some > OCTETS - 1 - answer->n)
				some = OCTETS - 1 - answer->n;
			memcpy(answer->at + answer->n, from, some);
			answer->n += some;
		}
	}
	cache_end.finish(d);
	answer->at[answer->n] = '\0';
	return is_well;
}

static inline bool is_served(const struct octets *answer)
{
	return strncmp(answer->at, "HTTP/1.1 200 OK\r\n", 17) == 0;
}

static char cache_base[] = "/dev/shm/resil-cache-XXXXXX";
static inline void make_folder(void)
{
	if (!mkdtemp(cache_base))
		abort();
	snprintf(dir, sizeof dir, "%s/x.cache", cache_base);
	if (mkdir(dir, 0700) != 0)
		abort();
}
static inline void remove_folder(void)
{
	empty();
	rmdir(dir);
	rmdir(cache_base);
}

#endif
