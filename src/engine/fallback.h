/* The chain of fallbacks (`fallback`): what stands in for a destination whose call was refused, or whose blocking
 * connect has failed. Walked within the app's own connect, on its own thread and its own descriptor (D4); nothing here
 * is reached where no chain is configured. A step is one row of the table in fallback.c. */
#ifndef RESIL_ENGINE_FALLBACK_H
#define RESIL_ENGINE_FALLBACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/addr.h"
#include "engine/guard.h"
#include "engine/slot.h"

struct fallback_ask {
	int fd;
	struct slot *slot;
	uint64_t life;		   /* of the slot (upper half of its word): with another it is another socket's */
	const struct addr *asked;  /* where the app asked to go, */
	const struct sockaddr *to; /* as it wrote it */
	socklen_t len;
	const struct guard *guard; /* of the destination there */
	int error;		   /* what the app sees where nothing stands in */
	int found_errno;	   /* errno as the app had it: success leaves that */
	const char *cause;	   /* "rejected", or the failure's kind */
	int64_t until_ns;	   /* the call's deadline; 0: none */
	bool is_refused;	   /* else a connect has failed on the socket */
};

/* Where a step leads: one address of it. */
struct fallback_place {
	struct addr addr;
	const char *name; /* null: it was configured by its address */
	unsigned number, count;
	const struct sockaddr *to;
	socklen_t len;
};

/* Returns as connect does, with errno where that is -1: ask->error where every step was passed over. */
int fallback_connect(const struct fallback_ask *ask);

#endif
