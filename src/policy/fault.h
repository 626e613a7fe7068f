/* Faults that were asked for (CONTRACT 5): [fault NAME] sections and specifications in a line,
 *
 *    TYPE DESTINATION [KEY=VALUE]...       latency api.internal:443 delay=200ms jitter=50ms percent=30%
 *
 * of `resil run --fault` (RESIL_FAULTS, one a line) and `resil fault add`. A further key, name=NAME, names it; else it
 * is called by its type. They lie in a configuration, immutable like the rest of it. Which of them hits which call is
 * decided in engine/fault_decide.c. */
#ifndef RESIL_POLICY_FAULT_H
#define RESIL_POLICY_FAULT_H

#include "policy/config.h"
#include "policy/fault_types.h"

#define FAULT_NAME_MAX 31 /* letters, digits, '.', '_' and '-' */
#define FAULT_SPEC_MAX 511
#define CONFIG_FAULTS_MAX 64
#define FAULT_UNLIMITED UINT64_MAX

/* Patterns that stand together: of a section, of a fault. */
struct match_list {
	uint32_t first, count;	 /* of the configuration's patterns */
	bool has_exe, has_place; /* patterns of executables, and of all other kinds */
};

struct fault_rule {
	char name[FAULT_NAME_MAX + 1];
	uint8_t type;  /* enum fault_type */
	uint32_t line; /* of the file; 0: a specification */
	uint32_t set;  /* 1u << enum fault_param: those given */
	uint64_t value[FAULT_PARAM_COUNT];
	/* Of one added at run time; else 0. until_ns 0: until it is taken out. */
	uint64_t number;
	int64_t begun_ns, until_ns;
	struct match_list match;
};

/* One added at run time, for a set of its own. */
struct fault_given {
	const char *spec;
	uint64_t number; /* never 0 */
	int64_t begun_ns, until_ns;
};
/* A configuration of nothing but these; those that are none are left out. Null: no memory. */
struct config *config_load_faults(const struct fault_given *given, uint32_t count);

/* In the order in which they were read; null beyond the end. Of a broken configuration: none. */
const struct fault_rule *config_fault(const struct config *c, uint32_t index);
/* Is there any that may hit (none does with percent = 0%, count = 0)? */
bool config_has_faults(const struct config *c);
bool fault_may_hit(const struct fault_rule *f);
bool config_fault_fits(const struct config *c, const struct fault_rule *f, const struct target *target);
/* A look-up of a name (clean), of a port where it named one, else 0. */
bool config_fault_fits_look_up(
	const struct config *c, const struct fault_rule *f, const char *name, uint16_t port, const char *exe);
/* As a specification, name and all. What is not given is not written. */
void config_fault_text(struct text *t, const struct config *c, const struct fault_rule *f);
/* Its patterns alone. */
void config_fault_match_text(struct text *t, const struct config *c, const struct fault_rule *f);
void fault_value_text(struct text *t, const struct fault_rule *f, enum fault_param param);
/* "api.conf:12 [fault NAME]", "RESIL_FAULTS" */
void config_fault_origin_text(struct text *t, const struct config *c, const struct fault_rule *f);

const char *fault_type_name(enum fault_type type);
const char *fault_param_name(enum fault_param param);
static inline bool fault_is_at(const struct fault_rule *f, enum fault_call call)
{
	return f->value[FAULT_CALLS] >> call & 1;
}

#endif
