/* See fallback.h. Called by connect.c on any thread.
 *
 * A secondary is connected to on the descriptor that the app has: the number, its flags, its options and its
 * registration in an epoll set stay. A connect that has failed leaves the socket ready for another; AF_UNSPEC makes
 * sure of it, also where we have ended it ourselves. The ERR and HUP that the kernel reports in between is of the
 * moment: epoll asks the socket anew before it tells, and by then another connect is under way. */
#include "engine/fallback.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/hosts.h"
#include "base/sys.h"
#include "core/known.h"
#include "engine/asked.h"
#include "engine/cache.h"
#include "engine/connect.h"
#include "engine/detour.h"
#include "engine/guest.h"
#include "engine/onward.h"
#include "engine/resolver.h"
#include "policy/chain.h"

#define ADDRESSES 8		      /* of a secondary's name that are tried */
#define FRESH_NS (60 * NS_PER_S)      /* an answer that needs no other */
#define OLD_NS (NS_PER_S * 3600 * 24) /* the oldest one that serves where none else is to be had */
/* A look-up of a secondary's name may hold up a connect that blocks for so long, and an event loop for so long, at most
 * once in a second where it comes to nothing. */
#define PATIENCE_NS NS_PER_S
#define GLANCE_NS (50 * NS_PER_MS)
#define AGAIN_MS 1000

struct walk {
	const struct fallback_ask *ask;
	const struct chain_step *step;
	const char *rest; /* of the chain */
	uint64_t life;
	bool is_fresh; /* no connect has failed on the socket */
};

/* SERVED: errno and result are the app's. PASSED: the next step. */
enum step_end { STEP_PASSED, STEP_SERVED };

static bool is_blocking(const struct walk *w)
{
	return !(atomic_load_explicit(&w->ask->slot->traits, memory_order_relaxed) & TRAIT_NONBLOCKING);
}

/* Is the slot still the socket's that this is about? Another thread may have closed the number (C7). */
static bool is_ours(const struct walk *w)
{
	uint64_t word = slot_word(w->ask->slot);
	return word >> 32 == w->life && slot_state_of(word) == SLOT_SOCKET;
}

/* ---- the secondary's addresses ---- */

static unsigned add_hosts(struct addr *addrs, const struct hostent *host)
{
	unsigned n = 0;
	for (char **at = host ? host->h_addr_list : NULL; at && *at && n < ADDRESSES; at++) {
		struct sockaddr_in v4 = {.sin_family = AF_INET};
		struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
		bool is_v4 = host->h_addrtype == AF_INET;
		if ((size_t)host->h_length != (is_v4 ? sizeof v4.sin_addr : sizeof v6.sin6_addr))
			break;
		memcpy(is_v4 ? (void *)&v4.sin_addr : (void *)&v6.sin6_addr, *at, (size_t)host->h_length);
		n += addr_from_sockaddr(&addrs[n], is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
			is_v4 ? sizeof v4 : sizeof v6);
	}
	return n;
}

/* Asks libc, on a thread of ours. gethostbyname: its answer lies in the record, nothing is to be freed here. */
static unsigned ask_resolver(const struct walk *w, const char *name, int family, int64_t until_ns, struct addr *addrs)
{
	struct resolver_question q = {.kind = RESOLVER_BY_NAME, .node = name, .family = family};
	struct resolver_answer answer;
	if (resolver_ask(&q, until_ns, &answer) != RESOLVER_ANSWERED)
		return 0;
	unsigned n = answer.result == 0 ? add_hosts(addrs, answer.host) : 0;
	resolver_release(&answer);
	if (n && w->ask->guard->region)
		known_store(w->ask->guard->region, name, family, addrs, n, clock_now_ns());
	return n;
}

