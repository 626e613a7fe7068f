/* See match.h, and config_match in config.h. On the connect path and in signal handlers: loads and compares only. */
#include "policy/match.h"

#include <string.h>

#include "policy/inside.h"

bool match_glob(const char *pattern, size_t n, const char *name)
{
	/* The last star only: what an earlier one took needs no second look. */
	const char *p = pattern, *end = pattern + n, *star = NULL, *retry = NULL;
	while (*name) {
		if (p < end && *p == '*') {
			star = p++;
			retry = name;
		} else if (p < end && *p == *name) {
			p++;
			name++;
		} else if (star) {
			p = star + 1;
			name = ++retry;
		} else {
			return false;
		}
	}
	while (p < end && *p == '*')
		p++;
	return p == end;
}

/* A connect as the patterns look at it: what all of them ask for is worked out once. */
struct sight {
	const struct target *target;
	const char *name; /* never null */
	size_t name_len;
	uint64_t ip[2]; /* as it lies in memory */
	bool is_inet, is_v4;
	uint16_t port;
};

static bool net_fits(const struct pattern *p, const struct sight *s)
{
	uint64_t off = ((s->ip[0] ^ p->net[0]) & p->mask[0]) | ((s->ip[1] ^ p->net[1]) & p->mask[1]);
	return off == 0 && s->is_v4 == p->is_v4 && (p->scope == 0 || p->scope == s->target->addr->scope);
}

static bool name_fits(const struct pattern *p, const char *name, size_t len)
{
	switch ((enum pattern_kind)p->kind) {
	case PATTERN_ANY: return true;
	case PATTERN_HOST: return len == p->host_len && memcmp(name, p->host, len) == 0;
	case PATTERN_SUFFIX: return len > p->host_len && memcmp(name + len - p->host_len, p->host, p->host_len) == 0;
	case PATTERN_NET:
	case PATTERN_SNI:
	case PATTERN_UNIX:
	case PATTERN_EXE: break;
	}
	return false;
}

static bool said_fits(const struct pattern *p, const char *said)
{
	if (!said)
		return false;
	size_t len = strlen(said), host_len = p->host_len;
	if (p->host[0] == '.')
		return len > host_len && memcmp(said + len - host_len, p->host, host_len) == 0;
	return len == host_len && memcmp(said, p->host, len) == 0;
}

/* Not for PATTERN_EXE. */
static bool place_fits(const struct pattern *p, const struct sight *s)
{
	const struct addr *a = s->target->addr;
	if (!s->is_inet)
		return p->kind == PATTERN_UNIX && a->family == ADDR_UNIX && a->unix_len == p->host_len &&
		       memcmp(a->path, p->host, p->host_len) == 0;
	if (s->port < p->low || s->port > p->high)
		return false;
	if (p->kind == PATTERN_SNI)
		return said_fits(p, s->target->said);
	return p->kind == PATTERN_NET ? net_fits(p, s) : name_fits(p, s->name, s->name_len);
}

static bool exe_fits(const struct config *c, const struct match_list *s, const char *exe)
{
	for (uint32_t i = s->first; i < s->first + s->count; i++)
		if (c->patterns[i].kind == PATTERN_EXE && match_glob(c->patterns[i].host, c->patterns[i].host_len, exe))
			return true;
	return false;
}

/* The pattern of a list that fits, or null. With exe: alone it fits every TCP connect of that executable. */
static const struct pattern *list_fits(const struct config *c, const struct match_list *s, const struct sight *t)
{
	if (s->has_exe && (!t->target->exe || !exe_fits(c, s, t->target->exe)))
		return NULL;
	for (uint32_t i = s->first; i < s->first + s->count; i++) {
		const struct pattern *p = &c->patterns[i];
		bool fits = p->kind == PATTERN_EXE ? !s->has_place && t->is_inet : place_fits(p, t);
		if (fits)
			return p;
	}
	return NULL;
}

