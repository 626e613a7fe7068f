/* Symbols that newer glibcs moved into libc.so under a new version, bound to the old version that they still carry:
 * what is built here runs there too. */
#ifndef RESIL_BASE_OLDLIBC_H
#define RESIL_BASE_OLDLIBC_H

#if defined(__x86_64__)
#define OLDLIBC(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#elif defined(__aarch64__)
#define OLDLIBC(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif

#endif
