/* See names.h. */
#include "policy/names.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/sys.h"

#define ENTRIES 256u
_Static_assert(ENTRIES <= 256, "names_identity keeps an entry in eight bits");
#define TRIES 64
#define BUCKETS 2048u	  /* address index; power of two */
#define REACH 16u	  /* places looked at from an address's own on */
#define MERGE_NS NS_PER_S /* two look-ups of one name so close are one (A then AAAA) */

struct host {
	uint8_t ip[16];
	uint32_t scope;
};

struct entry {
	_Atomic uint32_t seq;	  /* odd: being written */
	_Atomic uint32_t version; /* moves when the text changes */
	_Atomic uint32_t used;	  /* how many look-ups the process had made when it was last learnt or found */
	_Atomic int64_t stamp_ns; /* latest look-up */
	_Atomic int64_t began_ns; /* of that look-up, until a call has taken it; 0: taken */
	_Atomic uint32_t current;
	uint32_t count;
	uint32_t name_len;
	_Atomic uint64_t name_hash; /* looked at by who may meet a writer; the rest behind it, or within the sequence */
	char name[NAMES_MAX + 3];
	struct host host[NAMES_ADDRESSES];
};

struct names_table {
	struct entry entry[ENTRIES];
	/* Address index: tag (high 16 bits of the hash, never 0) << 16 | entry. Stale ones point to entries that no
	 * longer hold the address and are overwritten. */
	_Atomic uint32_t bucket[BUCKETS];
	_Atomic uint32_t look_ups;
};

_Atomic(struct names_table *) names_table;
/* This thread's latest look-up: entry + 1. */
static __thread uint32_t latest;

static struct names_table *table_get(void)
{
	struct names_table *t = atomic_load_explicit(&names_table, memory_order_acquire);
	if (t)
		return t;
	t = sys_mmap(sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(t))
		return NULL;
	struct names_table *other = NULL;
	if (!atomic_compare_exchange_strong(&names_table, &other, t)) {
		sys_munmap(t, sizeof *t);
		return other;
	}
	return t;
}

static uint64_t host_hash(const uint8_t ip[16], uint32_t scope)
{
	uint64_t a, b;
	memcpy(&a, ip, 8);
	memcpy(&b, ip + 8, 8);
	return hash_mix(hash_mix(a) ^ b ^ ((uint64_t)scope << 32));
}

/* The least recently used goes first: a name that is looked up once and connected to for hours stays, however many
 * others are looked up meanwhile. Modulo 2^32. */
static uint32_t age_of(struct names_table *t, const struct entry *e)
{
	return atomic_load_explicit(&t->look_ups, memory_order_relaxed) -
	       atomic_load_explicit(&e->used, memory_order_relaxed);
}

static void note_use(struct names_table *t, struct entry *e)
{
	uint32_t now = atomic_load_explicit(&t->look_ups, memory_order_relaxed);
	if (atomic_load_explicit(&e->used, memory_order_relaxed) != now)
		atomic_store_explicit(&e->used, now, memory_order_relaxed);
}

static uint32_t bucket_tag(uint64_t hash)
{
	return (uint32_t)(hash >> 48) | 1u;
}

static int entry_place(const struct entry *e, const uint8_t ip[16], uint32_t scope)
{
	uint32_t n = e->count < NAMES_ADDRESSES ? e->count : NAMES_ADDRESSES;
	for (uint32_t i = 0; i < n; i++)
		if (memcmp(e->host[i].ip, ip, 16) == 0 && e->host[i].scope == scope)
			return (int)i;
	return -1;
}

static void index_add(struct names_table *t, uint32_t entry, const uint8_t ip[16], uint32_t scope)
{
	uint64_t hash = host_hash(ip, scope);
	uint32_t mine = bucket_tag(hash) << 16 | entry;
	uint32_t victim = 0, oldest = 0;
	for (uint32_t i = 0; i < REACH; i++) {
		uint32_t at = (uint32_t)(hash + i) & (BUCKETS - 1);
		uint32_t seen = atomic_load_explicit(&t->bucket[at], memory_order_relaxed);
		if (seen == mine)
			return;
		if (seen == 0) {
			if (atomic_compare_exchange_strong(&t->bucket[at], &seen, mine) || seen == mine)
				return;
		}
		uint32_t age = age_of(t, &t->entry[(seen & 0xffff) % ENTRIES]);
		if (i == 0 || age > oldest) {
			oldest = age;
			victim = at;
		}
	}
	atomic_store_explicit(&t->bucket[victim], mine, memory_order_relaxed);
}

