/*
 * The settings of a sandbox: as JSON, in meta.json and in the API's answers; and what a PUT of them
 * means for a sandbox in its state. Supervisor only.
 */
#pragma once

#include "sandbox/instance.h"
#include "supervisor/config.h"
#include "task/settings.h"
#include "util/err.h"
#include "json/json.h"

struct sandbox;
struct supervisor;

/* A PUT or PATCH that waits for its turn: the agent ("": the default one, or the one it has) and
 * the rest. */
struct settings_put {
    char agent[LIMIT_NAME_BYTES + 1];
    bool is_only_new; /* a sandbox that is there is left as it is */
    bool is_patch;    /* what is not named stays */
    uint32_t named;   /* of a patch: enum sandbox_patch */
    struct settings settings;
    struct buf env_gone, labels_gone; /* of a patch: "NAME=" */
};
void settings_put_free(struct settings_put *put);
/* What is set after it, where `old` is set now: of a PUT its own, of a PATCH both. -EINVAL, with
 * why for the client: it would be too much. On success the caller frees *ret. */
int settings_change(const struct settings *old, const struct settings_put *put,
                    struct settings *ret, struct err *err);
/* Whether both lists have the same texts, in whatever order. */
bool settings_list_equals(const struct buf *a, const struct buf *b);

/* Members of the object that is open: those that are set. */
void settings_write(struct json_writer *writer, const struct settings *settings, bool with_env);
/* The same back. False: it is not of this form; then *ret is not touched. Else the caller frees. */
bool settings_read(const struct json *object, struct settings *ret);

/* The policy that a sandbox is under: its own, else that of its name's beginning, else "": the
 * daemon's. */
const char *settings_policy(const struct sandbox *sandbox);

/* What an instance is started with: the sandbox's own limits, else those of its size, below those
 * of the configuration. -EAGAIN: its size is not there any more. */
int settings_limits(const struct sandbox *sandbox, struct sandbox_limits *ret, struct err *err);

/* The limits of its files: its own, else those of its size, below those of the configuration. 0:
 * none. */
struct settings_disk {
    uint64_t bytes, inodes;
};
void settings_disk(const struct sandbox *sandbox, struct settings_disk *ret);

/* 0 when a sandbox may have these that has `old`: what stays as it was is not judged again.
 * -EINVAL: why not, for the client. -EAGAIN: not yet. */
int settings_check(const struct supervisor *supervisor, const struct settings *settings,
                   const struct settings *old, struct err *err);
/* The image of the agent; errors as settings_check. */
int settings_check_agent(struct supervisor *supervisor, const char *name,
                         char ret_image[LIMIT_NAME_BYTES + 1], struct err *err);
