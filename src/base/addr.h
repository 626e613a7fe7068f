/* Where a connect goes, in one shape for all families. IPv4 is kept as a v4-mapped IPv6 address, so that Java's
 * AF_INET6 sockets and everybody else's AF_INET ones are the same destination. No allocation, no libc look-ups. */
#ifndef RESIL_BASE_ADDR_H
#define RESIL_BASE_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text.h"

enum addr_family { ADDR_NONE, ADDR_INET, ADDR_UNIX };

struct addr {
	uint8_t family;	  /* enum addr_family */
	uint8_t unix_len; /* ADDR_UNIX: bytes in path (abstract names start with '@' in place of the NUL) */
	uint16_t port;	  /* host order; ADDR_INET */
	uint32_t scope;	  /* IPv6 zone index of a link-local address, else 0 */
	union {
		uint8_t ip[16]; /* network order, v4-mapped for IPv4 */
		char path[108]; /* ADDR_UNIX, not NUL-terminated */
	};
};

/* The kernel says EFAULT to a bad pointer where we would fault. What no program can have mapped (the first pages, the
 * kernel's half) is left to it; any other bad one costs a system call to find out, on every call, and is not worth
 * that. */
static inline bool addr_may_be_mapped(const void *at)
{
	return (uintptr_t)at >= 0x10000 && (uintptr_t)at < 0x800000000000ull;
}
/* Reads a sockaddr; false for other families, short lengths and null pointers (the kernel then judges it). */
bool addr_from_sockaddr_otherwise(struct addr *a, const struct sockaddr *sa, socklen_t len);
static inline bool addr_from_sockaddr(struct addr *a, const struct sockaddr *sa, socklen_t len)
{
	struct sockaddr_in in;
	/* memcpy: callers hand in packed buffers. */
	if (!addr_may_be_mapped(sa) || len < (socklen_t)sizeof in)
		return addr_from_sockaddr_otherwise(a, sa, len);
	memcpy(&in, sa, sizeof in);
	if (in.sin_family != AF_INET)
		return addr_from_sockaddr_otherwise(a, sa, len);
	const uint32_t prefix[3] = {0, 0, htonl(0xffff)};
	/* Field by field: a connect that is rejected should not pay for clearing room for the longest path. */
	a->family = ADDR_INET;
	a->unix_len = 0;
	a->port = ntohs(in.sin_port);
	a->scope = 0;
	memcpy(a->ip, prefix, sizeof prefix);
	memcpy(a->ip + 12, &in.sin_addr, 4);
	return true;
}
/* An IP literal ("10.0.0.1", "fd00::1", "[fd00::1]", "fe80::1%2"); false when it is none. port is left 0. */
bool addr_from_literal(struct addr *a, const char *s);
bool addr_is_v4(const struct addr *a);
/* Same ip and scope (ADDR_INET), ports ignored. */
bool addr_same_host(const struct addr *a, const struct addr *b);
/* "10.0.0.1", "fd00::1" (RFC 5952), "unix:/path": host only. */
void addr_host_text(struct text *t, const struct addr *a);
/* "10.0.0.1:80", "[fd00::1]:80", "unix:/path". */
void addr_text(struct text *t, const struct addr *a);

#endif
