/* System calls of our own, straight to the kernel: they pass no hook (ours or another preload's), touch no errno, are
 * no cancellation points, and serve before libc is ready. Each returns the kernel's value, or -errno. Only calls that
 * x86-64 and aarch64 share. */
#ifndef RESIL_BASE_SYS_H
#define RESIL_BASE_SYS_H

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#if defined(__x86_64__)
static inline long sys_call6(long n, long a, long b, long c, long d, long e, long f)
{
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
static inline long sys_call6(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}
#else
#error "resil knows x86-64 and aarch64"
#endif

#ifdef RESIL_FAIL_OWN
/* Test build: the n-th system call of ours fails (fail.h). */
#include "base/fail.h"
#define sys_call6(n, a, b, c, d, e, f)                                                                                 \
	(fail_now(n) ? fail_errno() : sys_call6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))
#endif

#define SYS1(n, a) sys_call6(n, (long)(a), 0, 0, 0, 0, 0)
#define SYS2(n, a, b) sys_call6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYS3(n, a, b, c) sys_call6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(n, a, b, c, d) sys_call6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define SYS5(n, a, b, c, d, e) sys_call6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define SYS6(n, a, b, c, d, e, f) sys_call6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* clang-format off */
/* files */
static inline int sys_open(const char *path, int flags, mode_t mode)
{
	return (int)SYS4(SYS_openat, AT_FDCWD, path, flags, mode);
}
static inline int sys_close(int fd)
{
	return (int)SYS1(SYS_close, fd);
}
static inline ssize_t sys_read(int fd, void *buf, size_t n)
{
	return SYS3(SYS_read, fd, buf, n);
}
static inline ssize_t sys_write(int fd, const void *buf, size_t n)
{
	return SYS3(SYS_write, fd, buf, n);
}
static inline int sys_fstat(int fd, struct stat *st)
{
	return (int)SYS2(SYS_fstat, fd, st);
}
static inline int sys_stat(const char *path, struct stat *st)
{
	return (int)SYS4(SYS_newfstatat, AT_FDCWD, path, st, 0);
}
static inline int sys_lstat(const char *path, struct stat *st)
{
	return (int)SYS4(SYS_newfstatat, AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}
static inline int sys_access(const char *path, int mode)
{
	return (int)SYS3(SYS_faccessat, AT_FDCWD, path, mode);
}
static inline int sys_mkdir(const char *path, mode_t mode)
{
	return (int)SYS3(SYS_mkdirat, AT_FDCWD, path, mode);
}
static inline int sys_unlink(const char *path)
{
	return (int)SYS3(SYS_unlinkat, AT_FDCWD, path, 0);
}
static inline int sys_link(const char *from, const char *to)
{
	return (int)SYS5(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}
static inline int sys_rename(const char *from, const char *to)
{
	return (int)SYS5(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
static inline ssize_t sys_getcwd(char *buf, size_t n)
{
	return SYS2(SYS_getcwd, buf, n);
}
static inline ssize_t sys_readlink(const char *path, char *buf, size_t n)
{
	return SYS4(SYS_readlinkat, AT_FDCWD, path, buf, n);
}
static inline int sys_ftruncate(int fd, off_t n)
{
	return (int)SYS2(SYS_ftruncate, fd, n);
}
static inline int sys_fallocate(int fd, off_t n)
{
	return (int)SYS4(SYS_fallocate, fd, 0, 0, n);
}
static inline int sys_fcntl(int fd, int cmd, long arg)
{
	return (int)SYS3(SYS_fcntl, fd, cmd, arg);
}
static inline int sys_dup3(int from, int to, int flags)
{
	return (int)SYS3(SYS_dup3, from, to, flags);
}
static inline int sys_ioctl(int fd, unsigned long req, void *arg)
{
	return (int)SYS3(SYS_ioctl, fd, req, arg);
}

/* memory: MAP_FAILED never comes back; test with sys_is_error */
static inline void *sys_mmap(size_t n, int prot, int flags, int fd, off_t off)
{
	return (void *)SYS6(SYS_mmap, 0, n, prot, flags, fd, off);
}
static inline int sys_munmap(void *at, size_t n)
{
	return (int)SYS2(SYS_munmap, at, n);
}
static inline int sys_madvise(void *at, size_t n, int advice)
{
	return (int)SYS3(SYS_madvise, at, n, advice);
}
static inline bool sys_is_error(const void *p)
{
	return (unsigned long)p >= (unsigned long)-4095;
}

/* sockets */
static inline int sys_socket(int domain, int type, int protocol)
{
	return (int)SYS3(SYS_socket, domain, type, protocol);
}
static inline int sys_bind(int fd, const struct sockaddr *a, socklen_t n)
{
	return (int)SYS3(SYS_bind, fd, a, n);
}
static inline int sys_listen(int fd, int backlog)
{
	return (int)SYS2(SYS_listen, fd, backlog);
}
static inline int sys_accept4(int fd, int flags)
{
	return (int)SYS4(SYS_accept4, fd, 0, 0, flags);
}
static inline int sys_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	return (int)SYS3(SYS_connect, fd, a, n);
}
/* Lets go of a connection or a pending connect: whoever waits is told an error, the peer gets a reset. */
static inline int sys_disconnect(int fd)
{
	static const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
	return sys_connect(fd, &nowhere, sizeof nowhere);
}
static inline int sys_shutdown(int fd, int how)
{
	return (int)SYS2(SYS_shutdown, fd, how);
}
static inline int sys_getsockopt(int fd, int level, int name, void *v, socklen_t *n)
{
	return (int)SYS5(SYS_getsockopt, fd, level, name, v, n);
}
static inline int sys_setsockopt(int fd, int level, int name, const void *v, socklen_t n)
{
	return (int)SYS5(SYS_setsockopt, fd, level, name, v, n);
}
static inline ssize_t sys_send(int fd, const void *buf, size_t n, int flags)
{
	return SYS6(SYS_sendto, fd, buf, n, flags, 0, 0);
}
static inline ssize_t sys_recv(int fd, void *buf, size_t n, int flags)
{
	return SYS6(SYS_recvfrom, fd, buf, n, flags, 0, 0);
}
static inline ssize_t sys_sendmsg(int fd, const struct msghdr *m, int flags)
{
	return SYS3(SYS_sendmsg, fd, m, flags);
}
static inline ssize_t sys_recvmsg(int fd, struct msghdr *m, int flags)
{
	return SYS3(SYS_recvmsg, fd, m, flags);
}
static inline int sys_socketpair(int domain, int type, int protocol, int fds[2])
{
	return (int)SYS4(SYS_socketpair, domain, type, protocol, fds);
}
static inline int sys_getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
	return (int)SYS3(SYS_getsockname, fd, a, n);
}
static inline int sys_epoll_create(void)
{
	return (int)SYS1(SYS_epoll_create1, EPOLL_CLOEXEC);
}
static inline int sys_epoll_ctl(int ep, int op, int fd, struct epoll_event *e)
{
	return (int)SYS4(SYS_epoll_ctl, ep, op, fd, e);
}
static inline int sys_epoll_wait(int ep, struct epoll_event *e, int n, int timeout_ms)
{
	return (int)SYS6(SYS_epoll_pwait, ep, e, n, timeout_ms, 0, 8);
}

/* processes, waiting */
static inline pid_t sys_getpid(void)
{
	return (pid_t)sys_call6(SYS_getpid, 0, 0, 0, 0, 0, 0);
}
static inline pid_t sys_gettid(void)
{
	return (pid_t)sys_call6(SYS_gettid, 0, 0, 0, 0, 0, 0);
}
static inline uid_t sys_geteuid(void)
{
	return (uid_t)sys_call6(SYS_geteuid, 0, 0, 0, 0, 0, 0);
}
static inline int sys_kill(pid_t pid, int sig)
{
	return (int)SYS2(SYS_kill, pid, sig);
}
static inline int sys_poll(struct pollfd *fds, unsigned n, const struct timespec *timeout)
{
	struct timespec left = timeout ? *timeout : (struct timespec){0, 0};
	return (int)SYS5(SYS_ppoll, fds, n, timeout ? &left : 0, 0, 8);
}
/* Waits while *word == value, until the absolute CLOCK_MONOTONIC time (null: for ever). */
static inline int sys_futex_wait(const _Atomic uint32_t *word, uint32_t value, const struct timespec *until)
{
	return (int)SYS6(
		SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, value, until, 0, FUTEX_BITSET_MATCH_ANY);
}
static inline int sys_futex_wake(const _Atomic uint32_t *word, int n)
{
	return (int)SYS3(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, n);
}
/* The same on memory that processes share. */
static inline int sys_futex_wait_shared(const _Atomic uint32_t *word, uint32_t value, const struct timespec *until)
{
	return (int)SYS6(SYS_futex, word, FUTEX_WAIT_BITSET, value, until, 0, FUTEX_BITSET_MATCH_ANY);
}
static inline int sys_futex_wake_shared(const _Atomic uint32_t *word, int n)
{
	return (int)SYS3(SYS_futex, word, FUTEX_WAKE, n);
}
static inline int sys_getrlimit(int what, struct rlimit *r)
{
	return (int)SYS4(SYS_prlimit64, 0, what, 0, r);
}
static inline int sys_swaprlimit(int what, const struct rlimit *set, struct rlimit *was)
{
	return (int)SYS4(SYS_prlimit64, 0, what, set, was);
}
static inline int sys_sigaction_get(int sig, void *kernel_sigaction)
{
	return (int)SYS4(SYS_rt_sigaction, sig, 0, kernel_sigaction, 8);
}

#endif
