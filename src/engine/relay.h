/* The octets of a detour that flows: what comes in goes on, shaped where it is asked for. The thread of detours alone.
 */
#ifndef RESIL_ENGINE_RELAY_H
#define RESIL_ENGINE_RELAY_H

#include "engine/detour_record.h"

enum relay_says { RELAY_GOES_ON, RELAY_IS_OVER, RELAY_IS_RESET };

/* Moves what can be moved. d->look_at_ns: when to look again without an event. */
enum relay_says relay_turn(struct detour *d, int64_t now_ns);
/* What it waits for on this socket: EPOLLIN and EPOLLOUT. */
uint32_t relay_events(const struct detour *d, enum detour_socket which);
/* An end point: so much was put into the way, nothing more will be. */
void relay_came(struct detour_way *w, uint32_t n, int64_t now_ns);
void relay_ended(struct detour_way *w, int64_t now_ns);
/* The process ends: nothing is shaped any more; true when what the app has sent is with the kernel or the end point. */
bool relay_flush(struct detour *d, int64_t now_ns);

#endif
