/* See adapt.h. Called by whoever ends a span of calls, on any thread. */
#include "core/adapt.h"

#define ONE 256u /* a limit of one */
#define LIMIT_BITS 24
#define LIMIT_MASK ((1u << LIMIT_BITS) - 1)
#define LATENCY_MASK ((1ull << 40) - 1)
#define CLIP 4u
#define USUAL_SHIFT 6 /* a span moves the usual latency by a 64th */

static uint32_t limit_of(uint64_t state)
{
	return (uint32_t)(state & LIMIT_MASK);
}

static uint64_t usual_of(uint64_t state)
{
	return state >> LIMIT_BITS & LATENCY_MASK;
}

static uint64_t make(uint32_t limit, uint64_t usual_us)
{
	return (usual_us < LATENCY_MASK ? usual_us : LATENCY_MASK) << LIMIT_BITS | limit;
}

static uint32_t within(uint32_t limit, uint32_t ceiling)
{
	ceiling = ceiling < 1 ? 1 : ceiling > LIMIT_MASK / ONE ? LIMIT_MASK / ONE : ceiling;
	return limit < ONE ? ONE : limit > ceiling * ONE ? ceiling * ONE : limit;
}

/* Of a limit in 256ths, in 256ths. */
static uint32_t root(uint32_t limit)
{
	uint32_t r = ONE;

	while ((uint64_t)r * r < (uint64_t)limit * ONE)
		r += ONE / 4;
	return r;
}

uint32_t adapt_limit(uint64_t state, uint32_t ceiling)
{
	return state == 0 ? (ceiling ? ceiling : 1) : within(limit_of(state), ceiling) / ONE;
}

uint64_t adapt_clip_us(uint64_t state, uint64_t us)
{
	uint64_t usual = usual_of(state), most = (usual ? usual : LATENCY_MASK / CLIP) * CLIP;

	return us < most ? us : most;
}

uint64_t adapt_next(uint64_t state, uint32_t ceiling, uint64_t mean_us, uint32_t peak)
{
	uint64_t usual = usual_of(state), now = mean_us > 0 ? mean_us : 1;
	uint32_t limit = within(state ? limit_of(state) : ceiling * ONE, ceiling);

	now = now < LATENCY_MASK / ONE ? now : LATENCY_MASK / ONE;
	if (usual == 0)
		return make(limit, now);
	if (usual > 2 * now)
		usual -= usual / 20; /* a time of load has gone into it */
	else if (now > usual)
		usual += (now - usual) >> USUAL_SHIFT;
	else
		usual -= (usual - now) >> USUAL_SHIFT;
	if (usual == 0)
		usual = 1;
	/* Few calls tell nothing of how many would be too many. */
	if ((uint64_t)peak * 2 * ONE < limit)
		return make(limit, usual);
	uint64_t gradient = usual * ONE * 3 / 2 / now;
	gradient = gradient < ONE / 2 ? ONE / 2 : gradient > ONE ? ONE : gradient;
	uint32_t target = (uint32_t)(limit * gradient / ONE) + root(limit);
	return make(within((uint32_t)(((uint64_t)limit * 4 + target) / 5), ceiling), usual);
}
