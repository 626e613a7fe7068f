/* A2: where answers of RESP, PostgreSQL and MySQL end (wire/records.h), by exchanges captured from real servers and by
 * the cases that those do not show. Cut anywhere, all comes out the same. */
#include <string.h>

#include "tap.h"
#include "wire/records.h"
#include "wire_records_captured.h"

static const char *const words[] = {"midst", "whole", "awaited", "lost"};

static enum records_at feed(struct records *r, bool is_sent, const char *bytes, size_t n)
{
	if (!is_sent)
		return records_received(r, bytes, n);
	records_sent(r, bytes, n);
	return records_now(r);
}

/* One octet at a time. */
static enum records_at drip(struct records *r, bool is_sent, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		feed(r, is_sent, bytes + i, 1);
	return records_now(r);
}

static bool is_same(const struct records *a, const struct records *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

/* A turn from the state `before` on, cut in two at every octet. */
static void cut_everywhere(const char *name, const struct records *before, const struct turn *t)
{
	struct records at_once = *before;
	enum records_at end = feed(&at_once, t->is_sent, t->bytes, t->n);

	for (size_t cut = 0; cut <= t->n; cut++) {
		struct records r = *before;
		enum records_at at = feed(&r, t->is_sent, t->bytes, cut);
		if (!t->is_sent && cut > 0)
			tap_expect((at == RECORDS_WHOLE) == (cut >= t->whole_at) && at != RECORDS_LOST,
				"%s: %s after %zu of %zu octets", name, words[at], cut, t->n);
		tap_expect(feed(&r, t->is_sent, t->bytes + cut, t->n - cut) == end && is_same(&r, &at_once),
			"%s: cut at %zu of %zu", name, cut, t->n);
	}
}

static void converse(const char *name, enum records_kind kind, const struct turn *turns, size_t count)
{
	struct records r, slow;

	tap_expect(records_of_client(turns[0].bytes, turns[0].n) == kind, "%s: not recognised", name);
	records_init(&r, kind);
	records_init(&slow, kind);
	for (size_t i = 0; i < count; i++) {
		const struct turn *t = &turns[i];
		bool is_bye = t->is_sent && t->bytes[0] == 'X';
		cut_everywhere(name, &r, t);
		enum records_at at = feed(&r, t->is_sent, t->bytes, t->n);
		tap_expect(at == (t->is_sent && !is_bye ? RECORDS_AWAITED : RECORDS_WHOLE), "%s: %s after turn %zu",
			name, words[at], i);
		drip(&slow, t->is_sent, t->bytes, t->n);
		tap_expect(is_same(&r, &slow), "%s: octet by octet, turn %zu", name, i);
	}
	tap_all(name);
}

#define CONVERSE(kind, turns) converse(#turns, kind, turns, sizeof turns / sizeof turns[0])

/* Steps: '>' sent, '<' received, then what is so. */
struct step {
	char way;
	const char *bytes;
	size_t n;
	enum records_at at;
};
#define S(bytes, at)                                                                                                   \
	{                                                                                                              \
		'>', bytes, sizeof bytes - 1, RECORDS_##at                                                             \
	}
#define R(bytes, at)                                                                                                   \
	{                                                                                                              \
		'<', bytes, sizeof bytes - 1, RECORDS_##at                                                             \
	}

#define PING "*1\r\n$4\r\nPING\r\n"
#define STARTUP "\0\0\0\x10\0\3\0\0user\0a\0\0"
#define SSL "\0\0\0\x08\x04\xd2\x16\x2f"
#define GSSENC "\0\0\0\x08\x04\xd2\x16\x30"
#define AUTH_OK "R\0\0\0\x08\0\0\0\0"
#define READY "Z\0\0\0\5I"
#define UP S(STARTUP, AWAITED), R(AUTH_OK, MIDST), R(READY, WHOLE)
#define QUERY "Q\0\0\0\6a\0"
#define SYNC "S\0\0\0\4"
#define COPY_IN "G\0\0\0\7\0\0\0"
#define COPY_DATA "d\0\0\0\6a\n"
#define COPY_DONE "c\0\0\0\4"
#define COMPLETE "C\0\0\0\6a\0"
#define ERROR "E\0\0\0\5\0"
#define GREETING                                                                                                       \
	"\x24\0\0\0\n8.0\0"                                                                                            \
	"thread-salt-capabilities-and-so"

static const struct {
	const char *name;
	enum records_kind kind;
	struct step steps[10];
} cases[] = {
	{"unused", RECORDS_NONE, {R("+OK\r\n", LOST)}},
	{"RESP: three commands, whole when all are answered", RECORDS_RESP,
		{S(PING PING PING, AWAITED), R("+PONG\r\n", MIDST), R("+PONG\r\n+PON", MIDST), R("G\r\n", WHOLE)}},
	{"RESP: an empty array, a null array", RECORDS_RESP,
		{S(PING PING, AWAITED), R("*0\r\n", MIDST), R("*-1\r\n", WHOLE)}},
	{"RESP: an empty command is owed nothing", RECORDS_RESP, {S("*0\r\n", WHOLE), S(PING, AWAITED)}},
	{"RESP: a push before the answer", RECORDS_RESP,
		{S(PING, AWAITED), R(">2\r\n$1\r\n", AWAITED), R("a\r\n:1\r\n", AWAITED), R("+", MIDST),
			R("PONG\r\n", WHOLE)}},
	{"RESP: an attribute belongs to its answer", RECORDS_RESP,
		{S(PING, AWAITED), R("|1\r\n+a\r\n:1\r\n", MIDST), R("*2\r\n+a\r\n|1\r\n+b\r\n+c\r\n", MIDST),
			R("#t\r\n", WHOLE)}},
	{"RESP: nested deep", RECORDS_RESP,
		{S(PING, AWAITED), R("*2\r\n*1\r\n*1\r\n%1\r\n+k\r\n~1\r\n!3\r\nERR\r\n", MIDST), R("_\r\n", WHOLE)}},
	{"RESP: a line end within a bulk", RECORDS_RESP,
		{S(PING, AWAITED), R("$4\r\n\r\n\r\n", MIDST), R("\r\n", WHOLE)}},
	{"RESP: an answer told before its command", RECORDS_RESP,
		{R("+PONG\r\n", WHOLE), S(PING, WHOLE), S(PING, AWAITED)}},
	{"RESP: a streamed bulk", RECORDS_RESP, {S(PING, AWAITED), R("$?\r\n", LOST), R("+OK\r\n", LOST)}},
	{"RESP: a push within an array", RECORDS_RESP, {S(PING, AWAITED), R("*1\r\n>", LOST)}},
	{"RESP: a length beyond reason", RECORDS_RESP, {S(PING, AWAITED), R("$4294967296", LOST)}},
	{"RESP: too many items", RECORDS_RESP, {S(PING, AWAITED), R("*4294967295\r\n", MIDST), R("*2\r\n", LOST)}},
	{"RESP: a bulk longer than it said", RECORDS_RESP, {S(PING, AWAITED), R("$1\r\nab", LOST)}},
	{"RESP: HTTP instead", RECORDS_RESP, {S(PING, AWAITED), R("H", LOST)}},
	{"RESP: an inline command", RECORDS_RESP, {S(PING, AWAITED), S("PING\r\n", LOST)}},
	{"RESP: SUBSCRIBE", RECORDS_RESP, {S("*2\r\n$9\r\nsubscribe\r\n$1\r\na\r\n", LOST)}},
	{"RESP: MONITOR", RECORDS_RESP, {S("*1\r\n$7\r\nMonitor\r\n", LOST)}},
	{"RESP: CLIENT REPLY", RECORDS_RESP, {S("*3\r\n$6\r\nCLIENT\r\n$5\r\nreply\r\n$3\r\nOFF\r\n", LOST)}},
	{"RESP: REPLY elsewhere", RECORDS_RESP,
		{S("*3\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n$5\r\nreply\r\n", AWAITED),
			S("*3\r\n$3\r\nSET\r\n$5\r\nreply\r\n$4\r\nsync\r\n", AWAITED),
			S("*1\r\n$5\r\nREPLY\r\n", AWAITED)}},
	{"PostgreSQL: TLS granted", RECORDS_POSTGRES, {S(SSL, AWAITED), R("S", LOST), R(READY, LOST)}},
	{"PostgreSQL: GSSENC refused, TLS refused", RECORDS_POSTGRES,
		{S(GSSENC, AWAITED), R("N", WHOLE), S(SSL, AWAITED), R("N", WHOLE), UP}},
	{"PostgreSQL: GSSENC granted", RECORDS_POSTGRES, {S(GSSENC, AWAITED), R("G", LOST)}},
	{"PostgreSQL: TLS is an error to it", RECORDS_POSTGRES,
		{S(SSL, AWAITED), R("E\0\0\0\5", MIDST), R("\0", WHOLE)}},
	{"PostgreSQL: the protocol's minor version is negotiated", RECORDS_POSTGRES,
		{S("\0\0\0\x10\0\3\0\2user\0a\0\0", AWAITED), R("v\0\0\0\x0c\0\0\0\0\0\0\0\0", MIDST),
			R(AUTH_OK, MIDST), R(READY, WHOLE)}},
	{"PostgreSQL: a cancel request is owed nothing", RECORDS_POSTGRES,
		{S("\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\1\0\0\0\2", WHOLE)}},
	{"PostgreSQL: two queries", RECORDS_POSTGRES,
		{UP, S(QUERY QUERY, AWAITED), R(COMPLETE READY, MIDST), R(COMPLETE, MIDST), R(READY, WHOLE)}},
	{"PostgreSQL: what comes of itself begins no answer", RECORDS_POSTGRES,
		{UP, S(QUERY, AWAITED), R("N\0\0\0\6a", AWAITED), R("\0A\0\0\0\x0a\0\0\0\1x\0", AWAITED),
			R(COMPLETE, MIDST), R(READY, WHOLE)}},
	{"PostgreSQL: a copy in", RECORDS_POSTGRES,
		{UP, S(QUERY, AWAITED), R(COPY_IN, WHOLE), S(COPY_DATA, WHOLE), S(COPY_DONE, AWAITED),
			R(COMPLETE, MIDST), R(READY, WHOLE)}},
	{"PostgreSQL: a copy in that fails, ended too late", RECORDS_POSTGRES,
		{UP, S(QUERY, AWAITED), R(COPY_IN, WHOLE), R(ERROR READY, WHOLE), S(COPY_DATA COPY_DONE, WHOLE),
			S(QUERY, AWAITED), R(COMPLETE READY, WHOLE)}},
	{"PostgreSQL: a copy in between two Syncs", RECORDS_POSTGRES,
		{UP, S("E\0\0\0\x09\0\0\0\0\0" SYNC, AWAITED), R("2\0\0\0\4" COPY_IN, WHOLE),
			S(COPY_DATA COPY_DONE SYNC, AWAITED), R(COMPLETE READY, WHOLE), S(SYNC, AWAITED),
			R(READY, WHOLE)}},
	{"PostgreSQL: an end while idle", RECORDS_POSTGRES, {UP, R("E\0\0\0\5", MIDST), R("\0", WHOLE)}},
	{"PostgreSQL: an unknown type", RECORDS_POSTGRES, {UP, S(QUERY, AWAITED), R("x", LOST)}},
	{"PostgreSQL: a type of nought", RECORDS_POSTGRES, {UP, S("\0", LOST)}},
	{"PostgreSQL: a ReadyForQuery of another size", RECORDS_POSTGRES, {UP, R("Z\0\0\0\6", LOST)}},
	{"PostgreSQL: a notice behind an error instead of TLS", RECORDS_POSTGRES,
		{S(SSL, AWAITED), R(ERROR, WHOLE), S(STARTUP, AWAITED), R("N\0\0\0\5\0", AWAITED), R(AUTH_OK, MIDST)}},
	{"PostgreSQL: a start-up of no known version", RECORDS_POSTGRES, {S("\0\0\0\x10\0\4\0\0user\0a\0\0", LOST)}},
	{"PostgreSQL: a length below reason", RECORDS_POSTGRES, {UP, R("D\0\0\0\3", LOST)}},
	{"PostgreSQL: a length beyond reason", RECORDS_POSTGRES, {UP, R("D\x40\0\0\1", LOST)}},
	{"MySQL: at the end of a packet", RECORDS_MYSQL,
		{R(GREETING, WHOLE), S("\x20\0\0\1\x85\xa2\0\0", WHOLE), R("\7\0\0\2\0\0\0", MIDST),
			R("\2\0\0\0", WHOLE), R("\1", MIDST), R("\0\0\3\1", WHOLE)}},
	{"MySQL: TLS", RECORDS_MYSQL, {R(GREETING, WHOLE), S("\x20\0\0\1\x85\xaa\0\0", LOST)}},
	{"MySQL: compression", RECORDS_MYSQL, {R(GREETING, WHOLE), S("\x20\0\0\1\xa5\xa2\0\0", LOST)}},
	{"MySQL: a packet of nothing", RECORDS_MYSQL, {R("\0\0\0\0", LOST)}},
};

#define ERROR_OF(severity, code) "E\0\0\0\x13S" severity "\0C" code "\0\0"
#define LATER_OF(severity, code) "E\0\0\0\x1aSERROR\0V" severity "\0C" code "\0\0"

/* Behind each: what is so of a login in progress, and of the server. */
static const struct {
	const char *name;
	struct step steps[10];
	bool is_opening, is_away;
} words_of_postgres[] = {
	{"PostgreSQL: asks for a password", {S(STARTUP, AWAITED), R("R\0\0\0\x08\0\0\0\3", WHOLE)}, true, false},
	{"PostgreSQL: logged in", {UP}, true, false},
	{"PostgreSQL: logged in, and a notice", {UP, R("N\0\0\0\6a\0", WHOLE)}, true, false},
	{"PostgreSQL: answered", {UP, S(QUERY, AWAITED), R(COMPLETE READY, WHOLE)}, false, false},
	{"PostgreSQL: answered for a Flush alone", {UP, S("H\0\0\0\4", WHOLE), R("1\0\0\0\4", WHOLE)}, false, false},
	{"PostgreSQL: TLS refused", {S(SSL, AWAITED), R("N", WHOLE)}, true, false},
	{"PostgreSQL: a login refused", {S(STARTUP, AWAITED), R(ERROR_OF("FATAL", "28P01"), WHOLE)}, false, false},
	{"PostgreSQL: starts up", {S(STARTUP, AWAITED), R(ERROR_OF("FATAL", "57P03"), WHOLE)}, false, true},
	{"PostgreSQL: too many clients", {S(STARTUP, AWAITED), R(ERROR_OF("FATAL", "53300"), WHOLE)}, false, true},
	{"PostgreSQL: shut down in the midst", {UP, S(QUERY, AWAITED), R(ERROR_OF("FATAL", "57P01"), MIDST)}, false,
		true},
	{"PostgreSQL: shut down while idle", {UP, R(ERROR_OF("FATAL", "57P01"), WHOLE)}, false, false},
	{"PostgreSQL: panics", {UP, S(QUERY, AWAITED), R(ERROR_OF("PANIC", "57P02"), MIDST)}, false, true},
	{"PostgreSQL: fatal in a language", {UP, S(QUERY, AWAITED), R(LATER_OF("FATAL", "57P01"), MIDST)}, false, true},
	{"PostgreSQL: a query canceled", {UP, S(QUERY, AWAITED), R(ERROR_OF("FATAL", "57014"), MIDST)}, false, false},
	{"PostgreSQL: a query out of memory", {UP, S(QUERY, AWAITED), R(ERROR_OF("ERROR", "53200") READY, WHOLE)},
		false, false},
	{"PostgreSQL: class 5P is none", {UP, S(QUERY, AWAITED), R(ERROR_OF("FATAL", "5P57P"), MIDST)}, false, false},
};

static void words_of_its_own(void)
{
	for (size_t i = 0; i < sizeof words_of_postgres / sizeof words_of_postgres[0]; i++) {
		struct records r, slow;
		bool passed = true;
		records_init(&r, RECORDS_POSTGRES);
		records_init(&slow, RECORDS_POSTGRES);
		for (const struct step *s = words_of_postgres[i].steps; s < words_of_postgres[i].steps + 10 && s->way;
			s++) {
			passed &= feed(&r, s->way == '>', s->bytes, s->n) == s->at;
			drip(&slow, s->way == '>', s->bytes, s->n);
			passed &= is_same(&r, &slow);
		}
		passed &= records_is_opening(&r) == words_of_postgres[i].is_opening;
		passed &= records_is_away(&r) == words_of_postgres[i].is_away;
		tap_ok(passed, "%s", words_of_postgres[i].name);
	}
}

static void run_cases(void)
{
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct records r, slow;
		bool passed = true;
		records_init(&r, cases[i].kind);
		records_init(&slow, cases[i].kind);
		for (const struct step *s = cases[i].steps; s < cases[i].steps + 10 && s->way; s++) {
			enum records_at at = feed(&r, s->way == '>', s->bytes, s->n);
			drip(&slow, s->way == '>', s->bytes, s->n);
			passed &= at == s->at && is_same(&r, &slow);
			if (at != s->at)
				printf("# step %td: %s\n", s - cases[i].steps, words[at]);
		}
		tap_ok(passed, "%s", cases[i].name);
	}
}

