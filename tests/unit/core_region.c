/* The shared region: attaching, falling back, destinations, members, events, and random bytes under everybody's feet
 * (E7, E10, E11, E15, B18). */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/bulkhead.h"
#include "core/circuit.h"
#include "core/endpoint.h"
#include "core/events.h"
#include "core/faults.h"
#include "core/identity.h"
#include "core/known.h"
#include "core/lease.h"
#include "core/member.h"
#include "core/region.h"
#include "core/registry.h"
#include "core_rules.h"
#include "tap.h"

#define FILE_NAME "app.0123456789abcdef.v1"

static char dir[64], path[128];

/* Memory that parent and children share to report in. */
static struct report {
	_Atomic int go, ready;
	_Atomic uint64_t ino[64];
	_Atomic int is_shared[64], why[64];
	_Atomic uint64_t sum;
} * report;

static void in_child(int index, void (*fn)(int))
{
	pid_t pid = fork();

	if (pid < 0)
		abort();
	if (pid == 0) {
		fn(index);
		_exit(0);
	}
}

/* How many of n children ended well. */
static int wait_all(int n)
{
	int good = 0, status;

	for (int i = 0; i < n; i++)
		if (wait(&status) > 0) {
			good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
			if (WIFSIGNALED(status))
				printf("# a child died of signal %d\n", WTERMSIG(status));
		}
	return good;
}

static void barrier(int n)
{
	report->ready++;
	while (report->ready < n)
		sched_yield();
}

static void remove_region(void)
{
	unlink(path);
}

static int files_in_dir(void)
{
	char command[128];
	int n = -1;

	snprintf(command, sizeof command, "ls -A %s | wc -l", dir);
	FILE *f = popen(command, "r");
	if (!f || fscanf(f, "%d", &n) != 1)
		n = -1;
	if (f)
		pclose(f);
	return n;
}

static void put_bytes(off_t at, const void *bytes, size_t n)
{
	int fd = open(path, O_RDWR);

	if (fd < 0 || pwrite(fd, bytes, n, at) != (ssize_t)n)
		abort();
	close(fd);
}

/* ---- attaching ---- */

static void attach_one(int index)
{
	struct region r;
	int why = 0;

	barrier(16);
	if (region_attach(&r, dir, FILE_NAME, "app", 64, &why) != 0)
		_exit(1);
	report->ino[index] = (uint64_t)r.ino;
	report->is_shared[index] = r.is_shared;
	report->why[index] = why;
	atomic_fetch_add(&r.header->registry_full, 1);
	barrier(32);
}

static void race(const char *name, int before)
{
	for (int round = 0; round < 6; round++) {
		struct region r;

		remove_region();
		if (before) {
			if (region_attach(&r, dir, FILE_NAME, "app", 64, NULL) != 0 || !r.is_shared)
				abort();
			region_close(&r);
			if (before == 1)
				put_bytes(0, "damaged", 7);
			else if (before == 2)
				put_bytes(offsetof(struct region_header, boot_id), "00000000-", 9);
			else if (truncate(path, 5000) != 0)
				abort();
		}
		report->ready = 0;
		for (int i = 0; i < 16; i++)
			in_child(i, attach_one);
		int good = wait_all(16), same = 0, shared = 0;
		for (int i = 0; i < 16; i++) {
			same += report->ino[i] == report->ino[0];
			shared += report->is_shared[i];
		}
		tap_expect(good == 16 && same == 16 && shared == 16,
			"round %d: %d well, %d in the same file, %d shared (errno %d)", round, good, same, shared,
			report->why[0]);
		int err = region_open(&r, path, true);
		tap_expect(err == 0 && r.header->registry_full == 16 && region_valid(&r, NULL),
			"round %d: the file is what all of them used", round);
		region_close(&r);
		tap_expect(files_in_dir() == 1, "round %d: nothing else is left in the directory", round);
	}
	tap_all(name);
}

/* ---- falling back ---- */

static bool falls_back(int expected)
{
	struct region r;
	int why = 0, err = region_attach(&r, dir, FILE_NAME, "app", 64, &why);
	bool good = err == 0 && !r.is_shared && why == expected && registry_find_or_add(&r, "a:1", "", 1) >= 0 &&
		    region_valid(&r, NULL);

	if (!good)
		printf("# attach %d, shared %d, why %s, not %s\n", err, r.is_shared, strerror(why), strerror(expected));
	region_close(&r);
	return good;
}

