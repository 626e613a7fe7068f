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
#include "engine/guest.h"
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

static void learn_addrinfo(const char *node, const struct addrinfo *res)
{
	struct addr list[NAMES_ADDRESSES], a;
	unsigned n = 0;
	int saved = errno;
	for (; res; res = res->ai_next)
		if (addr_from_sockaddr(&a, res->ai_addr, res->ai_addrlen) && a.family == ADDR_INET)
			n = add(list, n, &a);
	names_learn(node, list, n, clock_now_ns());
	errno = saved;
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

static int ask_addrinfo(
	struct look_up *l, const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
	const struct resolver_question q = {
		.kind = RESOLVER_ADDRINFO, .node = node, .service = service, .hints = hints};
	struct resolver_answer answer;
	switch (resolver_ask(&q, l->until_ns, &answer)) {
	case RESOLVER_ANSWERED: break;
	case RESOLVER_LATE: look_up_is_late(l); return l->is_of_deadline ? EAI_FAIL : EAI_AGAIN;
	case RESOLVER_IN_PLACE: return real.getaddrinfo(node, service, hints, res);
	}
	resolver_release(&answer);
	if (answer.result == 0)
		*res = answer.list;
	else if (answer.result == EAI_SYSTEM)
		errno = answer.error;
	return answer.result;
}

EXPORT int getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
	struct addrinfo **restrict res)
{
	struct look_up l;
	int r, flags = hints ? hints->ai_flags : 0;
	enum look_up_begun begun = look_up_begin(
		&l, flags & AI_NUMERICHOST ? NULL : node, port_of(service), hints ? hints->ai_family : AF_UNSPEC);
	if (begun == LOOK_UP_REFUSED)
		return EAI_FAIL;
	if (begun == LOOK_UP_BOUNDED && !needs_this_thread(node, flags))
		r = ask_addrinfo(&l, node, service, hints, res);
	else
		r = real.getaddrinfo(node, service, hints, res);
	look_up_end(&l);
	if (r == 0 && node && res && guest_is_on() && !guest_is_restricted() &&
		!(flags & (AI_PASSIVE | AI_NUMERICHOST)))
		learn_addrinfo(node, *res);
	return r;
}

static void learn_hostent(const char *name, const struct hostent *h)
{
	struct addr list[NAMES_ADDRESSES], a;
	unsigned n = 0;
	if (!h || !name || !guest_is_on() || guest_is_restricted())
		return;
	int saved = errno;
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
	names_learn(name, list, n, clock_now_ns());
	errno = saved;
}

/* ---- gethostby* ---- */

/* How each of them says an error: result, errno and h_errno. Not in time is TRY_AGAIN, refused NO_RECOVERY. */
static int say_failed(struct hostent **result, int *err, int host_error)
{
	*result = NULL;
	*err = host_error;
	return EAGAIN;
}

