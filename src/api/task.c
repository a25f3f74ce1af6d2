/* Routes of a task: start, state, cancel. Runs in api; judges outcomes (outcome.h). */
#include <stdlib.h>

#include "api/call.h"
#include "api/outcome.h"
#include "api/request.h"
#include "util/cleanup.h"
#include "util/fd.h"

static void task_on_started(struct api_call *call, struct ipc_message *message)
{
    if (call_is_ok(call, message))
        call_state(call, 202, "running");
}

void api_task_start(struct api_call *call)
{
    const struct buf *prompt = http_exchange_body(call->exchange);
    struct msg_sandbox_name body = {0};
    struct err err;
    if (request_prompt(buf_text(prompt), prompt->len, &err) < 0) {
        call_text(call, 400, err.message);
        return;
    }
    cleanup_fd int fd = fd_sealed("prompt", prompt->data, prompt->len, &err);
    if (fd < 0) {
        call_failed(call, "%s", err.message);
        return;
    }
    IPC_SET_TEXT(body.name, call->name);
    call_send(call, IPC_TASK_START, &body, &fd, 1, task_on_started);
}

static void task_on_judged(void *ctx, const struct buf *outcome, const struct err *err)
{
    struct api_call *call = ctx;
    if (outcome)
        call_json(call, 200, outcome);
    else
        call_failed(call, "%s", err->message);
    call_resume(call);
}

static void task_wait_free(void *state)
{
    outcome_leave(state);
    free(state);
}

static void task_on_ended(struct api_call *call, struct ipc_message *message)
{
    cleanup_buf struct buf outcome = BUF_INIT(LIMIT_OUTCOME_BYTES);
    struct err err;
    struct outcome_wait *wait = calloc(1, sizeof(*wait));
    if (!wait) {
        call_failed(call, "out of memory");
        return;
    }
    *wait = (struct outcome_wait){.done = task_on_judged, .ctx = call};
    call->state = wait;
    call->state_free = task_wait_free;
    int r = outcome_get(call_loop(call), message, wait, &outcome, &err);
    call->is_waiting = r == 0;
    if (r < 0)
        call_failed(call, "%s", err.message);
    else if (r > 0)
        call_json(call, 200, &outcome);
}

static void task_on_state(struct api_call *call, struct ipc_message *message)
{
    if (!call_expects(call, message, IPC_TASK_STATE))
        return;
    const struct msg_task_state *state = IPC_BODY(message, msg_task_state);
    switch ((enum task_state)state->state) {
    case TASK_NONE:
        call_state(call, 200, "none");
        return;
    case TASK_RUNNING:
        call_state(call, 200, "running");
        return;
    case TASK_LOST:
        call_state(call, 200, "lost");
        return;
    case TASK_ENDED:
        task_on_ended(call, message);
        return;
    }
    call_failed(call, "the supervisor told a state that is none: %d", state->state);
}

void api_task_get(struct api_call *call)
{
    struct msg_sandbox_name body = {0};
    IPC_SET_TEXT(body.name, call->name);
    call_send(call, IPC_TASK_GET, &body, NULL, 0, task_on_state);
}

static void task_on_cancelled(struct api_call *call, struct ipc_message *message)
{
    if (call_is_ok(call, message))
        api_task_get(call);
}

void api_task_cancel(struct api_call *call)
{
    struct msg_sandbox_name body = {0};
    IPC_SET_TEXT(body.name, call->name);
    call_send(call, IPC_TASK_CANCEL, &body, NULL, 0, task_on_cancelled);
}
