/* See identity.h. Called from the constructor and by the command: directories, file names, start times. Groups of
 * command lines: identity_group.c. */
#include "core/identity.h"

#include <errno.h>
#include <string.h>

#include "base/errname.h"
#include "base/hash.h"
#include "base/sys.h"
#include "base/text.h"
#include "core/region.h"

#define SOCKET_PATH_MAX 107 /* sun_path, without the NUL */

#define HASH_LEN 17 /* '-' and 16 hex digits */

static bool is_plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
	       c == '-';
}

void identity_clean_group(char group[GROUP_MAX + 1], const char *wanted)
{
	struct text t = {.at = group, .cap = GROUP_MAX + 1};
	size_t len = strlen(wanted), plain = 0;

	while (is_plain(wanted[plain]))
		plain++;
	bool is_kept = len > 0 && len <= GROUP_MAX && plain == len;
	size_t keep = is_kept || len < GROUP_MAX - HASH_LEN ? len : GROUP_MAX - HASH_LEN;
	group[0] = '\0';
	for (size_t i = 0; i < keep; i++)
		text_char(&t, is_plain(wanted[i]) ? wanted[i] : '_');
	if (len == 0)
		text_char(&t, '_');
	if (!is_kept) {
		text_char(&t, '-');
		text_hex64(&t, hash_mix(hash_bytes(HASH_START, wanted, len)));
	}
}

static bool is_set(const char *value)
{
	return value && value[0];
}

bool identity_state_dir(char *dir, size_t cap, uid_t uid, const char *(*getenv_fn)(const char *))
{
	const char *wanted = getenv_fn("RESIL_STATE_DIR");
	struct text t = {.at = dir, .cap = cap};

	if (is_set(wanted))
		text_str(&t, wanted);
	else
		text_fmt(&t, "/dev/shm/resil-%u", uid);
	return !t.is_cut;
}

bool identity_runtime_dir(char *dir, size_t cap, uid_t uid, const char *(*getenv_fn)(const char *))
{
	const char *wanted = getenv_fn("RESIL_RUNTIME_DIR"), *xdg = getenv_fn("XDG_RUNTIME_DIR");
	struct text t = {.at = dir, .cap = cap};

	if (is_set(wanted))
		text_str(&t, wanted);
	else if (is_set(xdg))
		text_fmt(&t, "%s/resil", xdg);
	else if (uid == 0)
		text_str(&t, "/run/resil");
	else
		text_fmt(&t, "/tmp/resil-%u", uid);
	return !t.is_cut;
}

int identity_make_dir(const char *dir)
{
	struct stat st;
	int made = sys_mkdir(dir, 0700);

	if (made < 0 && made != -EEXIST)
		return made;
	int err = sys_lstat(dir, &st);
	if (err < 0)
		return err;
	/* Others may pass through (`off --host` lets them look for its marker), never list or write. */
	if (!S_ISDIR(st.st_mode) || st.st_uid != sys_geteuid() || (st.st_mode & 066))
		return -EPERM;
	/* A umask that takes rights from the owner: only where we made it. */
	if (made == 0 && (st.st_mode & 0700) != 0700)
		return (int)SYS3(SYS_fchmodat, AT_FDCWD, dir, 0700);
	return 0;
}

int identity_check_dir(const char *dir, uid_t uid, struct text *why)
{
	struct stat st;
	int err = sys_lstat(dir, &st);

	if (err < 0) {
		if (err != -ENOENT)
			text_fmt(why, "cannot be looked at (%s)", errname(-err));
		return err;
	}
	if (S_ISLNK(st.st_mode))
		text_str(why, "is a symbolic link");
	else if (!S_ISDIR(st.st_mode))
		text_str(why, "is no directory");
	else if (st.st_uid != uid)
		text_fmt(why, "belongs to user %u", (unsigned)st.st_uid);
	else if (st.st_mode & 066)
		text_fmt(why, "is open to others (mode %u%u%u; chmod 700 it)", (unsigned)(st.st_mode >> 6 & 7),
			(unsigned)(st.st_mode >> 3 & 7), (unsigned)(st.st_mode & 7));
	else
		return 0;
	return -EPERM;
}

