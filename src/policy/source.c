/* The configuration file in memory: regular files only, bounded, text only. Called in the constructor, on reload and by
 * the command. Looked at before it is opened: opening a FIFO would wake its writer, a device may do anything. */
#include "policy/inside.h"

#include <errno.h>
#include <string.h>

#include "base/sys.h"

#define SLACK 4096 /* a file that grows by less while it is read is still read whole */

static const char *errno_text(int err)
{
	switch (-err) {
	case ENOENT: return "no such file";
	case ENOTDIR: return "a part of its path is no directory";
	case EACCES:
	case EPERM: return "permission denied";
	case ELOOP: return "too many symbolic links";
	case ENAMETOOLONG: return "its name is too long";
	case ENOMEM: return "no memory";
	case EMFILE:
	case ENFILE: return "too many open files";
	case EIO: return "input or output error";
	default: return NULL;
	}
}

static bool refuse(struct complaints *out, const char *what, const char *accepted)
{
	complain_plain(out, 0, what, NULL, 0, accepted);
	return false;
}

static bool refuse_errno(struct complaints *out, int err)
{
	struct fault f;
	const char *reason = errno_text(err);
	fault_clear(&f);
	text_str(&f.what, "cannot be read");
	if (reason)
		text_str(&f.accepted, reason);
	else
		text_fmt(&f.accepted, "error %d", -err);
	complain(out, 0, &f, NULL, 0);
	return false;
}

static bool is_acceptable(const struct stat *st, struct complaints *out)
{
	if (S_ISREG(st->st_mode)) {
		if (st->st_size <= (off_t)CONFIG_FILE_MAX)
			return true;
		struct fault f;
		fault_clear(&f);
		text_fmt(&f.what, "is too large: %lld bytes", (long long)st->st_size);
		text_fmt(&f.accepted, "at most %u", CONFIG_FILE_MAX);
		complain(out, 0, &f, NULL, 0);
		return false;
	}
	const char *what = S_ISDIR(st->st_mode)	   ? "is a directory"
			   : S_ISFIFO(st->st_mode) ? "is a pipe"
			   : S_ISSOCK(st->st_mode) ? "is a socket"
						   : "is a device";
	return refuse(out, what, "a regular file: every process of the app reads it anew");
}

/* Reads all of it, at most room bytes. The length, or -errno. */
static long read_all(int fd, char *at, size_t room)
{
	size_t len = 0;
	for (int interrupted = 0; len < room;) {
		ssize_t n = sys_read(fd, at + len, room - len);
		if (n == -EINTR && ++interrupted < 100)
			continue;
		if (n < 0)
			return (long)n;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	return (long)len;
}

static bool read_open(struct source_bytes *b, int fd, struct complaints *out)
{
	struct stat st = {.st_mode = 0};
	int err = sys_fstat(fd, &st);
	if (err < 0)
		return refuse_errno(out, err);
	if (!is_acceptable(&st, out))
		return false;
	/* Files of /proc say 0: the whole limit is reserved then, and touched only as far as they reach. */
	size_t room = st.st_size > 0 ? (size_t)st.st_size + SLACK : CONFIG_FILE_MAX + 1;
	void *at = sys_mmap(room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_error(at))
		return refuse_errno(out, -ENOMEM);
	long len = read_all(fd, at, room);
	if (len >= 0 && (size_t)len < room) {
		*b = (struct source_bytes){.at = at, .len = (size_t)len, .mapped = room};
		return true;
	}
	sys_munmap(at, room);
	if (len < 0)
		return refuse_errno(out, (int)len);
	return refuse(out, st.st_size > 0 ? "grew while it was read" : "is too large",
		"a file of at most 4194304 bytes that is written whole");
}

static uint32_t count_byte(const char *s, size_t n, char c)
{
	uint32_t count = 0;
	const char *end = s + n;
	while ((s = memchr(s, c, (size_t)(end - s)))) {
		count++;
		if (++s == end)
			break;
	}
	return count;
}

#define EACH_BYTE 0x0101010101010101ull

/* Is a byte of the eight below 0x20 or 0x7f? Now and then also for those just above one that is: only a closer look
 * follows. */
static bool may_be_control(uint64_t eight)
{
	uint64_t delete = eight ^ EACH_BYTE * 0x7f;
	return (((eight - EACH_BYTE * 0x20) & ~eight) | ((delete - EACH_BYTE) & ~delete)) & EACH_BYTE * 0x80;
}

/* The first byte that no text has; b->len: there is none. Eight at a time, since every process start pays for it. */
static size_t find_binary(const struct source_bytes *b)
{
	for (size_t i = 0; i < b->len; i++) {
		uint64_t eight;
		while (b->len - i > sizeof eight && (memcpy(&eight, b->at + i, sizeof eight), !may_be_control(eight)))
			i += sizeof eight;
		unsigned char c = (unsigned char)b->at[i];
		bool is_text = (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t' ||
			       (c == '\r' && (i + 1 == b->len || b->at[i + 1] == '\n'));
		if (!is_text)
			return i;
	}
	return b->len;
}

/* Counts what bounds the tables; false when it is no text. */
static bool look_over(struct source_bytes *b, struct complaints *out)
{
	size_t binary = find_binary(b);
	if (binary < b->len) {
		unsigned char c = (unsigned char)b->at[binary];
		struct fault f;
		fault_clear(&f);
		text_str(&f.what, "binary: no text file has byte 0x");
		text_char(&f.what, "0123456789abcdef"[c >> 4]);
		text_char(&f.what, "0123456789abcdef"[c & 15]);
		text_str(&f.accepted, "plain text, ASCII or UTF-8");
		complain(out, 1 + (binary ? count_byte(b->at, binary, '\n') : 0), &f, NULL, 0);
		return false;
	}
	if (b->len == 0)
		return true;
	b->lines = 1 + count_byte(b->at, b->len, '\n');
	b->brackets = count_byte(b->at, b->len, '[');
	b->commas = count_byte(b->at, b->len, ',');
	return true;
}

bool source_read(struct source_bytes *b, const char *file, bool is_optional, struct complaints *out)
{
	struct stat st = {.st_mode = 0};
	*b = (struct source_bytes){.at = NULL};
	int err = sys_stat(file, &st);
	if (err < 0)
		return is_optional && (err == -ENOENT || err == -ENOTDIR) ? false : refuse_errno(out, err);
	if (!is_acceptable(&st, out))
		return false;
	int fd = sys_open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
	if (fd < 0)
		return refuse_errno(out, fd);
	bool is_read = read_open(b, fd, out);
	sys_close(fd);
	if (is_read && !look_over(b, out)) {
		source_free(b);
		is_read = false;
	}
	return is_read;
}

void source_free(struct source_bytes *b)
{
	if (b->at)
		sys_munmap(b->at, b->mapped);
	*b = (struct source_bytes){.at = NULL};
}
