/* A11: frames (wire/http2.h) as nghttp2 has them. Two of its sessions talk at random: requests with and without bodies,
 * trailers, interim answers, padding, priorities, header blocks over several frames, pushes, cancelled, reset and
 * refused streams, pings, windows, changing tables, a going away. What the sessions say they received is what must be
 * told of the octets, at once, cut in two at every octet, and octet by octet. */
// link: -lnghttp2
#include "wire/http2.h"

#include <nghttp2/nghttp2.h>
#include <string.h>

#include "tap.h"

static uint64_t seed = 88172645463325252u;

static uint32_t any(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 32) % below;
}

/* ---- what is told ---- */

#define EVENTS_MAX 4000
struct told {
	struct http2_event list[EVENTS_MAX];
	size_t count;
};

static void note(struct told *t, struct http2_event e)
{
	if (t->count == EVENTS_MAX)
		abort();
	t->list[t->count++] = e;
}

/* More of a frame's payload is no news to a session. */
static void on_event(void *context, const struct http2_event *e)
{
	struct http2_event copy = *e;
	if (e->what == HTTP2_ANSWER_DATA && e->value == 0)
		return;
	if (e->what != HTTP2_REQUEST_HEAD && e->what != HTTP2_ANSWER_HEAD)
		memset(&copy.found, 0, sizeof copy.found);
	note(context, copy);
}

static bool is_same(const struct told *a, const struct told *b)
{
	return a->count == b->count && memcmp(a->list, b->list, a->count * sizeof a->list[0]) == 0;
}

/* ---- a session, and what it hears ---- */

struct session {
	nghttp2_session *h;
	bool is_server;
	struct told heard;
	struct hpack_found found;
	uint8_t *out; /* all it has ever sent */
	size_t out_size;
};

static const struct hpack_found nothing = {HPACK_ABSENT, HPACK_ABSENT, HPACK_ABSENT, HPACK_ABSENT};

static int on_begin_headers(nghttp2_session *h, const nghttp2_frame *frame, void *user)
{
	struct session *s = user;
	(void)h;
	s->found = nothing;
	if (frame->hd.type == NGHTTP2_HEADERS)
		note(&s->heard, (struct http2_event){.what = s->is_server ? HTTP2_REQUEST_BEGINS : HTTP2_ANSWER_BEGINS,
					.stream = (uint32_t)frame->hd.stream_id});
	return 0;
}

static int on_header(nghttp2_session *h, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
	const uint8_t *value, size_t n, uint8_t flags, void *user)
{
	struct session *s = user;
	char text[20] = "";
	(void)h, (void)frame, (void)flags, (void)name_length;
	memcpy(text, value, n < 19 ? n : 19);
	if (!strcmp((const char *)name, ":status"))
		s->found.status = (uint32_t)atoi(text);
	else if (!strcmp((const char *)name, "grpc-status"))
		s->found.grpc_status = (uint32_t)atoi(text);
	else if (!strcmp((const char *)name, ":method"))
		s->found.is_connect = !strcmp(text, "CONNECT");
	else if (!strcmp((const char *)name, "grpc-timeout"))
		s->found.grpc_timeout = (uint32_t)atoi(text) * 8 + HPACK_MILLISECONDS;
	return 0;
}

