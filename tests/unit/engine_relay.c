/* The relay over pairs of sockets: what goes in at one side comes out at the other, whole and in order, whatever piece
 * by piece either side takes and gives; ends and resets pass on. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "engine/relay.h"
#include "engine_cache_help.h"
#include "tap.h"

#define MUCH (1u << 20)

static struct detour relay_at;
static int app, server; /* their own ends */

static void begin(void)
{
	struct detour *d = &relay_at;
	int inner[2], upstream[2], small = 4096;
	memset(d, 0, offsetof(struct detour, room));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, inner) != 0 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, upstream) != 0)
		abort();
	/* So that a ring fills, and goes around. */
	setsockopt(inner[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	setsockopt(upstream[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	for (int i = 0; i < 2; i++)
		d->way[i].room = d->room[i];
	d->socket[DETOUR_APP] = -1;
	d->socket[DETOUR_INNER] = inner[1];
	d->socket[DETOUR_UPSTREAM] = upstream[1];
	app = inner[0];
	server = upstream[0];
}

static void end(void)
{
	close(app);
	close(server);
	close(relay_at.socket[DETOUR_INNER]);
	close(relay_at.socket[DETOUR_UPSTREAM]);
}

static uint8_t octet_at(uint32_t at)
{
	return (uint8_t)(at * 2654435761u >> 24);
}

/* A side: what it has said and heard of the MUCH octets that each side says. */
struct side {
	int fd;
	uint32_t said, heard, salt, other_salt;
	bool has_ended;
};

static void say(struct side *s)
{
	uint8_t piece[5000];
	uint32_t n = random_below(sizeof piece) + 1, left = MUCH - s->said;
	n = n > left ? left : n;
	for (uint32_t i = 0; i < n; i++)
		piece[i] = octet_at(s->said + i + s->salt);
	ssize_t r = n ? send(s->fd, piece, n, MSG_NOSIGNAL) : 0;
	s->said += r > 0 ? (uint32_t)r : 0;
	if (s->said == MUCH && r >= 0)
		shutdown(s->fd, SHUT_WR);
}

static void hear(struct side *s)
{
	uint8_t piece[5000];
	ssize_t n = recv(s->fd, piece, random_below(sizeof piece) + 1, 0);
	for (ssize_t i = 0; i < n; i++)
		tap_expect(piece[i] == octet_at(s->heard + (uint32_t)i + s->other_salt), "octet %u",
			s->heard + (unsigned)i);
	s->heard += n > 0 ? (uint32_t)n : 0;
	s->has_ended = s->has_ended || n == 0;
}

static void both_ways(void)
{
	struct detour *d = &relay_at;
	begin();
	struct side a = {.fd = app, .salt = 1, .other_salt = 7}, b = {.fd = server, .salt = 7, .other_salt = 1};
	enum relay_says says = RELAY_GOES_ON;
	bool was_full = false;
	for (unsigned turns = 0; says == RELAY_GOES_ON && turns < 1000000; turns++) {
		switch (random_below(8)) {
		case 0:
		case 1: say(&a); break;
		case 2:
		case 3: say(&b); break;
		case 4: hear(&a); break;
		case 5: hear(&b); break;
		default: says = relay_turn(d, 0);
		}
		was_full = was_full || d->way[DETOUR_UP].len == DETOUR_ROOM || d->way[DETOUR_DOWN].len == DETOUR_ROOM;
		bool is_full = d->way[DETOUR_UP].len == DETOUR_ROOM;
		tap_expect(!(relay_events(d, DETOUR_INNER) & EPOLLIN) || !is_full, "a full way asks for more");
	}
	while (!a.has_ended && a.heard < 2 * MUCH)
		hear(&a);
	while (!b.has_ended && b.heard < 2 * MUCH)
		hear(&b);
	tap_expect(says == RELAY_IS_OVER, "it is over once both ends have passed");
	tap_expect(a.heard == MUCH && b.heard == MUCH, "%u and %u octets of %u", a.heard, b.heard, MUCH);
	tap_expect(was_full, "no way was ever full");
	tap_all("a megabyte each way at once, in pieces of any size: whole, in order, then the ends");
	end();
}

/* How a receive ends: the octets before it, then 0 or -errno. */
static int ending(int fd, uint32_t *octets)
{
	char piece[5000];
	*octets = 0;
	for (;;) {
		ssize_t n = recv(fd, piece, sizeof piece, 0);
		if (n <= 0)
			return n == 0 ? 0 : -errno;
		*octets += (uint32_t)n;
	}
}

static void ends(void)
{
	struct detour *d = &relay_at;
	uint32_t n;
	begin();
	tap_ok(relay_turn(d, 0) == RELAY_GOES_ON && relay_events(d, DETOUR_INNER) == EPOLLIN &&
			relay_events(d, DETOUR_UPSTREAM) == EPOLLIN,
		"where nothing is said it waits for both sides");
	send(app, "request", 7, 0);
	shutdown(app, SHUT_WR);
	tap_ok(relay_turn(d, 0) == RELAY_GOES_ON && ending(server, &n) == 0 && n == 7,
		"a side that ends is heard to end");
	send(server, "answer", 6, 0);
	tap_ok(relay_turn(d, 0) == RELAY_GOES_ON && ending(app, &n) == -EAGAIN && n == 6,
		"and is still told what the other one says");
	shutdown(server, SHUT_WR);
	tap_ok(relay_turn(d, 0) == RELAY_IS_OVER && ending(app, &n) == 0 && n == 0, "until that one ends, too");
	end();

	begin();
	send(server, "last words", 10, 0);
	d->has_failed[DETOUR_UPSTREAM] = true; /* as the kernel's word of a reset has it */
	shutdown(server, SHUT_WR);
	tap_ok(relay_turn(d, 0) == RELAY_IS_RESET && ending(app, &n) == -EAGAIN && n == 10,
		"a reset passes on behind what was said before it, and is no end");
	end();

	begin();
	for (uint32_t said = 0; said < 40000;) {
		ssize_t r = send(app, relay_at.room[1], 1000, 0);
		said += r > 0 ? (uint32_t)r : 0;
		relay_turn(d, 0);
	}
	tap_ok(!relay_flush(d, 0), "what the other side has no room for yet holds a process's end up");
	for (unsigned i = 0; i < 1000 && !relay_flush(d, 0); i++)
		ending(server, &n);
	tap_ok(relay_flush(d, 0), "and no longer once that has it");
	end();
}

int main(void)
{
	both_ways();
	ends();
	return tap_done();
}
