/* See inside.h. */
#include "engine/inside.h"

#include <errno.h>
#include <string.h>

#include "engine/flow.h"

#define PLACES 8192
#define TRIES 16

_Atomic bool inside_any;
static _Atomic uint32_t places[PLACES]; /* index + 1 of a flow, at its random's place or behind it; stale ones too */

/* Not of the first octets: old clients write the time there. */
static uint32_t place_of(const uint8_t random[TLS_RANDOM])
{
	uint32_t h;
	memcpy(&h, random + 8, sizeof h);
	return h % PLACES;
}

static struct flow *flow_at(uint32_t index)
{
	return pool_at(&flow_pool, index);
}

/* Does the flow stand at this place by right? */
static bool is_stale(uint32_t index, uint32_t place)
{
	const struct flow *f = flow_at(index);
	return atomic_load_explicit(&f->refs, memory_order_relaxed) == 0 ||
	       !atomic_load_explicit(&f->tls.has_hello, memory_order_acquire) ||
	       (place - place_of(f->tls.random)) % PLACES >= TRIES;
}

void inside_expect(struct flow *f, int fd)
{
	uint32_t index = (uint32_t)(f - (struct flow *)(void *)flow_pool.base), place = place_of(f->tls.random);
	atomic_store_explicit(&f->tls_fd, fd, memory_order_relaxed);
	for (uint32_t k = 0; k < TRIES; k++, place++) {
		_Atomic uint32_t *at = &places[place % PLACES];
		uint32_t seen = atomic_load_explicit(at, memory_order_relaxed);
		if (seen && seen != index + 1 && !is_stale(seen - 1, place % PLACES))
			continue;
		if (seen == index + 1 || atomic_compare_exchange_strong_explicit(
						 at, &seen, index + 1, memory_order_release, memory_order_relaxed)) {
			atomic_store_explicit(&inside_any, true, memory_order_relaxed);
			return;
		}
	}
}

/* The flow with this random, held. */
static bool find(struct inside *i, const uint8_t random[TLS_RANDOM])
{
	uint32_t place = place_of(random);
	for (uint32_t k = 0; k < TRIES; k++, place++) {
		uint32_t seen = atomic_load_explicit(&places[place % PLACES], memory_order_acquire);
		if (!seen)
			return false;
		struct flow *f = flow_at(seen - 1);
		if (memcmp(f->tls.random, random, TLS_RANDOM) != 0)
			continue;
		i->fd = atomic_load_explicit(&f->tls_fd, memory_order_relaxed);
		i->slot = slot_at(i->fd);
		if (!i->slot)
			return false;
		i->word = slot_word(i->slot);
		if (slot_state_of(i->word) != SLOT_FLOWING || !(i->flow = flow_hold(i->slot, i->word)))
			return false;
		/* Held, it is no other's any more. */
		if (i->flow == f && memcmp(f->tls.random, random, TLS_RANDOM) == 0)
			return true;
		flow_let_go(i->flow);
	}
	return false;
}

/* From here on its kind is of what is in it. */
static void tie(struct flow *f, const void *object)
{
	if (atomic_fetch_or(&f->marks, FLOW_IS_INSIDE) & FLOW_IS_INSIDE)
		return; /* another thread has */
	atomic_store_explicit(&f->tls_object, object, memory_order_relaxed);
	exchange_turns_inside(f);
}

bool inside_enter(struct inside *i, const uint8_t random[TLS_RANDOM], const void *object,
	bool (*may_tie)(const void *context, const void *object, bool is_complete), const void *context)
{
	if (!find(i, random))
		return false;
	struct flow *f = i->flow;
	if (!flow_has(f, FLOW_IS_INSIDE) && atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_TLS &&
		may_tie(context, object, tls_records_is_complete(&f->tls)))
		tie(f, object);
	/* The other end of a connection to ourselves has the same random. */
	if (flow_has(f, FLOW_IS_INSIDE) && atomic_load_explicit(&f->tls_object, memory_order_relaxed) == object)
		return true;
	flow_let_go(f);
	return false;
}

void inside_leave(struct inside *i)
{
	flow_let_go(i->flow);
}

static void look_at(struct inside *i, const void *buf, size_t n)
{
	i->one = (struct iovec){(void *)(uintptr_t)buf, n};
	i->octets = (struct octets){.iov = &i->one, .count = 1, .limit = n, .is_fixed = true, .is_inside = true};
}

void inside_read(struct inside *i, const void *buf, size_t n)
{
	look_at(i, buf, n);
	if (n == 0)
		i->octets.limit = 1; /* some were asked for, and there are none any more */
	exchange_received(i->slot, i->word, i->fd, &i->octets, (ssize_t)n, 0, 0);
}

void inside_writes(struct inside *i, const void *buf, size_t n)
{
	look_at(i, buf, n);
	exchange_sends(i->slot, i->word, i->fd, &i->octets, &i->sending);
}

void inside_wrote(struct inside *i, size_t gone)
{
	exchange_sent(i->slot, i->fd, &i->octets, &i->sending, gone ? (ssize_t)gone : -1, EAGAIN);
}

void inside_refused(struct inside *i)
{
	exchange_refused(i->slot, i->word, i->fd);
}
