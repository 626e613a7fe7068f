/* The everyday connect, as one function: a socket of ours that was not connected before, an address by itself, a kept
 * guard (guard.h), nothing in force beside it, a closed circuit. Whatever is otherwise is connect.h's, which is asked
 * before anything has been done. */
#ifndef RESIL_ENGINE_EVERYDAY_H
#define RESIL_ENGINE_EVERYDAY_H

#include <sys/socket.h>

/* As connect_guarded. */
int everyday_connect(int fd, const struct sockaddr *to, socklen_t len);

#endif
