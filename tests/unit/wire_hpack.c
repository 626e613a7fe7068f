/* A11: header blocks skimmed (wire/hpack.h) against nghttp2, over connections of many blocks, each fed at once, cut in
 * two at every octet and octet by octet. Two sources of blocks: nghttp2's deflater over random lists of fields and
 * table sizes, and a generator that makes of the grammar what no deflater would (entries larger than the table, names
 * taken from any entry, sizes at any time), whose meaning is what nghttp2's inflater takes it for. */
// link: -lnghttp2
#include "wire/hpack.h"

#include <nghttp2/nghttp2.h>
#include <string.h>

#include "tap.h"

static uint64_t seed = 88172645463325252u;

static uint32_t any(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 32) % below;
}

/* ---- what a list of fields means ---- */

static uint32_t number_of(const char *p, size_t n)
{
	char text[20] = "";
	if (n < 1 || n > 9 || strspn(memcpy(text, p, n), "0123456789") != n)
		return HPACK_UNSEEN;
	return (uint32_t)strtoul(text, NULL, 10);
}

static void mean(struct hpack_found *f, const char *name, size_t name_length, const char *value, size_t n)
{
	static const char units[] = "HMSmun";
#define IS(word) (name_length == sizeof(word) - 1 && memcmp(name, word, name_length) == 0)
	if (IS(":status")) {
		f->status = n == 3 ? number_of(value, 3) : HPACK_UNSEEN;
	} else if (IS("grpc-status")) {
		f->grpc_status = number_of(value, n);
	} else if (IS(":method")) {
		f->is_connect = n == 7 && memcmp(value, "CONNECT", 7) == 0;
	} else if (IS("grpc-timeout")) {
		const char *unit = n ? memchr(units, value[n - 1], 6) : NULL;
		uint32_t number = unit ? number_of(value, n - 1) : HPACK_UNSEEN;
		f->grpc_timeout =
			n > 9 || number == HPACK_UNSEEN ? HPACK_UNSEEN : number * 8 + (uint32_t)(unit - units);
	}
}

static bool is_same(struct hpack_found a, struct hpack_found b)
{
	return memcmp(&a, &b, sizeof a) == 0;
}

/* What is said is so, or is said to be unseen. */
static bool is_true(struct hpack_found said, struct hpack_found so)
{
	const uint32_t *a = &said.status, *b = &so.status;
	for (int i = 0; i < 4; i++)
		if (a[i] != b[i] && a[i] != HPACK_UNSEEN)
			return false;
	return true;
}

/* ---- a block, fed in every way ---- */

static const struct hpack_found nothing = {HPACK_ABSENT, HPACK_ABSENT, HPACK_ABSENT, HPACK_ABSENT};

static bool skim(struct hpack *h, const uint8_t *bytes, size_t n, size_t cut, struct hpack_found *found)
{
	hpack_begin(h);
	return hpack_feed(h, bytes, cut) && hpack_feed(h, bytes + cut, n - cut) && hpack_end(h, found);
}

static bool drip(struct hpack *h, const uint8_t *bytes, size_t n, struct hpack_found *found)
{
	hpack_begin(h);
	for (size_t i = 0; i < n; i++)
		if (!hpack_feed(h, bytes + i, 1))
			return false;
	return hpack_end(h, found);
}

static bool is_same_table(const struct hpack *a, const struct hpack *b)
{
	return a->inserted == b->inserted && a->total == b->total && a->table_max == b->table_max &&
	       memcmp(a->ring_name, b->ring_name, sizeof a->ring_name) == 0 &&
	       memcmp(a->ring_value, b->ring_value, sizeof a->ring_value) == 0;
}

/* h goes on behind the block. is_exact: nothing may be unseen. */
static void check(
	const char *what, struct hpack *h, const uint8_t *bytes, size_t n, struct hpack_found so, bool is_exact)
{
	struct hpack before = *h, other;
	struct hpack_found found = nothing, again = nothing;
	tap_expect(skim(h, bytes, n, n, &found), "%s: not read", what);
	tap_expect(is_exact ? is_same(found, so) : is_true(found, so),
		"%s: status %u for %u, grpc-status %u for %u, timeout %u for %u", what, found.status, so.status,
		found.grpc_status, so.grpc_status, found.grpc_timeout, so.grpc_timeout);
	for (size_t cut = n > 300 ? n - 300 : 0; cut < n; cut++) {
		other = before;
		tap_expect(skim(&other, bytes, n, cut, &again) && is_same(again, found) && is_same_table(&other, h),
			"%s: cut at %zu of %zu", what, cut, n);
	}
	other = before;
	tap_expect(drip(&other, bytes, n, &again) && is_same(again, found) && is_same_table(&other, h),
		"%s: octet by octet", what);
}

