/* The end point `reply:FILE` (D6): the file's octets once a request has come. The thread of detours alone.
 *
 * What the client says first decides. An HTTP/1 request gets an HTTP answer, each request its own, in order; a file
 * named
 * *.http has its head in it and goes out as it is, and then the connection ends. Everybody else gets the file's octets
 * as soon as they have said anything, and then the end. */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "base/text.h"
#include "engine/detour_record.h"
#include "engine/relay.h"
#include "engine/served.h"
#include "wire/http1_skim.h"

struct reply {
	struct served http;
	int file;
	uint64_t size, at; /* of the file: its octets are given up to `end` */
	uint64_t end;
	char head[512];
	uint32_t head_len, head_at;
	bool is_known; /* what the client speaks */
	bool is_http, is_verbatim;
	bool is_answering;
	bool is_last;
};
_Static_assert(sizeof(struct reply) <= sizeof(((struct detour *)0)->own), "its room");

static struct reply *reply_of(struct detour *d)
{
	return (struct reply *)(void *)d->own;
}

static const struct {
	const char *suffix, *type;
} types[] = {{".json", "application/json"}, {".html", "text/html; charset=utf-8"}, {".htm", "text/html; charset=utf-8"},
	{".txt", "text/plain; charset=utf-8"}, {".xml", "application/xml"}, {".csv", "text/csv"},
	{".js", "text/javascript"}, {".css", "text/css"}, {".svg", "image/svg+xml"}, {".png", "image/png"},
	{".jpg", "image/jpeg"}, {".gif", "image/gif"}, {".pdf", "application/pdf"}};

static bool ends_in(const char *path, const char *suffix)
{
	size_t n = strlen(path), m = strlen(suffix);
	return n >= m && strcmp(path + n - m, suffix) == 0;
}

static const char *type_of(const char *path)
{
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (ends_in(path, types[i].suffix))
			return types[i].type;
	return "application/octet-stream";
}

static bool open_file(struct detour *d)
{
	struct reply *r = reply_of(d);
	struct stat st;
	r->file = sys_open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	if (r->file < 0 || sys_fstat(r->file, &st) != 0 || !S_ISREG(st.st_mode))
		return false;
	/* One that changes in the midst of an answer is no longer what was promised. */
	if (r->is_answering && r->size != (uint64_t)st.st_size)
		return false;
	r->size = (uint64_t)st.st_size;
	return true;
}

static void close_file(struct detour *d)
{
	struct reply *r = reply_of(d);
	if (r->file >= 0)
		sys_close(r->file);
	r->file = -1;
}

static int begin(struct detour *d, int64_t now_ns)
{
	struct reply *r = reply_of(d);
	(void)now_ns;
	memset(r, 0, sizeof *r);
	r->file = -1;
	served_begin(&r->http);
	r->is_verbatim = ends_in(d->path, ".http");
	return open_file(d) ? 0 : EIO;
}

/* Behind the blank line of a file that has its own head; 0: none there. */
static uint64_t head_of_file(const struct reply *r)
{
	char buf[8192];
	ssize_t n = SYS4(SYS_pread64, r->file, buf, sizeof buf, 0);
	for (ssize_t i = 0; i + 1 < n; i++)
		if (buf[i] == '\n' && (buf[i + 1] == '\n' || (i + 2 < n && buf[i + 1] == '\r' && buf[i + 2] == '\n')))
			return (uint64_t)i + (buf[i + 1] == '\n' ? 2 : 3);
	return 0;
}

static void write_head(const struct detour *d, struct reply *r)
{
	struct text t = {.at = r->head, .cap = sizeof r->head};
	text_fmt(&t, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %llu\r\n", type_of(d->path),
		(unsigned long long)r->size);
	if (r->is_last)
		text_str(&t, "Connection: close\r\n");
	else if (served_is_old(&r->http))
		text_str(&t, "Connection: keep-alive\r\n");
	text_str(&t, "X-Resil-Source: reply\r\n\r\n");
	r->head_len = (uint32_t)t.len;
}

