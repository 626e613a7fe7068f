/* See client.h. */
#include "control/client.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/ownfd.h"
#include "base/sys.h"
#include "control/routes.h"

/* ---- the request ---- */

static struct client *of(llhttp_t *parser)
{
	return parser->data;
}

static int refuse(struct client *c, uint16_t status)
{
	c->refusal = status;
	return HPE_USER;
}

static int on_url(llhttp_t *parser, const char *at, size_t n)
{
	struct client *c = of(parser);
	if (n > CLIENT_URL_MAX - c->url_len)
		return refuse(c, 431);
	memcpy(c->url + c->url_len, at, n);
	c->url_len += (uint32_t)n;
	c->url[c->url_len] = '\0';
	return 0;
}

/* Keeps the first bytes of a piece-wise text; longer than its place counts as other than what we look for. */
static void keep(char *to, size_t cap, uint32_t *len, const char *at, size_t n)
{
	for (size_t i = 0; i < n && *len < cap; i++)
		to[(*len)++] = (char)(at[i] >= 'A' && at[i] <= 'Z' ? at[i] | 0x20 : at[i]);
}

static int on_header_field(llhttp_t *parser, const char *at, size_t n)
{
	keep(of(parser)->field, sizeof of(parser)->field, &of(parser)->field_len, at, n);
	return 0;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t n)
{
	keep(of(parser)->value, sizeof of(parser)->value, &of(parser)->value_len, at, n);
	return 0;
}

static bool is_text(const char *at, uint32_t len, const char *wanted)
{
	return len == strlen(wanted) && memcmp(at, wanted, len) == 0;
}

static int on_header_value_complete(llhttp_t *parser)
{
	struct client *c = of(parser);
	bool is_expect = is_text(c->field, c->field_len, "expect"),
	     is_known = is_text(c->value, c->value_len, "100-continue");
	c->field_len = c->value_len = 0;
	if (!is_expect)
		return 0;
	if (!is_known)
		return refuse(c, 417);
	c->wants_continue = true;
	return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
	struct client *c = of(parser);
	c->has_head = true;
	if (parser->http_major != 1)
		return refuse(c, 505);
	if (parser->http_minor == 0)
		c->wants_continue = false;
	if (parser->content_length > CLIENT_REQUEST_MAX)
		return refuse(c, 413);
	return 0;
}

static int on_message_complete(llhttp_t *parser)
{
	of(parser)->is_complete = true;
	return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
	.on_url = on_url,
	.on_header_field = on_header_field,
	.on_header_value = on_header_value,
	.on_header_value_complete = on_header_value_complete,
	.on_headers_complete = on_headers_complete,
	.on_message_complete = on_message_complete,
};

static void await_request(struct client *c, int64_t now_ns)
{
	c->state = CLIENT_READING;
	c->is_complete = c->has_head = c->wants_continue = c->is_chunked = false;
	c->refusal = 0;
	c->request_bytes = c->url_len = c->field_len = c->value_len = 0;
	c->url[0] = '\0';
	c->out_at = c->out_len = 0;
	c->deadline_ns = now_ns + CLIENT_PATIENCE_NS;
	c->active_ns = now_ns;
	llhttp_init(&c->parser, HTTP_REQUEST, &settings);
	c->parser.data = c;
}

void client_begin(struct client *c, int fd, bool is_foreign, int64_t now_ns)
{
	c->fd = fd;
	c->is_last = c->has_ended = false;
	c->is_foreign = is_foreign;
	c->in_at = c->in_len = 0;
	c->out = NULL;
	c->out_cap = 0;
	await_request(c, now_ns);
}

void client_end(struct client *c)
{
	ownfd_close(c->fd);
	c->fd = -1;
	if (c->out)
		sys_munmap(c->out, c->out_cap);
	c->out = NULL;
	c->out_cap = 0;
	c->state = CLIENT_FREE;
}

/* Parses what has been read; stops at the end of one request. */
static void parse(struct client *c)
{
	uint32_t n = c->in_len - c->in_at, room = CLIENT_REQUEST_MAX - c->request_bytes;
	const char *at = c->in + c->in_at;
	bool is_over = n > room;

	if (is_over)
		n = room;
	llhttp_errno_t err = llhttp_execute(&c->parser, at, n);
	if (c->is_complete) {
		const char *end = llhttp_get_error_pos(&c->parser);
		uint32_t used = end && end >= at && end <= at + n ? (uint32_t)(end - at) : n;
		c->in_at += used;
		c->request_bytes += used;
		if (!llhttp_should_keep_alive(&c->parser) || c->parser.upgrade)
			c->is_last = true;
		return;
	}
	c->in_at += n;
	c->request_bytes += n;
	if (err != HPE_OK && c->refusal == 0)
		c->refusal = 400;
	if (err == HPE_OK && is_over)
		c->refusal = c->has_head ? 413 : 431;
}

