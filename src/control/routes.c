/* See routes.h. Adding a path: a row of the table and a function. */
#include "control/routes.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "control/faults_admin.h"
#include "control/nearby.h"
#include "control/params.h"
#include "core/bypass.h"
#include "core/member.h"
#include "policy/policy.h"

#define JSON_TYPE "application/json"
#define PARAM_MAX 64

int routes_error(struct answer *a, int status, const char *words)
{
	a->type = JSON_TYPE;
	a->body->len = 0;
	text_str(a->body, "{\"error\":");
	text_json(a->body, words);
	text_str(a->body, "}\n");
	return status;
}

const char *routes_status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} texts[] = {
		{200, "OK"},
		{400, "Bad Request"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{413, "Content Too Large"},
		{417, "Expectation Failed"},
		{422, "Unprocessable Content"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{503, "Service Unavailable"},
		{505, "HTTP Version Not Supported"},
	};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "Unknown";
}

static int get_health(struct request *q, struct answer *a)
{
	char strict[PARAM_MAX];
	enum params_found found = params_query(q->query, "strict", strict, sizeof strict);
	if (found == PARAMS_BROKEN ||
		(found == PARAMS_FOUND && strict[0] && strcmp(strict, "0") != 0 && strcmp(strict, "1") != 0))
		return routes_error(a, 400, "strict is 0 or 1");
	unsigned bypass = bypass_of(q->region, "");
	/* Where its user's marker would lie only the process itself knows, when the region is no file. */
	if (!q->region->is_shared && bypass == 0 && q->host->is_off && atomic_load(q->host->is_off))
		bypass = BYPASS_USER;
	bool is_healthy = render_health(a->body, q->region, bypass, q->now_ns);
	return !is_healthy && found == PARAMS_FOUND && strcmp(strict, "0") != 0 ? 503 : 200;
}

static int get_destinations(struct request *q, struct answer *a)
{
	render_destinations(a->body, q->region, q->now_ns);
	text_char(a->body, '\n');
	return 200;
}

/* The index of the path's destination, or -1 with the answer made. */
static int find_destination(struct request *q, struct answer *a, int *status)
{
	char words_at[2048];
	struct text words = TEXT_ON(words_at);
	int index = nearby_find(q->region, q->name);
	if (index >= 0)
		return index;
	text_fmt(&words, "no destination '%s': ", q->name);
	nearby_destinations(&words, q->region, q->name);
	*status = routes_error(a, 404, words.at);
	return -1;
}

static int get_destination(struct request *q, struct answer *a)
{
	int status, index = find_destination(q, a, &status);
	if (index < 0)
		return status;
	render_destination(a->body, q->region, (uint32_t)index, q->now_ns);
	text_char(a->body, '\n');
	return 200;
}

static bool holds_for(const char *time, int64_t *ns)
{
	return params_duration(time, ns) && *ns >= NS_PER_MS && *ns <= PARAMS_HOLDS_MAX_NS;
}

static int post_force(struct request *q, struct answer *a)
{
	static const struct {
		const char *text;
		enum breaker_mode mode;
	} modes[] = {{"open", BREAKER_FORCED_OPEN}, {"closed", BREAKER_FORCED_CLOSED}, {"observe", BREAKER_OBSERVE},
		{"auto", BREAKER_AUTO}};
	char mode[PARAM_MAX], time[PARAM_MAX];
	int64_t for_ns = 0;
	int status, index = find_destination(q, a, &status);

	if (index < 0)
		return status;
	enum params_found has_time = params_query(q->query, "for", time, sizeof time);
	if (has_time == PARAMS_BROKEN || (has_time == PARAMS_FOUND && !holds_for(time, &for_ns)))
		return routes_error(a, 400,
			"for is a time from 1ms to 8760h such as 10m; without it the mode holds until told otherwise");
	if (params_query(q->query, "mode", mode, sizeof mode) != PARAMS_FOUND)
		return routes_error(a, 400, "mode is missing; it is open, closed, observe or auto");
	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
		if (strcmp(mode, modes[i].text) == 0) {
			circuit_force(
				q->region, (uint32_t)index, modes[i].mode, (uint64_t)(for_ns / NS_PER_MS), q->now_ns);
			return get_destination(q, a);
		}
	}
	return routes_error(a, 400, "mode is open, closed, observe or auto");
}

static int post_reset(struct request *q, struct answer *a)
{
	int status, index = find_destination(q, a, &status);
	if (index < 0)
		return status;
	circuit_reset(q->region, (uint32_t)index, q->now_ns);
	return get_destination(q, a);
}

