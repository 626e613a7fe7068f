/* Names learned from look-ups: which name an address was given for, so that a breaker is `api.internal:443` and not an
 * address, and which other addresses that look-up gave, so that several of them are one call (A3). Private to the
 * process, kept for its life (results are used for hours), the least recently used of them giving way to new ones.
 *
 * Writers: getaddrinfo and its kin, any thread. Readers: every connect. No lock: an entry has a sequence (odd while
 * written), readers copy and look again. A writer stopped half-way leaves its entry odd: readers skip it, and after a
 * fork names_forked() empties such entries in the child.
 */
#ifndef RESIL_POLICY_NAMES_H
#define RESIL_POLICY_NAMES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"

#define NAMES_MAX 253	   /* longest name kept (DNS) */
#define NAMES_ADDRESSES 32 /* addresses kept for a name */

/* A found name: a handle whose text is read by names_text. */
struct name_ref {
	uint32_t entry;	  /* index */
	uint32_t version; /* of the entry's text: it changes when the entry is given to another name */
	uint32_t bit;	  /* this address's place among the name's, 0..31 */
	uint32_t current; /* mask of the addresses that the latest look-up gave; 0 bit set here: an older one */
};

/* A found name in one number, never 0, and its entry again. */
static inline uint32_t names_identity(const struct name_ref *ref)
{
	return ref->entry << 24 | (ref->version << 1 & 0xffffff) | 1;
}
static inline uint32_t names_entry_of(uint32_t identity)
{
	return identity >> 24;
}
/* Lower case without the trailing dot, as patterns and circuits have names; its length, 0 when it does not fit or is
 * empty. */
size_t names_clean(char to[NAMES_MAX + 1], const char *name);
/* Records a look-up that began at began_ns: name as the app gave it (lower-cased, trailing dot dropped here; literals
 * are ignored), its addresses (ports ignored). A second look-up of the name within a second (the other family) adds to
 * it, a later one replaces what is current. */
void names_learn(const char *name, const struct addr *addrs, unsigned count, int64_t began_ns, int64_t now_ns);
/* When the look-up began that a call to this name goes on from: one that has ended within the last second, and that no
 * call has taken yet, whichever thread made it. 0: none. entry: of a name_ref. */
int64_t names_take_look_up(uint32_t entry, int64_t now_ns);
/* The name an address belongs to: this thread's latest look-up first, else the process's latest (A13). */
bool names_search(const struct addr *a, struct name_ref *ref);
extern __attribute__((
	visibility("hidden"))) _Atomic(struct names_table *) names_table; /* null until something was learnt */
static inline bool names_find(const struct addr *a, struct name_ref *ref)
{
	return atomic_load_explicit(&names_table, memory_order_relaxed) && names_search(a, ref);
}
/* The text of a found name; false when the entry has been given away meanwhile. */
bool names_text(const struct name_ref *ref, char name[NAMES_MAX + 1]);
/* Hashes (never 0) of the addresses that the latest look-up of this name gave; how many. The same in every process. */
unsigned names_current(const struct name_ref *ref, uint32_t hashes[NAMES_ADDRESSES]);
/* After fork, in the child. */
void names_forked(void);

#endif
