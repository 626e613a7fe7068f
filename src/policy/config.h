/* What was asked for: the configuration, read once, immutable, swapped whole (policy.h). One row of keys.h a key.
 * Read without malloc and stdio: the file is mapped or read into this module's own mmap'd arena, and inih is fed line
 * by line, with lines counted and long ones refused. Serves the shim (in the constructor and on reload) and the command
 * (check, which). */
#ifndef RESIL_POLICY_CONFIG_H
#define RESIL_POLICY_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/text.h"
#include "core/breaker.h"
#include "core/bulkhead.h"
#include "core/failure.h"
#include "core/window.h"
#include "policy/keys.h"

#define CONFIG_SECTION_MAX 63	   /* longest destination section name */
#define CONFIG_POLICIES_MAX 512	   /* sections, [defaults] included; more is an error */
#define CONFIG_MATCHES_MAX 4096	   /* patterns in all; more is an error */
#define CONFIG_FILE_MAX (4u << 20) /* bytes; larger is an error (an endless file ends here) */
#define CONFIG_LINE_MAX 1000	   /* longest line; longer is an error, never cut */
#define CONFIG_SET_MAX 4095	   /* longest RESIL_SET */
#define POLICY_FIELD_NAME_MAX 63   /* longest name of a header field */
#define POLICY_ROUTES_MAX 511	   /* all templates of a `route` together */

/* Where a value was set. */
enum origin_kind { ORIGIN_BUILTIN, ORIGIN_FILE_DEFAULTS, ORIGIN_FILE_SECTION, ORIGIN_ENVIRONMENT, ORIGIN_OBSERVE_ONLY };
struct origin {
	uint8_t kind;  /* enum origin_kind; ORIGIN_OBSERVE_ONLY: the file is broken, nothing is enforced */
	uint32_t line; /* of the file, 1..; 0 where it has none */
};

enum policy_breaker { POLICY_BREAKER_ON, POLICY_BREAKER_OFF, POLICY_BREAKER_OBSERVE };
enum policy_protocol {
	POLICY_PROTOCOL_AUTO,
	POLICY_PROTOCOL_HTTP1,
	POLICY_PROTOCOL_H2,
	POLICY_PROTOCOL_REQUEST,
	POLICY_PROTOCOL_STREAM,
	POLICY_PROTOCOL_ONEWAY
};
enum policy_eject { POLICY_EJECT_OFF, POLICY_EJECT_ON };
enum policy_adaptive { POLICY_ADAPTIVE_OFF, POLICY_ADAPTIVE_ON };
enum policy_key {
	POLICY_KEY_ORIGIN,
	POLICY_KEY_ADDRESS,
	POLICY_KEY_SECTION,
	POLICY_KEY_METHOD, /* the origin's for connects, each request one of its own */
	POLICY_KEY_ROUTE
};

/* The effective values for the destinations that a section matches. */
struct policy {
	char section[CONFIG_SECTION_MAX + 1]; /* "" for [defaults] */
	uint32_t line;			      /* where the section begins, 0 for [defaults] */
	enum policy_breaker breaker;
	enum policy_protocol protocol;
	enum policy_key key;
	char route[POLICY_ROUTES_MAX + 1]; /* route.h; "": none */
	struct breaker_rules rules;	   /* is_observed follows breaker */
	uint32_t trip_mask;	  /* 1u << enum failure_kind: those that count; FAILURE_PROBE_TIMEOUT always does */
	int64_t abandon_after_ns; /* 0: off, a hang-up is never a failure */
	int64_t connect_timeout_ns, answer_timeout_ns, stall_timeout_ns, deadline_ns; /* 0: off */
	int64_t resolve_timeout_ns, stale_dns_ns;				      /* 0: off */
	enum policy_eject eject;
	uint32_t max_ejection_percent;
	uint32_t max_concurrent; /* 0: off */
	uint32_t max_wait_ms;
	enum policy_adaptive adaptive;
	const char *fallback; /* a chain (chain.h), kept with the configuration; null: off */
	int reject_errno;
	char deadline_header[POLICY_FIELD_NAME_MAX + 1]; /* "": off */
	int64_t keepalive_ns, tcp_user_timeout_ns;	 /* 0: off; keepalive is of whole seconds */
	struct origin origin[KEY_COUNT];
};

enum state_kind { STATE_SHARED, STATE_PRIVATE };
enum control_kind { CONTROL_AUTO, CONTROL_ON, CONTROL_OFF };

