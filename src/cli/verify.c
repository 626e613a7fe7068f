/* resil verify DEST -- COMMAND: what a program and its rules make of faults, tried one after another. Each trial has a
 * shared state of its own, so that no circuit that is in use is touched. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/place.h"
#include "cli/settings.h"
#include "control/nearby.h"
#include "control/params.h"
#include "core/circuit.h"
#include "core/faults.h"
#include "core/identity.h"
#include "core/registry.h"
#include "policy/fault.h"

#define GROUP "verify"
#define RUNS_MAX 50
#define SETTINGS_MAX 16
#define FALLBACK_RUNS 5
#define NAMES 8

static const struct trial {
	const char *name;
	const char *type, *parameters;
	bool is_slow; /* nothing but a limit ends it */
} trials[] = {
	{"refusal", "refuse", "", false},
	{"hang", "hang", "", true},
	{"drip", "slicer", " size=1 delay=250ms direction=down", true},
	{"reset", "reset", "", false},
	{"503", "http", " status=503", false},
};
#define TRIALS (sizeof trials / sizeof trials[0])

enum kept { NOT_PROMISED, KEPT, BROKEN, UNTRIED };
static const char *const kept_names[] = {"-", "yes", "NO", "untried"};

struct finding {
	enum kept opened, held, served, recovered;
	unsigned runs, killed;
	bool has_hit;			 /* the fault has met a call */
	int64_t longest_ns, rejected_ns; /* rejected: how long the call took that met the open circuit */
	char why[300];			 /* the first promise that was broken, or why nothing was tried */
};

struct verify {
	const char *destination, *config, *json_to;
	char **command;
	char *settings[SETTINGS_MAX]; /* -s, as given */
	int n_settings;
	int64_t timeout_ns, recovery_ns;
	bool is_json, is_verbose;
	int keeper; /* a socket to who clears up */
	pid_t keeper_pid;
	char dir[PATH_MAX], region[PATH_MAX], self[PATH_MAX];
	const struct policy *policy;
	bool has_fallback;
	int baseline;	   /* the command's code without a fault */
	char trouble[600]; /* why there is nothing to try; empty: there is */
	/* What its circuits are called: of key = address one for each address that its name has; of method and route
	 * also what begins so and has a blank behind it. */
	char names[NAMES][REGION_NAME_MAX + 1];
	int n_names;
	bool is_by_request;
};

/* The circuits of the destination, together. */
struct sight {
	enum breaker_state state; /* of the one that is farthest from closed */
	uint32_t retry_after_ms;
	uint64_t calls, success, failure, limits; /* limits: failures that a limit made */
	uint64_t hits;				  /* of faults, whatever the circuit */
};

/* ---- running ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path);
}

/* A process of its own clears up when this one is gone, killed or not: the run that is under way, of which it is told
 * (its process group; 0: none), and the folder. */
static void keep(const struct verify *v, int told)
{
	pid_t running = 0, pid;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	setsid();
	while (recv(told, &pid, sizeof pid, 0) == sizeof pid)
		running = pid;
	if (running > 1)
		kill(-running, SIGKILL);
	/* What is being killed may write once more. */
	for (int i = 0; i < 100 && access(v->dir, F_OK) == 0; i++) {
		nftw(v->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
		usleep(i ? 10000 : 0);
	}
	_exit(0);
}

static bool start_keeper(struct verify *v)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return false;
	v->keeper = ends[1];
	v->keeper_pid = fork();
	if (v->keeper_pid == 0) {
		close(ends[1]);
		keep(v, ends[0]);
	}
	close(ends[0]);
	return v->keeper_pid > 0;
}

static void tell_keeper(const struct verify *v, pid_t running)
{
	send(v->keeper, &running, sizeof running, MSG_NOSIGNAL);
}

static void remove_state(const struct verify *v)
{
	close(v->keeper);
	waitpid(v->keeper_pid, NULL, 0);
}

