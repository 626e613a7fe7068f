/* Names of errno values ("ECONNREFUSED"), both ways; strerror would take a lock and the app's locale. */
#ifndef RESIL_BASE_ERRNAME_H
#define RESIL_BASE_ERRNAME_H

/* The name; "unknown error" for numbers that are not in the table. err: positive. */
const char *errname(int err);
/* The value of a name, or 0. */
int errname_value(const char *name);

#endif
