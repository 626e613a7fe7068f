/* resil which: the rule, the breaker and the effective values for a destination. */
#include "cli/cli.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/place.h"
#include "cli/settings.h"
#include "control/nearby.h"
#include "control/params.h"
#include "policy/fault.h"
#include "policy/policy.h"
#include "policy/route.h"

const char *place_read(char *text, struct place *p)
{
	char host[256];
	uint64_t port = 0;
	char *blank = strchr(text, ' ');

	memset(p, 0, sizeof *p);
	p->request = blank ? blank + 1 : "";
	if (blank)
		*blank = '\0';
	if (strncmp(text, "unix:", 5) == 0) {
		size_t n = strlen(text + 5);
		if (n == 0 || n > sizeof p->addr.path)
			return "a socket's path has 1 to 108 bytes";
		p->addr.family = ADDR_UNIX;
		p->addr.unix_len = (uint8_t)n;
		memcpy(p->addr.path, text + 5, n);
		snprintf(p->shown, sizeof p->shown, "%s", text);
		return NULL;
	}
	p->is_said = strncmp(text, "sni:", 4) == 0;
	text += p->is_said ? 4 : 0;
	const char *colon = strrchr(text, ':');
	if (!colon || colon == text || (text[0] == '[' && colon[-1] != ']'))
		return "a port is due, as in api.internal:443 or [fd00::1]:443";
	if (!params_u64(colon + 1, &port) || port == 0 || port > 65535)
		return "a port is a number from 1 to 65535";
	size_t n = (size_t)(colon - text);
	if (text[0] != '[' && memchr(text, ':', n))
		return "an IPv6 address stands in brackets, as in [fd00::1]:443";
	if (n >= sizeof host)
		return "a host has at most 255 bytes";
	memcpy(host, text, n);
	host[n] = '\0';
	if (addr_from_literal(&p->addr, host)) {
		p->addr.port = (uint16_t)port;
		struct text t = TEXT_ON(p->shown);
		addr_text(&t, &p->addr);
		return NULL;
	}
	if (text[0] == '[')
		return "what is in the brackets is no IPv6 address";
	while (n > 1 && host[n - 1] == '.')
		host[--n] = '\0';
	for (size_t i = 0; i <= n; i++)
		p->name[i] = (char)(host[i] >= 'A' && host[i] <= 'Z' ? host[i] | 0x20 : host[i]);
	p->addr.family = ADDR_INET;
	p->addr.port = (uint16_t)port;
	snprintf(p->shown, sizeof p->shown, "%s:%u", p->name, (unsigned)port);
	return NULL;
}

/* dns:NAME */
static const char *look_up_read(const char *text, struct place *p)
{
	size_t n = strlen(text += 4);
	memset(p, 0, sizeof *p);
	p->is_look_up = true;
	p->request = "";
	while (n > 1 && text[n - 1] == '.')
		n--;
	if (n == 0 || n >= sizeof p->name || memchr(text, ':', n) || memchr(text, ' ', n))
		return "a name alone is due, as in dns:api.internal";
	for (size_t i = 0; i < n; i++)
		p->name[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i]);
	snprintf(p->shown, sizeof p->shown, "dns:%s", p->name);
	return NULL;
}

/* A rule by address can only fit a name that resolves. */
static void resolve(struct place *p)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	uint16_t port = p->addr.port;

	if (p->name[0] == '\0' || p->is_said || p->is_look_up || p->addr.family != ADDR_INET)
		return;
	p->is_unresolved = getaddrinfo(p->name, NULL, &hints, &found) != 0 ||
			   !addr_from_sockaddr(&p->addr, found->ai_addr, found->ai_addrlen);
	p->addr.family = ADDR_INET;
	p->addr.port = port;
	if (found)
		freeaddrinfo(found);
}

