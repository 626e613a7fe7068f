/* See known.h. */
#include "core/known.h"

#include <string.h>
#include <sys/socket.h>

#include "base/hash.h"
#include "core/shared.h"

#define REACH 8u
#define BODY offsetof(struct known_name, at_ns)

static uint64_t key_of(const char *name, size_t len)
{
	return hash_mix(hash_bytes(HASH_START, name, len)) | 1;
}

static uint64_t check_of(const struct known_name *k, uint64_t key)
{
	return hash_mix(hash_bytes(HASH_START ^ key, (const char *)k + BODY, sizeof *k - BODY));
}

/* A copy of slot `at` when it is a whole one of this key. */
static bool get(const struct region *r, uint32_t at, uint64_t key, const char *name, struct known_name *k)
{
	const struct known_name *slot = &r->known[at];
	if (atomic_load_explicit(&slot->key, memory_order_acquire) != key)
		return false;
	k->check = __atomic_load_n(&slot->check, __ATOMIC_RELAXED);
	shared_get((char *)k + BODY, (const char *)slot + BODY, sizeof *k - BODY);
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&slot->key, memory_order_relaxed) != key || k->check != check_of(k, key))
		return false;
	/* The check proves that the bytes belong together, not that they are sane (E10). */
	k->name[sizeof k->name - 1] = '\0';
	if (k->count > REGION_KNOWN_ADDRESSES)
		k->count = REGION_KNOWN_ADDRESSES;
	return strcmp(k->name, name) == 0;
}

static void put(struct region *r, uint32_t at, uint64_t key, struct known_name *k)
{
	struct known_name *slot = &r->known[at];
	atomic_store_explicit(&slot->key, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	shared_put((char *)slot + BODY, (const char *)k + BODY, sizeof *k - BODY);
	__atomic_store_n(&slot->check, check_of(k, key), __ATOMIC_RELAXED);
	atomic_store_explicit(&slot->key, key, memory_order_release);
}

/* Where the name is, or is to be: its own slot, an empty one, the one written longest ago. */
static uint32_t place(const struct region *r, uint64_t key)
{
	uint32_t best = (uint32_t)key % REGION_KNOWN;
	int64_t oldest = INT64_MAX;
	for (uint32_t i = 0; i < REACH; i++) {
		uint32_t at = (uint32_t)(key + i) % REGION_KNOWN;
		uint64_t seen = atomic_load_explicit(&r->known[at].key, memory_order_relaxed);
		if (seen == key)
			return at;
		int64_t written = seen ? __atomic_load_n(&r->known[at].written_ns, __ATOMIC_RELAXED) : INT64_MIN;
		if (written < oldest) {
			oldest = written;
			best = at;
		}
	}
	return best;
}

static void add(struct known_name *k, const uint8_t ip[16], uint32_t scope)
{
	if (k->count >= REGION_KNOWN_ADDRESSES)
		return;
	memcpy(k->host[k->count].ip, ip, 16);
	k->host[k->count++].scope = scope;
}

static bool host_is_v4(const struct known_host *h)
{
	struct addr a = {.family = ADDR_INET};
	memcpy(a.ip, h->ip, sizeof a.ip);
	return addr_is_v4(&a);
}

void known_store(
	struct region *r, const char *name, int family, const struct addr *addrs, unsigned count, int64_t now_ns)
{
	struct known_name old, k;
	size_t len = strlen(name);
	if (!r->known || r->is_read_only || len == 0 || len >= sizeof k.name || count == 0)
		return;
	uint64_t key = key_of(name, len);
	uint32_t at = place(r, key);
	bool has_old = get(r, at, key, name, &old);
	memset(&k, 0, sizeof k);
	memcpy(k.name, name, len);
	k.written_ns = now_ns;
	for (unsigned i = 0; i < count; i++)
		add(&k, addrs[i].ip, addrs[i].scope);
	/* [0]: IPv4. Asked for one family alone, what is known of the other is as old as it was. */
	for (int v = 0; v < 2; v++) {
		bool is_asked = family == AF_UNSPEC || family == (v == 0 ? AF_INET : AF_INET6);
		k.at_ns[v] = is_asked ? now_ns : has_old ? old.at_ns[v] : 0;
		for (uint32_t i = 0; !is_asked && has_old && i < old.count; i++)
			if (host_is_v4(&old.host[i]) == (v == 0))
				add(&k, old.host[i].ip, old.host[i].scope);
	}
	put(r, at, key, &k);
}

unsigned known_find(const struct region *r, const char *name, int family, int64_t max_age_ns, int64_t now_ns,
	struct addr addrs[REGION_KNOWN_ADDRESSES], int64_t *age_ns)
{
	struct known_name k;
	unsigned n = 0;
	size_t len = strlen(name);
	*age_ns = 0;
	if (!r->known || len == 0 || len >= sizeof k.name)
		return 0;
	uint64_t key = key_of(name, len);
	for (uint32_t i = 0; i < REACH; i++) {
		if (!get(r, (uint32_t)(key + i) % REGION_KNOWN, key, name, &k))
			continue;
		for (uint32_t h = 0; h < k.count; h++) {
			bool is_v4 = host_is_v4(&k.host[h]);
			int64_t at = k.at_ns[is_v4 ? 0 : 1], age = now_ns - at;
			/* A time to come is damage, not freshness. */
			if (at <= 0 || age < 0 || age > max_age_ns ||
				(family != AF_UNSPEC && is_v4 != (family == AF_INET)))
				continue;
			addrs[n] = (struct addr){.family = ADDR_INET, .scope = k.host[h].scope};
			memcpy(addrs[n++].ip, k.host[h].ip, 16);
			*age_ns = age > *age_ns ? age : *age_ns;
		}
		break;
	}
	return n;
}
