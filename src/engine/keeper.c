/* See keeper.h.
 *
 *   the app ---- clone ---- a child: closes all but the pair ---- clone ---- the keeper
 *      |  waits for it (__WALL) ---- ends                                       |  waits for the word
 *      exec: the pipe is closed ----------------------------------------------> takes the relays up
 *      exec failed: a word ---------------------------------------------------> ends
 *
 * Raw clone: libc's handlers of forks are not run, and the exit signal of the child in between is 0, so that only a
 * wait with __WALL or __WCLONE on another thread could see it. The keeper inherits a mask with every signal blocked and
 * has a session of its own; what stops or ends the app's group does not end what the app has sent. */
#include "engine/keeper.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/ownfd.h"
#include "base/sys.h"
#include "core/member.h"
#include "engine/detour_record.h"
#include "engine/guest.h"
#include "engine/service.h"
#include "engine/thread.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static struct {
	char *at; /* as the kernel shows it */
	size_t len;
} title;

void keeper_init(int argc, char **argv)
{
	if (argc < 1 || !argv || !argv[0])
		return;
	title.at = argv[0];
	title.len = (size_t)(argv[argc - 1] - argv[0]) + strlen(argv[argc - 1]) + 1;
}

/* ---- the keeper ---- */

static void put_title(void)
{
	static const char name[] = "resil-relay";
	thread_name(name);
	if (title.len < sizeof name)
		return;
	memset(title.at, 0, title.len);
	memcpy(title.at, name, sizeof name);
}

/* Nothing of the app's table stays: its pipes and locks are not to be held for it. */
static bool close_all_but(int word)
{
	int kept[] = {atomic_load(&detour_pair[0]), atomic_load(&detour_pair[1]), word};
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++)
			if (kept[j] > kept[j + 1]) {
				int higher = kept[j];
				kept[j] = kept[j + 1];
				kept[j + 1] = higher;
			}
	int from = 0;
	for (int i = 0; i < 3; from = kept[i++] + 1)
		if (kept[i] > from && SYS3(SYS_close_range, from, kept[i] - 1, 0) != 0)
			return false;
	return SYS3(SYS_close_range, from, ~0U, 0) == 0;
}

static _Noreturn void leave(int code)
{
	for (;;)
		SYS1(SYS_exit_group, code);
}

static _Noreturn void keep(int word)
{
	char said;
	put_title();
	SYS1(SYS_setsid, 0);
	/* Nobody else writes: a word, or the end of the app's table. */
	if (sys_read(word, &said, 1) != 0)
		leave(0);
	guest_forked();
	struct region *r = guest_region_now() ? guest_region(clock_now_ns()) : NULL;
	detour_keep();
	if (r)
		member_leave(r);
	leave(0);
}

static pid_t clone_quietly(void)
{
	return (pid_t)SYS5(SYS_clone, 0, 0, 0, 0, 0);
}

static _Noreturn void in_between(int word)
{
	if (!close_all_but(word))
		leave(1);
	pid_t pid = clone_quietly();
	if (pid == 0)
		keep(word);
	leave(pid < 0);
}

/* ---- the app's side ---- */

/* After unshare(CLONE_NEWPID) the next child would be the first process of the namespace, and end it with itself. */
static bool is_own_namespace(void)
{
	char own[64], next[64];
	ssize_t n = sys_readlink("/proc/self/ns/pid", own, sizeof own),
		m = sys_readlink("/proc/self/ns/pid_for_children", next, sizeof next);
	return n > 0 && n == m && memcmp(own, next, (size_t)n) == 0;
}

