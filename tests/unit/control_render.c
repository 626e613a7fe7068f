/* What is rendered: metrics that a Prometheus server takes, JSON that stays JSON whatever the region holds (E10), names
 * and values as people write them. */
#include <ctype.h>

#include "control/nearby.h"
#include "control/params.h"
#include "control/render.h"
#include "control_help.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/registry.h"
#include "tap.h"

static struct region region;
static char out[8 << 20];

static struct text fresh(void)
{
	out[0] = '\0';
	return (struct text){.at = out, .cap = sizeof out};
}

static const struct breaker_rules rules = {
	.failure_threshold = 5,
	.success_threshold = 1,
	.half_open_max_calls = 1,
	.recovery_ms = 1000,
	.recovery_max_ms = 30000,
	.backoff_percent = 200,
	.probe_timeout_ms = 30000,
};

static void call(const char *name, enum breaker_outcome outcome, enum failure_kind kind, int64_t latency_ns)
{
	struct circuit_token token;
	int index = registry_find_or_add(&region, name, "pay", clock_now_ns());
	if (index >= 0 && circuit_admit(&region, (uint32_t)index, &rules, clock_now_ns(), &token) != BREAKER_REJECT)
		circuit_settle(&region, &token, &rules, outcome, kind, true, clock_now_ns(), latency_ns);
}

/* ---- Prometheus text, by its format's rules ---- */

static const char *after_name(const char *p)
{
	if (!isalpha((unsigned char)*p) && *p != '_')
		return NULL;
	while (isalnum((unsigned char)*p) || *p == '_')
		p++;
	return p;
}

static const char *after_labels(const char *p)
{
	for (p++;; p++) {
		p = after_name(p);
		if (!p || *p++ != '=' || *p++ != '"')
			return NULL;
		for (; *p != '"'; p++) {
			if (*p == '\n' || *p == '\0')
				return NULL;
			if (*p == '\\' && !strchr("\\\"n", *++p))
				return NULL;
		}
		p++;
		if (*p == '}')
			return p + 1;
		if (*p != ',')
			return NULL;
	}
}

/* A family whose samples are apart, a second TYPE, a series twice, a bucket below its predecessor: null when right,
 * else the line. */
static const char *metrics_fault(const char *text)
{
	static char family[128], done[64][128], histogram[4096];
	static const char *series[20000];
	static size_t series_len[20000];
	size_t n_done = 0, n_series = 0;
	double last = 0;

	family[0] = histogram[0] = '\0';
	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		const char *end = strchr(line, '\n');
		char type[128], kind[16];
		if (!end)
			return line;
		if (sscanf(line, "# TYPE %127s %15s", type, kind) == 2) {
			for (size_t i = 0; i < n_done; i++)
				if (strcmp(done[i], type) == 0)
					return line;
			strcpy(family, type);
			strcpy(done[n_done++], type);
			continue;
		}
		if (strncmp(line, "# HELP ", 7) == 0)
			continue;
		const char *p = after_name(line);
		if (!p || strncmp(line, family, strlen(family)) != 0)
			return line;
		const char *labels = p;
		if (*p == '{')
			p = after_labels(p);
		if (!p || *p != ' ' || strspn(p + 1, "0123456789.") != (size_t)(end - p - 1) || p + 1 == end)
			return line;
		for (size_t i = 0; i < n_series; i++)
			if (series_len[i] == (size_t)(p - line) && memcmp(series[i], line, series_len[i]) == 0)
				return line;
		series[n_series] = line;
		series_len[n_series++] = (size_t)(p - line);
		const char *le = strstr(labels, ",le=\"");
		if (le && le < end) {
			double v = strtod(p + 1, NULL);
			size_t n = (size_t)(le - line);
			if (strlen(histogram) == n && strncmp(histogram, line, n) == 0 && v < last)
				return line;
			memcpy(histogram, line, n);
			histogram[n] = '\0';
			last = v;
		}
	}
	return NULL;
}

