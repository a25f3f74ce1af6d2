/*
 * HTTP/1.1 towards an upstream (RFC 9112): one exchange at a time on a link. Process:
 * paddock-egress. Answers are read as strictly as a sandbox's requests: CR LF alone ends a line,
 * one framing, no folded lines. Bytes behind an answer's end are nobody's: the link is closed.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "egress/link.h"
#include "util/cleanup.h"

enum {
    H1_IDLE, /* no exchange */
    H1_HEAD,
    H1_BODY,
    H1_UNTIL_CLOSE,
    H1_TUNNEL, /* after 101 */
};

static int h1_open(struct link *link)
{
    link->h1_state = H1_IDLE;
    return 0;
}

/* RFC 9112, section 9.8. But a tunnel that is cut must not look as if it had ended. */
static void h1_close(struct link *link)
{
    if (link->ssl && link->h1_state != H1_TUNNEL)
        SSL_shutdown(link->ssl);
}

static bool h1_has_room(const struct link *link)
{
    return link->h1_state == H1_IDLE && link->is_idle;
}

/* ------------------------------------------------------------------------------ the request */

static int append_head(struct buf *out, const struct egress_exchange *exchange)
{
    const struct origin *origin = exchange->origin;
    int result = buf_appendf(out, "%s %s HTTP/1.1\r\nHost: %s", exchange->method, exchange->target,
                             origin->host);
    if (!result && origin->port != (origin->is_plain ? 80 : 443))
        result = buf_appendf(out, ":%u", origin->port);
    for (size_t i = 0; i < exchange->header_count && !result; i++) {
        const struct http_field *field = &exchange->headers[i];
        result = buf_append(out, "\r\n", 2);
        if (!result)
            result = buf_append(out, field->name, field->name_len);
        if (!result)
            result = buf_append(out, ": ", field->value_len ? 2 : 1);
        if (!result)
            result = buf_append(out, field->value, field->value_len);
    }
    if (!result && exchange->body == EGRESS_BODY_LENGTH)
        result =
            buf_appendf(out, "\r\nContent-Length: %llu", (unsigned long long)exchange->body_length);
    if (!result && exchange->body == EGRESS_BODY_CHUNKED)
        result = buf_append_string(out, "\r\nTransfer-Encoding: chunked");
    if (!result && exchange->expects_continue)
        result = buf_append_string(out, "\r\nExpect: 100-continue");
    if (!result && exchange->is_alone)
        result = buf_appendf(out, "\r\nConnection: Upgrade\r\nUpgrade: %s", exchange->upgrade);
    else if (!result && exchange->takes_trailers)
        result = buf_append_string(out, "\r\nConnection: TE\r\nTE: trailers");
    return result ? result : buf_append_string(out, "\r\n\r\n");
}

static size_t queued(const struct link *link)
{
    return link->out.len - link->out_used;
}

static int append_body(struct buf *out, const struct egress_exchange *exchange, const char *data,
                       size_t len)
{
    if (exchange->body != EGRESS_BODY_CHUNKED || exchange->is_alone)
        return buf_append(out, data, len);
    int result = buf_appendf(out, "%zx\r\n", len);
    if (!result)
        result = buf_append(out, data, len);
    return result ? result : buf_append(out, "\r\n", 2);
}

static size_t h1_write(struct egress_exchange *exchange, const char *data, size_t len, size_t most)
{
    struct link *link = exchange->link;
    size_t waits = queued(link);
    size_t room = most > waits ? most - waits : 0;
    size_t taken = len < room ? len : room;
    if (taken && append_body(&link->out, exchange, data, taken))
        return 0;
    if (taken)
        link_ask_turn(link);
    return taken;
}

static void h1_write_end(struct egress_exchange *exchange)
{
    struct link *link = exchange->link;
    if (exchange->body != EGRESS_BODY_CHUNKED) {
        link_ask_turn(link);
        return;
    }
    struct http_field trailers[LIMIT_HTTP_FIELDS];
    size_t count = http1_fields_split(&exchange->trailers, trailers);
    int result = buf_append(&link->out, "0\r\n", 3);
    for (size_t i = 0; i < count && !result; i++)
        result = buf_appendf(&link->out, "%s: %s\r\n", trailers[i].name, trailers[i].value);
    if (!result)
        result = buf_append(&link->out, "\r\n", 2);
    if (result)
        link->h1_keeps = false; /* the upstream waits for an end that never comes, and gives up */
    link_ask_turn(link);
}

