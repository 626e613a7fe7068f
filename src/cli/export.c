/* resil export: Prometheus text of all groups, into a file of node_exporter's textfile collector or over HTTP. One
 * thread; a client has a buffer and a time of its own, so a slow or silent one keeps nobody waiting. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "control/params.h"

#define CLIENTS_MAX 32
#define CLIENT_NS (10 * NS_PER_S)
#define HEAD_MAX 4096

struct client {
	int fd; /* -1: free */
	int64_t until_ns;
	size_t in, out, sent;
	char head[HEAD_MAX];
	char *answer;
};

/* The text, malloc'd; null: said on stderr. */
static char *gather(const struct options *o, size_t *n)
{
	struct groups g;
	char *at = NULL;

	if (groups_open(&g, o, false))
		return NULL;
	groups_freshen(&g);
	for (size_t cap = 1u << 16;; cap *= 2) {
		char *more = realloc(at, cap);
		if (!more) {
			fputs("resil: out of memory\n", stderr);
			free(at);
			at = NULL;
			break;
		}
		at = more;
		at[0] = '\0';
		struct text t = {.at = at, .cap = cap};
		metrics_text(&t, &g);
		*n = t.len;
		if (!t.is_cut)
			break;
	}
	groups_close(&g);
	return at;
}

/* ---- a file ---- */

/* Beside it, then renamed: the collector never sees half of one. */
static int write_file(const char *dir, const char *text, size_t n)
{
	char beside[4200], path[4200];
	snprintf(path, sizeof path, "%s/resil.prom", dir);
	snprintf(beside, sizeof beside, "%s/.resil.prom.%d", dir, (int)getpid());
	int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	int err = fd < 0 ? errno : 0;
	for (size_t at = 0; !err && at < n;) {
		ssize_t sent = write(fd, text + at, n - at);
		if (sent < 0)
			err = errno;
		else
			at += (size_t)sent;
	}
	/* Others read it, whatever the umask. */
	if (!err && fchmod(fd, 0644) != 0)
		err = errno;
	if (fd >= 0 && close(fd) != 0 && !err)
		err = errno;
	if (!err && rename(beside, path) != 0)
		err = errno;
	if (!err)
		return EXIT_DONE;
	if (fd >= 0)
		unlink(beside);
	fprintf(stderr, "resil: %s: %s\n", path, strerror(err));
	return err == EACCES || err == EPERM ? EXIT_DENIED : EXIT_FAILED;
}

static volatile sig_atomic_t is_signalled;
static void on_signal(int signal)
{
	(void)signal;
	is_signalled = 1;
}

static int to_file(const struct options *o, const char *dir, int64_t every_ns)
{
	for (;;) {
		size_t n;
		char *text = gather(o, &n);
		int code = text ? write_file(dir, text, n) : EXIT_FAILED;
		free(text);
		if (every_ns == 0 || is_signalled)
			return code;
		struct timespec rest = {
			.tv_sec = (time_t)(every_ns / NS_PER_S), .tv_nsec = (long)(every_ns % NS_PER_S)};
		nanosleep(&rest, NULL);
		if (is_signalled)
			return code;
	}
}

/* ---- HTTP ---- */

static int listen_at(const char *address)
{
	char host[256];
	const char *colon = address ? strrchr(address, ':') : NULL;
	size_t n = colon ? (size_t)(colon - address) : 0;
	uint64_t number;
	struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM},
			*found;
	/* getaddrinfo() takes 99999 for 34463. */
	if (!address || !colon || n >= sizeof host || !params_u64(colon + 1, &number) || number > 65535)
		return -EINVAL;
	bool is_v6 = n >= 2 && address[0] == '[' && colon[-1] == ']';
	snprintf(host, sizeof host, "%.*s", (int)(is_v6 ? n - 2 : n), address + is_v6);
	if (!host[0])
		hints.ai_family = AF_INET6; /* takes IPv4 too */
	if (getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, &found) != 0)
		return -EINVAL;
	int one = 1, fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err = fd < 0 ? errno : 0;
	if (!err)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (!err && (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 64) != 0))
		err = errno;
	freeaddrinfo(found);
	if (err && fd >= 0)
		close(fd);
	return err ? -err : fd;
}

