/* See fault_read.h. */
#include "policy/fault_read.h"

#include <errno.h>

#include "base/errname.h"
#include "policy/parse.h"
#include "policy/pattern.h"
#include "policy/value.h"
#include "policy/words.h"

enum param_kind {
	PARAM_DURATION,
	PARAM_COUNT,
	PARAM_LIMIT,
	PARAM_CHOICE,
	PARAM_SIZE,
	PARAM_SHARE,
	PARAM_ERRNO,
	PARAM_CALLS
};

static const char *const distribution_choices[] = {"uniform", "normal", "pareto", NULL};
static const char *const direction_choices[] = {"both", "up", "down", NULL};
static const char *const error_choices[] = {"again", "noname", "fail", "none", NULL};
static const char *const call_names[] = {"connect", "resolve", "send", "recv", NULL};

static const char *const *choices_of(enum fault_param param)
{
	return param == FAULT_DISTRIBUTION ? distribution_choices
	       : param == FAULT_DIRECTION  ? direction_choices
	       : param == FAULT_ERROR	   ? error_choices
					   : NULL;
}

static const struct {
	const char *name, *initial;
	uint64_t min, max;
	enum param_kind kind;
} params[FAULT_PARAM_COUNT] = {
#define X(id, text, type, first, low, high, sentence)                                                                  \
	[FAULT_##id] = {.name = (text), .initial = (first), .min = (low), .max = (high), .kind = PARAM_##type},
	FAULT_PARAMS(X)
#undef X
};

#define HAS_DELAY (1u << FAULT_DELAY)
#define HAS_JITTER (1u << FAULT_JITTER)
#define HAS_DISTRIBUTION (1u << FAULT_DISTRIBUTION)
#define HAS_RATE (1u << FAULT_RATE)
#define HAS_DIRECTION (1u << FAULT_DIRECTION)
#define HAS_AFTER_BYTES (1u << FAULT_AFTER_BYTES)
#define HAS_BYTES (1u << FAULT_BYTES)
#define HAS_SIZE (1u << FAULT_SIZE)
#define HAS_SHARE (1u << FAULT_SHARE)
#define HAS_ERRNO (1u << FAULT_ERRNO)
#define HAS_ERROR (1u << FAULT_ERROR)
#define HAS_STATUS (1u << FAULT_STATUS)
#define AT_CONNECT (1u << FAULT_AT_CONNECT)
#define AT_RESOLVE (1u << FAULT_AT_RESOLVE)
#define AT_SEND (1u << FAULT_AT_SEND)
#define AT_RECV (1u << FAULT_AT_RECV)
/* Those that say when: of any type. */
#define WHENEVER (~0u << FAULT_WHEN)

static const struct {
	const char *name;
	uint32_t has, needs, at, unless_told;
} types[FAULT_TYPE_COUNT] = {
#define X(id, text, can, must, legal, first, sentence)                                                                 \
	[FAULT_IS_##id] = {.name = (text), .has = (can), .needs = (must), .at = (legal), .unless_told = (first)},
	FAULT_TYPES(X)
#undef X
};

const char *const fault_type_names[FAULT_TYPE_COUNT + 1] = {
#define X(id, text, can, must, legal, first, sentence) text,
	FAULT_TYPES(X)
#undef X
		NULL};
const char *const fault_param_names[FAULT_PARAM_COUNT + 1] = {
#define X(id, text, kind, initial, min, max, sentence) text,
	FAULT_PARAMS(X)
#undef X
		NULL};

/* Errors that each call may end with (connect(2), send(2), recv(2), tcp(7)); EAGAIN and EINTR only where the socket's
 * mode lets them be, which is seen at the call. */
static const struct {
	int number;
	uint32_t at;
} errnos[] = {
	{ECONNREFUSED, AT_CONNECT},
	{EHOSTUNREACH, AT_CONNECT | AT_SEND | AT_RECV},
	{ENETUNREACH, AT_CONNECT | AT_SEND},
	{EHOSTDOWN, AT_CONNECT},
	{ENETDOWN, AT_CONNECT | AT_SEND},
	{ETIMEDOUT, AT_CONNECT | AT_SEND | AT_RECV},
	{ECONNRESET, AT_CONNECT | AT_SEND | AT_RECV},
	{EADDRNOTAVAIL, AT_CONNECT},
	{EADDRINUSE, AT_CONNECT},
	{EACCES, AT_CONNECT},
	{EPERM, AT_CONNECT},
	{EPIPE, AT_SEND},
	{ENOBUFS, AT_CONNECT | AT_SEND},
	{ENOMEM, AT_CONNECT | AT_SEND | AT_RECV},
	{EAGAIN, AT_SEND | AT_RECV},
	{EINTR, AT_SEND | AT_RECV},
};
#define ERRNOS (sizeof errnos / sizeof errnos[0])

static int find(const char *const *names, const char *s, size_t n)
{
	for (int i = 0; names[i]; i++)
		if (value_is(s, n, names[i]))
			return i;
	return -1;
}

int fault_find_type(const char *s, size_t n)
{
	return find(fault_type_names, s, n);
}

int fault_find_param(const char *s, size_t n)
{
	return find(fault_param_names, s, n);
}

const char *fault_type_name(enum fault_type type)
{
	return (unsigned)type < FAULT_TYPE_COUNT ? types[type].name : "unknown";
}

const char *fault_param_name(enum fault_param param)
{
	return params[param].name;
}

bool fault_name_is_right(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char c = s[i];
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
			    c == '_' || c == '-'))
			return false;
	}
	return n > 0 && n <= FAULT_NAME_MAX;
}

