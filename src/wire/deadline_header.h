/* The time left, told to the server: one field `NAME: MILLISECONDS` a request, added to those that the app sends,
 * lowered where the app has set a larger one, never there twice (CONTRACT `deadline_header`). Pure.
 *
 *   find ──► vector ──► (the system call) ──► sent ──► http1_announce/_sent_only with the app's own count
 *
 * Framing is fed with the app's octets only: it knows nothing of what was added. Edits that a partial send did not
 * reach, or stopped in, are carried to the app's next send of that connection, whose octets go on where the app was
 * told it stopped. A request of which only a part of the head is in the buffer is left alone. */
#ifndef RESIL_WIRE_DEADLINE_HEADER_H
#define RESIL_WIRE_DEADLINE_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "wire/http1.h"

#define DEADLINE_HEADER_NAME_MAX 64
#define DEADLINE_HEADER_TEXT_MAX (DEADLINE_HEADER_NAME_MAX + 2 + 20 + 2)
/* Of one request; so many can be left to carry, and a connection needs no more room. */
#define DEADLINE_HEADER_CARRY 2
#define DEADLINE_HEADER_MAX (HTTP1_PENDING_MAX * DEADLINE_HEADER_CARRY)

struct deadline_header_edit {
	size_t at;	/* before that octet of the app's (counted from the first that it sends now) ... */
	size_t removed; /* ... and instead of so many of them ... */
	size_t request; /* (its request begins there; 0 once carried) */
	uint64_t ms;	/* ... this number ... */
	bool is_line;	/* ... or a whole field with it */
	bool is_carried;
	uint8_t gone; /* octets of that text sent already */
};

/* What to change in the first `limit` octets of the vector, in order. edits[0..carried) are those carried. Returns
 * their number, the carried ones included, at most DEADLINE_HEADER_MAX; 0: send it as it is. h is left as it was; not
 * framed: the carried ones only. */
int deadline_header_find(struct http1 *h, const struct iovec *iov, int count, size_t limit, const char *name,
	uint64_t left_ms, struct deadline_header_edit edits[DEADLINE_HEADER_MAX], int carried);

/* The text of an edit, whole. Returns its length; no 0 is put behind it. */
size_t deadline_header_text(
	const struct deadline_header_edit *edit, const char *name, char to[DEADLINE_HEADER_TEXT_MAX]);

/* The edited octets as a vector of at most `max` pieces (what does not fit is for the next send) with `text`, room for
 * n texts. Returns the number of pieces. */
int deadline_header_vector(const struct deadline_header_edit *edits, int n, const char *name, const struct iovec *iov,
	int count, size_t limit, struct iovec *out, int max, char (*text)[DEADLINE_HEADER_TEXT_MAX]);

/* `gone` octets of the edited ones have been sent: how many of the app's own that is, and in edits[0..*n) what is to be
 * carried. It can be 0 although octets went: those of an edit. */
size_t deadline_header_sent(struct deadline_header_edit *edits, int *n, const char *name, size_t limit, size_t gone);

#endif
