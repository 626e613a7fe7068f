/* The shared memory of a group: one file, mapped by every member and by the command, that outlives processes on
 * purpose.
 *
 * Layout (offsets only, no pointers; another layout is another file, its number is in the name):
 *    header | members[REGION_MEMBERS] | events[REGION_EVENTS] | known[REGION_KNOWN] | endpoints[REGION_ENDPOINTS] |
 *    faults[REGION_FAULTS] | fault_counts[REGION_FAULT_COUNTS] | waiters[REGION_WAITERS] | blocks[REGION_BLOCKS] |
 *    destinations[capacity]
 * Writers: every member and the command, by atomics only; there is no lock anywhere. Readers: the same.
 * A crash at any line: each structure says beside itself what a half-done write leaves and who redoes it.
 * Never trusted for memory safety (E10): sizes and counts used for access are this process's own (struct region),
 * every index read from the file is checked, every name is length-bounded.
 */
#ifndef RESIL_CORE_REGION_H
#define RESIL_CORE_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/text.h"
#include "core/breaker.h"
#include "core/degraded.h"
#include "core/failure.h"
#include "core/latency.h"
#include "core/window.h"

#define REGION_LAYOUT 5
#define REGION_MEMBERS 1024
#define REGION_EVENTS 512
#define REGION_CAPACITY_MAX 65000 /* destination indexes fit 16 bits (member.use) */
#define REGION_NAME_MAX 255	  /* longest destination name (DNS name + port fit) */
#define REGION_SHARDS 8		  /* parts of what every rejected call counts */
#define REGION_ADDRESSES 16	  /* of a name, known at an opening (B21) */
#define REGION_RULE_OBSERVED 0x80000000u
#define REGION_KNOWN 256 /* names whose last good answer is kept */
#define REGION_KNOWN_ADDRESSES 32
#define REGION_ENDPOINTS 1024 /* addresses of names that have several */
#define REGION_FAULTS 32      /* faults added at run time */
#define REGION_FAULT_SPEC 512
#define REGION_FAULT_COUNTS 256 /* of a fault at a destination */
#define REGION_WAITERS 1024	/* calls that wait for a slot of a bulkhead, over all destinations */
#define REGION_BLOCKS 64	/* of slots, for bulkheads that have none left of their own */
#define BULKHEAD_OWN 32		/* slots of each destination's own */
#define BULKHEAD_BLOCK 127	/* slots in a block */
#define BULKHEAD_WAITS 8	/* upper bounds of waiting times; there is one part more */
#define MEMBER_USES 16		/* destinations a member counts its calls in flight for */

/* A process of the group.
 * id: pid 22 bits | start time (clock ticks since boot, modulo 2^28) 28 | reuse 14. Claimed by CAS from 0 (or from a
 * dead member's) to ours; the rest is written after. A crash in between leaves empty strings and counts, which is what
 * a reader shows. Freed (id = 0) at exit; a member killed is freed by whoever finds it dead (member_reap). */
struct member {
	_Atomic uint64_t id;
	_Atomic int64_t since_ns;     /* CLOCK_MONOTONIC */
	_Atomic uint32_t connections; /* guarded connections open now */
	_Atomic uint32_t claims;      /* times this record was claimed or tried for: source of `reuse`, never reset */
	_Atomic uint32_t use[MEMBER_USES]; /* destination index + 1 (16 bits, high) | calls in flight (16 bits, low) */
	char exe[32];
};

/* An event. seq is 0 while it is being written; check covers all fields after it, so a torn one (a writer stopped for
 * a whole lap, or dead half-way) is recognised and skipped by readers. */
struct event {
	_Atomic uint64_t seq; /* 1.. */
	uint64_t check;
	int64_t wall_ns;
	int64_t retry_after_ms; /* transition to open; else -1 */
	int64_t value;		/* rejected: count; deadline: ns of the limit; reload: generation */
	uint32_t pid;
	uint8_t type;	    /* enum event_type */
	uint8_t from, to;   /* enum breaker_state */
	uint8_t generation; /* transition: low 8 bits of the new one */
	char exe[32];
	char reason[176]; /* "5 consecutive failures (refused)", phase of a deadline, text of an error */
	char destination[REGION_NAME_MAX + 1];
};

