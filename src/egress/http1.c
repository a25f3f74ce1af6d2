/*
 * Heads of requests. The strict reader is http/head.h, as for the API's clients; here come egress's
 * limits, what it asks of a Host, and a second reader: llhttp, with every leniency off, must agree.
 * Process: paddock-egress. Invariant: a head that is accepted has one
 * meaning: one Host, one framing, CRLF line ends, no folded lines.
 */
#include "egress/http1.h"

#include <llhttp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "util/cleanup.h"

static enum http1_result refuse(struct http1_head *head, int status, struct err *err,
                                const char *reason)
{
    head->status = status;
    err_set(err, EBADMSG, "%s", reason);
    return HTTP1_REFUSED;
}

static bool is_always_hop_by_hop(const char *name, size_t name_len)
{
    static const char *const fixed[] = {
        "connection", "keep-alive",        "proxy-connection",   "proxy-authorization",
        "upgrade",    "transfer-encoding", "proxy-authenticate", "te",
        "trailer",    "http2-settings",
    };
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (http_equals(name, name_len, fixed[i]))
            return true;
    return false;
}

bool http1_is_hop_by_hop(const struct http_field *headers, size_t count, const char *name,
                         size_t name_len)
{
    if (is_always_hop_by_hop(name, name_len))
        return true;
    for (size_t i = 0; i < count; i++)
        if (http_field_is(&headers[i], "connection") && http_list_has(&headers[i], name, name_len))
            return true;
    return false;
}

static bool names_own(const struct http_field *connection)
{
    const char *at = connection->value;
    const char *end = at + connection->value_len;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        const char *last = stop;
        while (at < last && (*at == ' ' || *at == '\t'))
            at++;
        while (last > at && (last[-1] == ' ' || last[-1] == '\t'))
            last--;
        size_t len = (size_t)(last - at);
        if (len && !http_equals(at, len, "close") && !is_always_hop_by_hop(at, len))
            return true;
        at = stop + 1;
    }
    return false;
}

bool http1_names_own_fields(const struct http_field *headers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (http_field_is(&headers[i], "connection") && names_own(&headers[i]))
            return true;
    return false;
}

/* HTTP1_HEAD with head->len set when the empty line is there. */
static enum http1_result find_end(const char *data, size_t len, size_t *scanned,
                                  struct http1_head *head, struct err *err)
{
    size_t before = *scanned;
    size_t most = len < LIMIT_EGRESS_HEAD_BYTES ? len : LIMIT_EGRESS_HEAD_BYTES;
    const char *newline = memchr(data, '\n', most);
    size_t line_len = newline ? (size_t)(newline - data) : len;
    if (line_len > LIMIT_EGRESS_REQUEST_LINE_BYTES)
        return refuse(head, 414, err, "the request line is longer than 16 KiB");
    ssize_t end = http_head_length(data, most, scanned);
    if (end < 0)
        return refuse(head, 400, err, "a line of the request's head does not end in CR LF");
    head->len = (size_t)end;
    if (end > 0)
        return HTTP1_HEAD;
    /* what speaks another protocol may never send an empty line */
    if (newline && line_len >= before)
        head->status = http_request_line(data, line_len - 1, &head->http, err);
    if (head->status)
        return HTTP1_REFUSED;
    return len < LIMIT_EGRESS_HEAD_BYTES
               ? HTTP1_MORE
               : refuse(head, 431, err, "the request's headers are larger than 64 KiB");
}

/* For the audit and the answer also of a head that is refused. */
static void keep_method(struct http1_head *head)
{
    size_t len = head->http.method_len;
    if (len >= sizeof(head->method) || !http_is_token(head->http.method, len))
        return;
    memcpy(head->method, head->http.method, len);
    head->method[len] = '\0';
}

