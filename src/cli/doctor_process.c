/* resil doctor PID: one running process, through /proc. */
#include "cli/cli.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/binary.h"
#include "cli/doctor.h"
#include "cli/shim.h"
#include "core/bypass.h"
#include "core/identity.h"
#include "core/member.h"

static FILE *proc_open(pid_t pid, const char *what)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
	return fopen(path, "re");
}

/* ---- is it in there? ---- */

/* -1: cannot be read. */
static int maps_name_shim(pid_t pid, char *found, size_t cap)
{
	char line[4608];
	FILE *f = proc_open(pid, "maps");
	int is_in = 0;
	if (!f)
		return -1;
	while (!is_in && fgets(line, sizeof line, f)) {
		char *path = strchr(line, '/');
		line[strcspn(line, "\n")] = '\0';
		if (path && strstr(path, "/" SHIM_NAME)) {
			is_in = 1;
			snprintf(found, cap, "%s", path);
		}
	}
	if (ferror(f))
		is_in = -1;
	fclose(f);
	return is_in;
}

/* A line of /proc/PID/status as a number; -1: not there. */
static long status_number(pid_t pid, const char *name)
{
	char line[256];
	long value = -1;
	FILE *f = proc_open(pid, "status");
	while (f && value < 0 && fgets(line, sizeof line, f))
		if (strncmp(line, name, strlen(name)) == 0)
			value = strtol(line + strlen(name), NULL, 10);
	if (f)
		fclose(f);
	return value;
}

/* What the kernel told its dynamic linker when it was started: LD_PRELOAD is to be ignored. */
static bool was_started_secure(pid_t pid)
{
	unsigned long pair[2];
	bool is_so = false;
	FILE *f = proc_open(pid, "auxv");
	while (f && !is_so && fread(pair, sizeof pair, 1, f) == 1)
		is_so = pair[0] == AT_SECURE && pair[1] != 0;
	if (f)
		fclose(f);
	return is_so;
}

/* A security module may keep the file from it: whose rules those are. */
static void say_label(pid_t pid)
{
	char label[256] = "";
	FILE *f = proc_open(pid, "attr/current");
	if (f && fgets(label, sizeof label, f))
		label[strcspn(label, "\n")] = '\0';
	if (f)
		fclose(f);
	bool is_selinux = strchr(label, ':') && strchr(strchr(label, ':') + 1, ':');
	if (!label[0] || strncmp(label, "unconfined", 10) == 0 || (is_selinux && strstr(label, ":unconfined_t:")))
		return;
	if (is_selinux)
		doctor_say(DOCTOR_NOTE, "confined",
			"by SELinux as %s: a denial is in the audit log (ausearch -m avc -c NAME); the file wants a "
			"label that its "
			"domain may read and map, such as lib_t (restorecon)",
			label);
	else
		doctor_say(DOCTOR_NOTE, "confined",
			"by AppArmor's profile %s: a denial is in the kernel's log; the profile wants a line "
			"'PATH/" SHIM_NAME " mr,', and /dev/shm/resil-*/** rw for shared circuits",
			label);
}

/* Does the parent have it? Then it was lost on the way. */
static bool say_scrubbed(pid_t pid)
{
	long parent = status_number(pid, "PPid:");
	if (parent <= 1 || !pid_environ_load((pid_t)parent))
		return false;
	const char *list = pid_getenv("LD_PRELOAD");
	bool is_so = list && shim_is_in(list);
	if (is_so)
		doctor_say(DOCTOR_PROBLEM, "shim",
			"not loaded: its parent, process %ld, has LD_PRELOAD, but it was started without: something "
			"takes "
			"variables out of the environment (sudo, su -, env -i, a supervisor); set it behind that",
			parent);
	return is_so;
}

