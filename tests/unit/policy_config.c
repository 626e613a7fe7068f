/* The configuration as it is read (CONTRACT 3): every mistake is named with its line, all at once; bad files give one
 * clear error and an observing configuration; every key has its limits; every value knows where it was set. */
#include "policy_load.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* --- a file with mistakes --- */

struct line {
	const char *text;
	const char *fault; /* what the message of this line says; null: the line is right */
	const char *hint;  /* and what it asks for; null: nothing in particular */
};

static const struct line mistakes[] = {
	{"# a comment", NULL, NULL},
	{"breaker = on", "a key before any section ('breaker'", "[defaults]"},
	{"[resil]", NULL, NULL},
	{"log = sdterr", "log: not a place to write to ('sdterr'", "did you mean stderr?"},
	{"state = privat", "state: unknown choice ('privat'", "did you mean private?"},
	{"max_destinations = 65001", "max_destinations is out of range ('65001'", "1 to 65000"},
	{"connect_timeout = 2s", "this key is none of [resil] ('connect_timeout'", "[defaults]"},
	{"contol = on", "unknown key in [resil] ('contol'", "did you mean control?"},
	{"", NULL, NULL},
	{"[defaults]", NULL, NULL},
	{"connect_timeout = 30", "connect_timeout: a unit is due ('30'", "30ms, 30s, 30m or 30h"},
	{"recovery_timeout = 1.5s", "recovery_timeout takes whole numbers ('1.5s'", "did you mean 1500ms?"},
	{"recovery_max = 30sec", "recovery_max: unknown unit ('30sec'", "did you mean 30s?"},
	{"probe_timeout = 13h", "probe_timeout is out of range ('13h'", "1ms to 12h"},
	{"failure_treshold = 5", "unknown key in [defaults] ('failure_treshold'", "did you mean failure_threshold?"},
	{"success_threshold = -1", "success_threshold: not a whole number ('-1'", "1 to 4095"},
	{"recovery_jitter = 20", "recovery_jitter: a percent sign is due ('20'", "did you mean 20%?"},
	{"recovery_backoff = 2x", "recovery_backoff: not a factor ('2x'", "did you mean 2?"},
	{"reject_errno = ECONREFUSED", "reject_errno: not an error that ends a connect for good ('ECONREFUSED'",
		"did you mean ECONNREFUSED?"},
	{"breaker = true", "breaker: unknown choice ('true'", "did you mean on?"},
	{"key = origin ; a comment", NULL, NULL},
	{"key = adress", "key: unknown choice ('adress'", "did you mean address?"},
	{"just words", "neither a section nor key = value ('just words'", NULL},
	{"= 5", "no key before the sign ('= 5'", "key = value"},
	{"half_open_max_calls =", "half_open_max_calls has no value (''", "1 to 64"},
	{"match = *", "[defaults] takes no match", NULL},
	{"[destination pay]", NULL, NULL},
	{"  match = pay.internal:443,", NULL, NULL},
	{"	300.1.1.1", "match: not an IPv4 address ('300.1.1.1'", NULL},
	{"  match = pay.internal:0", "match: not a port ('pay.internal:0'", "1 to 65535"},
	{"  match = https://pay.internal/v1", "match: a URL is no pattern ('https://pay.internal/v1'",
		"did you mean pay.internal:443?"},
	/* A suggestion is cut out of the value: its control bytes come back no more than the value's own. */
	{"  match = x://a\tb", "match: a URL is no pattern ('x://a?b'", "did you mean a?b?"},
	{"  match = 10.1.0.0/8", "match: the address has bits beyond its prefix ('10.1.0.0/8'",
		"did you mean 10.0.0.0/8?"},
	{"  match = udp:pay.internal:53", "match: this version has no udp: patterns ('udp:pay.internal:53'", NULL},
	{"  match = sni:10.0.0.1", "match: sni: takes a name ('sni:10.0.0.1'", "sni:api.internal:443)"},
	{"  match = exec:curl", "match: not a port ('exec:curl'", "did you mean exe:curl?"},
	{"  mach = x", "unknown key in [destination NAME] ('mach'", "did you mean match?"},
	{"  connect_timeout = 2d", "connect_timeout: unknown unit ('2d'", "did you mean 48h?"},
	{"  connect_timeout = 0s", "connect_timeout cannot be nothing ('0s'", "did you mean off?"},
	{"  keepalive = 5466millis", "keepalive: unknown unit ('5466millis'", "; s, m or h, without a blank)"},
	{"[destination nothing]", "[destination nothing] matches nothing", "match = host:443"},
	{"[destination no\tthing]", "[destination no?thing] matches nothing", NULL},
	{"[destintion x]", "unknown section ('destintion x'", "did you mean [destination NAME]?"},
	{"whatever = 1", NULL, NULL},
	{"[fault x]", "[fault x] matches nothing", NULL},
	{"[destination]", "a destination needs a name", NULL},
	{"[defaults x]", "this section takes no name ('defaults x'", NULL},
	{"[resil", "a section without its closing bracket ('[resil'", NULL},
	{"[destination y] match = z", "text after a section's closing bracket ('match = z'", NULL},
	{"match = z", NULL, NULL},
};
#define LINES (sizeof mistakes / sizeof mistakes[0])

static int write_mistakes(char *text, const char *line_end)
{
	int wanted = 0;
	text[0] = '\0';
	for (size_t i = 0; i < LINES; i++) {
		strcat(strcat(text, mistakes[i].text), line_end);
		wanted += mistakes[i].fault != NULL;
	}
	return wanted;
}