size_t names_clean(char to[NAMES_MAX + 1], const char *name)
{
	size_t n = strlen(name);
	if (n > 0 && name[n - 1] == '.')
		n--;
	if (n == 0 || n > NAMES_MAX)
		return 0;
	for (size_t i = 0; i < n; i++)
		to[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
	to[n] = '\0';
	return n;
}

/* Claims the entry of a name for writing (sequence odd); the least recently used one when the name is new. Null when
 * all are busy. */
static struct entry *entry_try(
	struct names_table *t, const char *name, size_t len, uint64_t hash, bool *is_new, bool *is_taken)
{
	struct entry *lru = NULL;
	uint32_t lru_seq = 0; /* as it was when it was looked at: another may take it and finish meanwhile */
	for (uint32_t i = 0; i < ENTRIES; i++) {
		struct entry *e = &t->entry[i];
		uint32_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);
		if (seq & 1)
			continue;
		if (atomic_load_explicit(&e->name_hash, memory_order_relaxed) == hash && e->name_len == len &&
			memcmp(e->name, name, len) == 0) {
			if (atomic_compare_exchange_strong(&e->seq, &seq, seq + 1)) {
				*is_new = false;
				return e;
			}
			latest = i + 1; /* another thread is recording the same name now: as good */
			return NULL;
		}
		if (!lru || age_of(t, e) > age_of(t, lru)) {
			lru = e;
			lru_seq = seq;
		}
	}
	if (!lru)
		return NULL;
	if (!atomic_compare_exchange_strong(&lru->seq, &lru_seq, lru_seq + 1)) {
		*is_taken = true;
		return NULL;
	}
	*is_new = true;
	return lru;
}

/* Two threads with a new name each may meet at the same entry: the other one takes the next. */
static struct entry *entry_claim(struct names_table *t, const char *name, size_t len, uint64_t hash, bool *is_new)
{
	for (int i = 0; i < TRIES; i++) {
		bool is_taken = false;
		struct entry *e = entry_try(t, name, len, hash, is_new, &is_taken);
		if (e || !is_taken)
			return e;
	}
	return NULL;
}

/* The place for a host that the entry does not hold: a free one, else one that is not current. */
static int entry_make_place(struct entry *e, uint32_t keep)
{
	if (e->count < NAMES_ADDRESSES)
		return (int)e->count++;
	for (int i = 0; i < NAMES_ADDRESSES; i++)
		if (!(keep & 1u << i))
			return i;
	return -1;
}

void names_learn(const char *name, const struct addr *addrs, unsigned count, int64_t began_ns, int64_t now_ns)
{
	char clean[NAMES_MAX + 1];
	struct addr literal;
	if (addr_from_literal(&literal, name))
		return;
	size_t len = names_clean(clean, name);
	struct names_table *t = len && count ? table_get() : NULL;
	if (!t)
		return;
	uint64_t hash = hash_mix(hash_bytes(HASH_START, clean, len));
	bool is_new;
	struct entry *e = entry_claim(t, clean, len, hash, &is_new);
	if (!e)
		return;
	atomic_thread_fence(memory_order_release);
	uint32_t index = (uint32_t)(e - t->entry), current = 0;
	if (is_new) {
		atomic_fetch_add_explicit(&e->version, 1, memory_order_relaxed);
		memcpy(e->name, clean, len + 1);
		e->name_len = (uint32_t)len;
		atomic_store_explicit(&e->name_hash, hash, memory_order_relaxed);
		e->count = 0;
	} else if (now_ns - atomic_load_explicit(&e->stamp_ns, memory_order_relaxed) < MERGE_NS) {
		current = atomic_load_explicit(&e->current, memory_order_relaxed);
		/* The other family of one look-up: it began with the first. */
		int64_t first = atomic_load_explicit(&e->began_ns, memory_order_relaxed);
		if (first && first < began_ns)
			began_ns = first;
	}
	for (unsigned i = 0; i < count; i++) {
		int at = entry_place(e, addrs[i].ip, addrs[i].scope);
		if (at < 0) {
			at = entry_make_place(e, current);
			if (at < 0)
				break;
			memcpy(e->host[at].ip, addrs[i].ip, 16);
			e->host[at].scope = addrs[i].scope;
		}
		current |= 1u << at;
		index_add(t, index, addrs[i].ip, addrs[i].scope);
	}
	atomic_store_explicit(&e->current, current, memory_order_relaxed);
	atomic_store_explicit(&e->began_ns, began_ns, memory_order_relaxed);
	atomic_store_explicit(&e->stamp_ns, now_ns, memory_order_relaxed);
	atomic_store_explicit(
		&e->used, atomic_fetch_add_explicit(&t->look_ups, 1, memory_order_relaxed) + 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->seq, 1, memory_order_release);
	latest = index + 1;
}

