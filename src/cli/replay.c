/* resil replay: what programs have sent to a spool (core/spool.h) goes where it was meant to go.
 *
 * A connection is delivered whole, over one connection of its own, or stays: what depends on its beginning (a login, a
 * greeting) is never torn. It is removed once the other side has taken all of it, so it may come twice and is never
 * lost. Answers are read and dropped. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "core/spool.h"

#define PATIENCE_MS 10000 /* without any progress */
#define LINGER_MS 2000	  /* all is taken, and the other side does not end the connection: it need not */

enum { LEFT = -1 }; /* said on stderr */

/* "name:port" or "[address]:port". */
static bool split(const char *place, char *host, size_t cap, const char **port)
{
	const char *colon = strrchr(place, ':');
	size_t n = colon ? (size_t)(colon - place) : 0;
	if (!colon || !colon[1] || n == 0 || n >= cap)
		return false;
	if (place[0] == '[' && place[n - 1] == ']') {
		place++;
		n -= 2;
	}
	memcpy(host, place, n);
	host[n] = '\0';
	*port = colon + 1;
	return true;
}

static int connect_within(int fd, const struct addrinfo *a)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int err = 0;
	socklen_t len = sizeof err;
	if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return errno;
	int n = poll(&p, 1, PATIENCE_MS);
	if (n <= 0)
		return n == 0 ? ETIMEDOUT : errno;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 ? err : errno;
}

/* A descriptor, or -1 with why. */
static int dial(const char *place, const char **why)
{
	char host[280];
	const char *port;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
	if (!split(place, host, sizeof host, &port)) {
		*why = "not HOST:PORT";
		return -1;
	}
	int r = getaddrinfo(host, port, &hints, &list);
	if (r != 0) {
		*why = gai_strerror(r);
		return -1;
	}
	int fd = -1, err = EADDRNOTAVAIL;
	for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		err = fd < 0 ? errno : connect_within(fd, a);
		if (err && fd >= 0) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(list);
	*why = strerror(err);
	return fd;
}

/* Reads and drops what has come. 1: the other side has ended; 0: it has not; -1: errno. */
static int drop_answers(int fd)
{
	char buf[16384];
	for (;;) {
		ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
		if (n == 0)
			return 1;
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
	}
}

static bool send_all(int fd, const char *octets, size_t n)
{
	while (n > 0) {
		struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
		int ready = poll(&p, 1, PATIENCE_MS);
		if (ready == 0)
			errno = ETIMEDOUT;
		if (ready <= 0 || drop_answers(fd) < 0)
			return false;
		ssize_t sent = send(fd, octets, n, MSG_NOSIGNAL);
		if (sent < 0 && errno != EAGAIN && errno != EINTR)
			return false;
		if (sent < 0)
			continue;
		octets += sent;
		n -= (size_t)sent;
	}
	return true;
}

/* Its end is told; has the other side taken everything? */
static bool is_taken(int fd)
{
	int64_t since = clock_now_ns(), taken_at = 0;
	int left_before = -1;
	if (shutdown(fd, SHUT_WR) != 0)
		return false;
	for (;;) {
		int left = 0, ended = drop_answers(fd);
		int64_t now = clock_now_ns();
		if (ended < 0 || ioctl(fd, TIOCOUTQ, &left) != 0)
			return false;
		if (left != left_before)
			since = now;
		left_before = left;
		if (left == 0 && ended == 1)
			return true;
		if (left == 0 && taken_at == 0)
			taken_at = now;
		if (left == 0 && now - taken_at >= LINGER_MS * NS_PER_MS)
			return true;
		if (left > 0 && now - since >= PATIENCE_MS * NS_PER_MS) {
			errno = ETIMEDOUT;
			return false;
		}
		/* The end of the other side wakes at once; what is acknowledged is looked at now and then. */
		struct pollfd p = {.fd = fd, .events = ended ? 0 : POLLIN};
		poll(&p, 1, 20);
	}
}

/* The pieces in order; *octets: how many there were. */
static bool send_pieces(int fd, int file, uint64_t *octets)
{
	static char buf[SPOOL_PIECE_MAX];
	struct spool_piece piece;
	uint64_t at = sizeof(struct spool_head);
	for (*octets = 0;; at += sizeof piece + piece.length, *octets += piece.length) {
		if (pread(file, &piece, sizeof piece, (off_t)at) != (ssize_t)sizeof piece || piece.length == 0 ||
			piece.length > sizeof buf)
			return true;
		ssize_t n = pread(file, buf, piece.length, (off_t)(at + sizeof piece));
		/* Torn by a crash: it was never acknowledged. */
		if (n != (ssize_t)piece.length || spool_check(at, buf, piece.length) != piece.check)
			return true;
		if (!send_all(fd, buf, piece.length))
			return false;
	}
}

