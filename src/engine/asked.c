/* See asked.h. Any thread. An entry is written by the thread that has just connected the socket, before the app knows
 * of it; `life` is stored last and says whose it is. */
#include "engine/asked.h"

#include <netinet/in.h>
#include <string.h>

#include "base/sys.h"
#include "engine/guest.h"
#include "engine/slot.h"

struct entry {
	_Atomic uint64_t life; /* + 1; 0: none */
	socklen_t len;
	union {
		struct sockaddr any;
		struct sockaddr_in6 v6; /* the longest that a secondary stands in for */
	} to;
};

_Atomic bool asked_any;
static struct entry *_Atomic table; /* slot_count of them, backed as touched */

static struct entry *table_get(void)
{
	struct entry *t = atomic_load_explicit(&table, memory_order_acquire);
	if (t || guest_is_restricted())
		return t;
	size_t size = slot_count * sizeof(struct entry);
	void *made = sys_mmap(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(made))
		return NULL;
	if (atomic_compare_exchange_strong(&table, &t, made))
		return made;
	sys_munmap(made, size);
	return t;
}

void asked_keep(int fd, uint64_t life, const struct sockaddr *to, socklen_t len)
{
	struct entry *t = slot_at(fd) ? table_get() : NULL;
	if (!t)
		return;
	struct entry *e = &t[fd];
	atomic_store_explicit(&e->life, 0, memory_order_relaxed);
	e->len = len < sizeof e->to ? len : sizeof e->to;
	memcpy(&e->to, to, e->len);
	atomic_store_explicit(&e->life, (life & UINT32_MAX) + 1, memory_order_release);
	atomic_store_explicit(&asked_any, true, memory_order_release);
}

static struct entry *find(int fd)
{
	const struct slot *s = slot_at(fd);
	struct entry *t = s ? atomic_load_explicit(&table, memory_order_acquire) : NULL;
	if (!t)
		return NULL;
	uint64_t life = (slot_word(s) >> 32) + 1;
	return atomic_load_explicit(&t[fd].life, memory_order_acquire) == life ? &t[fd] : NULL;
}

void asked_dupped_slow(int from, int to)
{
	const struct entry *e = find(from);
	if (e && slot_at(to))
		asked_keep(to, slot_word(slot_at(to)) >> 32, &e->to.any, e->len);
}

void asked_name_slow(int fd, struct sockaddr *addr, socklen_t cap, socklen_t *len)
{
	const struct entry *e = find(fd);
	if (!e)
		return;
	memcpy(addr, &e->to, e->len < cap ? e->len : cap);
	*len = e->len;
}
