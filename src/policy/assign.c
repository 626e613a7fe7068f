/* Keys and their values, from a file and from RESIL_SET, into the configuration. See parse.h; no state of its own. */
#include "policy/parse.h"

#include "policy/chain.h"
#include "policy/pattern.h"
#include "policy/value.h"

/* The name of an enum place that takes keys, as messages have it. */
static const char *place_name(enum place place)
{
	return place == PLACE_RESIL	 ? "[resil]"
	       : place == PLACE_DEFAULTS ? "[defaults]"
	       : place == PLACE_FAULT	 ? "[fault NAME]"
					 : "[destination NAME]";
}

void assign_twice(struct parse *p, const char *what, size_t n, uint32_t first)
{
	struct fault f;
	fault_clear(&f);
	text_bytes(&f.what, what, n);
	text_fmt(&f.what, " is there twice, at lines %u and %u", first, p->line);
	complain(p->out, p->line, &f, NULL, 0);
}

static void add_pattern(struct parse *p, const char *s, size_t n)
{
	struct config *c = p->config;
	struct pattern pattern;
	struct fault f;
	fault_clear(&f);
	if (c->pattern_count == c->pattern_room) {
		if (!p->has_said_patterns)
			complain_plain(p->out, p->line, "too many patterns", s, n, "at most 4096 in the whole file");
		p->has_said_patterns = true;
		return;
	}
	bool is_read = pattern_read(&pattern, c, s, n, &f);
	if (is_read && p->place == PLACE_FAULT && pattern.kind == PATTERN_SNI)
		is_read = pattern_refuse_said(&f);
	if (!is_read) {
		complain(p->out, p->line, &f, s, n);
		return;
	}
	c->patterns[c->pattern_count++] = pattern;
	p->match->count++;
	c->has_sni |= pattern.kind == PATTERN_SNI;
	if (pattern.kind == PATTERN_EXE)
		p->match->has_exe = true;
	else
		p->match->has_place = true;
}

static void add_patterns(struct parse *p, const char *s, size_t n)
{
	if (n == 0)
		add_pattern(p, s, n);
	while (n > 0) {
		const char *comma = memchr(s, ',', n);
		const char *one = s;
		size_t len = comma ? (size_t)(comma - s) : n;
		n -= comma ? len + 1 : len;
		s += comma ? len + 1 : len;
		parse_strip(&one, &len);
		add_pattern(p, one, len);
	}
}

static void set_log(struct parse *p, const char *s, size_t n)
{
	static const char *const words[] = {"off", "stderr", "syslog", "journal", NULL};
	struct fault f;
	fault_clear(&f);
	bool is_word = false;
	for (size_t i = 0; words[i]; i++)
		is_word |= parse_is(s, n, words[i]);
	const char *kept = is_word || (n > 1 && s[0] == '/') ? config_keep(p->config, s, n) : NULL;
	if (kept) {
		p->config->log = kept;
		return;
	}
	const char *nearest = complain_nearest(s, n, words);
	text_str(&f.what, n == 0 ? "log has no value" : "log: not a place to write to");
	text_str(&f.accepted, "off, stderr, syslog, journal, or a file's path from / on");
	if (nearest)
		text_str(&f.suggestion, nearest);
	complain(p->out, p->line, &f, s, n);
}

/* Empty is right: the shim then works in all of them. */
static void set_skip_exe(struct parse *p, const char *s, size_t n)
{
	const char *kept = config_keep(p->config, s, n);
	if (!kept) {
		complain_plain(p->out, p->line, "skip_exe is too long", s, n, "a shorter list");
		return;
	}
	p->config->skip_exe = kept;
	p->list = LIST_SKIP_EXE;
}

static void complain_value(struct parse *p, struct fault *f, const char *s, size_t n)
{
	if (memmem(s, n, " #", 2))
		text_str(&f->accepted, "; a comment after a value begins with a blank and ';'");
	complain(p->out, p->line, f, s, n);
}

