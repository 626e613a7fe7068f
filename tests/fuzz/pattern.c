/* A pattern of `match` and a name to try it with, a line each: read or refused with a reason; what was read fits what
 * it spells; globs agree with the plain definition of a star. */
#include "policy/pattern.h"
#include "control/params.h"
#include "fuzz.h"
#include "policy/match.h"

/* The definition, slow: a star is nothing, or one byte and a star. */
static bool fits(const char *p, size_t n, const char *name)
{
	if (n == 0)
		return *name == '\0';
	if (*p == '*')
		return fits(p + 1, n - 1, name) || (*name && fits(p, n, name + 1));
	return *name == *p && fits(p + 1, n - 1, name + 1);
}

static void globs(const char *pattern, size_t n, const char *name)
{
	unsigned stars = 0;
	for (size_t i = 0; i < n; i++)
		stars += pattern[i] == '*';
	/* The definition is exponential in the stars. */
	bool is_match = match_glob(pattern, n, name);
	if (stars <= 3 && strlen(name) <= 60)
		claim(is_match == fits(pattern, n, name));
}

static bool reads(const char *s, size_t n, struct pattern *p)
{
	static char pool[4096];
	struct config c = {.pool = pool, .pool_room = sizeof pool};
	struct fault fault;
	fault_clear(&fault);
	bool is_read = pattern_read(p, &c, s, n, &fault);
	claim(is_read ? fault.what.len == 0 : fault.what.len > 0);
	claim(strlen(fault.what.at) == fault.what.len && strlen(fault.suggestion.at) == fault.suggestion.len);
	claim(c.pool_len <= c.pool_room);
	return is_read;
}

/* An address that the pattern spells lies in its net. */
static void lies_in_net(const struct pattern *p)
{
	claim((p->net[0] & ~p->mask[0]) == 0 && (p->net[1] & ~p->mask[1]) == 0);
	struct addr a = {.family = ADDR_INET, .scope = p->scope}, again;
	char text_at[80] = "";
	struct text text = TEXT_ON(text_at);
	memcpy(a.ip, p->net, sizeof a.ip);
	claim(addr_is_v4(&a) == p->is_v4);
	addr_host_text(&text, &a);
	claim(!text.is_cut && addr_from_literal(&again, text_at) && addr_same_host(&a, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[600], name[256];
	struct pattern p;
	const uint8_t *end = size > 0 ? memchr(data, '\n', size) : NULL;
	size_t n = end ? (size_t)(end - data) : size;
	if (n >= sizeof text || memchr(data, 0, size))
		return 0;
	memcpy(text, data, n);
	text[n] = '\0';
	size_t name_len = end ? size - n - 1 : 0;
	if (name_len >= sizeof name)
		name_len = sizeof name - 1;
	if (end)
		memcpy(name, end + 1, name_len);
	name[name_len] = '\0';
	globs(text, n, name);
	/* The buffer is exactly as long as the pattern: one byte read beyond is found. */
	char *exact = malloc(n ? n : 1);
	claim(exact);
	memcpy(exact, text, n);
	if (reads(exact, n, &p)) {
		claim(p.low <= p.high);
		if (p.kind == PATTERN_NET)
			lies_in_net(&p);
		else if (p.kind != PATTERN_ANY)
			claim(p.host && strlen(p.host) == p.host_len);
	}
	free(exact);
	return 0;
}
