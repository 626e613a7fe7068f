/* What the tests of the control room share: a strict JSON reader and a small HTTP client on a unix socket. */
#ifndef RESIL_TESTS_CONTROL_HELP_H
#define RESIL_TESTS_CONTROL_HELP_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

/* ---- JSON (RFC 8259) ---- */

static const char *json_value(const char *p, int depth);

static const char *json_space(const char *p)
{
	return p + strspn(p, " \t\r\n");
}

static const char *json_string(const char *p)
{
	if (*p++ != '"')
		return NULL;
	for (; *p != '"'; p++) {
		if ((unsigned char)*p < 0x20)
			return NULL;
		if (*p == '\\') {
			p++;
			if (*p == 'u' && strspn(p + 1, "0123456789abcdefABCDEF") >= 4)
				p += 4;
			else if (*p == '\0' || !strchr("\"\\/bfnrt", *p))
				return NULL;
		}
	}
	return p + 1;
}

static const char *json_list(const char *p, char end, int depth)
{
	p = json_space(p + 1);
	if (*p == end)
		return p + 1;
	for (;;) {
		if (end == '}') {
			p = json_string(p);
			if (!p || *(p = json_space(p)) != ':')
				return NULL;
			p++;
		}
		p = json_value(json_space(p), depth + 1);
		if (!p)
			return NULL;
		p = json_space(p);
		if (*p == end)
			return p + 1;
		if (*p++ != ',')
			return NULL;
		p = json_space(p);
	}
}

static const char *json_number(const char *p)
{
	p += *p == '-';
	if (*p == '0')
		p++;
	else if (*p >= '1' && *p <= '9')
		p += strspn(p, "0123456789");
	else
		return NULL;
	if (*p == '.') {
		size_t n = strspn(p + 1, "0123456789");
		if (n == 0)
			return NULL;
		p += n + 1;
	}
	return p;
}

static const char *json_value(const char *p, int depth)
{
	if (depth > 32)
		return NULL;
	if (*p == '{')
		return json_list(p, '}', depth);
	if (*p == '[')
		return json_list(p, ']', depth);
	if (*p == '"')
		return json_string(p);
	if (strncmp(p, "true", 4) == 0 || strncmp(p, "null", 4) == 0)
		return p + 4;
	if (strncmp(p, "false", 5) == 0)
		return p + 5;
	return json_number(p);
}

/* Exactly one value. */
__attribute__((unused)) static bool json_is_valid(const char *s)
{
	const char *end = json_value(json_space(s), 0);
	return end && *json_space(end) == '\0';
}

/* ---- the client ---- */

static int64_t help_limit_ns = 20 * NS_PER_S; /* whatever waits longer is hanging */

__attribute__((unused)) static int http_connect(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&sa, sizeof sa) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

__attribute__((unused)) static bool http_send(int fd, const char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
		if (sent <= 0)
			return false;
		bytes += sent;
		n -= (size_t)sent;
	}
	return true;
}

/* Reads until `is_enough` says so, the peer closes, or the time is up. Returns the length; *closed tells. */
__attribute__((unused)) static size_t http_read(
	int fd, char *to, size_t cap, bool (*is_enough)(const char *text, size_t n), bool *closed)
{
	size_t n = 0;
	int64_t until_ns = clock_now_ns() + help_limit_ns;
	*closed = false;
	to[0] = '\0';
	while (n + 1 < cap && !(is_enough && is_enough(to, n))) {
		int64_t left_ms = (until_ns - clock_now_ns()) / NS_PER_MS;
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (left_ms <= 0 || poll(&p, 1, (int)left_ms) <= 0)
			break;
		ssize_t got = recv(fd, to + n, cap - 1 - n, 0);
		if (got <= 0) {
			*closed = true;
			break;
		}
		n += (size_t)got;
		to[n] = '\0';
	}
	return n;
}

/* One whole answer by Content-Length (or, to HEAD, its head). */
__attribute__((unused)) static bool http_is_whole(const char *text, size_t n)
{
	const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
	if (!end)
		return false;
	return !length || length > end || n >= (size_t)(end + 4 - text) + strtoul(length + 16, NULL, 10);
}

__attribute__((unused)) static int http_status(const char *answer)
{
	return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}

__attribute__((unused)) static const char *http_body(const char *answer)
{
	const char *end = strstr(answer, "\r\n\r\n");
	return end ? end + 4 : "";
}

/* A request on a connection of its own; the answer into `answer`. Returns the status, 0: none. */
__attribute__((unused)) static int http_ask(
	const char *path, const char *method, const char *target, char *answer, size_t cap)
{
	char request[4096];
	bool closed;
	int fd = http_connect(path);
	answer[0] = '\0';
	if (fd < 0)
		return 0;
	int n = snprintf(
		request, sizeof request, "%s %s HTTP/1.1\r\nHost: resil\r\nConnection: close\r\n\r\n", method, target);
	if (http_send(fd, request, (size_t)n))
		http_read(fd, answer, cap, NULL, &closed);
	close(fd);
	return http_status(answer);
}

#endif
