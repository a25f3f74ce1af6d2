/*
 * A listening socket of a sandbox. Connections that cannot be served now wait in its backlog: while
 * descriptors run out the listener rests and looks again, and its owner may make it rest as well.
 */
#pragma once

#include <uv.h>

#include "util/err.h"

struct egress_listener;

/* Serves the socket, which becomes the listener's. `accepted` gets each connection, non-blocking
 * and CLOEXEC, as its own; it may call pause, and close. */
int egress_listener_start(uv_loop_t *loop, int fd, void (*accepted)(void *ctx, int fd), void *ctx,
                          struct egress_listener **ret, struct err *err);

void egress_listener_pause(struct egress_listener *listener);
void egress_listener_resume(struct egress_listener *listener);

/* No connection is accepted any more; frees itself when the loop has run. NULL is allowed. */
void egress_listener_close(struct egress_listener *listener);
