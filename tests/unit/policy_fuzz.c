/* Random files and RESIL_SETs, made of what right and wrong ones are made of: reading them neither crashes nor lies.
 * With a seed as the argument it runs that one; FUZZ_RUNS says how many files. Meant to run under ASan and UBSan
 * too. */
#include "policy_load.h"

#define RUNS 3000
#define TEXT_MAX 6000

static uint64_t state;

static uint32_t draw(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32) % below;
}

static const char *const pieces[] = {
#define X(id, text, type, field, initial, min, max, sentence) text, initial, text " = " initial "\n",
	POLICY_KEYS(X)
#undef X
#define X(id, text, type, initial, min, max, sentence) text, initial, text " = " initial "\n",
		RESIL_SETTINGS(X)
#undef X
			"[resil]\n",
	"[defaults]\n",
	"[destination a]\n",
	"[destination b c]\n",
	"[fault x]\n",
	"[",
	"]",
	"\n",
	"\r\n",
	"=",
	":",
	",",
	",\n  ",
	";",
	" ; x\n",
	"#",
	" ",
	"\t",
	"match = ",
	"match",
	"a.b:443",
	"*.x:1-9",
	"10.0.0.0/8",
	"[fd00::]/8:443",
	"fe80::1%2",
	"unix:/x",
	"exe:*y",
	"*",
	"unix:@",
	"\xef\xbb\xbf",
	"\xff",
	"\xc3\xbc",
	"0",
	"1",
	"99999999999999999999",
	"5ms",
	"3s",
	"off",
	"1.5",
	"%",
	"h",
	"/",
	"-",
	"%s%n",
};
#define PIECES (sizeof pieces / sizeof pieces[0])

static const char *const places[] = {
	"a.b",
	"a.b:443",
	"*.x:1-9",
	"*.x",
	"10.0.0.0/8",
	"10.1.2.3:443",
	"[fd00::]/8:5",
	"fe80::1%2",
	"unix:/x",
	"unix:@y",
	"exe:*y",
	"*",
	"*:443",
	"b\xc3\xbc",
};
static const struct {
	const char *name, *values[4];
} settings[] = {
	{"breaker", {"on", "off", "observe", "on ; x"}},
	{"key", {"origin", "address", "section", "section"}},
	{"failure_threshold", {"0", "1", "4095", "007"}},
	{"recovery_timeout", {"1ms", "12h", "90s", "61m"}},
	{"recovery_backoff", {"1", "1.5", "1.25", "100"}},
	{"recovery_max", {"1ms", "12h", "5s", "100ms"}},
	{"recovery_jitter", {"0%", "100%", "7%", "20%"}},
	{"connect_timeout", {"off", "1ms", "24h", "1500ms"}},
	{"protocol", {"auto", "http1", "h2", "oneway"}},
	{"trip_on", {"none", "reset", "dns, eof", "refused grpc ; x"}},
	{"abandon_after", {"off", "1ms", "24h", "1500ms"}},
	{"deadline", {"off", "1ms", "24h", "1500ms"}},
	{"deadline_header", {"off", "X-Deadline-Ms", "x", "#%s"}},
	{"keepalive", {"off", "1s", "9h", "3000ms"}},
	{"reject_errno", {"EPERM", "ETIMEDOUT", "ECONNRESET", "EHOSTDOWN"}},
};

/* A right file. */
static size_t make_right(char *text, size_t room)
{
	static const char *const ends[] = {"\n", "\r\n", "\n\n", " ; x\n"};
	struct text t = {.at = text, .cap = room};
	uint32_t sections = draw(6), defaults = draw(8);
	text[0] = '\0';
	for (uint32_t i = 0; i <= sections; i++) {
		if (i == defaults)
			text_str(&t, "[defaults]\n");
		else
			text_fmt(&t, "[destination d%u]\n", i);
		for (uint32_t j = 1 + draw(5); i != defaults && j > 0; j--)
			text_fmt(&t, "%smatch = %s,\n\t%s%s", draw(2) ? " " : "", places[draw(14)], places[draw(14)],
				ends[draw(4)]);
		for (uint32_t j = 0; j < sizeof settings / sizeof settings[0]; j++)
			if (draw(3) == 0)
				text_fmt(&t, "%s%s=%s%s", draw(2) ? "  " : "", settings[j].name,
					settings[j].values[draw(4)], ends[draw(4)]);
	}
	return t.len;
}

static size_t make_wild(char *text, size_t room)
{
	size_t n = 0;
	for (uint32_t count = 1 + draw(60); count > 0; count--) {
		const char *piece = pieces[draw(PIECES)];
		size_t len = strlen(piece);
		if (n + len >= room)
			break;
		memcpy(text + n, piece, len);
		n += len;
	}
	if (draw(50) == 0) {
		size_t len = draw(2000);
		if (n + len < room) {
			memset(text + n, 'x', len);
			n += len;
		}
	}
	text[n] = '\0';
	return n;
}

/* Right, right but for a few bytes, or anything. */
static size_t make_text(char *text, size_t room)
{
	uint32_t kind = draw(3);
	size_t n = kind < 2 ? make_right(text, room) : make_wild(text, room);
	for (uint32_t flips = kind == 0 ? 0 : draw(4); flips > 0 && n > 0; flips--)
		text[draw((uint32_t)n)] = (char)(draw(20) ? 32 + draw(96) : draw(256));
	return n;
}

