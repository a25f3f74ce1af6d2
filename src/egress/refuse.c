/* Answers of our own; see refuse.h. Process: paddock-egress. The texts are a promise: tests of
 * other parts compare them byte for byte. */
#include "egress/refuse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "http/date.h"
#include "util/cleanup.h"
#include "json/json.h"

/* The type is Anthropic's for such a status. */
static const struct status {
    int status;
    const char *text;
    const char *type;
} statuses[] = {
    {200, "OK", ""},
    {400, "Bad Request", "invalid_request_error"},
    {402, "Payment Required", "billing_error"},
    {403, "Forbidden", "permission_error"},
    {405, "Method Not Allowed", "invalid_request_error"},
    {408, "Request Timeout", "timeout_error"},
    {414, "URI Too Long", "invalid_request_error"},
    {417, "Expectation Failed", "invalid_request_error"},
    {421, "Misdirected Request", "invalid_request_error"},
    {431, "Request Header Fields Too Large", "request_too_large"},
    {501, "Not Implemented", "api_error"},
    {502, "Bad Gateway", "api_error"},
    {503, "Service Unavailable", "api_error"},
    {504, "Gateway Timeout", "timeout_error"},
    {505, "HTTP Version Not Supported", "invalid_request_error"},
};

static const struct status *find_status(int status)
{
    static const struct status unknown = {0, "", "api_error"};
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
        if (statuses[i].status == status)
            return &statuses[i];
    return &unknown;
}

const char *refuse_status_text(int status)
{
    return find_status(status)->text;
}

/* Foreign bytes can stand in a reason: nothing in it may end the header line it goes into. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f)
            *text = ' ';
}

void refuse_with(int status, const char *reason, struct refusal *ret)
{
    ret->status = status;
    ret->is_final = status < 500 && status != 408;
    ret->is_json = false;
    ret->own_type = NULL;
    snprintf(ret->text, sizeof(ret->text) - 1, "%s", reason);
    make_printable(ret->text);
    size_t len = strlen(ret->text);
    ret->text[len] = '\n';
    ret->text[len + 1] = '\0';
}

void refuse_by_verdict(const struct policy_verdict *verdict, const char *host, struct refusal *ret)
{
    char text[512];
    switch (verdict->decision) {
    case POLICY_PLAIN_HTTP:
        snprintf(text, sizeof(text), "%s is reachable only over HTTPS", host);
        refuse_with(403, text, ret);
        return;
    case POLICY_DENIED_GIT:
        refuse_with(403, verdict->reason, ret);
        return;
    case POLICY_INACTIVE:
        refuse_with(503, verdict->reason, ret);
        ret->is_final = true;
        return;
    case POLICY_ALLOWED:
    case POLICY_DENIED:
        break;
    }
    snprintf(text, sizeof(text), "%s is not reachable from this sandbox", host);
    refuse_with(403, text, ret);
}

void refuse_by_failure(enum egress_failure failure, const char *host, const char *reason,
                       struct refusal *ret)
{
    char text[REFUSE_TEXT_MAX + POLICY_HOST_MAX];
    int status = 502;
    switch (failure) {
    case EGRESS_FAILED_PRIVATE:
        status = 403;
        break;
    case EGRESS_FAILED_TIMEOUT:
        status = 504;
        break;
    case EGRESS_FAILED_SELF:
        status = 503;
        break;
    case EGRESS_COMPLETE:
    case EGRESS_FAILED_NAME:
    case EGRESS_FAILED_CONNECT:
    case EGRESS_FAILED_TRUST:
    case EGRESS_FAILED_ANSWER:
    case EGRESS_FAILED_CUT:
        break;
    }
    snprintf(text, sizeof(text), "%s: %s", host, reason);
    refuse_with(status, text, ret);
    ret->is_final = failure == EGRESS_FAILED_PRIVATE || failure == EGRESS_FAILED_TRUST;
}

/* ------------------------------------------------------------------------------ the form */

/* "application/json; q=1", "application/problem+json" */
static bool is_json_type(const char *type, size_t len)
{
    static const char suffix[] = "json";
    const size_t suffix_len = sizeof(suffix) - 1;
    const char *end = memchr(type, ';', len);
    len = end ? (size_t)(end - type) : len;
    while (len && (type[len - 1] == ' ' || type[len - 1] == '\t'))
        len--;
    if (len <= suffix_len || !http_equals(type + len - suffix_len, suffix_len, suffix))
        return false;
    char before = type[len - suffix_len - 1];
    return before == '/' || before == '+';
}

static bool accepts_json(const struct http_field *accept)
{
    const char *end = accept->value + accept->value_len;
    for (const char *at = accept->value; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        if (is_json_type(at, (size_t)(stop - at)))
            return true;
        at = stop + 1;
    }
    return false;
}

bool refuse_wants_json(const struct http_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct http_field *field = &fields[i];
        if (http_field_is(field, "accept") && accepts_json(field))
            return true;
        if (http_field_is(field, "content-type") && is_json_type(field->value, field->value_len))
            return true;
    }
    return false;
}

const char *refuse_content_type(const struct refusal *refusal)
{
    if (refusal->own_type)
        return refusal->own_type;
    return refusal->is_json ? "application/json" : "text/plain; charset=utf-8";
}

int refuse_append_body(struct buf *out, const struct refusal *refusal)
{
    size_t len = strlen(refusal->text);
    if (refusal->own_type)
        return buf_append(out, refusal->own_body, refusal->own_len);
    if (!refusal->is_json)
        return buf_append(out, refusal->text, len);
    struct json_writer *writer = json_writer_new(out, false);
    if (!writer)
        return -ENOMEM;
    json_write_object_begin(writer);
    json_write_pair_string(writer, "type", "error");
    json_write_key(writer, "error");
    json_write_object_begin(writer);
    json_write_pair_string(writer, "type", find_status(refusal->status)->type);
    json_write_key(writer, "message");
    json_write_bytes(writer, refusal->text, len - 1);
    json_write_object_end(writer);
    json_write_key(writer, "message");
    json_write_bytes(writer, refusal->text, len - 1);
    json_write_object_end(writer);
    return json_writer_end(writer);
}

int refuse_append(struct buf *out, const struct refusal *refusal, bool is_head, bool keep_alive)
{
    cleanup_buf struct buf body = BUF_INIT(REFUSE_BODY_MAX);
    char date[HTTP_DATE_SIZE];
    int result = refuse_append_body(&body, refusal);
    if (!result)
        result = buf_appendf(
            out, "HTTP/1.1 %d %s\r\ndate: %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\n",
            refusal->status, refuse_status_text(refusal->status), http_date(date),
            refuse_content_type(refusal), body.len);
    if (!result)
        result =
            buf_appendf(out, "x-paddock-reason: %.*s\r\n%s%s%s\r\n", (int)strlen(refusal->text) - 1,
                        refusal->text, refusal->is_final ? "x-should-retry: false\r\n" : "",
                        refusal->status == 405 ? "allow: " REFUSE_ALLOW "\r\n" : "",
                        keep_alive ? "" : "connection: close\r\n");
    if (!result && !is_head)
        result = buf_append(out, body.data, body.len);
    return result;
}
