/* See fail.h. Any thread. Empty in ordinary builds. */
#ifdef RESIL_FAIL_OWN
#include "base/fail.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic long count;
static long nth, after, error;

static void read_orders(void)
{
	const char *s = getenv("RESIL_FAIL_NTH");
	nth = s ? atol(s) : -1;
	s = getenv("RESIL_FAIL_AFTER");
	after = s ? atol(s) : -1;
	s = getenv("RESIL_FAIL_ERRNO");
	error = s ? atol(s) : ENOMEM;
}

bool fail_now(long number)
{
	/* Waits and wakes are no requests, who we are is never refused, and a close that failed would be the test's own
	 * leak. */
	if (number == SYS_futex || number == SYS_close || number == SYS_getpid || number == SYS_gettid ||
		number == SYS_geteuid)
		return false;
	static _Atomic int state;
	int none = 0;
	if (atomic_compare_exchange_strong(&state, &none, 1)) {
		read_orders();
		atomic_store(&state, 2);
	}
	if (atomic_load(&state) != 2)
		return false;
	long n = atomic_fetch_add(&count, 1) + 1;
	return n == nth || (after > 0 && n >= after);
}

long fail_errno(void)
{
	return -error;
}

__attribute__((destructor)) static void tell(void)
{
	const char *path = getenv("RESIL_FAIL_COUNT");
	if (!path)
		return;
	long fd = syscall(SYS_openat, -100, path, 01101, 0600);
	char digits[24];
	int at = sizeof digits;
	long n = atomic_load(&count);
	do
		digits[--at] = (char)('0' + n % 10);
	while ((n /= 10) && at > 0);
	syscall(SYS_write, fd, digits + at, sizeof digits - (size_t)at);
	syscall(SYS_close, fd);
}
#else
typedef int fail_is_empty; /* a translation unit is never empty */
#endif
