/* A8: framing of HTTP/1 (wire/http1.h): real heads, cut at every place, against llhttp alone; and what two threads,
 * partial sends and early answers make of it. */
#include <pthread.h>
#include <sched.h>

#include "tap.h"
#include "wire/http1_host.h"
#include "wire/http1_skim.h"
#include "wire_http1_oracle.h"

/* As captured from the programs named. Their order is that of the names. */
static const struct {
	const char *who, *bytes;
	bool is_plain; /* the skimmer takes it */
} requests[] = {
	{"curl", "GET /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:57851\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n",
		true},
	{"curl -d",
		"POST /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:57851\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n"
		"Content-Length: 3\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\nx=1",
		true},
	{"curl -T -",
		"PUT /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:57851\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n"
		"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n6\r\nhallo\n\r\n0\r\n\r\n",
		true},
	{"curl -I", "HEAD / HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n", true},
	{"curl --http2",
		"GET /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:57851\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n"
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "
		"AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n",
		false},
	{"java HttpClient",
		"GET /a/b?c=d HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 0\r\n"
		"Host: 127.0.0.1:57851\r\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\nUpgrade: "
		"h2c\r\n"
		"User-Agent: Java-http-client/17.0.15\r\n\r\n",
		false},
	{"java HttpURLConnection",
		"GET /a/b?c=d HTTP/1.1\r\nUser-Agent: Java/17.0.15\r\nHost: 127.0.0.1:57851\r\n"
		"Accept: text/html, image/gif, image/jpeg, */*; q=0.2\r\nConnection: keep-alive\r\n\r\n",
		true},
	{"node", "GET /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:57851\r\nConnection: keep-alive\r\n\r\n", true},
	{"node fetch",
		"POST /a/b?c=d HTTP/1.1\r\nhost: 127.0.0.1:57851\r\nconnection: keep-alive\r\n"
		"content-type: text/plain;charset=UTF-8\r\naccept: */*\r\naccept-language: *\r\nsec-fetch-mode: "
		"cors\r\n"
		"user-agent: node\r\naccept-encoding: gzip, deflate\r\ncontent-length: 3\r\n\r\nabc",
		true},
	{"perl", "GET /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:57851\r\nUser-Agent: HTTP-Tiny/0.080\r\n\r\n", true},
	{"php", "GET /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:57851\r\nConnection: close\r\n\r\n", true},
	{"python requests",
		"POST /v1/items HTTP/1.1\r\nHost: api.example:8000\r\nUser-Agent: python-requests/2.28.1\r\n"
		"Accept-Encoding: gzip, deflate, br\r\nAccept: */*\r\nConnection: keep-alive\r\nContent-Length: 2\r\n"
		"Content-Type: application/json\r\n\r\n{}",
		true},
	{"urllib",
		"GET /a/b?c=d HTTP/1.1\r\nAccept-Encoding: identity\r\nHost: 127.0.0.1:57851\r\n"
		"User-Agent: Python-urllib/3.11\r\nConnection: close\r\n\r\n",
		true},
	{"ruby",
		"GET /a/b?c=d HTTP/1.1\r\nAccept-Encoding: gzip;q=1.0,deflate;q=0.6,identity;q=0.3\r\nAccept: */*\r\n"
		"User-Agent: Ruby\r\nHost: 127.0.0.1:57851\r\n\r\n",
		true},
	{"nginx, an upstream's client", "GET /x HTTP/1.0\r\nHost: backend\r\nConnection: close\r\n\r\n", true},
	{"a websocket",
		"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
		false},
	{"a tunnel", "CONNECT db:443 HTTP/1.1\r\nHost: db:443\r\n\r\n", false},
};

