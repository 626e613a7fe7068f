/* Addresses (base/addr.h): sockaddrs of every length, literals, and their text by RFC 5952, against inet_pton and
 * inet_ntop. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/un.h>

#include "base/addr.h"
#include "tap.h"

static const char *text_of(const struct addr *a, bool with_port)
{
	static char bytes[200];
	struct text t = TEXT_ON(bytes);
	bytes[0] = '\0';
	(with_port ? addr_text : addr_host_text)(&t, a);
	return bytes;
}

static void literal(const char *s, const char *want)
{
	struct addr a;
	bool is_one = addr_from_literal(&a, s);
	const char *got = is_one ? text_of(&a, false) : "none";
	if (!tap_ok(strcmp(got, want ? want : "none") == 0 && (!is_one || a.port == 0), "literal '%s': %s", s,
		    want ? want : "none"))
		printf("# got %s\n", got);
}

static void test_literals(void)
{
	literal("10.0.0.1", "10.0.0.1");
	literal("0.0.0.0", "0.0.0.0");
	literal("255.255.255.255", "255.255.255.255");
	literal("fd00::1", "fd00::1");
	literal("[fd00::1]", "fd00::1");
	literal("FD00:0:0:0:0:0:0:1", "fd00::1");
	literal("::", "::");
	literal("::1", "::1");
	literal("1::", "1::");
	literal("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1");
	literal("2001:0:0:1:0:0:0:1", "2001:0:0:1::1");
	literal("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1");
	literal("1:0:0:2:3:4:0:0", "1::2:3:4:0:0");
	literal("::ffff:10.0.0.1", "10.0.0.1");
	literal("fe80::1%2", "fe80::1%2");
	literal("fe80::1%4294967295", "fe80::1%4294967295");
	literal("ff02::1%7", "ff02::1%7");
	literal("fe80::1%4294967296", NULL);
	literal("fe80::1%", NULL);
	literal("fe80::1%eth0", NULL);
	literal("fd00::1%2", NULL);
	literal("10.0.0.1%2", NULL);
	literal("[10.0.0.1]", NULL);
	literal("[fd00::1", NULL);
	literal("fd00::1]", NULL);
	literal("", NULL);
	literal("[]", NULL);
	literal("10.0.0", NULL);
	literal("10.0.0.1 ", NULL);
	literal("010.0.0.1", NULL);
	literal("localhost", NULL);
	literal("1:2:3:4:5:6:7:8:9", NULL);
	literal("0000000000000000000000000000000000000000000000000000000000000001", NULL);
}

/* Every address of 2^8 patterns of zero groups reads back as itself, and the text is inet_ntop's. */
static void test_against_libc(void)
{
	static const uint16_t fill[] = {0x1, 0xfd00, 0xa0b, 0x100};
	for (unsigned mask = 0; mask < 256; mask++) {
		for (unsigned f = 0; f < 4; f++) {
			struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(443)};
			char want[INET6_ADDRSTRLEN];
			struct addr a, back;
			for (unsigned i = 0; i < 8; i++) {
				uint16_t group = mask & (1u << i) ? fill[(f + i) % 4] : 0;
				in6.sin6_addr.s6_addr[2 * i] = (uint8_t)(group >> 8);
				in6.sin6_addr.s6_addr[2 * i + 1] = (uint8_t)group;
			}
			inet_ntop(AF_INET6, &in6.sin6_addr, want, sizeof want);
			tap_expect(addr_from_sockaddr(&a, (struct sockaddr *)&in6, sizeof in6), "%s is read", want);
			tap_expect(addr_from_literal(&back, text_of(&a, false)) && addr_same_host(&a, &back),
				"%s reads back", want);
			/* inet_ntop shows ::a.b.c.d for the long deprecated compatible addresses; RFC 5952 does not ask
			 * for it. */
			if (!strchr(want, '.'))
				tap_expect(
					strcmp(text_of(&a, false), want) == 0, "%s, not %s", want, text_of(&a, false));
		}
	}
	tap_all("RFC 5952: every pattern of zero groups");
}

