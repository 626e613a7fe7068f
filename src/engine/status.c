/* The end point of an injected HTTP status: one answer, once a request is whole, and the end of the connection, so that
 * a client meets the server again when the fault is lifted. Who speaks no HTTP/1 meets a reset. The thread of detours
 * alone. */
#include <string.h>

#include "base/text.h"
#include "engine/detour_record.h"
#include "engine/relay.h"
#include "engine/served.h"

struct status {
	struct served http;
	bool is_answered;
};
_Static_assert(sizeof(struct status) <= sizeof(((struct detour *)0)->own), "its room");

static const struct {
	const char *number, *words;
} reasons[] = {{"200", "OK"}, {"204", "No Content"}, {"301", "Moved Permanently"}, {"302", "Found"},
	{"304", "Not Modified"}, {"400", "Bad Request"}, {"401", "Unauthorized"}, {"403", "Forbidden"},
	{"404", "Not Found"}, {"408", "Request Timeout"}, {"409", "Conflict"}, {"410", "Gone"},
	{"413", "Content Too Large"}, {"418", "I'm a teapot"}, {"422", "Unprocessable Content"}, {"425", "Too Early"},
	{"429", "Too Many Requests"}, {"500", "Internal Server Error"}, {"501", "Not Implemented"},
	{"502", "Bad Gateway"}, {"503", "Service Unavailable"}, {"504", "Gateway Timeout"},
	{"505", "HTTP Version Not Supported"}, {"507", "Insufficient Storage"}};

static const char *reason_of(const char *number)
{
	for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
		if (strcmp(reasons[i].number, number) == 0)
			return reasons[i].words;
	return "Injected";
}

static struct status *status_of(struct detour *d)
{
	return (struct status *)(void *)d->own;
}

static int begin(struct detour *d, int64_t now_ns)
{
	struct status *s = status_of(d);
	(void)now_ns;
	s->is_answered = false;
	served_begin(&s->http);
	return 0;
}

static void answer(struct detour *d, int64_t now_ns)
{
	struct status *s = status_of(d);
	struct detour_way *down = &d->way[DETOUR_DOWN];
	char head[256], body[128];
	struct text t = TEXT_ON(head), b = TEXT_ON(body);
	bool has_body = strcmp(d->path, "204") != 0 && strcmp(d->path, "304") != 0;
	body[0] = '\0';
	if (has_body)
		text_fmt(&b, "%s %s (injected by resil)\n", d->path, reason_of(d->path));
	text_fmt(&t, "HTTP/1.1 %s %s\r\n", d->path, reason_of(d->path));
	if (has_body)
		text_fmt(&t, "Content-Type: text/plain\r\nContent-Length: %u\r\n", (unsigned)b.len);
	text_str(&t, "Connection: close\r\n\r\n");
	if (!served_is_head(&s->http))
		text_bytes(&t, b.at, b.len);
	/* Nothing was put there before: there is room. */
	uint32_t room;
	uint8_t *at = detour_back(down, &room);
	memcpy(at, t.at, t.len);
	relay_came(down, (uint32_t)t.len, now_ns);
	relay_ended(down, now_ns);
	s->is_answered = true;
}

static int64_t turn(struct detour *d, int64_t now_ns, bool *is_well)
{
	struct status *s = status_of(d);
	struct detour_way *up = &d->way[DETOUR_UP];
	for (bool has_head = false; up->len > 0 || has_head;) {
		uint32_t n, taken;
		const uint8_t *at = detour_front(up, &n);
		if (s->is_answered) {
			detour_took(up, n);
			continue;
		}
		enum served_says says = served_feed(&s->http, at, n, &taken);
		if (says == SERVED_NOT_HTTP) {
			*is_well = false;
			return SHAPE_NEVER;
		}
		detour_took(up, taken);
		has_head = says == SERVED_HEAD;
		if (says == SERVED_REQUEST) {
			answer(d, now_ns);
			has_head = false;
		}
	}
	if (up->has_ended && !s->is_answered)
		relay_ended(&d->way[DETOUR_DOWN], now_ns);
	return SHAPE_NEVER;
}

static void finish(struct detour *d)
{
	(void)d;
}

const struct detour_end status_end = {.begin = begin, .turn = turn, .finish = finish, .put_away = finish};
