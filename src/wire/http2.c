/* See http2.h. */
#include "wire/http2.h"

#include <string.h>

enum type { DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION };
enum flag { END_STREAM = 0x1, ACK = 0x1, END_HEADERS = 0x4, PADDED = 0x8, HAS_PRIORITY = 0x20 };

#define HEAD_LENGTH 9
#define SETTING_LENGTH 6
#define INITIAL_WINDOW_SIZE 4

static const char preface[HTTP2_PREFACE_LENGTH + 1] = HTTP2_PREFACE;

static uint32_t get24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}
static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | get24(p + 1);
}
static uint32_t get31(const uint8_t *p)
{
	return get32(p) & 0x7fffffff;
}

struct feed {
	struct http2_side *side;
	bool is_sent;
	http2_sink *sink;
	void *context;
};

static void tell(const struct feed *f, enum http2_what what, uint32_t stream, uint32_t value)
{
	f->sink(f->context, &(struct http2_event){.what = what, .stream = stream, .value = value});
}

/* ---- frames ---- */

/* The stream ends on this side. */
static void stream_ends(const struct feed *f, uint32_t stream)
{
	tell(f, f->is_sent ? HTTP2_REQUEST_ENDS : HTTP2_ANSWER_ENDS, stream, 0);
}

static bool block_ends(const struct feed *f)
{
	struct http2_side *side = f->side;
	struct http2_event e = {
		.what = f->is_sent ? HTTP2_REQUEST_HEAD : HTTP2_ANSWER_HEAD, .stream = side->block, .value = 0};
	if (!hpack_end(&side->fields, &e.found))
		return false;
	side->block = 0;
	if (side->is_promise)
		return true; /* what is pushed nobody has asked for: no call */
	f->sink(f->context, &e);
	if (side->block_ends_stream)
		stream_ends(f, e.stream);
	return true;
}

static bool frame_ends(const struct feed *f)
{
	struct http2_side *side = f->side;
	side->place.have = 0;
	switch (side->type) {
	case DATA:
		if (side->flags & END_STREAM)
			stream_ends(f, side->stream);
		return true;
	case HEADERS:
	case PUSH_PROMISE:
	case CONTINUATION: return side->flags & END_HEADERS ? block_ends(f) : true;
	case RST_STREAM:
		tell(f, f->is_sent ? HTTP2_CANCELLED : HTTP2_RESET, side->stream, get32(side->small));
		return true;
	case WINDOW_UPDATE:
		if (f->is_sent)
			tell(f, HTTP2_GRANTED, side->stream, get31(side->small));
		return true;
	default: return true;
	}
}

/* A header block's frame: what is before the fragment, and the rules. */
static bool block_frame_begins(const struct feed *f)
{
	struct http2_side *side = f->side;
	uint32_t left = side->place.left;
	side->padding = 0;
	side->prefix = 0;
	side->is_padding_told = true;
	if (side->type == CONTINUATION)
		return side->block == side->stream && side->stream;
	if (side->block || !side->stream || (side->type == PUSH_PROMISE && f->is_sent))
		return false;
	side->is_padding_told = !(side->flags & PADDED);
	side->prefix = side->type == PUSH_PROMISE ? 4 : side->flags & HAS_PRIORITY ? 5 : 0;
	if (left < (uint32_t)side->prefix + !side->is_padding_told)
		return false;
	side->block = side->stream;
	side->is_promise = side->type == PUSH_PROMISE;
	side->block_ends_stream = side->type == HEADERS && side->flags & END_STREAM;
	hpack_begin(&side->fields);
	if (side->type == HEADERS)
		tell(f, f->is_sent ? HTTP2_REQUEST_BEGINS : HTTP2_ANSWER_BEGINS, side->stream, 0);
	return true;
}

