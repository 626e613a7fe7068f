/* See records.h.
 *
 * Both sides of all protocols share the modes; what a mode leads to is the protocol's.
 *
 *   RESP        START ─ type ─► LINE ─► LINE_LF ─► START              + - : _ , # (
 *                           ─► NUMBER ─► NUMBER_LF ─► START           aggregates: `items` grows
 *                                                  ─► BODY ─► BODY_CR ─► BODY_LF ─► START
 *   PostgreSQL  START ─ type ─► LENGTH ─► (CODE) ─► BODY ─► START     start-ups have no type
 *   MySQL       START ─► LENGTH ─► (CODE) ─► BODY ─► START            sender: ENDED after the first code */
#include "wire/records.h"

#include <stdbool.h>
#include <string.h>

enum mode { START, LINE, LINE_LF, NUMBER, NUMBER_LF, BODY, BODY_CR, BODY_LF, LENGTH, CODE, ENDED };

enum {
	/* received */
	ASIDE = 1,	/* the record in progress begins no answer */
	BEGUN = 2,	/* some of what is owed has come */
	COPYING = 4,	/* PostgreSQL: between CopyIn or CopyBoth and the next ReadyForQuery */
	STARTED = 8,	/* PostgreSQL: a ReadyForQuery was seen; sender: typed messages from here on */
	CONTINUED = 16, /* MySQL: a packet of the largest size goes on in the next */
	NEGATIVE = 32,	/* RESP: the number in progress */
	/* sent, RESP */
	IN_NAME = 64,	 /* the next argument is the command's name */
	IN_CLIENT = 128, /* the next argument is what CLIENT is to do */
};

#define RESP_DIGITS_MAX 10
#define POSTGRES_LENGTH_MAX 0x40000000u /* the server's own limit: MaxAllocSize */
#define POSTGRES_STARTUP_MAX 10000u
#define MYSQL_LENGTH_MAX 0xffffffu

enum { POSTGRES_CANCEL = 80877102, POSTGRES_SSL, POSTGRES_GSSENC };

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Any minor version: clients of PostgreSQL 18 ask for 3.2, and for others to see them refused. */
static bool is_startup(uint32_t length, uint32_t code)
{
	switch (code) {
	case POSTGRES_SSL:
	case POSTGRES_GSSENC: return length == 8;
	case POSTGRES_CANCEL: return length >= 16 && length <= POSTGRES_STARTUP_MAX;
	default: return code >> 16 == 3 && length >= 9 && length <= POSTGRES_STARTUP_MAX;
	}
}

enum records_kind records_of_client(const void *first, size_t n)
{
	const unsigned char *p = first;
	size_t i = 1;

	if (n >= 8 && is_startup(get32(p), get32(p + 4)))
		return RECORDS_POSTGRES;
	if (n < 4 || p[0] != '*' || p[1] < '1' || p[1] > '9')
		return RECORDS_NONE;
	while (i < n && i <= RESP_DIGITS_MAX && p[i] >= '0' && p[i] <= '9')
		i++;
	if (n - i < 2 || p[i] != '\r' || p[i + 1] != '\n' || (n - i > 2 && p[i + 2] != '$'))
		return RECORDS_NONE;
	return RECORDS_RESP;
}

enum records_kind records_of_server(const void *first, size_t n)
{
	const unsigned char *p = first;

	if (n < 5 || p[3] != 0 || p[4] != 10)
		return RECORDS_NONE;
	/* Version, thread, salt: 31 octets at least; with the longest names known some hundred. */
	return p[2] == 0 && p[1] < 4 && (p[1] > 0 || p[0] >= 31) ? RECORDS_MYSQL : RECORDS_NONE;
}

void records_init(struct records *r, enum records_kind kind)
{
	memset(r, 0, sizeof *r);
	r->kind = (uint8_t)kind;
}

/* Release: with the count the receiver sees what was written before it. */
static void ask(struct records *r)
{
	atomic_fetch_add_explicit(&r->asked, 1, memory_order_release);
}

static uint32_t owed(const struct records *r)
{
	uint32_t difference = atomic_load_explicit(&r->asked, memory_order_acquire) -
			      atomic_load_explicit(&r->answered, memory_order_relaxed);
	return (int32_t)difference > 0 ? difference : 0;
}

static void answer(struct records *r)
{
	atomic_fetch_add_explicit(&r->answered, 1, memory_order_relaxed);
	if (owed(r) == 0)
		r->received.flags &= (uint8_t)~BEGUN;
}

static void begin(struct records_side *side, bool is_aside)
{
	side->flags = is_aside ? side->flags | ASIDE : (side->flags & (uint8_t)~ASIDE) | BEGUN;
}

/* ── RESP ── */