static void check_mistakes(int wanted, const char *how)
{
	for (size_t i = 0; i < LINES; i++) {
		char at[600], said[2000] = "";
		snprintf(at, sizeof at, "%s/resil.conf:%zu: ", load_dir, i + 1);
		const char *found = strstr(loaded.errors, at);
		if (found)
			snprintf(said, sizeof said, "%.*s", (int)strcspn(found, "\n"), found);
		if (!mistakes[i].fault && !found)
			continue;
		bool is_right = mistakes[i].fault && strstr(said, mistakes[i].fault) &&
				(!mistakes[i].hint || strstr(said, mistakes[i].hint));
		/* A doubled key with a wrong value is two faults of one line. */
		if (!is_right && found && mistakes[i].fault) {
			const char *second = strstr(found + 1, at);
			is_right = second && strstr(second, mistakes[i].fault) &&
				   (!mistakes[i].hint || strstr(second, mistakes[i].hint));
		}
		if (!tap_ok(is_right, "CONTRACT 3, %s: line %zu: %s", how, i + 1, mistakes[i].text))
			printf("# said: %s\n", said);
	}
	/* Doubled: key (lines 21, 22) and the connect_timeout of pay (lines 38, 39). */
	tap_ok(strstr(loaded.errors, ":22: key is there twice, at lines 21 and 22") != NULL,
		"%s: a doubled key names both lines", how);
	tap_ok(strstr(loaded.errors, ":39: connect_timeout is there twice, at lines 38 and 39") != NULL,
		"%s: in a destination too", how);
	if (!tap_ok(loaded.faults == wanted + 2, "%s: %d faults in all, no other", how, wanted + 2))
		printf("# got %d\n%s", loaded.faults, loaded.errors);
}

static void test_mistakes(void)
{
	char text[8192];
	int wanted = write_mistakes(text, "\n");
	load_text(text);
	check_mistakes(wanted, "LF");
	tap_ok(config_is_broken(loaded.config), "a faulty file is broken");

	wanted = write_mistakes(text, "\r\n");
	load_text(text);
	check_mistakes(wanted, "CRLF");

	char with_bom[8200] = "\xef\xbb\xbf";
	write_mistakes(text, "\n");
	load_text(strcat(with_bom, text));
	check_mistakes(wanted, "BOM");
}

static void test_all_at_once_or_counted(void)
{
	char small[400];
	char text[20000] = "[defaults]\n";
	struct text errors = TEXT_ON(small);
	int faults;
	for (int i = 0; i < 100; i++)
		strcat(text, "breaker = maybe\n");
	struct config_source source = {.file = load_file("resil.conf", text, strlen(text))};
	small[0] = '\0';
	struct config *c = config_load(&source, &errors, &faults);
	int lines = 0, more = 0;
	for (const char *s = small; *s; s++)
		lines += *s == '\n';
	const char *last = strstr(small, "... and ");
	tap_ok(last && sscanf(last, "... and %d more", &more) == 1 && more + lines - 1 == faults && faults == 199 &&
			!errors.is_cut,
		"a full text says how many faults it has no room for: %d lines, %d more, %d in all", lines, more,
		faults);
	config_free(c);

	c = config_load(&source, NULL, &faults);
	tap_ok(c && faults == 199, "without a text they are counted");
	config_free(c);

	static char many[300000] = "[defaults]\n";
	size_t n = strlen(many);
	for (int i = 0; i < 20000; i++)
		n += (size_t)sprintf(many + n, "zzz = %d\n", i);
	load(load_file("resil.conf", many, n), NULL);
	tap_ok(loaded.faults == 1001 && strstr(loaded.errors, "more\n"), "a thousand faults end the reading (%d)",
		loaded.faults);
}

/* --- files that are none --- */

static void check_refused(const char *file, const char *said, const char *what)
{
	char start[700];
	load(file, NULL);
	snprintf(start, sizeof start, "%s", file);
	bool is_one =
		loaded.faults == 1 && strncmp(loaded.errors, start, strlen(start)) == 0 && strstr(loaded.errors, said);
	const struct policy *p = config_policy(loaded.config, 0);
	bool observes = config_is_broken(loaded.config) && p->breaker == POLICY_BREAKER_OBSERVE &&
			p->rules.is_observed && p->connect_timeout_ns == 0 &&
			p->origin[KEY_BREAKER].kind == ORIGIN_OBSERVE_ONLY;
	if (!tap_ok(is_one && observes, "%s: one error, and only observes", what))
		printf("# %d: %s", loaded.faults, loaded.errors);
}

static void test_bad_files(void)
{
	char path[512];
	check_refused(load_file("missing", NULL, 0), "no such file", "a missing file");
	check_refused(load_dir, "is a directory", "a directory");
	check_refused("/dev/zero", "is a device", "/dev/zero");
	check_refused("/dev/null", "is a device", "/dev/null");

	snprintf(path, sizeof path, "%s/fifo", load_dir);
	tap_ok(mkfifo(path, 0600) == 0, "(a FIFO)");
	check_refused(path, "is a pipe", "a FIFO without a writer");

	struct sockaddr_un un = {.sun_family = AF_UNIX};
	snprintf(un.sun_path, sizeof un.sun_path, "%.90s/sock", load_dir);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	tap_ok(bind(fd, (struct sockaddr *)&un, sizeof un) == 0, "(a socket)");
	check_refused(un.sun_path, "is a socket", "a socket");
	close(fd);

	snprintf(path, sizeof path, "%s", load_file("loop", NULL, 0));
	tap_ok(symlink(path, path) == 0, "(a link to itself)");
	check_refused(path, "too many symbolic links", "a link to itself");
	check_refused(load_file("resil.conf/x", NULL, 0), "no directory", "a path through a file");

	snprintf(path, sizeof path, "%s", load_file("unreadable", "[defaults]\n", 11));
	if (geteuid() == 0) {
		printf("# root reads everything: the unreadable file is left out\n");
	} else {
		chmod(path, 0);
		check_refused(path, "permission denied", "an unreadable file");
	}

	snprintf(path, sizeof path, "%s", load_file("large", "", 0));
	tap_ok(truncate(path, 10 * 1024 * 1024) == 0, "(10 MB)");
	check_refused(path, "is too large: 10485760 bytes (at most 4194304)", "a file of 10 MB");
	check_refused(load_file("nul", "[defaults]\nbreaker = \0off\n", 26), ":2: binary: no text file has byte 0x00",
		"NUL bytes");
	check_refused(load_file("utf16", "\xff\xfe[\0d\0", 6), ":1: binary", "UTF-16");
	check_refused(load_file("escape", "[defaults]\n# \033[31m\n", 19), ":2: binary: no text file has byte 0x1b",
		"an escape sequence");
	check_refused(load_file("mac", "[defaults]\rbreaker = off\r\n", 26), "binary: no text file has byte 0x0d",
		"a lone CR");

	/* A file of /proc is regular and has size 0; it ends on its own. */
	load("/proc/self/environ", NULL);
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, "binary"), "a file of /proc is read to its end");
}