/* ---- values ---- */

static size_t digits(const char *s, size_t n, size_t at, uint64_t *value)
{
	uint64_t v = 0;
	size_t from = at;
	for (; at < n && s[at] >= '0' && s[at] <= '9'; at++)
		v = v > UINT64_MAX / 16 ? UINT64_MAX / 16 : v * 10 + (uint64_t)(s[at] - '0');
	*value = v;
	return at - from;
}

static void size_text(struct text *t, uint64_t n)
{
	static const char units[] = "kMG";
	int unit = -1;
	while (n > 0 && n % 1024 == 0 && unit < 2) {
		n /= 1024;
		unit++;
	}
	text_u64(t, n);
	if (unit >= 0)
		text_char(t, units[unit]);
}

/* "100", "64k", "2M", "1G". */
static bool read_size(enum fault_param param, const char *s, size_t n, uint64_t *value, struct fault *why)
{
	static const char units[3] = {'k', 'M', 'G'}, habits[3] = {'K', 'm', 'g'};
	uint64_t number, times = 1;
	size_t at = digits(s, n, 0, &number);
	bool is_number = at > 0;
	if (is_number && at + 1 == n) {
		const char *unit = memchr(units, s[at], sizeof units);
		const char *habit = memchr(habits, s[at], sizeof habits);
		if (unit)
			times = 1ULL << 10 * (unit - units + 1);
		else if (habit)
			text_fmt(&why->suggestion, "%llu%c", (unsigned long long)number, units[habit - habits]);
		at += unit != NULL;
	}
	if (!is_number || at < n) {
		text_fmt(&why->what, "%s: not a number of bytes", params[param].name);
		text_str(&why->accepted, "a whole number, with k, M or G for the powers of 1024, such as 64k");
		return false;
	}
	*value = number > UINT64_MAX / times ? UINT64_MAX : number * times;
	if (*value >= params[param].min && *value <= params[param].max)
		return true;
	text_fmt(&why->what, "%s is out of range", params[param].name);
	size_text(&why->accepted, params[param].min);
	text_str(&why->accepted, " to ");
	size_text(&why->accepted, params[param].max);
	return false;
}

static void share_text(struct text *t, uint64_t millionths)
{
	uint64_t rest = millionths % 10000;
	text_u64(t, millionths / 10000);
	if (rest) {
		unsigned places = 4;
		while (rest % 10 == 0) {
			rest /= 10;
			places--;
		}
		text_char(t, '.');
		text_padded(t, rest, places);
	}
	text_char(t, '%');
}

