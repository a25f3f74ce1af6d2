/* The outcome of a task that ended: outcome.json when it is whole, else judged now. src/api only.
 */
#pragma once

#include "ipc/ipc.h"
#include "util/buf.h"
#include "util/err.h"

/* `message` is TASK_STATE or TASK_FINISHED of an ended task, with its four files. Appends the text
 * of outcome.json; writes it through the descriptor when it was not there or broken. Blocks on the
 * files. */
int outcome_read(struct ipc_message *message, struct buf *ret, struct err *err);

/* True when the bytes are an outcome: state and result or error. */
bool outcome_is_valid(const char *data, size_t len);
