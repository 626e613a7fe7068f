/* See guest.h. Callers: the constructor, connects of any thread, fork handlers.
 *
 * Regions are kept in a short array and never unmapped: calls in progress hold pointers to the one that admitted them.
 * Attaching is claimed by CAS; others wait for it a moment without a lock (bounded), a signal handler on the claiming
 * thread passes through unguarded. */
#include "engine/guest.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/errname.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/sys.h"
#include "core/circuit.h"
#include "core/events.h"
#include "core/member.h"
#include "engine/ambient.h"
#include "engine/fault.h"
#include "policy/policy.h"

#define REGIONS_MAX 8
#define LOOK_AGAIN_NS NS_PER_S
/* So long one waits for a thread that attaches, and may not have a processor; without a region a call passes unguarded.
 */
#define WAIT_NS (250 * NS_PER_MS)

__thread int guest_vfork_depth;
bool guest_on;

static struct {
	char group[GROUP_MAX + 1];
	char exe[64];
	char state_dir[200];
	char runtime_dir[108];
	bool has_state_dir;
	enum state_kind state;
	uint32_t max_destinations;
} me;

_Atomic bool guest_restricted;
static _Atomic bool is_leaving;
static struct region regions[REGIONS_MAX];
_Atomic(struct region *) guest_current; /* in regions; null: attach at the next call */
static _Atomic int attached_count;
static _Atomic uintptr_t attaching; /* the thread that attaches (address of a thread-local), 0: nobody */
static _Atomic int64_t attached_ns, retry_ns;
_Atomic int64_t guest_look_at_ns;
_Atomic bool guest_is_off;
_Atomic bool guest_must_join; /* forked: not a member yet */
_Atomic uint32_t guest_reload_seen;
static _Atomic uint32_t config_seen;

/* What may be asked again later, when the environment is no longer there (nginx writes its title over it): copies. */
enum kept {
	KEPT_STATE_DIR,
	KEPT_RUNTIME_DIR,
	KEPT_XDG_RUNTIME_DIR,
	KEPT_CONF,
	KEPT_XDG_CONFIG_HOME,
	KEPT_HOME,
	KEPT_COUNT
};
static const char *const kept_names[KEPT_COUNT] = {
	"RESIL_STATE_DIR", "RESIL_RUNTIME_DIR", "XDG_RUNTIME_DIR", "RESIL_CONF", "XDG_CONFIG_HOME", "HOME"};
static char kept_values[KEPT_COUNT][512];

/* A relative path holds from where the program was started, wherever it goes. */
static void make_absolute(char *path, size_t cap)
{
	char given[512], here[512];
	if (!path[0] || path[0] == '/' || SYS2(SYS_getcwd, here, sizeof here) <= 0)
		return;
	text_copy(given, sizeof given, path);
	struct text t = {.at = path, .cap = cap};
	text_fmt(&t, "%s/%s", here, given);
}

static void keep_env(void)
{
	for (int i = 0; i < KEPT_COUNT; i++) {
		const char *value = env_at_start(kept_names[i]);
		text_copy(kept_values[i], sizeof kept_values[i], value ? value : "");
	}
	make_absolute(kept_values[KEPT_CONF], sizeof kept_values[KEPT_CONF]);
}

static const char *kept_env(const char *name)
{
	for (int i = 0; i < KEPT_COUNT; i++)
		if (strcmp(name, kept_names[i]) == 0 && kept_values[i][0])
			return kept_values[i];
	return NULL;
}

static bool find_file(char *path, size_t cap, bool *is_optional)
{
	return config_find_file(path, cap, is_optional, kept_env);
}

