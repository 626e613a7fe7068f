/* Whom a request calls its server: the value of `Host` in the head of HTTP/1, which may come in pieces. Nothing but the
 * lines' beginnings is looked at. Pure. */
#ifndef RESIL_WIRE_HTTP1_HOST_H
#define RESIL_WIRE_HTTP1_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP1_HOST_MAX 262 /* the longest name, and a port */

enum http1_host_state {
	HTTP1_HOST_OVER,  /* the head has ended, and named nobody; or nothing has begun */
	HTTP1_HOST_FOUND, /* name, length */
	HTTP1_HOST_FIRST, /* these are open: at the request's line, and what may be before it */
	HTTP1_HOST_LINE,  /* at the beginning of a field */
	HTTP1_HOST_SKIPS, /* in one that is another */
	HTTP1_HOST_VALUE,
};

/* Where it stands: what a send that stops half-way takes back. */
struct http1_host_at {
	uint8_t state;
	uint8_t matched; /* octets of the field's name */
	uint16_t length;
};

struct http1_host {
	struct http1_host_at at;
	char name[HTTP1_HOST_MAX];
};

static inline bool http1_host_is_open(const struct http1_host *h)
{
	return h->at.state > HTTP1_HOST_FOUND;
}
/* At the first octet of a request. */
void http1_host_begin(struct http1_host *h);
/* Octets of the head, and perhaps of what follows it, while it is open. */
void http1_host_feed(struct http1_host *h, const char *p, size_t n);

#endif
