/* Faults in the region: those that were added at run time, for all processes of the group, and how often each has hit.
 *
 * A rule is a specification as text (policy/fault.h reads it, in each process anew: nothing in here is trusted), with a
 * check over it, so that a writer killed half-way, or two at once, leave nothing that is believed. Its word says what
 * it is: 0 free; milliseconds << 2 | 1 being written since then; number << 2 | 2 in force. A writer claims by CAS; a
 * claim older than a second is its dead writer's, and anybody's. A rule holds as long as a member of the group lives:
 * who joins a group in which nobody else does takes out what is left (faults_drop_orphans).
 *
 * A count is of one rule at one destination: how many calls it was asked of, which numbers them exactly over all
 * processes, and how many it hit. Claimed by CAS of the key (from 0, or from the one used least recently); the names,
 * for display, are written after. One that is given away is cleared after that: a call that comes between has a number
 * that comes again. */
#ifndef RESIL_CORE_FAULTS_H
#define RESIL_CORE_FAULTS_H

#include "core/region.h"

/* A rule, copied. */
struct faults_rule {
	uint64_t word;
	uint64_t number;
	int64_t begun_ns, until_ns; /* CLOCK_MONOTONIC; until 0: until it is taken out */
	char spec[REGION_FAULT_SPEC];
};

/* Puts one in force; its number, or -ENOSPC, -EACCES (mapped for reading). */
int64_t faults_add(struct region *r, const char *spec, int64_t now_ns, int64_t until_ns);
/* The rule at a place (below REGION_FAULTS); false: none in force there. */
bool faults_read(const struct region *r, uint32_t at, int64_t now_ns, struct faults_rule *rule);
/* Takes it out, when it is still the one that was read. */
bool faults_remove(struct region *r, uint32_t at, const struct faults_rule *rule);
/* Tells the members that rules have changed. */
void faults_tell(struct region *r);
/* Rules whose processes have all died. For who has just joined. */
void faults_drop_orphans(struct region *r);

/* The count of a rule (key: of the rule alone) at a destination; null: the region is not to be had. */
struct fault_count *faults_count(
	struct region *r, uint64_t key, const char *fault, const char *destination, int64_t now_ns);
/* For display: the next count from `at` on that has hit anything; its place, or -1. */
int faults_next_count(
	const struct region *r, uint32_t at, char fault[32], char destination[REGION_NAME_MAX + 1], uint64_t *hits);
/* The same once a fault and destination: the sum over its runs. Places in which it comes again are passed over. */
int faults_next_sum(
	const struct region *r, uint32_t at, char fault[32], char destination[REGION_NAME_MAX + 1], uint64_t *hits);
/* Random numbers of the group, the same for all of its processes. */
uint64_t faults_seed(struct region *r);

#endif