static void breaker_name(char *to, size_t cap, const struct place *p, const struct policy *policy)
{
	struct text t = {.at = to, .cap = cap};
	to[0] = '\0';
	if (!p->is_look_up && policy->key == POLICY_KEY_SECTION && policy->section[0])
		text_str(&t, policy->section);
	else if (!p->is_look_up && policy->key == POLICY_KEY_ADDRESS && !p->is_unresolved)
		addr_text(&t, &p->addr);
	else
		text_str(&t, p->shown);
	size_t n = 0;
	const char *route =
		policy->key == POLICY_KEY_ROUTE ? route_find(policy->route, p->request, strlen(p->request), &n) : NULL;
	if (!p->request[0] || (policy->key != POLICY_KEY_METHOD && policy->key != POLICY_KEY_ROUTE))
		return;
	text_char(&t, ' ');
	if (route)
		text_bytes(&t, route, n);
	else
		text_str(&t, policy->key == POLICY_KEY_METHOD ? route_method(p->request, strlen(p->request))
							      : ROUTE_UNKNOWN);
}

struct seen {
	char state[64];
	char group[65];
	char places[64]; /* of its bulkhead; "": it has none */
};

/* The breaker's state, from the first group that has it and is not closed, else from any. */
static bool look_up(const struct groups *g, const char *name, struct seen *seen, struct circuit_view *v)
{
	bool is_found = false;
	for (size_t i = 0; i < g->n; i++) {
		struct circuit_view one;
		int index = nearby_find(&g->at[i].region, name);
		if (index < 0)
			continue;
		circuit_view(&g->at[i].region, (uint32_t)index, clock_now_ns(), &one);
		if (is_found && !view_is_open(&one))
			continue;
		is_found = true;
		*v = one;
		state_text(seen->state, sizeof seen->state, &one);
		memcpy(seen->group, g->at[i].name, sizeof seen->group);
		seen->places[0] = '\0';
		if (one.bulkhead_limit)
			snprintf(seen->places, sizeof seen->places, "%u of %u taken", one.bulkhead_in_use,
				one.bulkhead_limit);
		if (view_is_open(&one))
			break;
	}
	return is_found;
}

static void print_values(struct table *t, const struct config *c, const struct policy *policy, const struct addr *addr)
{
	static const char *const names[] = {
#define X(name, text, type, field, initial, min, max, sentence) text,
		POLICY_KEYS(X)
#undef X
	};
	char value_at[512], origin_at[1024];
	for (int key = 0; key < KEY_COUNT; key++) {
		struct text value = TEXT_ON(value_at), origin = TEXT_ON(origin_at);
		render_policy_value(&value, &origin, c, policy, (enum config_key)key, addr);
		const char *cells[] = {names[key], value_at, origin_at};
		table_row(t, cells);
	}
}

struct finding {
	const struct config *config;
	const struct policy *policy;
	const char *pattern;
	const struct addr *addr; /* null for a name */
	const struct place *place;
	char breaker[300];
	const char *exe;
	bool has_state, has_look_ups;
	struct seen seen, look_ups; /* of the name, where it has a circuit for them */
};

static void rule_origin(char *to, size_t cap, const struct finding *f)
{
	if (f->policy->section[0])
		snprintf(to, cap, "%s:%u", config_file(f->config), f->policy->line);
	else
		snprintf(to, cap, "%s", config_file(f->config)[0] ? config_file(f->config) : "built-in");
}

static struct target target_of(const struct place *p, const char *exe)
{
	const char *name = p->name[0] ? p->name : NULL;
	return (struct target){
		.addr = &p->addr, .name = p->is_said ? NULL : name, .exe = exe, .said = p->is_said ? name : NULL};
}

/* The next rule that its calls go over to where the connection says so, from *i on: a name is said as it was looked up,
 * of an address any may be. */
static const struct policy *next_said(const struct finding *f, uint32_t *i, const char **pattern)
{
	struct target target = target_of(f->place, f->exe);
	if (f->place->is_said || f->place->is_look_up)
		return NULL;
	target.said = target.name;
	return config_next_said(f->config, &target, i, pattern);
}

