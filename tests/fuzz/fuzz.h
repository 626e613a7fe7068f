/* What the fuzzing harnesses share: a claim that fails ends the run as a crash, so that libFuzzer keeps the input. */
#ifndef RESIL_TESTS_FUZZ_H
#define RESIL_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define claim(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                             \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

/* Bytes as a file that can be opened by its path; one at a time. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
	static char path[40];
	static int fd = -1;
	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	}
	claim(fd >= 0 && ftruncate(fd, 0) == 0);
	claim(pwrite(fd, data, size, 0) == (ssize_t)size);
	return path;
}

#endif
