/*
 * What goes back to the sandbox: the upstream's answer, or our own. Process: paddock-egress.
 * Invariants: an answer that was cut upstream is never ended cleanly; a length stays a length,
 * chunks stay chunks, what ended with its connection ends with ours; no header with a secret of the
 * rule is passed on. The callbacks only fill conn->out and ask for a turn.
 */
#include <string.h>

#include "egress/audit.h"
#include "egress/conn.h"
#include "util/cleanup.h"

void conn_request_clear(struct conn_request *request)
{
    if (request->exchange)
        egress_exchange_cancel(request->exchange);
    policy_unref(request->policy);
    for (size_t i = 0; i < request->secret_count; i++)
        secret_free(&request->secrets[i]);
    buf_free(&request->path);
    buf_free(&request->query);
    memset(request, 0, sizeof(*request));
}

void conn_audit(struct egress_conn *conn, const char *decision, const char *reason,
                const char *ended_by)
{
    const struct conn_request *request = &conn->request;
    int64_t now = (int64_t)uv_now(conn->egress->loop);
    int64_t started = (int64_t)request->started_at;
    struct egress_audit_entry entry = {
        .started_ms = request->started_ms,
        .sandbox = egress_sandbox_name(conn->sandbox),
        .boot_id = egress_sandbox_boot_id(conn->sandbox),
        .rule = request->rule ? policy_rule_name(request->rule) : NULL,
        .decision = decision,
        .reason = reason,
        .method = request->method,
        .host = request->host,
        .path = buf_text(&request->path),
        .status = request->status,
        .bytes_out = request->bytes_out,
        .bytes_in = request->bytes_in,
        .first_byte_ms =
            request->first_byte_at ? (int64_t)request->first_byte_at - started : now - started,
        .duration_ms = now - started,
        .ended_by = ended_by,
    };
    egress_audit_write(conn->egress->audit, &entry);
}

static void finish(struct egress_conn *conn, enum conn_finish how)
{
    conn->finish = how;
    conn_ask_turn(conn);
}

/* What is queued of an answer that cannot be completed may still go; then comes the reset. */
static void begin_own_answer(struct egress_conn *conn, const struct refusal *refusal)
{
    struct conn_request *request = &conn->request;
    bool keeps = request->keep_alive && request->body.is_done && !request->expects_continue;
    request->status = refusal->status;
    request->head_sent = true;
    conn->phase = CONN_EXCHANGE;
    conn_touch(conn);
    if (refuse_append(&conn->out, refusal, request->is_head, keeps))
        finish(conn, FINISH_RESET);
    else
        finish(conn, keeps ? FINISH_KEEP : FINISH_CLOSE);
}

void conn_answer_refusal(struct egress_conn *conn, const struct refusal *refusal,
                         const char *decision)
{
    begin_own_answer(conn, refusal);
    char reason[REFUSE_TEXT_MAX];
    snprintf(reason, sizeof(reason), "%.*s", (int)strlen(refusal->text) - 1, refusal->text);
    conn_audit(conn, decision, reason, "policy");
}

void conn_fail(struct egress_conn *conn, int status, const char *reason, const char *ended_by)
{
    struct conn_request *request = &conn->request;
    if (request->exchange) {
        egress_exchange_cancel(request->exchange);
        request->exchange = NULL;
    }
    if (request->head_sent) {
        finish(conn, FINISH_RESET);
    } else {
        struct refusal refusal;
        char text[REFUSE_TEXT_MAX];
        snprintf(text, sizeof(text), "%s: %s", request->host, reason);
        refuse_with(status, text, &refusal);
        begin_own_answer(conn, &refusal);
    }
    conn_audit(conn, "error", reason, ended_by);
}

static bool holds_secret(const struct conn_request *request, const struct http_field *header)
{
    for (size_t i = 0; i < request->secret_count; i++) {
        const struct secret *secret = &request->secrets[i];
        if (memmem(header->value, header->value_len, secret->data, secret->len) ||
            memmem(header->name, header->name_len, secret->data, secret->len))
            return true;
    }
    return false;
}

/* Appends the headers that go on. `drops_length`: framing is ours to say. */
static int append_headers(struct egress_conn *conn, const struct http_field *headers, size_t count,
                          bool drops_length)
{
    int result = 0;
    for (size_t i = 0; i < count && !result; i++) {
        const struct http_field *header = &headers[i];
        /* Trailer tells which trailers come, and those are relayed. */
        bool is_trailer = http_field_is(header, "trailer") && !conn->request.is_http10;
        if ((!is_trailer && http1_is_hop_by_hop(headers, count, header->name, header->name_len)) ||
            (drops_length && http_field_is(header, "content-length")) ||
            holds_secret(&conn->request, header))
            continue;
        result = buf_append(&conn->out, header->name, header->name_len);
        if (!result)
            result = buf_append(&conn->out, ": ", 2);
        if (!result)
            result = buf_append(&conn->out, header->value, header->value_len);
        if (!result)
            result = buf_append(&conn->out, "\r\n", 2);
    }
    return result;
}

static int append_status_line(struct egress_conn *conn, int status, const char *reason)
{
    struct http_field line = {"", 0, reason, strlen(reason)};
    return buf_appendf(&conn->out, "HTTP/1.1 %d %s\r\n", status,
                       holds_secret(&conn->request, &line) ? "" : reason);
}

static void relay_interim(struct egress_conn *conn, int status, const char *reason,
                          const struct http_field *headers, size_t count)
{
    struct conn_request *request = &conn->request;
    if (request->is_http10 || (status == 100 && !request->expects_continue))
        return;
    if (append_status_line(conn, status, reason) || append_headers(conn, headers, count, true) ||
        buf_append(&conn->out, "\r\n", 2))
        conn_fail(conn, 502, "the answer's head is too large", "limit");
    conn_ask_turn(conn);
}

