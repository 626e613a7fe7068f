/* See deadline.h. deadline_arm: any thread, signal handlers included. deadline_run: the timer thread alone.
 *
 * The list: `pushed` is a stack that arming threads push to and the timer takes whole (so no ABA); what it took it
 * keeps linked in `kept`. Both go through slot.next_armed; slot.is_listed says that a slot is in one of them, and is
 * taken by exchange, so it is there once.
 *
 * Ending a socket from another thread (measured on Linux 6.18, doc/design.md): connect(AF_UNSPEC) wakes every kind of
 * waiter with an error and resets the peer; shutdown would be read as an orderly end. Never by number alone: the number
 * is dup'd onto one reserved for it, the dup's cookie compared, the dup ended, and the reserved number given back its
 * placeholder. */
#include "engine/deadline.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>

#include "base/clock.h"
#include "base/ownfd.h"
#include "base/sys.h"
#include "engine/call.h"
#include "engine/outcome.h"
#include "engine/service.h"
#include "engine/slot.h"

#define NEVER INT64_MAX
#define IDLE_NS NS_PER_S	  /* with nothing armed the thread stays so long */
#define SLICE_NS NS_PER_S	  /* with something armed it looks this often whether the app is still there */
#define RETRY_NS (50 * NS_PER_MS) /* an end that failed (no descriptor to be had) is tried again after */

static _Atomic uint32_t pushed;	 /* stack: index + 1 */
static _Atomic uint32_t kept;	 /* the timer's own list */
static _Atomic bool is_deserted; /* nobody is left to wait for what is armed */
static _Atomic int64_t next_wake = NEVER;
static _Atomic uint32_t wakes; /* futex word */
static _Atomic int ending_fd = -1;

/* Two numbers of ours: `blank` is a socket for nothing; `spare` is the reserved number, a dup of it between ends. Kept
 * from the first limit on: given back, they might not be had again when the app has used up its own. */
static int blank = -1, spare = -1;

bool deadline_arm(int fd)
{
	struct slot *s = slot_at(fd);
	int64_t at = atomic_load_explicit(&s->deadline_ns, memory_order_relaxed);
	if (atomic_exchange(&s->is_listed, 1) == 0) {
		uint32_t head = atomic_load(&pushed);
		do
			atomic_store(&s->next_armed, head);
		while (!atomic_compare_exchange_weak(&pushed, &head, (uint32_t)fd + 1));
	}
	/* Whoever brings the waking time forward wakes; those behind it need not, even before the timer has looked. */
	int64_t next = atomic_load(&next_wake);
	while (at < next)
		if (atomic_compare_exchange_weak(&next_wake, &next, at))
			return true;
	return false;
}

bool deadline_is_any(void)
{
	return !atomic_load(&is_deserted) && (atomic_load(&pushed) != 0 || atomic_load(&kept) != 0);
}

void deadline_wake(void)
{
	atomic_fetch_add(&wakes, 1);
	sys_futex_wake(&wakes, 1);
}

void deadline_let_pass(int fd)
{
	/* The caller has changed the slot, then looks here; the timer publishes the number here, then looks at the
	 * slot: one sees the other. */
	atomic_thread_fence(memory_order_seq_cst);
	for (int i = 0; atomic_load(&ending_fd) == fd && i < 10000; i++)
		sched_yield();
}

