/* Which regions a verb looks at: this user's, one group's, every user's, or those that another process sees. */
#include "cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/faults_admin.h"
#include "control/nearby.h"
#include "core/bulkhead.h"
#include "core/bypass.h"
#include "core/identity.h"
#include "core/member.h"
#include "core/registry.h"

/* ---- variables ---- */

const char *own_getenv(const char *name)
{
	return getenv(name);
}

static char *pid_variables;
static size_t pid_variables_len;

bool pid_environ_load(pid_t pid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	free(pid_variables);
	pid_variables = NULL;
	pid_variables_len = 0;
	for (size_t cap = 0;;) {
		if (pid_variables_len + 4097 > cap) {
			cap = cap ? cap * 2 : 65536;
			char *more = realloc(pid_variables, cap);
			if (!more)
				break;
			pid_variables = more;
		}
		size_t n = fread(pid_variables + pid_variables_len, 1, 4096, f);
		if (n == 0)
			break;
		pid_variables_len += n;
	}
	bool is_read = !ferror(f);
	fclose(f);
	if (pid_variables)
		pid_variables[pid_variables_len] = '\0';
	return is_read && pid_variables;
}

const char *pid_getenv(const char *name)
{
	size_t n = strlen(name);
	for (size_t at = 0; pid_variables && at < pid_variables_len; at += strlen(pid_variables + at) + 1)
		if (strncmp(pid_variables + at, name, n) == 0 && pid_variables[at + n] == '=')
			return pid_variables + at + n + 1;
	return NULL;
}

/* ---- places ---- */

static int pid_uid(pid_t pid, uid_t *uid)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	if (stat(path, &st) != 0) {
		fprintf(stderr, "resil: there is no process %d\n", (int)pid);
		return EXIT_ABSENT;
	}
	*uid = st.st_uid;
	return 0;
}

static int denied(pid_t pid, const char *what)
{
	fprintf(stderr, "resil: %s of process %d cannot be read: %s\n", what, (int)pid, strerror(errno));
	return errno == EACCES || errno == EPERM ? EXIT_DENIED : EXIT_FAILED;
}

int groups_place(const struct options *o, char dir[256], char suffix[64])
{
	char file[GROUP_MAX + 64], in_root[200];
	uid_t uid = 0;
	int code = o->pid ? pid_uid(o->pid, &uid) : 0;
	if (code)
		return code;
	if (!identity_region_file(file, sizeof file, "x", o->pid)) {
		errno = EACCES;
		if (o->pid)
			return denied(o->pid, "the namespaces");
		fputs("resil: the namespaces of this process cannot be read: is /proc there?\n", stderr);
		return EXIT_FAILED;
	}
	text_copy(suffix, 64, file + 1);
	if (o->pid == 0) {
		if (identity_state_dir(dir, 256, geteuid(), own_getenv))
			return 0;
		fputs("resil: RESIL_STATE_DIR is too long\n", stderr);
		return EXIT_FAILED;
	}
	if (!pid_environ_load(o->pid))
		return denied(o->pid, "the environment");
	if (!identity_state_dir(in_root, sizeof in_root, uid, pid_getenv))
		return EXIT_FAILED;
	snprintf(dir, 256, "/proc/%d/root%s", (int)o->pid, in_root);
	return 0;
}

bool groups_socket(const struct options *o, const struct group *g, char *path, size_t cap)
{
	char dir[256], in_root[108], root[40] = "";
	uid_t uid = geteuid();
	if (o->pid) {
		if (pid_uid(o->pid, &uid) || !pid_environ_load(o->pid))
			return false;
		snprintf(root, sizeof root, "/proc/%d/root", (int)o->pid);
	}
	/* The name is made as its members make it; the way into their root comes after, or it would count towards the
	 * 107 bytes. */
	return identity_runtime_dir(dir, sizeof dir, uid, o->pid ? pid_getenv : own_getenv) &&
	       identity_socket_path(in_root, sizeof in_root, dir, g->name, 0) &&
	       snprintf(path, cap, "%s%s", root, in_root) < (int)cap;
}

/* ---- opening ---- */

static void owner_name(char to[40], const char *path)
{
	struct stat st = {0};
	const struct passwd *who = stat(path, &st) == 0 ? getpwuid(st.st_uid) : NULL;
	if (who)
		snprintf(to, 40, "%s", who->pw_name);
	else
		snprintf(to, 40, "%u", (unsigned)st.st_uid);
}

