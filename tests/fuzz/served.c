/* Requests as end points read them: the same ones, with the same heads, however the octets are cut. The first octet
 * seeds the cuts. */
#include "engine/served.h"
#include "base/hash.h"
#include "fuzz.h"

#define REQUESTS 64

struct request {
	size_t end; /* behind its last octet */
	uint64_t head;
	uint32_t head_len;
	uint8_t method;
	bool is_cut, has_body, keeps;
};

/* How many are whole. cut: pieces of at most so many octets. */
static size_t read_all(const uint8_t *data, size_t size, uint32_t seed, uint32_t cut, struct request all[REQUESTS])
{
	static struct served s;
	size_t at = 0, count = 0;
	served_begin(&s);
	for (bool has_head = false; (at < size || has_head) && count < REQUESTS;) {
		seed = seed * 1664525 + 1013904223;
		size_t left = size - at;
		uint32_t n = cut ? 1 + (seed >> 16) % cut : (uint32_t)left, taken = UINT32_MAX;
		n = n > left ? (uint32_t)left : n;
		enum served_says says = served_feed(&s, data + at, n, &taken);
		if (says == SERVED_NOT_HTTP)
			break;
		claim(taken <= n && s.head_len <= SERVED_HEAD_MAX);
		claim(says != SERVED_MORE || taken == n);
		claim(says != SERVED_HEAD || (s.has_head && !has_head));
		has_head = says == SERVED_HEAD;
		at += taken;
		if (says != SERVED_REQUEST)
			continue;
		claim(s.is_whole && s.has_head);
		all[count++] = (struct request){.end = at,
			.head = hash_bytes(HASH_START, s.head, s.head_len),
			.head_len = s.head_len,
			.method = s.parser.method,
			.is_cut = s.is_cut,
			.has_body = s.has_body,
			.keeps = s.keeps};
		served_next(&s);
	}
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct request whole[REQUESTS], cut[REQUESTS];
	if (size < 2 || size > 32768)
		return 0;
	size_t n = read_all(data + 1, size - 1, 0, 0, whole);
	for (uint32_t most = 1; most <= 64; most *= 8) {
		claim(read_all(data + 1, size - 1, data[0], most, cut) == n);
		for (size_t i = 0; i < n; i++) {
			claim(cut[i].end == whole[i].end && cut[i].method == whole[i].method &&
				cut[i].has_body == whole[i].has_body && cut[i].keeps == whole[i].keeps);
			/* A head that is cut off is as long as the pieces that had room. */
			claim(cut[i].is_cut == whole[i].is_cut &&
				(whole[i].is_cut ||
					(cut[i].head_len == whole[i].head_len && cut[i].head == whole[i].head)));
		}
	}
	return 0;
}
