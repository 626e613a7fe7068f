/* A client of the control socket: its bytes come in pieces, as the first bytes say, and what it is answered must be
 * whole HTTP/1.1 answers, their JSON valid. The client's own source is taken in, its two system calls and the check of
 * its descriptor replaced: there is no socket. */
#include "../unit/control_help.h"
#include "../unit/core_rules.h"
#include "base/ownfd.h"
#include "base/sys.h"
#include "core/member.h"
#include "core/registry.h"
#include "fuzz.h"
#include "policy/policy.h"

static const uint8_t *in;
static size_t in_len, piece;
static char *out;
static size_t out_len, out_cap;
static size_t window; /* what the peer takes at once */

static ssize_t fuzz_recv(int fd, void *buf, size_t n, int flags)
{
	(void)fd, (void)flags;
	if (in_len == 0)
		return 0;
	if (n > piece)
		n = piece;
	if (n > in_len)
		n = in_len;
	memcpy(buf, in, n);
	in += n;
	in_len -= n;
	return (ssize_t)n;
}

static ssize_t fuzz_send(int fd, const void *buf, size_t n, int flags)
{
	(void)fd, (void)flags;
	if (n > window)
		n = window;
	if (out_len + n + 1 > out_cap) {
		out_cap = (out_len + n + 1) * 2;
		out = realloc(out, out_cap);
		claim(out);
	}
	memcpy(out + out_len, buf, n);
	out_len += n;
	out[out_len] = '\0';
	return (ssize_t)n;
}

#define sys_recv fuzz_recv
#define sys_send fuzz_send
#define ownfd_is_intact(fd) ((fd) >= 0)
#define ownfd_close(fd) ((void)(fd))
/* NOLINTNEXTLINE(bugprone-suspicious-include): this is how the calls are replaced */
#include "control/client.c"

static struct region region;

static struct region *the_region(void)
{
	return &region;
}

static void prepare(void)
{
	static const struct breaker_rules rules = RULES(2, 1, 1, 1000, 30000, 200, 0, 30000, false);
	static const char *const names[] = {"api.internal:80", "[::1]:443", "unix:/run/x", "a/b:1"};
	struct config_source none = {0};
	char errors_at[256] = "";
	struct text errors = TEXT_ON(errors_at);
	int faults;
	claim(region_attach_private(&region, "fuzz", 8) == 0);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		int at = registry_find_or_add(&region, names[i], "", 1);
		struct circuit_token token;
		for (size_t k = 0; k <= i; k++)
			if (circuit_admit(&region, (uint32_t)at, &rules, NS_PER_S, &token) != BREAKER_REJECT)
				circuit_settle(&region, &token, &rules, BREAKER_FAILURE, FAILURE_REFUSED, true,
					NS_PER_S, 1000);
	}
	struct config *c = config_load(&none, &errors, &faults);
	claim(c && policy_install(c) == 0);
	policy_set_source(&none);
}

static size_t hex(const char *s)
{
	return strtoul(s, NULL, 16);
}

/* One answer at `at`; where the next one begins, null: it is not whole. */
static char *check_answer(char *at, const char *end, bool *is_last)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	if (strncmp(at, go_on, sizeof go_on - 1) == 0)
		return at + sizeof go_on - 1;
	claim(strncmp(at, "HTTP/1.1 ", 9) == 0);
	char *body = strstr(at, "\r\n\r\n");
	claim(body);
	*body = '\0';
	body += 4;
	*is_last = strstr(at, "Connection: close") != NULL;
	const char *length = strstr(at, "Content-Length: ");
	if (!length) {
		/* A stream: to the end. */
		if (strstr(at, "chunked"))
			for (size_t n; body < end && (n = hex(body)) > 0; body += n) {
				claim(body + 10 + n + 2 <= end && body[8] == '\r');
				body += 10;
				claim(memcmp(body + n, "\r\n", 2) == 0);
				body += 2;
			}
		*is_last = true;
		return (char *)end;
	}
	size_t n = strtoul(length + 16, NULL, 10);
	/* To HEAD no body follows; then the next answer or nothing does. */
	if (body == end || (n > 0 && strncmp(body, "HTTP/1.1 ", 9) == 0))
		return body;
	claim(n <= (size_t)(end - body));
	char saved = body[n];
	body[n] = '\0';
	if (strstr(at, "application/json"))
		claim(json_is_valid(body));
	body[n] = saved;
	return body + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct client c;
	static const struct control_host host = {.group = "fuzz", .exe = "fuzz", .region = the_region};
	static bool is_prepared;
	int64_t now_ns = 2 * NS_PER_S;
	if (size < 3)
		return 0;
	if (!is_prepared)
		prepare();
	is_prepared = true;
	piece = 1u + data[0] * 16u;
	window = data[1] < 16 ? 64u + data[1] : SIZE_MAX;
	in = data + 3;
	in_len = size - 3;
	out_len = 0;
	c = (struct client){0};
	client_begin(&c, 0, data[2] == 255, now_ns);
	bool goes_on = true;
	/* Each step takes something in, sends something, or is over. */
	for (size_t steps = 0; goes_on && steps < size * 2 + 100000; steps++) {
		size_t left = in_len, sent = out_len;
		enum client_state was = c.state;
		goes_on = client_step(&c, &host, c.out_len ? POLLOUT : POLLIN, now_ns);
		if (goes_on && c.state == CLIENT_FOLLOWING) {
			for (int i = 0; i < 4 && goes_on; i++)
				goes_on = client_follow(&c, &host, now_ns);
			if (c.out_len == 0)
				break;
		}
		claim(!goes_on || left != in_len || sent != out_len || was != c.state || client_has_more(&c));
		claim(c.in_at <= c.in_len && c.in_len <= sizeof c.in && c.url_len <= CLIENT_URL_MAX);
	}
	claim(!goes_on || c.state == CLIENT_FOLLOWING);
	bool is_whole = c.out_len == 0, is_last = false;
	client_end(&c);
	if (out_len == 0 || !is_whole)
		return 0;
	for (char *at = out, *end = out + out_len; at < end;) {
		claim(!is_last);
		at = check_answer(at, end, &is_last);
	}
	return 0;
}
