/* A configuration file, and RESIL_SET behind a NUL byte: read or refused, and told so truly; what was read reads back.
 */
#include "policy/config.h"
#include "fuzz.h"
#include "policy/chain.h"
#include "policy/value.h"

static char errors_at[65536];

static struct config *load(const char *file, const char *set, int *faults)
{
	struct text errors = TEXT_ON(errors_at);
	struct config_source source = {.file = file, .set = set};
	errors_at[0] = '\0';
	struct config *c = config_load(&source, &errors, faults);
	claim(c && config_is_broken(c) == (*faults > 0));
	claim((*faults > 0) == (errors.len > 0));
	for (const char *s = errors_at; *s; s++)
		claim(((unsigned char)*s >= 0x20 && *s != 0x7f) || *s == '\n');
	return c;
}

static void policy_text(struct text *t, const struct config *c, const struct policy *p)
{
	size_t before = t->len;
	text_str(t, "[destination back]\nmatch = ");
	size_t from = t->len;
	config_patterns_text(t, c, p);
	if (t->len == from)
		text_char(t, '*');
	/* Longer than a line may be: then it was written in several, and is not shown as one that can be read. */
	if (t->len - from > 900) {
		t->len = before;
		t->at[before] = '\0';
		return;
	}
	for (int key = 0; key < KEY_COUNT; key++) {
		text_fmt(t, "\n%s = ", value_keys[key].name);
		config_value_text(t, p, (enum config_key)key);
	}
	text_char(t, '\n');
}

static void reads_back(const struct config *c, const struct policy *p)
{
	static char text_at[20000], again_at[20000];
	struct text text = TEXT_ON(text_at), again = TEXT_ON(again_at);
	int faults;
	text_at[0] = again_at[0] = '\0';
	policy_text(&text, c, p);
	claim(!text.is_cut);
	if (text.len == 0)
		return;
	struct config *back = load(fuzz_file((const uint8_t *)text_at, text.len), NULL, &faults);
	if (faults)
		fprintf(stderr, "%s%s", text_at, errors_at);
	claim(faults == 0);
	policy_text(&again, back, config_policy(back, 0));
	claim(strcmp(text_at, again_at) == 0);
	config_free(back);
}

/* A chain that was kept is taken apart to its end, and no step of it is a surprise. */
static void chain_is_walked(const struct policy *p)
{
	char chain[CHAIN_TEXT_MAX + 1], *at = chain, *end;
	struct chain_step step;
	unsigned steps = 0;
	if (!p->fallback)
		return;
	claim(strlen(p->fallback) <= CHAIN_TEXT_MAX);
	strcpy(chain, p->fallback);
	end = chain + strlen(chain);
	for (; chain_next(&at, &step); steps++) {
		claim((unsigned)step.source < DEGRADED_SOURCE_COUNT);
		claim(step.source != DEGRADED_SECONDARY || (step.host[0] && step.port));
		claim(step.source != DEGRADED_CACHE || step.age_ns > 0);
		claim(step.source != DEGRADED_ERRNO || (step.error > 0 && at == end));
		claim((step.source != DEGRADED_REPLY && step.source != DEGRADED_SPOOL) || step.rest[0] == '/');
	}
	claim(at == end && steps > 0 && steps <= CHAIN_STEPS_MAX);
}

static void matches(const struct config *c)
{
	static const char *const names[] = {NULL, "a.b", "pay.internal", ""};
	struct addr a[3] = {{.port = 443}, {.port = 5432}, {.family = ADDR_UNIX, .unix_len = 2, .path = "/x"}};
	claim(addr_from_literal(&a[0], "10.1.2.3") && addr_from_literal(&a[1], "fd00::9"));
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 4; j++) {
			struct target target = {.addr = &a[i], .name = names[j], .exe = j ? "curl" : NULL};
			const char *pattern = NULL;
			const struct policy *p = config_match(c, &target, &pattern);
			claim(pattern && (p || a[i].family == ADDR_UNIX));
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char set[CONFIG_SET_MAX + 1];
	int faults;
	const uint8_t *nul = size > 0 ? memchr(data, 0, size) : NULL;
	size_t file_len = nul ? (size_t)(nul - data) : size, set_len = nul ? size - file_len - 1 : 0;
	if (set_len > sizeof set - 1)
		set_len = sizeof set - 1;
	if (nul)
		memcpy(set, nul + 1, set_len);
	set[set_len] = '\0';
	struct config *c = load(fuzz_file(data, file_len), nul ? set : NULL, &faults);
	matches(c);
	config_skips(c, "sshd");
	const struct policy *p;
	for (uint32_t i = 0; (p = config_policy(c, i)); i++) {
		if (faults > 0)
			claim(p->breaker == POLICY_BREAKER_OBSERVE && p->connect_timeout_ns == 0);
		else if (i < 8) {
			chain_is_walked(p);
			reads_back(c, p);
		}
	}
	config_free(c);
	return 0;
}