static int get_events(struct request *q, struct answer *a)
{
	char since[PARAM_MAX], follow[PARAM_MAX];
	struct render_cursor cursor = {0};
	struct event e;

	enum params_found has_since = params_query(q->query, "since", since, sizeof since);
	if (has_since == PARAMS_BROKEN || (has_since == PARAMS_FOUND && !params_u64(since, &cursor.seq)))
		return routes_error(a, 400, "since is the seq of an event");
	enum params_found has_follow = params_query(q->query, "follow", follow, sizeof follow);
	if (has_follow == PARAMS_BROKEN ||
		(has_follow == PARAMS_FOUND && follow[0] && strcmp(follow, "0") != 0 && strcmp(follow, "1") != 0))
		return routes_error(a, 400, "follow is 0 or 1");
	a->type = "application/x-ndjson";
	if (has_follow == PARAMS_FOUND && strcmp(follow, "0") != 0) {
		a->follows = true;
		a->since = cursor.seq;
		return 200;
	}
	while (render_next_event(q->region, &cursor, q->now_ns, &e))
		render_event(a->body, q->region, &e);
	return 200;
}

static int get_config(struct request *q, struct answer *a)
{
	(void)q;
	const struct config *c = policy_acquire();
	if (!c)
		return routes_error(a, 503, "no configuration is in force yet");
	render_config(a->body, c);
	policy_release(c);
	return 200;
}

static int get_members(struct request *q, struct answer *a)
{
	render_members(a->body, q->region, q->now_ns);
	text_char(a->body, '\n');
	return 200;
}

static int get_metrics(struct request *q, struct answer *a)
{
	const struct region *regions[1] = {q->region};
	a->type = "text/plain; version=0.0.4; charset=utf-8";
	render_metrics(a->body, regions, 1, q->now_ns);
	return 200;
}

/* Of the group: how often it was told to read its configuration. What a process counts for itself grows at its start,
 * and by two in the one that tries a reload and is then told of it like the others. */
static uint32_t generation(const struct region *r)
{
	return atomic_load_explicit(&r->header->config_seq, memory_order_acquire);
}

static void config_error_event(struct region *r, const char *errors)
{
	struct event e = {.type = EVENT_CONFIG_ERROR, .retry_after_ms = -1, .value = generation(r)};
	size_t n = strcspn(errors, "\n");
	struct text t = TEXT_ON(e.reason);
	text_bytes(&t, errors, n);
	events_add(r, &e);
}

/* Tried here first: only a configuration that is right is announced to the other members. */
static int post_reload(struct request *q, struct answer *a)
{
	char errors_at[8192];
	struct text errors = TEXT_ON(errors_at);

	errors_at[0] = '\0';
	int faults = policy_reload(&errors);
	if (faults < 0)
		return routes_error(a, 503,
			faults == -EBUSY ? "earlier configurations are still in use; try again"
					 : "no memory for another configuration");
	if (faults == 0) {
		uint32_t now = atomic_fetch_add_explicit(&q->region->header->config_seq, 1, memory_order_release) + 1;
		atomic_fetch_add_explicit(&q->region->header->reload_seq, 1, memory_order_release);
		events_add_reload(q->region, now);
		text_fmt(a->body, "{\"generation\":%u}\n", now);
		return 200;
	}
	config_error_event(q->region, errors_at);
	text_str(a->body, "{\"error\":\"the configuration has faults; the one before stays in force\",\"errors\":[");
	for (const char *line = errors_at, *comma = ""; *line; comma = ",") {
		size_t n = strcspn(line, "\n");
		if (n > 0) {
			text_str(a->body, comma);
			text_json_n(a->body, line, n);
		}
		line += n + (line[n] == '\n');
	}
	text_str(a->body, "]}\n");
	return 422;
}

static int get_faults(struct request *q, struct answer *a)
{
	const struct config *c = policy_acquire();
	text_str(a->body, "{\"faults\":");
	faults_admin_list(a->body, q->region, c, q->now_ns);
	text_str(a->body, "}\n");
	policy_release(c);
	return 200;
}

static bool lives(uint64_t id, const void *ctx)
{
	(void)ctx;
	return member_is_alive(id);
}