static void test_inet(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(80)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(80), .sin6_scope_id = 5};
	struct addr a, b;
	inet_pton(AF_INET, "10.0.0.1", &in.sin_addr);
	inet_pton(AF_INET6, "::ffff:10.0.0.1", &in6.sin6_addr);
	tap_ok(addr_from_sockaddr(&a, (struct sockaddr *)&in, sizeof in) &&
			strcmp(text_of(&a, true), "10.0.0.1:80") == 0,
		"IPv4 with its port");
	tap_ok(addr_from_sockaddr(&b, (struct sockaddr *)&in6, sizeof in6) && addr_is_v4(&b) &&
			addr_same_host(&a, &b) && b.scope == 0 && a.port == b.port,
		"Java's v4-mapped address is the same");
	inet_pton(AF_INET6, "fe80::1", &in6.sin6_addr);
	tap_ok(addr_from_sockaddr(&b, (struct sockaddr *)&in6, sizeof in6) && b.scope == 5 &&
			strcmp(text_of(&b, true), "[fe80::1%5]:80") == 0,
		"a zone is kept");
	tap_ok(addr_from_sockaddr(&b, (struct sockaddr *)&in6, 24) && b.scope == 0, "RFC 2133's 24 octets have none");
	tap_ok(!addr_from_sockaddr(&b, (struct sockaddr *)&in6, 23), "23 octets are too short");
	inet_pton(AF_INET6, "fd00::1", &in6.sin6_addr);
	tap_ok(addr_from_sockaddr(&b, (struct sockaddr *)&in6, sizeof in6) && b.scope == 0,
		"a zone of a global address says nothing");
	tap_ok(!addr_from_sockaddr(&b, (struct sockaddr *)&in, 15), "15 octets are no IPv4");
	tap_ok(!addr_from_sockaddr(&b, NULL, 16) && !addr_from_sockaddr(&b, (struct sockaddr *)&in, 0) &&
			!addr_from_sockaddr(&b, (struct sockaddr *)&in, 1),
		"null and nothing are none");
	in.sin_family = AF_UNSPEC;
	tap_ok(!addr_from_sockaddr(&b, (struct sockaddr *)&in, sizeof in), "AF_UNSPEC is none");
	in.sin_family = AF_NETLINK;
	tap_ok(!addr_from_sockaddr(&b, (struct sockaddr *)&in, sizeof in), "other families are none");

	char packed[sizeof in + 1];
	in.sin_family = AF_INET;
	memcpy(packed + 1, &in, sizeof in);
	tap_ok(addr_from_sockaddr(&b, (struct sockaddr *)(void *)(packed + 1), sizeof in) && addr_same_host(&a, &b),
		"an odd place in memory is no matter");
}

static void test_unix(void)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/run/app.sock"};
	socklen_t head = offsetof(struct sockaddr_un, sun_path);
	struct addr a, b;
	tap_ok(addr_from_sockaddr(&a, (struct sockaddr *)&un, sizeof un) && a.unix_len == 13 &&
			strcmp(text_of(&a, true), "unix:/run/app.sock") == 0,
		"a path ends at its NUL");
	tap_ok(addr_from_sockaddr(&b, (struct sockaddr *)&un, head + 13) && addr_same_host(&a, &b), "or at the length");
	tap_ok(!addr_from_sockaddr(&b, (struct sockaddr *)&un, head), "an unnamed one is none");
	memset(un.sun_path, 'x', sizeof un.sun_path);
	tap_ok(addr_from_sockaddr(&b, (struct sockaddr *)&un, sizeof un) && b.unix_len == 108,
		"108 bytes without a NUL fit");
	tap_ok(!addr_from_sockaddr(&b, (struct sockaddr *)&un, sizeof un + 1), "longer than any is none");
	memcpy(un.sun_path, "\0a\0b\n", 5);
	tap_ok(addr_from_sockaddr(&b, (struct sockaddr *)&un, head + 5) && b.unix_len == 5 &&
			memcmp(b.path, "@a\0b\n", 5) == 0 && strcmp(text_of(&b, false), "unix:@a@b?") == 0,
		"abstract names begin with @, and show no control bytes");
	tap_ok(!addr_same_host(&a, &b), "and are others");
}

int main(void)
{
	test_literals();
	test_against_libc();
	test_inet();
	test_unix();
	return tap_done();
}
