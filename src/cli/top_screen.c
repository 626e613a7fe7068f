/* The screen of resil top. Columns are taken in order of need until the width is used up, so that 30 columns show who,
 * in what state and for how long, and 80 all of it. Every colour has its word beside it: nothing is lost without. */
#include "cli/top.h"

#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <time.h>

#include "base/clock.h"

#undef columns /* term.h has them as macros */
#undef lines

enum { PAIR_CLOSED = 1, PAIR_HALF_OPEN, PAIR_OPEN, PAIR_OTHER };

static bool is_utf8, is_coloured;
static SCREEN *screen;
static unsigned list_lines = 1;

bool screen_begin(void)
{
	const char *no_colour = getenv("NO_COLOR");
	int err;

	setlocale(LC_CTYPE, "");
	if (setupterm(NULL, fileno(stdout), &err) != OK || !cursor_address)
		return false;
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return false;
	set_term(screen);
	/* A terminal without colour is older than UTF-8, whatever the locale says. */
	is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 && has_colors();
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	set_escdelay(25);
	curs_set(0);
	is_coloured = (!no_colour || !no_colour[0]) && has_colors() && start_color() == OK;
	if (is_coloured) {
		short ground = use_default_colors() == OK ? -1 : COLOR_BLACK;
		init_pair(PAIR_CLOSED, COLOR_GREEN, ground);
		init_pair(PAIR_HALF_OPEN, COLOR_YELLOW, ground);
		init_pair(PAIR_OPEN, COLOR_RED, ground);
		init_pair(PAIR_OTHER, COLOR_CYAN, ground);
	}
	return true;
}

void screen_end(void)
{
	if (!screen)
		return;
	endwin();
	delscreen(screen);
	screen = NULL;
}

int screen_key(int64_t wait_ns)
{
	timeout(wait_ns > 0 ? (int)(wait_ns / NS_PER_MS) + 1 : 0);
	return getch();
}

unsigned screen_page(void)
{
	return list_lines;
}

/* ---- columns ---- */

enum column {
	DEST,
	STATE,
	RETRY,
	CALLS,
	ERRORS,
	GROUP,
	USER,
	REJECTED,
	RATE_LINE,
	ERROR_LINE,
	P99,
	IN_FLIGHT,
	COLUMNS_ALL
};

/* In the order in which they stand; `need` is the order in which they are taken. */
static const enum column places[] = {
	USER, GROUP, DEST, STATE, RETRY, CALLS, ERRORS, REJECTED, RATE_LINE, ERROR_LINE, P99, IN_FLIGHT};
static const struct {
	const char *title;
	unsigned width; /* 0: as wide as what is in it, up to `most` */
	unsigned least, most;
	bool is_right;
} columns[COLUMNS_ALL] = {
	[DEST] = {"DEST", 0, 8, 255, false},
	[STATE] = {"STATE", 0, 6, 21, false},
	[RETRY] = {"RETRY", 6, 6, 6, true},
	[CALLS] = {"CALL/S", 6, 6, 6, true},
	[ERRORS] = {"ERR/S", 5, 5, 5, true},
	[GROUP] = {"GROUP", 0, 6, 16, false},
	[USER] = {"USER", 0, 4, 10, false},
	[REJECTED] = {"REJ/S", 5, 5, 5, true},
	[RATE_LINE] = {"CALLS", 8, 8, 8, false},
	[ERROR_LINE] = {"ERRORS", 8, 8, 8, false},
	[P99] = {"P99", 7, 7, 7, true},
	[IN_FLIGHT] = {"INFL", 0, 4, 9, true},
};

