/* Sixty-four processes under the shim against a server that flips between good, refusing, hung and resetting, while
 * they are killed, stopped, let go on, forked and executed anew at random; and an observer that looks all along:
 *  - never more probes at once than allowed, counted at the server: while it hangs, and once the circuit has opened,
 *    every connection is a probe (but those of processes that were stopped for longer than probe_timeout) (B5 B7)
 *  - one event a transition, in the order of the generations (B4)
 *  - no probe's slot is held by a dead process for longer than a second of being half-open (B7)
 *  - no counter goes back; region_valid() holds; nobody dies but by our hand
 * And sixteen of them while random bytes are written into their region: nobody dies of it (E10). They wait for places,
 * meet faults, look names up and answer on the socket, so that all of the region is used. `make sanitize` does that
 * with all of it built with ASan, and fences around the region (fenced.h). torture SECONDS [SEED]             with
 * RESIL_TEST_SHIM naming the shim (and what is loaded before it); prints TAP torture scribble SECONDS [SEED] */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/tap.h"
#include "base/clock.h"
#include "core/circuit.h"
#include "core/events.h"
#include "core/member.h"
#include "core/registry.h"

#define CLIENTS 64
#define HALF_OPEN 2
#define ANSWER_MS 1500
#define PROBE_MS 4000
#define SETTLED_MS 2500 /* of hanging: by then all calls that began while it was closed have ended */
#define OVERLAP_MS 800	/* more connections than probes for so long are no handing over */
#define CONNECTIONS 1024
#define ENOUGH 20	  /* transitions to judge */
#define AT_WORK 20	  /* connections accepted from those who are scribbled over */
#define PATIENCE_MS 40000 /* beyond the seconds asked for, where a crowded machine made fewer */

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) % n;
}

/* ---- a client, under the shim ---- */

static int dial(int port, bool waits)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | (waits ? 0 : SOCK_NONBLOCK), 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		return -1;
	int err = connect(fd, (struct sockaddr *)&to, sizeof to);
	if (err != 0 && errno == EINPROGRESS) {
		struct pollfd p = {.fd = fd, .events = POLLOUT};
		socklen_t len = sizeof err;
		poll(&p, 1, -1);
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	}
	if (err != 0) {
		close(fd);
		return -1;
	}
	fcntl(fd, F_SETFL, 0);
	return fd;
}

/* One call; some hang up early, some only connect. */
static void ask(int port)
{
	char text[64];
	int fd = dial(port, below(3) != 0), how = (int)below(20);

	if (fd < 0) {
		usleep((useconds_t)(500 + below(3000)));
		return;
	}
	int n = snprintf(text, sizeof text, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", (int)getpid());
	for (int i = how == 0 ? 3 : 0; i < 3 && send(fd, text, (size_t)n, MSG_NOSIGNAL) == n; i++) {
		if (how == 1)
			break;
		if (recv(fd, text + 40, 20, 0) <= 0 || below(2))
			break;
	}
	close(fd);
}

/* By name: two addresses, of which the server has one. */
static void ask_by_name(int port)
{
	struct addrinfo how = {.ai_socktype = SOCK_STREAM}, *found;
	char text[16];
	int fd = -1;

	snprintf(text, sizeof text, "%d", port);
	if (getaddrinfo("localhost", text, &how, &found) != 0)
		return;
	for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM, 0);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(found);
	if (fd >= 0 && send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, MSG_NOSIGNAL) > 0)
		recv(fd, text, sizeof text, 0);
	if (fd >= 0)
		close(fd);
}

static int client(int port, const char *self)
{
	bool looks_up = getenv("TORTURE_LOOKS_UP") != NULL;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	seed = (uint64_t)(unsigned)getpid() * 0x9e3779b97f4a7c15ull | 1;
	signal(SIGCHLD, SIG_IGN);
	for (int i = 0;; i++) {
		switch (below(60)) {
		case 0: /* a child goes on where we are, and is gone */
			if (fork() == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				for (uint64_t k = below(4); k > 0; k--)
					ask(port);
				_exit(0);
			}
			break;
		case 1: {
			char text[16];
			snprintf(text, sizeof text, "%d", port);
			execl(self, self, "client", text, NULL);
			return 125;
		}
		default:
			if (looks_up && below(6) == 0)
				ask_by_name(port);
			else
				ask(port);
		}
		usleep((useconds_t)below(2000));
	}
}