/* Files are looked over eight bytes at a time: every byte at every place in them, and what follows it of each length
 * with each of both. */
static void test_every_byte(void)
{
	char text[40];
	for (unsigned byte = 0; byte < 256; byte++) {
		for (size_t at = 1; at < 26; at++) {
			for (size_t after = (byte + at) % 4 * 3, once = 1; once; once = 0) {
				size_t n = at + 1 + after;
				memset(text, '#', sizeof text);
				text[at] = (char)byte;
				load(load_file("resil.conf", text, n), NULL);
				bool is_text = byte >= 0x20
						       ? byte != 0x7f
						       : byte == '\t' || byte == '\n' || (byte == '\r' && after == 0);
				bool is_said = loaded.faults == 1 &&
					       strstr(loaded.errors, ":1: binary: no text file has byte 0x");
				tap_expect(is_text ? loaded.faults == 0 : is_said, "byte %u at %zu of %zu: %s", byte,
					at, n, loaded.errors);
			}
		}
	}
	tap_all("binary: every byte at every place");
}

static void test_good_files(void)
{
	load_text("");
	tap_ok(loaded.faults == 0 && !config_is_broken(loaded.config), "an empty file is right");
	load_text("\xef\xbb\xbf");
	tap_ok(loaded.faults == 0, "so is a byte order mark alone");
	load_text("[defaults]\nbreaker = off");
	tap_ok(loaded.faults == 0 && policy_of("")->breaker == POLICY_BREAKER_OFF,
		"a last line without its end counts");
	load_text("[defaults]\n[resil]\n");
	tap_ok(loaded.faults == 0, "empty sections are right");
	load_text("[defaults]\n  connect_timeout = 1s\n  recovery_max = 7s\n");
	tap_ok(loaded.faults == 0 && policy_of("")->connect_timeout_ns == 1000000000 &&
			policy_of("")->rules.recovery_max_ms == 7000,
		"indented keys are keys, not more of the value above");
	load_text("[defaults]\nconnect_timeout: 3s ; three\n");
	tap_ok(loaded.faults == 0 && policy_of("")->connect_timeout_ns == 3000000000,
		"a colon does as a sign; a comment after a value is one");

	load_text("[destination d]\nmatch = a,\nbreaker = off\n  connect_timeout = 1s\n");
	tap_ok(loaded.faults == 0 && policy_of("d")->breaker == POLICY_BREAKER_OFF &&
			policy_of("d")->connect_timeout_ns == 1000000000,
		"a list that ends in a comma goes on over indented lines only, and over none after another key");
	load_text("[destination d]\nmatch = a,\nb\n");
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, ":3: neither") && strstr(loaded.errors, "is indented"),
		"an unindented one says what it lacks");

	struct text errors = TEXT_ON(loaded.errors);
	struct config_source source = {.file = load_file("absent", NULL, 0), .is_optional = true};
	int faults;
	loaded.errors[0] = '\0';
	struct config *c = config_load(&source, &errors, &faults);
	tap_ok(c && faults == 0 && loaded.errors[0] == '\0' && config_file(c)[0] == '\0',
		"an optional file may be absent");
	config_free(c);
}

/* Lines and names that inih would cut. */
static void test_long_lines(void)
{
	static char text[8000];
	char value[1200];

	memset(value, 'x', sizeof value);
	/* 1000 bytes: four patterns of 247 bytes with their commas. */
	text[0] = '\0';
	strcat(text, "[destination d]\nmatch = ");
	for (int i = 0; i < 4; i++)
		sprintf(text + strlen(text), "%s%.*s", i ? "," : "", i < 3 ? 247 : 248, value);
	strcat(text, "\n");
	size_t line = strlen(text) - strlen("[destination d]\n") - 1;
	load_text(text);
	char patterns[4000] = "";
	struct text t = TEXT_ON(patterns);
	config_patterns_text(&t, loaded.config, policy_of("d"));
	tap_ok(line == 1000 && loaded.faults == 0 && t.len == 989 + 3 + 3,
		"a line of 1000 bytes is read whole (%zu, %zu)", line, t.len);

	text[strlen(text) - 1] = '\0';
	strcat(text, "x\n");
	load_text(text);
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, ":2: the line is too long: 1001 bytes"),
		"one of 1001 is refused, not cut");

	snprintf(text, sizeof text, "[defaults]\n# %.*s\nbreaker = off\n", 1190, value);
	load_text(text);
	tap_ok(loaded.faults == 0 && policy_of("")->breaker == POLICY_BREAKER_OFF, "a long comment is only a comment");

	snprintf(text, sizeof text, "[destination %.63s]\nmatch = a\n", value);
	load_text(text);
	tap_ok(loaded.faults == 0 && strlen(config_policy(loaded.config, 0)->section) == 63,
		"a section's name of 63 bytes is kept whole");
	snprintf(text, sizeof text, "[destination %.64s]\nmatch = a\n", value);
	load_text(text);
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, ":1: the name is too long"), "one of 64 is refused");
	load_text("[destination a-name-that-differs-only-after-the-49th-byte-of-it-1]\nmatch = a\n"
		  "[destination a-name-that-differs-only-after-the-49th-byte-of-it-2]\nmatch = b\n");
	tap_ok(loaded.faults == 0 && policy_of("a-name-that-differs-only-after-the-49th-byte-of-it-2"),
		"long names stay apart");
	snprintf(text, sizeof text, "[defaults]\nfailure_threshold%.60s = 5\n", value);
	load_text(text);
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, ":2: unknown key"),
		"a long key is unknown, not cut to a known one");
}