static void cell_text(char *to, size_t cap, const struct top_row *r, enum column c)
{
	switch (c) {
	case DEST: snprintf(to, cap, "%s", r->view.name); return;
	case STATE: top_state_text(to, cap, r); return;
	case RETRY: top_retry_text(to, cap, r); return;
	case CALLS: top_rate_text(to, cap, top_rate(r, r->calls_per_s, 0)); return;
	case ERRORS: top_rate_text(to, cap, top_rate(r, r->failures_per_s, 0)); return;
	case REJECTED: top_rate_text(to, cap, top_rate(r, r->rejected_per_s, 0)); return;
	case GROUP: snprintf(to, cap, "%s", r->group); return;
	case USER: snprintf(to, cap, "%s", r->user); return;
	case P99: us_text(to, cap, r->view.p99_us, r->view.max_us > 0 || r->view.p99_us > 0); return;
	case IN_FLIGHT: in_flight_text(to, cap, &r->view); return;
	default: to[0] = '\0';
	}
}

static unsigned widest(const struct top *t, enum column c)
{
	char cell[300];
	size_t width = strlen(columns[c].title);
	for (size_t i = 0; i < t->shown_n; i++) {
		cell_text(cell, sizeof cell, &t->rows[t->shown[i]], c);
		if (strlen(cell) > width)
			width = strlen(cell);
	}
	return width > columns[c].most ? columns[c].most : (unsigned)width;
}

/* 0: the column is left out. A marker stands before all of them. */
static void lay_out(const struct top *t, unsigned width, unsigned widths[COLUMNS_ALL])
{
	unsigned used = 0, wanted_name = widest(t, DEST);
	/* Numbers may not cost a name more than its tail. */
	unsigned fair_name = wanted_name < 24 ? wanted_name : 24, least_name = columns[DEST].least;
	unsigned name_room = fair_name > least_name ? fair_name - least_name : 0;
	memset(widths, 0, COLUMNS_ALL * sizeof *widths);
	for (int c = 0; c < COLUMNS_ALL; c++) {
		if ((c == GROUP && t->groups < 2) || (c == USER && !t->o.all_users))
			continue;
		unsigned w = c == DEST		? columns[DEST].least
			     : columns[c].width ? columns[c].width
						: widest(t, (enum column)c);
		if (c > STATE && used + 1 + w + (c > RETRY ? name_room : 0) > width)
			break;
		widths[c] = w;
		used += 1 + w;
	}
	/* What is left: names first, then more of the past. */
	unsigned left = width > used ? width - used : 0;
	unsigned name = wanted_name > widths[DEST] ? wanted_name - widths[DEST] : 0;
	name = name > left ? left : name;
	widths[DEST] += name;
	left -= name;
	for (; left >= 2 && widths[ERROR_LINE] && widths[ERROR_LINE] < TOP_HISTORY; left -= 2) {
		widths[RATE_LINE]++;
		widths[ERROR_LINE]++;
	}
}

/* ---- drawing ---- */

/* Printable ASCII only; at most `width` columns; a cut shows. */
static void put(const char *s, unsigned width, bool is_right)
{
	size_t n = strlen(s);
	if (n < width && is_right)
		printw("%*s", (int)(width - n), "");
	for (size_t i = 0; i < n && i < width; i++)
		addch(n > width && i + 1 == width				   ? '>'
			: (unsigned char)s[i] < 0x20 || (unsigned char)s[i] > 0x7e ? '?'
										   : (chtype)s[i]);
	if (n < width && !is_right)
		printw("%*s", (int)(width - n), "");
}

/* Cut in the middle: the port tells more than the end of a name. */
static void put_name(char *name, unsigned width)
{
	size_t n = strlen(name);
	const char *port = strrchr(name, ':');
	if (n > width && port && strlen(port) + 2 <= width) {
		size_t kept = width - 1 - strlen(port);
		name[kept] = '>';
		memmove(name + kept + 1, port, strlen(port) + 1);
	}
	put(name, width, false);
}

