/* See faults.h. */
#include "core/faults.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/sys.h"
#include "core/member.h"
#include "core/shared.h"

#define CLAIM_MS 1000u

static uint64_t check_of(const struct fault_entry *e, uint64_t number)
{
	uint64_t h = hash_bytes(HASH_START ^ hash_mix(number), &e->begun_ns, sizeof e->begun_ns);
	h = hash_bytes(h, &e->until_ns, sizeof e->until_ns);
	return hash_mix(hash_bytes(h, e->spec, sizeof e->spec));
}

void faults_tell(struct region *r)
{
	atomic_fetch_add_explicit(&r->header->fault_seq, 1, memory_order_release);
	atomic_fetch_add_explicit(&r->header->reload_seq, 1, memory_order_release);
}

int64_t faults_add(struct region *r, const char *spec, int64_t now_ns, int64_t until_ns)
{
	if (!r->header || r->is_read_only)
		return -EACCES;
	uint64_t now_ms = (uint64_t)(now_ns / NS_PER_MS), claim = now_ms << 2 | 1;
	for (uint32_t i = 0; i < REGION_FAULTS; i++) {
		struct fault_entry *e = &r->faults[i];
		uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);
		bool is_stale = (word & 3) == 1 && now_ms - (word >> 2) > CLAIM_MS;
		/* One whose time is over, too. */
		struct faults_rule old;
		bool is_over = (word & 3) != 1 && !faults_read(r, i, now_ns, &old);
		if (!(word == 0 || is_stale || is_over) || !atomic_compare_exchange_strong(&e->word, &word, claim))
			continue;
		struct fault_entry body = {.begun_ns = now_ns, .until_ns = until_ns};
		text_copy(body.spec, sizeof body.spec, spec);
		uint64_t number = atomic_fetch_add_explicit(&r->header->fault_number, 1, memory_order_relaxed) + 1;
		number &= UINT64_MAX >> 2;
		body.check = check_of(&body, number);
		shared_put((char *)e + offsetof(struct fault_entry, check),
			(char *)&body + offsetof(struct fault_entry, check),
			sizeof body - offsetof(struct fault_entry, check));
		atomic_compare_exchange_strong_explicit(
			&e->word, &claim, number << 2 | 2, memory_order_release, memory_order_relaxed);
		return (int64_t)number;
	}
	return -ENOSPC;
}

bool faults_read(const struct region *r, uint32_t at, int64_t now_ns, struct faults_rule *rule)
{
	const struct fault_entry *e = &r->faults[at];
	uint64_t word = atomic_load_explicit(&e->word, memory_order_acquire);
	struct fault_entry body;
	if ((word & 3) != 2)
		return false;
	shared_get((char *)&body + offsetof(struct fault_entry, check),
		(const char *)e + offsetof(struct fault_entry, check),
		sizeof body - offsetof(struct fault_entry, check));
	if (body.check != check_of(&body, word >> 2))
		return false;
	body.spec[sizeof body.spec - 1] = '\0';
	if (body.until_ns && now_ns >= body.until_ns)
		return false;
	rule->word = word;
	rule->number = word >> 2;
	rule->begun_ns = body.begun_ns;
	rule->until_ns = body.until_ns;
	memcpy(rule->spec, body.spec, sizeof rule->spec);
	return true;
}

bool faults_remove(struct region *r, uint32_t at, const struct faults_rule *rule)
{
	uint64_t word = rule->word;
	return !r->is_read_only && atomic_compare_exchange_strong(&r->faults[at].word, &word, 0);
}

void faults_drop_orphans(struct region *r)
{
	bool has_any = false;
	for (uint32_t i = 0; i < REGION_FAULTS; i++)
		has_any |= atomic_load_explicit(&r->faults[i].word, memory_order_relaxed) != 0;
	if (!has_any)
		return;
	for (uint32_t i = 0; i < REGION_MEMBERS; i++) {
		uint64_t id = atomic_load_explicit(&r->members[i].id, memory_order_acquire);
		if (id && id != r->my_id && member_is_alive(id))
			return;
	}
	for (uint32_t i = 0; i < REGION_FAULTS; i++)
		atomic_store(&r->faults[i].word, 0);
}

/* ---- counts ---- */

