/* One connection of a client: reading, the order of its requests, time-outs, closing. Runs in api.
 * Invariants: one exchange at a time; while one is being answered at most a head's worth of the
 * next is kept; the connection is freed only after libuv has closed its handles. */
#include "http/connection.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

static void http_connection_process(struct http_connection *connection);
static void http_raw_process(struct http_connection *connection);

static const struct http_config *http_config_of(const struct http_connection *connection)
{
    return http_server_config(connection->server);
}

static void http_exchange_reset(struct http_exchange *exchange)
{
    struct buf head_bytes = exchange->head_bytes;
    struct buf body = exchange->body;
    buf_clear(&head_bytes);
    buf_free(&body);
    *exchange = (struct http_exchange){.connection = exchange->connection};
    exchange->head_bytes = head_bytes;
}

static void http_exchange_end(struct http_exchange *exchange)
{
    if (!exchange->is_active)
        return;
    exchange->is_active = false;
    http_config_of(exchange->connection)
        ->handler->on_end(http_config_of(exchange->connection)->ctx, exchange);
}

static void http_on_closed(uv_handle_t *handle)
{
    struct http_connection *connection = handle->data;
    if (--connection->open_handles)
        return;
    http_exchange_end(&connection->exchange);
    http_server_remove(connection->server, connection);
    buf_free(&connection->in);
    buf_free(&connection->exchange.head_bytes);
    buf_free(&connection->exchange.body);
    free(connection);
}

void http_connection_close(struct http_connection *connection, bool reset)
{
    if (connection->state == HTTP_CLOSING)
        return;
    connection->state = HTTP_CLOSING;
    uv_close((uv_handle_t *)&connection->timer, http_on_closed);
    /* A reset cannot follow a shutdown, nor is there one on a Unix socket. */
    if (!reset || !connection->is_tcp || uv_tcp_close_reset(&connection->tcp, http_on_closed) < 0)
        uv_close(&connection->any, http_on_closed);
}

static void http_on_timeout(uv_timer_t *timer)
{
    struct http_connection *connection = timer->data;
    bool is_slow = connection->state == HTTP_IN_BODY ||
                   (connection->state == HTTP_IN_HEAD && connection->in.len);
    if (is_slow)
        http_connection_refuse(connection, 408, "the request did not come in time");
    else
        http_connection_close(connection, connection->state == HTTP_ANSWERING);
}

void http_connection_timer(struct http_connection *connection, uint64_t ms)
{
    if (ms)
        uv_timer_start(&connection->timer, http_on_timeout, ms, 0);
    else
        uv_timer_stop(&connection->timer);
}

static void http_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    struct http_connection *connection = handle->data;
    *ret = uv_buf_init(http_server_scratch(connection->server), HTTP_READ_BYTES);
}

/* The client sends no more. It may have shut down its side only, and wait for the answer. */
static void http_on_eof(struct http_connection *connection)
{
    connection->is_at_eof = true;
    connection->is_reading = false;
    int fd = -1;
    uv_fileno(&connection->any, &fd);
    struct pollfd poll_fd = {.fd = fd};
    bool is_gone = poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & (POLLHUP | POLLERR));
    if (connection->state != HTTP_ANSWERING || is_gone || connection->exchange.is_raw)
        http_connection_close(connection, false);
}

static void http_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
    struct http_connection *connection = stream->data;
    if (n == 0 || connection->state == HTTP_CLOSING)
        return;
    if (n == UV_EOF) {
        uv_read_stop(stream);
        http_on_eof(connection);
        return;
    }
    if (n < 0) {
        http_connection_close(connection, false);
        return;
    }
    if (connection->state == HTTP_LINGERING) {
        connection->lingered += (size_t)n;
        if (connection->lingered > HTTP_LINGER_BYTES)
            http_connection_close(connection, false);
        return;
    }
    if (buf_append(&connection->in, bytes->base, (size_t)n) < 0) {
        http_connection_close(connection, false);
        return;
    }
    http_connection_process(connection);
}

