/* See http1_skim.h. Each test below is narrower than llhttp's own: a doubt costs a second reading, never a wrong one.
 */
#include "wire/http1_skim.h"

#include <llhttp.h>
#include <string.h>
#include <strings.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* tchar of RFC 9110: what a field's name is made of. */
static const bool token[256] = {
	['!'] = 1,
	['#' ... '\''] = 1,
	['*'] = 1,
	['+'] = 1,
	['-'] = 1,
	['.'] = 1,
	['0' ... '9'] = 1,
	['A' ... 'Z'] = 1,
	['^' ... 'z'] = 1,
	['|'] = 1,
	['~'] = 1,
};

#define EACH(octet) (0x0101010101010101ull * (octet))

/* Eight octets at once: the lowest marked octet is the first that is below `low`, 0x7f or above, or '#' where that
 * stops. A borrow can mark octets above a marked one only. */
static inline uint64_t stops(const char *p, uint64_t low, bool stop_at_hash)
{
	uint64_t x;

	memcpy(&x, p, sizeof x);
	uint64_t marks = (x - EACH(1) * low) | ((x ^ EACH(0x7f)) - EACH(1)) | x;
	if (stop_at_hash)
		marks |= (x ^ EACH('#')) - EACH(1);
	return marks & EACH(0x80);
}

#ifdef __SSE2__
/* Sixteen octets at once, as both span() below have it: one bit an octet, set where that stops. Compared as signed
 * octets, those above 127 are below all. */
static inline unsigned stops16(const char *p, char low, bool stop_at_hash)
{
	__m128i x = _mm_loadu_si128((const void *)p), out = _mm_cmpeq_epi8(x, _mm_set1_epi8(0x7f));
	__m128i in = _mm_cmpgt_epi8(x, _mm_set1_epi8((char)(low - 1)));
	if (stop_at_hash)
		out = _mm_or_si128(out, _mm_cmpeq_epi8(x, _mm_set1_epi8('#')));
	return (unsigned)_mm_movemask_epi8(_mm_andnot_si128(out, in)) ^ 0xffffu;
}

static inline unsigned others16(const char *p)
{
	__m128i x = _mm_loadu_si128((const void *)p), low = _mm_or_si128(x, _mm_set1_epi8(0x20));
	__m128i letter =
		_mm_and_si128(_mm_cmpgt_epi8(low, _mm_set1_epi8('a' - 1)), _mm_cmplt_epi8(low, _mm_set1_epi8('z' + 1)));
	__m128i hyphen = _mm_cmpeq_epi8(x, _mm_set1_epi8('-'));
	return (unsigned)_mm_movemask_epi8(_mm_or_si128(letter, hyphen)) ^ 0xffffu;
}
#endif

static inline const char *span(const char *p, const char *end, unsigned low, bool stop_at_hash)
{
#ifdef __SSE2__
	while (end - p >= 16) {
		unsigned marks = stops16(p, (char)low, stop_at_hash);
		if (marks)
			return p + __builtin_ctz(marks);
		p += 16;
	}
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	while (end - p >= 8) {
		uint64_t marks = stops(p, low, stop_at_hash);
		if (marks)
			return p + (__builtin_ctzll(marks) >> 3);
		p += 8;
	}
#endif
	while (p < end && (unsigned char)*p >= low && (unsigned char)*p < 0x7f && !(stop_at_hash && *p == '#'))
		p++;
	return p;
}

/* Behind the letters and hyphens at p: eight octets at once, each compared within its own seven bits. */
static inline const char *span_letters(const char *p, const char *end)
{
#ifdef __SSE2__
	while (end - p >= 16) {
		unsigned others = others16(p);
		if (others)
			return p + __builtin_ctz(others);
		p += 16;
	}
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	while (end - p >= 8) {
		uint64_t x;
		memcpy(&x, p, sizeof x);
		uint64_t low = (x | EACH(0x20)) & EACH(0x7f);
		uint64_t letters = (low + EACH(0x80 - 'a')) & ~(low + EACH(0x80 - 'z' - 1));
		uint64_t hyphens = ~((x ^ EACH('-')) + EACH(0x7f));
		uint64_t others = (~(letters | hyphens) | x) & EACH(0x80);
		if (others)
			return p + (__builtin_ctzll(others) >> 3);
		p += 8;
	}
#endif
	return p;
}

