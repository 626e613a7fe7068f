/* A unit test program's harness: each check prints a TAP line; the exit code says whether all passed. A program that
 * dies on the way prints no plan, which a TAP reader takes as a failure. Checks that run millions of times count
 * quietly by tap_expect() and print one line at the end. */
#ifndef RESIL_TESTS_TAP_H
#define RESIL_TESTS_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int tap_count, tap_failed;
static unsigned long tap_quiet, tap_quiet_failed;

__attribute__((format(printf, 2, 3), unused)) static bool tap_ok(bool passed, const char *fmt, ...)
{
	va_list ap;

	tap_failed += !passed;
	printf("%sok %d - ", passed ? "" : "not ", ++tap_count);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	return passed;
}

/* One of very many: says something only when it fails, and only the first five times. */
__attribute__((format(printf, 2, 3), unused)) static bool tap_expect(bool passed, const char *fmt, ...)
{
	va_list ap;

	tap_quiet++;
	if (passed)
		return true;
	if (tap_quiet_failed++ < 5) {
		printf("# ");
		va_start(ap, fmt);
		vprintf(fmt, ap);
		va_end(ap);
		printf("\n");
	}
	return false;
}

/* The line for all tap_expect() since the last one; without any it fails, for it then proved nothing. */
__attribute__((unused)) static void tap_all(const char *name)
{
	tap_ok(tap_quiet > 0 && tap_quiet_failed == 0, "%s (%lu checks)", name, tap_quiet);
	tap_quiet = tap_quiet_failed = 0;
}

__attribute__((unused)) static int tap_done(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
