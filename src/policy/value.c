/* See value.h. What a newcomer adds: a row in keys.h; here, for a CHOICE, its list of choices. */
#include "policy/value.h"

#include <string.h>

#include "base/clock.h"
#include "policy/route.h"
#include "policy/words.h"

static const char *const breaker_choices[] = {"on", "off", "observe", NULL};
static const char *const protocol_choices[] = {"auto", "http1", "h2", "request", "stream", "oneway", NULL};
static const char *const key_choices[] = {"origin", "address", "section", "method", "route", NULL};
static const char *const eject_choices[] = {"off", "on", NULL};
static const char *const adaptive_choices[] = {"off", "on", NULL};
static const char *const state_choices[] = {"shared", "private", NULL};
static const char *const control_choices[] = {"auto", "on", "off", NULL};

/* The choices of a CHOICE row by its enumerator; null for all other rows. */
#define CHOICES_OF_CHOICE(list) (list)
#define CHOICES_OF_DURATION(list) NULL
#define CHOICES_OF_DURATION_MS(list) NULL
#define CHOICES_OF_WAIT(list) NULL
#define CHOICES_OF_COUNT(list) NULL
#define CHOICES_OF_LIMIT(list) NULL
#define CHOICES_OF_FACTOR(list) NULL
#define CHOICES_OF_PERCENT(list) NULL
#define CHOICES_OF_ERRNO(list) NULL
#define CHOICES_OF_SECONDS(list) NULL
#define CHOICES_OF_KINDS(list) NULL
#define CHOICES_OF_FIELD_NAME(list) NULL
#define CHOICES_OF_ROUTES(list) NULL
#define CHOICES_OF_WINDOW(list) NULL
#define CHOICES_OF_CHAIN(list) NULL
#define CHOICES_OF_TEXT(list) NULL
#define BREAKER_CHOICES breaker_choices
#define PROTOCOL_CHOICES protocol_choices
#define KEY_CHOICES key_choices
#define EJECT_CHOICES eject_choices
#define ADAPTIVE_CHOICES adaptive_choices
#define STATE_CHOICES state_choices
#define CONTROL_CHOICES control_choices