/* ---- the answer ---- */

bool client_grow(struct client *c)
{
	if (c->out_cap >= CLIENT_OUT_LAST)
		return false;
	size_t want = c->out ? c->out_cap * 2 : CLIENT_OUT_FIRST;
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): what mremap returns is an address */
	void *at = c->out ? (void *)SYS4(SYS_mremap, c->out, c->out_cap, want, MREMAP_MAYMOVE)
			  : sys_mmap(want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(at))
		return false;
	c->out = at;
	c->out_cap = want;
	return true;
}

static struct text body_text(struct client *c)
{
	c->out[CLIENT_HEAD_ROOM] = '\0';
	return (struct text){.at = c->out + CLIENT_HEAD_ROOM, .cap = c->out_cap - CLIENT_HEAD_ROOM};
}

/* Writes the head so that it ends where the body begins. */
static void put_head(struct client *c, int status, const struct answer *a, bool is_head)
{
	char head_at[CLIENT_HEAD_ROOM] = "";
	struct text head = TEXT_ON(head_at);

	text_fmt(&head, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\n", status,
		routes_status_text(status), a->type);
	if (a->allow[0])
		text_fmt(&head, "Allow: %s\r\n", a->allow);
	if (!a->follows)
		text_fmt(&head, "Content-Length: %llu\r\n", (unsigned long long)a->body->len);
	else if (c->is_chunked)
		text_str(&head, "Transfer-Encoding: chunked\r\n");
	if (c->is_last)
		text_str(&head, "Connection: close\r\n");
	else if (c->parser.http_minor == 0)
		text_str(&head, "Connection: keep-alive\r\n");
	text_str(&head, "\r\n");
	c->out_at = CLIENT_HEAD_ROOM - head.len;
	memcpy(c->out + c->out_at, head_at, head.len);
	c->out_len = head.len + (is_head ? 0 : a->body->len);
}

static const char *refusal_words(int status)
{
	switch (status) {
	case 403: return "this socket belongs to another user";
	case 413: return "the request is too long; at most 8 KB with its body";
	case 417: return "only 100-continue can be expected";
	case 431: return "the request's head is too long; at most 1 KB of path and 8 KB in all";
	case 505: return "HTTP/1.0 or HTTP/1.1 is spoken here";
	default: return "this is not an HTTP/1.1 request";
	}
}

/* The path, its query cut off. Absolute forms (GET http://resil/health) are what proxies send; they are taken too. */
static char *split_url(char *url, char **query)
{
	char *path = url;
	if (strncmp(url, "http://", 7) == 0) {
		path = strchr(url + 7, '/');
		if (!path)
			return "/";
	}
	*query = strchr(path, '?');
	if (*query)
		*(*query)++ = '\0';
	return path;
}

/* Makes the answer in `out`; false: no memory. */
static bool answer(struct client *c, const struct control_host *host, int64_t now_ns)
{
	struct request q = {.host = host, .region = host->region(), .now_ns = now_ns};
	struct answer a = {0};
	struct text body;
	char *query = NULL;
	int status;

	if (!c->out && !client_grow(c))
		return false;
	/* Only now: one closed before it has sent its request meets EPIPE and never reads why. */
	if (c->is_foreign)
		c->refusal = 403;
	if (c->refusal) {
		body = body_text(c);
		a.body = &body;
		c->is_last = true;
		put_head(c, routes_error(&a, c->refusal, refusal_words(c->refusal)), &a, false);
		return true;
	}
	bool is_head = c->parser.method == HTTP_HEAD;
	q.method = is_head ? "GET" : llhttp_method_name((llhttp_method_t)c->parser.method);
	q.path = split_url(c->url, &query);
	q.query = query;
	if (c->parser.method == HTTP_CONNECT)
		c->is_last = true;
	for (;;) {
		a = (struct answer){0};
		body = body_text(c);
		a.body = &body;
		status = routes_answer(&q, &a);
		if (!body.is_cut)
			break;
		if (strcmp(q.method, "GET") != 0 || !client_grow(c)) {
			body = body_text(c);
			a.body = &body;
			status = routes_error(&a, 500, "the answer is too long");
			break;
		}
	}
	if (a.follows && !is_head) {
		c->state = CLIENT_FOLLOWING;
		c->cursor = (struct render_cursor){.seq = a.since, .is_patient = true};
		c->is_chunked = c->parser.http_minor > 0;
		c->is_last = c->is_last || !c->is_chunked;
	}
	put_head(c, status, &a, is_head);
	return true;
}

