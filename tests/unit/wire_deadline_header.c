/* The time left, told to the server (wire/deadline_header.h): where it is put, what is replaced, and what a partial
 * send makes of it. */
#include "tap.h"
#include "wire_deadline_header_model.h"

#define LINE "X-Deadline-Ms: 1500\r\n"
#define LEFT 1500

static const struct {
	const char *name, *bytes, *want;
} rows[] = {
	{"added before the empty line", "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n" LINE "\r\n"},
	{"a head without fields", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n" LINE "\r\n"},
	{"a body stays behind it", "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 4\r\n" LINE "\r\n\r\n\r\n"},
	{"a smaller one stays", "GET / HTTP/1.1\r\nX-Deadline-Ms: 1499\r\n\r\n", NULL},
	{"the same one stays", "GET / HTTP/1.1\r\nX-DEADLINE-MS:1500 \r\n\r\n", NULL},
	{"zero stays", "GET / HTTP/1.1\r\nx-deadline-ms: 000\r\n\r\n", NULL},
	{"a larger one is lowered", "GET / HTTP/1.1\r\nx-deadline-ms: 30000 \r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nx-deadline-ms: 1500 \r\nHost: a\r\n\r\n"},
	{"one of thirty digits is lowered", "GET / HTTP/1.1\r\nX-Deadline-Ms:999999999999999999999999999999\r\n\r\n",
		"GET / HTTP/1.1\r\nX-Deadline-Ms:1500\r\n\r\n"},
	{"one that is no number is replaced", "GET / HTTP/1.1\r\nX-Deadline-Ms: 5s\r\n\r\n",
		"GET / HTTP/1.1\r\nX-Deadline-Ms: 1500\r\n\r\n"},
	{"a negative one is replaced", "GET / HTTP/1.1\r\nX-Deadline-Ms: -5\r\n\r\n",
		"GET / HTTP/1.1\r\nX-Deadline-Ms: 1500\r\n\r\n"},
	{"an empty one is filled", "GET / HTTP/1.1\r\nX-Deadline-Ms:\r\nA: b\r\n\r\n",
		"GET / HTTP/1.1\r\nX-Deadline-Ms:1500\r\nA: b\r\n\r\n"},
	{"two numbers are one", "GET / HTTP/1.1\r\nX-Deadline-Ms: 1 2\r\n\r\n",
		"GET / HTTP/1.1\r\nX-Deadline-Ms: 1500\r\n\r\n"},
	{"a continued one is replaced whole", "GET / HTTP/1.1\r\nX-Deadline-Ms: 1\r\n 2\r\nA: b\r\n\r\n",
		"GET / HTTP/1.1\r\nX-Deadline-Ms: 1500\r\nA: b\r\n\r\n"},
	{"set twice: each", "GET / HTTP/1.1\r\nX-Deadline-Ms: 9999\r\nX-Deadline-Ms: 7\r\n\r\n",
		"GET / HTTP/1.1\r\nX-Deadline-Ms: 1500\r\nX-Deadline-Ms: 7\r\n\r\n"},
	{"another name that begins or ends so",
		"GET / HTTP/1.1\r\nX-Deadline-Ms-Not: 9\r\nX-Deadline-M: 9\r\nAX-Deadline-Ms: 9\r\n\r\n",
		"GET / HTTP/1.1\r\nX-Deadline-Ms-Not: 9\r\nX-Deadline-M: 9\r\nAX-Deadline-Ms: 9\r\n" LINE "\r\n"},
	{"in the target, a value or a body it is not one",
		"POST /X-Deadline-Ms:9999 HTTP/1.1\r\nA: X-Deadline-Ms: 9999\r\nContent-Length: "
		"19\r\n\r\nX-Deadline-Ms: 9999",
		"POST /X-Deadline-Ms:9999 HTTP/1.1\r\nA: X-Deadline-Ms: 9999\r\nContent-Length: 19\r\n" LINE
		"\r\nX-Deadline-Ms: 9999"},
	{"in a trailer neither",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Deadline-Ms: 9999\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" LINE
		"\r\n1\r\na\r\n0\r\nX-Deadline-Ms: 9999\r\n\r\n"},
	{"bare line feeds", "GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\nHost: a\n" LINE "\n"},
	{"each of several in one buffer",
		"GET /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /3 "
		"HTTP/1.1\r\nX-Deadline-Ms: "
		"99999\r\n\r\nGET /4 HTTP/1.1\r\nX-Deadline-Ms: 1\r\n\r\n",
		"GET /1 HTTP/1.1\r\n" LINE "\r\nPOST /2 HTTP/1.1\r\nContent-Length: 3\r\n" LINE
		"\r\nabcGET /3 HTTP/1.1\r\nX-Deadline-Ms: 1500\r\n\r\nGET /4 HTTP/1.1\r\nX-Deadline-Ms: 1\r\n\r\n"},
	{"the last one only begins", "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nHost",
		"GET /1 HTTP/1.1\r\n" LINE "\r\nGET /2 HTTP/1.1\r\nHost"},
	{"a tunnel's head is the proxy's", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", NULL},
	{"an upgrade", "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n" LINE "\r\n"},
	{"a carriage return alone: who knows what the server makes of it",
		"GET / HTTP/1.1\r\nX-Deadline-Ms:\rA: b\r\n\r\n", NULL},
	{"not HTTP", "*1\r\n$4\r\nPING\r\n\r\n", NULL},
};

#define ROWS (sizeof rows / sizeof rows[0])

static void where(void)
{
	static struct stream got;

	for (size_t i = 0; i < ROWS; i++) {
		const char *want = rows[i].want ? rows[i].want : rows[i].bytes;
		edit_at_once(rows[i].bytes, strlen(rows[i].bytes), LEFT, &got);
		if (!tap_ok(got.n == strlen(want) && memcmp(got.at, want, got.n) == 0, "%s", rows[i].name))
			printf("# %.*s\n", (int)got.n, got.at);
	}
}

/* The vector cut at every two places: the same. */
static void every_cut(void)
{
	struct deadline_header_edit want[DEADLINE_HEADER_MAX], got[DEADLINE_HEADER_MAX];
	struct http1 h;

	for (size_t i = 0; i < ROWS; i++) {
		char *bytes = (char *)(uintptr_t)rows[i].bytes;
		size_t n = strlen(bytes);
		struct iovec whole = {bytes, n};
		http1_init(&h);
		memset(want, 0, sizeof want);
		int count = deadline_header_find(&h, &whole, 1, n, MODEL_NAME, LEFT, want, 0);
		for (size_t a = 0; a <= n; a++) {
			for (size_t b = a; b <= n; b += 1 + (b - a) / 9) {
				struct iovec iov[4] = {
					{bytes, a}, {bytes + a, 0}, {bytes + a, b - a}, {bytes + b, n - b + 50}};
				memset(got, 0, sizeof got);
				int k = deadline_header_find(&h, iov, 4, n, MODEL_NAME, LEFT, got, 0);
				tap_expect(k == count && memcmp(want, got, sizeof got) == 0, "%s cut at %zu and %zu",
					rows[i].name, a, b);
			}
		}
	}
	tap_all("a vector cut anywhere, and longer than its limit");
}

static void partial_sends(void)
{
	for (size_t i = 0; i < ROWS; i++)
		for (uint32_t seed = 1; seed < 3000; seed++)
			tap_expect(
				stream_is_edited_well(rows[i].bytes, strlen(rows[i].bytes), LEFT, seed * 2654435761u),
				"%s, seed %u", rows[i].name, seed);
	tap_all("partial sends: the same octets on the wire, the app's counts its own");
}

/* Every stop of one send: what is counted, and what comes next. */
static void every_stop(void)
{
	static const char bytes[] = "GET / HTTP/1.1\r\nX-Deadline-Ms: 88888888\r\nA: b\r\n\r\n";
	struct stream want;
	struct http1 h;

	edit_at_once(bytes, sizeof bytes - 1, LEFT, &want);
	for (size_t gone = 0; gone <= want.n; gone++) {
		struct deadline_header_edit edits[DEADLINE_HEADER_MAX];
		char text[DEADLINE_HEADER_MAX][DEADLINE_HEADER_TEXT_MAX];
		struct iovec iov = {(void *)(uintptr_t)bytes, sizeof bytes - 1}, out[8];
		struct stream wire = {0};
		struct http1_mark mark;
		http1_init(&h);
		int n = deadline_header_find(&h, &iov, 1, iov.iov_len, MODEL_NAME, LEFT, edits, 0);
		append(&wire, want.at, gone);
		size_t own = deadline_header_sent(edits, &n, MODEL_NAME, iov.iov_len, gone);
		http1_announce(&h, &iov, 1, iov.iov_len, &mark, NULL, NULL);
		http1_sent_only(&h, &mark, &iov, 1, iov.iov_len, own, NULL, NULL);
		tap_expect(own >= (gone < 31 ? gone : 31) && (gone <= 31 || gone >= 35 || own == 31), "%zu: %zu", gone,
			own);
		iov = (struct iovec){(void *)(uintptr_t)(bytes + own), sizeof bytes - 1 - own};
		/* The time left has changed since: what is half sent stays as it was. */
		n = deadline_header_find(&h, &iov, 1, iov.iov_len, MODEL_NAME, gone == 0 ? LEFT : 3, edits, n);
		int pieces = deadline_header_vector(edits, n, MODEL_NAME, &iov, 1, iov.iov_len, out, 8, text);
		for (int i = 0; i < pieces; i++)
			append(&wire, out[i].iov_base, out[i].iov_len);
		tap_expect(wire.n == want.n && memcmp(wire.at, want.at, want.n) == 0, "stopped at %zu: %.*s", gone,
			(int)wire.n, wire.at);
	}
	tap_all("a send that stops at any octet goes on where it stopped");
}

static void edges(void)
{
	struct deadline_header_edit edits[DEADLINE_HEADER_MAX];
	char text[DEADLINE_HEADER_TEXT_MAX], name[DEADLINE_HEADER_NAME_MAX + 2];
	struct iovec iov = {(void *)(uintptr_t) "GET / HTTP/1.1\r\n\r\n", 18};
	struct http1 h;

	http1_init(&h);
	memset(name, 'x', sizeof name);
	name[DEADLINE_HEADER_NAME_MAX + 1] = '\0';
	tap_ok(deadline_header_find(&h, &iov, 1, 18, name, 1, edits, 0) == 0 &&
			deadline_header_find(&h, &iov, 1, 18, "", 1, edits, 0) == 0,
		"no name, and one that is too long: nothing");
	name[DEADLINE_HEADER_NAME_MAX] = '\0';
	tap_ok(deadline_header_find(&h, &iov, 1, 18, name, UINT64_MAX, edits, 0) == 1 &&
			deadline_header_text(&edits[0], name, text) == sizeof text,
		"the longest text fits exactly");
	tap_ok(deadline_header_find(&h, &iov, 1, 17, name, 1, edits, 0) == 0, "half a head: nothing");
	memset(&h, 0, sizeof h);
	tap_ok(deadline_header_find(&h, &iov, 1, 18, name, 1, edits, 0) == 0, "not framed: nothing");
}

int main(void)
{
	where();
	every_cut();
	partial_sends();
	every_stop();
	edges();
	return tap_done();
}
