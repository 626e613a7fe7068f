/* What resil check says of values that are right one by one and do not mean together what one would think. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/settings.h"

static bool is_by_request(const struct policy *p)
{
	return p->key == POLICY_KEY_METHOD || p->key == POLICY_KEY_ROUTE;
}

static bool has_said_name(const struct config *c, const struct policy *p)
{
	static char at[1u << 16];
	struct text t = TEXT_ON(at);
	at[0] = '\0';
	config_patterns_text(&t, c, p);
	return strncmp(at, "sni:", 4) == 0 || strstr(at, " sni:") || strstr(at, ",sni:");
}

static bool rejects_requests(const struct config *c, const struct policy *p)
{
	(void)c;
	return is_by_request(p) && p->fallback;
}

static bool rejects_names(const struct config *c, const struct policy *p)
{
	return p->fallback && has_said_name(c, p);
}

static bool has_no_ceiling(const struct config *c, const struct policy *p)
{
	(void)c;
	return p->adaptive == POLICY_ADAPTIVE_ON && !p->max_concurrent;
}

static bool waits_for_nothing(const struct config *c, const struct policy *p)
{
	(void)c;
	return p->max_wait_ms && !p->max_concurrent;
}

static bool has_no_route(const struct config *c, const struct policy *p)
{
	(void)c;
	return p->key == POLICY_KEY_ROUTE && !p->route[0];
}

static bool has_routes_in_vain(const struct config *c, const struct policy *p)
{
	(void)c;
	return p->key != POLICY_KEY_ROUTE && p->route[0];
}

static const struct remark {
	bool (*is_so)(const struct config *c, const struct policy *p);
	enum config_key key, with; /* where it is told: at the one that the section itself has */
	const char *text, *right;
} remarks[] = {
	{rejects_requests, KEY_FALLBACK, KEY_KEY, "requests that key = method or route rejects have no fallback",
		"connects that are rejected or fail have it; with key = origin all do"},
	{rejects_names, KEY_FALLBACK, KEY_FALLBACK, "what a rule by sni: rejects has no fallback",
		"a connection says its name when it is made; a rule by host:port has it"},
	{has_no_ceiling, KEY_ADAPTIVE, KEY_MAX_CONCURRENT, "adaptive without max_concurrent limits nothing",
		"max_concurrent is its ceiling"},
	{waits_for_nothing, KEY_MAX_WAIT, KEY_MAX_CONCURRENT, "max_wait without max_concurrent waits for nothing",
		"max_concurrent is what is waited for"},
	{has_no_route, KEY_KEY, KEY_ROUTE, "key = route without route: every request is of the circuit 'unknown'",
		"route = /users/*, /orders/*/items, or key = origin"},
	{has_routes_in_vain, KEY_ROUTE, KEY_KEY, "route is read with key = route alone", "key = route"},
};

static bool is_own(const struct policy *p, enum config_key key)
{
	enum origin_kind kind = (enum origin_kind)p->origin[key].kind;
	return kind == ORIGIN_FILE_SECTION || (!p->section[0] && kind != ORIGIN_BUILTIN);
}

static void tell(struct text *t, const struct config *c, const struct policy *p, const struct remark *r)
{
	enum config_key key = is_own(p, r->key) || !is_own(p, r->with) ? r->key : r->with;
	const struct origin *o = &p->origin[key];
	char value[1024] = "";
	struct text v = TEXT_ON(value);
	config_value_text(&v, p, key);
	if (o->kind == ORIGIN_ENVIRONMENT)
		text_str(t, "RESIL_SET");
	else
		text_fmt(t, "%s:%u", config_file(c), is_own(p, key) ? o->line : p->line);
	text_fmt(t, ": remark: %s ('%s'; %s)\n", r->text, value, r->right);
}

/* What [defaults] has may be meant for sections that have the rest. */
static bool is_so_of_all(const struct config *c, const struct remark *r)
{
	const struct policy *p;
	for (uint32_t i = 0; (p = config_policy(c, i)) != NULL; i++)
		if (!r->is_so(c, p))
			return false;
	return true;
}

/* Of a section what it has itself, or what is made of it by its match. */
static bool is_told(const struct config *c, const struct policy *p, const struct remark *r)
{
	if (!r->is_so(c, p))
		return false;
	if (!p->section[0])
		return is_so_of_all(c, r);
	return is_own(p, r->key) || is_own(p, r->with) || r->is_so == rejects_names;
}

void settings_remark(const struct settings *s, struct text *t)
{
	const struct policy *p;
	for (uint32_t i = 0; (p = config_policy(s->config, i)) != NULL; i++)
		for (size_t k = 0; k < sizeof remarks / sizeof remarks[0]; k++)
			if (is_told(s->config, p, &remarks[k]))
				tell(t, s->config, p, &remarks[k]);
}
