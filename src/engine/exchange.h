/* Input and output on a flow (flow.h): what the octets of a call say of it. Around the system call of the hook, on any
 * thread. No lock, no allocation; a call that is under way costs no clock reading and no system call. */
#ifndef RESIL_ENGINE_EXCHANGE_H
#define RESIL_ENGINE_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "engine/flow.h"
#include "wire/http1_host.h"

/* The octets of a send or a receive: a vector, of which the first `limit` count. is_blind: they cannot be looked at
 * (sendfile, splice). */
struct octets {
	const struct iovec *iov;
	int count;
	size_t limit;
	bool is_blind;
	bool is_fixed;	   /* they must go as they are */
	bool is_inside;	   /* they are what a TLS library reads or writes, not what passes on the wire */
	int how;	   /* a send's flags: MSG_... */
	bool is_uncounted; /* the system call tells messages, not octets (sendmmsg, recvmmsg) */
};

/* What a send carries from before its system call to after it. On the hook's stack. */
struct sending {
	struct flow *flow; /* held; null: it goes on as it was */
	uint64_t word;	   /* of the slot's life */
	uint8_t kind;	   /* enum flow_kind: as what it was announced */
	bool is_announced;
	bool was_asking; /* the request was not whole before */
	bool ends;	 /* with these octets it is */
	bool begins;	 /* with these octets it began, a moment ago */
	uint8_t first;	 /* octets before it that had not settled the protocol */
	struct {	 /* where feed_requests.c stood */
		uint8_t begun;
		bool is_open;
		uint16_t length;
		struct http1_host_at host;
	} requests;
	union {
		struct http1_mark mark;
		struct tls_mark tls_mark;
	};
	/* What the deadline header changes in the octets; none: they go as they are. */
	int edit_count;
	struct deadline_header_edit edits[DEADLINE_HEADER_MAX];
};

/* Before a receive: the app wants to read (A12). */
void exchange_receives(struct slot *s, uint64_t word, int fd);
/* After it: result as recv's, err its errno, flags MSG_... . Returns nothing: what the app is told stays. */
void exchange_received(
	struct slot *s, uint64_t word, int fd, const struct octets *o, ssize_t result, int err, int flags);
/* Before a send. False: rejected, errno is ECONNRESET (B20), nothing is to be sent. */
bool exchange_sends(struct slot *s, uint64_t word, int fd, const struct octets *o, struct sending *sending);
/* The system call in its place where there are edits: sends the edited octets. Returns what went of the app's own, or
 * -1 with errno. flags: MSG_... */
ssize_t exchange_send_edited(int fd, const struct octets *o, struct sending *sending, int flags, bool is_blocking);
/* After it. */
void exchange_sent(struct slot *s, int fd, const struct octets *o, struct sending *sending, ssize_t result, int err);
/* Its TLS is seen from inside from here on. */
void exchange_turns_inside(struct flow *f);
/* Inside: the peer has refused to go on. */
void exchange_refused(struct slot *s, uint64_t word, int fd);
/* The short roads of HTTP (io.h), on a flow that speaks it in clear, by its kind. It is held.
 * asks: without limits, all that exchange_sends does with octets in one piece that are a plain request, the beginning
 * of one, or frames of DATA that end nothing. OTHER: nothing was done; then and when REJECTED it is let go. */
enum exchange_asked { EXCHANGE_OTHER, EXCHANGE_ASKED, EXCHANGE_REJECTED };
enum exchange_asked exchange_asks_http1(
	struct flow *f, struct slot *s, uint64_t word, int fd, const struct octets *o, struct sending *sending);
enum exchange_asked exchange_asks_http2(struct flow *f, uint64_t word, const struct octets *o, struct sending *sending);
/* All that exchange_received does with n octets that can be looked at; it is let go. True. */
bool exchange_came_http1(struct flow *f, struct slot *s, uint64_t word, int fd, const struct octets *o, size_t n);
bool exchange_came_http2(struct flow *f, struct slot *s, uint64_t word, int fd, const struct octets *o, size_t n);
/* The app ends both directions itself. */
void exchange_shut(struct slot *s, uint64_t word, int fd);

#endif
