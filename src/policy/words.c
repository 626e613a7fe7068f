/* See words.h. No state; called while a configuration is read. */
#include "policy/words.h"

#include <errno.h>
#include <string.h>

/* What a connect may end with for good. Not EINPROGRESS, EALREADY, EAGAIN, EINTR or EISCONN: programs take those for
 * "not yet" or "done", and wait or spin. ECONNREFUSED comes first: it is the default, read in every constructor. */
static const struct {
	const char *name;
	int number;
} errnos[] = {
	{"ECONNREFUSED", ECONNREFUSED},
	{"ETIMEDOUT", ETIMEDOUT},
	{"EHOSTUNREACH", EHOSTUNREACH},
	{"ENETUNREACH", ENETUNREACH},
	{"ECONNRESET", ECONNRESET},
	{"EHOSTDOWN", EHOSTDOWN},
	{"ENETDOWN", ENETDOWN},
	{"EADDRNOTAVAIL", EADDRNOTAVAIL},
	{"EACCES", EACCES},
	{"EPERM", EPERM},
};
#define ERRNOS (sizeof errnos / sizeof errnos[0])

void words_list_text(struct text *t, const char *const *words)
{
	for (size_t i = 0; words[i]; i++) {
		if (i > 0)
			text_str(t, words[i + 1] ? ", " : " or ");
		text_str(t, words[i]);
	}
}

bool words_read_choice(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault)
{
	static const char *const yes[] = {"yes", "true", "1", "enable", "enabled", NULL};
	static const char *const no[] = {"no", "false", "0", "disable", "disabled", "none", NULL};
	bool has_on = false, has_off = false;

	for (uint64_t i = 0; row->choices[i]; i++) {
		if (value_is(s, n, row->choices[i])) {
			*value = i;
			return true;
		}
		has_on |= value_is("on", 2, row->choices[i]);
		has_off |= value_is("off", 3, row->choices[i]);
	}
	const char *nearest = complain_nearest(s, n, row->choices);
	for (size_t i = 0; has_on && yes[i]; i++)
		if (value_is(s, n, yes[i]))
			nearest = "on";
	for (size_t i = 0; has_off && no[i]; i++)
		if (value_is(s, n, no[i]))
			nearest = "off";
	text_fmt(&fault->what, "%s: unknown choice", row->name);
	words_list_text(&fault->accepted, row->choices);
	if (nearest)
		text_str(&fault->suggestion, nearest);
	return false;
}

bool words_read_errno(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault)
{
	const char *names[ERRNOS + 1];
	for (size_t i = 0; i < ERRNOS; i++) {
		if (value_is(s, n, errnos[i].name)) {
			*value = (uint64_t)errnos[i].number;
			return true;
		}
		names[i] = errnos[i].name;
	}
	names[ERRNOS] = NULL;
	text_fmt(&fault->what, "%s: not an error that ends a connect for good", row->name);
	words_list_text(&fault->accepted, names);
	const char *nearest = complain_nearest(s, n, names);
	if (nearest)
		text_str(&fault->suggestion, nearest);
	return false;
}

void words_errno_text(struct text *t, uint64_t number)
{
	for (size_t i = 0; i < ERRNOS; i++)
		if ((uint64_t)errnos[i].number == number)
			text_str(t, errnos[i].name);
}
