/* Can the shim reach a program? Follows PATH, #! lines and ELF headers as the kernel and the dynamic linker would
 * (DESIGN 8). For run and doctor. */
#ifndef RESIL_CLI_BINARY_H
#define RESIL_CLI_BINARY_H

#include <stdbool.h>

enum binary_reach {
	BINARY_REACHED,
	BINARY_UNREACHED, /* it runs, unguarded: why says it */
	BINARY_ABSENT,	  /* 127 */
	BINARY_DENIED,	  /* there, but cannot be executed: 126 */
};

struct binary {
	enum binary_reach reach;
	char path[4096];    /* what PATH led to */
	char program[4096]; /* what the kernel runs in the end: itself, or the last interpreter */
	char why[1024];	    /* one line; "" when reached */
	bool is_go;	    /* the Go linker made it: its network code may well not pass libc */
};

/* command: as execvp takes it. */
void binary_look(struct binary *b, const char *command);
/* The ELF checks alone, for a file that is running already. */
void binary_look_at_file(struct binary *b, const char *path);

#endif
