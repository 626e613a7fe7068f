/* See config.h: reading as a whole, what one section takes from another, and the questions the shim asks. config_load
 * runs in the constructor of every process: without a file and without RESIL_SET it costs one mmap and some thousand
 * instructions. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/sys.h"
#include "policy/chain.h"
#include "policy/fault_read.h"
#include "policy/inside.h"
#include "policy/match.h"
#include "policy/value.h"

#define PAGE 4096u

const char *config_keep(struct config *c, const char *s, size_t n)
{
	if (c->pool_room - c->pool_len < n + 1)
		return NULL;
	char *at = c->pool + c->pool_len;
	memcpy(at, s, n);
	at[n] = '\0';
	c->pool_len += n + 1;
	return at;
}

bool config_keep_on(struct config *c, const char *s, size_t n)
{
	if (c->pool_room - c->pool_len < n + 1)
		return false;
	char *at = c->pool + c->pool_len - 1;
	at[0] = ' ';
	memcpy(at + 1, s, n);
	at[1 + n] = '\0';
	c->pool_len += n + 1;
	return true;
}

static size_t align(size_t n, size_t to)
{
	return (n + to - 1) & ~(to - 1);
}

static uint32_t at_most(uint32_t n, uint32_t most)
{
	return n < most ? n : most;
}

/* How many chains of fallbacks it may set: each is kept with whole paths. */
static size_t chains(const struct source_bytes *b, const char *set)
{
	static const char key[] = "fallback";
	size_t count = 0, left = b->len;
	for (const char *s = b->at; left > 0 && (s = memmem(s, left, key, sizeof key - 1)); count++, s++)
		left = b->len - (size_t)(s - b->at) - 1;
	for (const char *s = set; s && (s = strstr(s, key)); s++)
		count++;
	return count;
}

static size_t at_most_size(size_t n, size_t most)
{
	return n < most ? n : most;
}

/* Room for what a text can hold at most; only what is written is ever touched. */
static struct config *config_new(const struct source_bytes *b, const char *file, const char *set, const char *faults,
	size_t specs_len, uint32_t specs)
{
	uint32_t sections = at_most(b->brackets, CONFIG_POLICIES_MAX - 1);
	/* Of a specification: at most a pattern for each other byte. */
	if (faults) {
		specs_len = strlen(faults);
		for (size_t i = 0; i < specs_len; i++)
			specs += i == 0 || faults[i] == '\n';
	}
	uint32_t fault_room = at_most(b->brackets + specs, CONFIG_FAULTS_MAX);
	uint32_t patterns =
		sections || specs
			? at_most(b->commas + b->lines + (uint32_t)at_most_size(specs_len, CONFIG_MATCHES_MAX),
				  CONFIG_MATCHES_MAX)
			: 0;
	/* A pattern is kept as it was written and as it is compared, each with the byte that its comma takes in the
	 * file. */
	size_t pool = strlen(file) + 1 + 2 * (b->len + 1) + 2 * (specs_len + 1) + chains(b, set) * (CHAIN_TEXT_MAX + 1);
	size_t at_sections = align(sizeof(struct config), 16);
	size_t at_patterns = align(at_sections + sections * sizeof(struct section), 16);
	size_t at_faults = align(at_patterns + patterns * sizeof(struct pattern), 16);
	size_t at_pool = at_faults + fault_room * sizeof(struct fault_rule);
	size_t size = align(at_pool + pool, PAGE);

	struct config *c = sys_mmap(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(c))
		return NULL;
	c->size = size;
	c->sections = (struct section *)((char *)c + at_sections);
	c->section_room = sections;
	c->patterns = (struct pattern *)((char *)c + at_patterns);
	c->pattern_room = patterns;
	c->faults = (struct fault_rule *)((char *)c + at_faults);
	c->fault_room = fault_room;
	c->pool = (char *)c + at_pool;
	c->pool_room = size - at_pool;
	c->file = config_keep(c, file, strlen(file));
	return c;
}

