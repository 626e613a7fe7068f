/* Our own variables by one walk through the environment (base/env.h): as getenv has them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "tap.h"

static bool is(const char *name, const char *value)
{
	const char *is = env_at_start(name);

	return value ? is && strcmp(is, value) == 0 : !is;
}

/* In a child: what is gathered is gathered once. */
static bool in_child(bool (*look)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(!look());
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static bool names(void)
{
	clearenv();
	setenv("RESIL_SETS", "no", 1);
	setenv("RESIL_SET", "a=b", 1);
	setenv("RESIL_EMPTY", "", 1);
	setenv("HOME", "/h", 1);
	return is("RESIL_SET", "a=b") && is("RESIL_SETS", "no") && is("RESIL_EMPTY", "") && is("RESIL_SE", NULL) &&
	       is("RESIL_", NULL) && is("HOME", "/h") && is("XDG", NULL);
}

static bool none(void)
{
	clearenv();
	return is("RESIL_SET", NULL) && is("HOME", NULL);
}

static bool many(void)
{
	char name[32];

	clearenv();
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof name, "RESIL_%d", i);
		setenv(name, name + 6, 1);
	}
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof name, "RESIL_%d", i);
		if (!is(name, name + 6))
			return false;
	}
	return is("RESIL_100", NULL);
}

int main(void)
{
	tap_ok(in_child(names), "by whole names, empty ones too");
	tap_ok(in_child(none), "an empty environment");
	tap_ok(in_child(many), "more than there is room for");
	return tap_done();
}
