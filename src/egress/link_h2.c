/*
 * HTTP/2 towards an upstream (RFC 9113, nghttp2): many exchanges on a link. Process:
 * paddock-egress. A stream's window is what may wait of its answer in memory: small until its
 * client has taken something, then LIMIT_EGRESS_STREAM_BYTES, and given back only as the client
 * takes. The connection's window is given back at once, so that a client that reads slowly holds up
 * no other.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "egress/h2_lines.h"
#include "egress/link.h"
#include "util/cleanup.h"

#define FIRST_WINDOW 65535
#define CONNECTION_WINDOW (1024 * 1024)
#define STREAMS_MAX 100
#define OUT_ENOUGH (64 * 1024)

static struct egress_exchange *exchange_of(nghttp2_session *session, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(session, stream);
}

/* The stream goes on without anybody who waits for it. */
static void detach(struct egress_exchange *exchange)
{
    nghttp2_session_set_stream_user_data(exchange->link->session, exchange->stream, NULL);
}

/* ------------------------------------------------------------------------------ the answer */

static void finish(struct egress_exchange *exchange)
{
    struct link *link = exchange->link;
    struct http_field fields[LIMIT_HTTP_FIELDS];
    if (exchange->line_count) {
        size_t count = http1_fields_split(&exchange->lines, fields);
        exchange->events->trailers(exchange->ctx, fields, count);
        if (exchange->is_cancelled)
            return;
    }
    if (link) {
        detach(exchange);
        if (!exchange->out_ended || exchange->out.len > exchange->out_used)
            nghttp2_submit_rst_stream(link->session, NGHTTP2_FLAG_NONE, exchange->stream,
                                      NGHTTP2_NO_ERROR);
        link_ask_turn(link);
    }
    exchange_end(exchange, EGRESS_COMPLETE, NULL);
}

/* A client that takes what comes may have more of it under way, where its sandbox has not too many
 * such already. */
static void widen(struct egress_exchange *exchange)
{
    const struct egress_exchange_events *events = exchange->events;
    if (exchange->window_is_large || (events->widen && !events->widen(exchange->ctx)))
        return;
    exchange->window_is_large = true;
    nghttp2_session_set_local_window_size(exchange->link->session, NGHTTP2_FLAG_NONE,
                                          exchange->stream, LIMIT_EGRESS_STREAM_BYTES);
}

/* False: it is paused, or gone. */
static bool give(struct egress_exchange *exchange, const char *data, size_t len)
{
    struct link *link = exchange->link;
    if (!exchange->events->body(exchange->ctx, data, len)) {
        exchange->is_paused = !exchange->is_cancelled;
        return false;
    }
    if (exchange->is_cancelled)
        return false;
    if (link) {
        nghttp2_session_consume_stream(link->session, exchange->stream, len);
        widen(exchange);
    }
    return true;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t len, void *ctx)
{
    (void)flags;
    (void)ctx;
    struct egress_exchange *exchange = exchange_of(session, stream);
    nghttp2_session_consume_connection(session, len);
    if (!exchange)
        return 0;
    bool is_waiting = exchange->is_paused || exchange->in.len;
    if (!is_waiting && give(exchange, (const char *)data, len))
        return 0;
    if (!exchange->is_cancelled && buf_append(&exchange->in, data, len))
        return NGHTTP2_ERR_CALLBACK_FAILURE; /* more than its window, or no memory */
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    (void)ctx;
    struct egress_exchange *exchange = exchange_of(session, frame->hd.stream_id);
    if (!exchange)
        return 0;
    buf_clear(&exchange->lines);
    exchange->line_count = 0;
    exchange->status = 0;
    return 0;
}

