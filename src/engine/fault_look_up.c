/* Faults at look-ups (fault_layer.h): an error of the resolver's, or a wait before it. On the thread that asks libc,
 * which may be one of ours (resolver.h). */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/sys.h"
#include "engine/fault_decide.h"
#include "engine/fault_layer.h"
#include "engine/guest.h"

static void wait_ns(int64_t ns)
{
	int64_t until = clock_now_ns() + ns, left;
	while ((left = until - clock_now_ns()) > 0) {
		struct timespec t = {left / NS_PER_S, left % NS_PER_S};
		sys_poll(NULL, 0, &t);
	}
}

/* The error that a look-up is to end with: EAI_..., 0: none. Waits, where the fault says so. */
static int ask_look_up(const char *node, uint16_t port)
{
	char name[NAMES_MAX + 1], destination[REGION_NAME_MAX + 1] = "";
	struct addr literal;
	struct fault_rules r;
	struct text t = TEXT_ON(destination);
	const struct fault_rule *f;
	const struct config *of;
	int error = 0, saved = errno;
	int64_t delay = 0, now = clock_now_ns();
	if (!node || !guest_is_on() || guest_is_restricted() || addr_from_literal(&literal, node) ||
		!names_clean(name, node))
		return 0;
	text_fmt(&t, "dns:%s", name);
	fault_rules_begin(&r);
	while (!error && (f = fault_rules_next(&r, &of)) != NULL) {
		if (!fault_is_at(f, FAULT_AT_RESOLVE) || !fault_may_hit(f) ||
			!config_fault_fits_look_up(of, f, name, port, guest_exe()) ||
			!fault_decide(f, destination, FAULT_AT_RESOLVE, now, NULL))
			continue;
		delay += (int64_t)f->value[FAULT_DELAY];
		switch ((enum fault_error)f->value[FAULT_ERROR]) {
		case FAULT_AGAIN: error = EAI_AGAIN; break;
		case FAULT_NONAME: error = EAI_NONAME; break;
		case FAULT_FAIL: error = EAI_FAIL; break;
		case FAULT_NO_ERROR: break;
		}
	}
	fault_rules_end(&r);
	fault_leave(now);
	if (delay)
		wait_ns(delay);
	errno = saved;
	return error;
}

static int host_error_of(int error)
{
	return error == EAI_AGAIN ? TRY_AGAIN : error == EAI_NONAME ? HOST_NOT_FOUND : NO_RECOVERY;
}

static uint16_t port_of(const char *service)
{
	char *end = NULL;
	unsigned long port = service && *service >= '0' && *service <= '9' ? strtoul(service, &end, 10) : 0;
	return end && !*end && port < 65536 ? (uint16_t)port : 0;
}

static int fault_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
	int error = hints && hints->ai_flags & AI_NUMERICHOST ? 0 : ask_look_up(node, port_of(service));
	return error ? error : fault_libc.getaddrinfo(node, service, hints, res);
}

static struct hostent *fault_gethostbyname(const char *name)
{
	int error = ask_look_up(name, 0);
	if (!error)
		return fault_libc.gethostbyname(name);
	h_errno = host_error_of(error);
	return NULL;
}

static struct hostent *fault_gethostbyname2(const char *name, int family)
{
	int error = ask_look_up(name, 0);
	if (!error)
		return fault_libc.gethostbyname2(name, family);
	h_errno = host_error_of(error);
	return NULL;
}

static int fault_gethostbyname_r(
	const char *name, struct hostent *ret, char *buf, size_t n, struct hostent **result, int *err)
{
	int error = ask_look_up(name, 0);
	if (!error)
		return fault_libc.gethostbyname_r(name, ret, buf, n, result, err);
	*result = NULL;
	*err = host_error_of(error);
	return error == EAI_AGAIN ? EAGAIN : 0;
}

static int fault_gethostbyname2_r(
	const char *name, int family, struct hostent *ret, char *buf, size_t n, struct hostent **result, int *err)
{
	int error = ask_look_up(name, 0);
	if (!error)
		return fault_libc.gethostbyname2_r(name, family, ret, buf, n, result, err);
	*result = NULL;
	*err = host_error_of(error);
	return error == EAI_AGAIN ? EAGAIN : 0;
}

/* ---- in and out ---- */

void fault_look_up_put(bool is_on)
{
	FAULT_PUT(getaddrinfo, fault_getaddrinfo);
	FAULT_PUT(gethostbyname, fault_gethostbyname);
	FAULT_PUT(gethostbyname2, fault_gethostbyname2);
	FAULT_PUT(gethostbyname_r, fault_gethostbyname_r);
	FAULT_PUT(gethostbyname2_r, fault_gethostbyname2_r);
}