static struct sight sight_of(const struct target *target)
{
	const struct addr *a = target->addr;
	struct sight sight = {
		.target = target,
		.name = target->name ? target->name : "",
		.is_inet = a->family == ADDR_INET,
		.is_v4 = addr_is_v4(a),
		.port = a->port,
	};
	sight.name_len = strlen(sight.name);
	memcpy(sight.ip, a->ip, sizeof sight.ip);
	return sight;
}

const struct policy *config_match(const struct config *c, const struct target *target, const char **pattern)
{
	const struct addr *a = target->addr;
	if (pattern)
		*pattern = "";
	if (c->section_count == 0)
		return a->family == ADDR_INET ? &c->defaults.policy : NULL;

	struct sight sight = sight_of(target);
	for (uint32_t i = 0; i < c->section_count; i++) {
		const struct pattern *p = list_fits(c, &c->sections[i].match, &sight);
		if (!p)
			continue;
		if (pattern)
			*pattern = p->text;
		return &c->sections[i].policy;
	}
	return sight.is_inet ? &c->defaults.policy : NULL;
}

const struct policy *config_next_said(
	const struct config *c, const struct target *target, uint32_t *i, const char **pattern)
{
	struct target unsaid = *target;
	struct sight sight = sight_of(target);
	unsaid.said = NULL;
	/* The first in file order counts: what stands behind the rule of the connect itself is never reached. */
	const struct policy *now = config_match(c, &unsaid, NULL);
	for (uint32_t k = 0; sight.is_inet && k < c->section_count && &c->sections[k].policy != now; k++) {
		const struct match_list *list = &c->sections[k].match;
		if (list->has_exe && (!target->exe || !exe_fits(c, list, target->exe)))
			continue;
		for (*i = *i < list->first ? list->first : *i; *i < list->first + list->count;) {
			const struct pattern *p = &c->patterns[(*i)++];
			if (p->kind != PATTERN_SNI || sight.port < p->low || sight.port > p->high ||
				(target->said && !said_fits(p, target->said)))
				continue;
			*pattern = p->text;
			return &c->sections[k].policy;
		}
	}
	return NULL;
}

bool config_is_said_only(const struct config *c, const struct policy *p)
{
	bool is_said = false;
	if (p == &c->defaults.policy)
		return false;
	const struct section *s = (const struct section *)((const char *)p - offsetof(struct section, policy));
	for (uint32_t i = s->match.first; i < s->match.first + s->match.count; i++) {
		if (c->patterns[i].kind != PATTERN_SNI && c->patterns[i].kind != PATTERN_EXE)
			return false;
		is_said |= c->patterns[i].kind == PATTERN_SNI;
	}
	return is_said;
}

static bool list_fits_look_up(const struct config *c, const struct match_list *s, const char *name, size_t len,
	uint16_t port, const char *exe)
{
	if (s->has_exe && (!exe || !exe_fits(c, s, exe)))
		return false;
	for (uint32_t k = s->first; k < s->first + s->count; k++) {
		const struct pattern *p = &c->patterns[k];
		bool has_port = port == 0 || (port >= p->low && port <= p->high);
		if (p->kind == PATTERN_EXE ? !s->has_place : has_port && name_fits(p, name, len))
			return true;
	}
	return false;
}

const struct policy *config_match_look_up(const struct config *c, const char *name, uint16_t port, const char *exe)
{
	size_t len = strlen(name);
	for (uint32_t i = 0; i < c->section_count; i++)
		if (list_fits_look_up(c, &c->sections[i].match, name, len, port, exe))
			return &c->sections[i].policy;
	return &c->defaults.policy;
}

bool config_fault_fits(const struct config *c, const struct fault_rule *f, const struct target *target)
{
	struct sight sight = sight_of(target);
	return list_fits(c, &f->match, &sight) != NULL;
}

bool config_fault_fits_look_up(
	const struct config *c, const struct fault_rule *f, const char *name, uint16_t port, const char *exe)
{
	return list_fits_look_up(c, &f->match, name, strlen(name), port, exe);
}