static void h1_submit(struct link *link, struct egress_exchange *exchange)
{
    link->exchange = exchange;
    link->h1_state = H1_HEAD;
    link->h1_keeps = true;
    link->h1_scanned = 0;
    exchange->is_on_used_link = link->was_used;
    int result = append_head(&link->out, exchange);
    if (!result && exchange->out.len)
        result = append_body(&link->out, exchange, exchange->out.data, exchange->out.len);
    if (result) {
        link->exchange = NULL;
        link->is_doomed = true;
        exchange_end_later(exchange, EGRESS_FAILED_SELF, "the request's head is too large");
    } else {
        exchange->out_began = exchange->out_began || exchange->out.len;
        buf_free(&exchange->out);
        if (exchange->out_ended && exchange->body != EGRESS_BODY_NONE)
            h1_write_end(exchange);
    }
    link_ask_turn(link);
}

/* One direction's end: close_notify, once, or a FIN. */
static void end_output(struct link *link)
{
    if (link->ssl)
        SSL_shutdown(link->ssl);
    else
        shutdown(link->fd, SHUT_WR);
}

/* What waits for room is asked for more as soon as there is any. */
static bool h1_fill(struct link *link)
{
    struct egress_exchange *exchange = link->exchange;
    if (exchange && queued(link) < LIMIT_EGRESS_TIGHT_QUEUE_BYTES / 2)
        exchange_writable(exchange);
    if (exchange && link->h1_state == H1_TUNNEL && exchange->out_ended && !queued(link))
        end_output(link);
    return true;
}

/* ------------------------------------------------------------------------------ the answer */

/* "HTTP/1.1 200 OK" without its line end. The status, or -1. */
static int parse_status_line(const char *line, size_t len, bool *ret_is_10, const char **ret_reason,
                             size_t *ret_reason_len)
{
    if (len < 12 || memcmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ' ||
        (line[7] != '0' && line[7] != '1'))
        return -1;
    int status = 0;
    for (size_t i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -1;
        status = status * 10 + (line[i] - '0');
    }
    if (status < 100 || (len > 12 && line[12] != ' ') || !http_is_value(line, len))
        return -1;
    *ret_is_10 = line[7] == '0';
    *ret_reason = len > 13 ? line + 13 : "";
    *ret_reason_len = len > 13 ? len - 13 : 0;
    return status;
}

struct answer_head {
    int status;
    bool is_10;
    char reason[256];
    struct http_field fields[LIMIT_HTTP_FIELDS];
    size_t count;
};

static int parse_head(const char *data, size_t len, struct answer_head *ret)
{
    const char *line_end = memchr(data, '\r', len);
    const char *reason;
    size_t reason_len;
    if (!line_end || line_end[1] != '\n')
        return -EBADMSG;
    ret->status =
        parse_status_line(data, (size_t)(line_end - data), &ret->is_10, &reason, &reason_len);
    if (ret->status < 0)
        return -EBADMSG;
    if (reason_len >= sizeof(ret->reason)) /* nobody needs it, and a part of it may be a secret's */
        reason_len = 0;
    snprintf(ret->reason, sizeof(ret->reason), "%.*s", (int)reason_len, reason);
    const char *fields = line_end + 2;
    return http1_fields_parse(fields, len - (size_t)(fields - data) - 2, ret->fields, &ret->count);
}

/* RFC 9112, section 6.1: its framing is faulty. */
static bool is_coded_10(const struct answer_head *head)
{
    for (size_t i = 0; i < head->count; i++)
        if (head->is_10 && http_field_is(&head->fields[i], "transfer-encoding"))
            return true;
    return false;
}

static bool says_close(const struct answer_head *head)
{
    for (size_t i = 0; i < head->count; i++)
        if (http_field_is(&head->fields[i], "connection") &&
            http_list_has(&head->fields[i], "close", 5))
            return true;
    return head->is_10;
}

/* It has no body, whatever it says (RFC 9110, section 8.6); what it says must make sense. */
static bool is_bad_interim(const struct answer_head *head)
{
    enum egress_body kind;
    uint64_t length;
    struct err err;
    return head->status < 200 &&
           http1_answer_framing(head->fields, head->count, &kind, &length, &err) < 0;
}

/* RFC 9110, section 7.8: the protocol that was asked for, and no other. */
static bool is_upgraded(const struct answer_head *head, const struct egress_exchange *exchange)
{
    bool has_connection = false;
    bool has_protocol = false;
    for (size_t i = 0; i < head->count; i++) {
        const struct http_field *field = &head->fields[i];
        if (http_field_is(field, "connection"))
            has_connection = has_connection || http_list_has(field, "upgrade", 7);
        if (http_field_is(field, "upgrade"))
            has_protocol = http_equals(field->value, field->value_len, exchange->upgrade);
    }
    return exchange->is_alone && has_connection && has_protocol;
}

