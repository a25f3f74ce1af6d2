/*
 * The route of a sandbox's requests: lines of the audit as an array, or as server-sent events that
 * go on with what egress sends. Runs in api; files are read on a thread of libuv's pool. With
 * follow, egress first tells which place of the file it has reached: what stands before it is read
 * from the files, what comes after it is sent, so that no line is lost or told twice.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/audit.h"
#include "api/call.h"
#include "api/request.h"
#include "api/source.h"
#include "util/cleanup.h"

/* What is not answered yet, with an event's frame around each line. */
#define EGRESS_TEXT_BYTES (LIMIT_AUDIT_ANSWER_BYTES + 32 * LIMIT_AUDIT_LINES)

struct egress_state {
    struct api_call *call;
    struct request_egress request;
    struct audit_query query;
    int fds[LIMIT_IPC_DESCRIPTORS];
    size_t fd_count;
    uv_work_t work;
    struct buf text; /* of the lines that were found */
    int result;
    struct source *watch; /* NULL: not followed, or ended */
    bool is_streaming;
};

static void egress_free(void *state)
{
    struct egress_state *egress = state;
    source_close(egress->watch);
    for (size_t i = 0; i < egress->fd_count; i++)
        close(egress->fds[i]);
    buf_free(&egress->text);
    free(egress);
}

static int append_event(struct buf *text, const char *line, size_t len)
{
    bool is_lost = len > 8 && memcmp(line, "{\"lost\":", 8) == 0;
    int result = buf_append_string(text, is_lost ? "event: lost\ndata: " : "data: ");
    if (result == 0)
        result = buf_append(text, line, len);
    return result ? result : buf_append_string(text, "\n\n");
}

static int on_line(void *ctx, const char *line, size_t len)
{
    struct egress_state *egress = ctx;
    if (egress->request.follow)
        return append_event(&egress->text, line, len);
    int result = buf_append_string(&egress->text, egress->text.len ? ",\n" : "[");
    return result ? result : buf_append(&egress->text, line, len);
}

/* On a thread of the pool. */
static void egress_work(uv_work_t *work)
{
    struct egress_state *egress = work->data;
    egress->result = audit_lines(&egress->query, egress->fds, egress->fd_count, on_line, egress);
}

static void egress_begin_stream(struct egress_state *egress)
{
    struct api_call *call = egress->call;
    if (!call_stream_begin(call, CALL_EVENTS))
        return;
    egress->is_streaming = true;
    bool has_room =
        !egress->text.len || http_stream_write(call->exchange, egress->text.data, egress->text.len);
    if (has_room && egress->watch)
        source_resume(egress->watch);
    else if (!egress->watch)
        http_stream_end(call->exchange);
}

static void egress_worked(uv_work_t *work, int status)
{
    struct egress_state *egress = work->data;
    struct api_call *call = egress->call;
    (void)status; /* nothing is ever cancelled */
    if (egress->result == 0 && !egress->request.follow)
        egress->result = buf_append_string(&egress->text, egress->text.len ? "]\n" : "[]\n");
    if (egress->result < 0)
        call_failed(call, "cannot read the audit: %s", strerror(-egress->result));
    else if (!egress->request.follow)
        call_json(call, 200, &egress->text);
    else if (call->exchange)
        egress_begin_stream(egress);
    call_resume(call);
}

static void egress_start_work(struct egress_state *egress)
{
    egress->work.data = egress;
    egress->call->is_waiting =
        uv_queue_work(call_loop(egress->call), &egress->work, egress_work, egress_worked) == 0;
    if (!egress->call->is_waiting)
        call_failed(egress->call, "cannot read the audit");
}

/* The first packet: which place of the audit was reached. A new egress tells it again. */
static bool egress_take_place(struct egress_state *egress, const char *data, size_t len)
{
    cleanup_json struct json *json = NULL;
    if (len < 10 || memcmp(data, "{\"inode\":", 9) != 0)
        return false;
    if (egress->query.is_bounded || json_parse(data, len, JSON_STRICT, &json, NULL) < 0)
        return true;
    egress->query.is_bounded = true;
    egress->query.inode = (uint64_t)json_integer(json_get(json, "inode"));
    egress->query.size = json_integer(json_get(json, "size"));
    egress_start_work(egress);
    return true;
}

static bool egress_on_packet(void *ctx, struct source *source, const char *data, size_t len)
{
    struct egress_state *egress = ctx;
    (void)source;
    if (egress_take_place(egress, data, len))
        return egress->is_streaming; /* nothing more until the files were read */
    cleanup_buf struct buf event = BUF_INIT(LIMIT_AUDIT_LINE_BYTES + 64);
    if (!egress->call->exchange || append_event(&event, data, len) < 0)
        return true;
    return http_stream_write(egress->call->exchange, event.data, event.len);
}

/* The sandbox is gone. */
static void egress_on_watch_end(void *ctx, struct source *source)
{
    struct egress_state *egress = ctx;
    source_close(source);
    egress->watch = NULL;
    if (egress->is_streaming && egress->call->exchange)
        http_stream_end(egress->call->exchange);
    else if (!egress->query.is_bounded)
        call_text(egress->call, 404, "Not found"); /* it was removed */
}

static void egress_on_drain(struct api_call *call)
{
    const struct egress_state *egress = call->state;
    if (egress->watch)
        source_resume(egress->watch);
}

static void egress_on_gone(struct api_call *call)
{
    struct egress_state *egress = call->state;
    source_close(egress->watch);
    egress->watch = NULL;
}

static void egress_on_opened(struct api_call *call, struct ipc_message *message)
{
    struct egress_state *egress = call->state;
    if (!call_expects(call, message, IPC_EGRESS_LOG_OPENED))
        return;
    egress->query.created_ms = IPC_BODY(message, msg_egress_log_opened)->created_ms;
    size_t first = egress->request.follow ? 1 : 0;
    for (size_t i = first; i < message->fd_count; i++)
        egress->fds[egress->fd_count++] = ipc_take_fd(message, i);
    if (!egress->request.follow) {
        egress_start_work(egress);
        return;
    }
    if (!call->exchange)
        return;
    int fd = ipc_take_fd(message, 0);
    if (fd >= 0)
        egress->watch =
            source_new(call_loop(call), fd, egress_on_packet, egress_on_watch_end, egress);
    if (!egress->watch)
        call_failed(call, "cannot watch the audit");
}

void api_egress(struct api_call *call)
{
    struct err err;
    struct egress_state *egress = calloc(1, sizeof(*egress));
    if (!egress) {
        call_failed(call, "out of memory");
        return;
    }
    egress->call = call;
    egress->text = BUF_INIT(EGRESS_TEXT_BYTES);
    call->state = egress;
    call->state_free = egress_free;
    call->on_drain = egress_on_drain;
    call->on_gone = egress_on_gone;
    if (request_egress(call->matched.query, call->matched.query_len, &egress->request, &err) < 0) {
        call_text(call, 400, err.message);
        return;
    }
    IPC_SET_TEXT(egress->query.name, call->name);
    egress->query.limit = (size_t)egress->request.limit;
    struct msg_egress_log body = {.follow = egress->request.follow};
    IPC_SET_TEXT(body.name, call->name);
    call_send(call, IPC_EGRESS_LOG, &body, NULL, 0, egress_on_opened);
}