static void say_why_not(pid_t pid)
{
	static struct binary b;
	char exe[64], path[4096];
	const char *list = pid_getenv("LD_PRELOAD");

	snprintf(exe, sizeof exe, "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(exe, path, sizeof path - 1);
	if (n > 0) {
		path[n] = '\0';
		binary_look_at_file(&b, exe);
		/* The checks name the /proc link; people know the program's own path. */
		if (b.reach == BINARY_UNREACHED && strncmp(b.why, exe, strlen(exe)) == 0) {
			doctor_say(DOCTOR_PROBLEM, "shim", "not loaded: %s%s", path, b.why + strlen(exe));
			return;
		}
	}
	if (!list || !list[0]) {
		if (!say_scrubbed(pid))
			doctor_say(DOCTOR_PROBLEM, "shim",
				"not loaded: it was started without LD_PRELOAD; start it with 'resil run'");
		return;
	}
	if (!shim_is_in(list))
		doctor_say(DOCTOR_PROBLEM, "shim", "not loaded: its LD_PRELOAD is '%s'", list);
	else if (was_started_secure(pid))
		doctor_say(DOCTOR_PROBLEM, "shim",
			"not loaded, though its LD_PRELOAD names it: it was started with rights that are not its "
			"user's "
			"(set-user-ID, file capabilities, a security module's transition), where the dynamic linker "
			"ignores it");
	else
		doctor_say(DOCTOR_PROBLEM, "shim",
			"not loaded, though its LD_PRELOAD names it: is the file readable in its root directory?");
	say_label(pid);
}

/* ---- which group ---- */

static void group_of(pid_t pid, char group[GROUP_MAX + 1])
{
	static char line[65536];
	char *argv[256], exe[64], path[4096];
	int argc = 0;
	const char *given = pid_getenv("RESIL_GROUP");

	if (given && given[0]) {
		identity_clean_group(group, given);
		return;
	}
	snprintf(exe, sizeof exe, "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(exe, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	FILE *f = proc_open(pid, "cmdline");
	size_t len = f ? fread(line, 1, sizeof line - 1, f) : 0;
	if (f)
		fclose(f);
	line[len] = '\0';
	for (size_t at = 0; at < len && argc < 255; at += strlen(line + at) + 1)
		argv[argc++] = line + at;
	argv[argc] = NULL;
	identity_group(group, path, argc, argv);
}

/* Its pid as it knows it: in the innermost pid namespace. */
static pid_t inner_pid(pid_t pid)
{
	char line[256];
	FILE *f = proc_open(pid, "status");
	pid_t inner = pid;
	while (f && fgets(line, sizeof line, f)) {
		if (strncmp(line, "NSpid:", 6) != 0)
			continue;
		char *last = strrchr(line, '\t');
		if (last)
			inner = (pid_t)strtol(last + 1, NULL, 10);
		break;
	}
	if (f)
		fclose(f);
	return inner;
}

static const struct member *find_member(const struct region *r, pid_t pid)
{
	for (unsigned i = 0; i < REGION_MEMBERS; i++) {
		uint64_t id = atomic_load(&r->members[i].id);
		if (id && member_pid(id) == pid)
			return &r->members[i];
	}
	return NULL;
}

/* ---- its connections ---- */

struct connection {
	unsigned long inode;
	unsigned local_port, state;
	char remote[64];
};
struct connections {
	struct connection *at;
	size_t n;
	bool is_listening[65536];
};

enum { TCP_ROW_ESTABLISHED = 1, TCP_ROW_SYN_SENT = 2, TCP_ROW_LISTEN = 10 };

static void remote_text(char *to, size_t cap, const char *hex, unsigned port)
{
	struct addr a = {.family = ADDR_INET, .port = (uint16_t)port};
	struct text t = {.at = to, .cap = cap};
	to[0] = '\0';
	size_t words = strlen(hex) / 8;

	if (words == 1)
		a.ip[10] = a.ip[11] = 0xff;
	for (size_t w = 0; w < words && w < 4; w++) {
		char word[9];
		memcpy(word, hex + w * 8, 8);
		word[8] = '\0';
		uint32_t v = (uint32_t)strtoul(word, NULL, 16); /* in the machine's own order */
		memcpy(a.ip + (words == 1 ? 12 : w * 4), &v, 4);
	}
	addr_text(&t, &a);
}

static void read_tcp(struct connections *c, pid_t pid, const char *what)
{
	char line[512], remote[40];
	unsigned local_port, remote_port, state;
	unsigned long inode;
	FILE *f = proc_open(pid, what);

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, " %*u: %*32[0-9A-F]:%x %32[0-9A-F]:%x %x %*s %*s %*s %*u %*u %lu", &local_port, remote,
			    &remote_port, &state, &inode) != 5)
			continue;
		if (state == TCP_ROW_LISTEN)
			c->is_listening[local_port & 0xffff] = true;
		struct connection *more = realloc(c->at, (c->n + 1) * sizeof *more);
		if (!more)
			break;
		c->at = more;
		c->at[c->n] = (struct connection){.inode = inode, .local_port = local_port & 0xffff, .state = state};
		remote_text(c->at[c->n].remote, sizeof c->at[c->n].remote, remote, remote_port);
		c->n++;
	}
	if (f)
		fclose(f);
}

