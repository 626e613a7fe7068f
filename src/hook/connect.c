/* Taken: what makes, starts and asks about connections. Any thread, signal handlers, before main, after exit began. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/time.h>

#include "base/addr.h"
#include "base/real.h"
#include "engine/asked.h"
#include "engine/detour.h"
#include "engine/everyday.h"
#include "engine/guest.h"
#include "engine/io.h"
#include "engine/lifetime.h"
#include "engine/outcome.h"
#include "engine/service.h"
#include "engine/slot.h"
#include "hook/export.h"

#ifndef TCP_FASTOPEN_CONNECT
#define TCP_FASTOPEN_CONNECT 30
#endif

/* A number that libc just gave out: what was known of it is over (E12: its close may have been a raw system call). */
static void is_new(int fd, bool is_guardable, uint32_t traits)
{
	lifetime_closing(fd);
	service_keep_socket();
	if (is_guardable && slot_table_make())
		slot_begin(fd, true, traits);
}

EXPORT int socket(int domain, int type, int protocol)
{
	int fd = real.socket(domain, type, protocol);
	if (fd < 0 || !guest_is_on())
		return fd;
	bool is_stream = (type & 0xf) == SOCK_STREAM;
	bool is_tcp = (domain == AF_INET || domain == AF_INET6) &&
		      (protocol == 0 || protocol == IPPROTO_TCP || protocol == 262);
	uint32_t traits = (domain == AF_UNIX ? TRAIT_UNIX : 0u) | (type & SOCK_NONBLOCK ? TRAIT_NONBLOCKING : 0u);
	is_new(fd, is_stream && (is_tcp || domain == AF_UNIX), traits);
	return fd;
}

EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	int got = real.accept(fd, addr, len);
	if (got >= 0 && guest_is_on())
		is_new(got, false, 0);
	return got;
}

EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	int got = real.accept4(fd, addr, len, flags);
	if (got >= 0 && guest_is_on())
		is_new(got, false, 0);
	return got;
}

EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	if (!guest_is_on())
		return real.connect(fd, addr, len);
	return everyday_connect(fd, addr, len);
}
ALIAS(connect, __connect);

EXPORT int shutdown(int fd, int how)
{
	/* On a pending connect SHUT_RDWR gives it up; whether it is pending must be seen before. */
	struct slot *s = how == SHUT_RDWR ? slot_watched(fd) : NULL;
	bool is_pending = s && guest_is_on() && outcome_is_pending(s, fd);
	if (s && !is_pending && guest_is_on())
		io_shut(s, fd);
	int r = real.shutdown(fd, how);
	if (is_pending && r == 0)
		lifetime_cancelled(fd);
	return r;
}

static void name(int fd, bool is_peer, struct sockaddr *addr, socklen_t cap, socklen_t *len)
{
	int saved = errno;
	if (guest_is_on())
		detour_name(fd, is_peer, addr, cap, len);
	if (guest_is_on() && is_peer)
		asked_name(fd, addr, cap, len);
	errno = saved;
}

EXPORT int getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	bool is_kept = atomic_load_explicit(&detour_any, memory_order_relaxed) ||
		       atomic_load_explicit(&asked_any, memory_order_relaxed);
	socklen_t cap = is_kept && addr_may_be_mapped(len) ? *len : 0;
	int r = real.getpeername(fd, addr, len);
	if (r == 0 && cap)
		name(fd, true, addr, cap, len);
	return r;
}

EXPORT int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	socklen_t cap = atomic_load_explicit(&detour_any, memory_order_relaxed) && addr_may_be_mapped(len) ? *len : 0;
	int r = real.getsockname(fd, addr, len);
	if (r == 0 && cap)
		name(fd, false, addr, cap, len);
	return r;
}

EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	int r = real.getsockopt(fd, level, name, value, len);
	if (level != SOL_SOCKET || name != SO_ERROR)
		return r;
	struct slot *s = slot_watched(fd);
	bool may_be_detoured = atomic_load_explicit(&detour_any, memory_order_relaxed);
	if ((!s && !may_be_detoured) || r != 0 || *len < sizeof(int) || !guest_is_on())
		return r;
	int saved = errno, err;
	memcpy(&err, value, sizeof err);
	if (may_be_detoured && err)
		err = detour_error(fd, err);
	if (s)
		err = outcome_so_error(s, fd, err);
	memcpy(value, &err, sizeof err);
	errno = saved;
	return r;
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int r = real.setsockopt(fd, level, name, value, len);
	struct slot *s = slot_at(fd);
	if (r != 0 || !s || slot_state_of(slot_word(s)) == SLOT_FREE || !guest_is_on())
		return r;
	if (level == SOL_SOCKET && name == SO_SNDTIMEO && len >= sizeof(struct timeval)) {
		struct timeval tv;
		memcpy(&tv, value, sizeof tv);
		atomic_store(&s->send_timeout_us, slot_timeout_us(&tv));
	} else if (level == IPPROTO_TCP && name == TCP_FASTOPEN_CONNECT && len >= sizeof(int)) {
		int on;
		memcpy(&on, value, sizeof on);
		if (on)
			atomic_fetch_or(&s->traits, TRAIT_EARLY);
		else
			atomic_fetch_and(&s->traits, ~(uint32_t)TRAIT_EARLY);
	}
	return r;
}
