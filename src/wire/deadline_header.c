/* See deadline_header.h. */
#include "wire/deadline_header.h"

#include <string.h>

/* ---- which requests have their whole head here ---- */

struct heads {
	int count;
	bool is_open; /* the last one lacks its end */
	struct {
		size_t begin, end;
	} at[HTTP1_PENDING_MAX];
};

static void note_head(void *context, const struct http1_event *event)
{
	struct heads *heads = context;

	if (event->what == HTTP1_REQUEST_BEGINS && heads->count < HTTP1_PENDING_MAX) {
		heads->at[heads->count].begin = event->at;
		heads->is_open = true;
	} else if (event->what == HTTP1_REQUEST_HEAD && heads->is_open) {
		heads->is_open = false;
		heads->at[heads->count].end = event->at;
		/* A tunnel's head is for the proxy. */
		heads->count += event->method != HTTP_CONNECT;
	}
}

/* ---- octets of a vector one by one ---- */

struct cursor {
	const struct iovec *iov;
	size_t in_piece, at, end;
};

static void cursor_set(struct cursor *c, const struct iovec *iov, size_t begin, size_t end)
{
	*c = (struct cursor){.iov = iov, .in_piece = begin, .at = begin, .end = end};
	while (c->at < end && c->in_piece >= c->iov->iov_len) {
		c->in_piece -= c->iov->iov_len;
		c->iov++;
	}
}

/* -1: the end. */
static int cursor_next(struct cursor *c)
{
	if (c->at == c->end)
		return -1;
	int octet = ((const unsigned char *)c->iov->iov_base)[c->in_piece++];
	c->at++;
	while (c->at < c->end && c->in_piece >= c->iov->iov_len) {
		c->in_piece -= c->iov->iov_len;
		c->iov++;
	}
	return octet;
}

/* ---- one head ---- */

static int lower(int octet)
{
	return octet >= 'A' && octet <= 'Z' ? octet + ('a' - 'A') : octet;
}

static bool is_blank(int octet)
{
	return octet == ' ' || octet == '\t' || octet == '\r' || octet == '\n';
}

/* The value of a field of that name, as it is read octet by octet. A continued line is a blank within it. */
struct value {
	bool is_there, is_bad, is_begun;
	size_t begin, end;
	uint64_t number;
};

static void value_octet(struct value *v, int octet, size_t at)
{
	if (is_blank(octet))
		return;
	if (!v->is_begun) {
		v->is_begun = true;
		v->begin = at;
	} else if (v->end != at) {
		v->is_bad = true; /* a blank within */
	}
	v->end = at + 1;
	if (octet < '0' || octet > '9')
		v->is_bad = true;
	else if (v->number > UINT64_MAX / 16)
		v->number = UINT64_MAX / 16; /* more than anybody has left */
	else
		v->number = v->number * 10 + (uint64_t)(octet - '0');
}

/* How a line is read. */
enum reading { READING_FIRST, READING_NAME, READING_COLON, READING_VALUE, READING_OTHER };

struct head {
	struct deadline_header_edit *edits;
	int count, max;
	size_t begin;
	uint64_t left_ms;
	bool is_set; /* by the app */
};

static void add(struct head *h, struct deadline_header_edit edit)
{
	if (h->count == h->max)
		return;
	edit.request = h->begin;
	edit.ms = h->left_ms;
	h->edits[h->count++] = edit;
}

static void value_ends(struct head *h, struct value *v)
{
	if (!v->is_there)
		return;
	h->is_set = true;
	if (!v->is_begun || v->is_bad || v->number > h->left_ms)
		add(h, (struct deadline_header_edit){.at = v->begin, .removed = v->end - v->begin});
	*v = (struct value){0};
}

/* Reads the head [begin, end). False: its lines are not what framing took them for. */
static bool read_head(struct head *h, const struct iovec *iov, size_t end, const char *name)
{
	struct cursor c;
	struct value v = {0};
	enum reading reading = READING_FIRST;
	size_t matched = 0, line = h->begin, at;
	int octet, before = 0;

	cursor_set(&c, iov, h->begin, end);
	for (; at = c.at, (octet = cursor_next(&c)) >= 0; before = octet) {
		if (before == '\r' && octet != '\n')
			return false; /* some end a line there, some do not */
		if (octet == '\n') {
			if (reading != READING_FIRST && (at == line || (at == line + 1 && before == '\r'))) {
				value_ends(h, &v);
				if (!h->is_set)
					add(h, (struct deadline_header_edit){.at = line, .is_line = true});
				return c.at == end;
			}
			line = c.at;
			matched = 0;
			reading = READING_NAME;
			continue;
		}
		if (at == line && reading == READING_NAME) {
			if (is_blank(octet) && octet != '\r')
				reading = v.is_there ? READING_VALUE : READING_OTHER;
			else
				value_ends(h, &v);
		}
		switch (reading) {
		case READING_NAME:
			if (lower(octet) != lower((unsigned char)name[matched]))
				reading = READING_OTHER;
			else if (name[++matched] == '\0')
				reading = READING_COLON;
			break;
		case READING_COLON:
			if (octet == ':') {
				v = (struct value){.is_there = true, .begin = c.at, .end = c.at};
				reading = READING_VALUE;
			} else if (octet != ' ' && octet != '\t') {
				reading = READING_OTHER;
			}
			break;
		case READING_VALUE: value_octet(&v, octet, at); break;
		case READING_FIRST:
		case READING_OTHER: break;
		}
	}
	return false;
}

