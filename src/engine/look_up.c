/* See look_up.h. Any thread. */
#include "engine/look_up.h"

#include <netinet/in.h>
#include <string.h>

#include "base/clock.h"
#include "base/hosts.h"
#include "core/events.h"
#include "core/known.h"
#include "core/registry.h"
#include "engine/ambient.h"
#include "engine/guest.h"
#include "policy/policy.h"

static void find_limit(struct look_up *l, const struct policy *p)
{
	int64_t ambient = ambient_ns();
	int64_t deadline = p->deadline_ns ? l->began_ns + p->deadline_ns : 0;
	if (ambient && (!deadline || ambient < deadline))
		deadline = ambient;
	l->until_ns = p->resolve_timeout_ns ? l->began_ns + p->resolve_timeout_ns : 0;
	l->limit_ns = p->resolve_timeout_ns;
	if (deadline && (!l->until_ns || deadline < l->until_ns)) {
		l->until_ns = deadline;
		l->limit_ns = deadline - l->began_ns;
		l->is_of_deadline = true;
	}
}

/* What the rules ask for. False: nothing. */
static bool find_rules(struct look_up *l, const struct addr *a)
{
	const struct config *c = policy_acquire();
	const struct policy *p = NULL;
	if (c && (config_guards_look_ups(c) || ambient_ns())) {
		struct target target = {.addr = a, .exe = guest_exe()};
		p = a ? config_match(c, &target, NULL) : config_match_look_up(c, l->name, l->port, guest_exe());
	}
	if (p) {
		bool is_asked_for = config_guards_look_up(p);
		find_limit(l, p);
		l->trip_mask = p->trip_mask;
		l->abandon_ns = p->abandon_after_ns;
		l->rules = p->rules;
		l->stale_ns = a ? 0 : p->stale_dns_ns;
		l->has_circuit = is_asked_for && !a && p->breaker != POLICY_BREAKER_OFF;
		l->is_guarded = l->until_ns || (!a && is_asked_for);
	}
	policy_release(c);
	return l->is_guarded;
}

/* True where the group is not bypassed; a look-up that asks for something is where a process attaches, as a connect is.
 */
static bool find_region(struct look_up *l)
{
	l->region = guest_region(l->began_ns);
	if (!l->region)
		return true;
	guest_follow_reload(l->region);
	return !guest_is_bypassed(l->region);
}

static void leave_alone(struct look_up *l)
{
	l->is_guarded = l->has_circuit = false;
	l->until_ns = l->stale_ns = 0;
}

/* "dns:NAME", cut where it is too long to be one. */
static void circuit_name(char to[REGION_NAME_MAX + 1], const struct look_up *l)
{
	struct text t = {.at = to, .cap = REGION_NAME_MAX + 1};
	to[0] = '\0';
	text_str(&t, "dns:");
	text_str(&t, l->name);
}

static enum look_up_begun admit(struct look_up *l)
{
	char name[REGION_NAME_MAX + 1];
	l->has_circuit = l->has_circuit && l->region && strlen(l->name) + 4 <= REGION_NAME_MAX;
	if (!l->has_circuit)
		return LOOK_UP_GOES;
	circuit_name(name, l);
	int at = registry_find_or_add(l->region, name, "", l->began_ns);
	l->has_circuit = at >= 0;
	if (at < 0 || circuit_admit(l->region, (uint32_t)at, &l->rules, l->began_ns, &l->token) != BREAKER_REJECT)
		return LOOK_UP_GOES;
	return LOOK_UP_REFUSED;
}

bool look_up_is_asked_for(void)
{
	const struct config *c = policy_acquire();
	bool is_asked_for = (c && config_guards_look_ups(c)) || ambient_ns();
	policy_release(c);
	return is_asked_for && guest_is_on() && !guest_is_restricted();
}

enum look_up_begun look_up_begin(struct look_up *l, const char *name, uint16_t port, int family, int64_t asked_ns)
{
	struct addr literal;
	*l = (struct look_up){.port = port, .family = family, .token.lease = -1};
	if (!name || !guest_is_on() || addr_from_literal(&literal, name))
		return LOOK_UP_GOES;
	l->began_ns = asked_ns ? asked_ns : clock_now_ns();
	if (ambient_has_passed(l->began_ns))
		return LOOK_UP_REFUSED;
	if (guest_is_restricted() || !names_clean(l->name, name) || !find_rules(l, NULL))
		return LOOK_UP_GOES;
	if (!find_region(l) || hosts_answers(name, family)) {
		leave_alone(l);
		return LOOK_UP_GOES;
	}
	return admit(l);
}

