/* The random histories of circuit.c, a sample of them, replayed against real sockets: three processes under the shim
 * connect, send, wait, hang up and are killed as the history says, against a server that answers, resets or keeps
 * silent as it says; and after each step the circuit in their region is as the model has it.
 *   replay N [SEED]            with RESIL_TEST_SHIM naming the shim; prints TAP
 *   replay client PORT PORT    such a process: commands on its standard input, answers on its standard output
 * Time is the world's here. The model is given the moment before a step and the one behind it, and has to come to the
 * same either way; steps that would come too near to a bound wait until it is passed, and a history whose step took too
 * long is not judged any further. Slow calls are circuit.c's alone, and so are waits of hours. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/tap.h"
#include "base/clock.h"
#include "core/registry.h"
#include "model.h"

#define AT_ONCE 8	/* histories beside each other: most of them wait */
#define LONGEST_MS 5000 /* of a history, by its own waits */
#define LATE_MS 70	/* a step that takes longer is not judged */
#define EDGE_MS 80	/* so near to a bound none is made */
#define PATIENCE_S 40	/* for all that ought to happen at once */

static long long now_ms(void)
{
	return clock_now_ns() / NS_PER_MS;
}

/* ---- a process under the shim ---- */

enum want { CONNECT, SEND, RECEIVE, CLOSE, WARM_UP };
struct command {
	int want, call;
};
struct answer {
	int err; /* 0, or errno; RECEIVE: of the call */
	long long before, behind;
};

static int client(int port, int elsewhere)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	int fd[CALLS];
	struct command c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(0, &c, sizeof c) == sizeof c) {
		struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
		struct answer a = {0};
		char text[256];
		int err = 0;
		to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		if (c.want == WARM_UP)
			to.sin_port = htons((uint16_t)elsewhere);
		if (c.want == CONNECT || c.want == WARM_UP)
			fd[c.call] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		a.before = now_ms();
		switch (c.want) {
		case WARM_UP:
		case CONNECT: err = connect(fd[c.call], (struct sockaddr *)&to, sizeof to) == 0 ? 0 : errno; break;
		case SEND: err = send(fd[c.call], request, sizeof request - 1, MSG_NOSIGNAL) > 0 ? 0 : errno; break;
		case RECEIVE: err = recv(fd[c.call], text, sizeof text, 0) > 0 ? 0 : errno; break;
		default: close(fd[c.call]); break;
		}
		a.err = err;
		a.behind = now_ms();
		if ((c.want == CONNECT && err) || c.want == RECEIVE || c.want == WARM_UP)
			close(fd[c.call]);
		if (write(1, &a, sizeof a) != sizeof a)
			return 1;
	}
	return 0;
}

/* ---- one history ---- */

static const char *self;
static char dir[64];
static int listener = -1, port, elsewhere; /* elsewhere: where a process connects first, and becomes a member */
static struct {
	pid_t pid;
	int to, from;
} process[PROCESSES];
static int peer[CALLS]; /* the server's side of a call */
static bool has_sent[CALLS];
static struct region region;
static int destination = -1;
static struct model m;
static char complaint[300];
static unsigned steps;

enum end { RIGHT_TO_THE_END, RIGHT_SO_FAR, NOT_AS_THE_MODEL, BROKEN };

static struct answer ask(int i, int want, int call)
{
	struct command c = {want, call};
	struct answer a = {.err = ENOTCONN};

	if (write(process[i].to, &c, sizeof c) != sizeof c || read(process[i].from, &a, sizeof a) != sizeof a)
		a.behind = -1;
	return a;
}

static void start(int i)
{
	int to[2], from[2];
	char text[16], other[16];

	if (pipe(to) != 0 || pipe(from) != 0)
		abort();
	snprintf(text, sizeof text, "%d", port);
	snprintf(other, sizeof other, "%d", elsewhere);
	process[i].pid = fork();
	if (process[i].pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		for (int fd = 3; fd < 256; fd++)
			close(fd);
		setenv("LD_PRELOAD", getenv("RESIL_TEST_SHIM"), 1);
		execl(self, self, "client", text, other, NULL);
		_exit(126);
	}
	close(to[0]);
	close(from[1]);
	process[i].to = to[1];
	process[i].from = from[0];
	ask(i, WARM_UP, 0);
}

static void end(int i)
{
	if (process[i].pid <= 0)
		return;
	kill(process[i].pid, SIGKILL);
	waitpid(process[i].pid, NULL, 0);
	close(process[i].to);
	close(process[i].from);
	process[i].pid = 0;
}

