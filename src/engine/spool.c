/* The end point `spool:DIR` (D6): takes what the app sends into a file of its own for each connection (core/spool.h).
 * The thread of detours alone.
 *
 * Acknowledged means fsynced: octets are taken from the socket only once there is room on the disk for them, and the
 * end of the app's side is answered with ours when all of it is on the disk. What the kernel has in the socket's
 * receive queue in the meantime is little (its buffer is made small) and is lost with the process. Where the disk is
 * full the app meets a reset, and before it is connected, the connect's errno. */
#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/sys.h"
#include "base/tcpinfo.h"
#include "base/text.h"
#include "core/spool.h"
#include "engine/detour_record.h"
#include "engine/relay.h"

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 1
#endif
#define AHEAD UINT64_C(262144)
/* A small window is opened by the sender's timer at times (200 ms, measured). */
#define QUIET_NS (500 * NS_PER_MS)

struct spool {
	int file;
	uint64_t at;	   /* where the next piece goes */
	uint64_t reserved; /* the disk has room for it up to there */
	int64_t heard_ns;  /* when it was written to last; 0: not yet */
	char path[DETOUR_PATH + 64];
};
_Static_assert(sizeof(struct spool) <= sizeof(((struct detour *)0)->own), "its room");

_Atomic uint64_t detour_spooled;

static struct spool *spool_of(struct detour *d)
{
	return (struct spool *)(void *)d->own;
}

static ssize_t write_at(int file, const void *octets, size_t n, uint64_t at)
{
	return SYS4(SYS_pwrite64, file, octets, n, at);
}

/* Room for n octets more. 0 or an errno. Where a file system cannot promise it, the write tells. */
static int reserve(struct spool *s, uint64_t n)
{
	if (s->at + n <= s->reserved)
		return 0;
	long r = SYS4(SYS_fallocate, s->file, FALLOC_FL_KEEP_SIZE, s->at, AHEAD);
	if (r < 0 && r != -EOPNOTSUPP && r != -ENOSYS)
		return (int)-r;
	s->reserved = s->at + AHEAD;
	return 0;
}

/* Names of one length, so that they sort by time. */
static void put_digits(struct text *t, uint64_t v, unsigned width)
{
	char digits[20];
	for (unsigned i = width; i-- > 0; v /= 10)
		digits[i] = (char)('0' + v % 10);
	text_bytes(t, digits, width);
}

static void make_path(struct detour *d, struct spool *s)
{
	struct text t = {.at = s->path, .cap = sizeof s->path};
	static uint32_t count;
	text_str(&t, d->path);
	text_char(&t, '/');
	put_digits(&t, (uint64_t)clock_wall_ns(), 19);
	text_fmt(&t, "-%d-%u" SPOOL_SUFFIX, (int)sys_getpid(), (unsigned)++count);
}

/* Is what lies there safe from other users (E11)? Ours or root's, and where anyone may write, nobody removes what is
 * another's. A descriptor, or -errno. */
static int open_dir(const char *path)
{
	struct stat st;
	int dir = sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (dir < 0)
		return dir;
	if (sys_fstat(dir, &st) == 0 && (st.st_uid == sys_geteuid() || st.st_uid == 0) &&
		((st.st_mode & S_IWOTH) == 0 || (st.st_mode & S_ISVTX)))
		return dir;
	sys_close(dir);
	return -EPERM;
}