enum look_up_begun look_up_begin_reverse(struct look_up *l, const void *address, unsigned len, int family)
{
	struct addr a;
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	*l = (struct look_up){.family = family, .token.lease = -1};
	if (!guest_is_on())
		return LOOK_UP_GOES;
	if (family == AF_INET && len == sizeof v4.sin_addr) {
		memcpy(&v4.sin_addr, address, len);
		addr_from_sockaddr(&a, (const struct sockaddr *)&v4, sizeof v4);
	} else if (family == AF_INET6 && len == sizeof v6.sin6_addr) {
		memcpy(&v6.sin6_addr, address, len);
		addr_from_sockaddr(&a, (const struct sockaddr *)&v6, sizeof v6);
	} else {
		return LOOK_UP_GOES;
	}
	l->began_ns = clock_now_ns();
	if (ambient_has_passed(l->began_ns))
		return LOOK_UP_REFUSED;
	if (!guest_is_restricted() && find_rules(l, &a) && !find_region(l))
		leave_alone(l);
	return LOOK_UP_GOES;
}

static void tell(const struct look_up *l, enum event_type type, int64_t value, const char *reason)
{
	struct event e = {.type = (uint8_t)type, .value = value, .retry_after_ms = -1};
	text_copy(e.reason, sizeof e.reason, reason);
	circuit_name(e.destination, l);
	events_add(l->region, &e);
}

static void settle(struct look_up *l, enum look_up_news news, int64_t now_ns)
{
	enum failure_kind kind = news == LOOK_UP_LATE && l->is_of_deadline ? FAILURE_DEADLINE : FAILURE_DNS;
	enum breaker_outcome outcome = news == LOOK_UP_ANSWERED	 ? BREAKER_SUCCESS
				       : news == LOOK_UP_NEUTRAL ? BREAKER_NEUTRAL
								 : BREAKER_FAILURE;
	int64_t took_ns = now_ns - l->began_ns;
	/* What others had left of their time was no fair chance (as for a call). */
	if (kind == FAILURE_DEADLINE && l->until_ns == ambient_ns() && took_ns < l->abandon_ns)
		outcome = BREAKER_NEUTRAL;
	if (news == LOOK_UP_LATE)
		atomic_fetch_add_explicit(
			&l->region->destinations[l->token.destination].late_look_ups, 1, memory_order_relaxed);
	circuit_settle(l->region, &l->token, &l->rules, outcome, kind, l->trip_mask >> kind & 1, now_ns,
		outcome == BREAKER_NEUTRAL ? -1 : took_ns);
}

void look_up_end(struct look_up *l, enum look_up_news news)
{
	if (l->began_ns == 0)
		return;
	int64_t now = clock_now_ns();
	if (l->region && news == LOOK_UP_LATE)
		tell(l, EVENT_DEADLINE, l->limit_ns, l->is_of_deadline ? "call" : "resolve");
	if (l->region && l->has_circuit && l->token.is_admitted)
		settle(l, news, now);
}

void look_up_keep(const struct look_up *l, const struct addr *addrs, unsigned count)
{
	if (l->stale_ns && l->region)
		known_store(l->region, l->name, l->family, addrs, count, clock_now_ns());
}

unsigned look_up_stale(const struct look_up *l, struct addr addrs[REGION_KNOWN_ADDRESSES])
{
	int64_t age;
	return l->stale_ns && l->region
		       ? known_find(l->region, l->name, l->family, l->stale_ns, clock_now_ns(), addrs, &age)
		       : 0;
}

void look_up_stale_given(const struct look_up *l)
{
	struct addr addrs[REGION_KNOWN_ADDRESSES];
	char name[REGION_NAME_MAX + 1], reason[96];
	int64_t now = clock_now_ns(), age;
	circuit_name(name, l);
	int at = registry_find(l->region, name);
	if (at >= 0) {
		struct destination *d = &l->region->destinations[at];
		int64_t told = atomic_load_explicit(&d->stale_told_ns, memory_order_relaxed);
		atomic_fetch_add_explicit(&d->stale_answers, 1, memory_order_relaxed);
		if ((told && now >= told && now - told < NS_PER_S) ||
			!atomic_compare_exchange_strong(&d->stale_told_ns, &told, now))
			return;
	}
	struct text t = TEXT_ON(reason);
	reason[0] = '\0';
	text_str(&t, "stale_dns: an answer of ");
	known_find(l->region, l->name, l->family, l->stale_ns, now, addrs, &age);
	text_duration(&t, age / NS_PER_MS * NS_PER_MS);
	text_str(&t, " ago");
	tell(l, EVENT_FALLBACK, age, reason);
}
