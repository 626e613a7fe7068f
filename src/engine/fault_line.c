/* Which destination a connection leads to, and for which life of its number (fault_layer.h). Any thread, also in signal
 * handlers; no lock, no allocation but the table itself. */
#include <string.h>

#include "base/sys.h"
#include "engine/fault.h"
#include "engine/fault_layer.h"
#include "engine/guest.h"

#define PLACES 256u

static struct fault_place places[PLACES];
static _Atomic uint32_t place_count;
struct fault_line *_Atomic fault_lines;
_Atomic bool fault_has_lines;

bool fault_lines_make(void)
{
	struct fault_line *none = NULL, *all;
	if (atomic_load(&fault_lines))
		return true;
	all = sys_mmap(FAULT_LINES_MAX * sizeof *all, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(all))
		return false;
	if (!atomic_compare_exchange_strong(&fault_lines, &none, all))
		sys_munmap(all, FAULT_LINES_MAX * sizeof *all);
	return true;
}

void fault_place_describe(struct fault_place *p, const struct addr *a)
{
	struct name_ref ref;
	struct text t = TEXT_ON(p->destination);
	p->addr = *a;
	p->name[0] = p->destination[0] = '\0';
	if (names_find(a, &ref) && names_text(&ref, p->name))
		text_fmt(&t, "%s:%u", p->name, (unsigned)a->port);
	else
		addr_text(&t, a);
}

static bool is_place(const struct fault_place *p, const struct fault_place *of)
{
	return p->addr.family == of->addr.family && p->addr.port == of->addr.port && p->addr.scope == of->addr.scope &&
	       strcmp(p->destination, of->destination) == 0 &&
	       (of->addr.family == ADDR_UNIX || memcmp(p->addr.ip, of->addr.ip, sizeof p->addr.ip) == 0);
}

uint32_t fault_place_keep(const struct fault_place *of)
{
	uint32_t n = atomic_load(&place_count);
	for (uint32_t i = 0; i < n && i < PLACES; i++)
		if (atomic_load_explicit(&places[i].is_ready, memory_order_acquire) && is_place(&places[i], of))
			return i + 1;
	if (n >= PLACES)
		return 0;
	uint32_t mine = atomic_fetch_add(&place_count, 1);
	if (mine >= PLACES)
		return 0;
	struct fault_place *p = &places[mine];
	p->addr = of->addr;
	memcpy(p->name, of->name, sizeof p->name);
	memcpy(p->destination, of->destination, sizeof p->destination);
	atomic_store_explicit(&p->is_ready, 1, memory_order_release);
	return mine + 1;
}

const struct fault_place *fault_place_at(uint32_t index)
{
	return &places[index];
}

bool fault_line_is_same(const struct fault_line *l, int fd)
{
	uint64_t cookie = atomic_load_explicit(&l->cookie, memory_order_relaxed);
	return !cookie || guest_is_restricted() || slot_read_cookie(fd) == cookie;
}

void fault_share_slow(int from, int to)
{
	struct fault_line *l = fault_line_of(from), *other = fault_line_at(to);
	uint64_t life = fault_life_of(to);
	if (!l || !other || !life)
		return;
	atomic_store(&other->place, atomic_load(&l->place));
	atomic_store(&other->has_reset, atomic_load(&l->has_reset));
	atomic_store(&other->reset_after, atomic_load(&l->reset_after));
	atomic_store(&other->in, atomic_load(&l->in));
	atomic_store(&other->cookie, atomic_load(&l->cookie));
	atomic_store(&other->life, life);
}
