/* Faults as they are asked for: sections and specifications. What is misplaced, misspelt or missing is told with its
 * line and what would be right, never read as nothing (CF4). */
#include "policy/fault.h"

#include <errno.h>

#include "policy_load.h"

static struct config *load_specs(const char *specs)
{
	struct text errors = TEXT_ON(loaded.errors);
	struct config_source source = {.faults = specs};
	config_free(loaded.config);
	loaded.errors[0] = '\0';
	loaded.config = config_load(&source, &errors, &loaded.faults);
	return loaded.config;
}

static const char *text_of(uint32_t index)
{
	static char bytes[1024];
	struct text t = TEXT_ON(bytes);
	const struct fault_rule *f = config_fault(loaded.config, index);
	bytes[0] = '\0';
	if (f)
		config_fault_text(&t, loaded.config, f);
	return bytes;
}

/* A line of a section, and what is said of it (null: nothing is wrong). */
static const struct {
	const char *lines, *said;
} sections[] = {
	{"match = a:1\ntype = refuse", NULL},
	{"type = refuse\nmatch = a:1, b,\n  c\npercent = 12.5%", NULL},
	{"match = *\ntype = errno\nerrno = ECONNRESET\ncalls = send|recv", NULL},
	{"match = *\ntype = dns\nerror = none\ndelay = 2s", NULL},
	{"match = *\ntype = short_io\nsize = 64k\ncalls = recv", NULL},
	{"match = *\ntype = refuse\ncount = unlimited\nskip = 0\nevery = 4294967295", NULL},
	{"match = *\ntype = refuse\nafter = 1m\nfor = 1h\nramp = off", NULL},
	{"match = *\ntype = refuse\ndelay = 2s",
		":4: delay is no parameter of refuse (refuse takes none; delay is of "},
	{"match = sni:a.test\ntype = refuse",
		":2: match: sni: is for destinations alone ('sni:a.test'; host:port, a net or exe:NAME)"},
	{"match = *\ntype = refuse\ndealy = 2s", ":4: unknown key in [fault NAME] ('dealy'; match, type, "},
	{"match = *\ntype = refuse\ndealy = 2s", "did you mean delay?"},
	{"match = *\ntype = refsue", ":3: unknown type of fault ('refsue'; refuse, "},
	{"match = *\ntype = refsue", "did you mean refuse?"},
	{"match = *", ":1: [fault f] has no type (type = refuse, "},
	{"type = refuse", ":1: [fault f] matches nothing (a line such as match = host:443"},
	{"match = *\ntype = refuse\npercent = 30", ":4: percent: a percent sign is due ('30'; 0% to 100%"},
	{"match = *\ntype = refuse\npercent = 30", "did you mean 30%?"},
	{"match = *\ntype = refuse\npercent = 101%", ":4: percent: not a percentage ('101%'; 0% to 100%"},
	{"match = *\ntype = refuse\npercent = 0.00001%", ":4: percent: not a percentage"},
	{"match = *\ntype = refuse\npercent = -1%", ":4: percent: not a percentage"},
	{"match = *\ntype = refuse\npercent =", ":4: percent has no value (''; 100%)"},
	{"match = *\ntype = refuse\nevery = 0", ":4: every is out of range ('0'; 1 to 4294967295)"},
	{"match = *\ntype = refuse\nskip = 4294967296", ":4: skip is out of range"},
	{"match = *\ntype = refuse\ncount = -1", ":4: count: not a whole number ('-1'; 0 to 4294967295, or unlimited)"},
	{"match = *\ntype = refuse\nafter = 5", ":4: after: a unit is due ('5'; 5ms, 5s, 5m or 5h)"},
	{"match = *\ntype = refuse\nskip = 1\nskip = 2", ":5: skip is there twice, at lines 4 and 5"},
	{"match = *\ntype = refuse\ntype = refuse", ":4: type is there twice, at lines 3 and 4"},
	{"match = *\ntype = errno", ":1: fault f: errno needs errno (such as errno = ECONNRESET)"},
	{"match = *\ntype = errno\nerrno = ENOENT", ":4: errno: not an error of connect, send or recv ('ENOENT'; "},
	{"match = *\ntype = errno\nerrno = ECONNRESTE", "did you mean ECONNRESET?"},
	{"match = *\ntype = errno\nerrno = EPIPE\ncalls = recv", ":5: calls: recv never ends with EPIPE (send can)"},
	{"match = *\ntype = refuse\ncalls = recv", ":4: calls: recv never ends with refuse (connect can)"},
	{"match = *\ntype = refuse\ncalls = conect",
		":4: calls: unknown call ('conect'; connect, resolve, send or recv"},
	{"match = *\ntype = dns\nerror = none", ":1: a dns fault without an error has a delay (error = again"},
	{"match = *\ntype = dns\nerror = nxdomain",
		":4: error: unknown choice ('nxdomain'; again, noname, fail or none"},
	{"match = *\ntype = short_io\nsize = 0", ":4: size is out of range ('0'; 1 to "},
	{"match = *\ntype = short_io\nsize = 64kb", ":4: size: not a number of bytes ('64kb'; "},
	{"match = *\ntype = short_io\nsize = 64K", "did you mean 64k?"},
	{"match = a b\ntype = refuse", ":2: match: neither a host name nor an address ('a b'"},
};

static const struct {
	const char *spec, *text; /* null: the same */
} right[] = {
	{"refuse api.internal:443", NULL},
	{"refuse  *  percent=30%\tskip=2", "refuse * percent=30% skip=2"},
	{"errno 10.0.0.0/8:5432,unix:/run/x errno=ECONNRESET calls=send|recv", NULL},
	{"dns *.internal name=slow-dns delay=2s error=none", "dns *.internal name=slow-dns delay=2s error=none"},
	{"short_io exe:curl size=65536", "short_io exe:curl size=64k"},
	{"reset [fd00::1]:443 after_bytes=1k count=3 every=2 after=1s for=1m ramp=10s",
		"reset [fd00::1]:443 after_bytes=1k skip=0"},
};