/* RST_STREAM; the request is not sent again for it. */
static int refuse_head(struct egress_exchange *exchange, const char *reason)
{
    exchange->answer_began = true;
    snprintf(exchange->reason, sizeof(exchange->reason), "%s", reason);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static const char bad_head[] = "the upstream's answer has a head that is too large or malformed";

/* One with characters that none may have: nghttp2 would leave it out. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                             nghttp2_rcbuf *name, nghttp2_rcbuf *value, uint8_t flags, void *ctx)
{
    (void)name;
    (void)value;
    (void)flags;
    (void)ctx;
    struct egress_exchange *exchange = exchange_of(session, frame->hd.stream_id);
    return exchange ? refuse_head(exchange, bad_head) : 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                     nghttp2_rcbuf *value, uint8_t flags, void *ctx)
{
    (void)flags;
    (void)ctx;
    struct egress_exchange *exchange = exchange_of(session, frame->hd.stream_id);
    nghttp2_vec n = nghttp2_rcbuf_get_buf(name);
    nghttp2_vec v = h2_value(value);
    if (!exchange)
        return 0;
    if (n.len == 7 && memcmp(n.base, ":status", 7) == 0) {
        exchange->status = (int)http_length((const char *)v.base, v.len);
        if (exchange->status < 100)
            return refuse_head(exchange, bad_head);
        bool is_flood = exchange->status < 200 && ++exchange->interims > INTERIM_MAX;
        return is_flood ? refuse_head(exchange, "the upstream sends interim answers without end")
                        : 0;
    }
    bool is_bad = exchange->line_count == LIMIT_HTTP_FIELDS || n.base[0] == ':' ||
                  !http_is_value((const char *)v.base, v.len);
    if (is_bad || http1_fields_append(&exchange->lines, (const char *)n.base, n.len,
                                      (const char *)v.base, v.len))
        return refuse_head(exchange, bad_head);
    exchange->line_count++;
    return 0;
}

/* A head that came whole: an interim one, the answer's, or trailers. */
static void take_head(struct egress_exchange *exchange)
{
    struct http_field fields[LIMIT_HTTP_FIELDS];
    if (exchange->status == 0)
        return; /* trailers: told at the end */
    exchange->answer_began = true;
    size_t count = exchange->line_count ? http1_fields_split(&exchange->lines, fields) : 0;
    exchange->events->head(exchange->ctx, exchange->status, "", fields, count);
    if (exchange->is_cancelled)
        return;
    if (exchange->status < 200)
        exchange_count_interim(exchange, exchange->lines.len);
    buf_clear(&exchange->lines);
    exchange->line_count = 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct link *link = ctx;
    bool may_end = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        link->is_going = true;
    struct egress_exchange *exchange = may_end ? exchange_of(session, frame->hd.stream_id) : NULL;
    if (exchange && frame->hd.type == NGHTTP2_HEADERS) {
        take_head(exchange);
        exchange = exchange_of(session, frame->hd.stream_id);
    }
    if (!exchange || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    exchange->in_ended = true;
    if (exchange->in.len == 0 && !exchange->is_paused)
        finish(exchange);
    return 0;
}

static void lose(struct egress_exchange *exchange, uint32_t code)
{
    char text[sizeof(exchange->reason)];
    bool is_ours = exchange->reason[0] || code == NGHTTP2_PROTOCOL_ERROR;
    detach(exchange);
    /* RFC 9113, section 8.7: it was not looked at, so that any method may be repeated */
    exchange->was_refused = code == NGHTTP2_REFUSED_STREAM;
    if (exchange->reason[0])
        snprintf(text, sizeof(text), "%s", exchange->reason);
    else
        snprintf(text, sizeof(text), "the upstream reset the stream: %s",
                 nghttp2_http2_strerror(code));
    exchange->reason[0] = '\0';
    exchange_lost(exchange, is_ours ? EGRESS_FAILED_ANSWER : EGRESS_FAILED_CUT, text);
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code, void *ctx)
{
    struct link *link = ctx;
    struct egress_exchange *exchange = exchange_of(session, stream);
    link->streams--;
    if (exchange && !exchange->in_ended)
        lose(exchange, code);
    else if (exchange)
        exchange->link = NULL; /* what came is still to be given */
    if (link->streams == 0)
        link_set_idle(link, true);
    link_ask_turn(link);
    return 0;
}

/* ------------------------------------------------------------------------------ the request */

static int submit_trailers(struct egress_exchange *exchange)
{
    struct http_field fields[LIMIT_HTTP_FIELDS];
    nghttp2_nv lines[LIMIT_HTTP_FIELDS];
    size_t count = http1_fields_split(&exchange->trailers, fields);
    for (size_t i = 0; i < count; i++)
        lines[i] = h2_line_of(&fields[i]);
    return nghttp2_submit_trailer(exchange->link->session, exchange->stream, lines, count);
}

static ssize_t on_read_body(nghttp2_session *session, int32_t stream, uint8_t *data, size_t len,
                            uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    (void)ctx;
    (void)source;
    struct egress_exchange *exchange = exchange_of(session, stream);
    if (!exchange)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t there = exchange->out.len - exchange->out_used;
    size_t taken = there < len ? there : len;
    if (taken)
        memcpy(data, exchange->out.data + exchange->out_used, taken);
    exchange->out_used += taken;
    exchange->out_began = exchange->out_began || taken;
    if (exchange->out_used == exchange->out.len) {
        if (exchange->out.capacity > LIMIT_EGRESS_OWN_BUFFER_BYTES)
            buf_free(&exchange->out);
        buf_clear(&exchange->out);
        exchange->out_used = 0;
        exchange_writable(exchange);
    }
    bool is_end = exchange->out_ended && exchange->out.len == 0;
    if (is_end)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (is_end && exchange->trailer_count && submit_trailers(exchange) == 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return taken == 0 && !is_end ? NGHTTP2_ERR_DEFERRED : (ssize_t)taken;
}

static int submit_lines(struct egress_exchange *exchange)
{
    const struct origin *origin = exchange->origin;
    nghttp2_nv lines[LIMIT_HTTP_FIELDS + LIMIT_EGRESS_SET_HEADERS + 8];
    size_t count = 0;
    char authority[POLICY_HOST_MAX + 8];
    char length[32];
    snprintf(authority, sizeof(authority), origin->port == 443 ? "%s" : "%s:%u", origin->host,
             origin->port);
    lines[count++] = h2_line(":method", exchange->method);
    lines[count++] = h2_line(":scheme", "https");
    lines[count++] = h2_line(":authority", authority);
    lines[count++] = h2_line(":path", exchange->target);
    for (size_t i = 0; i < exchange->header_count; i++)
        lines[count++] = h2_line_of(&exchange->headers[i]);
    if (exchange->body == EGRESS_BODY_LENGTH) {
        snprintf(length, sizeof(length), "%llu", (unsigned long long)exchange->body_length);
        lines[count++] = h2_line("content-length", length);
    }
    if (exchange->expects_continue)
        lines[count++] = h2_line("expect", "100-continue");
    if (exchange->takes_trailers)
        lines[count++] = h2_line("te", "trailers");
    nghttp2_data_provider body = {.read_callback = on_read_body};
    bool has_body = exchange->body != EGRESS_BODY_NONE;
    return nghttp2_submit_request(exchange->link->session, NULL, lines, count,
                                  has_body ? &body : NULL, exchange);
}

static void h2_submit(struct link *link, struct egress_exchange *exchange)
{
    exchange->link = link;
    exchange->is_on_used_link = link->was_used;
    exchange->stream = submit_lines(exchange);
    if (exchange->stream < 0) {
        exchange_end_later(exchange, EGRESS_FAILED_SELF, nghttp2_strerror(exchange->stream));
        return;
    }
    link->streams++;
    link_ask_turn(link);
}

static size_t h2_write(struct egress_exchange *exchange, const char *data, size_t len, size_t most)
{
    struct link *link = exchange->link;
    size_t waits = exchange->out.len - exchange->out_used;
    size_t room = most > waits ? most - waits : 0;
    size_t taken = len < room ? len : room;
    if (exchange->out_used == exchange->out.len) {
        buf_clear(&exchange->out);
        exchange->out_used = 0;
    }
    if (taken && buf_append(&exchange->out, data, taken))
        return 0;
    if (taken) {
        nghttp2_session_resume_data(link->session, exchange->stream);
        link_ask_turn(link);
    }
    return taken;
}

static void h2_write_end(struct egress_exchange *exchange)
{
    nghttp2_session_resume_data(exchange->link->session, exchange->stream);
    link_ask_turn(exchange->link);
}

static void h2_resume(struct egress_exchange *exchange)
{
    struct link *link = exchange->link;
    while (exchange->in_used < exchange->in.len) {
        size_t len = exchange->in.len - exchange->in_used;
        len = len < GIVE_BYTES ? len : GIVE_BYTES;
        if (!give(exchange, exchange->in.data + exchange->in_used, len))
            return;
        exchange->in_used += len;
        if (exchange->in_used >= exchange->in.len / 2) { /* so it never holds two windows */
            buf_consume(&exchange->in, exchange->in_used);
            exchange->in_used = 0;
        }
    }
    buf_free(&exchange->in);
    exchange->in_used = 0;
    if (link)
        link_ask_turn(link); /* window updates */
    if (exchange->in_ended)
        finish(exchange);
}

static void h2_drop(struct egress_exchange *exchange)
{
    detach(exchange);
    nghttp2_submit_rst_stream(exchange->link->session, NGHTTP2_FLAG_NONE, exchange->stream,
                              NGHTTP2_CANCEL);
    link_ask_turn(exchange->link);
}

/* ------------------------------------------------------------------------------ the link */

static bool h2_has_room(const struct link *link)
{
    uint32_t most =
        nghttp2_session_get_remote_settings(link->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    return !link->is_going && link->streams < (most < STREAMS_MAX ? most : STREAMS_MAX) &&
           nghttp2_session_check_request_allowed(link->session);
}

static bool h2_over(struct link *link, enum egress_failure failure, const char *reason)
{
    link_fail(link, failure, reason);
    return false;
}

static bool h2_feed(struct link *link, const char *data, size_t len)
{
    struct origin *origin = link->origin;
    ssize_t used = nghttp2_session_mem_recv(link->session, (const uint8_t *)data, len);
    if (used < 0)
        return h2_over(link, EGRESS_FAILED_ANSWER, nghttp2_strerror((int)used));
    if (origin->waiting)
        origin_serve(origin);
    return true;
}

static bool h2_fill(struct link *link)
{
    while (link->out.len - link->out_used < OUT_ENOUGH) {
        const uint8_t *data;
        ssize_t len = nghttp2_session_mem_send(link->session, &data);
        if (len < 0)
            return h2_over(link, EGRESS_FAILED_SELF, nghttp2_strerror((int)len));
        if (len == 0)
            break;
        if (buf_append(&link->out, data, (size_t)len))
            return h2_over(link, EGRESS_FAILED_SELF, "out of memory for a request");
    }
    bool is_done = !nghttp2_session_want_read(link->session) &&
                   !nghttp2_session_want_write(link->session) && link->out.len == 0;
    return is_done ? h2_over(link, EGRESS_FAILED_CUT, "the upstream ended the connection") : true;
}

static bool h2_wants_input(const struct link *link)
{
    (void)link;
    return true; /* each stream has its window */
}

static void h2_ended(struct link *link, bool is_clean)
{
    (void)is_clean;
    link_fail(link, EGRESS_FAILED_CUT, "the upstream's connection was cut");
}

static void h2_fail(struct link *link, enum egress_failure failure, const char *reason)
{
    link->is_doomed = true;
    for (;;) {
        struct egress_exchange *exchange = link->upstreams->exchanges;
        while (exchange && exchange->link != link)
            exchange = exchange->next;
        if (!exchange)
            return;
        detach(exchange);
        exchange->link = NULL;
        if (exchange->in_ended)
            continue; /* all of it came */
        if (failure == EGRESS_FAILED_CUT && exchange->is_on_used_link)
            exchange_lost(exchange, failure, reason);
        else
            exchange_end(exchange, failure, reason);
    }
}

static nghttp2_session_callbacks *callbacks_new(void)
{
    nghttp2_session_callbacks *callbacks = NULL;
    if (nghttp2_session_callbacks_new(&callbacks))
        return NULL;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback2(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    return callbacks;
}

static int h2_open(struct link *link)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, LIMIT_EGRESS_ANSWER_HEAD_BYTES},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, FIRST_WINDOW},
    };
    nghttp2_session_callbacks *callbacks = callbacks_new();
    nghttp2_option *option = NULL;
    if (!callbacks || nghttp2_option_new(&option)) {
        nghttp2_session_callbacks_del(callbacks);
        return -ENOMEM;
    }
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1); /* h2_value */
    int result = nghttp2_session_client_new2(&link->session, callbacks, link, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    if (result ||
        nghttp2_submit_settings(link->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings)) ||
        nghttp2_session_set_local_window_size(link->session, NGHTTP2_FLAG_NONE, 0,
                                              CONNECTION_WINDOW)) {
        nghttp2_session_del(link->session);
        link->session = NULL;
        return -ENOMEM;
    }
    return 0;
}

static void h2_close(struct link *link)
{
    if (link->ssl)
        SSL_shutdown(link->ssl);
    nghttp2_session_del(link->session);
    link->session = NULL;
}

const struct link_protocol link_h2 = {
    .open = h2_open,
    .close = h2_close,
    .has_room = h2_has_room,
    .submit = h2_submit,
    .feed = h2_feed,
    .wants_input = h2_wants_input,
    .fill = h2_fill,
    .ended = h2_ended,
    .fail = h2_fail,
    .write = h2_write,
    .write_end = h2_write_end,
    .resume = h2_resume,
    .drop = h2_drop,
};
