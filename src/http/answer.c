/* Answers: whole, streamed, and the server's own refusals. Runs in api. Invariant: an answer that
 * was begun as a stream ends with its last chunk only when the handler said that it is complete. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/connection.h"
#include "http/date.h"
#include "util/cleanup.h"

/* Head of an answer: ours, with a route's few extra headers. */
#define HTTP_ANSWER_HEAD_BYTES 2048

struct http_write {
    uv_write_t request;
    struct http_connection *connection;
    size_t len;
    char data[];
};

static void http_on_written(uv_write_t *request, int status)
{
    struct http_write *write = request->data;
    struct http_connection *connection = write->connection;
    connection->queued -= write->len;
    free(write);
    if (connection->state == HTTP_CLOSING)
        return;
    if (status < 0) {
        http_connection_close(connection, false);
        return;
    }
    struct http_exchange *exchange = &connection->exchange;
    if (exchange->is_answered && connection->queued == 0) {
        http_connection_finish(connection);
        return;
    }
    if (connection->state == HTTP_ANSWERING)
        http_connection_timer(
            connection, connection->queued ? http_server_config(connection->server)->write_ms : 0);
    if (exchange->is_full && connection->queued <= HTTP_QUEUE_LOW_BYTES) {
        exchange->is_full = false;
        exchange->on_drain(http_server_config(connection->server)->ctx, exchange);
    }
}

bool http_connection_write(struct http_connection *connection, const struct buf *bytes)
{
    if (connection->state == HTTP_CLOSING)
        return false;
    struct http_write *write = malloc(sizeof(*write) + bytes->len);
    if (!write) {
        http_connection_close(connection, false);
        return false;
    }
    memcpy(write->data, bytes->data, bytes->len);
    write->connection = connection;
    write->len = bytes->len;
    write->request.data = write;
    uv_buf_t part = uv_buf_init(write->data, (unsigned)bytes->len);
    if (uv_write(&write->request, &connection->stream, &part, 1, http_on_written) < 0) {
        free(write);
        http_connection_close(connection, false);
        return false;
    }
    if (connection->queued == 0 && connection->state == HTTP_ANSWERING)
        http_connection_timer(connection, http_server_config(connection->server)->write_ms);
    connection->queued += bytes->len;
    return true;
}

static const char *http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {417, "Expectation Failed"},
        {426, "Upgrade Required"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Unknown";
}

/* framing: the Content-Length or Transfer-Encoding header with its CRLF. */
static int http_append_head(struct buf *out, const struct http_answer *answer, const char *framing,
                            bool is_keep_alive)
{
    char date[HTTP_DATE_SIZE];
    int r = buf_appendf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", answer->status,
                        http_reason(answer->status), http_date(date));
    if (r == 0 && answer->type)
        r = buf_appendf(out, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n",
                        answer->type);
    if (r == 0 && answer->extra)
        r = buf_append_string(out, answer->extra);
    if (r == 0)
        r = buf_append_string(out, framing);
    if (r == 0)
        r = buf_append_string(out, is_keep_alive ? "\r\n" : "Connection: close\r\n\r\n");
    return r;
}

static void http_answer_ended(struct http_exchange *exchange)
{
    exchange->is_answered = true;
    exchange->is_streaming = false;
    if (!exchange->is_body_read)
        exchange->must_close = true; /* where the next request starts is not known */
}

static bool http_is_kept_alive(struct http_exchange *exchange)
{
    const struct http_connection *connection = exchange->connection;
    if (!exchange->head.is_keep_alive || !exchange->is_body_read ||
        (connection->is_at_eof && connection->in.len == 0))
        exchange->must_close = true;
    return !exchange->must_close;
}

void http_answer(struct http_exchange *exchange, const struct http_answer *answer)
{
    struct http_connection *connection = exchange->connection;
    if (connection->state == HTTP_CLOSING)
        return;
    assert(!exchange->is_answered && !exchange->is_streaming);
    connection->state = HTTP_ANSWERING;
    bool is_head = exchange->head.method_len == 4 && memcmp(exchange->head.method, "HEAD", 4) == 0;
    char framing[64] = "";
    if (answer->status != 204)
        snprintf(framing, sizeof(framing), "Content-Length: %zu\r\n", answer->len);
    cleanup_buf struct buf out = BUF_INIT(HTTP_ANSWER_HEAD_BYTES + answer->len);
    int r = http_append_head(&out, answer, framing, http_is_kept_alive(exchange));
    if (r == 0 && !is_head)
        r = buf_append(&out, answer->body, answer->len);
    http_answer_ended(exchange);
    if (r < 0)
        http_connection_close(connection, false);
    else
        http_connection_write(connection, &out);
}

