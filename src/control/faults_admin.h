/* Faults added at run time: put in, taken out, listed. For the socket's routes and for the command. */
#ifndef RESIL_CONTROL_FAULTS_ADMIN_H
#define RESIL_CONTROL_FAULTS_ADMIN_H

#include "base/text.h"
#include "core/faults.h"
#include "policy/fault.h"

/* Reads a specification, gives it a name of its own and puts it in force for all processes of the group. for_ns 0: as
 * long as they live. 0; -EINVAL: not a fault, -EEXIST: the name is taken, -ESRCH: no process lives that it could be
 * for, -ENOSPC: there are too many, -EACCES, -ENOMEM; error says what is wrong. is_alive: of a member. */
int faults_admin_add(struct region *r, const char *spec, int64_t for_ns, int64_t now_ns, char name[FAULT_NAME_MAX + 1],
	struct text *error, bool (*is_alive)(uint64_t id, const void *ctx), const void *ctx);
/* One by name, or with null all: how many were taken out. */
unsigned faults_admin_remove(struct region *r, const char *name, int64_t now_ns);

/* One in force, as it is shown. */
struct fault_shown {
	char name[FAULT_NAME_MAX + 1], type[32], spec[FAULT_SPEC_MAX + 1];
	int64_t left_ns; /* -1: no end */
	uint64_t hits;
};
/* From place `at` on; its place, or -1. Those of a group in which nobody lives are none: is_alive as above. */
int faults_admin_next(const struct region *r, uint32_t at, int64_t now_ns, struct fault_shown *shown);
bool faults_admin_has_members(const struct region *r, bool (*is_alive)(uint64_t id, const void *ctx), const void *ctx);
/* [{"name","type","spec","left_ms","injected"},...], a configuration's own (null: none) first. */
void faults_admin_list(struct text *t, const struct region *r, const struct config *c, int64_t now_ns);

#endif