/* Becomes `resil run ... -- COMMAND`. */
static void become(const struct verify *v, const char *fault)
{
	char *argv[64 + 2 * SETTINGS_MAX];
	int n = 0, null = open("/dev/null", O_RDWR | O_CLOEXEC);
	argv[n++] = (char *)(uintptr_t)v->self;
	argv[n++] = "run";
	argv[n++] = "-g";
	argv[n++] = GROUP;
	if (v->config) {
		argv[n++] = "-c";
		argv[n++] = (char *)(uintptr_t)v->config;
	}
	for (int i = 0; i < v->n_settings; i++) {
		argv[n++] = "-s";
		argv[n++] = v->settings[i];
	}
	if (fault) {
		argv[n++] = "--fault";
		argv[n++] = (char *)(uintptr_t)fault;
	}
	argv[n++] = "--";
	for (int i = 0; v->command[i] && n < (int)(sizeof argv / sizeof argv[0]) - 1; i++)
		argv[n++] = v->command[i];
	argv[n] = NULL;
	dup2(null, 0);
	if (!v->is_verbose) {
		dup2(null, 1);
		dup2(null, 2);
	} else {
		dup2(2, 1);
	}
	setpgid(0, 0);
	/* Before the end of it that it has is closed: it is known before this process may be found gone. */
	tell_keeper(v, getpid());
	setenv("RESIL_STATE_DIR", v->dir, 1);
	execv(v->self, argv);
	_exit(RUN_FAILED);
}

