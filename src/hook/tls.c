/* Taken: what reads and writes plaintext in OpenSSL 1.1, OpenSSL 3 and GnuTLS (A9). These only look: the caller's own
 * definition is called with what it was given, and gives what it gives. One thing is added: where a call has failed
 * because we ended its socket, and OpenSSL has no word of why, it is told that (tell_why). */
#include <errno.h>

#include "base/addr.h"
#include "base/hot.h"
#include "base/tls_library.h"
#include "engine/guest.h"
#include "engine/inside.h"
#include "engine/io.h"
#include "hook/export.h"

int SSL_read(void *ssl, void *buf, int n);
int SSL_write(void *ssl, const void *buf, int n);
int SSL_read_ex(void *ssl, void *buf, size_t n, size_t *got);
int SSL_write_ex(void *ssl, const void *buf, size_t n, size_t *gone);
ssize_t gnutls_record_recv(void *session, void *buf, size_t n);
ssize_t gnutls_record_recv_seq(void *session, void *buf, size_t n, unsigned char *seq);
ssize_t gnutls_record_recv_packet(void *session, void **packet);
ssize_t gnutls_record_send(void *session, const void *buf, size_t n);
ssize_t gnutls_record_send2(void *session, const void *buf, size_t n, size_t pad, unsigned flags);
ssize_t gnutls_record_send_range(void *session, const void *buf, size_t n, const void *range);