static int post_faults(struct request *q, struct answer *a)
{
	char spec[FAULT_SPEC_MAX + 1], time[PARAM_MAX], name[FAULT_NAME_MAX + 1], error_at[2600] = "";
	struct text error = TEXT_ON(error_at);
	int64_t for_ns = 0;
	enum params_found has_time = params_query(q->query, "for", time, sizeof time),
			  is_forever = params_query(q->query, "forever", error_at, sizeof error_at);
	error_at[0] = '\0';
	if (params_query(q->query, "spec", spec, sizeof spec) != PARAMS_FOUND)
		return routes_error(a, 400, "spec is missing: TYPE DESTINATION [KEY=VALUE]..., percent-encoded");
	if (has_time == PARAMS_BROKEN || (has_time == PARAMS_FOUND && !holds_for(time, &for_ns)))
		return routes_error(a, 400, "for is a time from 1ms to 8760h such as 10m");
	if ((has_time == PARAMS_FOUND) == (is_forever != PARAMS_ABSENT))
		return routes_error(a, 400, "for=10m or forever is due");
	int err = faults_admin_add(q->region, spec, for_ns, q->now_ns, name, &error, lives, NULL);
	if (err)
		return routes_error(a, err == -EINVAL || err == -EEXIST ? 400 : 503, error_at);
	text_str(a->body, "{\"name\":");
	text_json(a->body, name);
	text_str(a->body, ",\"lifted_by\":");
	char undo_at[80] = "";
	struct text undo = TEXT_ON(undo_at);
	text_fmt(&undo, "DELETE /v1/faults/%s", name);
	text_json(a->body, undo_at);
	text_str(a->body, "}\n");
	return 200;
}

static int delete_faults(struct request *q, struct answer *a)
{
	text_fmt(a->body, "{\"lifted\":%u}\n", faults_admin_remove(q->region, NULL, q->now_ns));
	return 200;
}

static int delete_fault(struct request *q, struct answer *a)
{
	unsigned n = faults_admin_remove(q->region, q->name, q->now_ns);
	if (n == 0)
		return routes_error(a, 404, "no fault of that name was added; /v1/faults lists them");
	text_fmt(a->body, "{\"lifted\":%u}\n", n);
	return 200;
}

/* The first row whose path fits decides; the methods of a path are the rows that spell it alike. '*' is the rest, or
 * what is before the rest of the pattern: one name, percent-encoded or not. */
static const struct route {
	const char *method, *path;
	int (*answer)(struct request *q, struct answer *a);
} routes[] = {
	{"GET", "/health", get_health},
	{"GET", "/v1/destinations", get_destinations},
	{"POST", "/v1/destinations/*/force", post_force},
	{"POST", "/v1/destinations/*/reset", post_reset},
	{"GET", "/v1/destinations/*", get_destination},
	{"GET", "/v1/events", get_events},
	{"GET", "/v1/config", get_config},
	{"GET", "/v1/members", get_members},
	{"GET", "/metrics", get_metrics},
	{"POST", "/v1/reload", post_reload},
	{"GET", "/v1/faults", get_faults},
	{"POST", "/v1/faults", post_faults},
	{"DELETE", "/v1/faults", delete_faults},
	{"DELETE", "/v1/faults/*", delete_fault},
};
#define ROUTES (sizeof routes / sizeof routes[0])

static bool path_fits(const char *pattern, const char *path, const char **name, size_t *name_len)
{
	const char *star = strchr(pattern, '*');
	if (!star)
		return strcmp(pattern, path) == 0;
	size_t before = (size_t)(star - pattern), after = strlen(star + 1), len = strlen(path);
	if (len <= before + after || memcmp(path, pattern, before) != 0 ||
		memcmp(path + len - after, star + 1, after) != 0)
		return false;
	*name = path + before;
	*name_len = len - before - after;
	return true;
}

static int wrong_method(struct answer *a, const char *pattern)
{
	struct text allow = TEXT_ON(a->allow);
	for (size_t i = 0; i < ROUTES; i++) {
		if (strcmp(routes[i].path, pattern) != 0)
			continue;
		text_fmt(&allow, "%s%s", allow.len ? ", " : "", routes[i].method);
		if (strcmp(routes[i].method, "GET") == 0)
			text_str(&allow, ", HEAD");
	}
	char words[128];
	struct text t = TEXT_ON(words);
	text_fmt(&t, "this path takes %s only", a->allow);
	return routes_error(a, 405, words);
}

int routes_answer(struct request *q, struct answer *a)
{
	const char *name = "";
	size_t name_len = 0, i = 0;

	a->type = JSON_TYPE;
	while (i < ROUTES && !path_fits(routes[i].path, q->path, &name, &name_len))
		i++;
	if (i == ROUTES)
		return routes_error(a, 404,
			"no such path; there are /health, /v1/destinations, /v1/destinations/NAME (also with /force "
			"or /reset), /v1/events, /v1/config, /v1/members, /v1/faults (also with /NAME), "
			"/v1/reload and /metrics");
	const char *pattern = routes[i].path;
	while (i < ROUTES && (strcmp(routes[i].path, pattern) != 0 || strcmp(routes[i].method, q->method) != 0))
		i++;
	if (i == ROUTES)
		return wrong_method(a, pattern);
	if (!params_decode(q->name, sizeof q->name, name, name_len))
		return routes_error(a, 400, "the name is not properly percent-encoded, or too long");
	if (!q->region)
		return routes_error(a, 503, "no state is attached");
	return routes[i].answer(q, a);
}
