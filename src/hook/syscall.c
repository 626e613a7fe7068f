/* Taken: syscall(2). The numbers below go the way of their named hooks (E12): node closes its sockets so, and libuv,
 * the JVM and others use some of them. Everything else jumps to libc's own with every register untouched (jump.S). */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/real.h"
#include "engine/guest.h"
#include "engine/process.h"
#include "engine/service.h"
#include "hook/export.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* One bit a number that hook_syscall takes; read by jump.S. All clear until the constructor: early calls pass. */
#define SEEN_MAX 512
uint64_t hook_syscall_seen[SEEN_MAX / 64];
long hook_syscall(long n, long a, long b, long c, long d, long e, long f);
void hook_syscall_init(void);

static const int seen[] = {
	SYS_socket,
	SYS_connect,
	SYS_accept,
	SYS_accept4,
	SYS_getsockopt,
	SYS_setsockopt,
	SYS_shutdown,
	SYS_sendto,
	SYS_sendmsg,
	SYS_sendmmsg,
	SYS_recvfrom,
	SYS_recvmsg,
	SYS_recvmmsg,
	SYS_read,
	SYS_readv,
	SYS_write,
	SYS_writev,
	SYS_close,
	SYS_close_range,
	SYS_dup,
	SYS_dup3,
	SYS_fcntl,
	SYS_ioctl,
	SYS_execve,
	SYS_execveat,
	SYS_exit_group,
	SYS_unshare,
	SYS_setns,
	SYS_seccomp,
	SYS_prctl,
#ifdef SYS_dup2
	SYS_dup2,
#endif
};

void hook_syscall_init(void)
{
	for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++)
		hook_syscall_seen[seen[i] / 64] |= 1ULL << (seen[i] % 64);
}

static long refuse_what_seccomp_would_not_know(long n, long a, long b, long c, long d, long e, long f)
{
	/* SECCOMP_SET_MODE_STRICT 0 and _FILTER 1; others only ask. */
	if (a < 0 || a > 1 || !guest_is_on() || guest_is_restricted())
		return real_syscall(n, a, b, c, d, e, f);
	service_retire();
	long r = real_syscall(n, a, b, c, d, e, f);
	int saved = errno;
	if (r != 0)
		service_return();
	errno = saved;
	return r;
}

#define FD(x) ((int)(x))
#define PTR(x) ((void *)(x))

long hook_syscall(long n, long a, long b, long c, long d, long e, long f)
{
	switch (n) {
	case SYS_socket: return socket((int)a, (int)b, (int)c);
	case SYS_connect: return connect(FD(a), PTR(b), (socklen_t)c);
	case SYS_accept: return accept(FD(a), PTR(b), PTR(c));
	case SYS_accept4: return accept4(FD(a), PTR(b), PTR(c), (int)d);
	case SYS_getsockopt: return getsockopt(FD(a), (int)b, (int)c, PTR(d), PTR(e));
	case SYS_setsockopt: return setsockopt(FD(a), (int)b, (int)c, PTR(d), (socklen_t)e);
	case SYS_shutdown: return shutdown(FD(a), (int)b);
	case SYS_sendto: return sendto(FD(a), PTR(b), (size_t)c, (int)d, PTR(e), (socklen_t)f);
	case SYS_sendmsg: return sendmsg(FD(a), PTR(b), (int)c);
	case SYS_sendmmsg: return sendmmsg(FD(a), PTR(b), (unsigned)c, (int)d);
	case SYS_recvfrom: return recvfrom(FD(a), PTR(b), (size_t)c, (int)d, PTR(e), PTR(f));
	case SYS_recvmsg: return recvmsg(FD(a), PTR(b), (int)c);
	case SYS_recvmmsg: return recvmmsg(FD(a), PTR(b), (unsigned)c, (int)d, PTR(e));
	case SYS_read: return read(FD(a), PTR(b), (size_t)c);
	case SYS_readv: return readv(FD(a), PTR(b), (int)c);
	case SYS_write: return write(FD(a), PTR(b), (size_t)c);
	case SYS_writev: return writev(FD(a), PTR(b), (int)c);
	case SYS_close: return close(FD(a));
	case SYS_close_range: return close_range((unsigned)a, (unsigned)b, (int)c);
	case SYS_dup: return dup(FD(a));
#ifdef SYS_dup2
	case SYS_dup2: return dup2(FD(a), FD(b));
#endif
	case SYS_dup3: return dup3(FD(a), FD(b), (int)c);
	case SYS_fcntl: return fcntl(FD(a), (int)b, c);
	case SYS_ioctl: return ioctl(FD(a), (unsigned long)b, c);
	case SYS_execve: return execve(PTR(a), PTR(b), PTR(c));
	case SYS_execveat: return execveat((int)a, PTR(b), PTR(c), PTR(d), (int)e);
	case SYS_unshare: return unshare((int)a);
	case SYS_setns: return setns(FD(a), (int)b);
	case SYS_prctl: return prctl((int)a, b, c, d, e);
	case SYS_seccomp: return refuse_what_seccomp_would_not_know(n, a, b, c, d, e, f);
	case SYS_exit_group:
		if (guest_is_on())
			process_exits();
		break;
	}
	return real_syscall(n, a, b, c, d, e, f);
}

#if !defined(__x86_64__)
/* Elsewhere the C calling convention does the same with a copy of the registers. */
EXPORT long syscall(long n, ...)
{
	va_list ap;
	va_start(ap, n);
	long a[6];
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	return hook_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#endif