/* ---- nghttp2 deflates ---- */

static char texts[40][6000];

static nghttp2_nv field(const char *name, const char *value, size_t length)
{
	return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name), length,
		any(8) == 0 ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE};
}

static size_t some_text(char *to, size_t most)
{
	size_t n = any((uint32_t)most + 1);
	bool is_plain = any(2);
	for (size_t i = 0; i < n; i++)
		to[i] = (char)(is_plain ? 'a' + any(26) : any(256));
	return n;
}

static nghttp2_nv some_field(int i)
{
	static const char *const names[] = {"server", "date", "content-type", "x-a", "grpc-message", "grpc-statux",
		":statut", "set-cookie", "content-length", "x-very-long-name-that-is-used-by-nobody-but-this-test",
		"grpc-encoding", "user-agent", "te", "authorization", ":path"};
	static const char *const states[] = {"200", "204", "206", "304", "400", "404", "500", "502", "503", "504",
		"429", "100", "103", "99", "20x", "", "2000"};
	char *to = texts[i];
	size_t n;
	switch (any(10)) {
	case 0:
	case 1: strcpy(to, states[any(sizeof states / sizeof states[0])]); return field(":status", to, strlen(to));
	case 2: n = (size_t)sprintf(to, any(20) ? "%u" : "%ux", any(20)); return field("grpc-status", to, n);
	case 3: n = (size_t)sprintf(to, "%u%c", any(100000000), "HMSmunx"[any(7)]); return field("grpc-timeout", to, n);
	case 4: strcpy(to, any(2) ? "CONNECT" : any(2) ? "GET" : "POST"); return field(":method", to, strlen(to));
	default: return field(names[any(sizeof names / sizeof names[0])], to, some_text(to, any(20) ? 30 : 5500));
	}
}

static void deflated(uint32_t table_most, int connections, bool is_exact)
{
	for (int c = 0; c < connections; c++) {
		nghttp2_hd_deflater *deflater;
		static struct hpack h;
		char what[60];
		hpack_init(&h);
		if (nghttp2_hd_deflate_new(&deflater, table_most))
			abort();
		/* What the settings of the other side would allow. */
		if (table_most != 4096)
			nghttp2_hd_deflate_change_table_size(deflater, table_most);
		for (int block = 0; block < 60; block++) {
			nghttp2_nv fields[40];
			static uint8_t out[300000];
			size_t count = any(12);
			struct hpack_found so = nothing;
			if (any(10) == 0)
				nghttp2_hd_deflate_change_table_size(deflater, any(4) ? any(table_most + 1) : 0);
			for (size_t i = 0; i < count; i++) {
				fields[i] = some_field((int)i);
				mean(&so, (char *)fields[i].name, fields[i].namelen, (char *)fields[i].value,
					fields[i].valuelen);
			}
			ssize_t n = nghttp2_hd_deflate_hd(deflater, out, sizeof out, fields, count);
			if (n < 0)
				abort();
			snprintf(what, sizeof what, "table of %u, connection %d, block %d", table_most, c, block);
			check(what, &h, out, (size_t)n, so, is_exact);
		}
		nghttp2_hd_deflate_del(deflater);
	}
	snprintf(texts[0], 100, "what nghttp2 deflates with a table of %u octets is read%s (A11)", table_most,
		is_exact ? "" : ", or said to be unseen");
	tap_all(texts[0]);
}

/* ---- the grammar, at random ---- */

static uint8_t block_bytes[400000];
static size_t block_size;

static void octet(unsigned c)
{
	block_bytes[block_size++] = (uint8_t)c;
}

static void number(unsigned first, unsigned bits, uint32_t value)
{
	unsigned most = (1u << bits) - 1;
	if (value < most) {
		octet(first | value);
		return;
	}
	octet(first | most);
	for (value -= most; value >= 128; value >>= 7)
		octet(0x80 | (value & 0x7f));
	octet(value);
}

