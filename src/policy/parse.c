/* The INI text: read line by line through inih, with the lines counted here, since inih's handler gets no number, cuts
 * long lines and names, and says of a bad line only that there was one. Called by config_load on its caller's thread;
 * all state is in struct parse on the stack.
 *
 * A line that is no comment is one of
 *    [section]      taken here (inih would cut its name at 49 bytes); inih is shown `[]` and forgets the last key
 *    key = value    taken by inih; an indented one is shown without its indent, or inih would add it to the value above
 *        more       indented, after a value that ended in a comma: goes on with that list (inih calls the handler with
 *                   the same name again) */
#include "policy/parse.h"

#include <ini.h>

#define NAME_MAX_INIH 49 /* inih's names are cut beyond */

/* The length without a comment: a ';' after a blank, as inih has it. */
static size_t before_comment(const char *s, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (s[i] == ';' && parse_is_blank(s[i - 1]))
			return i;
	return n;
}

/* --- sections --- */

static void leave_fault(struct parse *p)
{
	struct fault f;
	fault_clear(&f);
	if (!p->has_match_key) {
		text_fmt(&f.what, "[fault %s] matches nothing", p->fault->name);
		text_str(&f.accepted, "a line such as match = host:443, or match = * for everything");
		complain(p->out, p->header_line, &f, NULL, 0);
	}
	if (!p->seen[SEEN_TYPE]) {
		text_fmt(&f.what, "[fault %s] has no type", p->fault->name);
		for (int i = 0; i < FAULT_TYPE_COUNT; i++)
			text_fmt(&f.accepted, "%s%s",
				i == 0			   ? "type = "
				: i + 1 < FAULT_TYPE_COUNT ? ", "
							   : " or ",
				fault_type_names[i]);
		if (p->has_match_key)
			complain(p->out, p->header_line, &f, NULL, 0);
	} else if (!p->is_wrong) {
		fault_settle(p->fault, p->out, p->seen, p->header_line);
	}
}

/* What only the end of a section shows. */
static void leave_section(struct parse *p)
{
	if (p->place == PLACE_DESTINATION && !p->has_match_key) {
		struct fault f;
		fault_clear(&f);
		text_fmt(&f.what, "[destination %s] matches nothing", p->section->policy.section);
		text_str(&f.accepted, "a line such as match = host:443, or match = * for everything");
		complain(p->out, p->header_line, &f, NULL, 0);
	}
	if (p->place == PLACE_FAULT)
		leave_fault(p);
}

static void enter_destination(struct parse *p, const char *name, size_t n)
{
	struct config *c = p->config;
	if (n == 0) {
		complain_plain(p->out, p->line, "a destination needs a name", "destination", 11, "[destination NAME]");
		return;
	}
	if (n > CONFIG_SECTION_MAX) {
		complain_plain(p->out, p->line, "the name is too long", name, n, "at most 63 bytes");
		return;
	}
	for (uint32_t i = 0; i < c->section_count; i++) {
		if (parse_is(name, n, c->sections[i].policy.section)) {
			char header[CONFIG_SECTION_MAX + 20];
			struct text t = TEXT_ON(header);
			text_fmt(&t, "[destination %s]", c->sections[i].policy.section);
			assign_twice(p, header, t.len, c->sections[i].policy.line);
			break;
		}
	}
	if (c->section_count == c->section_room) {
		if (!p->has_said_sections)
			complain_plain(p->out, p->line, "too many sections", NULL, 0, "at most 511 destinations");
		p->has_said_sections = true;
		return;
	}
	p->place = PLACE_DESTINATION;
	p->section = &c->sections[c->section_count++];
	memcpy(p->section->policy.section, name, n);
	p->section->policy.line = p->line;
	p->match = &p->section->match;
	p->match->first = c->pattern_count;
}

static void enter_fault(struct parse *p, const char *name, size_t n)
{
	struct config *c = p->config;
	if (!fault_name_is_right(name, n)) {
		complain_plain(p->out, p->line, n ? "not a fault's name" : "a fault needs a name", n ? name : "fault",
			n ? n : 5, "[fault NAME], at most 31 letters, digits, '.', '_' and '-'");
		return;
	}
	for (uint32_t i = 0; i < c->fault_count; i++) {
		if (parse_is(name, n, c->faults[i].name)) {
			char header[FAULT_NAME_MAX + 20];
			struct text t = TEXT_ON(header);
			text_fmt(&t, "[fault %s]", c->faults[i].name);
			assign_twice(p, header, t.len, c->faults[i].line);
			break;
		}
	}
	if (c->fault_count == c->fault_room) {
		complain_plain(p->out, p->line, "too many faults", NULL, 0, "at most 64");
		return;
	}
	p->place = PLACE_FAULT;
	p->fault = &c->faults[c->fault_count++];
	p->is_wrong = false;
	memcpy(p->fault->name, name, n);
	p->fault->line = p->line;
	p->match = &p->fault->match;
	p->match->first = c->pattern_count;
}

