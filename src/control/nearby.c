/* See nearby.h. */
#include "control/nearby.h"

#include <string.h>

#include "core/registry.h"

#define NEARBY_SHOWN 5

static char lower(char c)
{
	return (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
}

static bool is_same_host(const char *a, const char *b)
{
	while (*a && lower(*a) == lower(*b))
		a++, b++;
	return *a == *b;
}

int nearby_find(const struct region *r, const char *name)
{
	char known[REGION_NAME_MAX + 1];
	int found = registry_find(r, name);

	if (strncmp(name, "unix:", 5) == 0)
		return found;
	for (int i = registry_next(r, 0); found < 0 && i >= 0; i = registry_next(r, (uint32_t)i + 1)) {
		registry_name(r, (uint32_t)i, known);
		if (is_same_host(known, name))
			found = i;
	}
	return found;
}

unsigned nearby_distance(const char *a, const char *b)
{
	uint16_t row[256];
	size_t n = strnlen(a, 255), m = strnlen(b, 255);

	for (size_t j = 0; j <= m; j++)
		row[j] = (uint16_t)j;
	for (size_t i = 1; i <= n; i++) {
		uint16_t diagonal = row[0];
		row[0] = (uint16_t)i;
		for (size_t j = 1; j <= m; j++) {
			uint16_t replaced = (uint16_t)(diagonal + (a[i - 1] != b[j - 1]));
			uint16_t shorter = (uint16_t)(row[j - 1] + 1), longer = (uint16_t)(row[j] + 1);
			diagonal = row[j];
			row[j] = replaced < shorter ? replaced : shorter;
			if (longer < row[j])
				row[j] = longer;
		}
	}
	return row[m];
}

bool nearby_is_near(const char *wanted, const char *known)
{
	size_t n = strlen(wanted);
	if (n >= 3 && (strstr(known, wanted) || (strlen(known) >= 3 && strstr(wanted, known))))
		return true;
	return nearby_distance(wanted, known) <= (n <= 4 ? 1u : n <= 8 ? 2u : 3u);
}

static void quoted(struct text *t, const char *name, unsigned *shown)
{
	text_fmt(t, "%s'%s'", *shown ? ", " : "", name);
	(*shown)++;
}

void nearby_destinations(struct text *t, const struct region *r, const char *wanted)
{
	char name[REGION_NAME_MAX + 1];
	unsigned shown = 0, all = 0;
	size_t start = t->len;

	text_str(t, "did you mean ");
	for (int i = registry_next(r, 0); i >= 0; i = registry_next(r, (uint32_t)i + 1)) {
		all++;
		registry_name(r, (uint32_t)i, name);
		if (shown < NEARBY_SHOWN && nearby_is_near(wanted, name))
			quoted(t, name, &shown);
	}
	if (shown) {
		text_char(t, '?');
		return;
	}
	t->len = start;
	if (t->cap)
		t->at[start] = '\0';
	if (all == 0) {
		text_str(t, "no destination has been used yet");
		return;
	}
	text_str(t, "there are ");
	for (int i = registry_next(r, 0); i >= 0 && shown < NEARBY_SHOWN; i = registry_next(r, (uint32_t)i + 1)) {
		registry_name(r, (uint32_t)i, name);
		quoted(t, name, &shown);
	}
	if (all > shown)
		text_fmt(t, " and %u more", all - shown);
}
