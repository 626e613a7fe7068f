/* See log.h. Any thread. Nothing is kept open between lines: a file or socket of ours that lives on is one more
 * descriptor to defend. */
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/un.h>

#include "base/clock.h"
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

void log_set_target(const char *wanted)
{
	target = LOG_OFF; /* also for a path that does not fit */
	if (!wanted || !*wanted || strcmp(wanted, "off") == 0)
		return;
	if (strcmp(wanted, "stderr") == 0)
		target = LOG_STDERR;
	else if (strcmp(wanted, "syslog") == 0)
		target = LOG_SYSLOG;
	else if (text_copy(path, sizeof path, wanted))
		target = LOG_FILE;
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
