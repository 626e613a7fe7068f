/* See region.h. Attaching and closing: the first guarded connect of a process, the command; on any thread, never in a
 * hot path. */
#include "core/region.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>

#include "base/sys.h"
#include "core/shared.h"

#define ALIGN 64u
#define ATTEMPTS 50	  /* rounds of open or make, while others replace; a millisecond each at most */
#define INTERRUPTIONS 100 /* an app's interval timer may interrupt the allocation time and again */

static const char magic[8] = "resil";

_Static_assert(sizeof(struct member) == 120, "layout 5");
_Static_assert(sizeof(struct event) == 512, "layout 5");
_Static_assert(sizeof(struct known_name) == 944, "layout 5");
_Static_assert(sizeof(struct endpoint) == 56, "layout 5");
_Static_assert(sizeof(struct fault_entry) == 544, "layout 5");
_Static_assert(sizeof(struct fault_count) == 344, "layout 5");
_Static_assert(sizeof(struct bulkhead) == 448, "layout 5");
_Static_assert(sizeof(struct bulkhead_block) == 1024, "layout 5");
_Static_assert(sizeof(struct waiter) == 64, "layout 5");
_Static_assert(sizeof(struct destination) == 5824, "layout 5");
_Static_assert(
	offsetof(struct destination, breaker) % 64 == 0 && offsetof(struct destination, lease) % 64 == 0, "layout 5");

