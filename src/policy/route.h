// Templates of paths for `key = route`, such as "/users/*, /orders/*/items". A star is one whole segment, whatever is
// in it but nothing; all else stands for itself, case and escapes included. What follows a question mark does not
// count. The first template that fits wins. Pure.
#ifndef RESIL_POLICY_ROUTE_H
#define RESIL_POLICY_ROUTE_H

#include "policy/complain.h"
#include "policy/config.h"

#define ROUTE_COUNT_MAX 32
/* What no template fits. */
#define ROUTE_UNKNOWN "unknown"

/* Reads n bytes, blanks stripped, into templates parted by ", "; `off` or nothing: none. name: the key's. False: fault
 * says why. */
bool route_read(const char *name, const char *s, size_t n, char routes[POLICY_ROUTES_MAX + 1], struct fault *fault);
/* The template that fits a request's target (a path, or a URL with one): null: none. *length: its own. */
const char *route_find(const char *routes, const char *target, size_t n, size_t *length);
/* A method as circuits are named by it: one of the usual ones, else ROUTE_UNKNOWN. */
const char *route_method(const char *method, size_t n);

#endif