static void test_limits_of_count(void)
{
	static char text[400000];
	size_t n = 0;
	for (int i = 0; i < 511; i++)
		n += (size_t)sprintf(text + n, "[destination d%d]\nmatch = h%d\n", i, i);
	load(load_file("resil.conf", text, n), NULL);
	tap_ok(loaded.faults == 0 && policy_of("d510"), "511 destinations");
	n += (size_t)sprintf(text + n, "[destination e]\nmatch = x\n[destination f]\nmatch = x\n");
	load(load_file("resil.conf", text, n), NULL);
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, ":1023: too many sections"), "one more is refused, once");

	n = (size_t)sprintf(text, "[destination d]\n");
	for (int i = 0; i < 4096; i++)
		n += (size_t)sprintf(text + n, "match = host%d:%d\n", i, i + 1);
	load(load_file("resil.conf", text, n), NULL);
	tap_ok(loaded.faults == 0, "4096 patterns");
	n += (size_t)sprintf(text + n, "match = one.more, and.another\n");
	load(load_file("resil.conf", text, n), NULL);
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, ":4098: too many patterns"), "one more is refused, once");
}

static void test_doubled_sections(void)
{
	load_text("[destination a]\nmatch = x\n[defaults]\n[destination b]\nmatch = x\n[destination a]\nmatch = "
		  "y\nbreker = on\n[defaults]\n[resil]\n[resil]\n");
	tap_ok(loaded.faults == 4, "doubled sections are faults, and what is in them is judged too");
	tap_ok(strstr(loaded.errors, ":6: [destination a] is there twice, at lines 1 and 6") != NULL,
		"a destination, both lines");
	tap_ok(strstr(loaded.errors, ":8: unknown key") != NULL, "a key in the second one");
	tap_ok(strstr(loaded.errors, ":9: [defaults] is there twice, at lines 3 and 9") != NULL,
		"[defaults], both lines");
	tap_ok(strstr(loaded.errors, ":11: [resil] is there twice, at lines 10 and 11") != NULL, "[resil], both lines");
}

/* --- limits of every key --- */

struct limits {
	const char *right[6];
	const char *wrong[12];
};

