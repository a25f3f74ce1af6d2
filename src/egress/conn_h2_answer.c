/* Answers to a sandbox's client over HTTP/2 (RFC 9113, section 8.1); see conn_h2.c. */
#include <stdio.h>
#include <string.h>

#include "egress/conn_h2.h"
#include "egress/h2_lines.h"
#include "http/date.h"
#include "util/cleanup.h"

static struct stream *stream_of(struct call *call)
{
    return (struct stream *)((char *)call - offsetof(struct stream, call));
}

/* The fields as lines; `copy` holds their texts, whose names change. */
static int lines_of(struct buf *copy, const struct http_field *fields, size_t count,
                    nghttp2_nv *ret)
{
    struct http_field own[LIMIT_HTTP_FIELDS];
    for (size_t i = 0; i < count; i++)
        if (http1_fields_append(copy, fields[i].name, fields[i].name_len, fields[i].value,
                                fields[i].value_len))
            return -EMSGSIZE;
    size_t kept = count ? http1_fields_split(copy, own) : 0;
    for (size_t i = 0; i < kept; i++)
        ret[i] = h2_line_of(&own[i]);
    return 0;
}

static void ask_turn(struct stream *stream)
{
    conn_ask_turn(stream->h2->conn);
}

static int h2_interim(struct call *call, int status, const char *reason,
                      const struct http_field *fields, size_t count)
{
    (void)reason;
    struct stream *stream = stream_of(call);
    cleanup_buf struct buf copy = BUF_INIT(2 * LIMIT_EGRESS_ANSWER_HEAD_BYTES);
    nghttp2_nv lines[LIMIT_HTTP_FIELDS + 1];
    char text[16];
    snprintf(text, sizeof(text), "%d", status);
    lines[0] = h2_line(":status", text);
    if (lines_of(&copy, fields, count, lines + 1) ||
        nghttp2_submit_headers(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id, NULL, lines,
                               count + 1, NULL))
        return -EMSGSIZE;
    ask_turn(stream);
    return 0;
}

static int submit_trailers(struct stream *stream)
{
    struct http_field fields[LIMIT_HTTP_FIELDS];
    nghttp2_nv lines[LIMIT_HTTP_FIELDS];
    size_t count = http1_fields_split(&stream->out_trailers, fields);
    for (size_t i = 0; i < count; i++)
        lines[i] = h2_line_of(&fields[i]);
    return nghttp2_submit_trailer(stream->h2->session, stream->id, lines, count);
}