static attr_t state_attr(const struct top_row *r, const char *state)
{
	bool is_open = view_is_open(&r->view);
	if (!is_coloured)
		return is_open ? A_BOLD : A_NORMAL;
	if (strcmp(state, "closed") == 0)
		return COLOR_PAIR(PAIR_CLOSED);
	if (strncmp(state, "off:", 4) == 0 || strncmp(state, "observe:", 8) == 0 || !is_open)
		return COLOR_PAIR(PAIR_OTHER);
	return COLOR_PAIR(r->view.state == BREAKER_HALF_OPEN ? PAIR_HALF_OPEN : PAIR_OPEN) | A_BOLD;
}

/* Both lines of a row have the scale of its calls: errors stand as high as their share. */
static void put_line(const struct top_row *r, bool is_errors, unsigned width)
{
	static const char *const blocks[] = {
		" ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
	static const char *const ascii[] = {" ", ".", ":", "-", "=", "+", "*", "%", "#"};
	float most = 0;
	for (unsigned age = 0; age < width && age < r->samples; age++)
		if (top_rate(r, r->calls_per_s, age) > most)
			most = top_rate(r, r->calls_per_s, age);
	attr_t attr = !is_coloured ? A_NORMAL : COLOR_PAIR(is_errors ? PAIR_OPEN : PAIR_CLOSED);
	attron(attr);
	for (unsigned age = width; age-- > 0;) {
		float rate = is_errors ? top_rate(r, r->failures_per_s, age) + top_rate(r, r->rejected_per_s, age)
				       : top_rate(r, r->calls_per_s, age);
		int height = rate > 0 && most > 0 ? (int)(rate / most * 8 + 0.5f) : 0;
		height = height > 8 ? 8 : height == 0 && rate > 0 ? 1 : height;
		addstr((is_utf8 ? blocks : ascii)[height]);
	}
	attroff(attr);
}

static void draw_row(int y, const struct top_row *r, const unsigned widths[COLUMNS_ALL], bool is_selected)
{
	char cell[300];
	move(y, 0);
	addch(is_selected ? '>' : ' ');
	bool is_first = true;
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		enum column c = places[i];
		if (widths[c] == 0)
			continue;
		if (!is_first)
			addch(' ');
		is_first = false;
		cell_text(cell, sizeof cell, r, c);
		attr_t attr = c == STATE ? state_attr(r, cell) : A_NORMAL;
		if (is_selected && c == DEST)
			attr |= A_REVERSE;
		attron(attr);
		if (c == RATE_LINE || c == ERROR_LINE)
			put_line(r, c == ERROR_LINE, widths[c]);
		else if (c == DEST)
			put_name(cell, widths[c]);
		else
			put(cell, widths[c], columns[c].is_right);
		attroff(attr);
	}
}

static void draw_titles(int y, const unsigned widths[COLUMNS_ALL])
{
	bool is_first = true;
	move(y, 0);
	attron(A_UNDERLINE);
	addch(' ');
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		if (widths[places[i]] == 0)
			continue;
		if (!is_first)
			addch(' ');
		is_first = false;
		put(columns[places[i]].title, widths[places[i]], columns[places[i]].is_right);
	}
	attroff(A_UNDERLINE);
}

static void draw_summary(const struct screen_view *s, unsigned width)
{
	const struct top *t = s->top;
	unsigned open = 0, half_open = 0, off = 0, by_hand = 0;
	char at[256] = "", clock[16];
	struct text text = TEXT_ON(at);
	time_t now = (time_t)(t->sampled_wall_ns / NS_PER_S);
	struct tm tm;

	for (size_t i = 0; i < t->n; i++) {
		const struct circuit_view *v = &t->rows[i].view;
		off += t->rows[i].bypass != 0;
		by_hand += v->mode != BREAKER_AUTO;
		open += view_is_open(v) && v->state == BREAKER_OPEN;
		half_open += v->mode != BREAKER_FORCED_CLOSED && v->state == BREAKER_HALF_OPEN;
	}
	text_fmt(&text, "%s%u open", s->is_paused ? "PAUSED " : "", open);
	if (half_open)
		text_fmt(&text, ", %u half-open", half_open);
	text_fmt(&text, " of %u", (unsigned)t->n);
	if (by_hand)
		text_fmt(&text, ", %u by hand", by_hand);
	if (off)
		text_fmt(&text, ", %u OFF", off);
	if (t->filter[0])
		text_fmt(&text, "  /%s", t->filter);
	if (width >= 60)
		text_fmt(&text, "  by %s", top_sort_name(t->sort));
	move(0, 0);
	attron(A_BOLD);
	put(at, width, false);
	attroff(A_BOLD);
	localtime_r(&now, &tm);
	strftime(clock, sizeof clock, "%H:%M:%S", &tm);
	if (strlen(at) + 1 + strlen(clock) <= width)
		mvaddstr(0, (int)(width - strlen(clock)), clock);
}