static void set_builtin(struct config *c)
{
	struct fault unused;
	struct value value;
	fault_clear(&unused);
	for (int key = 0; key < KEY_COUNT; key++) {
		const char *initial = value_keys[key].initial;
		value_read(&value_keys[key], initial, strlen(initial), &value, &unused);
		value_store(&c->defaults.policy, (enum config_key)key, &value);
	}
	value_read(&value_settings[SETTING_MAX_DESTINATIONS], value_settings[SETTING_MAX_DESTINATIONS].initial,
		strlen(value_settings[SETTING_MAX_DESTINATIONS].initial), &value, &unused);
	c->max_destinations = (uint32_t)value.number;
	c->state = STATE_SHARED;
	c->control = CONTROL_AUTO;
	c->log = value_settings[SETTING_LOG].initial;
	c->skip_exe = value_settings[SETTING_SKIP_EXE].initial;
}

/* A section's unset keys are those of [defaults], wherever that stands in the file. */
static void inherit(struct policy *p, const struct policy *defaults)
{
	for (int key = 0; key < KEY_COUNT; key++) {
		if (p->origin[key].kind != ORIGIN_BUILTIN)
			continue;
		struct value value;
		value_load(defaults, (enum config_key)key, &value);
		value_store(p, (enum config_key)key, &value);
		p->origin[key] = defaults->origin[key];
	}
}

/* What follows from the values together. */
static void settle(struct policy *p, bool is_broken)
{
	if (is_broken) {
		/* All that would end a call, or change what is sent. */
		static const uint8_t undone[] = {KEY_CONNECT_TIMEOUT, KEY_ANSWER_TIMEOUT, KEY_STALL_TIMEOUT,
			KEY_DEADLINE, KEY_RESOLVE_TIMEOUT, KEY_STALE_DNS, KEY_EJECT, KEY_DEADLINE_HEADER, KEY_KEEPALIVE,
			KEY_TCP_USER_TIMEOUT, KEY_FALLBACK, KEY_MAX_CONCURRENT};
		static const struct value off = {.number = 0};
		p->breaker = POLICY_BREAKER_OBSERVE;
		p->origin[KEY_BREAKER] = (struct origin){.kind = ORIGIN_OBSERVE_ONLY};
		for (size_t i = 0; i < sizeof undone; i++) {
			value_store(p, (enum config_key)undone[i], &off);
			p->origin[undone[i]] = (struct origin){.kind = ORIGIN_OBSERVE_ONLY};
		}
	}
	p->rules.is_observed = p->breaker == POLICY_BREAKER_OBSERVE;
	/* The cap is never below the first wait. */
	if (p->rules.recovery_max_ms < p->rules.recovery_ms)
		p->rules.recovery_max_ms = p->rules.recovery_ms;
}

bool config_guards_look_up(const struct policy *p)
{
	bool trips = p->breaker != POLICY_BREAKER_OFF && p->trip_mask >> FAILURE_DNS & 1;
	return p->resolve_timeout_ns || p->deadline_ns || p->stale_dns_ns || trips;
}

/* Gives back what was reserved and not used. */
static void trim(struct config *c)
{
	size_t used = align((size_t)(c->pool + c->pool_len - (char *)c), PAGE);
	if (used < c->size && sys_munmap((char *)c + used, c->size - used) == 0)
		c->size = used;
	c->pool_room = c->pool_len;
}

struct config *config_load(const struct config_source *source, struct text *errors, int *error_count)
{
	const char *file = source->file ? source->file : "";
	struct complaints of_file = {.out = errors, .source = file}, of_set = {.out = errors, .source = "RESIL_SET"},
			  of_faults = {.out = errors, .source = "RESIL_FAULTS"};
	struct source_bytes b = {.at = NULL};
	bool is_read = file[0] && source_read(&b, file, source->is_optional, &of_file);

	*error_count = of_file.count;
	/* An optional file that is not there is none. */
	struct config *c = config_new(&b, is_read || of_file.count > 0 ? file : "", source->set, source->faults, 0, 0);
	if (!c) {
		source_free(&b);
		return NULL;
	}
	set_builtin(c);
	c->looks_at_files = source->looks_at_files;
	if (is_read)
		parse_file(c, &b, &of_file);
	source_free(&b);
	of_set.hidden = of_file.hidden; /* once the text is full, it stays so */
	if (source->set)
		assign_set(c, source->set, &of_set);

	of_faults.hidden = of_set.hidden;
	if (source->faults)
		fault_read_specs(c, source->faults, &of_faults);