static void test_metrics(void)
{
	struct text t = fresh();
	const struct region *two[2] = {&region, &region};

	for (int i = 0; i < 50; i++) {
		call("api:443", BREAKER_SUCCESS, FAILURE_REFUSED, (int64_t)i * 3000000);
		call("quote\"back\\slash\nline:1", BREAKER_SUCCESS, FAILURE_REFUSED, 5);
	}
	for (int i = 0; i < 9; i++)
		call("dead:1", BREAKER_FAILURE, FAILURE_CONNECT_TIMEOUT, 10000000);
	render_metrics(&t, two, 1, clock_now_ns());
	const char *fault = metrics_fault(out);
	tap_ok(fault == NULL, "the metrics keep to the format");
	if (fault)
		printf("# %.200s\n", fault);
	tap_ok(strstr(out, "destination=\"quote\\\"back\\\\slash\\nline:1\"") != NULL, "label values are escaped");
	tap_ok(strstr(out,
		       "resil_deadline_exceeded_total{group=\"app\",destination=\"dead:1\",phase=\"connect\"} 5\n") !=
			NULL,
		"connects that ran out of time are counted");
	tap_ok(strstr(out, "resil_calls_total{group=\"app\",destination=\"dead:1\",outcome=\"circuit_open\"} 4\n") !=
			NULL,
		"so are rejections");
	tap_ok(strstr(out, "resil_call_duration_seconds_count{group=\"app\",destination=\"api:443\"} 50\n") != NULL,
		"the histogram counts all");
	t = fresh();
	render_metrics(&t, two, 2, clock_now_ns());
	tap_ok(metrics_fault(out) != NULL, "the check itself sees a series that comes twice");
}

static void test_json(void)
{
	struct text t = fresh();
	for (int i = 0; i < 30; i++)
		call("half:1", i % 2 ? BREAKER_SUCCESS : BREAKER_FAILURE, FAILURE_RESET, 1234567);
	render_destination(&t, &region, (uint32_t)registry_find(&region, "half:1"), clock_now_ns());
	tap_ok(json_is_valid(out) && strstr(out, "\"failure_rate\":\"50.00%\"") && strstr(out, "\"reset\":15"),
		"a destination: the rate is told from 20 calls on");
	tap_ok(strstr(out, "\"bulkhead\":{\"in_use\":0,\"limit\":null,\"waiting\":0,\"rejected\":0},\"endpoints\":[],"
			   "\"fallbacks\":{},\"faults\":{}") != NULL,
		"fields whose work comes later are there, and empty");
	t = fresh();
	tap_ok(!render_health(&t, &region, 0, clock_now_ns()) && json_is_valid(out) &&
			strstr(out, "\"half:1\":{\"state\":\"closed\",\"failure_rate\":\"50.00%\",\"total_calls\":30,"
				    "\"retry_after_ms\":0}"),
		"health: half of the calls failing degrades, also while closed");
}

/* Each structure of the region full of random bytes: what is rendered stays JSON, and nothing outside is read (run
 * under ASan). */
static void test_damage(void)
{
	uint64_t seed = 42;
	for (int round = 0; round < 60; round++) {
		unsigned char *at = (unsigned char *)region.header;
		for (int i = 0; i < 20000; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			at[(seed >> 16) % region.size] = (unsigned char)(seed >> 56);
		}
		struct text t = fresh();
		render_health(&t, &region, 0, clock_now_ns());
		tap_expect(json_is_valid(out), "round %d: health", round);
		t = fresh();
		render_destinations(&t, &region, clock_now_ns());
		tap_expect(json_is_valid(out), "round %d: destinations", round);
		t = fresh();
		render_members(&t, &region, clock_now_ns());
		tap_expect(json_is_valid(out), "round %d: members", round);
		struct render_cursor cursor = {.seq = 0};
		struct event e;
		for (unsigned n = 0; n < 2 * REGION_EVENTS && render_next_event(&region, &cursor, clock_now_ns(), &e);
			n++) {
			t = fresh();
			render_event(&t, &region, &e);
			tap_expect(json_is_valid(out), "round %d: event", round);
		}
		const struct region *one[1] = {&region};
		t = fresh();
		render_metrics(&t, one, 1, clock_now_ns());
		tap_expect(t.len > 0, "round %d: metrics", round);
	}
	tap_all("random bytes in the region: what is rendered stays JSON (E10)");
}

