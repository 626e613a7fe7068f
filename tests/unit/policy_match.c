/* Which rule a connect meets (CONTRACT 3): the first in file order whose pattern fits, else [defaults]; what each kind
 * of pattern takes and what not. */
#include "policy_load.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

struct trial {
	const char *match;   /* patterns of the only section */
	const char *address; /* a literal, or unix:PATH (a leading @: abstract) */
	unsigned port;
	const char *name; /* looked up; null: none */
	const char *exe;
	bool fits;
};

static const struct trial trials[] = {
	{"api.internal", "10.0.0.1", 80, "api.internal", "curl", true},
	{"api.internal", "10.0.0.1", 65535, "api.internal", "curl", true},
	{"API.Internal.", "10.0.0.1", 80, "api.internal", "curl", true},
	{"api.internal", "10.0.0.1", 80, "xapi.internal", "curl", false},
	{"api.internal", "10.0.0.1", 80, "api.internalx", "curl", false},
	{"api.internal", "10.0.0.1", 80, NULL, "curl", false},
	{"localhost", "127.0.0.1", 80, "localhost", "curl", true},
	{"localhost", "127.0.0.1", 80, NULL, "curl", false},
	{"b\xc3\xbc"
	 "cher.de",
		"10.0.0.1", 80,
		"b\xc3\xbc"
		"cher.de",
		"curl", true},
	{"under_score-9", "10.0.0.1", 80, "under_score-9", "curl", true},
	{"api.internal:443", "10.0.0.1", 443, "api.internal", "curl", true},
	{"api.internal:443", "10.0.0.1", 444, "api.internal", "curl", false},
	{"api:8000-8099", "10.0.0.1", 7999, "api", "curl", false},
	{"api:8000-8099", "10.0.0.1", 8000, "api", "curl", true},
	{"api:8000-8099", "10.0.0.1", 8099, "api", "curl", true},
	{"api:8000-8099", "10.0.0.1", 8100, "api", "curl", false},
	{"api:1-65535", "10.0.0.1", 65535, "api", "curl", true},
	{"api:1-65535", "10.0.0.1", 0, "api", "curl", false},
	{"*.internal:443", "10.0.0.1", 443, "api.internal", "curl", true},
	{"*.Internal", "10.0.0.1", 443, "a.b.internal", "curl", true},
	{"*.internal", "10.0.0.1", 443, "internal", "curl", false},
	{"*.internal", "10.0.0.1", 443, "notinternal", "curl", false},
	{"*.internal", "10.0.0.1", 443, ".internal", "curl", false},
	{"*.internal:443", "10.0.0.1", 80, "api.internal", "curl", false},
	{"10.0.0.1", "10.0.0.1", 80, NULL, "curl", true},
	{"10.0.0.1", "10.0.0.1", 80, "api.internal", "curl", true},
	{"10.0.0.1", "::ffff:10.0.0.1", 80, NULL, "curl", true},
	{"::ffff:10.0.0.1", "10.0.0.1", 80, NULL, "curl", true},
	{"10.0.0.1", "10.0.0.2", 80, NULL, "curl", false},
	{"10.0.0.1:80", "10.0.0.1", 81, NULL, "curl", false},
	{"10.0.0.0/8:5432", "10.255.255.255", 5432, NULL, "psql", true},
	{"10.0.0.0/8:5432", "11.0.0.0", 5432, NULL, "psql", false},
	{"10.0.0.0/8:5432", "10.1.2.3", 5433, NULL, "psql", false},
	{"10.0.0.0/8:5000-5999", "10.1.2.3", 5999, NULL, "psql", true},
	{"192.168.4.0/22", "192.168.7.255", 1, NULL, "psql", true},
	{"192.168.4.0/22", "192.168.8.0", 1, NULL, "psql", false},
	{"192.168.4.128/25", "192.168.4.127", 1, NULL, "psql", false},
	{"0.0.0.0/0", "8.8.8.8", 1, NULL, "psql", true},
	{"0.0.0.0/0", "fd00::1", 1, NULL, "psql", false},
	{"10.0.0.1/32", "10.0.0.1", 1, NULL, "psql", true},
	{"fd00::1", "fd00::1", 443, NULL, "curl", true},
	{"[fd00::1]", "fd00::1", 443, NULL, "curl", true},
	{"[FD00:0::1]:443", "fd00::1", 443, "api", "curl", true},
	{"[fd00::1]:443", "fd00::1", 80, NULL, "curl", false},
	{"fd00::/8", "fdff::1", 80, NULL, "curl", true},
	{"[fd00::]/8:443", "fdab::1", 443, NULL, "curl", true},
	{"[fd00::/8]:443", "fdab::1", 443, NULL, "curl", true},
	{"[fd00::]/8:443", "fe00::1", 443, NULL, "curl", false},
	{"[fd00::]/8:443", "fdab::1", 444, NULL, "curl", false},
	{"[2001:db8::]/33", "2001:db8:7fff::", 1, NULL, "curl", true},
	{"[2001:db8::]/33", "2001:db8:8000::", 1, NULL, "curl", false},
	{"::/0", "2001::1", 1, NULL, "curl", true},
	{"::/0", "1.2.3.4", 1, NULL, "curl", false},
	{"fe80::1", "fe80::1%3", 1, NULL, "curl", true},
	{"fe80::1%3", "fe80::1%3", 1, NULL, "curl", true},
	{"fe80::1%3", "fe80::1%4", 1, NULL, "curl", false},
	{"[fe80::1%3]:80", "fe80::1%3", 80, NULL, "curl", true},
	{"unix:/run/app.sock", "unix:/run/app.sock", 0, NULL, "curl", true},
	{"unix:/run/app.sock", "unix:/run/app.sock2", 0, NULL, "curl", false},
	{"unix:/run/app.sock", "unix:/run/app.soc", 0, NULL, "curl", false},
	{"unix:@name", "unix:@name", 0, NULL, "curl", true},
	{"unix:@name", "unix:/@name", 0, NULL, "curl", false},
	{"unix:/run/app.sock", "10.0.0.1", 80, NULL, "curl", false},
	{"*", "10.0.0.1", 80, NULL, "curl", true},
	{"*", "fd00::1", 80, "x", "curl", true},
	{"*", "unix:/run/app.sock", 0, NULL, "curl", false},
	{"*:443", "10.0.0.1", 443, NULL, "curl", true},
	{"*:443", "10.0.0.1", 80, NULL, "curl", false},
	{"exe:curl", "10.0.0.1", 80, NULL, "curl", true},
	{"exe:curl", "10.0.0.1", 80, NULL, "wget", false},
	{"exe:curl", "10.0.0.1", 80, NULL, NULL, false},
	{"exe:curl", "unix:/run/app.sock", 0, NULL, "curl", false},
	{"exe:python*", "10.0.0.1", 80, NULL, "python3.11", true},
	{"exe:python*", "10.0.0.1", 80, NULL, "xpython", false},
	{"exe:curl, api:443", "10.0.0.1", 443, "api", "curl", true},
	{"exe:curl, api:443", "10.0.0.1", 443, "api", "wget", false},
	{"exe:curl, api:443", "10.0.0.1", 80, "api", "curl", false},
	{"api:443, exe:curl, exe:wget", "10.0.0.1", 443, "api", "wget", true},
	{"exe:curl, unix:/run/app.sock", "unix:/run/app.sock", 0, NULL, "curl", true},
	{"exe:curl, unix:/run/app.sock", "unix:/run/app.sock", 0, NULL, "wget", false},
	{"exe:curl, unix:/run/app.sock", "10.0.0.1", 80, NULL, "curl", false},
	{"a, b,c ,d", "10.0.0.1", 80, "c", "curl", true},
	{"a, b,c ,d,", "10.0.0.1", 80, "d", "curl", true},
};

