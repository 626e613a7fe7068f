/* Names learned from look-ups (policy/names.h): which name an address belongs to, and which others make one call with
 * it (A3, A13). */
#include "policy/names.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tap.h"

static struct addr ip(const char *s)
{
	struct addr a;
	memset(&a, 0, sizeof a);
	if (!addr_from_literal(&a, s))
		tap_ok(false, "'%s' is a literal", s);
	return a;
}

static bool is_named(const char *address, const char *name)
{
	struct addr a = ip(address);
	struct name_ref ref;
	char text[NAMES_MAX + 1];
	if (!names_find(&a, &ref) || !names_text(&ref, text))
		return name == NULL;
	return name && strcmp(text, name) == 0;
}

static void learn(const char *name, int64_t at_ns, const char *a, const char *b)
{
	struct addr list[2] = {ip(a)};
	if (b)
		list[1] = ip(b);
	names_learn(name, list, b ? 2 : 1, at_ns - 5, at_ns);
}

static void *find_elsewhere(void *arg)
{
	bool *ok = arg;
	/* Another thread has made no look-up: the process's latest counts. */
	*ok = is_named("10.9.9.9", "second.test");
	learn("third.test", 40 * NS_PER_S, "10.9.9.9", NULL);
	*ok = *ok && is_named("10.9.9.9", "third.test");
	return NULL;
}

static void names_and_addresses(void)
{
	tap_ok(is_named("10.0.0.1", NULL), "nothing is known before a look-up");
	learn("API.Internal.", NS_PER_S, "10.0.0.1", "fd00::1");
	tap_ok(is_named("10.0.0.1", "api.internal"), "a name is kept in lower case, without its trailing dot");
	tap_ok(is_named("fd00::1", "api.internal"), "each address of a look-up leads to its name (A3)");
	tap_ok(is_named("::ffff:10.0.0.1", "api.internal"), "a v4-mapped address is the same address");
	learn("10.0.0.7", NS_PER_S, "10.0.0.7", NULL);
	tap_ok(is_named("10.0.0.7", NULL), "a literal is no name");

	struct addr a = ip("10.0.0.1"), b = ip("fd00::1");
	struct name_ref one, two;
	tap_ok(names_find(&a, &one) && names_find(&b, &two) && one.entry == two.entry && one.bit != two.bit &&
			one.current == (1u << one.bit | 1u << two.bit),
		"the addresses of one look-up share a mask (A3)");
	learn("api.internal", 3 * NS_PER_S, "10.0.0.2", NULL);
	tap_ok(names_find(&a, &one) && !(one.current & 1u << one.bit),
		"an address of an older look-up keeps its name, and is no longer current");
	learn("api.internal", 3 * NS_PER_S + NS_PER_S / 2, "fd00::2", NULL);
	a = ip("10.0.0.2");
	b = ip("fd00::2");
	tap_ok(names_find(&a, &one) && names_find(&b, &two) && (one.current & 1u << two.bit),
		"two look-ups of a name within a second are one: its two families");
}

static void latest_wins(void)
{
	bool ok = false;
	pthread_t t;
	learn("first.test", 10 * NS_PER_S, "10.9.9.9", NULL);
	learn("second.test", 20 * NS_PER_S, "10.9.9.9", NULL);
	pthread_create(&t, NULL, find_elsewhere, &ok);
	pthread_join(t, NULL);
	tap_ok(ok, "without a look-up of its own a thread takes the process's latest (A13)");
	tap_ok(is_named("10.9.9.9", "second.test"), "a thread's own latest look-up goes first (A13)");
}

static void many(void)
{
	char name[64], address[32];
	int wrong = 0;
	for (int i = 0; i < 5000; i++) {
		snprintf(name, sizeof name, "host-%d.test", i);
		snprintf(address, sizeof address, "10.%d.%d.%d", 1 + i / 65536, i / 256 % 256, i % 256);
		learn(name, (100 + i) * NS_PER_S, address, NULL);
		wrong += !is_named(address, name);
	}
	tap_ok(wrong == 0, "the latest of five thousand names is always known (%d wrong)", wrong);
	int known = 0;
	for (int i = 4900; i < 5000; i++) {
		snprintf(name, sizeof name, "host-%d.test", i);
		snprintf(address, sizeof address, "10.%d.%d.%d", 1 + i / 65536, i / 256 % 256, i % 256);
		known += is_named(address, name);
	}
	tap_ok(known >= 95, "most of the last hundred are still known (%d)", known);
	/* Looked up once and connected to for ten hours, while the process looks up a name a second. */
	learn("kept.test", 20000 * NS_PER_S, "203.0.113.9", "2001:db8::1");
	wrong = 0;
	for (int i = 0; i < 36000; i++) {
		snprintf(name, sizeof name, "crawled%d.test", i);
		snprintf(address, sizeof address, "11.%d.%d.%d", i >> 16, (i >> 8) & 255, i & 255);
		learn(name, (20001 + i) * NS_PER_S, address, NULL);
		if (i % 100 == 0)
			wrong += !is_named(i % 200 ? "203.0.113.9" : "2001:db8::1", "kept.test");
	}
	tap_ok(wrong == 0, "a name in use is kept for hours, whatever else is looked up (%d of 360 times it was not)",
		wrong);

	struct addr list[40];
	for (int i = 0; i < 40; i++) {
		snprintf(address, sizeof address, "172.16.0.%d", i);
		list[i] = ip(address);
	}
	names_learn("wide.test", list, 40, 1, 6000 * NS_PER_S);
	tap_ok(is_named("172.16.0.0", "wide.test") && is_named("172.16.0.31", "wide.test") &&
			is_named("172.16.0.39", NULL),
		"of forty addresses the first thirty-two are kept");
}

