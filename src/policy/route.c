/* See route.h. Reading: while a configuration is read; finding: at sends, on any thread. */
#include "policy/route.h"

#include <string.h>

static bool refuse(const char *name, const char *what, const char *s, size_t n, struct fault *fault)
{
	text_fmt(&fault->what, "%s: %s", name, what);
	text_str(&fault->accepted, "paths such as /users/*, /orders/*/items, a star for one whole segment; or off");
	fault->part = s;
	fault->part_len = n;
	return false;
}

/* One template; what is wrong with it, or null. */
static const char *wrong_with(const char *s, size_t n)
{
	if (n == 0)
		return "a path is due on both sides of a comma";
	if (s[0] != '/')
		return "a path begins with a slash";
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '?' || s[i] == '#')
			return "what follows a path does not count";
		if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f)
			return "a path has no blanks";
		bool is_whole = s[i] != '*' || (s[i - 1] == '/' && (i + 1 == n || s[i + 1] == '/'));
		if (!is_whole)
			return "a star stands for one whole segment";
	}
	return NULL;
}

bool route_read(const char *name, const char *s, size_t n, char routes[POLICY_ROUTES_MAX + 1], struct fault *fault)
{
	struct text t = {.at = routes, .cap = POLICY_ROUTES_MAX + 1};
	const char *end = s + n;
	unsigned count = 0;
	routes[0] = '\0';
	if (n == 0 || (n == 3 && memcmp(s, "off", 3) == 0))
		return true;
	for (;;) {
		const char *comma = memchr(s, ',', (size_t)(end - s)), *stop = comma ? comma : end;
		while (s < stop && (*s == ' ' || *s == '\t'))
			s++;
		while (stop > s && (stop[-1] == ' ' || stop[-1] == '\t'))
			stop--;
		const char *what = wrong_with(s, (size_t)(stop - s));
		if (!what && ++count > ROUTE_COUNT_MAX)
			what = "more than 32 paths";
		if (what)
			return refuse(name, what, s, (size_t)(stop - s), fault);
		text_str(&t, t.len ? ", " : "");
		text_bytes(&t, s, (size_t)(stop - s));
		if (!comma)
			break;
		s = comma + 1;
	}
	return !t.is_cut || refuse(name, "more than 511 bytes", "", 0, fault);
}

static bool fits(const char *t, size_t t_length, const char *path, size_t n)
{
	size_t i = 0, k = 0;
	while (i < t_length && k < n) {
		if (t[i] == '*') {
			if (path[k] == '/')
				return false;
			while (k < n && path[k] != '/')
				k++;
			i++;
		} else if (t[i++] != path[k++]) {
			return false;
		}
	}
	return i == t_length && k == n;
}

const char *route_find(const char *routes, const char *target, size_t n, size_t *length)
{
	if (n > 0 && target[0] != '/') { /* to a proxy: the whole URL */
		const char *host = memmem(target, n, "://", 3);
		const char *path = host ? memchr(host + 3, '/', n - (size_t)(host + 3 - target)) : NULL;
		if (!path)
			return NULL;
		n -= (size_t)(path - target);
		target = path;
	}
	const char *end = memchr(target, '?', n);
	n = end ? (size_t)(end - target) : n;
	while (*routes) {
		*length = strcspn(routes, ",");
		if (fits(routes, *length, target, n))
			return routes;
		routes += *length;
		routes += strspn(routes, ", ");
	}
	return NULL;
}

const char *route_method(const char *method, size_t n)
{
	static const char *const methods[] = {
		"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"};
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
		if (strlen(methods[i]) == n && memcmp(methods[i], method, n) == 0)
			return methods[i];
	return ROUTE_UNKNOWN;
}