/* Huffman by nghttp2: of a block of one field without an index, whose name has one octet. */
static size_t huffman(const char *text, size_t n, uint8_t *to)
{
	nghttp2_hd_deflater *d;
	nghttp2_nv one = {(uint8_t *)(uintptr_t) "x", (uint8_t *)(uintptr_t)text, 1, n, NGHTTP2_NV_FLAG_NO_INDEX};
	static uint8_t out[20000];
	if (nghttp2_hd_deflate_new(&d, 0))
		abort();
	ssize_t size = nghttp2_hd_deflate_hd(d, out, sizeof out, &one, 1);
	nghttp2_hd_deflate_del(d);
	/* A size of 0, the literal, its name; then the value. */
	uint8_t *p = memchr(out, 0x10, (size_t)size);
	p += p[1] & 0x80 ? 1 + 1 + (p[1] & 0x7f) : 1 + 1 + p[1];
	if (!(*p & 0x80))
		return 0; /* no shorter so: sent as it is */
	size_t skip = 1;
	if ((*p & 0x7f) == 0x7f)
		while (p[skip++] & 0x80)
			;
	memcpy(to, p + skip, (size_t)(out + size - p) - skip);
	return (size_t)(out + size - p) - skip;
}

static void string(const char *text, size_t n)
{
	static uint8_t coded[20000];
	size_t coded_n = n && any(2) ? huffman(text, n, coded) : 0;
	number(coded_n ? 0x80 : 0, 7, (uint32_t)(coded_n ? coded_n : n));
	memcpy(block_bytes + block_size, coded_n ? (const char *)coded : text, coded_n ? coded_n : n);
	block_size += coded_n ? coded_n : n;
}

static void some_representation(uint32_t entries, uint32_t table_max)
{
	static const unsigned firsts[] = {0x40, 0x40, 0x40, 0x00, 0x10};
	unsigned first = firsts[any(5)];
	if (any(3) == 0) {
		number(0x80, 7, 1 + any(61 + entries));
		return;
	}
	nghttp2_nv f = some_field(0);
	if (any(10) == 0 && table_max > 200 && table_max < 5000) { /* near the whole table, on either side of it */
		f.valuelen = table_max - 32 - f.namelen - 20 + any(40);
		for (size_t i = 0; i < f.valuelen; i++)
			texts[0][i] = (char)('a' + any(26));
	}
	bool is_named = any(2);
	number(first, first == 0x40 ? 6 : 4, is_named ? 0 : 1 + any(61 + entries));
	if (is_named)
		string((const char *)f.name, f.namelen);
	string((const char *)f.value, f.valuelen);
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
			mean(so, (char *)nv.name, nv.namelen, (char *)nv.value, nv.valuelen);
		if (flags & NGHTTP2_HD_INFLATE_FINAL) {
			nghttp2_hd_inflate_end_headers(inflater);
			return true;
		}
		if (!(flags & NGHTTP2_HD_INFLATE_EMIT) && n == 0)
			return false;
	}
}

static void generated(void)
{
	unsigned taken = 0, refused = 0;
	for (int c = 0; c < 400; c++) {
		nghttp2_hd_inflater *inflater;
		static struct hpack h;
		uint32_t table_max = 4096;
		hpack_init(&h);
		if (nghttp2_hd_inflate_new(&inflater))
			abort();
		for (int block = 0; block < 30; block++) {
			struct hpack_found so = nothing;
			char what[60];
			block_size = 0;
			while (any(6) == 0)
				number(0x20, 5, table_max = any(3) ? any(4097) : any(200));
			for (uint32_t i = any(10); i > 0; i--)
				some_representation(
					(uint32_t)nghttp2_hd_inflate_get_num_table_entries(inflater) - 61, table_max);
			if (!inflate(inflater, block_bytes, block_size, &so)) {
				refused++;
				break;
			}
			taken++;
			snprintf(what, sizeof what, "connection %d, block %d", c, block);
			check(what, &h, block_bytes, block_size, so, true);
		}
		nghttp2_hd_inflate_del(inflater);
	}
	printf("# nghttp2 took %u blocks and refused %u\n", taken, refused);
	tap_expect(taken > 2000, "only %u blocks were taken", taken);
	tap_all("what nghttp2 inflates of blocks made at random is what is skimmed of them (A11)");
}

/* ---- by hand ---- */

static bool refuses(const char *bytes, size_t n)
{
	struct hpack h;
	struct hpack_found found;
	hpack_init(&h);
	return !skim(&h, (const uint8_t *)bytes, n, n, &found);
}
#define REFUSES(bytes) refuses(bytes, sizeof bytes - 1)

