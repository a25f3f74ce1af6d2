/* CASES A1 to A6, A9, A14 to A17, A19, B1, B2, B4, B7, C2, C4: one client, egress, one upstream. */
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "stand_in.h"
#include "util/cleanup.h"
#include "util/limits.h"

#define CLOSE "Connection: close\r\n\r\n"
#define BIG_BYTES (64L * 1024 * 1024)

static char answer[1 << 20];

/* --- what the upstream does, by path --- */

static void serve_post(struct upstream_call *call)
{
    unsigned long len = 0;
    const char *header = strcasestr(call->head, "content-length: ");
    assert(header && sscanf(header + 16, "%lu", &len) == 1);
    unsigned sum = 0;
    char data[65536];
    for (unsigned long left = len; left;) {
        size_t now = left < sizeof(data) ? left : sizeof(data);
        if (!upstream_read(call, data, now))
            return;
        for (size_t i = 0; i < now; i++)
            sum = sum * 31 + (unsigned char)data[i];
        left -= now;
    }
    char text[256];
    char body[100];
    snprintf(body, sizeof(body), "%lu %u", len, sum);
    snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body),
             body);
    upstream_say(call, text);
}

static void serve_echo(struct upstream_call *call)
{
    char text[34000];
    snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(call->head), call->head);
    upstream_say(call, text);
}

static void serve_events(struct upstream_call *call)
{
    upstream_say(call, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        char chunk[100];
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        int len = snprintf(chunk + 50, 50, "data: %ld.%09ld\n\n", (long)now.tv_sec, now.tv_nsec);
        int start = snprintf(chunk, 50, "%x\r\n", len);
        memmove(chunk + start, chunk + 50, (size_t)len);
        memcpy(chunk + start + len, "\r\n", 3);
        upstream_say(call, chunk);
        usleep(200000);
    }
    upstream_say(call, "0\r\n\r\n");
}

/* Polls until the condition holds, 10 s at most, times the patience. */
#define AWAIT(condition)                                                                           \
    do {                                                                                           \
        for (int turns_ = 0; turns_ < 1000 * harness_patience() && !(condition); turns_++)         \
            usleep(10000);                                                                         \
        assert(condition);                                                                         \
    } while (0)

static atomic_long big_left;

static void serve_big(struct upstream_call *call)
{
    char text[200];
    static char data[65536];
    snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %ld\r\n\r\n", BIG_BYTES);
    upstream_say(call, text);
    int broken = atomic_load(&upstream_broken);
    for (long left = BIG_BYTES; left > 0 && atomic_load(&upstream_broken) == broken;
         left -= (long)sizeof(data)) {
        upstream_send(call, data, sizeof(data));
        atomic_store(&big_left, left);
    }
}