/* The bounded ones of the `_r` forms; *in_place: libc is to be asked here. */
static int ask_host(const struct look_up *l, const struct resolver_question *q, struct hostent *ret, char *buf,
	size_t n, struct hostent **result, int *err, bool *in_place)
{
	struct resolver_answer answer;
	*in_place = false;
	switch (resolver_ask(q, l->until_ns, &answer)) {
	case RESOLVER_ANSWERED: break;
	case RESOLVER_LATE:
		look_up_is_late(l);
		return say_failed(result, err, l->is_of_deadline ? NO_RECOVERY : TRY_AGAIN);
	case RESOLVER_IN_PLACE: *in_place = true; return 0;
	}
	int r = answer.result;
	*result = NULL;
	*err = answer.host_error;
	if (r == 0 && answer.host) {
		if (resolver_copy_host(answer.host, ret, buf, n)) {
			*result = ret;
		} else {
			*err = NETDB_INTERNAL;
			r = errno = ERANGE;
		}
	} else if (r != 0) {
		errno = answer.error;
	}
	resolver_release(&answer);
	return r;
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

/* *in_place: libc is to be asked here. */
static struct hostent *ask_kept(const struct look_up *l, const struct resolver_question *q, bool *in_place)
{
	struct kept_host *k = keep_host();
	struct hostent *found = NULL;
	int err = 0;
	*in_place = !k;
	if (!k)
		return NULL;
	ask_host(l, q, &k->host, k->bytes, sizeof k->bytes, &found, &err, in_place);
	if (!*in_place && !found)
		h_errno = err;
	return found;
}

/* Both forms by name, of any family or of one. */
static struct hostent *by_name(const char *name, int family, struct hostent *(*here)(const char *name, int family))
{
	struct look_up l;
	struct hostent *h = NULL;
	bool in_place = true;
	enum look_up_begun begun = look_up_begin(&l, name, 0, family ? family : AF_INET);
	if (begun == LOOK_UP_REFUSED) {
		h_errno = NO_RECOVERY;
		return NULL;
	}
	if (begun == LOOK_UP_BOUNDED) {
		const struct resolver_question q = {.kind = RESOLVER_BY_NAME, .node = name, .family = family};
		h = ask_kept(&l, &q, &in_place);
	}
	if (in_place)
		h = here(name, family);
	look_up_end(&l);
	learn_hostent(name, h);
	return h;
}

static struct hostent *by_name_here(const char *name, int family)
{
	(void)family;
	return real.gethostbyname(name);
}

static struct hostent *by_name2_here(const char *name, int family)
{
	return real.gethostbyname2(name, family);
}

EXPORT struct hostent *gethostbyname(const char *name)
{
	return by_name(name, AF_UNSPEC, by_name_here);
}

EXPORT struct hostent *gethostbyname2(const char *name, int family)
{
	if (family == AF_UNSPEC) /* libc's to refuse */
		return real.gethostbyname2(name, family);
	return by_name(name, family, by_name2_here);
}

static int by_name_r(
	const char *name, int family, struct hostent *ret, char *buf, size_t n, struct hostent **result, int *err)
{
	struct look_up l;
	int r = 0;
	bool in_place = true;
	enum look_up_begun begun = look_up_begin(&l, name, 0, family ? family : AF_INET);
	if (begun == LOOK_UP_REFUSED)
		return say_failed(result, err, NO_RECOVERY);
	if (begun == LOOK_UP_BOUNDED) {
		const struct resolver_question q = {.kind = RESOLVER_BY_NAME, .node = name, .family = family};
		r = ask_host(&l, &q, ret, buf, n, result, err, &in_place);
	}
	if (in_place)
		r = family == AF_UNSPEC ? real.gethostbyname_r(name, ret, buf, n, result, err)
					: real.gethostbyname2_r(name, family, ret, buf, n, result, err);
	look_up_end(&l);
	if (r == 0)
		learn_hostent(name, *result);
	return r;
}

EXPORT int gethostbyname_r(const char *restrict name, struct hostent *restrict ret, char *restrict buf, size_t n,
	struct hostent **restrict result, int *restrict err)
{
	return by_name_r(name, AF_UNSPEC, ret, buf, n, result, err);
}

EXPORT int gethostbyname2_r(const char *restrict name, int family, struct hostent *restrict ret, char *restrict buf,
	size_t n, struct hostent **restrict result, int *restrict err)
{
	if (family == AF_UNSPEC) /* libc's to refuse */
		return real.gethostbyname2_r(name, family, ret, buf, n, result, err);
	return by_name_r(name, family, ret, buf, n, result, err);
}

EXPORT struct hostent *gethostbyaddr(const void *address, socklen_t len, int family)
{
	struct look_up l;
	struct hostent *h = NULL;
	bool in_place = true;
	enum look_up_begun begun = look_up_begin_reverse(&l, address, len, family);
	if (begun == LOOK_UP_REFUSED) {
		h_errno = NO_RECOVERY;
		return NULL;
	}
	if (begun == LOOK_UP_BOUNDED) {
		const struct resolver_question q = {
			.kind = RESOLVER_BY_ADDRESS, .address = address, .address_len = len, .family = family};
		h = ask_kept(&l, &q, &in_place);
	}
	return in_place ? real.gethostbyaddr(address, len, family) : h;
}

EXPORT int gethostbyaddr_r(const void *restrict address, socklen_t len, int family, struct hostent *restrict ret,
	char *restrict buf, size_t n, struct hostent **restrict result, int *restrict err)
{
	struct look_up l;
	int r = 0;
	bool in_place = true;
	enum look_up_begun begun = look_up_begin_reverse(&l, address, len, family);
	if (begun == LOOK_UP_REFUSED)
		return say_failed(result, err, NO_RECOVERY);
	if (begun == LOOK_UP_BOUNDED) {
		const struct resolver_question q = {
			.kind = RESOLVER_BY_ADDRESS, .address = address, .address_len = len, .family = family};
		r = ask_host(&l, &q, ret, buf, n, result, err, &in_place);
	}
	return in_place ? real.gethostbyaddr_r(address, len, family, ret, buf, n, result, err) : r;
}
