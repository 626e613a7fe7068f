/* Names that this machine answers by itself: those in /etc/hosts, where it is asked first (/etc/nsswitch.conf). Reads
 * files by system calls of ours; no allocation. */
#ifndef RESIL_BASE_HOSTS_H
#define RESIL_BASE_HOSTS_H

#include <stdbool.h>

#include "base/addr.h"

/* Would a look-up of this name, for a family (AF_UNSPEC: either), be answered from /etc/hosts alone? False in doubt. */
bool hosts_answers(const char *name, int family);
/* The addresses that /etc/hosts has for it, at most `most`, ports 0; also where the file is not asked first. */
unsigned hosts_find(const char *name, struct addr *addrs, unsigned most);
/* The same, for given files. */
bool hosts_file_has(const char *path, const char *name, int family);
bool hosts_come_first(const char *nsswitch);

#endif
