/* The functions that we took, as they were: the next definition after ours (RTLD_NEXT), so that other preloads keep
 * their place (E17). Filled by real_resolve() in the constructor; before it, early forms serve (taken.h). Immutable
 * afterwards, hence unlocked. */
#ifndef RESIL_BASE_REAL_H
#define RESIL_BASE_REAL_H

#include <netdb.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct real_table {
#define TAKEN_SYS(ret, name, params, args, number) ret(*name) params;
#define TAKEN_LIB(ret, name, params, args) ret(*name) params;
#define TAKEN_TLS(ret, name, params, args)
#define TAKEN_ASM(name)
#define TAKEN_OWN(name)
#define TAKEN_ALIAS(name, alias)
#include "base/taken.h"
#undef TAKEN_SYS
#undef TAKEN_LIB
#undef TAKEN_TLS
#undef TAKEN_ASM
#undef TAKEN_OWN
#undef TAKEN_ALIAS
};

extern __attribute__((visibility("hidden"))) struct real_table real;

/* Targets of the bodies in assembly, by their plain names (hook/jump.S). */
extern long (*real_syscall)(long n, ...);
extern pid_t (*real_vfork)(void);
extern void *(*real_dlopen)(const char *path, int flags);
/* Not taken: of the same library as real.getaddrinfo. */
extern void (*real_freeaddrinfo)(struct addrinfo *list);

/* Resolves every row; from the constructor, once. */
void real_resolve(void);

#endif
