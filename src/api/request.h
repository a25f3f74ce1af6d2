/*
 * What clients send in bodies and queries, read and checked. Pure functions on foreign bytes,
 * inside src/api only; a fuzz target reads them all. Errors: -EINVAL, with the text for the client.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/messages.h"
#include "task/settings.h"
#include "task/spec.h"
#include "util/buf.h"
#include "util/err.h"
#include "json/json.h"

/* {"url","ref"?} as the spec of git clone; `tells`: one that tells its progress. ret_repository
 * gets OWNER/REPOSITORY without ".git", or "" of one that is longer than any. */
int request_clone(const char *data, size_t len, bool tells, struct buf *ret_spec,
                  char ret_repository[LIMIT_REPOSITORY_BYTES + 1], struct err *err);

/* Exactly https://github.com/OWNER/REPOSITORY, scheme and host in any case; ret_url is normalised.
 */
bool request_url(const char *url, size_t len, struct buf *ret_url);

/* request_exec.c. {"argv","cwd"?,"user"?,"env"?,"stdin"?,"timeout_ms"?,"end_with_client"?} */
struct request_exec {
    struct buf spec;
    struct buf input;
    struct msg_exec body; /* without the name */
};
/* *ret is to be freed, also after an error. */
int request_exec(const char *data, size_t len, struct request_exec *ret, struct err *err);
void request_exec_free(struct request_exec *request);

/* request_terminal.c. The query of a terminal, as a spec and all of *ret but the name. */
int request_terminal(const char *query, size_t len, struct buf *ret_spec, struct msg_exec *ret,
                     struct err *err);
/* {"resize":{"rows":N,"cols":N}} */
int request_resize(const char *data, size_t len, uint16_t *ret_rows, uint16_t *ret_cols);

/* True: an object, and each of its keys is one of these. */
bool request_has_only(const struct json *json, const char *const *keys, size_t count);

/* {"name","rebuild"?} */
int request_image(const char *data, size_t len, struct msg_image_name *ret, struct err *err);

/* {"prefix"?,"readOnly"?,"expiresIn"?}; expires_ms counts from now_ms. */
int request_token(const char *data, size_t len, int64_t now_ms, struct msg_api_token *ret,
                  struct err *err);

/* request_sandbox.c. {"agent"?,"policy"?,"limits"?,"budget"?,"env"?,"labels"?}, or nothing; fills
 * in all of *ret but the name and is_only_new. ret_lists gets the lists that *ret counts
 * (task/settings.h). A patch (RFC 7396) may have null for what is to be taken away. */
int request_sandbox_put(const char *data, size_t len, bool is_patch, struct msg_sandbox_put *ret,
                        struct buf *ret_lists, struct err *err);

/* request_sandbox.c. Fills in all of *ret but the prefix. */
int request_sandbox_list(const char *query, size_t len, struct msg_sandbox_list *ret,
                         struct err *err);

/* request_sandbox.c. A query that is NAME=VALUE or nothing: *ret_has tells which. */
int request_only(const char *query, size_t len, const char *name, const char *value, bool *ret_has,
                 struct err *err);

/* A prompt: not blank, UTF-8, no NUL. */
int request_prompt(const char *data, size_t len, struct err *err);

/* The query of a task's start; 0: it names no deadline. */
int request_task(const char *query, size_t len, int64_t *ret_deadline_ms, struct err *err);

struct request_log {
    int64_t from;
    bool follow;
    uint32_t stream; /* TASK_LOG_* */
};
int request_log(const char *query, size_t len, struct request_log *ret, struct err *err);

struct request_egress {
    bool follow;
    int64_t limit; /* of lines */
};
int request_egress(const char *query, size_t len, struct request_egress *ret, struct err *err);

/* Fills in all of *ret but the name. */
int request_diff(const char *query, size_t len, struct msg_diff *ret, struct err *err);
