/* What people and programs read of a region: JSON (CONTRACT 6 and 7), Prometheus text. Used by the socket and by the
 * command; no sockets, no malloc here. */
#ifndef RESIL_CONTROL_RENDER_H
#define RESIL_CONTROL_RENDER_H

#include "base/text.h"
#include "core/circuit.h"
#include "core/events.h"
#include "policy/config.h"

/* {"status":...,"bypass":[...],"breakers":{...}}; returns true when healthy. bypass: of core/bypass.h. */
bool render_health(struct text *t, const struct region *r, unsigned bypass, int64_t now_ns);
/* ["group","user","machine"], those that hold. */
void render_bypass(struct text *t, unsigned bypass);
void render_destination(struct text *t, const struct region *r, uint32_t index, int64_t now_ns);
/* [destination, ...] */
void render_destinations(struct text *t, const struct region *r, int64_t now_ns);
/* A destination from a picture already taken, and what is derived from one: all calls that ended, rejections included;
 * the failure rate over the recent ones (since the last transition, the last 100 at most) in hundredths of a percent,
 * and whether they are enough to speak of one; whether /health calls it healthy (closed, not forced open, rate under 50
 * %).
 */
void render_view(struct text *t, const struct circuit_view *v);
uint64_t render_total_calls(const struct circuit_view *v);
uint32_t render_rate_hundredths(const struct circuit_view *v);
bool render_has_rate(const struct circuit_view *v);
bool render_is_healthy(const struct circuit_view *v);
/* One line of JSON, with its newline. */
void render_event(struct text *t, const struct region *r, const struct event *e);
/* A reader's place in the ring: start with seq = the last one known. is_patient (followers): an event that is still
 * being written is waited for, a second at most; else it is passed over. */
struct render_cursor {
	uint64_t seq;
	int64_t missing_ns;
	bool is_patient;
};
/* The next event after the cursor, copied; false: none for now. */
bool render_next_event(const struct region *r, struct render_cursor *cursor, int64_t now_ns, struct event *e);
/* The living ones. is_alive: member_is_alive, or what can tell it of another pid namespace (the command's -p). */
void render_members(struct text *t, const struct region *r, int64_t now_ns);
void render_members_where(struct text *t, const struct region *r, int64_t now_ns,
	bool (*is_alive)(uint64_t id, const void *ctx), const void *ctx);
void render_config(struct text *t, const struct config *c);
/* {"breaker":{"value":"on","origin":"built-in"},...}; addr: as they hold for that address; null: as they are written.
 */
void render_policy_values(struct text *t, const struct config *c, const struct policy *p, const struct addr *addr);
/* One of them: its value and where it comes from. */
void render_policy_value(struct text *value, struct text *origin, const struct config *c, const struct policy *p,
	enum config_key key, const struct addr *addr);
/* Prometheus text. With several regions each family is complete over all of them, as the format asks. */
void render_metrics(struct text *t, const struct region *const *regions, unsigned count, int64_t now_ns);
/* The same with a label `user` for each region: users may have groups of one name. users: null: without. */
void render_metrics_of_users(
	struct text *t, const struct region *const *regions, const char *const *users, unsigned count, int64_t now_ns);

#endif
