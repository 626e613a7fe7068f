/* One row a key. The enum, the parser, `resil which`, the error messages ("did you mean"), conf/resil.conf's check and
 * the manual resil.conf(5) come from it. A row whose work comes later is not here: until it works, the key is unknown.
 */
#ifndef RESIL_POLICY_KEYS_H
#define RESIL_POLICY_KEYS_H

/* Policy keys, for [defaults] and [destination NAME]:
 * X(ENUMERATOR, "name", type, field of struct policy, "default", minimum, maximum, "sentence")
 * Types: CHOICE (choices in value.c), DURATION (ns; minimum 0 means `off` is accepted, 0 itself never), DURATION_MS (a
 * uint32_t of ms), WAIT (the same, and 0 is nothing at all), LIMIT (a count, or `off`), WINDOW (calls within the
 * limits, a time, or `off`; see window.h), COUNT, FACTOR (hundredths: 2 -> 200), PERCENT, ERRNO (one of words.c's
 * list), SECONDS (ns, whole seconds from the minimum on, or `off`), KINDS (a mask of failure kinds, see words.c),
 * FIELD_NAME (char[], of an HTTP header field, or `off`), ROUTES (char[], templates of paths, see route.h, or `off`),
 * CHAIN (const char *, see chain.h; null: `off`). */
/* clang-format off */
#define POLICY_KEYS(X)                                                                                                 \
	X(BREAKER, "breaker", CHOICE, breaker, "on", 0, 0,                                                             \
		"`on`, `off`, or `observe`: decides and counts, never rejects")                                        \
	X(PROTOCOL, "protocol", CHOICE, protocol, "auto", 0, 0,                                                        \
		"`auto`, `http1`, `h2`, `request` (each request one answer), `stream` or `oneway`: what the bytes do not tell") \
	X(KEY, "key", CHOICE, key, "origin", 0, 0,                                                                     \
		"one breaker per `origin` (name:port), `address` (ip:port), `section` (all that this section "         \
		"matches), `method` or `route` (of HTTP/1 requests, decided at their first send)")                     \
	X(ROUTE, "route", ROUTES, route, "off", 0, POLICY_ROUTES_MAX,                                                  \
		"path templates for `key = route`: `/users/*, /orders/*/items`; all others go to `unknown`")           \
	X(FAILURE_THRESHOLD, "failure_threshold", COUNT, rules.failure_threshold, "5", 0, BREAKER_COUNT_MAX,           \
		"consecutive failures that open the circuit; `0`: never by this rule")                                 \
	X(SLIDING_WINDOW, "sliding_window", WINDOW, rules.window, "off", 1, WINDOW_CALLS_MAX,                          \
		"the last calls that the two rates below are of: a number of calls (`100`) or a time (`60s`); `off`: the last 100 calls, for display only") \
	X(FAILURE_RATE_THRESHOLD, "failure_rate_threshold", PERCENT, rules.failure_rate_percent, "50%", 1, 100,        \
		"so many of the window's calls having failed open the circuit")                                        \
	X(SLOW_CALL_DURATION, "slow_call_duration", DURATION_MS, rules.slow_call_ms, "off", 0, 86400000,            \
		"a call that takes so long is slow")                                                                   \
	X(SLOW_CALL_RATE_THRESHOLD, "slow_call_rate_threshold", PERCENT, rules.slow_rate_percent, "100%", 1, 100,      \
		"so many of the window's calls being slow open the circuit")                                           \
	X(MINIMUM_CALLS, "minimum_calls", COUNT, rules.minimum_calls, "20", 1, 1000000,                                \
		"calls in the window before a rate counts; never more than a `sliding_window` of calls holds")         \
	X(RECOVERY_TIMEOUT, "recovery_timeout", DURATION_MS, rules.recovery_ms, "1s", 1, BREAKER_WAIT_MAX_MS,          \
		"open before the first probe")                                                                         \
	X(RECOVERY_BACKOFF, "recovery_backoff", FACTOR, rules.backoff_percent, "2", 100, 10000,                        \
		"each reopening multiplies the wait by this")                                                          \
	X(RECOVERY_MAX, "recovery_max", DURATION_MS, rules.recovery_max_ms, "30s", 1, BREAKER_WAIT_MAX_MS,             \
		"the longest wait; never below recovery_timeout")                                                      \
	X(RECOVERY_JITTER, "recovery_jitter", PERCENT, rules.jitter_percent, "20%", 0, 100,                            \
		"spreads the wait both ways")                                                                          \
	X(HALF_OPEN_MAX_CALLS, "half_open_max_calls", COUNT, rules.half_open_max_calls, "1", 1, BREAKER_PROBES_MAX,    \
		"probes in flight at once, over all processes of the group")                                           \
	X(SUCCESS_THRESHOLD, "success_threshold", COUNT, rules.success_threshold, "1", 1, BREAKER_COUNT_MAX,           \
		"successful probes that close the circuit")                                                            \
	X(PROBE_TIMEOUT, "probe_timeout", DURATION_MS, rules.probe_timeout_ms, "30s", 1, BREAKER_WAIT_MAX_MS,          \
		"a probe without a verdict by then has failed")                                                        \
	X(TRIP_ON, "trip_on", KINDS, trip_mask,                                                                        \
		"refused unreachable connect_timeout reset eof answer_timeout stall_timeout deadline abandoned tls http_gateway grpc", \
		0, 0, "failure kinds that count, or `none`; a probe_timeout always does")                              \
	X(ABANDON_AFTER, "abandon_after", DURATION, abandon_after_ns, "1s", 0, 86400000000000,                         \
		"the app hanging up after waiting this long for an answer is a failure; sooner, or with `off`, it is neutral") \
	X(CONNECT_TIMEOUT, "connect_timeout", DURATION, connect_timeout_ns, "10s", 0, 86400000000000,                  \
		"one address; name look-up excluded")                                                                  \
	X(ANSWER_TIMEOUT, "answer_timeout", DURATION, answer_timeout_ns, "off", 0, 86400000000000,                     \
		"from the last byte of a request to the first byte of its answer")                                     \
	X(STALL_TIMEOUT, "stall_timeout", DURATION, stall_timeout_ns, "off", 0, 86400000000000,                        \
		"silence in the middle of an answer")                                                                  \
	X(DEADLINE, "deadline", DURATION, deadline_ns, "off", 0, 86400000000000,                                       \
		"the whole call, from the name look-up to the last byte of its answer")                                \
	X(RESOLVE_TIMEOUT, "resolve_timeout", DURATION, resolve_timeout_ns, "off", 0, 86400000000000,                  \
		"a name look-up: getaddrinfo, gethostbyname and gethostbyaddr")                                        \
	X(STALE_DNS, "stale_dns", DURATION, stale_dns_ns, "off", 0, 31536000000000000,                                 \
		"how old a last good answer may be when the resolver fails")                                           \
	X(EJECT, "eject", CHOICE, eject, "on", 0, 0,                                                                   \
		"addresses that fail go last in a look-up's answer while others are healthy: `on` or `off`")           \
	X(MAX_EJECTION, "max_ejection", PERCENT, max_ejection_percent, "50%", 0, 100,                                  \
		"of a name's addresses; beyond it the resolver's order stays")                                         \
	X(MAX_CONCURRENT, "max_concurrent", LIMIT, max_concurrent, "off", 1, BULKHEAD_MAX,                             \
		"calls at once, over all processes of the group; further ones are rejected")                           \
	X(MAX_WAIT, "max_wait", WAIT, max_wait_ms, "0ms", 0, 86400000,                                                 \
		"a blocking connect waits so long for a place below `max_concurrent`, in order of arrival")            \
	X(ADAPTIVE, "adaptive", CHOICE, adaptive, "off", 0, 0,                                                         \
		"`on`: the limit follows latency, and `max_concurrent` is its ceiling")                                \
	X(FALLBACK, "fallback", CHAIN, fallback, "off", 0, 0,                                                             \
		"what stands in when a call is refused, or a blocking connect fails, tried left to right: "            \
		"`host:port`, `cache(1h)`, `reply:FILE`, `spool:DIR`, `errno:NAME`")                                   \
	X(REJECT_ERRNO, "reject_errno", ERRNO, reject_errno, "ECONNREFUSED", 0, 0, "what a rejected connect returns")  \
	X(DEADLINE_HEADER, "deadline_header", FIELD_NAME, deadline_header, "off", 0, POLICY_FIELD_NAME_MAX,            \
		"the header field that tells the time left, added to plain HTTP/1 requests")                           \
	X(KEEPALIVE, "keepalive", SECONDS, keepalive_ns, "off", 1000000000, 32400000000000,                            \
		"idle time before the first keep-alive probe, set on connect where the app set none")                  \
	X(TCP_USER_TIMEOUT, "tcp_user_timeout", DURATION, tcp_user_timeout_ns, "off", 0, 86400000000000,               \
		"sent and unacknowledged this long ends a connection, set on connect where the app set none")
