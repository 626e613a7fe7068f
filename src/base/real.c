/* See real.h. The constructor calls real_resolve(); the early forms run before it, in whatever thread. */
#include "base/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>

#include "base/oldlibc.h"
#include "base/sys.h"

OLDLIBC(dlsym);

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static long early_result(long r)
{
	if (r < 0 && r >= -4095) {
		errno = (int)-r;
		return -1;
	}
	return r;
}

/* Integer arguments by register, as the kernel takes them. An int parameter leaves its upper half undefined, which the
 * kernel ignores. */
static long early_call(long number, ...)
{
	long a[6];
	va_list ap;
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	return early_result(sys_call6(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

static long early_syscall(long number, ...)
{
	long a[6];
	va_list ap;
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	return early_result(sys_call6(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

#define ARGS(...) __VA_ARGS__
#define TAKEN_SYS(ret, name, params, args, number)                                                                     \
	static ret early_##name params                                                                                 \
	{                                                                                                              \
		return (ret)early_call(number, ARGS args, 0L, 0L, 0L, 0L, 0L);                                         \
	}
#define TAKEN_LIB(ret, name, params, args)                                                                             \
	static ret early_##name params                                                                                 \
	{                                                                                                              \
		*(void **)&real.name = dlsym(RTLD_NEXT, #name);                                                        \
		return real.name args;                                                                                 \
	}
#define TAKEN_TLS(ret, name, params, args)
#define TAKEN_ASM(name)
#define TAKEN_OWN(name)
#define TAKEN_ALIAS(name, alias)
#include "base/taken.h"
#undef TAKEN_SYS
#undef TAKEN_LIB

#define TAKEN_SYS(ret, name, params, args, number) .name = early_##name,
#define TAKEN_LIB(ret, name, params, args) .name = early_##name,
struct real_table real = {
#include "base/taken.h"
};
#undef TAKEN_SYS
#undef TAKEN_LIB

long (*real_syscall)(long n, ...) = early_syscall;
pid_t (*real_vfork)(void);

static void *early_dlopen(const char *path, int flags)
{
	*(void **)&real_dlopen = dlsym(RTLD_NEXT, "dlopen");
	return real_dlopen ? real_dlopen(path, flags) : NULL;
}

void *(*real_dlopen)(const char *path, int flags) = early_dlopen;

static void early_freeaddrinfo(struct addrinfo *list)
{
	*(void **)&real_freeaddrinfo = dlsym(RTLD_NEXT, "freeaddrinfo");
	if (real_freeaddrinfo)
		real_freeaddrinfo(list);
}

void (*real_freeaddrinfo)(struct addrinfo *list) = early_freeaddrinfo;

static void *next_of(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

#define TAKEN_SYS(ret, name, params, args, number)                                                                     \
	if ((at = next_of(#name)))                                                                                     \
		*(void **)&real.name = at;
#define TAKEN_LIB(ret, name, params, args) TAKEN_SYS(ret, name, params, args, 0)
#define TAKEN_LATE(ret, name, params, args)
void real_resolve(void)
{
	void *at;
#include "base/taken.h"
	if ((at = next_of("syscall")))
		*(void **)&real_syscall = at;
	*(void **)&real_vfork = next_of("vfork");
	if ((at = next_of("dlopen")))
		*(void **)&real_dlopen = at;
	if ((at = next_of("freeaddrinfo")))
		*(void **)&real_freeaddrinfo = at;
}