/* ---- the server ---- */

enum way { GOOD, REFUSING, HUNG, RESETTING, WAYS };
static struct connection {
	int fd; /* -1: none */
	pid_t pid;
	int64_t since_ms;
} connections[CONNECTIONS];
static int listener = -1, port;
static bool is_listening;
static enum way way;
static int64_t way_since_ms;
static unsigned long accepted, answered, probes_seen;

static int64_t now_ms(void)
{
	return clock_now_ns() / NS_PER_MS;
}

static void hang_up(struct connection *c, bool hard)
{
	struct linger linger = {1, 0};

	if (hard)
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	close(c->fd);
	c->fd = -1;
	c->pid = 0;
}

static void bind_it(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int on = 1;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	/* Not one that the kernel gives to those who connect: while nobody listens there, one of them would sooner or
	 * later be connected with itself, and have it. */
	for (int i = 0; i < 200 && !port; i++) {
		at.sin_port = htons((uint16_t)(10000 + below(20000)));
		if (bind(listener, (struct sockaddr *)&at, sizeof at) == 0)
			port = ntohs(at.sin_port);
	}
	if (!port) {
		perror("torture: bind");
		abort();
	}
}

/* One socket for all of the time. What was forked and not yet executed has it, too: to close it would end nothing, and
 * another one could not listen. Shut down it refuses, whoever has it, and the port stays ours. */
static void listen_on(bool is_on)
{
	if (is_on == is_listening)
		return;
	if (is_on ? listen(listener, 256) : shutdown(listener, SHUT_RDWR)) {
		perror("torture: listen");
		abort();
	}
	is_listening = is_on;
}

static void turn(enum way to)
{
	listen_on(to != REFUSING);
	for (int i = 0; i < CONNECTIONS; i++)
		if (connections[i].fd >= 0 && way != to)
			hang_up(&connections[i], to != GOOD);
	way = to;
	way_since_ms = now_ms();
}

static void serve(struct connection *c)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	char text[512];
	ssize_t n = recv(c->fd, text, sizeof text - 1, MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		hang_up(c, false);
		return;
	}
	if (n < 0)
		return;
	text[n] = '\0';
	if (strncmp(text, "GET /", 5) == 0)
		c->pid = atoi(text + 5);
	if (way == GOOD && send(c->fd, answer, sizeof answer - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
		answered++;
}

static void serve_all(int timeout_ms)
{
	static struct pollfd polls[CONNECTIONS + 1];
	static int which[CONNECTIONS + 1];
	nfds_t n = 0;

	if (is_listening)
		polls[n++] = (struct pollfd){.fd = listener, .events = POLLIN};
	nfds_t first = n;
	for (int i = 0; i < CONNECTIONS; i++)
		if (connections[i].fd >= 0) {
			which[n] = i;
			polls[n++] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
		}
	if (poll(polls, n, timeout_ms) <= 0)
		return;
	for (nfds_t i = first; i < n; i++)
		if (polls[i].revents)
			serve(&connections[which[i]]);
	for (int i = 0; first && polls[0].revents && i < CONNECTIONS; i++) {
		if (connections[i].fd >= 0)
			continue;
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			break;
		accepted++;
		connections[i] = (struct connection){.fd = fd, .since_ms = now_ms()};
		if (way == RESETTING)
			hang_up(&connections[i], true);
	}
}

/* ---- who is in it ---- */

static struct {
	pid_t pid;
	int64_t stopped_ms, went_on_ms; /* 0: never; stopped while stopped_ms > went_on_ms */
} clients[CLIENTS];
static unsigned long killed, stopped;
static int client_count = CLIENTS;
static char dir[64], conf[96];
static const char *self;

static void start(int i)
{
	char text[16];

	snprintf(text, sizeof text, "%d", port);
	clients[i].stopped_ms = clients[i].went_on_ms = 0;
	clients[i].pid = fork();
	if (clients[i].pid == 0) {
		setenv("LD_PRELOAD", getenv("RESIL_TEST_SHIM"), 1);
		execl(self, self, "client", text, NULL);
		_exit(126);
	}
}

/* Reaps; whoever has not died by our hand is a failure. */
static void look_after(pid_t by_our_hand)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int i = 0; i < client_count; i++)
			if (clients[i].pid == pid) {
				tap_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
					"%d died: status %x (not %d)", (int)pid, (unsigned)status, (int)by_our_hand);
				start(i);
			}
}