int deadline_header_find(struct http1 *http, const struct iovec *iov, int count, size_t limit, const char *name,
	uint64_t left_ms, struct deadline_header_edit edits[DEADLINE_HEADER_MAX], int carried)
{
	struct heads heads = {0};
	size_t length = strlen(name);
	int n = carried;

	if (length == 0 || length > DEADLINE_HEADER_NAME_MAX)
		return n;
	http1_preview(http, iov, count, limit, note_head, &heads);
	for (int i = 0; i < heads.count; i++) {
		int room = DEADLINE_HEADER_MAX - n;
		struct head head = {.edits = edits + n,
			.max = room < DEADLINE_HEADER_CARRY ? room : DEADLINE_HEADER_CARRY,
			.begin = heads.at[i].begin,
			.left_ms = left_ms};
		if (read_head(&head, iov, heads.at[i].end, name))
			n += head.count;
	}
	return n;
}

/* ---- texts, vectors, counts ---- */

size_t deadline_header_text(
	const struct deadline_header_edit *edit, const char *name, char to[DEADLINE_HEADER_TEXT_MAX])
{
	char digits[20];
	size_t n = 0, count = 0;

	for (uint64_t ms = edit->ms; count == 0 || ms > 0; ms /= 10)
		digits[count++] = (char)('0' + ms % 10);
	if (edit->is_line) {
		n = strlen(name);
		memcpy(to, name, n);
		to[n++] = ':';
		to[n++] = ' ';
	}
	while (count > 0)
		to[n++] = digits[--count];
	if (edit->is_line) {
		to[n++] = '\r';
		to[n++] = '\n';
	}
	return n;
}

struct pieces {
	struct iovec *out;
	int count, max;
};

static bool put(struct pieces *p, const void *at, size_t n)
{
	if (n == 0)
		return true;
	if (p->count == p->max)
		return false;
	p->out[p->count++] = (struct iovec){.iov_base = (void *)(uintptr_t)at, .iov_len = n};
	return true;
}

/* The app's octets [from, to). */
static bool put_own(struct pieces *p, const struct iovec *iov, int count, size_t from, size_t to)
{
	for (int i = 0; i < count && to > 0; i++) {
		size_t n = iov[i].iov_len, stop = to < n ? to : n;
		if (from < stop && !put(p, (const char *)iov[i].iov_base + from, stop - from))
			return false;
		from = from > n ? from - n : 0;
		to = to > n ? to - n : 0;
	}
	return true;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

int deadline_header_vector(const struct deadline_header_edit *edits, int n, const char *name, const struct iovec *iov,
	int count, size_t limit, struct iovec *out, int max, char (*text)[DEADLINE_HEADER_TEXT_MAX])
{
	struct pieces p = {.out = out, .max = max};
	size_t own = 0;

	for (int i = 0; i < n && edits[i].at < limit; i++) {
		size_t length = deadline_header_text(&edits[i], name, text[i]);
		if (!put_own(&p, iov, count, own, edits[i].at) ||
			!put(&p, text[i] + edits[i].gone, length - edits[i].gone))
			return p.count;
		own = edits[i].at + least(edits[i].removed, limit - edits[i].at);
	}
	put_own(&p, iov, count, own, limit);
	return p.count;
}

size_t deadline_header_sent(struct deadline_header_edit *edits, int *n, const char *name, size_t limit, size_t gone)
{
	char text[DEADLINE_HEADER_TEXT_MAX];
	size_t own = 0;
	int i, kept = 0;

	for (i = 0; i < *n && edits[i].at < limit; i++) {
		struct deadline_header_edit *e = &edits[i];
		if (gone < e->at - own)
			break;
		gone -= e->at - own;
		own = e->at;
		size_t left = deadline_header_text(e, name, text) - e->gone, went = least(left, gone);
		e->gone = (uint8_t)(e->gone + went);
		gone -= went;
		if (went < left)
			break;
		size_t dropped = least(e->removed, limit - own);
		own += dropped;
		e->removed -= dropped;
		if (e->removed > 0)
			break; /* the rest of what it stands for is in the next octets */
	}
	if (i == *n || edits[i].at > own)
		own = least(own + gone, limit);
	for (; i < *n; i++) {
		struct deadline_header_edit e = edits[i];
		if (!e.is_carried && own <= e.request)
			continue; /* not begun: it is found again */
		e.at = e.at > own ? e.at - own : 0;
		e.request = 0;
		e.is_carried = true;
		edits[kept++] = e;
	}
	*n = kept;
	return own;
}