static const struct {
	const char *who, *bytes;
	bool is_plain;
} answers[] = {
	{"nginx",
		"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 30 Nov 2026 08:00:00 GMT\r\nContent-Type: "
		"text/html\r\n"
		"Content-Length: 5\r\nLast-Modified: Mon, 30 Nov 2026 07:00:00 GMT\r\nConnection: keep-alive\r\n"
		"ETag: \"654321-5\"\r\nAccept-Ranges: bytes\r\n\r\nhello",
		true},
	{"nginx, chunked",
		"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 30 Nov 2026 08:00:00 GMT\r\nContent-Type: "
		"text/html\r\n"
		"Transfer-Encoding: chunked\r\nConnection: "
		"keep-alive\r\n\r\n5\r\nhello\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n"
		"0\r\n\r\n",
		true},
	{"apache, chunked, with trailers and an extension",
		"HTTP/1.1 200 OK\r\nDate: Mon, 30 Nov 2026 08:00:00 GMT\r\nServer: Apache/2.4.57 (Debian)\r\n"
		"Vary: Accept-Encoding\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3;a=b\r\nxyz\r\n0\r\n"
		"X-Sum: 12\r\n\r\n",
		true},
	{"apache, asked for h2c",
		"HTTP/1.1 200 OK\r\nServer: Apache/2.4.57 (Debian)\r\nUpgrade: h2,h2c\r\nConnection: Upgrade\r\n"
		"Content-Length: 2\r\n\r\nok",
		false},
	{"no body", "HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n", true},
	{"not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: \"1\"\r\n\r\n", true},
	{"continue, then the answer",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\nLocation: /7\r\n\r\n{}",
		true},
	{"early hints",
		"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 503 Service Unavailable\r\nContent-Length: "
		"0\r\n\r\n",
		true},
	{"until the end", "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/plain\r\n\r\nall that comes", true},
	{"python http.server",
		"HTTP/1.0 200 OK\r\nServer: SimpleHTTP/0.6 Python/3.11.2\r\nDate: x\r\nContent-Length: 3\r\n\r\nabc",
		true},
	{"closing", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", true},
	{"without a reason", "HTTP/1.1 500\r\nContent-Length: 1\r\n\r\nx", false},
	{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 1\n\nx", false},
	{"a folded field", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\nx", false},
	{"both lengths", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false},
	{"gzip without chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc", false},
	{"switching",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x05hello",
		false},
	{"a tunnel", "HTTP/1.1 200 Connection established\r\n\r\n\x16\x03\x01", true},
	{"cut short", "HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\nhal", true},
	{"no HTTP", "220 mail.example ESMTP\r\n", false},
	{"octets above 127", "HTTP/1.1 200 OK\r\nX: \xc3\xa4\tb\r\nContent-Length: 1\r\n\r\nx", false},
};

#define REQUESTS (sizeof requests / sizeof requests[0])
#define ANSWERS (sizeof answers / sizeof answers[0])

static void skimmed(void)
{
	struct http1_head head;

	for (size_t i = 0; i < REQUESTS; i++) {
		const char *p = requests[i].bytes, *end = p + strlen(p);
		size_t n = http1_skim_request(p, end, &head), whole = (size_t)(strstr(p, "\r\n\r\n") + 4 - p);
		tap_expect(n == (requests[i].is_plain ? whole : 0), "%s: %zu", requests[i].who, n);
		for (size_t k = 0; k < whole; k++)
			tap_expect(http1_skim_request(p, p + k, &head) == 0, "%s, of which %zu", requests[i].who, k);
	}
	for (size_t i = 0; i < ANSWERS; i++) {
		const char *p = answers[i].bytes, *end = p + strlen(p), *blank = strstr(p, "\r\n\r\n");
		size_t n = http1_skim_answer(p, end, &head), whole = blank ? (size_t)(blank + 4 - p) : 0;
		tap_expect(n == (answers[i].is_plain ? whole : 0), "%s: %zu", answers[i].who, n);
		for (size_t k = 0; k < whole; k++)
			tap_expect(http1_skim_answer(p, p + k, &head) == 0, "%s, of which %zu", answers[i].who, k);
	}
	tap_all("plain heads are skimmed when whole, others never");
}

static void every_pair(void)
{
	for (size_t i = 0; i < REQUESTS; i++)
		for (size_t j = 0; j < ANSWERS; j++)
			for (uint32_t seed = 1; seed < 8; seed++)
				tap_expect(streams_agree(requests[i].bytes, strlen(requests[i].bytes), answers[j].bytes,
						   strlen(answers[j].bytes), seed * 2654435761u),
					"%s and %s", requests[i].who, answers[j].who);
	tap_expect(plain_taken > 1000, "the door for plain messages took %d", plain_taken);
	tap_all("real requests and answers: as llhttp alone says, whole, octet by octet, at random, sent in part");
}

/* The events of both streams, each cut once. */
static void cut_at(const char *sent, const char *received, size_t cut_sent, size_t cut_received, struct record *r)
{
	struct http1 h;
	struct http1_mark mark;
	size_t n = strlen(sent), m = strlen(received);

	http1_init(&h);
	r->count = 0;
	r->base = 0;
	struct iovec first = {(void *)sent, cut_sent}, second = {(void *)(sent + cut_sent), n - cut_sent};
	http1_announce(&h, &first, 1, cut_sent, &mark, record_event, r);
	r->base = cut_sent;
	http1_announce(&h, &second, 1, n - cut_sent, &mark, record_event, r);
	r->base = 0;
	http1_received(&h, received, cut_received, record_event, r);
	r->base = cut_received;
	http1_received(&h, received + cut_received, m - cut_received, record_event, r);
	r->base = 0;
	http1_end_of_stream(&h, record_event, r);
}

static void every_cut(void)
{
	static struct record want, got;

	for (size_t i = 0; i < REQUESTS; i++) {
		for (size_t j = 0; j < ANSWERS; j++) {
			const char *sent = requests[i].bytes, *received = answers[j].bytes;
			cut_at(sent, received, 0, 0, &want);
			for (size_t k = 0; j == 0 && k <= strlen(sent); k++) {
				cut_at(sent, received, k, 0, &got);
				tap_expect(records_agree(&got, &want, false), "%s cut at %zu", requests[i].who, k);
			}
			for (size_t k = 0; k <= strlen(received); k++) {
				cut_at(sent, received, 0, k, &got);
				tap_expect(records_agree(&got, &want, false), "%s cut at %zu", answers[j].who, k);
			}
		}
	}
	tap_all("cut at every place: the same events");
}

/* Every octet, at every place of a plain head: what the skimmer takes is what llhttp reads. */
static void every_octet(void)
{
	static const char request[] = "GET /p?q HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab";
	char changed[100];

	for (size_t i = 0; i < sizeof request - 1; i++) {
		for (int octet = 0; octet < 256; octet++) {
			memcpy(changed, request, sizeof request);
			changed[i] = (char)octet;
			tap_expect(streams_agree(changed, sizeof request - 1, "", 0, 7), "%02x in a request at %zu",
				octet, i);
		}
	}
	for (size_t i = 0; i < sizeof answer - 1; i++) {
		for (int octet = 0; octet < 256; octet++) {
			memcpy(changed, answer, sizeof answer);
			changed[i] = (char)octet;
			tap_expect(streams_agree(request, sizeof request - 1, changed, sizeof answer - 1, 7),
				"%02x in an answer at %zu", octet, i);
		}
	}
	tap_all("every octet at every place of a head: as llhttp alone says");
}

/* ---- a story, told as a line ---- */

static void spell(void *context, const struct http1_event *e)
{
	char *line = context, *end = line + strlen(line);
	static const char *const why[] = {"upgrade", "tunnel", "not-http", "pipeline", "concurrent"};

	switch (e->what) {
	case HTTP1_REQUEST_BEGINS: sprintf(end, "begins@%zu ", e->at); break;
	case HTTP1_REQUEST_HEAD:
		sprintf(end, "%s%s ", llhttp_method_name(e->method), e->closes ? ",closes" : "");
		break;
	case HTTP1_REQUEST_ENDS: sprintf(end, "sent@%zu ", e->at); break;
	case HTTP1_ANSWER_BEGINS: sprintf(end, "answer "); break;
	case HTTP1_INTERIM: sprintf(end, "interim-%u ", e->status); break;
	case HTTP1_ANSWER_HEAD:
		sprintf(end, "%u%s%s ", e->status, e->closes ? ",closes" : "", e->until_close ? ",until-close" : "");
		break;
	case HTTP1_ANSWER_ENDS:
		sprintf(end, "whole%s%s ", e->closes ? ",closes" : "", e->is_early ? ",early" : "");
		break;
	case HTTP1_UNSOLICITED: sprintf(end, "unsolicited "); break;
	case HTTP1_CUT: sprintf(end, "cut "); break;
	case HTTP1_OPAQUE: sprintf(end, "opaque:%s ", why[e->why]); break;
	}
}

static struct http1 h;
static char line[4096];
static struct http1_mark mark;

static bool announce(const char *bytes)
{
	struct iovec iov = {(void *)bytes, strlen(bytes)};
	return http1_announce(&h, &iov, 1, strlen(bytes), &mark, spell, line);
}

static bool only(const char *bytes, size_t gone)
{
	struct iovec iov = {(void *)bytes, strlen(bytes)};
	return http1_sent_only(&h, &mark, &iov, 1, strlen(bytes), gone, spell, line);
}

static bool receive(const char *bytes)
{
	return http1_received(&h, bytes, strlen(bytes), spell, line);
}

static void end_of_stream(void)
{
	http1_end_of_stream(&h, spell, line);
}

static void begin(void)
{
	http1_init(&h);
	line[0] = '\0';
}

static void told(const char *want, const char *name)
{
	if (!tap_ok(strcmp(line, want) == 0, "%s", name))
		printf("# got:  %s\n# want: %s\n", line, want);
	line[0] = '\0';
}

#define GET "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static void stories(void)
{
	begin();
	announce(GET), receive(OK), announce(GET), receive(OK), end_of_stream();
	told("begins@0 GET sent@27 answer 200 whole begins@0 GET sent@27 answer 200 whole ",
		"A7: a kept connection: two calls, and an end of stream while idle says nothing");

	begin();
	announce("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc");
	receive("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
	announce("def"), announce("ghi");
	told("begins@0 POST answer 413,closes whole,closes,early sent@3 ", "A7: an answer whole before its request is");

	begin();
	announce("HEAD / HTTP/1.1\r\n\r\n" GET);
	receive("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" OK);
	told("begins@0 HEAD sent@19 begins@19 GET sent@46 answer 200 whole answer 200 whole ",
		"HEAD has no body whatever its head says; the next answer is the next request's");

	begin();
	announce("GET / HTTP/1.0\r\n\r\n"), receive(OK);
	told("begins@0 GET,closes sent@18 answer 200,closes whole,closes ", "A2: HTTP/1.0: whole, but closes");

	begin();
	announce(GET), receive("HTTP/1.1 200 OK\r\n\r\nabc");
	told("begins@0 GET sent@27 answer 200,until-close ", "an answer without length");
	end_of_stream();
	told("whole ", "it ends with the stream");

	begin();
	announce(GET), receive("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"), end_of_stream();
	told("begins@0 GET sent@27 answer 200 cut ", "A14: an end before the framing's");

	begin();
	announce(GET), receive("H"), receive("TTP/1.1 200 OK\r\nCont"), end_of_stream();
	told("begins@0 GET sent@27 answer cut ", "an end in the midst of a head; an answer begins at its first octet");

	begin();
	announce(GET), end_of_stream();
	told("begins@0 GET sent@27 cut ", "A14: an end before any octet of an answer");

	begin();
	receive("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"), end_of_stream();
	told("unsolicited ", "408 on an idle connection");

	begin();
	receive("220 hello\r\n");
	told("unsolicited opaque:not-http ", "the server speaks first");
	tap_ok(!http1_is_framed(&h) && !announce(GET) && !receive(OK) && line[0] == '\0', "opaque stays so, silently");

	begin();
	announce("GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
	receive("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81");
	told("begins@0 GET sent@59 answer 101 opaque:upgrade ", "A8: 101 ends framing");

	begin();
	announce("GET / HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n");
	receive(OK), announce(GET), receive(OK);
	told("begins@0 GET sent@53 answer 200 whole begins@0 GET sent@27 answer 200 whole ",
		"an upgrade that the server passes over: framing goes on");

	begin();
	announce("CONNECT a:1 HTTP/1.1\r\n\r\n"), receive("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n");
	announce("CONNECT a:1 HTTP/1.1\r\n\r\n"), receive("HTTP/1.1 200 OK\r\n\r\n");
	told("begins@0 CONNECT sent@24 answer 407 whole begins@0 CONNECT sent@24 answer 200 opaque:tunnel ",
		"A8: CONNECT refused, then granted");

	begin();
	announce("PO"), receive("HTTP/1.1 1"), receive("00 Continue\r\n\r\n"), announce("ST / HTTP/1.1\r\n\r\n"),
		receive("HTT"), receive("P/1.1 10"), receive("0 Continue\r\n\r\n"), receive(OK);
	told("begins@0 interim-100 POST sent@17 answer interim-100 answer 200 whole ",
		"1xx is no answer, however it is cut");

	begin();
	for (int i = 0; i < HTTP1_PENDING_MAX; i++)
		announce(GET);
	tap_ok(http1_is_framed(&h) && http1_pending(&h) == 16, "A8: sixteen pipelined requests");
	line[0] = '\0';
	announce(GET);
	told("opaque:pipeline ", "the seventeenth: opaque");

	begin();
	announce("\x16\x03\x01\x02");
	told("begins@0 opaque:not-http ", "a parse error: opaque");

	memset(&h, 0, sizeof h);
	tap_ok(!announce(GET) && !receive(OK) && line[0] == '\0', "all zero: unused, nothing is told");
}

static void partial_sends(void)
{
	begin();
	announce(GET);
	line[0] = '\0';
	tap_ok(only(GET, 0) && http1_pending(&h) == 0, "nothing went: nothing is pending");
	told("", "and nothing told");
	end_of_stream();
	told("", "nor missing at the end of the stream");

	begin();
	announce(GET GET);
	line[0] = '\0';
	only(GET GET, 30);
	told("begins@0 GET sent@27 begins@27 ", "a part went: what truly did is told once more");
	tap_ok(http1_pending(&h) == 2, "both pending");
	announce(&(GET GET)[30]);
	told("GET sent@24 ", "the rest");

	begin();
	announce(GET GET), receive(OK);
	line[0] = '\0';
	only(GET GET, 27);
	tap_ok(http1_pending(&h) == 0 && http1_is_framed(&h), "an answer that overtook the send's return stands");

	begin();
	announce(GET GET), receive(OK), receive(OK);
	line[0] = '\0';
	only(GET GET, 27);
	told("begins@0 GET sent@27 opaque:concurrent ", "an answer to what was never sent: opaque");

	begin();
	announce(GET), receive("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
	line[0] = '\0';
	only(GET, 0), receive("k");
	told("opaque:concurrent ", "and so when it was only half there");

	begin();
	announce(GET);
	struct http1_mark old = mark;
	announce(GET);
	mark = old;
	line[0] = '\0';
	only(GET, 3);
	told("opaque:concurrent ", "a mark that another send has passed: opaque");

	begin();
	announce("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe");
	announce("llo\r\n0\r\n\r\n");
	line[0] = '\0';
	only("llo\r\n0\r\n\r\n", 5);
	announce("0\r\n\r\n");
	told("sent@5 ", "in the midst of a chunked body");

	struct http1 before = h;
	struct iovec iov = {(void *)(GET GET), 54};
	http1_preview(&h, &iov, 1, 54, spell, line);
	told("begins@0 GET sent@27 begins@27 GET sent@54 ", "a preview tells");
	tap_ok(memcmp(&before, &h, sizeof h) == 0, "and changes nothing");
}

static void feed_within(void *context, const struct http1_event *event)
{
	(void)event;
	if (context) {
		struct iovec iov = {(void *)GET, 27};
		struct http1_mark m;
		http1_announce(&h, &iov, 1, 27, &m, spell, line);
	}
}

static void taken(void)
{
	begin();
	struct iovec iov = {(void *)GET, 27};
	http1_announce(&h, &iov, 1, 27, &mark, feed_within, &h);
	told("opaque:concurrent ", "fed in the midst of a feed of the same side (a signal handler): opaque");

	begin();
	atomic_store(&h.received.busy, 1);
	announce(GET);
	told("begins@0 GET sent@27 ", "the other side taken does not matter");
	receive(OK);
	told("opaque:concurrent ", "a side left taken (longjmp): opaque");
}

/* ---- two threads ---- */

#define ROUNDS 100000
static _Atomic uint32_t announced_total, answered_total;
static uint32_t whole_total, broken_total;

static void count_whole(void *context, const struct http1_event *e)
{
	(void)context;
	whole_total += e->what == HTTP1_ANSWER_ENDS;
	broken_total += e->what == HTTP1_UNSOLICITED || e->what == HTTP1_OPAQUE || e->what == HTTP1_CUT;
}

static void *answer_all(void *unused)
{
	(void)unused;
	for (uint32_t i = 0; i < ROUNDS;) {
		if (atomic_load_explicit(&announced_total, memory_order_acquire) <= i) {
			sched_yield();
			continue;
		}
		/* HEAD every third: its length means nothing. */
		if (i % 3 == 0)
			http1_received(&h, "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", 39, count_whole, NULL);
		else
			http1_received(&h, OK, sizeof OK - 1, count_whole, NULL);
		atomic_store_explicit(&answered_total, ++i, memory_order_release);
	}
	return NULL;
}

/* The reader overtakes the writer: its answer comes as soon as the request is announced. Each announcement holds one
 * request more than goes. */
static void two_threads(void)
{
	static const char head[] = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" GET, get[] = GET GET;
	pthread_t reader;

	begin();
	pthread_create(&reader, NULL, answer_all, NULL);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		while (i - atomic_load_explicit(&answered_total, memory_order_acquire) > 10)
			sched_yield();
		const char *bytes = i % 3 == 0 ? head : get;
		size_t n = i % 3 == 0 ? sizeof head - 1 : sizeof get - 1;
		struct iovec iov = {(void *)bytes, n};
		http1_announce(&h, &iov, 1, n, &mark, NULL, NULL);
		atomic_store_explicit(&announced_total, i + 1, memory_order_release);
		http1_sent_only(&h, &mark, &iov, 1, n, n - 27, NULL, NULL);
	}
	pthread_join(reader, NULL);
	tap_ok(http1_is_framed(&h) && whole_total == ROUNDS && broken_total == 0 && http1_pending(&h) == 0,
		"A8: a reader that overtakes the writer, with partial sends: %u whole, %u broken, %u pending",
		whole_total, broken_total, http1_pending(&h));
}

static void *feed_same_side(void *unused)
{
	(void)unused;
	for (int i = 0; i < 200000 && http1_is_framed(&h); i++)
		http1_received(&h, OK, sizeof OK - 1, NULL, NULL);
	return NULL;
}

static void two_readers(void)
{
	pthread_t other;
	int met = 0;

	for (int i = 0; i < 200; i++) {
		begin();
		announce(GET);
		pthread_create(&other, NULL, feed_same_side, NULL);
		feed_same_side(NULL);
		pthread_join(other, NULL);
		met += !http1_is_framed(&h);
		if (met)
			break;
	}
	tap_ok(met > 0, "two threads feed one side at once: opaque");
}

static void fields(void)
{
	static const char head[] =
		"GET  /x?y HTTP/1.1\r\nHostile: no\r\nHOST: \t a.example:80 \r\nX: 1\r\n 2\r\nEmpty:\r\n\r\n";
	size_t n, m;
	const char *target, *value = http1_field(head, sizeof head - 1, "host", &n);

	tap_ok(value && n == 12 && memcmp(value, "a.example:80", 12) == 0,
		"a field in any case, without blanks around");
	tap_ok(!http1_field(head, sizeof head - 1, "x", &n), "a continued field is not read");
	tap_ok(http1_field(head, sizeof head - 1, "empty", &n) && n == 0, "an empty field");
	tap_ok(!http1_field(head, sizeof head - 1, "absent", &n), "no such field");
	tap_ok(http1_request_line(head, sizeof head - 1, &m, &target, &n) && m == 3 && n == 4 &&
			memcmp(target, "/x?y", 4) == 0,
		"method and target");
}

/* Whom a head calls its server, in pieces of every size, against http1_field() on the whole of it. */
static void hosts(void)
{
	static const char *const heads[] = {"GET / HTTP/1.1\r\nHost: pay.test\r\n\r\nbody",
		"\r\n\r\nGET / HTTP/1.1\r\nHostile: no\r\nHos: t\r\nHOST: \t a.example:80 \t\r\nX: 1\r\n\r\n",
		"GET /host: HTTP/1.1\r\nX: host: b\r\n\r\nHost: not.in.the.head\r\n\r\n",
		"GET / HTTP/1.1\r\nHost:\r\nA: b\r\n\r\n", "GET / HTTP/1.1\r\nh\r\nhhost: a\r\nhost:b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: one.test\r\nHost: two.test\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\nHost: in.the.body\r\n\r\n"};
	for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
		const char *begin = heads[i] + strspn(heads[i], "\r\n");
		size_t n = strlen(heads[i]), length = 0;
		size_t head = (size_t)(strstr(begin, "\r\n\r\n") + 4 - begin);
		const char *so = http1_field(begin, head, "Host", &length);
		length = so ? length : 0;
		for (size_t step = 1; step <= n; step++) {
			struct http1_host one;
			http1_host_begin(&one);
			for (size_t at = 0; at < n && http1_host_is_open(&one); at += step)
				http1_host_feed(&one, heads[i] + at, at + step < n ? step : n - at);
			bool is_found = one.at.state == HTTP1_HOST_FOUND;
			tap_expect(
				!http1_host_is_open(&one) && is_found == (length > 0) &&
					(!is_found || (one.at.length == length && memcmp(one.name, so, length) == 0)),
				"head %zu in pieces of %zu", i, step);
		}
	}
	struct http1_host one;
	http1_host_begin(&one);
	http1_host_feed(&one, "GET / HTTP/1.1\r\nHost: ", 22);
	for (int i = 0; i < 2 * HTTP1_HOST_MAX; i++)
		http1_host_feed(&one, "a", 1);
	tap_expect(one.at.state == HTTP1_HOST_OVER, "one that is longer than any name");
	tap_all("whom a head in pieces calls its server (A13)");
}

int main(void)
{
	skimmed();
	hosts();
	every_pair();
	every_cut();
	every_octet();
	stories();
	partial_sends();
	taken();
	fields();
	two_threads();
	two_readers();
	return tap_done();
}
