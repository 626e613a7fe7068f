/* See failure.h. Tables only: no state, any thread. */
#include "core/failure.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = {
#define X(name, text, counts) [FAILURE_##name] = text,
	FAILURE_KINDS(X)
#undef X
};

const char *failure_name(enum failure_kind kind)
{
	return (unsigned)kind < FAILURE_KIND_COUNT ? names[kind] : "unknown";
}

int failure_by_name(const char *name, size_t n)
{
	for (int kind = 0; kind < FAILURE_KIND_COUNT; kind++)
		if (strlen(names[kind]) == n && memcmp(names[kind], name, n) == 0)
			return kind;
	return -1;
}

enum connect_news failure_of_connect(int err, bool has_route, enum failure_kind *kind)
{
	switch (err) {
	case ECONNREFUSED:
	case ENOENT: /* a unix socket that its server took away: nobody listens there */
		*kind = FAILURE_REFUSED;
		return CONNECT_FAILED;
	case ENETUNREACH:
		if (!has_route)
			return CONNECT_LOCAL;
		/* fall through */
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENONET: /* ICMP "host isolated" */
	case ENOPROTOOPT: /* ICMP "protocol unreachable" */ *kind = FAILURE_UNREACHABLE; return CONNECT_FAILED;
	case ETIMEDOUT: *kind = FAILURE_CONNECT_TIMEOUT; return CONNECT_FAILED;
	case ECONNRESET:
	case ECONNABORTED:
	case EPIPE: *kind = FAILURE_RESET; return CONNECT_FAILED;
	default:
		/* EMFILE, ENOBUFS, EADDRNOTAVAIL, EACCES, EINTR...: says nothing of the other side (A6). What is not
		 * known is not held against it either. */
		return CONNECT_LOCAL;
	}
}