static void set_target(
	struct target *t, struct addr *a, const char *address, unsigned port, const char *name, const char *exe)
{
	*a = (struct addr){.family = ADDR_NONE};
	if (strncmp(address, "unix:", 5) == 0) {
		a->family = ADDR_UNIX;
		a->unix_len = (uint8_t)strlen(address + 5);
		memcpy(a->path, address + 5, a->unix_len);
	} else if (!addr_from_literal(a, address)) {
		printf("Bail out! %s is no address\n", address);
		exit(1);
	}
	if (a->family == ADDR_INET)
		a->port = (uint16_t)port;
	*t = (struct target){.addr = a, .name = name, .exe = exe};
}

static void test_trials(void)
{
	char text[300];
	for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
		const struct trial *t = &trials[i];
		struct target target;
		struct addr a;
		const char *pattern = NULL;
		snprintf(text, sizeof text, "[destination d]\nmatch = %s\n", t->match);
		load_text(text);
		set_target(&target, &a, t->address, t->port, t->name, t->exe);
		const struct policy *p = config_match(loaded.config, &target, &pattern);
		const struct policy *want = t->fits ? policy_of("d") : a.family == ADDR_UNIX ? NULL : policy_of("");
		bool is_named = t->fits ? pattern[0] != '\0' && strstr(t->match, pattern) : pattern[0] == '\0';
		if (!tap_ok(loaded.faults == 0 && p == want && is_named,
			    "match = %s: %s:%u, looked up as %s, in %s: %s", t->match, t->address, t->port,
			    t->name ? t->name : "nothing", t->exe ? t->exe : "nothing", t->fits ? "fits" : "does not"))
			printf("# pattern '%s' %s\n", pattern, loaded.errors);
	}
}

