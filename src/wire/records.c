/* See records.h and records_side.h: PostgreSQL, MySQL, and what all share. */
#include "wire/records.h"

#include <string.h>

#include "wire/records_side.h"

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
	r->received.flags |= OPENING;
	answer(r);
	return true;
}

/* The body of an error: fields, a type and a string each. items: the type, how much of the string has passed, and
 * whether that is as a code of class 57 so far. */
enum { FIELD = 0xff, FIELD_AT = 0x300, FIELD_ONE = 0x100, FIELD_FITS = 0x400 };
static void postgres_error(struct records_side *side, const unsigned char *p, size_t n)
{
	uint32_t items = side->items;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = p[i];
		uint32_t at = (items & FIELD_AT) / FIELD_ONE;
		if (!(items & FIELD) || !c) {
			items = items & FIELD ? 0 : c;
			continue;
		}
		if (((items & FIELD) == 'S' || (items & FIELD) == 'V') && at == 0)
			side->flags = (uint8_t)(c == 'F' || c == 'P' ? side->flags | FATAL : side->flags & ~FATAL);
		if ((items & FIELD) == 'C') {
			bool fits = items & FIELD_FITS;
			if ((at == 1 && fits && c == '3') || (at == 2 && fits && c == 'P'))
				side->flags |= AWAY;
			fits = at == 0 ? c == '5' : at == 1 && fits && c == '7';
			items = (items & ~(uint32_t)FIELD_FITS) | (fits ? FIELD_FITS : 0);
		}
		if (at < 3)
			items += FIELD_ONE;
	}
	side->items = items;
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
		side->flags = (uint8_t)(side->flags & STARTED ? side->flags & ~OPENING : side->flags | OPENING);
		side->flags = (side->flags & (uint8_t)~COPYING) | STARTED;
		answer(r);
		break;
	case 'R':
		side->flags |= OPENING;
		if (code != 0 && code != 12) /* Ok, SASLFinal: more follows unasked */
			answer(r);
		break;
	case 'E':
		/* On an idle connection it is said to nobody. */
		if (!(side->flags & FATAL) || (side->flags & STARTED && owed(r) == 0))
			side->flags &= (uint8_t)~AWAY;
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
	if (c == 'E' || (side->flags & STARTED && !(side->flags & ASIDE)))
		side->flags &= (uint8_t) ~(OPENING | FATAL | AWAY);
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
			if (!is_client && side->type == 'E')
				postgres_error(side, p, n);
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
#define MYSQL_TLS 0x800u
#define MYSQL_COMPRESSES (0x20u | 1u << 26)

static bool mysql_sent(struct records *r, const unsigned char *p, const unsigned char *end)
{
	struct records_side *side = &r->sent;

	/* Length and sequence, then four octets of capabilities, the lowest first. */
	for (; p < end && side->have < 8; side->have++, p++)
		if (side->have >= 4)
			side->items |= (uint32_t)*p << 8 * (side->have - 4);
	return side->have < 8 || !(side->items & (MYSQL_TLS | MYSQL_COMPRESSES));
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
	case RECORDS_RESP: return records_resp_feed(r, is_client, p, end);
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

bool records_go_inside(struct records *r)
{
	uint32_t capabilities = r->sent.items;

	if (r->kind != RECORDS_MYSQL || r->sent.have < 8 || !(capabilities & MYSQL_TLS) ||
		capabilities & MYSQL_COMPRESSES)
		return false;
	records_init(r, RECORDS_MYSQL);
	r->sent.have = 8; /* its capabilities come again, and are known */
	return true;
}

static bool is_of_postgres(const struct records *r)
{
	return r->kind == RECORDS_POSTGRES && !atomic_load_explicit(&r->is_lost, memory_order_relaxed) &&
	       r->received.mode == START;
}

bool records_is_opening(const struct records *r)
{
	return is_of_postgres(r) && r->received.flags & OPENING;
}

bool records_is_away(const struct records *r)
{
	return is_of_postgres(r) && r->received.flags & AWAY;
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
