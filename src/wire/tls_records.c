/* See tls_records.h. */
#include "wire/tls_records.h"

#include <stddef.h>
#include <string.h>

enum record { CHANGE = 20, ALERT, HANDSHAKE, DATA };
enum message { CLIENT_HELLO = 1, SERVER_HELLO = 2, SERVER_HELLO_DONE = 14 };
enum extension { SERVER_NAME = 0, ALPN = 16, SUPPORTED_VERSIONS = 43 };

#define RECORD_MAX (16384 + 2048)
#define FATAL 2
#define TICKET_LEAST 60
#define TICKET_MOST 4096
#define TICKETS_MOST 4

/* The parts of a hello, in order. A stage that reads a length is followed by the part of that length. */
enum stage {
	HEAD, /* type and length of a message */
	VERSION,
	RANDOM,
	SESSION_LENGTH,
	SESSION,
	SUITES_LENGTH, /* the server's hello: its suite */
	SUITES,
	METHODS_LENGTH, /* the server's: its method */
	METHODS,
	EXTENSIONS_LENGTH,
	EXTENSION_TYPE,
	EXTENSION_LENGTH,
	EXTENSION,
	REST, /* of a message that is not looked at */
};

/* ── hellos ── */

static void stage_begins(struct tls_hello *h, enum stage stage, uint16_t length)
{
	h->stage = (uint8_t)stage;
	h->part_left = length;
	h->number = 0;
	h->at = 0;
}

/* Of a name (SNI) or of the protocols (ALPN): octet by octet. */
static void extension_octet(struct tls_records *t, struct tls_hello *h, uint8_t c)
{
	bool is_client = h->type == CLIENT_HELLO;
	uint16_t at = h->at++;
	switch (h->extension) {
	case SERVER_NAME: /* length of the list (2), type, length (2), name */
		if (!is_client || at < 2)
			return;
		if (at == 2)
			h->agrees = c == 0; /* a host's name, the only kind there is */
		else if (at == 3 || at == 4)
			h->name_left = (uint16_t)(h->name_left << 8 | c);
		else if (h->agrees && h->name_left && t->name_length < TLS_NAME_MAX) {
			h->name_left--;
			t->name[t->name_length++] = (char)c;
		}
		return;
	case ALPN: /* length of the list (2), then each with its length (1) */
		if (at < 2)
			return;
		if (h->name_left == 0) {
			h->name_left = c;
			h->agrees = c == 2;
			h->number = 0;
			return;
		}
		h->agrees = h->agrees && c == (h->number++ == 0 ? 'h' : '2');
		if (--h->name_left == 0 && h->agrees)
			*(is_client ? &t->offers_h2 : &t->has_h2) = true;
		return;
	case SUPPORTED_VERSIONS:
		if (is_client)
			return;
		h->number = (uint16_t)(h->number << 8 | c);
		if (at == 1)
			t->is_13 = h->number == 0x0304;
		return;
	default: return;
	}
}

/* The part in progress has passed: on to the next. */
static void part_passed(struct tls_records *t, struct tls_hello *h)
{
	bool is_client = h->type == CLIENT_HELLO;
	uint16_t number = h->number;
	switch (h->stage) {
	case VERSION: stage_begins(h, RANDOM, TLS_RANDOM); return;
	case RANDOM: stage_begins(h, SESSION_LENGTH, 1); return;
	case SESSION_LENGTH: stage_begins(h, SESSION, number); break;
	case SESSION: stage_begins(h, SUITES_LENGTH, 2); return;
	case SUITES_LENGTH:
		if (!is_client)
			t->suite = number;
		stage_begins(h, SUITES, is_client ? number : 0);
		break;
	case SUITES: stage_begins(h, METHODS_LENGTH, 1); return;
	case METHODS_LENGTH: stage_begins(h, METHODS, is_client ? number : 0); break;
	case METHODS: stage_begins(h, EXTENSIONS_LENGTH, 2); return;
	case EXTENSIONS_LENGTH:
	case EXTENSION: stage_begins(h, EXTENSION_TYPE, 2); return;
	case EXTENSION_TYPE:
		h->extension = number;
		stage_begins(h, EXTENSION_LENGTH, 2);
		return;
	case EXTENSION_LENGTH:
		stage_begins(h, EXTENSION, number);
		h->name_left = 0;
		break;
	default: return;
	}
	if (h->part_left == 0)
		part_passed(t, h);
}

static void hello_octet(struct tls_records *t, struct tls_hello *h, uint8_t c)
{
	switch (h->stage) {
	case RANDOM:
		if (h->type == CLIENT_HELLO)
			t->random[h->at++ % TLS_RANDOM] = c;
		break;
	case EXTENSION: extension_octet(t, h, c); break;
	case SESSION:
	case SUITES:
	case METHODS: break;
	default: h->number = (uint16_t)(h->number << 8 | c); break;
	}
	if (--h->part_left == 0)
		part_passed(t, h);
}

