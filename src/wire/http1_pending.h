/* The requests that wait for their answers, in one word which both sides of a connection write by compare-and-swap. The
 * sending side pushes, describes and takes back the newest; the receiving side takes the oldest away. Acquire and
 * release, though the word guards nothing but itself. For http1.c alone; inline, for it is in every call's way.
 *
 *   63 opaque | 62 in use | 61 the newest is still being sent | 60..53 answered, modulo 256 | 52..48 count |
 *   47..0 three bits a request, the oldest lowest
 *
 * A request's number (modulo 256) less those answered is its place; out of range: answered already. Numbers cannot be
 * mistaken: at most sixteen are pending.
 *
 * What worried: the writer announces two requests, the reader overtakes it with the answer to the first, the kernel
 * took but one. Taking back the newest by number leaves the first alone; taking back what was answered is refused, and
 * opaque. */
#ifndef RESIL_WIRE_HTTP1_PENDING_H
#define RESIL_WIRE_HTTP1_PENDING_H

#include "wire/http1.h"

/* What is known of a pending request; three bits. */
enum {
	HTTP1_PENDING_OTHER,
	HTTP1_PENDING_HEAD,
	HTTP1_PENDING_CONNECT,
	HTTP1_PENDING_METHOD = 3,
	HTTP1_PENDING_CLOSES = 4
};

#define HTTP1_PENDING_ENTRY_BITS 3
#define HTTP1_PENDING_ENTRIES ((1ull << (HTTP1_PENDING_ENTRY_BITS * HTTP1_PENDING_MAX)) - 1)
#define HTTP1_PENDING_COUNT_AT 48
#define HTTP1_PENDING_ANSWERED_AT 53
#define HTTP1_PENDING_IS_SENDING (1ull << 61)
#define HTTP1_PENDING_IN_USE (1ull << 62)
#define HTTP1_PENDING_IS_OPAQUE (1ull << 63)

static inline unsigned http1_pending_count(uint64_t w)
{
	return (unsigned)(w >> HTTP1_PENDING_COUNT_AT) & 31;
}

static inline uint8_t http1_pending_answered(uint64_t w)
{
	return (uint8_t)(w >> HTTP1_PENDING_ANSWERED_AT);
}

static inline uint64_t http1_pending_word(
	uint64_t w, uint64_t entries, unsigned count, uint8_t answered, bool is_sending)
{
	return (w & (HTTP1_PENDING_IN_USE | HTTP1_PENDING_IS_OPAQUE)) | (entries & HTTP1_PENDING_ENTRIES) |
	       (uint64_t)count << HTTP1_PENDING_COUNT_AT | (uint64_t)answered << HTTP1_PENDING_ANSWERED_AT |
	       (is_sending ? HTTP1_PENDING_IS_SENDING : 0);
}

static inline bool http1_pending_swap(_Atomic uint64_t *shared, uint64_t *w, uint64_t next)
{
	return atomic_compare_exchange_weak_explicit(shared, w, next, memory_order_acq_rel, memory_order_acquire);
}

static inline uint64_t http1_pending_load(const _Atomic uint64_t *shared)
{
	return atomic_load_explicit(shared, memory_order_acquire);
}

static inline bool http1_pending_push(_Atomic uint64_t *shared)
{
	uint64_t w = http1_pending_load(shared);

	do {
		if (http1_pending_count(w) == HTTP1_PENDING_MAX)
			return false;
	} while (!http1_pending_swap(
		shared, &w, http1_pending_word(w, w, http1_pending_count(w) + 1, http1_pending_answered(w), true)));
	return true;
}

/* One that is described at once. */
static inline bool http1_pending_push_described(_Atomic uint64_t *shared, uint64_t entry, bool is_sending)
{
	uint64_t w = http1_pending_load(shared);
	unsigned count;

	do {
		count = http1_pending_count(w);
		if (count >= HTTP1_PENDING_MAX)
			return false;
	} while (!http1_pending_swap(shared, &w,
		(w & ~HTTP1_PENDING_IS_SENDING) + (1ull << HTTP1_PENDING_COUNT_AT) +
			(entry << (HTTP1_PENDING_ENTRY_BITS * count)) + (is_sending ? HTTP1_PENDING_IS_SENDING : 0)));
	return true;
}

/* The request of that number, unless its answer has ended already. */
static inline void http1_pending_describe(_Atomic uint64_t *shared, uint8_t number, uint64_t entry)
{
	uint64_t w = http1_pending_load(shared);
	uint8_t position;

	do {
		position = (uint8_t)(number - http1_pending_answered(w));
		if (position >= http1_pending_count(w))
			return;
	} while (!http1_pending_swap(shared, &w, w | entry << (HTTP1_PENDING_ENTRY_BITS * position)));
}

/* All of the newest has been sent. */
static inline void http1_pending_sent(_Atomic uint64_t *shared)
{
	atomic_fetch_and_explicit(shared, ~HTTP1_PENDING_IS_SENDING, memory_order_acq_rel);
}

/* The oldest has been answered. False: it was taken back in the midst of its answer. */
static inline bool http1_pending_pop(_Atomic uint64_t *shared, bool *is_early)
{
	uint64_t w = http1_pending_load(shared);

	do {
		if (http1_pending_count(w) == 0)
			return false;
		*is_early = http1_pending_count(w) == 1 && w & HTTP1_PENDING_IS_SENDING;
	} while (!http1_pending_swap(shared, &w,
		http1_pending_word(w, (w & HTTP1_PENDING_ENTRIES) >> HTTP1_PENDING_ENTRY_BITS,
			http1_pending_count(w) - 1, (uint8_t)(http1_pending_answered(w) + 1),
			w & HTTP1_PENDING_IS_SENDING)));
	return true;
}

/* The n newest were never sent. False: some of them have been answered. */
static inline bool http1_pending_retract(_Atomic uint64_t *shared, unsigned n, bool is_sending)
{
	uint64_t w = http1_pending_load(shared), kept;

	do {
		if (http1_pending_count(w) < n)
			return false;
		kept = (1ull << (HTTP1_PENDING_ENTRY_BITS * (http1_pending_count(w) - n))) - 1;
	} while (!http1_pending_swap(shared, &w,
		http1_pending_word(w, w & kept, http1_pending_count(w) - n, http1_pending_answered(w), is_sending)));
	return true;
}

#endif
