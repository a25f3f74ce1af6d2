/* Strict checks of a request's head; see head.h. Runs in api and egress on the bytes of clients and
 * of agents. Invariant: a head that passes has one meaning, whoever reads it. */
#include "http/head.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* More digits could overflow; nobody sends 10^18 bytes. */
#define HTTP_LENGTH_DIGITS 18

ssize_t http_head_length(const char *data, size_t len, size_t *scanned)
{
    size_t at = *scanned;
    while (at < len) {
        const char *newline = memchr(data + at, '\n', len - at);
        if (!newline)
            break;
        size_t end = (size_t)(newline - data);
        if (end == 0 || data[end - 1] != '\r' || end == 1)
            return -EINVAL;
        if (end >= 3 && data[end - 2] == '\n')
            return (ssize_t)end + 1;
        at = end + 1;
    }
    *scanned = len;
    return 0;
}

/* tchar of RFC 9110, 5.6.2 */
bool http_is_token(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)data[i]) && !(data[i] && strchr("!#$%&'*+-.^_`|~", data[i])))
            return false;
    return len > 0;
}

bool http_is_visible(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (data[i] < 0x21 || data[i] > 0x7e)
            return false;
    return len > 0;
}

bool http_is_value(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

bool http_equals(const char *data, size_t len, const char *text)
{
    return len == strlen(text) && strncasecmp(data, text, len) == 0;
}

bool http_list_has(const struct http_field *field, const char *token, size_t token_len)
{
    const char *list = field->value;
    const char *end = list + field->value_len;
    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        const char *stop = comma ? comma : end;
        while (list < stop && (*list == ' ' || *list == '\t'))
            list++;
        const char *last = stop;
        while (last > list && (last[-1] == ' ' || last[-1] == '\t'))
            last--;
        if ((size_t)(last - list) == token_len && strncasecmp(list, token, token_len) == 0)
            return true;
        list = stop + 1;
    }
    return false;
}

bool http_field_is(const struct http_field *field, const char *name)
{
    return http_equals(field->name, field->name_len, name);
}

const struct http_field *http_head_field(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->field_count; i++)
        if (http_field_is(&head->fields[i], name))
            return &head->fields[i];
    return NULL;
}

/* The next line without its CRLF; NULL when a CR or a NUL stands inside it. */
static const char *http_next_line(const char **position, const char *end, size_t *ret_len)
{
    const char *line = *position;
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    if (!newline || newline == line || newline[-1] != '\r')
        return NULL;
    *ret_len = (size_t)(newline - line) - 1;
    *position = newline + 1;
    return memchr(line, '\r', *ret_len) || memchr(line, '\0', *ret_len) ? NULL : line;
}

static int http_refuse(struct err *err, int status, const char *reason)
{
    err_set(err, EINVAL, "%s", reason);
    return status;
}

int http_request_line(const char *line, size_t len, struct http_head *head, struct err *err)
{
    const char *end = line + len;
    const char *first = memchr(line, ' ', len);
    if (!first)
        return http_refuse(err, 400, "the request line has no target");
    const char *second = memchr(first + 1, ' ', (size_t)(end - first - 1));
    if (!second)
        return http_refuse(err, 400, "the request line has no HTTP version");
    head->method = line;
    head->method_len = (size_t)(first - line);
    head->target = first + 1;
    head->target_len = (size_t)(second - first - 1);
    if (!http_is_token(head->method, head->method_len))
        return http_refuse(err, 400, "the method is not a token");
    if (!http_is_visible(head->target, head->target_len))
        return http_refuse(err, 400, "the request target has bytes that must be percent-encoded");
    size_t version_len = (size_t)(end - second - 1);
    if (version_len != 8 || memcmp(second + 1, "HTTP/", 5) != 0)
        return http_refuse(err, 400, "the request line does not end with an HTTP version");
    if (memcmp(second + 6, "1.", 2) != 0 || (second[8] != '0' && second[8] != '1'))
        return http_refuse(err, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    head->minor = second[8] - '0';
    return 0;
}

int http_field_parse(const char *line, size_t len, struct http_field *ret, struct err *err)
{
    if (len && (line[0] == ' ' || line[0] == '\t'))
        return http_refuse(err, 400, "a header is folded over two lines");
    const char *colon = memchr(line, ':', len);
    if (!colon || !http_is_token(line, (size_t)(colon - line)))
        return http_refuse(err, 400, "a header has no proper name in front of its colon");
    const char *value = colon + 1;
    const char *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (!http_is_value(value, (size_t)(end - value)))
        return http_refuse(err, 400, "a header's value has control characters");
    *ret = (struct http_field){line, (size_t)(colon - line), value, (size_t)(end - value)};
    return 0;
}

int64_t http_length(const char *data, size_t len)
{
    int64_t length = 0;
    if (len == 0 || len > HTTP_LENGTH_DIGITS)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)data[i]))
            return -1;
        length = length * 10 + (data[i] - '0');
    }
    return length;
}

