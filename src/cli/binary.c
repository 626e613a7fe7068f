/* See binary.h. */
#include "cli/binary.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/text.h"

#define INTERPRETERS_MAX 5 /* the kernel's own limit of #! upon #! is 4 */

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#define OUR_NAME "64-bit x86"
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#define OUR_NAME "64-bit ARM"
#endif

static void unreached(struct binary *b, const char *fmt, const char *a, const char *c)
{
	struct text t = TEXT_ON(b->why);
	b->why[0] = '\0';
	b->reach = BINARY_UNREACHED;
	for (const char *p = fmt; *p; p++) {
		if (*p == '\1')
			text_str(&t, a);
		else if (*p == '\2')
			text_str(&t, c);
		else
			text_char(&t, *p);
	}
}

/* ---- privileges: the dynamic linker ignores LD_PRELOAD when the kernel says AT_SECURE ---- */

static bool is_secure(struct binary *b, const char *path)
{
	struct stat st;
	struct statvfs vfs;
	char caps[64];

	if (stat(path, &st) != 0)
		return false;
	/* Where the kernel ignores the bits, they change nothing. */
	if ((statvfs(path, &vfs) == 0 && vfs.f_flag & ST_NOSUID) || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return false;
	if (st.st_mode & S_ISUID && st.st_uid != getuid()) {
		unreached(b, "\1 is set-user-ID: the dynamic linker ignores LD_PRELOAD there", path, "");
		return true;
	}
	if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st.st_gid != getgid()) {
		unreached(b, "\1 is set-group-ID: the dynamic linker ignores LD_PRELOAD there", path, "");
		return true;
	}
	if (getuid() != 0 && getxattr(path, "security.capability", caps, sizeof caps) > 0) {
		unreached(b, "\1 has file capabilities: the dynamic linker ignores LD_PRELOAD there", path, "");
		return true;
	}
	return false;
}

/* ---- ELF ---- */

struct image {
	int fd;
	Elf64_Ehdr head;
};

static bool read_at(int fd, void *to, size_t n, uint64_t at)
{
	return at < INT64_MAX && pread(fd, to, n, (off_t)at) == (ssize_t)n;
}

/* The path in PT_INTERP; false: it has none. */
static bool read_interpreter(const struct image *im, char *to, size_t cap)
{
	for (unsigned i = 0; i < im->head.e_phnum; i++) {
		Elf64_Phdr ph;
		if (!read_at(im->fd, &ph, sizeof ph, im->head.e_phoff + (uint64_t)i * im->head.e_phentsize))
			return false;
		if (ph.p_type != PT_INTERP)
			continue;
		size_t n = ph.p_filesz < cap ? ph.p_filesz : cap - 1;
		if (!read_at(im->fd, to, n, ph.p_offset))
			return false;
		to[n] = '\0';
		return true;
	}
	return false;
}

