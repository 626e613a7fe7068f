/* A look-up of a name as a call: what bounds it, and what it leaves behind. The hooks (hook/resolve.c) ask before and
 * after libc's own. */
#ifndef RESIL_ENGINE_LOOK_UP_H
#define RESIL_ENGINE_LOOK_UP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/region.h"
#include "policy/names.h"

struct look_up {
	int64_t began_ns;    /* 0: the shim does nothing about it */
	int64_t until_ns;    /* 0: no limit */
	int64_t limit_ns;    /* what it is bounded by, as it was asked for */
	bool is_of_deadline; /* until_ns is the call's or the ambient deadline, not resolve_timeout */
	struct region *region;
	char name[NAMES_MAX + 1]; /* "": of an address */
};

enum look_up_begun {
	LOOK_UP_PASSES,	 /* libc's, in place */
	LOOK_UP_BOUNDED, /* ask by resolver_ask, until until_ns */
	LOOK_UP_REFUSED	 /* a deadline has passed: nothing reaches the network (C4) */
};

/* port: 0 where the look-up names none. family: AF_UNSPEC: any. */
enum look_up_begun look_up_begin(struct look_up *l, const char *name, uint16_t port, int family);
/* Of an address (gethostbyaddr). */
enum look_up_begun look_up_begin_reverse(struct look_up *l, const void *address, unsigned len, int family);
/* The limit has passed: says so. */
void look_up_is_late(const struct look_up *l);
/* It has ended, in whatever way. */
void look_up_end(const struct look_up *l);

#endif