/* "30%", "0.1%", at most four decimals. */
static bool read_share(enum fault_param param, const char *s, size_t n, uint64_t *value, struct fault *why)
{
	uint64_t whole, part = 0;
	size_t at = digits(s, n, 0, &whole), decimals = 0;
	bool is_number = at > 0;
	if (is_number && at < n && s[at] == '.') {
		decimals = digits(s, n, at + 1, &part);
		is_number = decimals > 0 && decimals <= 4;
		at += 1 + decimals;
	}
	for (size_t i = decimals; i < 4; i++)
		part *= 10;
	if (is_number && at + 1 == n && s[at] == '%' && whole <= 100 && whole * 10000 + part <= 1000000) {
		*value = whole * 10000 + part;
		return true;
	}
	bool lacks_sign = is_number && at == n && whole <= 100 && whole * 10000 + part <= 1000000;
	text_fmt(&why->what, lacks_sign ? "%s: a percent sign is due" : "%s: not a percentage", params[param].name);
	text_str(&why->accepted, "0% to 100%, with at most four decimals");
	if (lacks_sign) {
		text_bytes(&why->suggestion, s, n);
		text_char(&why->suggestion, '%');
	}
	return false;
}

static bool read_errno(const char *s, size_t n, uint64_t *value, struct fault *why)
{
	const char *names[ERRNOS + 1];
	for (size_t i = 0; i < ERRNOS; i++) {
		names[i] = errname(errnos[i].number);
		if (value_is(s, n, names[i])) {
			*value = (uint64_t)errnos[i].number;
			return true;
		}
	}
	names[ERRNOS] = NULL;
	text_str(&why->what, "errno: not an error of connect, send or recv");
	words_list_text(&why->accepted, names);
	const char *nearest = complain_nearest(s, n, names);
	if (nearest)
		text_str(&why->suggestion, nearest);
	return false;
}

/* "send", "send|recv", "send, recv". */
static bool read_calls(const char *s, size_t n, uint64_t *value, struct fault *why)
{
	*value = 0;
	for (size_t at = 0; at <= n;) {
		size_t begin = at;
		while (at < n && s[at] != '|' && s[at] != ',' && s[at] != ' ')
			at++;
		int call = find(call_names, s + begin, at - begin);
		if (call >= 0) {
			*value |= 1u << call;
		} else if (at > begin || at == n) {
			if (at == begin && *value)
				break;
			text_str(&why->what, "calls: unknown call");
			text_str(&why->accepted, "connect, resolve, send or recv; several with | between them");
			why->part = s + begin;
			why->part_len = at - begin;
			const char *nearest = complain_nearest(s + begin, at - begin, call_names);
			if (nearest)
				text_str(&why->suggestion, nearest);
			return false;
		}
		at++;
	}
	return true;
}

static struct value_row row_of(enum fault_param param)
{
	enum param_kind kind = params[param].kind;
	return (struct value_row){.name = params[param].name,
		.initial = params[param].initial,
		.choices = choices_of(param),
		.min = params[param].min,
		.max = params[param].max,
		.type = kind == PARAM_DURATION ? VALUE_DURATION
			: kind == PARAM_CHOICE ? VALUE_CHOICE
					       : VALUE_COUNT};
}

bool fault_read_param(enum fault_param param, const char *s, size_t n, uint64_t *value, struct fault *why)
{
	const struct value_row row = row_of(param);
	struct value read = {.number = 0};
	bool is_right;
	if (n == 0) {
		text_fmt(&why->what, "%s has no value", params[param].name);
		text_str(&why->accepted, params[param].initial);
		return false;
	}
	switch (params[param].kind) {
	case PARAM_SIZE: return read_size(param, s, n, value, why);
	case PARAM_SHARE: return read_share(param, s, n, value, why);
	case PARAM_ERRNO: return read_errno(s, n, value, why);
	case PARAM_CALLS: return read_calls(s, n, value, why);
	case PARAM_LIMIT:
		if (value_is(s, n, "unlimited")) {
			*value = FAULT_UNLIMITED;
			return true;
		}
		break;
	case PARAM_DURATION:
	case PARAM_COUNT:
	case PARAM_CHOICE: break;
	}
	is_right = value_read(&row, s, n, &read, why);
	if (!is_right && params[param].kind == PARAM_LIMIT)
		text_str(&why->accepted, ", or unlimited");
	*value = read.number;
	return is_right;
}