/* The exchange is over; the link may be used again, or is closed. Returns false: see feed. */
static bool finish(struct link *link, struct egress_exchange *exchange)
{
    struct origin *origin = link->origin;
    bool keeps = link->h1_keeps && exchange->out_ended && !link->is_doomed;
    link->h1_state = H1_IDLE;
    link->exchange = NULL;
    if (keeps)
        link_set_idle(link, true);
    else
        link_close(link);
    if (origin->waiting)
        origin_serve(origin);
    exchange_end(exchange, EGRESS_COMPLETE, NULL);
    return keeps;
}

static bool protocol_error(struct link *link, const char *reason)
{
    link_fail(link, EGRESS_FAILED_ANSWER, reason);
    return false;
}

/* What follows a head that was told. */
static bool settle_body(struct link *link, struct egress_exchange *exchange,
                        const struct answer_head *head)
{
    enum egress_body kind;
    uint64_t length;
    struct err err;
    bool is_empty = exchange->is_head_request || head->status == 204 || head->status == 304;
    if (head->status == 101) {
        link->h1_state = H1_TUNNEL;
        link->h1_keeps = false;
        return true;
    }
    if (http1_answer_framing(head->fields, head->count, &kind, &length, &err))
        return protocol_error(link, err.message);
    link->h1_keeps = !says_close(head) && !exchange->is_alone;
    if (is_empty || kind != EGRESS_BODY_NONE) {
        link->h1_state = H1_BODY;
        http1_body_init(&link->h1_body, is_empty ? EGRESS_BODY_NONE : kind, length);
        http1_body_keep_trailers(&link->h1_body, &exchange->lines);
    } else {
        link->h1_state = H1_UNTIL_CLOSE;
        link->h1_keeps = false;
    }
    return true;
}

/* Reads a head from the start of the bytes. Bytes used; 0: not whole; -1: the link is over. */
static ssize_t take_head(struct link *link, struct egress_exchange *exchange, const char *data,
                         size_t len)
{
    size_t most = len < exchange->lines.max ? len : exchange->lines.max;
    ssize_t head_len = http_head_length(data, most, &link->h1_scanned);
    if (head_len == 0 && len < exchange->lines.max)
        return 0;
    struct answer_head head;
    exchange->answer_began = true;
    if (head_len == 0)
        protocol_error(link, "the upstream's answer has a head larger than 64 KiB");
    else if (head_len < 0 || parse_head(data, (size_t)head_len, &head) < 0)
        protocol_error(link, "the upstream's answer has a malformed head");
    else if (is_coded_10(&head))
        protocol_error(link, "the upstream's answer is in chunks, which HTTP/1.0 has not");
    else if (is_bad_interim(&head))
        protocol_error(link, "the upstream's interim answer has a bad length or coding");
    else if (head.status == 101 && !is_upgraded(&head, exchange))
        protocol_error(link, "the upstream changes to a protocol that nobody asked for");
    else if (head.status < 200 && head.status != 101 && ++exchange->interims > INTERIM_MAX)
        protocol_error(link, "the upstream sends interim answers without end");
    else {
        link->h1_scanned = 0;
        if (head.status < 200)
            exchange_count_interim(exchange, (size_t)head_len);
        exchange->events->head(exchange->ctx, head.status, head.reason, head.fields, head.count);
        if (link->is_doomed)
            return -1;
        if ((head.status >= 200 || head.status == 101) && !settle_body(link, exchange, &head))
            return -1;
        return head_len;
    }
    return -1;
}

/* False: paused, or the link is doomed. */
static bool give(struct link *link, struct egress_exchange *exchange, const char *data, size_t len)
{
    if (!exchange->events->body(exchange->ctx, data, len)) {
        exchange->is_paused = !exchange->is_cancelled;
        return false;
    }
    return !link->is_doomed;
}

static ssize_t take_body(struct link *link, struct egress_exchange *exchange, const char *data,
                         size_t len)
{
    struct http1_body *body = &link->h1_body;
    struct err err;
    size_t used = 0;
    while (!body->is_done && used < len) {
        size_t body_len = 0;
        ssize_t framing = http1_body_step(body, data + used, len - used, &body_len, &err);
        if (framing < 0) {
            protocol_error(link, "the upstream's answer is not well-formed chunks");
            return -1;
        }
        used += (size_t)framing;
        if (!body_len)
            continue;
        body_len = body_len < GIVE_BYTES ? body_len : GIVE_BYTES;
        if (!give(link, exchange, data + used, body_len))
            return link->is_doomed ? -1 : (ssize_t)used;
        http1_body_take(body, body_len);
        used += body_len;
    }
    if (!body->is_done)
        return (ssize_t)used;
    struct http_field fields[LIMIT_HTTP_FIELDS];
    size_t count = 0;
    if (exchange->lines.len &&
        (http1_fields_parse(exchange->lines.data, exchange->lines.len, fields, &count) < 0)) {
        protocol_error(link, "the upstream's answer has malformed trailers");
        return -1;
    }
    if (count)
        exchange->events->trailers(exchange->ctx, fields, count);
    if (link->is_doomed)
        return -1;
    if (used < len)
        link->h1_keeps = false; /* what is behind the answer belongs to no request */
    return finish(link, exchange) ? (ssize_t)len : -1;
}

