/* Taken: look-ups. Those that nothing bounds pass through; others are asked by a thread of ours (engine/resolver.h).
 * Results teach which name an address belongs to (policy/names.h). */
#include <errno.h>
#include <locale.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/real.h"
#include "base/sys.h"
#include "core/region.h"
#include "engine/eject.h"
#include "engine/guest.h"
#include "engine/later.h"
#include "engine/look_up.h"
#include "engine/resolver.h"
#include "hook/export.h"
#include "policy/names.h"

/* Adds an address once; a look-up without a socket type gives each three times. */
static unsigned add(struct addr *list, unsigned n, const struct addr *a)
{
	for (unsigned i = 0; i < n; i++)
		if (addr_same_host(&list[i], a))
			return n;
	if (n < NAMES_ADDRESSES)
		list[n++] = *a;
	return n;
}

static unsigned list_addrinfo(struct addr list[NAMES_ADDRESSES], const struct addrinfo *res)
{
	struct addr a;
	unsigned n = 0;
	for (; res; res = res->ai_next)
		if (addr_from_sockaddr(&a, res->ai_addr, res->ai_addrlen) && a.family == ADDR_INET)
			n = add(list, n, &a);
	return n;
}

#define ENTRIES 128 /* of an answer: each address comes with up to three socket types */

/* Those in mask go last, in the order that they have. What the entries say is moved, not the entries: they are freed as
 * whoever made them knows. */
static void put_last(struct addrinfo *res, const struct addr *list, unsigned n, uint32_t mask)
{
	struct addrinfo copy[ENTRIES];
	unsigned entries = 0, put = 0;
	bool is_last[ENTRIES];
	for (struct addrinfo *a = res; a; a = a->ai_next, entries++) {
		struct addr addr;
		if (entries == ENTRIES)
			return;
		copy[entries] = *a;
		is_last[entries] = false;
		if (!addr_from_sockaddr(&addr, a->ai_addr, a->ai_addrlen))
			continue;
		for (unsigned i = 0; i < n; i++)
			if (mask >> i & 1 && addr_same_host(&list[i], &addr))
				is_last[entries] = true;
	}
	for (struct addrinfo *a = res; a; a = a->ai_next) {
		unsigned from = put;
		/* The next healthy one, and when there are no more, the next of the others. */
		while (from < 2 * entries && is_last[from % entries] != (from >= entries))
			from++;
		const struct addrinfo *c = &copy[from % entries];
		a->ai_flags = c->ai_flags;
		a->ai_family = c->ai_family;
		a->ai_socktype = c->ai_socktype;
		a->ai_protocol = c->ai_protocol;
		a->ai_addrlen = c->ai_addrlen;
		a->ai_addr = c->ai_addr;
		put = from + 1;
	}
}

/* The port of a service given in digits; 0: none, or a name. */
static uint16_t port_of(const char *service)
{
	unsigned port = 0, n = 0;
	for (; service && service[n] >= '0' && service[n] <= '9' && n < 5; n++)
		port = port * 10 + (unsigned)(service[n] - '0');
	return n > 0 && !service[n] && port <= 65535 ? (uint16_t)port : 0;
}

/* An alphabet of this thread's own: only here would libc read the name in it (AI_IDN). */
static bool needs_this_thread(const char *node, int flags)
{
	if (!(flags & (AI_IDN | AI_CANONIDN)) || uselocale((locale_t)0) == LC_GLOBAL_LOCALE)
		return false;
	for (; *node; node++)
		if ((unsigned char)*node >= 0x80)
			return true;
	return flags & AI_CANONIDN;
}

static enum look_up_news news_of(int result)
{
	switch (result) {
	case 0:
	case EAI_NONAME:
	case EAI_NODATA:
	case EAI_ADDRFAMILY: return LOOK_UP_ANSWERED;
	case EAI_AGAIN:
	case EAI_FAIL: return LOOK_UP_FAILED;
	default: return LOOK_UP_NEUTRAL;
	}
}

