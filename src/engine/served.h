/* The serving side of HTTP/1, for end points: requests out of octets, one at a time. Pure. */
#ifndef RESIL_ENGINE_SERVED_H
#define RESIL_ENGINE_SERVED_H

#include <llhttp.h>
#include <stdbool.h>
#include <stdint.h>

#define SERVED_HEAD_MAX 8192u

enum served_says {
	SERVED_MORE,	 /* all of it is taken, and the request is not whole yet */
	SERVED_HEAD,	 /* its head is; go on, also with no octets left: that may have been all of it */
	SERVED_REQUEST,	 /* it is whole: answer, then served_next */
	SERVED_NOT_HTTP, /* what was taken before it stays taken */
};

struct served {
	llhttp_t parser;
	uint32_t head_len; /* of the request in progress, or the whole one */
	bool is_cut;	   /* its head is longer than there is room for */
	bool has_head, is_whole;
	bool has_body;
	bool keeps; /* the connection may stay open behind the answer */
	char head[SERVED_HEAD_MAX];
};

void served_begin(struct served *s);
enum served_says served_feed(struct served *s, const void *octets, uint32_t n, uint32_t *taken);
void served_next(struct served *s);
static inline bool served_is_head(const struct served *s) /* HEAD: no body follows its answer */
{
	return s->parser.method == HTTP_HEAD;
}
static inline bool served_is_old(const struct served *s)
{
	return s->parser.http_major == 1 && s->parser.http_minor == 0;
}

#endif
