/* Calls that run programs; see run.h. Runs in api. Invariant: as long as the supervisor has not
 * said RUN_ENDED the pipes are read (or deliberately paused by a slow client), so that no program
 * hangs on a client that went away. */
#include "api/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run_free(void *state)
{
    struct run *run = state;
    for (int i = 0; i < RUN_STREAMS; i++) {
        source_close(run->sources[i]);
        buf_free(&run->tails[i]);
    }
    sink_close(run->sink);
    buf_free(&run->input);
    if (run->extra)
        run->extra_free(run->extra);
    free(run);
}

static void run_finish_when_read(struct run *run)
{
    bool is_read = run->is_ended;
    for (int i = 0; i < RUN_STREAMS && is_read; i++)
        if (run->sources[i])
            is_read = source_drain(run->sources[i]);
    if (!is_read)
        return;
    for (int i = 0; i < RUN_STREAMS; i++) {
        source_close(run->sources[i]);
        run->sources[i] = NULL;
    }
    run->ops->on_done(run);
}

static bool run_on_data(void *ctx, struct source *source, const char *data, size_t len)
{
    struct run *run = ctx;
    int stream = source == run->sources[RUN_STDOUT] ? RUN_STDOUT : RUN_STDERR;
    return run->ops->on_data(run, stream, data, len);
}

static void run_on_started(struct api_call *call, struct ipc_message *message)
{
    struct run *run = call->state;
    for (int i = 0; i < RUN_STREAMS; i++) {
        int fd = ipc_take_fd(message, (size_t)i);
        if (fd >= 0)
            run->sources[i] = source_new(call_loop(call), fd, run_on_data, NULL, run);
    }
    call->is_waiting = true; /* for RUN_ENDED */
    if (run->ops->on_started)
        run->ops->on_started(run, message);
    if (!call->exchange && run->ops->on_gone)
        run->ops->on_gone(run);
}

static void run_on_reply(struct api_call *call, struct ipc_message *message)
{
    struct run *run = call->state;
    if (message->header.type == IPC_RUN_STARTED) {
        run_on_started(call, message);
    } else if (call_expects(call, message, IPC_RUN_ENDED)) {
        const struct msg_run_ended *body = IPC_BODY(message, msg_run_ended);
        run->end = body->end;
        snprintf(run->reason, sizeof(run->reason), "%s", IPC_TEXT(body->text));
        run->is_ended = true;
        run_finish_when_read(run);
    } else if (run->is_streaming && call->exchange) {
        http_stream_abort(call->exchange);
    }
}

static void run_on_gone(struct api_call *call)
{
    struct run *run = call->state;
    if (run->ops->on_gone)
        run->ops->on_gone(run);
    run_resume(run);
}

static void run_on_drain(struct api_call *call)
{
    run_resume(call->state);
}

void run_resume(struct run *run)
{
    if (run->is_ended && !run->sources[RUN_STDOUT] && !run->sources[RUN_STDERR])
        return; /* done already */
    for (int i = 0; i < RUN_STREAMS; i++)
        if (run->sources[i])
            source_resume(run->sources[i]);
    run_finish_when_read(run);
}

struct run *run_new(struct api_call *call, const struct run_ops *ops)
{
    struct run *run = calloc(1, sizeof(*run));
    if (!run) {
        call_failed(call, "out of memory");
        return NULL;
    }
    run->call = call;
    run->ops = ops;
    run->type = "text/plain";
    for (int i = 0; i < RUN_STREAMS; i++)
        run->tails[i] = BUF_INIT((size_t)2 * LIMIT_EXEC_OUTPUT_BYTES);
    call->state = run;
    call->state_free = run_free;
    call->on_gone = run_on_gone;
    call->on_drain = run_on_drain;
    return run;
}

void run_send(struct run *run, enum ipc_type type, const void *body, int fd)
{
    call_send(run->call, type, body, &fd, fd >= 0, run_on_reply);
}

void run_start(struct api_call *call, const struct run_ops *ops, enum ipc_type type,
               const void *body, int fd)
{
    struct run *run = run_new(call, ops);
    if (run)
        run_send(run, type, body, fd);
}

bool run_keep_tail(struct run *run, int stream, const char *data, size_t len)
{
    struct buf *tail = &run->tails[stream];
    if (len > tail->max - tail->len) { /* pieces are far smaller than the limit */
        buf_consume(tail, tail->len - LIMIT_EXEC_OUTPUT_BYTES);
        run->is_cut[stream] = true;
    }
    if (buf_append(tail, data, len) < 0)
        run->is_cut[stream] = true; /* no memory: that piece is lost */
    return true;
}

void run_finish_tails(struct run *run)
{
    struct buf *errors = &run->tails[RUN_STDERR];
    for (int i = 0; i < RUN_STREAMS; i++) {
        struct buf *tail = &run->tails[i];
        if (tail->len > LIMIT_EXEC_OUTPUT_BYTES) {
            buf_consume(tail, tail->len - LIMIT_EXEC_OUTPUT_BYTES);
            run->is_cut[i] = true;
        }
        size_t half = 0;
        while (run->is_cut[i] && half < 3 && half < tail->len &&
               ((unsigned char)tail->data[half] & 0xc0) == 0x80)
            half++;
        if (half)
            buf_consume(tail, half);
    }
    if (!run->reason[0])
        return;
    if (errors->len && errors->data[errors->len - 1] != '\n')
        buf_append_string(errors, "\n");
    buf_append_string(errors, run->reason);
    buf_append_string(errors, "\n");
}

void run_drop_overwritten(struct buf *text)
{
    size_t line = 0, kept = 0;
    for (size_t i = 0; i < text->len; i++) {
        char c = text->data[i];
        bool is_last = i + 1 == text->len || text->data[i + 1] == '\n';
        if (c == '\r' && !is_last) {
            kept = line;
            continue;
        }
        text->data[kept++] = c;
        if (c == '\n')
            line = kept;
    }
    if (text->data)
        text->data[text->len = kept] = '\0';
}

int run_exit_code(const struct run *run)
{
    switch ((enum task_end_kind)run->end.kind) {
    case TASK_END_EXITED:
        return run->end.code;
    case TASK_END_FAILED:
        return run->end.code == ENOENT ? 127 : 126;
    case TASK_END_OOM:
        return 128 + 9;
    case TASK_END_DEADLINE:
        return 124;
    case TASK_END_SIGNALED:
    case TASK_END_CANCELLED:
    case TASK_END_DISK:
    case TASK_END_NONE:
        break;
    }
    return 128 + run->end.code;
}