/* What is egress's own affair, beyond what http/head.h promises. */
static enum http1_result judge(struct http1_head *head, struct err *err)
{
    const struct http_head *http = &head->http;
    const struct http_field *host = http_head_field(http, "host");
    if (!head->method[0])
        return refuse(head, 400, err, "the request's method is not one");
    head->target = (struct http1_text){http->target, http->target_len};
    if (host)
        head->host = (struct http1_text){host->value, host->value_len};
    if (host && !http_is_visible(host->value, host->value_len))
        return refuse(head, 400, err, "the Host header is empty or holds a blank");
    head->keep_alive = http->minor == 1 && http->is_keep_alive;
    if (http->is_chunked)
        head->body = EGRESS_BODY_CHUNKED;
    else if (http->content_length >= 0)
        head->body = EGRESS_BODY_LENGTH;
    head->body_length = http->content_length >= 0 ? (uint64_t)http->content_length : 0;
    for (size_t i = 0; i < http->field_count; i++) { /* RFC 9110, section 7.8 */
        if (http->minor == 0 || !http_field_is(&http->fields[i], "upgrade"))
            continue;
        head->upgrade = (struct http1_text){http->fields[i].value, http->fields[i].value_len};
        head->wants_h2c = head->wants_h2c || http_list_has(&http->fields[i], "h2c", 3);
    }
    return HTTP1_HEAD;
}

static int stop_at_headers_complete(llhttp_t *parser)
{
    (void)parser;
    return 2; /* no body for llhttp: it pauses as for an upgrade, right behind the head */
}

/* The second reader: llhttp must come to the same end of the same head. */
static bool llhttp_agrees(const char *data, const struct http1_head *head)
{
    static llhttp_settings_t settings;
    if (!settings.on_headers_complete) {
        llhttp_settings_init(&settings);
        settings.on_headers_complete = stop_at_headers_complete;
    }
    llhttp_t parser;
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    llhttp_errno_t result = llhttp_execute(&parser, data, head->len);
    if (result != HPE_PAUSED_UPGRADE)
        return false;
    bool is_chunked = (parser.flags & F_CHUNKED) != 0;
    return parser.http_minor == head->http.minor &&
           is_chunked == (head->body == EGRESS_BODY_CHUNKED) &&
           strcmp(llhttp_method_name((llhttp_method_t)parser.method), head->method) == 0;
}

enum http1_result http1_head_parse(const char *data, size_t len, size_t *scanned,
                                   struct http1_head *ret, struct err *err)
{
    /* The table of headers is left as it is: only the first field_count of them mean anything. */
    ret->http.field_count = ret->http.method_len = 0;
    ret->http.minor = 1;
    ret->http.is_continue_awaited = false;
    ret->target = ret->host = (struct http1_text){NULL, 0};
    ret->body = EGRESS_BODY_NONE;
    ret->upgrade = (struct http1_text){NULL, 0};
    ret->keep_alive = ret->wants_h2c = false;
    ret->method[0] = '\0';
    ret->status = 0;
    enum http1_result result = find_end(data, len, scanned, ret, err);
    if (result != HTTP1_HEAD)
        return result;
    ret->status = http_head_check(data, ret->len, &ret->http, err);
    keep_method(ret);
    if (ret->status) {
        if (ret->status == 501) /* an unknown coding: of a proxy's request no one knows the end */
            ret->status = 400;
        return HTTP1_REFUSED;
    }
    result = judge(ret, err);
    if (result == HTTP1_HEAD && !llhttp_agrees(data, ret))
        return refuse(ret, 400, err, "the request's head is not understood");
    return result;
}

