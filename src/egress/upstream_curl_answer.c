/*
 * What comes back: libcurl hands over header lines and decoded body bytes. Lines are read as
 * strictly as a sandbox's, and a head is told whole. Process: paddock-egress. These are libcurl's
 * callbacks: of libcurl nothing is called from here but curl_easy_getinfo(3).
 */
#include <string.h>

#include "egress/http1.h"
#include "egress/upstream_curl.h"
#include "util/cleanup.h"

static size_t fail(struct egress_exchange *exchange, const char *reason)
{
    snprintf(exchange->failure, sizeof(exchange->failure), "%s", reason);
    return 0; /* fewer than given: libcurl ends the transfer */
}

/* "HTTP/1.1 200 OK" without its line end. Returns the status, or -1. */
static int parse_status_line(const char *line, size_t len, const char **ret_reason)
{
    if (len < 12 || memcmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ')
        return -1;
    int status = 0;
    for (size_t i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -1;
        status = status * 10 + (line[i] - '0');
    }
    if (status < 100 || (len > 12 && line[12] != ' ') || !http_is_value(line, len))
        return -1;
    *ret_reason = len > 13 ? line + 13 : "";
    return status;
}

/* Reads exchange->lines, NUL-terminated "name: value" lines. Returns how many, or -EBADMSG. */
static ssize_t parse_lines(const struct egress_exchange *exchange, const char *lines,
                           struct http_field headers[LIMIT_HTTP_FIELDS])
{
    size_t count = 0;
    const char *end = exchange->lines.data + exchange->lines.len;
    while (lines < end) {
        size_t len = strlen(lines);
        if (count == LIMIT_HTTP_FIELDS || http_field_parse(lines, len, &headers[count], NULL))
            return -EBADMSG;
        count++;
        lines += len + 1;
    }
    return (ssize_t)count;
}

/* An answer without a length ends with its connection; then a cut must be told from an end. */
static bool ends_with_connection(const struct egress_exchange *exchange, int status,
                                 const struct http_field *headers, size_t count)
{
    enum egress_body kind;
    uint64_t length;
    return status >= 200 && status != 204 && status != 304 && !exchange->is_head_request &&
           http1_answer_framing(headers, count, &kind, &length, NULL) == 0 &&
           kind == EGRESS_BODY_NONE;
}

static size_t deliver_head(struct egress_exchange *exchange, size_t used)
{
    struct http_field headers[LIMIT_HTTP_FIELDS];
    if (exchange->lines.len == 0)
        return fail(exchange, "the upstream's answer has no status line");
    const char *reason;
    const char *first = exchange->lines.data;
    int status = parse_status_line(first, strlen(first), &reason);
    ssize_t count = parse_lines(exchange, first + strlen(first) + 1, headers);
    if (status < 0 || count < 0)
        return fail(exchange, "the upstream's answer has a malformed head");
    if (status == 101)
        return fail(exchange, "the upstream switches protocols unasked");
    if (ends_with_connection(exchange, status, headers, (size_t)count) &&
        upstream_watch_tls_end(exchange))
        return fail(exchange, "the end of the upstream's answer could not be watched");
    exchange->events->head(exchange->ctx, status, reason, headers, (size_t)count);
    buf_free(&exchange->lines);
    if (status >= 200)
        exchange->phase = EXCHANGE_BODY;
    return exchange->is_cancelled ? 0 : used;
}

/* One line with its line end; in EXCHANGE_BODY it is one of the trailers. */
size_t upstream_on_header(char *line, size_t size, size_t count, void *ctx)
{
    struct egress_exchange *exchange = ctx;
    size_t len = size * count;
    if (exchange->is_cancelled)
        return 0;
    exchange->line_bytes += len;
    if (exchange->line_bytes > LIMIT_EGRESS_ANSWER_HEAD_BYTES)
        return fail(exchange, "the head of the upstream's answer is larger than 64 KiB");
    if (len < 2 || line[len - 1] != '\n' || line[len - 2] != '\r' || memchr(line, '\0', len))
        return fail(exchange, "the upstream's answer has a malformed head");
    if (len == 2)
        return exchange->phase == EXCHANGE_HEAD ? deliver_head(exchange, len) : len;
    if (buf_append(&exchange->lines, line, len - 2) || buf_append(&exchange->lines, "", 1))
        return fail(exchange, "out of memory");
    return len;
}

size_t upstream_on_body(char *data, size_t size, size_t count, void *ctx)
{
    struct egress_exchange *exchange = ctx;
    size_t len = size * count;
    if (exchange->is_cancelled)
        return 0;
    if (len && !exchange->events->body(exchange->ctx, data, len)) {
        exchange->is_receive_paused = true;
        return exchange->is_cancelled ? 0 : CURL_WRITEFUNC_PAUSE;
    }
    return exchange->is_cancelled ? 0 : len;
}

void upstream_deliver_trailers(struct egress_exchange *exchange)
{
    struct http_field headers[LIMIT_HTTP_FIELDS];
    if (exchange->phase != EXCHANGE_BODY || exchange->lines.len == 0)
        return;
    ssize_t count = parse_lines(exchange, exchange->lines.data, headers);
    if (count > 0)
        exchange->events->trailers(exchange->ctx, headers, (size_t)count);
}
