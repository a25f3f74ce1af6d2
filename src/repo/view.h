/*
 * A view of a repository: a private git folder of ours, for an agent's work tree. Its configuration
 * is made here; index, HEAD, packed-refs, info/exclude and info/attributes are copies; objects are
 * read through objects/info/alternates and loose refs through a link. So git runs nothing of the
 * agent's configuration, finds no hook and writes to no file of the agent.
 * Views live in a scratch folder in /tmp, which goes with the jail. paddock-jail only.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "repo/git.h"
#include "util/err.h"

#define REPO_EMPTY_TREE_SHA1 "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
#define REPO_EMPTY_TREE_SHA256 "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"

/* True when each part of the path is a name that git allows: not empty, "." or "..", nor ".git" in
 * whatever case. Pure. */
bool repo_path_is_plain(const char *path, size_t len);

/* What all views of one job share. */
struct repo_scratch {
    char path[64];      /* the folder in /tmp */
    char exec_path[80]; /* holds one program, `git`, which leads git to the view of a submodule */
    const char *root;   /* the work tree of the repository; nothing outside of it is looked at */
    int root_fd;
};
#define REPO_SCRATCH_NONE ((struct repo_scratch){.root_fd = -1})

struct repo_view {
    char git_dir[PATH_MAX], work_tree[PATH_MAX];
    char agent_git_dir[PATH_MAX]; /* relative to the root */
    struct git_place place;       /* of the first two and the scratch's exec_path */
    bool is_sha256;
};

int repo_scratch_open(const char *root, struct repo_scratch *ret, struct err *err);
void repo_scratch_close(struct repo_scratch *scratch); /* closes; removes nothing */
#define cleanup_scratch __attribute__((cleanup(repo_scratch_close)))

/* Makes the view of the work tree `path` ("." or a submodule's, relative to the root) with the
 * objects of `base_git` besides (NULL: none). -ENOENT: there is no repository. -EINVAL: a broken or
 * refused one, such as a .git that is a link or leads out. Where the view of a path exists already,
 * -EEXIST. */
int repo_view_make(const struct repo_scratch *scratch, const char *path, const char *base_git,
                   struct repo_view *ret, struct err *err);

/* Adds one setting to the view's configuration; `setting` is text of a configuration. */
int repo_view_configure(const struct repo_view *view, const char *setting, struct err *err);