static void with_small_files(int unused)
{
	(void)unused;
	struct rlimit limit = {100000, 100000};
	setrlimit(RLIMIT_FSIZE, &limit);
	_exit(falls_back(EFBIG) ? 0 : 1);
}

static void without_memory(int unused)
{
	struct region r;
	struct rlimit limit = {1, 1};

	(void)unused;
	setrlimit(RLIMIT_AS, &limit);
	_exit(region_attach(&r, dir, FILE_NAME, "app", 64, NULL) == -ENOMEM && !r.header ? 0 : 1);
}

static void in_read_only_dir(int unused)
{
	(void)unused;
	if (geteuid() == 0 &&
		(setgroups(0, NULL) != 0 || setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0))
		_exit(2);
	_exit(falls_back(EACCES) ? 0 : 1);
}

static void in_full_tmpfs(int unused)
{
	(void)unused;
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		mount("none", dir, "tmpfs", 0, "size=128k,mode=0700") != 0)
		_exit(77);
	_exit(falls_back(ENOSPC) && files_in_dir() == 0 ? 0 : 1);
}

static void of_another_owner(void)
{
	struct stat st;

	if (geteuid() != 0)
		return;
	close(open(path, O_CREAT | O_RDWR, 0600));
	if (chown(path, 65534, 65534) != 0)
		abort();
	tap_ok(falls_back(EPERM) && stat(path, &st) == 0 && st.st_uid == 65534,
		"E11: another owner's file is left alone");
	remove_region();
}

static void fall_backs(void)
{
	struct stat st;

	remove_region();
	close(open(path, O_CREAT | O_RDWR, 0600));
	chmod(path, 0644);
	tap_ok(falls_back(EPERM) && stat(path, &st) == 0 && st.st_size == 0,
		"E11: a file that others may read is left alone");
	remove_region();
	of_another_owner();
	if (symlink("/etc/passwd", path) != 0)
		abort();
	tap_ok(falls_back(ELOOP), "E11: a symbolic link is refused");
	remove_region();
	if (mkfifo(path, 0600) != 0)
		abort();
	tap_ok(falls_back(EPERM), "E11: a pipe is refused, without waiting for its other end");
	remove_region();
	if (mkdir(path, 0700) != 0)
		abort();
	tap_ok(falls_back(EISDIR), "a directory in its place: private memory");
	rmdir(path);

	in_child(0, with_small_files);
	tap_ok(wait_all(1) == 1, "E7: a limit of file sizes: private memory, no SIGXFSZ");
	in_child(0, without_memory);
	tap_ok(wait_all(1) == 1, "E7: no memory at all: -ENOMEM");
	if (geteuid() == 0)
		chmod(dir, 0755);
	else
		chmod(dir, 0500);
	in_child(0, in_read_only_dir);
	tap_ok(wait_all(1) == 1, "E7: a directory that cannot be written: private memory");
	chmod(dir, 0700);
	int status;
	in_child(0, in_full_tmpfs);
	wait(&status);
	tap_ok(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77),
		"E7: a full tmpfs: private memory, nothing left behind%s",
		WIFEXITED(status) && WEXITSTATUS(status) == 77 ? " # SKIP may not mount" : "");
	snprintf(path, sizeof path, "%s/none/" FILE_NAME, dir);
	struct region r;
	char gone[128];
	int why = 0;
	snprintf(gone, sizeof gone, "%s/none", dir);
	tap_ok(region_attach(&r, gone, FILE_NAME, "app", 64, &why) == 0 && !r.is_shared && why == ENOENT,
		"no directory: private memory");
	region_close(&r);
	snprintf(path, sizeof path, "%s/" FILE_NAME, dir);
}

