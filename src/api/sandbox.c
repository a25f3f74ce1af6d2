/* Routes whose answer is a document or a status of the supervisor: sandboxes, images, health. Runs
 * in api. */
#include <string.h>

#include "api/call.h"
#include "api/request.h"
#include "util/cleanup.h"
#include "util/fd.h"

/* Lists grow with the sandboxes: some 300 bytes for each. */
#define DOCUMENT_BYTES ((size_t)16 * 1024 * 1024)

static void pass_document(struct api_call *call, struct ipc_message *message, int status,
                          const char *type)
{
    if (!call_expects(call, message, IPC_DOCUMENT))
        return;
    cleanup_fd int fd = ipc_take_fd(message, 0);
    cleanup_buf struct buf json = BUF_INIT(DOCUMENT_BYTES);
    int r = fd < 0 ? -EPROTO : fd_read_all(fd, &json);
    if (r < 0)
        call_failed(call, "cannot read the supervisor's document (error %d)", -r);
    else
        call_answer(call, status, type, buf_text(&json), json.len);
}

void call_pass_document(struct api_call *call, struct ipc_message *message)
{
    pass_document(call, message, 200, CALL_JSON);
}

static void on_metrics(struct api_call *call, struct ipc_message *message)
{
    pass_document(call, message, 200, "text/plain; version=0.0.4; charset=utf-8");
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
    struct msg_sandbox_list body = {0};
    struct err err;
    if (request_sandbox_list(call->matched.query, call->matched.query_len, &body, &err) < 0) {
        call_text(call, 400, err.message);
        return;
    }
    IPC_SET_TEXT(body.prefix, call->prefix);
    call_send(call, IPC_SANDBOX_LIST, &body, NULL, 0, call_pass_document);
}

void api_sandbox_get(struct api_call *call)
{
    send_sandbox(call, IPC_SANDBOX_GET, call_pass_document);
}

static void on_put(struct api_call *call, struct ipc_message *message)
{
    bool is_new = message->header.type == IPC_DOCUMENT && IPC_BODY(message, msg_document)->is_new;
    pass_document(call, message, is_new ? 201 : 200, CALL_JSON);
}

/* "If-None-Match: *" (RFC 9110, 13.1.2): only when there is none of this name. */
static bool is_only_new(const struct api_call *call, bool *ret)
{
    const struct http_field *field =
        http_head_field(http_exchange_head(call->exchange), "If-None-Match");
    *ret = field;
    return !field || (field->value_len == 1 && field->value[0] == '*');
}

static void set_sandbox(struct api_call *call, bool is_patch)
{
    const struct buf *json = http_exchange_body(call->exchange);
    cleanup_buf struct buf lists = BUF_INIT(2 * (LIMIT_ENV_BYTES + LIMIT_LABELS_BYTES));
    struct msg_sandbox_put body;
    struct err err;
    bool only_new = false;
    int r = request_sandbox_put(buf_text(json), json->len, is_patch, &body, &lists, &err);
    if (r == 0 && !is_patch && !is_only_new(call, &only_new))
        r = err_set(&err, EINVAL, "If-None-Match may only be *");
    if (r < 0) {
        call_text(call, r == -EINVAL ? 400 : 503, err.message);
        return;
    }
    body.is_only_new = only_new;
    IPC_SET_TEXT(body.name, call->name);
    cleanup_fd int fd = fd_sealed("settings", lists.data, lists.len, &err);
    if (fd < 0)
        call_failed(call, "%s", err.message);
    else
        call_send(call, IPC_SANDBOX_PUT, &body, &fd, 1, on_put);
}

void api_sandbox_put(struct api_call *call)
{
    set_sandbox(call, false);
}

void api_sandbox_patch(struct api_call *call)
{
    set_sandbox(call, true);
}

void api_agent_list(struct api_call *call)
{
    call_send(call, IPC_AGENT_LIST, NULL, NULL, 0, call_pass_document);
}

void api_policy_list(struct api_call *call)
{
    call_send(call, IPC_POLICY_LIST, NULL, NULL, 0, call_pass_document);
}

void api_policy_reload(struct api_call *call)
{
    call_send(call, IPC_POLICY_RELOAD, NULL, NULL, 0, call_pass_document);
}

void api_sandbox_remove(struct api_call *call)
{
    const struct http_matched *matched = &call->matched;
    struct err err;
    bool only_stopped;
    if (request_only(matched->query, matched->query_len, "state", "stopped", &only_stopped, &err) <
        0)
        call_text(call, 400, err.message);
    else
        send_sandbox(call, only_stopped ? IPC_SANDBOX_PRUNE : IPC_SANDBOX_REMOVE, call_pass_done);
}

/* With "wait=0" the answer comes now, and the supervisor's finds nobody. */
void api_sandbox_stop(struct api_call *call)
{
    const struct http_matched *matched = &call->matched;
    struct err err;
    bool is_at_once;
    if (request_only(matched->query, matched->query_len, "wait", "0", &is_at_once, &err) < 0) {
        call_text(call, 400, err.message);
        return;
    }
    send_sandbox(call, IPC_SANDBOX_STOP, call_pass_done);
    if (is_at_once)
        call_answer(call, 202, NULL, NULL, 0);
}

static void on_trash(struct api_call *call, struct ipc_message *message)
{
    if (call_is_ok(call, message))
        call_answer(call, 202, NULL, NULL, 0);
}

void api_trash_empty(struct api_call *call)
{
    call_send(call, IPC_TRASH_EMPTY, NULL, NULL, 0, on_trash);
}

void api_image_list(struct api_call *call)
{
    struct msg_sandbox_name body = {0};
    IPC_SET_TEXT(body.name, call->prefix);
    call_send(call, IPC_IMAGE_LIST, &body, NULL, 0, call_pass_document);
}

void api_image_remove(struct api_call *call)
{
    struct msg_image_name body = {0};
    IPC_SET_TEXT(body.name, call->name);
    call_send(call, IPC_IMAGE_REMOVE, &body, NULL, 0, call_pass_done);
}
