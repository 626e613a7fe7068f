/* resil force, resil reset: a circuit set by hand. */
#include "cli/cli.h"

#include <string.h>

#include "base/clock.h"
#include "control/nearby.h"
#include "core/circuit.h"

static void report(const struct options *o, const struct group *g, uint32_t index)
{
	static char at[65536];
	struct circuit_view v;
	char state[64];

	circuit_view(&g->region, index, clock_now_ns(), &v);
	if (o->is_json) {
		struct text t = TEXT_ON(at);
		text_str(&t, "{\"group\":");
		text_json(&t, g->name);
		text_str(&t, ",\"user\":");
		text_json(&t, g->user);
		text_str(&t, ",\"destination\":");
		render_view(&t, &v);
		text_char(&t, '}');
		puts(at);
		return;
	}
	static const char *const headers[] = {"USER", "GROUP", "DEST", "STATE", "MODE"};
	size_t skip = o->all_users ? 0 : 1;
	state_text(state, sizeof state, &v);
	struct table *t = table_new(headers + skip, 5 - skip);
	const char *cells[] = {g->user, g->name, v.name, state, breaker_mode_name(circuit_shown_mode(&v))};
	table_style(t, 3 - (int)skip, 0);
	table_row(t, cells + skip);
	table_print(t);
}

/* Does it to every group that has the destination, and tells which in `where`. ctx: null: a reset, which leaves a mode
 * as it was. */
static int change(const struct options *o, const char *destination,
	void (*act)(struct region *r, uint32_t index, const void *ctx), const void *ctx, struct text *where)
{
	struct circuit_view v;
	struct groups g;
	size_t done = 0;
	int code = groups_open(&g, o, true);
	if (code)
		return code;
	for (size_t i = 0; i < g.n; i++) {
		int index = nearby_find(&g.at[i].region, destination);
		if (index < 0)
			continue;
		act(&g.at[i].region, (uint32_t)index, ctx);
		report(o, &g.at[i], (uint32_t)index);
		circuit_view(&g.at[i].region, (uint32_t)index, clock_now_ns(), &v);
		if (!ctx && v.mode != BREAKER_AUTO)
			fprintf(stderr, "resil: %s of group %s stays %s; 'resil force %s auto%s' undoes that\n", v.name,
				g.at[i].name, breaker_mode_name(v.mode), shell_word(v.name),
				options_again(o, g.at[i].name));
		text_fmt(where, "%s%s", done ? ", " : "", g.at[i].name);
		done++;
	}
	if (done == 0)
		code = groups_lack(&g, destination);
	groups_close(&g);
	return code;
}

static const struct mode {
	const char *name;
	enum breaker_mode mode;
} modes[] = {{"open", BREAKER_FORCED_OPEN}, {"closed", BREAKER_FORCED_CLOSED}, {"observe", BREAKER_OBSERVE},
	{"auto", BREAKER_AUTO}};

struct forcing {
	enum breaker_mode mode;
	uint64_t for_ms;
};

static void act_force(struct region *r, uint32_t index, const void *ctx)
{
	const struct forcing *f = ctx;
	circuit_force(r, index, f->mode, f->for_ms, clock_now_ns());
}

static int run_force(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, HOW_LONG, {0}};
	struct options o = {0};
	struct forcing f = {0};
	struct how_long how_long = {0};
	const struct mode *mode = NULL;
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		int code = how_long_take(verb, &how_long, option);
		if (code == OPTION_IS_ANOTHER)
			code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (argc - optind != 2)
		return usage_error(verb, "a destination and one of open, closed, observe, auto are due");
	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
		if (strcmp(argv[optind + 1], modes[i].name) == 0)
			mode = &modes[i];
	if (!mode)
		return usage_error(verb, "'%s' is no mode; open, closed, observe and auto are", argv[optind + 1]);
	if (mode->mode == BREAKER_AUTO && (how_long.for_ns || how_long.is_forever))
		return usage_error(verb, "auto holds from now on: it takes neither --for nor --forever");
	int wrong = mode->mode == BREAKER_AUTO
			    ? -1
			    : how_long_check(verb, &how_long,
				      ": the shared state outlives you and every program of the group,\nso a circuit "
				      "forced today would still be forced when all of them have been started anew");
	if (wrong >= 0)
		return wrong;
	f.mode = mode->mode;
	f.for_ms = (uint64_t)(how_long.for_ns / NS_PER_MS);
	char where_at[1024] = "";
	struct text where = TEXT_ON(where_at);
	int code = change(&o, argv[optind], act_force, &f, &where);
	if (code == EXIT_DONE && f.mode != BREAKER_AUTO)
		fprintf(stderr, "resil: set by hand in %s%s; undo it with: resil force %s auto%s\n", where_at,
			where.is_cut ? " and more" : "", shell_word(argv[optind]), options_again(&o, NULL));
	return code;
}

const struct verb verb_force = {
	.name = "force",
	.arguments = "DEST open|closed|observe|auto --for TIME|--forever [-g GROUP] [-p PID] [--all-users] [--json]",
	.summary = "sets a circuit by hand",
	.help = "open rejects every call, closed lets every call through, observe decides and counts but rejects "
		"nothing,\n"
		"auto gives the circuit back to its own rules. All processes of the group see it at their next "
		"call.\nWithout -g: in every group of yours that has used DEST; a destination that none has used "
		"cannot "
		"be set.\n\n"
		"Options:\n      --for TIME      until then (10m, 90s, 1h; at most 8760h)\n      --forever       until "
		"told "
		"otherwise; one of the two is due, but for auto\n" OPTIONS_HELP
		"\nExample:\n  resil force pay.internal:443 open --for 10m\n\n"
		"Exit codes: 0 done, 2 wrong usage, 3 no such destination or group, 4 not permitted.\n",
	.run = run_force,
};

static void act_reset(struct region *r, uint32_t index, const void *ctx)
{
	(void)ctx;
	circuit_reset(r, index, clock_now_ns());
}

static int run_reset(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, {0}};
	struct options o = {0};
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		int code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (argc - optind != 1)
		return usage_error(verb, "one destination is due");
	char where_at[1024] = "";
	struct text where = TEXT_ON(where_at);
	return change(&o, argv[optind], act_reset, NULL, &where);
}

const struct verb verb_reset = {
	.name = "reset",
	.arguments = "DEST [-g GROUP] [-p PID] [--all-users] [--json]",
	.summary = "closes a circuit and forgets its failure streak",
	.help = "Closes the circuit, with streak and back-off at zero. A mode set by 'resil force' stays, and "
		"is told; counters stay.\n\n"
		"Options:\n" OPTIONS_HELP "\nExample:\n  resil reset api.internal:443\n\n"
		"Exit codes: 0 done, 2 wrong usage, 3 no such destination or group, 4 not permitted.\n",
	.run = run_reset,
};