static void life(void)
{
	struct region r, other;
	struct stat st;
	mode_t old = umask(0777);
	int err = region_attach(&r, dir, FILE_NAME, "app", 64, NULL);

	umask(old);
	tap_ok(err == 0 && r.is_shared && stat(path, &st) == 0 && (st.st_mode & 07777) == 0600,
		"made 0600, whatever the umask");
	tap_ok((size_t)st.st_blocks * 512 >= r.size && (size_t)st.st_size == r.size,
		"E7: allocated in full (%zu bytes)", r.size);
	int index = registry_find_or_add(&r, "db:5432", "pay", 1);
	r.destinations[index].success = 42;
	region_close(&r);
	tap_ok(region_attach(&r, dir, FILE_NAME, "app", 8, NULL) == 0 && r.capacity == 64 &&
			registry_find(&r, "db:5432") == index && r.destinations[index].success == 42,
		"B18: outlives its processes; who joins later finds it as it is");
	tap_ok(region_open(&other, path, true) == 0 && other.is_read_only && registry_find(&other, "db:5432") == index,
		"opened for reading by the command");
	region_close(&other);
	tap_ok(region_is_current(&r), "it is the file at its path");
	remove_region();
	tap_ok(!region_is_current(&r), "E15: unlinked: no longer current");
	tap_ok(region_attach(&other, dir, FILE_NAME, "app", 8, NULL) == 0 && !region_is_current(&r) &&
			region_is_current(&other) && r.destinations[index].success == 42 &&
			registry_find(&other, "db:5432") == -ENOENT,
		"E15: a new one in its place; the old memory stays usable");
	region_close(&r);
	region_close(&other);

	tap_ok(region_open(&r, "/nonexistent/x", true) == -ENOENT, "open: ENOENT");
	put_bytes(offsetof(struct region_header, boot_id), "00000000-", 9);
	tap_ok(region_open(&r, path, true) == -ESTALE, "open: ESTALE for another boot's");
	put_bytes(offsetof(struct region_header, layout), "\x63", 1);
	tap_ok(region_open(&r, path, true) == -EPROTO, "open: EPROTO for another layout");
	chmod(path, 0604);
	tap_ok(region_open(&r, path, true) == -EPERM, "open: EPERM where others may read");
	remove_region();
	tap_ok(region_attach_private(&r, "app", 1000000) == 0 && r.capacity == REGION_CAPACITY_MAX,
		"capacity is bounded");
	region_close(&r);
}

/* ---- destinations ---- */

static void add_hundred(int index)
{
	struct region r;
	char name[32];

	if (region_attach(&r, dir, FILE_NAME, "app", 200, NULL) != 0 || !r.is_shared)
		_exit(1);
	barrier(8);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof name, "host%d:80", (i + index * 13) % 100);
		int at = registry_find_or_add(&r, name, "p", 1);
		char found[REGION_NAME_MAX + 1];
		if (at < 0)
			_exit(1);
		registry_name(&r, (uint32_t)at, found);
		if (strcmp(found, name) != 0)
			_exit(1);
	}
}

static void destinations(void)
{
	struct region r;
	char name[REGION_NAME_MAX + 2], found[REGION_NAME_MAX + 1];
	int n = 0, at;

	remove_region();
	report->ready = 0;
	for (int i = 0; i < 8; i++)
		in_child(i, add_hundred);
	tap_ok(wait_all(8) == 8, "eight processes find their names");
	if (region_open(&r, path, false) != 0)
		abort();
	for (at = registry_next(&r, 0); at >= 0; at = registry_next(&r, (uint32_t)at + 1))
		n++;
	tap_ok(n == 100, "a hundred names added by eight processes at once are a hundred destinations (%d)", n);
	tap_ok(region_valid(&r, NULL), "and the region is valid");
	region_close(&r);

	if (region_attach_private(&r, "app", 16) != 0)
		abort();
	at = registry_find_or_add(&r, "half:1", "policy", 1);
	memset(r.destinations[at].name, 0, sizeof r.destinations[at].name);
	r.destinations[at].name_len = 0;
	r.destinations[at].ready_key = 0;
	tap_ok(registry_find(&r, "half:1") == -ENOENT && registry_find_or_add(&r, "half:1", "policy", 1) == at &&
			registry_find(&r, "half:1") == at,
		"a claim left half done by a dead process is done again");
	memset(name, 'n', sizeof name);
	name[REGION_NAME_MAX] = '\0';
	at = registry_find_or_add(&r, name, "", 1);
	registry_name(&r, (uint32_t)at, found);
	tap_ok(at >= 0 && strcmp(found, name) == 0, "the longest name");
	name[REGION_NAME_MAX] = 'n';
	name[REGION_NAME_MAX + 1] = '\0';
	tap_ok(registry_find_or_add(&r, name, "", 1) == -ENAMETOOLONG && registry_find(&r, name) == -ENOENT,
		"a longer one is refused");
	for (int i = 0; i < 14; i++) {
		snprintf(name, sizeof name, "h:%d", i);
		tap_expect(registry_find_or_add(&r, name, "", 1) >= 0, "room for %s", name);
	}
	for (uint32_t i = 0; i < 16; i++)
		circuit_force(&r, i, BREAKER_FORCED_CLOSED, 0, 1);
	tap_expect(registry_find_or_add(&r, "one-more:1", "", 1) == -ENOSPC && r.header->registry_full == 1,
		"a full registry counts");
	tap_expect(
		registry_find_or_add(&r, "h:3", "", 1) >= 0 && r.header->registry_full == 1, "what is there is found");
	tap_all("B17: a full registry of which nothing may go says so and is counted");
	region_close(&r);
}