static inline uint64_t lower8(const char *p)
{
	uint64_t x;
	memcpy(&x, p, sizeof x);
	return x | EACH(0x20);
}

static inline uint32_t lower4(const char *p)
{
	uint32_t x;
	memcpy(&x, p, sizeof x);
	return x | 0x20202020u;
}

/* p[0..n) is `word`, of 4 to 24 lower-case letters and hyphens, in any case. p has no octet below 0x20. */
__attribute__((always_inline)) static inline bool is_word(const char *p, size_t n, const char *word, size_t length)
{
	if (n != length)
		return false;
	if (length < 8)
		return lower4(p) == lower4(word) && lower4(p + length - 4) == lower4(word + length - 4);
	return lower8(p) == lower8(word) && lower8(p + length - 8) == lower8(word + length - 8) &&
	       (length <= 16 || lower8(p + 8) == lower8(word + 8));
}
#define IS_WORD(p, n, word) is_word(p, n, word, sizeof word - 1)

static bool read_length(struct http1_head *head, const char *p, size_t n)
{
	uint64_t value = 0;

	if (n == 0 || n > 15 || head->flags & (F_CONTENT_LENGTH | F_TRANSFER_ENCODING))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(p[i] - '0');
	}
	head->content_length = value;
	head->flags |= F_CONTENT_LENGTH;
	return true;
}

#define LENGTH(n) (1u << (n))
#define LENGTHS_THAT_MATTER (LENGTH(7) | LENGTH(10) | LENGTH(14) | LENGTH(16) | LENGTH(17))

/* One field whose name has a length that matters. False: llhttp is to read this head. */
static bool read_field(struct http1_head *head, const char *name, size_t n, const char *value, size_t length)
{
	for (; length > 0 && *value == ' '; length--)
		value++;
	switch (n) {
	case 7: return !IS_WORD(name, n, "upgrade");
	case 16: return !IS_WORD(name, n, "proxy-connection");
	case 14: return !IS_WORD(name, n, "content-length") || read_length(head, value, length);
	case 17:
		if (!IS_WORD(name, n, "transfer-encoding"))
			return true;
		if (head->flags & (F_CONTENT_LENGTH | F_TRANSFER_ENCODING) || !IS_WORD(value, length, "chunked"))
			return false;
		head->flags |= F_TRANSFER_ENCODING | F_CHUNKED;
		return true;
	default:
		if (!IS_WORD(name, n, "connection"))
			return true;
		if (head->flags & (F_CONNECTION_CLOSE | F_CONNECTION_KEEP_ALIVE))
			return false;
		if (IS_WORD(value, length, "close"))
			head->flags |= F_CONNECTION_CLOSE;
		else if (IS_WORD(value, length, "keep-alive"))
			head->flags |= F_CONNECTION_KEEP_ALIVE;
		else
			return false;
		return true;
	}
}

static inline uint64_t load8(const char *p)
{
	uint64_t x;
	memcpy(&x, p, sizeof x);
	return x;
}

static inline bool is8(const char *p, const char word[static 8])
{
	return load8(p) == load8(word);
}

/* From the first field to behind the blank line; null: not all there, or not plain. */
__attribute__((always_inline)) static inline const char *read_fields(
	const char *p, const char *end, struct http1_head *head)
{
	for (;;) {
		if (end - p < 2)
			return NULL;
		if (*p == '\r')
			return p[1] == '\n' ? p + 2 : NULL;
		const char *name = p;
		p = span_letters(p, end);
		while (p < end && *p != ':') {
			if (!token[(unsigned char)*p])
				return NULL;
			p++;
		}
		size_t n = (size_t)(p - name);
		if (n == 0 || p == end)
			return NULL;
		const char *value = p + 1; /* blanks and all */
		p = span(value, end, ' ', false);
		if (end - p < 2 || memcmp(p, "\r\n", 2) != 0)
			return NULL;
		if (n <= 17 && LENGTH(n) & LENGTHS_THAT_MATTER &&
			!read_field(head, name, n, value, (size_t)(p - value)))
			return NULL;
		p += 2;
	}
}

