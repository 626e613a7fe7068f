/* A detour's record, and what its parts say to one another. The asking thread (detour.c) fills it in and hands it over;
 * from then on it is the thread's (detour_thread.c), but for the words marked otherwise. Records stay where they are
 * while the thread is joined for a fork.
 *
 *   ASKED --its app's connect hangs--> WAITS --upstream connected--> JOINS --inner connected--> FLOWS --> free
 *     |                                  +--upstream failed--> (FAILED, if it blocks) --> free
 *     +--- the app has let go of it -----+---> free
 */
#ifndef RESIL_ENGINE_DETOUR_RECORD_H
#define RESIL_ENGINE_DETOUR_RECORD_H

#include <netinet/in.h>

#include "engine/detour.h"
#include "engine/onward.h"
#include "engine/pool.h"

#define DETOURS_MAX 256u
#define DETOUR_ROOM (64u * 1024u) /* of each direction; a power of two */
#define DETOUR_PATH 512u

enum detour_phase { DETOUR_FREE, DETOUR_ASKED, DETOUR_WAITS, DETOUR_FAILED, DETOUR_JOINS, DETOUR_FLOWS };
enum detour_socket { DETOUR_APP, DETOUR_INNER, DETOUR_UPSTREAM, DETOUR_SOCKETS };
enum detour_way_name { DETOUR_UP, DETOUR_DOWN }; /* from the app, to the app */

/* What is on its way in one direction: a ring. */
struct detour_way {
	uint8_t *room;
	uint32_t at, len;
	bool has_ended;	   /* nothing will be added */
	bool is_passed_on; /* nor does anything wait: the other side has been told the end */
	bool has_come;	   /* something has, from a socket */
	bool is_full;	   /* its sink has no room: events tell when it has */
	bool is_shaped;
	struct shape shape;
};

struct detour_end;

struct detour {
	_Atomic uint32_t next_free;
	uint32_t index;
	uint32_t life; /* of the record's number; counted on by the thread at its end, and by whoever takes it */
	_Atomic uint32_t
		holds_app; /* the life in which the thread has, or will have, a dup of the app's socket; 0: none */
	_Atomic uint32_t is_dropped; /* the life that the app has given up while it was pending */
	_Atomic uint32_t lifted;     /* no longer shaped: by detour_lift, any thread */
	uint32_t mark;
	enum detour_phase phase;
	int fd;		/* the app's number when it asked */
	uint32_t forks; /* of the process by then */
	uint64_t cookie;
	int64_t limit_at_ns; /* 0: none */
	int64_t held_until_ns;
	bool has_upstream, is_blocking, has_begun, is_teed;
	bool is_cut;			 /* ended in its midst: nothing is passed on any more */
	bool is_inherited;		 /* the next program, or a child, may have the app's socket */
	bool has_failed[DETOUR_SOCKETS]; /* the kernel has said an error */
	bool is_silent[DETOUR_SOCKETS];	 /* no events any more: it has told its end, and would tell it for ever */
	bool is_up;			 /* the upstream is connected */
	int socket[DETOUR_SOCKETS];	 /* in the thread's table, -1: none */
	bool is_watched[DETOUR_SOCKETS];
	uint32_t events[DETOUR_SOCKETS]; /* what the kernel has been asked to tell */
	int64_t asked_at_ns;
	int64_t over_at_ns; /* an end point has said all, or it is cut: so long either side may take to end its own */
	int64_t look_at_ns; /* the thread's next visit without an event */
	int64_t gone_at_ns; /* in a keeper: nobody has the app's side any more; 0: somebody may */
	uint32_t looks;	    /* ASKED: how often it has been looked at */
	const struct detour_end *end; /* in place of an upstream */
	struct detour_way way[2];
	char path[DETOUR_PATH];
	char host[280];
	char to[64]; /* where the app asked to go */
	int64_t max_age_ns;
	struct onward onward;		 /* CACHE: what is behind it */
	_Alignas(16) uint8_t own[12288]; /* the end point's */
	uint8_t room[2][DETOUR_ROOM];
};

