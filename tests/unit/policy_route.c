/* Templates of paths (route.h). */
#include "policy/route.h"

#include <string.h>

#include "tap.h"

static char routes[POLICY_ROUTES_MAX + 1];
static struct fault fault;

static bool reads(const char *s)
{
	fault_clear(&fault);
	return route_read("route", s, strlen(s), routes, &fault);
}

static bool leads(const char *target, const char *to)
{
	size_t n = 0;
	const char *found = route_find(routes, target, strlen(target), &n);
	return to ? found && strlen(to) == n && memcmp(found, to, n) == 0 : !found;
}

int main(void)
{
	tap_ok(reads("/users/*,/users/me , /orders/*/items,/") &&
			strcmp(routes, "/users/*, /users/me, /orders/*/items, /") == 0,
		"templates are read, blanks aside");
	tap_ok(leads("/users/7", "/users/*") && leads("/users/me", "/users/*"),
		"a star is a segment, the first that fits wins");
	tap_ok(leads("/users/7?next=/orders/1/items", "/users/*") && leads("/?", "/"), "a query does not count");
	tap_ok(leads("/users/", NULL) && leads("/users/7/", NULL) && leads("/users//", NULL), "nothing is no segment");
	tap_ok(leads("/orders/8/items", "/orders/*/items") && leads("/orders/8", NULL) &&
			leads("/orders/8/items/9", NULL),
		"a template is the whole path");
	tap_ok(leads("http://api.internal:80/users/7", "/users/*") && leads("http://api.internal", NULL),
		"a URL is its path");
	tap_ok(leads("*", NULL) && leads("", NULL) && leads("host:443", NULL) && leads("/Users/7", NULL),
		"nothing else fits");
	tap_ok(reads("off") && !routes[0] && reads("") && !routes[0] && leads("/", NULL),
		"off and nothing are no template");
	tap_ok(!reads("users") && !reads("/users/*,") && !reads("/u*") && !reads("/*s") && !reads("/a?b") &&
			!reads("/a b") && !reads(",/a") && !reads("*"),
		"what is no path is refused");
	char many[POLICY_ROUTES_MAX + 3];
	memset(many, 'a', sizeof many);
	many[0] = '/';
	many[POLICY_ROUTES_MAX] = '\0';
	tap_ok(reads(many) && strlen(routes) == POLICY_ROUTES_MAX, "the longest is read whole");
	many[POLICY_ROUTES_MAX] = 'a';
	many[POLICY_ROUTES_MAX + 1] = '\0';
	tap_ok(!reads(many), "a longer one is refused, never cut");
	char list[ROUTE_COUNT_MAX * 3 + 3] = "";
	for (int i = 0; i < ROUTE_COUNT_MAX; i++)
		strcat(list, i ? ",/a" : "/a");
	tap_ok(reads(list) && (strcat(list, ",/"), !reads(list)), "32 templates, and not one more");
	tap_ok(strcmp(route_method("GET", 3), "GET") == 0 && strcmp(route_method("get", 3), "unknown") == 0 &&
			strcmp(route_method("GETS", 4), "unknown") == 0 && strcmp(route_method("", 0), "unknown") == 0,
		"methods have names of a list");
	return tap_done();
}
