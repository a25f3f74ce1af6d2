/*
 * A child that is kept running: api or egress. Started, watched, started again when it ends (at
 * once, then after 100 ms, doubled to at most LIMIT_RESTART_MS while it keeps ending within that
 * time), killed when it breaks the protocol.
 */
#pragma once

#include "sandbox/instance.h"
#include "supervisor/channel.h"
#include "supervisor/event.h"

struct child;

struct child_type {
    const char *name; /* for the log */
    enum ipc_peer peer;
    /* Starts the program with child_run; called again after each end. -EINPROGRESS: what it needs
     * is under way and child_run or child_failed follows. */
    int (*start)(void *ctx, struct child *child, struct err *err);
    void (*message)(void *ctx, struct ipc_message *message);
    void (*gone)(void *ctx); /* it ended; may be NULL */
};

struct child {
    const struct child_type *type;
    void *ctx;
    uv_loop_t *loop;
    struct sandbox_process process; /* pid 0: none */
    struct channel *channel;        /* NULL: not running */
    struct event *ended;
    struct event *timer;
    int64_t started_ms; /* monotonic */
    int64_t delay_ms;   /* before the next start */
};

/* Makes the struct ready and starts it. */
void child_open(struct child *child, const struct child_type *type, uv_loop_t *loop, void *ctx);

struct spawn;
/* Starts the program with a message socket as descriptor 3, put in front of spawn->fds. */
int child_run(struct child *child, const struct spawn *spawn, struct err *err);
/* The start failed: logs why and tries again later. */
void child_failed(struct child *child, const char *why);
/* Kills it; its end then starts it anew. */
void child_kill(struct child *child, const char *why);
/* Lets go of it: closes its socket, at which it ends by itself, and waits for that up to 1 s. */
void child_close(struct child *child);