/* Runs the command once; its code, 128 + n for a signal, -1 when it had to be ended. */
static int run_once(const struct verify *v, const char *fault, int64_t *took_ns)
{
	int64_t begun = clock_now_ns();
	int status;
	pid_t pid = fork();
	if (pid == 0)
		become(v, fault);
	if (pid < 0)
		return RUN_FAILED;
	bool is_killed = false;
	while (waitpid(pid, &status, is_killed ? 0 : WNOHANG) == 0) {
		if (clock_now_ns() - begun >= v->timeout_ns) {
			kill(-pid, SIGKILL);
			kill(pid, SIGKILL);
			is_killed = true;
			continue;
		}
		usleep(5000);
	}
	tell_keeper(v, 0);
	*took_ns = clock_now_ns() - begun;
	if (is_killed)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool is_its(const struct verify *v, const char *name)
{
	for (int i = 0; i < v->n_names; i++) {
		size_t n = strlen(v->names[i]);
		if (strncasecmp(name, v->names[i], n) == 0 && (!name[n] || (v->is_by_request && name[n] == ' ')))
			return true;
	}
	return false;
}

static uint64_t kinds_of_limits(const struct circuit_view *v)
{
	return v->kinds[FAILURE_CONNECT_TIMEOUT] + v->kinds[FAILURE_ANSWER_TIMEOUT] + v->kinds[FAILURE_STALL_TIMEOUT] +
	       v->kinds[FAILURE_DEADLINE];
}

/* The circuits as they are; false: the destination has not been used. */
static bool look(const struct verify *v, struct sight *sight)
{
	struct region r;
	bool is_used = false;
	memset(sight, 0, sizeof *sight);
	sight->state = BREAKER_CLOSED;
	if (region_open(&r, v->region, true) != 0)
		return false;
	for (int i = registry_next(&r, 0); i >= 0; i = registry_next(&r, (uint32_t)i + 1)) {
		char name[REGION_NAME_MAX + 1];
		struct circuit_view one;
		registry_name(&r, (uint32_t)i, name);
		if (!is_its(v, name))
			continue;
		is_used = true;
		circuit_view(&r, (uint32_t)i, clock_now_ns(), &one);
		if (one.state == BREAKER_OPEN || sight->state == BREAKER_CLOSED)
			sight->state = one.state;
		if (one.retry_after_ms > sight->retry_after_ms)
			sight->retry_after_ms = one.retry_after_ms;
		sight->calls += render_total_calls(&one);
		sight->success += one.success;
		sight->failure += one.failure;
		sight->limits += kinds_of_limits(&one);
	}
	char fault[32], destination[REGION_NAME_MAX + 1];
	uint64_t hits;
	for (int i = 0; (i = faults_next_count(&r, (uint32_t)i, fault, destination, &hits)) >= 0; i++)
		sight->hits += hits;
	region_close(&r);
	return is_used;
}

/* Whom the command has called, whoever that is. */
static void tell_called(const struct verify *v, struct text *t)
{
	struct region r;
	unsigned n = 0;
	if (region_open(&r, v->region, true) != 0)
		return;
	for (int i = registry_next(&r, 0); i >= 0 && n < NAMES; i = registry_next(&r, (uint32_t)i + 1), n++) {
		char name[REGION_NAME_MAX + 1];
		registry_name(&r, (uint32_t)i, name);
		if (t->len + strlen(name) + 32 < t->cap)
			text_fmt(t, "%s%s", n ? ", " : "; it called ", name);
	}
	region_close(&r);
}

/* ---- a trial ---- */

static void breaks(struct finding *f, enum kept *promise, const char *why)
{
	*promise = BROKEN;
	if (!f->why[0])
		snprintf(f->why, sizeof f->why, "%s", why);
}

static bool has_limit(const struct trial *t, const struct policy *p)
{
	if (strcmp(t->type, "hang") == 0)
		return p->connect_timeout_ns || p->deadline_ns;
	return p->deadline_ns != 0;
}

/* The fault has met no call: nothing is known of any promise. */
static void judge_untried(const struct verify *v, const struct trial *t, struct finding *f, const struct sight *seen)
{
	struct text why = {.at = f->why, .cap = sizeof f->why};
	f->why[0] = '\0';
	f->opened = UNTRIED;
	f->held = t->is_slow ? UNTRIED : NOT_PROMISED;
	f->served = v->has_fallback ? UNTRIED : NOT_PROMISED;
	if (seen->calls == 0) {
		text_fmt(&why, "untried: the command made no call to %s in %u runs with the fault (without, it did)",
			v->destination, f->runs);
		tell_called(v, &why);
		text_str(&why, "; one that calls it each time is due");
		return;
	}
	text_fmt(&why,
		"untried: the fault met none of the %llu calls that its circuit counted; "
		"DEST as the command calls it is due, not %s",
		(unsigned long long)seen->calls, v->destination);
}

static void judge_faulted(
	const struct verify *v, const struct trial *t, struct finding *f, const struct sight *seen, bool is_open)
{
	if (seen->hits == 0 && !is_open) {
		judge_untried(v, t, f, seen);
		return;
	}
	const struct policy *p = v->policy;
	bool is_limited = has_limit(t, p), ends = !t->is_slow || is_limited;
	char why[200];
	if (p->breaker == POLICY_BREAKER_ON && p->rules.failure_threshold && ends) {
		f->opened = KEPT;
		if (!is_open) {
			snprintf(why, sizeof why, "the circuit stayed %s after %u runs with %llu failures",
				breaker_state_name(seen->state), f->runs, (unsigned long long)seen->failure);
			breaks(f, &f->opened, why);
		}
	}
	if (t->is_slow && is_limited) {
		f->held = KEPT;
		if (f->killed)
			breaks(f, &f->held, "a run did not end, though a limit is set");
		else if (seen->limits == 0)
			breaks(f, &f->held, "no limit was met");
	} else if (t->is_slow && f->killed) {
		snprintf(f->why, sizeof f->why, "it hung: no %s is set",
			strcmp(t->type, "hang") == 0 ? "connect_timeout or deadline" : "deadline");
	}
}

/* The fault is lifted: is the program itself again, and the circuit closed? */
static void recover(const struct verify *v, struct finding *f)
{
	int64_t until = clock_now_ns() + v->recovery_ns, took;
	struct sight seen = {.state = BREAKER_CLOSED};
	int code = -1;
	f->recovered = KEPT;
	do {
		if (look(v, &seen) && seen.state == BREAKER_OPEN && seen.retry_after_ms > 0) {
			usleep(seen.retry_after_ms < 1000 ? seen.retry_after_ms * 1000 : 1000000);
			continue;
		}
		code = run_once(v, NULL, &took);
		if (code == v->baseline && (!look(v, &seen) || seen.state == BREAKER_CLOSED))
			return;
		usleep(50000);
	} while (clock_now_ns() < until);
	char why[200];
	char within[24];
	ms_text(within, sizeof within, (uint64_t)(v->recovery_ns / NS_PER_MS));
	snprintf(why, sizeof why, "%s after it was lifted: code %d (%d without a fault), circuit %s", within, code,
		v->baseline, breaker_state_name(seen.state));
	breaks(f, &f->recovered, why);
}

static void try_one(const struct verify *v, const struct trial *t, struct finding *f)
{
	char fault[FAULT_SPEC_MAX + 1];
	struct sight seen = {.state = BREAKER_CLOSED};
	bool is_used = false, is_open = false;
	int64_t took = 0;
	int code = 0;
	unsigned most = v->policy->rules.failure_threshold + 2;
	memset(f, 0, sizeof *f);
	snprintf(fault, sizeof fault, "%s %s%s", t->type, v->destination, t->parameters);
	unlink(v->region);
	if (most > RUNS_MAX)
		most = RUNS_MAX;
	while (f->runs < most && !is_open) {
		code = run_once(v, fault, &took);
		f->runs++;
		f->killed += code < 0;
		f->longest_ns = took > f->longest_ns ? took : f->longest_ns;
		is_used = look(v, &seen);
		is_open = is_used && seen.state != BREAKER_CLOSED;
		if (code < 0 && !has_limit(t, v->policy))
			break; /* the others would hang as well */
	}
	f->has_hit = seen.hits > 0;
	judge_faulted(v, t, f, &seen, is_open);
	if (!f->has_hit && !is_open) {
		recover(v, f);
		if (f->recovered == KEPT)
			f->recovered = UNTRIED;
		return;
	}
	/* A run that meets the open circuit: at once, and where there is a fallback, served. */
	if (is_open) {
		code = run_once(v, fault, &took);
		f->rejected_ns = took;
	}
	if (v->has_fallback) {
		/* One that comes when a probe is due is the probe, and may fail. */
		for (int i = 0; i < FALLBACK_RUNS && code != v->baseline; i++)
			code = run_once(v, fault, &took);
		f->served = KEPT;
		if (code != v->baseline)
			breaks(f, &f->served, "the fallback did not serve the program");
	}
	recover(v, f);
}

/* ---- reports ---- */

static bool is_broken(const struct finding *f)
{
	return f->opened >= BROKEN || f->held >= BROKEN || f->served >= BROKEN || f->recovered >= BROKEN;
}

static void print_table(const struct finding *found)
{
	static const char *const headers[] = {
		"FAULT", "OPENED", "HELD", "FALLBACK", "RECOVERED", "RUNS", "LONGEST", "REMARK"};
	struct table *t = table_new(headers, 8);
	for (size_t i = 0; i < TRIALS; i++) {
		char runs[16], longest[24];
		const struct finding *f = &found[i];
		snprintf(runs, sizeof runs, "%u", f->runs);
		ms_text(longest, sizeof longest, (uint64_t)(f->longest_ns / NS_PER_MS));
		const char *cells[] = {trials[i].name, kept_names[f->opened], kept_names[f->held],
			kept_names[f->served], kept_names[f->recovered], runs, longest, f->why[0] ? f->why : "-"};
		table_row(t, cells);
	}
	table_print(t);
}

static void json_kept(struct text *t, const char *name, enum kept kept)
{
	static const char *const values[] = {"null", "true", "false", "null"};
	text_fmt(t, ",\"%s\":%s", name, values[kept]);
}

static void print_json(const struct verify *v, const struct finding *found, bool is_kept)
{
	static char at[16384];
	struct text t = TEXT_ON(at);
	text_str(&t, "{\"destination\":");
	text_json(&t, v->destination);
	text_fmt(&t, ",\"kept\":%s,\"trouble\":", is_kept ? "true" : "false");
	if (v->trouble[0])
		text_json(&t, v->trouble);
	else
		text_str(&t, "null");
	text_str(&t, ",\"faults\":[");
	for (size_t i = 0; i < TRIALS && found; i++) {
		const struct finding *f = &found[i];
		text_fmt(&t, "%s{\"fault\":\"%s\",\"tried\":%s", i ? "," : "", trials[i].name,
			f->has_hit ? "true" : "false");
		json_kept(&t, "opened", f->opened);
		json_kept(&t, "held", f->held);
		json_kept(&t, "fallback", f->served);
		json_kept(&t, "recovered", f->recovered);
		text_fmt(&t, ",\"runs\":%u,\"longest_ms\":%lld,\"rejected_ms\":", f->runs,
			(long long)(f->longest_ns / NS_PER_MS));
		if (f->rejected_ns)
			text_i64(&t, f->rejected_ns / NS_PER_MS);
		else
			text_str(&t, "null");
		text_str(&t, ",\"remark\":");
		text_json(&t, f->why);
		text_char(&t, '}');
	}
	text_str(&t, "]}");
	puts(at);
}

static void xml_text(FILE *to, const char *s)
{
	for (; *s; s++) {
		if (*s == '<')
			fputs("&lt;", to);
		else if (*s == '&')
			fputs("&amp;", to);
		else if (*s == '"')
			fputs("&quot;", to);
		else
			fputc((unsigned char)*s < 0x20 ? ' ' : *s, to);
	}
}

/* A test case a promise. */
static bool write_junit(const struct verify *v, const struct finding *found)
{
	FILE *to = fopen(v->json_to, "we");
	unsigned tests = !found, failures = 0, errors = !found;
	if (!to)
		return false;
	for (size_t i = 0; i < TRIALS && found; i++) {
		const enum kept all[] = {found[i].opened, found[i].held, found[i].served, found[i].recovered};
		for (int k = 0; k < 4; k++) {
			tests += all[k] != NOT_PROMISED;
			failures += all[k] == BROKEN;
			errors += all[k] == UNTRIED;
		}
	}
	fprintf(to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"resil verify ");
	xml_text(to, v->destination);
	fprintf(to, "\" tests=\"%u\" failures=\"%u\" errors=\"%u\">\n", tests, failures, errors);
	if (!found) {
		fputs("  <testcase classname=\"none\" name=\"it calls the destination\"><error message=\"", to);
		xml_text(to, v->trouble);
		fputs("\"/></testcase>\n", to);
	}
	for (size_t i = 0; i < TRIALS && found; i++) {
		static const char *const names[] = {
			"the circuit opened", "the deadline held", "the fallback served", "it recovered"};
		const struct finding *f = &found[i];
		const enum kept all[] = {f->opened, f->held, f->served, f->recovered};
		for (int k = 0; k < 4; k++) {
			if (all[k] == NOT_PROMISED)
				continue;
			fprintf(to, "  <testcase classname=\"%s\" name=\"%s\" time=\"%lld.%03lld\"", trials[i].name,
				names[k], (long long)(f->longest_ns / NS_PER_S),
				(long long)(f->longest_ns / NS_PER_MS % 1000));
			if (all[k] == KEPT) {
				fputs("/>\n", to);
				continue;
			}
			fprintf(to, "><%s message=\"", all[k] == UNTRIED ? "error" : "failure");
			xml_text(to, f->why);
			fputs("\"/></testcase>\n", to);
		}
	}
	fputs("</testsuite>\n", to);
	bool is_well = !ferror(to);
	return fclose(to) == 0 && is_well;
}

/* ---- the verb ---- */

static void add_name(struct verify *v, const struct addr *a)
{
	struct text t = TEXT_ON(v->names[v->n_names]);
	addr_text(&t, a);
	v->n_names++;
}

static void name_circuits(struct verify *v, const struct place *p)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	enum policy_key key = v->policy->key;
	v->is_by_request = key == POLICY_KEY_METHOD || key == POLICY_KEY_ROUTE;
	if (key == POLICY_KEY_SECTION && v->policy->section[0]) {
		text_copy(v->names[v->n_names++], sizeof v->names[0], v->policy->section);
	} else if ((key == POLICY_KEY_ADDRESS || key == POLICY_KEY_SECTION) && p->name[0]) {
		if (getaddrinfo(p->name, NULL, &hints, &found) != 0)
			return;
		for (const struct addrinfo *i = found; i && v->n_names < NAMES; i = i->ai_next) {
			struct addr a;
			if (!addr_from_sockaddr(&a, i->ai_addr, i->ai_addrlen))
				continue;
			a.port = p->addr.port;
			add_name(v, &a);
		}
		freeaddrinfo(found);
	} else {
		text_copy(v->names[v->n_names++], sizeof v->names[0], p->shown);
	}
}

