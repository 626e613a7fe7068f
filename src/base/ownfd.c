/* See ownfd.h. Called by our threads (adopt, close) and by the hooks of any thread (owns, move, each).
 *
 * A place is free (fd -1), or holds a number with the device and inode of what was adopted. Places are claimed by CAS
 * from FREE to BUSY, filled, and published by storing the number (release); readers load the number (acquire) first.
 * `was` remembers where a number went when the app wanted it for itself, until its owner asks. `use` is taken by CAS by
 * who lends the number and by who moves it: the one waits for the other, so that neither puts a file on a number that
 * is no longer ours. The lender is a thread of ours with all signals blocked, between two system calls. */
#include "base/ownfd.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/sys.h"

enum { FREE = -1, BUSY = -2 };
enum { IDLE, LENT, MOVING };
#define PUTS_PATIENCE 1000 /* times that a processor is given away */

struct place {
	_Atomic int fd;
	_Atomic int was; /* the number before a move, FREE when the owner knows */
	_Atomic int use;
	dev_t dev;
	ino_t ino;
};

static struct place places[OWNFD_MAX] = {[0 ... OWNFD_MAX - 1] = {.fd = FREE, .was = FREE}};
_Atomic int ownfd_in_use;
/* Lowest and highest number ever ours: the hooks' first, cheap question. */
static _Atomic int lowest = 0x7fffffff, highest = -1;

_Atomic int ownfd_puts;

static struct place *place_of(int fd)
{
	if (fd > atomic_load_explicit(&highest, memory_order_relaxed) ||
		fd < atomic_load_explicit(&lowest, memory_order_relaxed))
		return NULL;
	for (int i = 0; i < OWNFD_MAX; i++)
		if (atomic_load_explicit(&places[i].fd, memory_order_acquire) == fd)
			return &places[i];
	return NULL;
}

/* Where to look for a number: from just under min(soft limit, 1024), so that select() works for the app's own and close
 * loops meet ours last. */
static int first_number(void)
{
	struct rlimit lim;
	rlim_t top = 1024;
	if (sys_getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < top)
		top = lim.rlim_cur;
	return top > OWNFD_MAX + 8 ? (int)top - OWNFD_MAX : 3;
}

static int raise_number(int fd)
{
	int to = sys_fcntl(fd, F_DUPFD_CLOEXEC, first_number());
	/* The top is taken: any number will do that does not stand where the standard ones belong. */
	if (to < 0)
		to = sys_fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return to;
}

static void widen(int fd)
{
	int seen = atomic_load(&lowest);
	while (fd < seen && !atomic_compare_exchange_weak(&lowest, &seen, fd))
		;
	seen = atomic_load(&highest);
	while (fd > seen && !atomic_compare_exchange_weak(&highest, &seen, fd))
		;
}

int ownfd_adopt(int fd)
{
	if (fd < 0)
		return fd;
	int to = raise_number(fd);
	sys_close(fd);
	if (to < 0)
		return to;
	struct stat st;
	if (sys_fstat(to, &st) == 0) {
		for (int i = 0; i < OWNFD_MAX; i++) {
			struct place *p = &places[i];
			int expected = FREE;
			if (!atomic_compare_exchange_strong(&p->fd, &expected, BUSY))
				continue;
			p->dev = st.st_dev;
			p->ino = st.st_ino;
			atomic_store(&p->was, FREE);
			widen(to);
			atomic_fetch_add(&ownfd_in_use, 1);
			atomic_store_explicit(&p->fd, to, memory_order_release);
			return to;
		}
	}
	sys_close(to);
	return -EMFILE;
}

int ownfd_with_room(int (*fn)(void *ctx), void *ctx)
{
	struct rlimit was, raised, now;
	int top = atomic_load(&highest);
	if (sys_getrlimit(RLIMIT_NOFILE, &was) != 0)
		return fn(ctx);
	raised = was;
	raised.rlim_cur = was.rlim_cur + 4;
	if (top >= 0 && raised.rlim_cur < (rlim_t)top + 4)
		raised.rlim_cur = (rlim_t)top + 4;
	if (raised.rlim_cur > was.rlim_max)
		raised.rlim_cur = was.rlim_max;
	if (raised.rlim_cur <= was.rlim_cur || sys_swaprlimit(RLIMIT_NOFILE, &raised, NULL) != 0)
		return fn(ctx);
	int r = fn(ctx);
	/* The app may have set its own meanwhile: that one stands. */
	if (sys_swaprlimit(RLIMIT_NOFILE, &was, &now) == 0 &&
		(now.rlim_cur != raised.rlim_cur || now.rlim_max != raised.rlim_max))
		sys_swaprlimit(RLIMIT_NOFILE, &now, NULL);
	return r;
}