/* An event of every type, with every field full. */
static void test_events(void)
{
	struct text t;
	for (int type = 0; type < EVENT_TYPE_COUNT; type++) {
		struct event e = {.type = (uint8_t)type, .from = 0, .to = 2, .retry_after_ms = 1500, .value = 3};
		memset(e.reason, '"', sizeof e.reason);
		memset(e.destination, '\\', sizeof e.destination);
		uint64_t seq = events_add(&region, &e);
		struct event read;
		tap_expect(events_read(&region, seq, &read), "type %d is read back", type);
		t = fresh();
		render_event(&t, &region, &read);
		out[t.len - 1] = '\0';
		tap_expect(json_is_valid(out) && strstr(out, event_type_name((enum event_type)type)), "type %d", type);
	}
	tap_all("an event of each type is one line of JSON");
}

static void test_params(void)
{
	static const struct {
		const char *text;
		int64_t ns;
	} durations[] = {
		{"10m", 600 * NS_PER_S},
		{"500ms", 500 * NS_PER_MS},
		{"1.5s", 1500 * NS_PER_MS},
		{"0.25h", 900 * NS_PER_S},
		{"2d", 172800 * NS_PER_S},
		{"90s", 90 * NS_PER_S},
		{"10", -1},
		{"", -1},
		{"s", -1},
		{"-1s", -1},
		{"1 s", -1},
		{"1.s", -1},
		{"1e3s", -1},
		{"99999999999999999999s", -1},
		{"9999999h", -1},
		{"1sx", -1},
	};
	for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
		int64_t ns = -1;
		bool is_read = params_duration(durations[i].text, &ns);
		tap_expect(is_read == (durations[i].ns >= 0) && (!is_read || ns == durations[i].ns), "'%s' gave %lld",
			durations[i].text, (long long)ns);
	}
	tap_all("durations: a unit is due");
	char value[16];
	uint64_t n;
	tap_expect(params_query("a=1&b=%41+&c", "b", value, sizeof value) == PARAMS_FOUND && strcmp(value, "A+") == 0,
		"decoded");
	tap_expect(
		params_query("a=1&b=2&c", "c", value, sizeof value) == PARAMS_FOUND && value[0] == '\0', "a bare key");
	tap_expect(params_query("ab=1", "a", value, sizeof value) == PARAMS_ABSENT &&
			   params_query(NULL, "a", value, sizeof value) == PARAMS_ABSENT,
		"absent");
	tap_expect(params_query("a=%4", "a", value, sizeof value) == PARAMS_BROKEN &&
			   params_query("a=0123456789abcdef", "a", value, sizeof value) == PARAMS_BROKEN,
		"broken, too long");
	tap_expect(params_decode(value, sizeof value, "%41%5a", 6) && strcmp(value, "AZ") == 0 &&
			   !params_decode(value, sizeof value, "%41%5a", 5),
		"escapes at the end");
	tap_expect(params_u64("18446744073709551615", &n) && n == UINT64_MAX &&
			   !params_u64("18446744073709551616", &n) && !params_u64("", &n) && !params_u64("1x", &n),
		"numbers");
	tap_all("queries, escapes and numbers");
	tap_expect(nearby_distance("kitten", "sitting") == 3 && nearby_distance("", "abc") == 3 &&
			   nearby_distance("abc", "abc") == 0,
		"distance");
	tap_expect(nearby_is_near("api:44", "api:443") && nearby_is_near("apj:443", "api:443") &&
			   !nearby_is_near("db:5432", "api:443"),
		"nearness");
	tap_all("did you mean");
}

int main(void)
{
	if (region_attach_private(&region, "app", 64) != 0)
		return 1;
	member_join(&region, getpid(), identity_start_ticks(getpid(), NULL), "/usr/bin/app", clock_now_ns());
	test_params();
	test_events();
	test_metrics();
	test_json();
	test_damage();
	return tap_done();
}
