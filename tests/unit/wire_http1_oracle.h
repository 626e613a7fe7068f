/* What llhttp alone says of two streams, octet by octet, and what src/wire/http1.c says of them whole, cut and sent in
 * part. Shared by the unit test and the fuzzer. */
#ifndef RESIL_TESTS_WIRE_HTTP1_ORACLE_H
#define RESIL_TESTS_WIRE_HTTP1_ORACLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/http1.h"
#include "wire/http1_skim.h"

#define EVENTS_MAX 20000

struct record {
	int count;
	size_t base;
	struct http1_event event[EVENTS_MAX];
};

static void record_event(void *context, const struct http1_event *event)
{
	struct record *r = context;

	if (r->count == EVENTS_MAX)
		abort();
	struct http1_event e = *event;
	/* Where an answer began is told differently when cut, by design. */
	e.at = e.what == HTTP1_ANSWER_BEGINS || e.what == HTTP1_OPAQUE || e.what == HTTP1_CUT ? 0 : e.at + r->base;
	e.head = NULL;
	e.head_length = 0;
	/* Taken back by INTERIM; before OPAQUE and CUT it depends on whether a 1xx was seen to come. */
	if ((e.what == HTTP1_INTERIM || e.what == HTTP1_OPAQUE || e.what == HTTP1_CUT) && r->count > 0 &&
		r->event[r->count - 1].what == HTTP1_ANSWER_BEGINS)
		r->count--;
	r->event[r->count++] = e;
}

static bool event_equal(const struct http1_event *a, const struct http1_event *b)
{
	return a->what == b->what && a->why == b->why && a->at == b->at && a->status == b->status &&
	       a->method == b->method && a->closes == b->closes && a->until_close == b->until_close &&
	       a->is_early == b->is_early;
}

static void event_print(const char *who, int i, const struct http1_event *e)
{
	static const char *const names[] = {"REQUEST_BEGINS", "REQUEST_HEAD", "REQUEST_ENDS", "ANSWER_BEGINS",
		"INTERIM", "ANSWER_HEAD", "ANSWER_ENDS", "UNSOLICITED", "CUT", "OPAQUE"};

	printf("# %s %d: %s at %zu why %d status %d method %d closes %d until_close %d early %d\n", who, i,
		names[e->what], e->at, e->why, e->status, e->method, e->closes, e->until_close, e->is_early);
}

/* The same events; with `is_prefix`, a may stop sooner, and an OPAQUE at its end may come sooner. */
static bool records_agree(const struct record *a, const struct record *b, bool is_prefix)
{
	int n = a->count;

	if (is_prefix && n > 0 && a->event[n - 1].what == HTTP1_OPAQUE)
		n--;
	for (int i = 0; i < n; i++) {
		if (i < b->count && event_equal(&a->event[i], &b->event[i]))
			continue;
		event_print("got ", i, &a->event[i]);
		if (i < b->count)
			event_print("want", i, &b->event[i]);
		return false;
	}
	if (is_prefix || n == b->count)
		return true;
	event_print("want", n, &b->event[n]);
	return false;
}

/* ---- llhttp alone ---- */

struct oracle {
	struct record *to;
	size_t i; /* the octet at hand */
	bool is_opaque, is_unsolicited, is_sending;
	uint8_t head[HTTP1_PENDING_MAX], connect[HTTP1_PENDING_MAX], closing[HTTP1_PENDING_MAX];
	unsigned pushed, popped;
};

static int oracle_tell(llhttp_t *p, struct http1_event e)
{
	struct oracle *o = p->data;

	if (!o->is_opaque)
		record_event(o->to, &e);
	if (e.what == HTTP1_OPAQUE)
		o->is_opaque = true;
	return 0;
}

static int oracle_request_begin(llhttp_t *p)
{
	struct oracle *o = p->data;

	if (o->pushed == HTTP1_PENDING_MAX)
		return oracle_tell(p, (struct http1_event){.what = HTTP1_OPAQUE, .why = HTTP1_WHY_PIPELINE});
	o->pushed++;
	o->is_sending = true;
	return oracle_tell(p, (struct http1_event){.what = HTTP1_REQUEST_BEGINS, .at = o->i});
}

