/* A9, A10: what records of TLS tell from outside (wire/tls_records.h), by connections captured from openssl, and by the
 * cases that those do not show. Cut anywhere, all comes out the same. */
#include <string.h>

#include "tap.h"
#include "wire/tls_records.h"
#include "wire_tls_captured.h"

static size_t octets_of(const char *hex, uint8_t *out)
{
	size_t n = 0;
	for (; hex[0]; hex += 2, n++)
		sscanf(hex, "%2hhx", &out[n]);
	return n;
}

static unsigned feed(struct tls_records *t, char who, const uint8_t *p, size_t n)
{
	struct iovec one = {(void *)(uintptr_t)p, n};
	struct tls_mark mark;
	return who == 'c' ? tls_records_announce(t, &one, 1, n, &mark) : tls_records_received(t, &one, 1, n);
}

static bool is_same(const struct tls_records *a, const struct tls_records *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

/* What each piece tells, in order; the ends of streams are left out. */
static void converse(const char *name, const struct captured *pieces, const unsigned *told, size_t count)
{
	struct tls_records t;
	static uint8_t octets[8192];
	size_t at = 0;

	tls_records_init(&t);
	for (const struct captured *piece = pieces; piece->who; piece++) {
		size_t n = octets_of(piece->hex, octets);
		if (n == 0)
			continue;
		unsigned is_due = at < count ? told[at] : 0;
		struct tls_records before = t;
		unsigned is_told = feed(&t, piece->who, octets, n);
		tap_expect(is_told == is_due, "%s: piece %zu tells %x in place of %x", name, at, is_told, is_due);
		at++;
		for (size_t cut = 0; cut <= n; cut++) {
			struct tls_records u = before;
			unsigned both = feed(&u, piece->who, octets, cut) | feed(&u, piece->who, octets + cut, n - cut);
			tap_expect(both == is_told && is_same(&t, &u), "%s: piece %zu cut at %zu of %zu tells %x", name,
				at, cut, n, both);
			/* Announced whole, and less of it went. */
			struct iovec one = {octets, n};
			struct tls_mark mark;
			if (piece->who != 'c')
				continue;
			u = before;
			tls_records_announce(&u, &one, 1, n, &mark);
			tls_records_sent_only(&u, &one, 1, cut, &mark);
			feed(&u, 'c', octets + cut, n - cut);
			tap_expect(is_same(&t, &u), "%s: piece %zu, of which %zu of %zu went", name, at, cut, n);
		}
		struct tls_records slow = before;
		for (size_t i = 0; i < n; i++)
			feed(&slow, piece->who, octets + i, 1);
		tap_expect(is_same(&t, &slow), "%s: piece %zu octet by octet", name, at);
	}
	tap_expect(at == count, "%s: %zu pieces in place of %zu", name, at, count);
	tap_expect(t.name_length == 17 && !memcmp(t.name, "some.host.example", 17), "%s: the name is '%.*s'", name,
		(int)t.name_length, t.name);
	static const uint8_t none[TLS_RANDOM];
	tap_expect(memcmp(t.random, none, sizeof none) != 0, "%s: no random", name);
	tap_all(name);
}
#define CONVERSE(title, name, ...)                                                                                     \
	do {                                                                                                           \
		const unsigned told[] = {__VA_ARGS__};                                                                 \
		converse(title, captured_##name, told, sizeof told / sizeof *told);                                    \
	} while (0)

static void captured(void)
{
	CONVERSE("1.3: two tickets of one length, then an answer (A10)", tls13, TLS_HELLO, TLS_TURN, TLS_COMPLETE,
		TLS_MAYBE, TLS_DATA, TLS_DATA);
	CONVERSE("1.3 with SHA-256, without tickets: a long answer is one", tls13_sha256, TLS_HELLO, TLS_TURN,
		TLS_COMPLETE, TLS_DATA, TLS_DATA);
	CONVERSE("1.3 asked for another key first", tls13_retried, TLS_HELLO, 0, TLS_HELLO, TLS_TURN, TLS_COMPLETE,
		TLS_MAYBE, TLS_DATA, TLS_DATA);
	CONVERSE("1.3 with a client's certificate", tls13_certificate, TLS_HELLO, TLS_TURN, TLS_COMPLETE, TLS_MAYBE,
		TLS_MAYBE, TLS_DATA, TLS_DATA);
	CONVERSE("1.3: no certificate of the client's, refused after its handshake (A10)", tls13_refused, TLS_HELLO,
		TLS_TURN, TLS_COMPLETE, 0);
	CONVERSE("1.2: told by type", tls12, TLS_HELLO, TLS_TURN, 0, TLS_COMPLETE, TLS_DATA, TLS_DATA);
	CONVERSE("1.2 taken up again: the client has the last word", tls12_resumed, TLS_HELLO, TLS_TURN, TLS_COMPLETE,
		TLS_DATA, TLS_DATA);
	CONVERSE("1.2: a fatal alert inside the handshake (A9)", tls12_refused, TLS_HELLO, TLS_TURN, 0, TLS_REFUSED);
	CONVERSE("1.2: a fatal alert at once (A9)", tls12_no_cipher, TLS_HELLO, TLS_REFUSED);
}

/* The state after a captured connection. */
static void after(struct tls_records *t, const struct captured *pieces)
{
	static uint8_t octets[8192];
	tls_records_init(t);
	for (; pieces->who; pieces++)
		feed(t, pieces->who, octets, octets_of(pieces->hex, octets));
}

static void offers(void)
{
	struct tls_records t;
	after(&t, captured_tls13);
	tap_ok(tls_records_may_be_many(&t), "h2 was offered, and in 1.3 what was chosen is not to be seen");
	after(&t, captured_tls12);
	tap_ok(t.offers_h2 && !tls_records_may_be_many(&t),
		"h2 was offered, and in 1.2 the server is seen to choose otherwise");
	after(&t, captured_tls13_sha256);
	tap_ok(!t.offers_h2 && !tls_records_may_be_many(&t), "h2 was not offered");
	after(&t, captured_tls13_refused);
	tap_ok(t.is_alone, "one record as long as an alert, and nothing else: it may be one (A10)");
	after(&t, captured_tls13);
	tap_ok(!t.is_alone, "an answer is no alert");
}

static unsigned record(struct tls_records *t, char who, uint8_t type, uint16_t length)
{
	uint8_t bytes[5 + 2048] = {type, 3, 3, (uint8_t)(length >> 8), (uint8_t)length};
	return feed(t, who, bytes, 5 + (size_t)length);
}

/* After the handshake of 1.3, in which the server sent nothing yet. */
static struct tls_records fresh_13(void)
{
	struct tls_records t;
	struct captured three[4] = {captured_tls13[0], captured_tls13[1], captured_tls13[2], {0, 0}};
	after(&t, three);
	return t;
}

static void tickets(void)
{
	struct tls_records t = fresh_13();
	unsigned told = 0;
	for (int i = 0; i < 4; i++)
		told |= record(&t, 's', 23, 250);
	tap_ok(told == TLS_MAYBE && record(&t, 's', 23, 250) == TLS_DATA, "a fifth of one length is an answer");
	t = fresh_13();
	tap_ok(record(&t, 's', 23, 1115) == TLS_MAYBE && record(&t, 's', 23, 1115 + 40) == TLS_DATA,
		"a ticket of Java's, and an answer of another length");
	t = fresh_13();
	tap_ok(record(&t, 's', 23, 147) == TLS_MAYBE && record(&t, 's', 23, 22) == TLS_DATA,
		"a ticket of Go's, and a short answer");
	t = fresh_13();
	tap_ok(record(&t, 's', 23, 59) == TLS_DATA, "no ticket is so short");
	t = fresh_13();
	tap_ok(record(&t, 's', 23, 250) == TLS_MAYBE && record(&t, 's', 23, 19) == 0 && !t.is_alone,
		"an alert behind a ticket is not alone");
	t = fresh_13();
	tap_ok(record(&t, 'c', 23, 19) == 0, "the client's close_notify is no request");
	tap_ok(record(&t, 'c', 23, 40) == TLS_DATA, "and this is one");
}

static void broken(void)
{
	struct tls_records t = fresh_13();
	tap_ok(record(&t, 's', 30, 20) & TLS_LOST && record(&t, 's', 23, 40) == TLS_LOST,
		"no type of a record: lost for good");
	t = fresh_13();
	t.is_receiving = 1;
	tap_ok(record(&t, 's', 23, 250) == TLS_LOST && record(&t, 'c', 23, 40) == TLS_LOST, "fed twice at once: lost");
	tls_records_init(&t);
	struct captured hello[2] = {captured_tls13[0], {0, 0}};
	after(&t, hello);
	tap_ok(record(&t, 'c', 23, 40) == 0 && t.has_early && record(&t, 'c', 23, 1000) == 0,
		"data before the server's hello is 0-RTT (A10)");
	uint8_t bytes[20000];
	unsigned told = 0;
	for (int i = 1; i <= 2; i++) {
		size_t n = octets_of(captured_tls13[i].hex, bytes);
		told |= feed(&t, captured_tls13[i].who, bytes, n);
	}
	tap_ok(told & TLS_COMPLETE && !(told & TLS_LOST) && record(&t, 's', 23, 250) == TLS_MAYBE &&
			record(&t, 'c', 23, 40) == TLS_DATA,
		"and its handshake goes on as any");
	tls_records_init(&t);
	tap_ok(record(&t, 'c', 23, 40) & TLS_LOST, "data before any hello: lost");
	t = fresh_13();
	struct captured two[3] = {captured_tls13[0], captured_tls13[1], {0, 0}};
	after(&t, two);
	tap_ok(record(&t, 'c', 23, 19) == TLS_REFUSED, "the client's alert in place of its Finished: refused (A9)");
	after(&t, two);
	tap_ok(record(&t, 'c', 23, 1500) == 0 && record(&t, 's', 23, 250) == (TLS_COMPLETE | TLS_MAYBE),
		"a Finished that shares a record is known by what follows");
}

int main(void)
{
	captured();
	offers();
	tickets();
	broken();
	return tap_done();
}
