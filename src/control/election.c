/* See election.h. */
#include "control/election.h"

#include <errno.h>
#include <string.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ownfd.h"
#include "base/sys.h"
#include "core/identity.h"
#include "core/member.h"

/* Looks, half a second apart, before a living owner without a socket is passed over: it has a second to make it again.
 */
#define REFUSALS_MAX 3

enum path_state { PATH_DEAD, PATH_LIVES, PATH_UNKNOWN };

static void path_sockaddr(struct sockaddr_un *sa, const char *path)
{
	memset(sa, 0, sizeof *sa);
	sa->sun_family = AF_UNIX;
	text_copy(sa->sun_path, sizeof sa->sun_path, path);
}

/* Does anybody listen at the path? *pid: who, as far as this pid namespace can tell (0: it cannot). */
static enum path_state path_look(const char *path, pid_t *pid)
{
	struct sockaddr_un sa;
	struct ucred peer = {0};
	socklen_t len = sizeof peer;
	enum path_state state = PATH_UNKNOWN;

	*pid = 0;
	path_sockaddr(&sa, path);
	int fd = sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return PATH_UNKNOWN;
	fd = ownfd_adopt(fd);
	if (fd < 0)
		return PATH_UNKNOWN;
	int err = sys_connect(fd, (const struct sockaddr *)&sa, sizeof sa);
	if (err == 0) {
		state = PATH_LIVES;
		if (sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
			*pid = peer.pid;
	} else if (err == -EAGAIN) {
		state = PATH_LIVES; /* a full backlog */
	} else if (err == -ECONNREFUSED || err == -ENOENT || err == -ENOTSOCK) {
		state = PATH_DEAD;
	}
	ownfd_close(fd);
	return state;
}

static bool take(_Atomic uint64_t *place, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong_explicit(place, &from, to, memory_order_acq_rel, memory_order_relaxed);
}

static void leave_standby(struct region *r)
{
	for (int i = 0; i < 2; i++)
		take(&r->header->standby[i], r->my_id, 0);
}

/* The dead make room, so that others' control_should_run, which only loads, sees a free place. */
static void clear_dead_standbys(struct region *r)
{
	for (int i = 0; i < 2; i++) {
		uint64_t id = atomic_load_explicit(&r->header->standby[i], memory_order_relaxed);
		if (id && id != r->my_id && !member_is_alive(id))
			take(&r->header->standby[i], id, 0);
	}
}

static bool stand_by(struct region *r)
{
	clear_dead_standbys(r);
	for (int i = 0; i < 2; i++)
		if (atomic_load_explicit(&r->header->standby[i], memory_order_relaxed) == r->my_id)
			return true;
	for (int i = 0; i < 2; i++)
		if (take(&r->header->standby[i], 0, r->my_id))
			return true;
	return false;
}

/* An exec keeps pid and start time and drops the socket: the record looks alive and nobody listens. */
static bool owner_is_gone(struct election *e, uint64_t owner)
{
	pid_t pid;

	if (owner == 0 || !member_is_alive(owner))
		return true;
	e->refusals = path_look(e->path, &pid) == PATH_DEAD ? e->refusals + 1 : 0;
	return e->refusals >= REFUSALS_MAX;
}

enum election_role election_step(struct election *e, struct region *r)
{
	uint64_t me = r->my_id, owner = atomic_load_explicit(&r->header->control_owner, memory_order_acquire);

	if (r->me < 0 || me == 0)
		return ROLE_NONE;
	if (owner != me && owner_is_gone(e, owner) && take(&r->header->control_owner, owner, me))
		owner = me;
	if (owner == me) {
		e->refusals = 0;
		leave_standby(r);
		clear_dead_standbys(r);
		return ROLE_OWNER;
	}
	return stand_by(r) ? ROLE_STANDBY : ROLE_NONE;
}

void election_resign(struct region *r)
{
	if (!r || !r->header || r->my_id == 0)
		return;
	take(&r->header->control_owner, r->my_id, 0);
	leave_standby(r);
}

static bool path_is_ours(const struct election *e)
{
	struct stat st = {0};
	return sys_lstat(e->path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_dev == e->dev && st.st_ino == e->ino;
}

/* A name beside the path, short, since the path may have all of sun_path's 108 bytes. */
static bool temporary_name(char *name, size_t cap, const char *dir, unsigned attempt)
{
	struct text t = {.at = name, .cap = cap};
	name[0] = '\0';
	uint64_t h = hash_mix((uint64_t)clock_now_ns() ^ (uint64_t)sys_getpid() << 40 ^ attempt);

	text_fmt(&t, "%s/.", dir);
	for (int i = 0; i < 5; i++, h /= 36)
		text_char(&t, "abcdefghijklmnopqrstuvwxyz0123456789"[h % 36]);
	return !t.is_cut;
}

/* Bound under a temporary name, made 0600 before anyone can connect (the umask is the app's), then moved into place:
 * nobody meets a socket that refuses or is open to others. */
static int make_socket(struct election *e)
{
	char name[108];
	struct sockaddr_un sa;
	struct stat st = {0};

	int fd = sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	fd = ownfd_adopt(fd);
	if (fd < 0)
		return fd;
	int err = -EADDRINUSE;
	for (unsigned attempt = 0; attempt < 8 && err == -EADDRINUSE; attempt++) {
		if (!temporary_name(name, sizeof name, e->dir, attempt)) {
			err = -ENAMETOOLONG;
			break;
		}
		path_sockaddr(&sa, name);
		err = sys_bind(fd, (const struct sockaddr *)&sa, sizeof sa);
	}
	if (err)
		goto out_close;
	err = (int)SYS3(SYS_fchmodat, AT_FDCWD, name, 0600);
	if (err == 0)
		err = sys_listen(fd, 64);
	if (err == 0)
		err = sys_lstat(name, &st);
	if (err == 0)
		err = sys_rename(name, e->path);
	if (err)
		goto out_unlink;
	e->dev = st.st_dev;
	e->ino = st.st_ino;
	e->listen_fd = fd;
	return 0;
out_unlink:
	sys_unlink(name);
out_close:
	ownfd_close(fd);
	return err;
}

int election_socket(struct election *e)
{
	pid_t pid;

	if (e->listen_fd >= 0) {
		e->listen_fd = ownfd_follow(e->listen_fd);
		if (ownfd_is_intact(e->listen_fd) && path_is_ours(e))
			return 0;
		ownfd_close(e->listen_fd);
		e->listen_fd = -1;
	}
	/* A listener whose process lives and is not us: leave it. One inherited by a raw fork's child names its dead
	 * maker: take over. */
	if (path_look(e->path, &pid) == PATH_LIVES && pid != sys_getpid() && (pid == 0 || sys_kill(pid, 0) != -ESRCH))
		return -EADDRINUSE;
	int err = identity_make_dir(e->dir);
	return err ? err : make_socket(e);
}

void election_close(struct election *e)
{
	if (e->listen_fd < 0)
		return;
	if (path_is_ours(e))
		sys_unlink(e->path);
	ownfd_close(e->listen_fd);
	e->listen_fd = -1;
}