/* llhttp_should_keep_alive() takes an answer without length for one that closes: not meant here. */
static bool oracle_closes(const llhttp_t *p)
{
	if (p->http_major > 0 && p->http_minor > 0)
		return p->flags & F_CONNECTION_CLOSE;
	return !(p->flags & F_CONNECTION_KEEP_ALIVE);
}

static int oracle_request_head(llhttp_t *p)
{
	struct oracle *o = p->data;
	unsigned newest = o->pushed - 1;

	o->head[newest] = p->method == HTTP_HEAD;
	o->connect[newest] = p->method == HTTP_CONNECT;
	o->closing[newest] = oracle_closes(p);
	return oracle_tell(p,
		(struct http1_event){
			.what = HTTP1_REQUEST_HEAD, .at = o->i + 1, .method = p->method, .closes = o->closing[newest]});
}

static int oracle_request_end(llhttp_t *p)
{
	struct oracle *o = p->data;

	o->is_sending = false;
	return oracle_tell(p, (struct http1_event){.what = HTTP1_REQUEST_ENDS, .at = o->i + 1});
}

static int oracle_answer_begin(llhttp_t *p)
{
	struct oracle *o = p->data;

	o->is_unsolicited = o->popped == o->pushed;
	return oracle_tell(p,
		(struct http1_event){.what = o->is_unsolicited ? HTTP1_UNSOLICITED : HTTP1_ANSWER_BEGINS, .at = o->i});
}

static int oracle_answer_head(llhttp_t *p)
{
	struct oracle *o = p->data;
	bool is_to_head = !o->is_unsolicited && o->head[o->popped];

	if (p->status_code / 100 == 1 && p->status_code != 101) {
		if (!o->is_unsolicited)
			oracle_tell(p,
				(struct http1_event){.what = HTTP1_INTERIM, .at = o->i + 1, .status = p->status_code});
		return 1;
	}
	bool is_tunnel =
		p->status_code == 101 || (!o->is_unsolicited && o->connect[o->popped] && p->status_code / 100 == 2);
	bool is_bare = is_to_head || p->status_code == 204 || p->status_code == 304;
	if (is_bare)
		p->flags |= F_SKIPBODY;
	if (!o->is_unsolicited)
		oracle_tell(p, (struct http1_event){.what = HTTP1_ANSWER_HEAD,
				       .at = o->i + 1,
				       .status = p->status_code,
				       .closes = oracle_closes(p) || o->closing[o->popped],
				       .until_close = !is_tunnel && llhttp_message_needs_eof(p)});
	if (p->status_code == 101)
		oracle_tell(p,
			(struct http1_event){.what = HTTP1_OPAQUE, .why = HTTP1_WHY_UPGRADE, .status = p->status_code});
	else if (is_tunnel)
		oracle_tell(p,
			(struct http1_event){.what = HTTP1_OPAQUE, .why = HTTP1_WHY_TUNNEL, .status = p->status_code});
	if (!o->is_unsolicited)
		o->closing[o->popped] |= oracle_closes(p);
	return is_bare;
}

static int oracle_answer_end(llhttp_t *p)
{
	struct oracle *o = p->data;

	if ((p->status_code / 100 == 1 && p->status_code != 101) || o->is_unsolicited)
		return 0;
	oracle_tell(p, (struct http1_event){.what = HTTP1_ANSWER_ENDS,
			       .at = o->i + 1,
			       .closes = o->closing[o->popped],
			       .is_early = o->is_sending && o->popped + 1 == o->pushed});
	o->popped++;
	return 0;
}

