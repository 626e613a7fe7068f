/* Where an answer ends in protocols that are not HTTP: RESP (Redis), PostgreSQL, MySQL. The octets of both directions
 * in; out comes whether an answer is whole, so that quiet is not taken for its end in its midst (A2). Pure: no system
 * call, no memory of its own, no clock, no lock. Octets may be cut anywhere; bodies are skipped by their length.
 *
 *   RESP        one value for each command; a push ('>') is none. Lost: inline commands, streamed values ('$?'), and
 *               commands after which values come unasked or not at all: SUBSCRIBE and its kin, MONITOR, SYNC, PSYNC,
 *               CLIENT REPLY.
 *   PostgreSQL  a ReadyForQuery for each Query, Sync and FunctionCall; for a start-up message or a password that, a
 *               request for (more) authentication or an error; one octet for a request for encryption (lost where
 *               granted). At CopyIn and CopyBoth the server waits: whole until the client ends its copy. What comes
 *               for a Flush alone is whole at the end of each message. Notices, parameters and notifications begin
 *               no answer.
 *   MySQL       commands are not read: whole means at the end of a packet, and nothing is ever awaited. Lost when the
 *               client asks for compression; when it asks for TLS, until that is seen from inside.
 *
 * Threads: one may send while another receives. A side that is fed by two at once, or by a signal handler in the midst
 * of a feed, is lost; a longjmp out of a feed, or a fork in its midst, leaves it so at the next. */
#ifndef RESIL_WIRE_RECORDS_H
#define RESIL_WIRE_RECORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum records_kind {
	RECORDS_NONE,
	RECORDS_RESP,
	RECORDS_POSTGRES,
	RECORDS_MYSQL,
};

enum records_at {
	RECORDS_MIDST,	 /* an answer has begun and is not whole, or others are owed still */
	RECORDS_WHOLE,	 /* what was owed has come */
	RECORDS_AWAITED, /* an answer is owed and none of it has come */
	RECORDS_LOST,	 /* not this protocol (any more): for ever */
};

struct records_side {
	uint32_t left; /* octets of the body still to come, or the number read so far */
	uint32_t
		items; /* RESP: values still to begin, at all depths; PostgreSQL: the code of an 'R', where in an 'E' */
	uint8_t mode, type, have, flags;
};

/* All zero: none. */
struct records {
	_Atomic uint32_t asked;	   /* answers owed since the beginning; the sender writes */
	_Atomic uint32_t answered; /* those that have come; the receiver writes. Ahead of `asked` where an answer was
				      told before its request */
	struct records_side sent, received;
	uint16_t names;			     /* RESP, sender: names of commands that the one in progress may become */
	_Atomic uint8_t singles, copies;     /* PostgreSQL, sender: single octets asked for; copies ended; modulo 256 */
	uint8_t singles_seen, copies_before; /* receiver: of those, answered; ended before the one in progress */
	_Atomic uint8_t is_sending, is_receiving;
	_Atomic uint8_t is_lost; /* both write, only ever 1 */
	uint8_t kind;
};
_Static_assert(sizeof(struct records) <= 48, "one a descriptor");

/* By the client's first octets: RESP needs the line `*N`, PostgreSQL 8 octets. */
enum records_kind records_of_client(const void *first, size_t n);
/* By the server's, where it spoke first: MySQL's greeting; 5 octets. */
enum records_kind records_of_server(const void *first, size_t n);

void records_init(struct records *r, enum records_kind kind);
/* Octets that went, from the first of the connection on (those that told the kind too). */
void records_sent(struct records *r, const void *bytes, size_t n);
enum records_at records_received(struct records *r, const void *bytes, size_t n);
/* The octets from here on are those inside of TLS: does the protocol that spoke in clear before go on there? True:
 * MySQL, whose client has asked for TLS; feed it on. */
bool records_go_inside(struct records *r);
/* PostgreSQL. What has come last is a step of the login (a request for authentication, its ReadyForQuery): nothing has
 * been asked for yet. By the receiver. */
bool records_is_opening(const struct records *r);
/* The server has said that it is there for nobody: FATAL of class 53 (no resources) or 57P (shut down, starting up). By
 * the receiver. */
bool records_is_away(const struct records *r);
/* Without new octets: after a request it is what records_received last said, or AWAITED. By the receiver. */
enum records_at records_now(const struct records *r);

#endif