static unsigned look_up(const struct walk *w, const char *name, bool wants_v6, struct addr *addrs)
{
	/* Those that came to nothing of late, by the name's hash: its upper half | ms of CLOCK_MONOTONIC, cut. */
	static _Atomic uint64_t in_vain[8];
	uint64_t hash = hash_mix(hash_bytes(HASH_START, name, strlen(name))), high = hash & ~(uint64_t)UINT32_MAX;
	_Atomic uint64_t *vain = &in_vain[hash % 8];
	int64_t now = clock_now_ns(), until = now + (is_blocking(w) ? PATIENCE_NS : GLANCE_NS);
	uint64_t last = atomic_load(vain);
	bool is_same = last != 0 && (last ^ high) <= UINT32_MAX;
	if (is_same && (uint32_t)(now / NS_PER_MS) - (uint32_t)last < AGAIN_MS)
		return 0;
	if (w->ask->until_ns && w->ask->until_ns < until)
		until = w->ask->until_ns;
	unsigned n = wants_v6 ? ask_resolver(w, name, AF_INET6, until, addrs) : 0;
	if (n == 0)
		n = ask_resolver(w, name, AF_INET, until, addrs);
	if (n == 0)
		atomic_store(vain, high | (uint32_t)(clock_now_ns() / NS_PER_MS));
	return n;
}

/* The addresses of a secondary, in the order of their trial. */
static unsigned find_addresses(const struct walk *w, bool wants_v6, struct addr addrs[ADDRESSES])
{
	struct addr known[REGION_KNOWN_ADDRESSES];
	const char *name = w->step->host;
	const struct region *r = w->ask->guard->region;
	int64_t age;
	if (addr_from_literal(&addrs[0], name))
		return 1;
	unsigned n = guest_is_restricted() ? 0 : hosts_find(name, addrs, ADDRESSES);
	if (n)
		return n;
	int64_t now = clock_now_ns();
	unsigned found = r ? known_find(r, name, AF_UNSPEC, FRESH_NS, now, known, &age) : 0;
	if (found == 0) {
		n = look_up(w, name, wants_v6, addrs);
		if (n)
			return n;
		found = r ? known_find(r, name, AF_UNSPEC, OLD_NS, now, known, &age) : 0;
	}
	n = found < ADDRESSES ? found : ADDRESSES;
	memcpy(addrs, known, n * sizeof *addrs);
	return n;
}

/* ---- steps ---- */

/* As the app's socket can be told to go there; 0: it cannot. */
static socklen_t write_sockaddr(
	struct sockaddr_storage *to, const struct addr *a, uint16_t port, int family, bool takes_v4)
{
	memset(to, 0, sizeof *to);
	if (family == AF_INET && addr_is_v4(a)) {
		struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
		memcpy(&v4.sin_addr, a->ip + 12, sizeof v4.sin_addr);
		memcpy(to, &v4, sizeof v4);
		return sizeof v4;
	}
	if (family != AF_INET6 || (addr_is_v4(a) && !takes_v4))
		return 0;
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = a->scope};
	memcpy(&v6.sin6_addr, a->ip, sizeof v6.sin6_addr);
	memcpy(to, &v6, sizeof v6);
	return sizeof v6;
}

/* After a connect that failed on it. The error that is left in it would be told to the next one. */
static void make_fresh(struct walk *w)
{
	int told;
	socklen_t len = sizeof told;
	if (w->is_fresh || guest_is_restricted())
		return;
	sys_disconnect(w->ask->fd);
	sys_getsockopt(w->ask->fd, SOL_SOCKET, SO_ERROR, &told, &len);
	w->is_fresh = true;
}

static bool takes_v4(const struct walk *w)
{
	int only = 0;
	socklen_t len = sizeof only;
	return guest_is_restricted() || sys_getsockopt(w->ask->fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &len) != 0 ||
	       only == 0;
}

