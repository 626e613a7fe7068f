/* The control socket's loop (control.h). All state is static and belongs to the control thread; only `wake_fd` is read
 * by others. One ppoll waits for the wake-up, the listening socket and every client; no call blocks besides it.
 * Stopping (*stop) keeps everything: the next control_run goes on with it. */
#include "control/control.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/ownfd.h"
#include "base/sys.h"
#include "control/client.h"
#include "control/election.h"
#include "core/bulkhead.h"
#include "core/identity.h"
#include "core/member.h"

#define CLIENTS_MAX 16
#define LOOK_NS NS_PER_S /* owner: is all of ours still there? */
#define STANDBY_NS (NS_PER_S / 2)
#define FOLLOW_NS (NS_PER_S / 10)
#define REAP_NS (5 * NS_PER_S)
#define ASK_AGAIN_S 10 /* when others served and stood by: later they may all have died */

static struct election election = {.listen_fd = -1};
static struct client *clients; /* CLIENTS_MAX of them, mmap'd at the first one */
static int64_t reaped_ns;
static _Atomic int wake_fd = -1;
static _Atomic bool is_running;
/* When control_run last found nothing to do here, CLOCK_MONOTONIC_COARSE seconds + 1, and in which region. */
static _Atomic int64_t idle_since_s;
static _Atomic uint64_t idle_region;

/* ---- waking ---- */

/* Its number now: dup2 by the app may have moved it. */
static int wake_number(void)
{
	int was = atomic_load(&wake_fd), fd = ownfd_follow(was);
	if (fd != was)
		atomic_compare_exchange_strong(&wake_fd, &was, fd);
	return fd;
}

