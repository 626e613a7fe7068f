/* Faults as specifications, a line each: whatever they say, what was read is written so that it is read as the same. */
#include "policy/fault.h"

#include <stdio.h>
#include <string.h>

#include "fuzz.h"

static char errors_at[65536];

static struct config *load(const char *specs, int *faults)
{
	struct text errors = TEXT_ON(errors_at);
	struct config_source source = {.faults = specs};
	errors_at[0] = '\0';
	return config_load(&source, &errors, faults);
}

static void reads_back(const struct config *c, const struct fault_rule *f)
{
	char once[4096] = "", again[4096] = "", match[4096] = "";
	struct text a = TEXT_ON(once), b = TEXT_ON(again), m = TEXT_ON(match);
	int faults;
	config_fault_text(&a, c, f);
	config_fault_match_text(&m, c, f);
	/* Longer than a specification may be, since what was read was shorter: "64k" for "65536" never is. */
	if (a.is_cut || a.len > FAULT_SPEC_MAX)
		return;
	struct config *back = load(once, &faults);
	if (faults)
		fprintf(stderr, "%s: %s", once, errors_at);
	claim(faults == 0 && config_fault(back, 0));
	config_fault_text(&b, back, config_fault(back, 0));
	claim(strcmp(once, again) == 0);
	config_free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char specs[8192];
	const struct fault_rule *f;
	int faults;
	if (size >= sizeof specs)
		return 0;
	memcpy(specs, data, size);
	specs[size] = '\0';
	struct config *c = load(specs, &faults);
	claim(c && (faults == 0 || !config_fault(c, 0)));
	claim(faults == 0 || errors_at[0]);
	struct addr a = {.family = ADDR_INET, .port = 443, .ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}};
	struct target target = {.addr = &a, .name = "api.internal", .exe = "curl"};
	for (uint32_t i = 0; (f = config_fault(c, i)) != NULL; i++) {
		config_fault_fits(c, f, &target);
		config_fault_fits_look_up(c, f, "api.internal", 443, "curl");
		claim(strlen(f->name) > 0 && strlen(f->name) <= FAULT_NAME_MAX && f->type < FAULT_TYPE_COUNT);
		claim(f->value[FAULT_PERCENT] <= 1000000 && f->value[FAULT_EVERY] > 0 && f->value[FAULT_CALLS] != 0);
		reads_back(c, f);
	}
	/* As the region would give them: each on its own, what is none left out. */
	struct fault_given given = {.spec = specs, .number = 1};
	specs[strcspn(specs, "\n")] = '\0';
	struct config *one = config_load_faults(&given, 1);
	claim(one && (!config_fault(one, 0) || config_fault(one, 0)->number == 1) && !config_fault(one, 1));
	config_free(one);
	config_free(c);
	return 0;
}
