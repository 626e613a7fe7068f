/* See hpack.h. */
#include "wire/hpack.h"

#include <string.h>

/* ---- the static table (RFC 7541, appendix A) ---- */

#define STATIC_COUNT 61
static const uint16_t static_status[] = {200, 204, 206, 304, 400, 404, 500};
enum { STATIC_AUTHORITY = 1, STATIC_HOST = 38 };
enum { STATIC_METHOD_FIRST = 2, STATIC_METHOD_LAST = 3, STATIC_STATUS_FIRST = 8, STATIC_STATUS_LAST = 14 };

/* ---- Huffman (appendix B): a canonical code, told by how many codes a length has and by their order ---- */

#define CODE_MIN 5
#define CODE_MAX 30
static const uint8_t code_counts[CODE_MAX + 1] = {
	0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 4};
static const uint8_t code_symbols[256] = {48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51, 52, 53,
	54, 55, 56, 57, 61, 65, 95, 98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58, 66, 67, 68, 69, 70, 71,
	72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119, 120, 121, 122, 38,
	42, 44, 59, 88, 90, 33, 34, 40, 41, 63, 39, 43, 124, 35, 62, 0, 36, 64, 91, 93, 126, 94, 125, 60, 96, 123, 92,
	195, 208, 128, 130, 131, 162, 184, 194, 224, 226, 153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229,
	230, 129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190,
	196, 198, 228, 232, 233, 1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166,
	168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239, 9, 142, 144, 145, 148, 159, 171, 206, 215, 225, 236, 237,
	199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243, 255, 203, 204, 211,
	212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254, 2, 3, 4, 5, 6, 7, 8, 11, 12, 14,
	15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127, 220, 249, 10, 13, 22};
/* The last of the longest is the end of the string, which must not occur in it. */
#define CODE_END 256

enum name { NAME_OTHER, NAME_STATUS, NAME_GRPC_STATUS, NAME_GRPC_TIMEOUT, NAME_METHOD, NAME_AUTHORITY, NAME_UNKNOWN };
enum step { FIELD, INDEX, NAME_LENGTH, NAME, VALUE_LENGTH, VALUE };
enum kind { INDEXED, INSERTED, PLAIN, TABLE_SIZE };

#define NUMBER_MAX (1u << 28)
#define ENTRY_OVERHEAD 32

static void put(struct hpack *h, unsigned char c)
{
	if (h->length < sizeof h->text)
		h->text[h->length] = (char)c;
	if (h->name == NAME_AUTHORITY && h->step == VALUE && h->authority && !h->authority_length &&
		h->length < h->authority_max)
		h->authority[h->length] = (char)c;
	h->length++;
}

/* Takes what symbols there are off the bits. False: the end of the string in its midst. */
static bool decode(struct hpack *h)
{
	while (h->bit_count >= CODE_MIN) {
		unsigned have = h->bit_count, length = CODE_MIN;
		uint32_t first = 0, before = 0, code = 0;
		for (;; length++) {
			if (length > have || length > CODE_MAX)
				return length <= CODE_MAX;
			code = (uint32_t)(h->bits >> (have - length)) - first;
			if (code < code_counts[length])
				break;
			before += code_counts[length];
			first = (first + code_counts[length]) << 1;
		}
		if (before + code == CODE_END)
			return false;
		put(h, code_symbols[before + code]);
		h->bit_count = (uint8_t)(have - length);
		h->bits &= (1ull << h->bit_count) - 1;
	}
	return true;
}

/* ---- the fields ---- */

static bool is_text(const struct hpack *h, const char *word, size_t n)
{
	return h->length == n && memcmp(h->text, word, n) == 0;
}

static enum name name_of_text(const struct hpack *h)
{
	switch (h->length) {
	case 4: return is_text(h, "host", 4) ? NAME_AUTHORITY : NAME_OTHER;
	case 10: return is_text(h, ":authority", 10) ? NAME_AUTHORITY : NAME_OTHER;
	case 7:
		if (is_text(h, ":status", 7))
			return NAME_STATUS;
		return is_text(h, ":method", 7) ? NAME_METHOD : NAME_OTHER;
	case 11: return is_text(h, "grpc-status", 11) ? NAME_GRPC_STATUS : NAME_OTHER;
	case 12: return is_text(h, "grpc-timeout", 12) ? NAME_GRPC_TIMEOUT : NAME_OTHER;
	default: return NAME_OTHER;
	}
}

