/* Routes of a task: start, state, cancel. Runs in api; judges outcomes (outcome.h). */
#include <stdlib.h>
#include <string.h>

#include "agent/usage.h"
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
    struct msg_task_start body = {0};
    struct err err;
    if (request_task(call->matched.query, call->matched.query_len, &body.deadline_ms, &err) < 0 ||
        request_prompt(buf_text(prompt), prompt->len, &err) < 0) {
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

/* A state's JSON, an object, with what its task used of models. */
static void task_answer(struct api_call *call, const struct buf *state,
                        const struct model_usage *usage)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_OUTCOME_BYTES + 1024);
    const char *end = memrchr(buf_text(state), '}', state->len);
    if (!usage->requests || !end) {
        call_json(call, 200, state);
        return;
    }
    cleanup_buf struct buf more = BUF_INIT(1024);
    struct json_writer *writer = json_writer_new(&more, false);
    if (writer) {
        json_write_object_begin(writer);
        model_usage_write(writer, "usage", usage);
        json_write_object_end(writer);
    }
    size_t len = (size_t)(end - buf_text(state));
    if (!writer || json_writer_end(writer) < 0 || buf_append(&text, buf_text(state), len) < 0 ||
        buf_appendf(&text, ",%s", more.data + 1) < 0)
        call_failed(call, "cannot write the task's usage");
    else
        call_json(call, 200, &text);
}

static void task_answer_state(struct api_call *call, const char *state,
                              const struct model_usage *usage)
{
    cleanup_buf struct buf text = BUF_INIT(64);
    if (buf_appendf(&text, "{\"state\":\"%s\"}", state) < 0)
        call_failed(call, "out of memory");
    else
        task_answer(call, &text, usage);
}

/* Waits for an outcome that is being judged. */
struct task_wait {
    struct outcome_wait wait;
    struct api_call *call;
    struct model_usage usage;
};

static void task_on_judged(void *ctx, const struct buf *outcome, const struct err *err)
{
    struct task_wait *wait = ctx;
    struct api_call *call = wait->call;
    if (outcome)
        task_answer(call, outcome, &wait->usage);
    else
        call_failed(call, "%s", err->message);
    call_resume(call);
}

static void task_wait_free(void *state)
{
    struct task_wait *wait = state;
    outcome_leave(&wait->wait);
    free(wait);
}

static void task_on_ended(struct api_call *call, struct ipc_message *message)
{
    cleanup_buf struct buf outcome = BUF_INIT(LIMIT_OUTCOME_BYTES);
    struct err err;
    struct task_wait *wait = calloc(1, sizeof(*wait));
    if (!wait) {
        call_failed(call, "out of memory");
        return;
    }
    *wait = (struct task_wait){.wait = {.done = task_on_judged, .ctx = wait},
                               .call = call,
                               .usage = IPC_BODY(message, msg_task_state)->usage};
    call->state = wait;
    call->state_free = task_wait_free;
    int r = outcome_get(call_loop(call), message, &wait->wait, &outcome, &err);
    call->is_waiting = r == 0;
    if (r < 0)
        call_failed(call, "%s", err.message);
    else if (r > 0)
        task_answer(call, &outcome, &wait->usage);
}

static void task_on_state(struct api_call *call, struct ipc_message *message)
{
    if (!call_expects(call, message, IPC_TASK_STATE))
        return;
    const struct msg_task_state *state = IPC_BODY(message, msg_task_state);
    switch ((enum task_state)state->state) {
    case TASK_NONE:
        task_answer_state(call, "none", &state->usage);
        return;
    case TASK_RUNNING:
        task_answer_state(call, "running", &state->usage);
        return;
    case TASK_LOST:
        task_answer_state(call, "lost", &state->usage);
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
