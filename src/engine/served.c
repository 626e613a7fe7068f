/* See served.h. llhttp stops at the end of each head, and of each request: what is behind it stays the caller's. */
#include "engine/served.h"

#include <string.h>

static int on_head(llhttp_t *p)
{
	struct served *s = p->data;
	s->has_head = true;
	s->has_body = p->flags & F_CHUNKED || p->content_length > 0;
	return HPE_PAUSED;
}

static int on_whole(llhttp_t *p)
{
	struct served *s = p->data;
	s->is_whole = true;
	s->keeps = llhttp_should_keep_alive(p);
	return HPE_PAUSED;
}

static const llhttp_settings_t settings = {.on_headers_complete = on_head, .on_message_complete = on_whole};

void served_begin(struct served *s)
{
	memset(s, 0, offsetof(struct served, head));
	llhttp_init(&s->parser, HTTP_REQUEST, &settings);
	s->parser.data = s;
}

void served_next(struct served *s)
{
	s->head_len = 0;
	s->has_head = s->is_whole = s->is_cut = s->has_body = false;
}

static void keep_head(struct served *s, const char *octets, uint32_t n)
{
	if (n > SERVED_HEAD_MAX - s->head_len) {
		s->is_cut = true;
		return;
	}
	memcpy(s->head + s->head_len, octets, n);
	s->head_len += n;
}

enum served_says served_feed(struct served *s, const void *octets, uint32_t n, uint32_t *taken)
{
	bool had_head = s->has_head;
	const char *at = octets, *end = at + n;
	if (llhttp_get_errno(&s->parser) == HPE_PAUSED)
		llhttp_resume(&s->parser);
	enum llhttp_errno err = llhttp_execute(&s->parser, at, n);
	if (err == HPE_PAUSED_UPGRADE) {
		/* Whoever asks for another protocol gets an answer of this one. It is told behind the end of a request
		 * that has been told, and is none of its own. */
		at = llhttp_get_error_pos(&s->parser);
		llhttp_resume_after_upgrade(&s->parser);
		s->is_whole = s->has_head;
		err = s->is_whole ? HPE_OK : llhttp_execute(&s->parser, at, (size_t)(end - at));
	} else {
		at = end;
	}
	if (err == HPE_PAUSED)
		at = llhttp_get_error_pos(&s->parser);
	else if (err != HPE_OK)
		return SERVED_NOT_HTTP;
	else if (!s->is_whole)
		at = end;
	*taken = (uint32_t)(at - (const char *)octets);
	if (!had_head)
		keep_head(s, octets, *taken);
	return s->is_whole ? SERVED_REQUEST : s->has_head && !had_head ? SERVED_HEAD : SERVED_MORE;
}