struct sight {
	unsigned established, pending, accepted, others; /* others: sockets that are no TCP */
	bool has_io_uring;
	char first[8][64];
};

static const struct connection *by_inode(const struct connections *c, unsigned long inode)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->at[i].inode == inode)
			return &c->at[i];
	return NULL;
}

/* Outgoing: not from a port on which something listens here. False: its descriptors cannot be read. */
static bool count_connections(pid_t pid, struct sight *s)
{
	static struct connections c;
	char path[320], link[128];
	struct dirent *e;

	read_tcp(&c, pid, "net/tcp");
	read_tcp(&c, pid, "net/tcp6");
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *d = opendir(path);
	if (!d)
		return false;
	while ((e = readdir(d)) != NULL) {
		unsigned long inode;
		snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, e->d_name);
		ssize_t n = readlink(path, link, sizeof link - 1);
		if (n <= 0)
			continue;
		link[n] = '\0';
		s->has_io_uring |= strcmp(link, "anon_inode:[io_uring]") == 0;
		if (sscanf(link, "socket:[%lu]", &inode) != 1)
			continue;
		const struct connection *one = by_inode(&c, inode);
		s->others += !one;
		if (!one || (one->state != TCP_ROW_ESTABLISHED && one->state != TCP_ROW_SYN_SENT))
			continue;
		if (c.is_listening[one->local_port]) {
			s->accepted++;
			continue;
		}
		unsigned seen = s->established + s->pending;
		if (seen < 8)
			memcpy(s->first[seen], one->remote, sizeof s->first[seen]);
		if (one->state == TCP_ROW_ESTABLISHED)
			s->established++;
		else
			s->pending++;
	}
	closedir(d);
	free(c.at);
	return true;
}

static void say_connections(pid_t pid, const struct member *m)
{
	struct sight s = {0};
	if (!count_connections(pid, &s)) {
		doctor_say(DOCTOR_NOTE, "connections", "its descriptors cannot be read: %s", strerror(errno));
		return;
	}
	unsigned outgoing = s.established + s.pending, guarded = m ? atomic_load(&m->connections) : 0;
	enum doctor_verdict verdict = guarded < outgoing ? DOCTOR_PROBLEM : DOCTOR_OK;
	doctor_say(verdict, "connections", "%u outgoing (%u established, %u pending), %u accepted; %u guarded",
		outgoing, s.established, s.pending, s.accepted, guarded);
	if (s.others)
		doctor_say(DOCTOR_NOTE, "connections",
			"%u more sockets are no TCP connections: they pass untouched, unix ones but where a match "
			"names them",
			s.others);
	for (unsigned i = 0; i < outgoing && i < 8; i++)
		doctor_say(DOCTOR_NOTE, "connection", "to %s", s.first[i]);
	if (guarded < outgoing && m)
		doctor_say(DOCTOR_NOTE, "connections",
			"those not guarded: made before the shim attached or inherited, to a destination with breaker "
			"= off, or not through libc%s",
			s.has_io_uring ? " (it uses io_uring)" : "");
}

