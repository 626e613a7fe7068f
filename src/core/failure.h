/* Failure kinds (A14): one row a kind; enum, names and metrics labels come from here. */
#ifndef RESIL_CORE_FAILURE_H
#define RESIL_CORE_FAILURE_H

#include <stdbool.h>
#include <stddef.h>

/* X(ENUMERATOR, "name", counts by default) */
/* clang-format off */
#define FAILURE_KINDS(X)                                                                                               \
	X(REFUSED, "refused", 1)                                                                                       \
	X(UNREACHABLE, "unreachable", 1)                                                                               \
	X(CONNECT_TIMEOUT, "connect_timeout", 1)                                                                       \
	X(RESET, "reset", 1)                                                                                           \
	X(EOF, "eof", 1)                                                                                               \
	X(ANSWER_TIMEOUT, "answer_timeout", 1)                                                                         \
	X(STALL_TIMEOUT, "stall_timeout", 1)                                                                           \
	X(DEADLINE, "deadline", 1)                                                                                     \
	X(ABANDONED, "abandoned", 1)                                                                                   \
	X(TLS, "tls", 1)                                                                                               \
	X(DNS, "dns", 0)                                                                                               \
	X(HTTP_GATEWAY, "http_gateway", 1)                                                                             \
	X(HTTP_5XX, "http_5xx", 0)                                                                                     \
	X(GRPC, "grpc", 1)                                                                                             \
	X(PROBE_TIMEOUT, "probe_timeout", 1)
/* clang-format on */

enum failure_kind {
#define X(name, text, counts) FAILURE_##name,
	FAILURE_KINDS(X)
#undef X
		FAILURE_KIND_COUNT
};

const char *failure_name(enum failure_kind kind);
/* The kind of n bytes, or -1. */
int failure_by_name(const char *name, size_t n);

/* What an errno of connect (returned, by SO_ERROR, or by the first I/O) says of the destination. */
enum connect_news {
	CONNECT_LOCAL,	/* local trouble, neutral (A6) */
	CONNECT_FAILED, /* the destination's, *kind set */
};
/* err: positive errno. has_route: false when ENETUNREACH comes from a host without any route (A6). */
enum connect_news failure_of_connect(int err, bool has_route, enum failure_kind *kind);

#endif
