/* See blocking.h.
 *
 * The kernel's timer wheel rounds a wait up by as much as an eighth (SO_SNDTIMEO of 300 ms ended at 326: measured, HZ
 * 250). So the wait is taken in pieces: seven eighths of what is left, as long as that is more than the wheel resolves
 * finely, and connect called again on the socket goes on waiting.
 *
 * With SO_SNDTIMEO set, a signal whose handler has SA_RESTART ends connect with EINTR where without it the kernel would
 * restart (sock_intr_errno). So on EINTR we look whether the app has any handler without SA_RESTART: if none, we
 * restart as the kernel would have. */
#include "engine/blocking.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/real.h"
#include "base/sys.h"

#define FINE_US 100000 /* below it the wheel is as fine as a tick */

void blocking_set_timeout(int fd, int64_t us)
{
	/* Unsigned, it takes half as long. */
	struct timeval tv = {
		.tv_sec = (time_t)((uint64_t)us / 1000000), .tv_usec = (suseconds_t)((uint64_t)us % 1000000)};
	sys_setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
}

/* struct sigaction as the kernel has it. */
struct kernel_sigaction {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

bool blocking_handlers_restart(void)
{
	for (int sig = 1; sig <= 64; sig++) {
		struct kernel_sigaction sa;
		if (sys_sigaction_get(sig, &sa) != 0 || sa.handler == SIG_DFL || sa.handler == SIG_IGN)
			continue;
		/* libc's own two for cancellation and set*id: theirs restart, or unwind */
		if (sig != 32 && sig != 33 && !(sa.flags & SA_RESTART))
			return false;
	}
	return true;
}

static int time_out(int fd)
{
	sys_disconnect(fd);
	/* It leaves ECONNRESET in the socket, which the next connect on it would be told. */
	int told;
	socklen_t len = sizeof told;
	sys_getsockopt(fd, SOL_SOCKET, SO_ERROR, &told, &len);
	errno = ETIMEDOUT;
	return -1;
}

static bool is_same_life(const struct slot *s, uint64_t word)
{
	return slot_word(s) >> 32 == word >> 32;
}

int64_t blocking_piece_us(int64_t limit_ns)
{
	int64_t left_us = (int64_t)((uint64_t)(limit_ns + 999) / 1000);
	return left_us > FINE_US ? (left_us >> 3) * 7 : left_us;
}

int blocking_go_on(int fd, const struct sockaddr *to, socklen_t len, int64_t now_ns, int64_t deadline_ns,
	const struct slot *s, uint64_t word, int r, int saved)
{
	int err;
	bool is_first = true;
	int64_t now = now_ns, piece_us = blocking_piece_us(deadline_ns - now);
	for (;;) {
		err = r < 0 ? errno : 0;
		/* EINPROGRESS on the first, EALREADY on a further one: the piece is over. */
		bool is_over = r < 0 && (err == EINPROGRESS || (err == EALREADY && !is_first));
		int64_t then = now;
		if (is_over || err == EINTR)
			now = clock_now_ns();
		if (err == EINTR && blocking_handlers_restart())
			is_over = true;
		/* Back at once although it should block: it does not block (O_NONBLOCK set behind our back). The timer
		 * takes it. */
		if (is_over && err == EINPROGRESS && (now - then) / 1000 < piece_us / 2)
			break;
		if (!is_over)
			break;
		is_first = false;
		/* Closed by another thread while we waited: the number may be another's by now, and is touched no more
		 * (C7). */
		if (!is_same_life(s, word)) {
			errno = ETIMEDOUT;
			return -1;
		}
		if (deadline_ns <= now) {
			r = time_out(fd);
			err = ETIMEDOUT;
			break;
		}
		piece_us = blocking_piece_us(deadline_ns - now);
		blocking_set_timeout(fd, piece_us);
		r = real.connect(fd, to, len);
	}
	/* EISCONN on a further call: connected while we were between two. */
	if (r < 0 && err == EISCONN && !is_first)
		r = 0;
	/* What the app has set meanwhile stands. */
	if (is_same_life(s, word))
		blocking_set_timeout(fd, atomic_load(&s->send_timeout_us));
	errno = r < 0 ? err : saved;
	return r;
}

int blocking_connect(int fd, const struct sockaddr *to, socklen_t len, int64_t now_ns, int64_t deadline_ns,
	const struct slot *s, uint64_t word)
{
	int64_t app_timeout_us = atomic_load(&s->send_timeout_us);
	int64_t app_deadline_ns = app_timeout_us > 0 ? now_ns + app_timeout_us * 1000 : INT64_MAX;
	if (app_deadline_ns <= deadline_ns)
		return real.connect(fd, to, len);
	if (deadline_ns <= now_ns)
		return time_out(fd);
	int saved = errno;
	blocking_set_timeout(fd, blocking_piece_us(deadline_ns - now_ns));
	int r = real.connect(fd, to, len);
	return blocking_go_on(fd, to, len, now_ns, deadline_ns, s, word, r, saved);
}
