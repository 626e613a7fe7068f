/* See cache.h: the tee, and the end point that serves what it has kept. The thread of detours alone. */
#include "engine/cache.h"

#include <string.h>

#include "base/clock.h"
#include "base/sys.h"
#include "base/text.h"
#include "engine/cache_store.h"
#include "engine/onward.h"
#include "engine/relay.h"
#include "policy/names.h"

void cache_destination(struct text *t, const struct addr *a)
{
	char name[NAMES_MAX + 1];
	struct name_ref ref;
	if (names_find(a, &ref) && names_text(&ref, name))
		text_fmt(t, "%s:%d", name, (int)a->port);
	else
		addr_text(t, a);
}

/* ---- the tee ---- */

#define ROOMS 16u
#define ROOM (SERVED_HEAD_MAX + CACHE_BODY_MAX)

/* Answers that are being gathered; those for which there is no room are not kept. */
static char *rooms;
static uint32_t rooms_taken; /* mask */

enum watch { WATCH_REQUEST, WATCH_ANSWER, WATCH_NOTHING };

struct tee {
	struct served request;
	enum watch watch;
	llhttp_t answer;
	int room; /* -1: the answer is not kept */
	uint32_t head_len, body_len;
	bool has_head, is_whole, is_too_large, is_to_head;
	bool is_kept; /* the answer to the request before, which still stands in `request` */
};
_Static_assert(sizeof(struct tee) <= sizeof(((struct detour *)0)->own), "its room");

static struct tee *tee_of(struct detour *d)
{
	return (struct tee *)(void *)d->own;
}

static char *room_of(const struct tee *t)
{
	return rooms + (size_t)t->room * ROOM;
}