static void enter_unknown(struct parse *p, const char *kind, size_t n, const char *whole, size_t whole_len)
{
	static const char *const kinds[] = {"resil", "defaults", "destination", "fault", NULL};
	struct fault f;
	fault_clear(&f);
	text_str(&f.what, "unknown section");
	text_str(&f.accepted, "[resil], [defaults], [destination NAME] or [fault NAME]");
	const char *nearest = complain_nearest(kind, n, kinds);
	if (nearest)
		text_fmt(&f.suggestion, "[%s%s]", nearest, nearest == kinds[2] || nearest == kinds[3] ? " NAME" : "");
	complain(p->out, p->line, &f, whole, whole_len);
}

/* A line that means to begin a section. Until it is known which, keys under it are not judged. */
static void begin_section(struct parse *p)
{
	leave_section(p);
	p->place = PLACE_UNKNOWN;
	p->header_line = p->line;
	p->list = LIST_NONE;
	p->is_list_open = p->has_match_key = false;
	memset(p->seen, 0, sizeof p->seen);
}

/* s: what stands between the brackets. */
static void enter_section(struct parse *p, const char *s, size_t n)
{
	begin_section(p);
	parse_strip(&s, &n);
	size_t kind = 0;
	while (kind < n && !parse_is_blank(s[kind]))
		kind++;
	const char *name = s + kind;
	size_t name_len = n - kind;
	parse_strip(&name, &name_len);

	bool is_resil = parse_is(s, kind, "resil"), is_defaults = parse_is(s, kind, "defaults");
	if (parse_is(s, kind, "destination")) {
		enter_destination(p, name, name_len);
	} else if (parse_is(s, kind, "fault")) {
		enter_fault(p, name, name_len);
	} else if ((is_resil || is_defaults) && name_len > 0) {
		complain_plain(
			p->out, p->line, "this section takes no name", s, n, is_resil ? "[resil]" : "[defaults]");
	} else if (is_resil || is_defaults) {
		uint32_t *first = is_resil ? &p->resil_line : &p->defaults_line;
		if (*first)
			assign_twice(p, is_resil ? "[resil]" : "[defaults]", is_resil ? 7 : 10, *first);
		else
			*first = p->line;
		p->place = is_resil ? PLACE_RESIL : PLACE_DEFAULTS;
		p->section = &p->config->defaults;
	} else {
		enter_unknown(p, s, kind, s, n);
	}
}

/* inih's handler. section is not looked at: names over 49 bytes are cut there. */
static int take_key(void *user, const char *section, const char *name, const char *value)
{
	struct parse *p = user;
	size_t n = strlen(value);
	(void)section;
	p->is_unanswered = false;
	n = before_comment(value, n); /* inih leaves them on continued lines */
	parse_strip(&value, &n);
	if (p->is_continuation) {
		assign_more(p, value, n);
	} else {
		/* Under a section that was refused nothing is judged, lists are followed all the same. */
		bool is_list = parse_is(name, strlen(name), "match") || parse_is(name, strlen(name), "skip_exe");
		p->list = is_list ? LIST_IGNORED : LIST_NONE;
		if (p->place != PLACE_UNKNOWN)
			assign_key(p, name, strlen(name), value, n);
	}
	p->is_list_open = n > 0 && value[n - 1] == ',' && p->list != LIST_NONE;
	return 1;
}

/* --- lines --- */

/* A header, s at its bracket. One that is none is said to be so, and its keys are not judged. */
static void take_header(struct parse *p, const char *s, size_t n)
{
	const char *close = memchr(s, ']', n);
	if (!close) {
		begin_section(p);
		complain_plain(p->out, p->line, "a section without its closing bracket", s, n,
			"[resil], [defaults], [destination NAME] or [fault NAME]");
		return;
	}
	const char *rest = close + 1;
	size_t left = n - (size_t)(rest - s);
	parse_strip(&rest, &left);
	enter_section(p, s + 1, (size_t)(close - s) - 1);
	if (left > 0 && rest[0] != ';' && rest[0] != '#')
		complain_plain(p->out, p->line, "text after a section's closing bracket", rest, left,
			"a comment, or a line of its own");
}