	*error_count = of_file.count + of_set.count + of_faults.count;
	complain_finish(&of_faults);
	c->is_broken = *error_count > 0;
	for (uint32_t i = 0; i < c->section_count; i++) {
		inherit(&c->sections[i].policy, &c->defaults.policy);
		settle(&c->sections[i].policy, c->is_broken);
		c->guards_look_ups |= config_guards_look_up(&c->sections[i].policy);
	}
	settle(&c->defaults.policy, c->is_broken);
	c->guards_look_ups |= config_guards_look_up(&c->defaults.policy);
	trim(c);
	return c;
}

struct config *config_load_faults(const struct fault_given *given, uint32_t count)
{
	struct source_bytes none = {.at = NULL};
	struct complaints unsaid = {.source = ""};
	size_t room = 1;
	for (uint32_t i = 0; i < count; i++)
		room += strlen(given[i].spec) + 1;
	struct config *c = config_new(&none, "", NULL, NULL, room, count);
	if (!c)
		return NULL;
	set_builtin(c);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t before = c->fault_count;
		fault_read_spec(c, given[i].spec, strlen(given[i].spec), &unsaid);
		if (c->fault_count == before)
			continue;
		c->faults[before].number = given[i].number;
		c->faults[before].begun_ns = given[i].begun_ns;
		c->faults[before].until_ns = given[i].until_ns;
	}
	trim(c);
	return c;
}

void config_free(struct config *c)
{
	if (c)
		sys_munmap(c, c->size);
}

/* dir and rest into path, from its beginning. */
static bool path_of(struct text path, const char *dir, const char *rest)
{
	text_str(&path, dir);
	text_str(&path, rest);
	return !path.is_cut;
}

/* Not to be searched counts as not there: after su, HOME may still be another user's. */
static bool is_there(const char *path)
{
	struct stat st;
	return sys_stat(path, &st) == 0;
}

bool config_find_file(char *path, size_t cap, bool *is_optional, const char *(*getenv_fn)(const char *))
{
	struct text t = {.at = path, .cap = cap};
	const char *named = getenv_fn("RESIL_CONF");
	*is_optional = false;
	if (named && named[0])
		return path_of(t, named, "");

	*is_optional = true;
	const char *xdg = getenv_fn("XDG_CONFIG_HOME"), *home = getenv_fn("HOME");
	if (xdg && xdg[0] == '/') {
		if (path_of(t, xdg, "/resil/resil.conf") && is_there(path))
			return true;
	} else if (home && home[0] == '/') {
		if (path_of(t, home, "/.config/resil/resil.conf") && is_there(path))
			return true;
	}
	return path_of(t, "/etc/resil/resil.conf", "") && is_there(path);
}

enum state_kind config_state(const struct config *c)
{
	return c->state;
}

enum control_kind config_control(const struct config *c)
{
	return c->control;
}

uint32_t config_max_destinations(const struct config *c)
{
	return c->max_destinations;
}

const char *config_log(const struct config *c)
{
	return c->log;
}

bool config_guards_look_ups(const struct config *c)
{
	return c->guards_look_ups;
}

bool config_has_sni(const struct config *c)
{
	return c->has_sni;
}

bool config_is_broken(const struct config *c)
{
	return c->is_broken;
}

const char *config_file(const struct config *c)
{
	return c->file;
}

bool config_skips(const struct config *c, const char *exe)
{
	for (const char *s = c->skip_exe; *s;) {
		while (*s == ' ' || *s == '\t' || *s == ',')
			s++;
		const char *end = s;
		while (*end && *end != ',')
			end++;
		size_t n = (size_t)(end - s);
		while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'))
			n--;
		if (n > 0 && match_glob(s, n, exe))
			return true;
		s = end;
	}
	return false;
}

uint32_t config_policy_index(const struct config *c, const struct policy *p)
{
	if (p == &c->defaults.policy)
		return c->section_count;
	return (uint32_t)((const struct section *)((const char *)p - offsetof(struct section, policy)) - c->sections);
}

const struct policy *config_policy(const struct config *c, uint32_t index)
{
	if (index < c->section_count)
		return &c->sections[index].policy;
	return index == c->section_count ? &c->defaults.policy : NULL;
}
