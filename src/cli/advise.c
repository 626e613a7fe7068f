/* resil advise [DEST]: what the regions have seen, turned into a configuration that `resil check` takes: comments with
 * the figures, sections with the limits that they suggest. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/story.h"
#include "control/nearby.h"
#include "policy/policy.h"

/* Fewer calls say nothing about their slowest thousandth. */
#define CALLS_ENOUGH 100
#define LIMIT_LEAST_MS 1000

/* One destination over all groups that use it. */
struct seen {
	char name[REGION_NAME_MAX + 1];
	char policy[64];
	uint64_t timed;						       /* calls whose duration is known */
	uint64_t calls, failures, would_reject, rejected, opened, cut; /* cut: by a limit */
	uint64_t p50_us, p99_us, p999_us, max_us;		       /* of the slowest group */
	bool is_observed;
	bool is_answering; /* in some group; else only its connects were seen, and timed */
	bool has_policy;
	enum policy_key key;
	int64_t answer_timeout_ns, deadline_ns;
	uint32_t line;
};

struct advice {
	struct options o;
	const char *destination;
	struct seen *at;
	size_t n;
};

static struct seen *seen_of(struct advice *a, const char *name)
{
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->at[i].name, name) == 0)
			return &a->at[i];
	struct seen *more = realloc(a->at, (a->n + 1) * sizeof *more);
	if (!more)
		return NULL;
	a->at = more;
	struct seen *s = &a->at[a->n++];
	memset(s, 0, sizeof *s);
	text_copy(s->name, sizeof s->name, name);
	return s;
}

static void take_policy(struct seen *s, const struct settings *settings)
{
	const struct policy *p;
	for (uint32_t i = 0; (p = config_policy(settings->config, i)) != NULL; i++) {
		if (strcmp(p->section, s->policy) != 0)
			continue;
		s->has_policy = true;
		s->key = p->key;
		s->answer_timeout_ns = p->answer_timeout_ns;
		s->deadline_ns = p->deadline_ns;
		s->line = p->line;
	}
}

/* A line break in a name would begin a line of the configuration. */
static void defuse(char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < 0x20 || *name == 0x7f)
			*name = '?';
}

static void look(struct advice *a, const struct group *g, uint32_t index, const struct settings *settings)
{
	struct circuit_view v;
	const struct latency *l = &g->region.destinations[index].latency;
	circuit_view(&g->region, index, clock_now_ns(), &v);
	defuse(v.name);
	defuse(v.policy);
	/* Look-ups have a limit of their own, resolve_timeout, and no section by name. */
	struct seen *s = strncmp(v.name, "dns:", 4) == 0 ? NULL : seen_of(a, v.name);
	if (!s)
		return;
	if (!s->has_policy) {
		text_copy(s->policy, sizeof s->policy, v.policy);
		take_policy(s, settings);
	}
	s->calls += v.success + v.failure + v.neutral;
	s->failures += v.failure;
	s->would_reject += v.would_reject;
	s->rejected += v.rejected;
	s->opened += v.opened_total;
	s->cut += v.kinds[FAILURE_ANSWER_TIMEOUT] + v.kinds[FAILURE_STALL_TIMEOUT] + v.kinds[FAILURE_DEADLINE];
	s->timed += latency_total(l);
	s->is_answering |= atomic_load(&g->region.destinations[index].has_answered) != 0;
	s->is_observed |= circuit_shown_mode(&v) == BREAKER_OBSERVE;
	uint64_t p999_us = latency_quantile_us(l, 9990);
	if (p999_us >= s->p999_us) {
		s->p50_us = v.p50_us;
		s->p99_us = v.p99_us;
		s->p999_us = p999_us;
	}
	s->max_us = v.max_us > s->max_us ? v.max_us : s->max_us;
}

/* A name that a destination can have. Another one comes from a damaged region, and has no place in a configuration. */
static bool is_plain(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name <= 0x20 || (unsigned char)*name >= 0x7f || strchr("#;,=?", *name))
			return false;
	return true;
}

