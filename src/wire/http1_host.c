/* See http1_host.h. */
#include "wire/http1_host.h"

#include <string.h>

static const char field[] = "host:";

void http1_host_begin(struct http1_host *h)
{
	h->at = (struct http1_host_at){.state = HTTP1_HOST_FIRST};
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* The value's line has ended. */
static void value_ends(struct http1_host *h)
{
	while (h->at.length > 0 && is_blank(h->name[h->at.length - 1]))
		h->at.length--;
	h->at.state = h->at.length > 0 ? HTTP1_HOST_FOUND : HTTP1_HOST_OVER;
}

static void field_goes_on(struct http1_host *h, char c)
{
	char lower = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
	if (h->at.matched == 0 && c == '\r')
		return; /* of the blank line */
	if (h->at.matched == 0 && c == '\n') {
		h->at.state = HTTP1_HOST_OVER;
	} else if (lower != field[h->at.matched]) {
		h->at.state = c == '\n' ? HTTP1_HOST_LINE : HTTP1_HOST_SKIPS;
		h->at.matched = 0;
	} else if (++h->at.matched == sizeof field - 1) {
		h->at.state = HTTP1_HOST_VALUE;
	}
}

static void value_goes_on(struct http1_host *h, char c)
{
	if (c == '\r' || c == '\n')
		value_ends(h);
	else if (h->at.length == HTTP1_HOST_MAX)
		h->at.state = HTTP1_HOST_OVER; /* no name is so long */
	else if (h->at.length > 0 || !is_blank(c))
		h->name[h->at.length++] = c;
}

void http1_host_feed(struct http1_host *h, const char *p, size_t n)
{
	const char *end = p + n;
	while (p < end && http1_host_is_open(h)) {
		switch ((enum http1_host_state)h->at.state) {
		case HTTP1_HOST_FIRST:
			if (*p == '\r' || *p == '\n')
				p++;
			else
				h->at.state = HTTP1_HOST_SKIPS;
			break;
		case HTTP1_HOST_SKIPS:
			p = memchr(p, '\n', (size_t)(end - p));
			if (!p)
				return;
			p++;
			h->at.state = HTTP1_HOST_LINE;
			break;
		case HTTP1_HOST_LINE: field_goes_on(h, *p++); break;
		case HTTP1_HOST_VALUE: value_goes_on(h, *p++); break;
		default: return;
		}
	}
}
