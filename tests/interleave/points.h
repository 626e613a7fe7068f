/* Compiled in front of src/core for tests/interleave: each atomic operation that orders is a point at which the
 * scheduler may let another thread go on, or this one die; a relaxed one is a point at which it may die. Bytes of names
 * and events are written in three pieces. */
#ifndef RESIL_TESTS_POINTS_H
#define RESIL_TESTS_POINTS_H

#include <stdatomic.h>

void interleave_point(void);
void interleave_relaxed(void);
void interleave_byte(void);
#define interleave_before(order) ((order) == memory_order_relaxed ? interleave_relaxed() : interleave_point())

#undef atomic_load_explicit
#undef atomic_thread_fence
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#define atomic_load_explicit(p, order)                                                                                 \
	__extension__({                                                                                                \
		interleave_before(order);                                                                              \
		__auto_type at_ = (p);                                                                                 \
		__typeof__((void)0, *at_) value_;                                                                      \
		__atomic_load(at_, &value_, (order));                                                                  \
		value_;                                                                                                \
	})
#define atomic_store_explicit(p, v, order)                                                                             \
	__extension__({                                                                                                \
		interleave_before(order);                                                                              \
		__auto_type at_ = (p);                                                                                 \
		__typeof__((void)0, *at_) value_ = (v);                                                                \
		__atomic_store(at_, &value_, (order));                                                                 \
	})
#define atomic_exchange_explicit(p, v, order)                                                                          \
	__extension__({                                                                                                \
		interleave_point();                                                                                    \
		__auto_type at_ = (p);                                                                                 \
		__typeof__((void)0, *at_) new_ = (v), old_;                                                            \
		__atomic_exchange(at_, &new_, &old_, (order));                                                         \
		old_;                                                                                                  \
	})
#define atomic_fetch_add_explicit(p, v, order) (interleave_before(order), __atomic_fetch_add((p), (v), (order)))
#define atomic_fetch_sub_explicit(p, v, order) (interleave_before(order), __atomic_fetch_sub((p), (v), (order)))
#define atomic_fetch_or_explicit(p, v, order) (interleave_point(), __atomic_fetch_or((p), (v), (order)))
#define atomic_compare_exchange_strong_explicit(p, e, d, yes, no)                                                      \
	__extension__({                                                                                                \
		interleave_point();                                                                                    \
		__auto_type at_ = (p);                                                                                 \
		__typeof__((void)0, *at_) to_ = (d);                                                                   \
		__atomic_compare_exchange(at_, (e), &to_, 0, (yes), (no));                                             \
	})
#define atomic_compare_exchange_weak_explicit atomic_compare_exchange_strong_explicit
#define atomic_thread_fence(order) (interleave_point(), __atomic_thread_fence(order))
#define __atomic_store_n(p, v, order)                                                                                  \
	__extension__({                                                                                                \
		interleave_byte();                                                                                     \
		__typeof__(*(p)) value_ = (v);                                                                         \
		__atomic_store((p), &value_, (order));                                                                 \
	})

#endif
