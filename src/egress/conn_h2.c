/*
 * HTTP/2 of a sandbox's client (RFC 9113, nghttp2): each stream is a call. Process: paddock-egress.
 * nghttp2 bounds header tables, continuations, resets, settings and pings (its defaults); here are
 * bounded streams, heads, and what waits of bodies: a stream's window is given back as its upstream
 * takes the bytes, the connection's at once, so that a stream that waits holds up no other.
 */
#include <stdlib.h>
#include <string.h>

#include "egress/conn_h2.h"
#include "egress/h2_lines.h"
#include "util/cleanup.h"

#define STREAMS_MAX 100
#define STREAM_WINDOW 65535
#define CONNECTION_WINDOW (1024 * 1024)
#define OUT_ENOUGH (64 * 1024)
/* Frames that wait to be sent: some for each stream, and answers to what is no stream. */
#define FRAMES_MAX 1000
/* A field of the table of headers takes one byte of the connection, and kilobytes to look at: so
 * much is read of a head that is refused. A field counts as in RFC 7541, section 4.1. */
#define BLOCK_BYTES_MAX (4 * LIMIT_EGRESS_HEAD_BYTES)
#define FIELD_OVERHEAD 32

static void stream_free(struct stream *stream)
{
    struct conn_h2 *h2 = stream->h2;
    if (stream->previous)
        stream->previous->next = stream->next;
    else
        h2->streams = stream->next;
    if (stream->next)
        stream->next->previous = stream->previous;
    h2->stream_count--;
    egress_sandbox_remove_stream(h2->conn->sandbox);
    call_abandon(&stream->call);
    call_close(&stream->call);
    buf_free(&stream->lines);
    buf_free(&stream->pseudo);
    buf_free(&stream->in);
    buf_free(&stream->out);
    buf_free(&stream->out_trailers);
    free(stream);
}

/* ------------------------------------------------------------------------------ the request */

static struct stream *stream_new(struct conn_h2 *h2, int32_t id)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    if (!stream || !egress_sandbox_add_stream(h2->conn->sandbox)) {
        free(stream);
        return NULL;
    }
    stream->h2 = h2;
    stream->id = id;
    stream->lines = BUF_INIT(LIMIT_EGRESS_HEAD_BYTES);
    stream->pseudo = BUF_INIT(2 * LIMIT_EGRESS_REQUEST_LINE_BYTES);
    stream->in = BUF_INIT(2 * STREAM_WINDOW);
    stream->out = BUF_INIT(LIMIT_EGRESS_QUEUE_BYTES + LIMIT_EGRESS_ANSWER_HEAD_BYTES);
    stream->out_trailers = BUF_INIT(LIMIT_EGRESS_ANSWER_HEAD_BYTES);
    stream->method = stream->scheme = stream->authority = stream->path = NOT_GIVEN;
    stream->touched_at = uv_now(h2->conn->egress->loop);
    stream->call = h2->conn->call;
    stream->call.front = &conn_h2_front;
    stream->call.protocol = "h2";
    stream->next = h2->streams;
    if (stream->next)
        stream->next->previous = stream;
    h2->streams = stream;
    h2->stream_count++;
    return stream;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct conn_h2 *h2 = ctx;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    h2->block_bytes = 0;
    if (stream) { /* trailers */
        buf_clear(&stream->lines);
        stream->lines.max = LIMIT_EGRESS_CHUNK_OVERHEAD; /* as over HTTP/1.1 */
        stream->line_count = 0;
        return 0;
    }
    stream = stream_new(h2, frame->hd.stream_id);
    if (!stream)
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                         NGHTTP2_REFUSED_STREAM);
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    return 0;
}

static size_t *pseudo_field(struct stream *stream, const char *name, size_t len)
{
    return http_equals(name, len, ":method")      ? &stream->method
           : http_equals(name, len, ":scheme")    ? &stream->scheme
           : http_equals(name, len, ":authority") ? &stream->authority
           : http_equals(name, len, ":path")      ? &stream->path
                                                  : NULL;
}

static void take_pseudo(struct stream *stream, const char *name, size_t name_len, const char *value,
                        size_t value_len)
{
    size_t *field = pseudo_field(stream, name, name_len);
    if (!field || *field != NOT_GIVEN) {
        stream->status = 400;
        return;
    }
    *field = stream->pseudo.len;
    if (buf_append(&stream->pseudo, value, value_len) || buf_append(&stream->pseudo, "", 1))
        stream->status = 414;
}