/* Streams, or no answers: the first argument, and the second after CLIENT. */
static const struct {
	char name[13];
	uint8_t length;
} streams[] = {
	{"SUBSCRIBE", 9},
	{"PSUBSCRIBE", 10},
	{"SSUBSCRIBE", 10},
	{"UNSUBSCRIBE", 11},
	{"PUNSUBSCRIBE", 12},
	{"SUNSUBSCRIBE", 12},
	{"MONITOR", 7},
	{"SYNC", 4},
	{"PSYNC", 5},
	{"CLIENT", 6},
	{"REPLY", 5},
};
#define STREAMS (sizeof streams / sizeof streams[0])
enum { NAME_CLIENT = 1u << (STREAMS - 2), NAME_REPLY = 1u << (STREAMS - 1) };
_Static_assert(STREAMS <= 16, "a bit each in records.names");

/* Which names have the length of this argument. */
static void name_begins(struct records *r)
{
	uint16_t possible = r->sent.flags & IN_NAME ? NAME_REPLY - 1 : r->sent.flags & IN_CLIENT ? NAME_REPLY : 0;

	r->names = 0;
	for (size_t i = 0; possible && i < STREAMS; i++)
		if (streams[i].length == r->sent.left)
			r->names |= possible & (uint16_t)(1u << i);
}

/* Some octets of an argument, `left` not yet lessened by them. */
static void name_goes_on(struct records *r, const unsigned char *p, size_t n)
{
	for (size_t k = 0; k < n && r->names; k++)
		for (size_t i = 0; i < STREAMS; i++)
			if (r->names & 1u << i &&
				(p[k] & ~0x20) != streams[i].name[streams[i].length - r->sent.left + k])
				r->names &= (uint16_t) ~(1u << i);
}

static bool name_ends(struct records *r)
{
	bool is_client = r->names & NAME_CLIENT;

	r->sent.flags &= (uint8_t) ~(IN_NAME | IN_CLIENT);
	if (is_client)
		r->sent.flags |= IN_CLIENT;
	return is_client || !r->names;
}

static bool resp_begins(struct records_side *side, bool is_client, unsigned char type)
{
	side->type = type;
	side->left = 0;
	side->have = 0;
	side->flags &= (uint8_t)~NEGATIVE;
	if (is_client) {
		side->mode = NUMBER;
		return type == (side->items ? '$' : '*');
	}
	if (side->items == 0) {
		side->items = 1;
		begin(side, type == '>');
	} else if (type == '>') {
		return false;
	}
	switch (type) {
	case '+':
	case '-':
	case ':':
	case '_':
	case ',':
	case '#':
	case '(': side->mode = LINE; return true;
	case '$':
	case '=':
	case '!':
	case '*':
	case '~':
	case '%':
	case '>':
	case '|': side->mode = NUMBER; return true;
	default: return false;
	}
}

/* A value, or the head of an aggregate, has passed: `more` values are to come in its place. */
static bool resp_passed(struct records *r, struct records_side *side, bool is_client, uint64_t more)
{
	uint64_t items = side->items + more - 1;

	if (items > UINT32_MAX)
		return false;
	side->items = (uint32_t)items;
	side->mode = START;
	if (items == 0 && !is_client && !(side->flags & ASIDE))
		answer(r);
	if (items == 0)
		side->flags &= (uint8_t)~ASIDE;
	return true;
}

static bool resp_digit(struct records_side *side, unsigned char c)
{
	if (c == '\r') {
		side->mode = NUMBER_LF;
		return side->have > 0;
	}
	if (c == '-' && side->have == 0 && !(side->flags & NEGATIVE)) {
		side->flags |= NEGATIVE;
		return true;
	}
	uint64_t number = (uint64_t)side->left * 10 + (uint64_t)(c - '0');
	if (c < '0' || c > '9' || number > UINT32_MAX || side->have == RESP_DIGITS_MAX)
		return false;
	side->left = (uint32_t)number;
	side->have++;
	return true;
}

static bool resp_number_ends(struct records *r, struct records_side *side, bool is_client)
{
	uint32_t number = side->left;

	if (side->flags & NEGATIVE) {
		if (is_client || number != 1 || (side->type != '$' && side->type != '*'))
			return false;
		return resp_passed(r, side, false, 0);
	}
	if (side->type == '$' || side->type == '=' || side->type == '!') {
		side->mode = number ? BODY : BODY_CR;
		if (is_client)
			name_begins(r);
		return true;
	}
	if (is_client) {
		side->items = number;
		side->mode = START;
		side->flags |= IN_NAME;
		if (number) /* Redis answers nothing to an empty command */
			ask(r);
		return true;
	}
	switch (side->type) {
	case '%': return resp_passed(r, side, false, (uint64_t)number * 2);
	case '|': return resp_passed(r, side, false, (uint64_t)number * 2 + 1); /* and what it is said of */
	default: return resp_passed(r, side, false, number);
	}
}

