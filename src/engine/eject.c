/* See eject.h. After a look-up, any thread. */
#include "engine/eject.h"

#include "core/endpoint.h"
#include "engine/guest.h"
#include "policy/policy.h"

/* How many of a hundred may go last; 0: none. */
static uint32_t share_of(const char *name, uint16_t port)
{
	const struct config *c = policy_acquire();
	const struct policy *p = c ? config_match_look_up(c, name, port, guest_exe()) : NULL;
	uint32_t share = p && p->eject == POLICY_EJECT_ON ? p->max_ejection_percent : 0;
	policy_release(c);
	return share;
}

uint32_t eject_mask(const char *name, uint16_t port, const struct addr *addrs, unsigned count, int64_t now_ns)
{
	uint32_t mask = 0, share = count > 1 && count <= 32 && name[0] ? share_of(name, port) : 0;
	unsigned ejected = 0;
	struct region *r = share ? guest_region_there(now_ns) : NULL;
	if (!r || guest_is_bypassed(r))
		return 0;
	uint64_t hash = endpoint_name_hash(name);
	for (unsigned i = 0; i < count; i++) {
		if (!endpoint_is_ejected(r, hash, &addrs[i], port, now_ns))
			continue;
		mask |= 1u << i;
		ejected++;
	}
	return ejected * 100 <= count * share && ejected < count ? mask : 0;
}