static void take_field(struct stream *stream, const char *name, size_t name_len, const char *value,
                       size_t value_len)
{
    if (!http_is_token(name, name_len) || !http_is_value(value, value_len))
        stream->status = 400;
    else if (stream->line_count == LIMIT_HTTP_FIELDS ||
             http1_fields_append(&stream->lines, name, name_len, value, value_len))
        stream->status = 431;
    stream->line_count++;
}

/* RST_STREAM when there are too many: nghttp2 only passes over the rest of them. */
static int count_field(struct conn_h2 *h2, struct stream *stream, nghttp2_vec name,
                       nghttp2_vec value)
{
    h2->block_bytes += name.len + value.len + FIELD_OVERHEAD;
    if (h2->block_bytes <= BLOCK_BYTES_MAX)
        return 0;
    if (stream && !stream->is_begun) {
        stream->is_begun = true;
        call_open(&stream->call, "");
        call_refuse(&stream->call, 431, "the request's headers are larger than 64 KiB");
    }
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* A head that is refused is read on: its table of headers is the connection's. */
static int on_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                     nghttp2_rcbuf *value, uint8_t flags, void *ctx)
{
    (void)flags;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    nghttp2_vec n = nghttp2_rcbuf_get_buf(name);
    nghttp2_vec v = h2_value(value);
    int result = count_field(ctx, stream, n, v);
    if (result || !stream || stream->status)
        return result;
    if (n.base[0] == ':')
        take_pseudo(stream, (const char *)n.base, n.len, (const char *)v.base, v.len);
    else
        take_field(stream, (const char *)n.base, n.len, (const char *)v.base, v.len);
    return 0;
}

/* One with characters that none may have: nghttp2 would leave it out. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                             nghttp2_rcbuf *name, nghttp2_rcbuf *value, uint8_t flags, void *ctx)
{
    (void)flags;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream && !stream->status)
        stream->status = 400;
    return count_field(ctx, stream, nghttp2_rcbuf_get_buf(name), nghttp2_rcbuf_get_buf(value));
}

static const char *pseudo(const struct stream *stream, size_t at)
{
    return at == NOT_GIVEN ? "" : stream->pseudo.data + at;
}

/* The texts that HTTP/1's strict reader judges for that front. */
static bool is_well_formed(struct stream *stream, const char *method, const char *path)
{
    if (stream->status == 414 || strlen(path) > LIMIT_EGRESS_REQUEST_LINE_BYTES)
        call_refuse(&stream->call, 414, "the request line is longer than 16 KiB");
    else if (stream->status == 431)
        call_refuse(&stream->call, 431, "the request's headers are larger than 64 KiB");
    else if (stream->status || !http_is_token(method, strlen(method)) ||
             strlen(method) >= HTTP1_METHOD_MAX)
        call_refuse(&stream->call, 400, "the request's head is not understood");
    else if (strcmp(method, "CONNECT") != 0 &&
             (path[0] != '/' || !http_is_visible(path, strlen(path)) ||
              strcmp(pseudo(stream, stream->scheme), "https") != 0))
        call_refuse(&stream->call, 400, "the request's target is not a path at https");
    else
        return true;
    return false;
}

/* A cookie's parts may come as fields of their own; they go on as one (RFC 9113, section 8.2.3). */
static int join_cookies(struct buf *text, struct http_field *fields, size_t *count)
{
    struct http_field *cookie = NULL;
    size_t kept = 0;
    int result = 0;
    for (size_t i = 0; i < *count && !result; i++) {
        struct http_field field = fields[i];
        bool is_cookie = http_field_is(&field, "cookie");
        if (!is_cookie || !cookie)
            fields[kept++] = field;
        if (!is_cookie)
            continue;
        result = cookie ? buf_append(text, "; ", 2) : 0;
        if (!result)
            result = buf_append(text, field.value, field.value_len);
        cookie = cookie ? cookie : &fields[kept - 1];
    }
    if (cookie) {
        cookie->value = buf_text(text);
        cookie->value_len = text->len;
    }
    *count = kept;
    return result;
}