/* ---- members ---- */

static void join_and_wait(int index)
{
	struct region r;

	(void)index;
	if (region_attach(&r, dir, FILE_NAME, "app", 8, NULL) != 0)
		_exit(1);
	member_join(&r, getpid(), identity_start_ticks(getpid(), NULL), "/usr/bin/tool", clock_now_ns());
	for (int i = 0; i < 5; i++)
		member_count_call(&r, (uint32_t)registry_find_or_add(&r, "a:1", "", 1), 1);
	report->ready++;
	for (int i = 0; i < 100; i++)
		sleep(1);
}

static void members(void)
{
	struct region r;
	uint64_t start = identity_start_ticks(getpid(), NULL);

	remove_region();
	if (region_attach(&r, dir, FILE_NAME, "app", 8, NULL) != 0)
		abort();
	uint32_t at = (uint32_t)registry_find_or_add(&r, "a:1", "", 1);
	member_join(&r, getpid(), start, "/usr/bin/prog", clock_now_ns());
	tap_ok(r.me >= 0 && member_pid(r.my_id) == getpid() && member_is_alive(r.my_id) &&
			strcmp(r.members[r.me].exe, "prog") == 0,
		"joined, alive");
	member_count_call(&r, at, 1);
	member_count_call(&r, at, 1);
	member_count_call(&r, at, -1);
	tap_ok(member_calls_in_flight(&r, at) == 1, "a call in flight");
	member_count_call(&r, at, -1);
	member_count_call(&r, at, -1);
	tap_ok(member_calls_in_flight(&r, at) == 0, "never below 0");
	struct region copy = r;
	pid_t pid = fork();
	if (pid == 0) {
		member_leave(&copy);
		_exit(copy.me == -1 ? 0 : 1);
	}
	int child = wait_all(1);
	tap_ok(child == 1 && r.members[r.me].id == r.my_id, "E4: a fork's child does not give up its parent's record");
	uint64_t other_start = r.my_id ^ 1ull << 20;
	tap_ok(!member_is_alive(other_start), "a process id used again is told by its start time");

	report->ready = 0;
	pid = fork();
	if (pid == 0) {
		join_and_wait(0);
		_exit(0);
	}
	while (report->ready < 1)
		sched_yield();
	tap_ok(member_calls_in_flight(&r, at) == 5, "another process's calls are seen");
	uint64_t neutral = r.destinations[at].neutral;
	kill(pid, SIGKILL);
	siginfo_t info;
	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	member_reap_dead(&r);
	member_reap_dead(&r);
	tap_ok(member_calls_in_flight(&r, at) == 0 && r.destinations[at].neutral == neutral + 5,
		"A5: killed, even while a zombie: its calls become neutral, once");
	waitpid(pid, NULL, 0);

	uint64_t mine = r.my_id, first = r.members[r.me].id;
	int32_t me = r.me;
	member_leave(&r);
	tap_ok(r.me == -1 && r.members[me].id == 0, "left");
	member_join(&r, getpid(), start, "prog", clock_now_ns());
	tap_ok(r.me == me && r.my_id != mine && first == mine, "the same record claimed again has another id");

	for (int i = 0; i < REGION_MEMBERS; i++)
		if (r.members[i].id == 0)
			r.members[i].id = r.my_id;
	struct region more = r;
	member_join(&more, getpid(), start, "prog", clock_now_ns());
	tap_ok(more.me == -1, "a table full of living members takes no more");
	for (int i = 0; i < REGION_MEMBERS; i++)
		if (i != me)
			r.members[i].id = other_start;
	member_join(&more, getpid(), start, "prog", clock_now_ns());
	tap_ok(more.me >= 0 && more.me != me, "but a dead one's place is taken");
	region_close(&r);
}

