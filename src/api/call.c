/* Answers of calls; see call.h. Runs in api. */
#include "api/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/log.h"
#include "util/utf8.h"

#define CALL_TEXT "text/plain;charset=utf-8"
/* Six bytes (\u00XX) for each byte of two outputs, and the keys. */
#define CALL_RUN_RESULT_BYTES (12 * LIMIT_EXEC_OUTPUT_BYTES + 4096)

static struct http_exchange *call_take_exchange(struct api_call *call)
{
    if (!call->exchange || call->is_answered)
        return NULL;
    call->is_answered = true;
    return call->exchange;
}

static void call_answer_with(struct api_call *call, struct http_answer answer, const char *more)
{
    struct http_exchange *exchange = call_take_exchange(call);
    char extra[192];
    if (!exchange)
        return;
    call->status = answer.status;
    snprintf(extra, sizeof(extra), "X-Request-Id: %llu\r\n%s", (unsigned long long)call->id, more);
    answer.extra = extra;
    http_answer(exchange, &answer);
}

void call_answer(struct api_call *call, int status, const char *type, const void *body, size_t len)
{
    struct http_answer answer = {.status = status, .type = type, .body = body, .len = len};
    call_answer_with(call, answer, status == 503 ? "Retry-After: 1\r\n" : "");
}

void call_text(struct api_call *call, int status, const char *text)
{
    call_answer(call, status, CALL_TEXT, text, strlen(text));
}

void call_refuse(struct api_call *call, int status, const char *more, const char *text)
{
    struct http_answer answer = {
        .status = status, .type = CALL_TEXT, .body = text, .len = strlen(text)};
    call_answer_with(call, answer, more ? more : "");
}

void call_json(struct api_call *call, int status, const struct buf *json)
{
    call_answer(call, status, CALL_JSON, buf_text(json), json->len);
}

void call_empty(struct api_call *call)
{
    call_answer(call, 204, NULL, NULL, 0);
}

void call_failed(struct api_call *call, const char *format, ...)
{
    char reason[ERR_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    log_error("request=%llu sandbox=%s Sandbox request failed: %s", (unsigned long long)call->id,
              call->name[0] ? call->name : "-", reason);
    call_text(call, 500, "Sandbox request failed");
}

void call_status(struct api_call *call, const struct msg_status *status)
{
    char text[MSG_TEXT];
    snprintf(text, sizeof(text), "%s", IPC_TEXT(status->text));
    struct buf errors = {.data = text, .len = strlen(text)};
    switch ((enum ipc_status)status->code) {
    case IPC_STATUS_BAD_REQUEST:
        call_text(call, 400, text);
        return;
    case IPC_STATUS_NOT_FOUND:
        call_text(call, 404, text);
        return;
    case IPC_STATUS_CONFLICT:
        call_text(call, 409, text);
        return;
    case IPC_STATUS_EXISTS:
        call_text(call, 412, text);
        return;
    case IPC_STATUS_UNAVAILABLE:
        call_text(call, 503, text);
        return;
    case IPC_STATUS_BAD_GATEWAY:
        call_run_result(call, 502, 128, &(struct buf){0}, &errors);
        return;
    case IPC_STATUS_OK:
    case IPC_STATUS_FAILED:
        break;
    }
    call_failed(call, "%s", text);
}

static void call_write_text(struct json_writer *writer, const char *key, const struct buf *text)
{
    cleanup_buf struct buf clean = BUF_INIT(3 * text->len + 1);
    utf8_append_lossy(&clean, buf_text(text), text->len);
    json_write_key(writer, key);
    json_write_bytes(writer, buf_text(&clean), clean.len);
}

int call_write_result(struct buf *ret, int exit_code, const struct buf *out,
                      const struct buf *errors)
{
    *ret = BUF_INIT(CALL_RUN_RESULT_BYTES);
    struct json_writer *writer = json_writer_new(ret, false);
    if (!writer)
        return -ENOMEM;
    json_write_object_begin(writer);
    json_write_pair_integer(writer, "exitCode", exit_code);
    call_write_text(writer, "stdout", out);
    call_write_text(writer, "stderr", errors);
    json_write_object_end(writer);
    return json_writer_end(writer);
}

void call_run_result(struct api_call *call, int status, int exit_code, const struct buf *out,
                     const struct buf *errors)
{
    cleanup_buf struct buf json = {0};
    int r = call_write_result(&json, exit_code, out, errors);
    if (r < 0)
        call_failed(call, "cannot write the result: %s", strerror(-r));
    else
        call_json(call, status, &json);
}

void call_state(struct api_call *call, int status, const char *state)
{
    char json[64];
    int len = snprintf(json, sizeof(json), "{\"state\":\"%s\"}", state);
    call_answer(call, status, CALL_JSON, json, (size_t)len);
}

static void call_on_drain(void *ctx, struct http_exchange *exchange)
{
    (void)ctx;
    struct api_call *call = http_exchange_user(exchange);
    call->on_drain(call);
}

bool call_stream_begin(struct api_call *call, const char *type)
{
    struct http_exchange *exchange = call_take_exchange(call);
    char extra[64];
    snprintf(extra, sizeof(extra), "X-Request-Id: %llu\r\n", (unsigned long long)call->id);
    struct http_answer answer = {.status = 200, .type = type, .extra = extra};
    call->status = 200;
    call->is_streaming = exchange && http_stream_begin(exchange, &answer, call_on_drain);
    if (call->is_streaming && strcmp(type, CALL_EVENTS) == 0)
        call_keep_alive(call);
    return call->is_streaming;
}

bool call_upgrade(struct api_call *call, const char *accept)
{
    struct http_exchange *exchange = call_take_exchange(call);
    char extra[192];
    snprintf(extra, sizeof(extra),
             "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
             "X-Request-Id: %llu\r\n",
             accept, (unsigned long long)call->id);
    call->status = 101;
    call->is_streaming = exchange && http_upgrade(exchange, extra, call_on_drain);
    return call->is_streaming;
}

bool call_expects(struct api_call *call, const struct ipc_message *message, enum ipc_type type)
{
    if (message->header.type == type)
        return true;
    if (message->header.type == IPC_STATUS)
        call_status(call, IPC_BODY(message, msg_status));
    else
        call_failed(call, "the supervisor answered with %s",
                    ipc_type_name((enum ipc_type)message->header.type));
    return false;
}

bool call_is_ok(struct api_call *call, const struct ipc_message *message)
{
    if (!call_expects(call, message, IPC_STATUS))
        return false;
    const struct msg_status *status = IPC_BODY(message, msg_status);
    if (status->code != IPC_STATUS_OK)
        call_status(call, status);
    return status->code == IPC_STATUS_OK;
}
