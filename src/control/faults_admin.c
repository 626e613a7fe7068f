/* See faults_admin.h. */
#include "control/faults_admin.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

bool faults_admin_has_members(const struct region *r, bool (*is_alive)(uint64_t id, const void *ctx), const void *ctx)
{
	for (uint32_t i = 0; i < REGION_MEMBERS; i++) {
		uint64_t id = atomic_load_explicit(&r->members[i].id, memory_order_acquire);
		if (id && is_alive(id, ctx))
			return true;
	}
	return false;
}

/* All hits of that name. */
static uint64_t hits_of(const struct region *r, const char *name)
{
	char fault[32], destination[REGION_NAME_MAX + 1];
	uint64_t hits, sum = 0;
	for (int i = 0; (i = faults_next_count(r, (uint32_t)i, fault, destination, &hits)) >= 0; i++)
		sum += strcmp(fault, name) == 0 ? hits : 0;
	return sum;
}

static void show(struct fault_shown *s, const struct region *r, const struct config *c, const struct fault_rule *f)
{
	struct text spec = TEXT_ON(s->spec);
	s->spec[0] = '\0';
	text_copy(s->name, sizeof s->name, f->name);
	text_copy(s->type, sizeof s->type, fault_type_name((enum fault_type)f->type));
	config_fault_text(&spec, c, f);
	s->left_ns = -1;
	s->hits = hits_of(r, f->name);
}

int faults_admin_next(const struct region *r, uint32_t at, int64_t now_ns, struct fault_shown *shown)
{
	struct faults_rule rule;
	for (; at < REGION_FAULTS; at++) {
		if (!faults_read(r, at, now_ns, &rule))
			continue;
		struct fault_given given = {rule.spec, rule.number, rule.begun_ns, rule.until_ns};
		struct config *c = config_load_faults(&given, 1);
		const struct fault_rule *f = c ? config_fault(c, 0) : NULL;
		if (f) {
			show(shown, r, c, f);
			shown->left_ns = rule.until_ns ? rule.until_ns - now_ns : -1;
		}
		bool is_one = f != NULL;
		if (c)
			config_free(c);
		if (is_one)
			return (int)at;
	}
	return -1;
}

static bool is_taken(const struct region *r, const char *name, int64_t now_ns)
{
	struct fault_shown shown;
	for (int i = 0; (i = faults_admin_next(r, (uint32_t)i, now_ns, &shown)) >= 0; i++)
		if (strcmp(shown.name, name) == 0)
			return true;
	return false;
}

/* By its type, numbered where that is taken; false: another has the name that it was given. */
static bool find_name(const struct region *r, const struct fault_rule *f, const char *spec, char *name, int64_t now_ns)
{
	text_copy(name, FAULT_NAME_MAX + 1, f->name);
	if (!is_taken(r, name, now_ns))
		return true;
	if (strstr(spec, " name="))
		return false;
	for (unsigned number = 2; number <= REGION_FAULTS + 1; number++) {
		struct text t = {.at = name, .cap = FAULT_NAME_MAX + 1};
		text_fmt(&t, "%s-%u", f->name, number);
		if (!is_taken(r, name, now_ns))
			return true;
	}
	return false;
}

/* What config_load says, without the name of a variable that nobody has set. */
static void say_faults(struct text *error, const char *said)
{
	static const char source[] = "RESIL_FAULTS: ";
	if (strncmp(said, source, sizeof source - 1) == 0)
		said += sizeof source - 1;
	text_bytes(error, said, strcspn(said, "\n"));
}

int faults_admin_add(struct region *r, const char *spec, int64_t for_ns, int64_t now_ns, char name[FAULT_NAME_MAX + 1],
	struct text *error, bool (*is_alive)(uint64_t id, const void *ctx), const void *ctx)
{
	char said[2048], full[REGION_FAULT_SPEC];
	struct text errors = TEXT_ON(said), t = TEXT_ON(full);
	struct config_source source = {.faults = spec};
	int faults = 0;
	said[0] = full[0] = '\0';
	struct config *c = strchr(spec, '\n') ? NULL : config_load(&source, &errors, &faults);
	const struct fault_rule *f = c ? config_fault(c, 0) : NULL;
	int err = 0;
	if (!f) {
		err = -EINVAL;
		if (faults)
			say_faults(error, said);
		else
			text_str(error, "a fault is due: TYPE DESTINATION [KEY=VALUE]...");
	} else if (!faults_admin_has_members(r, is_alive, ctx)) {
		err = -ESRCH;
		text_str(error, "no process of the group lives, and a fault dies with its processes: use 'resil run "
				"--fault' or a [fault NAME] section");
	} else if (!find_name(r, f, spec, name, now_ns)) {
		err = -EEXIST;
		text_fmt(error, "another fault is called %s", name);
	}
	if (err == 0) {
		struct fault_rule named = *f;
		text_copy(named.name, sizeof named.name, name);
		config_fault_text(&t, c, &named);
		int64_t number = t.is_cut ? -EINVAL : faults_add(r, full, now_ns, for_ns ? now_ns + for_ns : 0);
		err = number < 0 ? (int)number : 0;
		if (err == -ENOSPC)
			text_fmt(error, "%u faults are in force: no more fit", (unsigned)REGION_FAULTS);
		else if (err)
			text_str(error, err == -EINVAL ? "the fault is too long" : "the region cannot be written");
		else
			faults_tell(r);
	}
	if (c)
		config_free(c);
	return err;
}

unsigned faults_admin_remove(struct region *r, const char *name, int64_t now_ns)
{
	unsigned removed = 0;
	for (uint32_t i = 0; i < REGION_FAULTS; i++) {
		struct fault_shown shown;
		struct faults_rule rule;
		if (!faults_read(r, i, now_ns, &rule))
			continue;
		if (name && (faults_admin_next(r, i, now_ns, &shown) != (int)i || strcmp(shown.name, name) != 0))
			continue;
		removed += faults_remove(r, i, &rule);
	}
	if (removed)
		faults_tell(r);
	return removed;
}

static void list_one(struct text *t, const struct fault_shown *s, const char *origin, const char *comma)
{
	text_fmt(t, "%s{\"name\":", comma);
	text_json(t, s->name);
	text_fmt(t, ",\"type\":\"%s\",\"spec\":", s->type);
	text_json(t, s->spec);
	text_str(t, ",\"origin\":");
	text_json(t, origin);
	text_str(t, ",\"left_ms\":");
	if (s->left_ns < 0)
		text_str(t, "null");
	else
		text_i64(t, s->left_ns / NS_PER_MS);
	text_fmt(t, ",\"injected\":%llu}", (unsigned long long)s->hits);
}

void faults_admin_list(struct text *t, const struct region *r, const struct config *c, int64_t now_ns)
{
	struct fault_shown shown;
	const struct fault_rule *f;
	const char *comma = "";
	text_char(t, '[');
	for (uint32_t i = 0; c && (f = config_fault(c, i)) != NULL; i++) {
		char origin[4200] = "";
		struct text o = TEXT_ON(origin);
		show(&shown, r, c, f);
		config_fault_origin_text(&o, c, f);
		list_one(t, &shown, origin, comma);
		comma = ",";
	}
	for (int i = 0; (i = faults_admin_next(r, (uint32_t)i, now_ns, &shown)) >= 0; i++) {
		list_one(t, &shown, "added", comma);
		comma = ",";
	}
	text_char(t, ']');
}
