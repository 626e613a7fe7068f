/* Taken: the life of descriptors. Ours are hidden from close loops (the app is told EBADF, as of a number that is not
 * open) and make way for dup2 (E6); a close or a replacement gives the verdict that is due before the kernel acts (D1).
 * In a vfork child nothing of this process's table changes (E3). */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "base/ownfd.h"
#include "base/real.h"
#include "base/sys.h"
#include "engine/guest.h"
#include "engine/lifetime.h"
#include "engine/service.h"
#include "engine/slot.h"
#include "hook/export.h"

EXPORT int close(int fd)
{
	if (guest_is_on()) {
		if (ownfd_owns(fd)) {
			errno = EBADF;
			return -1;
		}
		lifetime_closing(fd);
		service_keep_socket();
	}
	return real.close(fd);
}
ALIAS(close, __close);

/* ---- ranges ---- */

struct range {
	unsigned first, last;
	int flags;
	int result;
};

static void close_piece(struct range *r, unsigned first, unsigned last)
{
	if (first <= last && r->result == 0)
		r->result = real.close_range(first, last, r->flags);
}

/* Called with each of our numbers in ascending order: closes up to it, goes on behind it. */
static void close_around(int own, void *ctx)
{
	struct range *r = ctx;
	if ((unsigned)own < r->first || (unsigned)own > r->last)
		return;
	if (own > 0)
		close_piece(r, r->first, (unsigned)own - 1);
	r->first = (unsigned)own + 1;
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	/* CLOSE_RANGE_UNSHARE gives a thread a table of its own: what is closed there is open elsewhere. Rare, and only
	 * our verdicts would be early. */
	if (!guest_is_on() || first > last || (unsigned)flags & ~(unsigned)CLOSE_RANGE_UNSHARE)
		return real.close_range(first, last, flags);
	/* A call that closes nothing: does this kernel have it at all? Verdicts are for closes that happen. */
	if (!guest_is_restricted() && real.close_range(~0U, ~0U, 0) != 0)
		return -1;
	int highest = slot_highest();
	for (unsigned fd = first; highest >= 0 && fd <= last && fd <= (unsigned)highest; fd++)
		lifetime_closing((int)fd);
	struct range r = {.first = first, .last = last, .flags = flags};
	ownfd_each(close_around, &r);
	close_piece(&r, r.first, last);
	return r.result;
}

/* glibc's does not pass through close_range (measured); where the system call is missing it walks the numbers, and so
 * do we. */
EXPORT void closefrom(int first)
{
	if (!guest_is_on() || close_range(first > 0 ? (unsigned)first : 0, ~0U, 0) != 0)
		real.closefrom(first);
}

/* ---- copies ---- */

EXPORT int dup(int fd)
{
	int got = real.dup(fd);
	if (got >= 0 && guest_is_on()) {
		lifetime_closing(got);
		lifetime_dupped(fd, got);
	}
	return got;
}

/* Will it fail? Asked only where something of ours or of a call's is at stake. */
static bool dup_will_fail(int fd, int to)
{
	struct rlimit lim;
	if (guest_is_restricted())
		return false;
	return sys_fcntl(fd, F_GETFD, 0) < 0 || (sys_getrlimit(RLIMIT_NOFILE, &lim) == 0 && (rlim_t)to >= lim.rlim_cur);
}

/* The app puts something on `to`: what was there is closed; if it was ours, ours moves. */
static void make_way(int fd, int to)
{
	struct slot *s = slot_at(to);
	bool is_ours = ownfd_owns(to);
	if (fd == to || (!is_ours && (!s || slot_state_of(slot_word(s)) == SLOT_FREE)) || dup_will_fail(fd, to))
		return;
	if (is_ours)
		ownfd_move(to);
	else
		lifetime_closing(to);
}

EXPORT int dup2(int fd, int to)
{
	if (!guest_is_on())
		return real.dup2(fd, to);
	if (ownfd_owns(fd)) {
		errno = EBADF;
		return -1;
	}
	ownfd_put_begins();
	make_way(fd, to);
	int got = real.dup2(fd, to);
	ownfd_put_ends();
	if (got >= 0)
		lifetime_dupped(fd, to);
	return got;
}
ALIAS(dup2, __dup2);

EXPORT int dup3(int fd, int to, int flags)
{
	if (!guest_is_on())
		return real.dup3(fd, to, flags);
	if (ownfd_owns(fd)) {
		errno = EBADF;
		return -1;
	}
	ownfd_put_begins();
	if ((flags & ~O_CLOEXEC) == 0)
		make_way(fd, to);
	int got = real.dup3(fd, to, flags);
	ownfd_put_ends();
	if (got >= 0)
		lifetime_dupped(fd, to);
	return got;
}

/* ---- flags ---- */

static void set_nonblocking(int fd, bool on)
{
	struct slot *s = slot_at(fd);
	if (!s || slot_state_of(slot_word(s)) == SLOT_FREE)
		return;
	if (on)
		atomic_fetch_or(&s->traits, TRAIT_NONBLOCKING);
	else
		atomic_fetch_and(&s->traits, ~(uint32_t)TRAIT_NONBLOCKING);
}

static int after_fcntl(int fd, int cmd, long arg, int r)
{
	if (r < 0 || !guest_is_on())
		return r;
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) {
		lifetime_closing(r);
		lifetime_dupped(fd, r);
	} else if (cmd == F_SETFL) {
		set_nonblocking(fd, arg & O_NONBLOCK);
	}
	return r;
}

EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	va_start(ap, cmd);
	long arg = va_arg(ap, long);
	va_end(ap);
	return after_fcntl(fd, cmd, arg, real.fcntl(fd, cmd, arg));
}
ALIAS(fcntl, __fcntl);

EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	va_start(ap, cmd);
	long arg = va_arg(ap, long);
	va_end(ap);
	return after_fcntl(fd, cmd, arg, real.fcntl64(fd, cmd, arg));
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	int r = real.ioctl(fd, request, arg);
	if (request == FIONBIO && r == 0 && guest_is_on())
		set_nonblocking(fd, *(const int *)arg != 0);
	return r;
}

/* ---- stdio: its inner close passes no hook ---- */

static void closing_stream(FILE *f)
{
	if (!f || !guest_is_on())
		return;
	int saved = errno;
	int fd = fileno_unlocked(f); /* -1 for memory streams (CP7) */
	if (fd >= 0)
		lifetime_closing(fd);
	errno = saved;
}

EXPORT int fclose(FILE *f)
{
	closing_stream(f);
	return real.fclose(f);
}

EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict f)
{
	closing_stream(f);
	return real.freopen(path, mode, f);
}

EXPORT FILE *freopen64(const char *restrict path, const char *restrict mode, FILE *restrict f)
{
	closing_stream(f);
	return real.freopen64(path, mode, f);
}