/* The first n octets of the text as a number. */
static uint32_t digits(const struct hpack *h, uint32_t n)
{
	uint32_t value = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (h->text[i] < '0' || h->text[i] > '9')
			return HPACK_UNSEEN;
		value = value * 10 + (uint32_t)(h->text[i] - '0');
	}
	return value;
}

static uint32_t timeout_of_text(const struct hpack *h)
{
	static const char units[] = "HMSmun";
	const char *unit = h->length >= 2 && h->length <= 9 ? memchr(units, h->text[h->length - 1], 6) : NULL;
	uint32_t value = unit ? digits(h, h->length - 1) : HPACK_UNSEEN;
	return value == HPACK_UNSEEN ? HPACK_UNSEEN : value * 8 + (uint32_t)(unit - units);
}

static uint32_t value_of_text(const struct hpack *h)
{
	switch (h->name) {
	case NAME_STATUS: return h->length == 3 ? digits(h, 3) : HPACK_UNSEEN;
	case NAME_GRPC_STATUS: return h->length >= 1 && h->length <= 9 ? digits(h, h->length) : HPACK_UNSEEN;
	case NAME_GRPC_TIMEOUT: return timeout_of_text(h);
	case NAME_METHOD: return is_text(h, "CONNECT", 7);
	default: return 0;
	}
}

static void unseen(uint32_t *field)
{
	if (*field == HPACK_ABSENT)
		*field = HPACK_UNSEEN;
}

static void take(struct hpack *h, enum name name, uint32_t value)
{
	struct hpack_found *f = &h->found;
	switch (name) {
	case NAME_STATUS: f->status = value; break;
	case NAME_GRPC_STATUS: f->grpc_status = value; break;
	case NAME_GRPC_TIMEOUT: f->grpc_timeout = value; break;
	case NAME_METHOD: f->is_connect = value; break;
	case NAME_UNKNOWN: /* any of them may be it */
		unseen(&f->status);
		unseen(&f->grpc_status);
		unseen(&f->grpc_timeout);
		unseen(&f->is_connect);
		break;
	default: break;
	}
}

/* What the entry of that index is. False: the tables cannot hold so many. */
static bool find(const struct hpack *h, uint32_t index, enum name *name, uint32_t *value)
{
	*name = NAME_OTHER;
	*value = 0;
	if (index > STATIC_COUNT) {
		index -= STATIC_COUNT;
		if (index > h->total)
			return false;
		uint32_t at = (h->inserted - index) % HPACK_RING;
		*name = index <= HPACK_RING ? (enum name)h->ring_name[at] : NAME_UNKNOWN;
		*value = h->ring_value[at];
	} else if (index >= STATIC_STATUS_FIRST && index <= STATIC_STATUS_LAST) {
		*name = NAME_STATUS;
		*value = static_status[index - STATIC_STATUS_FIRST];
	} else if (index >= STATIC_METHOD_FIRST && index <= STATIC_METHOD_LAST) {
		*name = NAME_METHOD;
	} else if (index == STATIC_AUTHORITY || index == STATIC_HOST) {
		*name = NAME_AUTHORITY;
	}
	return index > 0;
}

static void limit_total(struct hpack *h)
{
	uint32_t most = h->table_max / ENTRY_OVERHEAD;
	if (h->total > most)
		h->total = most;
}

static void insert(struct hpack *h, uint32_t value)
{
	uint32_t at = h->inserted++ % HPACK_RING;
	h->ring_value[at] = value;
	h->ring_name[at] = h->name;
	h->total++;
	limit_total(h);
}

/* ---- octet by octet ---- */

static bool string_ends(struct hpack *h)
{
	/* What is left are the first bits of the end's code, fewer than an octet of them. */
	if (h->is_huffman && h->bit_count && (h->bit_count > 7 || h->bits != (1ull << h->bit_count) - 1))
		return false;
	if (h->step == NAME) {
		h->name = (uint8_t)name_of_text(h);
		h->step = VALUE_LENGTH;
		return true;
	}
	if (h->name == NAME_AUTHORITY && h->authority && !h->authority_length && h->length <= h->authority_max)
		h->authority_length = h->length;
	uint32_t value = value_of_text(h);
	take(h, h->name, value);
	if (h->kind == INSERTED)
		insert(h, value);
	h->step = FIELD;
	return true;
}