/* Lines broken at blanks. draw: on the screen from line y on, leaving out `from` of them, `lines` at most. Returns how
 * many there are. */
static unsigned wrap(const char *s, unsigned width, bool draw, int y, unsigned from, unsigned lines)
{
	unsigned n = 0;
	while (*s) {
		size_t left = strcspn(s, "\n"), take = left;
		if (take > width) {
			take = width;
			while (take > width / 3 && s[take] != ' ')
				take--;
			take = s[take] == ' ' ? take : width;
		}
		if (draw && n >= from && n - from < lines) {
			char line[512];
			snprintf(line, sizeof line, "%.*s", (int)take, s);
			move(y + (int)(n - from), 0);
			put(line, width, false);
		}
		n++;
		s += take;
		if (*s == '\n')
			s++;
		else
			s += *s == ' ';
	}
	return n;
}

#define KEYS "q quit  enter detail  f force  r reset  s sort  / filter  p pause"

void screen_draw(const struct screen_view *s)
{
	const struct top *t = s->top;
	unsigned widths[COLUMNS_ALL], width = (unsigned)COLS, height = (unsigned)LINES;
	const char *foot = s->question ? s->question : KEYS;
	unsigned foot_lines = wrap(foot, width, false, 0, 0, 0),
		 message_lines = wrap(s->message, width, false, 0, 0, 0);

	erase();
	/* On a small screen the keys give way, a question does not. */
	if (!s->question && height < 16)
		foot_lines = foot_lines > 1 ? 1 : foot_lines;
	unsigned bottom = foot_lines + message_lines;
	unsigned body = height > bottom + 2 ? height - bottom - 2 : 1, detail = 0;
	if (s->has_detail) {
		unsigned wanted = wrap(s->detail, width, false, 0, 0, 0) + 1, least = body > 12 ? 5 : 1;
		unsigned list = t->shown_n < least ? (unsigned)t->shown_n : least;
		detail = body > list ? body - list : 0;
		detail = wanted < detail ? wanted : detail;
	}
	list_lines = body - detail ? body - detail : 1;
	lay_out(t, width, widths);
	draw_summary(s, width);
	draw_titles(1, widths);
	size_t first = s->selected >= list_lines ? s->selected - list_lines + 1 : 0;
	for (unsigned i = 0; i < list_lines && first + i < t->shown_n; i++)
		draw_row(2 + (int)i, &t->rows[t->shown[first + i]], widths, first + i == s->selected);
	if (t->shown_n == 0)
		mvaddnstr(2, 0,
			t->n ? " nothing fits the filter"
			     : " nothing there yet: no guarded program has made a connection",
			(int)width);
	if (detail > 1) {
		int y = 2 + (int)(body - detail);
		mvhline(y, 0, '-', (int)width);
		wrap(s->detail, width, true, y + 1, s->detail_from, detail - 1);
	}
	attron(A_BOLD);
	wrap(s->message, width, true, (int)(height - bottom), 0, message_lines);
	attroff(A_BOLD);
	attr_t attr = s->question ? A_REVERSE : A_NORMAL;
	attron(attr);
	wrap(foot, width, true, (int)(height - foot_lines), 0, foot_lines);
	attroff(attr);
	refresh();
}
