/* Only in builds with RESIL_FAIL_OWN, for tests: makes the n-th system call of the shim's own fail, so that every place
 * where we may be refused something is visited (a guest who is refused does less; the app must not notice).
 * RESIL_FAIL_NTH: which one, from 1; RESIL_FAIL_AFTER: every one from there on; RESIL_FAIL_ERRNO: with what (default
 * ENOMEM); RESIL_FAIL_COUNT: a file that gets how many there were. */
#ifndef RESIL_BASE_FAIL_H
#define RESIL_BASE_FAIL_H

#include <stdbool.h>

bool fail_now(long number);
long fail_errno(void);

#endif
