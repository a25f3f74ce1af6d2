/*
 * The diff of a work tree, as git would print it; see DESIGN of the diff in docs/architecture.md.
 * Runs in paddock-jail: the repository was written by an agent and nothing in it is trusted.
 * Nothing of its configuration is executed, no filter runs, no link leads out, nothing is written.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "util/err.h"

enum repo_against { REPO_SINCE_CLONE, REPO_INDEX, REPO_HEAD, REPO_REVISION };

struct repo_diff_options {
    const char *workspace; /* folder that holds the repository ("/in/workspace/repo") */
    const char *base_git;  /* the saved pack of the clone ("/in/base.git"), or NULL */
    enum repo_against against;
    const char *revision; /* of REPO_REVISION */
    bool renames;
    bool binary; /* binary files in full, and full names of objects, as git-apply(1) needs them */
};

/* Prints the diff to `out_fd`, streamed. Errors: -ENOENT no repository (message for the user),
 * -EINVAL a broken or refused one, -EIO. After an error in the middle what was printed stays. */
int repo_diff(const struct repo_diff_options *options, int out_fd, struct err *err);

/* After a clone: copies HEAD's commit and all it needs from workspace into a bare repository in the
 * empty folder `base_git`, its HEAD detached at that commit. An unborn HEAD leaves it without. */
int repo_save_base(const char *workspace, const char *base_git, struct err *err);
