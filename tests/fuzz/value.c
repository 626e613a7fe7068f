/* Values as people write them. The first byte says which key or reader, the rest is the text: what is read is in its
 * limits, and its own text reads back as the same. */
#include "policy/value.h"
#include "../unit/control_help.h"
#include "control/params.h"
#include "fuzz.h"

static void of_row(const struct value_row *row, const char *s, size_t n)
{
	struct fault fault;
	char back_at[512] = ""; /* every failure kind by its name */
	struct text back = TEXT_ON(back_at);
	struct value value, again;
	if (row->type == VALUE_TEXT || row->type == VALUE_CHAIN) /* fuzz/config.c reads those */
		return;
	fault_clear(&fault);
	if (!value_read(row, s, n, &value, &fault)) {
		claim(fault.what.len > 0);
		/* What is suggested is right. */
		if (fault.suggestion.len > 0 && row->type != VALUE_CHOICE) {
			struct fault none;
			fault_clear(&none);
			bool is_read = value_read(row, fault.suggestion.at, fault.suggestion.len, &again, &none);
			claim(is_read || strstr(none.what.at, "out of range") || strstr(none.what.at, "cannot be"));
		}
		return;
	}
	claim(fault.what.len == 0);
	bool is_number = row->type != VALUE_CHOICE && row->type != VALUE_ERRNO && row->type != VALUE_KINDS &&
			 row->type != VALUE_WINDOW && row->type != VALUE_FIELD_NAME;
	if (is_number)
		claim(value.number <= row->max && (value.number >= row->min || value.number == 0));
	value_text(&back, row, &value);
	claim(!back.is_cut && back.len > 0);
	claim(value_read(row, back_at, back.len, &again, &fault));
	if (row->type == VALUE_FIELD_NAME)
		claim(strcmp(again.name, value.name) == 0);
	else
		claim(again.number == value.number);
}

static void duration(const char *s)
{
	int64_t ns, again;
	char back_at[64] = "";
	struct text back = TEXT_ON(back_at);
	if (!params_duration(s, &ns))
		return;
	claim(ns >= 0 && ns <= 100 * 366 * 24 * (3600 * NS_PER_S));
	text_duration(&back, ns);
	if (ns % 1000000 == 0)
		claim(params_duration(back_at, &again) && again == ns);
}

static void number(const char *s)
{
	uint64_t v;
	char back_at[64] = "";
	struct text back = TEXT_ON(back_at);
	if (!params_u64(s, &v))
		return;
	text_u64(&back, v);
	s += strspn(s, "0");
	claim(strcmp(*s ? s : "0", back_at) == 0);
}

static void query(const char *s, size_t n)
{
	char value[64], decoded[64];
	enum params_found found = params_query(s, "mode", value, sizeof value);
	claim(found == PARAMS_ABSENT || found == PARAMS_FOUND || found == PARAMS_BROKEN);
	if (found == PARAMS_FOUND)
		claim(memchr(value, 0, sizeof value) && strstr(s, "mode"));
	if (params_decode(decoded, sizeof decoded, s, n))
		claim(strlen(decoded) <= n);
}

static void address(const char *s)
{
	struct addr a, again;
	char text_at[80] = "";
	struct text text = TEXT_ON(text_at);
	if (!addr_from_literal(&a, s))
		return;
	claim(a.family == ADDR_INET && a.port == 0);
	addr_host_text(&text, &a);
	claim(!text.is_cut && addr_from_literal(&again, text_at) && addr_same_host(&a, &again));
}

static void json(const char *s, size_t n)
{
	static char out_at[8192];
	struct text out = TEXT_ON(out_at);
	out_at[0] = '\0';
	text_json_n(&out, s, n);
	claim(!out.is_cut && json_is_valid(out_at));
	char small_at[32] = "";
	struct text small = TEXT_ON(small_at);
	text_json_n(&small, s, n);
	claim(small.len < sizeof small_at && small_at[small.len] == '\0');
}

static void nearest(const char *s, size_t n)
{
	const char *word = complain_nearest(s, n, value_key_names);
	claim(!word || value_find_key(word, strlen(word)) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum { OTHERS = 6 };
	if (size == 0 || size > 1000)
		return 0;
	unsigned which = data[0] % (KEY_COUNT + SETTING_COUNT + OTHERS);
	size_t n = size - 1;
	char *s = malloc(n + 1);
	claim(s);
	memcpy(s, data + 1, n);
	s[n] = '\0';
	if (which >= OTHERS) {
		/* The readers of rows get no terminated text. */
		char *exact = malloc(n ? n : 1);
		claim(exact);
		memcpy(exact, s, n);
		which -= OTHERS;
		of_row(which < KEY_COUNT ? &value_keys[which] : &value_settings[which - KEY_COUNT], exact, n);
		free(exact);
	} else if (which == 0) {
		duration(s);
	} else if (which == 1) {
		number(s);
	} else if (which == 2) {
		query(s, strlen(s));
	} else if (which == 3) {
		address(s);
	} else if (which == 4) {
		json(s, n);
	} else {
		nearest(s, n);
	}
	free(s);
	return 0;
}
