/* Frames of one client connection that speaks HTTP/2 (RFC 9113): the octets of both directions in, events out. Pure: no
 * system call, no memory of its own, no clock, no lock. Octets may be cut anywhere; payloads are passed by their
 * length.
 *
 *   client  preface ──► SETTINGS ──► frames ...        what it sends is announced before the system call by the heads
 * of server              SETTINGS ──► frames ...        its frames alone, and told when it is known how much went
 *
 * Header blocks (HEADERS, CONTINUATION, PUSH_PROMISE) are skimmed (hpack.h). SETTINGS are read for what the client lets
 * the server send; their table size need not be: encoders say theirs in the blocks.
 *
 * Events name streams by number and know nothing of their lives: a stream that is told of may be none of ours (any
 * more). What breaks the rules of framing is lost, for ever: false from then on, and no event.
 *
 * Threads: one may send while another receives. A side that is fed by two threads at once, or by a signal handler in
 * the midst of a feed, is lost; a longjmp out of a feed, or a fork in its midst, leaves it so at the next. */
#ifndef RESIL_WIRE_HTTP2_H
#define RESIL_WIRE_HTTP2_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "wire/hpack.h"

#define HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define HTTP2_PREFACE_LENGTH 24
#define HTTP2_WINDOW 65535 /* what a server may send at first, on a stream and on the connection */

enum http2_what {
	/* Of the client. */
	HTTP2_REQUEST_BEGINS, /* HEADERS: of a stream told before they are trailers. Announced, and told again */
	HTTP2_REQUEST_HEAD,   /* found */
	HTTP2_REQUEST_ENDS,
	HTTP2_CANCELLED, /* RST_STREAM; value: its error code */
	HTTP2_GRANTED,	 /* WINDOW_UPDATE; value: so many octets more. Stream 0: of the connection */
	HTTP2_WINDOW_IS, /* SETTINGS; value: what a stream may send at first, for those that are open too */
	/* Of the server. */
	HTTP2_ANSWER_BEGINS, /* HEADERS: of the answer, of an interim one, or trailers */
	HTTP2_ANSWER_HEAD,   /* found */
	HTTP2_ANSWER_DATA,   /* value: octets that count against the window; 0: more of a frame that has begun */
	HTTP2_ANSWER_ENDS,
	HTTP2_RESET,  /* value: the error code */
	HTTP2_GOAWAY, /* stream: the last that is or will be processed; value: the error code */
};

enum http2_error { HTTP2_NO_ERROR = 0, HTTP2_REFUSED_STREAM = 7, HTTP2_CANCEL = 8, HTTP2_HTTP_1_1_REQUIRED = 13 };

struct http2_event {
	enum http2_what what;
	uint32_t stream;
	uint32_t value;
	struct hpack_found found;
};

/* Called in the midst of a feed, in order: may not feed the same connection. */
typedef void http2_sink(void *context, const struct http2_event *event);

/* Where in its frames a side is. */
struct http2_place {
	uint8_t preface; /* octets of it that have passed */
	uint8_t have;	 /* octets of the frame's head */
	uint8_t head[9];
	uint32_t left; /* of its payload, once the head is whole */
};

struct http2_side {
	struct http2_place place;
	uint32_t stream; /* of the frame */
	uint32_t block;	 /* the stream whose header block is in progress; 0: none is */
	uint8_t type, flags, padding, prefix, small_have;
	bool has_begun; /* its SETTINGS have come */
	bool is_padding_told, is_promise, block_ends_stream;
	uint8_t small[8]; /* a payload that is read */
	_Atomic uint8_t is_busy;
	struct hpack fields;
};

struct http2 {
	struct http2_side sent, received;
	_Atomic uint8_t is_lost; /* both write, only ever 1 */
};

void http2_init(struct http2 *h);
bool http2_is_lost(const struct http2 *h);
/* Are these the first octets of a server that speaks HTTP/2 (the head of its SETTINGS; 9 octets)? */
bool http2_is_server(const void *first, size_t n);

/* Before the system call: REQUEST_BEGINS of the streams that begin in the first `limit` octets of the vector. Changes
 * nothing. */
void http2_announce(
	const struct http2 *h, const struct iovec *iov, int count, size_t limit, http2_sink *sink, void *context);
/* Before it too, and before anything begins: whom the first request whose head is whole in these octets calls its
 * server. The octets written to name; 0: that is not said, or not yet. *is_told: a head is whole. Changes nothing. */
size_t http2_authority(const struct http2 *h, const struct iovec *iov, int count, size_t limit, char *name, size_t most,
	bool *is_told);
/* The everyday send: whole frames of DATA that end no stream, from a frame's first octet on. When all of it goes there
 * is nothing to tell: http2_announce would tell nothing, nor http2_sent after it, and both leave the side as it is. */
bool http2_is_data(const struct http2 *h, const void *bytes, size_t n);
/* After it: of these octets the first `gone` went. False: lost. */
bool http2_sent(struct http2 *h, const struct iovec *iov, int count, size_t gone, http2_sink *sink, void *context);
/* So many octets went that nobody has seen (sendfile): the payload of a frame they must be. */
bool http2_sent_unseen(struct http2 *h, size_t gone, http2_sink *sink, void *context);
/* After a receive: the first n octets of the vector, but for the first `from`. */
/* The everyday receive, likewise: whole frames of DATA of one stream, or more of one, which end no stream. Passed, and
 * not told as HTTP2_ANSWER_DATA, which it is all the same: of `stream`, of so many octets in all. False: nothing was
 * done, and http2_received is to be asked. */
struct http2_data {
	uint32_t stream, octets;
};
bool http2_received_data(struct http2 *h, const void *bytes, size_t n, struct http2_data *data);
bool http2_received(
	struct http2 *h, const struct iovec *iov, int count, size_t from, size_t n, http2_sink *sink, void *context);

#endif
