/* Framing of one client connection that speaks HTTP/1: the bytes of both directions in, events out. Pure: no system
 * call, no memory of its own, no clock, no lock.
 *
 *   sent      idle ── first octet ──► head ── blank line ──► body ──► idle        a request joins those pending at its
 * first received  idle ── first octet ──► head ── blank line ──► body ──► idle        octet and leaves at the end of
 * its answer both      ── 101, 2xx to CONNECT, not HTTP/1, more than 16 pending, fed twice at once ──► opaque, for good
 *
 * Whole plain heads are skimmed (http1_skim.h), all others go through llhttp; bodies are skipped by length. `at` in
 * events counts from the first of the octets given in that call.
 *
 * Threads: one may send while another receives. Both sides share one atomic word: the pending requests. A side that is
 * fed by two threads at once, or by a signal handler in the midst of a feed, turns opaque: whoever finds it taken
 * touches nothing else. A longjmp out of a feed, or a fork in its midst, leaves it taken: opaque at the next feed. */
#ifndef RESIL_WIRE_HTTP1_H
#define RESIL_WIRE_HTTP1_H

#include <llhttp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define HTTP1_PENDING_MAX 16

enum http1_what {
	HTTP1_REQUEST_BEGINS, /* at: its first octet */
	HTTP1_REQUEST_HEAD,   /* at: behind its blank line; method; closes */
	HTTP1_REQUEST_ENDS,   /* at: behind its last octet */
	HTTP1_ANSWER_BEGINS,  /* at: its first octet, or 0 where that was in an earlier call. Not for a 1xx, unless its
				 status was not in the same octets: INTERIM then takes it back */
	HTTP1_INTERIM,	      /* a 1xx head (not 101) has passed: no answer yet; status */
	HTTP1_ANSWER_HEAD,    /* status; until_close; closes */
	HTTP1_ANSWER_ENDS,    /* closes; is_early */
	HTTP1_UNSOLICITED, /* octets with no request pending: the server speaks first, or 408 on an idle connection. Its
			      head and end are not told, and it answers nothing */
	HTTP1_CUT,	   /* the stream ended in the midst of an answer, or with a request unanswered */
	HTTP1_OPAQUE,	   /* from here on nothing is told; why; status where it was an answer's */
};

enum http1_why {
	HTTP1_WHY_UPGRADE,    /* 101 */
	HTTP1_WHY_TUNNEL,     /* 2xx to CONNECT */
	HTTP1_WHY_NOT_HTTP,   /* llhttp cannot read it */
	HTTP1_WHY_PIPELINE,   /* more than HTTP1_PENDING_MAX */
	HTTP1_WHY_CONCURRENT, /* one side fed twice at once, or an answer to what was never sent */
};

struct http1_event {
	enum http1_what what;
	enum http1_why why;
	size_t at;
	uint16_t status;
	uint8_t method; /* llhttp's: HTTP_GET... */
	bool closes; /* HTTP/1.0 or `Connection: close`, of the request or of the answer: the answer may be whole, the
			client may still wait for the end of the stream */
	bool until_close; /* the answer has no length: it ends with the stream */
	bool is_early;	  /* the answer is whole before its request is (413) */
	/* REQUEST_HEAD, ANSWER_HEAD: the head, where all of it is in one piece of this call; for http1_field(). Else
	 * null. */
	const char *head;
	size_t head_length;
};

/* Called in the midst of a feed, in order: may not feed the same connection. */
typedef void http1_sink(void *context, const struct http1_event *event);

struct http1_side {
	llhttp_t parser;      /* means something in HEAD and CHUNKED only */
	uint64_t left;	      /* octets of a counted body still to come */
	uint32_t feeds;	      /* how often it was fed: a mark of another feed is stale */
	uint8_t mode;	      /* enum in http1.c */
	uint8_t flags;	      /* of the message in progress */
	uint8_t pushed;	      /* sending side: requests begun, modulo 256 */
	_Atomic uint8_t busy; /* taken by a feed */
};

/* All zero: unused, feeds do nothing. */
struct http1 {
	/* The pending requests, and whether all this is in use (http1_pending.h). */
	_Atomic uint64_t shared;
	struct http1_side sent, received;
};
_Static_assert(sizeof(struct http1) <= 256, "one a descriptor");

/* Where the sending side stood before an announcement. On the caller's stack; 128 bytes. */
struct http1_mark {
	llhttp_t parser;
	uint64_t left;
	uint32_t feeds;
	uint8_t mode, flags, pushed;
};

void http1_init(struct http1 *h);
/* In use and not opaque. */
bool http1_is_framed(const struct http1 *h);
/* Requests begun whose answers have not ended. */
unsigned http1_pending(const struct http1 *h);

/* Before the system call: the first `limit` octets of the vector are about to be sent. Events as if they had been; the
 * engine acts on REQUEST_BEGINS and keeps the rest in mind until it knows how many went. False: not framed (any more).
 */
bool http1_announce(struct http1 *h, const struct iovec *iov, int count, size_t limit, struct http1_mark *mark,
	http1_sink *sink, void *context);
/* The everyday request: all of the octets are one request's, from its first on, behind a plain head; nothing of this
 * side is in progress. Read at once and told without events. False: nothing was done, and http1_announce is to be
 * asked, which would have told REQUEST_BEGINS, REQUEST_HEAD and, where *is_whole, REQUEST_ENDS (tests/unit/wire_http1.c
 * compares).
 */
bool http1_announce_plain(struct http1 *h, const void *bytes, size_t n, struct http1_mark *mark, bool *is_whole);
/* After it, with the same octets, when `gone` of them went (0 after an error). Nothing is done when all did; else the
 * side goes back to the mark, and the events of what truly went are told once more. Requests of which no octet went are
 * pending no longer. Between both calls an answer may already have ended the request: that stands. */
bool http1_sent_only(struct http1 *h, const struct http1_mark *mark, const struct iovec *iov, int count, size_t limit,
	size_t gone, http1_sink *sink, void *context);
/* Events of octets about to be sent, changing nothing. */
bool http1_preview(struct http1 *h, const struct iovec *iov, int count, size_t limit, http1_sink *sink, void *context);

/* After the system call. MSG_PEEK, MSG_OOB and MSG_ERRQUEUE are not for us. */
bool http1_received(struct http1 *h, const void *bytes, size_t n, http1_sink *sink, void *context);
/* The everyday answer, likewise: its plain head is at the first of the octets, which are read up to the returned one:
 * to the end of the head, and of its body where that has a length. 0: nothing was done. The rest is http1_received's,
 * which would have told of these ANSWER_BEGINS, ANSWER_HEAD and, where is_whole, ANSWER_ENDS. Octets in the midst of a
 * body of known length: all of them, and nothing is to be told (status 0). */
struct http1_plain {
	uint16_t status;
	bool closes, is_whole, is_early; /* as in the events */
};
size_t http1_received_plain(struct http1 *h, const void *bytes, size_t n, struct http1_plain *answer);
bool http1_received_iov(
	struct http1 *h, const struct iovec *iov, int count, size_t limit, http1_sink *sink, void *context);
/* An orderly end of the stream was received. */
void http1_end_of_stream(struct http1 *h, http1_sink *sink, void *context);

#endif
