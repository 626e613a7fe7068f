/* See slot.h. */
#include "engine/slot.h"

#include <sched.h>
#include <sys/time.h>

#include "base/sys.h"
#include "engine/guest.h"

#define CEILING (1u << 20) /* descriptors guarded at most; 64 MB of address space, backed as touched */
#define FLOOR 1024u

#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif

struct slot *slot_table;
uint32_t slot_count;
static _Atomic int highest = -1;

static uint32_t wanted_slots(void)
{
	struct rlimit files = {.rlim_max = FLOOR}, space = {.rlim_cur = RLIM_INFINITY};
	sys_getrlimit(RLIMIT_NOFILE, &files);
	sys_getrlimit(RLIMIT_AS, &space);
	uint64_t n = files.rlim_max < CEILING ? files.rlim_max : CEILING;
	/* Under a limit of address space take no more than a 128th of it. */
	if (space.rlim_cur != RLIM_INFINITY && n > space.rlim_cur / 128 / sizeof(struct slot))
		n = space.rlim_cur / 128 / sizeof(struct slot);
	return n < FLOOR ? FLOOR : (uint32_t)n;
}

bool slot_table_map(void)
{
	if (guest_is_restricted())
		return false;
	for (uint32_t n = wanted_slots(); n >= FLOOR; n /= 2) {
		size_t size = n * sizeof(struct slot);
		void *at = sys_mmap(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (sys_is_error(at))
			continue;
		struct slot *none = NULL;
		if (!__atomic_compare_exchange_n(&slot_table, &none, at, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
			/* Another thread was faster; its count follows at once. */
			sys_munmap(at, size);
			for (int i = 0; i < 1000 && !__atomic_load_n(&slot_count, __ATOMIC_ACQUIRE); i++)
				sched_yield();
			return __atomic_load_n(&slot_count, __ATOMIC_ACQUIRE) != 0;
		}
		__atomic_store_n(&slot_count, n, __ATOMIC_RELEASE);
		return true;
	}
	return false;
}

int slot_highest(void)
{
	return atomic_load_explicit(&highest, memory_order_relaxed);
}

void slot_begin(int fd, bool is_socket, uint32_t traits)
{
	struct slot *s = slot_at(fd);
	if (!s)
		return;
	uint64_t seen = slot_word(s);
	if (!is_socket && slot_state_of(seen) == SLOT_FREE)
		return;
	int top = slot_highest();
	while (fd > top && !atomic_compare_exchange_weak(&highest, &top, fd))
		;
	/* s->call stays: whoever has just won the change out of CONNECTING may be about to take it, by its generation.
	 */
	atomic_store_explicit(&s->cookie, 0, memory_order_relaxed);
	atomic_store_explicit(&s->deadline_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&s->send_timeout_us, 0, memory_order_relaxed);
	atomic_store_explicit(&s->traits, traits, memory_order_relaxed);
	while (!slot_change(s, seen, is_socket ? SLOT_SOCKET : SLOT_FREE, true))
		seen = slot_word(s);
}

void slot_begin_again(int fd)
{
	struct slot *s = slot_at(fd);
	uint32_t keep = atomic_load(&s->traits) & (TRAIT_NONBLOCKING | TRAIT_UNIX);
	int64_t send_timeout = atomic_load(&s->send_timeout_us);
	slot_begin(fd, true, keep);
	atomic_store(&s->send_timeout_us, send_timeout);
}

uint64_t slot_read_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof cookie;
	if (guest_is_restricted())
		return 0;
	return sys_getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) == 0 ? cookie : 0;
}

bool slot_is_same(const struct slot *s, int fd)
{
	uint64_t known = atomic_load_explicit(&s->cookie, memory_order_relaxed);
	return known != 0 && slot_read_cookie(fd) == known;
}

int64_t slot_timeout_us(const struct timeval *tv)
{
	/* A century, and far from overflow in nanoseconds. */
	if (tv->tv_sec < 0 || tv->tv_sec > 3000000000LL)
		return 0;
	return (int64_t)tv->tv_sec * 1000000 + tv->tv_usec;
}