/* Bytes used, which may be none; -1: the link is over, or will be in its turn. */
static ssize_t step(struct link *link, const char *data, size_t len)
{
    struct egress_exchange *exchange = link->exchange;
    if (!exchange) {
        link_close(link); /* an idle connection that speaks is not to be trusted */
        return -1;
    }
    switch (link->h1_state) {
    case H1_HEAD:
        return take_head(link, exchange, data, len);
    case H1_BODY:
        return take_body(link, exchange, data, len);
    default: /* H1_UNTIL_CLOSE, H1_TUNNEL */
        len = len < GIVE_BYTES ? len : GIVE_BYTES;
        if (give(link, exchange, data, len))
            return (ssize_t)len;
        return link->is_doomed ? -1 : 0;
    }
}

static ssize_t use(struct link *link, const char *data, size_t len)
{
    size_t used = 0;
    for (;;) {
        /* a head may be the whole answer, which ends without a byte more */
        bool is_whole = link->h1_state == H1_BODY && link->h1_body.is_done;
        bool is_paused = link->exchange && link->exchange->is_paused;
        if ((used == len && !is_whole) || is_paused)
            return (ssize_t)used;
        ssize_t now = step(link, data + used, len - used);
        if (now <= 0)
            return now < 0 ? -1 : (ssize_t)used;
        used += (size_t)now;
    }
}

static bool h1_feed(struct link *link, const char *data, size_t len)
{
    if (!link->in.len) { /* nothing waits: no copy */
        ssize_t used = use(link, data, len);
        if (used < 0)
            return false;
        if ((size_t)used < len && buf_append(&link->in, data + used, len - (size_t)used))
            return protocol_error(link, "out of memory for an answer");
        return true;
    }
    if (buf_append(&link->in, data, len))
        return protocol_error(link, "out of memory for an answer");
    ssize_t used = use(link, link->in.data, link->in.len);
    if (used < 0)
        return false;
    buf_consume(&link->in, (size_t)used);
    if (!link->in.len && link->in.capacity > LIMIT_EGRESS_OWN_BUFFER_BYTES)
        buf_free(&link->in);
    return true;
}

static bool h1_wants_input(const struct link *link)
{
    return !link->exchange || !link->exchange->is_paused;
}

static void h1_ended(struct link *link, bool is_clean)
{
    struct egress_exchange *exchange = link->exchange;
    bool ends_so = link->h1_state == H1_TUNNEL || link->h1_state == H1_UNTIL_CLOSE;
    if (!exchange)
        link_close(link);
    else if (ends_so && is_clean)
        finish(link, exchange);
    else
        link_fail(link, EGRESS_FAILED_CUT,
                  exchange->answer_began ? "the upstream's connection was cut"
                                         : "the upstream ended the connection without an answer");
}

static void h1_fail(struct link *link, enum egress_failure failure, const char *reason)
{
    struct egress_exchange *exchange = TAKE_PTR(link->exchange);
    link->is_doomed = true;
    if (!exchange)
        return;
    if (failure == EGRESS_FAILED_CUT && exchange->is_on_used_link)
        exchange_lost(exchange, failure, reason);
    else
        exchange_end(exchange, failure, reason);
}

/* What waited is used first; then the socket is read again. */
static void h1_resume(struct egress_exchange *exchange)
{
    link_ask_turn(exchange->link);
}

static void h1_drop(struct egress_exchange *exchange)
{
    struct link *link = exchange->link;
    link->exchange = NULL;
    link->is_doomed = true;
    link_ask_turn(link);
}

const struct link_protocol link_h1 = {
    .open = h1_open,
    .close = h1_close,
    .has_room = h1_has_room,
    .submit = h1_submit,
    .feed = h1_feed,
    .wants_input = h1_wants_input,
    .fill = h1_fill,
    .ended = h1_ended,
    .fail = h1_fail,
    .write = h1_write,
    .write_end = h1_write_end,
    .resume = h1_resume,
    .drop = h1_drop,
};