static void take_room(struct tee *t)
{
	if (!rooms) {
		char *at = sys_mmap((size_t)ROOMS * ROOM, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (sys_is_error(at))
			return;
		rooms = at;
	}
	for (int i = 0; i < (int)ROOMS && t->room < 0; i++)
		if (!(rooms_taken & 1u << i))
			t->room = i;
	if (t->room >= 0)
		rooms_taken |= 1u << t->room;
}

static void give_room(struct tee *t)
{
	if (t->room < 0)
		return;
	rooms_taken &= ~(1u << t->room);
	sys_madvise(room_of(t), ROOM, MADV_DONTNEED);
	t->room = -1;
}

static int on_answer_head(llhttp_t *p)
{
	struct tee *t = p->data;
	t->has_head = true;
	return t->is_to_head ? 1 : 0;
}

static int on_answer_body(llhttp_t *p, const char *at, size_t n)
{
	struct tee *t = p->data;
	if (n > CACHE_BODY_MAX - t->body_len)
		t->is_too_large = true;
	else if (t->room >= 0)
		memcpy(room_of(t) + SERVED_HEAD_MAX + t->body_len, at, n);
	t->body_len += t->is_too_large ? 0 : (uint32_t)n;
	return 0;
}

static int on_answer_whole(llhttp_t *p)
{
	struct tee *t = p->data;
	t->is_whole = true;
	return HPE_PAUSED;
}

static const llhttp_settings_t answers = {
	.on_headers_complete = on_answer_head, .on_body = on_answer_body, .on_message_complete = on_answer_whole};

void cache_tee_begin(struct detour *d)
{
	struct tee *t = tee_of(d);
	served_begin(&t->request);
	t->watch = WATCH_REQUEST;
	t->room = -1;
	t->is_kept = false;
}

void cache_tee_finish(struct detour *d)
{
	give_room(tee_of(d));
	tee_of(d)->watch = WATCH_NOTHING;
}

void cache_forked(void)
{
	rooms_taken = 0;
}

/* What changes things at the server makes what we have of them old (RFC 9111, 4.4). */
static bool is_safe(const struct served *request)
{
	uint8_t m = request->parser.method;
	return m == HTTP_GET || m == HTTP_HEAD || m == HTTP_OPTIONS || m == HTTP_TRACE;
}

static void expect_answer(struct detour *d, struct tee *t)
{
	static struct cache_key key; /* one thread */
	llhttp_init(&t->answer, HTTP_RESPONSE, &answers);
	t->answer.data = t;
	t->is_to_head = served_is_head(&t->request);
	t->head_len = t->body_len = 0;
	t->has_head = t->is_whole = t->is_too_large = false;
	t->watch = WATCH_ANSWER;
	if (!is_safe(&t->request)) {
		/* The body is of no matter for the name of what it changes. */
		t->request.has_body = false;
		if (cache_key_make(&key, d->host, &t->request))
			cache_forget(&key, d->host);
	} else if (t->request.parser.method == HTTP_GET) {
		take_room(t);
	}
}

static void see_requests(struct detour *d, struct tee *t, const char *at, uint32_t n)
{
	/* Another one before the answer has ended: which answer is whose is not followed. */
	if (t->watch == WATCH_ANSWER && n > 0) {
		cache_tee_finish(d);
		return;
	}
	if (n > 0 && t->request.is_whole) {
		served_next(&t->request);
		t->is_kept = false;
	}
	for (bool has_head = false; n > 0 || has_head;) {
		uint32_t taken;
		enum served_says says = served_feed(&t->request, at, n, &taken);
		has_head = says == SERVED_HEAD;
		at += taken;
		n -= taken;
		if (says == SERVED_NOT_HTTP || (says == SERVED_REQUEST && n > 0)) {
			cache_tee_finish(d);
			return;
		}
		if (says == SERVED_REQUEST)
			expect_answer(d, t);
	}
}

static void keep(struct detour *d, struct tee *t)
{
	static struct cache_key key; /* one thread */
	const char *head = t->room >= 0 ? room_of(t) : NULL;
	bool is_framed = t->answer.flags & (F_CONTENT_LENGTH | F_CHUNKED);
	if (head && is_framed && t->answer.http_major == 1 && !t->is_too_large && t->head_len < SERVED_HEAD_MAX &&
		cache_may_keep(&t->request, head, t->head_len, t->answer.status_code) &&
		cache_key_make(&key, d->host, &t->request)) {
		cache_keep(&key, d->host, &t->request, head, t->head_len, head + SERVED_HEAD_MAX, t->body_len);
		t->is_kept = true;
	}
}

/* The server says something that nobody has asked for: what was taken for a whole answer may have been a part. */
static void speaks_unasked(struct detour *d, struct tee *t)
{
	static struct cache_key key; /* one thread */
	if (t->is_kept && cache_key_make(&key, d->host, &t->request))
		cache_forget(&key, d->host);
	cache_tee_finish(d);
}

/* The octets of a head are gathered while it is being read: what of the piece belongs to it, llhttp tells by its pause,
 * so pieces go in line by line until the head is whole. */
static uint32_t head_piece(const struct tee *t, const char *at, uint32_t n)
{
	const char *stop = t->has_head ? NULL : memchr(at, '\n', n);
	return t->has_head || !stop ? n : (uint32_t)(stop - at) + 1;
}

static void see_answers(struct detour *d, struct tee *t, const char *at, uint32_t n)
{
	while (n > 0 && t->watch == WATCH_ANSWER) {
		uint32_t piece = head_piece(t, at, n);
		if (!t->has_head && t->room >= 0 && piece <= SERVED_HEAD_MAX - t->head_len)
			memcpy(room_of(t) + t->head_len, at, piece);
		if (!t->has_head)
			t->head_len = piece <= SERVED_HEAD_MAX - t->head_len ? t->head_len + piece : SERVED_HEAD_MAX;
		enum llhttp_errno err = llhttp_execute(&t->answer, at, piece);
		if (err != HPE_OK && err != HPE_PAUSED) {
			cache_tee_finish(d); /* 101, a tunnel, or nothing that we read */
			return;
		}
		if (t->is_whole && t->answer.status_code >= 200) {
			/* All of the piece, or there is more than an answer in it. */
			bool is_all = err == HPE_PAUSED && (uint32_t)(llhttp_get_error_pos(&t->answer) - at) == n;
			if (is_all)
				keep(d, t);
			give_room(t);
			t->watch = is_all ? WATCH_REQUEST : WATCH_NOTHING;
			return;
		}
		if (t->is_whole) { /* an interim answer: another one follows */
			llhttp_resume(&t->answer);
			t->is_whole = t->has_head = false;
			t->head_len = t->body_len = 0;
		}
		at += piece;
		n -= piece;
	}
}

void cache_tee(struct detour *d, enum detour_way_name way, const void *octets, uint32_t n, int64_t now_ns)
{
	struct tee *t = tee_of(d);
	(void)now_ns;
	if (t->watch == WATCH_NOTHING)
		return;
	if (way == DETOUR_UP)
		see_requests(d, t, octets, n);
	else if (t->watch == WATCH_REQUEST)
		speaks_unasked(d, t);
	else
		see_answers(d, t, octets, n);
}

/* ---- the end point ---- */

struct serving {
	struct served http;
	uint32_t fed; /* octets of way[UP] that are read, and not taken: if they are another's, they are all there */
	int file;     /* -1: none */
	struct cached kept;
	int64_t age_s;
	uint64_t hash; /* of its key */
	/* Three stretches: our own lines, those of the file, its body. */
	char head[512];
	uint32_t head_len, head_at;
	uint64_t lines_at, lines_end, body_at, body_end;
	bool has_blank; /* between the lines and the body: it has gone */
	bool is_answering, is_last;
};
_Static_assert(sizeof(struct serving) <= sizeof(((struct detour *)0)->own), "its room");

static struct serving *serving_of(struct detour *d)
{
	return (struct serving *)(void *)d->own;
}

static void close_file(struct detour *d)
{
	struct serving *s = serving_of(d);
	if (s->file >= 0)
		sys_close(s->file);
	s->file = -1;
}

static int begin(struct detour *d, int64_t now_ns)
{
	struct serving *s = serving_of(d);
	(void)now_ns;
	memset(s, 0, sizeof *s);
	s->file = -1;
	served_begin(&s->http);
	return 0;
}

/* What is kept for the request whose head is whole. False: nothing. */
static bool find(struct detour *d)
{
	static struct cache_key key; /* one thread */
	struct serving *s = serving_of(d);
	close_file(d);
	if ((served_is_head(&s->http) || s->http.parser.method == HTTP_GET) && cache_key_make(&key, d->host, &s->http))
		s->file = cache_open(&key, d->host, &s->http, d->max_age_ns, &s->kept, &s->age_s);
	s->hash = key.hash;
	return s->file >= 0;
}

static void answer(struct detour *d)
{
	struct serving *s = serving_of(d);
	const struct cached *c = &s->kept;
	struct text t = {.at = s->head, .cap = sizeof s->head};
	onward_served(d);
	s->is_last = !s->http.keeps;
	s->head[0] = '\0';
	s->lines_at = s->lines_end = s->body_at = s->body_end = 0;
	if (s->file >= 0) {
		text_fmt(&t,
			"HTTP/1.1 200 OK\r\nContent-Length: %u\r\nAge: %llu\r\n"
			"Warning: 110 resil \"Response is Stale\"\r\n",
			(unsigned)c->body_len, (unsigned long long)s->age_s);
		s->lines_at = sizeof *c + c->key_len + c->vary_len;
		s->lines_end = s->body_at = s->lines_at + c->head_len;
		s->body_end = s->body_at + (served_is_head(&s->http) ? 0 : c->body_len);
	} else {
		/* As a cache that may not ask the server answers (RFC 9111, 5.2.1.7). */
		text_str(&t, "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n");
	}
	if (s->is_last)
		text_str(&t, "Connection: close\r\n");
	else if (served_is_old(&s->http))
		text_str(&t, "Connection: keep-alive\r\n");
	text_str(&t, "X-Resil-Source: cache\r\n");
	s->head_len = (uint32_t)t.len;
	s->head_at = 0;
	s->has_blank = false;
	s->is_answering = true;
}

static uint32_t put(struct detour_way *w, const void *octets, uint32_t n, int64_t now_ns)
{
	uint32_t room;
	uint8_t *at = detour_back(w, &room);
	if (n > room)
		n = room;
	memcpy(at, octets, n);
	relay_came(w, n, now_ns);
	return n;
}

/* From the file, up to end. False: there is no more room, or *is_well is false. */
static bool give_file(struct detour *d, uint64_t *from, uint64_t end, int64_t now_ns, bool *is_well)
{
	struct serving *s = serving_of(d);
	while (*from < end) {
		uint32_t room;
		uint8_t *at = detour_back(&d->way[DETOUR_DOWN], &room);
		if (room == 0)
			return false;
		uint64_t left = end - *from;
		/* Its number is gone after a fork. Where another answer has taken its place: a reset, and no false end.
		 */
		if (s->file < 0)
			s->file = cache_open_again(s->hash, d->host, &s->kept);
		ssize_t n = s->file < 0 ? -1 : SYS4(SYS_pread64, s->file, at, left < room ? left : room, *from);
		if (n <= 0) {
			*is_well = false;
			return false;
		}
		*from += (uint64_t)n;
		relay_came(&d->way[DETOUR_DOWN], (uint32_t)n, now_ns);
	}
	return true;
}

/* True: all of the answer is on its way. */
static bool give(struct detour *d, int64_t now_ns, bool *is_well)
{
	struct serving *s = serving_of(d);
	struct detour_way *w = &d->way[DETOUR_DOWN];
	while (s->head_at < s->head_len) {
		uint32_t n = put(w, s->head + s->head_at, s->head_len - s->head_at, now_ns);
		if (n == 0)
			return false;
		s->head_at += n;
	}
	if (!give_file(d, &s->lines_at, s->lines_end, now_ns, is_well))
		return false;
	if (!s->has_blank) {
		if (DETOUR_ROOM - w->len < 2)
			return false;
		put(w, "\r", 1, now_ns);
		put(w, "\n", 1, now_ns);
		s->has_blank = true;
	}
	return give_file(d, &s->body_at, s->body_end, now_ns, is_well);
}

/* Reads what has come; true: there is something to answer. Nothing of a request is taken before it is known to be one
 * that is answered here. */
static bool listen_to(struct detour *d, int64_t now_ns, bool *is_well)
{
	struct serving *s = serving_of(d);
	struct detour_way *up = &d->way[DETOUR_UP];
	for (bool has_head = false; s->fed < up->len || has_head;) {
		uint32_t n, taken;
		const uint8_t *at = detour_peek(up, s->fed, &n);
		enum served_says says = served_feed(&s->http, at, n, &taken);
		bool is_other = says == SERVED_NOT_HTTP;
		has_head = says == SERVED_HEAD;
		s->fed += is_other ? 0 : taken;
		/* A head that fills all of the room is nobody's whose answer was kept. */
		bool is_missed = is_other || (has_head && !find(d)) || (!s->http.has_head && s->fed == DETOUR_ROOM);
		if (is_missed && onward_go(d, now_ns, is_well))
			return false;
		if (is_other) {
			*is_well = false; /* nothing of that is kept here */
			return false;
		}
		if (s->http.has_head || s->fed == DETOUR_ROOM) {
			detour_took(up, s->fed);
			s->fed = 0;
		}
		if (says == SERVED_REQUEST) {
			answer(d);
			served_next(&s->http);
			return true;
		}
	}
	return false;
}

static int64_t turn(struct detour *d, int64_t now_ns, bool *is_well)
{
	struct serving *s = serving_of(d);
	while (*is_well && (s->is_answering || listen_to(d, now_ns, is_well))) {
		if (!give(d, now_ns, is_well))
			return SHAPE_NEVER;
		s->is_answering = false;
		if (s->is_last) {
			relay_ended(&d->way[DETOUR_DOWN], now_ns);
			return SHAPE_NEVER;
		}
	}
	if (d->end != &cache_end)
		return now_ns; /* the other's turn */
	if (*is_well && d->way[DETOUR_UP].has_ended && d->way[DETOUR_UP].len == s->fed)
		relay_ended(&d->way[DETOUR_DOWN], now_ns);
	return SHAPE_NEVER;
}

const struct detour_end cache_end = {.begin = begin, .turn = turn, .finish = close_file, .put_away = close_file};