static void http_read_on(struct http_connection *connection, bool on)
{
    if (connection->is_at_eof || connection->is_reading == on)
        return;
    connection->is_reading = on;
    if (!on)
        uv_read_stop(&connection->stream);
    else if (uv_read_start(&connection->stream, http_on_alloc, http_on_read) < 0)
        http_connection_close(connection, false);
}

static void http_linger(struct http_connection *connection)
{
    int fd = -1;
    connection->state = HTTP_LINGERING;
    if (connection->is_at_eof || uv_fileno(&connection->any, &fd) < 0) {
        http_connection_close(connection, false);
        return;
    }
    shutdown(fd, SHUT_WR);
    http_connection_timer(connection, HTTP_LINGER_MS);
    http_read_on(connection, true);
}

void http_connection_finish(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;
    bool must_close = exchange->must_close || (connection->is_at_eof && connection->in.len == 0);
    bool is_body_read = exchange->is_body_read;
    http_exchange_end(exchange);
    http_exchange_reset(exchange);
    if (must_close && is_body_read) {
        http_connection_close(connection, false);
        return;
    }
    if (must_close) {
        http_linger(connection);
        return;
    }
    connection->state = HTTP_IN_HEAD;
    connection->scanned = 0;
    http_connection_timer(connection, connection->in.len ? http_config_of(connection)->head_ms
                                                         : http_config_of(connection)->idle_ms);
    http_connection_process(connection);
}

static void http_body_process(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;
    const struct http_config *config = http_config_of(connection);
    int status = http_body_read(exchange, &connection->in);
    if (status == 0) {
        if (exchange->is_body_streamed) /* a paused client is not slow */
            http_connection_timer(connection, exchange->is_body_paused ? 0 : config->body_ms);
        return;
    }
    connection->state = HTTP_ANSWERING;
    http_connection_timer(connection, 0);
    exchange->is_body_read = status == 1;
    if (status == 1)
        config->handler->on_body(config->ctx, exchange);
    else if (status == 413)
        config->handler->on_body_too_large(config->ctx, exchange);
    else
        http_connection_refuse(connection, status, "the body cannot be read");
}

/* The state in which the body is read, from here on. */
static void http_body_enter(struct http_exchange *exchange)
{
    static char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct http_connection *connection = exchange->connection;
    connection->state = HTTP_IN_BODY;
    http_body_begin(exchange);
    http_connection_timer(connection, http_config_of(connection)->body_ms);
    if (exchange->head.is_continue_awaited && connection->in.len == 0 &&
        http_body_is_coming(exchange)) {
        struct buf out = {.data = text, .len = sizeof(text) - 1};
        http_connection_write(connection, &out);
    }
}

void http_accept_body(struct http_exchange *exchange, size_t max)
{
    const struct http_config *config = http_config_of(exchange->connection);
    if (exchange->head.content_length > 0 && (uint64_t)exchange->head.content_length > max) {
        exchange->is_too_large = true;
        config->handler->on_body_too_large(config->ctx, exchange);
        return;
    }
    exchange->body = BUF_INIT(max);
    http_body_enter(exchange);
}

void http_stream_body(struct http_exchange *exchange)
{
    if (exchange->connection->state == HTTP_CLOSING)
        return;
    exchange->is_body_streamed = true;
    http_body_enter(exchange);
    http_connection_process(exchange->connection);
}

void http_resume_body(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;
    bool is_raw = exchange->is_raw && connection->state == HTTP_ANSWERING;
    if (!exchange->is_body_paused || (connection->state != HTTP_IN_BODY && !is_raw))
        return;
    exchange->is_body_paused = false;
    if (is_raw) {
        http_raw_process(connection);
        return;
    }
    http_connection_timer(connection, http_config_of(connection)->body_ms);
    http_connection_process(connection);
}

