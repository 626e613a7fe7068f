/* Our own descriptors in the app's table: close-on-exec, numbered just under min(soft limit, 1024), known by number and
 * by identity (E6). The hooks ask ownfd_owns() so that the app's close loops miss them; each use asks ownfd_is_intact()
 * first, since raw system calls can close them behind our back. At most OWNFD_MAX at a time. Lock-free; safe in a
 * signal handler. */
#ifndef RESIL_BASE_OWNFD_H
#define RESIL_BASE_OWNFD_H

#include <stdatomic.h>
#include <stdbool.h>

#define OWNFD_MAX 32

/* Moves a fresh descriptor to a high number and remembers it; returns the new number, or -errno (fd is closed then). */
int ownfd_adopt(int fd);
/* The same when the app has used up its descriptors, or lowered its limit below our numbers: for the length of fn(ctx)
 * the soft limit is raised within the hard one, by a few numbers that the app cannot be given before its own are used
 * up. Returns fn's value. */
int ownfd_with_room(int (*fn)(void *ctx), void *ctx);
/* Closes it if it is still ours, and forgets it. */
void ownfd_close(int fd);
/* Is this number one of ours, and still what we adopted? A load and a branch for numbers that never were; else one
 * fstat. */
bool ownfd_owns_slow(int fd);
extern __attribute__((visibility("hidden"))) _Atomic int ownfd_in_use; /* how many there are */
static inline bool ownfd_owns(int fd)
{
	return __builtin_expect(atomic_load_explicit(&ownfd_in_use, memory_order_relaxed) != 0, 0) &&
	       ownfd_owns_slow(fd);
}
/* Is it still the very file that was adopted? One system call (fstat: device and inode). */
bool ownfd_is_intact(int fd);
/* The app puts something on a number (dup2): from before the look whether it is ours to behind the system call. Who
 * lends a number waits for those who looked before it was ours, a moment at most: a handler may jump out in between. */
extern __attribute__((visibility("hidden"))) _Atomic int ownfd_puts;
static inline void ownfd_put_begins(void)
{
	atomic_fetch_add(&ownfd_puts, 1);
}
static inline void ownfd_put_ends(void)
{
	atomic_fetch_sub(&ownfd_puts, 1);
}
/* Something else wants our number (dup2 onto it, which has begun: ownfd_put_begins): moves ours away; returns the new
 * number or -errno, -ENOENT when it is none of ours (any more). Waits while it is lent. The owner finds it by
 * ownfd_follow(). */
int ownfd_move(int fd);
/* The number that `fd` has been moved to (told once: the owner keeps it), or fd itself. */
int ownfd_follow(int fd);
/* For a moment something else is to stand on our number (the timer's dup of the app's socket): it counts as ours
 * whatever it is, and nobody moves it. Follows a move first; returns the number, or -errno: it is not intact, or is
 * being moved now. Every ownfd_lend that gave a number is ended by an ownfd_return of it, soon: others wait. */
int ownfd_lend(int fd);
void ownfd_return(int fd);
/* In a fork's child: closes them all, forgets them. */
void ownfd_drop_all(void);
/* Calls back with each number in ascending order (for close_range around them). */
void ownfd_each(void (*fn)(int fd, void *ctx), void *ctx);

#endif
