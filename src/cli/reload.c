/* resil reload, and the command's side of the unix socket. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Paths longer than sun_path (through /proc/PID/root) go by way of their directory's descriptor. */
static int connect_to(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = 10};
	int at = -1;
	if (!text_copy(sa.sun_path, sizeof sa.sun_path, path)) {
		char dir[256];
		const char *name = strrchr(path, '/');
		snprintf(dir, sizeof dir, "%.*s", (int)(name - path), path);
		at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (at < 0)
			return -errno;
		struct text t = TEXT_ON(sa.sun_path);
		text_fmt(&t, "/proc/self/fd/%d%s", at, name);
	}
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int err = fd < 0 ? -errno : 0;
	if (err == 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
		if (connect(fd, (const struct sockaddr *)&sa, sizeof sa) != 0) {
			err = -errno;
			close(fd);
		}
	}
	if (at >= 0)
		close(at);
	return err ? err : fd;
}

/* To the end of the stream: the request says Connection: close. */
static char *read_all(int fd, size_t *len)
{
	size_t cap = 8192;
	char *at = malloc(cap + 1);
	*len = 0;
	while (at) {
		ssize_t n = read(fd, at + *len, cap - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		*len += (size_t)n;
		if (*len == cap) {
			char *more = realloc(at, (cap *= 2) + 1);
			if (!more)
				break;
			at = more;
		}
	}
	if (at)
		at[*len] = '\0';
	return at;
}

int socket_request(const char *path, const char *method, const char *target, char **body)
{
	char request[1024];
	size_t len;

	*body = NULL;
	int fd = connect_to(path);
	if (fd < 0)
		return fd;
	int n = snprintf(request, sizeof request,
		"%s %s HTTP/1.1\r\nHost: resil\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", method, target);
	if (send(fd, request, (size_t)n, MSG_NOSIGNAL) != n) {
		close(fd);
		return -EIO;
	}
	char *answer = read_all(fd, &len);
	close(fd);
	char *end = answer ? strstr(answer, "\r\n\r\n") : NULL;
	int status = end && strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : -EPROTO;
	if (status > 0) {
		memmove(answer, end + 4, strlen(end + 4) + 1);
		*body = answer;
	} else {
		free(answer);
	}
	return status;
}

/* Prints the strings of the answer's "errors", as the member wrote them (text.h's JSON: backslash, quote and \u00XX are
 * all that is escaped). */
static void print_errors(const char *body)
{
	const char *p = strstr(body, "\"errors\":[");
	if (!p) {
		fprintf(stderr, "%s", body);
		return;
	}
	for (p += 10; *p == '"' || *p == ',';) {
		if (*p++ == ',')
			continue;
		for (; *p && *p != '"'; p++) {
			if (*p != '\\') {
				fputc(*p, stderr);
			} else if (p[1] == 'u' && strlen(p) > 5) {
				fputc('?', stderr);
				p += 5;
			} else if (p[1]) {
				fputc(*++p, stderr);
			}
		}
		fputc('\n', stderr);
		if (*p)
			p++;
	}
}

static size_t living(const struct group *g)
{
	size_t n = 0;
	for (unsigned i = 0; i < REGION_MEMBERS; i++) {
		uint64_t id = atomic_load(&g->region.members[i].id);
		n += id != 0 && group_member_lives(id, g);
	}
	return n;
}

/* "errors" of the answer as it is: JSON already. */
static void print_json(const struct group *g, const char *outcome, size_t members, const char *body)
{
	char name_at[512] = "";
	struct text name = TEXT_ON(name_at);
	const char *errors = body ? strstr(body, "\"errors\":[") : NULL, *end = errors ? strrchr(errors, ']') : NULL;

	text_json(&name, g->name);
	printf("{\"group\":%s,\"outcome\":\"%s\",\"members\":%zu,", name_at, outcome, members);
	if (end)
		printf("%.*s}", (int)(end + 1 - errors), errors);
	else
		printf("\"errors\":[]}");
}

static int reload_group(const struct options *o, const struct group *g)
{
	char path[256];
	char *body = NULL;
	int status = -ENAMETOOLONG;

	size_t members = living(g);
	if (members == 0) {
		if (o->is_json)
			print_json(g, "nobody", 0, NULL);
		else
			fprintf(stderr,
				"resil: no process of %s is alive; new ones read the configuration when they start\n",
				g->name);
		return EXIT_DONE;
	}
	if (groups_socket(o, g, path, sizeof path))
		status = socket_request(path, "POST", "/v1/reload", &body);
	/* No socket (control = off, or nobody has taken it yet): the region tells the members too, only not what came
	 * of it. */
	if (status <= 0) {
		atomic_fetch_add(&g->region.header->config_seq, 1);
		atomic_fetch_add(&g->region.header->reload_seq, 1);
	}
	if (o->is_json) {
		print_json(g, status == 200 ? "reloaded" : status > 0 ? "refused" : "told", members, body);
	} else if (status == 200) {
		printf(out_is_terminal() ? "group %s has read its configuration again\n" : "%s\treloaded\n", g->name);
	} else if (status > 0) {
		fprintf(stderr, "resil: group %s keeps its configuration:\n", g->name);
		print_errors(body);
	} else {
		fprintf(stderr,
			"resil: nobody answers for group %s; its %zu processes read the configuration at their next "
			"call ('resil events%s' tells how it went)\n",
			g->name, members, options_again(o, g->name));
	}
	free(body);
	return status > 0 && status != 200 ? EXIT_FAILED : EXIT_DONE;
}

static int run_reload(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, {0}};
	struct options o = {0};
	struct groups g;
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		int code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return usage_error(verb, "'%s' is too much; a group is named by -g", argv[optind]);
	if (o.all_users)
		return usage_error(verb, "each user reloads what is theirs");
	int code = groups_open(&g, &o, true);
	if (code)
		return code;
	if (g.n == 0)
		fputs("resil: no group is there; new processes read the configuration when they start\n", stderr);
	fputs(o.is_json ? "{\"groups\":[" : "", stdout);
	for (size_t i = 0; i < g.n; i++) {
		fputs(o.is_json && i ? "," : "", stdout);
		int one = reload_group(&o, &g.at[i]);
		code = one ? one : code;
	}
	fputs(o.is_json ? "]}\n" : "", stdout);
	groups_close(&g);
	return code;
}

const struct verb verb_reload = {
	.name = "reload",
	.arguments = "[-g GROUP] [-p PID] [--json]",
	.summary = "lets running programs read the configuration again",
	.help = "All or nothing: a configuration with a fault is refused, its faults are shown, and the one before "
		"stays in force.\n"
		"Circuits keep their state.\n\n"
		"Options:\n  -g, --group GROUP   this group only (default: all of yours)\n  -p, --pid PID       as "
		"that process sees it\n"
		"  -j, --json          "
		"{\"groups\":[{\"group\",\"outcome\":\"reloaded|refused|told|nobody\",\"members\",\"errors\"}]}\n\n"
		"Example:\n  resil check && resil reload\n\nExit codes: 0 done, 1 refused, 2 wrong usage, 3 no such "
		"group, 4 not permitted.\n",
	.run = run_reload,
};