static const struct limits limits[KEY_COUNT] = {
	[KEY_BREAKER] = {{"on", "off", "observe"}, {"", "On", "auto", "on off"}},
	[KEY_PROTOCOL] = {{"auto", "http1", "h2", "request", "stream", "oneway"},
		{"", "0", "1", "http", "HTTP1", "http2", "h2c", "request stream", "off", "18446744073709551615"}},
	[KEY_KEY] = {{"origin", "address", "section", "method", "route"}, {"", "path", "0"}},
	[KEY_ROUTE] = {{"off", "/", "/users/*, /orders/*/items"},
		{"users", "*", "/a,", ",/a", "/a b", "/a?b", "/a*", "/*a"}},
	[KEY_FAILURE_THRESHOLD] = {{"0", "1", "4095"},
		{"4096", "-1", "+1", "5.0", "0x10", "1e3", "18446744073709551616", "18446744073709551621", "off"}},
	[KEY_RECOVERY_TIMEOUT] = {{"1ms", "12h", "59m"},
		{"0ms", "0", "off", "43200001ms", "721m", "13h", "99999999999999999999h", "5124095576031h", "1 s",
			"1us", "-1s", "s"}},
	[KEY_RECOVERY_BACKOFF] = {{"1", "100", "1.5", "1.25"},
		{"0", "0.99", "100.01", "1.234", "1.", ".5", "2x", "-2", "off", "99999999999999999999"}},
	[KEY_RECOVERY_MAX] = {{"1s", "12h"}, {"0s", "off", "13h", "10"}},
	[KEY_RECOVERY_JITTER] = {{"0%", "100%"}, {"101%", "20", "-1%", "12.5%", "%", "20 %", "20%%"}},
	[KEY_SLIDING_WINDOW] = {{"off", "1", "500", "1s", "1h", "90s"},
		{"0", "501", "", "0s", "999ms", "61m", "2h", "1.5s", "60x", "on", "-1", "18446744073709551616"}},
	[KEY_FAILURE_RATE_THRESHOLD] = {{"1%", "100%", "50%"}, {"0%", "101%", "", "50", "off", "-1%"}},
	[KEY_SLOW_CALL_DURATION] = {{"off", "1ms", "24h"}, {"0ms", "0", "1", "", "25h", "86400001ms"}},
	[KEY_SLOW_CALL_RATE_THRESHOLD] = {{"1%", "100%"}, {"0%", "101%", "", "1"}},
	[KEY_MINIMUM_CALLS] = {{"1", "1000000"}, {"0", "1000001", "", "off", "1.5"}},
	[KEY_HALF_OPEN_MAX_CALLS] = {{"1", "64"}, {"0", "65", ""}},
	[KEY_SUCCESS_THRESHOLD] = {{"1", "4095"}, {"0", "4096"}},
	[KEY_PROBE_TIMEOUT] = {{"1ms", "12h"}, {"0ms", "13h", "off"}},
	[KEY_CONNECT_TIMEOUT] = {{"off", "1ms", "24h", "500ms"},
		{"0ms", "0", "1us", "86400001ms", "25h", "1441m", "18446744073709551616ms", "307445734562s1", "none"}},
	[KEY_TRIP_ON] = {{"none", "refused", "dns http_5xx", "unreachable reset eof", "http_gateway grpc",
				 "refused unreachable connect_timeout reset eof answer_timeout stall_timeout deadline "
				 "abandoned tls dns http_gateway http_5xx grpc"},
		{"0", "1", "18446744073709551615", "refused none", "off", "all", "Refused", "reset, ", ",reset",
			"reset,,eof", "reset|eof", "-reset"}},
	[KEY_ABANDON_AFTER] = {{"off", "1ms", "24h"}, {"0ms", "0", "1", "", "25h", "86400001ms", "-1s", "none"}},
	[KEY_ANSWER_TIMEOUT] = {{"off", "1ms", "24h"}, {"0s", "0", "1", "", "25h", "86400001ms", "-1s", "1.5s"}},
	[KEY_RESOLVE_TIMEOUT] = {{"off", "1ms", "24h"}, {"0s", "0", "1", "", "25h", "86400001ms", "-1s", "1.5s"}},
	[KEY_STALE_DNS] = {{"off", "1ms", "8760h"}, {"0s", "0", "1", "", "8761h", "-1s", "on"}},
	[KEY_EJECT] = {{"on", "off"}, {"observe", "yes", "1", "0", "On", "o n"}},
	[KEY_MAX_EJECTION] = {{"0%", "50%", "100%"}, {"101%", "50", "-1%", "0.5%", "4294967297%"}},
	[KEY_STALL_TIMEOUT] = {{"off", "1ms", "24h"}, {"0s", "0", "1", "", "25h", "86400001ms", "-1s", "1.5s"}},
	[KEY_DEADLINE] = {{"off", "1ms", "24h"}, {"0s", "0", "1", "", "25h", "86400001ms", "-1s", "1.5s"}},
	[KEY_FALLBACK] = {{"off", "b:1, cache(1s), reply:/a.b, spool:/c d, errno:EPERM", "10.0.0.1:65535, [fd00::1]:80",
				  "cache(8760h)", "b:1, b:2, b:3, b:4, b:5, b:6, b:7, b:8"},
		{"b", "b:0", "b:65536", "b:1,", ",b:1", "cache(0s)", "cache(8761h)", "cache(1)",
			"reply:", "errno:EAGAIN", "errno:EPERM, b:1", "a:1, b:1, c:1, d:1, e:1, f:1, g:1, h:1, i:1"}},
	[KEY_REJECT_ERRNO] = {{"ECONNREFUSED", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "ECONNRESET", "EPERM"},
		{"", "EAGAIN", "EINPROGRESS", "EINTR", "EISCONN", "EALREADY", "econnrefused", "111", "0", "ENOENT"}},
	[KEY_DEADLINE_HEADER] = {{"off", "X-Deadline-Ms", "x", "!#$%&'*+-.^_`|~",
					 "0123456789012345678901234567890123456789012345678901234567890ab"},
		{"", "0", "1", "OFF", "on", "True", "X Deadline", "X-Deadline:", "host", "CONTENT-LENGTH",
			"Transfer-Encoding", "0123456789012345678901234567890123456789012345678901234567890abc"}},
	[KEY_MAX_CONCURRENT] = {{"off", "1", "20", "4096"},
		{"0", "-1", "4097", "", "20ms", "on", "many", "4294967297"}},
	[KEY_MAX_WAIT] = {{"0ms", "1ms", "500ms", "24h"}, {"0", "off", "1", "", "25h", "86400001ms", "-1s", "on"}},
	[KEY_ADAPTIVE] = {{"on", "off"}, {"", "yes", "1", "On", "gradient"}},
	[KEY_KEEPALIVE] = {{"off", "1s", "9h", "90s"},
		{"0s", "0", "1", "", "999ms", "1500ms", "10h", "32401s", "18446744073709551616s",
			"18446744073709551615h", "-1s", "on"}},
	[KEY_TCP_USER_TIMEOUT] = {{"off", "1ms", "24h", "500ms"},
		{"0ms", "0", "1", "", "25h", "86400001ms", "-1s", "on"}},
};

static void test_limits(void)
{
	static const char *const names[] = {
#define X(id, text, type, field, initial, min, max, sentence) text,
		POLICY_KEYS(X)
#undef X
	};
	static const char *const initials[] = {
#define X(id, text, type, field, initial, min, max, sentence) initial,
		POLICY_KEYS(X)
#undef X
	};
	char text[400], what[400];
	for (int key = 0; key < KEY_COUNT; key++) {
		load(NULL, NULL);
		snprintf(what, sizeof what, "%s: its default as the table has it", names[key]);
		same(value_of(policy_of(""), (enum config_key)key), initials[key], what);
		for (int i = 0; i < 6 && limits[key].right[i]; i++) {
			snprintf(text, sizeof text, "[destination d]\nmatch = x\n%s = %s\n", names[key],
				limits[key].right[i]);
			load_text(text);
			bool is_same = loaded.faults == 0 && strcmp(value_of(policy_of("d"), (enum config_key)key),
								     limits[key].right[i]) == 0;
			if (!tap_ok(is_same, "B10: %s = %s is kept as it is", names[key], limits[key].right[i]))
				printf("# %s %s", value_of(policy_of("d"), (enum config_key)key), loaded.errors);
		}
		for (int i = 0; i < 12 && limits[key].wrong[i]; i++) {
			snprintf(text, sizeof text, "[defaults]\n%s = %s\n", names[key], limits[key].wrong[i]);
			load_text(text);
			if (!tap_ok(loaded.faults == 1 && strstr(loaded.errors, names[key]),
				    "B10: %s = '%s' is refused", names[key], limits[key].wrong[i]))
				printf("# %s\n", loaded.errors);
		}
		tap_ok(limits[key].right[0] && limits[key].wrong[0], "%s: its limits are tested", names[key]);
	}
}