static void read_exe(char *path, size_t cap)
{
	ssize_t n = sys_readlink("/proc/self/exe", path, cap - 1);
	path[n > 0 ? n : 0] = '\0';
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* Says the configuration's faults on stderr, once per group and file: the region remembers what was said (E8). */
static void complain(const char *file, const char *errors)
{
	uint64_t mark = hash_mix(hash_bytes(hash_bytes(HASH_START, file, strlen(file)), errors, strlen(errors))) | 1;
	struct region *r = guest_region(clock_now_ns());
	if (r && r->is_shared && atomic_exchange(&r->header->config_complaint, mark) == mark)
		return;
	char buf[4096];
	struct text t = TEXT_ON(buf);
	for (const char *line = errors; *line;) {
		size_t n = strcspn(line, "\n");
		text_str(&t, "resil: ");
		text_bytes(&t, line, n);
		text_char(&t, '\n');
		line += n + (line[n] == '\n');
	}
	text_str(&t, "resil: this configuration is not used: the shim only observes\n");
	sys_write(2, t.at, t.len);
}

/* What the log tells: transitions, the first of a run of rejections, limits that were passed, and configuration; never
 * a line a call. */
static void tell(const struct event *e)
{
	char line[512];
	struct text t = TEXT_ON(line);
	switch (e->type) {
	case EVENT_TRANSITION:
		text_fmt(&t, "%s %s -> %s: %s", e->destination, breaker_state_name((enum breaker_state)e->from),
			breaker_state_name((enum breaker_state)e->to), e->reason);
		if (e->retry_after_ms >= 0)
			text_fmt(&t, "; next probe in %lldms", (long long)e->retry_after_ms);
		break;
	case EVENT_REJECTED: text_fmt(&t, "%s rejected: %s", e->destination, e->reason); break;
	case EVENT_DEADLINE:
		if (strcmp(e->reason, "call") == 0)
			text_fmt(&t, "%s deadline of ", e->destination);
		else
			text_fmt(&t, "%s %s_timeout of ", e->destination, e->reason);
		text_duration(&t, e->value);
		text_str(&t, " has passed");
		break;
	case EVENT_FAULT:
		text_fmt(&t, "%s fault %s injected, %lld so far", e->destination, e->reason, (long long)e->value);
		break;
	case EVENT_RELOAD:
	case EVENT_CONFIG_ERROR: text_fmt(&t, "configuration: %s", e->reason); break;
	default: return;
	}
	bool is_transition = e->type == EVENT_TRANSITION;
	const struct log_field fields[] = {
		{"RESIL_GROUP", me.group},
		{"RESIL_TYPE", event_type_name((enum event_type)e->type)},
		{"RESIL_DESTINATION", e->destination},
		{"RESIL_FROM", is_transition ? breaker_state_name((enum breaker_state)e->from) : NULL},
		{"RESIL_TO", is_transition ? breaker_state_name((enum breaker_state)e->to) : NULL},
		{"RESIL_REASON", e->reason},
	};
	enum log_priority priority = e->type == EVENT_CONFIG_ERROR	      ? LOG_IS_ERROR
				     : is_transition && e->to == BREAKER_OPEN ? LOG_IS_WARNING
									      : LOG_IS_NOTICE;
	log_event(priority, line, fields, sizeof fields / sizeof fields[0]);
}

static void load_config(void)
{
	static char file[512], set[4096], faults_asked[4097];
	char errors[3500];
	struct text t = TEXT_ON(errors);
	bool is_optional = true;
	struct config_source source = {0};
	errors[0] = '\0';
	if (find_file(file, sizeof file, &is_optional)) {
		source.file = file;
		source.is_optional = is_optional;
	}
	const char *asked = env_at_start("RESIL_SET");
	if (asked && *asked) {
		/* A cut override is a broken one: its last key would be read wrong. */
		if (!text_copy(set, sizeof set, asked))
			text_copy(set, sizeof set, "RESIL_SET is longer than 4095 bytes");
		source.set = set;
	}
	const char *asked_faults = env_at_start("RESIL_FAULTS");
	if (asked_faults && *asked_faults) {
		text_copy(faults_asked, sizeof faults_asked, asked_faults);
		source.faults = faults_asked;
	}
	int faults = 0;
	struct config *c = config_load(&source, &t, &faults);
	if (!c) {
		guest_on = false;
		return;
	}
	policy_set_source(&source);
	policy_set_finder(find_file);
	policy_install(c);
	const char *log = env_at_start("RESIL_LOG");
	log_set_target(log && *log ? log : config_log(c));
	events_set_listener(tell);
	me.state = config_state(c);
	me.max_destinations = config_max_destinations(c);
	if (config_skips(c, me.exe)) {
		guest_on = false;
		return;
	}
	if (faults > 0)
		complain(source.file ? file : "RESIL_SET", errors);
}

void guest_init(int argc, char **argv)
{
	char exe[512];
	read_exe(exe, sizeof exe);
	text_copy(me.exe, sizeof me.exe, base_name(exe));
	const char *group = env_at_start("RESIL_GROUP");
	if (group && *group)
		identity_clean_group(me.group, group);
	else
		identity_group(me.group, exe, argc, argv);
	uid_t uid = sys_geteuid();
	keep_env();
	me.has_state_dir = identity_state_dir(me.state_dir, sizeof me.state_dir, uid, kept_env);
	identity_runtime_dir(me.runtime_dir, sizeof me.runtime_dir, uid, kept_env);
	guest_on = true;
	load_config();
	ambient_init();
	if (guest_on)
		fault_init();
}

void guest_restrict(bool is_so)
{
	atomic_store(&guest_restricted, is_so);
	log_mute(is_so);
	for (int i = 0; i < atomic_load(&attached_count); i++)
		regions[i].is_quiet = is_so;
}
void guest_leave(void)
{
	atomic_store(&is_leaving, true);
}
bool guest_is_leaving(void)
{
	return atomic_load_explicit(&is_leaving, memory_order_relaxed);
}
const char *guest_group(void)
{
	return me.group;
}
const char *guest_exe(void)
{
	return me.exe;
}
const char *guest_runtime_dir(void)
{
	return me.runtime_dir;
}
bool guest_cache_dir(char *dir, size_t cap)
{
	struct text t = {.at = dir, .cap = cap};
	const struct region *r = guest_region_now();
	/* Where the directory was refused (another's, open to others) the region is private. */
	if (!r || !r->is_shared || me.state == STATE_PRIVATE || !me.has_state_dir)
		return false;
	dir[0] = '\0';
	text_fmt(&t, "%s/%s.cache", me.state_dir, me.group);
	return !t.is_cut;
}
int64_t guest_attached_ns(void)
{
	return atomic_load_explicit(&attached_ns, memory_order_relaxed);
}

static void join(struct region *r, int64_t now_ns)
{
	pid_t pid = sys_getpid();
	member_join(r, pid, identity_start_ticks(pid, NULL), me.exe, now_ns);
}

/* `resil off` leaves a file for those who come later: beside the regions for a user, /run/resil/off for the machine. */
static void look_for_off_markers(void)
{
	char path[256];
	struct text t = TEXT_ON(path);
	text_str(&t, me.state_dir);
	text_str(&t, "/off");
	atomic_store(&guest_is_off,
		sys_access("/run/resil/off", F_OK) == 0 || (me.has_state_dir && sys_access(path, F_OK) == 0));
}

static int attach_into(struct region *r)
{
	char file[160];
	int why = 0;
	if (me.state == STATE_PRIVATE)
		return region_attach_private(r, me.group, me.max_destinations);
	if (!me.has_state_dir || !identity_region_file(file, sizeof file, me.group, 0))
		why = ENAMETOOLONG;
	else
		why = -identity_make_dir(me.state_dir);
	if (why == 0) {
		int err = region_attach(r, me.state_dir, file, me.group, me.max_destinations, &why);
		if (err || r->is_shared)
			return err;
		if (why == EMFILE || why == ENFILE) {
			/* It will pass: better unguarded for a moment than alone for good. */
			region_close(r);
			return -why;
		}
	} else if (region_attach_private(r, me.group, me.max_destinations) != 0) {
		return -ENOMEM;
	}
	static bool said;
	char buf[320];
	struct text t = TEXT_ON(buf);
	text_fmt(&t, "no shared state in %s (%s): this process keeps its own", me.state_dir, errname(why));
	log_once(&said, buf);
	return 0;
}

/* Where the region of the identity of now is; false: nowhere. */
static bool find_path(char path[sizeof regions[0].path])
{
	char file[160];
	struct text t = {.at = path, .cap = sizeof regions[0].path};
	if (me.state == STATE_PRIVATE || !me.has_state_dir || !identity_region_file(file, sizeof file, me.group, 0))
		return false;
	path[0] = '\0';
	text_fmt(&t, "%s/%s", me.state_dir, file);
	return !t.is_cut;
}

/* The region that the identity of now leads to, where it is mapped already: a program that changes between two users
 * has two. */
static struct region *find_mapped(void)
{
	char path[sizeof regions[0].path];
	if (!find_path(path))
		return NULL;
	for (int i = 0; i < atomic_load(&attached_count); i++)
		if (regions[i].is_shared && strcmp(regions[i].path, path) == 0 && region_is_current(&regions[i]))
			return &regions[i];
	return NULL;
}

static void attach(int64_t now_ns)
{
	int n = atomic_load(&attached_count);
	struct region *mapped = find_mapped();
	if (mapped) {
		join(mapped, now_ns);
		atomic_store(&guest_must_join, false);
		look_for_off_markers();
		atomic_store(&guest_look_at_ns, now_ns + LOOK_AGAIN_NS);
		atomic_store_explicit(&guest_current, mapped, memory_order_release);
		return;
	}
	if (n >= REGIONS_MAX)
		return; /* someone removes the file over and over: stay with the last one */
	struct region *r = &regions[n];
	memset(r, 0, sizeof *r);
	r->me = -1;
	if (attach_into(r) != 0) {
		atomic_store(&retry_ns, now_ns + LOOK_AGAIN_NS);
		return;
	}
	join(r, now_ns);
	atomic_store(&guest_must_join, false);
	look_for_off_markers();
	atomic_store(&guest_reload_seen, atomic_load(&r->header->reload_seq));
	atomic_store(&config_seen, atomic_load(&r->header->config_seq));
	fault_attached(r);
	atomic_store(&attached_ns, now_ns);
	atomic_store(&guest_look_at_ns, now_ns + LOOK_AGAIN_NS);
	atomic_store(&attached_count, n + 1);
	struct event e = {.type = EVENT_ATTACH, .retry_after_ms = -1};
	text_copy(e.reason, sizeof e.reason, r->is_shared ? "shared" : "private");
	events_add(r, &e);
	atomic_store_explicit(&guest_current, r, memory_order_release);
}

/* Runs one of the rare steps on one thread only. Others wait a moment for it; its own signal handlers do not. */
static bool claim(int64_t now_ns)
{
	uintptr_t nobody = 0;
	if (atomic_compare_exchange_strong(&attaching, &nobody, guest_thread()))
		return true;
	if (nobody == guest_thread())
		return false;
	/* A few times at once, then ever more rarely. */
	int64_t nap_ns = 0;
	while (atomic_load(&attaching) && clock_now_ns() - now_ns < WAIT_NS) {
		struct timespec nap = {.tv_nsec = nap_ns};
		if (nap_ns < 8000)
			sched_yield();
		else
			SYS2(SYS_nanosleep, &nap, NULL);
		nap_ns = nap_ns < 8000 ? nap_ns + 1000 : nap_ns < 8 * NS_PER_MS ? nap_ns * 2 : nap_ns;
	}
	return false;
}

static void release(void)
{
	atomic_store(&attaching, 0);
}

void guest_look_again_now(int64_t now_ns)
{
	int64_t due = atomic_load_explicit(&guest_look_at_ns, memory_order_relaxed);
	if (now_ns < due || guest_is_restricted() || guest_is_leaving() ||
		!atomic_compare_exchange_strong(&guest_look_at_ns, &due, now_ns + LOOK_AGAIN_NS))
		return;
	look_for_off_markers();
	struct region *r = guest_region_now();
	if (r && r->is_shared && !region_is_current(r))
		atomic_store(&guest_current, NULL);
}

struct region *guest_region_slow(int64_t now_ns)
{
	struct region *r = guest_region_now();
	bool may_attach = !guest_is_restricted() && !guest_is_leaving();
	if (r && may_attach && claim(now_ns)) {
		if (atomic_exchange(&guest_must_join, false))
			join(r, now_ns);
		release();
	}
	if (r)
		return r;
	int attached = atomic_load(&attached_count);
	if (attached >= REGIONS_MAX)
		return &regions[REGIONS_MAX - 1];
	if (!may_attach || now_ns < atomic_load(&retry_ns))
		return NULL;
	if (claim(now_ns)) {
		if (!guest_region_now())
			attach(now_ns);
		release();
	}
	return guest_region_now();
}

struct region *guest_region_there(int64_t now_ns)
{
	char path[sizeof regions[0].path];
	if (guest_is_restricted())
		return NULL;
	if (!guest_region_now() && (!find_path(path) || sys_access(path, F_OK) != 0))
		return NULL;
	return guest_region(now_ns);
}

void guest_detach(void)
{
	uid_t uid = sys_geteuid();
	char dir[sizeof me.state_dir];
	kept_values[KEPT_XDG_RUNTIME_DIR][0] = '\0'; /* the former user's */
	if (identity_state_dir(dir, sizeof dir, uid, kept_env) && strcmp(dir, me.state_dir) == 0)
		return; /* RESIL_STATE_DIR, or the same user: its owner check decides at the next look */
	struct region *r = guest_region_now();
	if (r)
		member_leave(r);
	me.has_state_dir = identity_state_dir(me.state_dir, sizeof me.state_dir, uid, kept_env);
	identity_runtime_dir(me.runtime_dir, sizeof me.runtime_dir, uid, kept_env);
	atomic_store(&guest_current, NULL);
}

void guest_forked(void)
{
	for (int i = 0; i < atomic_load(&attached_count); i++)
		regions[i].me = -1;
	circuit_forked();
	atomic_store(&attaching, 0);
	atomic_store(&guest_must_join, true);
}

static void reload_config(struct region *r, uint32_t generation)
{
	char errors[1024];
	struct text t = TEXT_ON(errors);
	errors[0] = '\0';
	int faults = policy_reload(&t);
	if (faults == 0) {
		events_add_reload(r, generation);
		return;
	}
	struct event e = {.type = EVENT_CONFIG_ERROR, .value = faults, .retry_after_ms = -1};
	text_copy(e.reason, sizeof e.reason, errors[0] ? errors : "the configuration could not be read again");
	e.reason[strcspn(e.reason, "\n")] = '\0'; /* the first fault; the log has all of them */
	events_add(r, &e);
	log_line(errors);
}

void guest_reload(struct region *r)
{
	uint32_t asked = atomic_load_explicit(&r->header->reload_seq, memory_order_relaxed);
	uint32_t seen = atomic_load_explicit(&guest_reload_seen, memory_order_relaxed);
	if (asked == seen || guest_is_restricted())
		return;
	if (!atomic_compare_exchange_strong(&guest_reload_seen, &seen, asked))
		return;
	uint32_t config = atomic_load_explicit(&r->header->config_seq, memory_order_relaxed);
	if (atomic_exchange(&config_seen, config) != config)
		reload_config(r, config);
	fault_follow(r);
}
