/*
 * HTTP/1.1 of a sandbox's client (RFC 9110, RFC 9112): heads and bodies of requests in, answers
 * out. Process: paddock-egress. Invariants: a length stays a length, chunks stay chunks, what ended
 * with its connection ends with ours.
 */
#include <string.h>

#include "egress/ca.h"
#include "egress/conn.h"
#include "util/cleanup.h"

static struct egress_conn *conn_of(struct call *call)
{
    return (struct egress_conn *)((char *)call - offsetof(struct egress_conn, call));
}

/* ------------------------------------------------------------------------------ the answer */

static void finish(struct egress_conn *conn, enum conn_finish how)
{
    conn->finish = how;
    conn_ask_turn(conn);
}

static int append_fields(struct buf *out, const struct http_field *fields, size_t count)
{
    int result = 0;
    for (size_t i = 0; i < count && !result; i++) {
        result = buf_append(out, fields[i].name, fields[i].name_len);
        if (!result)
            result = buf_append(out, ": ", 2);
        if (!result)
            result = buf_append(out, fields[i].value, fields[i].value_len);
        if (!result)
            result = buf_append(out, "\r\n", 2);
    }
    return result;
}

static int append_status_line(struct buf *out, int status, const char *reason)
{
    return buf_appendf(out, "HTTP/1.1 %d %s\r\n", status, reason);
}

static int h1_interim(struct call *call, int status, const char *reason,
                      const struct http_field *fields, size_t count)
{
    struct egress_conn *conn = conn_of(call);
    if (append_status_line(conn_out(conn), status, reason) ||
        append_fields(&conn->out, fields, count) || buf_append(&conn->out, "\r\n", 2))
        return -EMSGSIZE;
    conn_ask_turn(conn);
    return 0;
}

/* WebSocket's bytes (RFC 6455) are read as a body without end. */
static int h1_tunnel(struct call *call, const char *reason, const struct http_field *fields,
                     size_t count)
{
    struct egress_conn *conn = conn_of(call);
    conn->keep_alive = false;
    conn->is_tunnel = true;
    conn->body_ended = false;
    http1_body_init(&conn->body, EGRESS_BODY_LENGTH, UINT64_MAX);
    conn_ask_turn(conn);
    if (append_status_line(conn_out(conn), 101, reason) ||
        append_fields(&conn->out, fields, count) ||
        buf_append_string(&conn->out, "connection: Upgrade\r\nupgrade: websocket\r\n\r\n"))
        return -EMSGSIZE;
    return 0;
}

static bool is_chunked(const struct call *call)
{
    return call->answer == EGRESS_BODY_CHUNKED && !call->is_http10 && !call->answer_is_empty;
}

static int h1_head(struct call *call, int status, const char *reason,
                   const struct http_field *fields, size_t count)
{
    struct egress_conn *conn = conn_of(call);
    /* until the connection's end; HTTP/1.0 has no chunks */
    bool is_delimited = call->answer == EGRESS_BODY_LENGTH || is_chunked(call);
    if (!call->answer_is_empty && !is_delimited)
        conn->keep_alive = false;
    if (!conn->body.is_done)
        conn->keep_alive = false; /* what is left of the request is not waited for */
    int result = append_status_line(conn_out(conn), status, reason);
    if (!result)
        result = append_fields(&conn->out, fields, count);
    if (!result && is_chunked(call))
        result = buf_append_string(&conn->out, "transfer-encoding: chunked\r\n");
    if (!result && !conn->keep_alive)
        result = buf_append_string(&conn->out, "connection: close\r\n");
    if (!result)
        result = buf_append(&conn->out, "\r\n", 2);
    conn_ask_turn(conn);
    return result ? -EMSGSIZE : 0;
}

static int h1_body(struct call *call, const char *data, size_t len)
{
    struct egress_conn *conn = conn_of(call);
    if (conn->out.len - conn->out_used >= conn_queue_max(conn))
        return -EAGAIN;
    conn_ask_turn(conn);
    if (!is_chunked(call))
        return buf_append(&conn->out, data, len);
    int result = buf_appendf(&conn->out, "%zx\r\n", len);
    if (!result)
        result = buf_append(&conn->out, data, len);
    return result ? result : buf_append(&conn->out, "\r\n", 2);
}

static int h1_trailers(struct call *call, const struct http_field *fields, size_t count)
{
    struct egress_conn *conn = conn_of(call);
    if (!is_chunked(call))
        return 0;
    conn->last_chunk_sent = true;
    if (buf_append(&conn->out, "0\r\n", 3) || append_fields(&conn->out, fields, count) ||
        buf_append(&conn->out, "\r\n", 2))
        return -EMSGSIZE;
    return 0;
}

static void h1_complete(struct call *call)
{
    struct egress_conn *conn = conn_of(call);
    bool is_lost =
        is_chunked(call) && !conn->last_chunk_sent && buf_append(&conn->out, "0\r\n\r\n", 5);
    bool keeps = conn->keep_alive && conn->body.is_done;
    if (!is_lost)
        conn_flush(conn); /* the client need not wait for the audit; what failed, the turn finds */
    finish(conn, is_lost ? FINISH_RESET : keeps ? FINISH_KEEP : FINISH_CLOSE);
}