static bool prepare(struct verify *v)
{
	const char *base = getenv("TMPDIR");
	char file[160];
	ssize_t n = readlink("/proc/self/exe", v->self, sizeof v->self - 1);
	if (n <= 0)
		return false;
	v->self[n] = '\0';
	snprintf(v->dir, sizeof v->dir, "%.200s/resil-verify-XXXXXX", base && *base ? base : "/tmp");
	if (!identity_region_file(file, sizeof file, GROUP, 0))
		return false;
	/* A folder that is there has its keeper. */
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	bool is_kept = mkdtemp(v->dir) && start_keeper(v);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return is_kept && snprintf(v->region, sizeof v->region, "%s/%s", v->dir, file) < (int)sizeof v->region;
}

static bool in_vain(struct verify *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool in_vain(struct verify *v, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	vsnprintf(v->trouble, sizeof v->trouble, format, ap);
	va_end(ap);
	fprintf(stderr, "resil verify: %s\n", v->trouble);
	return false;
}

/* Once without a fault: does it use the destination, and what is its code? */
static bool take_baseline(struct verify *v)
{
	struct sight seen;
	int64_t took;
	v->baseline = run_once(v, NULL, &took);
	if (v->baseline >= RUN_FAILED && v->baseline <= RUN_ABSENT) {
		return in_vain(v, "%s cannot be run under the shim ('resil run' says why)", v->command[0]);
	}
	if (v->baseline < 0) {
		return in_vain(v, "without a fault, %s did not end within its time (--timeout)", v->command[0]);
	}
	if (!look(v, &seen) || seen.calls == 0) {
		char called[400] = "";
		struct text t = TEXT_ON(called);
		tell_called(v, &t);
		return in_vain(v, "%s made no call to %s%s: %s", v->command[0], v->destination, called,
			called[0] ? "DEST as it is called there is due"
				  : "it made none at all that the shim sees ('resil doctor' tells why)");
	}
	if (seen.failure && !seen.success) {
		return in_vain(v, "without a fault, what %s asks of %s fails as well: there is nothing to compare with",
			v->command[0], v->destination);
	}
	if (v->baseline != 0)
		fprintf(stderr, "resil verify: without a fault, %s ends with code %d: that counts as well\n",
			v->command[0], v->baseline);
	return true;
}

static int verify(struct verify *v)
{
	static struct finding found[TRIALS];
	bool is_kept = true;
	if (!prepare(v)) {
		perror("resil verify: a folder for its state");
		return EXIT_FAILED;
	}
	if (!take_baseline(v)) {
		remove_state(v);
		if (v->is_json)
			print_json(v, NULL, false);
		if (v->json_to && !write_junit(v, NULL))
			fprintf(stderr, "resil verify: %s: %s\n", v->json_to, strerror(errno));
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < TRIALS; i++) {
		if (!v->is_json && isatty(2))
			fprintf(stderr, "resil verify: %s ...\n", trials[i].name);
		try_one(v, &trials[i], &found[i]);
		is_kept &= !is_broken(&found[i]);
	}
	remove_state(v);
	if (v->is_json)
		print_json(v, found, is_kept);
	else
		print_table(found);
	if (v->json_to && !write_junit(v, found)) {
		fprintf(stderr, "resil verify: %s: %s\n", v->json_to, strerror(errno));
		return EXIT_FAILED;
	}
	return is_kept ? EXIT_DONE : EXIT_FAILED;
}

static int run_verify(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {{"config", required_argument, NULL, 'c'},
		{"set", required_argument, NULL, 's'}, {"timeout", required_argument, NULL, 't'},
		{"recovery", required_argument, NULL, 'r'}, {"junit", required_argument, NULL, 'u'},
		{"json", no_argument, NULL, 'j'}, {"verbose", no_argument, NULL, 'v'}, {"help", no_argument, NULL, 'h'},
		{0}};
	struct verify v = {.timeout_ns = 60 * NS_PER_S, .recovery_ns = 90 * NS_PER_S};
	struct options o = {0};
	struct settings s;
	struct place place;
	char set[CONFIG_SET_MAX + 1] = "";
	struct text all = TEXT_ON(set);
	char *destination = NULL;
	int option;

	/* Options stand before the destination and behind it, up to the command. */
	while ((option = getopt_long(argc, argv, "+c:s:jvh", longs, NULL)) != -1 || (!v.destination && optind < argc)) {
		switch (option) {
		case -1: v.destination = destination = argv[optind++]; break;
		case 'c': v.config = optarg; break;
		case 's':
			if (v.n_settings == SETTINGS_MAX)
				return usage_error(
					verb, "-s %d times at most; KEY=VALUE;KEY=VALUE is one", SETTINGS_MAX);
			v.settings[v.n_settings++] = optarg;
			text_fmt(&all, "%s%s", set[0] ? ";" : "", optarg);
			break;
		case 't':
		case 'r': {
			int wrong = option_time(verb, optarg, option == 't' ? &v.timeout_ns : &v.recovery_ns);
			if (wrong >= 0)
				return wrong;
			break;
		}
		case 'u': v.json_to = optarg; break;
		case 'v': v.is_verbose = true; break;
		default: {
			int code = options_take(verb, &o, option);
			if (code >= 0)
				return code;
		}
		}
	}
	v.is_json = o.is_json;
	if (optind >= argc)
		return usage_error(verb, "a destination and a command are due: resil verify DEST -- COMMAND");
	v.command = argv + optind;
	const char *wrong = place_read(destination, &place);
	if (wrong)
		return usage_error(verb, "'%s': %s", v.destination, wrong);
	if (place.is_said || place.request[0])
		return usage_error(verb, "faults meet connections: where they lead to is due, as in api.internal:443");
	v.destination = place.shown;
	if (!settings_load(&s, v.config, set[0] ? set : own_getenv("RESIL_SET")))
		return EXIT_FAILED;
	if (s.faults) {
		settings_print_errors(&s);
		return EXIT_USAGE;
	}
	/* The rule by name; one by address alone needs the address. */
	struct target target = {.addr = &place.addr, .name = place.name[0] ? place.name : NULL, .exe = ""};
	v.policy = config_match(s.config, &target, NULL);
	if (!v.policy)
		return usage_error(verb, "%s is not guarded: no match names it", v.destination);
	v.has_fallback = v.policy->fallback != NULL;
	name_circuits(&v, &place);
	int code = verify(&v);
	settings_free(&s);
	return code;
}

const struct verb verb_verify = {
	.name = "verify",
	.arguments = "[-c FILE] [-s KEY=VALUE]... [--timeout TIME] [--recovery TIME] [--json] [--junit FILE] [-v] DEST "
		     "-- COMMAND "
		     "[ARGUMENT]...",
	.summary = "injects faults one after another and reports which promises were kept",
	.help = "Runs COMMAND again and again while its calls to DEST are refused, hang, drip, are reset, and get 503, "
		"and "
		"tells for each\nwhether the circuit opened, the limit ended what hung, the fallback served, and the "
		"program "
		"recovered once the fault was\nlifted. What the configuration does not promise is -. The state is its "
		"own: no "
		"circuit in use is touched.\nRun it with short limits, or it waits for each: -s connect_timeout=500ms "
		"-s "
		"deadline=1s -s recovery_timeout=500ms.\n\n"
		"Options:\n"
		"  -c, --config FILE    this configuration (default: the one a program started here would have)\n"
		"  -s, --set KEY=VALUE  overrides a value of [defaults]; may repeat\n"
		"      --timeout TIME   a run that takes longer is ended, and has hung (60s)\n"
		"      --recovery TIME  a program that is not itself again so long after a fault was lifted never is "
		"(90s)\n"
		"      --junit FILE     writes a test case for each promise\n"
		"  -j, --json           JSON\n"
		"  -v, --verbose        shows what COMMAND says\n\n"
		"Example:\n  resil verify -s deadline=1s api.internal:80 -- curl -sSf http://api.internal/\n\n"
		"Exit codes: 0 every promise was kept, 1 one was not or it could not be tried, 2 wrong usage or "
		"configuration.\n",
	.run = run_verify,
};
