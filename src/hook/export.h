/* Marks the names that the app binds to instead of libc's. The exports list (exports.map.in) lets out what base/taken.h
 * names, and nothing else (E9). */
#ifndef RESIL_HOOK_EXPORT_H
#define RESIL_HOOK_EXPORT_H

#define EXPORT __attribute__((visibility("default")))
#if defined(__GNUC__) && !defined(__clang__)
/* libc declares some originals nothrow and leaf, and not their second names. */
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif
/* A second name of a body, with its type. */
#define ALIAS(name, second) extern __typeof__(name) second __attribute__((__alias__(#name), __visibility__("default")))

#endif