/* What is queued of an answer that cannot be completed may still go; then comes the reset. */
static void h1_cut(struct call *call)
{
    finish(conn_of(call), FINISH_RESET);
}

static void h1_refuse(struct call *call, const struct refusal *refusal)
{
    struct egress_conn *conn = conn_of(call);
    bool keeps =
        conn->keep_alive && !call->ends_connection && conn->body.is_done && !call->expects_continue;
    conn->phase = CONN_EXCHANGE;
    conn_touch(conn);
    if (refuse_append(conn_out(conn), refusal, call->is_head, keeps))
        finish(conn, FINISH_RESET);
    else
        finish(conn, keeps ? FINISH_KEEP : FINISH_CLOSE);
}

static void h1_writable(struct call *call)
{
    struct egress_conn *conn = conn_of(call);
    conn->body_blocked = false;
    conn_ask_turn(conn);
}

static void h1_touched(struct call *call)
{
    conn_touch(conn_of(call));
}

const struct call_front conn_h1_front = {
    .interim = h1_interim,
    .head = h1_head,
    .body = h1_body,
    .tunnel = h1_tunnel,
    .trailers = h1_trailers,
    .complete = h1_complete,
    .refuse = h1_refuse,
    .cut = h1_cut,
    .writable = h1_writable,
    .touched = h1_touched,
};

void conn_h1_refuse(struct egress_conn *conn, int status, const char *reason)
{
    call_open(&conn->call, "");
    conn->body.is_done = true;
    call_refuse(&conn->call, status, reason);
}

/* ------------------------------------------------------------------------------ the request */

static void begin(struct egress_conn *conn, const struct http1_head *head)
{
    call_open(&conn->call, head->method);
    conn->call.is_http10 = head->http.minor == 0;
    conn->keep_alive = head->keep_alive;
    conn->body_blocked = conn->last_chunk_sent = conn->is_tunnel = false;
    conn->body_ended = head->upgrade.len > 0; /* what ends is the tunnel, if there will be one */
    http1_body_init(&conn->body, head->body, head->body_length);
    buf_clear(&conn->trailers);
    http1_body_keep_trailers(&conn->body, &conn->trailers);
    conn->finish = FINISH_NONE;
    conn->phase = CONN_EXCHANGE;
    conn_touch(conn);
}

enum http1_result conn_take_head(struct egress_conn *conn)
{
    struct http1_head head;
    struct err err;
    enum http1_result result =
        http1_head_parse(conn->in.data + conn->in_used, conn->in.len - conn->in_used,
                         &conn->head_scanned, &head, &err);
    if (result == HTTP1_MORE)
        return result;
    conn->head_scanned = 0;
    begin(conn, &head);
    if (result == HTTP1_REFUSED) {
        call_refuse(&conn->call, head.status, err.message);
        return result;
    }
    conn->in_used += head.len;
    struct call_request request = {
        .method = head.method,
        .host = head.host,
        .target = head.target,
        .fields = head.http.fields,
        .field_count = head.http.field_count,
        .body = head.body,
        .body_length = head.body_length,
        .expects_continue = head.http.is_continue_awaited,
        .upgrade = head.upgrade,
        .wants_h2c = head.wants_h2c,
    };
    call_begin(&conn->call, &request);
    return result;
}

static void end_body(struct egress_conn *conn)
{
    struct http_field fields[LIMIT_HTTP_FIELDS];
    size_t count = 0;
    conn->body_ended = true;
    if (!conn->trailers.len ||
        !http1_fields_parse(conn->trailers.data, conn->trailers.len, fields, &count)) {
        call_write_end(&conn->call, fields, count);
        return;
    }
    conn->keep_alive = false;
    call_fail(&conn->call, 400, "the request's trailers are malformed", "client");
}

void conn_feed_body(struct egress_conn *conn)
{
    struct call *call = &conn->call;
    struct http1_body *body = &conn->body;
    struct err err;
    conn->body_blocked = false;
    while (call->exchange && !body->is_done && conn->in_used < conn->in.len) {
        const char *data = conn->in.data + conn->in_used;
        size_t body_len = 0;
        ssize_t used = http1_body_step(body, data, conn->in.len - conn->in_used, &body_len, &err);
        if (used < 0) {
            call_fail(call, 400, err.message, "client");
            return;
        }
        size_t taken = body_len ? call_write(call, data + used, body_len, conn_queue_max(conn)) : 0;
        http1_body_take(body, taken);
        conn->in_used += (size_t)used + taken;
        if (taken < body_len) {
            conn->body_blocked = true;
            return;
        }
    }
    if (call->exchange && body->is_done && !conn->body_ended)
        end_body(conn);
}

bool conn_end_tunnel_input(struct egress_conn *conn)
{
    if (!conn->is_tunnel || !conn->call.exchange || conn->body_ended)
        return false;
    conn->body.is_done = true;
    conn_feed_body(conn);
    return true;
}