static int ask_addrinfo(struct look_up *l, const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **res, enum look_up_news *news)
{
	const struct resolver_question q = {
		.kind = RESOLVER_ADDRINFO, .node = node, .service = service, .hints = hints};
	struct resolver_answer answer = {.result = 0};
	enum resolver_end end = RESOLVER_IN_PLACE;
	if (l->until_ns && !needs_this_thread(node, hints ? hints->ai_flags : 0))
		end = resolver_ask(&q, l->until_ns, &answer);
	if (end == RESOLVER_LATE) {
		*news = LOOK_UP_LATE;
		return l->is_of_deadline ? EAI_FAIL : EAI_AGAIN;
	}
	if (end == RESOLVER_IN_PLACE) {
		answer.result = real.getaddrinfo(node, service, hints, res);
	} else {
		resolver_release(&answer);
		if (answer.result == 0)
			*res = answer.list;
		else if (answer.result == EAI_SYSTEM)
			errno = answer.error;
	}
	*news = news_of(answer.result);
	return answer.result;
}

/* An answer that libc makes of addresses, each asked for as the number that it is: what freeaddrinfo frees. */
static bool make_stale(const struct look_up *l, const char *node, const char *service, const struct addrinfo *hints,
	struct addrinfo **res)
{
	struct addr addrs[REGION_KNOWN_ADDRESSES];
	unsigned n = look_up_stale(l, addrs);
	struct addrinfo numeric = {.ai_family = AF_UNSPEC}, *first = NULL, **end = &first;
	if (n == 0)
		return false;
	if (hints)
		numeric = (struct addrinfo){.ai_flags = hints->ai_flags,
			.ai_family = hints->ai_family,
			.ai_socktype = hints->ai_socktype,
			.ai_protocol = hints->ai_protocol};
	int flags = numeric.ai_flags, saved = errno;
	numeric.ai_flags = (flags | AI_NUMERICHOST) & ~(AI_CANONNAME | AI_IDN | AI_CANONIDN | AI_ADDRCONFIG);
	for (unsigned i = 0; i < n; i++) {
		char literal[80] = "";
		struct text t = TEXT_ON(literal);
		addr_host_text(&t, &addrs[i]);
		if (real.getaddrinfo(literal, service, &numeric, end) != 0)
			*end = NULL;
		while (*end)
			end = &(*end)->ai_next;
	}
	if (first && flags & AI_CANONNAME)
		first->ai_canonname = strdup(node);
	errno = saved;
	*res = first;
	return first != NULL;
}

static int look_addrinfo_up(
	const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res, int64_t asked_ns)
{
	struct look_up l;
	enum look_up_news news = LOOK_UP_FAILED;
	int r = EAI_FAIL, flags = hints ? hints->ai_flags : 0;
	if (look_up_begin(&l, flags & AI_NUMERICHOST ? NULL : node, port_of(service),
		    hints ? hints->ai_family : AF_UNSPEC, asked_ns) == LOOK_UP_GOES) {
		r = ask_addrinfo(&l, node, service, hints, res, &news);
		look_up_end(&l, news);
	}
	bool is_fresh = r == 0;
	if (!is_fresh && l.stale_ns && (news == LOOK_UP_FAILED || news == LOOK_UP_LATE) &&
		make_stale(&l, node, service, hints, res)) {
		look_up_stale_given(&l);
		r = 0;
	}
	if (r == 0 && node && res && guest_is_on() && !guest_is_restricted() &&
		!(flags & (AI_PASSIVE | AI_NUMERICHOST))) {
		struct addr list[NAMES_ADDRESSES];
		int saved = errno;
		unsigned n = list_addrinfo(list, *res);
		names_learn(node, list, n, l.began_ns, clock_now_ns());
		if (is_fresh)
			look_up_keep(&l, list, n);
		uint32_t mask = eject_mask(l.name, l.port, list, n, clock_now_ns());
		if (mask)
			put_last(*res, list, n, mask);
		errno = saved;
	}
	return r;
}

EXPORT int getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
	struct addrinfo **restrict res)
{
	return look_addrinfo_up(node, service, hints, res, 0);
}

/* ---- later ---- */