static void calls_text(struct text *t, uint64_t mask)
{
	const char *before = "";
	for (int call = 0; call < FAULT_CALL_COUNT; call++) {
		if (!(mask >> call & 1))
			continue;
		text_fmt(t, "%s%s", before, call_names[call]);
		before = "|";
	}
}

void fault_value_text(struct text *t, const struct fault_rule *f, enum fault_param param)
{
	uint64_t v = f->value[param];
	const struct value_row row = row_of(param);
	struct value value = {.number = v};
	switch (params[param].kind) {
	case PARAM_SIZE: size_text(t, v); return;
	case PARAM_SHARE: share_text(t, v); return;
	case PARAM_ERRNO: text_str(t, errname((int)v)); return;
	case PARAM_CALLS: calls_text(t, v); return;
	case PARAM_LIMIT:
		if (v == FAULT_UNLIMITED)
			text_str(t, "unlimited");
		else
			text_u64(t, v);
		return;
	case PARAM_DURATION:
	case PARAM_COUNT:
	case PARAM_CHOICE: value_text(t, &row, &value); return;
	}
}

/* ---- a whole one ---- */

void fault_complain_type(struct complaints *out, uint32_t line, const char *s, size_t n)
{
	struct fault why;
	fault_clear(&why);
	text_str(&why.what, n ? "unknown type of fault" : "a fault needs a type");
	words_list_text(&why.accepted, fault_type_names);
	const char *nearest = complain_nearest(s, n, fault_type_names);
	if (nearest)
		text_str(&why.suggestion, nearest);
	complain(out, line, &why, n ? s : NULL, n);
}

void fault_complain_param(struct complaints *out, uint32_t line, const char *place, const char *s, size_t n)
{
	struct fault why;
	fault_clear(&why);
	text_fmt(&why.what, "unknown key in %s", place);
	text_str(&why.accepted, place[0] == '[' ? "match, type, " : "name, ");
	words_list_text(&why.accepted, fault_param_names);
	const char *nearest = complain_nearest(s, n, fault_param_names);
	if (nearest)
		text_str(&why.suggestion, nearest);
	complain(out, line, &why, s, n);
}

static void list_params(struct text *t, uint32_t mask)
{
	const char *before = "";
	for (int i = 0; i < FAULT_WHEN; i++) {
		if (!(mask >> i & 1))
			continue;
		text_fmt(t, "%s%s", before, params[i].name);
		before = ", ";
	}
}

/* A parameter of other types: which ones. */
static void complain_misplaced(struct complaints *out, uint32_t line, const struct fault_rule *f, int param)
{
	struct fault why;
	const char *before = "";
	fault_clear(&why);
	text_fmt(&why.what, "%s is no parameter of %s", params[param].name, types[f->type].name);
	if (types[f->type].has) {
		text_fmt(&why.accepted, "%s takes ", types[f->type].name);
		list_params(&why.accepted, types[f->type].has);
	} else {
		text_fmt(&why.accepted, "%s takes none", types[f->type].name);
	}
	text_fmt(&why.accepted, "; %s is of ", params[param].name);
	for (int type = 0; type < FAULT_TYPE_COUNT; type++) {
		if (!(types[type].has >> param & 1))
			continue;
		text_fmt(&why.accepted, "%s%s", before, types[type].name);
		before = ", ";
	}
	if (!before[0])
		text_str(&why.accepted, "none that this version has");
	complain(out, line, &why, NULL, 0);
}

static bool complain_missing(struct complaints *out, uint32_t line, const struct fault_rule *f, uint32_t missing)
{
	struct fault why;
	fault_clear(&why);
	text_fmt(&why.what, "fault %s: %s needs ", f->name, types[f->type].name);
	list_params(&why.what, missing);
	for (int i = 0; i < FAULT_WHEN; i++)
		if (missing >> i & 1)
			text_fmt(&why.accepted, "such as %s",
				i == FAULT_DELAY    ? "delay = 200ms"
				: i == FAULT_RATE   ? "rate = 64k"
				: i == FAULT_SHARE  ? "share = 0.1%"
				: i == FAULT_ERRNO  ? "errno = ECONNRESET"
				: i == FAULT_STATUS ? "status = 503"
				: i == FAULT_SIZE   ? "size = 10"
						    : "bytes = 1k");
	complain(out, line, &why, NULL, 0);
	return false;
}