/* The next fault of the configuration that fits, from *i on. */
static const struct fault_rule *next_fault(const struct finding *f, uint32_t *i)
{
	struct target target = target_of(f->place, f->exe);
	const struct fault_rule *fault;
	while ((fault = config_fault(f->config, (*i)++)) != NULL)
		if (f->place->is_look_up ? config_fault_fits_look_up(f->config, fault, f->place->name, 0, f->exe)
					 : config_fault_fits(f->config, fault, &target))
			return fault;
	return NULL;
}

static void print_faults(struct table *t, const struct finding *f)
{
	char name[48], spec_at[600], origin_at[4200];
	const struct fault_rule *fault;
	for (uint32_t i = 0; (fault = next_fault(f, &i)) != NULL;) {
		struct text spec = TEXT_ON(spec_at), origin = TEXT_ON(origin_at);
		spec_at[0] = origin_at[0] = '\0';
		snprintf(name, sizeof name, "fault %s", fault->name);
		config_fault_text(&spec, f->config, fault);
		config_fault_origin_text(&origin, f->config, fault);
		const char *cells[] = {name, spec_at, origin_at};
		table_row(t, cells);
	}
}

static void json_faults(struct text *t, const struct finding *f)
{
	char text_at[4200];
	const struct fault_rule *fault;
	const char *comma = "";
	text_str(t, ",\"faults\":[");
	for (uint32_t i = 0; (fault = next_fault(f, &i)) != NULL; comma = ",") {
		struct text one = TEXT_ON(text_at);
		text_at[0] = '\0';
		config_fault_text(&one, f->config, fault);
		text_fmt(t, "%s{\"name\":", comma);
		text_json(t, fault->name);
		text_str(t, ",\"spec\":");
		text_json(t, text_at);
		one = TEXT_ON(text_at);
		text_at[0] = '\0';
		config_fault_origin_text(&one, f->config, fault);
		text_str(t, ",\"origin\":");
		text_json(t, text_at);
		text_char(t, '}');
	}
	text_char(t, ']');
}

static void print_said(struct table *t, const struct finding *f)
{
	char rule[400], origin[4200];
	const char *pattern;
	const struct policy *p;
	for (uint32_t i = 0; (p = next_said(f, &i, &pattern)) != NULL;) {
		snprintf(rule, sizeof rule, "[destination %s]: %.300s", p->section, pattern);
		snprintf(origin, sizeof origin, "%s:%u", config_file(f->config), p->line);
		const char *cells[] = {"rule by sni", rule, origin};
		table_row(t, cells);
	}
}

static void json_said(struct text *t, const struct finding *f)
{
	char origin[4200];
	const char *pattern, *comma = "";
	const struct policy *p;
	text_str(t, ",\"said\":[");
	for (uint32_t i = 0; (p = next_said(f, &i, &pattern)) != NULL; comma = ",") {
		snprintf(origin, sizeof origin, "%s:%u", config_file(f->config), p->line);
		text_fmt(t, "%s{\"rule\":", comma);
		text_json(t, p->section);
		text_str(t, ",\"rule_origin\":");
		text_json(t, origin);
		text_str(t, ",\"pattern\":");
		text_json(t, pattern);
		text_char(t, '}');
	}
	text_char(t, ']');
}

