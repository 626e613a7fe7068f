/* The names taken from libc and from TLS libraries: one row each. The table of real functions (real.h), their early forms (real.c) and the
 * exports list of the shim (hook/exports.map.in) come from here; a hand-written body in hook/ is all that a new row
 * needs beside it.
 *
 * TAKEN_SYS(return type, name, parameters, arguments, system call): a thin wrapper; before our constructor has resolved
 * the real one, the system call itself is made (jemalloc reads files while it starts, before anybody's constructor).
 * TAKEN_LIB(return type, name, parameters, arguments): more than a system call; resolved at its first use when that
 * comes before our constructor. TAKEN_LATE: the same, always resolved at its first use, so that starting costs nothing
 * for what few programs call; never for one that a signal handler or a fork's child may call, nor for one in whose place
 * faults are put (engine/fault_layer.h). TAKEN_ASM(name): a body in assembly, its real function kept in real.h by hand.
 * TAKEN_OWN(name): a body that needs no real function of its own (execl builds an argv and goes on as execv).
 * TAKEN_ALIAS(name, alias): another exported name of the same body.
 * TAKEN_TLS(return type, name, parameters, arguments): forwarded to the caller's own definition (tls_library.h).
 * Variadic ones are rows of fixed parameters: the calling conventions we know pass the same integer registers.
 */

#ifndef TAKEN_LATE
#define TAKEN_LATE(...) TAKEN_LIB(__VA_ARGS__)
#define TAKEN_LATE_IS_LIB
#endif

/* clang-format off */
/* connections */
TAKEN_SYS(int, socket, (int domain, int type, int protocol), (domain, type, protocol), SYS_socket)
TAKEN_SYS(int, connect, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len), SYS_connect)
TAKEN_SYS(int, accept, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len), SYS_accept)
TAKEN_SYS(int, accept4, (int fd, struct sockaddr *addr, socklen_t *len, int flags), (fd, addr, len, flags), SYS_accept4)
TAKEN_SYS(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len), (fd, level, name, value, len),
	SYS_getsockopt)
TAKEN_SYS(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t len),
	(fd, level, name, value, len), SYS_setsockopt)
TAKEN_SYS(int, getpeername, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len), SYS_getpeername)
TAKEN_SYS(int, getsockname, (int fd, struct sockaddr *addr, socklen_t *len), (fd, addr, len), SYS_getsockname)
TAKEN_SYS(int, shutdown, (int fd, int how), (fd, how), SYS_shutdown)

/* input and output: the first one after a connect tells its outcome; a socket that we ended answers ETIMEDOUT */
TAKEN_SYS(ssize_t, recv, (int fd, void *buf, size_t n, int flags), (fd, buf, n, flags, 0L, 0L), SYS_recvfrom)
TAKEN_SYS(ssize_t, recvfrom, (int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len),
	(fd, buf, n, flags, from, len), SYS_recvfrom)
TAKEN_SYS(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags), SYS_recvmsg)
TAKEN_SYS(int, recvmmsg, (int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout),
	(fd, msgs, n, flags, timeout), SYS_recvmmsg)
TAKEN_SYS(ssize_t, send, (int fd, const void *buf, size_t n, int flags), (fd, buf, n, flags, 0L, 0L), SYS_sendto)
TAKEN_SYS(ssize_t, sendto, (int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len),
	(fd, buf, n, flags, to, len), SYS_sendto)
TAKEN_SYS(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags), SYS_sendmsg)
TAKEN_SYS(int, sendmmsg, (int fd, struct mmsghdr *msgs, unsigned n, int flags), (fd, msgs, n, flags), SYS_sendmmsg)
TAKEN_SYS(ssize_t, read, (int fd, void *buf, size_t n), (fd, buf, n), SYS_read)
TAKEN_SYS(ssize_t, readv, (int fd, const struct iovec *iov, int n), (fd, iov, n), SYS_readv)
TAKEN_SYS(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n), SYS_write)
TAKEN_SYS(ssize_t, writev, (int fd, const struct iovec *iov, int n), (fd, iov, n), SYS_writev)
TAKEN_SYS(ssize_t, sendfile, (int out, int in, off_t *at, size_t n), (out, in, at, n), SYS_sendfile)
TAKEN_SYS(ssize_t, sendfile64, (int out, int in, off64_t *at, size_t n), (out, in, at, n), SYS_sendfile)
TAKEN_SYS(ssize_t, splice, (int in, off64_t *at_in, int out, off64_t *at_out, size_t n, unsigned flags),
	(in, at_in, out, at_out, n, flags), SYS_splice)