static void open_wake(void)
{
	int fd = wake_number();
	if (fd >= 0 && ownfd_is_intact(fd))
		return;
	if (fd >= 0)
		ownfd_close(fd);
	fd = (int)SYS2(SYS_eventfd2, 0, O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		fd = ownfd_adopt(fd);
	/* Without one, *stop is seen at the next look, a second at most. */
	atomic_store(&wake_fd, fd >= 0 ? fd : -1);
}

void control_wake(void)
{
	uint64_t one = 1;
	int fd = wake_number();
	if (fd >= 0 && ownfd_is_intact(fd))
		sys_write(fd, &one, sizeof one);
}

static bool drain_wake(void)
{
	uint64_t count;
	int fd = wake_number();
	return ownfd_is_intact(fd) && sys_read(fd, &count, sizeof count) != -EBADF;
}

static bool is_stopped(const struct control_host *host)
{
	static int64_t asked_ns;
	static bool is_deserted; /* for good: nobody is left who could start a thread */
	if (is_deserted || atomic_load(host->stop))
		return true;
	int64_t now_ns = clock_now_ns();
	if (host->is_alone && now_ns - asked_ns >= NS_PER_S) {
		asked_ns = now_ns;
		is_deserted = host->is_alone();
	}
	return is_deserted;
}

/* ---- clients ---- */

static bool have_clients(void)
{
	if (!clients) {
		void *at = sys_mmap(sizeof(struct client) * CLIENTS_MAX, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (sys_is_error(at))
			return false;
		clients = at; /* zero: CLIENT_FREE */
	}
	return true;
}

/* A free place; when all are taken the longest idle one's. Followers wait by intent: they go last. */
static struct client *place(void)
{
	struct client *oldest = clients;
	for (struct client *c = clients; c < clients + CLIENTS_MAX; c++) {
		if (c->state == CLIENT_FREE)
			return c;
		bool is_better = (oldest->state == CLIENT_FOLLOWING && c->state != CLIENT_FOLLOWING) ||
				 ((oldest->state == CLIENT_FOLLOWING) == (c->state == CLIENT_FOLLOWING) &&
					 c->active_ns < oldest->active_ns);
		if (is_better)
			oldest = c;
	}
	client_end(oldest);
	return oldest;
}

static bool peer_is_foreign(int fd)
{
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t len = sizeof peer;
	if (sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
		return true;
	return peer.uid != 0 && peer.uid != sys_geteuid();
}

/* Did it leave before we took it (a standby that only looked)? Such a one evicts nobody. */
static bool has_left(int fd)
{
	char byte;
	return sys_recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void accept_clients(const struct control_host *host, int64_t now_ns)
{
	for (int i = 0; i < CLIENTS_MAX; i++) {
		if (!ownfd_is_intact(election.listen_fd) || !have_clients())
			return;
		int fd = sys_accept4(election.listen_fd, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		fd = ownfd_adopt(fd);
		if (fd < 0)
			return;
		if (has_left(fd)) {
			ownfd_close(fd);
			continue;
		}
		struct client *c = place();
		client_begin(c, fd, peer_is_foreign(fd), now_ns);
		if (!client_step(c, host, 0, now_ns))
			client_end(c);
	}
}

static void end_clients(void)
{
	for (int i = 0; clients && i < CLIENTS_MAX; i++)
		if (clients[i].state != CLIENT_FREE)
			client_end(&clients[i]);
}

/* ---- waiting ---- */

struct wait {
	struct pollfd fds[2 + CLIENTS_MAX];
	struct client *who[2 + CLIENTS_MAX];
	unsigned n;
	int64_t until_ns;
};

static void wait_for(struct wait *w, int fd, short events, struct client *who)
{
	w->fds[w->n] = (struct pollfd){.fd = fd, .events = events};
	w->who[w->n++] = who;
}

static void wait_until(struct wait *w, int64_t ns)
{
	if (ns < w->until_ns)
		w->until_ns = ns;
}

static void gather(struct wait *w, int64_t now_ns, int64_t look_ns)
{
	w->n = 0;
	w->until_ns = look_ns;
	election.listen_fd = ownfd_follow(election.listen_fd);
	wait_for(w, wake_number(), POLLIN, NULL);
	wait_for(w, election.listen_fd, POLLIN, NULL);
	for (struct client *c = clients; clients && c < clients + CLIENTS_MAX; c++) {
		if (c->state == CLIENT_FREE)
			continue;
		c->fd = ownfd_follow(c->fd);
		wait_for(w, c->fd, client_events(c), c);
		wait_until(w, c->deadline_ns);
		if (c->state == CLIENT_FOLLOWING)
			wait_until(w, now_ns + FOLLOW_NS);
		if (client_has_more(c))
			wait_until(w, now_ns);
	}
}

static void sleep_until(struct wait *w, int64_t now_ns)
{
	int64_t left_ns = w->until_ns > now_ns ? w->until_ns - now_ns : 0;
	struct timespec left = {.tv_sec = left_ns / NS_PER_S, .tv_nsec = left_ns % NS_PER_S};
	if (sys_poll(w->fds, w->n, &left) <= 0)
		for (unsigned i = 0; i < w->n; i++)
			w->fds[i].revents = 0;
}

static void serve_clients(const struct control_host *host, struct wait *w, int64_t now_ns)
{
	for (unsigned i = 2; i < w->n; i++) {
		struct client *c = w->who[i];
		bool lives = true;
		c->fd = ownfd_follow(c->fd);
		if (w->fds[i].revents || client_has_more(c))
			lives = client_step(c, host, w->fds[i].revents, now_ns);
		if (lives && c->state == CLIENT_FOLLOWING)
			lives = client_follow(c, host, now_ns);
		if (!lives || now_ns >= c->deadline_ns)
			client_end(c);
	}
}

/* ---- roles ---- */

/* Said once: the reason seldom changes, and a line a second would help nobody. */
static void complain(int err)
{
	static bool is_said;
	char line_at[256];
	struct text line = TEXT_ON(line_at);
	text_fmt(&line, "the control socket %s cannot be had (errno %d): status and commands work on the region alone",
		election.path, -err);
	log_once(&is_said, line_at);
}

/* Serves until stopped, deposed, or without a socket. 0: stopped or deposed. */
static int serve(const struct control_host *host)
{
	struct wait w;
	int64_t look_ns = 0;

	while (!is_stopped(host)) {
		int64_t now_ns = clock_now_ns();
		if (now_ns >= look_ns) {
			struct region *r = host->region();
			if (r && election_step(&election, r) != ROLE_OWNER)
				break;
			open_wake();
			int err = election_socket(&election);
			if (err && err != -EADDRINUSE)
				return err;
			if (r && now_ns - reaped_ns >= REAP_NS) {
				member_reap_dead(r);
				bulkhead_collect_all(r, now_ns);
				reaped_ns = now_ns;
			}
			look_ns = now_ns + LOOK_NS;
		}
		gather(&w, now_ns, look_ns);
		sleep_until(&w, now_ns);
		now_ns = clock_now_ns();
		if (w.fds[0].revents && !drain_wake())
			look_ns = 0; /* the app has taken its number: readable for ever, and not ours */
		if (is_stopped(host))
			return 0;
		if ((w.fds[0].revents | w.fds[1].revents) & (POLLNVAL | POLLERR))
			look_ns = 0; /* closed behind our back: make it again now */
		serve_clients(host, &w, now_ns);
		if (w.fds[1].revents & POLLIN) {
			election.listen_fd = ownfd_follow(election.listen_fd);
			if (ownfd_is_intact(election.listen_fd))
				accept_clients(host, now_ns);
			else
				look_ns = 0;
		}
	}
	return 0;
}

static void stand_by(const struct control_host *host)
{
	struct wait w = {0};
	int64_t now_ns = clock_now_ns();

	open_wake();
	w.until_ns = now_ns + STANDBY_NS;
	wait_for(&w, wake_number(), POLLIN, NULL);
	if (!is_stopped(host))
		sleep_until(&w, now_ns);
	if (w.fds[0].revents && !drain_wake())
		open_wake();
}

static int64_t coarse_s(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec + 1;
}

static uint64_t region_mark(const struct region *r)
{
	return (uint64_t)r->ino ^ (uint64_t)r->dev << 40 ^ r->my_id;
}

static int prepare(const struct control_host *host)
{
	char path[sizeof election.path];
	if (!text_copy(election.dir, sizeof election.dir, host->runtime_dir) ||
		!identity_socket_path(path, sizeof path, host->runtime_dir, host->group, host->private_pid))
		return -ENAMETOOLONG;
	if (election.listen_fd >= 0 && strcmp(path, election.path) != 0)
		election_close(&election);
	memcpy(election.path, path, sizeof path);
	return identity_make_dir(election.dir);
}

static int run(const struct control_host *host)
{
	int err = prepare(host);
	if (err) {
		complain(err);
		return err;
	}
	while (!is_stopped(host)) {
		struct region *r = host->region();
		if (!r)
			return 1;
		enum election_role role = election_step(&election, r);
		if (role == ROLE_OWNER) {
			err = serve(host);
			if (err) {
				complain(err);
				election_close(&election);
				end_clients();
				election_resign(r);
				return err;
			}
			continue;
		}
		/* Deposed, or never served: what we had belongs to whoever serves now. */
		election_close(&election);
		end_clients();
		if (role == ROLE_NONE) {
			atomic_store(&idle_region, region_mark(r));
			atomic_store(&idle_since_s, coarse_s());
			return 1;
		}
		stand_by(host);
	}
	return 0;
}

int control_run(const struct control_host *host)
{
	atomic_store(&is_running, true);
	atomic_store(&idle_since_s, 0);
	open_wake();
	int ret = run(host);
	atomic_store(&is_running, false);
	return ret;
}

bool control_should_run(const struct region *r)
{
	if (!r->header || r->me < 0 || r->my_id == 0)
		return false;
	uint64_t owner = atomic_load_explicit(&r->header->control_owner, memory_order_relaxed);
	if (owner == 0 || owner == r->my_id)
		return true;
	for (int i = 0; i < 2; i++) {
		uint64_t id = atomic_load_explicit(&r->header->standby[i], memory_order_relaxed);
		if (id == 0 || id == r->my_id)
			return true;
	}
	/* All places are taken: by the living, as far as control_run has seen. All of them may die at once (a service
	 * killed whole, its region left), and loads cannot tell: so the first time in a region, and later now and then,
	 * let it look. */
	int64_t since_s = atomic_load_explicit(&idle_since_s, memory_order_relaxed);
	return since_s == 0 || atomic_load_explicit(&idle_region, memory_order_relaxed) != region_mark(r) ||
	       coarse_s() - since_s >= ASK_AGAIN_S;
}

void control_forget(void)
{
	election.listen_fd = -1;
	for (int i = 0; clients && i < CLIENTS_MAX; i++)
		if (clients[i].state != CLIENT_FREE && clients[i].out)
			sys_munmap(clients[i].out, clients[i].out_cap);
	if (clients)
		sys_munmap(clients, sizeof(struct client) * CLIENTS_MAX);
	clients = NULL;
	atomic_store(&wake_fd, -1);
	atomic_store(&is_running, false);
	atomic_store(&idle_since_s, 0);
}

void control_leave(struct region *r)
{
	/* While the thread still serves (exit from another thread) its descriptors end with the process; only the name
	 * must go. */
	if (atomic_load(&is_running)) {
		struct stat st = {0};
		if (election.listen_fd >= 0 && sys_lstat(election.path, &st) == 0 && st.st_dev == election.dev &&
			st.st_ino == election.ino)
			sys_unlink(election.path);
	} else {
		end_clients();
		election_close(&election);
		ownfd_close(atomic_load(&wake_fd));
		atomic_store(&wake_fd, -1);
	}
	election_resign(r);
}
