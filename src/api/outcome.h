/* The outcome of a task that ended: outcome.json when it is whole, else judged now, which reads the
 * task's logs and so is done on a thread of libuv's pool. src/api only. */
#pragma once

#include <uv.h>

#include "ipc/ipc.h"
#include "util/buf.h"
#include "util/err.h"

struct outcome_job;

/* Somebody who waits for an outcome; the caller's, until `done` was called or outcome_leave. */
struct outcome_wait {
    /* On the loop's thread. `outcome` is NULL when there is none: *err says why. */
    void (*done)(void *ctx, const struct buf *outcome, const struct err *err);
    void *ctx;
    struct outcome_job *job;
    struct outcome_wait *next;
};

/* `message` is TASK_STATE or TASK_FINISHED of an ended task, with its four files. 1: the text of
 * outcome.json was appended to *ret. 0: the task is being judged (once, for all who ask meanwhile);
 * outcome.json is written through the descriptor, and `done` follows, unless `wait` is NULL. Else a
 * negative errno. */
int outcome_get(uv_loop_t *loop, struct ipc_message *message, struct outcome_wait *wait,
                struct buf *ret, struct err *err);
/* `done` will not be called any more. */
void outcome_leave(struct outcome_wait *wait);

/* True when the bytes are an outcome: state and result or error. */
bool outcome_is_valid(const char *data, size_t len);
