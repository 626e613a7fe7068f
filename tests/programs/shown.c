/* What `resil status --json` shows of one destination, read by one small program: suites ask for it all the time.
 *
 * usage: shown RESIL SECONDS NAME FIELD [OPTION OF RESIL STATUS]...
 *        shown RESIL SECONDS NAME calls-and-failures
 * FIELD is a path with dots; a string is shown without its quotes, what is not there as "null". calls-and-failures:
 * what the calls came to, as "3 success 1 failure reset 1". Fails where there is no such destination, where resil
 * fails, and where it takes longer. */
#include <ctype.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
// link: -static

#define OPTIONS_MAX 16

extern char **environ;

static void die(const char *what, const char *of)
{
	fprintf(stderr, "shown: %s %s\n", what, of);
	exit(5);
}

/* All that resil says; it must end well, and in time. */
static char *ask(char **command, int seconds)
{
	posix_spawn_file_actions_t actions;
	struct timespec end, t;
	int ends[2], status;
	size_t room = 65536, len = 0;
	char *text = malloc(room);
	pid_t child;

	if (!text || pipe(ends) != 0)
		die("no pipe to", command[0]);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	posix_spawn_file_actions_addclose(&actions, ends[1]);
	if (posix_spawn(&child, command[0], &actions, NULL, command, environ) != 0)
		die("cannot run", command[0]);
	close(ends[1]);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds;
	for (;;) {
		struct pollfd p = {.fd = ends[0], .events = POLLIN};

		clock_gettime(CLOCK_MONOTONIC, &t);
		long left = (end.tv_sec - t.tv_sec) * 1000 + (end.tv_nsec - t.tv_nsec) / 1000000;
		if (left < 0 || poll(&p, 1, (int)left) == 0) {
			kill(child, SIGKILL);
			die("waited in vain for", command[0]);
		}
		if (len + 1 == room && !(text = realloc(text, room *= 2)))
			die("no memory for", command[0]);
		ssize_t n = read(ends[0], text + len, room - 1 - len);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	text[len] = 0;
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		die("it failed:", command[0]);
	return text;
}

static const char *space(const char *at)
{
	while (isspace((unsigned char)*at))
		at++;
	return at;
}

/* Past the value at `at`. */
static const char *past(const char *at)
{
	int depth = 0;

	at = space(at);
	do {
		if (*at == '"') {
			for (at++; *at && *at != '"'; at++)
				at += *at == '\\' && at[1];
			if (*at)
				at++;
		} else if (strchr("{[", *at) && *at) {
			depth++;
			at++;
		} else if (strchr("}]", *at) && *at) {
			depth--;
			at++;
		} else if (depth == 0) {
			while (*at && !strchr(",}] \n", *at))
				at++;
		} else if (*at) {
			at++;
		}
	} while (depth > 0 && *at);
	return at;
}

/* The first or next member of an object or element of an array; NULL after the last. `key` (may be NULL) is set to its
 * quoted key. */
static const char *next(const char *at, const char **key)
{
	at = space(at);
	if (*at == '{' || *at == '[' || *at == ',')
		at = space(at + 1);
	if (!*at || *at == '}' || *at == ']')
		return NULL;
	if (key) {
		*key = at;
		at = space(past(at));
		if (*at != ':')
			return NULL;
		at = space(at + 1);
	}
	return at;
}

static bool is_word(const char *quoted, const char *word, size_t len)
{
	return quoted[0] == '"' && strncmp(quoted + 1, word, len) == 0 && quoted[len + 1] == '"';
}

static const char *member(const char *object, const char *name, size_t len)
{
	const char *key, *value;

	if (!object || *object != '{')
		return NULL;
	for (value = next(object, &key); value; value = next(past(value), &key))
		if (is_word(key, name, len))
			return value;
	return NULL;
}

static const char *path_of(const char *object, const char *path)
{
	while (object && *path) {
		size_t len = strcspn(path, ".");

		object = member(object, path, len);
		path += len + (path[len] == '.');
	}
	return object;
}

static const char *destination(const char *all, const char *name)
{
	const char *groups = path_of(space(all), "groups"), *group, *each;

	for (group = groups ? next(groups, NULL) : NULL; group; group = next(past(group), NULL)) {
		const char *list = path_of(group, "destinations");

		for (each = list ? next(list, NULL) : NULL; each; each = next(past(each), NULL)) {
			const char *own = path_of(each, "name");

			if (own && is_word(own, name, strlen(name)))
				return each;
		}
	}
	return NULL;
}

static void show(const char *value)
{
	const char *end;

	if (!value) {
		puts("null");
		return;
	}
	end = past(value);
	if (*value == '"' && end - value >= 2)
		printf("%.*s\n", (int)(end - value - 2), value + 1);
	else
		printf("%.*s\n", (int)(end - value), value);
}

static const char *gap = "";

static void show_count(const char *object, const char *name, size_t len, bool is_first_word)
{
	long n = 0;
	const char *value = member(object, name, len);

	if (value)
		n = atol(value);
	if (n == 0)
		return;
	if (is_first_word)
		printf("%s%.*s %ld", gap, (int)len, name, n);
	else
		printf("%s%ld %.*s", gap, n, (int)len, name);
	gap = " ";
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void show_all(const char *of)
{
	static const char *const ways[] = {"success", "failure", "neutral", "rejected"};
	const char *failures = path_of(of, "failures"), *calls = path_of(of, "calls"), *key, *value;
	char *kinds[64];
	size_t n = 0;

	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
		show_count(calls, ways[i], strlen(ways[i]), false);
	for (value = failures ? next(failures, &key) : NULL; value && n < 64; value = next(past(value), &key))
		kinds[n++] = strndup(key + 1, (size_t)(past(key) - key - 2));
	qsort(kinds, n, sizeof kinds[0], by_name);
	for (size_t i = 0; i < n; i++)
		show_count(failures, kinds[i], strlen(kinds[i]), true);
	puts("");
}

int main(int argc, char **argv)
{
	char *command[OPTIONS_MAX + 4] = {argc > 1 ? argv[1] : NULL, "status", "--json"};

	if (argc < 5 || argc - 5 > OPTIONS_MAX) {
		fprintf(stderr, "usage: shown RESIL SECONDS NAME FIELD [OPTION]...\n");
		return 2;
	}
	for (int i = 5; i < argc; i++)
		command[i - 2] = argv[i];
	const char *found = destination(ask(command, atoi(argv[2])), argv[3]);

	if (!found)
		die("no destination", argv[3]);
	if (strcmp(argv[4], "calls-and-failures") == 0)
		show_all(found);
	else
		show(path_of(found, argv[4]));
	return 0;
}
