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
#include "engine/flow.h"
#include "engine/guest.h"
#include "engine/outcome.h"
#include "engine/service.h"
#include "engine/slot.h"
#include "engine/wheel.h"

#define NEVER WHEEL_NEVER
#define IDLE_NS (3 * NS_PER_S)	   /* with nothing armed the thread stays so long */
#define SLICE_NS NS_PER_S	   /* with something armed it looks this often whether the app is still there */
#define SPACING_NS (8 * NS_PER_MS) /* and not more often than this, however many limits come and are met */
#define RETRY_NS (50 * NS_PER_MS)  /* an end that failed (no descriptor to be had) is tried again after */

/* What the timer knows of a descriptor. */
struct place {
	struct wheel_link link;	      /* the timer's own */
	_Atomic int64_t stands_ns;    /* in the wheel, to be looked at then; 0: not in it. Written by the timer */
	_Atomic uint32_t next_pushed; /* index + 1 */
	_Atomic uint32_t is_pushed;
};

static struct place *places;	 /* as many as there are slots */
static struct wheel wheel;	 /* the timer's own */
static _Atomic uint32_t pushed;	 /* stack: index + 1 */
static _Atomic uint32_t kept;	 /* in the wheel */
static _Atomic bool is_deserted; /* nobody is left to wait for what is armed */
static _Atomic int64_t next_wake = NEVER;
static _Atomic uint32_t wakes; /* futex word */
/* The descriptor that the timer is about to dup and to end, -1: none. */
_Atomic int deadline_ending = -1;

/* Two numbers of ours: `blank` is a socket for nothing; `spare` is the reserved number, a dup of it between ends. Kept
 * from the first limit on: given back, they might not be had again when the app has used up its own. */
static int blank = -1, spare = -1;

