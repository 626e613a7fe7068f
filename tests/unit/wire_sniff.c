/* A11, A12: what a connection speaks, by its first octets (wire/sniff.h). */
#include <string.h>

#include "tap.h"
#include "wire/sniff.h"

static const struct {
	const char *who, *bytes;
	size_t n;
	enum sniff is;
} clients[] = {
#define ROW(who, bytes, is)                                                                                            \
	{                                                                                                              \
		who, bytes, sizeof bytes - 1, is                                                                       \
	}
	ROW("a request", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", SNIFF_HTTP1),
	ROW("a post", "POST /x HTTP/1.1\r\nHost: a\r\n\r\n", SNIFF_HTTP1),
	ROW("a propfind", "PROPFIND /dav HTTP/1.1\r\nHost: a\r\n\r\n", SNIFF_HTTP1),
	ROW("to a proxy", "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", SNIFF_HTTP1),
	ROW("a tunnel", "CONNECT a:443 HTTP/1.1\r\n\r\n", SNIFF_HTTP1),
	ROW("of the server", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", SNIFF_HTTP1),
	ROW("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", SNIFF_H2),
	ROW("TLS 1.3", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03rrrrrrrrrrrrrrrrrrrrrr", SNIFF_TLS),
	ROW("TLS, not a ClientHello", "\x16\x03\x03\x02\x00\x02\x00\x01\xfc\x03\x03rrrrrrrrrrrrrrrrrrr", SNIFF_UNKNOWN),
	ROW("postgres", "\0\0\0\x08\x04\xd2\x16\x2f", SNIFF_UNKNOWN),
	ROW("redis", "*1\r\n$4\r\nPING\r\n", SNIFF_UNKNOWN),
	ROW("redis by hand", "GET key\r\n.................", SNIFF_UNKNOWN),
	ROW("redis by hand, again", "COPY a b\r\n...................", SNIFF_UNKNOWN),
	ROW("memcached", "get /key\r\n", SNIFF_UNKNOWN),
	ROW("smtp", "EHLO a\r\n", SNIFF_UNKNOWN),
	ROW("syslog", "<13>Nov 30 08:00:00 a b: c\n", SNIFF_UNKNOWN),
	ROW("ssh", "SSH-2.0-OpenSSH_9.2\r\n", SNIFF_UNKNOWN),
	ROW("a method alone", "GET\r\n", SNIFF_UNKNOWN),
	ROW("two blanks", "GET  / HTTP/1.1\r\n", SNIFF_UNKNOWN),
};

int main(void)
{
	for (size_t i = 0; i < sizeof clients / sizeof clients[0]; i++) {
		tap_ok(sniff_client(clients[i].bytes, clients[i].n) == clients[i].is, "%s", clients[i].who);
		bool was_more = true;
		for (size_t n = 0; n <= clients[i].n; n++) {
			char exact[64];
			memcpy(exact, clients[i].bytes, n);
			enum sniff is = sniff_client(exact, n);
			tap_expect(is == (was_more && is == SNIFF_MORE ? SNIFF_MORE : clients[i].is), "%s of %zu: %d",
				clients[i].who, n, is);
			tap_expect(is != SNIFF_MORE || n < SNIFF_CLIENT_MAX, "%s of %zu needs more", clients[i].who, n);
			was_more = is == SNIFF_MORE;
		}
	}
	tap_all("cut at every place: needs more, then the same");

	tap_ok(sniff_server("SSH-2.0-x", 9) == SNIFF_STREAM && sniff_server("RFB 003.008\n", 12) == SNIFF_STREAM,
		"A12: banners of streams");
	tap_ok(sniff_server("220 a ESMTP", 11) == SNIFF_UNKNOWN && sniff_server("\0\0\x12\4\0", 5) == SNIFF_UNKNOWN &&
			sniff_server("SSL-", 4) == SNIFF_UNKNOWN && sniff_server("HT", 2) == SNIFF_UNKNOWN,
		"what others say first settles nothing");
	tap_ok(sniff_server("", 0) == SNIFF_MORE && sniff_server("SSH", 3) == SNIFF_MORE &&
			sniff_server("R", 1) == SNIFF_MORE,
		"the beginning of a banner: more");
	return tap_done();
}
