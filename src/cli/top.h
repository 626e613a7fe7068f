/* resil top: what top.c (verb, keys), top_sample.c (rows and rates), top_screen.c (drawing) share. */
#ifndef RESIL_CLI_TOP_H
#define RESIL_CLI_TOP_H

#include "cli/cli.h"
#include "core/circuit.h"

#define TOP_HISTORY 60 /* samples that a sparkline can show */
#define TOP_FILTER_MAX 63

struct top_row {
	char user[40], group[65];
	struct circuit_view view;
	unsigned bypass;
	uint64_t calls, failures, rejected; /* as the last sample had them */
	unsigned samples;		    /* rates known, TOP_HISTORY at most */
	unsigned next;			    /* where the next one goes */
	float calls_per_s[TOP_HISTORY], failures_per_s[TOP_HISTORY], rejected_per_s[TOP_HISTORY];
};

enum top_sort { TOP_BY_STATE, TOP_BY_NAME, TOP_BY_CALLS, TOP_BY_ERRORS, TOP_BY_RETRY, TOP_BY_P99, TOP_SORTS };

struct top {
	struct options o;
	int64_t every_ns;
	struct top_row *rows; /* by group, user, name */
	size_t n;
	size_t *shown; /* indices, filtered and sorted */
	size_t shown_n;
	size_t groups;
	enum top_sort sort;
	char filter[TOP_FILTER_MAX + 1]; /* part of a destination's, group's or state's name */
	int64_t sampled_ns, sampled_wall_ns;
};

/* Reads all groups; rates are since the sample before. 0 or an exit code, said on stderr. */
int top_sample(struct top *t);
/* Chooses and orders `shown`. */
void top_arrange(struct top *t);
void top_free(struct top *t);
const char *top_sort_name(enum top_sort sort);
/* age: 0 is the newest sample. Negative: not known. */
float top_rate(const struct top_row *r, const float *ring, unsigned age);
/* "off:open", "open", "half_open", "forced_closed", ... */
void top_state_text(char *to, size_t cap, const struct top_row *r);
/* "-", "due", "962ms". */
void top_retry_text(char *to, size_t cap, const struct top_row *r);
/* "-", "0", "0.3", "12", "1.5k". */
void top_rate_text(char *to, size_t cap, float rate);
/* The story and the last events of a row's circuit, lines. */
void top_detail(struct text *text, const struct top *t, const struct top_row *r);
/* Sets it by hand in this row's group alone. reset: mode and for_ms do not matter. False: what hinders was said on
 * stderr. */
bool top_act(const struct top *t, const struct top_row *r, bool is_reset, enum breaker_mode mode, uint64_t for_ms);

/* The screen. False: this terminal cannot address its cursor. */
bool screen_begin(void);
void screen_end(void);
struct screen_view {
	const struct top *top;
	size_t selected; /* of shown */
	bool is_paused, has_detail;
	const char *detail; /* lines */
	unsigned detail_from;
	const char *question; /* on the last line; null: the keys */
	const char *message;  /* before it; "": none */
};
void screen_draw(const struct screen_view *view);
/* Waits at most that long for a key. Curses' codes; -1: none. */
int screen_key(int64_t wait_ns);
unsigned screen_page(void);

#endif