struct race {
	_Atomic bool stop;
	_Atomic int torn;
};

static void *writer(void *arg)
{
	struct race *r = arg;
	for (int i = 0; !r->stop; i++)
		learn(i % 2 ? "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.test" : "b.test", (7000 + i) * NS_PER_S, "192.0.2.1",
			"192.0.2.2");
	return NULL;
}

static void *reader(void *arg)
{
	struct race *r = arg;
	struct addr a = ip("192.0.2.1");
	while (!r->stop) {
		struct name_ref ref;
		char text[NAMES_MAX + 1];
		if (names_find(&a, &ref) && names_text(&ref, text) && strcmp(text, "b.test") != 0 &&
			strcmp(text, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.test") != 0)
			r->torn++;
	}
	return NULL;
}

/* Forks while other threads write: the child must find no entry locked, and learn at once. */
static void races_and_forks(void)
{
	struct race r = {0};
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, i < 2 ? writer : reader, &r);
	int bad = 0;
	for (int i = 0; i < 200; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			names_forked();
			learn("child.test", 9000 * NS_PER_S, "198.51.100.1", NULL);
			_exit(is_named("198.51.100.1", "child.test") ? 0 : 1);
		}
		int status;
		waitpid(pid, &status, 0);
		bad += status != 0;
	}
	r.stop = true;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	tap_ok(r.torn == 0, "a reader never meets half a name");
	tap_ok(bad == 0, "a child forked in the middle of look-ups learns names of its own (%d of 200 did not)", bad);
}

static void *take_elsewhere(void *arg)
{
	const struct name_ref *ref = arg;
	return (void *)(uintptr_t)names_take_look_up(ref->entry, 2000 * NS_PER_S + 9);
}

/* Which look-up a call goes on from (C3). */
static void look_ups_and_calls(void)
{
	struct addr a = ip("10.77.0.1"), b = ip("fd77::1"), other = ip("10.77.0.2");
	struct name_ref ref, another;
	pthread_t thread;
	void *began;
	names_learn("slow.test", &a, 1, 2000 * NS_PER_S - 7, 2000 * NS_PER_S);
	names_learn("other.test", &other, 1, 2000 * NS_PER_S - 3, 2000 * NS_PER_S);
	names_find(&a, &ref);
	names_find(&other, &another);
	pthread_create(&thread, NULL, take_elsewhere, &ref);
	pthread_join(thread, &began);
	tap_ok((int64_t)(uintptr_t)began == 2000 * NS_PER_S - 7,
		"a call on another thread begins with the look-up of its name");
	tap_ok(names_take_look_up(ref.entry, 2000 * NS_PER_S + 9) == 0, "once");
	tap_ok(names_take_look_up(another.entry, 2001 * NS_PER_S) == 0, "not with one of a second ago");
	names_learn("slow.test", &a, 1, 2010 * NS_PER_S, 2010 * NS_PER_S + 5);
	names_learn("slow.test", &b, 1, 2010 * NS_PER_S + 6, 2010 * NS_PER_S + 9);
	tap_ok(names_take_look_up(ref.entry, 2010 * NS_PER_S + 9) == 2010 * NS_PER_S,
		"A and AAAA one after another are one look-up, from the first on");
	tap_ok(names_take_look_up(UINT32_MAX, 1) == 0, "no entry, no look-up");
}

static _Atomic int arrived;

/* Each round a new name for an address of this thread's own. */
static void *learn_beside(void *arg)
{
	const char *who = arg;
	uintptr_t missed = 0;
	for (int i = 0; i < 2000; i++) {
		char name[40], address[40];
		snprintf(name, sizeof name, "%s%d.test", who, i);
		snprintf(address, sizeof address, "10.%d.%d.%d", who[0] == 'x' ? 81 : 82, i / 250, i % 250);
		/* At the same moment: a barrier of libc's would wake one after the other. */
		arrived++;
		while (arrived < 2 * (i + 1))
			;
		learn(name, (100000 + i) * NS_PER_S, address, NULL);
		missed += !is_named(address, name);
	}
	return (void *)missed;
}

static void side_by_side(void)
{
	pthread_t x, y;
	void *a, *b;
	pthread_create(&x, NULL, learn_beside, (void *)(uintptr_t) "x");
	pthread_create(&y, NULL, learn_beside, (void *)(uintptr_t) "y");
	pthread_join(x, &a);
	pthread_join(y, &b);
	if (!tap_ok(!a && !b, "two threads look a new name each up at the same time: both are learnt (A13)"))
		printf("# %lu and %lu were not\n", (unsigned long)(uintptr_t)a, (unsigned long)(uintptr_t)b);
}

int main(void)
{
	names_and_addresses();
	look_ups_and_calls();
	latest_wins();
	many();
	races_and_forks();
	side_by_side();
	return tap_done();
}
