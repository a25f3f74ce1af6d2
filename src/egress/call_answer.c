/*
 * What goes back to the sandbox: the upstream's answer, or our own. Process: paddock-egress. The
 * callbacks only fill the front's queue.
 */
#include <string.h>

#include "egress/call_internal.h"
#include "http/date.h"
#include "util/cleanup.h"

static void answer_ourselves(struct call *call, const struct refusal *refusal)
{
    struct refusal own = *refusal;
    own.is_json = call->wants_json;
    call->status = own.status;
    call->head_sent = true;
    call->front->refuse(call, &own);
}

/* The exchange is over, or will be. */
static struct egress_exchange *leave_exchange(struct call *call)
{
    struct egress_exchange *exchange = TAKE_PTR(call->exchange);
    call->was_sent = exchange && egress_exchange_was_sent(exchange);
    return exchange;
}

static void drop_exchange(struct call *call)
{
    struct egress_exchange *exchange = leave_exchange(call);
    if (exchange)
        egress_exchange_cancel(exchange);
}

/* `reason` is the audit's. */
static void stop(struct call *call, const struct refusal *refusal, const char *decision,
                 const char *reason, const char *ended_by)
{
    drop_exchange(call);
    if (call->head_sent)
        call->front->cut(call);
    else
        answer_ourselves(call, refusal);
    call_audit(call, decision, reason, ended_by);
}

void call_stop(struct call *call, const struct refusal *refusal, const char *decision,
               const char *ended_by)
{
    char reason[REFUSE_TEXT_MAX];
    snprintf(reason, sizeof(reason), "%.*s", (int)strlen(refusal->text) - 1, refusal->text);
    stop(call, refusal, decision, reason, ended_by);
}

void call_answer_refusal(struct call *call, const struct refusal *refusal, const char *decision)
{
    call_stop(call, refusal, decision, "policy");
}

void call_fail(struct call *call, int status, const char *reason, const char *ended_by)
{
    struct refusal refusal;
    char text[REFUSE_TEXT_MAX + POLICY_HOST_MAX];
    snprintf(text, sizeof(text), "%s: %s", call->host, reason);
    refuse_with(status, text, &refusal);
    stop(call, &refusal, "error", reason, ended_by);
}

/* The exchange ended, and not well. */
static void fail_by_upstream(struct call *call, enum egress_failure failure, const char *reason)
{
    struct refusal refusal;
    call->failure = failure;
    refuse_by_failure(failure, call->host, reason, &refusal);
    stop(call, &refusal, "error", reason, "upstream");
}

void call_abandon(struct call *call)
{
    if (!call->exchange)
        return;
    drop_exchange(call);
    call_audit(call, "allowed", "the connection ended before the answer did", "client");
}

static bool holds_secret(const struct call *call, const char *data, size_t len)
{
    for (size_t i = 0; i < call->secret_count; i++)
        if (memmem(data, len, call->secrets[i].data, call->secrets[i].len))
            return true;
    return false;
}

/* Those that go on. Framing is the front's to say: a length is not among them. */
static size_t filter(const struct call *call, const struct http_field *fields, size_t count,
                     struct http_field ret[LIMIT_HTTP_FIELDS])
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct http_field *field = &fields[i];
        /* Trailer tells which trailers come, and those are relayed. */
        bool is_trailer = http_field_is(field, "trailer") && !call->is_http10;
        if ((!is_trailer && http1_is_hop_by_hop(fields, count, field->name, field->name_len)) ||
            http_field_is(field, "content-length") || http_field_is(field, "x-paddock-reason") ||
            holds_secret(call, field->value, field->value_len) ||
            holds_secret(call, field->name, field->name_len))
            continue;
        ret[kept++] = *field;
    }
    return kept;
}

/* An answer that names no time gets ours (RFC 9110, section 6.6.1), as long as there is room. */
static size_t add_date(char date[HTTP_DATE_SIZE], struct http_field *fields, size_t count)
{
    if (count == LIMIT_HTTP_FIELDS)
        return count;
    for (size_t i = 0; i < count; i++)
        if (http_field_is(&fields[i], "date"))
            return count;
    fields[count] = (struct http_field){"date", 4, http_date(date), HTTP_DATE_SIZE - 1};
    return count + 1;
}

/* A length is told also where no body follows (HEAD, 304), but with 204 (RFC 9110, section 8.6). */
static size_t keep_length(const struct call *call, int status, const struct http_field *fields,
                          size_t count, struct http_field *ret)
{
    if (call->answer != EGRESS_BODY_LENGTH || status == 204)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (http_field_is(&fields[i], "content-length")) {
            *ret = fields[i];
            return 1;
        }
    return 0;
}

