/* The calls of an HTTP/2 connection (A11): each stream of a flow (flow.h) is a call of its own, with its verdict and
 * its limits. The octets come by the same doors as any others (exchange.h, which hands them on here).
 *
 *   HEADERS ──> WAITING ──HEADERS of the answer──> ANSWERING ──END_STREAM, RST_STREAM──> gone
 *                  └──────── a limit has passed ────┴──> JUDGED: it has its verdict, and is still open
 *
 * The connect's own call is that of the first stream; before there is one it is the flow's. A flow that has streams is
 * IDLE itself. Whoever takes a stream's word to OWNED has it alone, gives the verdict, and sets the next word.
 *
 * A limit that one stream passes is its verdict and no more: the socket is ended only when the peer has been silent for
 * as long, counted from the first request that it has not said a word to. grpc-timeout is the app's own and never ends
 * the socket. So many streams at once are known; those beyond are counted and left alone. */
#ifndef RESIL_ENGINE_STREAMS_H
#define RESIL_ENGINE_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/failure.h"
#include "engine/flow.h"

#define STREAMS_MAX 256 /* servers allow 100 to 250 */

struct octets;

/* One feed of octets. */
struct streams_turn {
	struct flow *f;
	int fd;
	int64_t now_ns; /* 0: the clock has not been read */
	int64_t due_ns; /* out: the soonest limit of what it began; WHEEL_NEVER */
	bool is_over;	/* out: nothing is learnt from the flow any more */
};

/* Room for the streams of a flow. False: there is none to be had. */
bool streams_attach(struct flow *f);
/* With the flow's end. */
void streams_release(struct flow *f);
/* Its HTTP/1 request asked for h2c and was granted it: the call in progress goes on as stream 1. */
void streams_upgraded(struct streams_turn *t);

/* The octets are about to be sent. Before they are announced: whom the first request calls its server, as
 * http2_authority(). */
size_t streams_authority(const struct flow *f, const struct octets *o, char *name, size_t most, bool *is_told);
/* New streams begin. */
void streams_announced(struct streams_turn *t, const struct octets *o);
/* The first `gone` of them went. */
void streams_sent(struct streams_turn *t, const struct octets *o, size_t gone);
/* n octets came, of which the first `from` are not HTTP/2. */
void streams_received(struct streams_turn *t, const struct octets *o, size_t from, size_t n);
/* The everyday of both, told apart at once: n octets of DATA that end nothing (http2.h). Sent: when all of them go
 * there is nothing to do, before or after it. Received: false: nothing was done. */
bool streams_go_on(const struct flow *f, const void *bytes, size_t n);
bool streams_went_on(struct flow *f, const void *bytes, size_t n);
/* The connection has ended, or broken. */
void streams_broke_off(struct streams_turn *t, enum failure_kind kind);
/* The app lets go of it (A5). fd -1: what the kernel knows is not asked. */
void streams_hung_up(struct flow *f, int fd, int64_t now_ns);
/* In a fork's child. */
void streams_forked(struct flow *f);

/* As flow_due_ns and flow_judge. */
int64_t streams_due_ns(const struct flow *f);
int64_t streams_judge(struct flow *f, const struct flow_view *v, int64_t now_ns, bool may_end, bool *is_expired);

#endif