/* What the mask of trip_on is, besides its text. */
static void test_trip_on(void)
{
	uint32_t counts = 0, always = 1u << FAILURE_PROBE_TIMEOUT;
#define X(name, text, is_counted) counts |= (is_counted) ? 1u << FAILURE_##name : 0u;
	FAILURE_KINDS(X)
#undef X
	load(NULL, NULL);
	tap_ok(policy_of("")->trip_mask == counts, "trip_on: the default is what core/failure.h says");
	load_text("[defaults]\ntrip_on = none\n");
	tap_ok(loaded.faults == 0 && policy_of("")->trip_mask == always,
		"trip_on: none, but for probes without an end");
	load_text("[defaults]\ntrip_on =\n");
	tap_ok(loaded.faults == 0 && policy_of("")->trip_mask == always, "trip_on: an empty value is none");
	load(NULL, "trip_on=");
	tap_ok(loaded.faults == 0 && policy_of("")->trip_mask == always, "trip_on: in RESIL_SET too");
	load_text("[defaults]\ntrip_on = probe_timeout\n");
	tap_ok(loaded.faults == 0 && policy_of("")->trip_mask == always, "trip_on: probe_timeout may be named");
	load_text("[defaults]\ntrip_on = grpc,reset ,\tdns  reset ; three\n");
	tap_ok(loaded.faults == 0 && policy_of("")->trip_mask ==
					     (always | 1u << FAILURE_GRPC | 1u << FAILURE_RESET | 1u << FAILURE_DNS),
		"trip_on: blanks, commas, both, in any order");
	same(value_of(policy_of(""), KEY_TRIP_ON), "reset dns grpc", "trip_on: shown in the order of the kinds");
	load_text("[defaults]\ntrip_on = reset rest, eof frob nicate\n");
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, "trip_on: unknown kind, and 2 more ('rest'; refused, ") &&
			strstr(loaded.errors, "did you mean reset?"),
		"trip_on: the first wrong word is quoted, the others are counted");
	load_text("[defaults]\ntrip_on = frob,\n");
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, "trip_on: unknown kind ('frob'"),
		"trip_on: a wrong word and a wrong comma are one fault");
	load(NULL, "trip_on=\x1b[31m");
	tap_ok(loaded.faults == 1 && !strchr(loaded.errors, 0x1b), "trip_on: no escape sequence comes back");
}

static void check_numbers(const char *value, int64_t ns)
{
	char text[400];
	snprintf(text, sizeof text,
		"[defaults]\nabandon_after = %s\nanswer_timeout = %s\nstall_timeout = %s\ndeadline = %s\nkeepalive = "
		"%s\n"
		"tcp_user_timeout = %s\n",
		value, value, value, value, value, value);
	load_text(text);
	const struct policy *p = policy_of("");
	tap_ok(loaded.faults == 0 && p->abandon_after_ns == ns && p->answer_timeout_ns == ns &&
			p->stall_timeout_ns == ns && p->deadline_ns == ns && p->keepalive_ns == ns &&
			p->tcp_user_timeout_ns == ns,
		"B10: %s is %lld ns in each field", value, (long long)ns);
}

static void test_wire_numbers(void)
{
	check_numbers("off", 0);
	check_numbers("1s", 1000000000);
	check_numbers("3000ms", 3000000000);
	check_numbers("9h", 32400000000000);
	load_text("[defaults]\nprotocol = oneway\ndeadline_header = X-Left\n[destination d]\nmatch = "
		  "x\ndeadline_header = "
		  "off\n[destination e]\nmatch = y\n");
	tap_ok(policy_of("")->protocol == POLICY_PROTOCOL_ONEWAY &&
			strcmp(policy_of("e")->deadline_header, "X-Left") == 0 &&
			policy_of("d")->deadline_header[0] == '\0',
		"names are taken over from [defaults], and undone by off");
	load_text("[defaults]\ndeadline_header = cOnnection\n");
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, "cannot be added"), "Connection is refused, in any case");
	load_text("[defaults]\nkeepalive = 1500ms\n");
	tap_ok(loaded.faults == 1 &&
			strstr(loaded.errors, "keepalive takes whole seconds ('1500ms'; 1s to 9h, or off)"),
		"keepalive: whole seconds");
	load_text("[defaults]\nkeepalive = 60\n");
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, "keepalive: a unit is due ('60'; 60s, 60m or 60h)"),
		"keepalive: a unit that fits is asked for");
}

static void test_what_follows(void)
{
	load_text("[defaults]\nrecovery_timeout = 5s\nrecovery_max = 2s\n[destination d]\nmatch = x\nrecovery_timeout "
		  "= 1s\n");
	tap_ok(loaded.faults == 0 && policy_of("")->rules.recovery_max_ms == 5000,
		"recovery_max is never below recovery_timeout (CONTRACT 3)");
	tap_ok(policy_of("d")->rules.recovery_max_ms == 2000, "and raised for no section but the one that needs it");
	load_text("[defaults]\nbreaker = observe\n[destination d]\nmatch = x\nbreaker = on\n");
	tap_ok(policy_of("")->rules.is_observed && !policy_of("d")->rules.is_observed, "is_observed follows breaker");
	load_text("[defaults]\nreject_errno = ETIMEDOUT\n");
	tap_ok(policy_of("")->reject_errno == ETIMEDOUT, "reject_errno is the number");
}

/* --- origins --- */

