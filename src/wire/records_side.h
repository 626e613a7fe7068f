/* The midst of a feed, for records.c and records_resp.c alone. Both sides of all protocols share the modes; what a mode
 * leads to is the protocol's.
 *
 *   RESP        START ─ type ─► LINE ─► LINE_LF ─► START              + - : _ , # (
 *                           ─► NUMBER ─► NUMBER_LF ─► START           aggregates: `items` grows
 *                                                  ─► BODY ─► BODY_CR ─► BODY_LF ─► START
 *   PostgreSQL  START ─ type ─► LENGTH ─► (CODE) ─► BODY ─► START     start-ups have no type
 *   MySQL       START ─► LENGTH ─► BODY ─► START                      received
 *
 * ENDED: the client has sent a cancel request. Of MySQL's client the first 8 octets alone are read. */
#ifndef RESIL_WIRE_RECORDS_SIDE_H
#define RESIL_WIRE_RECORDS_SIDE_H

#include <stdbool.h>

#include "wire/records.h"

enum mode { START, LINE, LINE_LF, NUMBER, NUMBER_LF, BODY, BODY_CR, BODY_LF, LENGTH, CODE, ENDED };

enum {
	/* received */
	ASIDE = 1,	/* the record in progress begins no answer */
	BEGUN = 2,	/* some of what is owed has come */
	COPYING = 4,	/* PostgreSQL: between CopyIn or CopyBoth and the next ReadyForQuery */
	STARTED = 8,	/* PostgreSQL: a ReadyForQuery was seen; sender: typed messages from here on */
	CONTINUED = 16, /* MySQL: a packet of the largest size goes on in the next */
	NEGATIVE = 32,	/* RESP: the number in progress */
	OPENING = 32,	/* PostgreSQL: a step of the login came last */
	FATAL = 64,	/* PostgreSQL: the error in progress ends the session */
	AWAY = 128,	/* PostgreSQL: and is of class 53 or 57P */
	/* sent, RESP */
	IN_NAME = 64,	 /* the next argument is the command's name */
	IN_CLIENT = 128, /* the next argument is what CLIENT is to do */
};

#define RESP_DIGITS_MAX 10

/* Release: with the count the receiver sees what was written before it. */
static inline void ask(struct records *r)
{
	atomic_fetch_add_explicit(&r->asked, 1, memory_order_release);
}

static inline uint32_t owed(const struct records *r)
{
	uint32_t difference = atomic_load_explicit(&r->asked, memory_order_acquire) -
			      atomic_load_explicit(&r->answered, memory_order_relaxed);
	return (int32_t)difference > 0 ? difference : 0;
}

static inline void answer(struct records *r)
{
	atomic_fetch_add_explicit(&r->answered, 1, memory_order_relaxed);
	if (owed(r) == 0)
		r->received.flags &= (uint8_t)~BEGUN;
}

static inline void begin(struct records_side *side, bool is_aside)
{
	side->flags = is_aside ? side->flags | ASIDE : (side->flags & (uint8_t)~ASIDE) | BEGUN;
}

/* False: lost. */
bool records_resp_feed(struct records *r, bool is_client, const unsigned char *p, const unsigned char *end);

#endif
