/* Records of one size in a lazily backed mapping, given out and taken back without a lock: a tagged free list. Numbers
 * stay valid memory for the life of the process. Any thread, signal handlers too. */
#ifndef RESIL_ENGINE_POOL_H
#define RESIL_ENGINE_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_NONE UINT32_MAX

struct pool {
	size_t size;	      /* of a record */
	size_t link_at;	      /* of a _Atomic uint32_t in it, the pool's while the record is free */
	uint32_t most, tight; /* records at most; under a limit of address space */
	char *base;
	char *none; /* the record before it, never given out, which stays zero: for looks at none */
	uint32_t count;
	_Atomic uintptr_t owner;    /* the thread that maps it */
	_Atomic uint32_t high;	    /* records ever given out */
	_Atomic uint64_t free_list; /* tag 32 | index + 1 */
};

/* A record as it was left (zero at first), or POOL_NONE. */
uint32_t pool_take(struct pool *p);
static inline void *pool_at(const struct pool *p, uint32_t index)
{
	return p->base + (size_t)index * p->size;
}
/* The free list's link in a record. */
static inline _Atomic uint32_t *pool_link(const struct pool *p, uint32_t index)
{
	return (_Atomic uint32_t *)(void *)((char *)pool_at(p, index) + p->link_at);
}
static inline void pool_give(struct pool *p, uint32_t index)
{
	uint64_t head = atomic_load_explicit(&p->free_list, memory_order_relaxed), next;
	do {
		atomic_store_explicit(pool_link(p, index), (uint32_t)head, memory_order_relaxed);
		next = ((head >> 32) + 1) << 32 | (index + 1);
	} while (!atomic_compare_exchange_weak_explicit(
		&p->free_list, &head, next, memory_order_release, memory_order_relaxed));
}
/* Numbers below it have been given out at some time. */
static inline uint32_t pool_high(const struct pool *p)
{
	uint32_t high = atomic_load_explicit(&p->high, memory_order_acquire);
	return high < p->count ? high : p->count;
}
/* In a fork's child: whoever was mapping it is not here. */
void pool_forked(struct pool *p);
/* All of it is free again. Single-threaded. */
void pool_reset(struct pool *p);

#endif