static void stream_begin(struct stream *stream, bool has_body)
{
    struct http_field fields[LIMIT_HTTP_FIELDS];
    cleanup_buf struct buf cookies = BUF_INIT(LIMIT_EGRESS_HEAD_BYTES);
    const char *method = pseudo(stream, stream->method);
    const char *path = pseudo(stream, stream->path);
    const char *authority = pseudo(stream, stream->authority);
    size_t count = stream->lines.len ? http1_fields_split(&stream->lines, fields) : 0;
    stream->is_begun = true;
    call_open(&stream->call, http_is_token(method, strlen(method)) ? method : "");
    if (!is_well_formed(stream, method, path))
        return;
    if (join_cookies(&cookies, fields, &count)) {
        call_refuse(&stream->call, 431, "the request's headers are larger than 64 KiB");
        return;
    }
    struct call_request request = {
        .method = method,
        .authority = {authority, strlen(authority)},
        .target = {path, strlen(path)},
        .fields = fields,
        .field_count = count,
        .body = has_body ? EGRESS_BODY_CHUNKED : EGRESS_BODY_NONE,
    };
    for (size_t i = 0; i < count; i++) {
        int64_t length = http_length(fields[i].value, fields[i].value_len);
        if (http_field_is(&fields[i], "host"))
            request.host = (struct http1_text){fields[i].value, fields[i].value_len};
        else if (http_field_is(&fields[i], "content-length") && has_body && length >= 0) {
            request.body = EGRESS_BODY_LENGTH; /* nghttp2 compares it with the body */
            request.body_length = (uint64_t)length;
        } else if (http_field_is(&fields[i], "expect"))
            request.expects_continue =
                http_equals(fields[i].value, fields[i].value_len, "100-continue");
    }
    call_begin(&stream->call, &request);
}

void conn_h2_feed_stream(struct stream *stream)
{
    struct conn_h2 *h2 = stream->h2;
    while (stream->in_used < stream->in.len) {
        size_t taken = call_write(&stream->call, stream->in.data + stream->in_used,
                                  stream->in.len - stream->in_used, conn_queue_max(h2->conn));
        if (taken == 0)
            return;
        stream->in_used += taken;
        nghttp2_session_consume_stream(h2->session, stream->id, taken);
    }
    buf_clear(&stream->in);
    stream->in_used = 0;
    if (!stream->in_ended || stream->in_told)
        return;
    struct http_field fields[LIMIT_HTTP_FIELDS];
    size_t count = http1_fields_split(&stream->lines, fields);
    stream->in_told = true;
    call_write_end(&stream->call, fields, count);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *ctx)
{
    (void)flags;
    (void)ctx;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    nghttp2_session_consume_connection(session, len);
    if (!stream)
        return 0;
    if (stream->in_used) {
        buf_consume(&stream->in, stream->in_used);
        stream->in_used = 0;
    }
    if (buf_append(&stream->in, data, len))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    stream->touched_at = uv_now(stream->call.egress->loop);
    conn_h2_feed_stream(stream);
    return 0;
}

/* A request's, or its trailers. */
static void take_head(struct stream *stream, bool is_end)
{
    if (!stream->is_begun) {
        stream_begin(stream, !is_end);
        buf_clear(&stream->lines);
        stream->line_count = 0;
    } else if (stream->status && stream->call.exchange) {
        call_fail(&stream->call, 400, "the request's trailers are too large or malformed",
                  "client");
    }
}

/* nghttp2 resets the stream of a head that is malformed (RFC 9113, section 8.1.1), ahead of any
 * answer: here it has its line in the audit. */