static int on_frame(nghttp2_session *h, const nghttp2_frame *frame, void *user)
{
	struct session *s = user;
	struct http2_event e = {.stream = (uint32_t)frame->hd.stream_id};
	bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	(void)h;
	switch (frame->hd.type) {
	case NGHTTP2_HEADERS:
		e.what = s->is_server ? HTTP2_REQUEST_HEAD : HTTP2_ANSWER_HEAD;
		e.found = s->found;
		note(&s->heard, e);
		break;
	case NGHTTP2_DATA: break;
	case NGHTTP2_RST_STREAM:
		e.what = s->is_server ? HTTP2_CANCELLED : HTTP2_RESET;
		e.value = frame->rst_stream.error_code;
		note(&s->heard, e);
		return 0;
	case NGHTTP2_WINDOW_UPDATE:
		e.what = HTTP2_GRANTED;
		e.value = (uint32_t)frame->window_update.window_size_increment;
		if (s->is_server)
			note(&s->heard, e);
		return 0;
	case NGHTTP2_SETTINGS:
		for (size_t i = 0; s->is_server && i < frame->settings.niv; i++)
			if (frame->settings.iv[i].settings_id == NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE)
				note(&s->heard, (struct http2_event){
							.what = HTTP2_WINDOW_IS, .value = frame->settings.iv[i].value});
		return 0;
	case NGHTTP2_GOAWAY:
		e.what = HTTP2_GOAWAY;
		e.stream = (uint32_t)frame->goaway.last_stream_id;
		e.value = frame->goaway.error_code;
		if (!s->is_server)
			note(&s->heard, e);
		return 0;
	default: return 0;
	}
	if (ends)
		note(&s->heard, (struct http2_event){.what = s->is_server ? HTTP2_REQUEST_ENDS : HTTP2_ANSWER_ENDS,
					.stream = e.stream});
	return 0;
}

/* The head of a DATA frame: its octets count when it begins. */
static int on_begin_frame(nghttp2_session *h, const nghttp2_frame_hd *hd, void *user)
{
	struct session *s = user;
	(void)h;
	if (hd->type == NGHTTP2_DATA && !s->is_server && hd->length)
		note(&s->heard, (struct http2_event){.what = HTTP2_ANSWER_DATA,
					.stream = (uint32_t)hd->stream_id,
					.value = (uint32_t)hd->length});
	return 0;
}

static ssize_t padding(nghttp2_session *h, const nghttp2_frame *frame, size_t most, void *user)
{
	size_t n = frame->hd.length + (any(3) ? 0 : any(200));
	(void)h, (void)user;
	return (ssize_t)(n < most ? n : most);
}

static void open_session(struct session *s, bool is_server)
{
	nghttp2_session_callbacks *c;
	nghttp2_option *o;
	memset(s, 0, sizeof *s);
	s->is_server = is_server;
	nghttp2_session_callbacks_new(&c);
	nghttp2_option_new(&o);
	nghttp2_option_set_no_http_messaging(o, 1); /* lists of fields may be any */
	nghttp2_option_set_peer_max_concurrent_streams(o, 1000);
	nghttp2_session_callbacks_set_on_begin_headers_callback(c, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(c, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame);
	nghttp2_session_callbacks_set_on_begin_frame_callback(c, on_begin_frame);
	nghttp2_session_callbacks_set_select_padding_callback(c, padding);
	if (is_server ? nghttp2_session_server_new2(&s->h, c, s, o) : nghttp2_session_client_new2(&s->h, c, s, o))
		abort();
	nghttp2_session_callbacks_del(c);
	nghttp2_option_del(o);
}

/* What one has to say goes to the other. */
static bool pass(struct session *from, struct session *to)
{
	const uint8_t *p;
	ssize_t n;
	bool has_passed = false;
	while ((n = nghttp2_session_mem_send(from->h, &p)) > 0) {
		from->out = realloc(from->out, from->out_size + (size_t)n);
		memcpy(from->out + from->out_size, p, (size_t)n);
		from->out_size += (size_t)n;
		if (nghttp2_session_mem_recv(to->h, p, (size_t)n) != n)
			abort();
		has_passed = true;
	}
	return has_passed;
}

/* ---- what they talk of ---- */

static ssize_t body(nghttp2_session *h, int32_t stream, uint8_t *to, size_t most, uint32_t *flags,
	nghttp2_data_source *source, void *user)
{
	size_t left = (size_t)source->fd >> 1, n = left < most ? left : most;
	(void)user;
	memset(to, 'b', n);
	source->fd = (int)((left - n) << 1 | (size_t)(source->fd & 1));
	if (left == n) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (source->fd & 1) { /* trailers */
			nghttp2_nv nv = {(uint8_t *)(uintptr_t) "grpc-status", (uint8_t *)(uintptr_t) "14", 11, 2, 0};
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
			nghttp2_submit_trailer(h, stream, &nv, 1);
		}
	}
	return (ssize_t)n;
}