static uint32_t calls_of_errno(uint64_t number)
{
	for (size_t i = 0; i < ERRNOS; i++)
		if ((uint64_t)errnos[i].number == number)
			return errnos[i].at;
	return 0;
}

/* The calls it may be at: of the type, and of the error. */
static bool settle_calls(struct fault_rule *f, struct complaints *out, uint32_t line)
{
	bool has_errno = f->type == FAULT_IS_ERRNO;
	uint32_t may = types[f->type].at & (has_errno ? calls_of_errno(f->value[FAULT_ERRNO]) : ~0u);
	uint32_t first = has_errno ? (may & AT_CONNECT ? AT_CONNECT : may) : types[f->type].unless_told;
	if (!(f->set >> FAULT_CALLS & 1)) {
		f->value[FAULT_CALLS] = first;
		return true;
	}
	if ((f->value[FAULT_CALLS] & ~(uint64_t)may) == 0)
		return true;
	struct fault why;
	fault_clear(&why);
	text_str(&why.what, "calls: ");
	calls_text(&why.what, f->value[FAULT_CALLS] & ~(uint64_t)may);
	text_fmt(&why.what, " never ends with %s",
		has_errno ? errname((int)f->value[FAULT_ERRNO]) : types[f->type].name);
	calls_text(&why.accepted, may);
	text_str(&why.accepted, " can");
	complain(out, line, &why, NULL, 0);
	return false;
}

bool fault_settle(struct fault_rule *f, struct complaints *out, const uint32_t *lines, uint32_t line)
{
	uint32_t wrong = f->set & ~(types[f->type].has | WHENEVER), missing = types[f->type].needs & ~f->set;
	for (int i = 0; i < FAULT_PARAM_COUNT; i++)
		if (wrong >> i & 1)
			complain_misplaced(out, lines ? lines[i] : line, f, i);
	if (missing)
		return complain_missing(out, line, f, missing);
	if (wrong)
		return false;
	for (int i = 0; i < FAULT_PARAM_COUNT; i++) {
		struct fault unused;
		fault_clear(&unused);
		if (!(f->set >> i & 1) && params[i].initial[0])
			fault_read_param((enum fault_param)i, params[i].initial, strlen(params[i].initial),
				&f->value[i], &unused);
	}
	/* Of an answer, unless it is said otherwise. */
	if ((f->type == FAULT_IS_LIMIT_DATA || f->type == FAULT_IS_RESET) && !(f->set >> FAULT_DIRECTION & 1))
		f->value[FAULT_DIRECTION] = FAULT_DOWN;
	if (f->type == FAULT_IS_DNS && f->value[FAULT_ERROR] == FAULT_NO_ERROR && !f->value[FAULT_DELAY]) {
		complain_plain(out, line, "a dns fault without an error has a delay", NULL, 0,
			"error = again, noname or fail, or delay = 2s");
		return false;
	}
	return settle_calls(f, out, lines && lines[FAULT_CALLS] ? lines[FAULT_CALLS] : line);
}

/* ---- specifications ---- */

/* The next word; false: there is none. */
static bool next_word(const char **at, const char *end, const char **word, size_t *n)
{
	const char *s = *at;
	while (s < end && parse_is_blank(*s))
		s++;
	*word = s;
	while (s < end && !parse_is_blank(*s))
		s++;
	*n = (size_t)(s - *word);
	*at = s;
	return *n > 0;
}

static bool has_name(const struct config *c, const char *name)
{
	for (uint32_t i = 0; i < c->fault_count; i++)
		if (strcmp(c->faults[i].name, name) == 0)
			return true;
	return false;
}

/* By its type, and where that is taken, numbered. */
static void give_name(const struct config *c, struct fault_rule *f)
{
	for (unsigned number = 1; number <= CONFIG_FAULTS_MAX + 1; number++) {
		struct text t = TEXT_ON(f->name);
		text_str(&t, types[f->type].name);
		if (number > 1)
			text_fmt(&t, "-%u", number);
		if (!has_name(c, f->name))
			return;
	}
}

