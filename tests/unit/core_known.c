/* The last good answers in a region (core/known.h): what is found, how old it may be, what gives way, and what a torn
 * or mad slot does (D9, E10). */
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "core/known.h"
#include "tap.h"

static struct region region;
static struct addr found[REGION_KNOWN_ADDRESSES];
static int64_t age;

static struct addr literal(const char *s)
{
	struct addr a;
	if (!addr_from_literal(&a, s))
		abort();
	return a;
}

/* Found, as text: "10.0.0.1,fd00::1". */
static const char *find(const char *name, int family, int64_t max_age, int64_t now)
{
	static char bytes[4096];
	struct text t = TEXT_ON(bytes);
	bytes[0] = '\0';
	unsigned n = known_find(&region, name, family, max_age, now, found, &age);
	for (unsigned i = 0; i < n; i++) {
		text_str(&t, i ? "," : "");
		addr_host_text(&t, &found[i]);
	}
	return bytes;
}

static void is(const char *got, const char *want, const char *what)
{
	if (!tap_ok(strcmp(got, want) == 0, "%s", what))
		printf("# got: %s\n# want: %s\n", got, want);
}

static void test_families(void)
{
	struct addr both[] = {literal("10.0.0.1"), literal("fd00::1"), literal("10.0.0.2")};
	struct addr newer = literal("10.0.0.9"), zoned = literal("fe80::1%3");
	known_store(&region, "both", AF_UNSPEC, both, 3, 100);
	is(find("both", AF_UNSPEC, 10, 105), "10.0.0.1,fd00::1,10.0.0.2", "all, as the resolver ordered them");
	tap_ok(age == 5, "and their age");
	is(find("both", AF_INET, 10, 105), "10.0.0.1,10.0.0.2", "one family");
	is(find("both", AF_INET6, 10, 105), "fd00::1", "the other");
	is(find("both", AF_UNSPEC, 10, 110), "10.0.0.1,fd00::1,10.0.0.2", "as old as they may be");
	is(find("both", AF_UNSPEC, 10, 111), "", "never older (D9)");
	is(find("both", AF_UNSPEC, 10, 99), "", "nothing of a time to come");
	is(find("bot", AF_UNSPEC, 10, 105), "", "another name");
	known_store(&region, "both", AF_INET, &newer, 1, 108);
	is(find("both", AF_UNSPEC, 10, 110), "10.0.0.9,fd00::1", "a look-up of one family leaves the other");
	tap_ok(age == 10, "the age is the oldest one's");
	is(find("both", AF_UNSPEC, 10, 112), "10.0.0.9", "each family has its own age");
	known_store(&region, "zoned", AF_UNSPEC, &zoned, 1, 1);
	known_find(&region, "zoned", AF_INET6, 10, 2, found, &age);
	tap_ok(found[0].scope == 3 && found[0].family == ADDR_INET, "a zone stays");
	known_store(&region, "none", AF_UNSPEC, both, 0, 1);
	is(find("none", AF_UNSPEC, 10, 2), "", "no addresses are no answer");
}

static void test_bounds(void)
{
	struct addr many[40];
	char name[300];
	for (int i = 0; i < 40; i++) {
		many[i] = literal("10.1.0.0");
		many[i].ip[15] = (uint8_t)i;
	}
	known_store(&region, "many", AF_UNSPEC, many, 40, 1);
	tap_ok(known_find(&region, "many", AF_UNSPEC, 10, 2, found, &age) == REGION_KNOWN_ADDRESSES,
		"of very many addresses the first ones");
	memset(name, 'a', sizeof name);
	name[255] = '\0';
	known_store(&region, name, AF_UNSPEC, many, 1, 1);
	is(find(name, AF_UNSPEC, 10, 2), "10.1.0.0", "a name of 255 bytes");
	name[255] = 'a';
	name[256] = '\0';
	known_store(&region, name, AF_UNSPEC, many, 1, 1);
	is(find(name, AF_UNSPEC, 10, 2), "", "a longer one is not kept");
}

static void test_eviction(void)
{
	struct addr a = literal("10.2.0.1");
	char name[32];
	for (int i = 0; i < 4 * REGION_KNOWN; i++) {
		snprintf(name, sizeof name, "name%d", i);
		known_store(&region, name, AF_UNSPEC, &a, 1, 1000 + i);
		tap_expect(known_find(&region, name, AF_UNSPEC, 10, 1000 + i, found, &age) == 1, "%s is found", name);
	}
	tap_all("what was stored last is there, however many came before");
	known_store(&region, "kept", AF_UNSPEC, &a, 1, 5000);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "other%d", i);
		known_store(&region, name, AF_UNSPEC, &a, 1, 4000 + i);
	}
	tap_ok(known_find(&region, "kept", AF_UNSPEC, 10, 5000, found, &age) == 1,
		"the oldest gives way, not the newest");
}

static _Atomic int stop;

static void *write_over(void *arg)
{
	struct addr a[2];
	a[0] = literal((const char *)arg);
	a[1] = a[0];
	a[1].ip[14] = 77;
	for (int64_t now = 1; !atomic_load(&stop); now++)
		known_store(&region, "shared", AF_UNSPEC, a, 2, now);
	return NULL;
}

static void test_torn(void)
{
	pthread_t threads[2];
	static char one[] = "10.3.3.3", other[] = "10.4.4.4";
	unsigned seen = 0;
	pthread_create(&threads[0], NULL, write_over, one);
	pthread_create(&threads[1], NULL, write_over, other);
	for (int64_t end = clock_now_ns() + 300 * NS_PER_MS; clock_now_ns() < end;) {
		unsigned n = known_find(&region, "shared", AF_UNSPEC, INT64_MAX, INT64_MAX / 2, found, &age);
		seen += n == 2;
		tap_expect(n == 0 || (n == 2 && found[0].ip[13] == found[1].ip[13] &&
					     found[0].ip[15] == found[0].ip[13] && found[1].ip[14] == 77),
			"two writers, %u addresses", n);
	}
	atomic_store(&stop, 1);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	tap_all("no mixed answer is believed");
	tap_ok(seen > 0, "whole ones are (%u)", seen);
}

static void test_mad(void)
{
	struct addr a = literal("10.5.0.1");
	srandom(5);
	for (int round = 0; round < 300; round++) {
		for (size_t i = 0; i < sizeof(struct known_name) * REGION_KNOWN; i += 97)
			((unsigned char *)region.known)[i] = (unsigned char)random();
		known_find(&region, "both", AF_UNSPEC, INT64_MAX, 100, found, &age);
		known_store(&region, "both", AF_UNSPEC, &a, 1, 100);
		tap_expect(known_find(&region, "both", AF_UNSPEC, 1, 100, found, &age) == 1, "round %d", round);
	}
	tap_all("random bytes: nothing breaks, and the next answer is kept (E10)");
}

int main(void)
{
	if (region_attach_private(&region, "t", 4) != 0)
		return 1;
	test_families();
	test_bounds();
	test_eviction();
	test_torn();
	test_mad();
	return tap_done();
}