static nghttp2_data_provider *some_body(void)
{
	static nghttp2_data_provider provider;
	if (any(2))
		return NULL;
	provider.source.fd = (int)(any(3) ? any(500) : any(40000)) << 1 | (any(3) == 0);
	provider.read_callback = body;
	return &provider;
}

static char texts[16][30000];

static nghttp2_nv field(int i, const char *name, const char *fmt, unsigned value)
{
	int n = snprintf(texts[i], sizeof texts[i], fmt, value);
	return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)texts[i], strlen(name), (size_t)n,
		any(8) ? NGHTTP2_NV_FLAG_NONE : NGHTTP2_NV_FLAG_NO_INDEX};
}

static size_t some_fields(nghttp2_nv *f, bool is_answer, unsigned status)
{
	static const unsigned states[] = {200, 200, 200, 204, 404, 429, 500, 502, 503, 504};
	size_t n = 0;
	if (is_answer) {
		f[n++] = field(0, ":status", "%u", status ? status : states[any(10)]);
		if (any(4) == 0)
			f[n++] = field(1, "grpc-status", "%u", any(17));
	} else {
		f[n++] = field(0, ":method", any(10) ? "GET" : "CONNECT", 0);
		f[n++] = field(1, ":path", "/%u", any(1000));
		if (any(4) == 0)
			f[n++] = field(2, "grpc-timeout", "%um", any(10000));
	}
	for (int i = 3; i < 8; i++)
		if (any(2))
			f[n++] = field(i,
				i == 3	 ? "server"
				: i == 4 ? "x-other"
				: i == 5 ? "user-agent"
					 : "date",
				"value %u", any(40));
	if (any(40) == 0) /* more than a frame */
		f[n++] = field(9, "x-long", any(2) ? "%020000u" : "%09000u", any(1000));
	return n;
}

static void client_does(nghttp2_session *h)
{
	nghttp2_nv f[16];
	nghttp2_priority_spec priority;
	nghttp2_settings_entry entry[2] = {{NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, any(5000)},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 30000 + any(60000)}};
	switch (any(9)) {
	case 0: nghttp2_submit_ping(h, NGHTTP2_FLAG_NONE, NULL); break;
	case 1: nghttp2_submit_rst_stream(h, NGHTTP2_FLAG_NONE, (int32_t)(any(20) * 2 + 1), NGHTTP2_CANCEL); break;
	case 2: nghttp2_submit_window_update(h, NGHTTP2_FLAG_NONE, 0, 1 + (int32_t)any(1000)); break;
	case 3: nghttp2_submit_settings(h, NGHTTP2_FLAG_NONE, entry, 2); break;
	default:
		nghttp2_priority_spec_init(&priority, 0, 16, 0);
		nghttp2_submit_request(h, any(3) ? NULL : &priority, f, some_fields(f, false, 0), some_body(), NULL);
	}
}

static void server_does(nghttp2_session *h, int32_t stream)
{
	nghttp2_nv f[16];
	nghttp2_settings_entry entry = {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, any(5000)};
	if (any(10) == 0)
		nghttp2_submit_headers(h, NGHTTP2_FLAG_NONE, stream, NULL, f, some_fields(f, true, 103), NULL);
	switch (any(12)) {
	case 0: nghttp2_submit_rst_stream(h, NGHTTP2_FLAG_NONE, stream, any(14)); break;
	case 1: nghttp2_submit_push_promise(h, NGHTTP2_FLAG_NONE, stream, f, some_fields(f, false, 0), NULL); break;
	case 2: nghttp2_submit_settings(h, NGHTTP2_FLAG_NONE, &entry, 1); break;
	case 3: nghttp2_submit_ping(h, NGHTTP2_FLAG_NONE, NULL); break;
	default: break;
	}
	nghttp2_submit_response(h, stream, f, some_fields(f, true, 0), some_body());
}

