/* See fault.h. Matching is on the way of a guarded connect: loads and compares only. */
#include "policy/fault.h"

#include <string.h>

#include "policy/inside.h"

const struct fault_rule *config_fault(const struct config *c, uint32_t index)
{
	return !c->is_broken && index < c->fault_count ? &c->faults[index] : NULL;
}

bool fault_may_hit(const struct fault_rule *f)
{
	return f->value[FAULT_PERCENT] > 0 && f->value[FAULT_COUNT] > 0;
}

bool config_has_faults(const struct config *c)
{
	const struct fault_rule *f;
	for (uint32_t i = 0; (f = config_fault(c, i)) != NULL; i++)
		if (fault_may_hit(f))
			return true;
	return false;
}

void config_fault_match_text(struct text *t, const struct config *c, const struct fault_rule *f)
{
	for (uint32_t i = f->match.first; i < f->match.first + f->match.count; i++)
		text_fmt(t, "%s%s", i > f->match.first ? "," : "", c->patterns[i].text);
}

void config_fault_text(struct text *t, const struct config *c, const struct fault_rule *f)
{
	text_fmt(t, "%s ", fault_type_name((enum fault_type)f->type));
	config_fault_match_text(t, c, f);
	if (strcmp(f->name, fault_type_name((enum fault_type)f->type)) != 0)
		text_fmt(t, " name=%s", f->name);
	for (int i = 0; i < FAULT_PARAM_COUNT; i++) {
		if (!(f->set >> i & 1))
			continue;
		text_fmt(t, " %s=", fault_param_name((enum fault_param)i));
		fault_value_text(t, f, (enum fault_param)i);
	}
}

void config_fault_origin_text(struct text *t, const struct config *c, const struct fault_rule *f)
{
	if (f->line)
		text_fmt(t, "%s:%u [fault %s]", c->file, f->line, f->name);
	else
		text_str(t, "RESIL_FAULTS");
}