static size_t aligned(size_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t members_at(void)
{
	return aligned(sizeof(struct region_header));
}

static size_t events_at(void)
{
	return members_at() + aligned(sizeof(struct member) * REGION_MEMBERS);
}

static size_t known_at(void)
{
	return events_at() + aligned(sizeof(struct event) * REGION_EVENTS);
}

static size_t endpoints_at(void)
{
	return known_at() + aligned(sizeof(struct known_name) * REGION_KNOWN);
}

static size_t faults_at(void)
{
	return endpoints_at() + aligned(sizeof(struct endpoint) * REGION_ENDPOINTS);
}

static size_t fault_counts_at(void)
{
	return faults_at() + aligned(sizeof(struct fault_entry) * REGION_FAULTS);
}

static size_t waiters_at(void)
{
	return fault_counts_at() + aligned(sizeof(struct fault_count) * REGION_FAULT_COUNTS);
}

static size_t blocks_at(void)
{
	return waiters_at() + aligned(sizeof(struct waiter) * REGION_WAITERS);
}

static size_t destinations_at(void)
{
	return blocks_at() + aligned(sizeof(struct bulkhead_block) * REGION_BLOCKS);
}

size_t region_size(uint32_t capacity)
{
	return destinations_at() + (size_t)capacity * sizeof(struct destination);
}

static uint32_t bounded(uint32_t capacity)
{
	if (capacity == 0)
		return 1;
	return capacity < REGION_CAPACITY_MAX ? capacity : REGION_CAPACITY_MAX;
}

static void point(struct region *r, void *at, uint32_t capacity)
{
	char *base = at;

	r->header = at;
	r->members = (struct member *)(void *)(base + members_at());
	r->events = (struct event *)(void *)(base + events_at());
	r->known = (struct known_name *)(void *)(base + known_at());
	r->endpoints = (struct endpoint *)(void *)(base + endpoints_at());
	r->faults = (struct fault_entry *)(void *)(base + faults_at());
	r->fault_counts = (struct fault_count *)(void *)(base + fault_counts_at());
	r->waiters = (struct waiter *)(void *)(base + waiters_at());
	r->blocks = (struct bulkhead_block *)(void *)(base + blocks_at());
	r->destinations = (struct destination *)(void *)(base + destinations_at());
	r->capacity = capacity;
	r->size = region_size(capacity);
	r->me = -1;
	r->my_id = 0;
}

/* "" where it cannot be read: then it is not compared. */
static void read_boot_id(char id[40])
{
	memset(id, 0, 40);
	int fd = sys_open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	ssize_t n = sys_read(fd, id, 39);
	sys_close(fd);
	if (n < 0)
		n = 0;
	while (n > 0 && (id[n - 1] == '\n' || id[n - 1] == '\0'))
		n--;
	memset(id + n, 0, 40 - (size_t)n);
}

static void fill_header(struct region_header *h, const char *group, uint32_t capacity)
{
	h->layout = REGION_LAYOUT;
	h->capacity = capacity;
	h->size = region_size(capacity);
	read_boot_id(h->boot_id);
	text_copy(h->group, sizeof h->group, group ? group : "");
	memcpy(h->magic, magic, sizeof h->magic);
}

int region_attach_private(struct region *r, const char *group, uint32_t capacity)
{
	capacity = bounded(capacity);
	void *at = sys_mmap(
		region_size(capacity), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(at)) {
		memset(r, 0, sizeof *r);
		r->me = -1;
		return (int)(long)at;
	}
	memset(r, 0, sizeof *r);
	point(r, at, capacity);
	fill_header(r->header, group, capacity);
	return 0;
}

/* 0, or -EPERM: not a file that nobody else can write to. */
static int check_owner(int fd, struct stat *st, bool root_may)
{
	int err = sys_fstat(fd, st);

	if (err < 0)
		return err;
	uid_t me = sys_geteuid();
	if (!S_ISREG(st->st_mode) || (st->st_mode & 077) || (st->st_uid != me && !(root_may && me == 0)))
		return -EPERM;
	return 0;
}

/* 0, -EPROTO: damaged or another layout, -ESTALE: of another boot. Reads before it maps: a short file must not be
 * touched beyond its end. */
static int check_contents(int fd, const struct stat *st, uint32_t *capacity)
{
	struct region_header h;
	char boot[40];
	ssize_t n = sys_read(fd, &h, sizeof h);

	if (n != (ssize_t)sizeof h || memcmp(h.magic, magic, sizeof magic) != 0 || h.layout != REGION_LAYOUT ||
		h.capacity == 0 || h.capacity > REGION_CAPACITY_MAX || h.size != region_size(h.capacity) ||
		st->st_size < 0 || (uint64_t)st->st_size != h.size)
		return -EPROTO;
	read_boot_id(boot);
	if (boot[0] && memcmp(boot, h.boot_id, sizeof boot) != 0)
		return -ESTALE;
	*capacity = h.capacity;
	return 0;
}

static int map(struct region *r, int fd, const struct stat *st, uint32_t capacity, const char *path, bool read_only)
{
	int prot = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	void *at = sys_mmap(region_size(capacity), prot, MAP_SHARED, fd, 0);

	if (sys_is_error(at))
		return (int)(long)at;
	point(r, at, capacity);
	r->is_shared = true;
	r->is_read_only = read_only;
	r->dev = st->st_dev;
	r->ino = st->st_ino;
	text_copy(r->path, sizeof r->path, path);
	return 0;
}

/* Every page must exist before it is mapped: touching a hole on a full tmpfs is SIGBUS. */
static int allocate(int fd, size_t size)
{
	static const char zeros[4096];
	int err = -EINTR;

	for (int i = 0; i < INTERRUPTIONS && err == -EINTR; i++)
		err = sys_fallocate(fd, (off_t)size);
	if (err != -EOPNOTSUPP && err != -ENOSYS)
		return err;
	/* A file system without fallocate (this is a fresh file): write it. */
	for (size_t done = 0; done < size;) {
		ssize_t n = sys_write(fd, zeros, size - done < sizeof zeros ? size - done : sizeof zeros);
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? (int)n : -EIO;
		done += (size_t)n;
	}
	return 0;
}

/* A hole in an existing file (copied sparsely, say) is filled now or the file is not for us. */
static int fill_holes(int fd, const struct stat *st)
{
	int err = 0;

	if ((uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size)
		return 0;
	for (int i = 0; i < INTERRUPTIONS; i++) {
		err = sys_fallocate(fd, st->st_size);
		if (err != -EINTR)
			break;
	}
	/* Where the file system cannot, it also counts blocks its own way (compression): then full is what we wrote. */
	return err == -EOPNOTSUPP || err == -ENOSYS ? 0 : err;
}

/* Unlinks a file that is no good. 0: gone or already replaced, look again; -EAGAIN: another is at it. See region.h. */
static int discard(int fd, const struct stat *st, const char *path)
{
	struct stat now;
	long err = SYS2(SYS_flock, fd, LOCK_EX | LOCK_NB);

	if (err == -EWOULDBLOCK)
		return -EAGAIN;
	if (err < 0)
		return (int)err;
	err = sys_lstat(path, &now);
	if (err == 0 && now.st_ino == st->st_ino && now.st_dev == st->st_dev)
		err = sys_unlink(path);
	/* The lock goes with the descriptor, which the caller closes. */
	return err == -ENOENT ? 0 : (int)err;
}

/* 0: mapped; -ENOENT: nothing there; -EAGAIN: look again; else it cannot be used. */
static int open_existing(struct region *r, const char *path)
{
	struct stat st;
	uint32_t capacity = 0;
	int fd = sys_open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);

	if (fd < 0)
		return fd;
	int err = check_owner(fd, &st, false);
	if (err == 0) {
		err = check_contents(fd, &st, &capacity);
		if (err == -EPROTO || err == -ESTALE) {
			err = discard(fd, &st, path);
			if (err == 0)
				err = -EAGAIN;
		} else if (err == 0) {
			err = fill_holes(fd, &st);
			if (err == 0)
				err = map(r, fd, &st, capacity, path, false);
		}
	}
	sys_close(fd);
	return err;
}

/* 0: made and mapped; -EAGAIN: another was faster. */
static int make(struct region *r, const char *path, const char *group, uint32_t capacity)
{
	char beside[sizeof r->path + 24];
	struct text t = TEXT_ON(beside);
	struct rlimit limit;
	struct stat st;
	size_t size = region_size(capacity);

	/* Growing a file past this raises SIGXFSZ. */
	if (sys_getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < size)
		return -EFBIG;
	text_fmt(&t, "%s.%d", path, (int)sys_gettid());
	int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = sys_open(beside, flags, 0600);
	if (fd == -EEXIST) {
		/* This thread's id, so its maker is dead (or we interrupted ourselves, who then lose the link below).
		 */
		sys_unlink(beside);
		fd = sys_open(beside, flags, 0600);
	}
	if (fd < 0)
		return fd;
	int err = (int)SYS2(SYS_fchmod, fd, 0600); /* whatever the umask made of it */
	if (err == 0)
		err = allocate(fd, size);
	if (err == 0)
		err = sys_fstat(fd, &st);
	if (err == 0)
		err = map(r, fd, &st, capacity, path, false);
	if (err == 0) {
		fill_header(r->header, group, capacity);
		err = sys_link(beside, path);
		if (err < 0)
			region_close(r);
	}
	sys_unlink(beside);
	sys_close(fd);
	return err == -EEXIST ? -EAGAIN : err;
}

static int attach_shared(struct region *r, const char *dir, const char *file, const char *group, uint32_t capacity)
{
	char path[sizeof r->path];
	struct text t = TEXT_ON(path);
	int err = -EAGAIN;

	if (!dir || !file)
		return -ENOENT;
	text_fmt(&t, "%s/%s", dir, file);
	if (t.is_cut)
		return -ENAMETOOLONG;
	for (int i = 0; i < ATTEMPTS && err == -EAGAIN; i++) {
		struct timespec ms = {0, 1000000};
		if (i > 1)
			sys_poll(NULL, 0, &ms); /* another is replacing it: give it a moment */
		err = open_existing(r, path);
		if (err == -ENOENT)
			err = make(r, path, group, capacity);
	}
	return err;
}

int region_attach(struct region *r, const char *dir, const char *file, const char *group, uint32_t capacity, int *why)
{
	memset(r, 0, sizeof *r);
	r->me = -1;
	int err = attach_shared(r, dir, file, group, bounded(capacity));
	if (why)
		*why = -err;
	return err == 0 ? 0 : region_attach_private(r, group, capacity);
}

int region_open(struct region *r, const char *path, bool read_only)
{
	struct stat st;
	uint32_t capacity = 0;

	memset(r, 0, sizeof *r);
	r->me = -1;
	if (strlen(path) >= sizeof r->path)
		return -ENAMETOOLONG;
	int fd = sys_open(path, (read_only ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd < 0)
		return fd == -ELOOP || fd == -EACCES ? -EPERM : fd;
	int err = check_owner(fd, &st, true);
	if (err == 0)
		err = check_contents(fd, &st, &capacity);
	if (err == 0 && !read_only)
		err = fill_holes(fd, &st);
	if (err == 0)
		err = map(r, fd, &st, capacity, path, read_only);
	sys_close(fd);
	return err;
}

void region_close(struct region *r)
{
	if (r->header)
		sys_munmap(r->header, r->size);
	memset(r, 0, sizeof *r);
	r->me = -1;
}

bool region_is_current(const struct region *r)
{
	struct stat st;

	if (!r->is_shared)
		return true;
	return sys_lstat(r->path, &st) == 0 && st.st_ino == r->ino && st.st_dev == r->dev;
}