/* A message of the handshake is whole. */
static unsigned message_passed(struct tls_records *t, const struct tls_hello *h, bool is_client)
{
	if (is_client && h->type == CLIENT_HELLO) {
		atomic_store_explicit(&t->has_hello, 1, memory_order_release);
		return TLS_HELLO;
	}
	return !is_client && h->type == SERVER_HELLO_DONE ? TLS_TURN : 0;
}

static void message_begins(struct tls_records *t, struct tls_hello *h, bool is_client)
{
	h->stage = REST;
	if (h->type == (is_client ? CLIENT_HELLO : SERVER_HELLO))
		stage_begins(h, VERSION, 2);
	if (is_client && h->type == CLIENT_HELLO) {
		/* A second one, where the server has asked for it, says all of it again. */
		t->name_length = 0;
		t->offers_h2 = false;
	}
}

/* Messages of the handshake in clear. They may share a record, and go on in the next. */
static unsigned handshake(struct tls_records *t, struct tls_hello *h, bool is_client, const uint8_t *p, size_t n)
{
	unsigned told = 0;
	while (n > 0) {
		if (h->stage == HEAD) {
			if (h->have == 0)
				h->type = *p;
			else
				h->left = h->left << 8 | *p;
			p++;
			n--;
			if (++h->have < 4)
				continue;
			message_begins(t, h, is_client);
		} else if (h->stage == REST) {
			size_t piece = n < h->left ? n : h->left;
			p += piece;
			n -= piece;
			h->left -= (uint32_t)piece;
		} else {
			hello_octet(t, h, *p++);
			n--;
			h->left--;
		}
		if (h->left == 0 && h->have == 4) {
			told |= message_passed(t, h, is_client);
			*h = (struct tls_hello){0};
		}
	}
	return told;
}

/* ── records ── */

/* Of 1.3: what the cipher's tag and the inner type add; a Finished is as long as the hash. */
static uint16_t sealed(const struct tls_records *t, uint16_t inner)
{
	return (uint16_t)(inner + 1 + (t->suite == 0x1305 ? 8 : 16));
}

static uint16_t finished_length(const struct tls_records *t)
{
	return sealed(t, t->suite == 0x1302 ? 4 + 48 : 4 + 32);
}

static unsigned complete(struct tls_records *t)
{
	if (atomic_exchange_explicit(&t->is_complete, 1, memory_order_acq_rel))
		return 0;
	return TLS_COMPLETE;
}

/* A record of the client's begins: its header is here. */
static unsigned sent_begins(struct tls_records *t, struct tls_side *s)
{
	if (s->type == CHANGE) {
		s->is_changed = true;
	} else if (s->type == HANDSHAKE && s->is_changed && !t->is_13) {
		s->is_finished = true;
		if (t->received.is_finished)
			return complete(t);
	} else if (s->type == DATA) {
		if (!t->is_13 && t->received.hello.stage == HEAD && !t->suite) {
			if (!atomic_load_explicit(&t->has_hello, memory_order_relaxed))
				return TLS_LOST;
			t->has_early = true;
			return 0;
		}
		if (!t->is_13)
			return TLS_DATA;
		if (tls_records_is_complete(t))
			return s->length == sealed(t, 2) ? 0 : TLS_DATA; /* close_notify */
		bool is_first = !s->has_sealed;
		s->has_sealed = true;
		if (s->length == finished_length(t))
			return complete(t);
		return is_first && s->length == sealed(t, 2) ? TLS_REFUSED : 0;
	}
	return 0;
}

/* The server's, after a 1.3 handshake. */
static unsigned came_later(struct tls_records *t, const struct tls_side *s)
{
	bool is_first = !t->tickets && !t->is_alone && !t->has_answered;
	if (s->length == sealed(t, 2) && !t->has_answered) {
		t->is_alone = is_first;
		return 0;
	}
	t->is_alone = false;
	if (!t->has_answered && s->length >= TICKET_LEAST && s->length <= TICKET_MOST && t->tickets < TICKETS_MOST &&
		(t->tickets == 0 || s->length == t->ticket_length)) {
		t->tickets++;
		t->ticket_length = s->length;
		return TLS_MAYBE;
	}
	t->has_answered = true;
	return TLS_DATA;
}

static unsigned received_begins(struct tls_records *t, struct tls_side *s)
{
	if (s->type == CHANGE) {
		s->is_changed = true;
	} else if (s->type == HANDSHAKE && s->is_changed && !t->is_13) {
		s->is_finished = true;
		if (t->sent.is_finished)
			return complete(t);
		return TLS_TURN; /* a session taken up again: the client's is the last word */
	} else if (s->type == ALERT && !t->is_13 && s->is_changed) {
		t->is_alone = !t->has_answered;
	} else if (s->type == DATA && !t->is_13) {
		t->has_answered = true;
		t->is_alone = false;
		return TLS_DATA;
	} else if (s->type == DATA) {
		unsigned told = 0;
		s->has_sealed = true;
		if (!tls_records_is_complete(t)) {
			/* An answer to what was not seen as the client's last word: that shared a record. */
			if (!t->sent.has_sealed)
				return s->length == finished_length(t) ? TLS_TURN : 0;
			told = complete(t);
		}
		return told | came_later(t, s);
	}
	return 0;
}

