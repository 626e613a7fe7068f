/* Faults in the region: put in, read, taken out, by several at once and by writers that die half-way; counts that
 * number calls exactly over processes. */
#include "core/faults.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/shared.h"
#include "tap.h"

static struct region r;
#define NOW (1000 * NS_PER_S)

static unsigned in_force(int64_t now_ns)
{
	struct faults_rule rule;
	unsigned n = 0;
	for (uint32_t i = 0; i < REGION_FAULTS; i++)
		n += faults_read(&r, i, now_ns, &rule);
	return n;
}

static void put_in_and_out(void)
{
	struct faults_rule rule, other;
	uint32_t told = r.header->fault_seq;
	tap_ok(in_force(NOW) == 0, "none at first");
	int64_t first = faults_add(&r, "refuse a:1", NOW, 0), second = faults_add(&r, "hang b:1", NOW, NOW + NS_PER_S);
	faults_tell(&r);
	tap_ok(first > 0 && second > first && in_force(NOW) == 2 && r.header->fault_seq != told,
		"two are put in force, and told");
	tap_ok(faults_read(&r, 0, NOW, &rule) && strcmp(rule.spec, "refuse a:1") == 0 && rule.until_ns == 0 &&
			rule.number == (uint64_t)first,
		"each is read as it was written");
	tap_ok(in_force(NOW + NS_PER_S) == 1 && !faults_read(&r, 1, NOW + NS_PER_S, &other),
		"a time that is over ends one");
	tap_ok(faults_add(&r, "dns c", NOW + 2 * NS_PER_S, 0) > 0 && faults_read(&r, 1, NOW + 2 * NS_PER_S, &other) &&
			strcmp(other.spec, "dns c") == 0,
		"whose place is then another's");
	tap_ok(faults_remove(&r, 0, &rule) && !faults_remove(&r, 0, &rule) && in_force(NOW + 2 * NS_PER_S) == 1,
		"one is taken out once");
	int64_t n = 1;
	for (int i = 0; i < 2 * (int)REGION_FAULTS && n > 0; i++)
		n = faults_add(&r, "refuse d:1", NOW, 0);
	tap_ok(n == -ENOSPC && in_force(NOW) == REGION_FAULTS, "as many as there is room for");
	char longest[REGION_FAULT_SPEC];
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	faults_read(&r, 3, NOW, &rule);
	faults_remove(&r, 3, &rule);
	tap_ok(faults_add(&r, longest, NOW, 0) > 0 && faults_read(&r, 3, NOW, &rule) && strcmp(rule.spec, longest) == 0,
		"the longest fits");
}

/* What a writer leaves that dies at any line is no rule, and its place comes back. */
static void half_written(void)
{
	struct faults_rule rule;
	for (uint32_t i = 0; i < REGION_FAULTS; i++)
		if (faults_read(&r, i, NOW, &rule))
			faults_remove(&r, i, &rule);
	for (uint32_t i = 0; i < REGION_FAULTS; i++)
		r.faults[i].word = (uint64_t)(NOW / NS_PER_MS) << 2 | 1;
	tap_ok(faults_add(&r, "refuse a:1", NOW, 0) == -ENOSPC && in_force(NOW) == 0,
		"claims of others are left alone");
	tap_ok(faults_add(&r, "refuse a:1", NOW + 2 * NS_PER_S, 0) > 0 && in_force(NOW + 2 * NS_PER_S) == 1,
		"those of the dead are anybody's a second later");
	r.faults[0].spec[3] ^= 1;
	tap_ok(in_force(NOW + 2 * NS_PER_S) == 0, "what is damaged is no rule");
	for (uint32_t i = 0; i < REGION_FAULTS; i++)
		r.faults[i].word = 0;
}