static enum step_end secondary(struct walk *w, int *result)
{
	const struct fallback_ask *ask = w->ask;
	struct addr addrs[ADDRESSES];
	struct sockaddr_storage to;
	int family = ask->to->sa_family;
	if (ask->asked->family != ADDR_INET)
		return STEP_PASSED;
	bool is_v6 = family == AF_INET6, has_mapped = is_v6 && takes_v4(w);
	unsigned n = find_addresses(w, is_v6, addrs), fit = 0;
	/* Those that the socket can go to: together they are one call of the secondary's. */
	for (unsigned i = 0; i < n; i++)
		if (write_sockaddr(&to, &addrs[i], w->step->port, family, has_mapped))
			addrs[fit++] = addrs[i];
	struct addr literal;
	bool is_literal = addr_from_literal(&literal, w->step->host);
	for (unsigned i = 0; i < fit && is_ours(w); i++) {
		if (ask->until_ns && clock_now_ns() >= ask->until_ns)
			return STEP_PASSED;
		struct fallback_place place = {.addr = addrs[i],
			.name = is_literal ? NULL : w->step->host,
			.number = i,
			.count = fit,
			.to = (const struct sockaddr *)&to,
			.len = write_sockaddr(&to, &addrs[i], w->step->port, family, has_mapped)};
		place.addr.port = w->step->port;
		enum connect_begun begun;
		make_fresh(w);
		*result = connect_instead(ask, &place, &w->life, &begun);
		if (begun == CONNECT_REJECTED)
			return STEP_PASSED; /* its circuit is open, too */
		w->is_fresh = *result == 0;
		/* EINTR: it goes on without its caller. */
		if (*result == 0 || errno == EINPROGRESS || errno == EINTR) {
			asked_keep(ask->fd, w->life, ask->to, ask->len);
			return STEP_SERVED;
		}
	}
	return STEP_PASSED;
}

/* The addresses of a step behind a cache that is another server. */
static void put_places(const struct walk *w, struct onward *o, unsigned step)
{
	struct addr addrs[ADDRESSES], literal;
	const struct fallback_ask *ask = w->ask;
	const char *name = addr_from_literal(&literal, w->step->host) ? NULL : w->step->host;
	unsigned n = find_addresses(w, ask->to->sa_family == AF_INET6, addrs);
	for (unsigned i = 0; i < n && o->count < ONWARD_PLACES; i++) {
		struct onward_place *p = &o->places[o->count];
		struct sockaddr_storage to;
		addrs[i].port = w->step->port;
		if (addr_same_host(&addrs[i], ask->asked) && addrs[i].port == ask->asked->port)
			continue; /* it stands in for itself, too: [defaults] */
		memset(p, 0, sizeof *p);
		write_sockaddr(&to, &addrs[i], w->step->port, addr_is_v4(&addrs[i]) ? AF_INET : AF_INET6, false);
		memcpy(&p->to, &to, sizeof p->to);
		p->step = (uint8_t)step;
		p->is_guarded = guard_find_place(&addrs[i], name, i, n, clock_now_ns(), &p->guard);
		o->count++;
	}
}

/* What a cache needs to go on with the chain by itself. */
static void look_behind(const struct walk *w, struct onward *o)
{
	char chain[CHAIN_TEXT_MAX + 1], *at = chain;
	struct chain_step step;
	struct walk behind = {.ask = w->ask, .step = &step};
	memset(o, 0, sizeof *o);
	text_copy(o->chain, sizeof o->chain, w->rest);
	text_copy(chain, sizeof chain, w->rest);
	text_copy(o->text, sizeof o->text, w->step->text);
	o->guard = *w->ask->guard;
	o->cause = w->ask->cause;
	o->until_ns = w->ask->until_ns;
	for (unsigned i = 0; chain_next(&at, &step); i++)
		if (step.source == DEGRADED_SECONDARY)
			put_places(&behind, o, i);
}

/* An end point within the process, on the app's own descriptor. What it cannot serve (no file, a full disk) is the next
 * step's. It speaks for nobody: there is no call, and the hooks have nothing to do with the descriptor but for its end,
 * as with one that was connected before we looked. */