struct order {
	const char *dir;
	uid_t owner;	/* of dir */
	const char *to; /* null: where each was meant to go */
	char refused[280];
	unsigned done, left;
};

static int leave(struct order *o, const char *name, const char *why)
{
	fprintf(stderr, "resil replay: %s: %s; it stays\n", name, why);
	o->left++;
	return LEFT;
}

static bool has_first_piece(int file, struct spool_head *head)
{
	return pread(file, head, sizeof *head, 0) == (ssize_t)sizeof *head &&
	       memcmp(head->magic, SPOOL_MAGIC, sizeof head->magic) == 0 && memchr(head->to, '\0', sizeof head->to) &&
	       memchr(head->name, '\0', sizeof head->name);
}

static int deliver(struct order *o, const char *name, int file, const char *path)
{
	struct spool_head head;
	struct stat st;
	const char *why;
	uint64_t octets;
	/* Anyone may have put one into a folder that is open; root takes those of whose folder it is, too. */
	if (fstat(file, &st) != 0 || !S_ISREG(st.st_mode) ||
		(st.st_uid != geteuid() && (geteuid() != 0 || st.st_uid != o->owner)))
		return leave(o, name, "not a file of yours");
	if (flock(file, LOCK_EX | LOCK_NB) != 0)
		return leave(o, name, "its connection is still open");
	if (!has_first_piece(file, &head))
		return leave(o, name, "not a spooled connection");
	const char *place = o->to ? o->to : head.name[0] ? head.name : head.to;
	/* What was just refused is not asked for each of a thousand. */
	if (strcmp(place, o->refused) == 0) {
		o->left++;
		return LEFT;
	}
	int fd = dial(place, &why);
	if (fd < 0) {
		text_copy(o->refused, sizeof o->refused, place);
		fprintf(stderr, "resil replay: %s: %s; what is for it stays\n", place, why);
		o->left++;
		return LEFT;
	}
	bool is_done = send_pieces(fd, file, &octets) && is_taken(fd);
	int err = errno;
	close(fd);
	if (!is_done)
		return leave(o, name, strerror(err));
	if (unlink(path) != 0)
		return leave(o, name, strerror(errno));
	printf("%s\t%s\t%llu\n", name, place, (unsigned long long)octets);
	o->done++;
	return 0;
}

static int is_spooled(const struct dirent *e)
{
	size_t n = strlen(e->d_name), m = sizeof SPOOL_SUFFIX - 1;
	return n > m && e->d_name[0] != '.' && strcmp(e->d_name + n - m, SPOOL_SUFFIX) == 0;
}

static int replay(struct order *o)
{
	struct dirent **list;
	struct stat st;
	int n = stat(o->dir, &st) == 0 ? scandir(o->dir, &list, is_spooled, alphasort) : -1;
	if (n < 0) {
		fprintf(stderr, "resil replay: %s: %s\n", o->dir, strerror(errno));
		return errno == EACCES ? EXIT_DENIED : EXIT_ABSENT;
	}
	o->owner = st.st_uid;
	for (int i = 0; i < n; i++) {
		char path[4400];
		snprintf(path, sizeof path, "%s/%s", o->dir, list[i]->d_name);
		int file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		/* Taken by another replay since. */
		if (file < 0 && errno != ENOENT)
			leave(o, list[i]->d_name, strerror(errno));
		if (file >= 0)
			deliver(o, list[i]->d_name, file, path);
		if (file >= 0)
			close(file);
		free(list[i]);
	}
	free(list);
	return o->left ? EXIT_FAILED : EXIT_DONE;
}

static int run(const struct verb *verb, int argc, char **argv)
{
	static const struct option options[] = {
		{"to", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	struct order o = {0};
	int option;
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 't': o.to = optarg; break;
		case 'h': verb_print_help(verb, stdout); return EXIT_DONE;
		default: return usage_error(verb, "what it takes is a directory, and --to HOST:PORT");
		}
	}
	if (optind + 1 != argc)
		return usage_error(verb, "one directory is needed, the one that 'fallback = spool:DIR' names");
	o.dir = argv[optind];
	return replay(&o);
}

const struct verb verb_replay = {
	.name = "replay",
	.arguments = "DIR [--to HOST:PORT]",
	.summary = "deliver what was spooled while a destination was away",
	.help = "Delivers the connections that 'fallback = spool:DIR' has kept, the oldest first, each whole and in "
		"its order over a\n"
		"connection of its own, to where it was meant to go, and removes those that were taken. What is not "
		"taken stays: run it\n"
		"again. One that was interrupted comes again whole. Answers are read and dropped.\n\n"
		"      --to HOST:PORT  all of them there\n"
		"  -h, --help          this\n\n"
		"Example: resil replay /var/spool/app\n\n"
		"Prints a line for each: file, destination, octets. Exit code: 0 nothing is left, 1 something is, 3 no "
		"such directory.\n",
	.run = run,
};
