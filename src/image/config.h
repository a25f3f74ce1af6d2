/*
 * What of an image's own configuration is kept, and what an import reports: plain structs of fixed
 * size, which the supervisor takes from a jail and checks. See image.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"
#include "util/limits.h"

struct image_config {
    char user[LIMIT_IMAGE_USER_BYTES + 1];    /* as the image says it; "": none, which is root */
    uint32_t uid, gid;                        /* what `user` means in this image */
    char home[LIMIT_IMAGE_PATH_BYTES + 1];    /* of that user; "": not known */
    char workdir[LIMIT_IMAGE_PATH_BYTES + 1]; /* absolute, or "" */
    uint32_t env_bytes;
    char env[LIMIT_IMAGE_ENV_BYTES]; /* NAME=VALUE, each with its NUL, one after the other */
};

/* The next string of the environment; NULL begins, and NULL is the end. */
const char *image_config_env_next(const struct image_config *config, const char *at);
/* Adds NAME=VALUE. -EINVAL: it is not that; -EMSGSIZE: there is no room for it. */
int image_config_env_add(struct image_config *config, const char *entry, struct err *err);

/* True when every string ends within its array and is what it must be: the struct may be used. */
bool image_config_is_valid(const struct image_config *config);

struct image_report {
    char digest[65];    /* hex SHA-256 of the archive */
    int64_t size_bytes; /* that the image takes on disk */
    uint64_t dropped;   /* device nodes, sockets and FIFOs that were left out */
    struct image_config config;
};