EXPORT int getaddrinfo_a(int mode, struct gaicb *list[restrict], int n, struct sigevent *restrict event)
{
	bool is_known = mode == GAI_WAIT || mode == GAI_NOWAIT;
	return is_known && look_up_is_asked_for() ? later_ask(mode, list, n, event, look_addrinfo_up)
						  : real.getaddrinfo_a(mode, list, n, event);
}

EXPORT int gai_suspend(const struct gaicb *const list[], int n, const struct timespec *timeout)
{
	int result;
	return later_suspend(list, n, timeout, &result) ? result : real.gai_suspend(list, n, timeout);
}

EXPORT int gai_cancel(struct gaicb *request)
{
	int result;
	return later_cancel(request, &result) ? result : real.gai_cancel(request);
}

/* ---- gethostby* ---- */

static unsigned list_hostent(struct addr list[NAMES_ADDRESSES], const struct hostent *h)
{
	struct addr a;
	unsigned n = 0;
	for (char **p = h->h_addr_list; *p; p++) {
		struct sockaddr_storage sa = {0};
		sa.ss_family = (sa_family_t)h->h_addrtype;
		if (h->h_addrtype == AF_INET && h->h_length == 4)
			memcpy(&((struct sockaddr_in *)&sa)->sin_addr, *p, 4);
		else if (h->h_addrtype == AF_INET6 && h->h_length == 16)
			memcpy(&((struct sockaddr_in6 *)&sa)->sin6_addr, *p, 16);
		if (addr_from_sockaddr(&a, (struct sockaddr *)&sa, sizeof sa) && a.family == ADDR_INET)
			n = add(list, n, &a);
	}
	return n;
}

static void put_hosts_last(const struct hostent *h, unsigned n, uint32_t mask)
{
	char *copy[NAMES_ADDRESSES];
	unsigned count = 0;
	/* Addresses that come twice, or too many: their places would not be those of the list. */
	while (count < NAMES_ADDRESSES && h->h_addr_list[count]) {
		copy[count] = h->h_addr_list[count];
		count++;
	}
	if (count != n || h->h_addr_list[count])
		return;
	unsigned put = 0;
	for (unsigned last = 0; last < 2; last++)
		for (unsigned i = 0; i < n; i++)
			if ((mask >> i & 1) == last)
				h->h_addr_list[put++] = copy[i];
}

static void learn_hostent(const struct look_up *l, const char *name, const struct hostent *h, bool is_fresh)
{
	struct addr list[NAMES_ADDRESSES];
	if (!h || !name || !guest_is_on() || guest_is_restricted())
		return;
	int saved = errno;
	unsigned n = list_hostent(list, h);
	names_learn(name, list, n, l->began_ns, clock_now_ns());
	if (is_fresh)
		look_up_keep(l, list, n);
	uint32_t mask = eject_mask(l->name, 0, list, n, clock_now_ns());
	if (mask)
		put_hosts_last(h, n, mask);
	errno = saved;
}

static enum look_up_news host_news_of(int host_error)
{
	switch (host_error) {
	case 0:
	case HOST_NOT_FOUND:
	case NO_DATA: return LOOK_UP_ANSWERED;
	case TRY_AGAIN:
	case NO_RECOVERY: return LOOK_UP_FAILED;
	default: return LOOK_UP_NEUTRAL;
	}
}

/* How each of them says an error: result, errno and h_errno. Not in time is TRY_AGAIN, refused NO_RECOVERY. */
static int say_failed(struct hostent **result, int *err, int host_error)
{
	*result = NULL;
	*err = host_error;
	return EAGAIN;
}

/* Where a host goes, and how its absence is said. */
struct host_room {
	struct hostent *ret;
	char *buf;
	size_t n;
	struct hostent **result;
	int *err;
};

static int put_host(const struct hostent *h, const struct host_room *room)
{
	if (resolver_copy_host(h, room->ret, room->buf, room->n)) {
		*room->result = room->ret;
		*room->err = 0;
		return 0;
	}
	*room->result = NULL;
	*room->err = NETDB_INTERNAL;
	return errno = ERANGE;
}

