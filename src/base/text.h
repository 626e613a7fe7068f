/* Text built in a caller's buffer: no allocation, no stdio, no locale, so it serves in hooks, in signal
 * handlers and in the command alike. A full buffer cuts the text and says so; it never overruns. */
#ifndef RESIL_BASE_TEXT_H
#define RESIL_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	char *at;    /* NUL-terminated at all times when cap > 0 */
	size_t cap;  /* bytes at `at`, the NUL included */
	size_t len;  /* bytes written, the NUL excluded */
	bool is_cut; /* something did not fit */
};

#define TEXT_ON(array) ((struct text){.at = (array), .cap = sizeof(array)})

void text_bytes(struct text *t, const char *s, size_t n);
void text_str(struct text *t, const char *s);
void text_char(struct text *t, char c);
void text_u64(struct text *t, uint64_t v);
void text_i64(struct text *t, int64_t v);
/* At least `digits` digits, with leading zeros. */
void text_padded(struct text *t, uint64_t v, unsigned digits);
void text_hex64(struct text *t, uint64_t v);
/* Hundredths: 1234 -> "12.34". */
void text_hundredths(struct text *t, uint64_t v);
/* 1500000000 -> "1500ms", 2000000000 -> "2s"; the largest unit (h, m, s, ms, us) that is exact; 0 -> "0ms". */
void text_duration(struct text *t, int64_t ns);
/* RFC 3339 with milliseconds, UTC. */
void text_time(struct text *t, int64_t wall_ns);
/* A JSON string, quotes included; bytes that are not UTF-8 become U+FFFD. */
void text_json(struct text *t, const char *s);
void text_json_n(struct text *t, const char *s, size_t n);
/* %s %d %u %c %% and %lld %llu only (the subset that is safe everywhere). */
void text_fmt(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Copies with a cut and a NUL; returns false when cut. */
bool text_copy(char *to, size_t cap, const char *from);

#endif