/* ---- all of it ---- */

static const struct member *say_member(pid_t pid, struct groups *g, const char *group)
{
	struct options o = {.pid = pid, .group = group, .is_quiet = true};
	int code = groups_open(g, &o, false);
	if (code) {
		doctor_say(DOCTOR_NOTE, "group",
			"%s has no region yet: it has made no guarded connection, or keeps its state private", group);
		return NULL;
	}
	const struct region *r = &g->at[0].region;
	unsigned bypass = group_bypass(&g->at[0]);
	if (bypass & BYPASS_GROUP)
		doctor_say(
			DOCTOR_PROBLEM, "group", "%s is off; 'resil on -g %s -p %d' undoes it", group, group, (int)pid);
	if (bypass & BYPASS_USER)
		doctor_say(DOCTOR_PROBLEM, "group", "every group of its user is off; 'resil on -p %d' undoes it",
			(int)pid);
	if (bypass & BYPASS_MACHINE)
		doctor_say(DOCTOR_PROBLEM, "group", "the whole machine is off; root undoes it with 'resil on --host'");
	const struct member *m = find_member(r, inner_pid(pid));
	if (!m) {
		doctor_say(DOCTOR_NOTE, "member", "it has not joined %s yet: it does at its first guarded connection%s",
			group, pid_getenv("RESIL_DISABLE") ? " (RESIL_DISABLE is set: never)" : "");
		return NULL;
	}
	doctor_say(DOCTOR_OK, "member", "of %s for %llds, %u guarded connections", group,
		(long long)((clock_now_ns() - atomic_load(&m->since_ns)) / NS_PER_S), atomic_load(&m->connections));
	return m;
}

/* The group that it has joined. False: none yet. */
static bool joined_group(pid_t pid, char group[GROUP_MAX + 1])
{
	struct options o = {.pid = pid, .is_quiet = true};
	struct groups all = {0};
	bool is_found = false;

	if (groups_open(&all, &o, false) == 0) {
		for (size_t i = 0; i < all.n && !is_found; i++) {
			const struct member *m = find_member(&all.at[i].region, inner_pid(pid));
			if (!m || !group_member_lives(atomic_load(&m->id), &all.at[i]))
				continue;
			text_copy(group, GROUP_MAX + 1, all.at[i].name);
			is_found = true;
		}
		groups_close(&all);
	}
	return is_found;
}

int doctor_examine_process(pid_t pid)
{
	char found[4096] = "", group[GROUP_MAX + 1];
	struct groups g = {0};

	FILE *f = pid > 0 ? proc_open(pid, "stat") : NULL;
	if (!f) {
		doctor_say(DOCTOR_PROBLEM, "process", "there is no process %d", (int)pid);
		return EXIT_ABSENT;
	}
	fclose(f);
	int is_in = maps_name_shim(pid, found, sizeof found);
	if (is_in < 0 || !pid_environ_load(pid)) {
		doctor_say(DOCTOR_PROBLEM, "process", "%d is not yours to look into: %s", (int)pid, strerror(errno));
		return EXIT_DENIED;
	}
	if (!is_in) {
		say_why_not(pid);
		say_connections(pid, NULL);
		return EXIT_DONE;
	}
	doctor_say(DOCTOR_OK, "shim", "%s", found);
	/* Its environment may say nothing any more: nginx writes its titles over it. */
	if (!joined_group(pid, group))
		group_of(pid, group);
	doctor_say(DOCTOR_OK, "group", "%s", group);
	say_connections(pid, say_member(pid, &g, group));
	groups_close(&g);
	return EXIT_DONE;
}