static struct place *place_of(int fd)
{
	struct place *at = __atomic_load_n(&places, __ATOMIC_ACQUIRE);
	if (__builtin_expect(!at, 0)) {
		size_t size = slot_count * sizeof(struct place);
		if (guest_is_restricted())
			return NULL;
		at = sys_mmap(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (sys_is_error(at))
			return NULL;
		struct place *none = NULL;
		if (!__atomic_compare_exchange_n(&places, &none, at, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			sys_munmap(at, size);
			at = none;
		}
	}
	return &at[fd];
}

bool deadline_arm(int fd, int64_t at)
{
	struct place *p = place_of(fd);
	if (!p || at == NEVER)
		return false;
	/* We have written what is due, then look where it stands; the timer writes where it stands, then looks at what
	 * is due: one sees the other. */
	atomic_thread_fence(memory_order_seq_cst);
	int64_t stands = atomic_load_explicit(&p->stands_ns, memory_order_relaxed);
	if (stands && stands <= at)
		return false; /* looked at before that anyway */
	if (atomic_exchange(&p->is_pushed, 1) == 0) {
		uint32_t head = atomic_load(&pushed);
		do
			atomic_store(&p->next_pushed, head);
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

void deadline_wait(int fd)
{
	for (int i = 0; atomic_load(&deadline_ending) == fd && i < 10000; i++)
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
	/* EBUSY is reported for some kernels while a thread waits in connect; unix sockets have no such verb. */
	return r < 0 ? sys_shutdown(dup, SHUT_RDWR) : r;
}

/* When a descriptor has to be looked at; NEVER: nothing is under way there. */
static int64_t due_of(int fd)
{
	struct slot *s = slot_at(fd);
	uint64_t word = slot_word(s);
	if (slot_state_of(word) == SLOT_CONNECTING) {
		int64_t at = atomic_load(&s->deadline_ns);
		return at && atomic_load(&s->cookie) ? at : NEVER;
	}
	return slot_state_of(word) == SLOT_FLOWING ? flow_due_of(s) : NEVER;
}

/* The dup is the very socket that was armed, and it is still not connected: from here on every hook answers ETIMEDOUT.
 */
static void expire(struct slot *s, uint64_t word, int dup, int64_t now_ns)
{
	uint32_t call, endpoint = atomic_load(&s->endpoint);
	int64_t begun_ns = atomic_load(&s->begun_ns), limit_ns = atomic_load(&s->deadline_ns) - begun_ns;
	if (!outcome_finish_socket(s, word, SLOT_EXPIRED, &call))
		return;
	if (call != CALL_NONE) {
		/* The verdict first: once the app is woken it may exit before we go on. */
		call_tell_deadline(call, "connect", limit_ns);
		call_attempt_failed(call, endpoint, FAILURE_CONNECT_TIMEOUT, begun_ns, now_ns);
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
		outcome_succeeded(s, word, dup, now_ns); /* met its limit; the app has not looked yet (C10) */
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

/* Every descriptor that leads to the flow answers for it from now on. */
static void expire_flow(const struct flow *f, struct slot *s, uint64_t word)
{
	slot_change(s, word, SLOT_EXPIRED, false);
	for (int fd = 0; atomic_load(&f->paths) > 1 && fd <= slot_highest(); fd++) {
		struct slot *other = slot_at(fd);
		uint64_t its = slot_word(other);
		if (slot_state_of(its) == SLOT_FLOWING && flow_is_of(f, other, its))
			slot_change(other, its, SLOT_EXPIRED, false);
	}
}

/* The dup is the very socket of the flow. Returns when to look next. */
static int64_t judge_flow(struct slot *s, uint64_t word, int dup, int64_t now_ns)
{
	struct flow *f = flow_hold(s, word);
	if (!f)
		return NEVER;
	struct flow_view view;
	bool is_expired;
	flow_look(&view, dup, now_ns);
	int64_t next = flow_judge(f, &view, now_ns, true, &is_expired);
	if (is_expired) {
		expire_flow(f, s, word);
		end_socket(dup);
	}
	flow_let_go(f);
	return next;
}

/* True: the flow's limit has passed, and its socket is to be ended; else *due says when to look again. Most limits that
 * come have been met: three system calls tell, or none. The number may have been given to another socket meanwhile,
 * hence the cookie and the slot's life behind them. */
static bool has_overrun(int fd, struct slot *s, uint64_t word, int64_t now_ns, int64_t *due)
{
	struct flow *f = flow_hold(s, word);
	*due = f ? flow_visit(f, now_ns) : NEVER;
	bool is_expired = *due <= now_ns;
	if (is_expired) {
		struct flow_view view;
		flow_look(&view, fd, now_ns);
		if (slot_is_same(s, fd) && slot_word(s) == word)
			*due = flow_judge(f, &view, now_ns, false, &is_expired);
	}
	if (f)
		flow_let_go(f);
	return is_expired;
}

/* What is at the number is not what was armed: closed where no hook saw it. */
static void forget(struct slot *s, uint64_t word, int64_t now_ns)
{
	if (slot_state_of(word) == SLOT_CONNECTING)
		outcome_forget(s, word, now_ns);
	else if (slot_change(s, word, SLOT_FREE, false))
		flow_closing(s, word, -1, now_ns);
}

/* The descriptor's time has come. Returns when to look at it next. */
static int64_t end_by_number(int fd, struct slot *s, uint64_t word, int64_t now_ns)
{
	int64_t next = now_ns + RETRY_NS;
	if (!deadline_reserve())
		return next;
	/* From here to its return the number is ours whatever stands on it, and the app's dup2 onto it waits. */
	int lent[2] = {ownfd_lend(blank), ownfd_lend(spare)};
	if (lent[0] < 0 || lent[1] < 0) {
		ownfd_return(lent[0]);
		ownfd_return(lent[1]);
		return next;
	}
	blank = lent[0];
	spare = lent[1];
	atomic_store(&deadline_ending, fd);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with deadline_let_pass */
	if (slot_word(s) != word) {
		next = due_of(fd);
	} else {
		int r = dup_to_spare(fd);
		if (r >= 0 && slot_is_same(s, spare)) {
			next = NEVER;
			if (slot_state_of(word) == SLOT_CONNECTING)
				judge(s, word, spare, now_ns);
			else
				next = judge_flow(s, word, spare, now_ns);
		} else if (r >= 0 || r == -EBADF) {
			forget(s, word, now_ns);
			next = NEVER;
		}
		if (r >= 0)
			dup_to_spare(blank);
	}
	ownfd_return(spare);
	ownfd_return(blank);
	atomic_store(&deadline_ending, -1);
	return next;
}

static struct wheel_link *link_of(uint32_t fd)
{
	return &places[fd].link;
}

/* Notes where it stands; one that goes is looked at once more, since a hook may have armed it between the look and the
 * note. */
static int64_t stand(uint32_t fd, int64_t due_ns)
{
	struct place *p = &places[fd];
	atomic_store(&p->stands_ns, due_ns == NEVER ? 0 : due_ns);
	if (due_ns != NEVER)
		return due_ns;
	atomic_thread_fence(memory_order_seq_cst);
	due_ns = due_of((int)fd);
	if (due_ns != NEVER)
		atomic_store(&p->stands_ns, due_ns);
	return due_ns;
}

static int64_t visit(uint32_t fd, int64_t now_ns, void *unused)
{
	(void)unused;
	struct slot *s = slot_at((int)fd);
	uint64_t word = slot_word(s);
	int64_t due;
	bool ends;
	if (slot_state_of(word) == SLOT_FLOWING) {
		ends = has_overrun((int)fd, s, word, now_ns, &due);
	} else {
		due = due_of((int)fd);
		ends = due <= now_ns;
	}
	if (ends)
		due = end_by_number((int)fd, s, word, now_ns);
	return stand(fd, due);
}

/* Takes in what was armed, looks at what is due; returns when the next is. */
static int64_t turn(int64_t now_ns)
{
	for (uint32_t at = atomic_exchange(&pushed, 0); at;) {
		uint32_t fd = at - 1;
		struct place *p = &places[fd];
		at = atomic_load(&p->next_pushed);
		atomic_store(&p->is_pushed, 0); /* before the look: armed again from here on it is pushed again */
		if (atomic_load(&p->stands_ns))
			wheel_remove(&wheel, link_of, fd);
		int64_t due = stand(fd, due_of((int)fd));
		if (due != NEVER)
			wheel_add(&wheel, link_of, fd, due);
	}
	int64_t next = wheel_turn(&wheel, link_of, now_ns, visit, NULL);
	atomic_store(&kept, wheel.count);
	return next;
}

void deadline_run(const _Atomic uint32_t *stop)
{
	int64_t idle_since = clock_now_ns(), looked_around = idle_since;
	atomic_store(&is_deserted, false); /* somebody has started us */
	if (wheel.count == 0)
		wheel_start(&wheel, idle_since);
	while (!atomic_load(stop)) {
		uint32_t seen = atomic_load(&wakes);
		int64_t now = clock_now_ns();
		int64_t next = turn(now);
		if (next != NEVER)
			idle_since = now;
		else if (now - idle_since >= IDLE_NS)
			break;
		if (next != NEVER && now - looked_around >= SLICE_NS) {
			looked_around = now;
			if (service_is_alone()) {
				atomic_store(&is_deserted, true);
				break;
			}
		}
		/* It wakes once a second anyway: what is armed for later than that needs to wake nobody. */
		int64_t until = next == NEVER ? idle_since + IDLE_NS : next < now + SLICE_NS ? next : now + SLICE_NS;
		if (until < now + SPACING_NS)
			until = now + SPACING_NS;
		atomic_store(&next_wake, until);
		if (atomic_load(&pushed)) {
			/* Armed between the sweep and the store, by someone who saw the old waking time. */
			until = now + SPACING_NS;
			atomic_store(&next_wake, until);
		}
		struct timespec ts = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
		if (!atomic_load(stop))
			sys_futex_wait(&wakes, seen, &ts);
	}
	atomic_store(&next_wake, NEVER);
}

void deadline_forked(void)
{
	/* The thread may have stood in the middle of a turn (_Fork runs no handler): the wheel is made anew by those
	 * who arm again. */
	for (int fd = 0; places && fd <= slot_highest(); fd++) {
		atomic_store(&places[fd].is_pushed, 0);
		atomic_store(&places[fd].stands_ns, 0);
	}
	wheel_start(&wheel, 0);
	atomic_store(&is_deserted, false);
	atomic_store(&pushed, 0);
	atomic_store(&kept, 0);
	blank = spare = -1; /* ownfd_drop_all has closed them */
	atomic_store(&deadline_ending, -1);
	atomic_store(&next_wake, NEVER);
}