static bool has_made(int word)
{
	int status = 0;
	pid_t pid = clone_quietly();
	if (pid == 0)
		in_between(word);
	if (pid < 0)
		return false;
	/* Somebody else's wait has had it: it has ended, how is not known. */
	if (SYS4(SYS_wait4, pid, &status, __WALL, 0) != pid)
		return true;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Our end of the pipe, or -errno. */
static int make(void *ctx)
{
	int ends[2] = {-1, -1};
	(void)ctx;
	int r = is_own_namespace() ? (int)SYS2(SYS_pipe2, ends, O_CLOEXEC) : -ENOSYS;
	if (r != 0)
		return r;
	/* A fork of another thread's must not keep it open: what is adopted is dropped there. */
	int from = ownfd_adopt(ends[0]), to = ownfd_adopt(ends[1]);
	bool is_made = from >= 0 && to >= 0 && has_made(from);
	ownfd_close(from);
	if (is_made)
		return to;
	ownfd_close(to);
	return from < 0 ? from : to < 0 ? to : -EAGAIN;
}

static struct keeper make_where_needed(bool is_for_children)
{
	struct keeper k = {.word = -1};
	struct thread_quiet q;
	if (!detour_is_any() || guest_is_restricted() || !detour_is_ours())
		return k;
	thread_quiet_begin(&q);
	service_pause(false);
	if (detour_is_any() && detour_will_pass(is_for_children)) {
		static bool said;
		k.word = make(NULL);
		if (k.word == -EMFILE)
			k.word = ownfd_with_room(make, NULL);
		if (k.word < 0)
			log_once(&said, "no keeper is to be had: connections that go by way of a relay end here");
	}
	if (k.word < 0)
		service_resume();
	thread_quiet_end(&q);
	return k;
}

struct keeper keeper_make(void)
{
	return make_where_needed(false);
}

/* Those of vfork and posix_spawn are counted by nobody. */
static bool has_children(void)
{
	siginfo_t which;
	return SYS5(SYS_waitid, P_ALL, 0, &which, WEXITED | WNOHANG | WNOWAIT, 0) == 0;
}

struct keeper keeper_make_for_children(bool is_about_to_fork)
{
	struct keeper none = {.word = -1};
	return is_about_to_fork || detour_is_shared() || (detour_is_any() && has_children()) ? make_where_needed(true)
											     : none;
}

void keeper_recall(struct keeper *k)
{
	struct thread_quiet q;
	int to = ownfd_follow(k->word);
	thread_quiet_begin(&q);
	if (ownfd_is_intact(to))
		sys_write(to, "", 1);
	ownfd_close(to);
	k->word = -1;
	service_resume();
	thread_quiet_end(&q);
}

/* ---- is anybody there? ---- */

static bool put_address(const struct sockaddr_storage *a, __be32 ip[4], __be16 *port)
{
	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)a;
		memcpy(ip, &in->sin_addr, 4);
		*port = in->sin_port;
		return true;
	}
	const struct sockaddr_in6 *in6 = (const void *)a;
	memcpy(ip, &in6->sin6_addr, 16);
	*port = in6->sin6_port;
	return a->ss_family == AF_INET6;
}

/* The kernel tells of a socket by its ends: one that nobody has a number of has no inode. */
bool keeper_app_has_gone(int inner)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 ask;
	} m = {.head = {.nlmsg_len = sizeof m, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
		.ask = {.sdiag_protocol = IPPROTO_TCP,
			.idiag_states = ~0U,
			.id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
	union {
		struct nlmsghdr head;
		char room[1024];
	} answer;
	struct sockaddr_storage ours, theirs;
	socklen_t len = sizeof ours, their_len = sizeof theirs;
	memset(&ours, 0, sizeof ours);
	memset(&theirs, 0, sizeof theirs);
	if (sys_getsockname(inner, (struct sockaddr *)&ours, &len) != 0 ||
		SYS3(SYS_getpeername, inner, &theirs, &their_len) != 0 ||
		!put_address(&theirs, m.ask.id.idiag_src, &m.ask.id.idiag_sport) ||
		!put_address(&ours, m.ask.id.idiag_dst, &m.ask.id.idiag_dport))
		return false;
	m.ask.sdiag_family = (uint8_t)ours.ss_family;
	int fd = sys_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0)
		return false;
	ssize_t n = sys_send(fd, &m, sizeof m, MSG_DONTWAIT);
	n = n == (ssize_t)sizeof m ? sys_recv(fd, &answer, sizeof answer, MSG_DONTWAIT) : -1;
	sys_close(fd);
	if (n < (ssize_t)sizeof answer.head)
		return false;
	const void *body = NLMSG_DATA(&answer.head);
	if (answer.head.nlmsg_type == NLMSG_ERROR && n >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)))
		return ((const struct nlmsgerr *)body)->error == -ENOENT;
	return answer.head.nlmsg_type == SOCK_DIAG_BY_FAMILY &&
	       n >= (ssize_t)NLMSG_LENGTH(sizeof(struct inet_diag_msg)) &&
	       ((const struct inet_diag_msg *)body)->idiag_inode == 0;
}