/* clang-format on */

enum config_key {
#define X(name, text, type, field, initial, min, max, sentence) KEY_##name,
	POLICY_KEYS(X)
#undef X
		KEY_COUNT
};

/* Settings of [resil]: X(ENUMERATOR, "name", type, "default", minimum, maximum, "sentence"). TEXT is read in assign.c.
 */
/* clang-format off */
#define RESIL_SETTINGS(X)                                                                                              \
	X(LOG, "log", TEXT, "off", 0, 0, "`off`, `stderr`, `syslog`, `journal`, or a file's path; RESIL_LOG goes before it") \
	X(STATE, "state", CHOICE, "shared", 0, 0, "`shared` by all processes of the group, or `private` to each")      \
	X(MAX_DESTINATIONS, "max_destinations", COUNT, "512", 1, 65000,                                                \
		"circuits a group can hold; fixed when its region is made")                                            \
	X(CONTROL, "control", CHOICE, "auto", 0, 0,                                                                    \
		"the unix socket: `auto` (a second after attaching), `on` (at the first guarded call), `off`")         \
	X(SKIP_EXE, "skip_exe", TEXT, "systemd*, sshd, login, dbus-daemon", 0, 0,                                      \
		"executables in which the shim does nothing")
/* clang-format on */

enum config_setting {
#define X(name, text, type, initial, min, max, sentence) SETTING_##name,
	RESIL_SETTINGS(X)
#undef X
		SETTING_COUNT
};

#endif