TAKEN_LIB(ssize_t, __read_chk, (int fd, void *buf, size_t n, size_t size), (fd, buf, n, size))
TAKEN_LIB(ssize_t, __recv_chk, (int fd, void *buf, size_t n, size_t size, int flags), (fd, buf, n, size, flags))
TAKEN_LIB(ssize_t, __recvfrom_chk,
	(int fd, void *buf, size_t n, size_t size, int flags, struct sockaddr *from, socklen_t *len),
	(fd, buf, n, size, flags, from, len))

/* the life of descriptors */
TAKEN_SYS(int, close, (int fd), (fd), SYS_close)
TAKEN_SYS(int, close_range, (unsigned first, unsigned last, int flags), (first, last, flags), SYS_close_range)
TAKEN_LIB(void, closefrom, (int first), (first))
TAKEN_SYS(int, dup, (int fd), (fd), SYS_dup)
TAKEN_LIB(int, dup2, (int fd, int to), (fd, to))
TAKEN_SYS(int, dup3, (int fd, int to, int flags), (fd, to, flags), SYS_dup3)
TAKEN_LIB(int, fcntl, (int fd, int cmd, long arg), (fd, cmd, arg))
TAKEN_LIB(int, fcntl64, (int fd, int cmd, long arg), (fd, cmd, arg))
TAKEN_SYS(int, ioctl, (int fd, unsigned long request, void *arg), (fd, request, arg), SYS_ioctl)
TAKEN_LIB(int, fclose, (FILE * f), (f))
TAKEN_LIB(FILE *, freopen, (const char *path, const char *mode, FILE *f), (path, mode, f))
TAKEN_LIB(FILE *, freopen64, (const char *path, const char *mode, FILE *f), (path, mode, f))

/* names */
TAKEN_LIB(int, getaddrinfo,
	(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res),
	(node, service, hints, res))
TAKEN_LATE(int, getaddrinfo_a, (int mode, struct gaicb *list[], int n, struct sigevent *event), (mode, list, n, event))
TAKEN_LATE(int, gai_suspend, (const struct gaicb *const list[], int n, const struct timespec *timeout), (list, n, timeout))
TAKEN_LATE(int, gai_cancel, (struct gaicb * request), (request))
TAKEN_LIB(struct hostent *, gethostbyname, (const char *name), (name))
TAKEN_LIB(struct hostent *, gethostbyname2, (const char *name, int family), (name, family))
TAKEN_LIB(int, gethostbyname_r,
	(const char *name, struct hostent *ret, char *buf, size_t n, struct hostent **result, int *err),
	(name, ret, buf, n, result, err))
TAKEN_LIB(int, gethostbyname2_r,
	(const char *name, int family, struct hostent *ret, char *buf, size_t n, struct hostent **result, int *err),
	(name, family, ret, buf, n, result, err))
TAKEN_LATE(struct hostent *, gethostbyaddr, (const void *address, socklen_t len, int family), (address, len, family))
TAKEN_LATE(int, gethostbyaddr_r,
	(const void *address, socklen_t len, int family, struct hostent *ret, char *buf, size_t n, struct hostent **result,
		int *err),
	(address, len, family, ret, buf, n, result, err))