static void serve_chunked_post(struct upstream_call *call)
{
    char text[16] = "";
    size_t at = 0;
    size_t len;
    assert(strcasestr(call->head, "transfer-encoding: chunked\r\n"));
    assert(!strcasestr(call->head, "content-length"));
    for (;;) { /* "N\r\n", N bytes, "\r\n"; behind the last size the trailers */
        char size[3];
        assert(upstream_read(call, size, sizeof(size)) && memcmp(size + 1, "\r\n", 2) == 0);
        len = (size_t)(size[0] - '0');
        if (len == 0)
            break;
        assert(at + len + 2 < sizeof(text) && upstream_read(call, text + at, len + 2));
        assert(memcmp(text + at + len, "\r\n", 2) == 0);
        at += len;
    }
    assert(at == 5 && memcmp(text, "hello", 5) == 0);
    assert(upstream_read(call, text, 10) && memcmp(text, "X-T: 1\r\n\r\n", 10) == 0);
    upstream_say(call, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
}

struct scripted {
    const char *path;
    const char *answer;
    bool ends; /* the connection */
    bool is_cut;
};

static const struct scripted script[] = {
    {"/ok/length", "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nX-Two: a\r\nX-Two: b\r\n\r\nhello",
     false, false},
    {"/ok/chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
     false, false},
    {"/ok/trailers",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: "
     "x-sum\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n",
     false, false},
    {"/ok/gzip",
     "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n\x1f\x8b"
     "abcd",
     false, false},
    {"/ok/head", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", false, false},
    {"/ok/204", "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n", false, false},
    {"/ok/304", "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n", false, false},
    {"/ok/early",
     "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
     false, false},
    {"/ok/redirect",
     "HTTP/1.1 302 Found\r\nLocation: https://elsewhere.test/\r\nContent-Length: 0\r\n\r\n", false,
     false},
    {"/ok/leak",
     "HTTP/1.1 200 OK\r\nX-Echo: Bearer " STAND_IN_SECRET
     "\r\nX-Other: 1\r\nX-Paddock-Reason: forged\r\nContent-Type: application/vnd.plain+json; "
     "a=b\r\nContent-Length: "
     "2\r\n\r\nok",
     false, false},
    {"/ok/until-close", "HTTP/1.1 200 OK\r\n\r\nhello", true, false},
    {"/ok/cut-until-close", "HTTP/1.1 200 OK\r\n\r\nhello", true, true},
    {"/ok/cut-length", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", true, false},
    {"/ok/cut-chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", true,
     false},
    {"/ok/nothing", "", true, false},
    {"/ok/two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
     true, false},
    {"/ok/coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", true,
     false},
    {"/ok/fold", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok", true, false},
    {"/ok/101", "HTTP/1.1 101 Switching Protocols\r\n\r\n", true, false},
    {"/ok/401", "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno", true, false},
    {"/ok/417", "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno", true, false},
    {"/", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false, false},
};

bool upstream_serve(struct upstream_call *call)
{
    for (size_t i = 0; i < ARRAY_LEN(script); i++)
        if (strcmp(call->path, script[i].path) == 0) {
            upstream_say(call, script[i].answer);
            if (script[i].is_cut)
                upstream_cut(call);
            return !script[i].ends;
        }
    if (strncmp(call->path, "/ok/echo", 8) == 0)
        serve_echo(call);
    else if (strcmp(call->path, "/ok/post") == 0)
        serve_post(call);
    else if (strcmp(call->path, "/ok/continue") == 0) {
        assert(strcasestr(call->head, "Expect: 100-continue\r\n"));
        upstream_say(call, "HTTP/1.1 100 Continue\r\n\r\n");
        serve_post(call);
    } else if (strcmp(call->path, "/ok/chunked-post") == 0)
        serve_chunked_post(call);
    else if (strcmp(call->path, "/ok/events") == 0)
        serve_events(call);
    else if (strcmp(call->path, "/ok/big") == 0)
        serve_big(call);
    else if (strcmp(call->path, "/ok/stall") == 0) {
        char byte;
        upstream_say(call, "HTTP/1.1 200 OK\r\n\r\nhello");
        upstream_read(call, &byte, 1);
        return false;
    } else if (strcmp(call->path, "/ok/silent") == 0) {
        char byte;
        upstream_read(call, &byte, 1);
        return false;
    } else
        return false;
    return true;
}

/* --- the promises --- */

static const char *get(const char *path)
{
    char request[1024];
    snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: u.test\r\n" CLOSE, path);
    enum client_end end = ask("u.test", request, answer, sizeof(answer));
    assert(end == CLIENT_CLEAN);
    return answer;
}

static void expect_status(const char *sni, const char *request, const char *status)
{
    ask(sni, request, answer, sizeof(answer));
    if (strncmp(answer, "HTTP/1.1 ", 9) != 0 || strncmp(answer + 9, status, strlen(status)) != 0) {
        fprintf(stderr, "%s\ngave %s\nnot %s\n", request, answer, status);
        abort();
    }
}

static const char *body_of(const char *text)
{
    const char *end = strstr(text, "\r\n\r\n");
    return end ? end + 4 : "(no head)";
}

static void test_request_is_sent_as_judged(void)
{
    ask("u.test",
        "GET /ok/./echo/%7ea/../b%2Fc?q=%20;x HTTP/1.1\r\nHost: U.Test:443\r\nX-API-Key: mine\r\n"
        "Authorization: Bearer own\r\nX-Mine: 1\r\nX-Hop: 2\r\nConnection: close, x-hop\r\n"
        "TE: trailers\r\nX-Empty:\r\nKeep-Alive: 3\r\n\r\n",
        answer, sizeof(answer));
    const char *seen = body_of(answer);
    assert(strncmp(seen, "GET /ok/echo/b%2Fc?q=%20;x HTTP/1.1\r\n", 37) == 0);
    assert(strstr(seen, "Host: u.test\r\n") && strstr(seen, "X-Mine: 1\r\n"));
    assert(strcasestr(seen, "authorization: Bearer " STAND_IN_SECRET "\r\n"));
    assert(!strstr(seen, "Bearer own") && !strcasestr(seen, "x-api-key"));
    assert(!strcasestr(seen, "x-hop") && strstr(seen, "\r\nConnection: TE\r\nTE: trailers\r\n"));
    assert(!strcasestr(seen, "keep-alive") && !strcasestr(seen, "user-agent"));
    assert(!strcasestr(seen, "accept") && strcasestr(seen, "X-Empty:\r\n"));
}

static void test_answers_are_relayed_as_they_are(void)
{
    assert(strcmp(body_of(get("/ok/length")), "hello") == 0);
    assert(strstr(answer, "HTTP/1.1 200 Fine\r\n") && strstr(answer, "Content-Length: 5\r\n"));
    assert(strstr(answer, "X-Two: a\r\nX-Two: b\r\n"));
    assert(strcmp(body_of(get("/ok/chunked")), "5\r\nhello\r\n0\r\n\r\n") == 0);
    assert(strcasestr(answer, "transfer-encoding: chunked\r\n"));
    assert(strcmp(body_of(get("/ok/trailers")), "5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n") == 0);
    assert(strcasestr(answer, "trailer: x-sum\r\n"));
    assert(strcmp(body_of(get("/ok/gzip")), "\x1f\x8b"
                                            "abcd") == 0);
    assert(strstr(answer, "Content-Encoding: gzip\r\n"));
    assert(strcmp(body_of(get("/ok/204")), "") == 0 && strstr(answer, "X-A: b\r\n"));
    assert(!strcasestr(answer, "content-length") && !strcasestr(answer, "transfer-encoding"));
    assert(strcmp(body_of(get("/ok/304")), "") == 0 && strstr(answer, "ETag: \"x\"\r\n"));
    assert(strncmp(get("/ok/early"), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 40) == 0);
    assert(strstr(answer, "HTTP/1.1 200 OK\r\n"));
    assert(strstr(get("/ok/redirect"), "Location: https://elsewhere.test/\r\n"));
    assert(strcmp(body_of(get("/ok/until-close")), "hello") == 0);
    ask("u.test", "HEAD /ok/head HTTP/1.1\r\nHost: u.test\r\n" CLOSE, answer, sizeof(answer));
    assert(strstr(answer, "Content-Length: 1234\r\n") && strcmp(body_of(answer), "") == 0);
}

static void test_an_echoed_secret_is_dropped(void)
{
    get("/ok/leak");
    assert(!strstr(answer, STAND_IN_SECRET) && strstr(answer, "X-Other: 1\r\n"));
    assert(!strcasestr(answer, "x-paddock-reason")); /* what is ours no upstream says */
    assert(strstr(answer, "Content-Type: application/vnd.plain+json")); /* set, but no secret */
}

/* CASES A16. */
static void test_a_cut_answer_never_ends_cleanly(void)
{
    static const char *const paths[] = {"/ok/cut-until-close", "/ok/cut-length", "/ok/cut-chunked"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        char request[200];
        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: u.test\r\n" CLOSE, paths[i]);
        if (ask("u.test", request, answer, sizeof(answer)) != CLIENT_CUT) {
            fprintf(stderr, "%s ended cleanly: %s\n", paths[i], answer);
            abort();
        }
        assert(!strstr(answer, "0\r\n\r\n"));
    }
}

static void test_bad_answers_become_502(void)
{
    static const char *const paths[] = {"/ok/nothing", "/ok/two-lengths", "/ok/coding", "/ok/fold",
                                        "/ok/101"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        if (strncmp(get(paths[i]), "HTTP/1.1 502 Bad Gateway\r\n", 26) != 0) {
            fprintf(stderr, "%s gave %s\n", paths[i], answer);
            abort();
        }
        assert(strstr(answer, "x-paddock-reason: u.test: "));
    }
    expect_status("untrusted.test", "GET / HTTP/1.1\r\nHost: untrusted.test\r\n" CLOSE, "502 ");
    assert(strcasestr(answer, "certificate"));
}

/* CASES A3, A4. */
static void test_requests_on_one_connection_are_judged_one_by_one(void)
{
    struct client client;
    assert(client_open(&client, "u.test"));
    for (int i = 0; i < 3; i++) {
        client_say(&client, "GET /ok/length HTTP/1.1\r\nHost: u.test\r\n\r\n");
        client_read_until(&client, "hello", answer, sizeof(answer));
    }
    int before = atomic_load(&upstream_requests);
    client_say(&client, "GET /ok/length HTTP/1.1\r\nHost: u.test\r\n\r\n"
                        "GET /forbidden HTTP/1.1\r\nHost: u.test\r\n\r\n"
                        "GET /ok/length HTTP/1.1\r\nHost: u.test\r\n" CLOSE);
    assert(client_read_all(&client, answer, sizeof(answer)) == CLIENT_CLEAN);
    const char *denied = strstr(answer, "HTTP/1.1 403 Forbidden\r\n");
    assert(strncmp(answer, "HTTP/1.1 200 Fine", 17) == 0 && denied);
    assert(strstr(denied, "u.test is not reachable from this sandbox\n"));
    assert(strstr(denied, "HTTP/1.1 200 Fine"));
    assert(atomic_load(&upstream_requests) == before + 2);
    client_close(&client);
}

/* CASES A5, A17, A20, B2, B4: nothing of these reaches the upstream. */
static void test_refusals(void)
{
    int before = atomic_load(&upstream_requests);
    expect_status(
        "u.test",
        "GET /ok HTTP/1.1\r\nHost: u.test\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
        "400 ");
    expect_status("u.test", "GET /ok HTTP/1.1\r\nHost: u.test\r\nX: a\r\n b\r\n\r\n", "400 ");
    expect_status("u.test", "GET /ok HTTP/1.1\r\n\r\n", "400 ");
    expect_status("u.test", "GET /ok HTTP/1.1\r\nHost: get.test\r\n\r\n", "421 ");
    expect_status("u.test", "GET /ok HTTP/1.1\r\nHost: 127.0.0.1\r\n" CLOSE, "400 ");
    expect_status("u.test", "GET https://get.test/ok HTTP/1.1\r\nHost: u.test\r\n" CLOSE, "400 ");
    expect_status("u.test", "GET http://u.test/ok HTTP/1.1\r\nHost: u.test\r\n" CLOSE, "400 ");
    expect_status("u.test", "CONNECT u.test:443 HTTP/1.1\r\nHost: u.test\r\n" CLOSE, "4");
    expect_status("u.test", "TRACE /ok HTTP/1.1\r\nHost: u.test\r\n" CLOSE, "405 ");
    expect_status(
        "u.test",
        "GET /ok HTTP/1.1\r\nHost: u.test\r\nUpgrade: h2c\r\nConnection: Upgrade, close\r\n\r\n",
        "400 ");
    expect_status("u.test",
                  "GET /ok HTTP/1.1\r\nHost: u.test\r\nUpgrade: foo\r\nConnection: Upgrade, "
                  "close\r\n\r\n",
                  "501 ");
    expect_status("u.test", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 ");
    expect_status("u.test", "GET /ok/%00 HTTP/1.1\r\nHost: u.test\r\n" CLOSE, "400 ");
    expect_status("u.test", "GET /ok/../../x HTTP/1.1\r\nHost: u.test\r\n" CLOSE, "400 ");
    expect_status("u.test", "GET /ok/../no HTTP/1.1\r\nHost: u.test\r\n" CLOSE, "403 ");
    expect_status("u.test", "GET /ok HTTP/1.1\r\nHost: u.test:444\r\n" CLOSE, "421 ");
    expect_status("get.test", "POST / HTTP/1.1\r\nHost: get.test\r\nContent-Length: 0\r\n" CLOSE,
                  "403 ");
    expect_status("unset.test", "GET / HTTP/1.1\r\nHost: unset.test\r\n" CLOSE, "503 ");
    assert(strstr(answer, "x-should-retry: false\r\n") && strstr(answer, "UNSET"));
    expect_status("none.test", "GET / HTTP/1.1\r\nHost: none.test\r\n" CLOSE, "403 ");
    assert(strcmp(body_of(answer), "none.test is not reachable from this sandbox\n") == 0);
    char *long_line = calloc(1, 1 << 20);
    assert(long_line);
    memset(long_line, 'a', (1 << 20) - 1);
    memcpy(long_line, "GET /", 5);
    long_line[17000] = '\0';
    expect_status("u.test", long_line, "414 ");
    free(long_line);
    assert(atomic_load(&upstream_requests) == before);
    struct client client;
    assert(!client_open(&client, NULL) && !client_open(&client, "127.0.0.1"));
}

/* CASES B1. */
static void test_plain_http_is_refused(void)
{
    expect_status(NULL, "GET /ok HTTP/1.1\r\nHost: u.test\r\n" CLOSE, "403 ");
    assert(strcmp(body_of(answer), "u.test is reachable only over HTTPS\n") == 0);
    expect_status(NULL, "GET / HTTP/1.1\r\nHost: 100.64.0.2\r\n" CLOSE, "403 ");
    assert(strcmp(body_of(answer), "100.64.0.2 is not reachable from this sandbox\n") == 0);
    expect_status(NULL, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 ");
    expect_status(NULL, "GET /\r\n", "400 ");
}

/* CASES B7. */
static void test_a_name_that_leads_inside_is_refused(void)
{
    expect_status("localhost", "GET / HTTP/1.1\r\nHost: localhost\r\n" CLOSE, "403 ");
    if (!strstr(answer, "not public"))
        fprintf(stderr, "%s\n", answer);
    assert(strstr(answer, "not public"));
}

static void test_http10_is_answered_and_closed(void)
{
    assert(ask("u.test", "GET /ok/chunked HTTP/1.0\r\n\r\n", answer, sizeof(answer)) ==
           CLIENT_CLEAN);
    assert(strcmp(body_of(answer), "hello") == 0 && !strcasestr(answer, "transfer-encoding"));
}

/* CASES A1. */
static void test_events_arrive_at_once(void)
{
    struct client client;
    enum client_end end;
    assert(client_open(&client, "u.test"));
    client_say(&client, "GET /ok/events HTTP/1.1\r\nHost: u.test\r\n" CLOSE);
    int events = 0;
    size_t len;
    while ((len = client_read(&client, answer, sizeof(answer) - 1, &end))) {
        answer[len] = '\0';
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        double sent;
        const char *event = strstr(answer, "data: ");
        if (!event || sscanf(event, "data: %lf", &sent) != 1)
            continue;
        events++;
        assert((double)now.tv_sec + (double)now.tv_nsec / 1e9 - sent < 0.1);
    }
    assert(events == 3 && end == CLIENT_CLEAN);
    client_close(&client);
}

static void post(const char *path, const char *extra, size_t len, bool waits)
{
    struct client client;
    char head[512];
    static char data[5 << 20];
    unsigned sum = 0;
    for (size_t i = 0; i < len; i++) {
        data[i] = (char)(i * 7 + i / 251);
        sum = sum * 31 + (unsigned char)data[i];
    }
    assert(client_open(&client, "u.test"));
    snprintf(head, sizeof(head),
             "POST %s HTTP/1.1\r\nHost: u.test\r\nContent-Length: %zu\r\n%s" CLOSE, path, len,
             extra);
    client_say(&client, head);
    if (waits)
        client_read_until(&client, "HTTP/1.1 100 Continue\r\n\r\n", answer, sizeof(answer));
    client_send(&client, data, len);
    assert(client_read_all(&client, answer, sizeof(answer)) == CLIENT_CLEAN);
    char wanted[100];
    snprintf(wanted, sizeof(wanted), "%zu %u", len, sum);
    assert(strcmp(body_of(answer), wanted) == 0);
    client_close(&client);
}

/* CASES A2, A6, A9. */
static void test_bodies_arrive_whole(void)
{
    post("/ok/post", "", 0, false);
    post("/ok/post", "", 1, false);
    post("/ok/post", "", 1 << 20, false);
    post("/ok/post", "", 5 << 20, false);
    post("/ok/continue", "Expect: 100-Continue\r\nX-Y: z\r\n", 3 << 20, true);
    post("/ok/continue", "Expect: 100-continue\r\n", 1 << 20, true);
    ask("u.test",
        "POST /ok/chunked-post HTTP/1.1\r\nHost: u.test\r\nTransfer-Encoding: chunked\r\n"
        "Connection: close\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: 1\r\n\r\n",
        answer, sizeof(answer));
    assert(strcmp(body_of(answer), "ok") == 0);
}

static void test_an_early_answer_comes_before_the_body(void)
{
    static const char *const statuses[] = {"401", "417"};
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
        char request[300];
        int before = atomic_load(&upstream_requests);
        snprintf(request, sizeof(request),
                 "POST /ok/%s HTTP/1.1\r\nHost: u.test\r\nContent-Length: 3000000\r\n"
                 "X-A: b\r\nExpect: 100-continue\r\n\r\n",
                 statuses[i]);
        expect_status("u.test", request, statuses[i]);
        assert(strcmp(body_of(answer), "no") == 0);
        assert(atomic_load(&upstream_requests) == before + 1); /* not tried again */
    }
}

/* True when the upstream has sent nothing since the last look, a fifth of a second ago. */
static bool big_is_held_up(long *seen)
{
    long left = atomic_load(&big_left), before = *seen;
    *seen = left;
    return left && left == before;
}

/* Back-pressure: a client that does not read keeps the upstream from sending, and nothing piles up.
 */
static void test_memory_stays_flat(void)
{
    struct client client;
    enum client_end end;
    assert(client_open(&client, "u.test"));
    long before = harness_rss_kib();
    client_say(&client, "GET /ok/big HTTP/1.1\r\nHost: u.test\r\n" CLOSE);
    long seen = 0;
    while (!big_is_held_up(&seen)) /* at the latest when all of it was sent */
        usleep(200000);            /* twice that is well within the idle limit */
    assert(seen > BIG_BYTES / 2);
    assert(harness_rss_kib() - before < 4096);
    assert(egress_sandbox_meter(NULL)->wide_sockets == 1); /* its socket was full */
    long total = 0;
    size_t len;
    while ((len = client_read(&client, answer, sizeof(answer), &end)))
        total += (long)len;
    assert(total > BIG_BYTES && total < BIG_BYTES + 1000 && end == CLIENT_CLEAN);
    assert(harness_rss_kib() - before < 8192);
    client_close(&client);
    AWAIT(egress_sandbox_meter(NULL)->wide_sockets == 0);
}

/* The client goes away: the upstream's connection is ended too. */
static void test_a_gone_client_cancels(void)
{
    struct client client;
    int before = atomic_load(&upstream_broken);
    int requests = atomic_load(&upstream_requests);
    assert(client_open(&client, "u.test"));
    client_say(&client, "GET /ok/silent HTTP/1.1\r\nHost: u.test\r\n\r\n");
    AWAIT(atomic_load(&upstream_requests) > requests);
    client_close(&client);
    AWAIT(atomic_load(&upstream_broken) == before + 1);
}

/* The idle limit: an error, never a clean end. main set it to 1 s. */
static void test_a_stalled_stream_ends_as_an_error(void)
{
    assert(ask("u.test", "GET /ok/stall HTTP/1.1\r\nHost: u.test\r\n" CLOSE, answer,
               sizeof(answer)) == CLIENT_CUT);
    assert(strcmp(body_of(answer), "hello") == 0);
    expect_status("u.test", "GET /ok/silent HTTP/1.1\r\nHost: u.test\r\n" CLOSE, "504 ");
    assert(strstr(body_of(answer), "u.test: no byte came or went for too long"));
}

/* A client that does not read is cut off by the idle limit, and holds nothing from then on. */
static void test_a_client_that_does_not_read_is_cut_off(void)
{
    struct client client;
    assert(client_open(&client, "u.test"));
    client_say(&client, "GET /ok/big HTTP/1.1\r\nHost: u.test\r\n" CLOSE);
    struct pollfd gone = {.fd = client.fd};
    assert(poll(&gone, 1, 5000 * harness_patience()) == 1 && gone.revents & (POLLERR | POLLHUP));
    client_close(&client);
}

/* As many TLS records as are read in one turn, and nothing behind them that would wake anyone. */
static void test_a_head_in_small_records_is_answered(void)
{
    static const char request[] = "GET /ok/length HTTP/1.1\r\nHost: u.test\r\n" CLOSE;
    for (int records = 15; records < 20; records++) {
        struct client client;
        assert(client_open(&client, "u.test"));
        BIO *records_bio = BIO_new(BIO_s_mem());
        assert(records_bio);
        SSL_set0_wbio(client.ssl, records_bio);
        size_t first = sizeof(request) - (size_t)records;
        client_send(&client, request, first);
        for (size_t at = first; at < sizeof(request) - 1; at++)
            client_send(&client, request + at, 1);
        char *data;
        long len = BIO_get_mem_data(records_bio, &data);
        assert(send(client.fd, data, (size_t)len, MSG_NOSIGNAL) == len);
        assert(client_read_all(&client, answer, sizeof(answer)) == CLIENT_CLEAN);
        assert(strcmp(body_of(answer), "hello") == 0);
        client_close(&client);
    }
}

static atomic_bool flood_ends;
static atomic_long flood_answers; /* bytes */

static void *flood_write(void *ctx)
{
    static char requests[64 * 1024];
    const struct client *client = ctx;
    size_t len = 0;
    while (len < sizeof(requests) - 100)
        len += (size_t)snprintf(requests + len, 100, "GET / HTTP/1.1\r\nHost: u.test\r\n\r\n");
    while (!atomic_load(&flood_ends))
        (void)!send(client->fd, requests, len, MSG_NOSIGNAL);
    shutdown(client->fd, SHUT_RDWR);
    return NULL;
}

static void *flood_read(void *ctx)
{
    static char data[256 * 1024];
    const struct client *client = ctx;
    ssize_t n;
    while ((n = recv(client->fd, data, sizeof(data), 0)) > 0)
        atomic_fetch_add(&flood_answers, n);
    return NULL;
}

/* Requests that egress answers itself, sent and read as fast as it goes. */
static void test_a_flood_on_one_connection_holds_up_nobody(void)
{
    struct client flood;
    pthread_t threads[2];
    client_open_plain(&flood);
    assert(pthread_create(&threads[0], NULL, flood_write, &flood) == 0);
    assert(pthread_create(&threads[1], NULL, flood_read, &flood) == 0);
    AWAIT(atomic_load(&flood_answers) > 100000);
    time_t start = time(NULL);
    for (int i = 0; i < 10; i++)
        assert(strcmp(body_of(get("/ok/length")), "hello") == 0);
    assert(time(NULL) - start < 5 * harness_patience());
    atomic_store(&flood_ends, true);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    client_close(&flood);
}

/* CASES A19, with the idle limit of 1 s as the clock. */
static void test_slow_heads_are_cut_off_and_hold_up_nobody(void)
{
    enum { SLOW = 100 };
    static struct client slow[SLOW];
    for (int i = 0; i < SLOW; i++) {
        client_open_plain(&slow[i]);
        client_say(&slow[i], "GET / HTTP/1.1\r\nX: ");
    }
    time_t start = time(NULL);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SLOW; i++)
            (void)!write(slow[i].fd, "a", 1);
        assert(strcmp(body_of(get("/ok/length")), "hello") == 0);
        usleep(300000);
    }
    for (int i = 0; i < SLOW; i++) {
        client_read_until(&slow[i], "408 Request Timeout", answer, sizeof(answer));
        client_close(&slow[i]);
    }
    assert(time(NULL) - start < 5 * harness_patience());
}

/* A client that has sent all it will send in TLS (close_notify) still gets its answer. */
static void test_a_half_closed_client_is_answered(void)
{
    struct client client;
    assert(client_open(&client, "u.test"));
    client_say(&client, "GET /ok/events HTTP/1.1\r\nHost: u.test\r\n" CLOSE);
    assert(SSL_shutdown(client.ssl) == 0);
    assert(client_read_all(&client, answer, sizeof(answer)) == CLIENT_CLEAN);
    assert(strstr(answer, "\r\n0\r\n\r\n"));
    client_close(&client);
}

/* At the sandbox's limit everything still arrives, whole, but a head that needs a large buffer. */
static void test_a_full_sandbox_is_served_with_small_buffers(void)
{
    static char request[40000];
    struct client client;
    int len = snprintf(request, sizeof(request), "GET /ok/length HTTP/1.1\r\nHost: u.test\r\nX: ");
    memset(request + len, 'a', sizeof(request) - (size_t)len);
    atomic_store(&stand_in_is_full, true);
    test_bodies_arrive_whole();
    test_memory_stays_flat();
    assert(client_open(&client, "u.test"));
    client_send(&client, request, sizeof(request));
    assert(client_read_all(&client, answer, sizeof(answer)) == CLIENT_CLEAN);
    assert(strstr(answer, "HTTP/1.1 503 ") == answer && strstr(answer, "connection: close"));
    client_close(&client);
    atomic_store(&stand_in_is_full, false);
}

/* Many at once: each its own answer. */
static void test_many_clients_at_once(void)
{
    enum { MANY = 60 };
    static struct client clients[MANY];
    for (int i = 0; i < MANY; i++) {
        char request[200];
        assert(client_open(&clients[i], "u.test"));
        snprintf(request, sizeof(request), "GET /ok/echo/%d HTTP/1.1\r\nHost: u.test\r\n" CLOSE, i);
        client_say(&clients[i], request);
    }
    for (int i = 0; i < MANY; i++) {
        char wanted[100];
        snprintf(wanted, sizeof(wanted), "GET /ok/echo/%d HTTP/1.1\r\n", i);
        assert(client_read_all(&clients[i], answer, sizeof(answer)) == CLIENT_CLEAN);
        assert(strstr(answer, wanted));
        client_close(&clients[i]);
    }
}

int main(void)
{
    harness_start(1000 * harness_patience());
    test_request_is_sent_as_judged();
    test_answers_are_relayed_as_they_are();
    test_an_echoed_secret_is_dropped();
    test_a_cut_answer_never_ends_cleanly();
    test_bad_answers_become_502();
    test_requests_on_one_connection_are_judged_one_by_one();
    test_refusals();
    test_plain_http_is_refused();
    test_a_name_that_leads_inside_is_refused();
    test_http10_is_answered_and_closed();
    test_events_arrive_at_once();
    test_bodies_arrive_whole();
    test_an_early_answer_comes_before_the_body();
    test_memory_stays_flat();
    test_a_gone_client_cancels();
    test_slow_heads_are_cut_off_and_hold_up_nobody();
    test_a_half_closed_client_is_answered();
    test_a_full_sandbox_is_served_with_small_buffers();
    test_many_clients_at_once();
    test_a_stalled_stream_ends_as_an_error();
    test_a_client_that_does_not_read_is_cut_off();
    test_a_head_in_small_records_is_answered();
    test_a_flood_on_one_connection_holds_up_nobody();
    return 0;
}
