/*
 * How a process comes into a new user namespace, in each row (row.h): for the starts of instances
 * and jails, and for what the supervisor does to files of the sandboxes. Supervisor's side; for
 * this folder only.
 *
 * ROOT         the supervisor clones the child and writes its maps.
 * SUBORDINATE  between us and the sandboxes is one user namespace, "the range", made with
 *              newuidmap(1) at the daemon's start: 0 is our own id, 1 on are the subordinate ids. A
 *              helper process enters it, clones the child from there (as its sibling, so that it
 *              is ours) and writes the maps: the sandbox's 0 is the range's 1. Our own id has no
 *              number in a sandbox.
 * SINGLE       the supervisor clones the child, which writes its own maps of one id.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandbox/host.h"
#include "sandbox/instance.h"

/* Whom a child's ids are for. */
enum launch_kind {
    LAUNCH_INSTANCE,
    LAUNCH_JOB, /* SUBORDINATE: our own id is there too, as the one after the others: a job also
                   removes and measures what the daemon made */
    LAUNCH_BUILD,
};

struct launch {
    enum launch_kind kind;
    uint32_t block;      /* ROOT: leased */
    int into_cgroup_fd;  /* -1: none */
    bool with_network;   /* a network namespace of its own */
    int go_write_fd;     /* a byte lets the child go on when its maps are written */
    void (*run)(void *); /* the child's life; does not return */
    void *child;
};

/* Clones the child into all its namespaces and lets it go on. On error it is killed and reaped. */
int sandbox_launch(struct sandbox_host *host, const struct launch *launch,
                   struct sandbox_process *ret, struct err *err);

/* SUBORDINATE: makes the range; the descriptor of its user namespace is the caller's. */
int launch_make_range(const struct row *row, struct err *err);

/* What a jail or an instance gets for a folder. ROOT: a detached copy as a mount with the ids of
 * the block; else the folder itself, O_PATH, which the child clones (child_clone_folder). The
 * descriptor is the caller's. */
int sandbox_clone_folder(struct sandbox_host *host, uint32_t block, int dir_fd, const char *path,
                         bool writable, struct err *err);
