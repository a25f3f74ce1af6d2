/* A TCP connection to a name: its addresses are looked up, judged, and tried as RFC 8305 says, each
 * next one 250 ms after the one before, or as soon as that failed; the first that answers is it. */
#pragma once

#include "egress/turn.h"
#include "egress/upstream.h"

struct dial;

struct dial_request {
    uint64_t owner;   /* of whom LIMIT_EGRESS_LOOKUPS names at once are looked up; others wait */
    const char *host; /* a name, or an address without brackets */
    uint16_t port;
    bool may_be_private; /* else addresses that are not public are left out */
};

/* `done` is called once, from the loop, never from within dial_start: with a connected non-blocking
 * socket, which is the callee's, or with fd -1 and why. After it, or dial_cancel, the dial is gone.
 * NULL: no memory. */
struct dial *
dial_start(uv_loop_t *loop, struct turn_queue *turns, const struct dial_request *request,
           void (*done)(void *ctx, int fd, enum egress_failure failure, const char *reason),
           void *ctx);
void dial_cancel(struct dial *dial);
