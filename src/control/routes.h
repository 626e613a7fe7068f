/* What the socket answers (CONTRACT 6): one table row a method and path. Runs on the control thread. */
#ifndef RESIL_CONTROL_ROUTES_H
#define RESIL_CONTROL_ROUTES_H

#include "base/text.h"
#include "control/control.h"
#include "control/render.h"

struct request {
	const struct control_host *host;
	struct region *region; /* null: none in use */
	int64_t now_ns;
	const char *method;		/* "GET"; HEAD comes as GET */
	const char *path;		/* raw, without the query */
	const char *query;		/* raw, without '?'; null: none */
	char name[REGION_NAME_MAX + 1]; /* what a '*' of the path stands for, decoded */
};

struct answer {
	struct text *body;
	const char *type; /* content type */
	char allow[32];	  /* for 405 */
	bool follows;	  /* the body is a stream of events after `since` */
	uint64_t since;
};

/* Fills the answer and returns the HTTP status. A GET may be asked again with a larger body buffer when the body was
 * cut. */
int routes_answer(struct request *q, struct answer *a);
/* {"error":"..."}, for refusals of the parser as well. Returns the status. */
int routes_error(struct answer *a, int status, const char *words);
const char *routes_status_text(int status);

#endif
