/* See ambient.h. No state, no memory; any thread. */
#include "policy/ambient.h"

#include <string.h>

#include "policy/value.h"

#define LONGEST_NS (8760ull * 3600 * 1000000000)

int64_t ambient_earlier(int64_t a, int64_t b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

int64_t ambient_duration(const char *name, const char *s, struct text *errors)
{
	const struct value_row row = {.name = name, .min = 1000000, .max = LONGEST_NS, .type = VALUE_DURATION};
	struct complaints out = {.out = errors, .source = ""};
	struct value value;
	struct fault f;

	fault_clear(&f);
	if (value_read(&row, s, strlen(s), &value, &f))
		return (int64_t)value.number;
	complain(&out, 0, &f, s, strlen(s));
	return 0;
}

/* Digits alone: no sign, no blank, nothing beyond INT64_MAX. 0 is no time that anybody means. */
static int64_t read_absolute(const char *s)
{
	int64_t ns = 0;
	for (; *s >= '0' && *s <= '9'; s++) {
		int digit = *s - '0';
		if (ns > (INT64_MAX - digit) / 10)
			return 0;
		ns = ns * 10 + digit;
	}
	return *s ? 0 : ns;
}

int64_t ambient_read(const char *at, const char *relative, int64_t now_ns, struct text *errors)
{
	int64_t absolute = 0, after = 0;
	if (at && at[0]) {
		absolute = read_absolute(at);
		if (absolute == 0) {
			struct complaints out = {.out = errors, .source = "RESIL_DEADLINE_AT"};
			complain_plain(&out, 0, "not a time", at, strlen(at),
				"nanoseconds of CLOCK_MONOTONIC in digits; RESIL_DEADLINE takes 5s");
		}
	}
	if (relative && relative[0])
		after = ambient_duration("RESIL_DEADLINE", relative, errors);
	return ambient_earlier(absolute, after ? now_ns + after : 0);
}
