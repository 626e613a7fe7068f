/* See params.h. */
#include "control/params.h"

#include <string.h>

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool params_decode(char *to, size_t cap, const char *from, size_t n)
{
	size_t len = 0;
	for (size_t i = 0; i < n; i++) {
		char c = from[i];
		if (c == '%') {
			int high = n - i > 2 ? hex_digit(from[i + 1]) : -1,
			    low = n - i > 2 ? hex_digit(from[i + 2]) : -1;
			if (high < 0 || low < 0)
				return false;
			c = (char)(high << 4 | low);
			i += 2;
		}
		if (c == '\0' || len + 1 >= cap)
			return false;
		to[len++] = c;
	}
	to[len] = '\0';
	return true;
}

enum params_found params_query(const char *query, const char *key, char *value, size_t cap)
{
	size_t key_len = strlen(key);
	for (const char *p = query; p && *p;) {
		size_t len = strcspn(p, "&");
		const char *equals = memchr(p, '=', len);
		size_t name_len = equals ? (size_t)(equals - p) : len;
		if (name_len == key_len && memcmp(p, key, key_len) == 0) {
			const char *from = equals ? equals + 1 : p + len;
			return params_decode(value, cap, from, (size_t)(p + len - from)) ? PARAMS_FOUND : PARAMS_BROKEN;
		}
		p += len;
		if (*p == '&')
			p++;
	}
	return PARAMS_ABSENT;
}

bool params_u64(const char *s, uint64_t *v)
{
	uint64_t sum = 0;
	if (*s == '\0')
		return false;
	for (; *s; s++) {
		uint64_t digit = (uint64_t)(*s - '0');
		if (*s < '0' || *s > '9' || sum > (UINT64_MAX - digit) / 10)
			return false;
		sum = sum * 10 + digit;
	}
	*v = sum;
	return true;
}

bool params_duration(const char *s, int64_t *ns)
{
	static const struct {
		const char *unit;
		int64_t ns;
	} units[] = {{"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000},
		{"d", 86400000000000}};
	const int64_t longest = 3155760000000000000; /* a hundred years */
	int64_t whole = 0, part = 0, scale = 1;
	const char *start = s;

	for (; *s >= '0' && *s <= '9'; s++) {
		if (whole > longest / 10)
			return false;
		whole = whole * 10 + (*s - '0');
	}
	if (s == start)
		return false;
	if (*s == '.') {
		const char *point = ++s;
		for (; *s >= '0' && *s <= '9'; s++) {
			if (scale < 10000) { /* part * a day stays within 64 bits */
				part = part * 10 + (*s - '0');
				scale *= 10;
			}
		}
		if (s == point)
			return false;
	}
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (strcmp(s, units[i].unit) != 0)
			continue;
		if (whole > longest / units[i].ns)
			return false;
		*ns = whole * units[i].ns + part * units[i].ns / scale;
		return true;
	}
	return false;
}