static void disturb(void)
{
	int i = (int)below(CLIENTS);
	bool is_stopped = clients[i].stopped_ms > clients[i].went_on_ms;

	switch (below(4)) {
	case 0:
	case 1:
		kill(clients[i].pid, SIGKILL);
		killed++;
		break;
	case 2:
		if (!is_stopped && kill(clients[i].pid, SIGSTOP) == 0) {
			clients[i].stopped_ms = now_ms();
			stopped++;
		}
		break;
	default: break;
	}
	for (i = 0; i < CLIENTS; i++)
		if (clients[i].stopped_ms > clients[i].went_on_ms && below(100) == 0) {
			kill(clients[i].pid, SIGCONT);
			clients[i].went_on_ms = now_ms();
		}
}

static bool was_stopped(pid_t pid, int64_t since_ms)
{
	for (int i = 0; i < CLIENTS; i++)
		if (clients[i].pid == pid)
			return clients[i].stopped_ms > clients[i].went_on_ms || clients[i].went_on_ms > since_ms;
	return false; /* a child of one, or one that is dead: its connection is about to be seen to be */
}

/* ---- the observer ---- */

#define SEEN 65536
static struct region region;
static int destination = -1;
static struct seen {
	uint64_t seq;
	uint8_t generation, from, to;
} seen[SEEN];
static unsigned seen_count;
static uint64_t looked_from = 1;

static void attach(void)
{
	char name[300], path[400];
	FILE *ls;

	if (destination >= 0)
		return;
	snprintf(name, sizeof name, "ls %s/state/torture.*.v%d 2>/dev/null", dir, REGION_LAYOUT);
	ls = popen(name, "r");
	if (ls && fgets(path, sizeof path, ls)) {
		path[strcspn(path, "\n")] = '\0';
		if (!region.header)
			region_open(&region, path, true);
	}
	if (ls)
		pclose(ls);
	snprintf(name, sizeof name, "127.0.0.1:%d", port);
	if (region.header)
		destination = registry_find(&region, name);
}

/* All transitions that are in the ring and were not seen yet, in the order of the ring. Those that are shown late come
 * late: what is seen of the last lap is looked at again. */
static void read_events(void)
{
	uint64_t oldest, newest;
	struct event e;

	events_range(&region, &oldest, &newest);
	if (looked_from < oldest)
		looked_from = oldest;
	for (uint64_t seq = looked_from; seq <= newest; seq++) {
		if (!events_read(&region, seq, &e) || e.type != EVENT_TRANSITION)
			continue;
		unsigned i = seen_count;
		while (i > 0 && seen[i - 1].seq > seq)
			i--;
		if ((i > 0 && seen[i - 1].seq == seq) || seen_count == SEEN)
			continue;
		memmove(&seen[i + 1], &seen[i], (seen_count - i) * sizeof seen[0]);
		seen[i] = (struct seen){seq, e.generation, e.from, e.to};
		seen_count++;
	}
	if (newest > 256 && looked_from < newest - 256)
		looked_from = newest - 256;
}

static void judge_events(void)
{
	for (unsigned i = 1; i < seen_count; i++) {
		const struct seen *a = &seen[i - 1], *b = &seen[i];
		tap_expect((uint8_t)(a->generation + 1) == b->generation && a->to == b->from,
			"event %llu: generation %u after %u, %u to %u after %u to %u", (unsigned long long)b->seq,
			b->generation, a->generation, b->from, b->to, a->from, a->to);
	}
	tap_expect(seen_count > ENOUGH, "only %u transitions", seen_count);
	tap_all("one event a transition, in their order, whoever was killed where (B4)");
}

