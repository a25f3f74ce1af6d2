/*
 * The JSON of image archives, and the names in them: pure functions on foreign bytes, in the jail
 * alone; a fuzz target reads them all. OCI image-spec 1.1 (index, manifest, config, layer), and the
 * archive of `docker save`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "image/config.h"
#include "util/err.h"
#include "util/limits.h"

#define IMPORT_DIGEST_SIZE (8 + 128) /* "sha512:", its digits, NUL */
#define IMPORT_MEMBER_SIZE 256

/* A file of the archive, and what its bytes must hash to ("": nothing is said). */
struct import_part {
    char member[IMPORT_MEMBER_SIZE];
    char digest[IMPORT_DIGEST_SIZE];
};

struct import_image {
    struct import_part config;
    size_t layer_count;
    struct import_part layers[LIMIT_IMPORT_LAYERS]; /* the lowest first */
};

struct import_config {
    size_t layer_count;
    char diff_ids[LIMIT_IMPORT_LAYERS][IMPORT_DIGEST_SIZE]; /* of the layers uncompressed */
    struct image_config kept; /* without uid, gid and home, which the image's passwd tells */
};

/* The name of this machine's architecture in image configurations: "amd64", "arm64". */
const char *import_arch(void);

/* index.json, or an index below it: the one manifest (or index) for this machine. -ENOENT: there is
 * none; -EEXIST: there are several different ones; -EINVAL. */
int import_parse_index(const char *data, size_t len, struct import_part *ret, bool *ret_is_index,
                       struct err *err);
int import_parse_manifest(const char *data, size_t len, struct import_image *ret, struct err *err);
/* manifest.json of `docker save`. -EEXIST: it holds several images. */
int import_parse_docker(const char *data, size_t len, struct import_image *ret, struct err *err);
/* -ENOEXEC: the image is for another system or machine. */
int import_parse_config(const char *data, size_t len, struct import_config *ret, struct err *err);

/* A path of an archive without leading, doubled and trailing slashes and "."; "" is the top.
 * -EINVAL: it is too long or too deep, or has ".." in it. */
int import_clean_path(const char *path, char ret[LIMIT_IMPORT_PATH_BYTES + 1], struct err *err);

/* Looks `user` (NAME or UID, with or without :GROUP or :GID) up in the texts of passwd and group.
 * Sets uid, gid, home of *config. "": root. -ENOENT: there is no such user or group. */
int import_find_user(struct image_config *config, const char *passwd, const char *group,
                     struct err *err);