static void check_errors(const char *path)
{
	int lines = 0, more = 0;
	for (const char *s = loaded.errors; *s; s += strcspn(s, "\n") + 1) {
		lines++;
		if (sscanf(s, "... and %d more", &more) == 1)
			lines--;
		else
			tap_expect(strncmp(s, path, strlen(path)) == 0 || strncmp(s, "RESIL_SET: ", 11) == 0,
				"a fault says where: %.80s", s);
		if (!tap_expect(strchr(s, '\n') != NULL, "every line ends"))
			break;
	}
	tap_expect(lines + more == loaded.faults, "%d faults, %d lines and %d more", loaded.faults, lines, more);
	for (const char *s = loaded.errors; *s; s++)
		tap_expect(((unsigned char)*s >= 0x20 && *s != 0x7f) || *s == '\n', "no control bytes come back");
}

/* Values are in their limits and their text is read back as the same. */
static void check_policy(const struct policy *p)
{
	static char text[20000];
	static const char *const names[] = {
#define X(id, name, type, field, initial, min, max, sentence) name,
		POLICY_KEYS(X)
#undef X
	};
	struct text t = TEXT_ON(text);
	char patterns[9000] = "";
	struct text before = TEXT_ON(patterns);

	config_patterns_text(&before, loaded.config, p);
	if (before.len > 900)
		return;
	text_str(&t, "[destination back]\nmatch = ");
	text_str(&t, before.len > 0 ? patterns : "*");
	for (int key = 0; key < KEY_COUNT; key++)
		text_fmt(&t, "\n%s = %s", names[key], value_of(p, (enum config_key)key));
	text_str(&t, "\n");

	char errors[4000] = "", again[9000] = "";
	struct text e = TEXT_ON(errors), after = TEXT_ON(again);
	struct config_source source = {.file = load_file("back", text, t.len)};
	int faults;
	struct config *c = config_load(&source, &e, &faults);
	tap_expect(faults == 0, "what is shown can be read: %s", errors);
	const struct policy *q = config_policy(c, 0);
	for (int key = 0; key < KEY_COUNT; key++)
		tap_expect(strcmp(value_of(p, (enum config_key)key), value_of(q, (enum config_key)key)) == 0,
			"%s reads back", names[key]);
	config_patterns_text(&after, c, q);
	tap_expect(strcmp(again, before.len > 0 ? patterns : "*") == 0, "patterns read back: %s", again);
	config_free(c);
}

static void check_matching(void)
{
	struct addr a[3] = {
		{.family = ADDR_INET, .port = 443}, {.family = ADDR_INET, .port = 5}, {.family = ADDR_UNIX}};
	static const char *const names[] = {NULL, "a.b", "y.x", ""};
	addr_from_literal(&a[0], "10.1.2.3");
	addr_from_literal(&a[1], "fd00::9");
	a[2].path[0] = '/';
	a[2].unix_len = 1 + (uint8_t)draw(107);
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 4; j++) {
			struct target target = {.addr = &a[i], .name = names[j], .exe = draw(2) ? "xy" : NULL};
			const char *pattern = NULL;
			const struct policy *p = config_match(loaded.config, &target, &pattern);
			tap_expect(pattern && (p || a[i].family == ADDR_UNIX), "every TCP connect has a policy");
		}
	}
}

static void one(uint64_t seed)
{
	static char text[TEXT_MAX], set[TEXT_MAX];
	char path[600];
	state = seed * 0x9e3779b97f4a7c15ull | 1;
	for (int i = 0; i < 8; i++)
		draw(2);
	size_t n = make_text(text, sizeof text);
	make_wild(set, sizeof set);
	snprintf(path, sizeof path, "%s", load_file("resil.conf", text, n));
	load(path, draw(4) == 0 ? set : NULL);
	if (!tap_expect(loaded.config != NULL, "always a configuration"))
		return;
	tap_expect(config_is_broken(loaded.config) == (loaded.faults > 0), "broken means faults");
	check_errors(path);
	check_matching();
	const struct policy *p;
	for (uint32_t i = 0; (p = config_policy(loaded.config, i)); i++) {
		if (loaded.faults > 0)
			tap_expect(p->breaker == POLICY_BREAKER_OBSERVE && p->connect_timeout_ns == 0,
				"with faults all only observes");
		else
			check_policy(p);
	}
	config_skips(loaded.config, "sshd");
}

int main(int argc, char **argv)
{
	const char *runs = getenv("FUZZ_RUNS");
	uint64_t from = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, to = argc > 1 ? from
									 : runs	  ? strtoull(runs, NULL, 10)
										  : RUNS;
	unsigned right = 0;
	load_mk_dir();
	for (uint64_t seed = from; seed <= to; seed++) {
		unsigned long failed = tap_quiet_failed;
		one(seed);
		right += loaded.faults == 0;
		if (tap_quiet_failed != failed)
			printf("# seed %llu\n", (unsigned long long)seed);
	}
	tap_all("random files are read or refused, and told so truly");
	if (argc < 2)
		tap_ok(right > to / 5, "some of them are right (%u)", right);
	config_free(loaded.config);
	return tap_done();
}