/* What is inside of TLS is read on where MySQL's client has asked for TLS, and for nothing else. */
static void inside_tls(void)
{
	struct records r;

	records_init(&r, RECORDS_MYSQL);
	records_received(&r, GREETING, sizeof GREETING - 1);
	records_sent(&r, "\x20\0\0\1\x85\xaa\0\0", 8);
	bool goes_on = records_go_inside(&r);
	records_sent(&r, "\x20\0\0\2\x85\xaa\0\0", 8);
	tap_ok(goes_on && records_received(&r, "\7\0\0\3\0\0\0", 7) == RECORDS_MIDST &&
			records_received(&r, "\2\0\0\0", 4) == RECORDS_WHOLE,
		"MySQL: inside of TLS it goes on (A9)");
	records_init(&r, RECORDS_MYSQL);
	records_sent(&r, "\x20\0\0\1\xa5\xaa\0\0", 8);
	bool is_compressed = records_go_inside(&r);
	records_init(&r, RECORDS_MYSQL);
	records_sent(&r, "\x20\0\0\1\x85\xa2\0\0", 8);
	bool was_not_asked = records_go_inside(&r);
	records_init(&r, RECORDS_POSTGRES);
	tap_ok(!is_compressed && !was_not_asked && !records_go_inside(&r),
		"compressed, not asked for, another protocol: it does not");
}