/* A line that inih would cut, or answer with nothing. True: it was refused. */
static bool refuse_line(struct parse *p, const char *s, size_t n, size_t most)
{
	if (n > most) {
		struct fault f;
		fault_clear(&f);
		text_fmt(&f.what, "the line is too long: %u bytes", (unsigned)n);
		text_fmt(&f.accepted, "at most %u; match and skip_exe go on over indented lines after a comma",
			(unsigned)most);
		complain(p->out, p->line, &f, s, n);
		p->has_match_key = true; /* perhaps: one fault a line */
		return true;
	}
	size_t name = 0;
	while (name < n && s[name] != '=' && s[name] != ':')
		name++;
	size_t trimmed = name;
	while (trimmed > 0 && parse_is_blank(s[trimmed - 1]))
		trimmed--;
	if (name < n && trimmed > 0 && (trimmed <= NAME_MAX_INIH || p->place == PLACE_UNKNOWN))
		return false;
	if (name == n)
		complain_plain(p->out, p->line, "neither a section nor key = value", s, n,
			p->is_list_open ? "a list goes on over the next line when that is indented" : "");
	else if (trimmed == 0)
		complain_plain(p->out, p->line, "no key before the sign", s, n, "key = value");
	else if (p->place == PLACE_NOWHERE)
		complain_plain(p->out, p->line, "a key before any section", s, trimmed,
			"under [resil], [defaults], [destination NAME] or [fault NAME]");
	else
		assign_unknown(p->out, p->line, p->place, s, trimmed);
	return true;
}

static void complain_unanswered(struct parse *p)
{
	if (p->is_unanswered)
		complain_plain(p->out, p->line, "neither a section nor key = value", NULL, 0, "");
	p->is_unanswered = false;
}

/* inih's reader, like fgets: one line into to, or null at the end. */
static char *next_line(char *to, int cap, void *user)
{
	struct parse *p = user;
	complain_unanswered(p);
	if (p->at >= p->end || p->out->count >= COMPLAIN_MOST || cap < 8)
		return NULL;

	const char *s = p->at, *newline = memchr(s, '\n', (size_t)(p->end - s));
	size_t n = newline ? (size_t)(newline - s) : (size_t)(p->end - s);
	p->at = newline ? newline + 1 : p->end;
	p->line++;
	if (p->line == 1 && n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0) {
		s += 3;
		n -= 3;
	}
	bool is_indented = n > 0 && parse_is_blank(s[0]);
	parse_strip(&s, &n);

	/* An empty line tells inih nothing. */
	to[0] = '\0';
	if (n == 0 || s[0] == ';' || s[0] == '#')
		return to;
	size_t most = (size_t)cap - 3 < CONFIG_LINE_MAX ? (size_t)cap - 3 : CONFIG_LINE_MAX;
	p->is_continuation = is_indented && p->is_list_open;
	if (s[0] == '[' && !p->is_continuation) {
		if (n > most)
			refuse_line(p, s, n, most);
		else
			take_header(p, s, n);
		memcpy(to, "[]", 3);
		return to;
	}
	if (p->is_continuation ? n > most : true) {
		if (refuse_line(p, s, n, most))
			return to;
	}
	struct text line = {.at = to, .cap = (size_t)cap};
	text_str(&line, p->is_continuation ? " " : "");
	text_bytes(&line, s, n);
	p->is_unanswered = true;
	return to;
}

void parse_file(struct config *c, const struct source_bytes *b, struct complaints *out)
{
	struct parse p = {.config = c, .out = out, .at = b->at, .end = b->at + b->len};
	/* inih's line buffer is a variable (200 bytes unless told otherwise), the same for every thread that reads. */
	__atomic_store_n(&ini_max_line, CONFIG_LINE_MAX + 3, __ATOMIC_RELAXED);
	ini_parse_stream(next_line, &p, take_key, &p);
	complain_unanswered(&p);
	leave_section(&p);
	if (out->count >= COMPLAIN_MOST)
		complain_plain(
			out, p.line, "too many faults: the rest was not read", NULL, 0, "a configuration of resil");
}