/* Twice the slowest thousandth, rounded up to 1, 2, 3 or 5 times a power of ten; 0: too few calls. */
static uint64_t suggested_ms(const struct seen *s)
{
	static const unsigned steps[] = {10, 20, 30, 50};
	if (s->timed < CALLS_ENOUGH || !s->is_answering)
		return 0;
	uint64_t wanted = s->p999_us * 2 / 1000 + 1, power = 1;
	if (wanted < LIMIT_LEAST_MS)
		return LIMIT_LEAST_MS;
	for (; wanted > 50 * power / 10; power *= 10)
		continue;
	for (size_t i = 0; i < 4; i++)
		if (wanted <= steps[i] * power / 10)
			return steps[i] * power / 10;
	return 10 * power;
}

static bool has_limit(const struct seen *s)
{
	return s->answer_timeout_ns || s->deadline_ns;
}

static void print_time(const char *before, uint64_t us)
{
	char at[24];
	us_text(at, sizeof at, us, true);
	printf("%s%s", before, at);
}

static void section_name(char to[CONFIG_SECTION_MAX + 1], const char *name)
{
	size_t n = 0;
	for (const char *p = name; *p && n < CONFIG_SECTION_MAX; p++) {
		bool is_word =
			(*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '.';
		if (is_word || (n && to[n - 1] != '-'))
			to[n++] = *p == '.' || is_word ? *p : '-';
	}
	to[n] = '\0';
}

static void print_one(const struct seen *s)
{
	char section[CONFIG_SECTION_MAX + 1], limit_at[40] = "";
	struct text limit = TEXT_ON(limit_at);
	uint64_t ms = is_plain(s->name) ? suggested_ms(s) : 0;
	bool is_suggested = ms && !has_limit(s), is_own = s->policy[0] == '\0';

	printf("\n# %s: %llu calls, %llu failed", s->name, (unsigned long long)s->calls,
		(unsigned long long)s->failures);
	if (s->timed) {
		print_time("; half within ", s->p50_us);
		print_time(", 99 of 100 within ", s->p99_us);
		print_time(", the longest ", s->max_us);
	}
	putchar('\n');
	if (!s->has_policy)
		printf("# the configuration has no [destination %s] any more\n", s->policy);
	else if (!has_limit(s))
		puts("# no time-out: a server that takes a call and says nothing is waited for as long as the program "
		     "likes");
	else
		printf("# its limits ended %llu calls\n", (unsigned long long)s->cut);
	if (s->is_observed)
		printf("# observed: its thresholds opened it %llu times and would have rejected %llu calls; %s\n",
			(unsigned long long)s->opened, (unsigned long long)s->would_reject,
			s->opened ? "look at 'resil why' and 'resil events' before breaker = on"
				  : "breaker = on would have changed nothing");
	else if (s->opened)
		printf("# opened %llu times, %llu calls rejected\n", (unsigned long long)s->opened,
			(unsigned long long)s->rejected);
	if (!s->is_answering)
		puts("# no answer of it was seen (it never gave one, or its connections cannot be seen into): nothing "
		     "to suggest a limit from");
	else if (!ms && !has_limit(s))
		printf("# %llu calls are too few to suggest a limit from (%d)\n", (unsigned long long)s->timed,
			CALLS_ENOUGH);
	if (!is_suggested)
		return;
	text_duration(&limit, (int64_t)ms * NS_PER_MS);
	if (!is_own || (s->key != POLICY_KEY_ORIGIN && s->key != POLICY_KEY_ADDRESS)) {
		/* Another section before it would take its other keys away. */
		printf("# into [destination %s], line %u:\n#   deadline = %s\n", s->policy, s->line, limit_at);
		return;
	}
	section_name(section, s->name);
	printf("[destination %s]\nmatch = %s\ndeadline = %s\n", section, s->name, limit_at);
}

static void json_one(const struct seen *s, bool is_first)
{
	char at[2048] = "";
	struct text t = TEXT_ON(at);
	text_str(&t, is_first ? "{\"destination\":" : ",{\"destination\":");
	text_json(&t, s->name);
	text_str(&t, ",\"section\":");
	text_json(&t, s->policy[0] ? s->policy : "defaults");
	text_fmt(&t,
		",\"calls\":%llu,\"failures\":%llu,\"observed\":%s,\"opened\":%llu,\"rejected\":%llu,\"would_reject\":%"
		"llu",
		(unsigned long long)s->calls, (unsigned long long)s->failures, s->is_observed ? "true" : "false",
		(unsigned long long)s->opened, (unsigned long long)s->rejected, (unsigned long long)s->would_reject);
	text_fmt(&t, ",\"has_timeout\":%s,\"longest_us\":%llu,\"p99_us\":%llu,\"p999_us\":%llu,\"suggested\":",
		has_limit(s) ? "true" : "false", (unsigned long long)s->max_us, (unsigned long long)s->p99_us,
		(unsigned long long)s->p999_us);
	if (suggested_ms(s) && !has_limit(s)) {
		text_str(&t, "{\"deadline\":\"");
		text_duration(&t, (int64_t)suggested_ms(s) * NS_PER_MS);
		text_str(&t, "\"}}");
	} else {
		text_str(&t, "null}");
	}
	fputs(at, stdout);
}

/* The longest waits first. */
static int by_longest(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;
	if (x->max_us != y->max_us)
		return x->max_us > y->max_us ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int run_advise(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, {0}};
	struct advice a = {0};
	struct groups g;
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		int code = options_take(verb, &a.o, option);
		if (code >= 0)
			return code;
	}
	if (argc - optind > 1)
		return usage_error(verb, "one destination at a time, not also '%s'", argv[optind + 1]);
	a.destination = optind < argc ? argv[optind] : NULL;
	int code = groups_open(&g, &a.o, false);
	if (code)
		return code;
	for (size_t i = 0; i < g.n; i++) {
		struct settings s;
		pid_t member;
		size_t n;
		int wanted = a.destination ? nearby_find(&g.at[i].region, a.destination) : 0;
		if (wanted < 0 || !story_settings(&s, &g.at[i], &member))
			continue;
		uint32_t *sorted = groups_sorted(&g.at[i].region, &n);
		for (size_t d = 0; sorted && d < n; d++)
			if (!a.destination || sorted[d] == (uint32_t)wanted)
				look(&a, &g.at[i], sorted[d], &s);
		free(sorted);
		settings_free(&s);
	}
	if (a.n)
		qsort(a.at, a.n, sizeof *a.at, by_longest);
	if (a.o.is_json) {
		fputs("{\"destinations\":[", stdout);
		for (size_t i = 0; i < a.n; i++)
			json_one(&a.at[i], i == 0);
		puts("]}");
	} else if (a.n) {
		puts("# From what was seen since each group's first call, the longest wait first. A suggested deadline "
		     "is twice what\n"
		     "# the slowest call in a thousand took, 1s at least. Read it before you use it: it knows the past "
		     "only.");
		for (size_t i = 0; i < a.n; i++)
			print_one(&a.at[i]);
	} else if (a.destination) {
		code = groups_lack(&g, a.destination);
	} else {
		fputs("resil: nothing there yet: no guarded program has made a connection\n", stderr);
	}
	free(a.at);
	groups_close(&g);
	return code;
}

const struct verb verb_advise = {
	.name = "advise",
	.arguments = "[DEST] [-g GROUP] [-p PID] [--all-users] [--json]",
	.summary = "from what was seen: who has no time-out, the longest waits, limits to set",
	.help = "Prints a configuration that 'resil check' takes: for each destination its figures as comments (calls, "
		"latency, "
		"what its\n"
		"thresholds would have rejected where breaker = observe), and a section with a deadline where it has "
		"no "
		"time-out and made\n"
		"100 calls: twice the slowest call in a thousand, 1s at least. Where no answers are seen "
		"there is none:\nthe figures are those of connects.\n\n"
		"Options:\n" OPTIONS_HELP "\nExample:\n  resil advise >> ~/.config/resil/resil.conf\n\n"
		"Exit codes: 0 done, 2 wrong usage, 3 no such destination or group, 4 not permitted.\n",
	.run = run_advise,
};