static void orphans(void)
{
	member_join(&r, getpid(), identity_start_ticks(getpid(), NULL), "me", NOW);
	uint64_t mine = r.my_id;
	faults_add(&r, "refuse a:1", NOW, 0);
	/* Another member that lives: our parent. */
	struct region parent = r;
	parent.me = -1;
	member_join(&parent, getppid(), identity_start_ticks(getppid(), NULL), "parent", NOW);
	faults_drop_orphans(&r);
	tap_ok(in_force(NOW) == 1, "while another member lives, a fault stays");
	member_reap(&r, (uint32_t)parent.me, parent.my_id);
	/* And one that is dead. */
	pid_t child = fork();
	if (child == 0)
		pause();
	uint64_t ticks = identity_start_ticks(child, NULL);
	member_join(&parent, child, ticks, "child", NOW);
	faults_drop_orphans(&r);
	tap_ok(in_force(NOW) == 1 && parent.my_id != mine, "while a child lives, too");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	faults_drop_orphans(&r);
	tap_ok(in_force(NOW) == 0, "the last one's end is the fault's: who joins takes it out (CF7)");
	member_leave(&r);
}

/* ---- counts ---- */

#define THREADS 4
#define CALLS 20000
static struct fault_count *counts[THREADS];
static unsigned char drawn[THREADS * CALLS];

static void *draw(void *arg)
{
	long index = (long)arg;
	for (int i = 0; i < CALLS; i++) {
		struct fault_count *c = faults_count(&r, 77, "f", "hammered:1", NOW);
		counts[index] = c;
		uint64_t n = atomic_fetch_add(&c->calls, 1);
		if (n < sizeof drawn)
			__atomic_fetch_add(&drawn[n], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void counting(void)
{
	char fault[32], destination[REGION_NAME_MAX + 1];
	uint64_t hits;
	pthread_t thread[THREADS];
	for (long i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, draw, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	unsigned wrong = 0;
	for (size_t i = 0; i < sizeof drawn; i++)
		wrong += drawn[i] != 1;
	tap_ok(wrong == 0 && counts[0] == counts[1] && counts[1] == counts[2] && counts[2] == counts[3],
		"every number is given to one call, whoever draws them (CF2)");
	tap_ok(faults_next_count(&r, 0, fault, destination, &hits) < 0, "what has hit nothing is not shown");
	struct fault_count *a = faults_count(&r, 1, "slow", "a:1", NOW), *b = faults_count(&r, 2, "slow", "a:1", NOW),
			   *other = faults_count(&r, 1, "slow", "b:1", NOW);
	tap_ok(a != b && a != other && b != other && a == faults_count(&r, 1, "slow", "a:1", NOW),
		"a rule at a destination has its own");
	a->hits = 3;
	b->hits = 4;
	other->hits = 5;
	unsigned shown = 0;
	uint64_t sum = 0;
	for (int i = 0; (i = faults_next_sum(&r, (uint32_t)i, fault, destination, &hits)) >= 0; i++, shown++) {
		sum += hits;
		if (strcmp(destination, "a:1") == 0)
			tap_ok(hits == 7 && strcmp(fault, "slow") == 0, "runs of one name are shown together: %llu",
				(unsigned long long)hits);
	}
	tap_ok(shown == 2 && sum == 12, "each destination once");
	/* Full: the one used least recently gives its place away. */
	char name[32];
	for (int i = 0; i < 2 * REGION_FAULT_COUNTS; i++) {
		snprintf(name, sizeof name, "d%d:1", i);
		struct fault_count *c = faults_count(&r, 9, "many", name, NOW + i);
		tap_expect(c && c->calls == 0, "%s begins at none", name);
		atomic_fetch_add(&c->calls, 1);
	}
	tap_all("more counts than there is room for");
	struct region closed = {.header = NULL};
	tap_ok(faults_count(&closed, 1, "x", "y", NOW) == NULL &&
			faults_next_count(&closed, 0, fault, destination, &hits) < 0,
		"without a region there is none");
}

int main(void)
{
	if (region_attach_private(&r, "app", 8) != 0)
		abort();
	put_in_and_out();
	half_written();
	orphans();
	counting();
	uint64_t seed = faults_seed(&r);
	tap_ok(seed != 0 && seed == faults_seed(&r), "the group's seed stays");
	region_close(&r);
	return tap_done();
}
