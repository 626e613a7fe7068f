/* See policy.h.
 *
 * Why a configuration is never freed under a reader: both sides write, then read what the other writes, all four
 * sequentially consistent.
 *    acquire:  count++       then  current == i ?      yes: use holder i      no: count--, again
 *    install:  current = j   then  count of i == 0 ?   yes: free holder i     no: leave it to the next install
 * At least one of the two sees the other: if the reader still found i current, the installer sees its count. A reader
 * that comes later finds j. A reader that finds a holder reused and current again reads the new configuration, which is
 * the one in force.
 * Installers exclude each other by a flag that carries their pid: in a child of fork a parent's flag is void. A crash
 * at any line of install leaves a holder filled but not current, which the next install frees, or a mapping that nobody
 * knows, never one freed twice. */
#include "policy/policy.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/sys.h"

#define HOLDERS 8
#define PATH_MAX_BYTES 4096

struct holder {
	struct config *_Atomic config; /* written by the installer, while it is not current and has no count */
	_Atomic int32_t count;	       /* readers, and for a moment those who come too late */
};

/* What is swapped whole: the configuration, and faults added at run time. */
static struct shelf {
	struct holder holders[HOLDERS];
	_Atomic uint32_t current; /* index + 1; 0: none yet */
} in_force, added;
_Atomic uint32_t policy_current;
static _Atomic int32_t installer; /* pid; 0: nobody installs */

/* Written by policy_set_source, read under the installer's flag. */
static char source_file[PATH_MAX_BYTES], source_set[CONFIG_SET_MAX + 2], source_faults[CONFIG_SET_MAX + 2];
static struct config_source source;

static bool installer_enter(void)
{
	int32_t me = (int32_t)sys_getpid(), found = 0;
	if (atomic_compare_exchange_strong(&installer, &found, me))
		return true;
	return found != me && atomic_compare_exchange_strong(&installer, &found, me);
}

static void installer_leave(void)
{
	atomic_store(&installer, 0);
}

/* Frees what no reader holds; returns an empty holder, or null. */
static struct holder *sweep(struct shelf *s)
{
	struct holder *empty = NULL;
	uint32_t now = atomic_load(&s->current);
	for (uint32_t i = 0; i < HOLDERS; i++) {
		struct holder *h = &s->holders[i];
		if (i + 1 == now || atomic_load(&h->count) != 0)
			continue;
		struct config *c = atomic_exchange(&h->config, NULL);
		config_free(c);
		empty = h;
	}
	return empty;
}

static int install_on(struct shelf *s, struct config *c)
{
	struct holder *h = sweep(s);
	if (!h)
		return -EBUSY;
	atomic_store(&h->config, c);
	atomic_store(&s->current, (uint32_t)(h - s->holders) + 1);
	atomic_fetch_add(&policy_current, 1);
	sweep(s);
	return 0;
}

static int install(struct config *c)
{
	return install_on(&in_force, c);
}

int policy_install(struct config *c)
{
	if (!installer_enter())
		return -EBUSY;
	int err = install(c);
	installer_leave();
	return err;
}

int policy_install_faults(struct config *c)
{
	if (!installer_enter())
		return -EBUSY;
	int err = install_on(&added, c);
	installer_leave();
	return err;
}

static const struct config *acquire(struct shelf *s)
{
	for (;;) {
		uint32_t now = atomic_load(&s->current);
		if (now == 0)
			return NULL;
		struct holder *h = &s->holders[now - 1];
		atomic_fetch_add(&h->count, 1);
		if (atomic_load(&s->current) == now)
			return atomic_load(&h->config);
		atomic_fetch_sub(&h->count, 1);
	}
}

const struct config *policy_acquire(void)
{
	return acquire(&in_force);
}

const struct config *policy_acquire_faults(void)
{
	return acquire(&added);
}

static bool release(struct shelf *s, const struct config *c)
{
	for (uint32_t i = 0; i < HOLDERS; i++) {
		if (atomic_load_explicit(&s->holders[i].config, memory_order_relaxed) == c) {
			atomic_fetch_sub(&s->holders[i].count, 1);
			return true;
		}
	}
	return false;
}

void policy_release(const struct config *c)
{
	if (c && !release(&in_force, c))
		release(&added, c);
}

void policy_set_source(const struct config_source *from)
{
	source = (struct config_source){.is_optional = from->is_optional};
	if (from->file) {
		text_copy(source_file, sizeof source_file, from->file);
		source.file = source_file;
	}
	if (from->set) {
		/* A text too long stays too long, and is refused when it is read. */
		text_copy(source_set, sizeof source_set, from->set);
		source.set = source_set;
	}
	if (from->faults) {
		text_copy(source_faults, sizeof source_faults, from->faults);
		source.faults = source_faults;
	}
}

static bool (*find_file)(char *path, size_t cap, bool *is_optional);

void policy_set_finder(bool (*find)(char *path, size_t cap, bool *is_optional))
{
	find_file = find;
}

/* A file may have come, or gone, since the start: asked anew where to read. */
static void find_again(void)
{
	source.file = find_file(source_file, sizeof source_file, &source.is_optional) ? source_file : NULL;
}

int policy_reload(struct text *errors)
{
	if (!installer_enter())
		return -EBUSY;
	if (find_file)
		find_again();
	int faults = 0;
	struct config *c = config_load(&source, errors, &faults);
	int err = !c ? -ENOMEM : faults > 0 ? faults : install(c);
	installer_leave();
	if (err != 0)
		config_free(c);
	return err;
}

static bool is_loopback(const struct addr *a)
{
	static const uint8_t v6[16] = {[15] = 1};
	if (a->family != ADDR_INET)
		return false;
	return addr_is_v4(a) ? a->ip[12] == 127 : memcmp(a->ip, v6, sizeof v6) == 0;
}

uint32_t policy_recovery_max_ms(const struct policy *p, const struct addr *a)
{
	bool is_set = p->origin[KEY_RECOVERY_MAX].kind != ORIGIN_BUILTIN ||
		      p->origin[KEY_RECOVERY_TIMEOUT].kind != ORIGIN_BUILTIN;
	return !is_set && a && is_loopback(a) ? POLICY_LOCAL_WAIT_MS : p->rules.recovery_max_ms;
}
