/* Header blocks of HTTP/2 (RFC 7541), skimmed: of all fields only those are read that a verdict needs, the others are
 * passed by their length. Pure: no system call, no memory of its own, no clock, no lock; octets may be cut anywhere.
 *
 * One of them follows what one side's encoder does, over all blocks of the connection. References count from the newest
 * entry and go to nothing that was evicted, so neither sizes nor eviction need be followed: a ring of the newest
 * entries is kept, each as what its name is and what its value means. (An entry larger than the whole table empties it
 * and is not added. Taken for one it does no harm: whatever may still be referred to is newer.)
 *
 * What cannot be known is UNSEEN: entries older than the ring (a table far beyond the usual 4,096 octets), values that
 * are not what they ought to be. It is never guessed. */
#ifndef RESIL_WIRE_HPACK_H
#define RESIL_WIRE_HPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As many as a table of 4,096 octets can hold. */
#define HPACK_RING 128
/* No such field; and: it is there, or may be, and its value is not known. */
#define HPACK_ABSENT UINT32_MAX
#define HPACK_UNSEEN (UINT32_MAX - 1)

/* Of one block; each a value, ABSENT or UNSEEN. */
struct hpack_found {
	uint32_t status;       /* `:status` */
	uint32_t grpc_status;  /* `grpc-status` */
	uint32_t grpc_timeout; /* `grpc-timeout`: its number times 8, plus an enum hpack_unit */
	uint32_t is_connect;   /* `:method`: is it CONNECT? */
};

enum hpack_unit {
	HPACK_HOURS,
	HPACK_MINUTES,
	HPACK_SECONDS,
	HPACK_MILLISECONDS,
	HPACK_MICROSECONDS,
	HPACK_NANOSECONDS
};

struct hpack {
	struct hpack_found found; /* in the block so far */
	uint32_t table_max;	  /* octets, as the encoder last said; SETTINGS only bound that */
	uint32_t inserted;	  /* ever; the next goes to inserted % HPACK_RING */
	uint32_t total;		  /* of these so many at most can be in the table */
	/* The field in progress. */
	uint8_t step, kind, shift, name;
	bool is_number, is_huffman, is_read;
	uint8_t bit_count;
	uint32_t number;
	uint32_t left, length; /* of the string: octets still to come; octets read so far, decoded */
	uint64_t bits;	       /* of a Huffman-coded string, not decoded yet */
	char text[16];	       /* the string's first octets; decoded */
	/* Where somebody asks whom a request calls its server: the first `:authority`, or `host`, that is spelt out
	 * goes there. */
	char *authority;
	uint32_t authority_max, authority_length;
	uint32_t ring_value[HPACK_RING];
	uint8_t ring_name[HPACK_RING];
};

void hpack_init(struct hpack *h);
/* A block begins. */
void hpack_begin(struct hpack *h);
/* Its octets. False: not HPACK; nothing more can be known of this side. */
bool hpack_feed(struct hpack *h, const void *bytes, size_t n);
/* It ends. False: in the midst of a field. */
bool hpack_end(const struct hpack *h, struct hpack_found *found);

#endif