/* processes */
TAKEN_LIB(int, execve, (const char *path, char *const argv[], char *const envp[]), (path, argv, envp))
TAKEN_LIB(int, execv, (const char *path, char *const argv[]), (path, argv))
TAKEN_LIB(int, execvp, (const char *file, char *const argv[]), (file, argv))
TAKEN_LIB(int, execvpe, (const char *file, char *const argv[], char *const envp[]), (file, argv, envp))
TAKEN_LIB(int, fexecve, (int fd, char *const argv[], char *const envp[]), (fd, argv, envp))
TAKEN_SYS(int, execveat, (int dir, const char *path, char *const argv[], char *const envp[], int flags),
	(dir, path, argv, envp, flags), SYS_execveat)
TAKEN_LIB(void, _exit, (int status), (status))
TAKEN_LIB(int, clone,
	(int (*fn)(void *), void *stack, int flags, void *arg, pid_t *parent_tid, void *tls, pid_t *child_tid),
	(fn, stack, flags, arg, parent_tid, tls, child_tid))
TAKEN_LIB(int, daemon, (int nochdir, int noclose), (nochdir, noclose))
TAKEN_SYS(pid_t, setsid, (void), (0L), SYS_setsid)
TAKEN_LIB(int, unshare, (int flags), (flags))
TAKEN_LIB(int, setns, (int fd, int type), (fd, type))
TAKEN_LIB(int, setuid, (uid_t uid), (uid))
TAKEN_LIB(int, seteuid, (uid_t uid), (uid))
TAKEN_LIB(int, setreuid, (uid_t ruid, uid_t euid), (ruid, euid))
TAKEN_LIB(int, setresuid, (uid_t ruid, uid_t euid, uid_t suid), (ruid, euid, suid))
TAKEN_SYS(int, prctl, (int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d),
	(option, a, b, c, d), SYS_prctl)
TAKEN_ASM(syscall)
#if defined(__x86_64__)
TAKEN_ASM(vfork)
TAKEN_ASM(dlopen)
TAKEN_ALIAS(vfork, __vfork)
#endif
TAKEN_OWN(execl)
TAKEN_OWN(execlp)
TAKEN_OWN(execle)
TAKEN_OWN(_Exit)

/* TLS libraries, OpenSSL 1.1 and 3 and GnuTLS: where plaintext is seen */
TAKEN_TLS(int, SSL_read, (void *ssl, void *buf, int n), (ssl, buf, n))
TAKEN_TLS(int, SSL_write, (void *ssl, const void *buf, int n), (ssl, buf, n))
TAKEN_TLS(int, SSL_read_ex, (void *ssl, void *buf, size_t n, size_t *got), (ssl, buf, n, got))
TAKEN_TLS(int, SSL_write_ex, (void *ssl, const void *buf, size_t n, size_t *gone), (ssl, buf, n, gone))
TAKEN_TLS(ssize_t, gnutls_record_recv, (void *session, void *buf, size_t n), (session, buf, n))
TAKEN_TLS(ssize_t, gnutls_record_recv_seq, (void *session, void *buf, size_t n, unsigned char *seq), (session, buf, n, seq))
TAKEN_TLS(ssize_t, gnutls_record_recv_packet, (void *session, void **packet), (session, packet))
TAKEN_TLS(ssize_t, gnutls_record_send, (void *session, const void *buf, size_t n), (session, buf, n))
TAKEN_TLS(ssize_t, gnutls_record_send2, (void *session, const void *buf, size_t n, size_t pad, unsigned flags), (session, buf, n, pad, flags))
TAKEN_TLS(ssize_t, gnutls_record_send_range, (void *session, const void *buf, size_t n, const void *range), (session, buf, n, range))

/* glibc's own second names, which other libraries may bind */
TAKEN_ALIAS(connect, __connect)
TAKEN_ALIAS(send, __send)
TAKEN_ALIAS(read, __read)
TAKEN_ALIAS(write, __write)
TAKEN_ALIAS(close, __close)
TAKEN_ALIAS(dup2, __dup2)
TAKEN_ALIAS(fcntl, __fcntl)
/* clang-format on */

#ifdef TAKEN_LATE_IS_LIB
#undef TAKEN_LATE
#undef TAKEN_LATE_IS_LIB
#endif
