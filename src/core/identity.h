/* Who we are: the group's name, the directories, the region's file name, this process's start time. Used by the shim
 * and the command alike. No malloc, no stdio: open, read and readlink. */
#ifndef RESIL_CORE_IDENTITY_H
#define RESIL_CORE_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/text.h"

#define GROUP_MAX 64

/* The group of a command line (CONTRACT 2, RESIL_GROUP): exe is the executable's path (/proc/self/exe), argv as given.
 * Interpreters (python*, perl*, ruby*, node, nodejs, php*, java, sh bash dash zsh ksh) become NAME-SCRIPT: the
 * script's, -m module's, class's or -jar's base name; NAME alone for -c, -e, -r and a terminal. Each interpreter's
 * options that take a value are known. Cleaned by group_clean. */
void identity_group(char group[GROUP_MAX + 1], const char *exe, int argc, char *const argv[]);
/* [A-Za-z0-9._-]{1,64} (E11): a name that is so stays as it is. In others each other byte becomes '_', and they end in
 * '-' and 16 hex digits of the whole name's hash (cut to 47 before), so that a/b and a_b stay apart. */
void identity_clean_group(char group[GROUP_MAX + 1], const char *wanted);

/* The state directory (RESIL_STATE_DIR or /dev/shm/resil-<uid>) and the runtime directory (RESIL_RUNTIME_DIR,
 * $XDG_RUNTIME_DIR/resil, /run/resil for root, /tmp/resil-<uid>). getenv_fn: where variables come from. false when it
 * does not fit. */
bool identity_state_dir(char *dir, size_t cap, uid_t uid, const char *(*getenv_fn)(const char *));
bool identity_runtime_dir(char *dir, size_t cap, uid_t uid, const char *(*getenv_fn)(const char *));
/* Makes a directory 0700 and checks it: a directory, not a link, owned by us, not to be listed or written by others. 0
 * or -errno (EPERM: not ours). */
int identity_make_dir(const char *dir);
/* The checks of identity_make_dir without making it. 0, -ENOENT, or why not, as words: "is a symbolic link". uid: whose
 * it has to be. */
int identity_check_dir(const char *dir, uid_t uid, struct text *why);
/* "<group>.<16 hex of the pid and network namespaces>.v<layout>"; pid 0: this process. false: cannot be read. */
bool identity_region_file(char *file, size_t cap, const char *group, pid_t pid);
/* "<dir>/<group>.sock", "<dir>/<group>.<pid>.sock" when pid > 0; over 107 bytes the group part is hashed. */
bool identity_socket_path(char *path, size_t cap, const char *dir, const char *group, pid_t pid);
/* Field 22 of /proc/PID/stat, clock ticks since boot; 0 when it cannot be read. state: the process state letter, may be
 * null. */
uint64_t identity_start_ticks(pid_t pid, char *state);
/* Has this process's main thread left by pthread_exit? */
bool identity_main_has_ended(void);

#endif