/* The frame's head is whole. */
static bool frame_begins(const struct feed *f)
{
	struct http2_side *side = f->side;
	uint32_t left = get24(side->place.head);
	side->place.left = left;
	side->type = side->place.head[3];
	side->flags = side->place.head[4];
	side->stream = get31(side->place.head + 5);
	side->small_have = 0;
	/* A server may have said its SETTINGS while another thread was about to make the flow, and no hook saw them:
	 * its acknowledgement does as well. */
	if (!side->has_begun && (side->type != SETTINGS || (f->is_sent && side->flags & ACK)))
		return false;
	side->has_begun = true;
	if (side->block && side->type != CONTINUATION)
		return false;
	switch (side->type) {
	case DATA:
		if (!f->is_sent && side->stream && left)
			tell(f, HTTP2_ANSWER_DATA, side->stream, left);
		return side->stream != 0;
	case HEADERS:
	case PUSH_PROMISE:
	case CONTINUATION: return block_frame_begins(f);
	case PRIORITY: return left == 5;
	case RST_STREAM: return side->stream && left == 4;
	case SETTINGS: return !side->stream && left % SETTING_LENGTH == 0;
	case PING: return !side->stream && left == 8;
	case GOAWAY: return !side->stream && left >= 8;
	case WINDOW_UPDATE: return left == 4;
	default: return true; /* one that we do not know: passed by, as everybody must */
	}
}

static bool block_feed(struct http2_side *side, const uint8_t *p, size_t n)
{
	uint32_t *left = &side->place.left;
	while (n > 0) {
		size_t step = 1;
		if (!side->is_padding_told) {
			side->padding = *p;
			side->is_padding_told = true;
			if ((uint32_t)side->padding + side->prefix > *left - 1)
				return false;
		} else if (side->prefix > 0) {
			side->prefix--;
		} else if (*left > side->padding) {
			step = n < *left - side->padding ? n : *left - side->padding;
			if (!hpack_feed(&side->fields, p, step))
				return false;
		} else {
			step = n;
		}
		p += step;
		n -= step;
		*left -= (uint32_t)step;
	}
	return true;
}

/* The octet is the last of a setting, or of what is read of a GOAWAY. */
static void small_is_full(const struct feed *f)
{
	struct http2_side *side = f->side;
	if (side->type == SETTINGS) {
		side->small_have = 0;
		if (f->is_sent && side->small[0] == 0 && side->small[1] == INITIAL_WINDOW_SIZE)
			tell(f, HTTP2_WINDOW_IS, 0, get32(side->small + 2));
	} else if (!f->is_sent) {
		tell(f, HTTP2_GOAWAY, get31(side->small), get32(side->small + 4));
	}
}

static void small_feed(const struct feed *f, const uint8_t *p, size_t n)
{
	struct http2_side *side = f->side;
	unsigned most = side->type == SETTINGS ? SETTING_LENGTH : sizeof side->small;
	side->place.left -= (uint32_t)n;
	for (; n > 0 && side->small_have < most; n--) {
		side->small[side->small_have++] = *p++;
		if (side->small_have == most)
			small_is_full(f);
	}
}

/* Octets of the frame's payload, n of those that are left. */
static bool payload(const struct feed *f, const uint8_t *p, size_t n)
{
	struct http2_side *side = f->side;
	switch (side->type) {
	case HEADERS:
	case PUSH_PROMISE:
	case CONTINUATION: return block_feed(side, p, n);
	case RST_STREAM:
	case WINDOW_UPDATE:
	case SETTINGS:
	case GOAWAY: small_feed(f, p, n); return true;
	default: side->place.left -= (uint32_t)n; return true;
	}
}

/* Frames of DATA that are there whole: the everyday, without a note of where in them we are. Returns where to go on. */
static const uint8_t *whole_data(const struct feed *f, const uint8_t *p, const uint8_t *end)
{
	while (end - p >= HEAD_LENGTH && p[3] == DATA) {
		uint32_t n = get24(p), stream = get31(p + 5);
		if ((size_t)(end - p) - HEAD_LENGTH < n || !stream)
			break;
		if (!f->is_sent && n)
			tell(f, HTTP2_ANSWER_DATA, stream, n);
		if (__builtin_expect(p[4] & END_STREAM, 0))
			stream_ends(f, stream);
		p += HEAD_LENGTH + n;
	}
	return p;
}

/* The same of one stream, and to the end: nothing but their length is told. n > 0. */
static inline bool is_data_only(const uint8_t *p, size_t n, struct http2_data *data)
{
	data->octets = 0;
	data->stream = n >= HEAD_LENGTH ? get31(p + 5) : 0;
	if (!data->stream)
		return false;
	for (;;) {
		uint32_t left = get24(p);
		if (p[3] != DATA || p[4] & END_STREAM || get31(p + 5) != data->stream || n - HEAD_LENGTH < left)
			return false;
		data->octets += left;
		n -= HEAD_LENGTH + left;
		if (n == 0)
			return true;
		if (n < HEAD_LENGTH)
			return false;
		p += HEAD_LENGTH + left;
	}
}