/* Fills ref when entry `index` holds the host now. */
static bool entry_match(struct names_table *t, uint32_t index, const struct addr *a, struct name_ref *ref)
{
	struct entry *e = &t->entry[index];
	uint32_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);
	if (seq & 1)
		return false;
	int at = entry_place(e, a->ip, a->scope);
	struct name_ref found = {
		.entry = index,
		.version = atomic_load_explicit(&e->version, memory_order_relaxed),
		.bit = (uint32_t)at,
		.current = atomic_load_explicit(&e->current, memory_order_relaxed),
	};
	atomic_thread_fence(memory_order_acquire);
	if (at < 0 || atomic_load_explicit(&e->seq, memory_order_relaxed) != seq)
		return false;
	*ref = found;
	return true;
}

unsigned names_current(const struct name_ref *ref, uint32_t hashes[NAMES_ADDRESSES])
{
	struct names_table *t = atomic_load_explicit(&names_table, memory_order_acquire);
	if (!t || ref->entry >= ENTRIES)
		return 0;
	struct entry *e = &t->entry[ref->entry];
	uint32_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);
	uint32_t count = e->count < NAMES_ADDRESSES ? e->count : NAMES_ADDRESSES;
	unsigned n = 0;
	if ((seq & 1) || atomic_load_explicit(&e->version, memory_order_relaxed) != ref->version)
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t hash = (uint32_t)host_hash(e->host[i].ip, e->host[i].scope);
		if (atomic_load_explicit(&e->current, memory_order_relaxed) >> i & 1)
			hashes[n++] = hash ? hash : 1;
	}
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&e->seq, memory_order_relaxed) == seq ? n : 0;
}

bool names_search(const struct addr *a, struct name_ref *ref)
{
	struct names_table *t = atomic_load_explicit(&names_table, memory_order_acquire);
	if (!t || a->family != ADDR_INET)
		return false;
	if (latest && entry_match(t, latest - 1, a, ref)) {
		note_use(t, &t->entry[latest - 1]);
		return true;
	}
	uint64_t hash = host_hash(a->ip, a->scope);
	uint32_t tag = bucket_tag(hash);
	int64_t newest = INT64_MIN;
	for (uint32_t i = 0; i < REACH; i++) {
		uint32_t seen = atomic_load_explicit(&t->bucket[(hash + i) & (BUCKETS - 1)], memory_order_relaxed);
		if (seen == 0)
			break;
		uint32_t index = (seen & 0xffff) % ENTRIES;
		struct name_ref found;
		if (seen >> 16 != tag || !entry_match(t, index, a, &found))
			continue;
		int64_t stamp = atomic_load_explicit(&t->entry[index].stamp_ns, memory_order_relaxed);
		if (stamp > newest) {
			newest = stamp;
			*ref = found;
		}
	}
	if (newest == INT64_MIN)
		return false;
	note_use(t, &t->entry[ref->entry]);
	return true;
}

int64_t names_take_look_up(uint32_t entry, int64_t now_ns)
{
	struct names_table *t = atomic_load_explicit(&names_table, memory_order_acquire);
	if (!t || entry >= ENTRIES || !atomic_load_explicit(&t->entry[entry].began_ns, memory_order_relaxed))
		return 0;
	int64_t ended = atomic_load_explicit(&t->entry[entry].stamp_ns, memory_order_relaxed);
	int64_t began = atomic_exchange_explicit(&t->entry[entry].began_ns, 0, memory_order_relaxed);
	return now_ns - ended < MERGE_NS ? began : 0;
}

bool names_text(const struct name_ref *ref, char name[NAMES_MAX + 1])
{
	struct names_table *t = atomic_load_explicit(&names_table, memory_order_acquire);
	if (!t || ref->entry >= ENTRIES)
		return false;
	struct entry *e = &t->entry[ref->entry];
	uint32_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);
	if (seq & 1)
		return false;
	uint32_t len = e->name_len <= NAMES_MAX ? e->name_len : 0;
	memcpy(name, e->name, len);
	name[len] = '\0';
	atomic_thread_fence(memory_order_acquire);
	return len && atomic_load_explicit(&e->seq, memory_order_relaxed) == seq &&
	       atomic_load_explicit(&e->version, memory_order_relaxed) == ref->version;
}

void names_forked(void)
{
	struct names_table *t = atomic_load(&names_table);
	for (uint32_t i = 0; t && i < ENTRIES; i++) {
		struct entry *e = &t->entry[i];
		if (!(atomic_load(&e->seq) & 1))
			continue;
		e->name_len = 0;
		e->name_hash = 0;
		e->count = 0;
		atomic_store(&e->current, 0);
		atomic_store(&e->stamp_ns, 0);
		atomic_store(&e->used, atomic_load(&t->look_ups) + 1); /* the oldest there is */
		atomic_fetch_add(&e->version, 1);
		atomic_fetch_add(&e->seq, 1);
	}
}