/* ---- the octets, fed ---- */

static bool feed(struct http2 *h, bool is_sent, const uint8_t *p, size_t n, struct told *t)
{
	struct iovec iov = {(void *)(uintptr_t)p, n};
	return is_sent ? http2_sent(h, &iov, 1, n, on_event, t) : http2_received(h, &iov, 1, 0, n, on_event, t);
}

/* What the frames before have left behind means nothing. */
static bool stands_alike(const struct http2_side *a, const struct http2_side *b)
{
	const struct http2_place *p = &a->place, *q = &b->place;
	if (p->have != q->have || a->block != b->block || memcmp(&a->fields, &b->fields, sizeof a->fields))
		return false;
	return p->have < sizeof p->head ||
	       (p->left == q->left && a->type == b->type && a->flags == b->flags && a->stream == b->stream);
}

static size_t frame_at(const uint8_t *p)
{
	return 9 + ((size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2]);
}

/* The short roads, asked before each piece, say what the events say, or nothing: pieces are some whole frames, or cut
 * anywhere. */
static unsigned passed_short[2];

static void check_short(const char *what, const struct session *from)
{
	static struct http2 h, plain;
	static struct told told;
	bool is_sent = !from->is_server;
	size_t at = is_sent ? HTTP2_PREFACE_LENGTH : 0, frame = at;
	told.count = 0;
	http2_init(&h);
	feed(&h, is_sent, from->out, at, &told);
	for (size_t n; at < from->out_size; at += n) {
		const struct http2_side *stands = is_sent ? &h.sent : &h.received,
					*other = is_sent ? &plain.sent : &plain.received;
		struct http2_data data = {0};
		while (frame <= at)
			frame += frame_at(from->out + frame);
		size_t end = frame;
		for (unsigned more = any(3); more > 0 && end < from->out_size; more--)
			end += frame_at(from->out + end);
		n = any(4) ? end - at : 1 + any((uint32_t)(end - at));
		told.count = 0;
		plain = h;
		bool is_short = is_sent ? http2_is_data(&plain, from->out + at, n)
					: http2_received_data(&plain, from->out + at, n, &data);
		feed(&h, is_sent, from->out + at, n, &told);
		if (!is_short)
			continue;
		uint32_t octets = 0;
		for (size_t i = 0; i < told.count; i++) {
			tap_expect(!is_sent && told.list[i].what == HTTP2_ANSWER_DATA &&
					   told.list[i].stream == data.stream,
				"%s: more than DATA at %zu", what, at);
			octets += told.list[i].value;
		}
		tap_expect(octets == data.octets, "%s: %u octets at %zu", what, octets, at);
		tap_expect(stands_alike(stands, other), "%s: another place at %zu", what, at);
		passed_short[is_sent]++;
	}
}

static void check(const char *what, const struct session *from, const struct session *to)
{
	static struct http2 h;
	static struct told told, again, announced;
	bool is_sent = !from->is_server;
	size_t n = from->out_size, step = n > 3000 ? 1 + n / 3000 : 1;
	told.count = announced.count = 0;
	http2_init(&h);
	if (is_sent) {
		struct iovec iov = {from->out, n};
		http2_announce(&h, &iov, 1, n, on_event, &announced);
	}
	tap_expect(feed(&h, is_sent, from->out, n, &told), "%s: lost", what);
	tap_expect(is_same(&told, &to->heard), "%s: %zu events of %zu", what, told.count, to->heard.count);
	size_t at = 0;
	for (size_t i = 0; i < told.count; i++)
		if (told.list[i].what == HTTP2_REQUEST_BEGINS)
			tap_expect(at < announced.count && announced.list[at++].stream == told.list[i].stream,
				"%s: announced", what);
	tap_expect(at == announced.count, "%s: more was announced", what);
	for (size_t cut = any((uint32_t)step) + 1; cut < n; cut += step) {
		again.count = announced.count = 0;
		http2_init(&h);
		feed(&h, is_sent, from->out, cut, &again);
		if (is_sent) {
			struct iovec iov[2] = {{from->out + cut, n - cut}, {from->out, 0}};
			size_t before = again.count;
			http2_announce(&h, iov, 2, n - cut, on_event, &announced);
			tap_expect(feed(&h, is_sent, from->out + cut, n - cut, &again), "%s: lost", what);
			at = 0;
			for (size_t i = before; i < again.count; i++)
				at += again.list[i].what == HTTP2_REQUEST_BEGINS;
			tap_expect(at == announced.count, "%s: announced behind %zu", what, cut);
		} else {
			feed(&h, is_sent, from->out + cut, n - cut, &again);
		}
		tap_expect(is_same(&told, &again), "%s: cut at %zu of %zu", what, cut, n);
	}
	again.count = 0;
	http2_init(&h);
	for (size_t i = 0; i < n; i++)
		feed(&h, is_sent, from->out + i, 1, &again);
	tap_expect(is_same(&told, &again), "%s: octet by octet", what);
}