static void oracle_run(struct oracle *o, bool is_request, const char *bytes, size_t n)
{
	static const llhttp_settings_t requests = {.on_message_begin = oracle_request_begin,
		.on_headers_complete = oracle_request_head,
		.on_message_complete = oracle_request_end};
	static const llhttp_settings_t answers = {.on_message_begin = oracle_answer_begin,
		.on_headers_complete = oracle_answer_head,
		.on_message_complete = oracle_answer_end};
	llhttp_t p;

	llhttp_init(&p, is_request ? HTTP_REQUEST : HTTP_RESPONSE, is_request ? &requests : &answers);
	p.data = o;
	llhttp_set_lenient_headers(&p, 1);
	llhttp_set_lenient_chunked_length(&p, 1);
	llhttp_set_lenient_keep_alive(&p, 1);
	llhttp_set_lenient_transfer_encoding(&p, 1);
	for (o->i = 0; o->i < n && !o->is_opaque; o->i++) {
		llhttp_errno_t err = llhttp_execute(&p, bytes + o->i, 1);
		if (err == HPE_PAUSED_UPGRADE)
			llhttp_resume_after_upgrade(&p);
		else if (err != HPE_OK)
			oracle_tell(&p, (struct http1_event){.what = HTTP1_OPAQUE, .why = HTTP1_WHY_NOT_HTTP});
	}
	if (!is_request && !o->is_opaque) {
		o->i--;
		/* A message that lacks an end is what is_cut below says. */
		if (p.finish == HTTP_FINISH_SAFE_WITH_CB) {
			o->i = (size_t)-1;
			llhttp_finish(&p);
		}
		if (o->popped < o->pushed)
			oracle_tell(&p, (struct http1_event){.what = HTTP1_CUT});
	}
}

/* ---- the streams as http1.c sees them ---- */

static uint32_t next_cut(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	return *seed ^= *seed << 5;
}

/* Pieces: 0: whole; 1: octet by octet; else random lengths. Each piece is a copy of exactly its size, so that a
 * sanitizer sees a read beyond it. */
static size_t piece(size_t left, int kind, uint32_t *seed)
{
	size_t n = kind == 0 ? left : kind == 1 ? 1 : 1 + next_cut(seed) % (next_cut(seed) % 4 ? 24 : 300);
	return n < left ? n : left;
}

static void *copy_of(const char *bytes, size_t n)
{
	char *copy = malloc(n ? n : 1);
	if (!copy)
		abort();
	memcpy(copy, bytes, n);
	return copy;
}

/* What the door for plain messages has read in silence, as the events that the other one would have told. */
static int plain_taken; /* how often it did: a test that it never did would prove nothing */

static bool head_closes(const struct http1_head *head)
{
	return head->is_new ? head->flags & F_CONNECTION_CLOSE : !(head->flags & F_CONNECTION_KEEP_ALIVE);
}

static bool announce_plain(struct http1 *h, const char *bytes, size_t n, struct http1_mark *mark, struct record *r)
{
	struct http1_head head;
	bool is_whole;

	if (!http1_announce_plain(h, bytes, n, mark, &is_whole))
		return false;
	size_t length = http1_skim_request(bytes, bytes + n, &head);
	plain_taken++;
	record_event(r, &(struct http1_event){.what = HTTP1_REQUEST_BEGINS});
	record_event(r,
		&(struct http1_event){
			.what = HTTP1_REQUEST_HEAD, .at = length, .method = head.method, .closes = head_closes(&head)});
	if (is_whole)
		record_event(r, &(struct http1_event){.what = HTTP1_REQUEST_ENDS, .at = n});
	return true;
}

static size_t received_plain(struct http1 *h, const char *bytes, size_t n, struct record *r)
{
	struct http1_head head;
	struct http1_plain answer;
	size_t read = http1_received_plain(h, bytes, n, &answer);

	plain_taken += read != 0;
	if (!read || !answer.status)
		return read;
	size_t length = http1_skim_answer(bytes, bytes + n, &head);
	record_event(r, &(struct http1_event){.what = HTTP1_ANSWER_BEGINS});
	record_event(
		r, &(struct http1_event){
			   .what = HTTP1_ANSWER_HEAD, .at = length, .status = answer.status, .closes = answer.closes});
	if (answer.is_whole)
		record_event(r, &(struct http1_event){.what = HTTP1_ANSWER_ENDS,
					.at = read,
					.closes = answer.closes,
					.is_early = answer.is_early});
	return read;
}