static bool read_destination(struct config *c, struct fault_rule *f, const char *s, size_t n, struct complaints *out)
{
	f->match.first = c->pattern_count;
	while (n > 0) {
		const char *comma = memchr(s, ',', n);
		size_t len = comma ? (size_t)(comma - s) : n;
		struct pattern pattern;
		struct fault why;
		fault_clear(&why);
		if (c->pattern_count == c->pattern_room) {
			complain_plain(out, 0, "too many patterns", s, len, "at most 4096 in all");
			return false;
		}
		bool is_read = pattern_read(&pattern, c, s, len, &why);
		if (is_read && pattern.kind == PATTERN_SNI)
			is_read = pattern_refuse_said(&why);
		if (!is_read) {
			complain(out, 0, &why, s, len);
			return false;
		}
		c->patterns[c->pattern_count++] = pattern;
		f->match.count++;
		f->match.has_exe |= pattern.kind == PATTERN_EXE;
		f->match.has_place |= pattern.kind != PATTERN_EXE;
		s += comma ? len + 1 : len;
		n -= comma ? len + 1 : len;
	}
	return true;
}

static bool read_attribute(struct config *c, struct fault_rule *f, const char *s, size_t n, struct complaints *out)
{
	const char *sign = memchr(s, '=', n);
	size_t name = sign ? (size_t)(sign - s) : n;
	const char *value = sign ? sign + 1 : s + n;
	size_t len = n - (size_t)(value - s);
	struct fault why;
	fault_clear(&why);
	if (!sign) {
		complain_plain(out, 0, "not key=value", s, n, "TYPE DESTINATION [KEY=VALUE]...");
		return false;
	}
	if (value_is(s, name, "name")) {
		char given[FAULT_NAME_MAX + 1];
		if (!fault_name_is_right(value, len)) {
			complain_plain(out, 0, "not a fault's name", value, len,
				"at most 31 letters, digits, '.', '_' and '-'");
			return false;
		}
		memcpy(given, value, len);
		given[len] = '\0';
		if (has_name(c, given)) {
			complain_plain(out, 0, "another fault has this name", value, len, NULL);
			return false;
		}
		memcpy(f->name, given, len + 1);
		return true;
	}
	int param = fault_find_param(s, name);
	if (param < 0) {
		fault_complain_param(out, 0, "a fault", s, name);
		return false;
	}
	if (f->set >> param & 1) {
		complain_plain(out, 0, "is there twice", s, name, NULL);
		return false;
	}
	f->set |= 1u << param;
	if (fault_read_param((enum fault_param)param, value, len, &f->value[param], &why))
		return true;
	complain(out, 0, &why, value, len);
	return false;
}

void fault_read_spec(struct config *c, const char *s, size_t n, struct complaints *out)
{
	const char *end = s + n, *word;
	size_t len;
	struct fault_rule f = {.line = 0};
	bool is_right = true;
	if (n > FAULT_SPEC_MAX) {
		complain_plain(out, 0, "the fault is too long", s, n, "at most 511 bytes");
		return;
	}
	if (!next_word(&s, end, &word, &len))
		return;
	int type = fault_find_type(word, len);
	if (type < 0) {
		fault_complain_type(out, 0, word, len);
		return;
	}
	f.type = (uint8_t)type;
	if (!next_word(&s, end, &word, &len) || memchr(word, '=', len)) {
		complain_plain(out, 0, "a fault needs a destination", word, len,
			"TYPE DESTINATION [KEY=VALUE]..., such as refuse api.internal:443, or * for everything");
		return;
	}
	is_right = read_destination(c, &f, word, len, out);
	while (next_word(&s, end, &word, &len))
		is_right &= read_attribute(c, &f, word, len, out);
	if (!f.name[0])
		give_name(c, &f);
	is_right = is_right && fault_settle(&f, out, NULL, 0);
	if (is_right && c->fault_count == c->fault_room)
		complain_plain(out, 0, "too many faults", NULL, 0, "at most 64");
	else if (is_right)
		c->faults[c->fault_count++] = f;
}

void fault_read_specs(struct config *c, const char *specs, struct complaints *out)
{
	for (const char *s = specs; *s;) {
		size_t n = strcspn(s, "\n");
		fault_read_spec(c, s, n, out);
		s += n + (s[n] == '\n');
	}
}