static void converse(int number)
{
	static struct session client, server;
	char what[40];
	nghttp2_settings_entry entry = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1000};
	int32_t answered = 1;
	open_session(&client, false);
	open_session(&server, true);
	nghttp2_submit_settings(client.h, NGHTTP2_FLAG_NONE, &entry, 1);
	nghttp2_submit_settings(server.h, NGHTTP2_FLAG_NONE, &entry, 1);
	for (int i = 0; i < 30; i++) {
		client_does(client.h);
		pass(&client, &server);
		for (; answered <= nghttp2_session_get_last_proc_stream_id(server.h); answered += 2)
			server_does(server.h, answered);
		if (i == 29)
			nghttp2_submit_goaway(server.h, NGHTTP2_FLAG_NONE, answered - 4 > 0 ? answered - 4 : 0, any(3),
				(const uint8_t *)"why", any(4));
		while (pass(&server, &client) || pass(&client, &server))
			;
	}
	snprintf(what, sizeof what, "conversation %d, client", number);
	check(what, &client, &server);
	check_short(what, &client);
	snprintf(what, sizeof what, "conversation %d, server", number);
	check(what, &server, &client);
	check_short(what, &server);
	nghttp2_session_del(client.h);
	nghttp2_session_del(server.h);
	free(client.out);
	free(server.out);
}

/* ---- by hand ---- */

#define SERVER_SETTINGS "\0\0\0\4\0\0\0\0\0"

static bool loses(bool is_sent, const char *bytes, size_t n)
{
	static struct http2 h;
	static struct told told;
	told.count = 0;
	http2_init(&h);
	return !feed(&h, is_sent, (const uint8_t *)bytes, n, &told) && http2_is_lost(&h);
}
#define LOSES(bytes) loses(false, bytes, sizeof(bytes) - 1)