static bool is_header(const struct tls_side *s)
{
	bool may_be_empty = s->type == DATA;
	return s->length <= RECORD_MAX && (s->length || may_be_empty);
}

/* One octet of the header; false: it is none. */
static bool header_octet(struct tls_side *s, uint8_t c)
{
	switch (s->have++) {
	case 0: s->type = c; return c >= CHANGE && c <= DATA;
	case 1: return c == 3;
	case 2: return c <= 4;
	case 3: s->length = (uint16_t)(c << 8); return true;
	default:
		s->length |= c;
		s->left = s->length;
		s->alert = 0;
		return is_header(s);
	}
}

/* In clear? From ChangeCipherSpec on, and in 1.3 by its type, a record is under keys. */
static bool is_clear(const struct tls_records *t, const struct tls_side *s)
{
	return !s->is_changed || (t->is_13 && s->type == HANDSHAKE);
}

static unsigned body(struct tls_records *t, struct tls_side *s, bool is_client, const uint8_t *p, size_t n)
{
	if (s->type == HANDSHAKE && s->is_clear)
		return handshake(t, &s->hello, is_client, p, n);
	if (s->type == ALERT && s->length == 2 && !tls_records_is_complete(t)) {
		if (s->left == 2)
			s->alert = *p;
		if (s->alert == FATAL)
			return TLS_REFUSED;
	}
	return 0;
}

static unsigned feed(struct tls_records *t, bool is_client, const uint8_t *p, size_t n)
{
	struct tls_side *s = is_client ? &t->sent : &t->received;
	unsigned told = 0;
	while (n > 0) {
		if (s->have < 5) {
			if (!header_octet(s, *p))
				return told | TLS_LOST;
			p++;
			n--;
			if (s->have < 5)
				continue;
			unsigned now = is_client ? sent_begins(t, s) : received_begins(t, s);
			s->is_data = (now & TLS_DATA) != 0;
			s->is_clear = is_clear(t, s);
			told |= now;
		} else {
			size_t piece = n < s->left ? n : s->left;
			told |= body(t, s, is_client, p, piece);
			told |= s->is_data ? TLS_DATA : 0u;
			p += piece;
			n -= piece;
			s->left = (uint16_t)(s->left - piece);
		}
		if (s->left == 0)
			s->have = 0;
		if (told & TLS_LOST)
			break;
	}
	return told;
}

/* ── the doors ── */

void tls_records_init(struct tls_records *t)
{
	/* Without the room for the name, most of it: how much of that is filled is said beside it. */
	memset(t, 0, offsetof(struct tls_records, name));
	memset(&t->suite, 0, sizeof *t - offsetof(struct tls_records, suite));
}

static unsigned feed_vector(struct tls_records *t, bool is_client, const struct iovec *iov, int count, size_t limit)
{
	_Atomic uint8_t *busy = is_client ? &t->is_sending : &t->is_receiving;
	unsigned told = 0;
	if (atomic_load_explicit(&t->is_lost, memory_order_relaxed))
		return TLS_LOST;
	if (atomic_exchange_explicit(busy, 1, memory_order_acquire)) {
		atomic_store_explicit(&t->is_lost, 1, memory_order_relaxed);
		return TLS_LOST;
	}
	for (int i = 0; i < count && limit > 0 && !(told & TLS_LOST); i++) {
		size_t n = iov[i].iov_len < limit ? iov[i].iov_len : limit;
		told |= feed(t, is_client, iov[i].iov_base, n);
		limit -= n;
	}
	if (told & TLS_LOST)
		atomic_store_explicit(&t->is_lost, 1, memory_order_relaxed);
	atomic_store_explicit(busy, 0, memory_order_release);
	return told;
}

unsigned tls_records_announce(
	struct tls_records *t, const struct iovec *iov, int count, size_t limit, struct tls_mark *mark)
{
	mark->sent = t->sent;
	mark->name_length = t->name_length;
	mark->offers_h2 = t->offers_h2;
	mark->has_hello = atomic_load_explicit(&t->has_hello, memory_order_relaxed);
	mark->is_complete = atomic_load_explicit(&t->is_complete, memory_order_relaxed);
	return feed_vector(t, true, iov, count, limit);
}

unsigned tls_records_sent_only(
	struct tls_records *t, const struct iovec *iov, int count, size_t gone, const struct tls_mark *mark)
{
	t->sent = mark->sent;
	t->name_length = mark->name_length;
	t->offers_h2 = mark->offers_h2;
	atomic_store_explicit(&t->has_hello, mark->has_hello, memory_order_relaxed);
	/* What the server has answered meanwhile was sent. */
	if (!t->received.is_finished && !t->tickets && !t->has_answered)
		atomic_store_explicit(&t->is_complete, mark->is_complete, memory_order_relaxed);
	return feed_vector(t, true, iov, count, gone);
}

unsigned tls_records_received(struct tls_records *t, const struct iovec *iov, int count, size_t n)
{
	return feed_vector(t, false, iov, count, n);
}
