/*
 * What the supervisor does to files that belong to a sandbox's ids on disk. As the host's root it
 * does it itself; as a user with subordinate ids, a helper process does it in the user namespace of
 * those ids; with a single id all files are ours. Supervisor only; each call takes about a
 * millisecond at most, waits for nobody else, and may be made on folders of our own making alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox/host.h"
#include "util/err.h"

/* Runs work(ctx) as the sandboxes' root: what it makes on disk is theirs. It must neither return
 * what it allocates nor change what it does not write to disk: it may run in another process. */
int sandbox_run_inside(struct sandbox_host *host, int (*work)(void *ctx, struct err *err),
                       void *ctx, struct err *err);

struct sandbox_gift {
    const char *path; /* "": dir_fd itself; no link is followed */
    uint32_t id;      /* user and group of the sandbox */
    bool is_shared;   /* the daemon, too, makes, removes and renames in this folder */
};
/* Gives files that we made to ids of the sandboxes. */
int sandbox_give(struct sandbox_host *host, int dir_fd, const struct sandbox_gift *list,
                 size_t count, struct err *err);