static bool is_intact(const struct place *p, int fd)
{
	struct stat st;
	if (atomic_load_explicit(&p->use, memory_order_relaxed) == LENT)
		return true;
	return sys_fstat(fd, &st) == 0 && st.st_dev == p->dev && st.st_ino == p->ino;
}

int ownfd_lend(int fd)
{
	int at = ownfd_follow(fd), idle = IDLE;
	struct place *p = place_of(at);
	if (!p)
		return -EBADF;
	if (!atomic_compare_exchange_strong(&p->use, &idle, LENT))
		return -EAGAIN;
	for (int i = 0; i < PUTS_PATIENCE && atomic_load(&ownfd_puts) > 0; i++)
		sched_yield();
	/* Moved in between, or closed behind our back: not by who comes from now on. */
	struct stat st;
	if (atomic_load(&p->fd) == at && sys_fstat(at, &st) == 0 && st.st_dev == p->dev && st.st_ino == p->ino)
		return at;
	bool has_moved = atomic_load(&p->fd) != at;
	atomic_store(&p->use, IDLE);
	return has_moved ? -EAGAIN : -EBADF;
}

void ownfd_return(int fd)
{
	struct place *p = place_of(fd);
	if (p)
		atomic_store(&p->use, IDLE);
}

void ownfd_close(int fd)
{
	struct place *p = place_of(ownfd_follow(fd));
	if (!p)
		return;
	int at = atomic_load(&p->fd);
	if (at >= 0 && is_intact(p, at))
		sys_close(at);
	atomic_store(&p->use, IDLE);
	atomic_store(&p->was, FREE);
	atomic_store_explicit(&p->fd, FREE, memory_order_release);
	atomic_fetch_sub(&ownfd_in_use, 1);
}

bool ownfd_owns_slow(int fd)
{
	struct place *p = place_of(fd);
	/* A number that a raw system call closed and the app got back is the app's. */
	return p && is_intact(p, fd);
}

bool ownfd_is_intact(int fd)
{
	struct place *p = place_of(fd);
	return p && is_intact(p, fd);
}

/* Waits for the place; a second at most (a stopped or starved lender). */
static bool claim(struct place *p)
{
	for (int i = 0; i < 2000; i++) {
		int idle = IDLE;
		if (atomic_compare_exchange_strong(&p->use, &idle, MOVING))
			return true;
		if (i < 1000) {
			sched_yield();
		} else {
			struct timespec ms = {.tv_nsec = 1000000};
			SYS2(SYS_nanosleep, &ms, NULL);
		}
	}
	return false;
}

int ownfd_move(int fd)
{
	struct place *p = place_of(fd);
	if (!p)
		return -ENOENT;
	ownfd_put_ends(); /* who lends it does not wait for us */
	bool is_claimed = claim(p);
	ownfd_put_begins();
	if (!is_claimed)
		return -EAGAIN;
	int to = -ENOENT; /* moved by another thread while we waited */
	if (atomic_load(&p->fd) == fd && (to = raise_number(fd)) >= 0) {
		widen(to);
		if (atomic_load(&p->was) == FREE)
			atomic_store(&p->was, fd);
		atomic_store_explicit(&p->fd, to, memory_order_release);
	}
	atomic_store(&p->use, IDLE);
	return to;
}

int ownfd_follow(int fd)
{
	if (fd < 0)
		return fd;
	for (int i = 0; i < OWNFD_MAX; i++) {
		int at = atomic_load_explicit(&places[i].fd, memory_order_acquire);
		int was = fd;
		if (at >= 0 && atomic_compare_exchange_strong(&places[i].was, &was, FREE))
			return at;
	}
	return fd;
}

void ownfd_drop_all(void)
{
	for (int i = 0; i < OWNFD_MAX; i++) {
		int at = atomic_load(&places[i].fd);
		if (at >= 0 && is_intact(&places[i], at))
			sys_close(at);
		atomic_store(&places[i].was, FREE);
		atomic_store(&places[i].use, IDLE);
		atomic_store(&places[i].fd, FREE);
	}
	atomic_store(&ownfd_in_use, 0);
}

void ownfd_each(void (*fn)(int fd, void *ctx), void *ctx)
{
	int last = -1;
	for (int n = 0; n < OWNFD_MAX; n++) {
		int next = 0x7fffffff;
		for (int i = 0; i < OWNFD_MAX; i++) {
			int at = atomic_load_explicit(&places[i].fd, memory_order_acquire);
			if (at > last && at < next)
				next = at;
		}
		if (next == 0x7fffffff)
			return;
		if (ownfd_is_intact(next))
			fn(next, ctx);
		last = next;
	}
}
