/* Where libresil.so is: beside the command, or installed. */
#ifndef RESIL_CLI_SHIM_H
#define RESIL_CLI_SHIM_H

#include <stdbool.h>
#include <stddef.h>

#define SHIM_NAME "libresil.so"

/* The absolute path; false: neither place has it (to: the places, for a message). */
bool shim_find(char *to, size_t cap);
/* Is the list (LD_PRELOAD: separated by colons or blanks) one that names the shim? */
bool shim_is_in(const char *list);

#endif
