/* resil top: every destination of every group, live; keys to look closer and to set by hand. In a pipe, on a terminal
 * without cursor addressing and with -b it prints tables. */
#include "cli/top.h"

#include <curses.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/params.h"

/* ---- tables ---- */

static void print_table(const struct top *t)
{
	static const char *const headers[] = {
		"TIME", "USER", "GROUP", "DEST", "STATE", "RETRY", "CALL/S", "ERR/S", "REJ/S", "P99", "INFLIGHT"};
	struct table *table = table_new(headers, sizeof headers / sizeof headers[0]);
	char time_at[40] = "";
	struct text time = TEXT_ON(time_at);

	table_style(table, 4, 0x7e0);
	text_time(&time, t->sampled_wall_ns);
	for (size_t i = 0; i < t->shown_n; i++) {
		const struct top_row *r = &t->rows[t->shown[i]];
		char state[48], retry[24], calls[16], errors[16], rejected[16], p99[24], in_flight[24];
		top_state_text(state, sizeof state, r);
		top_retry_text(retry, sizeof retry, r);
		top_rate_text(calls, sizeof calls, top_rate(r, r->calls_per_s, 0));
		top_rate_text(errors, sizeof errors, top_rate(r, r->failures_per_s, 0));
		top_rate_text(rejected, sizeof rejected, top_rate(r, r->rejected_per_s, 0));
		us_text(p99, sizeof p99, r->view.p99_us, r->view.max_us > 0 || r->view.p99_us > 0);
		in_flight_text(in_flight, sizeof in_flight, &r->view);
		const char *cells[] = {time_at, r->user, r->group, r->view.name, state, retry, calls, errors, rejected,
			p99, in_flight};
		table_row(table, cells);
	}
	table_print(table);
}

static void json_rate(const char *key, float rate)
{
	if (rate < 0)
		printf(",\"%s\":null", key);
	else
		printf(",\"%s\":%.3f", key, (double)rate);
}

static void print_json(const struct top *t)
{
	static char at[65536];
	char time_at[40] = "";
	struct text text = TEXT_ON(time_at);

	text_time(&text, t->sampled_wall_ns);
	printf("{\"time\":\"%s\",\"destinations\":[", time_at);
	for (size_t i = 0; i < t->shown_n; i++) {
		const struct top_row *r = &t->rows[t->shown[i]];
		text = TEXT_ON(at);
		at[0] = '\0';
		text_str(&text, i ? ",{\"group\":" : "{\"group\":");
		text_json(&text, r->group);
		text_str(&text, ",\"user\":");
		text_json(&text, r->user);
		text_str(&text, ",\"bypass\":");
		render_bypass(&text, r->bypass);
		fputs(at, stdout);
		json_rate("calls_per_s", top_rate(r, r->calls_per_s, 0));
		json_rate("failures_per_s", top_rate(r, r->failures_per_s, 0));
		json_rate("rejected_per_s", top_rate(r, r->rejected_per_s, 0));
		text = TEXT_ON(at);
		at[0] = '\0';
		text_str(&text, ",\"destination\":");
		render_view(&text, &r->view);
		printf("%s}", at);
	}
	puts("]}");
}

static void rest(int64_t ns)
{
	struct timespec left = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		continue;
}

/* rounds 0: for ever. Rates need two looks: the first is not printed. */
static int run_batch(struct top *t, uint64_t rounds)
{
	for (uint64_t i = 0; rounds == 0 || i < rounds; i++) {
		rest(t->every_ns);
		int code = top_sample(t);
		if (code)
			return code;
		top_arrange(t);
		(t->o.is_json ? print_json : print_table)(t);
		if (fflush(stdout) != 0)
			return EXIT_FAILED;
	}
	return EXIT_DONE;
}

/* ---- live ---- */

enum asking { ASK_NOTHING, ASK_FILTER, ASK_MODE, ASK_HOW_LONG, ASK_RESET };

struct live {
	struct top *t;
	struct top_row chosen; /* the selected row's names: it stays selected wherever it goes */
	size_t selected;
	bool is_paused, has_detail, is_ended;
	enum asking asking;
	enum breaker_mode mode;
	unsigned detail_from;
	char detail[32768], message[1024], question[1024];
};

static volatile sig_atomic_t is_signalled;
static void on_signal(int signal)
{
	(void)signal;
	is_signalled = 1;
}

