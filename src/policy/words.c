/* See words.h. No state; called while a configuration is read. */
#include "policy/words.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

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

/* How people say it elsewhere; of a row that has the choice, that is what is meant. */
static const struct {
	const char *written, *meant;
} habits[] = {
	{"yes", "on"},
	{"true", "on"},
	{"1", "on"},
	{"enable", "on"},
	{"enabled", "on"},
	{"no", "off"},
	{"false", "off"},
	{"0", "off"},
	{"disable", "off"},
	{"disabled", "off"},
	{"none", "off"},
	{"http", "http1"},
	{"http/1.1", "http1"},
	{"http2", "h2"},
	{"http/2", "h2"},
	{"grpc", "h2"},
};
#define HABITS (sizeof habits / sizeof habits[0])

static bool has_word(const char *const *words, const char *word)
{
	while (*words && strcmp(*words, word) != 0)
		words++;
	return *words != NULL;
}

bool words_read_choice(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault)
{
	for (uint64_t i = 0; row->choices[i]; i++) {
		if (value_is(s, n, row->choices[i])) {
			*value = i;
			return true;
		}
	}
	const char *nearest = complain_nearest(s, n, row->choices);
	for (size_t i = 0; i < HABITS; i++)
		if (value_is(s, n, habits[i].written) && has_word(row->choices, habits[i].meant))
			nearest = habits[i].meant;
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

/* ---- failure kinds ---- */

_Static_assert(FAILURE_KIND_COUNT <= 32, "a mask of 32 bits");
/* A probe without a verdict has to count, or a circuit would stay half-open for ever: it is no choice. */
#define ALWAYS (1u << FAILURE_PROBE_TIMEOUT)

static bool is_separator(char c)
{
	return c == ' ' || c == '\t' || c == ',';
}

static void complain_kind(const struct value_row *row, const char *s, size_t n, const char *what, struct fault *fault)
{
	const char *names[FAILURE_KIND_COUNT + 1];
	size_t count = 0;
	for (int kind = 0; kind < FAILURE_KIND_COUNT; kind++)
		if (kind != FAILURE_PROBE_TIMEOUT)
			names[count++] = failure_name((enum failure_kind)kind);
	names[count] = NULL;
	text_fmt(&fault->what, "%s: %s", row->name, what);
	words_list_text(&fault->accepted, names);
	text_str(&fault->accepted, "; none: no kind");
	fault->part = s;
	fault->part_len = n;
	const char *nearest = complain_nearest(s, n, names);
	if (nearest)
		text_str(&fault->suggestion, nearest);
}

/* Blanks or commas between them. Nothing, or `none` alone: no kind. */
bool words_read_kinds(const struct value_row *row, const char *s, size_t n, uint64_t *mask, struct fault *fault)
{
	unsigned wrong = 0;
	*mask = ALWAYS;
	if (value_is(s, n, "none"))
		return true;
	for (size_t at = 0; at < n;) {
		size_t begin = at, commas = 0;
		while (at < n && is_separator(s[at]))
			commas += s[at++] == ',';
		if (commas > 1 || (commas > 0 && (begin == 0 || at == n))) {
			if (wrong == 0)
				complain_kind(row, s, n, "a kind is due on both sides of a comma", fault);
			return false;
		}
		size_t word = at;
		while (at < n && !is_separator(s[at]))
			at++;
		int kind = failure_by_name(s + word, at - word);
		if (kind >= 0)
			*mask |= 1u << kind;
		else if (wrong++ == 0)
			complain_kind(row, s + word, at - word, "unknown kind", fault);
	}
	if (wrong > 1)
		text_fmt(&fault->what, ", and %u more", wrong - 1);
	return wrong == 0;
}

void words_kinds_text(struct text *t, uint64_t mask)
{
	const char *before = "";
	for (int kind = 0; kind < FAILURE_KIND_COUNT; kind++) {
		if (!(mask & ~(uint64_t)ALWAYS & 1u << kind))
			continue;
		text_fmt(t, "%s%s", before, failure_name((enum failure_kind)kind));
		before = " ";
	}
	if (!before[0])
		text_str(t, "none");
}

/* ---- names of header fields ---- */

static bool is_same_field(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

/* RFC 9110, 5.6.2: tchar. */
static bool is_token_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c));
}

static bool refuse_field(const struct value_row *row, const char *what, const char *suggestion, struct fault *fault)
{
	text_fmt(&fault->what, "%s: %s", row->name, what);
	text_str(&fault->accepted,
		"a field's name of at most 63 letters, digits and !#$%&'*+-.^_`|~, such as X-Deadline-Ms, or off");
	text_str(&fault->suggestion, suggestion);
	return false;
}

bool words_read_field_name(
	const struct value_row *row, const char *s, size_t n, char name[POLICY_FIELD_NAME_MAX + 1], struct fault *fault)
{
	/* Fields that say where a message goes and where it ends: a second one changes what the server reads. */
	static const char *const taken[] = {"Host", "Content-Length", "Transfer-Encoding", "Connection", NULL};

	name[0] = '\0';
	if (value_is(s, n, "off"))
		return true;
	/* These would do as names, and nobody means them so. */
	if (is_same_field(s, n, "off"))
		return refuse_field(row, "not a field's name", "off", fault);
	if (is_same_field(s, n, "on"))
		return refuse_field(row, "not a field's name", "X-Deadline-Ms", fault);
	for (size_t i = 0; i < HABITS; i++)
		if (is_same_field(s, n, habits[i].written))
			return refuse_field(row, "not a field's name",
				value_is("off", 3, habits[i].meant) ? "off" : "X-Deadline-Ms", fault);
	for (size_t i = 0; taken[i]; i++)
		if (is_same_field(s, n, taken[i]))
			return refuse_field(row,
				"Host, Connection, Content-Length and Transfer-Encoding cannot be added", "", fault);
	for (size_t i = 0; i < n; i++)
		if (!is_token_char(s[i]))
			return refuse_field(row, "not a field's name", "", fault);
	if (n > POLICY_FIELD_NAME_MAX)
		return refuse_field(row, "the name is too long", "", fault);
	memcpy(name, s, n);
	name[n] = '\0';
	return true;
}