bool http_stream_begin(struct http_exchange *exchange, const struct http_answer *answer,
                       void (*on_drain)(void *ctx, struct http_exchange *exchange))
{
    struct http_connection *connection = exchange->connection;
    if (connection->state == HTTP_CLOSING)
        return false;
    assert(!exchange->is_answered && !exchange->is_streaming);
    if (exchange->head.minor == 0) {
        static const char text[] = "This answer is streamed: ask with HTTP/1.1";
        struct http_answer refusal = {505, "text/plain", NULL, text, sizeof(text) - 1};
        http_answer(exchange, &refusal);
        return false;
    }
    connection->state = HTTP_ANSWERING;
    cleanup_buf struct buf out = BUF_INIT(HTTP_ANSWER_HEAD_BYTES);
    if (http_append_head(&out, answer, "Transfer-Encoding: chunked\r\n",
                         http_is_kept_alive(exchange)) < 0) {
        http_connection_close(connection, false);
        return false;
    }
    exchange->is_streaming = true;
    exchange->on_drain = on_drain;
    return http_connection_write(connection, &out);
}

bool http_upgrade(struct http_exchange *exchange, const char *extra,
                  void (*on_drain)(void *ctx, struct http_exchange *exchange))
{
    struct http_connection *connection = exchange->connection;
    cleanup_buf struct buf out = BUF_INIT(HTTP_ANSWER_HEAD_BYTES);
    if (connection->state == HTTP_CLOSING)
        return false;
    assert(!exchange->is_answered && !exchange->is_streaming && exchange->is_body_read);
    if (buf_appendf(&out, "HTTP/1.1 101 %s\r\n%s\r\n", http_reason(101), extra) < 0) {
        http_connection_close(connection, false);
        return false;
    }
    connection->state = HTTP_ANSWERING;
    exchange->must_close = exchange->is_streaming = exchange->is_raw = true;
    exchange->on_drain = on_drain;
    return http_connection_write(connection, &out);
}

bool http_stream_write(struct http_exchange *exchange, const void *data, size_t len)
{
    struct http_connection *connection = exchange->connection;
    if (connection->state == HTTP_CLOSING || len == 0)
        return !exchange->is_full;
    assert(exchange->is_streaming);
    cleanup_buf struct buf out = BUF_INIT(len + 32);
    int r = exchange->is_raw ? 0 : buf_appendf(&out, "%zx\r\n", len);
    if (r == 0)
        r = buf_append(&out, data, len);
    if (r == 0 && !exchange->is_raw)
        r = buf_append(&out, "\r\n", 2);
    if (r < 0) {
        http_connection_close(connection, false);
        return false;
    }
    http_connection_write(connection, &out);
    exchange->is_full = connection->queued >= HTTP_QUEUE_BYTES;
    return !exchange->is_full;
}

void http_stream_end(struct http_exchange *exchange)
{
    static char last[] = "0\r\n\r\n";
    struct http_connection *connection = exchange->connection;
    if (connection->state == HTTP_CLOSING)
        return;
    assert(exchange->is_streaming);
    exchange->is_full = false;
    exchange->is_body_read &= !exchange->is_raw; /* the client may still send: it lingers */
    bool is_raw = exchange->is_raw;
    exchange->is_raw = false;
    http_answer_ended(exchange);
    if (is_raw && connection->queued == 0) {
        http_connection_close(connection, false);
        return;
    }
    if (is_raw)
        return; /* it is finished when all is sent */
    struct buf out = {.data = last, .len = sizeof(last) - 1};
    http_connection_write(connection, &out);
}

void http_stream_abort(struct http_exchange *exchange)
{
    if (exchange->connection->state != HTTP_CLOSING)
        http_connection_close(exchange->connection, true);
}

void http_connection_refuse(struct http_connection *connection, int status, const char *reason)
{
    struct http_exchange *exchange = &connection->exchange;
    char text[ERR_MESSAGE_MAX + 64];
    int len = snprintf(text, sizeof(text), "%s: %s", http_reason(status), reason);
    struct http_answer answer = {status, "text/plain", NULL, text,
                                 (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1};
    exchange->must_close = true;
    http_answer(exchange, &answer);
}
