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

enum target { TO_OFF, TO_STDERR, TO_SYSLOG, TO_JOURNAL, TO_FILE };

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

/* One datagram, and the socket is gone again; nobody there, or a full queue: lost. */
static void send_datagram(const struct sockaddr_un *to, const struct text *t)
{
	int fd = sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (sys_connect(fd, (const struct sockaddr *)to, sizeof *to) == 0)
		sys_send(fd, t->at, t->len, MSG_DONTWAIT | MSG_NOSIGNAL);
	sys_close(fd);
}

static void to_syslog(enum log_priority priority, const char *line)
{
	static const struct sockaddr_un dev_log = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
	char buf[600];
	struct text t = TEXT_ON(buf);
	text_char(&t, '<');
	text_u64(&t, 3 << 3 | (unsigned)priority); /* daemon */
	text_str(&t, ">resil[");
	text_u64(&t, (uint64_t)sys_getpid());
	text_str(&t, "]: ");
	text_str(&t, line);
	send_datagram(&dev_log, &t);
}

/* NAME=value, a line each: a line break inside would begin another field. */
static void journal_field(struct text *t, const char *name, const char *value)
{
	text_str(t, name);
	text_char(t, '=');
	for (; *value; value++)
		text_char(t, (unsigned char)*value < 0x20 ? ' ' : *value);
	text_char(t, '\n');
}

/* journald's own protocol: pid, executable, unit and user are added there, from the socket's credentials. */
static void to_journal(enum log_priority priority, const char *line, const struct log_field *fields, size_t n)
{
	static const struct sockaddr_un journal = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
	char buf[1800];
	struct text t = TEXT_ON(buf);
	journal_field(&t, "SYSLOG_IDENTIFIER", "resil");
	text_fmt(&t, "PRIORITY=%d\n", (int)priority);
	for (size_t i = 0; i < n; i++)
		if (fields[i].value && *fields[i].value)
			journal_field(&t, fields[i].name, fields[i].value);
	journal_field(&t, "MESSAGE", line);
	if (t.is_cut)
		buf[t.len - 1] = '\n';
	send_datagram(&journal, &t);
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
	if (!*wanted || strcmp(wanted, "off") == 0 || strcmp(wanted, "stderr") == 0 || strcmp(wanted, "syslog") == 0 ||
		strcmp(wanted, "journal") == 0)
		return 0;
	if (wanted[0] != '/' || !wanted[1]) {
		text_fmt(why, "'%s' is no place to log to (off, stderr, syslog, journal, or a file's path from / on)",
			wanted);
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

	target = TO_OFF;
	if (!wanted || !*wanted)
		return;
	int err = log_check_target(wanted, &t);
	if (strcmp(wanted, "stderr") == 0)
		target = TO_STDERR;
	else if (strcmp(wanted, "syslog") == 0)
		target = TO_SYSLOG;
	else if (strcmp(wanted, "journal") == 0)
		target = TO_JOURNAL;
	else if (wanted[0] == '/' && err != -EINVAL && text_copy(path, sizeof path, wanted))
		target = TO_FILE; /* also one that cannot be written yet */
	if (err == 0 || !is_terminal(2))
		return;
	if (t.is_cut)
		t.len = sizeof line - 2;
	text_char(&t, '\n');
	write_line(2, &t);
}

/* ---- lines ---- */

void log_event(enum log_priority priority, const char *line, const struct log_field *fields, size_t n)
{
	char buf[600];
	struct text t = TEXT_ON(buf);
	if (atomic_load(&muted))
		return;
	switch (target) {
	case TO_OFF: return;
	case TO_STDERR:
		text_str(&t, "resil: ");
		text_str(&t, line);
		if (t.len > sizeof buf - 2)
			t.len = sizeof buf - 2;
		text_char(&t, '\n');
		write_line(2, &t);
		return;
	case TO_SYSLOG: to_syslog(priority, line); return;
	case TO_JOURNAL: to_journal(priority, line, fields, n); return;
	case TO_FILE: to_file(line); return;
	}
}

void log_line(const char *line)
{
	log_event(LOG_IS_NOTICE, line, NULL, 0);
}

void log_once(_Bool *once, const char *line)
{
	if (__atomic_exchange_n(once, 1, __ATOMIC_RELAXED))
		return;
	log_line(line);
}
