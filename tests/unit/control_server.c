/* The control socket against a real region: what it answers, and clients that misbehave, are slow or follow (CONTRACT
 * 6, E6). Who serves it, and where: control_election.c. */
#include "control_served.h"

static int ask(const char *method, const char *target)
{
	return http_ask(sock, method, target, answer, sizeof answer);
}

static bool body_has(const char *wanted)
{
	return strstr(http_body(answer), wanted) != NULL;
}

/* ---- routes ---- */

static const struct breaker_rules rules = {
	.failure_threshold = 5,
	.success_threshold = 1,
	.half_open_max_calls = 1,
	.recovery_ms = 60000,
	.recovery_max_ms = 60000,
	.backoff_percent = 200,
	.probe_timeout_ms = 30000,
};

static void fail_calls(const char *name, int n)
{
	int index = registry_find_or_add(&region, name, "", clock_now_ns());
	for (int i = 0; i < n; i++) {
		struct circuit_token token;
		if (circuit_admit(&region, (uint32_t)index, &rules, clock_now_ns(), &token) != BREAKER_REJECT)
			circuit_settle(&region, &token, &rules, BREAKER_FAILURE, FAILURE_REFUSED, true, clock_now_ns(),
				1000000);
	}
}

static void test_routes(void)
{
	static const struct {
		const char *method, *target;
		int status;
	} rows[] = {
		{"GET", "/health", 200},
		{"GET", "/health?strict=1", 503},
		{"GET", "/health?strict=0", 200},
		{"GET", "/health?strict=maybe", 400},
		{"GET", "/v1/destinations", 200},
		{"GET", "/v1/destinations/api:443", 200},
		{"GET", "/v1/destinations/api%3A443", 200},
		{"GET", "/v1/destinations/unix:%2Frun%2Fx.sock", 200},
		{"GET", "/v1/destinations/unix:/run/x.sock", 200},
		{"GET", "/v1/destinations/apx:443", 404},
		{"GET", "/v1/destinations/api%3", 400},
		{"GET", "/v1/destinations/a%00b", 400},
		{"GET", "/v1/destinations/", 404},
		{"GET", "/v1/members", 200},
		{"GET", "/v1/config", 200},
		{"GET", "/v1/events?since=x", 400},
		{"GET", "/v1/events?since=18446744073709551616", 400},
		{"GET", "/v1/events?follow=2", 400},
		{"GET", "/", 404},
		{"GET", "/v2/x", 404},
		{"GET", "http://resil/health", 200},
		{"GET", "/v1/destinations/api:443/force", 405},
		{"DELETE", "/health", 405},
		{"POST", "/health", 405},
		{"POST", "/v1/destinations/api:443/force", 400},
		{"POST", "/v1/destinations/api:443/force?mode=ajar", 400},
		{"POST", "/v1/destinations/api:443/force?mode=open&for=10", 400},
		{"POST", "/v1/destinations/none:1/reset", 404},
		{"OPTIONS", "/health", 405},
		{"PROPFIND", "/health", 405},
	};
	fail_calls("api:443", 7);
	registry_find_or_add(&region, "unix:/run/x.sock", "", clock_now_ns());
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		int status = ask(rows[i].method, rows[i].target);
		tap_ok(status == rows[i].status && json_is_valid(http_body(answer)), "%s %s is %d, in JSON",
			rows[i].method, rows[i].target, rows[i].status);
		if (status != rows[i].status)
			printf("# %d: %s\n", status, answer);
		if (rows[i].status >= 400 && status != 503)
			tap_expect(body_has("{\"error\":\""), "%s: an error is told", rows[i].target);
	}
	tap_all("every refusal has an error in words");
	ask("GET", "/v1/destinations/apx:443");
	tap_ok(body_has("did you mean 'api:443'"), "a wrong name is told what is near");
	ask("GET", "/v1/destinations/api:443/force");
	tap_ok(strstr(answer, "\r\nAllow: POST\r\n") != NULL, "405 says what is allowed");
	ask("GET", "/health");
	tap_ok(body_has("\"status\":\"degraded\"") && body_has("\"api:443\":{\"state\":\"open\",\"failure_rate\":"),
		"health: an open circuit degrades");
	ask("GET", "/v1/destinations/api:443");
	tap_ok(body_has("\"failures\":{\"refused\":5}") && body_has("\"rejected\":2") &&
			body_has("\"failure_rate\":null"),
		"a destination's figures: five failures, two rejections, no rate below 20 calls");
	ask("GET", "/v1/events");
	tap_ok(body_has("\"type\":\"transition\"") && body_has("\"from\":\"closed\",\"to\":\"open\""),
		"the transition is among the events");
	ask("GET", "/metrics");
	tap_ok(body_has("resil_circuit_state{group=\"app\",destination=\"api:443\"} 2\n"), "metrics: state 2 is open");
	ask("GET", "/v1/members");
	tap_ok(body_has("\"serves_socket\":true"), "members tell who serves");
}