static void watch_counters(void)
{
	static struct circuit_view before, now;

	circuit_view(&region, (uint32_t)destination, clock_now_ns(), &now);
	const uint64_t *const pairs[][2] = {{&before.success, &now.success}, {&before.failure, &now.failure},
		{&before.neutral, &now.neutral}, {&before.rejected, &now.rejected}, {&before.stale, &now.stale},
		{&before.opened_total, &now.opened_total}};
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
		tap_expect(*pairs[i][0] <= *pairs[i][1], "counter %zu went from %llu to %llu", i,
			(unsigned long long)*pairs[i][0], (unsigned long long)*pairs[i][1]);
	for (int k = 0; k < FAILURE_KIND_COUNT; k++)
		tap_expect(before.kinds[k] <= now.kinds[k], "%s went back", failure_name((enum failure_kind)k));
	before = now;
}

/* Slots held by the dead, while others would probe. */
static int64_t dead_for_ms_most;
static void watch_leases(void)
{
	static uint64_t lease[BREAKER_PROBES_MAX];
	static int64_t since[BREAKER_PROBES_MAX];
	const struct destination *d = &region.destinations[destination];
	uint64_t word = d->breaker;

	for (uint32_t i = 0; i < BREAKER_PROBES_MAX; i++) {
		uint64_t now = d->lease[i];
		bool is_held = false;
		if (now != 0 && breaker_state(word) == BREAKER_HALF_OPEN) {
			uint64_t id = region.members[now >> 54].id;
			is_held = id == 0 || (id & 0x3fff) != (now >> 40 & 0x3fff) || !member_is_alive(id);
		}
		tap_expect(i < HALF_OPEN || now == 0, "a slot beyond half_open_max_calls is taken");
		if (!is_held || lease[i] != now)
			since[i] = now_ms();
		lease[i] = now;
		if (now_ms() - since[i] > dead_for_ms_most)
			dead_for_ms_most = now_ms() - since[i];
	}
}

/* While it hangs: connections at the server that overlap for long. */
static int64_t overlap_ms_most;
static void watch_probes(void)
{
	static int64_t since;
	int64_t now = now_ms();
	int n = 0;

	if (way == HUNG && now - way_since_ms > SETTLED_MS)
		for (int i = 0; i < CONNECTIONS; i++) {
			struct connection *c = &connections[i];
			/* One without a request is about to send it, or was stopped before. */
			if (c->fd < 0 || c->pid == 0 || c->since_ms < way_since_ms + SETTLED_MS ||
				was_stopped(c->pid, c->since_ms))
				continue;
			n++;
			probes_seen++;
		}
	if (n <= HALF_OPEN)
		since = now;
	else if (now - since > overlap_ms_most)
		overlap_ms_most = now - since;
}

static void write_conf(bool scribbles)
{
	snprintf(conf, sizeof conf, "%s/conf", dir);
	FILE *f = fopen(conf, "w");
	if (!f)
		abort();
	fprintf(f,
		"[resil]\ncontrol = %s\n[defaults]\nfailure_threshold = 3\nrecovery_timeout = 50ms\nrecovery_max = "
		"300ms\n"
		"half_open_max_calls = %d\nsuccess_threshold = 2\nanswer_timeout = %dms\nconnect_timeout = 1s\n"
		"probe_timeout = %dms\nsliding_window = 2s\nfailure_rate_threshold = 60%%\n%s",
		scribbles ? "on" : "off", HALF_OPEN, ANSWER_MS, PROBE_MS,
		scribbles ? "max_concurrent = 40\nmax_wait = 20ms\nadaptive = on\nfallback = errno:EHOSTUNREACH\n"
			  : "");
	fclose(f);
}