static void print_table(const struct finding *f)
{
	static const char *const headers[] = {"WHAT", "VALUE", "ORIGIN"};
	char rule[96], origin[4200];
	struct table *t = table_new(headers, 3);

	rule_origin(origin, sizeof origin, f);
	snprintf(rule, sizeof rule, f->policy->section[0] ? "[destination %s]" : "[defaults]%s", f->policy->section);
	const char *const rows[][3] = {
		{"destination", f->place->shown, f->place->is_unresolved ? "does not resolve here" : "-"},
		{"rule", rule, origin},
		{"pattern", f->pattern[0] ? f->pattern : "-", f->pattern[0] ? origin : "-"},
		{"breaker name", f->breaker, "-"},
		{"state", f->has_state ? f->seen.state : "not used yet", f->has_state ? f->seen.group : "-"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		table_row(t, rows[i]);
	print_said(t, f);
	print_faults(t, f);
	char look_ups[400];
	snprintf(look_ups, sizeof look_ups, "dns:%s is %s", f->place->name, f->look_ups.state);
	const char *of_look_ups[] = {"look-ups", look_ups, f->look_ups.group};
	if (f->has_look_ups)
		table_row(t, of_look_ups);
	const char *places[] = {"places", f->seen.places, f->seen.group};
	if (f->has_state && f->seen.places[0])
		table_row(t, places);
	print_values(t, f->config, f->policy, f->addr);
	table_print(t);
}

static void json_finding(struct text *t, const void *ctx)
{
	const struct finding *f = ctx;
	char origin[4200];

	rule_origin(origin, sizeof origin, f);
	text_str(t, "{\"destination\":");
	text_json(t, f->place->shown);
	text_str(t, ",\"rule\":");
	text_json(t, f->policy->section[0] ? f->policy->section : "defaults");
	text_str(t, ",\"rule_origin\":");
	text_json(t, origin);
	text_str(t, ",\"pattern\":");
	text_json(t, f->pattern);
	text_str(t, ",\"breaker\":");
	text_json(t, f->breaker);
	text_str(t, ",\"state\":");
	if (f->has_state)
		text_json(t, f->seen.state);
	else
		text_str(t, "null");
	text_str(t, ",\"group\":");
	if (f->has_state)
		text_json(t, f->seen.group);
	else
		text_str(t, "null");
	text_str(t, ",\"look_ups\":");
	if (f->has_look_ups) {
		text_str(t, "{\"state\":");
		text_json(t, f->look_ups.state);
		text_str(t, ",\"group\":");
		text_json(t, f->look_ups.group);
		text_char(t, '}');
	} else {
		text_str(t, "null");
	}
	text_str(t, ",\"values\":");
	render_policy_values(t, f->config, f->policy, f->addr);
	json_said(t, f);
	json_faults(t, f);
	text_str(t, "}\n");
}

/* Does a section name it for some executables only? Then of which exe: pattern and in which line. */
static bool is_named_for_exe(const struct config *c, const struct target *target, char *exe, size_t cap, uint32_t *line)
{
	char all[4096];
	const struct policy *p;

	for (uint32_t i = 0; (p = config_policy(c, i)) != NULL; i++) {
		struct text patterns = TEXT_ON(all);
		all[0] = '\0';
		if (p->section[0])
			config_patterns_text(&patterns, c, p);
		for (char *one = strtok(all, ", "); one; one = strtok(NULL, ", ")) {
			if (strncmp(one, "exe:", 4) != 0)
				continue;
			/* A name that fits it: each star stands for nothing. */
			char name[256];
			struct text t = TEXT_ON(name);
			name[0] = '\0';
			for (const char *s = one + 4; *s; s++)
				if (*s != '*')
					text_char(&t, *s);
			struct target as = *target;
			as.exe = name;
			if (config_match(c, &as, NULL) != p)
				continue;
			snprintf(exe, cap, "%s", one);
			*line = p->line;
			return true;
		}
	}
	return false;
}

static int show(const struct options *o, const struct settings *s, const struct place *p, const char *exe)
{
	struct target target = target_of(p, exe);
	struct finding f = {
		.config = s->config, .place = p, .pattern = "", .addr = p->is_look_up ? NULL : &p->addr, .exe = exe};
	struct groups g = {0};
	struct circuit_view v;

	f.policy = p->is_look_up ? config_match_look_up(s->config, p->name, 0, exe)
				 : config_match(s->config, &target, &f.pattern);
	if (!f.policy) {
		if (o->is_json) {
			char at[2048];
			struct text t = TEXT_ON(at);
			text_str(&t, "{\"destination\":");
			text_json(&t, p->shown);
			text_str(&t, ",\"rule\":null}");
			puts(at);
		} else {
			char only[300];
			uint32_t line;
			if (is_named_for_exe(s->config, &target, only, sizeof only, &line))
				printf("%s is not guarded: named at %s:%u, but only for %s; try -e NAME\n", p->shown,
					config_file(s->config), line, only);
			else
				printf("%s is not guarded: no match names it\n", p->shown);
		}
		return EXIT_DONE;
	}
	if (!f.pattern)
		f.pattern = "";
	breaker_name(f.breaker, sizeof f.breaker, p, f.policy);
	int code = groups_open(&g, o, false);
	if (code && o->group)
		return code;
	f.has_state = code == 0 && look_up(&g, f.breaker, &f.seen, &v);
	if (code == 0 && p->name[0] && !p->is_look_up && !p->is_said) {
		char look_ups[300];
		snprintf(look_ups, sizeof look_ups, "dns:%s", p->name);
		f.has_look_ups = look_up(&g, look_ups, &f.look_ups, &v);
	}
	if (o->is_json)
		print_rendered(json_finding, &f);
	else
		print_table(&f);
	groups_close(&g);
	return EXIT_DONE;
}

static int run_which(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {
		OPTIONS_LONG, {"config", required_argument, NULL, 'c'}, {"exe", required_argument, NULL, 'e'}, {0}};
	struct options o = {0};
	const char *file = NULL, *exe = "", *wrong;
	struct settings s;
	struct place p;
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT "c:e:", longs, NULL)) != -1) {
		if (option == 'c') {
			if (!optarg[0])
				return usage_error(verb, "a file has a name");
			file = optarg;
			continue;
		}
		if (option == 'e') {
			exe = optarg;
			continue;
		}
		int code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (argc - optind != 1)
		return usage_error(verb, "one destination is due, as in api.internal:443");
	wrong = strncmp(argv[optind], "dns:", 4) == 0 ? look_up_read(argv[optind], &p) : place_read(argv[optind], &p);
	if (wrong)
		return usage_error(verb, "'%s': %s", argv[optind], wrong);
	if (!settings_load(&s, file, own_getenv("RESIL_SET"))) {
		fputs("resil: no memory for the configuration\n", stderr);
		return EXIT_FAILED;
	}
	if (s.faults) {
		settings_print_errors(&s);
		fputs("resil: the configuration has faults: with it the shim only observes\n", stderr);
	}
	resolve(&p);
	int code = show(&o, &s, &p, exe);
	if (code == EXIT_DONE && s.faults)
		code = EXIT_USAGE;
	settings_free(&s);
	return code;
}

const struct verb verb_which = {
	.name = "which",
	.arguments = "HOST:PORT [-c FILE] [-e EXE] [-g GROUP] [--json]",
	.summary = "which rule and values hold for a destination, and where each was set",
	.help = "Tells which section fits (the first in file order), by which pattern, what its breaker is called, its "
		"state where a\n"
		"group has used it, and each effective value with its origin. HOST:PORT, IP:PORT, [v6]:PORT or "
		"unix:/path,\n"
		"sni:HOST:PORT for what a connection calls its server; which of such rules its calls would go over to "
		"is told ('rule by sni');\n"
		"dns:NAME for its look-ups;\n"
		"with `key = method` or `route` also one request of it, as 'api.internal:80 GET' or 'api.internal:80 "
		"/users/7'.\n\n"
		"Options:\n  -c, --config FILE   this configuration (default: the one a program started here would "
		"have)\n"
		"  -e, --exe NAME      as this executable, for rules with exe:NAME\n" OPTIONS_HELP
		"\nExample:\n  resil which api.internal:443\n\nExit codes: 0 done, 2 wrong usage or configuration, 3 "
		"no such group.\n",
	.run = run_which,
};
