/* See log.h. Any thread. Nothing is kept open between lines: a file or socket of ours that lives on is one more
 * descriptor to defend. */
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <termios.h>

#include "base/clock.h"
#include "base/errname.h"
#include "base/sys.h"
#include "base/text.h"

enum target { LOG_OFF, LOG_STDERR, LOG_SYSLOG, LOG_FILE };

static enum target target;
static char path[256];
static _Atomic bool muted;

void log_mute(_Bool is_mute)
{
	atomic_store(&muted, is_mute);
}

/* A pipe or terminal that is full must not stop the app, and a closed one must not kill it. MSG_DONTWAIT | MSG_NOSIGNAL
 * do both on a socket; on anything else poll asks first, and a pipe without a reader (POLLERR) is left alone. Between
 * poll and write another writer may fill a pipe; a line under PIPE_BUF is then late, never lost in part. */
static void write_line(int fd, const struct text *line)
{
	ssize_t sent = sys_send(fd, line->at, line->len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent != -ENOTSOCK)
		return;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	struct timespec now = {0, 0};
	if (sys_poll(&p, 1, &now) == 1 && (p.revents & (POLLOUT | POLLERR | POLLNVAL)) == POLLOUT)
		sys_write(fd, line->at, line->len);
}

static void to_syslog(const char *line)
{
	static const struct sockaddr_un dev_log = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
	char buf[600];
	struct text t = TEXT_ON(buf);
	text_str(&t, "<29>resil["); /* daemon.notice */
	text_u64(&t, (uint64_t)sys_getpid());
	text_str(&t, "]: ");
	text_str(&t, line);
	int fd = sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (sys_connect(fd, (const struct sockaddr *)&dev_log, sizeof dev_log) == 0)
		sys_send(fd, t.at, t.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	sys_close(fd);
}

static void to_file(const char *line)
{
	char buf[700];
	struct text t = TEXT_ON(buf);
	text_time(&t, clock_wall_ns());
	text_str(&t, " resil[");
	text_u64(&t, (uint64_t)sys_getpid());
	text_str(&t, "]: ");
	text_str(&t, line);
	if (t.is_cut)
		t.len = sizeof buf - 2;
	text_char(&t, '\n');
	int fd = sys_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
	if (fd < 0)
		return;
	/* A file grown past RLIMIT_FSIZE raises SIGXFSZ: look first (E7). */
	struct rlimit lim;
	struct stat st;
	if (sys_getrlimit(RLIMIT_FSIZE, &lim) == 0 && sys_fstat(fd, &st) == 0 &&
		(lim.rlim_cur == RLIM_INFINITY || !S_ISREG(st.st_mode) || (rlim_t)st.st_size + t.len <= lim.rlim_cur))
		write_line(fd, &t);
	sys_close(fd);
}

/* ---- where to ---- */

static int check_path(const char *file)
{
	struct stat st;
	char dir[sizeof path];

	if (!text_copy(dir, sizeof dir, file))
		return -ENAMETOOLONG;
	int err = sys_lstat(file, &st);
	if (err == 0)
		return S_ISLNK(st.st_mode) ? -ELOOP : S_ISDIR(st.st_mode) ? -EISDIR : sys_access(file, W_OK);
	if (err != -ENOENT)
		return err;
	*(strrchr(dir, '/') + 1) = '\0';
	return sys_access(dir, W_OK | X_OK);
}

int log_check_target(const char *wanted, struct text *why)
{
	if (!*wanted || strcmp(wanted, "off") == 0 || strcmp(wanted, "stderr") == 0 || strcmp(wanted, "syslog") == 0)
		return 0;
	if (wanted[0] != '/' || !wanted[1]) {
		text_fmt(why, "'%s' is no place to log to (off, stderr, syslog, or a file's path from / on)", wanted);
		return -EINVAL;
	}
	int err = check_path(wanted);
	if (err != 0)
		text_fmt(why, "%s cannot be written (%s): nothing is logged", wanted,
			err == -ELOOP ? "a symbolic link" : errname(-err));
	return err;
}

static bool is_terminal(int fd)
{
	char termios[256];
	return sys_ioctl(fd, TCGETS, termios) == 0;
}

void log_set_target(const char *wanted)
{
	char line[400] = "resil: log: ";
	struct text t = {.at = line, .cap = sizeof line, .len = strlen(line)};

	target = LOG_OFF;
	if (!wanted || !*wanted)
		return;
	int err = log_check_target(wanted, &t);
	if (strcmp(wanted, "stderr") == 0)
		target = LOG_STDERR;
	else if (strcmp(wanted, "syslog") == 0)
		target = LOG_SYSLOG;
	else if (wanted[0] == '/' && err != -EINVAL && text_copy(path, sizeof path, wanted))
		target = LOG_FILE; /* also one that cannot be written yet */
	if (err == 0 || !is_terminal(2))
		return;
	if (t.is_cut)
		t.len = sizeof line - 2;
	text_char(&t, '\n');
	write_line(2, &t);
}

/* ---- lines ---- */

void log_line(const char *line)
{
	char buf[600];
	struct text t = TEXT_ON(buf);
	if (atomic_load(&muted))
		return;
	switch (target) {
	case LOG_OFF: return;
	case LOG_STDERR:
		text_str(&t, "resil: ");
		text_str(&t, line);
		if (t.len > sizeof buf - 2)
			t.len = sizeof buf - 2;
		text_char(&t, '\n');
		write_line(2, &t);
		return;
	case LOG_SYSLOG: to_syslog(line); return;
	case LOG_FILE: to_file(line); return;
	}
}

void log_once(_Bool *once, const char *line)
{
	if (__atomic_exchange_n(once, 1, __ATOMIC_RELAXED))
		return;
	log_line(line);
}