static void say_where(int fd)
{
	struct sockaddr_storage at;
	socklen_t n = sizeof at;
	char host[64], port[16];
	if (getsockname(fd, (struct sockaddr *)&at, &n) != 0 ||
		getnameinfo((struct sockaddr *)&at, n, host, sizeof host, port, sizeof port,
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return;
	fprintf(stderr, strchr(host, ':') ? "resil: http://[%s]:%s/metrics\n" : "resil: http://%s:%s/metrics\n", host,
		port);
}

static void drop(struct client *c)
{
	close(c->fd);
	free(c->answer);
	memset(c, 0, sizeof *c);
	c->fd = -1;
}

static void reply(struct client *c, const char *status, const char *body, size_t n, bool is_head)
{
	char head[256];
	int len = snprintf(head, sizeof head,
		"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: "
		"%zu\r\nConnection: close\r\n\r\n",
		status, n);
	c->answer = malloc((size_t)len + n);
	if (!c->answer)
		return;
	memcpy(c->answer, head, (size_t)len);
	if (!is_head)
		memcpy(c->answer + len, body, n);
	c->out = (size_t)len + (is_head ? 0 : n);
}

static void answer(struct client *c, const struct options *o)
{
	bool is_head = strncmp(c->head, "HEAD ", 5) == 0, is_get = strncmp(c->head, "GET ", 4) == 0;
	const char *target = c->head + (is_head ? 5 : 4);
	size_t n = strcspn(target, " ?\r\n");

	if (!is_head && !is_get) {
		reply(c, "405 Method Not Allowed", "GET only\n", 9, false);
	} else if (n == 8 && strncmp(target, "/metrics", n) == 0) {
		size_t len;
		char *text = gather(o, &len);
		if (text)
			reply(c, "200 OK", text, len, is_head);
		else
			reply(c, "503 Service Unavailable", "the shared state cannot be read\n", 32, is_head);
		free(text);
	} else {
		reply(c, "404 Not Found", "/metrics\n", 9, is_head);
	}
}

static void serve(struct client *c, short events, const struct options *o)
{
	if (!c->answer) {
		ssize_t n = recv(c->fd, c->head + c->in, sizeof c->head - 1 - c->in, 0);
		if (n <= 0) {
			if (n == 0 || (errno != EAGAIN && errno != EINTR))
				drop(c);
			return;
		}
		c->in += (size_t)n;
		c->head[c->in] = '\0';
		if (strstr(c->head, "\r\n\r\n") || strstr(c->head, "\n\n"))
			answer(c, o);
		else if (c->in == sizeof c->head - 1)
			reply(c, "431 Request Header Fields Too Large", "", 0, false);
		else
			return;
		if (!c->answer)
			drop(c);
		return;
	}
	if (!(events & (POLLOUT | POLLERR | POLLHUP)))
		return;
	ssize_t n = send(c->fd, c->answer + c->sent, c->out - c->sent, MSG_NOSIGNAL);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	c->sent += n > 0 ? (size_t)n : 0;
	if (n < 0 || c->sent == c->out)
		drop(c);
}

static void accept_one(int listener, struct client clients[CLIENTS_MAX])
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	for (int i = 0; fd >= 0 && i < CLIENTS_MAX; i++) {
		if (clients[i].fd >= 0)
			continue;
		clients[i].fd = fd;
		clients[i].until_ns = clock_now_ns() + CLIENT_NS;
		return;
	}
	if (fd >= 0)
		close(fd);
}

static int to_net(const struct options *o, int listener)
{
	static struct client clients[CLIENTS_MAX];
	struct pollfd polled[CLIENTS_MAX + 1];

	for (int i = 0; i < CLIENTS_MAX; i++)
		clients[i].fd = -1;
	say_where(listener);
	while (!is_signalled) {
		polled[CLIENTS_MAX] = (struct pollfd){.fd = listener, .events = POLLIN};
		for (int i = 0; i < CLIENTS_MAX; i++)
			polled[i] =
				(struct pollfd){.fd = clients[i].fd, .events = clients[i].answer ? POLLOUT : POLLIN};
		if (poll(polled, CLIENTS_MAX + 1, 1000) < 0 && errno != EINTR)
			return EXIT_FAILED;
		int64_t now_ns = clock_now_ns();
		for (int i = 0; i < CLIENTS_MAX; i++) {
			if (clients[i].fd < 0)
				continue;
			if (polled[i].revents)
				serve(&clients[i], polled[i].revents, o);
			if (clients[i].fd >= 0 && now_ns > clients[i].until_ns)
				drop(&clients[i]);
		}
		if (polled[CLIENTS_MAX].revents & POLLIN)
			accept_one(listener, clients);
	}
	close(listener);
	return EXIT_DONE;
}

static int run_export(const struct verb *verb, int argc, char **argv)
{
	static const struct option longs[] = {OPTIONS_LONG, {"textfile", required_argument, NULL, 't'},
		{"listen", required_argument, NULL, 'l'}, {"every", required_argument, NULL, 'e'}, {0}};
	struct options o = {0};
	const char *dir = NULL, *address = NULL;
	int64_t every_ns = 0;
	int option;

	while ((option = getopt_long(argc, argv, OPTIONS_SHORT, longs, NULL)) != -1) {
		switch (option) {
		case 't': dir = optarg; continue;
		case 'l': address = optarg; continue;
		case 'e':
			if (!params_duration(optarg, &every_ns) || every_ns < NS_PER_S)
				return usage_error(verb, "'%s' is no time between two files; 1s or more is", optarg);
			continue;
		default: break;
		}
		int code = options_take(verb, &o, option);
		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return usage_error(verb, "'%s' is too much", argv[optind]);
	if (!dir == !address)
		return usage_error(verb, "one of --textfile DIR and --listen ADDRESS is due");
	if (address && every_ns)
		return usage_error(verb, "--every goes with --textfile");
	if (o.is_json)
		return usage_error(verb, "this is Prometheus text; 'resil metrics --json' has the same as JSON");
	if (o.all_users && geteuid() != 0) {
		fputs("resil: --all-users is root's\n", stderr);
		return EXIT_DENIED;
	}
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (dir)
		return to_file(&o, dir, every_ns);
	int listener = listen_at(address);
	if (listener == -EINVAL)
		return usage_error(verb, "'%s' is no address; 127.0.0.1:9469, [::1]:9469 and :9469 are", address);
	if (listener < 0) {
		fprintf(stderr, "resil: %s: %s\n", address, strerror(-listener));
		return listener == -EACCES ? EXIT_DENIED : EXIT_FAILED;
	}
	return to_net(&o, listener);
}

const struct verb verb_export = {
	.name = "export",
	.arguments = "--textfile DIR [--every TIME] | --listen ADDRESS [-g GROUP] [-p PID] [--all-users]",
	.summary = "Prometheus text of all groups into a file, or over HTTP",
	.help = "Writes DIR/resil.prom for node_exporter's textfile collector, as a whole (renamed into place), once "
		"or every "
		"TIME;\n"
		"or answers GET /metrics at ADDRESS until it is ended. With --all-users each series has a label "
		"user.\n\n"
		"Options:\n      --textfile DIR  the collector's directory\n"
		"      --every TIME    again and again (1s or more); default: once, for a timer or cron\n"
		"      --listen ADDR   127.0.0.1:9469, [::1]:9469, or :9469 for every address\n" OPTIONS_HELP
		"\nExample:\n  resil export --listen 127.0.0.1:9469\n\n"
		"Exit codes: 0 done, 1 failed, 2 wrong usage, 4 not permitted.\n",
	.run = run_export,
};
