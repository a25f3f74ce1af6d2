/* Routes that stream what a job prints: the diff and an image's build. Runs in api. */
#include <stdio.h>
#include <string.h>

#include "api/request.h"
#include "api/run.h"
#include "util/cleanup.h"
#include "util/utf8.h"

bool run_stream(struct run *run, const char *data, size_t len)
{
    struct api_call *call = run->call;
    if (!run->is_streaming && call->exchange)
        run->is_streaming = call_stream_begin(call, run->type);
    if (!run->is_streaming || !call->exchange)
        return true; /* read and dropped */
    if (len)
        run->last_byte = data[len - 1];
    return http_stream_write(call->exchange, data, len);
}

static bool diff_data(struct run *run, int stream, const char *data, size_t len)
{
    if (stream == RUN_STDERR)
        return run_keep_tail(run, stream, data, len);
    return run_stream(run, data, len);
}

static void diff_done(struct run *run)
{
    struct api_call *call = run->call;
    bool is_ok = run->end.kind == TASK_END_EXITED && run->end.code == 0;
    run_finish_tails(run);
    if (!call->exchange)
        return;
    if (is_ok && !run->is_streaming)
        call_answer(call, 200, "text/plain", "", 0);
    else if (is_ok)
        http_stream_end(call->exchange);
    else if (run->is_streaming)
        http_stream_abort(call->exchange);
    else
        call_run_result(call, 502, run_exit_code(run) ? run_exit_code(run) : 1,
                        &run->tails[RUN_STDOUT], &run->tails[RUN_STDERR]);
}

/* Nobody wants the diff any more: the job ends at its next write. */
static void diff_gone(struct run *run)
{
    source_close(run->sources[RUN_STDOUT]);
    run->sources[RUN_STDOUT] = NULL;
}

void api_diff(struct api_call *call)
{
    static const struct run_ops ops = {diff_data, diff_done, diff_gone};
    struct msg_diff body;
    struct err err;
    if (request_diff(call->matched.query, call->matched.query_len, &body, &err) < 0) {
        call_text(call, 400, err.message);
        return;
    }
    IPC_SET_TEXT(body.name, call->name);
    run_start(call, &ops, IPC_DIFF, &body, -1);
}

static bool build_data(struct run *run, int stream, const char *data, size_t len)
{
    (void)stream;
    return run_stream(run, data, len);
}

void run_stream_last(struct run *run, const struct buf *line)
{
    cleanup_buf struct buf out = BUF_INIT(line->len + 2);
    const char *before = run->last_byte && run->last_byte != '\n' ? "\n" : "";
    if (buf_appendf(&out, "%s%s\n", before, buf_text(line)) == 0)
        run_stream(run, out.data, out.len);
    if (run->is_streaming && out.len)
        http_stream_end(run->call->exchange);
    else if (run->is_streaming)
        http_stream_abort(run->call->exchange);
    else
        call_failed(run->call, "out of memory");
}

int run_end_line(const struct run *run, struct buf *ret)
{
    cleanup_buf struct buf reason = BUF_INIT(3 * sizeof(run->reason));
    utf8_append_lossy(&reason, run->reason, strlen(run->reason));
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return -ENOMEM;
    json_write_object_begin(writer);
    json_write_pair_integer(writer, "exitCode", run_exit_code(run));
    if (reason.len)
        json_write_pair_string(writer, "error", buf_text(&reason));
    json_write_object_end(writer);
    return json_writer_end(writer);
}

static void build_done(struct run *run)
{
    struct api_call *call = run->call;
    cleanup_buf struct buf line = BUF_INIT(16 * MSG_TEXT);
    if (!call->exchange)
        return;
    if (run_end_line(run, &line) < 0) {
        if (run->is_streaming)
            http_stream_abort(call->exchange);
        else
            call_failed(call, "out of memory");
        return;
    }
    run_stream_last(run, &line);
}

void api_image_build(struct api_call *call)
{
    static const struct run_ops ops = {build_data, build_done, NULL};
    const struct buf *json = http_exchange_body(call->exchange);
    struct msg_image_name body;
    struct err err;
    if (request_image(buf_text(json), json->len, &body, &err) < 0) {
        call_text(call, 400, err.message);
        return;
    }
    run_start(call, &ops, IPC_IMAGE_BUILD, &body, -1);
}
