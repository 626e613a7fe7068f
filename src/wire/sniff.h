/* What a connection speaks, by its first octets (A11, A12). Pure. The client's settle it; the server's only tell a
 * banner. */
#ifndef RESIL_WIRE_SNIFF_H
#define RESIL_WIRE_SNIFF_H

#include <stddef.h>

enum sniff {
	SNIFF_MORE,    /* too few octets: ask again with those before and those after */
	SNIFF_UNKNOWN, /* none of these */
	SNIFF_HTTP1,   /* a request line */
	SNIFF_H2,      /* the preface */
	SNIFF_TLS,     /* a ClientHello */
	SNIFF_STREAM,  /* a banner of SSH or VNC: a stream without calls */
};

/* So many of the first octets always suffice. */
#define SNIFF_CLIENT_MAX 24
#define SNIFF_SERVER_MAX 4

enum sniff sniff_client(const void *first, size_t n);
enum sniff sniff_server(const void *first, size_t n);

#endif
