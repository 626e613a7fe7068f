/* One row a type of fault, one a parameter. Enums, parser, error messages, `resil fault`, `resil which` and the check
 * of the manual come from them. What a new type does is one case in engine/fault_connect.c, or in fault_io.c.
 */
#ifndef RESIL_POLICY_FAULT_TYPES_H
#define RESIL_POLICY_FAULT_TYPES_H

/* Parameters: X(ENUMERATOR, "name", kind, "default" ("": must be given where it is required), minimum, maximum,
 * "sentence"). Kinds: DURATION and COUNT (value.h), CHOICE (choices in fault.c), SIZE (octets, `64k`), SHARE
 * (millionths, as a percentage), ERRNO, CALLS (a mask of enum fault_call). The first ones are of types, those from
 * PERCENT on say when, of any type. */
/* clang-format off */
#define FAULT_PARAMS(X)                                                                                                \
	X(DELAY, "delay", DURATION, "off", 0, 86400000000000, "so much later")                                         \
	X(JITTER, "jitter", DURATION, "off", 0, 86400000000000, "varies the delay")                                    \
	X(DISTRIBUTION, "distribution", CHOICE, "uniform", 0, 0,                                                       \
		"of the jitter: `uniform` up and down, `normal` (jitter is the standard deviation), `pareto` (never less than the delay, a long tail)") \
	X(RATE, "rate", SIZE, "", 1, 1099511627776, "bytes a second, such as `64k`")                                   \
	X(DIRECTION, "direction", CHOICE, "both", 0, 0, "`up` (to the server), `down`, or `both`")                     \
	X(AFTER_BYTES, "after_bytes", SIZE, "0", 0, 1099511627776, "only after so many have passed")                   \
	X(BYTES, "bytes", SIZE, "", 0, 1099511627776, "as many pass, then the end")                                    \
	X(SIZE, "size", SIZE, "1", 1, 1099511627776, "bytes at most at a time")                                        \
	X(SHARE, "share", SHARE, "", 0, 1000000, "of the bytes, such as `0.1%`")                                       \
	X(ERRNO, "errno", ERRNO, "", 0, 0, "which error")                                                              \
	X(ERROR, "error", CHOICE, "again", 0, 0, "`again`, `noname`, `fail`, or `none`: the delay alone")              \
	X(STATUS, "status", COUNT, "503", 200, 599, "of HTTP")                                                         \
	X(PERCENT, "percent", SHARE, "100%", 0, 1000000, "of the calls, by chance")                                    \
	X(SKIP, "skip", COUNT, "0", 0, 4294967295, "calls at the beginning that are left alone")                       \
	X(COUNT, "count", LIMIT, "unlimited", 0, 4294967295, "faults at most, for each destination")                   \
	X(EVERY, "every", COUNT, "1", 1, 4294967295, "only each so many-th call")                                      \
	X(AFTER, "after", DURATION, "off", 0, 31536000000000000, "not before this has passed since the start")         \
	X(FOR, "for", DURATION, "off", 0, 31536000000000000, "not longer than this")                                   \
	X(RAMP, "ramp", DURATION, "off", 0, 31536000000000000, "the percentage grows to its value over this time")     \
	X(CALLS, "calls", CALLS, "", 0, 0, "at which calls: `connect`, `resolve`, `send`, `recv`")

/* Types: X(ENUMERATOR, "name", parameters, of them required, calls it can be at, at which it is unless told, "sentence"),
 * masks of FAULT_HAS(...) and FAULT_AT(...). */