static bool resp_feed(struct records *r, bool is_client, const unsigned char *p, const unsigned char *end)
{
	struct records_side *side = is_client ? &r->sent : &r->received;
	bool goes_on = true;

	while (p < end && goes_on) {
		if (side->mode == BODY) {
			size_t n = (size_t)(end - p) < side->left ? (size_t)(end - p) : side->left;
			if (is_client && r->names)
				name_goes_on(r, p, n);
			side->left -= (uint32_t)n;
			p += n;
			if (side->left == 0)
				side->mode = BODY_CR;
			continue;
		}
		if (side->mode == LINE) {
			const unsigned char *cr = memchr(p, '\r', (size_t)(end - p));
			if (cr)
				side->mode = LINE_LF;
			p = cr ? cr + 1 : end;
			continue;
		}
		unsigned char c = *p++;
		switch (side->mode) {
		case START: goes_on = resp_begins(side, is_client, c); break;
		case NUMBER: goes_on = resp_digit(side, c); break;
		case NUMBER_LF: goes_on = c == '\n' && resp_number_ends(r, side, is_client); break;
		case BODY_CR:
			side->mode = BODY_LF;
			goes_on = c == '\r' && (!is_client || name_ends(r));
			break;
		default: goes_on = c == '\n' && resp_passed(r, side, is_client, 0); break;
		}
	}
	return goes_on;
}

/* ── PostgreSQL ── */

static bool postgres_sent_passed(struct records *r)
{
	struct records_side *side = &r->sent;
	uint32_t code = side->items;

	side->mode = START;
	side->items = 0;
	if (!(side->flags & STARTED)) {
		if (code == POSTGRES_CANCEL) { /* the server hangs up */
			side->mode = ENDED;
			return true;
		}
		if (code == POSTGRES_SSL || code == POSTGRES_GSSENC)
			atomic_fetch_add_explicit(&r->singles, 1, memory_order_release);
		else
			side->flags |= STARTED;
		ask(r);
		return true;
	}
	switch (side->type) {
	case 'Q':
	case 'S':
	case 'F':
	case 'p': ask(r); break;
	case 'c':
	case 'f': atomic_fetch_add_explicit(&r->copies, 1, memory_order_release); break;
	default: break;
	}
	return true;
}

/* The octet that answers a request for encryption. False: granted, or none of ours. */
static bool postgres_single(struct records *r, unsigned char c)
{
	r->singles_seen++;
	if (c != 'N')
		return false;
	answer(r);
	return true;
}

static bool postgres_received_passed(struct records *r)
{
	struct records_side *side = &r->received;
	uint32_t code = side->items;

	side->mode = START;
	side->items = 0;
	side->flags &= (uint8_t)~ASIDE;
	switch (side->type) {
	case 'Z':
		/* A Sync in the midst of a copy is never answered: libpq sends one before and one after. */
		if (side->flags & COPYING)
			atomic_store_explicit(&r->answered, atomic_load_explicit(&r->asked, memory_order_acquire) - 1,
				memory_order_relaxed);
		side->flags = (side->flags & (uint8_t)~COPYING) | STARTED;
		answer(r);
		break;
	case 'R':
		if (code != 0 && code != 12) /* Ok, SASLFinal: more follows unasked */
			answer(r);
		break;
	case 'E':
		if (!(side->flags & STARTED))
			answer(r);
		break;
	case 'G':
	case 'W':
		side->flags = (side->flags & (uint8_t)~BEGUN) | COPYING;
		r->copies_before = atomic_load_explicit(&r->copies, memory_order_acquire);
		break;
	default: break;
	}
	return true;
}

static bool postgres_begins(struct records *r, struct records_side *side, bool is_client, unsigned char c)
{
	side->type = c;
	side->left = 0;
	side->have = 0;
	side->mode = LENGTH;
	if (is_client) {
		if (side->flags & STARTED)
			return c && strchr("QPBEDCSHFpdcfX", c);
		side->left = c; /* no type: the length's first octet */
		side->have = 1;
		return true;
	}
	if (atomic_load_explicit(&r->singles, memory_order_acquire) != r->singles_seen) {
		if (c != 'E') {
			side->mode = START;
			return postgres_single(r, c);
		}
		r->singles_seen++; /* a server older than the request: an error instead */
	}
	begin(side, c == 'N' || c == 'S' || c == 'A');
	return c && strchr("RKZSNAECDTtdcGHWI123nsVv", c);
}

static bool postgres_length(struct records_side *side, bool has_code)
{
	if (side->left < (has_code ? 8 : 4) || side->left > POSTGRES_LENGTH_MAX ||
		(side->type == 'Z' && side->left != 5))
		return false;
	side->left -= 4;
	side->have = 0;
	side->mode = has_code ? CODE : BODY;
	return true;
}

