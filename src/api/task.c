/* Routes of a task: start, state, cancel. Runs in api; judges outcomes (outcome.h). */
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

static void task_on_ended(struct api_call *call, struct ipc_message *message)
{
    cleanup_buf struct buf outcome = BUF_INIT(LIMIT_OUTCOME_BYTES);
    struct err err;
    if (outcome_read(message, &outcome, &err) < 0)
        call_failed(call, "%s", err.message);
    else
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
