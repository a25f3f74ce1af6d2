/*
 * What an instance that is made already is told when it gets a sandbox: its name, the environment
 * of every program and the folders. One packet from the supervisor to its own set-up child, which
 * is of the same build, on the socket that becomes init's.
 */
#pragma once

#include "util/err.h"
#include "util/limits.h"

enum {
    /* Detached mounts, idmapped; where nothing can be idmapped, folders first. */
    ORDER_IMAGE,
    ORDER_COMMON,
    ORDER_OVERLAY,
    ORDER_WORKSPACE,
    ORDER_TASK,
    ORDER_TASK_WRITE, /* the same task folder, writable */
    ORDER_MOUNTS,
    ORDER_LISTENER = ORDER_MOUNTS, /* listening SOCK_SEQPACKET socket bound to init.sock */
    ORDER_FDS,
};

/* The name and the environment, each text with its NUL; besides what the image and the client may
 * set, 32 variables of ours. */
#define ORDER_BYTES (LIMIT_NAME_BYTES + 1 + LIMIT_IMAGE_ENV_BYTES + LIMIT_ENV_BYTES + 1024)
#define ORDER_VARIABLES (LIMIT_IMAGE_ENV_COUNT + LIMIT_ENV + 32 + 1)

struct order {
    int fds[ORDER_FDS];
    const char *name;
    const char *environment[ORDER_VARIABLES]; /* ends with NULL */
    char text[ORDER_BYTES];
};

/* Sends it; `fds` stay the caller's, `environment` ends with NULL. -E2BIG: it is longer than
 * ORDER_BYTES; else what sendmsg(2) says, -EPIPE when the child is gone. Waits for nothing. */
int order_send(int sock, const char *name, const char *const *environment, const int fds[ORDER_FDS],
               struct err *err);

/* Waits for it. -EPIPE: the supervisor is gone, or wants no instance any more. The child; allocates
 * nothing. */
int order_receive(int sock, struct order *ret, struct err *err);