static void torture(int seconds)
{
	int64_t begin = now_ms(), until = begin + seconds * 1000ll, turn_at = begin, slow_at = begin;
	int64_t patience = until + PATIENCE_MS;
	unsigned long turns[WAYS] = {0};
	int64_t late = 0, last = begin;

	/* On a crowded machine on, until enough has happened to be judged. */
	while (now_ms() < until || (seen_count <= ENOUGH && now_ms() < patience)) {
		int64_t now = now_ms();
		if (now - last > late)
			late = now - last;
		last = now;
		if (now >= turn_at) {
			enum way to = (enum way)below(WAYS);
			turn(to);
			turns[to]++;
			turn_at = now +
				  (to == HUNG ? SETTLED_MS + 2000 + (int64_t)below(4000) : 300 + (int64_t)below(2000));
		}
		serve_all(2);
		look_after(0);
		if (below(4) == 0)
			disturb();
		attach();
		if (destination < 0)
			continue;
		read_events();
		watch_leases();
		watch_probes();
		if (now >= slow_at) {
			char why[200] = "";
			struct text t = TEXT_ON(why);
			slow_at = now + 300;
			watch_counters();
			tap_expect(region_valid(&region, &t), "the region: %s", why);
		}
	}
	printf("# %lld s: good %lu, refusing %lu, hung %lu, resetting %lu times; %lu killed, %lu stopped; %lu "
	       "accepted, "
	       "%lu answered, "
	       "%u transitions, %lu looks at probes; the observer was at most %lld ms late\n",
		(long long)(now_ms() - begin) / 1000, turns[0], turns[1], turns[2], turns[3], killed, stopped, accepted,
		answered, seen_count, probes_seen, (long long)late);
	tap_all("no counter goes back, the region is valid, no slot beyond the allowed ones, nobody died of himself");
	int64_t allowance = late + (getenv("TEST_ALLOWANCE_MS") ? atoll(getenv("TEST_ALLOWANCE_MS")) : 0);
	tap_ok(overlap_ms_most <= OVERLAP_MS + allowance,
		"never more probes in flight than allowed, counted at the server (longest overlap %lld ms) (B5)",
		(long long)overlap_ms_most);
	tap_ok(dead_for_ms_most <= 1000 + allowance, "no slot is held for the dead (%lld ms at most) (B7)",
		(long long)dead_for_ms_most);
}

/* Well again: it closes, and all that was told is told. */
static void come_back(void)
{
	turn(GOOD);
	for (int i = 0; i < CLIENTS; i++)
		kill(clients[i].pid, SIGCONT);
	bool is_closed = false;
	for (int64_t until = now_ms() + 30000; now_ms() < until && !is_closed;) {
		serve_all(2);
		look_after(0);
		attach();
		if (destination < 0)
			continue;
		read_events();
		is_closed = breaker_state(region.destinations[destination].breaker) == BREAKER_CLOSED &&
			    now_ms() - way_since_ms > 2000;
	}
	tap_ok(is_closed, "with the server well again the circuit closes");
	for (int i = 0; i < CLIENTS; i++)
		kill(clients[i].pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	if (destination >= 0)
		read_events();
}

/* What a member says of the region on the socket: octets. */
static size_t ask_the_socket(void)
{
	static const char *const paths[] = {"/v1/destinations", "/v1/events", "/v1/faults", "/metrics", "/health"};
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct timeval at_most = {.tv_usec = 300000};
	char text[4096];
	size_t all = 0;
	ssize_t n = snprintf(text, sizeof text, "GET %s HTTP/1.0\r\n\r\n", paths[below(5)]);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(to.sun_path, sizeof to.sun_path, "%s/state/torture.sock", dir);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &at_most, sizeof at_most);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &at_most, sizeof at_most);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && send(fd, text, (size_t)n, MSG_NOSIGNAL) == n)
		while ((n = recv(fd, text, sizeof text, 0)) > 0)
			all += (size_t)n;
	close(fd);
	return all;
}