/* A head's worth of bytes is there: begins its exchange. */
static void http_head_process(struct http_connection *connection, size_t len)
{
    struct http_exchange *exchange = &connection->exchange;
    const struct http_config *config = http_config_of(connection);
    struct err err;
    exchange->head_bytes.max = config->head_bytes;
    if (buf_append(&exchange->head_bytes, connection->in.data, len) < 0) {
        http_connection_close(connection, false);
        return;
    }
    buf_consume(&connection->in, len);
    connection->state = HTTP_ANSWERING;
    http_connection_timer(connection, 0);
    int status = http_head_check(exchange->head_bytes.data, len, &exchange->head, &err);
    if (status) {
        http_connection_refuse(connection, status, err.message);
        return;
    }
    exchange->is_body_read = !exchange->head.is_chunked && exchange->head.content_length <= 0;
    exchange->is_active = true;
    config->handler->on_head(config->ctx, exchange);
}

static void http_in_head(struct http_connection *connection)
{
    const struct http_config *config = http_config_of(connection);
    bool is_first = connection->scanned == 0;
    if (connection->in.len == 0)
        return;
    ssize_t len = http_head_length(connection->in.data, connection->in.len, &connection->scanned);
    if (len < 0) {
        http_connection_refuse(connection, 400, "a line does not end with CR LF");
    } else if ((size_t)len > config->head_bytes ||
               (len == 0 && connection->in.len > config->head_bytes)) {
        http_connection_refuse(connection, 431, "request line and headers are too large");
    } else if (len > 0) {
        http_head_process(connection, (size_t)len);
    } else if (is_first) {
        http_connection_timer(connection, config->head_ms);
    }
}

/* After an upgrade: the bytes are the handler's, and so is their end. */
static void http_raw_process(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;
    const struct http_config *config = http_config_of(connection);
    if (connection->in.len && !exchange->is_body_paused) {
        struct buf in = connection->in;
        connection->in = BUF_INIT(in.max);
        exchange->is_body_paused =
            !config->handler->on_body_data(config->ctx, exchange, in.data, in.len);
        buf_free(&in);
    }
    if (connection->state == HTTP_ANSWERING)
        http_read_on(connection, !exchange->is_body_paused);
}

static void http_connection_process(struct http_connection *connection)
{
    if (connection->exchange.is_raw) {
        http_raw_process(connection);
        return;
    }
    if (connection->state == HTTP_IN_HEAD)
        http_in_head(connection);
    if (connection->state == HTTP_IN_BODY)
        http_body_process(connection);
    if (connection->state == HTTP_CLOSING)
        return;
    if (connection->is_at_eof && connection->state != HTTP_ANSWERING) {
        http_connection_close(connection, false); /* the rest of a request that will not come */
        return;
    }
    bool has_room = connection->in.len < http_config_of(connection)->head_bytes;
    http_read_on(connection, connection->state == HTTP_ANSWERING
                                 ? has_room
                                 : !connection->exchange.is_body_paused);
}

int http_connection_accept(struct http_server *server, uv_stream_t *listener, bool is_tcp)
{
    struct http_connection *connection = calloc(1, sizeof(*connection));
    if (!connection)
        return -ENOMEM;
    const struct http_config *config = http_server_config(server);
    connection->server = server;
    connection->is_tcp = is_tcp;
    connection->in = BUF_INIT(config->head_bytes + HTTP_READ_BYTES);
    connection->exchange.connection = connection;
    connection->open_handles = 2;
    if (is_tcp)
        uv_tcp_init(http_server_loop(server), &connection->tcp);
    else
        uv_pipe_init(http_server_loop(server), &connection->pipe, 0);
    uv_timer_init(http_server_loop(server), &connection->timer);
    connection->stream.data = connection->timer.data = connection;
    bool has_place = http_server_add(server, connection);
    if (uv_accept(listener, &connection->stream) < 0) {
        http_connection_close(connection, false);
        return 0;
    }
    if (!has_place) {
        connection->exchange.is_body_read = true; /* no lingering: places are short */
        http_connection_refuse(connection, 503, "too many connections");
        return 0;
    }
    http_connection_timer(connection, config->idle_ms);
    http_read_on(connection, true);
    return 0;
}