static const struct top_row *selected(const struct live *l)
{
	return l->selected < l->t->shown_n ? &l->t->rows[l->t->shown[l->selected]] : NULL;
}

static void remember(struct live *l)
{
	const struct top_row *r = selected(l);
	if (r)
		l->chosen = *r;
}

/* After rows have moved: the selection follows its row. */
static void find_again(struct live *l)
{
	top_arrange(l->t);
	for (size_t i = 0; i < l->t->shown_n; i++) {
		const struct top_row *r = &l->t->rows[l->t->shown[i]];
		if (strcmp(r->view.name, l->chosen.view.name) == 0 && strcmp(r->group, l->chosen.group) == 0 &&
			strcmp(r->user, l->chosen.user) == 0) {
			l->selected = i;
			return;
		}
	}
	if (l->selected >= l->t->shown_n)
		l->selected = l->t->shown_n ? l->t->shown_n - 1 : 0;
	remember(l);
}

static void ask(struct live *l, enum asking what)
{
	const struct top_row *r = &l->chosen;
	l->asking = what;
	switch (what) {
	case ASK_FILTER: snprintf(l->question, sizeof l->question, "filter: %s_", l->t->filter); return;
	case ASK_MODE:
		snprintf(l->question, sizeof l->question,
			"force %s in group %s: (o)pen: reject all, (c)losed: let all through, o(b)serve, (a)uto; esc: "
			"no",
			r->view.name, r->group);
		return;
	case ASK_HOW_LONG:
		snprintf(l->question, sizeof l->question,
			"%s for how long? (1) 1m (2) 10m (3) 1h (f) for ever: the shared state outlives you; esc: no",
			breaker_mode_name(l->mode));
		return;
	case ASK_RESET:
		snprintf(l->question, sizeof l->question,
			"reset %s in group %s: close it and forget its streak? (y)es; esc: no", r->view.name, r->group);
		return;
	default: l->question[0] = '\0';
	}
}

static void act(struct live *l, bool is_reset, enum breaker_mode mode, uint64_t for_ms)
{
	const struct top_row *r = &l->chosen;
	struct options o = l->t->o;
	o.group = NULL;
	if (!top_act(l->t, r, is_reset, mode, for_ms))
		return; /* what hinders comes by stderr */
	if (is_reset)
		snprintf(l->message, sizeof l->message, "%s: reset", r->view.name);
	else if (mode == BREAKER_AUTO)
		snprintf(l->message, sizeof l->message, "%s: auto", r->view.name);
	else
		snprintf(l->message, sizeof l->message, "%s: %s; undo it with: resil force %s auto%s", r->view.name,
			breaker_mode_name(mode), shell_word(r->view.name), options_again(&o, r->group));
}

static void answer_filter(struct live *l, int key)
{
	char *f = l->t->filter;
	size_t n = strlen(f);
	if (key == 27)
		f[0] = '\0';
	else if ((key == KEY_BACKSPACE || key == 127 || key == 8) && n)
		f[n - 1] = '\0';
	else if (key >= 0x20 && key < 0x7f && n < TOP_FILTER_MAX)
		f[n] = (char)key;
	if (key >= 0x20 && key < 0x7f && n < TOP_FILTER_MAX)
		f[n + 1] = '\0';
	ask(l, key == 27 || key == '\r' || key == '\n' || key == KEY_ENTER ? ASK_NOTHING : ASK_FILTER);
	find_again(l);
}

static void answer_mode(struct live *l, int key)
{
	static const char keys[] = "acob"; /* not in the order of the modes: by their names */
	static const enum breaker_mode modes[] = {
		BREAKER_AUTO, BREAKER_FORCED_CLOSED, BREAKER_FORCED_OPEN, BREAKER_OBSERVE};
	const char *at = key > 0 && key < 0x7f ? strchr(keys, key) : NULL;
	ask(l, ASK_NOTHING);
	if (!at || !*at)
		return;
	l->mode = modes[at - keys];
	if (l->mode == BREAKER_AUTO)
		act(l, false, BREAKER_AUTO, 0);
	else
		ask(l, ASK_HOW_LONG);
}

static void answer_how_long(struct live *l, int key)
{
	uint64_t ms = key == '1' ? 60000 : key == '2' ? 600000 : key == '3' ? 3600000 : 0;
	ask(l, ASK_NOTHING);
	if (ms || key == 'f')
		act(l, false, l->mode, ms);
}