/* More of a frame's payload. */
static bool goes_on(struct http2_side *side, size_t n, struct http2_data *data)
{
	struct http2_place *at = &side->place;
	if (at->have != HEAD_LENGTH || side->type != DATA || side->flags & END_STREAM || n > at->left)
		return false;
	at->left -= (uint32_t)n;
	if (at->left == 0)
		at->have = 0;
	*data = (struct http2_data){.stream = side->stream};
	return true;
}

static bool feed_piece(const struct feed *f, const uint8_t *p, size_t n)
{
	struct http2_place *at = &f->side->place;
	const uint8_t *end = p + n;
	while (p < end) {
		size_t step = 1;
		if (at->have == 0 && f->side->has_begun && !f->side->block && (p = whole_data(f, p, end)) == end)
			break;
		if (__builtin_expect(at->preface < HTTP2_PREFACE_LENGTH, 0)) {
			if (*p != (uint8_t)preface[at->preface++])
				return false;
		} else if (at->have < HEAD_LENGTH) {
			step = HEAD_LENGTH - at->have;
			if (step > (size_t)(end - p))
				step = (size_t)(end - p);
			memcpy(at->head + at->have, p, step);
			at->have = (uint8_t)(at->have + step);
			if (at->have == HEAD_LENGTH && (!frame_begins(f) || (at->left == 0 && !frame_ends(f))))
				return false;
		} else {
			step = (size_t)(end - p) < at->left ? (size_t)(end - p) : at->left;
			if (!payload(f, p, step) || (at->left == 0 && !frame_ends(f)))
				return false;
		}
		p += step;
	}
	return true;
}

/* ---- the doors ---- */

static bool enter(struct http2 *h, struct http2_side *side)
{
	if (http2_is_lost(h))
		return false;
	if (atomic_exchange_explicit(&side->is_busy, 1, memory_order_acquire)) {
		atomic_store_explicit(&h->is_lost, 1, memory_order_relaxed);
		return false;
	}
	return true;
}

static bool leave(struct http2 *h, struct http2_side *side, bool is_well)
{
	if (!is_well)
		atomic_store_explicit(&h->is_lost, 1, memory_order_relaxed);
	atomic_store_explicit(&side->is_busy, 0, memory_order_release);
	return !http2_is_lost(h);
}

void http2_init(struct http2 *h)
{
	memset(h, 0, sizeof *h);
	h->received.place.preface = HTTP2_PREFACE_LENGTH; /* a server has none */
	hpack_init(&h->sent.fields);
	hpack_init(&h->received.fields);
}

bool http2_is_lost(const struct http2 *h)
{
	return atomic_load_explicit(&h->is_lost, memory_order_relaxed);
}

bool http2_is_server(const void *first, size_t n)
{
	const uint8_t *p = first;
	return n >= HEAD_LENGTH && p[0] == 0 && p[1] <= 1 && get24(p) % SETTING_LENGTH == 0 && p[3] == SETTINGS &&
	       p[4] == 0 && get32(p + 5) == 0;
}

void http2_announce(
	const struct http2 *h, const struct iovec *iov, int count, size_t limit, http2_sink *sink, void *context)
{
	struct http2_place at = h->sent.place;
	struct feed f = {.is_sent = true, .sink = sink, .context = context};
	if (http2_is_lost(h))
		return;
	for (int i = 0; i < count && limit > 0; i++) {
		const uint8_t *p = iov[i].iov_base;
		size_t n = iov[i].iov_len < limit ? iov[i].iov_len : limit;
		limit -= n;
		while (n > 0) {
			size_t step;
			if (at.preface < HTTP2_PREFACE_LENGTH) {
				step = HTTP2_PREFACE_LENGTH - at.preface;
				step = n < step ? n : step;
				at.preface = (uint8_t)(at.preface + step);
			} else if (at.have < HEAD_LENGTH) {
				step = HEAD_LENGTH - at.have;
				step = n < step ? n : step;
				memcpy(at.head + at.have, p, step);
				at.have = (uint8_t)(at.have + step);
				at.left = get24(at.head);
				if (at.have == HEAD_LENGTH && at.head[3] == HEADERS)
					tell(&f, HTTP2_REQUEST_BEGINS, get31(at.head + 5), 0);
			} else {
				step = n < at.left ? n : at.left;
				at.left -= (uint32_t)step;
			}
			if (at.have == HEAD_LENGTH && at.left == 0)
				at.have = 0;
			p += step;
			n -= step;
		}
	}
}

