/* A destination as people write it on a command line. */
#ifndef RESIL_CLI_PLACE_H
#define RESIL_CLI_PLACE_H

#include <stdbool.h>

#include "base/addr.h"

struct place {
	struct addr addr;
	char name[256];	 /* lower case, no trailing dot; "" for a literal */
	char shown[300]; /* the destination as the key `origin` has it */
	bool is_unresolved;
	bool is_said;	     /* name is what a connection says, `sni:`; where it leads to is not known */
	bool is_look_up;     /* name's look-ups, `dns:` (which alone) */
	const char *request; /* what stands behind a blank: a method or a path; "": nothing */
};

/* HOST:PORT, IP:PORT, [v6]:PORT, unix:/path, sni:HOST:PORT, and behind a blank a request's method or path. Null when it
 * is understood; else what is wrong. text is cut at the blank. */
const char *place_read(char *text, struct place *p);

#endif
