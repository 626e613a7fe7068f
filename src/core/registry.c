/* See registry.h. Called on the connect path and by listings; any process, any thread; no lock, no system call.
 *
 * A slot's life: key_hash 0 -> claimed by CAS; name, policy, name_len written; is_ready 1 (release). A claimer that
 * dies in between leaves a slot that the next one with this key fills with the same bytes. Two names of one hash do not
 * share a slot: once it is ready the name decides, and the other goes on to the next free one. Slots are never freed
 * yet, so a probe sequence never has holes. */
#include "core/registry.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "core/shared.h"

static uint64_t key_of(const char *name, size_t len)
{
	uint64_t key = hash_mix(hash_bytes(HASH_START, name, len));

	return key ? key : 1;
}

/* The length as far as it can be believed. */
static size_t name_len(const struct destination *d)
{
	uint32_t len = atomic_load_explicit(&d->name_len, memory_order_relaxed);

	return len <= REGION_NAME_MAX ? len : REGION_NAME_MAX;
}

static bool has_name(const struct destination *d, const char *name, size_t len)
{
	if (name_len(d) != len)
		return false;
	for (size_t i = 0; i < len; i++)
		if (__atomic_load_n(&d->name[i], __ATOMIC_RELAXED) != name[i])
			return false;
	return true;
}

static bool is_ready(const struct destination *d)
{
	return atomic_load_explicit(&d->is_ready, memory_order_acquire) == 1;
}

static void fill(struct destination *d, const char *name, size_t len, const char *policy)
{
	shared_put_text(d->name, sizeof d->name, name);
	shared_put_text(d->policy, sizeof d->policy, policy ? policy : "");
	atomic_store_explicit(&d->name_len, (uint32_t)len, memory_order_relaxed);
	atomic_store_explicit(&d->is_ready, 1, memory_order_release); /* partner: is_ready() */
}

int registry_find(const struct region *r, const char *name)
{
	size_t len = strlen(name);

	if (r->capacity == 0 || len > REGION_NAME_MAX)
		return -ENOENT;
	uint64_t key = key_of(name, len);
	uint32_t at = (uint32_t)(key % r->capacity);
	for (uint32_t i = 0; i < r->capacity; i++, at = at + 1 == r->capacity ? 0 : at + 1) {
		const struct destination *d = &r->destinations[at];
		uint64_t seen = atomic_load_explicit(&d->key_hash, memory_order_acquire);
		if (seen == 0)
			return -ENOENT;
		if (seen == key && is_ready(d) && has_name(d, name, len))
			return (int)at;
	}
	return -ENOENT;
}

int registry_find_or_add(struct region *r, const char *name, const char *policy, int64_t now_ns)
{
	size_t len = strlen(name);

	if (len > REGION_NAME_MAX)
		return -ENAMETOOLONG;
	if (r->capacity == 0)
		return -ENOSPC;
	if (r->is_read_only)
		return registry_find(r, name);
	uint64_t key = key_of(name, len);
	uint32_t at = (uint32_t)(key % r->capacity);
	for (uint32_t i = 0; i < r->capacity; i++, at = at + 1 == r->capacity ? 0 : at + 1) {
		struct destination *d = &r->destinations[at];
		uint64_t seen = atomic_load_explicit(&d->key_hash, memory_order_acquire);
		if (seen == 0 && atomic_compare_exchange_strong_explicit(
					 &d->key_hash, &seen, key, memory_order_acq_rel, memory_order_acquire)) {
			fill(d, name, len, policy);
			atomic_store_explicit(&d->last_used_ns, now_ns, memory_order_relaxed);
			return (int)at;
		}
		if (seen != key)
			continue;
		if (!is_ready(d)) /* its claimer is at it this moment, or died at it: the same bytes either way */
			fill(d, name, len, policy);
		if (has_name(d, name, len))
			return (int)at;
	}
	atomic_fetch_add_explicit(&r->header->registry_full, 1, memory_order_relaxed);
	return -ENOSPC;
}

int registry_next(const struct region *r, uint32_t from)
{
	for (uint32_t i = from; i < r->capacity; i++)
		if (atomic_load_explicit(&r->destinations[i].key_hash, memory_order_acquire) != 0 &&
			is_ready(&r->destinations[i]))
			return (int)i;
	return -1;
}

void registry_name(const struct region *r, uint32_t index, char name[REGION_NAME_MAX + 1])
{
	name[0] = '\0';
	if (index >= r->capacity)
		return;
	const struct destination *d = &r->destinations[index];
	size_t len = name_len(d);
	shared_get(name, d->name, len);
	name[len] = '\0';
}
