/* A configuration as text: for `resil which` and `check`, GET /v1/config and the log. See config.h. */
#include <stddef.h>

#include "policy/inside.h"
#include "policy/value.h"

void config_patterns_text(struct text *t, const struct config *c, const struct policy *p)
{
	if (p == &c->defaults.policy)
		return;
	const struct section *s = (const struct section *)((const char *)p - offsetof(struct section, policy));
	for (uint32_t i = s->match.first; i < s->match.first + s->match.count; i++) {
		if (i > s->match.first)
			text_str(t, ", ");
		text_str(t, c->patterns[i].text);
	}
}

void config_value_text(struct text *t, const struct policy *p, enum config_key key)
{
	struct value value;
	value_load(p, key, &value);
	value_text(t, &value_keys[key], &value);
}

void config_origin_text(struct text *t, const struct config *c, const struct policy *p, enum config_key key)
{
	const struct origin *o = &p->origin[key];
	switch ((enum origin_kind)o->kind) {
	case ORIGIN_BUILTIN: text_str(t, "built-in"); break;
	case ORIGIN_FILE_DEFAULTS: text_fmt(t, "%s:%u [defaults]", c->file, o->line); break;
	case ORIGIN_FILE_SECTION: text_fmt(t, "%s:%u [destination %s]", c->file, o->line, p->section); break;
	case ORIGIN_ENVIRONMENT: text_str(t, "RESIL_SET"); break;
	case ORIGIN_OBSERVE_ONLY: text_str(t, "observing only: the configuration has faults"); break;
	}
}

static void setting_number(struct text *t, enum config_setting setting, uint64_t number)
{
	struct value value = {.number = number};
	value_text(t, &value_settings[setting], &value);
}

void config_setting_text(struct text *t, const struct config *c, enum config_setting setting)
{
	switch (setting) {
	case SETTING_LOG: text_str(t, c->log); break;
	case SETTING_STATE: setting_number(t, setting, (uint64_t)c->state); break;
	case SETTING_MAX_DESTINATIONS: setting_number(t, setting, c->max_destinations); break;
	case SETTING_CONTROL: setting_number(t, setting, (uint64_t)c->control); break;
	case SETTING_SKIP_EXE: text_str(t, c->skip_exe); break;
	case SETTING_COUNT: break;
	}
}

void config_setting_origin_text(struct text *t, const struct config *c, enum config_setting setting)
{
	if (c->setting_line[setting] == 0)
		text_str(t, "built-in");
	else
		text_fmt(t, "%s:%u [resil]", c->file, c->setting_line[setting]);
}
