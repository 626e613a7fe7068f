/* The ends and copies of descriptors, and what a fork and an exit mean for connects in progress. */
#ifndef RESIL_ENGINE_LIFETIME_H
#define RESIL_ENGINE_LIFETIME_H

/* The descriptor is about to be closed or replaced: gives the verdict that is due, and frees the slot. Before the real
 * close. */
void lifetime_closing(int fd);
/* The app ended the connect but keeps the socket (shutdown, connect to AF_UNSPEC). */
void lifetime_cancelled(int fd);
/* The number `to` now leads to the socket of `from`. to's slot is free. */
void lifetime_dupped(int from, int to);
/* At exit and exec: the verdicts of connects in progress (exit is a hang-up, A5). */
void lifetime_exiting(void);
/* In a fork's child, after deadline_forked: connects in progress belong to the parent, their limits hold here too:
 * armed again, for the timer that service_keep_timer starts. */
void lifetime_forked(void);

#endif
