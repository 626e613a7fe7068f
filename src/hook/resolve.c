/* Taken: look-ups. They pass through; their results teach which name an address belongs to (policy/names.h). */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include "base/clock.h"
#include "base/real.h"
#include "engine/ambient.h"
#include "engine/call.h"
#include "engine/guest.h"
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

/* The time, 0 where the shim does nothing; -1: the ambient deadline has passed, nothing reaches the network (C4).
 * Literals always pass. */
static int64_t look_up_begins(const char *node)
{
	struct addr a;
	if (!node || !guest_is_on() || addr_from_literal(&a, node))
		return 0;
	int64_t now = clock_now_ns();
	return ambient_has_passed(now) ? -1 : now;
}

static void look_up_ended(int64_t began_ns)
{
	if (began_ns > 0)
		call_note_look_up(began_ns, clock_now_ns());
}

EXPORT int getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
	struct addrinfo **restrict res)
{
	int64_t began = look_up_begins(node);
	if (began < 0)
		return EAI_FAIL;
	int r = real.getaddrinfo(node, service, hints, res);
	look_up_ended(began);
	if (r == 0 && node && res && guest_is_on() && !guest_is_restricted() &&
		!(hints && hints->ai_flags & (AI_PASSIVE | AI_NUMERICHOST)))
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

EXPORT struct hostent *gethostbyname(const char *name)
{
	int64_t began = look_up_begins(name);
	if (began < 0) {
		h_errno = NO_RECOVERY;
		return NULL;
	}
	struct hostent *h = real.gethostbyname(name);
	look_up_ended(began);
	learn_hostent(name, h);
	return h;
}

EXPORT struct hostent *gethostbyname2(const char *name, int family)
{
	int64_t began = look_up_begins(name);
	if (began < 0) {
		h_errno = NO_RECOVERY;
		return NULL;
	}
	struct hostent *h = real.gethostbyname2(name, family);
	look_up_ended(began);
	learn_hostent(name, h);
	return h;
}

EXPORT int gethostbyname_r(const char *restrict name, struct hostent *restrict ret, char *restrict buf, size_t n,
	struct hostent **restrict result, int *restrict err)
{
	int64_t began = look_up_begins(name);
	if (began < 0) {
		*result = NULL;
		*err = NO_RECOVERY;
		return EAGAIN;
	}
	int r = real.gethostbyname_r(name, ret, buf, n, result, err);
	look_up_ended(began);
	if (r == 0)
		learn_hostent(name, *result);
	return r;
}

EXPORT int gethostbyname2_r(const char *restrict name, int family, struct hostent *restrict ret, char *restrict buf,
	size_t n, struct hostent **restrict result, int *restrict err)
{
	int64_t began = look_up_begins(name);
	if (began < 0) {
		*result = NULL;
		*err = NO_RECOVERY;
		return EAGAIN;
	}
	int r = real.gethostbyname2_r(name, family, ret, buf, n, result, err);
	look_up_ended(began);
	if (r == 0)
		learn_hostent(name, *result);
	return r;
}