/* The last good answer to look-ups of a name; known.h says how it is written and read. */
struct known_host {
	uint8_t ip[16];
	uint32_t scope;
};
struct known_name {
	_Atomic uint64_t key; /* hash of the name; 0: empty, or being written */
	uint64_t check;
	int64_t at_ns[2]; /* when its IPv4 and its IPv6 addresses were told, CLOCK_MONOTONIC; 0: never */
	int64_t written_ns;
	uint32_t count;
	struct known_host host[REGION_KNOWN_ADDRESSES]; /* as the resolver ordered them */
	char name[256];
};

/* The health of one address of a name at one port; endpoint.h says how it is claimed. */
struct endpoint {
	_Atomic uint64_t id;   /* hash of name and address (48) | port (16); 0: free */
	_Atomic uint64_t word; /* endpoint.h */
	_Atomic int64_t used_ns;
	_Atomic uint32_t destination; /* that it was last used for, + 1, and its life: for display */
	_Atomic uint32_t is_ready;    /* ip and scope are written: they are a function of the id */
	uint8_t ip[16];
	uint32_t scope;
	_Atomic uint32_t life;
};

/* A fault added at run time; faults.h says how it is written and read. */
struct fault_entry {
	_Atomic uint64_t word;
	uint64_t check; /* of all after it, and of the word's number */
	int64_t begun_ns, until_ns;
	char spec[REGION_FAULT_SPEC];
};

/* A fault at a destination: faults.h. All counters are relaxed and monotonic, until it is given away. */
struct fault_count {
	_Atomic uint64_t key; /* 0: free */
	_Atomic uint64_t ready_key;
	_Atomic uint64_t calls; /* that it was asked of: the next one's number */
	_Atomic uint64_t hits;
	_Atomic uint64_t known; /* turns (high 32) of which so many (low 32) are hits: engine/fault.c */
	_Atomic int64_t used_ns, told_ns;
	char fault[32];
	char destination[REGION_NAME_MAX + 1];
};

/* The calls of a destination at once; bulkhead.h says how slots and waiters are claimed. */
struct bulkhead {
	_Alignas(64) _Atomic uint64_t slot[BULKHEAD_OWN];
	_Atomic uint32_t high;	/* slots that were ever claimed: raised before the claim */
	_Atomic uint32_t shown; /* max_concurrent of the policy that last used it, 0: off; with BULKHEAD_ADAPTIVE */
	_Atomic int64_t waits_until_ns;	 /* nobody waits after that */
	_Atomic int64_t checked_ns;	 /* holders and waiters: at most once in 100 ms */
	_Atomic uint64_t rejected, told; /* told: of these, with the last event */
	_Atomic int64_t told_ns;
	_Atomic uint64_t reclaimed;

	_Atomic uint64_t adapt;	 /* adapt.h */
	_Atomic uint64_t span;	 /* of calls: how many 16 | what they took together, in us 48 */
	_Atomic int64_t span_ns; /* since when */
	_Atomic uint32_t peak;	 /* in the span */

	_Atomic uint64_t waited[BULKHEAD_WAITS + 1], waited_us; /* calls that got a slot after a wait, by its length */
};
#define BULKHEAD_ADAPTIVE 0x80000000u

/* Slots beyond a destination's own. */
struct bulkhead_block {
	_Atomic uint64_t key; /* destination + 1 (48) | number (16); 0: free */
	_Atomic uint64_t slot[BULKHEAD_BLOCK];
};

/* A call that waits for a slot. */
struct waiter {
	_Atomic uint64_t word;	/* ticket 40 | reuse 14 | member 10; 0: free */
	_Atomic uint64_t where; /* destination 16 | ticket 40; written last: from then on it is in the queue */
	_Atomic int64_t until_ns, seen_ns;
	_Atomic uint32_t bell; /* a futex: rung when it may try */
	uint32_t pad[7];
};

/* One circuit. key_hash is claimed by CAS from 0; name and policy are a function of the key, so whoever meets a claimed
 * slot that is not ready writes the same bytes and sets ready_key: a claim half done by a dead process is redone.
 * All counters are relaxed and monotonic, until an eviction (registry.h). */