static void attach(void)
{
	char text[200], path[300];
	FILE *ls;

	if (!region.header) {
		snprintf(text, sizeof text, "ls %s/replay.*.v%d 2>/dev/null", dir, REGION_LAYOUT);
		ls = popen(text, "r");
		if (ls && fgets(path, sizeof path, ls)) {
			path[strcspn(path, "\n")] = '\0';
			region_open(&region, path, false);
		}
		if (ls)
			pclose(ls);
	}
	snprintf(text, sizeof text, "127.0.0.1:%d", port);
	if (region.header && destination < 0)
		destination = registry_find(&region, text);
}

static void configure(const struct breaker_rules *r)
{
	char text[600], window[32] = "off";

	if (r->window & WINDOW_IS_TIME)
		snprintf(window, sizeof window, "%ums", r->window & ~WINDOW_IS_TIME);
	else if (r->window)
		snprintf(window, sizeof window, "%u", r->window);
	snprintf(text, sizeof text,
		"breaker=%s;failure_threshold=%u;success_threshold=%u;half_open_max_calls=%u;recovery_timeout=%ums;"
		"recovery_max=%ums;recovery_backoff=%u;recovery_jitter=0%%;probe_timeout=%ums;sliding_window=%s;"
		"failure_rate_threshold=%u%%;minimum_calls=%u;abandon_after=1h",
		r->is_observed ? "observe" : "on", r->failure_threshold, r->success_threshold, r->half_open_max_calls,
		r->recovery_ms, r->recovery_max_ms, r->backoff_percent / 100u, r->probe_timeout_ms, window,
		r->failure_rate_percent, r->minimum_calls);
	setenv("RESIL_SET", text, 1);
	setenv("RESIL_STATE_DIR", dir, 1);
	setenv("RESIL_RUNTIME_DIR", dir, 1);
	setenv("RESIL_GROUP", "replay", 1);
	snprintf(text, sizeof text, "%s/conf", dir);
	FILE *none = fopen(text, "w");
	if (!none || fclose(none) != 0)
		abort();
	setenv("RESIL_CONF", text, 1);
}

static bool is_near(long long at)
{
	return at && m.now > at - EDGE_MS && m.now < at + EDGE_MS;
}

/* Would it be told apart by milliseconds what a step does now? */
static bool is_at_an_edge(const struct breaker_rules *r)
{
	if ((m.state == BREAKER_OPEN && is_near(m.until)) || (m.mode != BREAKER_AUTO && is_near(m.mode_until)) ||
		is_near(m.looked_at ? m.looked_at + 100 : 0))
		return true;
	for (int i = 0; i < CALLS; i++)
		if (m.call[i].is_live && m.call[i].is_probe && !m.call[i].has_lost &&
			m.now > m.call[i].taken_at + r->probe_timeout_ms - EDGE_MS &&
			m.now < m.call[i].taken_at + r->probe_timeout_ms + 128 + EDGE_MS)
			return true;
	long long healthy = (m.now - m.healthy_since) % cap_of(r);
	return m.state == BREAKER_CLOSED && m.wait > r->recovery_ms && cap_of(r) > 3 * EDGE_MS &&
	       (healthy < EDGE_MS || healthy > cap_of(r) - EDGE_MS);
}

static bool differs(const char *what, long long is, long long should)
{
	if (is == should)
		return false;
	snprintf(complaint, sizeof complaint, "%s is %lld, not %lld", what, is, should);
	return true;
}

