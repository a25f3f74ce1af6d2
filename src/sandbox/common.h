/*
 * What is the same in every sandbox of a daemon: files of /etc and our CA's certificate. They are
 * written once, into the folder STATE/common, whose two parts are layers of every sandbox's root,
 * one above its image and one below. Supervisor only, but for the table.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "util/err.h"

/* The parts of the folder. */
#define COMMON_ABOVE "above" /* hides what the image has in the same place */
#define COMMON_BELOW "below" /* shows where the image has nothing */

#define COMMON_FILES 5

struct common_file {
    const char *path; /* from the root */
    const char *text; /* NULL: the CA's certificate */
    bool is_below;
};
extern const struct common_file common_files[COMMON_FILES];

/* The certificate, or the text of the file, with its length. */
const char *common_text(const struct common_file *file, const char *ca_pem, size_t ca_pem_len,
                        size_t *ret_len);

/* True: a regular file of this owner, mode 0644, with these bytes and no others; no link is
 * followed. */
bool common_is_same(int dir_fd, const char *path, uid_t owner, const char *data, size_t len);

/* True when the folder holds these files already, of the sandboxes' root on disk. */
bool common_is_current(int common_fd, uid_t owner, const char *ca_pem, size_t ca_pem_len);

/* Fills an empty folder, as the sandboxes' root (sandbox/inside.h). */
int common_fill(int common_fd, const char *ca_pem, size_t ca_pem_len, struct err *err);