static void answer(struct live *l, int key)
{
	switch (l->asking) {
	case ASK_FILTER: answer_filter(l, key); return;
	case ASK_MODE: answer_mode(l, key); return;
	case ASK_HOW_LONG: answer_how_long(l, key); return;
	default:
		ask(l, ASK_NOTHING);
		if (key == 'y')
			act(l, true, BREAKER_AUTO, 0);
	}
}

static void go(struct live *l, long by)
{
	long to = (long)l->selected + by, last = (long)l->t->shown_n - 1;
	l->selected = (size_t)(to < 0 || last < 0 ? 0 : to > last ? last : to);
	l->detail_from = 0;
	remember(l);
}

static void command(struct live *l, int key)
{
	l->message[0] = '\0';
	switch (key) {
	case 'q': l->is_ended = true; return;
	case KEY_UP:
	case 'k': go(l, -1); return;
	case KEY_DOWN:
	case 'j': go(l, 1); return;
	case KEY_HOME:
	case 'g': go(l, -(long)l->t->shown_n); return;
	case KEY_END:
	case 'G': go(l, (long)l->t->shown_n); return;
	case KEY_PPAGE:
		if (l->has_detail)
			l->detail_from -= l->detail_from > 5 ? 5 : l->detail_from;
		else
			go(l, -(long)screen_page());
		return;
	case KEY_NPAGE:
		if (l->has_detail)
			l->detail_from += 5;
		else
			go(l, (long)screen_page());
		return;
	case '\r':
	case '\n':
	case KEY_ENTER:
	case 'd': l->has_detail = !l->has_detail && selected(l); return;
	case 27: l->has_detail = false; return;
	case 's':
		l->t->sort = (enum top_sort)((l->t->sort + 1) % TOP_SORTS);
		snprintf(l->message, sizeof l->message, "sorted by %s", top_sort_name(l->t->sort));
		find_again(l);
		return;
	case '/': ask(l, ASK_FILTER); return;
	case 'p':
	case ' ': l->is_paused = !l->is_paused; return;
	case 'f':
		if (selected(l))
			ask(l, ASK_MODE);
		return;
	case 'r':
		if (selected(l))
			ask(l, ASK_RESET);
		return;
	case 'h':
	case '?':
		snprintf(l->message, sizeof l->message,
			"j k and arrows: choose; enter: why it is so (page up and down move that text); f: force; r: "
			"reset; s: sort by "
			"the next of state, name, calls, errors, retry, p99; /: filter; p: pause; q: quit");
		return;
	default: return;
	}
}

static void draw(struct live *l)
{
	struct text text = TEXT_ON(l->detail);
	l->detail[0] = '\0';
	if (l->has_detail && selected(l))
		top_detail(&text, l->t, selected(l));
	struct screen_view view = {.top = l->t,
		.selected = l->selected,
		.is_paused = l->is_paused,
		.has_detail = l->has_detail,
		.detail = l->detail,
		.detail_from = l->detail_from,
		.question = l->asking == ASK_NOTHING ? NULL : l->question,
		.message = l->message};
	screen_draw(&view);
}

/* What verbs say on stderr would tear the screen: it is caught, and its last line shown. */
static void take_remarks(struct live *l, int caught)
{
	char at[512];
	fflush(stderr);
	off_t end = caught < 0 ? 0 : lseek(caught, 0, SEEK_END);
	if (end <= 0)
		return;
	ssize_t n = pread(caught, at, sizeof at - 1, end > (off_t)sizeof at - 1 ? end - (off_t)sizeof at + 1 : 0);
	if (n > 0) {
		at[n] = '\0';
		for (char *p = at + n; p-- > at && *p == '\n';)
			*p = '\0';
		const char *line = strrchr(at, '\n');
		snprintf(l->message, sizeof l->message, "%s", line ? line + 1 : at);
	}
	if (ftruncate(caught, 0) == 0)
		lseek(caught, 0, SEEK_SET);
}