static bool has_section(const struct image *im, const char *wanted)
{
	Elf64_Shdr names, sh;
	char name[32];
	if (im->head.e_shentsize != sizeof sh ||
		!read_at(im->fd, &names, sizeof names, im->head.e_shoff + (uint64_t)im->head.e_shstrndx * sizeof sh))
		return false;
	for (unsigned i = 0; i < im->head.e_shnum; i++) {
		if (!read_at(im->fd, &sh, sizeof sh, im->head.e_shoff + (uint64_t)i * sizeof sh))
			return false;
		ssize_t n = pread(im->fd, name, sizeof name - 1, (off_t)(names.sh_offset + sh.sh_name));
		if (n <= 0)
			continue;
		name[n] = '\0';
		if (strcmp(name, wanted) == 0)
			return true;
	}
	return false;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static void look_at_elf(struct binary *b, struct image *im, const char *path)
{
	char interpreter[4096];

	if (im->head.e_ident[EI_CLASS] != ELFCLASS64) {
		unreached(b, "\1 is a 32-bit program, the shim is " OUR_NAME, path, "");
		return;
	}
	if (im->head.e_machine != OUR_MACHINE) {
		unreached(b, "\1 is made for another machine, the shim is " OUR_NAME, path, "");
		return;
	}
	b->is_go = has_section(im, ".go.buildinfo");
	if (strncmp(base_of(path), "ld-linux", 8) == 0)
		return; /* the dynamic linker run by hand heeds LD_PRELOAD like any other start */
	if (!read_interpreter(im, interpreter, sizeof interpreter)) {
		unreached(b,
			b->is_go ? "\1 is a static Go program: no dynamic linker starts it, so nothing can be preloaded"
				 : "\1 is statically linked: no dynamic linker starts it, so nothing can be preloaded",
			path, "");
		return;
	}
	const char *name = base_of(interpreter);
	if (strncmp(name, "ld-linux", 8) == 0 || strncmp(name, "ld64", 4) == 0)
		is_secure(b, path);
	else if (strncmp(name, "ld-musl", 7) == 0)
		unreached(b, "\1 is linked to musl (\2), the shim to glibc", path, interpreter);
	else
		unreached(b, "\1 is started by \2, which is not glibc's dynamic linker", path, interpreter);
}

/* ---- #! ---- */

static char *skip_blanks(char *p)
{
	return p + strspn(p, " \t");
}

static bool find_in_path(struct binary *b, const char *command, char *to, size_t cap);

/* `env [-S] [-i...] [NAME=VALUE]... program`: what it will run; null: cannot tell. */
static char *after_env(char *arguments)
{
	char *p = skip_blanks(arguments);
	for (char *word = strtok(p, " \t"); word; word = strtok(NULL, " \t")) {
		if (strcmp(word, "-u") == 0 || strcmp(word, "-C") == 0) {
			strtok(NULL, " \t");
			continue;
		}
		if (word[0] == '-' && word[1] == 'S' && word[2])
			return word + 2;
		if (word[0] != '-' && !strchr(word, '='))
			return word;
	}
	return NULL;
}

/* The interpreter of a first line "#!..." into to; false: it has none that can be found (said in b). */
static bool interpreter_of(struct binary *b, const char *script, char *line, char *to, size_t cap)
{
	line[strcspn(line, "\r\n")] = '\0';
	char *path = skip_blanks(line + 2);
	size_t n = strcspn(path, " \t");
	char *arguments = path + n + (path[n] != '\0');
	path[n] = '\0';
	if (n == 0) {
		text_copy(to, cap, "/bin/sh");
		return true;
	}
	if (strcmp(base_of(path), "env") == 0) {
		char *program = after_env(arguments);
		if (program && find_in_path(b, program, to, cap))
			return true;
		b->reach = BINARY_ABSENT;
		snprintf(b->why, sizeof b->why, "%.400s wants %.400s by env, which is not found", script,
			program ? program : "a program");
		return false;
	}
	text_copy(to, cap, path);
	if (access(to, X_OK) == 0)
		return true;
	b->reach = errno == ENOENT ? BINARY_ABSENT : BINARY_DENIED;
	snprintf(b->why, sizeof b->why, "%.400s wants %.400s: %s", script, to, strerror(errno));
	return false;
}

/* One file of the chain. True: `next` is to be looked at. */
static bool look_at(struct binary *b, const char *path, char *next, size_t cap)
{
	union {
		Elf64_Ehdr elf;
		char bytes[4096];
	} start = {.bytes = ""};
	struct image im = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};

	text_copy(b->program, sizeof b->program, path);
	if (im.fd < 0) {
		/* Executable but not readable (mode 0711): it runs, and is not dumpable, but LD_PRELOAD works; we
		 * cannot tell more. */
		return false;
	}
	ssize_t n = pread(im.fd, start.bytes, sizeof start.bytes - 1, 0);
	bool goes_on = false;
	if (n >= (ssize_t)sizeof(Elf64_Ehdr) && memcmp(start.bytes, ELFMAG, SELFMAG) == 0) {
		im.head = start.elf;
		look_at_elf(b, &im, path);
	} else if (n >= 2 && memcmp(start.bytes, "#!", 2) == 0) {
		goes_on = interpreter_of(b, path, start.bytes, next, cap);
	} else if (n >= 0 && memchr(start.bytes, '\0', (size_t)n) == NULL) {
		text_copy(next, cap, "/bin/sh"); /* what execvp does with a text that says nothing */
		goes_on = true;
	} else {
		unreached(b, "\1 is neither an ELF program nor a script: what runs it is not known", path, "");
	}
	close(im.fd);
	return goes_on;
}

/* ---- PATH ---- */

static bool is_program(const char *path, int *err)
{
	struct stat st;
	if (stat(path, &st) != 0) {
		if (errno == EACCES)
			*err = EACCES;
		return false;
	}
	if (S_ISREG(st.st_mode) && access(path, X_OK) == 0)
		return true;
	*err = EACCES;
	return false;
}

static bool find_in_path(struct binary *b, const char *command, char *to, size_t cap)
{
	const char *path = getenv("PATH");
	int err = ENOENT;

	if (strchr(command, '/')) {
		text_copy(to, cap, command);
		if (is_program(to, &err))
			return true;
	} else {
		if (!path)
			path = "/bin:/usr/bin";
		for (const char *p = path;; p++) {
			size_t n = strcspn(p, ":");
			if (snprintf(to, cap, "%.*s%s%s", (int)n, p, n ? "/" : "", command) < (int)cap && command[0] &&
				is_program(to, &err))
				return true;
			p += n;
			if (*p == '\0')
				break;
		}
	}
	b->reach = err == EACCES ? BINARY_DENIED : BINARY_ABSENT;
	snprintf(b->why, sizeof b->why, "%.900s: %s", command, err == EACCES ? "cannot be executed" : "not found");
	return false;
}

void binary_look_at_file(struct binary *b, const char *path)
{
	char at[4096], next[4096];

	b->reach = BINARY_REACHED;
	b->why[0] = '\0';
	b->is_go = false;
	text_copy(at, sizeof at, path);
	for (int i = 0; i < INTERPRETERS_MAX && look_at(b, at, next, sizeof next); i++)
		memcpy(at, next, sizeof at);
}

void binary_look(struct binary *b, const char *command)
{
	memset(b, 0, sizeof *b);
	if (find_in_path(b, command, b->path, sizeof b->path))
		binary_look_at_file(b, b->path);
}
