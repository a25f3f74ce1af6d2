/* The route that imports an image: its body goes, as it comes, into the pipe of a jail. Runs in
 * api, which reads none of it. Invariant: the supervisor is told IMAGE_WHOLE only when the client
 * sent its request to the end; a pipe that is closed without it is an archive that was cut. */
#include <errno.h>
#include <string.h>

#include "api/run.h"
#include "util/cleanup.h"

static void on_drain(void *ctx)
{
    const struct run *run = ctx;
    if (run->call->exchange)
        http_resume_body(run->call->exchange);
}

/* Before the pipe is closed, so that it is there before the job's end. */
static void on_ended(void *ctx)
{
    struct run *run = ctx;
    call_tell(run->call, IPC_IMAGE_WHOLE);
    sink_close(run->sink);
    run->sink = NULL;
}

/* The job has ended, or is about to: RUN_ENDED says why. What the client still sends is read
 * and dropped. */
static void on_refused(void *ctx)
{
    (void)ctx;
}

static void import_started(struct run *run, struct ipc_message *message)
{
    static const struct sink_ops ops = {on_drain, on_ended, on_refused};
    struct api_call *call = run->call;
    cleanup_fd int fd = ipc_take_fd(message, RUN_STREAMS);
    if (!call->exchange || fd < 0)
        return; /* the pipe is closed, and the job ends */
    run->sink = sink_new(call_loop(call), TAKE_FD(fd), &ops, run);
    if (run->sink)
        http_stream_body(call->exchange);
    else
        call_failed(call, "out of memory");
}

bool import_piece(struct api_call *call, const char *data, size_t len)
{
    const struct run *run = call->state;
    return run->sink && sink_write(run->sink, data, len);
}

void import_whole(struct api_call *call)
{
    const struct run *run = call->state;
    if (run->sink)
        sink_end(run->sink);
}

static void import_done(struct run *run)
{
    struct api_call *call = run->call;
    bool is_ok = run->end.kind == TASK_END_EXITED && run->end.code == 0;
    sink_close(run->sink);
    run->sink = NULL;
    if (is_ok) {
        call_answer(call, 201, CALL_JSON, run->reason, strlen(run->reason));
        return;
    }
    run_finish_tails(run);
    struct buf *errors = &run->tails[RUN_STDERR];
    if (errors->len && errors->data[errors->len - 1] == '\n')
        errors->data[--errors->len] = '\0';
    if (run->end.kind != TASK_END_FAILED)
        call_text(call, 400, buf_text(errors));
    else if (run->end.code == ENOSPC || run->end.code == EDQUOT)
        call_text(call, 503, buf_text(errors));
    else
        call_failed(call, "%s", buf_text(errors));
}

static void import_gone(struct run *run)
{
    sink_close(run->sink);
    run->sink = NULL;
}

void api_image_import(struct api_call *call)
{
    static const struct run_ops ops = {run_keep_tail, import_done, import_gone, import_started};
    struct msg_image_name body = {0};
    IPC_SET_TEXT(body.name, call->name);
    run_start(call, &ops, IPC_IMAGE_IMPORT, &body, -1);
}