extern __attribute__((visibility("hidden"))) struct pool detour_pool;
static inline struct detour *detour_at(uint32_t index)
{
	return (struct detour *)pool_at(&detour_pool, index);
}

/* An end point within the process. All on the thread of detours. */
struct detour_end {
	/* Before the app's connect is completed. 0, or the errno that it fails with. */
	int (*begin)(struct detour *d, int64_t now_ns);
	/* Something has come (way[UP]), or there is room (way[DOWN]): takes, gives, sets way[DOWN].has_ended when
	 * nothing will follow. Returns when to be called without either; false in *is_well: to be reset. */
	int64_t (*turn)(struct detour *d, int64_t now_ns, bool *is_well);
	void (*finish)(struct detour *d);   /* the connection is gone, however */
	void (*put_away)(struct detour *d); /* the numbers of files die with the thread's table: they are opened anew */
};
extern __attribute__((visibility("hidden"))) _Atomic uint64_t detour_spooled; /* octets that are on a disk */
/* Until then more may be in the app's own send queue, of which nothing is known here. */
int64_t spool_expects_until(const struct detour *d);
extern const struct detour_end reply_end, cache_end, spool_end, status_end, onward_end;

/* ---- a way's ring ---- */
/* What waits at the front, in one piece; its length in *n. */
static inline const uint8_t *detour_front(const struct detour_way *w, uint32_t *n)
{
	uint32_t to_edge = DETOUR_ROOM - w->at;
	*n = w->len < to_edge ? w->len : to_edge;
	return w->room + w->at;
}
/* What stands behind the first `skip` octets, in one piece. */
static inline const uint8_t *detour_peek(const struct detour_way *w, uint32_t skip, uint32_t *n)
{
	uint32_t at = (w->at + skip) % DETOUR_ROOM, left = w->len - skip;
	*n = left < DETOUR_ROOM - at ? left : DETOUR_ROOM - at;
	return w->room + at;
}
static inline void detour_took(struct detour_way *w, uint32_t n)
{
	w->len -= n;
	w->at = w->len ? (w->at + n) % DETOUR_ROOM : 0;
}
/* Where more can be put, in one piece. */
static inline uint8_t *detour_back(const struct detour_way *w, uint32_t *n)
{
	uint32_t to = (w->at + w->len) % DETOUR_ROOM, left = DETOUR_ROOM - w->len;
	*n = left < DETOUR_ROOM - to ? left : DETOUR_ROOM - to;
	return w->room + to;
}
static inline void detour_put(struct detour_way *w, uint32_t n)
{
	w->len += n;
}

/* ---- from the asking thread to the thread, over the pair ---- */
enum detour_word { DETOUR_WAKE, DETOUR_ASK, DETOUR_KEPT, DETOUR_LISTENERS };
struct detour_message {
	uint32_t word;
	uint32_t index;
	uint32_t sockets; /* mask of those that come with it, in order */
};
#define DETOUR_LISTENERS_MAX 2
/* MSG_DONTWAIT; 0 or -errno. */
int detour_post(int pair, const struct detour_message *m, const int *fds, int n);

/* Told by the thread once it stands: the ports of the listeners, in network order; 0: none. */
struct detour_doors {
	_Atomic uint32_t state; /* futex: 0 not yet, 1 open, 2 not to be had */
	_Atomic uint32_t port4, port6;
	_Atomic uint64_t netns; /* cookie of their network namespace, 0: not known */
};
extern __attribute__((visibility("hidden"))) struct detour_doors detour_doors;
/* The numbers of the pair in the app's table; the thread has both under the same ones. */
extern __attribute__((visibility("hidden"))) _Atomic int detour_pair[2];
extern __attribute__((visibility("hidden"))) _Atomic uint32_t detour_count;
extern __attribute__((visibility("hidden"))) _Atomic bool detour_is_deserted; /* nobody is left to be served */

/* The connect of every number with this cookie has failed with err. */
void detour_tell_error(uint64_t cookie, int err);
uint64_t detour_netns(int fd);

#endif