/* What it says of itself, and its times as far as the model could not know them to the millisecond. */
static bool states_differ(const struct breaker_rules *r, long generation_before, long long before, long long behind)
{
	struct destination *d = &region.destinations[destination];
	uint64_t word = d->breaker;

	if (differs("the state", breaker_state(word), m.state) || differs("the mode", breaker_mode(word), m.mode) ||
		differs("the generation", breaker_generation(word), m.generation & 65535) ||
		differs("the count", breaker_count(word),
			m.state == BREAKER_CLOSED      ? (long long)m.streak
			: m.state == BREAKER_HALF_OPEN ? (long long)m.good
						       : 0) ||
		differs("probes in flight", lease_in_flight(&region, (uint32_t)destination), held(&m)) ||
		differs("success", (long long)d->success, (long long)m.n.success) ||
		differs("failure", (long long)d->failure, (long long)m.n.failure) ||
		differs("rejected", (long long)region_rejected(d), (long long)m.n.rejected) ||
		differs("would_reject", (long long)d->would_reject, (long long)m.n.would_reject) ||
		differs("stale", (long long)d->stale, (long long)m.n.stale) ||
		differs("times opened", (long long)d->opened_total, (long long)m.n.opened))
		return true;
	if (m.generation == generation_before)
		return false;
	long long now = now_ms(), left = breaker_retry_after_ms(word, r, now);
	if (m.state == BREAKER_OPEN && m.mode != BREAKER_FORCED_OPEN && left > 0) {
		long long begun = now + left - (m.until - behind);
		if (begun < before || begun > behind) {
			snprintf(complaint, sizeof complaint,
				"the wait of %lld ms began %lld ms after the step, which took %lld", m.until - behind,
				begun - before, behind - before);
			return true;
		}
		m.until = now + left;
	} else if (m.state == BREAKER_CLOSED) {
		m.healthy_since = now - ((now - (long long)(word >> 37)) & BREAKER_TICK_MASK);
	}
	return false;
}

static bool models_differ(const struct model *a, const struct model *b)
{
	return a->state != b->state || a->mode != b->mode || a->generation != b->generation || a->wait != b->wait ||
	       a->streak != b->streak || a->good != b->good || held(a) != held(b) || a->n.rejected != b->n.rejected ||
	       a->n.would_reject != b->n.would_reject || a->n.stale != b->n.stale || a->n.failure != b->n.failure;
}

static void go_back(int call)
{
	if (peer[call] >= 0)
		close(peer[call]);
	peer[call] = -1;
}

static bool connects(const struct breaker_rules *r, int i, long long *before, long long *behind, enum end *how)
{
	bool gone[CALLS];
	int at = 0;

	if (m.is_dead[i]) {
		for (int k = 0; k < CALLS; k++)
			if (m.call[k].is_live && m.call[k].process == i && m.call[k].is_probe && !m.call[k].has_lost)
				return false;
		for (int k = 0; k < CALLS; k++)
			if (m.call[k].process == i)
				m.call[k].is_live = false;
		m.is_dead[i] = false;
		start(i);
	}
	while (at < CALLS && m.call[at].is_live)
		at++;
	if (at == CALLS)
		return false;
	struct answer a = ask(i, CONNECT, at);
	attach();
	*before = a.before;
	*behind = a.behind;
	if (a.behind < 0 || destination < 0 || (a.err != 0 && a.err != ECONNREFUSED)) {
		snprintf(complaint, sizeof complaint, "connect: %s", strerror(a.err));
		*how = BROKEN;
		return false;
	}
	/* Near a probe's time either is right, and none is near. */
	memset(gone, 0, sizeof gone);
	struct model early = m, late = m;
	early.now = a.before;
	late.now = a.behind;
	int first = model_admit(&early, r, i, gone), second = model_admit(&late, r, i, gone);
	if (first != second || models_differ(&early, &late)) {
		*how = RIGHT_SO_FAR;
		return false;
	}
	m = late;
	if (differs("the decision", a.err == 0, second != BREAKER_REJECT)) {
		*how = NOT_AS_THE_MODEL;
		return false;
	}
	if (a.err != 0)
		return true;
	m.call[at].is_unused = true;
	has_sent[at] = false;
	peer[at] = accept(listener, NULL, NULL);
	return true;
}