/* kind: from PLAIN_FIRST on the pieces of kind - PLAIN_FIRST, each to the door for plain messages first. */
enum { PLAIN_FIRST = 3 };

static void run_sent(struct http1 *h, const char *bytes, size_t n, int kind, uint32_t seed, struct record *r)
{
	struct http1_mark mark;

	for (r->base = 0; r->base < n;) {
		size_t k = piece(n - r->base, kind % PLAIN_FIRST, &seed);
		struct iovec iov = {.iov_base = copy_of(bytes + r->base, k), .iov_len = k};
		if (kind < PLAIN_FIRST || !announce_plain(h, iov.iov_base, k, &mark, r))
			http1_announce(h, &iov, 1, k, &mark, record_event, r);
		free(iov.iov_base);
		r->base += k;
	}
}

static void run_received(struct http1 *h, const char *bytes, size_t n, int kind, uint32_t seed, struct record *r)
{
	for (r->base = 0; r->base < n;) {
		size_t k = piece(n - r->base, kind % PLAIN_FIRST, &seed);
		char *copy = copy_of(bytes + r->base, k);
		size_t read = kind < PLAIN_FIRST ? 0 : received_plain(h, copy, k, r);
		r->base += read;
		if (read < k)
			http1_received(h, copy + read, k - read, record_event, r);
		free(copy);
		r->base += k - read;
	}
	r->base = 0;
	http1_end_of_stream(h, record_event, r);
}

/* Vectors of so many pieces, of which random parts go; one: to the door for plain messages first. Records what truly
 * went. */
static void run_sent_partly(struct http1 *h, const char *bytes, size_t n, int count, uint32_t seed, struct record *r)
{
	static struct record announced;
	struct http1_mark mark;

	for (r->base = 0; r->base < n && http1_is_framed(h);) {
		struct iovec iov[3];
		size_t total = 0, gone;
		for (int i = 0; i < count; i++) {
			size_t k = piece(n - r->base - total, count == 1 ? 0 : 2, &seed);
			iov[i] = (struct iovec){.iov_base = copy_of(bytes + r->base + total, k), .iov_len = k};
			total += k;
		}
		gone = next_cut(&seed) % 3 ? next_cut(&seed) % (total + 1) : total;
		announced.count = 0;
		announced.base = r->base;
		if (count > 1 || !announce_plain(h, iov[0].iov_base, total, &mark, &announced))
			http1_announce(h, iov, count, total, &mark, record_event, &announced);
		if (gone == total)
			for (int i = 0; i < announced.count; i++)
				r->event[r->count++] = announced.event[i];
		http1_sent_only(h, &mark, iov, count, total, gone, record_event, r);
		for (int i = 0; i < count; i++)
			free(iov[i].iov_base);
		r->base += gone;
	}
}

/* Everything that must agree, does. The requests are all sent before the answers arrive. */
static bool streams_agree(const char *sent, size_t n, const char *received, size_t m, uint32_t seed)
{
	static struct record want, got;
	static struct oracle o;
	struct http1 h;

	memset(&o, 0, sizeof o);
	o.to = &want;
	want.count = 0;
	want.base = 0;
	oracle_run(&o, true, sent, n);
	if (!o.is_opaque)
		oracle_run(&o, false, received, m);
	for (int kind = 0; kind < 2 * PLAIN_FIRST; kind++) {
		http1_init(&h);
		got.count = 0;
		run_sent(&h, sent, n, kind, seed, &got);
		run_received(&h, received, m, kind, seed, &got);
		if (!records_agree(&got, &want, false)) {
			printf("# pieces: %d\n", kind);
			return false;
		}
	}
	for (int count = 1; count <= 3; count += 2) {
		http1_init(&h);
		got.count = 0;
		run_sent_partly(&h, sent, n, count, seed, &got);
		bool was_opaque = !http1_is_framed(&h);
		run_received(&h, received, m, 2, seed, &got);
		if (!records_agree(&got, &want, was_opaque)) {
			printf("# sent in part, in %d\n", count);
			return false;
		}
	}
	return true;
}

#endif
