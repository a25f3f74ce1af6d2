/*
 * sandboxes/NAME/meta.json: what the supervisor itself must know of a sandbox after a restart.
 * Written whole or not at all, read only by the supervisor. Schema 2; a meta.json of schema 1,
 * which knew no settings, is read too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "task/record.h"
#include "task/settings.h"
#include "task/usage.h"
#include "util/buf.h"
#include "util/err.h"
#include "util/limits.h"

#define META_SCHEMA 2
#define META_FILE "meta.json"

/* The instance that runs, or did when this was written. */
struct meta_lease {
    pid_t pid; /* of init, in our namespace; 0: no instance */
    uint64_t start_time;
    uint32_t block;
    char boot_id[40];
};

struct meta {
    char name[LIMIT_NAME_BYTES + 1];
    char agent[LIMIT_NAME_BYTES + 1];
    char image[LIMIT_NAME_BYTES + 1];
    int64_t created_ms; /* Unix time */
    int64_t stopped_ms; /* when it was last stopped, or made; 0: the clock was wrong then */
    int64_t latest_ms;  /* the latest time that was seen at a write: a clock before it is wrong */
    bool was_started;   /* what was installed in it lies on its image: that stays */
    bool is_cloned;     /* the clone and its base.git are there */
    bool is_cloning;    /* git ran, or runs, but base.git was not made yet */
    bool is_over_disk;  /* its files were over their limit when they were last counted */
    char repository[LIMIT_REPOSITORY_BYTES + 1]; /* of the last clone; "": none, or not known */
    enum task_state task;                        /* as last told by init */
    int64_t task_count;       /* of tasks that were started in it: the number of the last one */
    struct model_usage usage; /* of models, since it was made */
    struct model_usage task_usage; /* the same of the last task */
    struct meta_lease lease;
    struct settings settings;
};

/* Pure: the text, and back; the settings of *ret are the caller's to free. -EINVAL: not a meta.json
 * of this name; -EPROTONOSUPPORT: written by a newer Paddock, with a message that says so. */
int meta_encode(const struct meta *meta, struct buf *ret, struct err *err);
int meta_parse(const char *name, const char *text, size_t len, struct meta *ret, struct err *err);

/* The same with the file in the sandbox's folder. meta_write returns when it is on disk. Errors of
 * meta_read: as meta_parse, -ENOENT, and those of reading. */
int meta_write(int folder_fd, const struct meta *meta, struct err *err);
int meta_read(int folder_fd, const char *name, struct meta *ret, struct err *err);