static void test_origins(void)
{
	char want[600];
	load(NULL, NULL);
	same(origin_of(policy_of(""), KEY_BREAKER), "built-in", "origin: built-in");

	const char *text = "[destination pay]\nmatch = pay:443\nrecovery_max = 9s\nconnect_timeout = "
			   "1s\n\n[defaults]\nconnect_timeout = 2s\nkey = address\n";
	load(load_file("resil.conf", text, strlen(text)),
		"connect_timeout=3s; success_threshold = 2 ;;connect_timeout=4s");
	const struct policy *pay = policy_of("pay"), *defaults = policy_of("");
	tap_ok(loaded.faults == 0, "a file and RESIL_SET together");
	snprintf(want, sizeof want, "%s/resil.conf:4 [destination pay]", load_dir);
	same(origin_of(pay, KEY_CONNECT_TIMEOUT), want, "origin: a section's own key wins over RESIL_SET");
	same(value_of(pay, KEY_CONNECT_TIMEOUT), "1s", "and its value");
	snprintf(want, sizeof want, "%s/resil.conf:8 [defaults]", load_dir);
	same(origin_of(pay, KEY_KEY), want, "origin: from [defaults] below it");
	same(value_of(pay, KEY_KEY), "address", "and its value");
	same(origin_of(pay, KEY_SUCCESS_THRESHOLD), "RESIL_SET",
		"origin: RESIL_SET reaches sections that leave a key out");
	same(value_of(pay, KEY_SUCCESS_THRESHOLD), "2", "and its value");
	same(origin_of(defaults, KEY_CONNECT_TIMEOUT), "RESIL_SET", "origin: RESIL_SET wins over [defaults]");
	same(value_of(defaults, KEY_CONNECT_TIMEOUT), "4s", "the last of the same key holds");
	same(origin_of(pay, KEY_PROBE_TIMEOUT), "built-in", "origin: built-in in a section");
	tap_ok(pay->line == 1 && defaults->line == 0, "a section knows its line");
}

static void test_set_faults(void)
{
	static char huge[6000];
	load(NULL, "connect_timeout=30;brekaer=off;log=stderr;junk;recovery_max=5s");
	const char *want = "RESIL_SET: connect_timeout: a unit is due ('30'; 30ms, 30s, 30m or 30h)\n";
	tap_ok(loaded.faults == 4 && strncmp(loaded.errors, want, strlen(want)) == 0,
		"RESIL_SET: faults are named after it");
	tap_ok(strstr(loaded.errors, "RESIL_SET: unknown key in [defaults] ('brekaer'") &&
			strstr(loaded.errors, "did you mean breaker?"),
		"RESIL_SET: an unknown key");
	tap_ok(strstr(loaded.errors, "RESIL_SET: this key is none of [defaults] ('log'; it belongs in [resil])") !=
			NULL,
		"RESIL_SET: a key of [resil]");
	tap_ok(strstr(loaded.errors, "RESIL_SET: not key=value ('junk'") != NULL, "RESIL_SET: no key=value");
	tap_ok(policy_of("")->breaker == POLICY_BREAKER_OBSERVE, "RESIL_SET: a fault leaves it observing only");
	load(NULL, "");
	tap_ok(loaded.faults == 0, "RESIL_SET: empty is nothing");
	memset(huge, ';', sizeof huge - 1);
	load(NULL, huge);
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, "RESIL_SET: is too long"),
		"RESIL_SET: too long is one fault");
	huge[4095] = '\0';
	load(NULL, huge);
	tap_ok(loaded.faults == 0, "RESIL_SET: 4095 bytes are not");
	load(NULL, "breaker=\x1b[31m");
	tap_ok(loaded.faults == 1 && strchr(loaded.errors, 0x1b) == NULL, "RESIL_SET: no escape sequence comes back");
}

static void test_broken_still_heard(void)
{
	load_text("[resil]\nlog = stderr\ncontrol = off\nskip_exe = curl\nstate = bad\n[defaults]\nbreaker = "
		  "off\nconnect_timeout = 1s\n[destination d]\nmatch = x\nbreaker = on\nanswer_timeout = "
		  "1s\nstall_timeout = 1s\n"
		  "deadline = 1s\nresolve_timeout = 1s\nstale_dns = 1s\ndeadline_header = X\nkeepalive = "
		  "1s\ntcp_user_timeout = 1s\n");
	tap_ok(loaded.faults == 1, "one fault");
	tap_ok(strcmp(config_log(loaded.config), "stderr") == 0 && config_control(loaded.config) == CONTROL_OFF &&
			config_skips(loaded.config, "curl"),
		"log, control and skip_exe hold where they could be read");
	bool observes = true;
	const struct policy *p;
	for (uint32_t i = 0; (p = config_policy(loaded.config, i)); i++)
		observes &= p->breaker == POLICY_BREAKER_OBSERVE && p->rules.is_observed &&
			    p->connect_timeout_ns == 0 && p->answer_timeout_ns == 0 && p->stall_timeout_ns == 0 &&
			    p->deadline_ns == 0 && p->resolve_timeout_ns == 0 && p->stale_dns_ns == 0 &&
			    !p->deadline_header[0] && p->keepalive_ns == 0 && p->tcp_user_timeout_ns == 0;
	tap_ok(observes, "every policy only observes: a typo undoes no breaker = off");
	same(origin_of(policy_of("d"), KEY_CONNECT_TIMEOUT), "observing only: the configuration has faults",
		"and says so");
}

