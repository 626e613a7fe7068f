/* Connections by way of a relay (detour.h) outlive the program that made them: before exec, and at an exit after a
 * fork, a process of its own, the keeper, takes their relays over. It is nobody's child (measured: one with exit signal
 * 0 would be seen by a wait with
 * __WALL, would send SIGCHLD at its end all the same, since its parent has executed, and would stay a zombie): a child
 * makes it and has ended before exec begins. It holds nothing of the app's but its memory as it was, and ends with the
 * last relay. */
#ifndef RESIL_ENGINE_KEEPER_H
#define RESIL_ENGINE_KEEPER_H

#include <stdbool.h>

struct keeper {
	int word; /* our end of a pipe; -1: there is no keeper. It closes with exec, and the keeper takes over */
};

/* Where a relay is alive: our threads are joined and a keeper waits. Else, or where none is to be had, nothing is
 * changed. Between fork and exec, in a vfork child, in a signal handler. */
struct keeper keeper_make(void);
/* The same at the end of a process that children may outlive with a connection of its own (fork, daemon). Not where it
 * has not forked since it made them, and has no child. */
struct keeper keeper_make_for_children(bool is_about_to_fork);
/* Exec has failed: the keeper ends, the threads go on. */
void keeper_recall(struct keeper *k);
/* From the constructor: what the program is called by, to be changed in a keeper. */
void keeper_init(int argc, char **argv);

/* On a relay's thread. Has the app's side of the connection whose other end this is been closed, by all who had it? Not
 * where the kernel does not tell. */
bool keeper_app_has_gone(int inner);

#endif
