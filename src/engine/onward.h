/* What follows in the chain where a cache has not what a request asks for. The connect was over when the chain's cache
 * took it, and the request is known only now: the rest of the chain is walked on the thread of detours, within the same
 * connection, with every octet of that request still unread. From there on the connection is that step's. */
#ifndef RESIL_ENGINE_ONWARD_H
#define RESIL_ENGINE_ONWARD_H

#include <netinet/in.h>

#include "core/circuit.h"
#include "engine/admission.h"
#include "engine/guard.h"
#include "policy/chain.h"

#define ONWARD_PLACES 8

/* An address of a step that is another server, found on the asking thread: ours waits for no look-up. */
struct onward_place {
	struct guard guard;
	struct sockaddr_in6 to; /* or a sockaddr_in */
	uint8_t step;		/* which of the chain's that are left */
	bool is_guarded;
};

struct onward {
	char chain[CHAIN_TEXT_MAX + 1]; /* the steps behind the cache */
	char text[48];			/* the cache's own */
	struct guard guard;		/* of the destination: uses are counted there */
	const char *cause;		/* static */
	int64_t until_ns;		/* the call's deadline; 0: none */
	struct onward_place places[ONWARD_PLACES];
	unsigned count;
	/* The thread's own. */
	unsigned at, step; /* of the chain: the next one, and its number */
	unsigned place;	   /* the one that is tried */
	char here[300];	   /* the step that is tried */
	bool is_counted;   /* the cache has served something */
	bool is_asking;	   /* of the other server nothing has come yet */
	int64_t limit_ns;  /* its connect's, then its answer's; 0: none */
	struct circuit_token token;
	struct admission_slot slot;
};

struct detour;
/* The cache has answered. */
void onward_served(struct detour *d);
/* Leads d to the next step that can be had; what stands in way[UP] is for it. False: there is none (any more), and
 * nothing was changed. *is_well false: the connection is to be reset. */
bool onward_go(struct detour *d, int64_t now_ns, bool *is_well);
/* While the other server is being connected: how that goes. False: the connection is to be reset. */
bool onward_look(struct detour *d, int64_t now_ns);
/* It is connected: nothing has come for too long? False: the connection is to be reset. */
bool onward_goes_on(struct detour *d, int64_t now_ns);
/* The connection is gone. */
void onward_finish(struct detour *d);

#endif
