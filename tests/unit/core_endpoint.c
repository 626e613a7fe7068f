/* The health of addresses (core/endpoint.h): when one is ejected, for how long, how it comes back, and how that grows
 * and decays (D10); slots, handles that went stale, random bytes (E10). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/endpoint.h"
#include "core/events.h"
#include "core/registry.h"
#include "tap.h"

static struct region region;
static const struct breaker_rules rules = {
	.failure_threshold = 3, .recovery_ms = 1000, .recovery_max_ms = 5000, .backoff_percent = 200};

static struct addr literal(const char *s, uint16_t port)
{
	struct addr a;
	if (!addr_from_literal(&a, s))
		abort();
	a.port = port;
	return a;
}

static bool ejecting, returning;

static uint64_t fail(uint64_t word, bool is_dead, int64_t now)
{
	return endpoint_after_failure(word, &rules, is_dead, now, &ejecting);
}

static uint64_t succeed(uint64_t word, int64_t now)
{
	return endpoint_after_success(word, now, &returning);
}

static void test_word(void)
{
	uint64_t w = fail(0, true, 100);
	tap_ok(ejecting && endpoint_ejected_for_ms(w, 100) == 1000 && endpoint_failures(w) == 1,
		"dead at connect: ejected by one failure, for recovery_timeout");
	tap_ok(endpoint_ejected_for_ms(w, 1099) == 1 && endpoint_ejected_for_ms(w, 1100) == 0,
		"until then, and no longer");
	uint64_t again = fail(w, true, 200);
	tap_ok(!ejecting && endpoint_ejected_for_ms(again, 200) == 900, "failures meanwhile make it no longer");

	w = fail(fail(0, false, 1), false, 2);
	tap_ok(!ejecting && endpoint_failures(w) == 2, "connected and then failed: not below failure_threshold");
	tap_ok(fail(succeed(w, 3), false, 4) && !ejecting, "a success ends the streak");
	w = fail(w, false, 3);
	tap_ok(ejecting && endpoint_failures(w) == 3, "at failure_threshold");
	w = succeed(w, 500);
	tap_ok(returning && !endpoint_ejected_for_ms(w, 500) && endpoint_failures(w) == 0,
		"a success brings it back at once");
	w = fail(fail(w, false, 501), false, 502);
	tap_ok(!ejecting, "and then it takes as many failures as before (CB11)");
	w = fail(w, false, 503);
	tap_ok(ejecting && endpoint_ejected_for_ms(w, 503) == 2000, "but goes for longer");
}

static void test_growth(void)
{
	static const uint32_t waits[] = {1000, 2000, 4000, 5000, 5000, 5000};
	uint64_t w = 0;
	int64_t now = 0;
	for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
		w = fail(w, i == 0, now);
		tap_ok(ejecting && endpoint_ejected_for_ms(w, now) == waits[i], "ejection %zu: %u ms", i + 1,
			endpoint_ejected_for_ms(w, now));
		now += waits[i];
	}
	w = succeed(w, now);
	uint64_t soon = fail(w, true, now + 1), later = fail(w, true, now + 2 * 5000),
		 much_later = fail(w, true, now + 60000);
	tap_ok(endpoint_ejected_for_ms(soon, now + 1) == 5000, "failing again at once: as long as before");
	tap_ok(endpoint_ejected_for_ms(later, now + 10000) == 4000 ||
			endpoint_ejected_for_ms(later, now + 10000) == 2000,
		"two recovery_max of health take lengthenings back (%u ms)",
		endpoint_ejected_for_ms(later, now + 10000));
	tap_ok(endpoint_ejected_for_ms(much_later, now + 60000) == 1000, "long health takes all back");
	uint64_t mad = ~0ULL;
	tap_ok(endpoint_ejected_for_ms(mad, 1) == 0, "a time beyond any wait is none (E10)");
	struct breaker_rules odd = {.backoff_percent = 10000, .recovery_ms = BREAKER_WAIT_MAX_MS};
	w = 0;
	for (int i = 0; i < 100; i++) {
		w = endpoint_after_failure(w, &odd, true, (int64_t)i * 2 * BREAKER_WAIT_MAX_MS, &ejecting);
		tap_expect(endpoint_ejected_for_ms(w, (int64_t)i * 2 * BREAKER_WAIT_MAX_MS) == BREAKER_WAIT_MAX_MS,
			"%d", i);
	}
	tap_all("the largest values neither overflow nor vanish (B10)");
}

static unsigned events(enum event_type type)
{
	uint64_t oldest, newest;
	unsigned n = 0;
	struct event e;
	events_range(&region, &oldest, &newest);
	for (uint64_t i = oldest; i <= newest; i++)
		n += events_read(&region, i, &e) && e.type == type;
	return n;
}

static void test_slots(void)
{
	uint64_t name = endpoint_name_hash("app.test"), other = endpoint_name_hash("other.test");
	struct addr a = literal("10.0.0.1", 80), b = literal("10.0.0.2", 80), tls = literal("10.0.0.1", 443);
	int d = registry_find_or_add(&region, "app.test:80", "", 1);
	uint32_t ha = endpoint_find_or_add(&region, name, &a, d, 1), hb = endpoint_find_or_add(&region, name, &b, d, 1);
	tap_ok(ha && hb && ha != hb && endpoint_find_or_add(&region, name, &a, d, 2) == ha, "an address has one slot");
	endpoint_failed(&region, ha, &rules, FAILURE_REFUSED, true, NS_PER_S);
	tap_ok(endpoint_is_ejected(&region, name, &a, 80, NS_PER_S) &&
			!endpoint_is_ejected(&region, name, &b, 80, NS_PER_S),
		"one is ejected, the other is not");
	tap_ok(endpoint_is_ejected(&region, name, &a, 0, NS_PER_S) &&
			!endpoint_is_ejected(&region, name, &tls, 443, NS_PER_S),
		"at its port, or where none is named");
	tap_ok(!endpoint_is_ejected(&region, other, &a, 80, NS_PER_S), "of its name alone");
	struct endpoint_view view;
	int first = endpoint_next(&region, (uint32_t)d, 0, NS_PER_S, &view);
	int second = endpoint_next(&region, (uint32_t)d, (uint32_t)first + 1, NS_PER_S, &view);
	tap_ok(first >= 0 && second > first &&
			endpoint_next(&region, (uint32_t)d, (uint32_t)second + 1, NS_PER_S, &view) < 0,
		"both are listed");
	endpoint_succeeded(&region, ha, 2 * NS_PER_S);
	tap_ok(events(EVENT_EJECTED) == 1 && events(EVENT_RETURNED) == 1, "each leaves its event");
	endpoint_succeeded(&region, ha, 2 * NS_PER_S);
	tap_ok(events(EVENT_RETURNED) == 1, "once");

	endpoint_failed(&region, ha, &rules, FAILURE_REFUSED, true, 9000 * NS_PER_S);
	char text[32];
	for (int i = 0; i < 40000; i++) {
		snprintf(text, sizeof text, "10.%d.%d.%d", 1 + i / 65536, i / 256 % 256, i % 256);
		struct addr many = literal(text, 80);
		tap_expect(endpoint_find_or_add(&region, name, &many, d, 9000 * NS_PER_S + i) != 0, "%s", text);
	}
	tap_all("a full table gives room to who comes");
	tap_ok(endpoint_find_or_add(&region, name, &a, d, 9000 * NS_PER_S) == ha &&
			endpoint_is_ejected(&region, name, &a, 80, 9000 * NS_PER_S),
		"what is ejected does not give way");
	struct addr c = literal("10.0.0.2", 80);
	uint32_t now_there = endpoint_find_or_add(&region, name, &c, d, 9001 * NS_PER_S);
	endpoint_failed(&region, hb ^ 1u << 20, &rules, FAILURE_REFUSED, true, 9001 * NS_PER_S);
	tap_ok(!endpoint_is_ejected(&region, name, &c, 80, 9001 * NS_PER_S) && now_there,
		"a handle of another says nothing");
}

static void test_mad(void)
{
	struct addr a = literal("fd00::1", 80);
	struct endpoint_view view;
	srandom(7);
	for (int round = 0; round < 200; round++) {
		for (size_t i = 0; i < sizeof(struct endpoint) * REGION_ENDPOINTS; i += 3)
			((unsigned char *)region.endpoints)[i] = (unsigned char)random();
		uint32_t h = endpoint_find_or_add(&region, 5, &a, (int)(random() % 70000), 100);
		endpoint_failed(&region, h, &rules, FAILURE_RESET, false, 100);
		endpoint_failed(&region, (uint32_t)random(), &rules, FAILURE_RESET, true, 100);
		endpoint_succeeded(&region, (uint32_t)random(), 100);
		endpoint_is_ejected(&region, 5, &a, 0, 100);
		for (int at = -1;
			(at = endpoint_next(&region, (uint32_t)random() % 8, (uint32_t)at + 1, 100, &view)) >= 0;)
			tap_expect(
				at < REGION_ENDPOINTS && view.ejected_for_ms <= BREAKER_WAIT_MAX_MS, "round %d", round);
		tap_expect(true, "round %d", round);
	}
	tap_all("random bytes: nothing breaks (E10)");
}

int main(void)
{
	if (region_attach_private(&region, "t", 8) != 0)
		return 1;
	test_word();
	test_growth();
	test_slots();
	test_mad();
	return tap_done();
}
