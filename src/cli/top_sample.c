/* The rows of resil top: regions are opened anew for each sample, so that groups may come, go and be made again. */
#include "cli/top.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/story.h"
#include "core/registry.h"

static int by_key(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;
	int by_group = strcmp(x->group, y->group), by_user = strcmp(x->user, y->user);
	return by_group ? by_group : by_user ? by_user : strcmp(x->view.name, y->view.name);
}

static void add_rates(struct top_row *r, const struct top_row *before, double seconds)
{
	r->calls = render_total_calls(&r->view);
	r->failures = r->view.failure;
	r->rejected = r->view.rejected;
	/* A region that was made again counts from zero. */
	if (!before || r->calls < before->calls || r->failures < before->failures || r->rejected < before->rejected)
		return;
	memcpy(r->calls_per_s, before->calls_per_s, sizeof r->calls_per_s);
	memcpy(r->failures_per_s, before->failures_per_s, sizeof r->failures_per_s);
	memcpy(r->rejected_per_s, before->rejected_per_s, sizeof r->rejected_per_s);
	unsigned at = before->next;
	r->next = (at + 1) % TOP_HISTORY;
	r->samples = before->samples < TOP_HISTORY ? before->samples + 1 : TOP_HISTORY;
	r->calls_per_s[at] = (float)((double)(r->calls - before->calls) / seconds);
	r->failures_per_s[at] = (float)((double)(r->failures - before->failures) / seconds);
	r->rejected_per_s[at] = (float)((double)(r->rejected - before->rejected) / seconds);
}

int top_sample(struct top *t)
{
	struct groups g;
	int code = groups_open(&g, &t->o, false);
	if (code)
		return code;
	groups_freshen(&g);
	int64_t now_ns = clock_now_ns();
	double seconds = (double)(now_ns - t->sampled_ns) / NS_PER_S;
	struct top_row *rows = NULL;
	size_t n = 0, room = 0;

	for (size_t i = 0; i < g.n; i++) {
		const struct region *r = &g.at[i].region;
		size_t count;
		uint32_t *sorted = groups_sorted(r, &count);
		for (size_t d = 0; sorted && d < count; d++) {
			if (n == room) {
				size_t wanted = room ? room * 2 : 64;
				struct top_row *more = realloc(rows, wanted * sizeof *more);
				if (!more)
					break;
				rows = more;
				room = wanted;
			}
			struct top_row *row = &rows[n];
			memset(row, 0, sizeof *row);
			memcpy(row->user, g.at[i].user, sizeof row->user);
			memcpy(row->group, g.at[i].name, sizeof row->group);
			row->bypass = group_bypass(&g.at[i]);
			circuit_view(r, sorted[d], now_ns, &row->view);
			add_rates(row, t->n ? bsearch(row, t->rows, t->n, sizeof *row, by_key) : NULL, seconds);
			n++;
		}
		free(sorted);
	}
	t->groups = g.n;
	groups_close(&g);
	free(t->rows);
	t->rows = rows;
	t->n = n;
	t->sampled_ns = now_ns;
	t->sampled_wall_ns = clock_wall_ns();
	if (n)
		qsort(rows, n, sizeof *rows, by_key);
	return 0;
}

void top_free(struct top *t)
{
	free(t->rows);
	free(t->shown);
}

/* ---- a row's cells ---- */

float top_rate(const struct top_row *r, const float *ring, unsigned age)
{
	return age < r->samples ? ring[(r->next + TOP_HISTORY - 1 - age) % TOP_HISTORY] : -1;
}

void top_state_text(char *to, size_t cap, const struct top_row *r)
{
	char state[40];
	state_text(state, sizeof state, &r->view);
	snprintf(to, cap, "%s%s", r->bypass ? "off:" : "", state);
}

void top_retry_text(char *to, size_t cap, const struct top_row *r)
{
	const struct circuit_view *v = &r->view;
	bool is_by_hand = v->mode == BREAKER_FORCED_OPEN || v->mode == BREAKER_FORCED_CLOSED;
	if (v->state != BREAKER_OPEN || is_by_hand)
		snprintf(to, cap, "-");
	else if (v->retry_after_ms == 0)
		snprintf(to, cap, "due");
	else
		ms_text(to, cap, v->retry_after_ms);
}

void top_rate_text(char *to, size_t cap, float rate)
{
	if (rate < 0)
		snprintf(to, cap, "-");
	else if (rate >= 1000)
		snprintf(to, cap, "%.1fk", (double)rate / 1000);
	else
		snprintf(to, cap, rate > 0 && rate < 10 ? "%.1f" : "%.0f", (double)rate);
}

/* ---- which and in what order ---- */

const char *top_sort_name(enum top_sort sort)
{
	static const char *const names[TOP_SORTS] = {"state", "name", "calls", "errors", "retry", "p99"};
	return names[sort];
}