static int reserve_now(void *unused)
{
	(void)unused;
	if (blank < 0)
		blank = ownfd_adopt(sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	if (blank >= 0)
		spare = ownfd_adopt(sys_fcntl(blank, F_DUPFD_CLOEXEC, 3));
	return blank >= 0 && spare >= 0 ? 0 : -EMFILE;
}

bool deadline_reserve(void)
{
	blank = ownfd_follow(blank);
	spare = ownfd_follow(spare);
	if (blank >= 0 && ownfd_is_intact(blank) && spare >= 0 && ownfd_is_intact(spare))
		return true;
	ownfd_close(blank);
	ownfd_close(spare);
	blank = spare = -1;
	int none = 0;
	if (reserve_now(&none) < 0)
		ownfd_with_room(reserve_now, &none);
	return blank >= 0 && spare >= 0;
}

static int end_socket(int dup)
{
	int r = sys_disconnect(dup);
	/* Reported for some kernels while a thread waits in connect: then the lesser verb. */
	return r == -EBUSY ? sys_shutdown(dup, SHUT_RDWR) : r;
}

/* The dup is the very socket that was armed, and it is still not connected: from here on every hook answers ETIMEDOUT.
 */
static void expire(struct slot *s, uint64_t word, int dup, int64_t now_ns)
{
	uint32_t call;
	int64_t limit_ns = atomic_load(&s->deadline_ns) - atomic_load(&s->begun_ns);
	if (!outcome_finish_socket(s, word, SLOT_EXPIRED, &call))
		return;
	if (call != CALL_NONE) {
		/* The verdict first: once the app is woken it may exit before we go on. */
		call_tell_deadline(call, limit_ns);
		call_attempt_failed(call, FAILURE_CONNECT_TIMEOUT, now_ns);
	}
	end_socket(dup);
}

static void judge(struct slot *s, uint64_t word, int dup, int64_t now_ns)
{
	struct tcp_info info;
	socklen_t len = sizeof info;
	info.tcpi_state = TCP_CLOSE;
	int r = sys_getsockopt(dup, IPPROTO_TCP, TCP_INFO, &info, &len);
	if (r < 0 || info.tcpi_state == TCP_SYN_SENT || info.tcpi_state == TCP_SYN_RECV)
		expire(s, word, dup, now_ns);
	else if (info.tcpi_state != TCP_CLOSE)
		outcome_succeeded(s, word, now_ns); /* met its limit; the app has not looked yet (C10) */
						    /* Closed: it failed, and the app will read why. */
}

static int put_on_spare(void *fd)
{
	return sys_dup3(*(int *)fd, spare, O_CLOEXEC);
}

/* Puts a dup of fd on the reserved number, which is lent. A limit lowered below that number forbids even that. */
static int dup_to_spare(int fd)
{
	int r = put_on_spare(&fd);
	bool is_forbidden = r == -EMFILE || (r == -EBADF && sys_fcntl(fd, F_GETFD, 0) >= 0);
	return is_forbidden ? ownfd_with_room(put_on_spare, &fd) : r;
}

/* False: it could not be looked at; try again later. */
static bool end_by_number(int fd, struct slot *s, uint64_t word, int64_t now_ns)
{
	if (!deadline_reserve())
		return false;
	/* From here to its return the number is ours whatever stands on it, and the app's dup2 onto it waits. */
	int lent[2] = {ownfd_lend(blank), ownfd_lend(spare)};
	if (lent[0] < 0 || lent[1] < 0) {
		ownfd_return(lent[0]);
		ownfd_return(lent[1]);
		return false;
	}
	blank = lent[0];
	spare = lent[1];
	atomic_store(&ending_fd, fd);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with deadline_let_pass */
	bool done = slot_word(s) != word;
	if (!done) {
		int r = dup_to_spare(fd);
		if (r >= 0 && slot_is_same(s, spare))
			judge(s, word, spare, now_ns);
		else if (r >= 0 || r == -EBADF)
			outcome_forget(s, word, now_ns); /* the number was closed behind our back */
		done = r >= 0 || r == -EBADF;
		if (r >= 0)
			dup_to_spare(blank);
	}
	ownfd_return(spare);
	ownfd_return(blank);
	atomic_store(&ending_fd, -1);
	return done;
}

/* One armed slot: true keeps it in the list. */
static bool look_at(int fd, int64_t now_ns, int64_t *next)
{
	struct slot *s = slot_at(fd);
	uint64_t word = slot_word(s);
	int64_t at = atomic_load(&s->deadline_ns);
	if (slot_state_of(word) != SLOT_CONNECTING || at == 0)
		return false;
	if (at <= now_ns) {
		if (end_by_number(fd, s, word, now_ns))
			return false;
		at = now_ns + RETRY_NS;
	}
	if (at < *next)
		*next = at;
	return true;
}

/* Drops what is over; returns when the next one is due. */
static int64_t sweep(int64_t now_ns)
{
	int64_t next = NEVER;
	uint32_t list = atomic_exchange(&kept, 0);
	uint32_t fresh = atomic_exchange(&pushed, 0);
	for (int half = 0; half < 2; half++) {
		for (uint32_t at = half ? fresh : list; at;) {
			int fd = (int)at - 1;
			struct slot *s = slot_at(fd);
			at = atomic_load(&s->next_armed);
			bool stays = look_at(fd, now_ns, &next);
			if (!stays) {
				atomic_store(&s->is_listed, 0);
				/* Armed anew between the look and the store: whoever sets the flag first has it. */
				stays = look_at(fd, now_ns, &next) && atomic_exchange(&s->is_listed, 1) == 0;
			}
			if (stays) {
				atomic_store(&s->next_armed, atomic_load(&kept));
				atomic_store(&kept, (uint32_t)fd + 1);
			}
		}
	}
	return next;
}

void deadline_run(const _Atomic uint32_t *stop)
{
	int64_t idle_since = clock_now_ns();
	atomic_store(&is_deserted, false); /* somebody has started us */
	while (!atomic_load(stop)) {
		uint32_t seen = atomic_load(&wakes);
		int64_t now = clock_now_ns();
		int64_t next = sweep(now);
		if (next != NEVER)
			idle_since = now;
		else if (now - idle_since >= IDLE_NS)
			break;
		if (next != NEVER && service_is_alone()) {
			atomic_store(&is_deserted, true);
			break;
		}
		/* It wakes once a second anyway: what is armed for later than that needs to wake nobody. */
		int64_t until = next == NEVER ? idle_since + IDLE_NS : next < now + SLICE_NS ? next : now + SLICE_NS;
		atomic_store(&next_wake, until);
		if (atomic_load(&pushed))
			continue; /* armed between the sweep and the store, by someone who saw the old waking time */
		struct timespec ts = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
		if (!atomic_load(stop))
			sys_futex_wait(&wakes, seen, &ts);
	}
	atomic_store(&next_wake, NEVER);
}

void deadline_forked(void)
{
	/* The thread may have stood in the middle of a sweep (_Fork runs no handler): the lists are made anew by those
	 * who arm again. */
	for (int fd = 0; fd <= slot_highest(); fd++)
		atomic_store(&slot_at(fd)->is_listed, 0);
	atomic_store(&is_deserted, false);
	atomic_store(&pushed, 0);
	atomic_store(&kept, 0);
	blank = spare = -1; /* ownfd_drop_all has closed them */
	atomic_store(&ending_fd, -1);
	atomic_store(&next_wake, NEVER);
}