static int http_content_length(const struct http_field *field, struct http_head *head,
                               struct err *err)
{
    if (head->content_length >= 0)
        return http_refuse(err, 400, "Content-Length is given twice");
    head->content_length = http_length(field->value, field->value_len);
    if (head->content_length < 0)
        return http_refuse(err, 400, "Content-Length is not a number");
    return 0;
}

static int http_transfer_encoding(const struct http_field *field, struct http_head *head,
                                  struct err *err)
{
    if (head->is_chunked)
        return http_refuse(err, 400, "Transfer-Encoding is given twice");
    if (head->minor == 0)
        return http_refuse(err, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (!http_equals(field->value, field->value_len, "chunked"))
        return http_refuse(err, 501, "the only Transfer-Encoding understood here is chunked");
    head->is_chunked = true;
    return 0;
}

static int http_expect(const struct http_field *field, struct http_head *head, struct err *err)
{
    if (!http_equals(field->value, field->value_len, "100-continue"))
        return http_refuse(err, 417, "the only expectation understood here is 100-continue");
    head->is_continue_awaited = head->minor == 1;
    return 0;
}

/* What the fields say about framing and the connection. */
static int http_framing(struct http_head *head, struct err *err)
{
    size_t hosts = 0;
    for (size_t i = 0; i < head->field_count; i++) {
        const struct http_field *field = &head->fields[i];
        int status = 0;
        if (http_field_is(field, "host"))
            hosts++;
        else if (http_field_is(field, "content-length"))
            status = http_content_length(field, head, err);
        else if (http_field_is(field, "transfer-encoding"))
            status = http_transfer_encoding(field, head, err);
        else if (http_field_is(field, "expect"))
            status = http_expect(field, head, err);
        else if (http_field_is(field, "connection")) {
            if (http_list_has(field, "close", 5))
                head->is_keep_alive = false;
            else if (head->minor == 0 && http_list_has(field, "keep-alive", 10))
                head->is_keep_alive = true;
        }
        if (status)
            return status;
    }
    if (hosts > 1 || (hosts == 0 && head->minor == 1))
        return http_refuse(err, 400, hosts ? "Host is given twice" : "no Host is given");
    if (head->is_chunked && head->content_length >= 0)
        return http_refuse(err, 400, "both Content-Length and Transfer-Encoding are given");
    return 0;
}

int http_head_check(const char *data, size_t len, struct http_head *ret, struct err *err)
{
    const char *position = data;
    const char *end = data + len;
    ret->content_length = -1;
    ret->is_chunked = ret->is_continue_awaited = false;
    ret->field_count = 0;
    size_t line_len = 0;
    const char *line = len ? http_next_line(&position, end, &line_len) : NULL;
    if (!line)
        return http_refuse(err, 400, "the request line is broken");
    int status = http_request_line(line, line_len, ret, err);
    ret->is_keep_alive = ret->minor == 1;
    while (status == 0) {
        line = position < end ? http_next_line(&position, end, &line_len) : NULL;
        if (!line)
            return http_refuse(err, 400, "a header line is broken");
        if (line_len == 0)
            break;
        if (ret->field_count == LIMIT_HTTP_FIELDS)
            return http_refuse(err, 431, "too many headers");
        status = http_field_parse(line, line_len, &ret->fields[ret->field_count++], err);
    }
    if (status)
        return status;
    if (position != end)
        return http_refuse(err, 400, "bytes behind the head");
    return http_framing(ret, err);
}
