/*
 * What a client may set of a sandbox (PUT /sandboxes/NAME): its policy, limits, environment and
 * labels. api reads it from JSON and sends it on; the supervisor checks it again and keeps it in
 * meta.json. Pure functions.
 *
 * Environment and labels are lists: "NAME=VALUE" texts, each with its NUL, one behind the other.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/limits.h"

struct settings {
    char policy[LIMIT_NAME_BYTES + 1]; /* "": the daemon's, as with a 0 below */
    char size[LIMIT_NAME_BYTES + 1];   /* of the configuration; "": none */
    int64_t memory_mib;
    int64_t cpu_millis; /* thousandths of a cpu */
    int64_t pids;
    int64_t disk_mib, inodes;
    int64_t budget_output_tokens, budget_requests; /* of models, in all; 0: no limit */
    struct buf env, labels;                        /* lists */
};

#define SETTINGS_INIT                                                                              \
    ((struct settings){.env = BUF_INIT(LIMIT_ENV_BYTES), .labels = BUF_INIT(LIMIT_LABELS_BYTES)})

void settings_free(struct settings *settings);
#define cleanup_settings __attribute__((cleanup(settings_free)))

enum settings_list { SETTINGS_ENV, SETTINGS_LABELS };

/* NULL, or what is wrong with it: a name that is none, one that Paddock sets itself, a value that
 * is too long. The value is UTF-8 without NUL, which the reader of JSON saw to. */
const char *settings_refusal(enum settings_list kind, const char *name, const char *value);

/* Appends NAME=VALUE to a list. As buf_append. */
int settings_add(struct buf *list, const char *name, const char *value);

/* The texts of a list in turn: start with NULL; NULL is the end. */
const char *settings_next(const struct buf *list, const char *previous);

/* True when the bytes are a list, each text of which settings_refusal accepts, with no name twice
 * and no more of them than the limit. */
bool settings_list_is_valid(enum settings_list kind, const struct buf *list);

/* True when the list has the text NAME=VALUE; or, when `wanted` has no "=", the name. */
bool settings_have(const struct buf *list, const char *wanted);

/* Appends to `ret` the texts of an image's environment that settings_refusal accepts and that `own`
 * does not set, then those of `own`: a list in which the sandbox's own count. As buf_append. */
int settings_merge(const struct buf *image, const struct buf *own, struct buf *ret);

/* The environment of every program inside: Paddock's own, with what the list adds and replaces. The
 * list must be valid, or of settings_merge, and outlive it. Ends with NULL. */
#define SETTINGS_BASE 18
#define SETTINGS_ENVIRONMENT (SETTINGS_BASE + LIMIT_IMAGE_ENV_COUNT + LIMIT_ENV + 1)
void settings_environment(const struct buf *list, const char *ret[SETTINGS_ENVIRONMENT]);