static void test_changes(void)
{
	tap_ok(ask("POST", "/v1/destinations/api:443/reset") == 200 && body_has("\"state\":\"closed\""),
		"reset closes");
	tap_ok(ask("POST", "/v1/destinations/api:443/force?mode=open&for=10m") == 200 &&
			body_has("\"mode\":\"forced_open\""),
		"force open holds (B15)");
	tap_ok(ask("GET", "/health?strict=1") == 503, "health: a circuit forced open degrades");
	tap_ok(ask("POST", "/v1/destinations/api:443/force?mode=auto") == 200 && body_has("\"mode\":\"auto\""),
		"force auto ends it");
	ask("POST", "/v1/destinations/api:443/reset");
	uint32_t before = atomic_load(&region.header->reload_seq);
	tap_ok(ask("POST", "/v1/reload") == 200 && atomic_load(&region.header->reload_seq) == before + 1,
		"reload of a right configuration tells the other members");
	int fd = open(conf, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	if (fd < 0 || write(fd, "[defaults]\nfailure_treshold = 3\nrecovery_timeout = \"\n", 53) < 0)
		abort();
	close(fd);
	int status = ask("POST", "/v1/reload");
	tap_ok(status == 422 && json_is_valid(http_body(answer)) && body_has("bad.conf:2") &&
			body_has("\"errors\":[\""),
		"reload of a wrong one is refused, its lines told (%d)", status);
	tap_ok(atomic_load(&region.header->reload_seq) == before + 1, "and tells nobody else");
	unlink(conf);
}

/* ---- HTTP ---- */

/* Sends bytes and returns all that comes back until the peer closes or the answer is whole. */
static size_t exchange(const char *bytes, size_t n, bool *closed)
{
	int fd = http_connect(sock);
	http_send(fd, bytes, n);
	size_t got = http_read(fd, answer, sizeof answer, http_is_whole, closed);
	close(fd);
	return got;
}

static void test_limits(void)
{
	static char request[20000];
	bool closed;
	static const char *const bad[] = {
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"GET\r\n\r\n",
		"GET / HTTP/1.1\r\nHost resil\r\n\r\n",
		"\0\0\0\0\0\0\0\0\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
		"GET / HTTP/9.9\r\n\r\n",
		"{\"json\":true}\r\n\r\n",
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		size_t n = strlen(bad[i]) ? strlen(bad[i]) : 12, got = exchange(bad[i], n, &closed);
		int status = http_status(answer);
		tap_expect(got == 0 ? closed : status == 400 || status == 505, "bytes %zu gave %d", i, status);
	}
	tap_all("bytes that are no request: 400, 505 or closed");

	memset(request, 'a', sizeof request);
	memcpy(request, "GET /", 5);
	exchange(request, 2000, &closed);
	tap_ok(http_status(answer) == 431, "a path beyond 1 KB is refused");
	memset(request, 'a', sizeof request);
	memcpy(request, "GET / HTTP/1.1\r\nX: ", 19);
	exchange(request, sizeof request, &closed);
	tap_ok(http_status(answer) == 431, "a head beyond 8 KB is refused");
	exchange("POST /v1/reload HTTP/1.1\r\nContent-Length: 9000\r\n\r\n", 50, &closed);
	tap_ok(http_status(answer) == 413, "a body beyond 8 KB is refused");
	int n = snprintf(request, sizeof request, "POST /v1/reload HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
	while (n < 12000)
		n += snprintf(request + n, sizeof request - (size_t)n, "4\r\nabcd\r\n");
	exchange(request, (size_t)n, &closed);
	tap_ok(http_status(answer) == 413, "so is a chunked one");
	exchange("GET /health HTTP/1.1\r\nExpect: tea\r\n\r\n", 38, &closed);
	tap_ok(http_status(answer) == 417, "only 100-continue can be expected");
}

static void test_connections(void)
{
	bool closed;
	int fd = http_connect(sock);
	int whole = 0;
	for (int i = 0; i < 5; i++) {
		http_send(fd, "GET /health HTTP/1.1\r\n\r\n", 24);
		http_read(fd, answer, sizeof answer, http_is_whole, &closed);
		whole += http_status(answer) == 200 && !closed;
	}
	tap_ok(whole == 5, "a connection is kept for five requests");
	http_send(fd, "HEAD /health HTTP/1.1\r\n\r\n", 25);
	help_limit_ns = NS_PER_S / 5;
	size_t n = http_read(fd, answer, sizeof answer, NULL, &closed);
	help_limit_ns = 20 * NS_PER_S;
	tap_ok(http_status(answer) == 200 && strstr(answer, "Content-Length: ") && http_body(answer) == answer + n,
		"HEAD: the head alone");
	http_send(fd, "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 43);
	http_read(fd, answer, sizeof answer, NULL, &closed);
	tap_ok(closed && strstr(answer, "\r\nConnection: close\r\n"), "Connection: close is heeded");
	close(fd);

	/* forty in one write, the last one closes */
	static char many[8192];
	int len = 0;
	for (int i = 0; i < 40; i++)
		len += snprintf(many + len, sizeof many - (size_t)len, "GET /v1/destinations/n%d HTTP/1.1\r\n%s\r\n", i,
			i == 39 ? "Connection: close\r\n" : "");
	fd = http_connect(sock);
	http_send(fd, many, (size_t)len);
	http_read(fd, answer, sizeof answer, NULL, &closed);
	close(fd);
	bool in_order = true;
	const char *p = answer;
	for (int i = 0; i < 40 && p; i++) {
		char wanted[32];
		snprintf(wanted, sizeof wanted, "no destination 'n%d':", i);
		p = strstr(p, wanted);
		in_order &= p != NULL;
	}
	tap_ok(in_order && closed, "forty pipelined requests are answered in order");

	fd = http_connect(sock);
	http_send(fd,
		"POST /v1/destinations/api:443/reset HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
		90);
	http_read(fd, answer, sizeof answer, http_is_whole, &closed);
	tap_ok(http_status(answer) == 100, "Expect: 100-continue is answered");
	http_send(fd, "body", 4);
	http_read(fd, answer, sizeof answer, http_is_whole, &closed);
	tap_ok(http_status(answer) == 200, "and the request after its body");
	close(fd);
	fd = http_connect(sock);
	http_send(fd, "GET /health HTTP/1.0\r\n\r\n", 24);
	http_read(fd, answer, sizeof answer, NULL, &closed);
	tap_ok(http_status(answer) == 200 && closed, "HTTP/1.0 is answered and closed");
	close(fd);
	fd = http_connect(sock);
	http_send(fd, "GET /health HTTP/1.1\r\n\r\n", 24);
	shutdown(fd, SHUT_WR);
	http_read(fd, answer, sizeof answer, NULL, &closed);
	tap_ok(http_status(answer) == 200, "a client that only closes its sending side is answered");
	close(fd);
	fd = http_connect(sock);
	http_send(fd, "GET /health HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", 60);
	http_read(fd, answer, sizeof answer, http_is_whole, &closed);
	tap_ok(http_status(answer) == 200, "an upgrade is not taken, the request answered");
	close(fd);
}

/* 16 clients at once, each byte of each request sent for itself. */
static void test_byte_by_byte(void)
{
	static const char request[] =
		"GET /v1/destinations/api:443 HTTP/1.1\r\nHost: resil\r\nConnection: close\r\n\r\n";
	int fds[16];
	bool closed;
	for (int i = 0; i < 16; i++)
		fds[i] = http_connect(sock);
	for (size_t at = 0; at < sizeof request - 1; at++)
		for (int i = 0; i < 16; i++)
			http_send(fds[i], request + at, 1);
	for (int i = 0; i < 16; i++) {
		http_read(fds[i], answer, sizeof answer, NULL, &closed);
		tap_expect(http_status(answer) == 200 && closed, "client %d", i);
		close(fds[i]);
	}
	tap_all("sixteen clients, byte by byte, are all answered");
}

static void test_eviction(void)
{
	int fds[17];
	bool closed;
	for (int i = 0; i < 16; i++) {
		fds[i] = http_connect(sock);
		http_send(fds[i], "GET /health HTTP/1.1\r\n\r\n", 24);
		http_read(fds[i], answer, sizeof answer, http_is_whole, &closed);
	}
	/* the first one speaks again: the second is now idle the longest */
	http_send(fds[0], "GET /health HTTP/1.1\r\n\r\n", 24);
	http_read(fds[0], answer, sizeof answer, http_is_whole, &closed);
	fds[16] = http_connect(sock);
	http_send(fds[16], "GET /health HTTP/1.1\r\n\r\n", 24);
	http_read(fds[16], answer, sizeof answer, http_is_whole, &closed);
	tap_ok(http_status(answer) == 200, "a seventeenth client is answered");
	char byte;
	bool second_gone = recv(fds[1], &byte, 1, 0) == 0, others_kept = true;
	for (int i = 0; i < 17; i++)
		if (i != 1)
			others_kept &= recv(fds[i], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
	tap_ok(second_gone && others_kept, "and the longest idle one, no other, made room");
	for (int i = 0; i < 17; i++)
		close(fds[i]);
}

/* ---- patience: three kinds of slow clients at the same time ---- */

static void test_patience(void)
{
	static char big[1 << 16];
	bool closed;
	int silent = http_connect(sock), drip = http_connect(sock), deaf = http_connect(sock), small = 2048;

	/* One that asks and never reads: its answers must fill the socket's buffers. */
	setsockopt(deaf, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	int len = 0;
	while (len < 60000)
		len += snprintf(big + len, sizeof big - (size_t)len, "GET /metrics HTTP/1.1\r\n\r\n");
	fcntl(deaf, F_SETFL, O_NONBLOCK);
	int64_t begun_ns = clock_now_ns(), silent_ns = 0, drip_ns = 0, slowest_ns = 0;
	http_send(drip, "GET /", 5);
	while ((!silent_ns || !drip_ns) && clock_now_ns() - begun_ns < 16 * NS_PER_S) {
		char byte;
		send(deaf, big, (size_t)len, MSG_NOSIGNAL);
		if (!silent_ns && recv(silent, &byte, 1, MSG_DONTWAIT) == 0)
			silent_ns = clock_now_ns() - begun_ns;
		if (!drip_ns && send(drip, "a", 1, MSG_NOSIGNAL) < 0)
			drip_ns = clock_now_ns() - begun_ns;
		int64_t asked_ns = clock_now_ns();
		tap_expect(ask("GET", "/health") == 200, "the others are answered");
		if (clock_now_ns() - asked_ns > slowest_ns)
			slowest_ns = clock_now_ns() - asked_ns;
		usleep(100000);
	}
	tap_all("beside a silent, a dripping and a deaf client every other is answered");
	printf("# slowest answer %lld us\n", (long long)slowest_ns / 1000);
	tap_ok(silent_ns > 9 * NS_PER_S && silent_ns < 12 * NS_PER_S, "a silent client goes after ten seconds");
	tap_ok(drip_ns > 9 * NS_PER_S && drip_ns < 12 * NS_PER_S, "so does one that drips a request");
	/* The server has closed: what was buffered can be read, then the end comes. */
	fcntl(deaf, F_SETFL, 0);
	sleep(1);
	http_read(deaf, answer, sizeof answer, NULL, &closed);
	tap_ok(closed, "an answer that is not taken is dropped after ten seconds");
	close(silent);
	close(drip);
	close(deaf);
}

/* ---- followers ---- */

static bool has_seen_event(const char *text, size_t n)
{
	(void)n;
	return strstr(text, "\"destination\":\"late:1\"") != NULL;
}

static void test_follow(void)
{
	bool closed;
	int fd = http_connect(sock);
	uint64_t oldest, newest;
	char request[128];

	events_range(&region, &oldest, &newest);
	int n = snprintf(request, sizeof request, "GET /v1/events?follow=1&since=%llu HTTP/1.1\r\n\r\n",
		(unsigned long long)newest);
	http_send(fd, request, (size_t)n);
	usleep(300000);
	int64_t begun_ns = clock_now_ns();
	fail_calls("late:1", 5);
	http_read(fd, answer, sizeof answer, has_seen_event, &closed);
	int64_t took_ns = clock_now_ns() - begun_ns;
	tap_ok(strstr(answer, "Transfer-Encoding: chunked") && has_seen_event(answer, 0) && took_ns < NS_PER_S,
		"a follower hears of a transition within a second (%lld ms)", (long long)(took_ns / NS_PER_MS));
	tap_ok(!strstr(answer, "api:443"), "since: nothing older");
	close(fd);
	fd = http_connect(sock);
	http_send(fd, "GET /v1/events?follow HTTP/1.0\r\n\r\n", 34);
	http_read(fd, answer, sizeof answer, has_seen_event, &closed);
	tap_ok(has_seen_event(answer, 0) && !strstr(answer, "chunked"), "HTTP/1.0 follows without chunks");
	close(fd);
}

/* ---- random requests ---- */

static uint64_t seed = 88172645463325252ull;
static uint32_t dice(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 11) % n;
}

static size_t random_request(char *to)
{
	static const char *const pieces[] = {
		"GET ",
		"POST ",
		"HEAD ",
		"DELETE ",
		"CONNECT ",
		"/health",
		"/v1/destinations/",
		"/v1/events?since=",
		"&follow=1",
		"/metrics",
		"/v1/reload",
		"?mode=open",
		"%",
		"%2F",
		"%00",
		" HTTP/1.1\r\n",
		" HTTP/1.0\r\n",
		"\r\n",
		"\n",
		"Content-Length: 5\r\n",
		"Transfer-Encoding: chunked\r\n",
		"Expect: 100-continue\r\n",
		"Connection: close\r\n",
		"Connection: Upgrade\r\nUpgrade: x\r\n",
		": ",
		"5\r\nabcde\r\n",
		"0\r\n\r\n",
		"api:443",
		"/force",
		"/reset",
		"999999999999999999999",
		"\t",
		"\0",
		"http://",
		"Host: a\r\n",
	};
	size_t n = 0;
	uint32_t count = dice(24);
	if (dice(3) == 0)
		n += (size_t)sprintf(to, "GET /v1/destinations/api:443");
	for (uint32_t i = 0; i < count; i++) {
		if (dice(6) == 0) {
			for (uint32_t k = dice(40); k > 0; k--)
				to[n++] = (char)dice(256);
			continue;
		}
		const char *piece = pieces[dice(sizeof pieces / sizeof pieces[0])];
		size_t len = *piece ? strlen(piece) : 1;
		memcpy(to + n, piece, len);
		n += len;
	}
	return n;
}

static void test_random(void)
{
	static char request[8192];
	unsigned answered = 0;
	for (int i = 0; i < 5000; i++) {
		size_t n = random_request(request), cut = n ? dice((uint32_t)n + 1) : 0;
		int fd = http_connect(sock);
		http_send(fd, request, cut);
		http_send(fd, request + cut, n - cut);
		shutdown(fd, SHUT_WR);
		/* A follower would stay: read what is there and go. */
		struct pollfd p = {.fd = fd, .events = POLLIN};
		ssize_t got = poll(&p, 1, 50) == 1 ? recv(fd, answer, 4096, 0) : 0;
		if (got > 0) {
			answer[got] = '\0';
			answered++;
			tap_expect(strncmp(answer, "HTTP/1.1 ", 9) == 0, "random request %d got something else: %.20s",
				i, answer);
		}
		close(fd);
		if (i % 500 == 499)
			tap_expect(ask("GET", "/health") > 0, "it still answers after %d", i);
	}
	tap_all("5000 random requests do it no harm");
	tap_ok(answered > 500, "many of them were answered (%u)", answered);
	ask("POST", "/v1/destinations/api:443/force?mode=auto");
}

int main(void)
{
	set_up();
	start();
	test_routes();
	test_changes();
	test_limits();
	test_connections();
	test_byte_by_byte();
	test_eviction();
	test_follow();
	test_random();
	test_patience();
	finish();
	tear_down();
	return tap_done();
}