struct destination {
	_Atomic uint64_t key_hash;
	_Atomic uint64_t ready_key; /* the key that name and policy are of: ready when it is key_hash */
	_Atomic uint32_t name_len;
	char name[REGION_NAME_MAX + 1];
	char policy[64]; /* the section that matched when it was made; "" for [defaults] */

	_Alignas(64) _Atomic uint64_t breaker; /* breaker.h */
	_Atomic uint64_t mode_until_ms;	       /* end of a forced mode, CLOCK_MONOTONIC; 0: until told otherwise */
	_Atomic int64_t last_success_ns;       /* CLOCK_MONOTONIC; A5's "no call has succeeded since" */
	_Atomic int64_t last_used_ns;
	_Atomic int64_t holders_checked_ms; /* B7: at most once in 100 ms */
	/* A run of rejections goes on, and has left its event: all rejections up to the one that began it, that
	 * included. 0: none does. One word, so that a death in between leaves no run with another's beginning. */
	_Atomic uint64_t run;
	_Atomic uint32_t has_answered; /* ever: one that never did may owe no answers (A12) */
	_Atomic uint32_t life;	       /* moved with each eviction (registry.h): whose index this was is told by it */

	_Alignas(64) _Atomic uint64_t lease[BREAKER_PROBES_MAX]; /* lease.h */

	/* Rejections, a line for each of a few threads: all who are rejected at once count, and must not wait for each
	 * other's lines. */
	struct {
		_Alignas(64) _Atomic uint64_t rejected;
	} shard[REGION_SHARDS];

	_Alignas(64) _Atomic uint64_t success, failure, neutral, would_reject, stale;
	_Atomic uint32_t fallback_run; /* degraded.h: sources of the run that goes on, bit 1 << source */
	_Atomic uint64_t kinds[FAILURE_KIND_COUNT];
	_Atomic uint64_t opened_total;
	_Atomic uint64_t late_look_ups, stale_answers;	   /* of "dns:NAME" */
	_Atomic int64_t stale_told_ns;			   /* last event about a stale answer */
	_Atomic uint64_t fallbacks[DEGRADED_SOURCE_COUNT]; /* degraded.h */
	_Atomic uint64_t transitions[3][3];		   /* [from][to], enum breaker_state */
	_Atomic uint64_t probe_results[5];		   /* enum probe_result */

	/* The last transition, for display. Written after the winning CAS by its winner only; a crash leaves the one
	 * before. */
	_Atomic uint64_t last_from_to; /* seq of its event << 4 | from << 2 | to; 0: none */
	_Atomic int64_t last_wall_ns;
	char last_reason[48];

	/* The last transition that has its event: generation 16 | state 2 | seq of the event 46 (events.h). */
	_Atomic uint64_t told;
	/* Hashes of the name's addresses that were known when it opened (B21); 0: none. */
	_Atomic uint32_t known[REGION_ADDRESSES];

	struct window window;

	/* The rules of the policy that last used it, so that the command can show retry_after without any
	 * configuration. */
	_Atomic uint32_t rule_recovery_max_ms;
	_Atomic uint32_t rule_half_open_max; /* with REGION_RULE_OBSERVED: breaker = observe */
	_Atomic uint32_t rule_window, rule_minimum_calls, rule_slow_ms;

	struct latency latency;
	struct bulkhead bulkhead;
};

struct region_header {
	char magic[8]; /* "resil\0\0\0" */
	uint32_t layout;
	uint32_t capacity; /* destinations */
	uint64_t size;
	char boot_id[40]; /* of the boot that made it: ticks of another boot mean nothing */
	char group[65];
	_Atomic uint32_t
		is_off; /* `resil off`: every member passes everything through; enum of bypass.h, by which ways */
	_Atomic uint32_t reload_seq;	   /* members look for what has changed when it has moved: either of */
	_Atomic uint32_t config_seq;	   /* ... their configuration is to be read again */
	_Atomic uint32_t fault_seq;	   /* ... a fault was added or taken out */
	_Atomic uint64_t event_seq;	   /* last one given out */
	_Atomic uint64_t config_complaint; /* hash of the configuration fault already said on stderr (E8) */
	_Atomic uint64_t control_owner;	   /* member id that serves the socket; 0 none */
	_Atomic uint64_t standby[2];	   /* member ids that wait to take it over */
	_Atomic uint64_t registry_full;	   /* destinations that ran unguarded for want of a place (B17) */
	_Atomic uint64_t registry_evictions;
	_Atomic uint64_t fault_number;	 /* last one given out */
	_Atomic uint64_t fault_seed;	 /* of the group's choices; 0: none yet */
	_Atomic uint64_t tickets;	 /* last one given out to a waiter */
	_Atomic uint32_t waiters_high;	 /* waiters that were ever claimed */
	_Atomic uint64_t unseen_streams; /* of HTTP/2, whose outcome could not be known; 0 in a region made before */
	_Atomic uint32_t reload_told; /* config_seq of the last reload that has its event; 0 in a region made before */
};