static void by_hand(void)
{
	static struct http2 h;
	static struct told told;
	tap_ok(!LOSES(SERVER_SETTINGS), "SETTINGS begin a server's octets");
	tap_ok(!LOSES("\0\0\0\4\1\0\0\0\0"), "or their acknowledgement, where those were not seen");
	tap_ok(LOSES("\0\0\0\6\0\0\0\0\0"), "nothing else does");
	tap_ok(loses(true, "PRI * HTTP/2.0\r\n\r\nSMx", 21), "a preface that goes wrong is lost");
	tap_ok(LOSES(SERVER_SETTINGS "\0\0\1\1\0\0\0\0\1\x88\0\0\0\0\0\0\0\0\1"),
		"a header block is interrupted by nothing");
	tap_ok(LOSES(SERVER_SETTINGS "\0\0\1\x9\4\0\0\0\1\x88"), "CONTINUATION goes on with something");
	tap_ok(LOSES(SERVER_SETTINGS "\0\0\2\1\xc\0\0\0\1\2\x88"), "more padding than frame");
	tap_ok(LOSES(SERVER_SETTINGS "\0\0\3\3\0\0\0\0\1\0\0\0"), "RST_STREAM has four octets");
	tap_ok(LOSES(SERVER_SETTINGS "\0\0\1\1\4\0\0\0\0\x88"), "HEADERS are of a stream");
	tap_ok(http2_is_server(SERVER_SETTINGS, 9) && !http2_is_server("HTTP/1.1 200", 12) &&
			!http2_is_server(SERVER_SETTINGS, 8),
		"a server is known by the head of its SETTINGS");
	/* Octets that nobody has seen: within a payload they are passed, else all is lost. */
	static const char begun[] = HTTP2_PREFACE SERVER_SETTINGS "\0\0\x64\0\1\0\0\0\3";
	told.count = 0;
	http2_init(&h);
	feed(&h, true, (const uint8_t *)begun, sizeof begun - 1, &told);
	tap_ok(http2_sent_unseen(&h, 99, on_event, &told) && told.count == 0 &&
			http2_sent_unseen(&h, 1, on_event, &told) && told.count == 1 &&
			told.list[0].what == HTTP2_REQUEST_ENDS && told.list[0].stream == 3,
		"a payload sent unseen is passed, and ends its stream");
	tap_ok(!http2_sent_unseen(&h, 1, on_event, &told) && http2_is_lost(&h), "a frame sent unseen is lost");
}

/* Whom the first request calls its server, before it goes: told with the octets that end its head, and with no others.
 */
static void authority(void)
{
	static struct session client, server;
	static struct http2 h;
	static struct told told;
#define FIELD(name, value)                                                                                             \
	{(uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE}
	nghttp2_nv fields[] = {FIELD(":method", "GET"), FIELD(":path", "/"), FIELD(":authority", "pay.test:80"),
		FIELD(":scheme", "http"), FIELD("a", "b")};
	open_session(&client, false);
	open_session(&server, true);
	nghttp2_submit_settings(client.h, NGHTTP2_FLAG_NONE, NULL, 0);
	nghttp2_submit_request(client.h, NULL, fields, 5, NULL, NULL);
	nghttp2_submit_request(client.h, NULL, fields, 5, NULL, NULL);
	pass(&client, &server);
	size_t n = client.out_size, told_at = 0;
	for (size_t cut = 0; cut <= n; cut++) { /* the first `cut` octets are about to go, in two pieces */
		char name[20];
		bool is_told;
		struct iovec iov[2] = {{client.out, cut / 2}, {client.out + cut / 2, n - cut / 2}};
		http2_init(&h);
		size_t length = http2_authority(&h, iov, 2, cut, name, sizeof name, &is_told);
		if (is_told && !told_at)
			told_at = cut;
		tap_expect(is_told == (told_at > 0) &&
				   (is_told ? length == 11 && memcmp(name, "pay.test:80", 11) == 0 : length == 0),
			"%zu octets of %zu: %zu", cut, n, length);
		/* Once they have gone, what follows of another head is read by the same table. */
		told.count = 0;
		feed(&h, true, client.out, cut, &told);
		bool is_midst = h.sent.block != 0;
		struct iovec rest = {client.out + cut, n - cut};
		length = http2_authority(&h, &rest, 1, n - cut, name, sizeof name, &is_told);
		tap_expect(length == 0 || (!told_at && !is_midst && length == 11), "behind %zu: %zu", cut, length);
	}
	tap_expect(told_at > 0 && told_at < n, "told at %zu of %zu", told_at, n);
	tap_all("whom the first request calls its server, before it goes (A13)");
	nghttp2_session_del(client.h);
	nghttp2_session_del(server.h);
	free(client.out);
	free(server.out);
}

int main(void)
{
	by_hand();
	authority();
	for (int i = 0; i < 40; i++)
		converse(i);
	tap_expect(passed_short[0] > 20 && passed_short[1] > 20, "%u and %u pieces passed by the short roads",
		passed_short[0], passed_short[1]);
	tap_all("what two sessions of nghttp2 tell each other is what is told of their octets (A11)");
	return tap_done();
}
