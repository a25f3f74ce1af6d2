/* A head and its body from any bytes: no crash, and what is accepted keeps the invariants. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "egress/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_head(const char *text, const struct http1_head *head)
{
    assert(head->len >= 4 && memcmp(text + head->len - 4, "\r\n\r\n", 4) == 0);
    assert(head->method[0] && head->target.len && head->http.field_count <= LIMIT_HTTP_FIELDS);
    assert(head->http.minor == 0 || head->host.len);
    size_t framings = 0;
    for (size_t i = 0; i < head->http.field_count; i++) {
        const struct http_field *header = &head->http.fields[i];
        assert(header->name >= text && header->value + header->value_len <= text + head->len);
        assert(http_is_token(header->name, header->name_len));
        assert(!memchr(header->value, '\n', header->value_len));
        framings += http_field_is(header, "content-length");
        framings += http_field_is(header, "transfer-encoding");
        http1_is_hop_by_hop(head->http.fields, head->http.field_count, header->name,
                            header->name_len);
    }
    assert(framings <= 1 && (framings == 1) == (head->body != EGRESS_BODY_NONE));
}

static void read_body(const struct http1_head *head, const char *text, size_t len, size_t piece)
{
    struct http1_body body;
    struct err err;
    http1_body_init(&body, head->body, head->body_length);
    size_t at = 0;
    while (!body.is_done && at < len) {
        size_t there = len - at < piece ? len - at : piece;
        size_t body_len = 0;
        ssize_t used = http1_body_step(&body, text + at, there, &body_len, &err);
        if (used < 0)
            return;
        assert((size_t)used + body_len <= there);
        size_t taken = body_len > 1 ? body_len / 2 : body_len;
        http1_body_take(&body, taken);
        assert((size_t)used + taken > 0 || body.is_done);
        at += (size_t)used + taken;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct http1_head head;
    struct err err;
    const char *text = (const char *)data;
    size_t scanned = 0;
    switch (http1_head_parse(text, len, &scanned, &head, &err)) {
    case HTTP1_MORE:
        break;
    case HTTP1_REFUSED:
        assert(head.status >= 400 && err.message[0]);
        break;
    case HTTP1_HEAD: {
        check_head(text, &head);
        struct http1_text authority;
        struct http1_text path;
        (void)http1_target_split(head.target, "https", &authority, &path, &err);
        read_body(&head, text + head.len, len - head.len, 7);
        read_body(&head, text + head.len, len - head.len, SIZE_MAX);
        break;
    }
    }
    return 0;
}
