/* See addr.h. Pure functions on the caller's memory: any thread, signal handlers included. Reading literals is left to
 * inet_pton, which takes neither locks nor locale; writing is our own, since glibc's inet_ntop goes through sprintf. */
#include "base/addr.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/un.h>

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* fe80::/10 and the link-local multicast ff02::/16: the only addresses whose zone says where they are. */
static bool ip_has_zone(const uint8_t ip[16])
{
	return (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80) || (ip[0] == 0xff && (ip[1] & 0x0f) == 0x02);
}

static bool addr_from_unix(struct addr *a, const struct sockaddr *sa, socklen_t len)
{
	if (len <= offsetof(struct sockaddr_un, sun_path) || len > sizeof(struct sockaddr_un))
		return false;
	size_t n = len - offsetof(struct sockaddr_un, sun_path);
	const char *path = (const char *)sa + offsetof(struct sockaddr_un, sun_path);

	if (path[0] != '\0') {
		n = strnlen(path, n);
		memcpy(a->path, path, n);
	} else {
		memcpy(a->path, path, n);
		a->path[0] = '@';
	}
	a->family = ADDR_UNIX;
	a->unix_len = (uint8_t)n;
	return true;
}

bool addr_from_sockaddr_otherwise(struct addr *a, const struct sockaddr *sa, socklen_t len)
{
	if (!addr_may_be_mapped(sa) || len < (socklen_t)sizeof(sa_family_t))
		return false;
	/* Field by field: a connect that is rejected should not pay for clearing room for the longest path. */
	a->family = ADDR_NONE;
	a->unix_len = 0;
	a->port = 0;
	a->scope = 0;

	/* memcpy: callers hand in packed buffers. */
	sa_family_t family;
	memcpy(&family, (const char *)sa + offsetof(struct sockaddr, sa_family), sizeof family);
	if (family == AF_INET6) {
		/* The kernel takes the 24 octets of RFC 2133, without the zone, as well. */
		struct sockaddr_in6 in6 = {.sin6_scope_id = 0};
		socklen_t least = offsetof(struct sockaddr_in6, sin6_scope_id);
		if (len < least)
			return false;
		memcpy(&in6, sa, len < (socklen_t)sizeof in6 ? least : sizeof in6);
		memcpy(a->ip, &in6.sin6_addr, 16);
		a->port = ntohs(in6.sin6_port);
		a->scope = ip_has_zone(a->ip) ? in6.sin6_scope_id : 0;
		a->family = ADDR_INET;
		return true;
	}
	return family == AF_UNIX && addr_from_unix(a, sa, len);
}

/* Digits only, no sign, no blanks. */
static bool zone_from_text(uint32_t *zone, const char *s)
{
	uint64_t v = 0;
	if (!*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		v = v * 10 + (uint64_t)(*s - '0');
		if (v > UINT32_MAX)
			return false;
	}
	*zone = (uint32_t)v;
	return true;
}

bool addr_from_literal(struct addr *a, const char *s)
{
	char host[INET6_ADDRSTRLEN + 12];
	size_t n = strlen(s);
	bool is_bracketed = n >= 2 && s[0] == '[' && s[n - 1] == ']';
	if (is_bracketed) {
		s++;
		n -= 2;
	}
	if (n == 0 || n >= sizeof host)
		return false;
	memcpy(host, s, n);
	host[n] = '\0';

	memset(a, 0, sizeof *a);
	if (!is_bracketed && inet_pton(AF_INET, host, a->ip + 12) == 1) {
		memcpy(a->ip, v4_prefix, sizeof v4_prefix);
		a->family = ADDR_INET;
		return true;
	}
	uint32_t zone = 0;
	char *percent = strchr(host, '%');
	if (percent) {
		*percent = '\0';
		if (!zone_from_text(&zone, percent + 1))
			return false;
	}
	if (inet_pton(AF_INET6, host, a->ip) != 1)
		return false;
	if (percent && !ip_has_zone(a->ip))
		return false;
	a->scope = zone;
	a->family = ADDR_INET;
	return true;
}

bool addr_is_v4(const struct addr *a)
{
	return a->family == ADDR_INET && memcmp(a->ip, v4_prefix, sizeof v4_prefix) == 0;
}

bool addr_same_host(const struct addr *a, const struct addr *b)
{
	if (a->family != b->family)
		return false;
	if (a->family == ADDR_UNIX)
		return a->unix_len == b->unix_len && memcmp(a->path, b->path, a->unix_len) == 0;
	return a->family == ADDR_INET && a->scope == b->scope && memcmp(a->ip, b->ip, 16) == 0;
}

static void v4_text(struct text *t, const uint8_t ip[4])
{
	for (int i = 0; i < 4; i++) {
		if (i > 0)
			text_char(t, '.');
		text_u64(t, ip[i]);
	}
}

static void group_text(struct text *t, unsigned group)
{
	bool has_begun = false;
	for (int shift = 12; shift >= 0; shift -= 4) {
		unsigned digit = (group >> shift) & 15;
		has_begun |= digit != 0 || shift == 0;
		if (has_begun)
			text_char(t, "0123456789abcdef"[digit]);
	}
}

/* RFC 5952: lower case, no leading zeros, the longest run of two or more zero groups (the first of equals) as `::`. */
static void v6_text(struct text *t, const uint8_t ip[16])
{
	unsigned group[8];
	int best = -1, best_len = 1;
	for (int i = 0, run = 0; i < 8; i++) {
		group[i] = (unsigned)ip[0] << 8 | ip[1];
		ip += 2;
		run = group[i] == 0 ? run + 1 : 0;
		if (run > best_len) {
			best_len = run;
			best = i - run + 1;
		}
	}
	for (int i = 0; i < 8; i++) {
		if (i == best) {
			text_str(t, "::");
			i += best_len - 1;
			continue;
		}
		if (i > 0 && i != best + best_len)
			text_char(t, ':');
		group_text(t, group[i]);
	}
}

/* NULs of abstract names as '@', like /proc/net/unix; other control bytes as '?': the text goes to terminals. */
static void unix_text(struct text *t, const struct addr *a)
{
	text_str(t, "unix:");
	for (size_t i = 0; i < a->unix_len; i++) {
		unsigned char c = (unsigned char)a->path[i];
		text_char(t, c == 0 ? '@' : c < 0x20 || c == 0x7f ? '?' : (char)c);
	}
}

void addr_host_text(struct text *t, const struct addr *a)
{
	if (a->family == ADDR_UNIX) {
		unix_text(t, a);
	} else if (addr_is_v4(a)) {
		v4_text(t, a->ip + 12);
	} else if (a->family == ADDR_INET) {
		v6_text(t, a->ip);
		if (a->scope) {
			text_char(t, '%');
			text_u64(t, a->scope);
		}
	}
}

void addr_text(struct text *t, const struct addr *a)
{
	bool has_brackets = a->family == ADDR_INET && !addr_is_v4(a);
	if (has_brackets)
		text_char(t, '[');
	addr_host_text(t, a);
	if (has_brackets)
		text_char(t, ']');
	if (a->family == ADDR_INET) {
		text_char(t, ':');
		text_u64(t, a->port);
	}
}