static int begin(struct detour *d, int64_t now_ns)
{
	struct spool *s = spool_of(d);
	struct spool_head head;
	int small = 4096;
	(void)now_ns;
	memset(s, 0, offsetof(struct spool, path));
	make_path(d, s);
	s->file = -1;
	int dir = open_dir(d->path);
	if (dir < 0)
		return -dir;
	s->file = sys_open(s->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->file < 0) {
		sys_close(dir);
		return -s->file;
	}
	SYS2(SYS_flock, s->file, LOCK_EX | LOCK_NB);
	memset(&head, 0, sizeof head);
	memcpy(head.magic, SPOOL_MAGIC, sizeof head.magic);
	head.begun_wall_ns = clock_wall_ns();
	text_copy(head.to, sizeof head.to, d->to);
	text_copy(head.name, sizeof head.name, d->host);
	int err = reserve(s, AHEAD);
	ssize_t n = err ? 0 : write_at(s->file, &head, sizeof head, 0);
	if (!err && n != (ssize_t)sizeof head)
		err = n < 0 ? (int)-n : ENOSPC;
	/* The name must outlive a crash as the octets do. */
	if (!err)
		SYS1(SYS_fsync, dir);
	sys_close(dir);
	if (err) {
		sys_unlink(s->path);
		sys_close(s->file);
		s->file = -1;
		return err;
	}
	s->at = sizeof head;
	sys_setsockopt(d->socket[DETOUR_INNER], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	return 0;
}

/* A piece, on the disk. */
static bool put(struct spool *s, const void *octets, uint32_t n)
{
	struct spool_piece piece = {.length = n, .check = spool_check(s->at, octets, n)};
	if (reserve(s, n + 2 * sizeof piece) != 0 || write_at(s->file, octets, n, s->at + sizeof piece) != (ssize_t)n ||
		write_at(s->file, &piece, sizeof piece, s->at) != (ssize_t)sizeof piece ||
		SYS1(SYS_fdatasync, s->file) != 0)
		return false;
	s->at += sizeof piece + n;
	atomic_fetch_add_explicit(&detour_spooled, n, memory_order_relaxed);
	return true;
}

static void close_file(struct detour *d)
{
	struct spool *s = spool_of(d);
	if (s->file >= 0)
		sys_close(s->file);
	s->file = -1;
}

static void finish(struct detour *d)
{
	struct spool *s = spool_of(d);
	if (s->file < 0)
		return;
	/* A connection on which nothing was said is nothing to deliver. */
	if (s->at == sizeof(struct spool_head))
		sys_unlink(s->path);
	else
		SYS2(SYS_ftruncate, s->file, s->at);
	close_file(d);
}

/* After a fork: the file anew. One that replay has taken meanwhile is gone, and another one goes on where it ended. */
static bool reopen(struct detour *d, int64_t now_ns)
{
	struct spool *s = spool_of(d);
	s->file = sys_open(s->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
	if (s->file >= 0 && SYS2(SYS_flock, s->file, LOCK_EX | LOCK_NB) == 0)
		return true;
	close_file(d);
	return begin(d, now_ns) == 0;
}

static int64_t turn(struct detour *d, int64_t now_ns, bool *is_well)
{
	struct spool *s = spool_of(d);
	struct detour_way *up = &d->way[DETOUR_UP];
	*is_well = s->file >= 0 || reopen(d, now_ns);
	/* The window is small and a sync is long: what comes at once goes as one piece. */
	if (up->len < DETOUR_ROOM / 2 && !up->has_ended && tcpinfo_unread(d->socket[DETOUR_INNER]) > 0)
		return now_ns;
	while (*is_well && up->len > 0) {
		uint32_t n;
		const uint8_t *at = detour_front(up, &n);
		*is_well = put(s, at, n);
		if (*is_well)
			detour_took(up, n);
		s->heard_ns = clock_now_ns();
	}
	if (*is_well && up->has_ended) {
		if (!d->has_failed[DETOUR_INNER] && s->at > sizeof(struct spool_head))
			*is_well = put(s, "", 0);
		relay_ended(&d->way[DETOUR_DOWN], now_ns);
	}
	return SHAPE_NEVER;
}

int64_t spool_expects_until(const struct detour *d)
{
	const struct spool *s = (const struct spool *)(const void *)d->own;
	return s->heard_ns ? s->heard_ns + QUIET_NS : 0;
}

const struct detour_end spool_end = {.begin = begin, .turn = turn, .finish = finish, .put_away = close_file};
