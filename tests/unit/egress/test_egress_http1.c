/* The promises of http1: one meaning for each request, everything else refused. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress/http1.h"
#include "egress/refuse.h"
#include "util/cleanup.h"

static struct http1_head head;

static int status_of_bytes(const char *text, size_t len)
{
    struct err err;
    size_t scanned = 0;
    switch (http1_head_parse(text, len, &scanned, &head, &err)) {
    case HTTP1_MORE:
        return 0;
    case HTTP1_HEAD:
        return 200;
    case HTTP1_REFUSED:
        assert(err.message[0]);
        return head.status;
    }
    return -1;
}

static int status_of(const char *text)
{
    return status_of_bytes(text, strlen(text));
}

static void test_a_good_request_is_read(void)
{
    const char *text = "POST /a?b=c HTTP/1.1\r\nHost: example.com\r\nContent-Length: 12\r\n"
                       "eXpect: 100-Continue\r\nX-Empty:\r\nX-High: \xc3\xa9\r\n\r\nrest";
    assert(status_of(text) == 200);
    assert(head.len == strlen(text) - 4 && head.http.minor == 1 && head.http.field_count == 5);
    assert(strcmp(head.method, "POST") == 0 && head.body == EGRESS_BODY_LENGTH);
    assert(head.body_length == 12 && head.http.is_continue_awaited && head.keep_alive);
    assert(head.target.len == 6 && head.host.len == 11);
    assert(head.http.fields[3].value_len == 0 && head.http.fields[4].value_len == 2);
    for (size_t len = 0; len < head.len; len++)
        assert(status_of_bytes(text, len) == 0);
}

/* CASES A5, A17, B2, B4. */
static void test_what_two_readers_could_read_differently_is_refused(void)
{
    static const char *const bad[] = {
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
        "chunked\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno-colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\nY: c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\xc3: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "NOSUCHMETHOD / HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (status_of(bad[i]) != 400) {
            fprintf(stderr, "accepted (%d): %s\n", status_of(bad[i]), bad[i]);
            abort();
        }
    assert(status_of_bytes("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 34) == 400);
    assert(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == 505);
    assert(status_of("GET / HTTP/1.2\r\nHost: a\r\n\r\n") == 505);
    assert(status_of("GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n") == 417);
    assert(status_of("GET / HTTP/1.0\r\n\r\n") == 200 && !head.keep_alive && head.host.len == 0);
    assert(status_of("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: foo, H2C\r\n\r\n") == 200);
    assert(head.upgrade.len == 8 && head.wants_h2c);
    assert(status_of("GET / HTTP/1.0\r\nUpgrade: h2c\r\n\r\n") == 200);
    assert(head.upgrade.len == 0 && !head.wants_h2c);
}

/* CASES A20. */
static void test_limits_are_told_apart(void)
{
    size_t len = 1 << 20;
    cleanup_free char *big = malloc(len + 1);
    assert(big);
    memset(big, 'a', len);
    memcpy(big, "GET /", 5);
    big[len] = '\0';
    assert(status_of_bytes(big, len) == 414);
    assert(status_of_bytes(big, LIMIT_EGRESS_REQUEST_LINE_BYTES) == 0);
    int start = snprintf(big, len, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    big[start] = 'a';
    assert(status_of_bytes(big, 100 * 1024) == 431);
    size_t at = (size_t)snprintf(big, len, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 300; i++)
        at += (size_t)snprintf(big + at, len - at, "x%d: y\r\n", i);
    at += (size_t)snprintf(big + at, len - at, "\r\n");
    assert(status_of_bytes(big, at) == 431);
}

static void test_headers_of_the_connection_are_known(void)
{
    assert(
        status_of("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Mine , close\r\n\r\n") ==
        200);
    assert(!head.keep_alive);
    assert(http1_is_hop_by_hop(head.http.fields, head.http.field_count, "x-mine", 6));
    assert(http1_is_hop_by_hop(head.http.fields, head.http.field_count, "Transfer-Encoding", 17));
    assert(!http1_is_hop_by_hop(head.http.fields, head.http.field_count, "x-min", 5));
    assert(!http1_is_hop_by_hop(head.http.fields, head.http.field_count, "authorization", 13));
}

static void test_lines_of_fields_end_with_cr_lf_alone(void)
{
    static const char *const bad[] = {"A: b\rcd\r\n", "A: b\n",    "A: b\r",        "A: b",
                                      " A: b\r\n",    "A : b\r\n", "A: b\r\n c\r\n"};
    struct http_field fields[LIMIT_HTTP_FIELDS];
    size_t count;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert(http1_fields_parse(bad[i], strlen(bad[i]), fields, &count) == -EBADMSG);
    static const char good[] = "A: b\r\nC:\r\n";
    assert(http1_fields_parse(good, strlen(good), fields, &count) == 0 && count == 2);
    assert(http1_fields_parse("\r\n", 2, fields, &count) == 0 && count == 0);
}

static int split(const char *target, struct http1_text *authority, struct http1_text *path)
{
    struct err err;
    return http1_target_split((struct http1_text){target, strlen(target)}, "https", authority, path,
                              &err);
}

/* Else each byte of a slow head would cost the reading of all before it. */
static void test_no_byte_of_a_head_is_read_twice(void)
{
    char text[] = "GET / HTTP/1.1\r\nHost: a.test\r\nx: y\r\n\r\n";
    size_t scanned = 0;
    struct err err;
    for (size_t len = 1; len + 1 < sizeof(text); len++)
        assert(http1_head_parse(text, len, &scanned, &head, &err) == HTTP1_MORE);
    assert(http1_head_parse(text, sizeof(text) - 1, &scanned, &head, &err) == HTTP1_HEAD);
    assert(head.http.field_count == 2);
    scanned = 0;
    assert(http1_head_parse(text, 30, &scanned, &head, &err) == HTTP1_MORE && scanned == 30);
    text[5] = '\n'; /* a line without a CR, if somebody looked */
    assert(http1_head_parse(text, 31, &scanned, &head, &err) == HTTP1_MORE);
}

static void test_targets_are_split(void)
{
    struct http1_text authority;
    struct http1_text path;
    assert(split("/a?b", &authority, &path) == 0 && authority.len == 0 && path.len == 4);
    assert(split("HTTPS://example.com/x", &authority, &path) == 0);
    assert(authority.len == 11 && path.len == 2);
    assert(split("https://example.com", &authority, &path) == 0 && path.len == 1);
    assert(split("http://example.com/", &authority, &path) == -EINVAL);
    assert(split("https://u@example.com/", &authority, &path) == -EINVAL);
    assert(split("https:///x", &authority, &path) == -EINVAL);
    assert(split("*", &authority, &path) == -EINVAL);
    assert(split("example.com:443", &authority, &path) == -EINVAL);
}

/* Reads `raw` in pieces of `piece` bytes. Returns how much was used, or -EBADMSG. */
static ssize_t read_body(struct http1_body *body, const char *raw, size_t piece, char *ret)
{
    size_t at = 0;
    size_t len = strlen(raw);
    *ret = '\0';
    while (!body->is_done && at < len) {
        size_t there = len - at < piece ? len - at : piece;
        size_t body_len;
        struct err err;
        ssize_t used = http1_body_step(body, raw + at, there, &body_len, &err);
        if (used < 0)
            return used;
        strncat(ret, raw + at + used, body_len);
        http1_body_take(body, body_len);
        at += (size_t)used + body_len;
    }
    return (ssize_t)at;
}

static void test_chunks_are_read_in_any_pieces(void)
{
    const char *raw = "5;ext=1\r\nhello\r\n00A\r\n, my world\r\n0\r\nX-T: 1\r\n\r\nNEXT";
    for (size_t piece = 1; piece < 20; piece++) {
        struct http1_body body;
        char text[100];
        http1_body_init(&body, EGRESS_BODY_CHUNKED, 0);
        assert(read_body(&body, raw, piece, text) == (ssize_t)strlen(raw) - 4);
        assert(body.is_done && strcmp(text, "hello, my world") == 0);
    }
}

static void test_bad_chunks_are_refused(void)
{
    static const char *const bad[] = {
        "\r\n",          "x\r\n",      "5 \r\nhello\r\n",       "5\nhello\r\n", "5\r\nhelloX",
        "5\r\nhello\rX", ";\r\n",      "fffffffffffffffff\r\n", "-1\r\n",       "0x5\r\nhello",
        "0\r\n\n",       "5;\x01\r\n", "0\r\nX: \x01\r\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct http1_body body;
        char text[100];
        http1_body_init(&body, EGRESS_BODY_CHUNKED, 0);
        assert(read_body(&body, bad[i], 3, text) == -EBADMSG);
    }
    char *extension = calloc(1, 10000);
    assert(extension);
    memset(extension, 'e', 9999);
    memcpy(extension, "5;", 2);
    struct http1_body body;
    char text[100];
    http1_body_init(&body, EGRESS_BODY_CHUNKED, 0);
    assert(read_body(&body, extension, 100, text) == -EBADMSG);
    free(extension);
}

static void test_a_length_ends_where_it_says(void)
{
    struct http1_body body;
    char text[100];
    http1_body_init(&body, EGRESS_BODY_LENGTH, 5);
    assert(read_body(&body, "helloGET /", 3, text) == 5 && strcmp(text, "hello") == 0);
    http1_body_init(&body, EGRESS_BODY_LENGTH, 0);
    assert(body.is_done);
}

/* Half of a field would make a name of the next one's value. */
static void test_a_field_is_kept_whole_or_not_at_all(void)
{
    for (size_t max = 8; max < 40; max++) {
        struct http_field fields[LIMIT_HTTP_FIELDS];
        cleanup_buf struct buf lines = BUF_INIT(max);
        assert(http1_fields_append(&lines, "a", 1, "1234", 4) == (max < 7 ? -EMSGSIZE : 0));
        int result = http1_fields_append(&lines, "longer-name", 11, "and a value", 11);
        assert(result == (max < 31 ? -EMSGSIZE : 0));
        bool fits = lines.len + 4 <= max;
        assert((http1_fields_append(&lines, "", 0, "x:", 2) == 0) == fits);
        size_t count = http1_fields_split(&lines, fields);
        assert(count == 1U + (result == 0) + fits && fields[0].value_len == 4);
        assert(!fits || (fields[count - 1].name_len == 0 && fields[count - 1].value_len == 2));
    }
}

static void test_refusals_have_the_promised_texts(void)
{
    struct refusal refusal;
    struct policy_verdict verdict = {.decision = POLICY_PLAIN_HTTP};
    refuse_by_verdict(&verdict, "example.com", &refusal);
    assert(refusal.status == 403);
    assert(strcmp(refusal.text, "example.com is reachable only over HTTPS\n") == 0);
    verdict.decision = POLICY_DENIED;
    refuse_by_verdict(&verdict, "example.com", &refusal);
    assert(strcmp(refusal.text, "example.com is not reachable from this sandbox\n") == 0);
    verdict.decision = POLICY_INACTIVE;
    snprintf(verdict.reason, sizeof(verdict.reason), "secret X is\r\nnot: set");
    refuse_by_verdict(&verdict, "example.com", &refusal);
    assert(refusal.status == 503 && refusal.is_final);
    cleanup_buf struct buf out = BUF_INIT(8192);
    assert(refuse_append(&out, &refusal, false, true) == 0);
    assert(strstr(out.data, "\r\nx-should-retry: false\r\n"));
    assert(strstr(out.data, "\r\nx-paddock-reason: secret X is  not: set\r\n"));
    assert(strstr(out.data, "\r\n\r\nsecret X is  not: set\n"));
}

int main(void)
{
    test_a_good_request_is_read();
    test_what_two_readers_could_read_differently_is_refused();
    test_limits_are_told_apart();
    test_headers_of_the_connection_are_known();
    test_lines_of_fields_end_with_cr_lf_alone();
    test_no_byte_of_a_head_is_read_twice();
    test_targets_are_split();
    test_chunks_are_read_in_any_pieces();
    test_bad_chunks_are_refused();
    test_a_length_ends_where_it_says();
    test_a_field_is_kept_whole_or_not_at_all();
    test_refusals_have_the_promised_texts();
    return 0;
}
