/* See sniff.h. */
#include "wire/sniff.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* As much of `word` as there is. */
static bool agrees(const unsigned char *p, size_t n, const char *word, size_t length)
{
	return memcmp(p, word, n < length ? n : length) == 0;
}

#define TLS_HANDSHAKE 22
#define TLS_CLIENT_HELLO 1

/* type, version 3.x, length (2), then the handshake's type and length (3), version 3.x. */
static enum sniff client_hello(const unsigned char *p, size_t n)
{
	if ((n > 1 && p[1] != 3) || (n > 2 && p[2] > 4) || (n > 5 && p[5] != TLS_CLIENT_HELLO))
		return SNIFF_UNKNOWN;
	return n < 6 ? SNIFF_MORE : SNIFF_TLS;
}

/* A method of llhttp's, a blank, and the beginning of a target. Any upper-case word might be one of another protocol's
 * ("PING\r\n", "EHLO a"): a target begins with a slash, an asterisk, or is a URL or an authority. */
static enum sniff request_line(const unsigned char *p, size_t n)
{
#define METHOD(name)                                                                                                   \
	{                                                                                                              \
		sizeof name - 1, name                                                                                  \
	}
	static const struct {
		uint8_t length;
		char name[12];
	} methods[] = {METHOD("GET"), METHOD("POST"), METHOD("HEAD"), METHOD("PUT"), METHOD("DELETE"), METHOD("PATCH"),
		METHOD("OPTIONS"), METHOD("CONNECT"), METHOD("TRACE"), METHOD("COPY"), METHOD("LOCK"), METHOD("MKCOL"),
		METHOD("MOVE"), METHOD("PROPFIND"), METHOD("PROPPATCH"), METHOD("SEARCH"), METHOD("UNLOCK"),
		METHOD("BIND"), METHOD("REBIND"), METHOD("UNBIND"), METHOD("ACL"), METHOD("REPORT"),
		METHOD("MKACTIVITY"), METHOD("CHECKOUT"), METHOD("MERGE"), METHOD("M-SEARCH"), METHOD("NOTIFY"),
		METHOD("SUBSCRIBE"), METHOD("UNSUBSCRIBE"), METHOD("PURGE"), METHOD("MKCALENDAR"), METHOD("LINK"),
		METHOD("UNLINK"), METHOD("SOURCE")};
	bool may_become = false;

	if (p[0] < 'A' || p[0] > 'Z')
		return SNIFF_UNKNOWN;
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		size_t length = methods[i].length;
		if (p[0] != (unsigned char)methods[i].name[0] || !agrees(p, n, methods[i].name, length))
			continue;
		if (n < length + 2) {
			may_become |= n <= length || p[length] == ' ';
			continue;
		}
		if (p[length] != ' ')
			continue;
		const unsigned char *target = p + length + 1;
		if (*target == '/' || (*target == '*' && strcmp(methods[i].name, "OPTIONS") == 0))
			return SNIFF_HTTP1;
		if (strcmp(methods[i].name, "CONNECT") == 0)
			return *target > ' ' && *target < 0x7f ? SNIFF_HTTP1 : SNIFF_UNKNOWN;
		/* To a proxy. */
		if (!agrees(target, n - length - 1, "http", 4))
			return SNIFF_UNKNOWN;
		return n - length - 1 < 4 ? SNIFF_MORE : SNIFF_HTTP1;
	}
	return may_become ? SNIFF_MORE : SNIFF_UNKNOWN;
}

enum sniff sniff_client(const void *first, size_t n)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	const unsigned char *p = first;

	if (n == 0)
		return SNIFF_MORE;
	if (p[0] == TLS_HANDSHAKE)
		return client_hello(p, n);
	if (p[0] == (unsigned char)preface[0] && agrees(p, n, preface, sizeof preface - 1))
		return n < sizeof preface - 1 ? SNIFF_MORE : SNIFF_H2;
	return request_line(p, n);
}

enum sniff sniff_server(const void *first, size_t n)
{
	bool is_ssh = agrees(first, n, "SSH-", 4), is_vnc = agrees(first, n, "RFB ", 4);

	if (n >= 4)
		return is_ssh || is_vnc ? SNIFF_STREAM : SNIFF_UNKNOWN;
	return n == 0 || is_ssh || is_vnc ? SNIFF_MORE : SNIFF_UNKNOWN;
}
