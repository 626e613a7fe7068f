/* Compiled in front of src/core/region.c by `make sanitize`: a region is mapped with 256 GB on each side that
 * nobody may touch. ASan knows nothing of what is mapped, so this is what an access outside of the region meets,
 * whatever index led there. */
#ifndef RESIL_TESTS_FENCED_H
#define RESIL_TESTS_FENCED_H

#include <sys/mman.h>

#include "base/sys.h"

#define FENCE ((size_t)1 << 38)

static inline void *fenced_mmap(size_t n, int prot, int flags, int fd, off_t off)
{
	size_t pages = (n + 4095) & ~(size_t)4095;
	char *room = sys_mmap(2 * FENCE + pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (sys_is_error(room))
		return room;
	void *at = (void *)SYS6(SYS_mmap, room + FENCE, n, prot, flags | MAP_FIXED, fd, off);
	if (sys_is_error(at))
		sys_munmap(room, 2 * FENCE + pages);
	return at;
}

static inline void fenced_munmap(void *at, size_t n)
{
	sys_munmap((char *)at - FENCE, 2 * FENCE + ((n + 4095) & ~(size_t)4095));
}

#define sys_mmap fenced_mmap
#define sys_munmap fenced_munmap

#endif
