/* RESP, of both directions; see records.h and records_side.h. */
#include <string.h>

#include "wire/records_side.h"

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
	unsigned possible = r->sent.flags & IN_NAME ? NAME_REPLY - 1u : r->sent.flags & IN_CLIENT ? NAME_REPLY : 0u;

	r->names = 0;
	for (size_t i = 0; possible && i < STREAMS; i++)
		if (streams[i].length == r->sent.left)
			r->names = (uint16_t)(r->names | (possible & (1u << i)));
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

bool records_resp_feed(struct records *r, bool is_client, const unsigned char *p, const unsigned char *end)
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