static void is_head(void *context, const struct http2_event *e)
{
	bool *is_told = context;
	*is_told |= e->what == HTTP2_REQUEST_HEAD;
}

size_t http2_authority(
	const struct http2 *h, const struct iovec *iov, int count, size_t limit, char *name, size_t most, bool *is_told)
{
	struct http2_side side;
	struct feed f = {.side = &side, .is_sent = true, .sink = is_head, .context = is_told};
	*is_told = h->sent.block != 0; /* of one that is in progress the beginning has gone */
	if (http2_is_lost(h) || *is_told)
		return 0;
	memcpy(&side, &h->sent, sizeof side);
	side.fields.authority = name;
	side.fields.authority_max = (uint32_t)most;
	for (int i = 0; i < count && limit > 0 && !*is_told; i++) {
		size_t n = iov[i].iov_len < limit ? iov[i].iov_len : limit;
		limit -= n;
		if (!feed_piece(&f, iov[i].iov_base, n))
			return 0;
	}
	return *is_told ? side.fields.authority_length : 0;
}

bool http2_sent(struct http2 *h, const struct iovec *iov, int count, size_t gone, http2_sink *sink, void *context)
{
	struct feed f = {.side = &h->sent, .is_sent = true, .sink = sink, .context = context};
	bool is_well = true;
	if (!enter(h, f.side))
		return false;
	for (int i = 0; i < count && gone > 0 && is_well; i++) {
		size_t n = iov[i].iov_len < gone ? iov[i].iov_len : gone;
		is_well = feed_piece(&f, iov[i].iov_base, n);
		gone -= n;
	}
	return leave(h, f.side, is_well);
}

bool http2_sent_unseen(struct http2 *h, size_t gone, http2_sink *sink, void *context)
{
	struct feed f = {.side = &h->sent, .is_sent = true, .sink = sink, .context = context};
	struct http2_place *at = &f.side->place;
	if (!enter(h, f.side))
		return false;
	bool is_well = gone == 0 || (at->have == HEAD_LENGTH && f.side->type == DATA && gone <= at->left);
	if (is_well && gone > 0) {
		at->left -= (uint32_t)gone;
		is_well = at->left > 0 || frame_ends(&f);
	}
	return leave(h, f.side, is_well);
}

static inline bool is_between_frames(const struct http2_side *side)
{
	return side->place.have == 0 && side->has_begun && !side->block;
}

bool http2_is_data(const struct http2 *h, const void *bytes, size_t n)
{
	struct http2_data data;
	return !http2_is_lost(h) && is_between_frames(&h->sent) && is_data_only(bytes, n, &data);
}

bool http2_received_data(struct http2 *h, const void *bytes, size_t n, struct http2_data *data)
{
	struct http2_side *side = &h->received;
	if (!enter(h, side))
		return false;
	bool is_it =
		__builtin_expect(is_between_frames(side), 1) ? is_data_only(bytes, n, data) : goes_on(side, n, data);
	atomic_store_explicit(&side->is_busy, 0, memory_order_release);
	return is_it;
}

bool http2_received(
	struct http2 *h, const struct iovec *iov, int count, size_t from, size_t n, http2_sink *sink, void *context)
{
	struct feed f = {.side = &h->received, .sink = sink, .context = context};
	bool is_well = true;
	if (!enter(h, f.side))
		return false;
	if (f.side->place.have == HEAD_LENGTH && f.side->type == DATA && n > from)
		tell(&f, HTTP2_ANSWER_DATA, f.side->stream, 0);
	for (int i = 0; i < count && n > 0 && is_well; i++) {
		size_t piece = iov[i].iov_len < n ? iov[i].iov_len : n;
		size_t skip = from < piece ? from : piece;
		is_well = feed_piece(&f, (const uint8_t *)iov[i].iov_base + skip, piece - skip);
		from -= skip;
		n -= piece;
	}
	return leave(h, f.side, is_well);
}
