/* What the kernel knows of a TCP connection. One system call (TCP_INFO). */
#ifndef RESIL_BASE_TCPINFO_H
#define RESIL_BASE_TCPINFO_H

#include <stdbool.h>
#include <stdint.h>

struct tcpinfo {
	uint8_t state;		    /* TCP_ESTABLISHED ... of netinet/tcp.h */
	uint8_t retransmits;	    /* of what is unacknowledged now */
	bool has_bytes;		    /* the counts below are known (Linux 4.19) */
	uint32_t unacked, notsent;  /* segments under way; octets not sent yet */
	uint32_t last_data_sent_ms; /* ago; a retransmission counts */
	uint32_t last_data_recv_ms; /* ago; since the connection began where nothing came */
	uint64_t bytes_sent;	    /* first transmissions and repeats */
	uint64_t bytes_repeated;    /* of those; what went with a SYN may be among them */
	uint64_t bytes_received;    /* in order, whether read or not; the peer's end counts as one */
};

/* False: not TCP, or not open. */
bool tcpinfo_read(int fd, struct tcpinfo *info);
/* Has an octet gone, or has more come than the peer's end? Asked of one that is expected to be unused; false also where
 * it cannot be told. */
bool tcpinfo_may_be_used(int fd);
/* Octets received and not read by anyone yet (SIOCINQ); 0 when that cannot be told. */
uint32_t tcpinfo_unread(int fd);

#endif