/* libc is asked by a thread of ours; false: it is to be asked here. */
static bool ask_host(const struct look_up *l, const struct resolver_question *q, const struct host_room *room, int *r,
	enum look_up_news *news)
{
	struct resolver_answer answer;
	switch (l->until_ns ? resolver_ask(q, l->until_ns, &answer) : RESOLVER_IN_PLACE) {
	case RESOLVER_ANSWERED: break;
	case RESOLVER_LATE:
		*news = LOOK_UP_LATE;
		*r = say_failed(room->result, room->err, l->is_of_deadline ? NO_RECOVERY : TRY_AGAIN);
		return true;
	case RESOLVER_IN_PLACE: return false;
	}
	*r = answer.result;
	*news = host_news_of(answer.host ? 0 : answer.host_error);
	if (answer.host) {
		*r = put_host(answer.host, room);
	} else {
		*room->result = NULL;
		*room->err = answer.host_error;
		if (answer.result != 0)
			errno = answer.error;
	}
	resolver_release(&answer);
	return true;
}

/* The last good answer in place of none. */
static bool put_stale(const struct look_up *l, const char *name, int family, const struct host_room *room, int *r)
{
	struct addr addrs[REGION_KNOWN_ADDRESSES];
	char *list[REGION_KNOWN_ADDRESSES + 1], *aliases[1] = {NULL};
	unsigned n = look_up_stale(l, addrs);
	int length = family == AF_INET6 ? 16 : 4;
	if (n == 0)
		return false;
	for (unsigned i = 0; i < n; i++)
		list[i] = (char *)addrs[i].ip + 16 - length;
	list[n] = NULL;
	const struct hostent h = {.h_name = (char *)(uintptr_t)name,
		.h_aliases = aliases,
		.h_addrtype = family == AF_INET6 ? AF_INET6 : AF_INET,
		.h_length = length,
		.h_addr_list = list};
	*r = put_host(&h, room);
	if (*r == 0)
		look_up_stale_given(l);
	return true;
}

/* The result of the forms without `_r`: libc's own is overwritten by the next such call just as well. */
static struct kept_host {
	struct hostent host;
	char bytes[65536 - sizeof(struct hostent)];
} * _Atomic kept_host;