static bool ends(
	const struct breaker_rules *r, int at, const struct op *op, long long *before, long long *behind, enum end *how)
{
	static const char good[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			  bad[] = "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno";
	int i = m.call[at].process, outcome = op->b % 3;
	bool counts = op->b / 3 % 4 != 0;
	struct linger hard = {1, 0};
	char text[256];
	struct answer a = {0};

	if (outcome == BREAKER_NEUTRAL) {
		a = ask(i, CLOSE, at);
	} else {
		if (!has_sent[at])
			a = ask(i, SEND, at);
		if (a.err == 0 && recv(peer[at], text, sizeof text, 0) > 0) {
			if (outcome == BREAKER_SUCCESS || !counts) {
				const char *say = outcome == BREAKER_SUCCESS ? good : bad;
				if (send(peer[at], say, strlen(say), MSG_NOSIGNAL) < 0)
					a.err = errno;
			} else {
				setsockopt(peer[at], SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
				go_back(at);
			}
			a = ask(i, RECEIVE, at);
		}
		if (a.err != (outcome == BREAKER_FAILURE && counts ? ECONNRESET : 0)) {
			snprintf(complaint, sizeof complaint, "the answer: %s", strerror(a.err));
			*how = BROKEN;
			return false;
		}
	}
	go_back(at);
	*before = a.before;
	*behind = a.behind;
	bool opened = region.destinations[destination].opened_total != m.n.opened;
	struct model early = m, late = m;
	early.now = a.before;
	late.now = a.behind;
	model_settle(&early, r, &early.call[at], outcome, counts, false, opened);
	model_settle(&late, r, &late.call[at], outcome, counts, false, opened);
	if (models_differ(&early, &late)) {
		*how = RIGHT_SO_FAR;
		return false;
	}
	m = late;
	return true;
}

static void dies(int i)
{
	end(i);
	m.is_dead[i] = true;
	for (int k = 0; k < CALLS; k++)
		if (m.call[k].is_live && m.call[k].process == i) {
			go_back(k);
			if (!m.call[k].is_probe || m.call[k].has_lost)
				m.call[k].is_live = false;
		}
}

/* One step: true when both agree behind it. */
static bool step(const struct breaker_rules *r, const struct op *op, enum end *how)
{
	long generation = m.generation;
	long long before, behind;
	int at;

	usleep((useconds_t)op->ms * 1000);
	for (m.now = now_ms(); is_at_an_edge(r); m.now = now_ms())
		usleep(5000);
	before = behind = m.now;
	switch (op->kind) {
	case OP_ADMIT:
		if (!connects(r, op->a % PROCESSES, &before, &behind, how))
			return *how == RIGHT_TO_THE_END;
		break;
	case OP_SETTLE:
		at = nth_live(&m, op->a);
		if (at < 0)
			return true;
		if (!ends(r, at, op, &before, &behind, how))
			return false;
		break;
	case OP_USE: /* what only connects is that from the beginning */
		at = nth_live(&m, op->a);
		if (at < 0 || (op->b & 1) || has_sent[at])
			return true;
		if (ask(m.call[at].process, SEND, at).err != 0) {
			snprintf(complaint, sizeof complaint, "a request cannot be sent");
			*how = BROKEN;
			return false;
		}
		has_sent[at] = true;
		m.call[at].is_unused = false;
		break;
	case OP_DIE:
		if (!m.is_dead[op->a % PROCESSES])
			dies(op->a % PROCESSES);
		break;
	case OP_FORCE: {
		long long lasts = op->b % 3 ? op->b % 7 * 700 : 0;
		if (destination < 0)
			return true;
		circuit_force(&region, (uint32_t)destination, (enum breaker_mode)(op->a % 4), (uint64_t)lasts,
			m.now * NS_PER_MS);
		set_mode(&m, r, op->a % 4, lasts);
		break;
	}
	case OP_RESET:
		if (destination < 0)
			return true;
		circuit_reset(&region, (uint32_t)destination, m.now * NS_PER_MS);
		move_to(&m, m.mode == BREAKER_FORCED_OPEN ? BREAKER_OPEN : BREAKER_CLOSED);
		m.wait = r->recovery_ms;
		m.until = m.healthy_since = m.now;
		break;
	default: break;
	}
	steps++;
	if (destination >= 0 && states_differ(r, generation, before, behind)) {
		*how = NOT_AS_THE_MODEL;
		return false;
	}
	if (behind - before > LATE_MS) {
		*how = RIGHT_SO_FAR;
		return false;
	}
	return true;
}

static int listen_on(int *at_port)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 128) != 0 ||
		getsockname(fd, (struct sockaddr *)&at, &len) != 0)
		abort();
	*at_port = ntohs(at.sin_port);
	return fd;
}

static bool is_short(void)
{
	long long all = 0;

	for (int i = 0; i < history.n; i++)
		all += history.ops[i].ms;
	return all <= LONGEST_MS && history.n >= 10;
}

static enum end replay(FILE *told)
{
	enum end how = RIGHT_TO_THE_END;
	const struct breaker_rules *r = &history.rules;
	char text[200];
	int i;