/* ---- events ---- */

#define EVENTS_EACH 6000

static void make_event(struct event *e, uint64_t n)
{
	memset(e, 0xaa, sizeof *e); /* what lies behind a text must not get out */
	e->type = EVENT_FAULT;
	e->from = e->to = 0;
	e->value = (int64_t)n;
	snprintf(e->reason, sizeof e->reason, "reason %llu", (unsigned long long)n);
	snprintf(e->destination, sizeof e->destination, "%0*llu", (int)(20 + n % 200), (unsigned long long)n);
}

static bool is_whole(const struct event *e)
{
	struct event same;

	make_event(&same, (uint64_t)e->value);
	return strcmp(same.reason, e->reason) == 0 && strcmp(same.destination, e->destination) == 0 &&
	       e->type == EVENT_FAULT;
}

static void write_events(int index)
{
	struct region r;
	struct event e;

	if (region_attach(&r, dir, FILE_NAME, "app", 8, NULL) != 0)
		_exit(1);
	barrier(5);
	for (uint64_t i = 0; i < EVENTS_EACH; i++) {
		make_event(&e, (uint64_t)index << 32 | i);
		events_add(&r, &e);
	}
}

static void events(void)
{
	struct region r;
	struct event e;
	uint64_t oldest, newest, whole = 0;

	remove_region();
	if (region_attach(&r, dir, FILE_NAME, "app", 8, NULL) != 0)
		abort();
	events_range(&r, &oldest, &newest);
	tap_ok(newest == 0 && !events_read(&r, 1, &e) && !events_read(&r, 0, &e), "none yet");
	report->ready = 0;
	for (int i = 0; i < 4; i++)
		in_child(i, write_events);
	barrier(5);
	uint64_t next = 1;
	do {
		events_range(&r, &oldest, &newest);
		if (next < oldest)
			next = oldest;
		for (; next <= newest; next++)
			if (events_read(&r, next, &e)) {
				whole++;
				tap_expect(
					is_whole(&e) && e.seq == next, "event %llu is torn", (unsigned long long)next);
			} else if (next + 8 > newest) {
				break; /* being written */
			}
	} while (newest < 4 * EVENTS_EACH);
	tap_ok(wait_all(4) == 4, "four writers");
	tap_all("what a reader gets while four write is never torn");
	events_range(&r, &oldest, &newest);
	uint64_t readable = 0;
	for (uint64_t seq = oldest; seq <= newest; seq++)
		readable += events_read(&r, seq, &e) && is_whole(&e);
	tap_ok(newest == 4 * EVENTS_EACH && newest - oldest + 1 == REGION_EVENTS && readable >= REGION_EVENTS - 4,
		"the last %d remain (%llu)", REGION_EVENTS, (unsigned long long)readable);
	make_event(&e, 1);
	uint64_t seq = events_add(&r, &e);
	struct event *slot = &r.events[seq % REGION_EVENTS];
	tap_ok(events_read(&r, seq, &e) && memchr(slot->reason, 0xaa, sizeof slot->reason) == NULL,
		"nothing of the caller's memory behind a text");
	slot->destination[3] ^= 1;
	tap_ok(!events_read(&r, seq, &e), "a damaged event is not shown");
	r.header->event_seq = UINT64_MAX - 1;
	make_event(&e, 1);
	tap_ok(events_add(&r, &e) == UINT64_MAX && events_add(&r, &e) == 1 && events_read(&r, 1, &e),
		"any sequence number is gone on from");
	region_close(&r);
}

/* ---- random bytes ---- */

#define SCRIBBLED 16 /* processes */

