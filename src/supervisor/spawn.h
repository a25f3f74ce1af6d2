/*
 * Starts one of our own programs: fork and exec with nothing but what is given. For paddock-api,
 * paddock-egress and the CA's one-shot. Supervisor only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandbox/instance.h"
#include "util/err.h"

struct spawn {
    const char *path;
    const char *const *argv; /* ends with NULL */
    uint32_t id;             /* uid and gid; no other groups, no capability */
    bool is_user;            /* a user's daemon: `id` is its own; see below */
    bool has_network;        /* the host's; of a user's daemon alone another is without */
    const int *fds;          /* become 3, 4, ...; nothing else but stderr stays open */
    size_t fd_count;         /* at most LIMIT_IPC_DESCRIPTORS */
};

/* As root the program is set apart by an id of its own. A user's daemon has but one: there it gets
 * a user namespace and a pid namespace of its own, so that it can neither signal nor trace another
 * process of the user.
 *
 * The program has an empty environment, stdin and stdout on /dev/null, no_new_privs, an empty
 * bounding set. Its end is told by ret->pidfd; reap with spawn_reap. A program that cannot be
 * executed ends with 127. */
int spawn_start(const struct spawn *spawn, struct sandbox_process *ret, struct err *err);

/* How it ended, once pidfd is readable: the exit code, or 128 + signal; -1: still running, or not
 * our child (adopted). */
int spawn_reap(const struct sandbox_process *process);