/* This process's hold on a region. Zero-initialised is "not attached". */
struct region {
	struct region_header *header;
	struct member *members;
	struct event *events;
	struct known_name *known;
	struct endpoint *endpoints;
	struct fault_entry *faults;
	struct fault_count *fault_counts;
	struct waiter *waiters;
	struct bulkhead_block *blocks;
	struct destination *destinations;
	uint32_t capacity;
	bool is_shared; /* false: private memory (state = private, or no shared memory to be had) */
	bool is_read_only;
	bool is_quiet; /* no system call may be made (E14): whether holders of leases live is not looked at */
	dev_t dev;
	ino_t ino;
	size_t size;
	int32_t me; /* index in members, -1: none (the command, or the table is full) */
	uint64_t my_id;
	char path[256];
};

/* All that was rejected. */
static inline uint64_t region_rejected(const struct destination *d)
{
	uint64_t sum = 0;

	for (int i = 0; i < REGION_SHARDS; i++)
		sum += atomic_load_explicit(&d->shard[i].rejected, memory_order_relaxed);
	return sum;
}

/* This process's record, -1: none. Read once and used: another thread may leave meanwhile. */
static inline int32_t region_me(const struct region *r)
{
	int32_t me = __atomic_load_n(&r->me, __ATOMIC_RELAXED);
	return me < REGION_MEMBERS ? me : -1;
}

/* How a file comes and goes, so that all who attach meet in one:
 *   make     PATH.TID (O_EXCL) is allocated, filled and then link(2)ed to PATH: EEXIST means that another was faster,
 * and its file is opened. A maker killed before the link leaves PATH.TID, which the next maker with that thread id
 * throws away. open     what is at PATH is used when it is a regular file of ours, 0600, with our magic, layout and the
 * size its capacity asks for. A link, another owner, rights for others: left alone, private memory instead. replace  a
 * damaged one, a short one and one of another boot are unlinked: by the holder of a file lock (flock, never waited for)
 * on the very file, after seeing that PATH still is that file. So nobody unlinks a successor, and who dies at it lets
 * go of the lock. Those who have it mapped keep their memory, which is never shortened, until region_is_current() tells
 * them. */

/* Maps a group's region, making it when absent: made beside under a temporary name, allocated in full (a sparse page on
 * a full tmpfs is SIGBUS), and linked into place. dir must exist and be ours (identity_make_dir). Falls back to private
 * memory. Returns 0; -errno when not even private memory is to be had. Whether it fell back: !is_shared. No malloc, no
 * stdio, no lock. why: in the fall-back, the errno that prevented sharing. */
int region_attach(struct region *r, const char *dir, const char *file, const char *group, uint32_t capacity, int *why);
int region_attach_private(struct region *r, const char *group, uint32_t capacity);
/* Maps an existing region file for the command. -errno: ENOENT, EPERM (not ours), EPROTO (not a region, or another
 * layout), ESTALE (of another boot). Root may open anybody's. */
int region_open(struct region *r, const char *path, bool read_only);
/* Bytes of a region of that capacity. */
size_t region_size(uint32_t capacity);
void region_close(struct region *r);
/* Is the file at r->path still the one mapped? Session managers unlink /dev/shm at logout (E15). One system call. */
bool region_is_current(const struct region *r);
/* Bounded consistency check, for tests and `resil doctor`; explains the first fault found in why (may be null). */
bool region_valid(const struct region *r, struct text *why);

#endif