static void use_all(struct region *r, uint64_t *x)
{
	static struct circuit_view view;
	struct circuit_token token;
	struct breaker_rules rules = RULES(2, 1, 4, 1, 4, 200, 20, 1, false);
	struct event e;
	const uint32_t hashes[] = {(uint32_t)(*x >> 32), 7, 8};
	char name[REGION_NAME_MAX + 1];
	uint64_t oldest, newest;
	int64_t now = clock_now_ns();

	*x = *x * 6364136223846793005ull + 1442695040888963407ull;
	snprintf(name, sizeof name, "h%u", (unsigned)(*x >> 33) % 20);
	int at = registry_find_or_add(r, name, "p", now);
	uint32_t index = at >= 0 ? (uint32_t)at : (uint32_t)(*x >> 40) % r->capacity;
	/* Every form of window; what others have recorded by another form is foreign bytes, too. */
	rules.window = (*x >> 45 & 3) == 0   ? 0
		       : (*x >> 45 & 3) == 1 ? 500
					     : WINDOW_IS_TIME | (1000 + ((uint32_t)*x & 0xffff));
	rules.failure_rate_percent = rules.slow_rate_percent = 1 + (*x & 15);
	rules.minimum_calls = rules.failure_rate_percent;
	rules.slow_call_ms = 4;
	circuit_know(r, index, hashes, 3, now);
	circuit_is_open(r, index, &rules, now);
	if (circuit_admit(r, index, &rules, now, &token) != BREAKER_REJECT) {
		circuit_note(r, &token, (enum lease_use)(*x >> 50 & 1));
		circuit_settle(r, &token, &rules, (enum breaker_outcome)((*x >> 51) % 3),
			(enum failure_kind)((*x >> 54) % FAILURE_KIND_COUNT), true, now, 5000);
	}
	if ((*x >> 20 & 63) == 0) {
		circuit_view(r, index, now, &view);
		for (int i = registry_next(r, 0); i >= 0; i = registry_next(r, (uint32_t)i + 1))
			registry_name(r, (uint32_t)i, name);
		events_range(r, &oldest, &newest);
		for (uint64_t i = 0; i < REGION_EVENTS; i++)
			events_read(r, oldest + i, &e);
		region_valid(r, NULL);
	}
	struct addr a = {.family = ADDR_INET, .port = (uint16_t)(*x >> 44), .ip = {[15] = (uint8_t)(*x >> 36)}};
	struct addr known[REGION_KNOWN_ADDRESSES];
	int64_t age;
	uint32_t endpoint = endpoint_find_or_add(r, *x >> 60, &a, (int)index, now);
	endpoint_failed(r, endpoint, &rules, FAILURE_REFUSED, *x >> 33 & 1, now);
	endpoint_succeeded(r, (uint32_t)(*x >> 30), now);
	endpoint_is_ejected(r, *x >> 60, &a, 0, now);
	known_store(r, name, AF_UNSPEC, &a, 1, now);
	known_find(r, name, AF_UNSPEC, NS_PER_S, now, known, &age);
	struct faults_rule rule;
	char fault[32];
	uint64_t hits;
	struct fault_count *count = faults_count(r, *x >> 58, "latency", name, now);
	if (count)
		atomic_fetch_add_explicit(&count->calls, 1, memory_order_relaxed);
	if ((*x >> 26 & 63) == 4)
		faults_add(r, "refuse * percent=1%", now, now + NS_PER_S);
	if (faults_read(r, (uint32_t)(*x >> 40) % REGION_FAULTS, now, &rule) && (*x >> 48 & 63) == 0)
		faults_remove(r, (uint32_t)(*x >> 40) % REGION_FAULTS, &rule);
	if ((*x >> 20 & 63) == 1)
		for (int place = 0; (place = faults_next_sum(r, (uint32_t)place, fault, name, &hits)) >= 0; place++)
			;
	struct bulkhead_rules bulkhead = {.max = (uint32_t)(*x >> 50) % BULKHEAD_MAX + 1, .is_adaptive = *x >> 49 & 1};
	struct bulkhead_place place;
	if ((*x >> 20 & 7) == 0) {
		uint64_t hold = bulkhead_take(r, index, &bulkhead, 0, now);
		if (bulkhead_queue(r, index, now + NS_PER_MS, now, &place)) {
			bulkhead_take(r, index, &bulkhead, place.ticket, now);
			bulkhead_leave(r, index, &place, 1, now);
		}
		bulkhead_learn(r, index, &bulkhead, 1000, now);
		bulkhead_release(r, hold, now);
		bulkhead_release(r, *x, now);
		bulkhead_rejected(r, index, now);
	}
	if ((*x >> 26 & 1023) == 4)
		bulkhead_collect_all(r, now);
	if ((*x >> 26 & 255) == 0)
		circuit_force(r, index, (enum breaker_mode)(*x >> 34 & 3), 1, now);
	if ((*x >> 26 & 255) == 1)
		circuit_reset(r, index, now);
	if ((*x >> 26 & 8191) == 2)
		member_reap_dead(r);
	if ((*x >> 26 & 255) == 3) {
		member_leave(r);
		member_join(r, getpid(), identity_start_ticks(getpid(), NULL), "x", now);
	}
}

