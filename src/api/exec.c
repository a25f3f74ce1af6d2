/* Routes that run a program in a sandbox and answer with its end: clone and exec. Runs in api. */
#include <errno.h>
#include <string.h>

#include "api/request.h"
#include "api/run.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/utf8.h"

/* ------------------------------------------------------------------------- what it reads */

static void input_drained(void *ctx)
{
    (void)ctx; /* all of it was given at once */
}

static void input_over(void *ctx)
{
    struct run *run = ctx;
    sink_close(run->sink);
    run->sink = NULL;
}

static void exec_started(struct run *run, struct ipc_message *message)
{
    static const struct sink_ops ops = {input_drained, input_over, input_over};
    cleanup_fd int fd = ipc_take_fd(message, RUN_STREAMS);
    run->sink = fd < 0 ? NULL : sink_new(call_loop(run->call), TAKE_FD(fd), &ops, run);
    if (!run->sink)
        return; /* it reads the end of its input at once */
    sink_write(run->sink, run->input.data, run->input.len);
    buf_free(&run->input);
    if (run->sink)
        sink_end(run->sink);
}

/* The client is gone: the program's output is read on and dropped. */
static void exec_gone(struct run *run)
{
    if (run->ends_with_client && !run->is_ended)
        call_tell(run->call, IPC_EXEC_END);
}

/* ---------------------------------------------------------------------- what is answered */

static void exec_done(struct run *run)
{
    run_finish_tails(run);
    input_over(run);
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

/* {"text":"..."}; bytes that are not UTF-8 are replaced. */
static int exec_event(struct buf *ret, int stream, const struct buf *text, size_t len)
{
    cleanup_buf struct buf clean = BUF_INIT(3 * len + 1);
    cleanup_buf struct buf json = BUF_INIT(6 * 3 * len + 64);
    struct json_writer *writer = json_writer_new(&json, false);
    if (!writer)
        return -ENOMEM;
    utf8_append_lossy(&clean, text->data, len);
    json_write_object_begin(writer);
    json_write_key(writer, "text");
    json_write_bytes(writer, buf_text(&clean), clean.len);
    json_write_object_end(writer);
    int result = json_writer_end(writer);
    return result ? result
                  : buf_appendf(ret, "event: %s\ndata: %s\n\n",
                                stream == RUN_STDOUT ? "stdout" : "stderr", buf_text(&json));
}

/* A piece of a stream as an event, whole characters alone: tails keep the rest of one. */
static bool exec_tell(struct run *run, int stream, const char *data, size_t len)
{
    struct buf *text = &run->tails[stream];
    if (buf_append(text, data, len) < 0)
        return true; /* no memory: that piece is lost */
    size_t whole = text->len - (run->is_ended ? 0 : utf8_begun(buf_text(text), text->len));
    cleanup_buf struct buf event = BUF_INIT(8 * whole + 128);
    bool takes_more = true;
    if (whole && exec_event(&event, stream, text, whole) == 0)
        takes_more = run_stream(run, event.data, event.len);
    buf_consume(text, whole);
    return takes_more;
}

/* The client sees at once that it runs. */
static void exec_begun(struct run *run, struct ipc_message *message)
{
    run_stream(run, ":\n\n", 3);
    exec_started(run, message);
}

static void exec_told(struct run *run)
{
    cleanup_buf struct buf line = BUF_INIT(16 * MSG_TEXT);
    cleanup_buf struct buf event = BUF_INIT(16 * MSG_TEXT + 64);
    for (int i = 0; i < RUN_STREAMS; i++)
        exec_tell(run, i, "", 0);
    input_over(run);
    if (!run->call->exchange)
        return;
    if (run_end_line(run, &line) == 0 &&
        buf_appendf(&event, "event: exit\ndata: %s\n\n", buf_text(&line)) == 0)
        run_stream(run, event.data, event.len);
    if (event.len)
        http_stream_end(run->call->exchange);
    else
        http_stream_abort(run->call->exchange);
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

static void exec_send(struct run *run, const struct buf *spec, struct msg_exec *body)
{
    struct err err;
    cleanup_fd int fd = fd_sealed("spec", spec->data, spec->len, &err);
    if (fd < 0) {
        call_failed(run->call, "%s", err.message);
        return;
    }
    IPC_SET_TEXT(body->name, run->call->name);
    run_send(run, IPC_EXEC, body, fd);
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

/* An Accept that names it is enough. */
static bool exec_wants_events(const struct api_call *call)
{
    const struct http_field *accept = http_head_field(http_exchange_head(call->exchange), "Accept");
    return accept && http_list_has(accept, CALL_EVENTS, strlen(CALL_EVENTS));
}

void api_exec(struct api_call *call)
{
    static const struct run_ops ops = {run_keep_tail, exec_done, exec_gone, exec_started};
    static const struct run_ops telling = {exec_tell, exec_told, exec_gone, exec_begun};
    const struct buf *json = http_exchange_body(call->exchange);
    bool tells = exec_wants_events(call);
    struct request_exec request;
    struct err err;
    int r = request_exec(buf_text(json), json->len, &request, &err);
    struct run *run = exec_check(call, r, &err) ? run_new(call, tells ? &telling : &ops) : NULL;
    if (run) {
        run->input = request.input;
        request.input = (struct buf){0};
        run->ends_with_client = request.body.is_ended_apart;
        run->type = CALL_EVENTS;
        exec_send(run, &request.spec, &request.body);
    }
    request_exec_free(&request);
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
    struct run *run = exec_check(call, r, &err) ? run_new(call, tells ? &telling : &ops) : NULL;
    if (run)
        exec_send(run, &spec, &body);
}
