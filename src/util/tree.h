/*
 * Trees that strangers wrote, as deep as they like: links are removed, never followed. Every
 * process; blocks.
 */
#pragma once

#include <stdint.h>

#include "util/err.h"

/* Removes everything beneath the folder, which stays. Stops at the first thing that cannot be
 * removed, with its errno. */
int tree_clear(int dir_fd, struct err *err);

/* Removes dir_fd/name, one name without a slash, whatever it is, with all that is beneath it. What
 * is not there is no error. */
int tree_remove(int dir_fd, const char *name, struct err *err);

/* The disk space of everything beneath the folder, in bytes, the folder's own included; a file with
 * more links counts a share for each. -ELOOP: it is deeper than 512 folders. */
int tree_measure(int dir_fd, int64_t *ret_bytes, struct err *err);
