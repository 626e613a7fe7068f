/* See look_up.h. Any thread. */
#include "engine/look_up.h"

#include <netinet/in.h>
#include <string.h>

#include "base/clock.h"
#include "base/hosts.h"
#include "core/events.h"
#include "engine/ambient.h"
#include "engine/call.h"
#include "engine/guest.h"
#include "policy/policy.h"

/* What the rules ask for; false: nothing. */
static bool find_limits(struct look_up *l, const struct policy *p)
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
	return l->until_ns != 0;
}

static bool find_rules(struct look_up *l, const char *name, uint16_t port, const struct addr *a)
{
	const struct config *c = policy_acquire();
	bool is_guarded = false;
	if (c && (config_guards_look_ups(c) || ambient_ns())) {
		struct target target = {.addr = a, .exe = guest_exe()};
		const struct policy *p =
			a ? config_match(c, &target, NULL) : config_match_look_up(c, name, port, guest_exe());
		is_guarded = p && find_limits(l, p);
	}
	policy_release(c);
	return is_guarded;
}

static bool is_bypassed(struct look_up *l)
{
	l->region = guest_region(l->began_ns);
	return l->region && guest_is_bypassed(l->region);
}

enum look_up_begun look_up_begin(struct look_up *l, const char *name, uint16_t port, int family)
{
	struct addr literal;
	*l = (struct look_up){.began_ns = 0};
	if (!name || !guest_is_on() || addr_from_literal(&literal, name))
		return LOOK_UP_PASSES;
	l->began_ns = clock_now_ns();
	if (ambient_has_passed(l->began_ns))
		return LOOK_UP_REFUSED;
	if (guest_is_restricted() || !names_clean(l->name, name) || !find_rules(l, l->name, port, NULL) ||
		is_bypassed(l) || hosts_answers(name, family))
		return LOOK_UP_PASSES;
	return LOOK_UP_BOUNDED;
}

enum look_up_begun look_up_begin_reverse(struct look_up *l, const void *address, unsigned len, int family)
{
	struct addr a;
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	*l = (struct look_up){.began_ns = 0};
	if (!guest_is_on())
		return LOOK_UP_PASSES;
	if (family == AF_INET && len == sizeof v4.sin_addr) {
		memcpy(&v4.sin_addr, address, len);
		addr_from_sockaddr(&a, (const struct sockaddr *)&v4, sizeof v4);
	} else if (family == AF_INET6 && len == sizeof v6.sin6_addr) {
		memcpy(&v6.sin6_addr, address, len);
		addr_from_sockaddr(&a, (const struct sockaddr *)&v6, sizeof v6);
	} else {
		return LOOK_UP_PASSES;
	}
	l->began_ns = clock_now_ns();
	if (ambient_has_passed(l->began_ns))
		return LOOK_UP_REFUSED;
	if (guest_is_restricted() || !find_rules(l, NULL, 0, &a) || is_bypassed(l))
		return LOOK_UP_PASSES;
	return LOOK_UP_BOUNDED;
}

void look_up_is_late(const struct look_up *l)
{
	if (!l->region)
		return;
	struct event e = {.type = EVENT_DEADLINE, .value = l->limit_ns, .retry_after_ms = -1};
	text_copy(e.reason, sizeof e.reason, l->is_of_deadline ? "call" : "resolve");
	struct text t = TEXT_ON(e.destination);
	text_str(&t, "dns:");
	text_str(&t, l->name);
	events_add(l->region, &e);
}

void look_up_end(const struct look_up *l)
{
	if (l->began_ns > 0 && l->name[0])
		call_note_look_up(l->began_ns, clock_now_ns());
}