static int open_one(struct groups *g, const char *path, bool is_for_change)
{
	struct region r = {0};
	int err = region_open(&r, path, false);
	if ((err == -EPERM || err == -EACCES || err == -EROFS) && !is_for_change)
		err = region_open(&r, path, true);
	if (err)
		return err;
	struct group *more = realloc(g->at, (g->n + 1) * sizeof *more);
	if (!more) {
		region_close(&r);
		return -ENOMEM;
	}
	g->at = more;
	struct group *new = &g->at[g->n++];
	new->region = r;
	new->through = 0;
	new->root[0] = '\0';
	owner_name(new->user, path);
	snprintf(new->path, sizeof new->path, "%s", path);
	memcpy(new->name, r.header->group, sizeof new->name);
	new->name[sizeof new->name - 1] = '\0';
	return 0;
}

static bool ends_with(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);
	return n > m && strcmp(s + n - m, suffix) == 0;
}

/* All regions of a directory whose name has the suffix. Files that are no regions are passed over with a remark. */
static int open_dir(struct groups *g, const char *dir, const char *suffix, bool is_for_change)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	if (!d)
		return -errno;
	while ((e = readdir(d)) != NULL) {
		char path[600];
		/* A group may begin with a dot, like the program it is named after: only the suffix tells. */
		if (!ends_with(e->d_name, suffix))
			continue;
		snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
		int err = strlen(path) < 256 ? open_one(g, path, is_for_change) : -ENAMETOOLONG;
		g->is_troubled |= err == -EPERM;
		if (err && err != -ENOENT)
			fprintf(stderr, "resil: %s is passed over: %s\n", path,
				err == -EPROTO	? "not a region of this version"
				: err == -EPERM ? "not yours"
						: strerror(-err));
	}
	closedir(d);
	return 0;
}

static void open_all_users(struct groups *g, const char *suffix, bool is_for_change)
{
	DIR *d = opendir("/dev/shm");
	struct dirent *e;
	struct stat st;
	char path[300];
	while (d && (e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, "resil-", 6) != 0)
			continue;
		snprintf(path, sizeof path, "/dev/shm/%s", e->d_name);
		if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
			open_dir(g, path, suffix, is_for_change);
	}
	if (d)
		closedir(d);
}

/* Is that process in another pid namespace than this one? */
static bool is_elsewhere(pid_t pid)
{
	char path[64], here[64] = "", there[64] = "";
	snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
	return readlink("/proc/self/ns/pid", here, sizeof here - 1) <= 0 ||
	       readlink(path, there, sizeof there - 1) <= 0 || strcmp(here, there) != 0;
}

static int by_name(const void *a, const void *b)
{
	const struct group *x = a, *y = b;
	int by_group = strcmp(x->name, y->name);
	return by_group ? by_group : strcmp(x->user, y->user);
}

static int lacks_group(const char *dir, const char *suffix, const char *wanted)
{
	struct groups all = {0};
	open_dir(&all, dir, suffix, false);
	fprintf(stderr, "resil: there is no group '%s'", wanted);
	for (size_t i = 0; i < all.n; i++)
		fprintf(stderr, "%s%s", i ? ", " : "; there are: ", all.at[i].name);
	fputc('\n', stderr);
	groups_close(&all);
	return EXIT_ABSENT;
}

int groups_open(struct groups *g, const struct options *o, bool is_for_change)
{
	char dir[256], suffix[64], clean[GROUP_MAX + 1], path[512];

	memset(g, 0, sizeof *g);
	g->has_users = o->all_users;
	if (o->all_users && geteuid() != 0) {
		fputs("resil: --all-users is root's\n", stderr);
		return EXIT_DENIED;
	}
	int code = groups_place(o, dir, suffix);
	if (code)
		return code;
	if (o->all_users) {
		open_all_users(g, suffix, is_for_change);
	} else if (o->group) {
		identity_clean_group(clean, o->group);
		snprintf(path, sizeof path, "%s/%s%s", dir, clean, suffix);
		int err = strlen(path) < 256 ? open_one(g, path, is_for_change) : -ENAMETOOLONG;
		if (err == -ENOENT && o->is_quiet)
			return EXIT_ABSENT;
		if (err == -ENOENT)
			return lacks_group(dir, suffix, o->group);
		if (err) {
			fprintf(stderr, "resil: %s: %s\n", path,
				err == -EPROTO ? "not a region of this version" : strerror(-err));
			return err == -EPERM || err == -EACCES ? EXIT_DENIED : EXIT_FAILED;
		}
	} else {
		int err = open_dir(g, dir, suffix, is_for_change);
		if (err && err != -ENOENT) {
			fprintf(stderr, "resil: %s: %s\n", dir, strerror(-err));
			return err == -EACCES ? EXIT_DENIED : EXIT_FAILED;
		}
	}
	if (o->all_users && o->group) {
		size_t kept = 0;
		identity_clean_group(clean, o->group);
		for (size_t i = 0; i < g->n; i++) {
			if (strcmp(g->at[i].name, clean) == 0)
				g->at[kept++] = g->at[i];
			else
				region_close(&g->at[i].region);
		}
		g->n = kept;
		if (kept == 0) {
			fprintf(stderr, "resil: no user has a group '%s'\n", o->group);
			return EXIT_ABSENT;
		}
	}
	for (size_t i = 0; o->pid && i < g->n; i++) {
		g->at[i].through = is_elsewhere(o->pid) ? o->pid : 0;
		snprintf(g->at[i].root, sizeof g->at[i].root, "/proc/%d/root", (int)o->pid);
	}
	if (g->n)
		qsort(g->at, g->n, sizeof *g->at, by_name);
	return 0;
}