/* Nothing is asked of what they see meanwhile but that they live on, and do something. */
static void scribble(int seconds)
{
	struct region shared = {0};
	size_t told = 0;
	char path[400];
	unsigned long writes = 0;

	for (int64_t until = now_ms() + 20000; destination < 0 && now_ms() < until;) {
		serve_all(2);
		attach();
	}
	if (destination < 0) {
		tap_ok(false, "nobody has made a region");
		return;
	}
	text_copy(path, sizeof path, region.path);
	if (region_open(&shared, path, false) != 0)
		abort();
	volatile uint64_t *words = (volatile uint64_t *)(void *)shared.header;
	size_t count = shared.size / 8, header = sizeof *shared.header / 8;
	int64_t turn_at = 0;
	int64_t until = now_ms() + seconds * 1000ll, patience = until + PATIENCE_MS;
	/* On a crowded machine on, until they have done something. */
	while (now_ms() < until || (accepted <= AT_WORK && now_ms() < patience)) {
		if (now_ms() >= turn_at) {
			turn((enum way)below(WAYS));
			turn_at = now_ms() + 500;
			told += ask_the_socket();
		}
		serve_all(1);
		look_after(0);
		for (int i = 0; i < 2000; i++, writes++) {
			/* Where they look: the one destination's slot is one of 512. */
			size_t at = below(2) ? below(count)
					     : (size_t)((char *)(void *)&shared.destinations[destination] -
							(char *)(void *)shared.header) /
							       8 +
						       below(sizeof(struct destination) / 8);
			words[at < header && below(50) ? header : at] = below(3) ? below(1ull << 53) << 11 : UINT64_MAX;
		}
	}
	tap_all("sixteen processes live on while random bytes are written into their region (E10)");
	printf("# %lu writes, %lu accepted, %lu answered; %zu octets on the socket\n", writes, accepted, answered,
		told);
	tap_ok(accepted > AT_WORK, "and they were at work");
	for (int i = 0; i < client_count; i++)
		kill(clients[i].pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

int main(int argc, char **argv)
{
	static char exe[256];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	char text[160];

	if (n <= 0)
		return 1;
	self = exe;
	if (argc == 3 && strcmp(argv[1], "client") == 0)
		return client(atoi(argv[2]), self);
	bool scribbles = argc > 2 && strcmp(argv[1], "scribble") == 0;
	argc -= scribbles;
	argv += scribbles;
	if (!getenv("RESIL_TEST_SHIM") || argc < 2) {
		fprintf(stderr, "usage: RESIL_TEST_SHIM=.../libresil.so torture SECONDS [SEED]\n");
		return 2;
	}
	seed = argc > 2 ? strtoull(argv[2], NULL, 0) | 1 : (uint64_t)clock_now_ns() | 1;
	printf("# seed %llu\n", (unsigned long long)seed);
	signal(SIGPIPE, SIG_IGN);
	snprintf(dir, sizeof dir, "%s/resil-torture-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(dir))
		abort();
	snprintf(text, sizeof text, "%s/state", dir);
	mkdir(text, 0700);
	setenv("RESIL_STATE_DIR", text, 1);
	setenv("RESIL_RUNTIME_DIR", text, 1);
	setenv("RESIL_GROUP", "torture", 1);
	write_conf(scribbles);
	setenv("RESIL_CONF", conf, 1);
	for (int i = 0; i < CONNECTIONS; i++)
		connections[i].fd = -1;
	bind_it();
	listen_on(true);
	if (scribbles) {
		client_count = 16;
		snprintf(text, sizeof text,
			"refuse 127.0.0.1:%d percent=5%%\nlatency 127.0.0.1:%d delay=2ms percent=20%%", port, port);
		setenv("RESIL_FAULTS", text, 1);
		setenv("TORTURE_LOOKS_UP", "1", 1);
	}
	for (int i = 0; i < client_count; i++)
		start(i);
	if (scribbles) {
		tap_expect(true, "begun");
		scribble(atoi(argv[1]));
	} else {
		torture(atoi(argv[1]));
		come_back();
		judge_events();
	}
	snprintf(text, sizeof text, "rm -rf %s", dir);
	if (system(text) != 0)
		return 1;
	return tap_done();
}