static const struct {
	char name[8];
	uint8_t length;
	uint8_t number;
} methods[] = {
	{"POST ", 5, HTTP_POST},
	{"HEAD ", 5, HTTP_HEAD},
	{"PUT ", 4, HTTP_PUT},
	{"DELETE ", 7, HTTP_DELETE},
	{"PATCH ", 6, HTTP_PATCH},
};

static const char *read_method(const char *p, const char *end, struct http1_head *head)
{
	if (end - p < 16) /* no head is shorter */
		return NULL;
	if (memcmp(p, "GET ", 4) == 0) {
		head->method = HTTP_GET;
		return p + 4;
	}
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		if (*p == methods[i].name[0] && memcmp(p, methods[i].name, methods[i].length) == 0) {
			head->method = methods[i].number;
			return p + methods[i].length;
		}
	}
	return NULL;
}

size_t http1_skim_request(const char *start, const char *end, struct http1_head *head)
{
	*head = (struct http1_head){0};
	const char *p = read_method(start, end, head);
	if (!p || *p != '/')
		return 0;
	p = span(p, end, '!', true);
	if (end - p < 11 || !is8(p, " HTTP/1."))
		return 0;
	head->is_new = is8(p + 3, "TP/1.1\r\n");
	if (!head->is_new && !is8(p + 3, "TP/1.0\r\n"))
		return 0;
	p = read_fields(p + 11, end, head);
	return p ? (size_t)(p - start) : 0;
}

size_t http1_skim_answer(const char *start, const char *end, struct http1_head *head)
{
	const char *p = start;

	*head = (struct http1_head){0};
	if (end - p < 17)
		return 0;
	head->is_new = is8(p, "HTTP/1.1");
	if ((!head->is_new && !is8(p, "HTTP/1.0")) || p[8] != ' ')
		return 0;
	unsigned hundreds = (unsigned)(p[9] - '0'), tens = (unsigned)(p[10] - '0'), ones = (unsigned)(p[11] - '0');
	if (hundreds > 9 || tens > 9 || ones > 9)
		return 0;
	head->status = (uint16_t)(hundreds * 100 + tens * 10 + ones);
	if (p[12] != ' ')
		return 0;
	p = span(p + 13, end, ' ', false);
	if (end - p < 2 || p[0] != '\r' || p[1] != '\n')
		return 0;
	p = read_fields(p + 2, end, head);
	return p ? (size_t)(p - start) : 0;
}

const char *http1_field(const char *head, size_t n, const char *name, size_t *length)
{
	const char *end = head + n, *line = head;
	size_t name_length = strlen(name);

	while ((line = memchr(line, '\n', (size_t)(end - line)))) {
		line++;
		if ((size_t)(end - line) <= name_length || line[name_length] != ':' ||
			strncasecmp(line, name, name_length) != 0)
			continue;
		const char *p = line + name_length + 1, *stop = memchr(p, '\n', (size_t)(end - p));
		if (!stop || (stop + 1 < end && (stop[1] == ' ' || stop[1] == '\t')))
			return NULL;
		while (p < stop && (*p == ' ' || *p == '\t'))
			p++;
		while (stop > p && (stop[-1] == ' ' || stop[-1] == '\t' || stop[-1] == '\r'))
			stop--;
		*length = (size_t)(stop - p);
		return p;
	}
	return NULL;
}

bool http1_request_line(const char *head, size_t n, size_t *method_length, const char **target, size_t *target_length)
{
	const char *line_end = memchr(head, '\n', n);
	const char *blank = line_end ? memchr(head, ' ', (size_t)(line_end - head)) : NULL;
	if (!blank)
		return false;
	*method_length = (size_t)(blank - head);
	while (*blank == ' ')
		blank++;
	const char *stop = blank;
	while (stop < line_end && *stop != ' ' && *stop != '\r')
		stop++;
	*target = blank;
	*target_length = (size_t)(stop - blank);
	return stop > blank;
}
