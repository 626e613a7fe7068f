/* The log of the shim's own: transitions, first rejections, our own troubles; never a line a call. Lines are written by
 * one write(2) that never blocks and never raises SIGPIPE (E8). */
#ifndef RESIL_BASE_LOG_H
#define RESIL_BASE_LOG_H

#include "base/text.h"

/* Can it be logged there, now? 0; -EINVAL: no place at all; another -errno: a file that cannot be written. why: words.
 */
int log_check_target(const char *target, struct text *why);
/* "off", "stderr", "syslog" (datagram to /dev/log), "journal" (datagram to journald, with fields), or a path from / on
 * (opened for each line with O_APPEND | O_NOFOLLOW: nothing is kept open). Copied. Anything else is off. From the
 * constructor: where a person looks on (stderr is a terminal), a place that cannot be used is told there; the command
 * tells it too (run, check, doctor). */
void log_set_target(const char *target);
/* For as long as no system call may be made. */
void log_mute(_Bool is_mute);
enum log_priority { LOG_IS_ERROR = 3, LOG_IS_WARNING = 4, LOG_IS_NOTICE = 5 }; /* syslog's numbers */
struct log_field {
	const char *name;  /* RESIL_DESTINATION */
	const char *value; /* null or "": left out */
};
/* One line with what it is made of: the journal takes the fields, syslog the priority, the others the line alone. */
void log_event(enum log_priority priority, const char *line, const struct log_field *fields, size_t n);
/* One line; the prefix "resil: " and, in files, a time and pid are added. Nothing when off. */
void log_line(const char *line);
/* The same, at most once in the life of the process for each `once` flag. */
void log_once(_Bool *once, const char *line);

#endif
