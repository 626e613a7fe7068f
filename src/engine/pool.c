/* See pool.h. */
#include "engine/pool.h"

#include <stdbool.h>

#include "base/sys.h"
#include "engine/guest.h"

static __attribute__((noinline, cold)) bool make(struct pool *p)
{
	if (guest_is_restricted())
		return false;
	struct rlimit space = {.rlim_cur = RLIM_INFINITY};
	sys_getrlimit(RLIMIT_AS, &space);
	uint32_t n = space.rlim_cur == RLIM_INFINITY ? p->most : p->tight;
	size_t size = (n + 1ul) * p->size; /* the first stands for none */
	char *at = sys_mmap(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(at))
		return false;
	/* The size goes with the mapping: another thread may have seen another limit. */
	uintptr_t nobody = 0;
	if (!atomic_compare_exchange_strong(&p->owner, &nobody, guest_thread())) {
		sys_munmap(at, size);
		return __atomic_load_n(&p->base, __ATOMIC_ACQUIRE) != NULL;
	}
	p->count = n;
	p->none = at;
	__atomic_store_n(&p->base, at + p->size, __ATOMIC_RELEASE);
	return true;
}

uint32_t pool_take(struct pool *p)
{
	if (__builtin_expect(!__atomic_load_n(&p->base, __ATOMIC_ACQUIRE), 0) && !make(p))
		return POOL_NONE;
	uint64_t head = atomic_load_explicit(&p->free_list, memory_order_acquire);
	while ((uint32_t)head) {
		uint32_t index = (uint32_t)head - 1;
		uint64_t next =
			((head >> 32) + 1) << 32 | atomic_load_explicit(pool_link(p, index), memory_order_relaxed);
		if (atomic_compare_exchange_weak_explicit(
			    &p->free_list, &head, next, memory_order_acq_rel, memory_order_acquire))
			return index;
	}
	uint32_t index = atomic_fetch_add(&p->high, 1);
	if (index < p->count)
		return index;
	atomic_fetch_sub(&p->high, 1);
	return POOL_NONE;
}

void pool_forked(struct pool *p)
{
	if (!p->base)
		atomic_store(&p->owner, 0);
}

void pool_reset(struct pool *p)
{
	pool_forked(p);
	atomic_store(&p->high, 0);
	atomic_store(&p->free_list, 0);
}