void groups_close(struct groups *g)
{
	for (size_t i = 0; i < g->n; i++)
		region_close(&g->at[i].region);
	free(g->at);
	memset(g, 0, sizeof *g);
}

bool group_member_lives(uint64_t id, const void *group)
{
	const struct group *g = group;
	char path[96];
	if (g->through == 0)
		return member_is_alive(id);
	/* Its own /proc knows its own pids. Without one nobody can tell: show it. */
	snprintf(path, sizeof path, "/proc/%d/root/proc/self", (int)g->through);
	struct stat st;
	if (lstat(path, &st) != 0)
		return true;
	snprintf(path, sizeof path, "/proc/%d/root/proc/%d", (int)g->through, (int)member_pid(id));
	return access(path, F_OK) == 0;
}

void groups_freshen(struct groups *g)
{
	/* Asked here, every member of another pid namespace would look dead. */
	for (size_t i = 0; i < g->n; i++)
		if (!g->at[i].region.is_read_only && g->at[i].through == 0) {
			member_reap_dead(&g->at[i].region);
			bulkhead_collect_all(&g->at[i].region, clock_now_ns());
		}
}

/* ---- what is wrong ---- */

bool groups_say_refused(const struct options *o)
{
	char dir[256], suffix[64], why_at[256] = "";
	struct text why = TEXT_ON(why_at);
	uid_t uid = geteuid();

	if (o->all_users || (o->pid && pid_uid(o->pid, &uid)) || groups_place(o, dir, suffix))
		return false; /* groups_open says why */
	int err = identity_check_dir(dir, uid, &why);
	if (err == 0)
		return false;
	if (err == -ENOENT && o->pid == 0) {
		/* It is made by the first program that needs it, if that can be. */
		char *slash = strrchr(dir, '/');
		if (slash && slash != dir) {
			*slash = '\0';
			if (access(dir, W_OK | X_OK) != 0)
				text_fmt(&why, "cannot be made: %s: %s", dir, strerror(errno));
			*slash = '/';
		}
	}
	if (!why_at[0])
		return false;
	fprintf(stderr,
		"resil: the state directory %s %s: the shim refuses it, and each process keeps circuits of its own\n",
		dir, why_at);
	return true;
}

bool groups_say_damaged(const struct groups *g)
{
	char why_at[256];
	bool is_any = g->is_troubled;
	for (size_t i = 0; i < g->n; i++) {
		struct text why = TEXT_ON(why_at);
		why_at[0] = '\0';
		if (region_valid(&g->at[i].region, &why))
			continue;
		fprintf(stderr,
			"resil: the region of group %s is damaged: %s: calls may pass unguarded; remove %s when none "
			"of its programs run\n",
			g->at[i].name, why_at, g->at[i].path);
		is_any = true;
	}
	return is_any;
}

/* ---- bypasses ---- */

unsigned group_bypass(const struct group *g)
{
	return bypass_of(&g->region, g->root);
}

static unsigned place_bypass(const struct options *o)
{
	char dir[256], suffix[64], root[32] = "";
	if (o->pid)
		snprintf(root, sizeof root, "/proc/%d/root", (int)o->pid);
	return bypass_markers(root, !o->all_users && groups_place(o, dir, suffix) == 0 ? dir : "");
}

#define FAULT_IS_LATELY_NS (60 * NS_PER_S)

static bool text_is_printable(const char *s)
{
	while (*s && (unsigned char)*s >= 0x20 && (unsigned char)*s < 0x7f)
		s++;
	return *s == '\0';
}

