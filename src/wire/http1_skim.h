/* HTTP/1 heads read plainly: a whole head in one piece, of the kind that nearly everybody sends, at some four
 * instructions an octet. Whatever is unusual is refused and left to llhttp; what is taken is read as llhttp reads it
 * (tests/unit/wire_http1.c and tests/fuzz/http1.c compare). Pure. */
#ifndef RESIL_WIRE_HTTP1_SKIM_H
#define RESIL_WIRE_HTTP1_SKIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What framing asks of a head. Numbers and flags are llhttp's. */
struct http1_head {
	uint64_t content_length;
	uint16_t status;
	uint16_t flags; /* of HTTP1_HEAD_FLAGS */
	uint8_t method; /* HTTP_GET... */
	bool is_new;	/* HTTP/1.1: kept open unless it says otherwise */
};

#define HTTP1_HEAD_FLAGS                                                                                               \
	(F_CONTENT_LENGTH | F_CHUNKED | F_TRANSFER_ENCODING | F_CONNECTION_CLOSE | F_CONNECTION_KEEP_ALIVE)

/* The length of the head at p, its blank line included; 0: not all there, or not plain. */
size_t http1_skim_request(const char *p, const char *end, struct http1_head *head);
size_t http1_skim_answer(const char *p, const char *end, struct http1_head *head);

/* For those who look closer at a whole head that framing has found. The value of a field (any case), without the blanks
 * around it; null: not there, or continued on another line. The first one of several. */
const char *http1_field(const char *head, size_t n, const char *name, size_t *length);
/* Of a request's head: the method and the target as they stand. */
bool http1_request_line(const char *head, size_t n, size_t *method_length, const char **target, size_t *target_length);

#endif