static bool string_begins(struct hpack *h, uint32_t length)
{
	h->left = length;
	h->length = 0;
	h->bits = 0;
	h->bit_count = 0;
	h->step = h->step == NAME_LENGTH ? NAME : VALUE;
	h->is_read = h->step == NAME || (h->name == NAME_AUTHORITY ? h->authority != NULL
								   : h->name != NAME_OTHER && h->name != NAME_UNKNOWN);
	return length > 0 || string_ends(h);
}

static bool string_feed(struct hpack *h, const unsigned char *p, size_t n)
{
	h->left -= (uint32_t)n;
	if (h->is_read) {
		for (const unsigned char *end = p + n; p < end; p++) {
			if (h->is_huffman) {
				h->bits = h->bits << 8 | *p;
				h->bit_count = (uint8_t)(h->bit_count + 8);
				if (!decode(h))
					return false;
			} else {
				put(h, *p);
			}
		}
	}
	return h->left > 0 || string_ends(h);
}

/* The number is whole. */
static bool number_ends(struct hpack *h)
{
	enum name name;
	uint32_t value;
	h->is_number = false;
	switch (h->step) {
	case NAME_LENGTH:
	case VALUE_LENGTH: return string_begins(h, h->number);
	default: break;
	}
	h->step = FIELD;
	if (h->kind == TABLE_SIZE) {
		h->table_max = h->number;
		limit_total(h);
		return true;
	}
	if (h->kind != INDEXED && h->number == 0) {
		h->step = NAME_LENGTH;
		return true;
	}
	if (!find(h, h->number, &name, &value))
		return false;
	if (h->kind == INDEXED) {
		take(h, name, value);
		return true;
	}
	h->name = (uint8_t)name;
	h->step = VALUE_LENGTH;
	return true;
}

static bool number_begins(struct hpack *h, unsigned char c, unsigned bits)
{
	unsigned most = (1u << bits) - 1;
	h->number = c & most;
	h->shift = 0;
	h->is_number = true;
	return h->number == most || number_ends(h);
}

static bool number_goes_on(struct hpack *h, unsigned char c)
{
	uint64_t number = h->number + ((uint64_t)(c & 0x7f) << h->shift);
	if (h->shift > 28 || number >= NUMBER_MAX)
		return false;
	h->number = (uint32_t)number;
	h->shift = (uint8_t)(h->shift + 7);
	return c & 0x80 || number_ends(h);
}

static bool field_begins(struct hpack *h, unsigned char c)
{
	h->step = INDEX;
	if (c & 0x80) {
		h->kind = INDEXED;
		return number_begins(h, c, 7);
	}
	h->kind = c & 0x40 ? INSERTED : c & 0x20 ? TABLE_SIZE : PLAIN;
	return number_begins(h, c, c & 0x40 ? 6 : c & 0x20 ? 5 : 4);
}

bool hpack_feed(struct hpack *h, const void *bytes, size_t count)
{
	const unsigned char *p = bytes, *end = p + count;
	while (p < end) {
		if (h->is_number) {
			if (!number_goes_on(h, *p++))
				return false;
		} else if (h->step == FIELD) {
			if (!field_begins(h, *p++))
				return false;
		} else if (h->step == NAME || h->step == VALUE) {
			size_t n = (size_t)(end - p) < h->left ? (size_t)(end - p) : h->left;
			if (!string_feed(h, p, n))
				return false;
			p += n;
		} else {
			h->is_huffman = *p & 0x80;
			if (!number_begins(h, *p++, 7))
				return false;
		}
	}
	return true;
}

/* ---- the doors ---- */

void hpack_init(struct hpack *h)
{
	memset(h, 0, sizeof *h);
	h->table_max = 4096;
	hpack_begin(h);
}

void hpack_begin(struct hpack *h)
{
	h->step = FIELD;
	h->is_number = false;
	h->found = (struct hpack_found){HPACK_ABSENT, HPACK_ABSENT, HPACK_ABSENT, HPACK_ABSENT};
}

bool hpack_end(const struct hpack *h, struct hpack_found *found)
{
	*found = h->found;
	return h->step == FIELD;
}