static enum step_end end_point(struct walk *w, int *result)
{
	const struct fallback_ask *ask = w->ask;
	char host[280] = "";
	struct text t = TEXT_ON(host);
	struct onward behind;
	bool is_cache = w->step->source == DEGRADED_CACHE;
	cache_destination(&t, ask->asked);
	if (is_cache && (ask->asked->family != ADDR_INET || !cache_may_serve(host, w->step->age_ns)))
		return STEP_PASSED;
	if (is_cache)
		look_behind(w, &behind);
	const struct detour_ask detour = {
		.kind = w->step->source == DEGRADED_REPLY   ? DETOUR_REPLY
			: w->step->source == DEGRADED_SPOOL ? DETOUR_SPOOL
							    : DETOUR_CACHE,
		.to = ask->to,
		.len = ask->len,
		.limit_at_ns = is_blocking(w) ? ask->until_ns : 0,
		.path = w->step->rest,
		.host = host,
		.max_age_ns = w->step->age_ns,
		.onward = is_cache ? &behind : NULL,
	};
	struct slot *s = ask->slot;
	if (ask->asked->family != ADDR_INET)
		return STEP_PASSED;
	make_fresh(w);
	uint64_t word = slot_word(s);
	/* Before the system call: another thread's event loop may see the outcome first. */
	if (!is_ours(w) || !slot_change(s, word, SLOT_CONNECTED, true))
		return STEP_PASSED;
	w->life = (w->life + 1) & UINT32_MAX;
	*result = detour_connect(ask->fd, &detour);
	if (*result == 0 || (*result == -1 && (errno == EINPROGRESS || errno == EINTR)))
		return STEP_SERVED;
	w->is_fresh = *result == DETOUR_CANNOT;
	word = slot_word(s);
	if (word >> 32 == w->life)
		slot_change(s, word, SLOT_SOCKET, false);
	return STEP_PASSED;
}

static enum step_end give_errno(struct walk *w, int *result)
{
	*result = -1;
	errno = w->step->error;
	return STEP_SERVED;
}

static enum step_end (*const steps[DEGRADED_SOURCE_COUNT])(struct walk *w, int *result) = {
	[DEGRADED_SECONDARY] = secondary,
	[DEGRADED_CACHE] = end_point,
	[DEGRADED_REPLY] = end_point,
	[DEGRADED_SPOOL] = end_point,
	[DEGRADED_ERRNO] = give_errno,
};

/* Set to observe by hand: nothing is changed for the app. */
static bool is_observed(const struct guard *g)
{
	return g->has_circuit && breaker_mode(atomic_load_explicit(&g->region->destinations[g->destination].breaker,
					 memory_order_relaxed)) == BREAKER_OBSERVE;
}

int fallback_connect(const struct fallback_ask *ask)
{
	char chain[CHAIN_TEXT_MAX + 1], *at = chain;
	struct chain_step step;
	struct walk w = {.ask = ask, .step = &step, .life = ask->life, .is_fresh = ask->is_refused};
	int result = -1;
	bool is_there = !is_observed(ask->guard) && guard_fallback(ask->asked, chain, sizeof chain);
	while (is_there && is_ours(&w) && chain_next(&at, &step)) {
		w.rest = at;
		if (ask->until_ns && clock_now_ns() >= ask->until_ns) {
			errno = ETIMEDOUT; /* each step is within the deadline (C3) */
			return -1;
		}
		if (steps[step.source](&w, &result) != STEP_SERVED)
			continue;
		int err = result == 0 ? ask->found_errno : errno;
		/* A cache counts what it serves. */
		if (step.source != DEGRADED_CACHE && ask->guard->has_circuit && guard_is_current(ask->guard))
			degraded_count(ask->guard->region, ask->guard->destination, step.source, step.text, ask->cause);
		errno = err;
		return result;
	}
	errno = ask->error;
	return -1;
}