static bool postgres_feed(struct records *r, bool is_client, const unsigned char *p, const unsigned char *end)
{
	struct records_side *side = is_client ? &r->sent : &r->received;

	while (p < end) {
		bool is_untyped = is_client && !(side->flags & STARTED);
		size_t n;
		switch (side->mode) {
		case START:
			if (!postgres_begins(r, side, is_client, *p++))
				return false;
			break;
		case LENGTH:
			side->left = side->left << 8 | *p++;
			if (++side->have == 4 &&
				!postgres_length(side, is_untyped || (!is_client && side->type == 'R')))
				return false;
			break;
		case CODE:
			side->items = side->items << 8 | *p++;
			side->left--;
			if (++side->have < 4)
				break;
			if (is_untyped && !is_startup(side->left + 8, side->items))
				return false;
			side->mode = BODY;
			break;
		case BODY:
			n = (size_t)(end - p) < side->left ? (size_t)(end - p) : side->left;
			side->left -= (uint32_t)n;
			p += n;
			break;
		default: return true;
		}
		if (side->mode == BODY && side->left == 0 &&
			!(is_client ? postgres_sent_passed(r) : postgres_received_passed(r)))
			return false;
	}
	return true;
}

/* ── MySQL ── */

/* Capabilities in the client's first packet: TLS, compression by zlib and by zstd. */
#define MYSQL_ENDS_RECORDS (0x800u | 0x20u | 1u << 26)

static bool mysql_sent(struct records *r, const unsigned char *p, const unsigned char *end)
{
	struct records_side *side = &r->sent;

	/* Length and sequence, then four octets of capabilities, the lowest first. */
	for (; p < end && side->have < 8; side->have++, p++)
		if (side->have >= 4)
			side->items |= (uint32_t)*p << 8 * (side->have - 4);
	return side->have < 8 || !(side->items & MYSQL_ENDS_RECORDS);
}

static bool mysql_received(struct records *r, const unsigned char *p, const unsigned char *end)
{
	struct records_side *side = &r->received;

	while (p < end) {
		if (side->mode == BODY) {
			size_t n = (size_t)(end - p) < side->left ? (size_t)(end - p) : side->left;
			side->left -= (uint32_t)n;
			p += n;
		} else {
			side->mode = LENGTH;
			if (side->have < 3)
				side->left |= (uint32_t)*p << 8 * side->have;
			p++;
			if (++side->have < 4)
				continue;
			if (side->left == 0 && !(side->flags & CONTINUED))
				return false;
			side->flags = side->left == MYSQL_LENGTH_MAX ? CONTINUED : 0;
			side->mode = BODY;
		}
		if (side->left == 0) {
			side->mode = START;
			side->have = 0;
		}
	}
	return true;
}

/* ── */

static bool feed(struct records *r, bool is_client, const unsigned char *p, const unsigned char *end)
{
	switch (r->kind) {
	case RECORDS_RESP: return resp_feed(r, is_client, p, end);
	case RECORDS_POSTGRES: return postgres_feed(r, is_client, p, end);
	case RECORDS_MYSQL: return is_client ? mysql_sent(r, p, end) : mysql_received(r, p, end);
	default: return false;
	}
}

static void feed_side(struct records *r, bool is_client, _Atomic uint8_t *busy, const void *bytes, size_t n)
{
	if (r->kind == RECORDS_NONE || n == 0 || atomic_load_explicit(&r->is_lost, memory_order_relaxed))
		return;
	if (atomic_exchange_explicit(busy, 1, memory_order_acquire)) {
		atomic_store_explicit(&r->is_lost, 1, memory_order_relaxed);
		return;
	}
	if (!feed(r, is_client, bytes, (const unsigned char *)bytes + n))
		atomic_store_explicit(&r->is_lost, 1, memory_order_relaxed);
	atomic_store_explicit(busy, 0, memory_order_release);
}

void records_sent(struct records *r, const void *bytes, size_t n)
{
	feed_side(r, true, &r->is_sending, bytes, n);
}

enum records_at records_received(struct records *r, const void *bytes, size_t n)
{
	feed_side(r, false, &r->is_receiving, bytes, n);
	return records_now(r);
}

enum records_at records_now(const struct records *r)
{
	const struct records_side *side = &r->received;

	if (r->kind == RECORDS_NONE || atomic_load_explicit(&r->is_lost, memory_order_relaxed))
		return RECORDS_LOST;
	if ((side->mode != START || side->items || side->flags & CONTINUED) && !(side->flags & ASIDE))
		return RECORDS_MIDST;
	if (side->flags & COPYING && atomic_load_explicit(&r->copies, memory_order_acquire) == r->copies_before)
		return RECORDS_WHOLE;
	if (owed(r) == 0)
		return RECORDS_WHOLE;
	return side->flags & BEGUN ? RECORDS_MIDST : RECORDS_AWAITED;
}