static void name_count(struct fault_count *c, uint64_t key, const char *fault, const char *destination)
{
	shared_put_text(c->fault, sizeof c->fault, fault);
	shared_put_text(c->destination, sizeof c->destination, destination);
	atomic_store_explicit(&c->ready_key, key, memory_order_release);
}

struct fault_count *faults_count(
	struct region *r, uint64_t rule_key, const char *fault, const char *destination, int64_t now_ns)
{
	uint64_t key = hash_mix(hash_bytes(hash_mix(rule_key), destination, strlen(destination))) | 1;
	struct fault_count *oldest = NULL;
	int64_t oldest_ns = INT64_MAX;
	if (!r->header || r->is_read_only)
		return NULL;
	uint32_t first = (uint32_t)(key >> 32) % REGION_FAULT_COUNTS;
	for (uint32_t i = 0; i < REGION_FAULT_COUNTS; i++) {
		struct fault_count *c = &r->fault_counts[(first + i) % REGION_FAULT_COUNTS];
		uint64_t found = atomic_load_explicit(&c->key, memory_order_acquire);
		if (found == 0 && atomic_compare_exchange_strong(&c->key, &found, key)) {
			name_count(c, key, fault, destination);
			found = key;
		}
		if (found == key) {
			if (atomic_load_explicit(&c->ready_key, memory_order_acquire) != key)
				name_count(c, key, fault, destination);
			atomic_store_explicit(&c->used_ns, now_ns, memory_order_relaxed);
			return c;
		}
		int64_t used = atomic_load_explicit(&c->used_ns, memory_order_relaxed);
		if (used < oldest_ns) {
			oldest_ns = used;
			oldest = c;
		}
	}
	/* Full: the one used least recently is given away, and counts anew; another may just have done that. */
	uint64_t was = atomic_load(&oldest->key);
	if (was != key && atomic_compare_exchange_strong(&oldest->key, &was, key)) {
		atomic_store(&oldest->calls, 0);
		atomic_store(&oldest->hits, 0);
		atomic_store(&oldest->known, 0);
		name_count(oldest, key, fault, destination);
	}
	atomic_store_explicit(&oldest->used_ns, now_ns, memory_order_relaxed);
	return oldest;
}

int faults_next_count(
	const struct region *r, uint32_t at, char fault[32], char destination[REGION_NAME_MAX + 1], uint64_t *hits)
{
	for (; r->header && at < REGION_FAULT_COUNTS; at++) {
		const struct fault_count *c = &r->fault_counts[at];
		uint64_t key = atomic_load_explicit(&c->key, memory_order_acquire);
		*hits = atomic_load_explicit(&c->hits, memory_order_relaxed);
		if (key == 0 || *hits == 0 || atomic_load_explicit(&c->ready_key, memory_order_acquire) != key)
			continue;
		shared_get_text(fault, c->fault, sizeof c->fault);
		shared_get_text(destination, c->destination, sizeof c->destination);
		return (int)at;
	}
	return -1;
}

int faults_next_sum(
	const struct region *r, uint32_t at, char fault[32], char destination[REGION_NAME_MAX + 1], uint64_t *hits)
{
	char its_fault[32], its_destination[REGION_NAME_MAX + 1];
	uint64_t its_hits;
	int found;
	while ((found = faults_next_count(r, at, fault, destination, hits)) >= 0) {
		bool is_first = true;
		for (int i = 0; (i = faults_next_count(r, (uint32_t)i, its_fault, its_destination, &its_hits)) >= 0;
			i++) {
			if (i == found || strcmp(its_fault, fault) != 0 || strcmp(its_destination, destination) != 0)
				continue;
			is_first &= i > found;
			*hits += its_hits;
		}
		if (is_first)
			return found;
		at = (uint32_t)found + 1;
	}
	return -1;
}

uint64_t faults_seed(struct region *r)
{
	uint64_t seed = atomic_load_explicit(&r->header->fault_seed, memory_order_relaxed);
	if (seed)
		return seed;
	uint64_t mine =
		hash_mix((uint64_t)clock_now_ns() ^ (uint64_t)sys_getpid() << 40 ^ (uint64_t)clock_wall_ns()) | 1;
	return atomic_compare_exchange_strong(&r->header->fault_seed, &seed, mine) ? mine : seed;
}