static bool answer(struct detour *d)
{
	struct reply *r = reply_of(d);
	/* Anew for each: it may have been replaced since. */
	close_file(d);
	if (!open_file(d))
		return false;
	r->at = r->head_at = r->head_len = 0;
	/* In a cache's place it stands for one request: what is asked next may be kept. */
	r->is_last = !r->is_http || r->is_verbatim || !r->http.keeps || d->onward.step > 0;
	r->end = r->size;
	if (r->is_http && served_is_head(&r->http))
		r->end = r->is_verbatim ? head_of_file(r) : 0;
	if (r->is_http && !r->is_verbatim)
		write_head(d, r);
	r->is_answering = true;
	return true;
}

/* What is left of the answer, as far as there is room. True: all of it is on its way. */
static bool give(struct detour *d, int64_t now_ns, bool *is_well)
{
	struct reply *r = reply_of(d);
	uint32_t room;
	uint8_t *at;
	while (r->head_at < r->head_len) {
		at = detour_back(&d->way[DETOUR_DOWN], &room);
		uint32_t n = r->head_len - r->head_at < room ? r->head_len - r->head_at : room;
		if (n == 0)
			return false;
		memcpy(at, r->head + r->head_at, n);
		r->head_at += n;
		relay_came(&d->way[DETOUR_DOWN], n, now_ns);
	}
	while (r->at < r->end) {
		at = detour_back(&d->way[DETOUR_DOWN], &room);
		if (room == 0)
			return false;
		uint64_t left = r->end - r->at;
		ssize_t n = SYS4(SYS_pread64, r->file, at, left < room ? left : room, r->at);
		if (n <= 0) {
			*is_well = false; /* it has become shorter: no false end */
			return false;
		}
		r->at += (uint64_t)n;
		relay_came(&d->way[DETOUR_DOWN], (uint32_t)n, now_ns);
	}
	return true;
}

static bool expects_continue(const struct served *s)
{
	size_t n;
	const char *v = http1_field(s->head, s->head_len, "Expect", &n);
	return v && n == 12 && strncasecmp(v, "100-continue", n) == 0;
}

static void go_on(struct detour *d, int64_t now_ns)
{
	static const char words[] = "HTTP/1.1 100 Continue\r\n\r\n";
	uint32_t room;
	uint8_t *at = detour_back(&d->way[DETOUR_DOWN], &room);
	if (room < sizeof words - 1)
		return; /* whoever waits for it goes on by itself after a while */
	memcpy(at, words, sizeof words - 1);
	relay_came(&d->way[DETOUR_DOWN], sizeof words - 1, now_ns);
}

/* Reads what has come. False: there is nothing (more) to answer. */
static bool listen_to(struct detour *d, int64_t now_ns, bool *is_well)
{
	struct reply *r = reply_of(d);
	struct detour_way *up = &d->way[DETOUR_UP];
	for (bool has_head = false; up->len > 0 || has_head;) {
		uint32_t n, taken;
		const uint8_t *at = detour_front(up, &n);
		enum served_says says = served_feed(&r->http, at, n, &taken);
		if (says == SERVED_NOT_HTTP && r->is_http) {
			*is_well = false;
			return false;
		}
		r->is_http = says != SERVED_NOT_HTTP;
		detour_took(up, says == SERVED_NOT_HTTP ? up->len : taken);
		has_head = says == SERVED_HEAD;
		if (has_head && expects_continue(&r->http))
			go_on(d, now_ns);
		if (says == SERVED_NOT_HTTP || says == SERVED_REQUEST) {
			*is_well = answer(d);
			served_next(&r->http);
			return *is_well;
		}
	}
	return false;
}

static int64_t turn(struct detour *d, int64_t now_ns, bool *is_well)
{
	struct reply *r = reply_of(d);
	if (r->file < 0 && !open_file(d)) {
		*is_well = false;
		return SHAPE_NEVER;
	}
	while (*is_well && (r->is_answering || listen_to(d, now_ns, is_well))) {
		if (!give(d, now_ns, is_well))
			return SHAPE_NEVER;
		r->is_answering = false;
		if (r->is_last) {
			relay_ended(&d->way[DETOUR_DOWN], now_ns);
			return SHAPE_NEVER;
		}
	}
	if (*is_well && d->way[DETOUR_UP].has_ended && d->way[DETOUR_UP].len == 0)
		relay_ended(&d->way[DETOUR_DOWN], now_ns);
	return SHAPE_NEVER;
}

const struct detour_end reply_end = {.begin = begin, .turn = turn, .finish = close_file, .put_away = close_file};
