/* The environment as the program was started with it; for constructors alone, since programs change it, and write over
 * it, later. As getenv, but our own names (RESIL_...), of which there are many and mostly none is set, cost one walk
 * through it in all. */
#ifndef RESIL_BASE_ENV_H
#define RESIL_BASE_ENV_H

const char *env_at_start(const char *name);

#endif