/* A packet of 16 MB less one goes on in the next, be that empty. */
static void large_packet(void)
{
	static char body[0xffffff];
	struct records r;

	records_init(&r, RECORDS_MYSQL);
	records_received(&r, "\xff\xff\xff\1", 4);
	tap_ok(records_received(&r, body, sizeof body) == RECORDS_MIDST &&
			records_received(&r, "\0\0\0\2", 4) == RECORDS_WHOLE,
		"MySQL: a packet of the largest size goes on in the next");
}

static void kinds(void)
{
#define CLIENT(bytes) records_of_client(bytes, sizeof bytes - 1)
#define SERVER(bytes) records_of_server(bytes, sizeof bytes - 1)
	tap_ok(CLIENT(PING) == RECORDS_RESP && CLIENT("*12\r\n") == RECORDS_RESP, "RESP is recognised");
	tap_ok(!CLIENT("PING\r\n") && !CLIENT("*1\r\n+") && !CLIENT("*0\r\n") && !CLIENT("*1\n$4") && !CLIENT("*1") &&
			!CLIENT("*12345678901234\r\n") && !CLIENT(""),
		"what is not RESP is not");
	tap_ok(CLIENT(SSL) == RECORDS_POSTGRES && CLIENT(GSSENC) == RECORDS_POSTGRES &&
			CLIENT(STARTUP) == RECORDS_POSTGRES && CLIENT("\0\0\0\x10\x04\xd2\x16\x2e") == RECORDS_POSTGRES,
		"PostgreSQL is recognised");
	tap_ok(!CLIENT("\0\0\0\x09\x04\xd2\x16\x2f") && !CLIENT("\0\0\0\x10\0\2\0\0") &&
			!CLIENT("\0\0\x27\x11\0\3\0\0") && !CLIENT("\0\0\x27\x11\x04\xd2\x16\x2e") &&
			!CLIENT("\0\0\0\x10\0\3\0"),
		"what is not PostgreSQL is not");
	tap_ok(SERVER(GREETING) == RECORDS_MYSQL, "MySQL is recognised");
	tap_ok(!SERVER("SSH-2.0") && !SERVER("\x24\0\0\0") && !SERVER("\x24\0\0\1\n") && !SERVER("\x24\0\1\0\n") &&
			!SERVER("\x05\0\0\0\n") && !SERVER("220 a\r\n"),
		"what is not MySQL is not");
}

