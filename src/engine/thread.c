/* See thread.h. Masks by pthread_sigmask alone: with signals 32 and 33 blocked raw, setuid() hangs (E13). */
#include "engine/thread.h"

#include <errno.h>
#include <sys/prctl.h>

#include "base/oldlibc.h"
#include "base/sys.h"

OLDLIBC(pthread_create);
OLDLIBC(pthread_join);
OLDLIBC(pthread_sigmask);

void thread_quiet_begin(struct thread_quiet *q)
{
	sigset_t all;
	q->err = errno;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &q->mask);
}

void thread_quiet_end(const struct thread_quiet *q)
{
	pthread_sigmask(SIG_SETMASK, &q->mask, NULL);
	errno = q->err;
}

bool thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg)
{
	return pthread_create(thread, NULL, body, arg) == 0;
}

void thread_join(pthread_t thread)
{
	int old;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	pthread_join(thread, NULL);
	pthread_setcancelstate(old, &old);
}

void thread_name(const char *name)
{
	sys_call6(SYS_prctl, PR_SET_NAME, (long)name, 0, 0, 0, 0);
}
