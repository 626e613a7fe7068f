/* TLS libraries as their callers see them. A process may have several: the executable's, a plug-in's own. What we took
 * the name of is forwarded to the definition that the caller itself would have met, or its object would be handed to
 * the wrong library (A9). Found once for each place that calls, by the loader; then a load and a comparison. A library
 * once found is kept loaded (OpenSSL keeps itself so), hence what is remembered of it stays true. Any thread. */
#ifndef RESIL_BASE_TLS_LIBRARY_H
#define RESIL_BASE_TLS_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* gnutls_datum_t */
struct tls_datum {
	unsigned char *data;
	unsigned size;
};

/* The names taken (taken.h), and those that are asked, null where it has none. Aligned: a number comes to its library
 * by a shift. */
struct __attribute__((aligned(256))) tls_library {
#define TAKEN_TLS(ret, name, params, args) ret(*name) params;
#define TAKEN_SYS(ret, name, params, args, number)
#define TAKEN_LIB(ret, name, params, args)
#define TAKEN_ASM(name)
#define TAKEN_OWN(name)
#define TAKEN_ALIAS(name, alias)
#include "base/taken.h"
#undef TAKEN_TLS
#undef TAKEN_SYS
#undef TAKEN_LIB
#undef TAKEN_ASM
#undef TAKEN_OWN
#undef TAKEN_ALIAS
	size_t (*SSL_get_client_random)(const void *ssl, unsigned char *out, size_t n);
	int (*SSL_is_init_finished)(const void *ssl);
	int (*SSL_is_server)(const void *ssl);
	int (*SSL_get_shutdown)(const void *ssl);
	int (*SSL_get_error)(const void *ssl, int result);
	unsigned long (*ERR_peek_error)(void);
	void (*ERR_new)(void);									  /* 3 */
	void (*ERR_set_error)(int library, int reason, const char *format, ...);		  /* 3 */
	void (*ERR_put_error)(int library, int function, int reason, const char *file, int line); /* 1.1 */
	void (*gnutls_session_get_random)(void *session, struct tls_datum *client, struct tls_datum *server);
	int (*gnutls_server_name_get)(void *session, void *out, size_t *n, unsigned *type, unsigned index);
	size_t (*gnutls_record_check_corked)(void *session);
	void (*gnutls_packet_get)(void *packet, struct tls_datum *octets, unsigned char *seq);
};

#define TLS_LIBRARIES 15
#define TLS_SITES 512
/* A place: its address in the upper bits, the number of its library in the lowest four. */
extern __attribute__((visibility("hidden"))) _Atomic uint64_t tls_library_sites[TLS_SITES];
extern __attribute__((visibility("hidden"))) struct tls_library tls_libraries[TLS_LIBRARIES + 1];

static inline _Atomic uint64_t *tls_library_site(const void *caller)
{
	uintptr_t at = (uintptr_t)caller;
	return &tls_library_sites[(at ^ at >> 9 ^ at >> 18) % TLS_SITES];
}

/* name: of what is called, as the loader knows it; object: what it is called for. Null: nobody has it. */
const struct tls_library *tls_library_find(const void *caller, const char *name, const void *object);
/* Null: not known yet. */
static inline const struct tls_library *tls_library_known(const void *caller)
{
	uint64_t site = atomic_load_explicit(tls_library_site(caller), memory_order_acquire);
	return __builtin_expect(site >> 4 == (uint64_t)(uintptr_t)caller, 1) ? &tls_libraries[site & 15] : NULL;
}
static inline const struct tls_library *tls_library_of(const void *caller, const char *name, const void *object)
{
	const struct tls_library *known = tls_library_known(caller);
	return known ? known : tls_library_find(caller, name, object);
}

/* Does the library itself call from there? */
bool tls_library_is_home(const struct tls_library *l, const void *caller);

#endif
