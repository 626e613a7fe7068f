/* Which member of a group serves the socket, and the socket file itself. Runs on the control thread; control_leave's
 * part on the thread that exits.
 *
 * The region's control_owner names the member that serves, standby[] the two that wait. Each is claimed by CAS from 0
 * or from a dead member's id. A crash at any line leaves an id whose process is dead: whoever looks replaces it. */
#ifndef RESIL_CONTROL_ELECTION_H
#define RESIL_CONTROL_ELECTION_H

#include <stdbool.h>
#include <sys/types.h>

#include "core/region.h"

enum election_role { ROLE_NONE, ROLE_STANDBY, ROLE_OWNER };

struct election {
	char dir[108], path[108];
	int listen_fd; /* -1: none */
	dev_t dev;     /* of the socket file that is ours */
	ino_t ino;
	unsigned refusals; /* looks in a row at which the path of a living owner was dead */
};

/* Takes or keeps a part in the election; look again at least once a second, standbys twice. */
enum election_role election_step(struct election *e, struct region *r);
/* Gives up whatever part this member has in the region. */
void election_resign(struct region *r);
/* Owner: sees to it that our socket is at the path and intact, makes what is missing. 0; -EADDRINUSE: somebody else,
 * alive, serves at this path (a group of the same name in another namespace): not ours to take; -errno. */
int election_socket(struct election *e);
/* Closes the listening socket; unlinks the path when it still is ours. */
void election_close(struct election *e);

#endif