const struct value_row value_keys[KEY_COUNT] = {
#define X(id, text, kind, field, first, low, high, sentence)                                                           \
	[KEY_##id] = {.name = (text),                                                                                  \
		.initial = (first),                                                                                    \
		.choices = CHOICES_OF_##kind(id##_CHOICES),                                                            \
		.min = (low),                                                                                          \
		.max = (high),                                                                                         \
		.offset = offsetof(struct policy, field),                                                              \
		.width = (uint16_t)sizeof(((struct policy *)0)->field),                                                \
		.type = VALUE_##kind},
	POLICY_KEYS(X)
#undef X
};

const struct value_row value_settings[SETTING_COUNT] = {
#define X(id, text, kind, first, low, high, sentence)                                                                  \
	[SETTING_##id] = {.name = (text),                                                                              \
		.initial = (first),                                                                                    \
		.choices = CHOICES_OF_##kind(id##_CHOICES),                                                            \
		.min = (low),                                                                                          \
		.max = (high),                                                                                         \
		.type = VALUE_##kind},
	RESIL_SETTINGS(X)
#undef X
};

const char *const value_key_names[KEY_COUNT + 1] = {
#define X(id, text, kind, field, first, low, high, sentence) text,
	POLICY_KEYS(X)
#undef X
		NULL};

const char *const value_setting_names[SETTING_COUNT + 1] = {
#define X(id, text, kind, first, low, high, sentence) text,
	RESIL_SETTINGS(X)
#undef X
		NULL};

/* value_store and value_load copy numbers of these widths; what a key may be fits its field. */
#define IS_NAME(type) ((type) == VALUE_FIELD_NAME || (type) == VALUE_ROUTES)
#define FITS_IN(size, high) ((size) == 8 || ((uint64_t)(high) >> (8 * (size) % 64)) == 0)
#define X(id, text, kind, field, first, low, high, sentence)                                                           \
	_Static_assert(IS_NAME(VALUE_##kind)                                                                           \
			       ? sizeof(((struct policy *)0)->field) <= sizeof(((struct value *)0)->name)              \
			       : sizeof(((struct policy *)0)->field) <= 8 &&                                           \
					 FITS_IN(sizeof(((struct policy *)0)->field), high),                           \
		"the width of " text);
POLICY_KEYS(X)
#undef X

static const struct unit {
	const char *name;
	int64_t ns;
} units[] = {{"ms", NS_PER_MS}, {"s", NS_PER_S}, {"m", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S}};
#define UNITS (sizeof units / sizeof units[0])

/* How people write units elsewhere. times: of the unit in place of it ("2d" -> "48h"). */
static const struct {
	const char *written;
	const char *unit;
	unsigned times;
} unit_habits[] = {
	{"msec", "ms", 1},
	{"msecs", "ms", 1},
	{"millis", "ms", 1},
	{"millisecond", "ms", 1},
	{"milliseconds", "ms", 1},
	{"sec", "s", 1},
	{"secs", "s", 1},
	{"second", "s", 1},
	{"seconds", "s", 1},
	{"min", "m", 1},
	{"mins", "m", 1},
	{"minute", "m", 1},
	{"minutes", "m", 1},
	{"hr", "h", 1},
	{"hrs", "h", 1},
	{"hour", "h", 1},
	{"hours", "h", 1},
	{"d", "h", 24},
	{"day", "h", 24},
	{"days", "h", 24},
	{"MS", "ms", 1},
	{"S", "s", 1},
	{"M", "m", 1},
	{"H", "h", 1},
};

static int find(const struct value_row *rows, int count, const char *name, size_t n)
{
	for (int i = 0; i < count; i++)
		if (value_is(name, n, rows[i].name))
			return i;
	return -1;
}

int value_find_key(const char *name, size_t n)
{
	return find(value_keys, KEY_COUNT, name, n);
}

int value_find_setting(const char *name, size_t n)
{
	return find(value_settings, SETTING_COUNT, name, n);
}

/* Reads digits from *at on; UINT64_MAX when they pass it. Returns how many there were. */
static size_t read_digits(const char *s, size_t n, size_t *at, uint64_t *value)
{
	size_t from = *at;
	uint64_t v = 0;
	for (; *at < n && s[*at] >= '0' && s[*at] <= '9'; (*at)++) {
		unsigned digit = (unsigned)(s[*at] - '0');
		v = v > (UINT64_MAX - digit) / 10 ? UINT64_MAX : v * 10 + digit;
	}
	*value = v;
	return *at - from;
}

static bool has_off(const struct value_row *row)
{
	return row->type == VALUE_SECONDS || row->type == VALUE_WINDOW || row->type == VALUE_LIMIT ||
	       ((row->type == VALUE_DURATION || row->type == VALUE_DURATION_MS) && row->min == 0);
}

static bool is_of_ms(const struct value_row *row)
{
	return row->type == VALUE_DURATION_MS || row->type == VALUE_WAIT;
}

/* The least a duration may be when it is not off: a millisecond, the grain of every timer here. */
static uint64_t least_value(const struct value_row *row)
{
	uint64_t ms = is_of_ms(row) ? 1 : (uint64_t)NS_PER_MS;
	return has_off(row) && row->min == 0 ? ms : row->min;
}

static void number_text(struct text *t, const struct value_row *row, uint64_t number);

static void range_text(struct text *t, const struct value_row *row)
{
	number_text(t, row, least_value(row));
	text_str(t, " to ");
	number_text(t, row, row->max);
	if (row->type == VALUE_WINDOW)
		text_fmt(t, " calls, %ds to %uh", (int)(WINDOW_MS_MIN / 1000), WINDOW_MS_MAX / 3600000);
	if (has_off(row))
		text_str(t, ", or off");
}

static bool out_of_range(const struct value_row *row, struct fault *fault)
{
	text_fmt(&fault->what, "%s is out of range", row->name);
	range_text(&fault->accepted, row);
	return false;
}

static const struct unit *find_unit(const char *s, size_t n)
{
	for (size_t i = 0; i < UNITS; i++)
		if (value_is(s, n, units[i].name))
			return &units[i];
	return NULL;
}

/* "1.5s" -> 1500ms, where that is a whole number of milliseconds. */
static void suggest_whole(
	struct fault *fault, uint64_t whole, const char *fraction, size_t digits, const struct unit *unit)
{
	uint64_t rest = 0;
	size_t at = 0;
	if (digits > 9 || whole > 1000000)
		return;
	read_digits(fraction, digits, &at, &rest);
	uint64_t scale = 1;
	for (size_t i = 0; i < digits; i++)
		scale *= 10;
	uint64_t ns = rest * (uint64_t)(unit->ns / NS_PER_MS), per = scale;
	if (ns % per != 0)
		return;
	text_duration(&fault->suggestion, (int64_t)(whole * (uint64_t)unit->ns + ns / per * (uint64_t)NS_PER_MS));
}

/* Digits were read up to `at`, and what follows is no unit: says which of the usual slips it is. */
static bool complain_unit(
	const struct value_row *row, const char *s, size_t n, size_t at, uint64_t number, struct fault *fault)
{
	size_t digits = at;
	bool is_whole = row->type == VALUE_SECONDS;
	if (at == n) {
		text_fmt(&fault->what, "%s: a unit is due", row->name);
		if (!is_whole) {
			text_bytes(&fault->accepted, s, digits < 20 ? digits : 20);
			text_str(&fault->accepted, "ms, ");
		}
		text_bytes(&fault->accepted, s, digits < 20 ? digits : 20);
		text_str(&fault->accepted, "s, ");
		text_bytes(&fault->accepted, s, digits < 20 ? digits : 20);
		text_str(&fault->accepted, "m or ");
		text_bytes(&fault->accepted, s, digits < 20 ? digits : 20);
		text_str(&fault->accepted, "h");
		return false;
	}
	uint64_t ignored;
	size_t fraction = at + 1;
	if (s[at] == '.' && (at = fraction, read_digits(s, n, &at, &ignored) > 0)) {
		const struct unit *unit = find_unit(s + at, n - at);
		text_fmt(&fault->what, "%s takes whole numbers", row->name);
		text_str(&fault->accepted,
			is_whole ? "such as 90s, with s, m or h" : "such as 1500ms, with ms, s, m or h");
		if (unit && !is_whole)
			suggest_whole(fault, number, s + fraction, at - fraction, unit);
		return false;
	}
	at = digits;
	while (at < n && (s[at] == ' ' || s[at] == '\t'))
		at++;
	text_fmt(&fault->what, "%s: unknown unit", row->name);
	text_str(&fault->accepted, is_whole ? "s, m or h, without a blank" : "ms, s, m or h, without a blank");
	const struct unit *unit = find_unit(s + at, n - at);
	const char *name = unit ? unit->name : NULL;
	unsigned times = 1;
	for (size_t i = 0; !name && i < sizeof unit_habits / sizeof unit_habits[0]; i++) {
		if (value_is(s + at, n - at, unit_habits[i].written)) {
			name = unit_habits[i].unit;
			times = unit_habits[i].times;
		}
	}
	bool is_of_seconds = !name || strcmp(name, "ms") != 0 || number * times % 1000 == 0;
	if (name && number < 1000000000 && (is_of_seconds || !is_whole)) {
		text_u64(&fault->suggestion, number * times);
		text_str(&fault->suggestion, name);
	}
	return false;
}

static bool read_duration(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault)
{
	static const char *const off[] = {"off", NULL};
	bool is_whole = row->type == VALUE_SECONDS;
	if (has_off(row) && value_is(s, n, "off")) {
		*value = 0;
		return true;
	}
	uint64_t number;
	size_t at = 0;
	if (read_digits(s, n, &at, &number) == 0) {
		bool is_negative = n > 1 && s[0] == '-';
		text_fmt(&fault->what, is_negative ? "%s cannot be negative" : "%s: not a time", row->name);
		text_str(&fault->accepted, is_whole ? "a whole number with s, m or h, such as 60s"
						    : "a whole number with ms, s, m or h, such as 500ms");
		text_str(&fault->accepted, has_off(row) ? ", or off" : "");
		if (has_off(row) && complain_nearest(s, n, off))
			text_str(&fault->suggestion, "off");
		return false;
	}
	const struct unit *unit = find_unit(s + at, n - at);
	if (!unit)
		return complain_unit(row, s, n, at, number, fault);
	if (number == 0 && has_off(row)) {
		text_fmt(&fault->what, "%s cannot be nothing", row->name);
		range_text(&fault->accepted, row);
		text_str(&fault->suggestion, "off");
		return false;
	}
	uint64_t grain = (uint64_t)(is_of_ms(row) ? unit->ns / NS_PER_MS : unit->ns);
	if (number > row->max / grain || number * grain < least_value(row))
		return out_of_range(row, fault);
	if (is_whole && number * grain % (uint64_t)NS_PER_S != 0) {
		text_fmt(&fault->what, "%s takes whole seconds", row->name);
		range_text(&fault->accepted, row);
		return false;
	}
	*value = number * grain;
	return true;
}

static bool read_count(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault)
{
	static const char *const off[] = {"off", NULL};
	size_t at = 0;
	if (has_off(row) && value_is(s, n, "off")) {
		*value = 0;
		return true;
	}
	if (read_digits(s, n, &at, value) == 0 || at < n) {
		text_fmt(&fault->what, "%s: not a whole number", row->name);
		range_text(&fault->accepted, row);
		if (has_off(row) && complain_nearest(s, n, off))
			text_str(&fault->suggestion, "off");
		return false;
	}
	return (*value >= row->min && *value <= row->max) || out_of_range(row, fault);
}

/* "100" calls, "60s", "off". */
static bool read_window(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault)
{
	static const struct value_row time = {
		.name = "sliding_window", .min = WINDOW_MS_MIN, .max = WINDOW_MS_MAX, .type = VALUE_DURATION_MS};
	size_t at = 0, digits = read_digits(s, n, &at, value);
	if (value_is(s, n, "off")) {
		*value = 0;
		return true;
	}
	if (digits > 0 && at == n)
		return (*value >= row->min && *value <= row->max) || out_of_range(row, fault);
	if (digits == 0 || *value > WINDOW_MS_MAX || !find_unit(s + at, n - at)) {
		static const char *const off[] = {"off", NULL};
		text_fmt(&fault->what, "%s: neither a number of calls nor a time", row->name);
		range_text(&fault->accepted, row);
		if (complain_nearest(s, n, off))
			text_str(&fault->suggestion, "off");
		return false;
	}
	if (!read_duration(&time, s, n, value, fault)) {
		fault_clear(fault);
		return out_of_range(row, fault);
	}
	*value |= WINDOW_IS_TIME;
	return true;
}

static bool read_percent(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault)
{
	size_t at = 0, digits = read_digits(s, n, &at, value);
	if (digits > 0 && at == n) {
		text_fmt(&fault->what, "%s: a percent sign is due", row->name);
		range_text(&fault->accepted, row);
		if (*value <= row->max) {
			text_u64(&fault->suggestion, *value);
			text_char(&fault->suggestion, '%');
		}
		return false;
	}
	if (digits == 0 || !value_is(s + at, n - at, "%")) {
		text_fmt(&fault->what, "%s: not a whole percentage", row->name);
		range_text(&fault->accepted, row);
		return false;
	}
	return (*value >= row->min && *value <= row->max) || out_of_range(row, fault);
}

/* "2", "1.5", "1.25" as hundredths. */
static bool read_factor(const struct value_row *row, const char *s, size_t n, uint64_t *value, struct fault *fault)
{
	uint64_t whole, part = 0;
	size_t at = 0, digits = read_digits(s, n, &at, &whole), decimals = 0;
	if (digits > 0 && at < n && s[at] == '.') {
		at++;
		decimals = read_digits(s, n, &at, &part);
		if (decimals == 0 || decimals > 2)
			digits = 0;
	}
	if (digits == 0 || at < n) {
		text_fmt(&fault->what, "%s: not a factor", row->name);
		text_str(&fault->accepted, "a number with at most two decimals, ");
		range_text(&fault->accepted, row);
		if (digits > 0 && whole < 1000 && (value_is(s + at, n - at, "x") || value_is(s + at, n - at, "*")))
			text_bytes(&fault->suggestion, s, at);
		return false;
	}
	if (whole > UINT32_MAX)
		return out_of_range(row, fault);
	*value = whole * 100 + (decimals == 1 ? part * 10 : part);
	return (*value >= row->min && *value <= row->max) || out_of_range(row, fault);
}

bool value_read(const struct value_row *row, const char *s, size_t n, struct value *value, struct fault *fault)
{
	uint64_t *number = &value->number;
	*number = 0;
	value->name[0] = '\0';
	if (n == 0 && row->type != VALUE_KINDS && row->type != VALUE_ROUTES) {
		text_fmt(&fault->what, "%s has no value", row->name);
		if (row->type == VALUE_CHOICE)
			words_list_text(&fault->accepted, row->choices);
		else if (row->type == VALUE_ERRNO || row->type == VALUE_FIELD_NAME)
			text_str(&fault->accepted, row->initial);
		else
			range_text(&fault->accepted, row);
		return false;
	}
	switch ((enum value_type)row->type) {
	case VALUE_CHOICE: return words_read_choice(row, s, n, number, fault);
	case VALUE_DURATION:
	case VALUE_DURATION_MS:
	case VALUE_WAIT:
	case VALUE_SECONDS: return read_duration(row, s, n, number, fault);
	case VALUE_WINDOW: return read_window(row, s, n, number, fault);
	case VALUE_COUNT:
	case VALUE_LIMIT: return read_count(row, s, n, number, fault);
	case VALUE_FACTOR: return read_factor(row, s, n, number, fault);
	case VALUE_PERCENT: return read_percent(row, s, n, number, fault);
	case VALUE_ERRNO: return words_read_errno(row, s, n, number, fault);
	case VALUE_KINDS: return words_read_kinds(row, s, n, number, fault);
	case VALUE_FIELD_NAME: return words_read_field_name(row, s, n, value->name, fault);
	case VALUE_ROUTES: return route_read(row->name, s, n, value->name, fault);
	case VALUE_CHAIN:
	case VALUE_TEXT: break;
	}
	return false;
}

static void factor_text(struct text *t, uint64_t hundredths)
{
	text_u64(t, hundredths / 100);
	if (hundredths % 100 == 0)
		return;
	text_char(t, '.');
	if (hundredths % 10 == 0)
		text_u64(t, hundredths % 100 / 10);
	else
		text_padded(t, hundredths % 100, 2);
}

static void number_text(struct text *t, const struct value_row *row, uint64_t number)
{
	switch ((enum value_type)row->type) {
	case VALUE_CHOICE: text_str(t, row->choices[number]); break;
	case VALUE_DURATION:
	case VALUE_DURATION_MS:
	case VALUE_WAIT:
	case VALUE_SECONDS:
		if (number == 0)
			text_str(t, row->type == VALUE_WAIT ? "0ms" : "off");
		else
			text_duration(t, (int64_t)number * (is_of_ms(row) ? NS_PER_MS : 1));
		break;
	case VALUE_WINDOW:
		if (number == 0)
			text_str(t, "off");
		else if (number & WINDOW_IS_TIME)
			text_duration(t, (int64_t)(number & ~(uint64_t)WINDOW_IS_TIME) * NS_PER_MS);
		else
			text_u64(t, number);
		break;
	case VALUE_LIMIT:
		if (number == 0)
			text_str(t, "off");
		else
			text_u64(t, number);
		break;
	case VALUE_COUNT: text_u64(t, number); break;
	case VALUE_FACTOR: factor_text(t, number); break;
	case VALUE_PERCENT:
		text_u64(t, number);
		text_char(t, '%');
		break;
	case VALUE_ERRNO: words_errno_text(t, number); break;
	case VALUE_KINDS: words_kinds_text(t, number); break;
	case VALUE_CHAIN: text_str(t, number ? (const char *)(uintptr_t)number : "off"); break;
	case VALUE_FIELD_NAME:
	case VALUE_ROUTES:
	case VALUE_TEXT: break;
	}
}

void value_text(struct text *t, const struct value_row *row, const struct value *value)
{
	if (IS_NAME(row->type))
		text_str(t, value->name[0] ? value->name : "off");
	else
		number_text(t, row, value->number);
}

void value_store(struct policy *p, enum config_key key, const struct value *value)
{
	const struct value_row *row = &value_keys[key];
	char *field = (char *)p + row->offset;
	uint64_t number = value->number;
	if (IS_NAME(row->type))
		text_copy(field, row->width, value->name);
	else if (row->width == 1)
		memcpy(field, &(uint8_t){(uint8_t)number}, 1);
	else if (row->width == 2)
		memcpy(field, &(uint16_t){(uint16_t)number}, 2);
	else if (row->width == 4)
		memcpy(field, &(uint32_t){(uint32_t)number}, 4);
	else
		memcpy(field, &number, sizeof number);
}

void value_load(const struct policy *p, enum config_key key, struct value *value)
{
	const struct value_row *row = &value_keys[key];
	const char *field = (const char *)p + row->offset;
	uint8_t one;
	uint16_t two;
	uint32_t four;
	value->number = 0;
	value->name[0] = '\0';
	if (IS_NAME(row->type)) {
		text_copy(value->name, sizeof value->name, field);
	} else if (row->width == 1) {
		memcpy(&one, field, 1);
		value->number = one;
	} else if (row->width == 2) {
		memcpy(&two, field, 2);
		value->number = two;
	} else if (row->width == 4) {
		memcpy(&four, field, 4);
		value->number = four;
	} else {
		memcpy(&value->number, field, sizeof value->number);
	}
}