bool groups_say_bypass(const struct groups *g, const struct options *o)
{
	unsigned found = place_bypass(o);
	if (found & BYPASS_MACHINE)
		fputs("resil: the whole machine is off: every call passes unguarded; root undoes it with 'resil on "
		      "--host'\n",
			stderr);
	if (found & BYPASS_USER)
		fprintf(stderr,
			"resil: every group of %s is off, those to come as well: all calls pass unguarded; 'resil "
			"on%s' undoes it\n",
			o->pid ? "that user" : "yours", options_again(&(struct options){.pid = o->pid}, NULL));
	const char *said = "";
	bool is_any = false;
	for (size_t i = 0; g->at && i < g->n; i++) {
		unsigned one = group_bypass(&g->at[i]) & ~found;
		/* Sorted by name, not by user: said again rather than missed. */
		if (one & BYPASS_USER && strcmp(said, g->at[i].user) != 0)
			fprintf(stderr, "resil: every group of %s is off: that user undoes it with 'resil on'\n",
				said = g->at[i].user);
		if (one & BYPASS_GROUP)
			fprintf(stderr, "resil: group %s is off: its calls pass unguarded; 'resil on%s' undoes it\n",
				g->at[i].name, options_again(o, g->at[i].name));
		is_any |= one != 0;
	}
	return is_any || found != 0;
}

/* A line for each fault that is added, and for each other that has hit a call lately. */
void groups_say_faults_as(const struct groups *g, const struct options *o, void (*say)(const char *line))
{
	int64_t now = clock_now_ns();
	for (size_t i = 0; g->at && i < g->n; i++) {
		const struct region *r = &g->at[i].region;
		struct fault_shown shown;
		char name[32], destination[REGION_NAME_MAX + 1], line[1024];
		uint64_t hits;
		if (!faults_admin_has_members(r, group_member_lives, &g->at[i]))
			continue;
		for (int at = 0; (at = faults_admin_next(r, (uint32_t)at, now, &shown)) >= 0; at++) {
			snprintf(line, sizeof line, "a fault is on in group %s: %s; 'resil fault rm %s%s' lifts it",
				g->at[i].name, shown.spec, shown.name, options_again(o, g->at[i].name));
			say(line);
		}
		for (int at = 0; (at = faults_next_count(r, (uint32_t)at, name, destination, &hits)) >= 0; at++) {
			int64_t used = atomic_load_explicit(&r->fault_counts[at].used_ns, memory_order_relaxed);
			bool is_added = false;
			for (int k = 0; (k = faults_admin_next(r, (uint32_t)k, now, &shown)) >= 0; k++)
				is_added |= strcmp(shown.name, name) == 0;
			if (is_added || now - used > FAULT_IS_LATELY_NS || !text_is_printable(name) ||
				!text_is_printable(destination))
				continue;
			snprintf(line, sizeof line, "a fault is on in group %s: %s has hit %llu calls to %s",
				g->at[i].name, name, (unsigned long long)hits, destination);
			say(line);
		}
	}
}

static void remark(const char *line)
{
	fprintf(stderr, "resil: %s\n", line);
}

void groups_say_faults(const struct groups *g, const struct options *o)
{
	groups_say_faults_as(g, o, remark);
}

static int by_destination(const void *a, const void *b, void *region)
{
	char x[REGION_NAME_MAX + 1], y[REGION_NAME_MAX + 1];
	const struct region *const *r = region;
	registry_name(*r, *(const uint32_t *)a, x);
	registry_name(*r, *(const uint32_t *)b, y);
	return strcmp(x, y);
}

uint32_t *groups_sorted(const struct region *r, size_t *n)
{
	uint32_t *at = calloc((size_t)r->capacity + 1, sizeof *at);
	*n = 0;
	for (int d = registry_next(r, 0); at && d >= 0 && *n < r->capacity; d = registry_next(r, (uint32_t)d + 1))
		at[(*n)++] = (uint32_t)d;
	if (at)
		qsort_r(at, *n, sizeof *at, by_destination, &r);
	return at;
}

int groups_lack(const struct groups *g, const char *destination)
{
	char words_at[2048];
	if (g->n == 0) {
		fprintf(stderr, "resil: no destination '%s': no guarded program has made a connection yet\n",
			destination);
		return EXIT_ABSENT;
	}
	for (size_t i = 0; i < g->n; i++) {
		struct text words = TEXT_ON(words_at);
		words_at[0] = '\0';
		nearby_destinations(&words, &g->at[i].region, destination);
		fprintf(stderr, "resil: no destination '%s' in group %s: %s\n", destination, g->at[i].name, words_at);
	}
	return EXIT_ABSENT;
}
