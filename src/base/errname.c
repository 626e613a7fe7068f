/* See errname.h. */
#include "base/errname.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* clang-format off */
#define ERRNAMES(X) \
	X(EPERM) X(ENOENT) X(EINTR) X(EIO) X(EBADF) X(EAGAIN) X(ENOMEM) X(EACCES) X(EFAULT) X(EBUSY) \
	X(EEXIST) X(ENODEV) X(ENOTDIR) X(EISDIR) X(EINVAL) X(ENFILE) X(EMFILE) X(EFBIG) X(ENOSPC) X(EROFS) \
	X(EPIPE) X(ENAMETOOLONG) X(ENOSYS) X(ELOOP) X(EPROTO) X(EDQUOT) X(ENOTSOCK) X(EPROTOTYPE) \
	X(ENOPROTOOPT) X(EPROTONOSUPPORT) X(EAFNOSUPPORT) X(EADDRINUSE) X(EADDRNOTAVAIL) X(ENETDOWN) \
	X(ENETUNREACH) X(ENETRESET) X(ECONNABORTED) X(ECONNRESET) X(ENOBUFS) X(EISCONN) X(ENOTCONN) \
	X(ETIMEDOUT) X(ECONNREFUSED) X(EHOSTDOWN) X(EHOSTUNREACH) X(EALREADY) X(EINPROGRESS)
/* clang-format on */

static const struct {
	int value;
	const char *name;
} names[] = {
#define X(name) {name, #name},
	ERRNAMES(X)
#undef X
};

const char *errname(int err)
{
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (names[i].value == err)
			return names[i].name;
	return "unknown error";
}

int errname_value(const char *name)
{
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(names[i].name, name) == 0)
			return names[i].value;
	return 0;
}
