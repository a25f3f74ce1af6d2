/*
 * The jobs of paddock-jail, listed in jobs.def. The process is alone in a jail that the supervisor
 * made (sandbox_jail_start): it sees /usr and /lib of the host, /dev/null, an empty /tmp and the
 * folders of the job, has no network and no other descriptor than the standard ones.
 */
#pragma once

#include <stdint.h>

#include "util/err.h"

/* What the process exits with when a job failed. */
enum jail_exit {
    JAIL_EXIT_REFUSED =
        1,                /* what it was given is not what it must be; whatever is not told apart */
    JAIL_EXIT_FULL = 3,   /* the disk is full */
    JAIL_EXIT_FAILED = 4, /* the machine failed: no memory, a disk that does not read or write */
};

/* The status for a negative errno of jail_run. */
enum jail_exit jail_exit_of(int result);

/* Runs argv[1] with the arguments that follow it. Negative errno on failure. */
int jail_run(int argc, const char *const *argv, struct err *err);

/* Prints "disk TOTAL FREE" in bytes, then becomes du(1): a line "BYTES<tab>PATH" for each folder,
 * its parts and theirs, each behind what is in it. Returns only on failure. Blocks. */
int jail_measure(const char *sandboxes, const char *trash, const char *images, struct err *err);

/* What the job `weigh` tells of folders: blocks that are allocated, and inodes; what has several
 * names counts once. */
struct jail_weight {
    uint64_t bytes, inodes;
};

/* Runs du(1) twice over both folders together. -EIO: it told nothing. Blocks. */
int jail_weigh(const char *workspace, const char *overlay, struct jail_weight *ret,
               struct err *err);