static void test_settings(void)
{
	char bytes[600] = "", want[600];
	struct text t = TEXT_ON(bytes);
	load(NULL, NULL);
	tap_ok(config_max_destinations(loaded.config) == 512 && config_state(loaded.config) == STATE_SHARED &&
			config_control(loaded.config) == CONTROL_AUTO && strcmp(config_log(loaded.config), "off") == 0,
		"[resil]: the defaults");
	tap_ok(config_skips(loaded.config, "systemd-logind") && config_skips(loaded.config, "sshd") &&
			config_skips(loaded.config, "dbus-daemon") && !config_skips(loaded.config, "ssh") &&
			!config_skips(loaded.config, "xsystemd") && !config_skips(loaded.config, "sshd2") &&
			!config_skips(loaded.config, ""),
		"[resil]: skip_exe as it is built in");
	load_text("[resil]\nmax_destinations = 65000\nstate = private\ncontrol = on\nlog = "
		  "/var/log/resil.log\nskip_exe = a*b,\n  c,   ; one\n\n # two\n  d e\n");
	tap_ok(loaded.faults == 0 && config_max_destinations(loaded.config) == 65000 &&
			config_state(loaded.config) == STATE_PRIVATE && config_control(loaded.config) == CONTROL_ON &&
			strcmp(config_log(loaded.config), "/var/log/resil.log") == 0,
		"[resil]: set");
	tap_ok(config_skips(loaded.config, "ab") && config_skips(loaded.config, "axxbxb") &&
			config_skips(loaded.config, "c") && config_skips(loaded.config, "d e") &&
			!config_skips(loaded.config, "axxbx") && !config_skips(loaded.config, "d"),
		"[resil]: a list over several lines");
	config_setting_text(&t, loaded.config, SETTING_SKIP_EXE);
	same(bytes, "a*b, c, d e", "[resil]: its text");
	t = TEXT_ON(bytes);
	config_setting_origin_text(&t, loaded.config, SETTING_LOG);
	snprintf(want, sizeof want, "%s/resil.conf:5 [resil]", load_dir);
	same(bytes, want, "[resil]: its origin");
	load_text("[resil]\nskip_exe =\n");
	tap_ok(loaded.faults == 0 && !config_skips(loaded.config, "sshd") && !config_skips(loaded.config, ""),
		"[resil]: skip_exe may be empty");
}

/* --- where the file is --- */

static const char *env_conf, *env_xdg, *env_home;
static const char *fake_getenv(const char *name)
{
	return strcmp(name, "RESIL_CONF") == 0	      ? env_conf
	       : strcmp(name, "XDG_CONFIG_HOME") == 0 ? env_xdg
	       : strcmp(name, "HOME") == 0	      ? env_home
						      : NULL;
}

static void test_find(void)
{
	char path[600], want[600], dir[600];
	bool is_optional = false, has_etc = access("/etc/resil/resil.conf", F_OK) == 0;

	env_conf = "/some/where";
	tap_ok(config_find_file(path, sizeof path, &is_optional, fake_getenv) && !is_optional &&
			strcmp(path, "/some/where") == 0,
		"CONTRACT 2: RESIL_CONF, which must exist");
	env_conf = "";
	env_home = load_dir;
	bool found = config_find_file(path, sizeof path, &is_optional, fake_getenv);
	tap_ok(found == has_etc && is_optional, "CONTRACT 2: nothing in HOME leaves /etc, or nothing");

	snprintf(dir, sizeof dir, "%s/.config", load_dir);
	mkdir(dir, 0700);
	strcat(dir, "/resil");
	mkdir(dir, 0700);
	snprintf(want, sizeof want, "%s", load_file(".config/resil/resil.conf", "", 0));
	tap_ok(config_find_file(path, sizeof path, &is_optional, fake_getenv) && is_optional && strcmp(path, want) == 0,
		"CONTRACT 2: ~/.config");
	env_xdg = "/nowhere";
	tap_ok(config_find_file(path, sizeof path, &is_optional, fake_getenv) == has_etc,
		"CONTRACT 2: XDG_CONFIG_HOME goes before ~/.config");
	env_xdg = "relative";
	tap_ok(config_find_file(path, sizeof path, &is_optional, fake_getenv) && strcmp(path, want) == 0,
		"a relative XDG_CONFIG_HOME is none");
	snprintf(dir, sizeof dir, "%s/.config", load_dir);
	env_xdg = dir;
	env_home = NULL;
	tap_ok(config_find_file(path, sizeof path, &is_optional, fake_getenv) && strcmp(path, want) == 0,
		"XDG_CONFIG_HOME");
	tap_ok(!config_find_file(path, 10, &is_optional, fake_getenv), "a path that does not fit is none");
}

/* --- the annotated example --- */

static void test_example(void)
{
	const char *file = getenv("RESIL_EXAMPLE");
	char built_in[KEY_COUNT][256], settings[SETTING_COUNT][256];
	load(NULL, NULL);
	for (int i = 0; i < KEY_COUNT; i++)
		snprintf(built_in[i], sizeof built_in[i], "%s", value_of(policy_of(""), (enum config_key)i));
	for (int i = 0; i < SETTING_COUNT; i++) {
		struct text t = {.at = settings[i], .cap = sizeof settings[i]};
		config_setting_text(&t, loaded.config, (enum config_setting)i);
	}
	load(file ? file : "conf/resil.conf", NULL);
	if (!tap_ok(loaded.faults == 0, "conf/resil.conf is right"))
		printf("# %s", loaded.errors);
	for (int i = 0; i < KEY_COUNT; i++)
		tap_ok(policy_of("")->origin[i].kind == ORIGIN_FILE_DEFAULTS &&
				strcmp(value_of(policy_of(""), (enum config_key)i), built_in[i]) == 0,
			"conf/resil.conf shows key %d with its default %s", i, built_in[i]);
	for (int i = 0; i < SETTING_COUNT; i++) {
		char bytes[256] = "", origin[600] = "";
		struct text t = TEXT_ON(bytes), o = TEXT_ON(origin);
		config_setting_text(&t, loaded.config, (enum config_setting)i);
		config_setting_origin_text(&o, loaded.config, (enum config_setting)i);
		tap_ok(strcmp(bytes, settings[i]) == 0 && strcmp(origin, "built-in") != 0,
			"conf/resil.conf shows setting %d with its default %s", i, settings[i]);
	}
}

int main(void)
{
	load_mk_dir();
	test_mistakes();
	test_all_at_once_or_counted();
	test_bad_files();
	test_every_byte();
	test_good_files();
	test_long_lines();
	test_limits_of_count();
	test_doubled_sections();
	test_limits();
	test_trip_on();
	test_wire_numbers();
	test_what_follows();
	test_origins();
	test_set_faults();
	test_broken_still_heard();
	test_settings();
	test_find();
	test_example();
	config_free(loaded.config);
	return tap_done();
}
