/* The ambient deadline (CONTRACT 2, C4): two variables, the earlier wins, and neither is guessed at. */
#include "policy/ambient.h"

#include <string.h>

#include "tap.h"

#define S 1000000000ll
#define NOW (1000 * S)
#define YEAR (8760ll * 3600 * S)

static char said[1000];

static int64_t ask(const char *at, const char *relative)
{
	struct text errors = TEXT_ON(said);
	said[0] = '\0';
	return ambient_read(at, relative, NOW, &errors);
}

static int lines(void)
{
	int n = 0;
	for (const char *s = said; *s; s++)
		n += *s == '\n';
	return n;
}

static void test_right(void)
{
	static const struct {
		const char *at, *relative;
		int64_t want;
		const char *what;
	} cases[] = {
		{NULL, NULL, 0, "neither: none"},
		{"", "", 0, "an empty variable is not given"},
		{"1005000000000", NULL, 1005 * S, "RESIL_DEADLINE_AT is the time"},
		{"1005000000000", "", 1005 * S, "... whatever the other one lacks"},
		{NULL, "5s", 1005 * S, "RESIL_DEADLINE counts from now"},
		{"", "5s", 1005 * S, "... whatever the other one lacks"},
		{"1003000000000", "5s", 1003 * S, "the absolute one is earlier"},
		{"1009000000000", "5s", 1005 * S, "the relative one is earlier"},
		{"1005000000000", "5s", 1005 * S, "both the same"},
		{"1", NULL, 1, "1: long past, and a deadline all the same"},
		{"1", "5s", 1, "a past one is the earlier one"},
		{"0001", NULL, 1, "leading zeros"},
		{"9223372036854775807", NULL, INT64_MAX, "the largest"},
		{"9223372036854775807", "1ms", NOW + S / 1000, "the largest against the smallest"},
		{NULL, "1ms", NOW + S / 1000, "the shortest"},
		{NULL, "8760h", NOW + YEAR, "the longest"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int64_t got = ask(cases[i].at, cases[i].relative);
		if (!tap_ok(got == cases[i].want && said[0] == '\0', "ambient: %s", cases[i].what))
			printf("# got %lld %s\n", (long long)got, said);
	}
}

static void test_malformed(void)
{
	static const char *const at[] = {"0", "000", "-1", "+1", "5s", " 1", "1 ", "1.5", "1e9", "0x10", "x",
		"9223372036854775808", "18446744073709551616", "18446744073709551617", "99999999999999999999999",
		"\x1b[31m"};
	static const char *const relative[] = {"0", "0s", "0ms", "1", "5", "-5s", "5 s", " 5s", "5d", "1.5s", "off",
		"none", "8761h", "525601m", "18446744073709551616s", "5124095576031h", "5s5s", "\x1b[31m"};
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
		bool is_refused = ask(at[i], NULL) == 0 && lines() == 1 && !strchr(said, 0x1b) &&
				  strncmp(said, "RESIL_DEADLINE_AT: ", 19) == 0;
		tap_ok(is_refused, "RESIL_DEADLINE_AT: case %zu is refused in one line: %.*s", i,
			(int)strcspn(said, "\n"), said);
		tap_ok(ask(at[i], "5s") == 1005 * S && lines() == 1, "... and the other one holds");
	}
	for (size_t i = 0; i < sizeof relative / sizeof relative[0]; i++) {
		bool is_refused = ask(NULL, relative[i]) == 0 && lines() == 1 && !strchr(said, 0x1b) &&
				  strncmp(said, "RESIL_DEADLINE", 14) == 0 && (said[14] == ':' || said[14] == ' ');
		tap_ok(is_refused, "RESIL_DEADLINE: case %zu is refused in one line: %.*s", i, (int)strcspn(said, "\n"),
			said);
		tap_ok(ask("1005000000000", relative[i]) == 1005 * S && lines() == 1, "... and the other one holds");
	}
	tap_ok(ask("x", "y") == 0 && lines() == 2, "both malformed: a line each");
	tap_ok(ask(NULL, "5") == 0 && strstr(said, "a unit is due ('5'; 5ms, 5s, 5m or 5h)"),
		"it says what is lacking");
	tap_ok(ask(NULL, "8761h") == 0 && strstr(said, "1ms to 8760h"), "and what is accepted");
	tap_ok(ambient_read("x", "y", NOW, NULL) == 0 && ambient_read("7", "y", NOW, NULL) == 7,
		"without a text nothing is said");
}

static void test_earlier(void)
{
	tap_ok(ambient_earlier(0, 0) == 0 && ambient_earlier(0, 5) == 5 && ambient_earlier(5, 0) == 5 &&
			ambient_earlier(5, 4) == 4 && ambient_earlier(4, 5) == 4 && ambient_earlier(1, INT64_MAX) == 1,
		"0 is none, else the earlier");
}

int main(void)
{
	test_right();
	test_malformed();
	test_earlier();
	return tap_done();
}
