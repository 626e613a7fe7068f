/* The second gate of a call: a slot of its destination's bulkhead (core/bulkhead.h), after its circuit has let it pass.
 * Only for calls whose guard has one (guard.limits.bulkhead).
 *
 * Nothing is held while a call waits: where no slot is free the circuit's admission is taken back first, a probe's
 * lease with it, and asked for anew once there is a slot. So nobody else's probe waits for us, and a circuit that has
 * opened meanwhile is heard. */
#ifndef RESIL_ENGINE_ADMISSION_H
#define RESIL_ENGINE_ADMISSION_H

#include "core/bulkhead.h"
#include "core/circuit.h"
#include "engine/guard.h"

enum admission {
	ADMISSION_GRANTED,
	ADMISSION_FULL,	       /* counted as rejected by the bulkhead */
	ADMISSION_OPEN,	       /* after a wait: the circuit has opened; counted by it */
	ADMISSION_LATE,	       /* the call's deadline came first; counted as full */
	ADMISSION_INTERRUPTED, /* by a handler that does not restart calls */
};

struct admission_slot {
	uint64_t hold;	   /* 0: none (observed, or a process without a record) */
	int64_t held_ns;   /* since when: now, unless it has waited */
	int64_t waited_ns; /* how long */
};

/* How long this call may wait. */
struct admission_patience {
	int64_t until_ns;    /* not longer; 0: it may not wait */
	int64_t deadline_ns; /* of the call; INT64_MAX: none */
	bool minds_signals;
};
/* None where the policy gives none, or no system call may be made. begun_ns: of the call. own_us: the socket's own
 * SO_SNDTIMEO, 0: none. */
struct admission_patience admission_patience(
	const struct guard *g, bool is_blocking, int64_t begun_ns, int64_t own_us, int64_t now_ns);

/* Of a connect, whose circuit has just admitted it with that token; where it is not granted, the token is settled. */
enum admission admission_of_connect(const struct guard *g, struct circuit_token *token,
	const struct admission_patience *patience, int64_t now_ns, struct admission_slot *slot);
/* Of a call that begins on a kept connection and can be rejected (B20). */
enum admission admission_of_send(const struct guard *g, struct circuit_token *token,
	const struct admission_patience *patience, int64_t now_ns, struct admission_slot *slot);
/* Of one that cannot: a slot if there is one. */
void admission_of_pass(const struct guard *g, int64_t now_ns, struct admission_slot *slot);

/* The slot is free. */
void admission_release(const struct guard *g, uint64_t hold, int64_t now_ns);
/* Slots that this process holds. */
uint32_t admission_held(void);
/* In a fork's child: they are the parent's. */
void admission_forked(void);

#endif
