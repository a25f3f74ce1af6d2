/* Says how egress frames requests: each case on stdin is its length (four bytes, big endian) and
 * the bytes of a connection; of each a line of JSON comes back, a list of its requests. Texts are
 * in hexadecimal. The last of them is the one that egress did not read to its end: "more" bytes are
 * needed, or it is "refused"; none is, when the connection is to be closed behind one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress/http1.h"
#include "util/cleanup.h"

#define CASE_MAX ((size_t)1 << 20)

static void print_hex(const char *data, size_t len)
{
    putchar('"');
    for (size_t i = 0; i < len; i++)
        printf("%02x", (unsigned char)data[i]);
    putchar('"');
}

static void print_fields(const struct http_field *fields, size_t count)
{
    putchar('[');
    for (size_t i = 0; i < count; i++) {
        printf("%s[", i ? ", " : "");
        print_hex(fields[i].name, fields[i].name_len);
        printf(", ");
        print_hex(fields[i].value, fields[i].value_len);
        putchar(']');
    }
    putchar(']');
}

static void print_head(const struct http1_head *head)
{
    printf("\"method\": ");
    print_hex(head->method, strlen(head->method));
    printf(", \"target\": ");
    print_hex(head->target.data, head->target.len);
    printf(", \"minor\": %d, \"fields\": ", head->http.minor);
    print_fields(head->http.fields, head->http.field_count);
}

/* Prints the body and how it ends. Returns what follows it; -1: nothing that egress reads. */
static ssize_t print_body(const struct http1_head *head, const char *data, size_t len)
{
    static struct http_field fields[LIMIT_HTTP_FIELDS];
    cleanup_buf struct buf trailers = BUF_INIT(LIMIT_EGRESS_CHUNK_OVERHEAD);
    struct http1_body body;
    struct err err;
    size_t count = 0, used = 0;
    ssize_t framing = 0;
    http1_body_init(&body, head->body, head->body_length);
    http1_body_keep_trailers(&body, &trailers);
    printf(", \"body\": [\"\"");
    while (!body.is_done && used < len && framing >= 0) {
        size_t there = 0;
        framing = http1_body_step(&body, data + used, len - used, &there, &err);
        if (framing < 0)
            break;
        if (there) {
            printf(", ");
            print_hex(data + used + framing, there);
        }
        http1_body_take(&body, there);
        used += (size_t)framing + there;
    }
    bool is_bad = framing < 0 || (body.is_done && trailers.len &&
                                  http1_fields_parse(trailers.data, trailers.len, fields, &count));
    printf("], \"trailers\": ");
    print_fields(fields, is_bad ? 0 : count);
    printf(", \"end\": \"%s\"}", is_bad ? "refused" : body.is_done ? "whole" : "more");
    return is_bad || !body.is_done || !head->keep_alive ? -1 : (ssize_t)used;
}

static void print_case(const char *data, size_t len)
{
    static struct http1_head head;
    struct err err;
    size_t at = 0;
    putchar('[');
    while (at < len) {
        size_t scanned = 0;
        enum http1_result result = http1_head_parse(data + at, len - at, &scanned, &head, &err);
        printf("%s{", at ? ", " : "");
        /* as call.c does not speak it */
        if (result == HTTP1_HEAD && strcmp(head.method, "CONNECT") == 0)
            result = HTTP1_REFUSED;
        if (result != HTTP1_HEAD) {
            printf("\"end\": \"%s\"}", result == HTTP1_MORE ? "more" : "refused");
            break;
        }
        print_head(&head);
        at += head.len;
        ssize_t used = print_body(&head, data + at, len - at);
        if (used < 0)
            break;
        at += (size_t)used;
    }
    printf("]\n");
}

int main(void)
{
    unsigned char size[4];
    while (fread(size, 1, sizeof(size), stdin) == sizeof(size)) {
        size_t len = (size_t)size[0] << 24 | (size_t)size[1] << 16 | (size_t)size[2] << 8 | size[3];
        char *data = len < CASE_MAX ? malloc(len + 1) : NULL; /* of its size, for a sanitizer */
        if (!data || fread(data, 1, len, stdin) != len)
            return 1;
        print_case(data, len);
        free(data);
    }
    return 0;
}
