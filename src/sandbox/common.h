/*
 * What is the same in every sandbox of a daemon: files of /etc and our CA's certificate. They are
 * written once, into the folder STATE/common, whose two parts are layers of every sandbox's root,
 * one above its image and one below. Supervisor only, but for the table.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "sandbox/instance.h"
#include "util/err.h"

/* The parts of the folder. */
#define COMMON_ABOVE "above" /* hides what the image has in the same place */
#define COMMON_BELOW "below" /* shows where the image has nothing */

#define COMMON_FILES 7

enum common_kind { COMMON_TEXT, COMMON_CA, COMMON_CA_JAVA };

struct common_file {
    const char *path; /* from the root */
    const char *text; /* of COMMON_TEXT */
    enum common_kind kind;
    bool is_below;
};
extern const struct common_file common_files[COMMON_FILES];

/* What is in the file, with its length. */
const char *common_text(const struct common_file *file, const struct sandbox_trust *trust,
                        size_t *ret_len);

/* True: a regular file of this owner, mode 0644, with these bytes and no others; no link is
 * followed. */
bool common_is_same(int dir_fd, const char *path, uid_t owner, const char *data, size_t len);

/* True when the folder holds these files already, of the sandboxes' root on disk. */
bool common_is_current(int common_fd, uid_t owner, const struct sandbox_trust *trust);

/* Fills an empty folder, as the sandboxes' root (sandbox/inside.h). */
int common_fill(int common_fd, const struct sandbox_trust *trust, struct err *err);