/* Sends what the socket takes. false: the client is gone. */
static bool flush(struct client *c, int64_t now_ns)
{
	while (c->out_len > 0) {
		if (!ownfd_is_intact(c->fd))
			return false;
		ssize_t n = sys_send(c->fd, c->out + c->out_at, c->out_len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return true;
		if (n <= 0)
			return false;
		c->out_at += (size_t)n;
		c->out_len -= (size_t)n;
		c->active_ns = now_ns;
		c->deadline_ns = now_ns + CLIENT_PATIENCE_NS;
	}
	return true;
}

bool client_follow(struct client *c, const struct control_host *host, int64_t now_ns)
{
	const struct region *r = host->region();
	struct event e;
	char size_at[16];

	if (c->out_len > 0)
		return flush(c, now_ns);
	c->deadline_ns = INT64_MAX;
	if (!r)
		return true;
	struct text body = body_text(c);
	while (body.len + 8192 < body.cap && render_next_event(r, &c->cursor, now_ns, &e))
		render_event(&body, r, &e);
	if (body.len == 0)
		return true;
	c->out_at = CLIENT_HEAD_ROOM;
	c->out_len = body.len;
	if (c->is_chunked) {
		struct text size = TEXT_ON(size_at);
		for (int shift = 28; shift >= 0; shift -= 4)
			text_char(&size, "0123456789abcdef"[(body.len >> shift) & 15]);
		text_str(&size, "\r\n");
		memcpy(c->out + CLIENT_HEAD_ROOM - size.len, size_at, size.len);
		memcpy(c->out + CLIENT_HEAD_ROOM + body.len, "\r\n", 2);
		c->out_at -= size.len;
		c->out_len += size.len + 2;
	}
	c->deadline_ns = now_ns + CLIENT_PATIENCE_NS;
	return flush(c, now_ns);
}

/* ---- moving on ---- */

short client_events(const struct client *c)
{
	if (c->out_len > 0)
		return POLLOUT;
	return c->state == CLIENT_READING && !c->has_ended ? POLLIN : 0;
}

bool client_has_more(const struct client *c)
{
	return c->state == CLIENT_READING && c->in_at < c->in_len;
}

/* One read. false: nothing for now (or the end, then has_ended). */
static bool fill(struct client *c, int64_t now_ns)
{
	c->in_at = c->in_len = 0;
	if (c->has_ended)
		return false;
	if (!ownfd_is_intact(c->fd)) {
		c->has_ended = true;
		return false;
	}
	ssize_t n = sys_recv(c->fd, c->in, sizeof c->in, MSG_DONTWAIT);
	if (n == -EAGAIN || n == -EINTR)
		return false;
	if (n <= 0) {
		c->has_ended = true;
		return false;
	}
	c->in_len = (uint32_t)n;
	c->active_ns = now_ns;
	return true;
}

static bool send_continue(struct client *c)
{
	static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
	c->wants_continue = false;
	return ownfd_is_intact(c->fd) &&
	       sys_send(c->fd, line, sizeof line - 1, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof line - 1;
}

/* Reads until a request is complete or refused. false: not yet. */
static bool read_request(struct client *c, int64_t now_ns)
{
	while (!c->is_complete && c->refusal == 0) {
		if (c->in_at == c->in_len && !fill(c, now_ns)) {
			if (c->wants_continue && !send_continue(c))
				c->has_ended = true;
			return false;
		}
		/* A request has 10 s from its first byte: one that drips is no more patient than one that is silent. */
		if (c->request_bytes == 0)
			c->deadline_ns = now_ns + CLIENT_PATIENCE_NS;
		parse(c);
	}
	return true;
}

bool client_step(struct client *c, const struct control_host *host, short revents, int64_t now_ns)
{
	if (revents & (POLLERR | POLLNVAL))
		return false;
	if (c->state == CLIENT_FOLLOWING)
		return !(revents & POLLHUP) && flush(c, now_ns);
	/* A bounded number of pipelined requests a turn, so that one client does not keep the others waiting. */
	for (int turn = 0; turn < 8; turn++) {
		if (c->state == CLIENT_READING) {
			if (!read_request(c, now_ns))
				return !c->has_ended;
			c->state = CLIENT_ANSWERING;
			c->deadline_ns = now_ns + CLIENT_PATIENCE_NS;
			if (!answer(c, host, now_ns))
				return false;
		}
		if (!flush(c, now_ns))
			return false;
		if (c->out_len > 0)
			return true;
		if (c->state == CLIENT_FOLLOWING)
			return client_follow(c, host, now_ns);
		if (c->is_last)
			return false;
		await_request(c, now_ns);
	}
	return true;
}