/* How the answer's body is framed for this client. */
static int settle_framing(struct conn_request *request, int status,
                          const struct http_field *headers, size_t count, struct err *err)
{
    enum egress_body kind;
    uint64_t length;
    if (http1_answer_framing(headers, count, &kind, &length, err))
        return -EBADMSG;
    request->answer_is_empty = request->is_head || status == 204 || status == 304;
    if (kind == EGRESS_BODY_NONE && egress_exchange_is_framed(request->exchange))
        kind = EGRESS_BODY_CHUNKED;
    request->answer = kind;
    request->answer_left = length;
    if (kind == EGRESS_BODY_CHUNKED && request->is_http10)
        request->answer = EGRESS_BODY_NONE; /* HTTP/1.0 has no chunks: until close */
    if (!request->answer_is_empty && request->answer == EGRESS_BODY_NONE)
        request->keep_alive = false;
    return 0;
}

static void on_head(void *ctx, int status, const char *reason, const struct http_field *headers,
                    size_t count)
{
    struct egress_conn *conn = ctx;
    struct conn_request *request = &conn->request;
    struct err err;
    if (status < 200) {
        relay_interim(conn, status, reason, headers, count);
        return;
    }
    if (settle_framing(request, status, headers, count, &err)) {
        conn_fail(conn, 502, err.message, "upstream");
        return;
    }
    bool is_chunked = request->answer == EGRESS_BODY_CHUNKED;
    if (!request->body.is_done)
        request->keep_alive = false; /* what is left of the request is not waited for */
    int result = append_status_line(conn, status, reason);
    if (!result)
        result = append_headers(conn, headers, count, request->answer != EGRESS_BODY_LENGTH);
    if (!result && is_chunked && !request->answer_is_empty)
        result = buf_append_string(&conn->out, "transfer-encoding: chunked\r\n");
    if (!result && !request->keep_alive)
        result = buf_append_string(&conn->out, "connection: close\r\n");
    if (!result)
        result = buf_append(&conn->out, "\r\n", 2);
    if (result) {
        conn_fail(conn, 502, "the answer's head is too large", "limit");
        return;
    }
    request->head_sent = true;
    request->status = status;
    request->first_byte_at = uv_now(conn->egress->loop);
    conn_ask_turn(conn);
}

static int append_body(struct egress_conn *conn, const char *data, size_t len)
{
    if (conn->request.answer != EGRESS_BODY_CHUNKED)
        return buf_append(&conn->out, data, len);
    int result = buf_appendf(&conn->out, "%zx\r\n", len);
    if (!result)
        result = buf_append(&conn->out, data, len);
    if (!result)
        result = buf_append(&conn->out, "\r\n", 2);
    return result;
}

static bool on_body(void *ctx, const char *data, size_t len)
{
    struct egress_conn *conn = ctx;
    struct conn_request *request = &conn->request;
    if (conn->out.len - conn->out_used >= conn_queue_max(conn)) {
        request->is_paused = true;
        return false;
    }
    if (request->answer_is_empty)
        return true;
    if (request->answer == EGRESS_BODY_LENGTH) {
        if (len > request->answer_left)
            len = (size_t)request->answer_left;
        request->answer_left -= len;
    }
    if (append_body(conn, data, len)) {
        conn_fail(conn, 502, "out of memory for the answer", "limit");
        return false;
    }
    request->bytes_in += len;
    conn_touch(conn);
    conn_ask_turn(conn);
    return true;
}

static void on_trailers(void *ctx, const struct http_field *headers, size_t count)
{
    struct egress_conn *conn = ctx;
    if (conn->request.answer != EGRESS_BODY_CHUNKED || conn->request.answer_is_empty)
        return;
    conn->request.last_chunk_sent = true;
    if (buf_append(&conn->out, "0\r\n", 3) || append_headers(conn, headers, count, true) ||
        buf_append(&conn->out, "\r\n", 2))
        conn->finish = FINISH_RESET;
}

static void on_writable(void *ctx)
{
    struct egress_conn *conn = ctx;
    conn->request.body_blocked = false;
    conn_touch(conn);
    conn_ask_turn(conn);
}

static void on_complete(struct egress_conn *conn)
{
    struct conn_request *request = &conn->request;
    bool is_short = request->answer == EGRESS_BODY_LENGTH && request->answer_left > 0;
    if (conn->finish == FINISH_RESET || (is_short && !request->answer_is_empty)) {
        conn_fail(conn, 502, "the upstream's answer was cut short", "upstream");
        return;
    }
    if (request->answer == EGRESS_BODY_CHUNKED && !request->answer_is_empty &&
        !request->last_chunk_sent && buf_append(&conn->out, "0\r\n\r\n", 5)) {
        conn_fail(conn, 502, "out of memory for the answer", "limit");
        return;
    }
    bool keeps = request->keep_alive && request->body.is_done;
    conn_audit(conn, "allowed", "", "upstream");
    finish(conn, keeps ? FINISH_KEEP : FINISH_CLOSE);
}

static void on_end(void *ctx, enum egress_failure failure, const char *reason)
{
    struct egress_conn *conn = ctx;
    conn->request.exchange = NULL;
    if (failure)
        conn_fail(conn, 502, reason, "upstream");
    else
        on_complete(conn);
}

const struct egress_exchange_events conn_exchange_events = {
    .head = on_head,
    .body = on_body,
    .trailers = on_trailers,
    .writable = on_writable,
    .end = on_end,
};