static uint32_t seed = 1;
static uint32_t dice(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

/* Captured octets, spoilt, and octets of chance: the same at once and octet by octet, and lost for ever. */
static void garbage(void)
{
	char bytes[1024];

	for (int round = 0; round < 20000; round++) {
		struct records r, slow;
		enum records_kind kind = (enum records_kind)(1 + dice(3));
		bool was_lost = false;
		records_init(&r, kind);
		records_init(&slow, kind);
		for (int i = 0; i < 12; i++) {
			const struct turn *t = kind == RECORDS_RESP ? &redis_3[dice(sizeof redis_3 / sizeof redis_3[0])]
								    : &psql[dice(sizeof psql / sizeof psql[0])];
			size_t n = t->n < sizeof bytes ? t->n : sizeof bytes;
			memcpy(bytes, t->bytes, n);
			for (uint32_t spoil = dice(4); spoil > 0; spoil--)
				bytes[dice((uint32_t)n)] = (char)dice(256);
			enum records_at at = feed(&r, t->is_sent, bytes, n);
			tap_expect(at == drip(&slow, t->is_sent, bytes, n) && is_same(&r, &slow), "round %d", round);
			tap_expect(!was_lost || at == RECORDS_LOST, "round %d: found again", round);
			was_lost = at == RECORDS_LOST;
		}
	}
	tap_all("spoilt octets");
}

int main(void)
{
	CONVERSE(RECORDS_RESP, redis_2);
	CONVERSE(RECORDS_RESP, redis_3);
	CONVERSE(RECORDS_POSTGRES, psql);
	CONVERSE(RECORDS_POSTGRES, psql_refused);
	CONVERSE(RECORDS_POSTGRES, pgbench_extended);
	CONVERSE(RECORDS_POSTGRES, pgbench_prepared);
	words_of_its_own();
	run_cases();
	inside_tls();
	large_packet();
	kinds();
	garbage();
	return tap_done();
}
