/* For functions of everyday roads that have no array on their stack: there is nothing for the stack protector to watch,
 * which would cost seven instructions each where the address of a local is handed on. */
#ifndef RESIL_BASE_NOARRAY_H
#define RESIL_BASE_NOARRAY_H

#if __has_attribute(no_stack_protector)
#define NO_ARRAY __attribute__((no_stack_protector))
#else
#define NO_ARRAY
#endif

#endif
