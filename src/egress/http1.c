/*
 * Heads of requests. llhttp reads too much by itself (obs-fold, two Hosts, high bytes in the
 * target), so the raw bytes are read here, line by line and strictly, and llhttp, with every
 * leniency off, must agree. Process: paddock-egress. Invariant: a head that is accepted has one
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

static bool is_tchar(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c));
}

bool http1_is_token(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!is_tchar((unsigned char)data[i]))
            return false;
    return len > 0;
}

bool http1_is_field_value(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool is_visible(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)data[i] <= 0x20 || (unsigned char)data[i] >= 0x7f)
            return false;
    return len > 0;
}

static struct http1_text trim(const char *data, size_t len)
{
    while (len && (data[0] == ' ' || data[0] == '\t')) {
        data++;
        len--;
    }
    while (len && (data[len - 1] == ' ' || data[len - 1] == '\t'))
        len--;
    return (struct http1_text){data, len};
}

static bool text_is(struct http1_text text, const char *word)
{
    return text.len == strlen(word) && strncasecmp(text.data, word, text.len) == 0;
}

bool http1_name_is(const struct egress_header *header, const char *name)
{
    return text_is((struct http1_text){header->name, header->name_len}, name);
}

int http1_field_parse(const char *line, size_t len, struct egress_header *ret, struct err *err)
{
    if (len && (line[0] == ' ' || line[0] == '\t'))
        return err_set(err, EBADMSG, "a header is folded over two lines");
    const char *colon = memchr(line, ':', len);
    if (!colon)
        return err_set(err, EBADMSG, "a header line has no colon");
    size_t name_len = (size_t)(colon - line);
    if (!http1_is_token(line, name_len))
        return err_set(err, EBADMSG, "a header has a bad name");
    struct http1_text value = trim(colon + 1, len - name_len - 1);
    if (!http1_is_field_value(value.data, value.len))
        return err_set(err, EBADMSG, "a header has a control character in its value");
    *ret = (struct egress_header){line, name_len, value.data, value.len};
    return 0;
}

int http1_length_parse(const char *data, size_t len, uint64_t *ret)
{
    if (len == 0 || len > 18)
        return -EBADMSG;
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        if (data[i] < '0' || data[i] > '9')
            return -EBADMSG;
        value = value * 10 + (uint64_t)(data[i] - '0');
    }
    *ret = value;
    return 0;
}

/* Calls back for each element of a comma-separated list; stops at true. */
static bool list_any(const struct egress_header *header,
                     bool (*match)(struct http1_text, const void *), const void *ctx)
{
    const char *at = header->value;
    const char *end = header->value + header->value_len;
    while (at <= end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        if (match(trim(at, (size_t)(stop - at)), ctx))
            return true;
        at = stop + 1;
    }
    return false;
}

static bool element_is(struct http1_text element, const void *word)
{
    return text_is(element, word);
}

static bool element_equals(struct http1_text element, const void *text)
{
    const struct http1_text *other = text;
    return element.len == other->len && strncasecmp(element.data, other->data, element.len) == 0;
}

bool http1_is_hop_by_hop(const struct egress_header *headers, size_t count, const char *name,
                         size_t name_len)
{
    static const char *const fixed[] = {
        "connection", "keep-alive",        "proxy-connection",   "proxy-authorization",
        "upgrade",    "transfer-encoding", "proxy-authenticate", "te",
        "trailer",    "http2-settings",
    };
    struct http1_text text = {name, name_len};
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (text_is(text, fixed[i]))
            return true;
    for (size_t i = 0; i < count; i++)
        if (http1_name_is(&headers[i], "connection") &&
            list_any(&headers[i], element_equals, &text))
            return true;
    return false;
}

static enum http1_result parse_request_line(const char *line, size_t len, struct http1_head *head,
                                            struct err *err)
{
    const char *first = memchr(line, ' ', len);
    const char *last = memrchr(line, ' ', len);
    if (!first || first == last)
        return refuse(head, 400, err, "the request line is not METHOD TARGET VERSION");
    size_t method_len = (size_t)(first - line);
    struct http1_text version = {last + 1, (size_t)(line + len - last - 1)};
    head->target = (struct http1_text){first + 1, (size_t)(last - first - 1)};
    if (!http1_is_token(line, method_len) || method_len >= HTTP1_METHOD_MAX)
        return refuse(head, 400, err, "the request's method is not one");
    if (!is_visible(head->target.data, head->target.len))
        return refuse(head, 400, err, "the request's target has a space or a byte outside ASCII");
    if (version.len != 8 || memcmp(version.data, "HTTP/", 5) != 0 || version.data[6] != '.')
        return refuse(head, 400, err, "the request line has no HTTP version");
    if (memcmp(version.data, "HTTP/1.", 7) != 0 || (version.data[7] & 0xfe) != '0')
        return refuse(head, 505, err, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    memcpy(head->method, line, method_len);
    head->method[method_len] = '\0';
    head->minor = version.data[7] - '0';
    return HTTP1_HEAD;
}

/* Follows the lines to the empty one. HTTP1_HEAD with head->len set when it is there. */
static enum http1_result find_end(const char *data, size_t len, struct http1_head *head,
                                  struct err *err)
{
    size_t at = 0;
    for (;;) {
        const char *newline = memchr(data + at, '\n', len - at);
        size_t stop = newline ? (size_t)(newline - data) : len;
        if (at == 0 && stop > LIMIT_EGRESS_REQUEST_LINE_BYTES)
            return refuse(head, 414, err, "the request line is longer than 16 KiB");
        if (stop >= LIMIT_EGRESS_HEAD_BYTES)
            return refuse(head, 431, err, "the request's headers are larger than 64 KiB");
        if (!newline)
            return HTTP1_MORE;
        if (stop == at || data[stop - 1] != '\r')
            return refuse(head, 400, err, "a line of the request's head does not end in CR LF");
        size_t line_len = stop - 1 - at;
        if (memchr(data + at, '\r', line_len) || memchr(data + at, '\0', line_len))
            return refuse(head, 400, err, "a CR or NUL stands inside a line of the head");
        if (at == 0 && parse_request_line(data, line_len, head, err) != HTTP1_HEAD)
            return HTTP1_REFUSED;
        at = stop + 1;
        if (line_len == 0) {
            head->len = at;
            return HTTP1_HEAD;
        }
    }
}

static enum http1_result parse_fields(const char *data, struct http1_head *head, struct err *err)
{
    const char *line = (const char *)memchr(data, '\n', head->len) + 1;
    const char *end = data + head->len - 2; /* the empty line */
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        if (head->header_count == LIMIT_EGRESS_HEADERS)
            return refuse(head, 431, err, "the request has more than 256 headers");
        struct egress_header *header = &head->headers[head->header_count];
        if (http1_field_parse(line, (size_t)(newline - 1 - line), header, err)) {
            head->status = 400;
            return HTTP1_REFUSED;
        }
        head->header_count++;
        line = newline + 1;
    }
    return HTTP1_HEAD;
}

