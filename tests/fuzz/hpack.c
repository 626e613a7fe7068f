/* Header blocks of any octets (wire/hpack.h): what nghttp2's inflater takes is read, and means the same; at once and
 * octet by octet the state is the same, unless it is none. Blocks: one octet of length, then so many; 255 joins the
 * next to it. */
// link: -l:libnghttp2.a
#include "wire/hpack.h"

#include <nghttp2/nghttp2.h>

#include "fuzz.h"

static uint32_t number_of(const uint8_t *p, size_t n)
{
	uint32_t value = 0;
	if (n < 1 || n > 9)
		return HPACK_UNSEEN;
	for (; n > 0; n--, p++) {
		if (*p < '0' || *p > '9')
			return HPACK_UNSEEN;
		value = value * 10 + (uint32_t)(*p - '0');
	}
	return value;
}

static void mean(struct hpack_found *f, const nghttp2_nv *nv)
{
#define IS(word) (nv->namelen == sizeof(word) - 1 && memcmp(nv->name, word, nv->namelen) == 0)
	size_t n = nv->valuelen;
	if (IS(":status")) {
		f->status = n == 3 ? number_of(nv->value, 3) : HPACK_UNSEEN;
	} else if (IS("grpc-status")) {
		f->grpc_status = number_of(nv->value, n);
	} else if (IS(":method")) {
		f->is_connect = n == 7 && memcmp(nv->value, "CONNECT", 7) == 0;
	} else if (IS("grpc-timeout")) {
		static const char units[] = "HMSmun";
		const char *unit = n ? memchr(units, nv->value[n - 1], 6) : NULL;
		uint32_t number = unit ? number_of(nv->value, n - 1) : HPACK_UNSEEN;
		f->grpc_timeout =
			n > 9 || number == HPACK_UNSEEN ? HPACK_UNSEEN : number * 8 + (uint32_t)(unit - units);
	}
}

static bool inflate(nghttp2_hd_inflater *inflater, const uint8_t *p, size_t n, struct hpack_found *so)
{
	for (;;) {
		nghttp2_nv nv;
		int flags = 0;
		ssize_t used = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, p, n, 1);
		if (used < 0)
			return false;
		p += used;
		n -= (size_t)used;
		if (flags & NGHTTP2_HD_INFLATE_EMIT)
			mean(so, &nv);
		if (flags & NGHTTP2_HD_INFLATE_FINAL)
			return nghttp2_hd_inflate_end_headers(inflater) == 0;
		if (!(flags & NGHTTP2_HD_INFLATE_EMIT) && n == 0)
			return false;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct hpack h, slow;
	nghttp2_hd_inflater *inflater;
	claim(nghttp2_hd_inflate_new(&inflater) == 0);
	hpack_init(&h);
	hpack_init(&slow);
	for (size_t i = 0; i < size;) {
		size_t n = 0;
		uint8_t *bytes = malloc(size);
		claim(bytes);
		bool goes_on;
		do {
			size_t piece = data[i++];
			goes_on = piece == 255 && i < size;
			if (piece > size - i)
				piece = size - i;
			memcpy(bytes + n, data + i, piece);
			n += piece;
			i += piece;
		} while (goes_on && i < size);
		struct hpack_found so = {HPACK_ABSENT, HPACK_ABSENT, HPACK_ABSENT, HPACK_ABSENT}, found, again;
		bool is_right = inflate(inflater, bytes, n, &so);
		hpack_begin(&h);
		hpack_begin(&slow);
		bool is_read = hpack_feed(&h, bytes, n) && hpack_end(&h, &found);
		bool is_slow = true;
		for (size_t k = 0; k < n && is_slow; k++)
			is_slow = hpack_feed(&slow, bytes + k, 1);
		is_slow = is_slow && hpack_end(&slow, &again);
		free(bytes);
		claim(is_slow == is_read && (!is_read || memcmp(&h, &slow, sizeof h) == 0));
		claim(!is_right || is_read);
		claim(!is_right || memcmp(&found, &so, sizeof so) == 0);
		if (!is_right || !is_read)
			break;
	}
	nghttp2_hd_inflate_del(inflater);
	return 0;
}