struct config; /* opaque; lives in its own mapping */

/* Where to read. Null members: not given. set: the text of RESIL_SET; faults: of RESIL_FAULTS (fault.h). */
struct config_source {
	const char *file; /* path that must exist (RESIL_CONF, -c) or, with is_optional, may be absent */
	bool is_optional;
	bool looks_at_files; /* files that values name must be there (`resil check`, `resil run`; not in the shim: a
				file may be out of sight of one process, and is missed only when it is needed) */
	const char *set;
	const char *faults;
};

/* The path the contract names: RESIL_CONF, else $XDG_CONFIG_HOME/resil/resil.conf (~/.config), else
 * /etc/resil/resil.conf when it exists, else false (built-in defaults). *is_optional is false for RESIL_CONF only. */
bool config_find_file(char *path, size_t cap, bool *is_optional, const char *(*getenv_fn)(const char *));

/* Reads all of it. Always returns a usable configuration, or null when no memory is to be had; *error_count tells how
 * many faults were found, each a line `FILE:LINE: what is wrong ('VALUE'; what is accepted; did you mean ...)` in
 * errors (RESIL_SET in place of FILE:LINE for the environment). With faults the result only observes: every breaker
 * observes, no limit is enforced. */
struct config *config_load(const struct config_source *source, struct text *errors, int *error_count);
void config_free(struct config *c);

/* [resil] */
enum state_kind config_state(const struct config *c);
enum control_kind config_control(const struct config *c);
uint32_t config_max_destinations(const struct config *c);
const char *config_log(const struct config *c); /* off, stderr, syslog, journal or a path */
bool config_is_broken(const struct config *c);
const char *config_file(const struct config *c); /* "" when none was read */
/* Is this executable (base name) one of skip_exe? */
bool config_skips(const struct config *c, const char *exe);

/* What a connect asks for. name: as the app looked it up, lower case, no trailing dot; null for a literal. exe: base
 * name. */
struct target {
	const struct addr *addr;
	const char *name;
	const char *exe;
	const char
		*said; /* what the connection calls its server (SNI, Host), written as name is; null: not known yet */
};
/* The first rule that fits in file order, else [defaults]; null: unguarded (a unix socket that no match names).
 * *pattern (may be null): the text that matched, "" for [defaults]. No allocation, no lock: this is on the connect
 * path. */
const struct policy *config_match(const struct config *c, const struct target *target, const char **pattern);

/* The rule for a look-up of a name (as above), before its addresses are known: the first whose executable, name and
 * port fit; port 0, since a look-up may name none: any. */
const struct policy *config_match_look_up(const struct config *c, const char *name, uint16_t port, const char *exe);
/* Does this rule ask for something at look-ups: a limit, a circuit that `dns` trips, a stale answer? Does any? */
bool config_guards_look_up(const struct policy *p);
bool config_guards_look_ups(const struct config *c);

/* Is there a rule by what connections say (`sni:`)? */
bool config_has_sni(const struct config *c);
/* For listings. The next rule that a connect goes over to once it calls its server so (target->said; null: any of the
 * names that patterns have), with that pattern; null: no more. *i is 0 at first. */
const struct policy *config_next_said(
	const struct config *c, const struct target *target, uint32_t *i, const char **pattern);
/* Have all of its patterns to do with what connections say (or with executables), so that no connect begins there? */
bool config_is_said_only(const struct config *c, const struct policy *p);
/* Policies in file order, [defaults] last; null beyond the end. For listings. */
const struct policy *config_policy(const struct config *c, uint32_t index);
/* Where it stands among them. */
uint32_t config_policy_index(const struct config *c, const struct policy *p);
/* The patterns of a policy, comma-separated. */
void config_patterns_text(struct text *t, const struct config *c, const struct policy *p);
/* A key's effective value as the file would have it ("10s", "on", "ECONNREFUSED"), and its origin ("built-in", "FILE:12
 * [defaults]", "FILE:31 [destination pay]", "RESIL_SET"). */
void config_value_text(struct text *t, const struct policy *p, enum config_key key);
void config_origin_text(struct text *t, const struct config *c, const struct policy *p, enum config_key key);
void config_setting_text(struct text *t, const struct config *c, enum config_setting setting);
void config_setting_origin_text(struct text *t, const struct config *c, enum config_setting setting);

#endif
