/* See http1.h. */
#include "wire/http1.h"

#include <string.h>

#include "base/hot.h"
#include "wire/http1_pending.h"
#include "wire/http1_skim.h"

enum mode {
	MODE_IDLE,    /* between messages */
	MODE_HEAD,    /* llhttp is in the midst of a head */
	MODE_COUNTED, /* `left` octets of a body to come */
	MODE_CHUNKED, /* llhttp is in the midst of a chunked body */
	MODE_ENDLESS, /* the body ends with the stream */
};

/* Of the message in progress. */
enum {
	IS_UNSOLICITED = 1,
	HAS_BEGUN = 2, /* ANSWER_BEGINS was told */
	CLOSES = 4,
};

/* ---- one feed of one side ---- */

struct feed {
	struct http1 *h;
	struct http1_side *side;
	http1_sink *sink;
	void *context;
	const char *piece;    /* the octets at hand */
	size_t base;	      /* of the pieces before them */
	size_t message_at;    /* where the message in progress began; 0: in an earlier feed */
	const char *message;  /* the same within the piece at hand; null: in an earlier one */
	bool is_sent;	      /* which side */
	uint8_t pushed_until; /* told once more after a partial send: requests pending already */
};

static void tell(const struct feed *f, const struct http1_event *event)
{
	if (f->sink)
		f->sink(f->context, event);
}

static size_t at(const struct feed *f, const char *p)
{
	return f->base + (size_t)(p - f->piece);
}

/* Always false, for the callers to return. */
static bool go_opaque(const struct feed *f, enum http1_why why, uint16_t status)
{
	if (!(atomic_fetch_or_explicit(&f->h->shared, HTTP1_PENDING_IS_OPAQUE, memory_order_acq_rel) &
		    HTTP1_PENDING_IS_OPAQUE))
		tell(f, &(struct http1_event){.what = HTTP1_OPAQUE, .why = why, .status = status});
	return false;
}

static int pause_parser(llhttp_t *parser)
{
	(void)parser;
	return HPE_PAUSED;
}

static const llhttp_settings_t settings = {.on_headers_complete = pause_parser, .on_message_complete = pause_parser};

static void parser_begin(llhttp_t *parser, bool is_request)
{
	llhttp_init(parser, is_request ? HTTP_REQUEST : HTTP_RESPONSE, &settings);
	parser->lenient_flags =
		LENIENT_HEADERS | LENIENT_CHUNKED_LENGTH | LENIENT_KEEP_ALIVE | LENIENT_TRANSFER_ENCODING;
}

/* A skimmed head with a chunked body: the parser as it stands behind such a head. Made once a side and copied; whoever
 * finds it in the making (or forked in its midst) makes its own. */
