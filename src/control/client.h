/* One client of the control socket: its bytes in, its request, its answer out. Runs on the control thread only; nothing
 * here blocks.
 *
 *    READING --request complete, or refused--> ANSWERING --all sent--> READING (kept) or gone
 *                                                 |  events?follow=1
 *                                                 +--> FOLLOWING --client left--> gone
 *
 * One request at a time: bytes of the next one wait in `in` (or in the kernel) until the answer is sent. */
#ifndef RESIL_CONTROL_CLIENT_H
#define RESIL_CONTROL_CLIENT_H

#include <llhttp.h>
#include <stdbool.h>
#include <stdint.h>

#include "control/control.h"
#include "control/render.h"

#define CLIENT_REQUEST_MAX 8192 /* head and body */
#define CLIENT_URL_MAX 1024
#define CLIENT_IN_MAX 4096   /* read at once */
#define CLIENT_HEAD_ROOM 512 /* before the body, for the answer's head */
#define CLIENT_OUT_FIRST (64u << 10)
#define CLIENT_OUT_LAST (64u << 20) /* an answer beyond this is an error of ours */
#define CLIENT_PATIENCE_NS (10 * 1000000000LL)

enum client_state { CLIENT_FREE, CLIENT_READING, CLIENT_ANSWERING, CLIENT_FOLLOWING };

struct client {
	enum client_state state;
	int fd;
	bool is_complete; /* the request is there in full */
	bool has_head;	  /* its head is */
	bool is_last;	  /* close after the answer */
	bool has_ended;	  /* the client sends no more */
	bool is_foreign;  /* neither our user nor root: 403 */
	bool wants_continue;
	bool is_chunked;
	uint16_t refusal;    /* status decided while parsing; 0: none */
	int64_t deadline_ns; /* gone by then, unless something moves; INT64_MAX while following with nothing to send */
	int64_t active_ns;   /* last time that a request or an answer moved */
	llhttp_t parser;
	uint32_t request_bytes; /* of this request so far */
	uint32_t in_at, in_len;
	uint32_t url_len, field_len, value_len;
	struct render_cursor cursor;
	char *out; /* mmap'd; null until the first answer */
	size_t out_cap, out_at, out_len;
	char url[CLIENT_URL_MAX + 1];
	char field[16], value[24]; /* the header being read; only short ones matter */
	char in[CLIENT_IN_MAX];
};

void client_begin(struct client *c, int fd, bool is_foreign, int64_t now_ns);
/* Closes and unmaps. */
void client_end(struct client *c);
/* poll events that it waits for. */
short client_events(const struct client *c);
/* Bytes of a further request are here already: step again without waiting. */
bool client_has_more(const struct client *c);
/* Moves on as far as it can: reads, answers, sends. revents from poll. false: it is done with, call client_end. */
bool client_step(struct client *c, const struct control_host *host, short revents, int64_t now_ns);
/* New events for a follower; every 100 ms. false: call client_end. */
bool client_follow(struct client *c, const struct control_host *host, int64_t now_ns);
/* Makes room: `out` twice as large. false: no memory, or large enough already. */
bool client_grow(struct client *c);

#endif