#define FAULT_TYPES(X)                                                                                                 \
	X(REFUSE, "refuse", 0, 0, AT_CONNECT, AT_CONNECT, "connect fails with ECONNREFUSED")                           \
	X(UNREACHABLE, "unreachable", 0, 0, AT_CONNECT, AT_CONNECT, "connect fails with EHOSTUNREACH")                 \
	X(ERRNO, "errno", HAS_ERRNO, HAS_ERRNO, AT_CONNECT | AT_SEND | AT_RECV, 0,                                     \
		"that error, at a call it is legal for")                                                               \
	X(HANG, "hang", 0, 0, AT_CONNECT, AT_CONNECT, "a connect that is never answered")                              \
	X(SLOW_CONNECT, "slow_connect", HAS_DELAY | HAS_JITTER | HAS_DISTRIBUTION, HAS_DELAY, AT_CONNECT, AT_CONNECT,  \
		"a connect that takes that long, then succeeds")                                                       \
	X(LATENCY, "latency", HAS_DELAY | HAS_JITTER | HAS_DISTRIBUTION | HAS_DIRECTION, HAS_DELAY, AT_CONNECT,        \
		AT_CONNECT, "the bytes of each direction arrive late")                                                 \
	X(BANDWIDTH, "bandwidth", HAS_RATE | HAS_DIRECTION, HAS_RATE, AT_CONNECT, AT_CONNECT,                          \
		"no more bytes a second than that")                                                                    \
	X(BLACKHOLE, "blackhole", HAS_AFTER_BYTES | HAS_DIRECTION, 0, AT_CONNECT, AT_CONNECT,                          \
		"nothing arrives any more; when it is lifted, a reset")                                                \
	X(LIMIT_DATA, "limit_data", HAS_BYTES | HAS_DIRECTION, HAS_BYTES, AT_CONNECT, AT_CONNECT,                      \
		"an orderly end, at both sides, after so many bytes of the answer")                                                    \
	X(SLOW_CLOSE, "slow_close", HAS_DELAY | HAS_DIRECTION, HAS_DELAY, AT_CONNECT, AT_CONNECT,                      \
		"the end of the stream arrives late")                                                                  \
	X(SLICER, "slicer", HAS_SIZE | HAS_DELAY | HAS_DIRECTION, HAS_SIZE, AT_CONNECT, AT_CONNECT,                    \
		"the bytes arrive in small pieces")                                                                    \
	X(CORRUPT, "corrupt", HAS_SHARE | HAS_DIRECTION, HAS_SHARE, AT_CONNECT, AT_CONNECT, "flipped bytes")           \
	X(HTTP, "http", HAS_STATUS, HAS_STATUS, AT_CONNECT, AT_CONNECT, "that status in place of the server's answer (plain HTTP/1)") \
	X(DNS, "dns", HAS_ERROR | HAS_DELAY, 0, AT_RESOLVE, AT_RESOLVE, "a look-up fails, or is late")                 \
	X(SHORT_IO, "short_io", HAS_SIZE, 0, AT_SEND | AT_RECV, AT_SEND | AT_RECV,                                     \
		"send and recv move no more than that at a time")                                                      \
	X(RESET, "reset", HAS_AFTER_BYTES | HAS_DELAY | HAS_DIRECTION, 0, AT_CONNECT, AT_CONNECT, "both ends meet a reset, after so many bytes of the answer")
/* clang-format on */

enum fault_param {
#define X(name, text, kind, initial, min, max, sentence) FAULT_##name,
	FAULT_PARAMS(X)
#undef X
		FAULT_PARAM_COUNT
};
#define FAULT_WHEN FAULT_PERCENT /* the first that says when */

enum fault_type {
#define X(name, text, has, needs, at, unless_told, sentence) FAULT_IS_##name,
	FAULT_TYPES(X)
#undef X
		FAULT_TYPE_COUNT
};

enum fault_call { FAULT_AT_CONNECT, FAULT_AT_RESOLVE, FAULT_AT_SEND, FAULT_AT_RECV, FAULT_CALL_COUNT };
enum fault_direction { FAULT_BOTH, FAULT_UP, FAULT_DOWN };
enum fault_error { FAULT_AGAIN, FAULT_NONAME, FAULT_FAIL, FAULT_NO_ERROR };

#endif
