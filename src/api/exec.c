/* Routes that run a program in a sandbox and answer with its end: clone and exec. Runs in api. */
#include "api/request.h"
#include "api/run.h"
#include "util/cleanup.h"
#include "util/fd.h"

static void exec_done(struct run *run)
{
    run_finish_tails(run);
    call_run_result(run->call, 200, run_exit_code(run), &run->tails[RUN_STDOUT],
                    &run->tails[RUN_STDERR]);
}

/* What ended otherwise than by exit is not a clone either, whatever its code. */
static void clone_done(struct run *run)
{
    bool is_ok = run->end.kind == TASK_END_EXITED && run->end.code == 0;
    run_finish_tails(run);
    call_run_result(run->call, is_ok ? 200 : 502, run_exit_code(run), &run->tails[RUN_STDOUT],
                    &run->tails[RUN_STDERR]);
}

static void exec_start(struct api_call *call, const struct run_ops *ops, const struct buf *spec,
                       struct msg_exec *body)
{
    struct err err;
    cleanup_fd int fd = fd_sealed("spec", spec->data, spec->len, &err);
    if (fd < 0) {
        call_failed(call, "%s", err.message);
        return;
    }
    IPC_SET_TEXT(body->name, call->name);
    run_start(call, ops, IPC_EXEC, body, fd);
}

/* True when the request was read; else it is answered. */
static bool exec_check(struct api_call *call, int result, const struct err *err)
{
    if (result == -EINVAL)
        call_text(call, 400, err->message);
    else if (result == -EMSGSIZE)
        call_text(call, 413, err->message);
    else if (result < 0)
        call_failed(call, "%s", err->message);
    return result == 0;
}

void api_exec(struct api_call *call)
{
    static const struct run_ops ops = {run_keep_tail, exec_done, NULL};
    const struct buf *json = http_exchange_body(call->exchange);
    cleanup_buf struct buf spec = BUF_INIT(LIMIT_SPEC_BYTES);
    struct msg_exec body = {0};
    struct err err;
    int r = request_exec(buf_text(json), json->len, &spec, &body.user, &err);
    if (exec_check(call, r, &err))
        exec_start(call, &ops, &spec, &body);
}

void api_clone(struct api_call *call)
{
    static const struct run_ops ops = {run_keep_tail, clone_done, NULL};
    const struct buf *json = http_exchange_body(call->exchange);
    cleanup_buf struct buf spec = BUF_INIT(LIMIT_SPEC_BYTES);
    struct msg_exec body = {.user = EXEC_AS_AGENT, .is_clone = 1};
    struct err err;
    int r = request_clone(buf_text(json), json->len, &spec, &err);
    if (exec_check(call, r, &err))
        exec_start(call, &ops, &spec, &body);
}
