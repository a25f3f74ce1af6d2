/* The promise of http/head.h: a head that has two readings is refused. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "http/head.h"
#include "util/buf.h"
#include "util/cleanup.h"

static struct http_head head;

static int check(const char *text)
{
    struct err err;
    return http_head_check(text, strlen(text), &head, &err);
}

static void test_a_plain_head_is_read(void)
{
    assert(check("POST /sandboxes/a/task?x=1 HTTP/1.1\r\nHost: paddock\r\nContent-Length:  12 \r\n"
                 "Expect: 100-Continue\r\nX-Empty:\r\n\r\n") == 0);
    assert(head.method_len == 4 && memcmp(head.target, "/sandboxes/a/task?x=1", 21) == 0);
    assert(head.target_len == 21 && head.minor == 1 && head.content_length == 12);
    assert(head.is_continue_awaited && head.is_keep_alive && !head.is_chunked);
    const struct http_field *host = http_head_field(&head, "host");
    assert(host && host->value_len == 7 && memcmp(host->value, "paddock", 7) == 0);
    assert(http_head_field(&head, "x-empty")->value_len == 0 && !http_head_field(&head, "x"));
}

static void test_keep_alive_follows_version_and_connection(void)
{
    assert(check("GET / HTTP/1.0\r\n\r\n") == 0 && !head.is_keep_alive);
    assert(check("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n") == 0 && head.is_keep_alive);
    assert(check("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n") == 0 &&
           !head.is_keep_alive);
}

static void test_what_has_two_readings_is_refused(void)
{
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"},
        {400,
         "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n"},
        {501, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
        {501, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
              "Transfer-Encoding: chunked\r\n\r\n"},
        {400, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\rY: 2\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nX\x80: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"},
        {400, "GET /\r\nHost: a\r\n\r\n"},
        {400, "G@T / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n\r\nX"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n"},
        {400, ""},
        {505, "PRI * HTTP/2.0\r\n\r\n"},
        {417, "GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int status = check(cases[i].text);
        if (status != cases[i].status)
            fprintf(stderr, "case %zu: %d\n", i, status);
        assert(status == cases[i].status);
    }
    static const char nul[] = "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n";
    assert(http_head_check(nul, sizeof(nul) - 1, &head, NULL) == 400);
}

static void test_too_many_headers_are_refused(void)
{
    cleanup_buf struct buf text = BUF_INIT(65536);
    assert(buf_append_string(&text, "GET / HTTP/1.1\r\nHost: a\r\n") == 0);
    for (int i = 0; i < LIMIT_HTTP_FIELDS; i++)
        assert(buf_append_string(&text, "X: y\r\n") == 0);
    assert(buf_append_string(&text, "\r\n") == 0);
    assert(check(text.data) == 431);
}

static void test_the_end_of_a_head_is_found_byte_by_byte(void)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\nbody";
    size_t scanned = 0;
    for (size_t len = 0; len < sizeof(text) - 5; len++)
        assert(http_head_length(text, len, &scanned) == 0);
    assert(http_head_length(text, sizeof(text) - 1, &scanned) == sizeof(text) - 5);
    scanned = 0;
    assert(http_head_length("GET / HTTP/1.1\n", 15, &scanned) == -EINVAL);
    scanned = 0;
    assert(http_head_length("\r\nGET /", 7, &scanned) == -EINVAL);
}

int main(void)
{
    test_a_plain_head_is_read();
    test_keep_alive_follows_version_and_connection();
    test_what_has_two_readings_is_refused();
    test_too_many_headers_are_refused();
    test_the_end_of_a_head_is_found_byte_by_byte();
    return 0;
}