static int settle_framing(struct call *call, int status, const struct http_field *fields,
                          size_t count, struct err *err)
{
    enum egress_body kind;
    uint64_t length;
    if (http1_answer_framing(fields, count, &kind, &length, err))
        return -EBADMSG;
    if (kind == EGRESS_BODY_NONE && egress_exchange_is_framed(call->exchange))
        kind = EGRESS_BODY_CHUNKED;
    call->answer_is_empty = call->is_head || status == 204 || status == 304;
    call->answer = kind;
    call->answer_left = length;
    return 0;
}

static void on_head(void *ctx, int status, const char *reason, const struct http_field *fields,
                    size_t count)
{
    struct call *call = ctx;
    struct http_field kept[LIMIT_HTTP_FIELDS];
    char date[HTTP_DATE_SIZE];
    struct err err;
    int result = 0;
    size_t kept_count = filter(call, fields, count, kept);
    call_note_upstream(call);
    call->drops_answer_trailers = http1_names_own_fields(fields, count);
    call_usage_head(call, status, fields, count);
    reason = holds_secret(call, reason, strlen(reason)) ? "" : reason;
    if (status == 101) { /* only where it was asked for (link_h1.c) */
        result = call->front->tunnel(call, reason, kept, kept_count);
        call->head_sent = result == 0;
        call->status = status;
        call->answer = EGRESS_BODY_NONE;
        call->first_byte_at = uv_now(call->egress->loop);
    } else if (status < 200) {
        if (!call->is_http10) /* RFC 9110, section 15.2: all of them */
            result = call->front->interim(call, status, reason, kept, kept_count);
    } else if (settle_framing(call, status, fields, count, &err)) {
        call_fail(call, 502, err.message, "upstream");
        return;
    } else {
        kept_count += keep_length(call, status, fields, count, kept + kept_count);
        kept_count = add_date(date, kept, kept_count);
        result = call->front->head(call, status, reason, kept, kept_count);
        call->head_sent = result == 0;
        call->status = status;
        call->first_byte_at = uv_now(call->egress->loop);
    }
    if (result)
        call_fail(call, 502, "the answer's head is too large", "limit");
}

static bool on_body(void *ctx, const char *data, size_t len)
{
    struct call *call = ctx;
    if (call->answer_is_empty)
        return true;
    if (call->answer == EGRESS_BODY_LENGTH && len > call->answer_left)
        len = (size_t)call->answer_left;
    int result = call->front->body(call, data, len);
    if (result == -EAGAIN) {
        call->is_paused = true;
        return false;
    }
    if (result) {
        call_fail(call, 502, "out of memory for the answer", "limit");
        return false;
    }
    if (call->answer == EGRESS_BODY_LENGTH)
        call->answer_left -= len;
    call->bytes_in += len;
    call_usage_body(call, data, len);
    call->front->touched(call);
    return true;
}

static void on_trailers(void *ctx, const struct http_field *fields, size_t count)
{
    struct call *call = ctx;
    struct http_field kept[LIMIT_HTTP_FIELDS];
    if (call->answer_is_empty || call->drops_answer_trailers)
        return;
    size_t kept_count = filter(call, fields, count, kept);
    if (call->front->trailers(call, kept, kept_count))
        call_fail(call, 502, "the trailers are too large", "limit");
}

static bool on_widen(void *ctx)
{
    struct call *call = ctx;
    struct egress_meter *meter = egress_sandbox_meter(call->sandbox);
    call->is_wide = meter->wide < LIMIT_EGRESS_WIDE_STREAMS;
    meter->wide += call->is_wide;
    return call->is_wide;
}

static void on_writable(void *ctx)
{
    struct call *call = ctx;
    call->front->touched(call);
    call->front->writable(call);
}

static void on_end(void *ctx, enum egress_failure failure, const char *reason)
{
    struct call *call = ctx;
    leave_exchange(call);
    bool is_short =
        call->answer == EGRESS_BODY_LENGTH && call->answer_left > 0 && !call->answer_is_empty;
    if (failure || is_short) {
        fail_by_upstream(call, failure ? failure : EGRESS_FAILED_CUT,
                         failure ? reason : "the upstream's answer was cut short");
        return;
    }
    call->front->complete(call);
    call_audit(call, "allowed", "", "upstream");
}

const struct egress_exchange_events call_exchange_events = {
    .head = on_head,
    .body = on_body,
    .trailers = on_trailers,
    .widen = on_widen,
    .writable = on_writable,
    .end = on_end,
};
