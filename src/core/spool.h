/* A spooled connection, as a file: what a program has sent where its destination was not to be had. Written by the end
 * point `spool:DIR` (engine/spool.c), delivered by `resil replay` (cli/replay.c).
 *
 *   head: struct spool_head, then pieces:  | length | check | octets |   ...   | 0 | check of how it ended |
 *
 * A piece counts once it and all before it are on the disk (fsync); one that was torn by a crash fails its check, and
 * what is behind it was never acknowledged. Names sort in the order in which the connections began. The writer holds a
 * lock (flock) on it: who gets the lock has a file that nobody writes to any more. */
#ifndef RESIL_CORE_SPOOL_H
#define RESIL_CORE_SPOOL_H

#include <stdint.h>

#include "base/hash.h"

#define SPOOL_MAGIC "RESILSP1"
#define SPOOL_SUFFIX ".spool"
#define SPOOL_PIECE_MAX (64u * 1024u)

struct spool_head {
	char magic[8];
	int64_t begun_wall_ns;
	char to[64];	/* "192.0.2.1:514" */
	char name[256]; /* "logs.internal:514", where a name was known; else empty */
	char unused[176];
};
_Static_assert(sizeof(struct spool_head) == 512, "a layout of files");

struct spool_piece {
	uint32_t length; /* 0: the connection has ended; nothing follows */
	uint32_t check;
};

/* at: of the piece in the file, so that no piece passes for another's. */
static inline uint32_t spool_check(uint64_t at, const void *octets, uint32_t length)
{
	return (uint32_t)hash_mix(hash_bytes(HASH_START ^ at, octets, length) ^ length);
}

#endif
