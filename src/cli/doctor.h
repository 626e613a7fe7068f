/* What doctor.c and doctor_process.c share. */
#ifndef RESIL_CLI_DOCTOR_H
#define RESIL_CLI_DOCTOR_H

#include <stdarg.h>
#include <sys/types.h>

enum doctor_verdict { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_PROBLEM };
void doctor_say(enum doctor_verdict verdict, const char *topic, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* 0, or an exit code that goes before "problems were found". */
int doctor_examine_process(pid_t pid);

#endif