int http1_target_split(struct http1_text target, const char *scheme,
                       struct http1_text *ret_authority, struct http1_text *ret_path,
                       struct err *err)
{
    if (target.len && target.data[0] == '/') {
        *ret_authority = (struct http1_text){NULL, 0};
        *ret_path = target;
        return 0;
    }
    size_t scheme_len = strlen(scheme);
    if (target.len < scheme_len + 3 || strncasecmp(target.data, scheme, scheme_len) != 0 ||
        memcmp(target.data + scheme_len, "://", 3) != 0)
        return err_set(err, EINVAL, "the request's target is neither a path nor %s://HOST/PATH",
                       scheme);
    const char *authority = target.data + scheme_len + 3;
    size_t left = target.len - scheme_len - 3;
    size_t authority_len = 0;
    while (authority_len < left && !strchr("/?#", authority[authority_len]))
        authority_len++;
    if (authority_len == 0 || memchr(authority, '@', authority_len))
        return err_set(err, EINVAL, "the request's target has no host, or a user in it");
    if (authority_len < left && authority[authority_len] != '/')
        return err_set(err, EINVAL, "the request's target has no path");
    *ret_authority = (struct http1_text){authority, authority_len};
    *ret_path = authority_len == left
                    ? (struct http1_text){"/", 1}
                    : (struct http1_text){authority + authority_len, left - authority_len};
    return 0;
}

int http1_fields_parse(const char *data, size_t len, struct http_field *ret, size_t *ret_count)
{
    const char *end = data + len;
    *ret_count = 0;
    while (data < end) {
        const char *line_end = memchr(data, '\r', (size_t)(end - data));
        if (!line_end || line_end + 1 == end || line_end[1] != '\n')
            return -EBADMSG; /* what another reader may take for the end of a line, or not */
        if (line_end == data)
            return 0;
        if (*ret_count == LIMIT_HTTP_FIELDS ||
            http_field_parse(data, (size_t)(line_end - data), &ret[*ret_count], NULL))
            return -EBADMSG;
        (*ret_count)++;
        data = line_end + 2;
    }
    return 0;
}

size_t http1_fields_split(const struct buf *lines, struct http_field ret[LIMIT_HTTP_FIELDS])
{
    size_t count = 0;
    const char *at = buf_text(lines);
    const char *end = at + lines->len;
    while (at < end && count < LIMIT_HTTP_FIELDS) {
        struct http_field *field = &ret[count++];
        field->name = at;
        field->name_len = strlen(at);
        at += field->name_len + 1;
        field->value = at;
        field->value_len = strlen(at);
        at += field->value_len + 1;
    }
    return count;
}

int http1_fields_append(struct buf *lines, const char *name, size_t name_len, const char *value,
                        size_t value_len)
{
    size_t len = name_len + value_len + 2;
    if (!buf_reserve(lines, len)) /* whole or not at all: half of one would change the others */
        return -EMSGSIZE;
    buf_append(lines, name, name_len);
    buf_append(lines, "", 1);
    buf_append(lines, value, value_len);
    return buf_append(lines, "", 1);
}

int http1_answer_framing(const struct http_field *headers, size_t count, enum egress_body *ret_kind,
                         uint64_t *ret_length, struct err *err)
{
    size_t lengths = 0;
    size_t codings = 0;
    int64_t length = 0;
    for (size_t i = 0; i < count; i++) {
        const char *value = headers[i].value;
        size_t value_len = headers[i].value_len;
        if (http_field_is(&headers[i], "content-length")) {
            length = http_length(value, value_len);
            if (lengths++ || length < 0)
                return err_set(err, EBADMSG, "the upstream's answer has a bad Content-Length");
        } else if (http_field_is(&headers[i], "transfer-encoding")) {
            if (codings++ || !http_equals(value, value_len, "chunked"))
                return err_set(err, EBADMSG, "the upstream's answer is in an unknown coding");
        }
    }
    /* RFC 9112 6.3: Transfer-Encoding overrides; the length is then not passed on. */
    *ret_kind = codings ? EGRESS_BODY_CHUNKED : lengths ? EGRESS_BODY_LENGTH : EGRESS_BODY_NONE;
    *ret_length = codings ? 0 : (uint64_t)length;
    return 0;
}
