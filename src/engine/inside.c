/* See inside.h. */
#include "engine/inside.h"

#include <errno.h>
#include <string.h>

#include "engine/flow.h"

#define TRIES 16

_Atomic bool inside_any;
_Atomic uint32_t inside_places[INSIDE_PLACES];

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
	       (place - inside_place(f->tls.random)) % INSIDE_PLACES >= TRIES;
}

void inside_expect(struct flow *f, int fd)
{
	uint32_t index = (uint32_t)(f - (struct flow *)(void *)flow_pool.base), place = inside_place(f->tls.random);
	atomic_store_explicit(&f->tls_fd, fd, memory_order_relaxed);
	for (uint32_t k = 0; k < TRIES; k++, place++) {
		_Atomic uint32_t *at = &inside_places[place % INSIDE_PLACES];
		uint32_t seen = atomic_load_explicit(at, memory_order_relaxed);
		if (seen && seen != index + 1 && !is_stale(seen - 1, place % INSIDE_PLACES))
			continue;
		if (seen == index + 1 || atomic_compare_exchange_strong_explicit(
						 at, &seen, index + 1, memory_order_release, memory_order_relaxed)) {
			atomic_store_explicit(&inside_any, true, memory_order_relaxed);
			return;
		}
	}
}

/* In place of memcmp: its call costs more than it does. */
static inline bool is_same(const uint8_t *a, const uint8_t *b)
{
	uint64_t x[4], y[4];
	memcpy(x, a, sizeof x);
	memcpy(y, b, sizeof y);
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]));
}
_Static_assert(TLS_RANDOM == 4 * sizeof(uint64_t), "all of it");

/* The flow with this random. */
static inline bool find(struct inside *i, const uint8_t random[TLS_RANDOM])
{
	uint32_t place = inside_place(random);
	for (uint32_t k = 0; k < TRIES; k++, place++) {
		uint32_t seen = atomic_load_explicit(&inside_places[place % INSIDE_PLACES], memory_order_acquire);
		if (!seen)
			return false;
		struct flow *f = i->flow = flow_at(seen - 1);
		if (!is_same(f->tls.random, random))
			continue;
		i->fd = atomic_load_explicit(&f->tls_fd, memory_order_relaxed);
		i->slot = slot_at(i->fd);
		if (!i->slot)
			return false;
		i->word = slot_word(i->slot);
		return slot_state_of(i->word) == SLOT_FLOWING && flow_peek(i->slot, i->word) == f;
	}
	return false;
}

/* From here on its kind is of what is in it. */
static __attribute__((noinline)) bool tie(struct inside *i, const uint8_t random[TLS_RANDOM], const void *object,
	inside_may_tie *may_tie, const void *context)
{
	struct flow *f = flow_hold(i->slot, i->word);
	/* Held, it is no other's any more. */
	bool is_new = f == i->flow && is_same(f->tls.random, random) && !flow_has(f, FLOW_IS_INSIDE) &&
		      atomic_load_explicit(&f->kind, memory_order_relaxed) == FLOW_TLS &&
		      may_tie(context, object, tls_records_is_complete(&f->tls)) &&
		      !(atomic_fetch_or(&f->marks, FLOW_IS_INSIDE) & FLOW_IS_INSIDE);
	if (is_new) {
		exchange_turns_inside(f);
		atomic_store_explicit(&f->tls_object, object, memory_order_release);
	}
	if (f)
		flow_let_go(f);
	return is_new;
}

bool inside_enter(struct inside *i, const uint8_t random[TLS_RANDOM], const void *object, inside_may_tie *may_tie,
	const void *context)
{
	if (!find(i, random))
		return false;
	/* The other end of a connection to ourselves has the same random. */
	const void *known = atomic_load_explicit(&i->flow->tls_object, memory_order_acquire);
	if (__builtin_expect(known != NULL, 1))
		return known == object;
	return tie(i, random, object, may_tie, context);
}

static void look_at(struct inside *i, const void *buf, size_t n)
{
	i->one = (struct iovec){(void *)(uintptr_t)buf, n};
	i->octets = (struct octets){.iov = &i->one, .count = 1, .limit = n, .is_fixed = true, .is_inside = true};
}

/* In the midst of an answer, or of a request, whose end is not framed, there is nothing to learn. */
static inline bool is_midst(const struct inside *i, enum flow_phase phase)
{
	return flow_phase_of(flow_word(i->flow)) == phase &&
	       atomic_load_explicit(&i->flow->kind, memory_order_relaxed) == FLOW_PLAIN;
}

void inside_reads(struct inside *i)
{
	exchange_receives(i->slot, i->word, i->fd);
}

void inside_read(struct inside *i, const void *buf, size_t n)
{
	if (n > 0 && is_midst(i, FLOW_ANSWERING))
		return;
	look_at(i, buf, n);
	if (n == 0)
		i->octets.limit = 1; /* some were asked for, and there are none any more */
	exchange_received(i->slot, i->word, i->fd, &i->octets, (ssize_t)n, 0, 0);
}

void inside_ended(struct inside *i)
{
	if (!flow_has(i->flow, FLOW_IS_CUT))
		return;
	look_at(i, "", 1);
	bool is_reset = flow_has(i->flow, FLOW_IS_RESET);
	exchange_received(i->slot, i->word, i->fd, &i->octets, is_reset ? -1 : 0, ECONNRESET, 0);
}

void inside_writes(struct inside *i, const void *buf, size_t n)
{
	i->is_told = !is_midst(i, FLOW_WAITING);
	if (!i->is_told) {
		flow_mark(i->flow, FLOW_HAS_SENT);
		return;
	}
	look_at(i, buf, n);
	exchange_sends(i->slot, i->word, i->fd, &i->octets, &i->sending);
}

void inside_wrote(struct inside *i, size_t gone)
{
	if (i->is_told)
		exchange_sent(i->slot, i->fd, &i->octets, &i->sending, gone ? (ssize_t)gone : -1, EAGAIN);
}

void inside_refused(struct inside *i)
{
	exchange_refused(i->slot, i->word, i->fd);
}