static int run_live(struct top *t)
{
	struct live l = {.t = t};
	struct sigaction action = {.sa_handler = on_signal};
	int caught = memfd_create("remarks", MFD_CLOEXEC), kept = dup(STDERR_FILENO);

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (caught >= 0)
		dup2(caught, STDERR_FILENO);
	top_arrange(t);
	remember(&l);
	while (!l.is_ended && !is_signalled) {
		take_remarks(&l, caught);
		draw(&l);
		int64_t left_ns = l.is_paused ? NS_PER_S : t->sampled_ns + t->every_ns - clock_now_ns();
		int key = screen_key(left_ns);
		if (key != ERR && key != KEY_RESIZE) {
			if (l.asking == ASK_NOTHING)
				command(&l, key);
			else
				answer(&l, key);
		}
		bool is_due = clock_now_ns() - t->sampled_ns >= t->every_ns;
		if (is_due && !l.is_paused && l.asking != ASK_HOW_LONG && l.asking != ASK_MODE &&
			l.asking != ASK_RESET) {
			top_sample(t); /* what hinders it is caught and shown */
			find_again(&l);
		}
	}
	screen_end();
	dup2(kept, STDERR_FILENO);
	return EXIT_DONE;
}

static int run_top(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, {"batch", no_argument, NULL, 'b'},
		{"rounds", required_argument, NULL, 'n'}, {"delay", required_argument, NULL, 'd'},
		{"sort", required_argument, NULL, 's'}, {"filter", required_argument, NULL, 'f'}, {0}};
	struct top t = {.every_ns = NS_PER_S};
	uint64_t rounds = 0;
	bool is_batch = false;
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT "bn:d:s:f:", longs, NULL)) != -1) {
		switch (option) {
		case 'b': is_batch = true; continue;
		case 'n':
			if (!params_u64(optarg, &rounds) || rounds == 0)
				return usage_error(verb, "'%s' is no number of rounds", optarg);
			is_batch = true;
			continue;
		case 'd':
			if (!params_duration(optarg, &t.every_ns) || t.every_ns < 100 * NS_PER_MS ||
				t.every_ns > 3600 * NS_PER_S)
				return usage_error(verb, "'%s' is no time between looks; 100ms to 1h are", optarg);
			continue;
		case 's':
			while (t.sort < TOP_SORTS && strcmp(optarg, top_sort_name(t.sort)) != 0)
				t.sort++;
			if (t.sort == TOP_SORTS)
				return usage_error(verb,
					"'%s' is no order; state, name, calls, errors, retry and p99 are", optarg);
			continue;
		case 'f':
			if (!text_copy(t.filter, sizeof t.filter, optarg))
				return usage_error(verb, "a filter has at most %d bytes", TOP_FILTER_MAX);
			continue;
		default: break;
		}
		int code = options_take(verb, &t.o, option);
		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return usage_error(verb, "'%s' is too much", argv[optind]);
	int code = top_sample(&t);
	if (code == 0) {
		is_batch = is_batch || t.o.is_json || !out_is_terminal() || !isatty(STDIN_FILENO) || !screen_begin();
		code = is_batch ? run_batch(&t, rounds) : run_live(&t);
	}
	top_free(&t);
	return code;
}

const struct verb verb_top = {
	.name = "top",
	.arguments = "[-b] [-n ROUNDS] [-d TIME] [-s ORDER] [-f TEXT] [-g GROUP] [-p PID] [--all-users] [--json]",
	.summary = "the same, live, with keys to look closer and to set by hand",
	.help = "One row a destination over all groups: state, time to the next probe, calls, failures and rejections "
		"a "
		"second,\n"
		"their last minute as lines, latency. Keys: j k arrows choose; enter tells why it is so, with events; "
		"f "
		"forces, r resets (both\n"
		"ask first); s sorts; / filters; p pauses; h helps; q quits. In a pipe, with -b, and on terminals that "
		"cannot "
		"address\n"
		"their cursor, a table each time: TIME USER GROUP DEST STATE RETRY CALL/S ERR/S REJ/S P99 INFLIGHT.\n\n"
		"Options:\n  -b, --batch         tables in place of a screen\n"
		"  -n, --rounds N      so many of them (implies -b; default: until it is ended)\n"
		"  -d, --delay TIME    between two looks (1s)\n"
		"  -s, --sort ORDER    state, name, calls, errors, retry or p99\n"
		"  -f, --filter TEXT   only rows with this in destination, group or state\n" OPTIONS_HELP
		"\nExample:\n  resil top -b -n 1 -s errors\n\n"
		"Exit codes: 0 done, 2 wrong usage, 3 no such group, 4 not permitted.\n",
	.run = run_top,
};