	alarm(PATIENCE_S + LONGEST_MS / 1000);
	signal(SIGPIPE, SIG_IGN);
	history.rules.slow_call_ms = 0;
	slack_ms = EDGE_MS;
	snprintf(dir, sizeof dir, "%s/resil-replay-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(dir))
		abort();
	configure(r);
	listen_on(&elsewhere);
	listener = listen_on(&port);
	for (i = 0; i < PROCESSES; i++)
		start(i);
	for (i = 0; i < CALLS; i++)
		peer[i] = -1;
	m.wait = r->recovery_ms;
	m.healthy_since = now_ms();
	for (i = 0; i < history.n; i++)
		if (!step(r, &history.ops[i], &how))
			break;
	for (int k = 0; k < PROCESSES; k++)
		end(k);
	fprintf(told, "%d %u\n", (int)how, steps);
	if (how == NOT_AS_THE_MODEL || how == BROKEN) {
		fprintf(told, "# %s\n", getenv("RESIL_SET"));
		for (int k = 0; k <= i && k < history.n; k++) {
			op_text(text, sizeof text, &history.ops[k]);
			fprintf(told, "#   %s\n", text);
		}
		fprintf(told, "# then %s\n", complaint);
		fprintf(told, "# the model: state %d mode %d, open for %lld ms, wait %lld, looked %lld ms ago", m.state,
			m.mode, m.until - m.now, m.wait, m.now - m.looked_at);
		for (int k = 0; k < CALLS; k++)
			if (m.call[k].is_live)
				fprintf(told, "; call %d of process %d%s%s%s, for %lld ms%s", k, m.call[k].process,
					m.is_dead[m.call[k].process] ? " (dead)" : "",
					m.call[k].is_probe ? ", a probe" : "", m.call[k].has_lost ? " (lost)" : "",
					m.now - m.call[k].taken_at, m.call[k].is_unused ? ", unused" : "");
		if (destination >= 0) {
			uint64_t word = region.destinations[destination].breaker;
			fprintf(told, "\n# the circuit: state %d mode %d, %u probes, open for %u ms",
				(int)breaker_state(word), (int)breaker_mode(word),
				lease_in_flight(&region, (uint32_t)destination),
				breaker_retry_after_ms(word, r, now_ms()));
		}
		fprintf(told, "\n");
	}
	snprintf(text, sizeof text, "rm -rf %s", dir);
	return system(text) == 0 ? how : BROKEN;
}

/* In a process of its own; what it says in a file. */
static pid_t replay_aside(FILE *told)
{
	pid_t pid = fork();

	if (pid == 0) {
		replay(told);
		fflush(told);
		_exit(0);
	}
	return pid;
}

int main(int argc, char **argv)
{
	static char exe[256];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
	unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 16, done = 0, whole = 0, part = 0, wrongly = 0;
	uint64_t from = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	unsigned long all = 0;

	if (len <= 0)
		return 1;
	self = exe;
	if (argc == 4 && strcmp(argv[1], "client") == 0)
		return client(atoi(argv[2]), atoi(argv[3]));
	if (!getenv("RESIL_TEST_SHIM")) {
		printf("1..0 # SKIP without RESIL_TEST_SHIM\n");
		return 0;
	}
	while (done < n) {
		FILE *told[AT_ONCE];
		uint64_t which[AT_ONCE];
		int at_once = 0;
		for (; at_once < AT_ONCE && done < n; at_once++, done++) {
			do
				make_history(from++);
			while (!is_short());
			which[at_once] = from - 1;
			told[at_once] = tmpfile();
			fflush(stdout);
			if (!told[at_once] || replay_aside(told[at_once]) < 0)
				return 1;
		}
		while (wait(NULL) > 0)
			;
		for (int i = 0; i < at_once; i++) {
			char line[700];
			int how = BROKEN;
			unsigned its = 0;
			rewind(told[i]);
			if (fscanf(told[i], "%d %u\n", &how, &its) != 2)
				printf("# history %llu did not end\n", (unsigned long long)which[i]);
			all += its;
			whole += how == RIGHT_TO_THE_END;
			part += how == RIGHT_SO_FAR;
			wrongly += how != RIGHT_TO_THE_END && how != RIGHT_SO_FAR;
			if (how != RIGHT_TO_THE_END && how != RIGHT_SO_FAR)
				printf("# history %llu:\n", (unsigned long long)which[i]);
			while (fgets(line, sizeof line, told[i]))
				fputs(line, stdout);
			fclose(told[i]);
		}
	}
	printf("# %u histories, %lu steps; %u to their end, %u until a step took too long\n", n, all, whole, part);
	tap_ok(wrongly == 0 && all > n / 2, "%u random histories replayed against real sockets, as the model (B2-B16)", n);
	return tap_done();
}
