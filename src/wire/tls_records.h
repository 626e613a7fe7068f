/* TLS from outside: what the records of a connection say of it without their keys (A9, A10), of the client's side. The
 * octets of both directions in; flags out. Pure: no system call, no memory of its own, no clock, no lock. Octets may be
 * cut anywhere; bodies are skipped by their length, all but the hellos.
 *
 *   up to TLS 1.2  handshake, alerts and data are told by type; whole when both sides have sent ChangeCipherSpec and a
 *                  record of the handshake after it.
 *   TLS 1.3        from the ServerHello on all is of type "application data". The client's own Finished ends its
 *                  handshake, and is known by its length, which the cipher's hash gives; where it shares a record with
 *                  others (a certificate), the next record of the server's ends it.
 *
 * What cannot be known, and is told so: records of one length that are the first of the server's after a 1.3 handshake
 * may be tickets or an answer (MAYBE, four at most: shorter than 60 octets or longer than 4,096 none is); one as long
 * as an alert may be any (`is_alone`, when nothing else came). Of 0-RTT it is known that it was sent (`has_early`): its
 * answer may come before the handshake is whole, and is then not told.
 *
 * Threads: one may send while another receives; a side fed twice at once is lost. */
#ifndef RESIL_WIRE_TLS_RECORDS_H
#define RESIL_WIRE_TLS_RECORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define TLS_RANDOM 32
#define TLS_NAME_MAX 255

/* What a feed has told: any of these. */
enum tls_told {
	TLS_HELLO = 1 << 0,    /* the ClientHello is whole: random, name and offers are known */
	TLS_COMPLETE = 1 << 1, /* the handshake is whole, as far as this side can wait for it */
	TLS_DATA = 1 << 2,     /* the application's octets */
	TLS_MAYBE = 1 << 3,    /* received: a ticket, or an answer */
	TLS_REFUSED = 1 << 4,  /* a fatal alert inside the handshake, of either side */
	TLS_TURN = 1 << 5,     /* received: all of the server's flight is here, the client is to go on */
	TLS_LOST = 1 << 6,     /* not TLS (any more): for ever */
};

/* A hello in the midst of its octets. */
struct tls_hello {
	uint32_t left;	    /* of the message */
	uint16_t part_left; /* of the part in progress */
	uint16_t number;    /* read so far */
	uint16_t extension; /* its type */
	uint16_t at;	    /* octets of its body that have passed */
	uint16_t name_left; /* of the name in it */
	uint8_t stage;
	uint8_t have; /* octets of the number, of the message's head */
	uint8_t type; /* of the message */
	bool agrees;  /* what is in progress is "h2" so far; a host's name */
};

struct tls_side {
	uint16_t left; /* of the record's body */
	uint16_t length;
	uint8_t have; /* octets of its header */
	uint8_t type;
	bool is_changed;  /* ChangeCipherSpec has passed */
	bool is_finished; /* up to 1.2: and a record of the handshake after it. 1.3, sender: its Finished */
	bool has_sealed;  /* 1.3: a record under keys has passed */
	bool is_data;	  /* the record in progress is the application's */
	bool is_clear;	  /* it is not under keys */
	uint8_t alert;	  /* its level, read in clear */
	struct tls_hello hello;
};

struct tls_records {
	struct tls_side sent, received;
	uint8_t random[TLS_RANDOM]; /* the client's */
	uint8_t name_length;
	char name[TLS_NAME_MAX]; /* the server's, as the client has it (SNI); not ended by a zero */
	uint16_t suite;
	bool is_13, offers_h2, has_h2; /* has_h2: the server's choice, where it is to be seen (1.2) */
	bool is_alone;		       /* received: one record as long as an alert, and nothing else */
	uint8_t tickets;	       /* records of ticket_length, so far */
	uint16_t ticket_length;
	bool has_early;	   /* sent: the application's, before the server had said anything */
	bool has_answered; /* received: a record that is the application's for certain */
	_Atomic uint8_t has_hello, is_complete, is_lost;
	_Atomic uint8_t is_sending, is_receiving;
};

/* Where the sending side stood before an announcement. */
struct tls_mark {
	struct tls_side sent;
	uint8_t name_length, has_hello, is_complete;
	bool offers_h2;
};

void tls_records_init(struct tls_records *t);
/* Before the system call: the first `limit` octets are about to be sent. */
unsigned tls_records_announce(
	struct tls_records *t, const struct iovec *iov, int count, size_t limit, struct tls_mark *mark);
/* After it, with the same octets, when `gone` of them went, fewer than all. */
unsigned tls_records_sent_only(
	struct tls_records *t, const struct iovec *iov, int count, size_t gone, const struct tls_mark *mark);
unsigned tls_records_received(struct tls_records *t, const struct iovec *iov, int count, size_t n);

static inline bool tls_records_is_complete(const struct tls_records *t)
{
	return atomic_load_explicit(&t->is_complete, memory_order_acquire) != 0;
}
/* Is a record in its midst, by the receiver's side? */
static inline bool tls_records_in_midst(const struct tls_records *t)
{
	return t->received.have != 0;
}
/* May many calls be under way at once (HTTP/2)? */
static inline bool tls_records_may_be_many(const struct tls_records *t)
{
	return t->offers_h2 && (t->is_13 || t->has_h2);
}

#endif