static const struct {
	const char *spec, *said;
} wrong[] = {
	{"refuse", "RESIL_FAULTS: a fault needs a destination (''; TYPE DESTINATION [KEY=VALUE]..."},
	{"refuse percent=30%", "a fault needs a destination ('percent=30%'"},
	{"refuze *", "RESIL_FAULTS: unknown type of fault ('refuze'; refuse, "},
	{"refuse * 30%", "not key=value ('30%'; TYPE DESTINATION [KEY=VALUE]...)"},
	{"refuse * pecent=30%", "unknown key in a fault ('pecent'; name, delay, "},
	{"refuse * skip=1 skip=2", "is there twice ('skip')"},
	{"refuse * delay=2s", "delay is no parameter of refuse"},
	{"refuse 1.2.3.4.5", "match: not an IPv4 address ('1.2.3.4.5'"},
	{"refuse a name=b/c", "not a fault's name ('b/c'; at most 31 letters"},
	{"refuse a name=x\nrefuse b name=x", "another fault has this name ('x')"},
};

int main(void)
{
	char text[4096];
	load_mk_dir();
	for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
		snprintf(text, sizeof text, "[fault f]\n%s\n", sections[i].lines);
		load_text(text);
		const char *said = sections[i].said;
		bool is_so = said ? loaded.faults > 0 && strstr(loaded.errors, said) && !config_fault(loaded.config, 0)
				  : loaded.faults == 0 && config_fault(loaded.config, 0);
		for (char *p = text; *p; p++)
			*p = *p == '\n' ? '|' : *p;
		if (!tap_ok(is_so, "%s%s", text, said ? " is refused (CF4)" : " is right"))
			printf("# said: %s\n", loaded.errors);
	}
	load_text("[fault a]\nmatch = *\ntype = refuse\n[fault a]\nmatch = *\ntype = refuse\n");
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, ":4: [fault a] is there twice, at lines 1 and 4"),
		"a fault has its name alone");
	load_text("[fault a/b]\nmatch = *\ntype = refuse\n");
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, ":1: not a fault's name ('a/b'"), "a name without a slash");
	text[0] = '\0';
	for (int i = 0; i < 65; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "[fault f%d]\nmatch=*\ntype=refuse\n", i);
	load_text(text);
	tap_ok(loaded.faults == 1 && strstr(loaded.errors, "too many faults (at most 64)"), "64 of them at most");

	load_text("[defaults]\nfailure_threshold = x\n[fault f]\nmatch = *\ntype = refuse\n");
	tap_ok(loaded.faults == 1 && !config_fault(loaded.config, 0) && !config_has_faults(loaded.config),
		"a configuration with a mistake anywhere injects nothing");

	for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
		load_specs(right[i].spec);
		const char *want = right[i].text ? right[i].text : right[i].spec;
		bool is_same =
			i + 1 < sizeof right / sizeof right[0] ? strcmp(text_of(0), want) == 0 : text_of(0)[0] != '\0';
		if (!tap_ok(loaded.faults == 0 && is_same, "%s", right[i].spec))
			printf("# is: %s, said: %s\n", text_of(0), loaded.errors);
		/* What is written is read as the same. */
		char once[1024];
		snprintf(once, sizeof once, "%s", text_of(0));
		load_specs(once);
		tap_ok(loaded.faults == 0 && strcmp(once, text_of(0)) == 0, "  and again: %s", once);
	}
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		load_specs(wrong[i].spec);
		if (!tap_ok(loaded.faults > 0 && strstr(loaded.errors, wrong[i].said) &&
				    !config_fault(loaded.config, 0),
			    "%.*s is refused (CF4)", (int)strcspn(wrong[i].spec, "\n"), wrong[i].spec))
			printf("# said: %s\n", loaded.errors);
	}
	load_specs("refuse a\nrefuse b\n\nrefuse c name=refuse-3\nrefuse d");
	tap_ok(loaded.faults == 0 && strcmp(config_fault(loaded.config, 0)->name, "refuse") == 0 &&
			strcmp(config_fault(loaded.config, 1)->name, "refuse-2") == 0 &&
			strcmp(config_fault(loaded.config, 3)->name, "refuse-4") == 0,
		"without a name it is called by its type, and numbered");

	load_specs("refuse * percent=0%\nrefuse * count=0");
	tap_ok(loaded.faults == 0 && !config_has_faults(loaded.config),
		"0 percent, or none of them, is no fault (CF5)");

	load_specs("refuse api.internal:443,10.0.0.0/8");
	const struct fault_rule *f = config_fault(loaded.config, 0);
	struct addr a = {.family = ADDR_INET, .port = 443, .ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}};
	struct target target = {.addr = &a, .exe = "curl"};
	tap_ok(config_fault_fits(loaded.config, f, &target), "a fault fits by address");
	a.ip[12] = 11;
	tap_ok(!config_fault_fits(loaded.config, f, &target), "and another address not");
	target.name = "api.internal";
	tap_ok(config_fault_fits(loaded.config, f, &target), "by name");
	tap_ok(config_fault_fits_look_up(loaded.config, f, "api.internal", 0, "curl") &&
			!config_fault_fits_look_up(loaded.config, f, "api.internal", 80, "curl") &&
			!config_fault_fits_look_up(loaded.config, f, "other", 443, "curl"),
		"a look-up by its name, and by its port where it names one");
	config_free(loaded.config);
	return tap_done();
}