static ssize_t on_read_answer(nghttp2_session *session, int32_t id, uint8_t *data, size_t len,
                              uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    (void)session;
    (void)id;
    (void)ctx;
    struct stream *stream = source->ptr;
    size_t there = stream->out.len - stream->out_used;
    size_t taken = there < len ? there : len;
    if (taken)
        memcpy(data, stream->out.data + stream->out_used, taken);
    stream->out_used += taken;
    if (stream->out_used == stream->out.len) {
        if (stream->out.capacity > LIMIT_EGRESS_OWN_BUFFER_BYTES)
            buf_free(&stream->out);
        buf_clear(&stream->out);
        stream->out_used = 0;
    }
    stream->touched_at = uv_now(stream->call.egress->loop);
    if (stream->out.len - stream->out_used < conn_queue_max(stream->h2->conn) / 2)
        call_resume(&stream->call);
    if (stream->is_cut && taken == 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* RST_STREAM, INTERNAL_ERROR */
    bool is_end = stream->out_ended && stream->out.len == 0;
    if (is_end)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (is_end && stream->out_trailer_count && submit_trailers(stream) == 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return taken == 0 && !is_end ? NGHTTP2_ERR_DEFERRED : (ssize_t)taken;
}

static int submit_answer(struct stream *stream, int status, const struct http_field *fields,
                         size_t count, bool has_body)
{
    cleanup_buf struct buf copy = BUF_INIT(2 * LIMIT_EGRESS_ANSWER_HEAD_BYTES);
    nghttp2_nv lines[LIMIT_HTTP_FIELDS + 2];
    char text[16];
    snprintf(text, sizeof(text), "%d", status);
    lines[0] = h2_line(":status", text);
    nghttp2_data_provider body = {.source.ptr = stream, .read_callback = on_read_answer};
    if (lines_of(&copy, fields, count, lines + 1) ||
        nghttp2_submit_response(stream->h2->session, stream->id, lines, count + 1,
                                has_body ? &body : NULL))
        return -EMSGSIZE;
    stream->has_body = has_body;
    ask_turn(stream);
    return 0;
}

static int h2_head(struct call *call, int status, const char *reason,
                   const struct http_field *fields, size_t count)
{
    (void)reason;
    return submit_answer(stream_of(call), status, fields, count, !call->answer_is_empty);
}

static int h2_body(struct call *call, const char *data, size_t len)
{
    struct stream *stream = stream_of(call);
    if (stream->out.len - stream->out_used >= conn_queue_max(stream->h2->conn))
        return -EAGAIN;
    buf_consume(&stream->out, stream->out_used);
    stream->out_used = 0;
    int result = buf_append(&stream->out, data, len);
    nghttp2_session_resume_data(stream->h2->session, stream->id);
    ask_turn(stream);
    return result;
}

static int h2_trailers(struct call *call, const struct http_field *fields, size_t count)
{
    struct stream *stream = stream_of(call);
    for (size_t i = 0; i < count; i++) {
        if (http1_fields_append(&stream->out_trailers, fields[i].name, fields[i].name_len,
                                fields[i].value, fields[i].value_len))
            return -EMSGSIZE;
        stream->out_trailer_count++;
    }
    return 0;
}

/* The request's rest is not waited for: RFC 9113, section 8.1. */
static void h2_complete(struct call *call)
{
    struct stream *stream = stream_of(call);
    stream->out_ended = true;
    nghttp2_session_resume_data(stream->h2->session, stream->id);
    ask_turn(stream);
}

void conn_h2_reset(struct stream *stream)
{
    nghttp2_submit_rst_stream(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id,
                              NGHTTP2_INTERNAL_ERROR);
    ask_turn(stream);
}

/* What came of the answer may still go; then comes the reset. */
static void h2_cut(struct call *call)
{
    struct stream *stream = stream_of(call);
    if (!stream->has_body) {
        conn_h2_reset(stream);
        return;
    }
    stream->is_cut = true;
    nghttp2_session_resume_data(stream->h2->session, stream->id);
    ask_turn(stream);
}

static void h2_refuse(struct call *call, const struct refusal *refusal)
{
    struct stream *stream = stream_of(call);
    cleanup_buf struct buf body = BUF_INIT(REFUSE_BODY_MAX);
    const char *type = refuse_content_type(refusal);
    char length[32], date[HTTP_DATE_SIZE];
    if (refuse_append_body(&body, refusal))
        stream->h2->is_broken = true;
    snprintf(length, sizeof(length), "%zu", body.len);
    struct http_field fields[6] = {
        {"date", 4, http_date(date), HTTP_DATE_SIZE - 1},
        {"content-type", 12, type, strlen(type)},
        {"content-length", 14, length, strlen(length)},
        {"x-paddock-reason", 16, refusal->text, strlen(refusal->text) - 1},
    };
    size_t count = 4;
    if (refusal->is_final)
        fields[count++] = (struct http_field){"x-should-retry", 14, "false", 5};
    if (refusal->status == 405)
        fields[count++] = (struct http_field){"allow", 5, REFUSE_ALLOW, sizeof(REFUSE_ALLOW) - 1};
    stream->out_ended = true;
    if (!call->is_head && buf_append(&stream->out, buf_text(&body), body.len))
        stream->h2->is_broken = true;
    if (submit_answer(stream, refusal->status, fields, count, !call->is_head))
        conn_h2_reset(stream);
}

static void h2_writable(struct call *call)
{
    struct stream *stream = stream_of(call);
    stream->touched_at = uv_now(call->egress->loop);
    conn_h2_feed_stream(stream);
    ask_turn(stream);
}

static void h2_touched(struct call *call)
{
    stream_of(call)->touched_at = uv_now(call->egress->loop);
}

const struct call_front conn_h2_front = {
    .interim = h2_interim,
    .head = h2_head,
    .body = h2_body,
    .trailers = h2_trailers,
    .complete = h2_complete,
    .refuse = h2_refuse,
    .cut = h2_cut,
    .writable = h2_writable,
    .touched = h2_touched,
};