static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code,
                            void *ctx)
{
    (void)code;
    (void)ctx;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (frame->hd.type != NGHTTP2_HEADERS || !stream)
        return 0;
    stream->status = stream->status ? stream->status : 400;
    take_head(stream, true);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    (void)ctx;
    bool is_head = frame->hd.type == NGHTTP2_HEADERS;
    bool is_end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (!is_head && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!stream)
        return 0;
    if (is_head)
        take_head(stream, is_end);
    if (is_end) {
        stream->in_ended = true;
        conn_h2_feed_stream(stream);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    (void)code;
    struct conn_h2 *h2 = ctx;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    if (stream)
        stream_free(stream);
    if (h2->stream_count == 0 && h2->conn->phase == CONN_H2)
        conn_set_deadline(h2->conn, LIMIT_EGRESS_KEEP_ALIVE_MS < h2->conn->egress->idle_ms
                                        ? LIMIT_EGRESS_KEEP_ALIVE_MS
                                        : h2->conn->egress->idle_ms);
    return 0;
}

/* ------------------------------------------------------------------------------ the connection */

int conn_h2_open(struct egress_conn *conn)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, LIMIT_EGRESS_HEAD_BYTES},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
    };
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    struct conn_h2 *h2 = calloc(1, sizeof(*h2));
    int result = h2 ? nghttp2_session_callbacks_new(&callbacks) : -ENOMEM;
    if (!result)
        result = nghttp2_option_new(&option);
    if (!result) {
        h2->conn = conn;
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_header);
        nghttp2_session_callbacks_set_on_invalid_header_callback2(callbacks, on_invalid_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1); /* h2_value */
        result = nghttp2_session_server_new2(&h2->session, callbacks, h2, option);
    }
    if (!result)
        result =
            nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
    if (!result)
        result = nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0,
                                                       CONNECTION_WINDOW);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    if (result) {
        if (h2)
            nghttp2_session_del(h2->session);
        free(h2);
        return -ENOMEM;
    }
    conn->h2 = h2;
    return 0;
}

void conn_h2_close(struct egress_conn *conn)
{
    struct conn_h2 *h2 = conn->h2;
    while (h2->streams)
        stream_free(h2->streams);
    nghttp2_session_del(h2->session);
    free(h2);
    conn->h2 = NULL;
}

bool conn_h2_feed(struct egress_conn *conn)
{
    struct conn_h2 *h2 = conn->h2;
    size_t len = conn->in.len - conn->in_used;
    if (len == 0)
        return true;
    bool was_idle = h2->stream_count == 0;
    ssize_t used =
        nghttp2_session_mem_recv(h2->session, (uint8_t *)conn->in.data + conn->in_used, len);
    conn->in_used = conn->in.len;
    if (was_idle && h2->stream_count)
        conn_set_deadline(conn, conn->egress->idle_ms);
    return used >= 0 && !h2->is_broken &&
           nghttp2_session_get_outbound_queue_size(h2->session) <= FRAMES_MAX;
}

bool conn_h2_fill(struct egress_conn *conn)
{
    struct conn_h2 *h2 = conn->h2;
    while (conn->out.len - conn->out_used < OUT_ENOUGH) {
        const uint8_t *data;
        ssize_t len = nghttp2_session_mem_send(h2->session, &data);
        if (len < 0 || (len && buf_append(conn_out(conn), data, (size_t)len)))
            return false;
        if (len == 0)
            break;
    }
    return nghttp2_session_want_read(h2->session) || nghttp2_session_want_write(h2->session);
}

size_t conn_h2_large_bytes(const struct egress_conn *conn)
{
    size_t bytes = 0;
    for (const struct stream *stream = conn->h2->streams; stream; stream = stream->next) {
        bytes +=
            egress_large(&stream->in) + egress_large(&stream->out) + egress_large(&stream->lines);
        if (stream->call.exchange)
            bytes += egress_exchange_large_bytes(stream->call.exchange);
    }
    return bytes;
}

int64_t conn_h2_on_deadline(struct egress_conn *conn)
{
    uint64_t now = uv_now(conn->egress->loop);
    uint64_t idle_ms = (uint64_t)conn->egress->idle_ms;
    uint64_t next = idle_ms;
    for (struct stream *stream = conn->h2->streams; stream; stream = stream->next) {
        uint64_t since = now - stream->touched_at;
        if (since < idle_ms) {
            next = idle_ms - since < next ? idle_ms - since : next;
        } else if (stream->call.exchange) {
            call_fail(&stream->call, 504, "no byte came or went for too long", "limit");
            stream->touched_at = now;
        } else { /* its answer is not taken, or its request never ends */
            conn_h2_reset(stream);
        }
    }
    return (int64_t)next;
}

bool conn_h2_is_idle(const struct egress_conn *conn)
{
    return conn->h2->stream_count == 0;
}

void conn_h2_judge_all(struct egress_conn *conn)
{
    for (struct stream *stream = conn->h2->streams; stream; stream = stream->next)
        call_judge_again(&stream->call);
}
