/*
 * The settings of a sandbox: as JSON, in meta.json and in the API's answers; and what a PUT of them
 * means for a sandbox in its state. Supervisor only.
 */
#pragma once

#include "supervisor/config.h"
#include "task/settings.h"
#include "util/err.h"
#include "json/json.h"

struct sandbox;
struct supervisor;

/* A PUT that waits for its turn: the agent ("": the default one, or the one it has) and the rest.
 */
struct settings_put {
    char agent[LIMIT_NAME_BYTES + 1];
    bool is_only_new; /* a sandbox that is there is left as it is */
    struct settings settings;
};
void settings_put_free(struct settings_put *put);

/* Members of the object that is open: those that are set. */
void settings_write(struct json_writer *writer, const struct settings *settings, bool with_env);
/* The same back. False: it is not of this form; then *ret is not touched. Else the caller frees. */
bool settings_read(const struct json *object, struct settings *ret);

/* What an instance is started with: the sandbox's own limits, below those of the configuration. */
int64_t settings_limit(int64_t own, int64_t of_config);

/* 0 when a sandbox may have these, also of a new one. -EINVAL: why not, for the client. -EAGAIN:
 * not yet. Fills *ret_image with the image of the agent. */
int settings_check(struct supervisor *supervisor, const char *agent,
                   const struct settings *settings, char ret_image[LIMIT_NAME_BYTES + 1],
                   struct err *err);
