/* See complain.h. Called while a configuration is read: in the constructor, on the control thread, and by the command.
 * No state of its own. */
#include "policy/complain.h"

#include <string.h>

#define LINE_MAX_BYTES 1600
#define QUOTE_MAX 60
#define MORE_ROOM 32 /* kept free in the caller's buffer for "... and N more" */
#define WORD_MAX 40

void fault_clear(struct fault *f)
{
	f->what = TEXT_ON(f->what_bytes);
	f->accepted = TEXT_ON(f->accepted_bytes);
	f->suggestion = TEXT_ON(f->suggestion_bytes);
	f->part = NULL;
	f->part_len = 0;
	f->what_bytes[0] = f->accepted_bytes[0] = f->suggestion_bytes[0] = '\0';
}

/* Long values are shown by their beginning. */
static void quote(struct text *t, const char *s, size_t n)
{
	text_char(t, '\'');
	text_bytes(t, s, n < QUOTE_MAX ? n : QUOTE_MAX);
	text_str(t, n > QUOTE_MAX ? "...'" : "'");
}

static void compose(
	struct text *t, const struct complaints *c, uint32_t line, const struct fault *f, const char *value, size_t n)
{
	if (c->source[0]) {
		text_str(t, c->source);
		if (line > 0) {
			text_char(t, ':');
			text_u64(t, line);
		}
		text_str(t, ": ");
	}
	text_bytes(t, f->what.at, f->what.len);

	const char *before = " (";
	if (value) {
		text_str(t, before);
		quote(t, f->part ? f->part : value, f->part ? f->part_len : n);
		before = "; ";
	}
	if (f->accepted.len > 0) {
		text_str(t, before);
		text_bytes(t, f->accepted.at, f->accepted.len);
		before = "; ";
	}
	if (f->suggestion.len > 0) {
		text_str(t, before);
		text_str(t, "did you mean ");
		text_bytes(t, f->suggestion.at, f->suggestion.len);
		text_char(t, '?');
		before = "; ";
	}
	if (before[0] == ';')
		text_char(t, ')');
	/* Values, names of sections and suggestions are bytes as read, and the line is read on terminals. */
	for (size_t i = 0; i < t->len; i++)
		if ((unsigned char)t->at[i] < 0x20 || t->at[i] == 0x7f)
			t->at[i] = '?';
}

void complain(struct complaints *c, uint32_t line, const struct fault *f, const char *value, size_t n)
{
	c->count++;
	if (!c->out)
		return;
	if (c->hidden > 0) {
		c->hidden++;
		return;
	}
	char bytes[LINE_MAX_BYTES];
	struct text t = TEXT_ON(bytes);
	compose(&t, c, line, f, value, n);

	size_t used = c->out->len + 1, room = c->out->cap > used ? c->out->cap - used : 0;
	if (t.len + 1 + MORE_ROOM > room && c->out->len > 0) {
		c->hidden = 1;
		return;
	}
	/* The first is written in any case, cut where it must be. */
	text_bytes(c->out, t.at, t.len);
	text_char(c->out, '\n');
}

void complain_plain(
	struct complaints *c, uint32_t line, const char *what, const char *value, size_t n, const char *accepted)
{
	struct fault f;
	fault_clear(&f);
	text_str(&f.what, what);
	if (accepted)
		text_str(&f.accepted, accepted);
	complain(c, line, &f, value, n);
}

void complain_finish(struct complaints *c)
{
	if (c->out && c->hidden > 0)
		text_fmt(c->out, "... and %d more\n", c->hidden);
}

static unsigned lower(char c)
{
	return (unsigned)(unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Optimal string alignment: Levenshtein with swapped neighbours as one slip. Both words at most WORD_MAX long. */
static unsigned distance(const char *a, size_t n, const char *b, size_t m)
{
	unsigned rows[3][WORD_MAX + 1];
	unsigned *before = rows[0], *last = rows[1], *now = rows[2];
	for (unsigned j = 0; j <= m; j++) {
		before[j] = 0;
		last[j] = j;
	}
	for (unsigned i = 1; i <= n; i++) {
		now[0] = i;
		for (unsigned j = 1; j <= m; j++) {
			unsigned cost = lower(a[i - 1]) != lower(b[j - 1]);
			now[j] = least(least(last[j] + 1, now[j - 1] + 1), last[j - 1] + cost);
			if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
				now[j] = least(now[j], before[j - 2] + 1);
		}
		unsigned *oldest = before;
		before = last;
		last = now;
		now = oldest;
	}
	return last[m];
}

const char *complain_nearest(const char *s, size_t n, const char *const *words)
{
	const char *nearest = NULL;
	size_t best = 3;
	if (n == 0 || n > WORD_MAX)
		return NULL;
	for (; *words; words++) {
		size_t m = strlen(*words);
		if (m > WORD_MAX || m + 2 < n || n + 2 < m)
			continue;
		size_t d = distance(s, n, *words, m);
		if (d < best && 2 * d < m + 1) {
			best = d;
			nearest = *words;
		}
	}
	return nearest;
}
