/* fork, exec and exit: what the parent keeps, what the child starts with (E3, E4). */
#ifndef RESIL_ENGINE_PROCESS_H
#define RESIL_ENGINE_PROCESS_H

/* From the constructor: registers the fork handlers. */
void process_init(void);
/* Are we the child of a fork that no handler saw (_Fork, raw clone)? One load; resets what belongs to the parent when so. */
void process_check(void);
/* exec begins: verdicts that wait are declared now. If exec fails the app goes on. */
void process_execs(void);
/* exit or _exit: verdicts, membership and the socket are given back. Once. */
void process_exits(void);
/* For process_exits: the control room's part. */
void process_set_leave(void (*leave)(void));

#endif
