/* The few settings of an agent's configuration that describe its repository. A pure function. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "util/buf.h"
#include "util/err.h"

/* The expression for `git config --get-regexp` that finds them. */
#define REPO_CONFIG_PATTERN                                                                        \
    "^(core\\.(repositoryformatversion|filemode|symlinks|autocrlf|eol|ignorecase)|extensions\\..*" \
    ")$"

/* Turns the output of `git config -z --get-regexp` ("key\nvalue\0", or "key\0" for a key without a
 * value) into the text of a configuration file with the settings of the pattern alone. *ret_sha256
 * tells whether objects are named by SHA-256. -EINVAL: not such an output. */
int repo_config_keep(const char *list, size_t len, struct buf *ret, bool *ret_sha256,
                     struct err *err);