static struct kept_host *keep_host(void)
{
	struct kept_host *k = atomic_load(&kept_host), *none = NULL;
	if (k)
		return k;
	k = sys_mmap(sizeof *k, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (sys_is_error(k))
		return NULL;
	if (!atomic_compare_exchange_strong(&kept_host, &none, k)) {
		sys_munmap(k, sizeof *k);
		return none;
	}
	return k;
}

/* By name, of any family or of one. */
static int by_name_r(const char *name, int family, const struct host_room *room)
{
	struct look_up l;
	enum look_up_news news = LOOK_UP_FAILED;
	int r = 0;
	if (look_up_begin(&l, name, 0, family ? family : AF_INET, 0) == LOOK_UP_GOES) {
		const struct resolver_question q = {.kind = RESOLVER_BY_NAME, .node = name, .family = family};
		if (!ask_host(&l, &q, room, &r, &news)) {
			r = family == AF_UNSPEC
				    ? real.gethostbyname_r(name, room->ret, room->buf, room->n, room->result, room->err)
				    : real.gethostbyname2_r(
					      name, family, room->ret, room->buf, room->n, room->result, room->err);
			news = host_news_of(r == 0 && *room->result ? 0 : *room->err);
		}
		look_up_end(&l, news);
	} else {
		r = say_failed(room->result, room->err, NO_RECOVERY);
	}
	bool is_fresh = *room->result != NULL;
	if (!is_fresh && l.stale_ns && (news == LOOK_UP_FAILED || news == LOOK_UP_LATE))
		put_stale(&l, name, family, room, &r);
	learn_hostent(&l, name, *room->result, is_fresh);
	return r;
}

/* The forms without `_r`: in libc's own memory where libc is asked here, else in ours. */
static struct hostent *by_name(const char *name, int family)
{
	struct look_up l;
	struct hostent *found = NULL;
	enum look_up_news news = LOOK_UP_FAILED;
	int r = 0, err = NO_RECOVERY;
	enum look_up_begun begun = look_up_begin(&l, name, 0, family ? family : AF_INET, 0);
	struct kept_host *k = l.until_ns || l.stale_ns ? keep_host() : NULL;
	const struct host_room room = {k ? &k->host : NULL, k ? k->bytes : NULL, sizeof k->bytes, &found, &err};
	if (begun == LOOK_UP_GOES) {
		const struct resolver_question q = {.kind = RESOLVER_BY_NAME, .node = name, .family = family};
		if (!k || !ask_host(&l, &q, &room, &r, &news)) {
			found = family == AF_UNSPEC ? real.gethostbyname(name) : real.gethostbyname2(name, family);
			err = found ? 0 : h_errno;
			news = host_news_of(err);
		}
		look_up_end(&l, news);
	}
	bool is_fresh = found != NULL;
	if (!is_fresh && k && l.stale_ns && (news == LOOK_UP_FAILED || news == LOOK_UP_LATE))
		put_stale(&l, name, family, &room, &r);
	learn_hostent(&l, name, found, is_fresh);
	if (!found)
		h_errno = err;
	return found;
}

EXPORT struct hostent *gethostbyname(const char *name)
{
	return guest_is_on() ? by_name(name, AF_UNSPEC) : real.gethostbyname(name);
}

EXPORT struct hostent *gethostbyname2(const char *name, int family)
{
	/* No family is libc's to refuse. */
	return family != AF_UNSPEC && guest_is_on() ? by_name(name, family) : real.gethostbyname2(name, family);
}

EXPORT int gethostbyname_r(const char *restrict name, struct hostent *restrict ret, char *restrict buf, size_t n,
	struct hostent **restrict result, int *restrict err)
{
	const struct host_room room = {ret, buf, n, result, err};
	return guest_is_on() ? by_name_r(name, AF_UNSPEC, &room) : real.gethostbyname_r(name, ret, buf, n, result, err);
}

EXPORT int gethostbyname2_r(const char *restrict name, int family, struct hostent *restrict ret, char *restrict buf,
	size_t n, struct hostent **restrict result, int *restrict err)
{
	const struct host_room room = {ret, buf, n, result, err};
	return family != AF_UNSPEC && guest_is_on() ? by_name_r(name, family, &room)
						    : real.gethostbyname2_r(name, family, ret, buf, n, result, err);
}

EXPORT struct hostent *gethostbyaddr(const void *address, socklen_t len, int family)
{
	struct look_up l;
	struct hostent *found = NULL;
	enum look_up_news news = LOOK_UP_NEUTRAL;
	int r, err = NO_RECOVERY;
	if (look_up_begin_reverse(&l, address, len, family) == LOOK_UP_REFUSED) {
		h_errno = err;
		return NULL;
	}
	struct kept_host *k = l.until_ns ? keep_host() : NULL;
	const struct host_room room = {k ? &k->host : NULL, k ? k->bytes : NULL, sizeof k->bytes, &found, &err};
	const struct resolver_question q = {
		.kind = RESOLVER_BY_ADDRESS, .address = address, .address_len = len, .family = family};
	if (!k || !ask_host(&l, &q, &room, &r, &news))
		return real.gethostbyaddr(address, len, family);
	look_up_end(&l, news);
	if (!found)
		h_errno = err;
	return found;
}

EXPORT int gethostbyaddr_r(const void *restrict address, socklen_t len, int family, struct hostent *restrict ret,
	char *restrict buf, size_t n, struct hostent **restrict result, int *restrict err)
{
	struct look_up l;
	enum look_up_news news = LOOK_UP_NEUTRAL;
	int r = 0;
	if (look_up_begin_reverse(&l, address, len, family) == LOOK_UP_REFUSED)
		return say_failed(result, err, NO_RECOVERY);
	const struct host_room room = {ret, buf, n, result, err};
	const struct resolver_question q = {
		.kind = RESOLVER_BY_ADDRESS, .address = address, .address_len = len, .family = family};
	if (!ask_host(&l, &q, &room, &r, &news))
		return real.gethostbyaddr_r(address, len, family, ret, buf, n, result, err);
	look_up_end(&l, news);
	return r;
}
