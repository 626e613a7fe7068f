/* Look-ups with a limit (D7): libc's own resolver, run by threads of ours, so that whoever asked can go when the limit
 * is there. A question and its answer are one record with two holders, the caller and the thread; the last one gives it
 * back, and with it an answer that came too late.
 *
 *            ask                 a thread takes it         answered                 the caller takes it
 *   FREE ----------> QUEUED ------------------> RUNNING -------------> DONE ----------------------------> FREE
 *                      |                           | the caller left                                       ^
 *                      |                           +-----------------> LEFT ----- answered, dropped -------+
 *                      +------- the caller left -----------------------------------------------------------+
 *
 * No lock: one word a record, changed by compare-and-swap; its upper bits are a generation, so that a caller whose
 * record went to another (a signal handler jumped out of its wait, a fork's child) sees so. A thread is made only when
 * a look-up has a limit; at most RESOLVER_THREADS, of which a quarter may be busy with one name, so that a name whose
 * servers are silent does not keep all others waiting. They go after a second without work, and before fork, unshare
 * and setns (service.h); one that is in the middle of libc's look-up cannot be ended: a fork does not wait for it, but
 * for it to sleep in the kernel, so that the child finds no lock of the resolver's taken. */
#ifndef RESIL_ENGINE_RESOLVER_H
#define RESIL_ENGINE_RESOLVER_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define RESOLVER_THREADS 16

enum resolver_kind { RESOLVER_ADDRINFO, RESOLVER_BY_NAME, RESOLVER_BY_ADDRESS };

struct resolver_question {
	enum resolver_kind kind;
	const char *node, *service;   /* service, hints: ADDRINFO, may be null */
	const struct addrinfo *hints; /* flags, family, socket type and protocol */
	int family;		      /* BY_NAME: AF_UNSPEC is gethostbyname; BY_ADDRESS */
	const void *address;	      /* BY_ADDRESS */
	socklen_t address_len;
};

struct resolver_answer {
	int result;		    /* of getaddrinfo, of gethostby*_r */
	int error;		    /* errno */
	int host_error;		    /* h_errno; BY_* */
	struct addrinfo *list;	    /* ADDRINFO: the caller's from now on */
	const struct hostent *host; /* BY_*: null or the record's, until resolver_release */
	uint32_t record;
};

enum resolver_end {
	RESOLVER_ANSWERED,
	RESOLVER_LATE,	  /* until has passed */
	RESOLVER_IN_PLACE /* ask libc yourself: no thread is to be had, or this thread's resolver has settings of its
			     own */
};
/* until_ns: CLOCK_MONOTONIC. After RESOLVER_ANSWERED, resolver_release. */
enum resolver_end resolver_ask(const struct resolver_question *q, int64_t until_ns, struct resolver_answer *answer);
void resolver_release(const struct resolver_answer *answer);
/* Copies a host into a caller's buffer; false when it does not fit. */
bool resolver_copy_host(const struct hostent *from, struct hostent *to, char *buf, size_t n);

/* For service.c. pause: joins those without work, lets none start; is_patient: waits for the others too. */
void resolver_pause(bool is_patient);
void resolver_resume(void);
unsigned resolver_threads(void);
/* In a fork's child: no thread of the pool is here. */
void resolver_forked(void);

#endif
