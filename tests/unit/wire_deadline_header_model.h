/* A stream edited at once, and the same sent by a kernel that takes what it likes: the same octets on the wire, and the
 * app's own count kept. Shared by the unit test and the fuzzer. */
#ifndef RESIL_TESTS_WIRE_DEADLINE_HEADER_MODEL_H
#define RESIL_TESTS_WIRE_DEADLINE_HEADER_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "wire/deadline_header.h"

#define MODEL_NAME "X-Deadline-Ms"
#define MODEL_MAX 16384

struct stream {
	size_t n;
	char at[MODEL_MAX];
};

static void append(struct stream *s, const void *bytes, size_t n)
{
	if (n > sizeof s->at - s->n)
		abort();
	memcpy(s->at + s->n, bytes, n);
	s->n += n;
}

static uint32_t model_random(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	return *seed ^= *seed << 5;
}

#define MODEL_PIECES 200

/* All of it in one send that takes everything. Returns how many edits were made; -1: not HTTP to its end. */
static int edit_at_once(const char *bytes, size_t n, uint64_t left_ms, struct stream *to)
{
	struct deadline_header_edit edits[DEADLINE_HEADER_MAX];
	char text[DEADLINE_HEADER_MAX][DEADLINE_HEADER_TEXT_MAX];
	struct iovec iov = {(void *)(uintptr_t)bytes, n}, out[MODEL_PIECES];
	struct http1_mark mark;
	struct http1 h;

	http1_init(&h);
	int count = deadline_header_find(&h, &iov, 1, n, MODEL_NAME, left_ms, edits, 0);
	int pieces = deadline_header_vector(edits, count, MODEL_NAME, &iov, 1, n, out, MODEL_PIECES, text);
	to->n = 0;
	for (int i = 0; i < pieces; i++)
		append(to, out[i].iov_base, out[i].iov_len);
	int left = count;
	if (deadline_header_sent(edits, &left, MODEL_NAME, n, to->n) != n || left != 0) {
		printf("# all went, but not all of the app's\n");
		return -2;
	}
	http1_announce(&h, &iov, 1, n, &mark, NULL, NULL);
	return http1_is_framed(&h) ? count : -1;
}

/* The app offers all that is left in up to three pieces (or, with `is_short`, a random part of it), the kernel takes a
 * random part. False: a count is wrong. */
static bool send_in_parts(
	const char *bytes, size_t n, uint64_t left_ms, uint32_t seed, bool is_short, struct stream *wire)
{
	struct deadline_header_edit edits[DEADLINE_HEADER_MAX];
	char text[DEADLINE_HEADER_MAX][DEADLINE_HEADER_TEXT_MAX];
	struct http1_mark mark;
	struct http1 h;
	int carried = 0;

	http1_init(&h);
	wire->n = 0;
	for (size_t own = 0; own < n;) {
		struct iovec iov[3], out[MODEL_PIECES];
		size_t limit = is_short ? 1 + model_random(&seed) % 60 : n - own, at = 0, total = 0;
		if (limit > n - own)
			limit = n - own;
		for (int i = 0; i < 3; i++) {
			size_t k = i == 2 ? limit - at : model_random(&seed) % (limit - at + 1);
			iov[i] = (struct iovec){.iov_base = (void *)(uintptr_t)(bytes + own + at), .iov_len = k};
			at += k;
		}
		int count = deadline_header_find(&h, iov, 3, limit, MODEL_NAME, left_ms, edits, carried);
		int max = model_random(&seed) % 4 ? MODEL_PIECES : 1 + (int)(model_random(&seed) % 3);
		int pieces = deadline_header_vector(edits, count, MODEL_NAME, iov, 3, limit, out, max, text);
		for (int i = 0; i < pieces; i++)
			total += out[i].iov_len;
		size_t gone = model_random(&seed) % 4 ? model_random(&seed) % (total + 1) : total;
		if (model_random(&seed) % 2 && gone > 9)
			gone = model_random(&seed) % 9;
		size_t taken = gone;
		for (int i = 0; i < pieces && taken > 0; i++) {
			size_t k = out[i].iov_len < taken ? out[i].iov_len : taken;
			append(wire, out[i].iov_base, k);
			taken -= k;
		}
		size_t counted = deadline_header_sent(edits, &count, MODEL_NAME, limit, gone);
		if (counted > limit || count > DEADLINE_HEADER_CARRY) {
			printf("# %zu of %zu counted, %d to carry\n", counted, limit, count);
			return false;
		}
		carried = count;
		http1_announce(&h, iov, 3, limit, &mark, NULL, NULL);
		http1_sent_only(&h, &mark, iov, 3, limit, counted, NULL, NULL);
		own += counted;
	}
	return true;
}

/* ---- what a server reads ---- */

struct reading {
	int requests;
	struct {
		int fields;
		bool is_odd; /* the number is larger than it may be, or none */
		bool is_whole, is_tunnel;
		uint8_t method;
		size_t head_end;
	} request[HTTP1_PENDING_MAX + 1];
	size_t body;
	bool is_named, is_in_head;
	char value[2048];
	size_t value_length;
	uint64_t left_ms;
};

static int reading_begin(llhttp_t *p)
{
	struct reading *r = p->data;

	if (r->requests == HTTP1_PENDING_MAX)
		return HPE_USER;
	r->requests++;
	r->is_in_head = true;
	return 0;
}

static int reading_field(llhttp_t *p, const char *at, size_t n)
{
	struct reading *r = p->data;

	while (n > 0 && at[n - 1] == ' ')
		n--;
	r->is_named = r->is_in_head && n == strlen(MODEL_NAME) && strncasecmp(at, MODEL_NAME, n) == 0;
	r->request[r->requests - 1].fields += r->is_named;
	return 0;
}

