/* A look-up of a name as a call: its limit, its circuit (`dns:NAME`, D8), and what stands in for an answer that does
 * not come (D9). The hooks (hook/resolve.c) ask before and after libc's own. Where no key of the configuration asks for
 * any of it, a look-up costs nothing here. */
#ifndef RESIL_ENGINE_LOOK_UP_H
#define RESIL_ENGINE_LOOK_UP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/circuit.h"
#include "core/region.h"
#include "policy/config.h"
#include "policy/names.h"

struct look_up {
	int64_t began_ns;    /* 0: the shim does nothing about it */
	int64_t until_ns;    /* 0: no limit */
	int64_t limit_ns;    /* what it is bounded by, as it was asked for */
	bool is_of_deadline; /* until_ns is the call's or the ambient deadline, not resolve_timeout */
	bool is_guarded;
	bool has_circuit;
	uint16_t port;
	int family;
	uint32_t trip_mask;
	int64_t stale_ns, abandon_ns; /* 0: off */
	struct region *region;	      /* of a guarded one; null: none is to be had */
	struct breaker_rules rules;
	struct circuit_token token;
	char name[NAMES_MAX + 1]; /* "": of an address */
};

enum look_up_begun {
	LOOK_UP_GOES,	/* libc is to be asked: by resolver_ask where there is an until_ns, else in place */
	LOOK_UP_REFUSED /* a deadline has passed or the circuit is open: nothing reaches the network. look_up_stale may
			   help */
};

/* port: 0 where the look-up names none. family: AF_UNSPEC: any. asked_ns: 0: now. */
enum look_up_begun look_up_begin(struct look_up *l, const char *name, uint16_t port, int family, int64_t asked_ns);
/* Does a rule, or the ambient deadline, ask for anything at any look-up? */
bool look_up_is_asked_for(void);
/* Of an address (gethostbyaddr): a limit alone. */
enum look_up_begun look_up_begin_reverse(struct look_up *l, const void *address, unsigned len, int family);

/* What came of it, exactly once after LOOK_UP_GOES. */
enum look_up_news {
	LOOK_UP_ANSWERED, /* also that there is no such name: an answer of the resolver's (D8) */
	LOOK_UP_FAILED,	  /* the resolver did not answer */
	LOOK_UP_LATE,	  /* the limit has passed */
	LOOK_UP_NEUTRAL	  /* a wrong question, trouble of this machine */
};
void look_up_end(struct look_up *l, enum look_up_news news);
/* The addresses of a good answer: kept where stale_dns asks for it. */
void look_up_keep(const struct look_up *l, const struct addr *addrs, unsigned count);
/* The addresses to answer with after LOOK_UP_FAILED, LOOK_UP_LATE or LOOK_UP_REFUSED; 0: none. */
unsigned look_up_stale(const struct look_up *l, struct addr addrs[REGION_KNOWN_ADDRESSES]);
/* It did: counted, with an event at most once a second a name. */
void look_up_stale_given(const struct look_up *l);

#endif
