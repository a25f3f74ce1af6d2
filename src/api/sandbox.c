/* Routes whose answer is a document or a status of the supervisor: sandboxes, images, health. Runs
 * in api. */
#include "api/call.h"
#include "util/cleanup.h"
#include "util/fd.h"

/* Lists grow with the sandboxes: some 300 bytes for each. */
#define DOCUMENT_BYTES ((size_t)16 * 1024 * 1024)

static void pass_document(struct api_call *call, struct ipc_message *message, const char *type)
{
    if (!call_expects(call, message, IPC_DOCUMENT))
        return;
    cleanup_fd int fd = ipc_take_fd(message, 0);
    cleanup_buf struct buf json = BUF_INIT(DOCUMENT_BYTES);
    int r = fd < 0 ? -EPROTO : fd_read_all(fd, &json);
    if (r < 0)
        call_failed(call, "cannot read the supervisor's document (error %d)", -r);
    else
        call_answer(call, 200, type, buf_text(&json), json.len);
}

void call_pass_document(struct api_call *call, struct ipc_message *message)
{
    pass_document(call, message, CALL_JSON);
}

static void on_metrics(struct api_call *call, struct ipc_message *message)
{
    pass_document(call, message, "text/plain; version=0.0.4; charset=utf-8");
}

void call_pass_done(struct api_call *call, struct ipc_message *message)
{
    if (call_is_ok(call, message))
        call_empty(call);
}

static void send_sandbox(struct api_call *call, enum ipc_type type,
                         void (*on_reply)(struct api_call *call, struct ipc_message *message))
{
    struct msg_sandbox_name body = {0};
    IPC_SET_TEXT(body.name, call->name);
    call_send(call, type, &body, NULL, 0, on_reply);
}

void api_health(struct api_call *call)
{
    call_send(call, IPC_HEALTH, NULL, NULL, 0, call_pass_document);
}

void api_metrics(struct api_call *call)
{
    call_send(call, IPC_METRICS, NULL, NULL, 0, on_metrics);
}

void api_sandbox_list(struct api_call *call)
{
    struct msg_sandbox_name body = {0};
    IPC_SET_TEXT(body.name, call->prefix);
    call_send(call, IPC_SANDBOX_LIST, &body, NULL, 0, call_pass_document);
}

void api_sandbox_get(struct api_call *call)
{
    send_sandbox(call, IPC_SANDBOX_GET, call_pass_document);
}

void api_sandbox_remove(struct api_call *call)
{
    send_sandbox(call, IPC_SANDBOX_REMOVE, call_pass_done);
}

void api_sandbox_stop(struct api_call *call)
{
    send_sandbox(call, IPC_SANDBOX_STOP, call_pass_done);
}

void api_image_list(struct api_call *call)
{
    call_send(call, IPC_IMAGE_LIST, NULL, NULL, 0, call_pass_document);
}

void api_image_remove(struct api_call *call)
{
    struct msg_image_name body = {0};
    IPC_SET_TEXT(body.name, call->name);
    call_send(call, IPC_IMAGE_REMOVE, &body, NULL, 0, call_pass_done);
}