static void set_setting(struct parse *p, enum config_setting setting, const char *s, size_t n)
{
	struct config *c = p->config;
	const struct value_row *row = &value_settings[setting];
	struct fault f;
	struct value value = {.number = 0};

	if (row->type != VALUE_TEXT) {
		fault_clear(&f);
		if (!value_read(row, s, n, &value, &f)) {
			complain_value(p, &f, s, n);
			return;
		}
	}
	c->setting_line[setting] = p->line;
	switch (setting) {
	case SETTING_LOG: set_log(p, s, n); break;
	case SETTING_STATE: c->state = (enum state_kind)value.number; break;
	case SETTING_MAX_DESTINATIONS: c->max_destinations = (uint32_t)value.number; break;
	case SETTING_CONTROL: c->control = (enum control_kind)value.number; break;
	case SETTING_SKIP_EXE: set_skip_exe(p, s, n); break;
	case SETTING_COUNT: break;
	}
}

void assign_unknown(struct complaints *out, uint32_t line, enum place place, const char *name, size_t n)
{
	bool is_resil = place == PLACE_RESIL;
	const char *const *names = is_resil ? value_setting_names : value_key_names;
	struct fault f;
	fault_clear(&f);
	if (place == PLACE_FAULT) {
		fault_complain_param(out, line, place_name(place), name, n);
		return;
	}
	if (is_resil && (value_find_key(name, n) >= 0 || parse_is(name, n, "match"))) {
		text_str(&f.what, "this key is none of [resil]");
		text_str(&f.accepted, parse_is(name, n, "match") ? "it belongs in [destination NAME]"
								 : "it belongs in [defaults] or [destination NAME]");
	} else if (!is_resil && value_find_setting(name, n) >= 0) {
		text_fmt(&f.what, "this key is none of %s", place_name(place));
		text_str(&f.accepted, "it belongs in [resil]");
	} else if (parse_is(name, n, "match")) {
		text_str(&f.what, "[defaults] takes no match");
		text_str(&f.accepted, "it holds for all that no [destination NAME] matches");
	} else {
		const char *nearest = complain_nearest(name, n, names);
		static const char *const match[] = {"match", NULL};
		if (!nearest && place == PLACE_DESTINATION)
			nearest = complain_nearest(name, n, match);
		text_fmt(&f.what, "unknown key in %s", place_name(place));
		text_str(&f.accepted, place == PLACE_DESTINATION ? "match, " : "");
		for (size_t i = 0; names[i]; i++)
			text_fmt(&f.accepted, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
		if (nearest)
			text_str(&f.suggestion, nearest);
	}
	complain(out, line, &f, name, n);
}

/* A value of a policy: false with the fault. has_file: it stands in one. */
static bool read_value(struct config *c, const struct value_row *row, const char *s, size_t n, bool has_file,
	struct value *value, struct fault *f)
{
	if (row->type != VALUE_CHAIN)
		return value_read(row, s, n, value, f);
	const char *kept;
	if (!chain_read(c, s, n, has_file, &kept, f))
		return false;
	*value = (struct value){.number = (uint64_t)(uintptr_t)kept};
	return true;
}

static void set_policy_key(struct parse *p, enum config_key key, const char *s, size_t n)
{
	struct fault f;
	struct value value;
	fault_clear(&f);
	if (!read_value(p->config, &value_keys[key], s, n, true, &value, &f)) {
		complain_value(p, &f, s, n);
		return;
	}
	value_store(&p->section->policy, key, &value);
	p->section->policy.origin[key] = (struct origin){
		.kind = p->place == PLACE_DEFAULTS ? ORIGIN_FILE_DEFAULTS : ORIGIN_FILE_SECTION,
		.line = p->line,
	};
}

static void set_fault_key(struct parse *p, const char *name, size_t n, const char *s, size_t len)
{
	struct fault why;
	int param = parse_is(name, n, "type") ? SEEN_TYPE : fault_find_param(name, n);
	fault_clear(&why);
	if (param < 0) {
		assign_unknown(p->out, p->line, p->place, name, n);
		p->is_wrong = true;
		return;
	}
	if (p->seen[param]) {
		assign_twice(p, name, n, p->seen[param]);
		p->is_wrong = true;
	} else {
		p->seen[param] = p->line;
	}
	if (param == SEEN_TYPE) {
		int type = fault_find_type(s, len);
		if (type < 0) {
			fault_complain_type(p->out, p->line, s, len);
			p->is_wrong = true;
		} else {
			p->fault->type = (uint8_t)type;
		}
		return;
	}
	p->fault->set |= 1u << param;
	if (!fault_read_param((enum fault_param)param, s, len, &p->fault->value[param], &why)) {
		complain_value(p, &why, s, len);
		p->is_wrong = true;
	}
}

void assign_key(struct parse *p, const char *name, size_t n, const char *s, size_t len)
{
	if (p->place == PLACE_NOWHERE) {
		complain_plain(p->out, p->line, "a key before any section", name, n,
			"under [resil], [defaults], [destination NAME] or [fault NAME]");
		return;
	}
	if ((p->place == PLACE_DESTINATION || p->place == PLACE_FAULT) && parse_is(name, n, "match")) {
		p->list = LIST_MATCH;
		p->has_match_key = true;
		add_patterns(p, s, len);
		return;
	}
	if (p->place == PLACE_FAULT) {
		set_fault_key(p, name, n, s, len);
		return;
	}
	bool is_resil = p->place == PLACE_RESIL;
	int row = is_resil ? value_find_setting(name, n) : value_find_key(name, n);
	if (row < 0) {
		assign_unknown(p->out, p->line, p->place, name, n);
		return;
	}
	if (p->seen[row])
		assign_twice(p, name, n, p->seen[row]);
	else
		p->seen[row] = p->line;
	if (is_resil)
		set_setting(p, (enum config_setting)row, s, len);
	else
		set_policy_key(p, (enum config_key)row, s, len);
}

void assign_more(struct parse *p, const char *s, size_t n)
{
	if (p->list == LIST_MATCH)
		add_patterns(p, s, n);
	else if (p->list == LIST_SKIP_EXE && !config_keep_on(p->config, s, n))
		complain_plain(p->out, p->line, "skip_exe is too long", s, n, "a shorter list");
}

/* --- RESIL_SET --- */

static void set_one(struct config *c, const char *s, size_t n, struct complaints *out)
{
	const char *sign = memchr(s, '=', n), *value = sign ? sign + 1 : s + n;
	size_t name_len = sign ? (size_t)(sign - s) : n, value_len = n - (size_t)(value - s);
	struct fault f;
	struct value read;

	parse_strip(&s, &name_len);
	parse_strip(&value, &value_len);
	if (!sign) {
		complain_plain(out, 0, "not key=value", s, name_len, "key=value;key=value");
		return;
	}
	int key = value_find_key(s, name_len);
	if (key < 0) {
		assign_unknown(out, 0, PLACE_DEFAULTS, s, name_len);
		return;
	}
	fault_clear(&f);
	if (!read_value(c, &value_keys[key], value, value_len, false, &read, &f)) {
		complain(out, 0, &f, value, value_len);
		return;
	}
	value_store(&c->defaults.policy, (enum config_key)key, &read);
	c->defaults.policy.origin[key] = (struct origin){.kind = ORIGIN_ENVIRONMENT};
}

void assign_set(struct config *c, const char *set, struct complaints *out)
{
	size_t n = strnlen(set, CONFIG_SET_MAX + 1);
	if (n > CONFIG_SET_MAX) {
		complain_plain(out, 0, "is too long", set, n, "at most 4095 bytes");
		return;
	}
	for (const char *end = set + n; set < end;) {
		const char *semicolon = memchr(set, ';', (size_t)(end - set)), *one = set;
		size_t len = semicolon ? (size_t)(semicolon - set) : (size_t)(end - set);
		set += semicolon ? len + 1 : len;
		parse_strip(&one, &len);
		if (len > 0)
			set_one(c, one, len, out);
	}
}