/* What wants looking at goes first: rejecting, then what is on the way, then by hand. */
static int urgency(const struct top_row *r)
{
	const struct circuit_view *v = &r->view;
	if (view_is_open(v) && circuit_shown_mode(v) != BREAKER_OBSERVE)
		return v->state == BREAKER_HALF_OPEN ? 1 : 0;
	return view_is_open(v) ? 2 : v->mode != BREAKER_AUTO ? 3 : 4;
}

static double sort_value(const struct top_row *r, enum top_sort sort)
{
	switch (sort) {
	case TOP_BY_STATE: return urgency(r);
	case TOP_BY_CALLS: return -(double)top_rate(r, r->calls_per_s, 0);
	case TOP_BY_ERRORS: return -(double)(top_rate(r, r->failures_per_s, 0) + top_rate(r, r->rejected_per_s, 0));
	case TOP_BY_RETRY: return r->view.state == BREAKER_OPEN ? (double)r->view.retry_after_ms : 1e18;
	case TOP_BY_P99: return -(double)r->view.p99_us;
	default: return 0;
	}
}

static int in_order(const void *a, const void *b, void *top)
{
	const struct top *t = top;
	const struct top_row *x = &t->rows[*(const size_t *)a], *y = &t->rows[*(const size_t *)b];
	double by_value = sort_value(x, t->sort) - sort_value(y, t->sort);
	if (by_value < 0 || by_value > 0)
		return by_value < 0 ? -1 : 1;
	int by_name = strcmp(x->view.name, y->view.name);
	return by_name ? by_name : by_key(x, y);
}

void top_arrange(struct top *t)
{
	size_t *shown = realloc(t->shown, (t->n + 1) * sizeof *shown);
	if (!shown)
		return;
	t->shown = shown;
	t->shown_n = 0;
	for (size_t i = 0; i < t->n; i++) {
		char state[48];
		top_state_text(state, sizeof state, &t->rows[i]);
		if (strcasestr(t->rows[i].view.name, t->filter) || strcasestr(t->rows[i].group, t->filter) ||
			strcasestr(state, t->filter))
			shown[t->shown_n++] = i;
	}
	qsort_r(shown, t->shown_n, sizeof *shown, in_order, t);
}

/* ---- one circuit ---- */

/* The row's group, opened; n is 0 when it is gone. */
static int open_group(struct groups *g, const struct top *t, const struct top_row *r, bool is_for_change)
{
	struct options o = t->o;
	o.group = r->group;
	return groups_open(g, &o, is_for_change);
}

static const struct group *group_of(const struct groups *g, const struct top_row *r)
{
	for (size_t i = 0; i < g->n; i++)
		if (strcmp(g->at[i].user, r->user) == 0)
			return &g->at[i];
	return NULL;
}

static void add_events(struct text *text, const struct region *r, const char *destination)
{
	uint64_t oldest, newest;
	struct event e;
	const char *title = "Events, the last first:\n";

	events_range(r, &oldest, &newest);
	for (uint64_t seq = newest, i = 0; seq >= oldest && seq > 0 && i < REGION_EVENTS; seq--, i++) {
		if (!events_read(r, seq, &e) || strcmp(e.destination, destination) != 0)
			continue;
		text_str(text, title);
		title = "";
		text_time(text, e.wall_ns < 0 ? 0 : e.wall_ns);
		text_fmt(text, " %s ", event_type_name((enum event_type)e.type));
		event_text(text, r, &e);
		text_char(text, '\n');
	}
}

void top_detail(struct text *text, const struct top *t, const struct top_row *r)
{
	struct groups g;
	struct settings s;
	struct story story;
	pid_t member;

	if (open_group(&g, t, r, false))
		return;
	const struct group *one = group_of(&g, r);
	int index = one ? registry_find(&one->region, r->view.name) : -1;
	if (index >= 0 && story_settings(&s, one, &member)) {
		story_read(&story, one, (uint32_t)index, &s, member);
		story_text(text, &story, &t->o);
		add_events(text, &one->region, r->view.name);
		settings_free(&s);
	}
	groups_close(&g);
}

bool top_act(const struct top *t, const struct top_row *r, bool is_reset, enum breaker_mode mode, uint64_t for_ms)
{
	struct groups g;
	if (open_group(&g, t, r, true))
		return false;
	const struct group *one = group_of(&g, r);
	int index = one ? registry_find(&one->region, r->view.name) : -1;
	if (index < 0) {
		fprintf(stderr, "resil: %s is gone\n", r->view.name);
	} else {
		struct region region = one->region;
		if (is_reset)
			circuit_reset(&region, (uint32_t)index, clock_now_ns());
		else
			circuit_force(&region, (uint32_t)index, mode, for_ms, clock_now_ns());
	}
	groups_close(&g);
	return index >= 0;
}