static int reading_value(llhttp_t *p, const char *at, size_t n)
{
	struct reading *r = p->data;

	for (size_t i = 0; i < n && r->value_length < sizeof r->value; i++)
		r->value[r->value_length++] = at[i];
	return 0;
}

static bool model_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* A line that goes on with blanks only does not change the number. */
static int reading_value_complete(llhttp_t *p)
{
	struct reading *r = p->data;
	size_t n = r->value_length, i = 0;
	uint64_t number = 0;

	r->value_length = 0;
	if (!r->is_named)
		return 0;
	while (n > 0 && model_blank(r->value[n - 1]))
		n--;
	while (i < n && model_blank(r->value[i]))
		i++;
	bool is_odd = i == n || n - i > 17;
	for (; i < n && !is_odd; i++) {
		is_odd = r->value[i] < '0' || r->value[i] > '9';
		number = number * 10 + (uint64_t)(r->value[i] - '0');
	}
	r->request[r->requests - 1].is_odd |= is_odd || number > r->left_ms;
	return 0;
}

static int reading_head(llhttp_t *p)
{
	struct reading *r = p->data;

	r->is_in_head = false;
	r->request[r->requests - 1].is_whole = true;
	r->request[r->requests - 1].method = p->method;
	return HPE_PAUSED;
}

static int reading_body(llhttp_t *p, const char *at, size_t n)
{
	struct reading *r = p->data;
	(void)at;
	r->body += n;
	return 0;
}

static void read_as_server(const char *bytes, size_t n, uint64_t left_ms, struct reading *r)
{
	static const llhttp_settings_t settings = {.on_message_begin = reading_begin,
		.on_header_field = reading_field,
		.on_header_value = reading_value,
		.on_header_value_complete = reading_value_complete,
		.on_headers_complete = reading_head,
		.on_body = reading_body};
	llhttp_t p;

	memset(r, 0, sizeof *r);
	r->left_ms = left_ms;
	llhttp_init(&p, HTTP_REQUEST, &settings);
	p.data = r;
	p.lenient_flags = LENIENT_HEADERS | LENIENT_CHUNKED_LENGTH | LENIENT_KEEP_ALIVE | LENIENT_TRANSFER_ENCODING;
	for (const char *at = bytes, *end = bytes + n; at < end;) {
		llhttp_errno_t err = llhttp_execute(&p, at, (size_t)(end - at));
		if (err == HPE_PAUSED) {
			at = llhttp_get_error_pos(&p);
			r->request[r->requests - 1].head_end = (size_t)(at - bytes);
			llhttp_resume(&p);
		} else if (err == HPE_PAUSED_UPGRADE) {
			at = llhttp_get_error_pos(&p);
			llhttp_resume_after_upgrade(&p);
		} else {
			return;
		}
	}
}

/* Does a head end in a plain empty line, with no carriage return alone before it? Others are left alone. */
static bool ends_plainly(const char *bytes, size_t end)
{
	if (end < 3 || bytes[end - 1] != '\n' ||
		!(bytes[end - 2] == '\n' || (bytes[end - 2] == '\r' && bytes[end - 3] == '\n')))
		return false;
	for (size_t i = end - 3; i > 0 && !(bytes[i] == '\n' && bytes[i - 1] == '\n'); i--)
		if (bytes[i - 1] == '\r' && bytes[i] != '\n')
			return false;
	return true;
}

static bool edited_well(const char *bytes, size_t n, uint64_t left_ms, const struct stream *edited)
{
	static struct reading before, after;
	static struct stream again;
	bool is_settled = true;

	read_as_server(bytes, n, left_ms, &before);
	read_as_server(edited->at, edited->n, left_ms, &after);
	if (before.requests != after.requests || before.body != after.body) {
		printf("# %d requests with %zu octets became %d with %zu\n", before.requests, before.body,
			after.requests, after.body);
		return false;
	}
	for (int i = 0; i < before.requests; i++) {
		int had = before.request[i].fields, has = after.request[i].fields;
		bool may_be_left = !before.request[i].is_whole || before.request[i].method == HTTP_CONNECT ||
				   !ends_plainly(bytes, before.request[i].head_end);
		is_settled = is_settled && had <= DEADLINE_HEADER_CARRY;
		if (before.request[i].method != after.request[i].method ||
			!(had > 0 ? has == had : has == 1 || (has == 0 && may_be_left)) ||
			(!may_be_left && has <= DEADLINE_HEADER_CARRY && after.request[i].is_odd)) {
			printf("# request %d: %d fields became %d%s\n", i, had, has,
				after.request[i].is_odd ? ", odd" : "");
			return false;
		}
	}
	if (is_settled && edit_at_once(edited->at, edited->n, left_ms, &again) > 0) {
		printf("# edited once more\n");
		return false;
	}
	return true;
}

static bool stream_is_edited_well(const char *bytes, size_t n, uint64_t left_ms, uint32_t seed)
{
	static struct stream want, wire;
	int count = edit_at_once(bytes, n, left_ms, &want);

	if (count == -2 || !send_in_parts(bytes, n, left_ms, seed, true, &wire))
		return false;
	if (count < 0) /* what is not HTTP to its end is only sent, one way or another */
		return send_in_parts(bytes, n, left_ms, seed, false, &wire);
	if (!edited_well(bytes, n, left_ms, &want))
		return false;
	for (int i = 0; i < 4; i++) {
		if (!send_in_parts(bytes, n, left_ms, seed + (uint32_t)i * 77, false, &wire))
			return false;
		if (wire.n != want.n || memcmp(wire.at, want.at, want.n) != 0) {
			printf("# sent in parts: %zu octets, not %zu\n", wire.n, want.n);
			return false;
		}
	}
	return true;
}

#endif