static void test_order(void)
{
	struct target target;
	struct addr a;
	const char *pattern;
	char bytes[300] = "";
	struct text t = TEXT_ON(bytes);

	load_text("[destination one]\nmatch = pay:443\n[defaults]\n[destination two]\nmatch = *.x,\n  pay\nmatch = "
		  "10.0.0.0/8\n[destination three]\nmatch = *\n");
	set_target(&target, &a, "10.0.0.1", 443, "pay", "curl");
	tap_ok(config_match(loaded.config, &target, &pattern) == policy_of("one") && strcmp(pattern, "pay:443") == 0,
		"the first rule in file order wins");
	a.port = 80;
	tap_ok(config_match(loaded.config, &target, &pattern) == policy_of("two") && strcmp(pattern, "pay") == 0,
		"then the next that fits; its first pattern is named");
	static const struct {
		const char *match, *said;
		uint16_t port;
		bool fits;
	} said[] = {{"sni:pay.test", "pay.test", 443, true}, {"sni:PAY.test.", "pay.test", 443, true},
		{"sni:pay.test", "a.pay.test", 443, false}, {"sni:*.test", "pay.test", 443, true},
		{"sni:*.test", "test", 443, false}, {"sni:pay.test:443", "pay.test", 443, true},
		{"sni:pay.test:443", "pay.test", 444, false}, {"sni:pay.test", NULL, 443, false},
		{"pay.test", "pay.test", 443, false}, {"exe:curl, sni:pay.test", "pay.test", 443, true},
		{"exe:wget, sni:pay.test", "pay.test", 443, false}, {"10.0.0.1, sni:x", "pay.test", 443, true}};
	for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
		char conf[200];
		snprintf(conf, sizeof conf, "[destination d]\nmatch = %s\n", said[i].match);
		load_text(conf);
		set_target(&target, &a, "10.0.0.1", said[i].port, "looked-up.test", "curl");
		target.said = said[i].said;
		const struct policy *p = config_match(loaded.config, &target, &pattern);
		tap_ok(loaded.faults == 0 && (p == policy_of("d")) == said[i].fits, "A13: match = %s: %s, port %u: %s",
			said[i].match, said[i].said ? said[i].said : "nothing said", said[i].port,
			said[i].fits ? "fits" : "does not");
	}
	load_text("[destination first]\nmatch = 10.0.0.0/8\n[destination said]\nmatch = sni:pay.test\n");
	set_target(&target, &a, "10.0.0.1", 443, NULL, "curl");
	target.said = "pay.test";
	tap_ok(config_match(loaded.config, &target, &pattern) == policy_of("first"),
		"A13: a rule by address before it goes first");
	load_text("[destination one]\nmatch = pay:443\n[defaults]\n[destination two]\nmatch = *.x,\n  pay\nmatch = "
		  "10.0.0.0/8\n[destination three]\nmatch = *\n");
	set_target(&target, &a, "10.0.0.1", 80, "pay", "curl");
	target.name = "other";
	tap_ok(config_match(loaded.config, &target, &pattern) == policy_of("two") && strcmp(pattern, "10.0.0.0/8") == 0,
		"match may be repeated");
	set_target(&target, &a, "11.0.0.1", 80, NULL, NULL);
	tap_ok(config_match(loaded.config, &target, NULL) == policy_of("three"), "the pattern need not be asked for");
	config_patterns_text(&t, loaded.config, policy_of("two"));
	same(bytes, "*.x, pay, 10.0.0.0/8", "patterns are listed as they were written");
	tap_ok(config_policy(loaded.config, 3) == policy_of("") && config_policy(loaded.config, 4) == NULL,
		"[defaults] is listed last");

	load(NULL, NULL);
	tap_ok(config_match(loaded.config, &target, &pattern) == policy_of("") && pattern[0] == '\0',
		"without sections everything is [defaults]");
	set_target(&target, &a, "unix:/x", 0, NULL, NULL);
	tap_ok(config_match(loaded.config, &target, &pattern) == NULL, "but for unix sockets, which are not guarded");
}

