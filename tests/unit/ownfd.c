/* Our descriptors among the app's: the timer puts a dup on its reserved number while other threads want that very
 * number for themselves by dup2 (E6). What the app has put somewhere stays there, and is never one of ours. */
#include "base/ownfd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "tap.h"

#define WANTED 3000

static _Atomic bool stop;
static _Atomic int spare = -1;
static _Atomic unsigned long lent_rounds;

/* As the timer: a dup of `socket` onto the number, looked at, then the blank again. */
static void *lender(void *arg)
{
	int blank = ownfd_adopt(sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)), at = -1;
	int socket = sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)arg;
	while (!atomic_load(&stop)) {
		at = ownfd_follow(at);
		if (at < 0 || !ownfd_is_intact(at)) {
			ownfd_close(at);
			at = ownfd_adopt(sys_fcntl(blank, F_DUPFD_CLOEXEC, 3));
		}
		atomic_store(&spare, at);
		int lent = ownfd_lend(at);
		if (lent < 0)
			continue;
		at = lent;
		sys_dup3(socket, at, O_CLOEXEC);
		sys_dup3(blank, at, O_CLOEXEC);
		ownfd_return(at);
		atomic_fetch_add(&lent_rounds, 1);
	}
	return NULL;
}

static bool is_same_file(int fd, const struct stat *mine)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == mine->st_dev && st.st_ino == mine->st_ino;
}

int main(void)
{
	pthread_t thread;
	int pair[2];
	struct stat mine;

	if (pipe(pair) != 0 || fstat(pair[0], &mine) != 0 || pthread_create(&thread, NULL, lender, NULL) != 0)
		return 1;
	while (atomic_load(&lent_rounds) == 0)
		sched_yield();
	unsigned long lost = 0, refused = 0, taken = 0;
	for (int i = 0; i < WANTED; i++) {
		int n = atomic_load(&spare);
		if (n < 0)
			continue;
		/* The hook's way: ours makes way, then the app's own dup2. */
		ownfd_put_begins();
		if (ownfd_owns(n)) {
			int r = ownfd_move(n);
			refused += r < 0 && r != -ENOENT;
		}
		int got = dup2(pair[0], n);
		ownfd_put_ends();
		if (got != n)
			continue;
		taken++;
		unsigned long seen = atomic_load(&lent_rounds);
		for (int k = 0; k < 10000 && atomic_load(&lent_rounds) < seen + 2; k++)
			sched_yield();
		lost += !is_same_file(n, &mine);
		if (ownfd_owns(n)) /* never: it is the app's */
			lost++;
		close(n);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	tap_ok(taken > WANTED / 10, "the number was wanted %lu times, while it was lent %lu times", taken,
		atomic_load(&lent_rounds));
	tap_ok(refused == 0, "ours made way each time");
	tap_ok(lost == 0, "what the app put there was there two rounds later (E6; %lu were not)", lost);
	return tap_done();
}
