/* See tls_library.h. */
#include "base/tls_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>

#include "base/addr.h"
#include "base/oldlibc.h"
#include "base/real.h"

OLDLIBC(dlsym);
OLDLIBC(dlclose);
/* Weak: musl has none (E16). */
#pragma weak dladdr1
#if defined(__x86_64__)
__asm__(".symver dladdr1,dladdr1@GLIBC_2.3.3");
#elif defined(__aarch64__)
__asm__(".symver dladdr1,dladdr1@GLIBC_2.17");
#endif

_Atomic uint64_t tls_library_sites[TLS_SITES];
struct tls_library tls_libraries[TLS_LIBRARIES + 1];

/* Those known: the loader's record of each, at the same number. Written once each, by whoever finds it; twice the same
 * does no harm. */
static _Atomic(const struct link_map *) maps[TLS_LIBRARIES + 1];
static _Atomic uint32_t taken;

/* The object that an address lies in; null: none. */
static const struct link_map *map_of(const void *at)
{
	Dl_info info;
	struct link_map *map = NULL;
	if (!dladdr1 || !addr_may_be_mapped(at) || !dladdr1(at, &info, (void **)&map, RTLD_DL_LINKMAP))
		return NULL;
	return map;
}

static const struct link_map *own_map(void)
{
	return map_of((const void *)&tls_libraries);
}

/* As whoever lives in `map` would find it: itself and what it was linked with; the executable, from behind us on. */
static void *definition(const struct link_map *map, const char *name)
{
	void *at = NULL;
	void *handle = map && map->l_name[0] ? real_dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	if (handle) {
		at = dlsym(handle, name);
		dlclose(handle);
	}
	return at && map_of(at) != own_map() ? at : dlsym(RTLD_NEXT, name);
}

/* Does the object itself make TLS objects? An interposer of another's does not. */
static bool is_tls_library(const struct link_map *map)
{
	void *at = map ? definition(map, "SSL_new") : NULL;
	return at && map_of(at) == map;
}

/* The library of an object of OpenSSL's: one of its first words leads to a table of methods in it. A function that
 * jumps on to SSL_read leaves its caller's address, and its caller may have another library. */
static const struct link_map *home_of(const void *object)
{
	const void *const *word = object;
	for (int i = 0; i < 5; i++) {
		const struct link_map *map = map_of(word[i]);
		if (map && map != own_map() && is_tls_library(map))
			return map;
	}
	return NULL;
}

static void fill(struct tls_library *l, const struct link_map *map)
{
#define TAKEN_TLS(ret, name, params, args) *(void **)&l->name = definition(map, #name);
#define TAKEN_SYS(ret, name, params, args, number)
#define TAKEN_LIB(ret, name, params, args)
#define TAKEN_ASM(name)
#define TAKEN_OWN(name)
#define TAKEN_ALIAS(name, alias)
#include "base/taken.h"
#define ASKED(name) *(void **)&l->name = definition(map, #name)
	ASKED(SSL_get_client_random);
	ASKED(SSL_is_init_finished);
	ASKED(SSL_is_server);
	ASKED(SSL_get_shutdown);
	ASKED(SSL_get_error);
	ASKED(ERR_peek_error);
	ASKED(ERR_new);
	ASKED(ERR_set_error);
	ASKED(ERR_put_error);
	ASKED(gnutls_session_get_random);
	ASKED(gnutls_server_name_get);
	ASKED(gnutls_record_check_corked);
	ASKED(gnutls_packet_get);
}

/* Its number, known or from now on; 0: there is no room. */
static uint32_t number_of(const struct link_map *map)
{
	uint32_t known = atomic_load(&taken);
	for (uint32_t i = 1; i <= known && i <= TLS_LIBRARIES; i++)
		if (atomic_load_explicit(&maps[i], memory_order_acquire) == map)
			return i;
	uint32_t i = known < TLS_LIBRARIES ? atomic_fetch_add(&taken, 1) + 1 : 0;
	if (i == 0 || i > TLS_LIBRARIES)
		return 0;
	if (map->l_name[0])
		(void)real_dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD); /* kept */
	fill(&tls_libraries[i], map);
	atomic_store_explicit(&maps[i], map, memory_order_release);
	return i;
}

bool tls_library_is_home(const struct tls_library *l, const void *caller)
{
	return map_of(caller) == atomic_load_explicit(&maps[l - tls_libraries], memory_order_acquire);
}

static const struct tls_library *find(const void *caller, const char *name, const void *object)
{
	const struct link_map *map = map_of(definition(map_of(caller), name));
	bool is_openssl = name[0] == 'S';
	const struct link_map *home = is_openssl && addr_may_be_mapped(object) ? home_of(object) : NULL;
	if (home && home != map && (!map || is_tls_library(map)))
		map = home;
	uint32_t number = map ? number_of(map) : 0;
	if (!number)
		return NULL;
	uint64_t site = (uint64_t)(uintptr_t)caller << 4 | number;
	atomic_store_explicit(tls_library_site(caller), site, memory_order_release);
	return &tls_libraries[number];
}

const struct tls_library *tls_library_find(const void *caller, const char *name, const void *object)
{
	int saved = errno;
	const struct tls_library *found = find(caller, name, object);
	errno = saved;
	return found;
}
