/* Plain bytes of a region (names, reasons, event bodies) that others may write at this very moment: copied byte by byte
 * with relaxed atomics, so that a race gives mixed bytes and nothing worse. Order and integrity are the caller's
 * (ready_key, seq, check). */
#ifndef RESIL_CORE_SHARED_H
#define RESIL_CORE_SHARED_H

#include <stddef.h>

static inline void shared_put(void *to, const void *from, size_t n)
{
	unsigned char *t = to;
	const unsigned char *f = from;

	for (size_t i = 0; i < n; i++)
		__atomic_store_n(&t[i], f[i], __ATOMIC_RELAXED);
}

static inline void shared_get(void *to, const void *from, size_t n)
{
	unsigned char *t = to;
	const unsigned char *f = from;

	for (size_t i = 0; i < n; i++)
		t[i] = __atomic_load_n(&f[i], __ATOMIC_RELAXED);
}

/* Writes a string into a field of n bytes: cut to fit, the rest zero. */
static inline void shared_put_text(char *to, size_t n, const char *from)
{
	size_t i = 0;

	for (; i + 1 < n && from[i]; i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
	for (; i < n; i++)
		__atomic_store_n(&to[i], '\0', __ATOMIC_RELAXED);
}

/* Reads a field of n bytes as a string, whatever it holds. */
static inline void shared_get_text(char *to, const char *from, size_t n)
{
	shared_get(to, from, n);
	to[n - 1] = '\0';
}

#endif
