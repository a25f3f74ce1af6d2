/* What is put into a view's index before git compares: untracked files and nested clones; and the
 * views of submodules that git will look into. paddock-jail only. */
#pragma once

#include "repo/view.h"

/* Puts an index of ours in the place of the agent's: the files of `tree`, and over them those that
 * the agent's index names. Nothing that an agent can write there hides a change: neither flags
 * (assume-unchanged, skip-worktree) nor the times and sizes by which git takes a file for
 * unchanged, nor extensions. `tree` NULL: the agent's names alone. */
int repo_trust_no_index(const struct repo_view *view, const char *tree, struct err *err);

/* Adds every untracked, not ignored file to the index, as empty files that were never looked at:
 * compared with a commit that is the same as `git add --intent-to-add`, and bound to no file that
 * comes or goes meanwhile. A nested clone becomes a submodule; one without a commit is left out. */
int repo_add_untracked(const struct repo_scratch *scratch, const struct repo_view *view,
                       struct err *err);

/* The same with true intent-to-add entries, which a comparison with the index itself needs. Fails
 * when a file vanishes meanwhile, and takes git time that grows with the square of their number. */
int repo_intend_untracked(const struct repo_view *view, struct err *err);

/* Makes views of the submodules of `view` and of those in them. */
int repo_view_submodules(const struct repo_scratch *scratch, const struct repo_view *view,
                         struct err *err);
