/* Routes that run a program in a sandbox and answer with its end: clone and exec. Runs in api. */
#include <string.h>

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

static bool clone_tell(struct run *run, int stream, const char *data, size_t len)
{
    run_keep_tail(run, stream, data, len);
    return stream == RUN_STDOUT || run_stream(run, data, len);
}

/* What git told on the way is told: its last line is what the answer is without it. */
static void clone_told(struct run *run)
{
    struct api_call *call = run->call;
    cleanup_buf struct buf line = {0};
    run_finish_tails(run);
    if (!call->exchange)
        return;
    run_drop_overwritten(&run->tails[RUN_STDERR]);
    int r = call_write_result(&line, run_exit_code(run), &run->tails[RUN_STDOUT],
                              &run->tails[RUN_STDERR]);
    if (r == 0)
        run_stream_last(run, &line);
    else if (run->is_streaming)
        http_stream_abort(call->exchange);
    else
        call_failed(call, "cannot write the result: %s", strerror(-r));
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
    int r = request_exec(buf_text(json), json->len, &spec, &body, &err);
    if (exec_check(call, r, &err))
        exec_start(call, &ops, &spec, &body);
}

void api_clone(struct api_call *call)
{
    static const struct run_ops ops = {run_keep_tail, clone_done, NULL};
    static const struct run_ops telling = {clone_tell, clone_told, NULL};
    const struct http_matched *matched = &call->matched;
    const struct buf *json = http_exchange_body(call->exchange);
    cleanup_buf struct buf spec = BUF_INIT(LIMIT_SPEC_BYTES);
    struct msg_exec body = {.user = EXEC_AS_AGENT, .is_clone = 1};
    struct err err;
    bool tells;
    int r = request_only(matched->query, matched->query_len, "progress", "1", &tells, &err);
    if (r == 0)
        r = request_clone(buf_text(json), json->len, tells, &spec, body.repository, &err);
    if (exec_check(call, r, &err))
        exec_start(call, tells ? &telling : &ops, &spec, &body);
}