#define GUARD ((size_t)1 << 29) /* more than any 16-bit index of destinations leads to */

/* The same memory with nothing before and behind it: whatever leads outside is seen at once. */
static void put_apart(struct region *r)
{
	size_t size = (r->size + 4095) / 4096 * 4096;
	char *from = (char *)(void *)r->header;
	char *room = mmap(NULL, GUARD * 2 + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (room == MAP_FAILED || mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, room + GUARD) != room + GUARD)
		_exit(2);
	ptrdiff_t by = room + GUARD - from;
#define MOVE(field) r->field = (void *)((char *)(void *)r->field + by)
	MOVE(header);
	MOVE(members);
	MOVE(events);
	MOVE(known);
	MOVE(endpoints);
	MOVE(faults);
	MOVE(fault_counts);
	MOVE(waiters);
	MOVE(blocks);
	MOVE(destinations);
#undef MOVE
}

static void use_while_scribbled(int index)
{
	struct region r;
	uint64_t x = (uint64_t)index * 77 + 1;

	if (region_attach(&r, dir, FILE_NAME, "app", 16, NULL) != 0 || !r.is_shared)
		_exit(1);
	put_apart(&r);
	member_join(&r, getpid(), identity_start_ticks(getpid(), NULL), "x", clock_now_ns());
	barrier(SCRIBBLED + 1);
	for (; report->go == 0; report->sum++)
		use_all(&r, &x);
}

static void random_bytes(void)
{
	struct region r;
	uint64_t x = 4711, writes = 0;

	remove_region();
	if (region_attach(&r, dir, FILE_NAME, "app", 16, NULL) != 0 || !r.is_shared)
		abort();
	report->ready = 0;
	report->sum = 0;
	report->go = 0; /* 1: it is over */
	int64_t until_ns = clock_now_ns() + 2 * NS_PER_S, patience_ns = until_ns + 30 * NS_PER_S;
	for (int i = 0; i < SCRIBBLED; i++)
		in_child(i, use_while_scribbled);
	barrier(SCRIBBLED + 1);
	/* On a crowded machine on, until they have done something. */
	for (; clock_now_ns() < until_ns || (report->sum <= 100 && clock_now_ns() < patience_ns); writes++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		volatile uint64_t *word = (volatile uint64_t *)(void *)r.header + (x >> 20) % (r.size / 8);
		*word = writes % 3 == 0 ? 0 : writes % 3 == 1 ? x : UINT64_MAX;
		if (writes % 100000 == 0)
			for (size_t i = 0; i < r.size / 8; i++)
				((volatile uint64_t *)(void *)r.header)[i] = x =
					x * 6364136223846793005ull + 1442695040888963407ull;
	}
	report->go = 1;
	int good = wait_all(SCRIBBLED);
	tap_ok(good == SCRIBBLED,
		"E10: no process crashes or leaves its memory while random bytes are written (%llu uses, %llu writes)",
		(unsigned long long)report->sum, (unsigned long long)writes);
	tap_ok(report->sum > 100, "and they were at work");
	region_close(&r);
	remove_region();
}

int main(void)
{
	report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(dir, sizeof dir, "%s/resil-region-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (report == MAP_FAILED || !mkdtemp(dir))
		abort();
	snprintf(path, sizeof path, "%s/" FILE_NAME, dir);
	race("sixteen at once make one region", 0);
	race("sixteen at once replace a damaged one by one", 1);
	race("sixteen at once replace one of another boot by one", 2);
	race("sixteen at once replace a short one by one", 3);
	fall_backs();
	life();
	destinations();
	members();
	events();
	random_bytes();
	rmdir(dir);
	return tap_done();
}
