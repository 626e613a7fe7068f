/* Only in builds with RESIL_TEST_DETOUR: every guarded TCP connect takes the detour that the environment names. Words
 * of RESIL_TEST_DETOUR: relay, hang, hold=MS, via=PORT (on 127.0.0.1), up-delay=MS, down-delay=MS, down-reset=OCTETS,
 * down-limit=OCTETS, rate=OCTETS, reply=FILE, spool=DIR, cache=SECONDS; not=PORT: none to there. */
#ifdef RESIL_TEST_DETOUR
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/detour.h"

static const char *word(const char *all, const char *name, char *value, size_t cap)
{
	size_t n = strlen(name);
	for (const char *at = all; at; at = strchr(at, ' ')) {
		at += *at == ' ';
		if (strncmp(at, name, n) == 0 && (at[n] == '=' || at[n] == ' ' || !at[n])) {
			size_t len = at[n] == '=' ? strcspn(at + n + 1, " ") : 0;
			len = len < cap - 1 ? len : cap - 1;
			memcpy(value, at + n + (len > 0), len);
			value[len] = 0;
			return value;
		}
	}
	return NULL;
}

static int64_t number(const char *all, const char *name)
{
	char v[512];
	return word(all, name, v, sizeof v) ? atoll(v) : 0;
}

bool detour_test(struct detour_ask *ask)
{
	static __thread struct shape_rules up, down;
	static __thread struct sockaddr_in via;
	static __thread char path[512];
	const char *s = getenv("RESIL_TEST_DETOUR");
	if (!s || !*s || (ask->to->sa_family != AF_INET && ask->to->sa_family != AF_INET6))
		return false;
	const struct sockaddr_in *in = (const void *)ask->to; /* the port stands where IPv6 has it */
	if (number(s, "not") == ntohs(in->sin_port))
		return false;
	memset(&up, 0, sizeof up);
	memset(&down, 0, sizeof down);
	up.seed = down.seed = 1;
	up.delay_ns = number(s, "up-delay") * NS_PER_MS;
	down.delay_ns = number(s, "down-delay") * NS_PER_MS;
	down.has_reset = (down.reset_after = (uint64_t)number(s, "down-reset")) > 0;
	down.has_limit = (down.limit = (uint64_t)number(s, "down-limit")) > 0;
	down.rate = up.rate = (uint64_t)number(s, "rate");
	if (up.delay_ns || up.rate)
		ask->up = &up;
	if (down.delay_ns || down.has_reset || down.has_limit || down.rate)
		ask->down = &down;
	ask->hold_ns = word(s, "hang", path, sizeof path) ? SHAPE_NEVER : number(s, "hold") * NS_PER_MS;
	if (number(s, "via")) {
		via = (struct sockaddr_in){.sin_family = AF_INET,
			.sin_port = htons((uint16_t)number(s, "via")),
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		ask->via = (const struct sockaddr *)&via;
		ask->via_len = sizeof via;
	}
	if (word(s, "reply", path, sizeof path))
		ask->kind = DETOUR_REPLY;
	else if (word(s, "spool", path, sizeof path))
		ask->kind = DETOUR_SPOOL;
	else if (number(s, "cache"))
		ask->kind = DETOUR_CACHE;
	ask->path = path;
	ask->max_age_ns = number(s, "cache") * NS_PER_S;
	return true;
}
#else
typedef int detour_test_is_empty; /* a translation unit is never empty */
#endif