static void by_hand(void)
{
	struct hpack h;
	struct hpack_found found;
	tap_ok(REFUSES("\x80"), "an index of 0 is none");
	tap_ok(REFUSES("\xbe"), "an entry of an empty table is none");
	tap_ok(REFUSES("\x40\x03"), "a block that ends in the midst of a field is none");
	tap_ok(REFUSES("\xff\xff\xff\xff\xff\xff\xff"), "a number beyond all measure is none");
	tap_ok(REFUSES("\x00\x81\x00\x01x") && REFUSES("\x00\x84\xff\xff\xff\xff\x00"),
		"Huffman: padding that is none of the end's code, and the end itself");
	/* An entry larger than the table empties it: the next is its only one. */
	static uint8_t big[5000] = {0x40, 1, 'a', 0x7f, 0xa1, 0x1f}; /* a value of 4,128 octets */
	hpack_init(&h);
	skim(&h,
		(const uint8_t *)"\x48\x03"
				 "503\xbe",
		6, 6, &found);
	tap_ok(found.status == 503 && h.total == 1, "a status by its entry");
	tap_ok(skim(&h, big, 6 + 4128, 3, &found) &&
			skim(&h,
				(const uint8_t *)"\x48\x03"
						 "504\xbe",
				6, 6, &found) &&
			found.status == 504,
		"the one behind an entry larger than the table, by its index");
	/* A table of 64 KB, as browsers ask for: older than the ring is unseen, and said so. */
	hpack_init(&h);
	hpack_begin(&h);
	hpack_feed(&h,
		"\x3f\xe1\xff\x03\x48\x03"
		"503",
		9);
	for (int i = 0; i < HPACK_RING - 1; i++)
		hpack_feed(&h,
			"\x40\x01"
			"a\x01"
			"b",
			5);
	hpack_begin(&h);
	hpack_feed(&h, "\xff\x3e", 2); /* 61 + 128 */
	tap_ok(hpack_end(&h, &found) && found.status == 503, "the oldest entry of the ring is known");
	hpack_begin(&h);
	hpack_feed(&h,
		"\x40\x01"
		"a\x01"
		"b\xff\x3f",
		7);
	tap_ok(hpack_end(&h, &found) && found.status == HPACK_UNSEEN && found.grpc_status == HPACK_UNSEEN,
		"one that has left it is unseen");
	hpack_begin(&h);
	hpack_feed(&h, "\x88", 1);
	tap_ok(hpack_end(&h, &found) && found.status == 200 && found.grpc_status == HPACK_ABSENT,
		"the static table is known still");
}

/* Whom a request calls its server, as nghttp2 deflates it among other fields, cut anywhere. */
static void names(void)
{
	for (int c = 0; c < 300; c++) {
		static const char *const spelt[] = {":authority", "host", "hosts", ":authoritz"};
		nghttp2_hd_deflater *deflater;
		static struct hpack h;
		static uint8_t out[20000];
		nghttp2_nv fields[8];
		const char *so = NULL;
		size_t count = 1 + any(8), so_n = 0;
		if (nghttp2_hd_deflate_new(&deflater, 4096))
			abort();
		for (size_t i = 0; i < count; i++) {
			fields[i] = some_field((int)i);
			if (fields[i].valuelen > 1000)
				fields[i].valuelen = 1000;
			if (any(3))
				continue;
			const char *name = spelt[any(4)];
			size_t n = 1 + some_text(texts[i], 29);
			fields[i] = field(name, texts[i], n);
			texts[i][n - 1] = 'x';
			if (!so && (name == spelt[0] || name == spelt[1])) {
				so = texts[i];
				so_n = n;
			}
		}
		ssize_t n = nghttp2_hd_deflate_hd(deflater, out, sizeof out, fields, count);
		if (n < 0)
			abort();
		for (size_t cut = 0; cut <= (size_t)n; cut++) {
			char name[30];
			struct hpack_found found;
			hpack_init(&h);
			h.authority = name;
			h.authority_max = sizeof name;
			tap_expect(skim(&h, out, (size_t)n, cut, &found) && h.authority_length == so_n &&
					   (!so || memcmp(name, so, so_n) == 0),
				"connection %d, cut at %zu: %u octets for %zu", c, cut, h.authority_length, so_n);
		}
		nghttp2_hd_deflate_del(deflater);
	}
	struct hpack h;
	struct hpack_found found;
	char name[4];
	hpack_init(&h);
	h.authority = name;
	h.authority_max = sizeof name;
	tap_expect(skim(&h, (const uint8_t *)"\x41\5abcde\xbe", 8, 3, &found) && h.authority_length == 0,
		"one that is longer than there is room");
	tap_all("whom a request calls its server is read as nghttp2 spells it (A13)");
}

int main(void)
{
	by_hand();
	deflated(4096, 120, true);
	deflated(0, 20, true);
	deflated(300, 60, true);
	deflated(65536, 60, false);
	generated();
	names();
	return tap_done();
}
