/* Of functions in everybody's way: what they are compiled with. */
#ifndef RESIL_BASE_HOT_H
#define RESIL_BASE_HOT_H

/* No canary, six instructions of each call: for frames in which nothing is written by an index or a length but by the
 * kernel, which is told the size. */
#if defined(__has_attribute) && __has_attribute(no_stack_protector)
#define HOT_FRAME __attribute__((no_stack_protector))
#else
#define HOT_FRAME
#endif

#endif