/* What one header says about framing and the connection. Returns why it is bad, or NULL. */
static const char *note_field(struct http1_head *head, const struct egress_header *header,
                              size_t *hosts)
{
    struct http1_text value = {header->value, header->value_len};
    if (http1_name_is(header, "host")) {
        head->host = value;
        if ((*hosts)++ || !is_visible(value.data, value.len))
            return "the request has two Host headers, or an empty or bad one";
    } else if (http1_name_is(header, "content-length")) {
        if (head->body != EGRESS_BODY_NONE)
            return "the request's length is given twice";
        head->body = EGRESS_BODY_LENGTH;
        if (http1_length_parse(value.data, value.len, &head->body_length))
            return "Content-Length is not a number";
    } else if (http1_name_is(header, "transfer-encoding")) {
        if (head->body != EGRESS_BODY_NONE)
            return "the request's length is given twice";
        head->body = EGRESS_BODY_CHUNKED;
        if (!text_is(value, "chunked") || head->minor == 0)
            return "Transfer-Encoding is something other than chunked";
    } else if (http1_name_is(header, "connection")) {
        if (list_any(header, element_is, "close"))
            head->keep_alive = false;
    } else if (http1_name_is(header, "upgrade")) {
        head->wants_upgrade = true;
        if (list_any(header, element_is, "h2c"))
            head->wants_h2c = true;
    }
    return NULL;
}

static enum http1_result judge_fields(struct http1_head *head, struct err *err)
{
    size_t hosts = 0;
    head->keep_alive = head->minor == 1;
    for (size_t i = 0; i < head->header_count; i++) {
        const struct egress_header *header = &head->headers[i];
        const char *reason = note_field(head, header, &hosts);
        if (reason)
            return refuse(head, 400, err, reason);
        if (!http1_name_is(header, "expect"))
            continue;
        if (!text_is((struct http1_text){header->value, header->value_len}, "100-continue"))
            return refuse(head, 417, err, "Expect is something other than 100-continue");
        head->expects_continue = head->minor == 1;
    }
    if (hosts == 0 && head->minor == 1)
        return refuse(head, 400, err, "the request has no Host header");
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
    return parser.http_minor == head->minor && is_chunked == (head->body == EGRESS_BODY_CHUNKED) &&
           strcmp(llhttp_method_name((llhttp_method_t)parser.method), head->method) == 0;
}

enum http1_result http1_head_parse(const char *data, size_t len, struct http1_head *ret,
                                   struct err *err)
{
    /* The table of headers is left as it is: only the first header_count of them mean anything. */
    ret->len = ret->header_count = 0;
    ret->target = ret->host = (struct http1_text){NULL, 0};
    ret->body = EGRESS_BODY_NONE;
    ret->body_length = 0;
    ret->expects_continue = ret->wants_upgrade = ret->wants_h2c = false;
    ret->method[0] = '\0';
    ret->status = 0;
    if (len == 0)
        return HTTP1_MORE;
    enum http1_result result = find_end(data, len, ret, err);
    if (result == HTTP1_HEAD)
        result = parse_fields(data, ret, err);
    if (result == HTTP1_HEAD)
        result = judge_fields(ret, err);
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

int http1_answer_framing(const struct egress_header *headers, size_t count,
                         enum egress_body *ret_kind, uint64_t *ret_length, struct err *err)
{
    size_t lengths = 0;
    size_t codings = 0;
    uint64_t length = 0;
    for (size_t i = 0; i < count; i++) {
        struct http1_text value = {headers[i].value, headers[i].value_len};
        if (http1_name_is(&headers[i], "content-length")) {
            if (lengths++ || http1_length_parse(value.data, value.len, &length))
                return err_set(err, EBADMSG, "the upstream's answer has a bad Content-Length");
        } else if (http1_name_is(&headers[i], "transfer-encoding")) {
            if (codings++ || !text_is(value, "chunked"))
                return err_set(err, EBADMSG, "the upstream's answer is in an unknown coding");
        }
    }
    /* RFC 9112 6.3: Transfer-Encoding overrides; the length is then not passed on. */
    *ret_kind = codings ? EGRESS_BODY_CHUNKED : lengths ? EGRESS_BODY_LENGTH : EGRESS_BODY_NONE;
    *ret_length = codings ? 0 : length;
    return 0;
}