#define COLD static __attribute__((noinline))
/* But for the sixteen octets of a random, which the library is told the length of. */
#define SHORT COLD HOT_FRAME
/* On the stack over the library's call: in registers they would have to be saved and restored. */
#define KEEP(x)                                                                                                        \
	__typeof__(x) kept_##x = x;                                                                                    \
	__asm__ volatile("" : "+m"(kept_##x))
/* The library that the caller means; a function that nobody has fails. */
#define LIBRARY(name, object)                                                                                          \
	const struct tls_library *lib = tls_library_of(__builtin_return_address(0), #name, object);                    \
	if (__builtin_expect(!lib || !lib->name, 0))                                                                   \
	return -1
/* Is there anything that it might be tied to? */
#define PLAIN_ROAD(object)                                                                                             \
	__builtin_expect(!atomic_load_explicit(&inside_any, memory_order_relaxed) || !guest_is_on() ||                 \
				 !addr_may_be_mapped(object),                                                          \
		1)

/* ---- OpenSSL ---- */

enum { ERROR_SSL = 1, ERROR_WANT_READ, ERROR_WANT_WRITE, ERROR_ZERO_RETURN = 6 };
enum { RECEIVED_SHUTDOWN = 2, LIBRARY_SYS = 2 };

static bool openssl_may_tie(const void *lib, const void *ssl, bool is_complete)
{
	const struct tls_library *l = lib;
	(void)is_complete; /* what is on the wire lags behind a memory BIO */
	return l->SSL_is_init_finished && l->SSL_is_init_finished(ssl) && l->SSL_is_server && !l->SSL_is_server(ssl);
}

static bool openssl_enter(struct inside *i, const struct tls_library *l, const void *ssl)
{
	uint8_t random[TLS_RANDOM];
	return l->SSL_get_client_random && l->SSL_get_client_random(ssl, random, sizeof random) == sizeof random &&
	       inside_enter(i, random, ssl, openssl_may_tie, l);
}

/* The object's flow where it is known already. */
static inline struct flow *openssl_known(const struct tls_library *l, const void *ssl)
{
	uint8_t random[INSIDE_KNOWN];
	return l->SSL_get_client_random && l->SSL_get_client_random(ssl, random, sizeof random) == sizeof random
		       ? inside_known(random, ssl)
		       : NULL;
}

/* The door: everyday, of a library that is known, a look at whether there is anything that the object might be tied to;
 * then the short road (inside.h), then the long one. */
#define OF_LIB(...) (const struct tls_library *lib, __VA_ARGS__)
#define OF_CALLER(...) (const void *caller, __VA_ARGS__)
#define WITH_LIB(...) (lib, __VA_ARGS__)
#define WITH_CALLER(...) (__builtin_return_address(0), __VA_ARGS__)
#define OPENSSL_DOOR(name, params, args)                                                                               \
	COLD __attribute__((cold)) int name##_unknown OF_CALLER params                                                 \
	{                                                                                                              \
		const struct tls_library *lib = tls_library_find(caller, #name, ssl);                                  \
		if (!lib || !lib->name)                                                                                \
			return -1;                                                                                     \
		return PLAIN_ROAD(ssl) ? lib->name args : name##_looked_at WITH_LIB args;                              \
	}                                                                                                              \
	EXPORT int name params                                                                                         \
	{                                                                                                              \
		const struct tls_library *lib = tls_library_known(__builtin_return_address(0));                        \
		if (__builtin_expect(!lib || !lib->name, 0))                                                           \
			return name##_unknown WITH_CALLER args;                                                        \
		return PLAIN_ROAD(ssl) ? lib->name args : name##_inside WITH_LIB args;                                 \
	}                                                                                                              \
	_Static_assert(1, "a semicolon follows")

/* Its result was no octets: an end, a refusal, or not yet. */
static void openssl_failed(struct inside *i, const struct tls_library *l, const void *ssl, int result)
{
	if (!l->SSL_get_error || !l->SSL_get_shutdown)
		return;
	int why = l->SSL_get_error(ssl, result);
	if (why == ERROR_ZERO_RETURN)
		inside_read(i, NULL, 0);
	else if (why == ERROR_SSL && l->SSL_get_shutdown(ssl) & RECEIVED_SHUTDOWN)
		inside_refused(i);
	else if (why != ERROR_WANT_READ && why != ERROR_WANT_WRITE)
		inside_ended(i);
}

/* Python 3.11 takes an error of the system without a word in the queue for an end of file, and hands on what it has. */
static void tell_why(const struct tls_library *l)
{
	if (!l->ERR_peek_error || l->ERR_peek_error() != 0)
		return;
	if (l->ERR_new && l->ERR_set_error) {
		l->ERR_new();
		l->ERR_set_error(LIBRARY_SYS, ETIMEDOUT, NULL);
	} else if (l->ERR_put_error) {
		l->ERR_put_error(LIBRARY_SYS, 0, ETIMEDOUT, "", 0);
	}
}

static inline bool openssl_reads(struct inside *i, const struct tls_library *l, const void *ssl)
{
	int saved = errno;
	bool is_ours = openssl_enter(i, l, ssl);
	if (is_ours)
		inside_reads(i);
	errno = saved;
	return is_ours;
}

/* What is common to both ways of reading. */
static void openssl_read(struct inside *i, bool is_ours, const struct tls_library *l, const void *ssl, const void *buf,
	int result, size_t got, uint32_t ended)
{
	int saved = errno;
	/* The handshake may have been part of it. */
	if (!is_ours && result > 0)
		is_ours = openssl_enter(i, l, ssl);
	if (is_ours && result > 0)
		inside_read(i, buf, got);
	else if (is_ours)
		openssl_failed(i, l, ssl, result);
	if (result <= 0 && io_ended != ended)
		tell_why(l);
	errno = saved;
}

COLD int SSL_read_looked_at(const struct tls_library *lib, void *ssl, void *buf, int n)
{
	struct inside i;
	bool is_ours = openssl_reads(&i, lib, ssl);
	uint32_t ended = io_ended;
	int result = lib->SSL_read(ssl, buf, n);
	openssl_read(&i, is_ours, lib, ssl, buf, result, (size_t)result, ended);
	return result;
}

/* After a read that began in the midst of an answer, and is no longer that. */
COLD int openssl_read_late(
	const struct tls_library *lib, const void *ssl, const void *buf, int result, size_t got, uint32_t ended)
{
	struct inside i;
	int saved = errno;
	bool is_ours = openssl_enter(&i, lib, ssl);
	errno = saved;
	openssl_read(&i, is_ours, lib, ssl, buf, result, got, ended);
	return result;
}

SHORT int SSL_read_inside(const struct tls_library *lib, void *ssl, void *buf, int n)
{
	uint64_t turn;
	const struct flow *f = openssl_known(lib, ssl);
	uint32_t ended = io_ended;
	if (__builtin_expect(!f, 0) || !inside_is_midst_of_answer(f, &turn))
		return SSL_read_looked_at(lib, ssl, buf, n);
	KEEP(f);
	KEEP(turn);
	KEEP(ended);
	int result = lib->SSL_read(ssl, buf, n);
	return __builtin_expect(result > 0 && flow_word(kept_f) == kept_turn, 1)
		       ? result
		       : openssl_read_late(lib, ssl, buf, result, (size_t)result, kept_ended);
}
OPENSSL_DOOR(SSL_read, (void *ssl, void *buf, int n), (ssl, buf, n));

COLD int SSL_read_ex_looked_at(const struct tls_library *lib, void *ssl, void *buf, size_t n, size_t *got)
{
	struct inside i;
	bool is_ours = openssl_reads(&i, lib, ssl);
	uint32_t ended = io_ended;
	int result = lib->SSL_read_ex(ssl, buf, n, got);
	openssl_read(&i, is_ours, lib, ssl, buf, result, result > 0 ? *got : 0, ended);
	return result;
}

SHORT int SSL_read_ex_inside(const struct tls_library *lib, void *ssl, void *buf, size_t n, size_t *got)
{
	uint64_t turn;
	const struct flow *f = openssl_known(lib, ssl);
	uint32_t ended = io_ended;
	if (__builtin_expect(!f, 0) || !inside_is_midst_of_answer(f, &turn))
		return SSL_read_ex_looked_at(lib, ssl, buf, n, got);
	KEEP(f);
	KEEP(turn);
	KEEP(ended);
	int result = lib->SSL_read_ex(ssl, buf, n, got);
	return __builtin_expect(result > 0 && flow_word(kept_f) == kept_turn, 1)
		       ? result
		       : openssl_read_late(lib, ssl, buf, result, result > 0 ? *got : 0, kept_ended);
}
OPENSSL_DOOR(SSL_read_ex, (void *ssl, void *buf, size_t n, size_t *got), (ssl, buf, n, got));

static bool openssl_writes(struct inside *i, const struct tls_library *l, const void *ssl, const void *buf, size_t n)
{
	int saved = errno;
	bool is_ours = n > 0 && addr_may_be_mapped(buf) && openssl_enter(i, l, ssl);
	if (is_ours)
		inside_writes(i, buf, n);
	errno = saved;
	return is_ours;
}

static void openssl_wrote(struct inside *i, bool is_ours, const struct tls_library *l, const void *ssl, const void *buf,
	int result, size_t gone, uint32_t ended)
{
	int saved = errno;
	if (!is_ours && gone > 0 && (is_ours = openssl_enter(i, l, ssl)))
		inside_writes(i, buf, gone);
	if (is_ours) {
		inside_wrote(i, gone);
		if (result <= 0)
			openssl_failed(i, l, ssl, result);
	}
	if (result <= 0 && io_ended != ended)
		tell_why(l);
	errno = saved;
}

COLD int SSL_write_looked_at(const struct tls_library *lib, void *ssl, const void *buf, int n)
{
	struct inside i;
	bool is_ours = openssl_writes(&i, lib, ssl, buf, n > 0 ? (size_t)n : 0);
	uint32_t ended = io_ended;
	int result = lib->SSL_write(ssl, buf, n);
	openssl_wrote(&i, is_ours, lib, ssl, buf, result, result > 0 ? (size_t)result : 0, ended);
	return result;
}

/* After a write in the midst of a request, which was told nothing of, and failed. */
COLD int openssl_wrote_late(const struct tls_library *lib, const void *ssl, int result, uint32_t ended)
{
	struct inside i;
	int saved = errno;
	bool is_ours = openssl_enter(&i, lib, ssl);
	errno = saved;
	i.is_told = false;
	openssl_wrote(&i, is_ours, lib, ssl, NULL, result, 0, ended);
	return result;
}

SHORT int SSL_write_inside(const struct tls_library *lib, void *ssl, const void *buf, int n)
{
	struct flow *f = openssl_known(lib, ssl);
	uint32_t ended = io_ended;
	if (__builtin_expect(!f || n <= 0, 0) || !inside_is_midst_of_request(f))
		return SSL_write_looked_at(lib, ssl, buf, n);
	KEEP(lib);
	KEEP(ssl);
	KEEP(ended);
	int result = lib->SSL_write(ssl, buf, n);
	return __builtin_expect(result > 0, 1) ? result : openssl_wrote_late(kept_lib, kept_ssl, result, kept_ended);
}
OPENSSL_DOOR(SSL_write, (void *ssl, const void *buf, int n), (ssl, buf, n));

COLD int SSL_write_ex_looked_at(const struct tls_library *lib, void *ssl, const void *buf, size_t n, size_t *gone)
{
	struct inside i;
	bool is_ours = openssl_writes(&i, lib, ssl, buf, n);
	uint32_t ended = io_ended;
	int result = lib->SSL_write_ex(ssl, buf, n, gone);
	openssl_wrote(&i, is_ours, lib, ssl, buf, result, result > 0 ? *gone : 0, ended);
	return result;
}

SHORT int SSL_write_ex_inside(const struct tls_library *lib, void *ssl, const void *buf, size_t n, size_t *gone)
{
	struct flow *f = openssl_known(lib, ssl);
	uint32_t ended = io_ended;
	if (__builtin_expect(!f || n == 0, 0) || !inside_is_midst_of_request(f))
		return SSL_write_ex_looked_at(lib, ssl, buf, n, gone);
	KEEP(lib);
	KEEP(ssl);
	KEEP(ended);
	int result = lib->SSL_write_ex(ssl, buf, n, gone);
	return __builtin_expect(result > 0, 1) ? result : openssl_wrote_late(kept_lib, kept_ssl, result, kept_ended);
}
OPENSSL_DOOR(SSL_write_ex, (void *ssl, const void *buf, size_t n, size_t *gone), (ssl, buf, n, gone));

/* ---- GnuTLS ---- */

enum {
	FATAL_ALERT_RECEIVED = -12,
	UNEXPECTED_PACKET_LENGTH = -9,
	DECRYPTION_FAILED = -24,
	GNUTLS_AGAIN = -28,
	INVALID_REQUEST = -50,
	GNUTLS_INTERRUPTED = -52
};

static bool gnutls_may_tie(const void *lib, const void *session, bool is_complete)
{
	const struct tls_library *l = lib;
	size_t n = 0;
	unsigned type;
	/* A client has no name that it was called by. */
	return is_complete && l->gnutls_server_name_get &&
	       l->gnutls_server_name_get((void *)(uintptr_t)session, NULL, &n, &type, 0) == INVALID_REQUEST;
}

static bool gnutls_enter(struct inside *i, const struct tls_library *l, void *session)
{
	struct tls_datum client = {0}, server;
	if (!l->gnutls_session_get_random)
		return false;
	l->gnutls_session_get_random(session, &client, &server);
	return client.data && client.size == TLS_RANDOM && inside_enter(i, client.data, session, gnutls_may_tie, l);
}

static inline bool gnutls_reads(struct inside *i, const struct tls_library *l, void *session)
{
	int saved = errno;
	bool is_ours = gnutls_enter(i, l, session);
	if (is_ours)
		inside_reads(i);
	errno = saved;
	return is_ours;
}

/* n: so many were asked for. */
static void gnutls_read(struct inside *i, const void *buf, size_t n, ssize_t result)
{
	int saved = errno;
	if (result > 0 || (result == 0 && n > 0))
		inside_read(i, buf, (size_t)result);
	else if (result == FATAL_ALERT_RECEIVED || result == DECRYPTION_FAILED || result == UNEXPECTED_PACKET_LENGTH)
		inside_refused(i);
	else if (result < 0 && result != GNUTLS_AGAIN && result != GNUTLS_INTERRUPTED)
		inside_ended(i);
	errno = saved;
}

COLD ssize_t gnutls_record_recv_looked_at(const struct tls_library *lib, void *session, void *buf, size_t n)
{
	struct inside i;
	bool is_ours = gnutls_reads(&i, lib, session);
	ssize_t result = lib->gnutls_record_recv(session, buf, n);
	if (is_ours)
		gnutls_read(&i, buf, n, result);
	return result;
}

EXPORT ssize_t gnutls_record_recv(void *session, void *buf, size_t n)
{
	LIBRARY(gnutls_record_recv, session);
	return PLAIN_ROAD(session) ? lib->gnutls_record_recv(session, buf, n)
				   : gnutls_record_recv_looked_at(lib, session, buf, n);
}

COLD ssize_t gnutls_record_recv_seq_looked_at(
	const struct tls_library *lib, void *session, void *buf, size_t n, unsigned char *seq)
{
	struct inside i;
	bool is_ours = gnutls_reads(&i, lib, session);
	ssize_t result = lib->gnutls_record_recv_seq(session, buf, n, seq);
	if (is_ours)
		gnutls_read(&i, buf, n, result);
	return result;
}

EXPORT ssize_t gnutls_record_recv_seq(void *session, void *buf, size_t n, unsigned char *seq)
{
	LIBRARY(gnutls_record_recv_seq, session);
	return PLAIN_ROAD(session) ? lib->gnutls_record_recv_seq(session, buf, n, seq)
				   : gnutls_record_recv_seq_looked_at(lib, session, buf, n, seq);
}

/* What it hands over lies in its own memory. */
COLD ssize_t gnutls_record_recv_packet_looked_at(const struct tls_library *lib, void *session, void **packet)
{
	struct inside i;
	bool is_ours = lib->gnutls_packet_get && gnutls_reads(&i, lib, session);
	ssize_t result = lib->gnutls_record_recv_packet(session, packet);
	struct tls_datum octets = {0};
	if (is_ours && result > 0)
		lib->gnutls_packet_get(*packet, &octets, NULL);
	if (is_ours)
		gnutls_read(&i, octets.data, 1, result > 0 ? (ssize_t)octets.size : result);
	return result;
}

EXPORT ssize_t gnutls_record_recv_packet(void *session, void **packet)
{
	LIBRARY(gnutls_record_recv_packet, session);
	return PLAIN_ROAD(session) ? lib->gnutls_record_recv_packet(session, packet)
				   : gnutls_record_recv_packet_looked_at(lib, session, packet);
}

/* What is only corked has not gone: it comes by again, from within the library, as it is uncorked. */
static bool gnutls_keeps(const struct tls_library *l, void *session, const void *caller)
{
	return l->gnutls_record_check_corked && l->gnutls_record_check_corked(session) > 0 &&
	       !tls_library_is_home(l, caller);
}

static bool gnutls_writes(
	struct inside *i, const struct tls_library *l, void *session, const void *buf, size_t n, const void *caller)
{
	int saved = errno;
	/* Without octets it sends what it has kept: the same call goes on. */
	bool is_ours =
		n > 0 && addr_may_be_mapped(buf) && gnutls_enter(i, l, session) && !gnutls_keeps(l, session, caller);
	if (is_ours)
		inside_writes(i, buf, n);
	errno = saved;
	return is_ours;
}

static void gnutls_wrote(
	struct inside *i, const struct tls_library *l, void *session, ssize_t result, const void *caller)
{
	int saved = errno;
	/* That it is corked is told only when it has kept the first of it. */
	inside_wrote(i, result > 0 && !gnutls_keeps(l, session, caller) ? (size_t)result : 0);
	errno = saved;
}

/* GnuTLS's send goes on by the name of send2: that comes from here then. Of which library: its place + 1, 0: none. */
static __thread uint8_t sends_by;
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));
#define IS_OURS(caller) ((const char *)(caller) >= __ehdr_start && (const char *)(caller) < etext)

COLD ssize_t gnutls_record_send_looked_at(
	const struct tls_library *lib, void *session, const void *buf, size_t n, const void *caller)
{
	struct inside i;
	bool is_ours = gnutls_writes(&i, lib, session, buf, n, caller);
	ssize_t result = lib->gnutls_record_send(session, buf, n);
	if (is_ours)
		gnutls_wrote(&i, lib, session, result, caller);
	return result;
}

EXPORT ssize_t gnutls_record_send(void *session, const void *buf, size_t n)
{
	LIBRARY(gnutls_record_send, session);
	sends_by = (uint8_t)(lib - tls_libraries + 1);
	return PLAIN_ROAD(session) ? lib->gnutls_record_send(session, buf, n)
				   : gnutls_record_send_looked_at(lib, session, buf, n, __builtin_return_address(0));
}

COLD ssize_t gnutls_record_send2_looked_at(const struct tls_library *lib, void *session, const void *buf, size_t n,
	size_t pad, unsigned flags, const void *caller)
{
	struct inside i;
	bool is_ours = gnutls_writes(&i, lib, session, buf, n, caller);
	ssize_t result = lib->gnutls_record_send2(session, buf, n, pad, flags);
	if (is_ours)
		gnutls_wrote(&i, lib, session, result, caller);
	return result;
}

EXPORT ssize_t gnutls_record_send2(void *session, const void *buf, size_t n, size_t pad, unsigned flags)
{
	if (IS_OURS(__builtin_return_address(0)) && sends_by)
		return tls_libraries[sends_by - 1].gnutls_record_send2(session, buf, n, pad, flags);
	LIBRARY(gnutls_record_send2, session);
	return PLAIN_ROAD(session)
		       ? lib->gnutls_record_send2(session, buf, n, pad, flags)
		       : gnutls_record_send2_looked_at(lib, session, buf, n, pad, flags, __builtin_return_address(0));
}

COLD ssize_t gnutls_record_send_range_looked_at(
	const struct tls_library *lib, void *session, const void *buf, size_t n, const void *range, const void *caller)
{
	struct inside i;
	bool is_ours = gnutls_writes(&i, lib, session, buf, n, caller);
	ssize_t result = lib->gnutls_record_send_range(session, buf, n, range);
	if (is_ours)
		gnutls_wrote(&i, lib, session, result, caller);
	return result;
}

EXPORT ssize_t gnutls_record_send_range(void *session, const void *buf, size_t n, const void *range)
{
	LIBRARY(gnutls_record_send_range, session);
	return PLAIN_ROAD(session)
		       ? lib->gnutls_record_send_range(session, buf, n, range)
		       : gnutls_record_send_range_looked_at(lib, session, buf, n, range, __builtin_return_address(0));
}