static void parser_begin_chunks(llhttp_t *parser, bool is_request)
{
	static struct {
		_Atomic int state; /* 0: none, 1: in the making, 2: there */
		llhttp_t parser;
	} made[2];
	static const char request[] = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
	static const char answer[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

	if (atomic_load_explicit(&made[is_request].state, memory_order_acquire) == 2) {
		*parser = made[is_request].parser;
		return;
	}
	parser_begin(parser, is_request);
	if (is_request)
		llhttp_execute(parser, request, sizeof request - 1);
	else
		llhttp_execute(parser, answer, sizeof answer - 1);
	llhttp_resume(parser);
	int none = 0;
	if (atomic_compare_exchange_strong_explicit(
		    &made[is_request].state, &none, 1, memory_order_acquire, memory_order_relaxed)) {
		made[is_request].parser = *parser;
		atomic_store_explicit(&made[is_request].state, 2, memory_order_release);
	}
}

static bool message_end(struct feed *f, const char *p)
{
	struct http1_side *side = f->side;

	side->mode = MODE_IDLE;
	if (f->is_sent) {
		if (side->pushed == f->pushed_until)
			http1_pending_sent(&f->h->shared);
		tell(f, &(struct http1_event){.what = HTTP1_REQUEST_ENDS, .at = at(f, p)});
	} else if (!(side->flags & IS_UNSOLICITED)) {
		bool is_early = false;
		if (!http1_pending_pop(&f->h->shared, &is_early))
			return go_opaque(f, HTTP1_WHY_CONCURRENT, 0);
		tell(f, &(struct http1_event){.what = HTTP1_ANSWER_ENDS,
				.at = at(f, p),
				.closes = side->flags & CLOSES,
				.is_early = is_early});
	}
	return true;
}

/* Behind a head with a body of this kind. `is_in_parser`: llhttp has read the head and can go on. */
static bool body_begin(struct feed *f, const struct http1_head *head, const char *p, bool is_in_parser)
{
	struct http1_side *side = f->side;

	if (head->flags & F_CHUNKED) {
		if (!is_in_parser)
			parser_begin_chunks(&side->parser, f->is_sent);
		side->mode = MODE_CHUNKED;
	} else if (head->flags & F_TRANSFER_ENCODING) {
		side->mode = MODE_ENDLESS;
	} else if (head->flags & F_CONTENT_LENGTH) {
		if (head->content_length == 0)
			return message_end(f, p);
		side->left = head->content_length;
		side->mode = MODE_COUNTED;
	} else {
		if (f->is_sent)
			return message_end(f, p);
		side->mode = MODE_ENDLESS;
	}
	return true;
}

static bool closes(const struct http1_head *head)
{
	return head->is_new ? head->flags & F_CONNECTION_CLOSE : !(head->flags & F_CONNECTION_KEEP_ALIVE);
}

static uint64_t entry_of(const struct http1_head *head)
{
	uint64_t entry = head->method == HTTP_HEAD	? HTTP1_PENDING_HEAD
			 : head->method == HTTP_CONNECT ? HTTP1_PENDING_CONNECT
							: HTTP1_PENDING_OTHER;

	return closes(head) ? entry | HTTP1_PENDING_CLOSES : entry;
}

static bool request_head(struct feed *f, const struct http1_head *head, const char *p, bool is_in_parser)
{
	struct http1_event event = {
		.what = HTTP1_REQUEST_HEAD, .at = at(f, p), .method = head->method, .closes = closes(head)};
	uint64_t entry = entry_of(head);

	if (entry)
		http1_pending_describe(&f->h->shared, (uint8_t)(f->side->pushed - 1), entry);
	event.head = f->message;
	event.head_length = f->message ? (size_t)(p - f->message) : 0;
	tell(f, &event);
	return head->method == HTTP_CONNECT ? message_end(f, p) : body_begin(f, head, p, is_in_parser);
}

static void answer_begin(struct feed *f, size_t offset)
{
	if (f->side->flags & HAS_BEGUN)
		return;
	f->side->flags |= HAS_BEGUN;
	tell(f, &(struct http1_event){.what = HTTP1_ANSWER_BEGINS, .at = offset});
}

static bool answer_head(struct feed *f, const struct http1_head *head, const char *p, bool is_in_parser)
{
	struct http1_side *side = f->side;
	uint64_t to = side->flags & IS_UNSOLICITED ? HTTP1_PENDING_OTHER : http1_pending_load(&f->h->shared);
	bool has_length =
		head->flags & F_CHUNKED || (head->flags & F_CONTENT_LENGTH && !(head->flags & F_TRANSFER_ENCODING));
	bool is_tunnel = head->status == 101 ||
			 ((to & HTTP1_PENDING_METHOD) == HTTP1_PENDING_CONNECT && head->status / 100 == 2);
	bool is_bare = (to & HTTP1_PENDING_METHOD) == HTTP1_PENDING_HEAD || head->status == 204 || head->status == 304;

	if (head->status / 100 == 1 && head->status != 101) {
		side->mode = MODE_IDLE;
		if (!(side->flags & IS_UNSOLICITED))
			tell(f, &(struct http1_event){.what = HTTP1_INTERIM, .at = at(f, p), .status = head->status});
		return true;
	}
	if (closes(head) || to & HTTP1_PENDING_CLOSES)
		side->flags |= CLOSES;
	if (!(side->flags & IS_UNSOLICITED)) {
		answer_begin(f, f->message_at);
		tell(f, &(struct http1_event){.what = HTTP1_ANSWER_HEAD,
				.at = at(f, p),
				.status = head->status,
				.closes = side->flags & CLOSES,
				.until_close = !is_bare && !is_tunnel && !has_length,
				.head = f->message,
				.head_length = f->message ? (size_t)(p - f->message) : 0});
	}
	if (is_tunnel)
		return go_opaque(f, head->status == 101 ? HTTP1_WHY_UPGRADE : HTTP1_WHY_TUNNEL, head->status);
	return is_bare ? message_end(f, p) : body_begin(f, head, p, is_in_parser);
}

static bool head_end(struct feed *f, const struct http1_head *head, const char *p, bool is_in_parser)
{
	return f->is_sent ? request_head(f, head, p, is_in_parser) : answer_head(f, head, p, is_in_parser);
}

/* Is a status seen, and is it a 1xx? Then the end of the head says what it is. */
static bool looks_interim(const char *p, const char *end)
{
	return end - p >= 10 && memcmp(p, "HTTP/1.", 7) == 0 && p[8] == ' ' && p[9] == '1';
}

/* The first octet of a message. Null: opaque; else where reading goes on. */
static const char *message_begin(struct feed *f, const char *p, const char *end)
{
	struct http1_side *side = f->side;
	struct http1_head head;
	size_t n;

	f->message = p;
	f->message_at = at(f, p);
	if (f->is_sent) {
		if (side->pushed != f->pushed_until)
			side->pushed++; /* announced, and pending since */
		else if (http1_pending_push(&f->h->shared))
			f->pushed_until = ++side->pushed;
		else
			return go_opaque(f, HTTP1_WHY_PIPELINE, 0), NULL;
		side->flags = 0;
		tell(f, &(struct http1_event){.what = HTTP1_REQUEST_BEGINS, .at = f->message_at});
		n = http1_skim_request(p, end, &head);
	} else {
		side->flags = http1_pending_count(http1_pending_load(&f->h->shared)) ? 0 : IS_UNSOLICITED;
		if (side->flags & IS_UNSOLICITED)
			tell(f, &(struct http1_event){.what = HTTP1_UNSOLICITED, .at = f->message_at});
		else if (!looks_interim(p, end))
			answer_begin(f, f->message_at);
		n = http1_skim_answer(p, end, &head);
	}
	if (n > 0)
		return head_end(f, &head, p + n, false) ? p + n : NULL;
	parser_begin(&side->parser, f->is_sent);
	side->mode = MODE_HEAD;
	return p;
}

/* llhttp reads on. Null: opaque. */
static const char *run_parser(struct feed *f, const char *p, const char *end)
{
	llhttp_t *parser = &f->side->parser;
	llhttp_errno_t err = llhttp_execute(parser, p, (size_t)(end - p));

	if (err == HPE_OK)
		return end;
	if (err != HPE_PAUSED)
		return go_opaque(f, HTTP1_WHY_NOT_HTTP, 0), NULL;
	p = llhttp_get_error_pos(parser);
	llhttp_resume(parser);
	if (f->side->mode == MODE_CHUNKED)
		return message_end(f, p) ? p : NULL;
	struct http1_head head = {
		.content_length = parser->content_length,
		.status = parser->status_code,
		.flags = parser->flags & HTTP1_HEAD_FLAGS,
		.method = parser->method,
		.is_new = parser->http_major > 0 && parser->http_minor > 0,
	};
	/* llhttp takes an upgrade's request for ended at its head, unless its body's length is told. */
	if (parser->upgrade && !(head.flags & F_CHUNKED) && head.content_length == 0)
		head.flags &= (uint16_t)~F_TRANSFER_ENCODING;
	return head_end(f, &head, p, true) ? p : NULL;
}

static bool feed_piece(struct feed *f, const char *p, size_t n)
{
	struct http1_side *side = f->side;
	const char *end = p + n;

	f->piece = p;
	f->message = NULL;
	while (p < end) {
		switch ((enum mode)side->mode) {
		case MODE_IDLE:
			/* Empty lines between messages belong to none (RFC 9112, 2.2). */
			if (*p == '\r' || *p == '\n')
				p++;
			else if (!(p = message_begin(f, p, end)))
				return false;
			break;
		case MODE_HEAD:
		case MODE_CHUNKED:
			if (!(p = run_parser(f, p, end)))
				return false;
			break;
		case MODE_COUNTED:
			if ((size_t)(end - p) < side->left) {
				side->left -= (size_t)(end - p);
				p = end;
			} else {
				p += side->left;
				if (!message_end(f, p))
					return false;
			}
			break;
		case MODE_ENDLESS: p = end; break;
		}
	}
	f->base += n;
	return true;
}

static bool feed_iov(struct feed *f, const struct iovec *iov, int count, size_t limit)
{
	for (int i = 0; i < count && limit > 0; i++) {
		size_t n = iov[i].iov_len < limit ? iov[i].iov_len : limit;
		if (!feed_piece(f, iov[i].iov_base, n))
			return false;
		limit -= n;
	}
	return true;
}

/* Takes one side. False: opaque or unused, or turned opaque because the side was taken. */
static bool enter(struct feed *f)
{
	if (!http1_is_framed(f->h))
		return false;
	if (atomic_exchange_explicit(&f->side->busy, 1, memory_order_acquire))
		return go_opaque(f, HTTP1_WHY_CONCURRENT, 0);
	f->side->feeds++;
	f->pushed_until = f->side->pushed;
	return true;
}

static bool leave(struct feed *f)
{
	atomic_store_explicit(&f->side->busy, 0, memory_order_release);
	return http1_is_framed(f->h);
}

static struct feed feed_of(struct http1 *h, bool is_sent, http1_sink *sink, void *context)
{
	return (struct feed){.h = h,
		.side = is_sent ? &h->sent : &h->received,
		.sink = sink,
		.context = context,
		.is_sent = is_sent};
}

/* ---- the doors ---- */

void http1_init(struct http1 *h)
{
	memset(h, 0, sizeof *h);
	atomic_store_explicit(&h->shared, HTTP1_PENDING_IN_USE, memory_order_release);
}

bool http1_is_framed(const struct http1 *h)
{
	return (http1_pending_load(&h->shared) & (HTTP1_PENDING_IN_USE | HTTP1_PENDING_IS_OPAQUE)) ==
	       HTTP1_PENDING_IN_USE;
}

unsigned http1_pending(const struct http1 *h)
{
	return http1_pending_count(http1_pending_load(&h->shared));
}

static bool needs_parser(uint8_t mode)
{
	return mode == MODE_HEAD || mode == MODE_CHUNKED;
}

static void mark_side(struct http1_mark *mark, const struct http1_side *side)
{
	mark->left = side->left;
	mark->feeds = side->feeds;
	mark->mode = side->mode;
	mark->flags = side->flags;
	mark->pushed = side->pushed;
	if (needs_parser(side->mode))
		mark->parser = side->parser;
}

static void restore_side(struct http1_side *side, const struct http1_mark *mark)
{
	side->left = mark->left;
	side->mode = mark->mode;
	side->flags = mark->flags;
	side->pushed = mark->pushed;
	if (needs_parser(mark->mode))
		side->parser = mark->parser;
}

bool http1_announce(struct http1 *h, const struct iovec *iov, int count, size_t limit, struct http1_mark *mark,
	http1_sink *sink, void *context)
{
	struct feed f = feed_of(h, true, sink, context);

	if (!enter(&f))
		return false;
	mark_side(mark, f.side);
	feed_iov(&f, iov, count, limit);
	return leave(&f);
}

static inline bool enter_plain(struct http1 *h, struct http1_side *side)
{
	return http1_is_framed(h) && !atomic_exchange_explicit(&side->busy, 1, memory_order_acquire);
}

static inline void leave_plain(struct http1_side *side)
{
	atomic_store_explicit(&side->busy, 0, memory_order_release);
}

HOT_FRAME bool http1_announce_plain(
	struct http1 *h, const void *bytes, size_t n, struct http1_mark *mark, bool *is_whole)
{
	struct http1_side *side = &h->sent;
	struct http1_head head;
	const char *p = bytes;
	bool is_plain = false;

	/* Taken already: the other door tells. */
	if (!enter_plain(h, side))
		return false;
	size_t length = side->mode == MODE_IDLE ? http1_skim_request(p, p + n, &head) : 0;
	uint64_t left = length ? length + head.content_length - n : 0;
	if (length && !(head.flags & F_TRANSFER_ENCODING) && (int64_t)left >= 0)
		is_plain = http1_pending_push_described(&h->shared, entry_of(&head), left > 0);
	if (is_plain) {
		side->feeds++;
		mark_side(mark, side);
		side->pushed++;
		side->flags = 0;
		side->left = left;
		side->mode = left ? MODE_COUNTED : MODE_IDLE;
		*is_whole = !left;
	}
	leave_plain(side);
	return is_plain;
}

/* Requests that were announced stay pending while they are told once more: their answers may be arriving. */
bool http1_sent_only(struct http1 *h, const struct http1_mark *mark, const struct iovec *iov, int count, size_t limit,
	size_t gone, http1_sink *sink, void *context)
{
	if (gone >= limit)
		return http1_is_framed(h);
	struct feed f = feed_of(h, true, sink, context);
	if (!enter(&f))
		return false;
	if (f.side->feeds != mark->feeds + 1) {
		go_opaque(&f, HTTP1_WHY_CONCURRENT, 0);
		return leave(&f);
	}
	restore_side(f.side, mark);
	if (feed_iov(&f, iov, count, gone) &&
		!http1_pending_retract(
			&h->shared, (uint8_t)(f.pushed_until - f.side->pushed), f.side->mode != MODE_IDLE))
		go_opaque(&f, HTTP1_WHY_CONCURRENT, 0);
	return leave(&f);
}

bool http1_preview(struct http1 *h, const struct iovec *iov, int count, size_t limit, http1_sink *sink, void *context)
{
	struct feed real = feed_of(h, true, sink, context);
	struct http1_mark mark;
	struct http1 trial;

	if (!enter(&real))
		return false;
	real.side->feeds--;
	mark_side(&mark, real.side);
	uint64_t w = http1_pending_load(&h->shared);
	leave(&real);
	atomic_init(&trial.shared, http1_pending_word(HTTP1_PENDING_IN_USE, w, http1_pending_count(w),
					   (uint8_t)(mark.pushed - http1_pending_count(w)), false));
	atomic_init(&trial.sent.busy, 0);
	restore_side(&trial.sent, &mark);
	struct feed f = feed_of(&trial, true, sink, context);
	f.pushed_until = mark.pushed;
	return feed_iov(&f, iov, count, limit);
}

bool http1_received_iov(
	struct http1 *h, const struct iovec *iov, int count, size_t limit, http1_sink *sink, void *context)
{
	struct feed f = feed_of(h, false, sink, context);

	if (!enter(&f))
		return false;
	feed_iov(&f, iov, count, limit);
	return leave(&f);
}

/* Of an answer to a pending request, length octets of head. False: not plain. */
static bool plain_answer(
	struct http1 *h, const struct http1_head *head, size_t n, size_t *length, struct http1_plain *answer)
{
	struct http1_side *side = &h->received;
	uint64_t w = http1_pending_load(&h->shared), to = w & HTTP1_PENDING_METHOD;
	bool is_bare = to == HTTP1_PENDING_HEAD || head->status == 204 || head->status == 304;
	uint64_t body = is_bare ? 0 : head->content_length, here = n - *length;

	/* Unsolicited, interim (or of no status, which means something else here), a tunnel, or of another kind of
	 * length. */
	if (!http1_pending_count(w) || head->status < 200 || to == HTTP1_PENDING_CONNECT ||
		!(is_bare || head->flags & F_CONTENT_LENGTH) || head->flags & F_TRANSFER_ENCODING)
		return false;
	answer->status = head->status;
	answer->closes = closes(head) || w & HTTP1_PENDING_CLOSES;
	answer->is_whole = body <= here;
	if (answer->is_whole) {
		*length += body;
		return http1_pending_pop(&h->shared, &answer->is_early);
	}
	*length = n;
	side->left = body - here;
	side->flags = (uint8_t)(HAS_BEGUN | (answer->closes ? CLOSES : 0));
	side->mode = MODE_COUNTED;
	return true;
}

HOT_FRAME size_t http1_received_plain(struct http1 *h, const void *bytes, size_t n, struct http1_plain *answer)
{
	struct http1_side *side = &h->received;
	struct http1_head head;
	const char *p = bytes;
	size_t read = 0;

	if (!enter_plain(h, side))
		return 0;
	if (side->mode == MODE_COUNTED && n < side->left) {
		side->left -= n;
		answer->status = 0;
		read = n;
	} else if (side->mode == MODE_IDLE) {
		read = http1_skim_answer(p, p + n, &head);
		if (read && !plain_answer(h, &head, n, &read, answer))
			read = 0;
	}
	side->feeds += read != 0;
	leave_plain(side);
	return read;
}

bool http1_received(struct http1 *h, const void *bytes, size_t n, http1_sink *sink, void *context)
{
	struct feed f = feed_of(h, false, sink, context);

	if (!enter(&f))
		return false;
	feed_piece(&f, bytes, n);
	return leave(&f);
}

void http1_end_of_stream(struct http1 *h, http1_sink *sink, void *context)
{
	struct feed f = feed_of(h, false, sink, context);

	if (!enter(&f))
		return;
	if (f.side->mode == MODE_ENDLESS)
		message_end(&f, f.piece);
	if (http1_pending(h) > 0)
		tell(&f, &(struct http1_event){.what = HTTP1_CUT});
	f.side->mode = MODE_IDLE;
	leave(&f);
}