static void test_refused(void)
{
	static const char *const wrong[] = {
		"",
		",",
		"a,,b",
		",a",
		"a b",
		"a..b",
		".a",
		"a:",
		"a:0",
		"a:65536",
		"a:99999999999",
		"a:http",
		"a:-1",
		"a:1-",
		"a:-",
		"a:5-4",
		"a:1-2-3",
		":443",
		"*a",
		"a*",
		"**",
		"a.*",
		"*.",
		"*..a",
		"*.a*",
		"1.2.3",
		"1.2.3.4.5",
		"256.1.1.1",
		"1.2.3.04444",
		"10.0.0.0/33",
		"10.0.0.0/",
		"10.0.0.0/x",
		"10.0.0.0/8/8",
		"10.0.0.1/8",
		"fd00::/129",
		"fd00::1/8",
		"fd00:::1",
		"fd00::zz",
		"[fd00::1",
		"[fd00::1]443",
		"[fd00::1]:",
		"[fd00::1]:0",
		"[]",
		"[a]:1",
		"[10.0.0.1]:80",
		"[fd00::]/x:1",
		"[fd00::/8]/8",
		"fe80::1%eth0",
		"fd00::1%2",
		"1:2:3",
		"unix:",
		"unix:/",
		"unix:@",
		"unix:relative",
		"exe:",
		"exe:/usr/bin/curl",
		"sni:",
		"sni:10.0.0.1",
		"sni:*",
		"sni:a:0",
		"udp:a:53",
		"http://a",
		"https://a:443/b",
		"a/b",
		"a/8",
		"a\\b",
		"user@a",
		"a;b",
		"a=b",
		"\"a\"",
	};
	char text[700], name[300];
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		snprintf(text, sizeof text, "[destination d]\nmatch = %s\n", wrong[i]);
		load_text(text);
		if (!tap_ok(loaded.faults == 1 && strstr(loaded.errors, ":2: match: "),
			    "match = '%s' is refused, by one fault", wrong[i]))
			printf("# %d %s\n", loaded.faults, loaded.errors);
	}
	memset(name, 'a', sizeof name);
	for (size_t n = 252; n <= 253; n++) {
		snprintf(text, sizeof text, "[destination d]\nmatch = %.*s\n", (int)n, name);
		load_text(text);
		tap_ok(loaded.faults == (n > 252), "a host of %zu bytes is %s", n, n > 252 ? "refused" : "taken");
	}
	for (size_t n = 107; n <= 108; n++) {
		snprintf(text, sizeof text, "[destination d]\nmatch = unix:/%.*s\n", (int)n, name);
		load_text(text);
		tap_ok(loaded.faults == (n > 107), "a socket's path of %zu bytes is %s", n + 1,
			n > 107 ? "refused" : "taken");
	}
}

/* A look-up knows a name, perhaps a port, and no address. */
static void test_look_ups(void)
{
	static const struct {
		const char *name;
		unsigned port;
		const char *exe;
		const char *section; /* "": [defaults] */
	} asked[] = {
		{"api.internal", 443, "curl", "api"},
		{"api.internal", 80, "curl", "below"},
		{"api.internal", 0, "curl", "api"},
		{"other.internal", 0, "curl", "below"},
		{"internal", 0, "curl", "port"},
		{"internal", 0, "wget", ""},
		{"internal", 80, "wget", ""},
		{"api.example", 0, "git", "git alone"},
		{"api.example", 0, NULL, ""},
		{"api.internal", 443, "psql", "psql's"},
		{"db.internal", 443, "psql", "below"},
		{"any.example", 8443, "curl", "port"},
		{"any.example", 8442, "curl", ""},
		{"any.example", 0, "ssh", "port"},
	};
	load_text("[destination net]\nmatch = 10.0.0.0/8, unix:/run/x, 0.0.0.0/0\n"
		  "[destination psql's]\nmatch = exe:psql, api.internal\n"
		  "[destination api]\nmatch = api.internal:443\n"
		  "[destination below]\nmatch = *.internal\n"
		  "[destination git alone]\nmatch = exe:git\n"
		  "[destination port]\nmatch = *:8443, exe:curl, exe:ssh\n");
	for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
		const struct policy *p =
			config_match_look_up(loaded.config, asked[i].name, (uint16_t)asked[i].port, asked[i].exe);
		same(p->section, asked[i].section, asked[i].name);
	}
}

int main(void)
{
	load_mk_dir();
	test_trials();
	test_look_ups();
	test_order();
	test_refused();
	config_free(loaded.config);
	return tap_done();
}
