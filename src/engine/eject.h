/* Ejection (`eject`, D10): which of a look-up's addresses go last. */
#ifndef RESIL_ENGINE_EJECT_H
#define RESIL_ENGINE_EJECT_H

#include <stdint.h>

#include "base/addr.h"

/* A mask of those addresses of a name (clean; 32 at most) that fail while others are healthy; 0: the order stays. That
 * is so for a single address, where more than `max_ejection` fail, and in a group that remembers nothing yet. port: 0
 * where the look-up names none. */
uint32_t eject_mask(const char *name, uint16_t port, const struct addr *addrs, unsigned count, int64_t now_ns);

#endif
