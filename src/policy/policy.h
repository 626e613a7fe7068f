/* The configuration in force: acquired for a moment, swapped whole by a reload, freed when nobody holds it.
 * A few holders with a count each, never freed themselves: acquire counts, then looks whether the holder is still
 * current, else lets go and tries again. No lock: a holder is reused only at count 0. A thread killed while holding one
 * leaks it, never more. */
#ifndef RESIL_POLICY_POLICY_H
#define RESIL_POLICY_POLICY_H

#include <stdatomic.h>

#include "policy/config.h"

/* Puts a configuration into force. 0, or -EBUSY when every holder is still held (try again later; c stays the
 * caller's). */
int policy_install(struct config *c);
/* Faults added at run time, apart from it and in the same way; null: none. -EBUSY as above. */
int policy_install_faults(struct config *c);
const struct config *policy_acquire_faults(void);
/* The configuration in force, held; null before the first install. Release with the same pointer. */
const struct config *policy_acquire(void);
void policy_release(const struct config *c);
/* Counts installs, from 1: caches keyed by it notice a reload. */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t policy_current;
static inline uint32_t policy_generation(void)
{
	return atomic_load_explicit(&policy_current, memory_order_acquire);
}
/* Remembers where the configuration came from and reads it again: all or nothing. 0: installed; else the number of
 * faults with their lines in errors, the old configuration stays. -EBUSY, -ENOMEM. */
void policy_set_source(const struct config_source *source);
/* Asked at each reload for the file, as config_find_file would answer; without it the source's file is read again. */
void policy_set_finder(bool (*find)(char *path, size_t cap, bool *is_optional));
int policy_reload(struct text *errors);

/* The longest wait of a circuit on this machine's own addresses (127.0.0.0/8, ::1) where nobody set recovery_max: a
 * refused connect costs nothing there, and `until nc -z localhost PORT` must see a server that starts late soon after
 * it is there. */
#define POLICY_LOCAL_WAIT_MS 2000u
/* recovery_max for a destination, in ms: the policy's, or the shorter one of loopback. */
uint32_t policy_recovery_max_ms(const struct policy *p, const struct addr *a);

#endif