static bool hash_namespace(uint64_t *h, pid_t pid, const char *kind)
{
	char path[64], link[64];
	struct text t = TEXT_ON(path);

	if (pid > 0)
		text_fmt(&t, "/proc/%d/ns/%s", (int)pid, kind);
	else
		text_fmt(&t, "/proc/self/ns/%s", kind);
	ssize_t n = sys_readlink(path, link, sizeof link);
	if (n <= 0)
		return false;
	*h = hash_bytes(*h, link, (size_t)n);
	return true;
}

bool identity_region_file(char *file, size_t cap, const char *group, pid_t pid)
{
	struct text t = {.at = file, .cap = cap};
	uint64_t h = HASH_START;

	if (!hash_namespace(&h, pid, "pid") || !hash_namespace(&h, pid, "net"))
		return false;
	text_str(&t, group);
	text_char(&t, '.');
	text_hex64(&t, hash_mix(h));
	text_fmt(&t, ".v%d", REGION_LAYOUT);
	return !t.is_cut;
}

static bool socket_path(char *path, size_t cap, const char *dir, const char *group, pid_t pid)
{
	struct text t = {.at = path, .cap = cap};

	text_fmt(&t, "%s/%s", dir, group);
	if (pid > 0)
		text_fmt(&t, ".%d", (int)pid);
	text_str(&t, ".sock");
	return !t.is_cut && t.len <= SOCKET_PATH_MAX;
}

bool identity_socket_path(char *path, size_t cap, const char *dir, const char *group, pid_t pid)
{
	char hashed[17];
	struct text t = TEXT_ON(hashed);

	if (socket_path(path, cap, dir, group, pid))
		return true;
	text_hex64(&t, hash_mix(hash_bytes(HASH_START, group, strlen(group))));
	return socket_path(path, cap, dir, hashed, pid);
}

/* Skips to field n (from 3, the state) behind the command name; null when the line is shorter. */
static const char *stat_field(const char *line, int n)
{
	const char *p = strrchr(line, ')'); /* a command name may hold spaces and parentheses */

	for (int field = 2; p && field < n; field++) {
		p = strchr(p, ' ');
		if (p)
			p++;
	}
	return p;
}

static uint64_t number_at(const char *p)
{
	uint64_t v = 0;

	for (; p && *p >= '0' && *p <= '9'; p++)
		v = v * 10 + (uint64_t)(*p - '0');
	return v;
}

/* /proc/PID/stat as a string; false when it cannot be read. */
static bool read_stat(pid_t pid, char *line, size_t cap)
{
	char path[40];
	struct text t = TEXT_ON(path);

	text_fmt(&t, "/proc/%d/stat", (int)pid);
	int fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	ssize_t n = sys_read(fd, line, cap - 1);
	sys_close(fd);
	line[n > 0 ? n : 0] = '\0';
	return n > 0;
}

bool identity_main_has_ended(void)
{
	char line[1024], link[64];
	struct text t = TEXT_ON(link);
	text_fmt(&t, "/proc/self/task/%d/exe", (int)sys_getpid());
	/* Asked once a second: a thread that has ended has no memory, and so no executable (measured). Only then is the
	 * file worth a descriptor, which stands for a moment on a number that the app may be about to be given. */
	if (sys_readlink(link, line, sizeof line) != -ENOENT)
		return false;
	const char *letter = read_stat(sys_getpid(), line, sizeof line) ? stat_field(line, 3) : NULL;

	return letter && *letter == 'Z';
}

uint64_t identity_start_ticks(pid_t pid, char *state)
{
	char line[1024];

	if (!read_stat(pid, line, sizeof line))
		return 0;
	const char *letter = stat_field(line, 3), *threads = stat_field(line, 20), *start = stat_field(line, 22);
	if (!letter || !threads || !start)
		return 0;
	if (state) {
		*state = *letter;
		/* Its first thread has ended (pthread_exit in main) and others go on: the process is no zombie. */
		if (*letter == 'Z' && number_at(threads) > 1)
			*state = 'S';
	}
	return number_at(start);
}
