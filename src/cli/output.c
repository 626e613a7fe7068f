/* What verbs print: tables, times, rendered text. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool out_is_terminal(void)
{
	return isatty(STDOUT_FILENO);
}

struct table {
	const char *const *headers;
	size_t columns, rows, room;
	char **cells;
	int state_column;
	unsigned right;
};

static void *must(void *p)
{
	if (!p) {
		fputs("resil: out of memory\n", stderr);
		exit(EXIT_FAILED);
	}
	return p;
}

struct table *table_new(const char *const *headers, size_t columns)
{
	struct table *t = must(calloc(1, sizeof *t));
	t->headers = headers;
	t->columns = columns;
	t->state_column = -1;
	return t;
}

void table_style(struct table *t, int state_column, unsigned right)
{
	t->state_column = state_column;
	t->right = right;
}

void table_row(struct table *t, const char *const *cells)
{
	if (t->rows == t->room) {
		t->room = t->room ? t->room * 2 : 32;
		t->cells = must(realloc(t->cells, t->room * t->columns * sizeof *t->cells));
	}
	for (size_t i = 0; i < t->columns; i++) {
		char *cell = must(strdup(cells[i]));
		for (char *p = cell; *p; p++)
			if ((unsigned char)*p < 0x20 || *p == 0x7f)
				*p = '?';
		t->cells[t->rows * t->columns + i] = cell;
	}
	t->rows++;
}

static const char *colour_of(const char *state)
{
	if (strcmp(state, "closed") == 0)
		return "\033[32m";
	if (strstr(state, "half_open"))
		return "\033[33m";
	return strstr(state, "open") ? "\033[31m" : "\033[36m";
}

static void print_cell(const struct table *t, size_t column, const char *cell, size_t width, bool is_coloured)
{
	bool is_last = column + 1 == t->columns, is_right = t->right >> column & 1;
	size_t pad = width > strlen(cell) ? width - strlen(cell) : 0;
	bool is_state = is_coloured && (int)column == t->state_column;

	printf("%*s%s%s%s%*s", is_right ? (int)pad : 0, "", is_state ? colour_of(cell) : "", cell,
		is_state ? "\033[0m" : "", is_right || is_last ? 0 : (int)pad, "");
	fputs(is_last ? "\n" : "  ", stdout);
}

static void print_aligned(const struct table *t)
{
	const char *no_colour = getenv("NO_COLOR");
	bool is_coloured = !no_colour || no_colour[0] == '\0';
	if (!t->cells)
		return;
	size_t *widths = must(calloc(t->columns, sizeof *widths));

	for (size_t c = 0; c < t->columns; c++) {
		widths[c] = strlen(t->headers[c]);
		for (size_t r = 0; r < t->rows; r++)
			if (strlen(t->cells[r * t->columns + c]) > widths[c])
				widths[c] = strlen(t->cells[r * t->columns + c]);
	}
	for (size_t c = 0; c < t->columns; c++)
		print_cell(t, c, t->headers[c], widths[c], false);
	for (size_t r = 0; r < t->rows; r++)
		for (size_t c = 0; c < t->columns; c++)
			print_cell(t, c, t->cells[r * t->columns + c], widths[c], is_coloured);
	free(widths);
}

void table_print(struct table *t)
{
	if (out_is_terminal()) {
		print_aligned(t);
	} else {
		for (size_t i = 0; i < t->rows * t->columns; i++)
			printf("%s%c", t->cells[i], (i + 1) % t->columns ? '\t' : '\n');
	}
	for (size_t i = 0; i < t->rows * t->columns; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t);
}

bool view_is_open(const struct circuit_view *v)
{
	if (v->mode == BREAKER_FORCED_CLOSED)
		return false;
	return v->mode == BREAKER_FORCED_OPEN || v->state != BREAKER_CLOSED;
}

bool view_is_full(const struct circuit_view *v)
{
	return v->bulkhead_limit && v->bulkhead_in_use >= v->bulkhead_limit;
}

void state_text(char *to, size_t cap, const struct circuit_view *v)
{
	if (v->mode == BREAKER_FORCED_OPEN || v->mode == BREAKER_FORCED_CLOSED)
		snprintf(to, cap, "%s", breaker_mode_name(v->mode));
	else
		snprintf(to, cap, "%s%s", circuit_shown_mode(v) == BREAKER_OBSERVE ? "observe:" : "",
			breaker_state_name(v->state));
	/* From where it is served meanwhile: "open (secondary)", "open (cache, reply)". */
	const char *before = " (";
	for (int i = 0; i < DEGRADED_SOURCE_COUNT; i++) {
		size_t n = strlen(to);
		if (!(v->degraded >> i & 1) || n >= cap)
			continue;
		snprintf(to + n, cap - n, "%s%s", before, degraded_source_name((enum degraded_source)i));
		before = ", ";
	}
	size_t n = strlen(to);
	if (v->degraded && n < cap)
		snprintf(to + n, cap - n, ")");
}

void in_flight_text(char *to, size_t cap, const struct circuit_view *v)
{
	if (v->bulkhead_limit)
		snprintf(to, cap, "%u/%u", v->bulkhead_in_use, v->bulkhead_limit);
	else
		snprintf(to, cap, "%u", v->in_flight);
}

void ms_text(char *to, size_t cap, uint64_t ms)
{
	if (ms < 1000)
		snprintf(to, cap, "%llums", (unsigned long long)ms);
	else
		snprintf(to, cap, "%.1fs", (double)ms / 1000);
}

void us_text(char *to, size_t cap, uint64_t us, bool is_known)
{
	if (!is_known)
		snprintf(to, cap, "-");
	else if (us < 1000)
		snprintf(to, cap, "%lluus", (unsigned long long)us);
	else if (us < 1000000)
		snprintf(to, cap, "%.1fms", (double)us / 1000);
	else
		snprintf(to, cap, "%.1fs", (double)us / 1000000);
}

void print_rendered(void (*fn)(struct text *t, const void *ctx), const void *ctx)
{
	for (size_t cap = 1u << 16;; cap *= 2) {
		struct text t = {.at = must(malloc(cap)), .cap = cap};
		t.at[0] = '\0';
		fn(&t, ctx);
		if (!t.is_cut)
			fwrite(t.at, 1, t.len, stdout);
		free(t.at);
		if (!t.is_cut)
			return;
	}
}

const char *shell_word(const char *name)
{
	/* Brackets of IPv6 stay bare: they are no pattern that names a file. */
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/@%+=,-[]";
	static char at[SHELL_WORD_MAX];
	struct text t = TEXT_ON(at);
	at[0] = '\0';
	if (name[strspn(name, plain)] == '\0')
		return name;
	text_char(&t, '\'');
	for (; *name; name++) {
		if (*name == '\'')
			text_str(&t, "'\\''");
		else
			text_char(&t, *name);
	}
	text_char(&t, '\'');
	return at;
}
