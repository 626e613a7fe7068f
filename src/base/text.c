/* See text.h. */
#include "base/text.h"

#include <stdarg.h>
#include <string.h>

void text_bytes(struct text *t, const char *s, size_t n)
{
	if (t->cap == 0)
		return;
	size_t room = t->cap - 1 - t->len;
	if (n > room) {
		n = room;
		t->is_cut = true;
	}
	memcpy(t->at + t->len, s, n);
	t->len += n;
	t->at[t->len] = '\0';
}

void text_str(struct text *t, const char *s)
{
	text_bytes(t, s, strlen(s));
}

void text_char(struct text *t, char c)
{
	text_bytes(t, &c, 1);
}

void text_padded(struct text *t, uint64_t v, unsigned digits)
{
	char d[24];
	size_t at = sizeof d;
	do {
		d[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v && at > 0);
	while (sizeof d - at < digits && at > 0)
		d[--at] = '0';
	text_bytes(t, d + at, sizeof d - at);
}

void text_u64(struct text *t, uint64_t v)
{
	text_padded(t, v, 1);
}

void text_i64(struct text *t, int64_t v)
{
	if (v < 0)
		text_char(t, '-');
	text_u64(t, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void text_hex64(struct text *t, uint64_t v)
{
	for (int shift = 60; shift >= 0; shift -= 4)
		text_char(t, "0123456789abcdef"[(v >> shift) & 15]);
}

void text_hundredths(struct text *t, uint64_t v)
{
	text_u64(t, v / 100);
	text_char(t, '.');
	text_padded(t, v % 100, 2);
}

void text_duration(struct text *t, int64_t ns)
{
	static const struct {
		int64_t ns;
		const char *unit;
	} units[] = {
		{3600000000000LL, "h"},
		{60000000000LL, "m"},
		{1000000000LL, "s"},
		{1000000LL, "ms"},
		{1000LL, "us"},
	};
	if (ns <= 0) {
		text_str(t, "0ms");
		return;
	}
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (ns % units[i].ns == 0) {
			text_i64(t, ns / units[i].ns);
			text_str(t, units[i].unit);
			return;
		}
	}
	text_i64(t, ns);
	text_str(t, "ns");
}

void text_time(struct text *t, int64_t wall_ns)
{
	/* Civil date from days since 1970 (Howard Hinnant's algorithm): gmtime_r may take the time zone lock. */
	int64_t s = wall_ns / 1000000000, ms = wall_ns / 1000000 % 1000;
	int64_t days = s / 86400, rest = s % 86400;
	int64_t z = days + 719468;
	int64_t era = z / 146097, doe = z - era * 146097;
	int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	int64_t mp = (5 * doy + 2) / 153;
	int64_t day = doy - (153 * mp + 2) / 5 + 1;
	int64_t month = mp < 10 ? mp + 3 : mp - 9;
	int64_t year = yoe + era * 400 + (month <= 2);

	text_padded(t, (uint64_t)year, 4);
	text_char(t, '-');
	text_padded(t, (uint64_t)month, 2);
	text_char(t, '-');
	text_padded(t, (uint64_t)day, 2);
	text_char(t, 'T');
	text_padded(t, (uint64_t)(rest / 3600), 2);
	text_char(t, ':');
	text_padded(t, (uint64_t)(rest / 60 % 60), 2);
	text_char(t, ':');
	text_padded(t, (uint64_t)(rest % 60), 2);
	text_char(t, '.');
	text_padded(t, (uint64_t)ms, 3);
	text_char(t, 'Z');
}

/* Length of the valid UTF-8 sequence at s (1 to 4), or 0. */
static size_t utf8_len(const unsigned char *s, size_t n)
{
	if (s[0] < 0x80)
		return 1;
	size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc2 || s[0] > 0xf4 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
		(s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

void text_json_n(struct text *t, const char *s, size_t n)
{
	text_char(t, '"');
	for (size_t i = 0; i < n;) {
		unsigned char c = (unsigned char)s[i];
		size_t len = utf8_len((const unsigned char *)s + i, n - i);
		if (len == 0) {
			text_str(t, "\xef\xbf\xbd");
			i++;
		} else if (c == '"' || c == '\\') {
			text_char(t, '\\');
			text_char(t, (char)c);
			i++;
		} else if (c < 0x20) {
			text_str(t, "\\u00");
			text_char(t, "0123456789abcdef"[c >> 4]);
			text_char(t, "0123456789abcdef"[c & 15]);
			i++;
		} else {
			text_bytes(t, s + i, len);
			i += len;
		}
	}
	text_char(t, '"');
}

void text_json(struct text *t, const char *s)
{
	text_json_n(t, s, strlen(s));
}

void text_fmt(struct text *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	for (const char *p = fmt; *p; p++) {
		if (*p != '%') {
			text_char(t, *p);
			continue;
		}
		p++;
		bool is_long = p[0] == 'l' && p[1] == 'l';
		if (is_long)
			p += 2;
		switch (*p) {
		case 's': text_str(t, va_arg(ap, const char *)); break;
		case 'c': text_char(t, (char)va_arg(ap, int)); break;
		case 'd': text_i64(t, is_long ? va_arg(ap, long long) : va_arg(ap, int)); break;
		case 'u': text_u64(t, is_long ? va_arg(ap, unsigned long long) : va_arg(ap, unsigned)); break;
		default: text_char(t, *p); break;
		}
	}
	va_end(ap);
}

bool text_copy(char *to, size_t cap, const char *from)
{
	struct text t = {.at = to, .cap = cap};
	if (cap > 0)
		to[0] = '\0';
	text_str(&t, from);
	return !t.is_cut;
}
