/* Taken: exec, exit, and what changes the process we stand in. exec has a body for each form: inside libc one never
 * calls another by name (measured). */
#include <alloca.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/real.h"
#include "engine/guest.h"
#include "engine/process.h"
#include "engine/service.h"
#include "hook/export.h"

static struct keeper execs(void)
{
	struct keeper k = {.word = -1};
	if (!guest_is_on())
		return k;
	int saved = errno;
	k = process_execs();
	errno = saved;
	return k;
}

/* What exec returns with. */
static int failed(struct keeper *k, int r)
{
	int saved = errno;
	process_exec_failed(k);
	errno = saved;
	return r;
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	struct keeper k = execs();
	return failed(&k, real.execve(path, argv, envp));
}

EXPORT int execv(const char *path, char *const argv[])
{
	struct keeper k = execs();
	return failed(&k, real.execv(path, argv));
}

EXPORT int execvp(const char *file, char *const argv[])
{
	struct keeper k = execs();
	return failed(&k, real.execvp(file, argv));
}

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	struct keeper k = execs();
	return failed(&k, real.execvpe(file, argv, envp));
}

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	struct keeper k = execs();
	return failed(&k, real.fexecve(fd, argv, envp));
}

EXPORT int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
	struct keeper k = execs();
	return failed(&k, real.execveat(dir, path, argv, envp, flags));
}

/* The list forms gather their arguments on the stack: no allocation, they are called between fork and exec. Not
 * inlined: libc declares the first argument never null, callers think otherwise. */
__attribute__((noinline)) static size_t count_args(const char *first, va_list ap)
{
	size_t n = 0;
	for (const char *arg = first; arg; arg = va_arg(ap, const char *))
		n++;
	return n;
}

__attribute__((noinline)) static void gather(char **argv, const char *first, va_list ap)
{
	size_t n = 0;
	for (const char *arg = first; arg; arg = va_arg(ap, const char *))
		argv[n++] = (char *)(uintptr_t)arg;
	argv[n] = NULL;
}

#define GATHER(argv, first)                                                                                            \
	va_list ap, counting;                                                                                          \
	va_start(ap, first);                                                                                           \
	va_copy(counting, ap);                                                                                         \
	char **argv = alloca((count_args(first, counting) + 1) * sizeof *argv);                                        \
	va_end(counting);                                                                                              \
	gather(argv, first, ap)

EXPORT int execl(const char *path, const char *arg, ...)
{
	GATHER(argv, arg);
	va_end(ap);
	return execv(path, argv);
}

EXPORT int execlp(const char *file, const char *arg, ...)
{
	GATHER(argv, arg);
	va_end(ap);
	return execvp(file, argv);
}

EXPORT int execle(const char *path, const char *arg, ...)
{
	GATHER(argv, arg);
	char *const *envp = va_arg(ap, char *const *);
	va_end(ap);
	return execve(path, argv, envp);
}

EXPORT void _exit(int status)
{
	if (guest_is_on())
		process_exits();
	real._exit(status);
	__builtin_unreachable();
}

EXPORT void _Exit(int status)
{
	_exit(status);
}

/* A child that shares our memory while its parent waits is a vfork by another name: nothing that it closes, dups or
 * execs changes the parent's table (E3). Counted here as hook/jump.S does: the child has our thread-local storage. */
EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	va_list ap;
	va_start(ap, arg);
	pid_t *parent_tid = va_arg(ap, pid_t *);
	void *tls = va_arg(ap, void *);
	pid_t *child_tid = va_arg(ap, pid_t *);
	va_end(ap);
	bool is_vfork = (flags & (CLONE_VM | CLONE_VFORK | CLONE_THREAD | CLONE_SETTLS)) == (CLONE_VM | CLONE_VFORK);
	if (!is_vfork || !guest_is_on())
		return real.clone(fn, stack, flags, arg, parent_tid, tls, child_tid);
	guest_vfork_depth++;
	int r = real.clone(fn, stack, flags, arg, parent_tid, tls, child_tid);
	guest_vfork_depth--;
	return r;
}

/* A daemon is a fork's child that stays: the limits of the connects it inherited need a timer of its own, and it may do
 * nothing but poll from here on (E4). */
EXPORT int daemon(int nochdir, int noclose)
{
	struct keeper k = {.word = -1};
	if (guest_is_on())
		k = keeper_make_for_children(true); /* the parent's end passes no hook */
	int r = real.daemon(nochdir, noclose);
	if (r != 0)
		return failed(&k, r);
	if (guest_is_on())
		service_becomes_daemon();
	return r;
}

EXPORT pid_t setsid(void)
{
	pid_t r = real.setsid();
	if (r >= 0 && guest_is_on())
		service_becomes_daemon();
	return r;
}

/* A second thread makes unshare(CLONE_NEWUSER) and some setns fail (measured): ours step aside (E5). */
EXPORT int unshare(int flags)
{
	bool on = guest_is_on();
	if (on)
		service_pause(true);
	int r = real.unshare(flags);
	int saved = errno;
	if (on)
		service_resume();
	errno = saved;
	return r;
}

EXPORT int setns(int fd, int type)
{
	bool on = guest_is_on();
	if (on)
		service_pause(true);
	int r = real.setns(fd, type);
	int saved = errno;
	if (on)
		service_resume();
	errno = saved;
	return r;
}

/* The identity decides whose region this is (E15). */
static int changed(int r)
{
	if (r != 0 || !guest_is_on())
		return r;
	int saved = errno;
	guest_detach();
	errno = saved;
	return r;
}

EXPORT int setuid(uid_t uid)
{
	return changed(real.setuid(uid));
}

EXPORT int seteuid(uid_t uid)
{
	return changed(real.seteuid(uid));
}

EXPORT int setreuid(uid_t ruid, uid_t euid)
{
	return changed(real.setreuid(ruid, euid));
}

EXPORT int setresuid(uid_t ruid, uid_t euid, uid_t suid)
{
	return changed(real.setresuid(ruid, euid, suid));
}

/* A filter is about to judge every system call: from here on none is made that the app did not ask for, and our threads
 * leave first (E14). */
EXPORT int prctl(int option, ...)
{
	va_list ap;
	va_start(ap, option);
	unsigned long a = va_arg(ap, unsigned long), b = va_arg(ap, unsigned long);
	unsigned long c = va_arg(ap, unsigned long), d = va_arg(ap, unsigned long);
	va_end(ap);
	if (option != PR_SET_SECCOMP || !guest_is_on() || guest_is_restricted())
		return real.prctl(option, a, b, c, d);
	service_retire();
	int r = real.prctl(option, a, b, c, d);
	int saved = errno;
	if (r != 0)
		service_return();
	errno = saved;
	return r;
}
