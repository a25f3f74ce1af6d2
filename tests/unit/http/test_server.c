/* The promises of the HTTP server, over a real socket: framing, limits, order, time-outs, and that
 * every exchange ends exactly once. */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../client.h"
#include "http/server.h"
#include "util/cleanup.h"

#define BODY_MAX 1000
#define STREAM_CHUNKS 64
#define STREAM_CHUNK 65536

static uv_loop_t loop;
static struct sockaddr_un address;
static socklen_t address_len;
static int heads, ends, streamed;
static struct http_exchange *held; /* of /hold: answered by the test */

/* Of /pieces, whose body is streamed. */
static struct {
    struct http_exchange *exchange; /* while its body comes */
    size_t len, largest;            /* bytes that came; of the largest piece */
    size_t full_at;                 /* from here on it says that it is full; 0: never */
    bool is_whole;
} pieces;

static void stream_more(void *ctx, struct http_exchange *exchange)
{
    (void)ctx;
    static char chunk[STREAM_CHUNK];
    memset(chunk, 's', sizeof(chunk));
    while (streamed < STREAM_CHUNKS) {
        streamed++;
        if (!http_stream_write(exchange, chunk, sizeof(chunk)))
            return;
    }
    http_stream_end(exchange);
}

static bool target_is(const struct http_exchange *exchange, const char *text)
{
    const struct http_head *head = http_exchange_head(exchange);
    return head->target_len == strlen(text) && memcmp(head->target, text, head->target_len) == 0;
}

static void on_head(void *ctx, struct http_exchange *exchange)
{
    (void)ctx;
    heads++;
    static const char text[] = "early";
    struct http_answer answer = {403, "text/plain", NULL, text, 5};
    if (target_is(exchange, "/early")) {
        http_answer(exchange, &answer);
    } else if (target_is(exchange, "/pieces")) {
        pieces.exchange = exchange;
        http_stream_body(exchange);
    } else
        http_accept_body(exchange, BODY_MAX);
}

/* Every byte tells its place, so that none can be lost, twice, or in another order. */
static char byte_at(size_t at)
{
    return (char)('a' + at % 23);
}

static bool on_body_data(void *ctx, struct http_exchange *exchange, const char *data, size_t len)
{
    (void)ctx;
    assert(exchange == pieces.exchange && len > 0 && !pieces.is_whole);
    for (size_t i = 0; i < len; i++)
        assert(data[i] == byte_at(pieces.len + i));
    pieces.len += len;
    pieces.largest = len > pieces.largest ? len : pieces.largest;
    return !pieces.full_at || pieces.len < pieces.full_at;
}

static void on_body(void *ctx, struct http_exchange *exchange)
{
    if (exchange == pieces.exchange) {
        assert(http_exchange_body(exchange)->len == 0);
        pieces.is_whole = true;
    }
    const struct buf *body = http_exchange_body(exchange);
    struct http_answer answer = {200, "text/plain", "X-Test: 1\r\n", buf_text(body), body->len};
    if (target_is(exchange, "/hold")) {
        held = exchange;
    } else if (target_is(exchange, "/stream")) {
        streamed = 0;
        if (http_stream_begin(exchange, &answer, stream_more))
            stream_more(ctx, exchange);
    } else if (target_is(exchange, "/abort")) {
        if (http_stream_begin(exchange, &answer, stream_more))
            http_stream_write(exchange, "part", 4);
        http_stream_abort(exchange);
    } else {
        http_answer(exchange, &answer);
    }
}

static void on_body_too_large(void *ctx, struct http_exchange *exchange)
{
    (void)ctx;
    struct http_answer answer = {413, "text/plain", NULL, "large", 5};
    http_answer(exchange, &answer);
}

static void on_end(void *ctx, struct http_exchange *exchange)
{
    (void)ctx;
    if (exchange == held)
        held = NULL;
    if (exchange == pieces.exchange)
        pieces.exchange = NULL;
    ends++;
}

static struct http_server *start(uint64_t ms, size_t max_connections)
{
    static const struct http_handler handler = {on_head, on_body, on_body_too_large, on_body_data,
                                                on_end};
    struct http_config config = {.handler = &handler,
                                 .max_connections = max_connections,
                                 .head_bytes = 4096,
                                 .idle_ms = ms,
                                 .head_ms = ms,
                                 .body_ms = ms,
                                 .write_ms = ms};
    struct http_server *server = NULL;
    heads = ends = 0;
    memset(&pieces, 0, sizeof(pieces));
    assert(uv_loop_init(&loop) == 0);
    assert(http_server_new(&loop, &config, &server, NULL) == 0);
    address.sun_family = AF_UNIX; /* an abstract name: no file, gone with the socket */
    int len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "paddock-test-%d-%d",
                       getpid(), rand()); /* NOLINT(cert-msc30-c, cert-msc50-cpp) */
    address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, address_len) == 0);
    assert(listen(fd, 16) == 0);
    assert(http_server_listen(server, fd, false, NULL) == 0);
    return server;
}

static void stop(struct http_server *server)
{
    http_server_close(server);
    while (uv_run(&loop, UV_RUN_ONCE))
        ;
    assert(uv_loop_close(&loop) == 0);
    assert(heads == ends); /* whatever happened */
}

static int dial(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(fd >= 0 && connect(fd, (struct sockaddr *)&address, address_len) == 0);
    return fd;
}

static void send_text(int fd, const char *text)
{
    assert(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

static void turn(void)
{
    uv_run(&loop, UV_RUN_NOWAIT);
}

static const char *receive(int fd, const char *until, size_t *ret_len)
{
    static char text[8 << 20];
    size_t len = client_receive(fd, turn, until, text, sizeof(text));
    if (ret_len)
        *ret_len = len;
    return text;
}

static void test_bodies_come_whole_and_connections_are_kept(void)
{
    struct http_server *server = start(10000, 10);
    cleanup_fd int fd = dial();
    send_text(fd, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    const char *text = receive(fd, "hello", NULL);
    assert(strncmp(text, "HTTP/1.1 200 OK\r\n", 17) == 0);
    assert(strstr(text, "\r\nContent-Length: 5\r\n") && strstr(text, "\r\nX-Test: 1\r\n"));
    assert(!strstr(text, "Connection: close"));
    send_text(fd, "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    send_text(fd, "2;x=y\r\nde\r\n0\r\n\r\n");
    assert(strstr(receive(fd, "abcde", NULL), "Content-Length: 5\r\n"));
    stop(server);
}

static void test_pipelined_requests_are_answered_in_order(void)
{
    struct http_server *server = start(10000, 10);
    cleanup_fd int fd = dial();
    send_text(
        fd, "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n"
            "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\ntwo"
            "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n"
            "POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nthree");
    shutdown(fd, SHUT_WR); /* a client may end its side and still wait for the answers */
    size_t len = 0;
    const char *text = receive(fd, NULL, &len);
    const char *one = strstr(text, "\r\n\r\none");
    const char *two = one ? strstr(one, "\r\n\r\ntwo") : NULL;
    assert(two && strstr(two, "\r\n\r\nthree") && len > (size_t)STREAM_CHUNKS * STREAM_CHUNK);
    assert(heads == 4);
    stop(server);
}

static void test_a_body_over_its_limit_is_refused_before_it_is_read(void)
{
    struct http_server *server = start(10000, 10);
    cleanup_fd int fd = dial();
    send_text(fd, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
    const char *text = receive(fd, "large", NULL);
    assert(strncmp(text, "HTTP/1.1 413 ", 13) == 0 && strstr(text, "Connection: close\r\n"));
    cleanup_fd int waiting = dial();
    send_text(waiting, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n"
                       "Expect: 100-continue\r\n\r\n");
    assert(strncmp(receive(waiting, "large", NULL), "HTTP/1.1 413 ", 13) == 0);
    cleanup_fd int chunked = dial();
    send_text(chunked, "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n");
    char part[BODY_MAX + 2];
    memset(part, 'x', sizeof(part));
    part[sizeof(part) - 1] = '\0';
    send_text(chunked, part);
    assert(strncmp(receive(chunked, "large", NULL), "HTTP/1.1 413 ", 13) == 0);
    stop(server);
}

static void test_the_answer_to_a_refused_body_arrives_though_the_client_goes_on(void)
{
    struct http_server *server = start(10000, 10);
    cleanup_fd int fd = dial();
    send_text(fd, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    char part[20001];
    memset(part, 'x', sizeof(part));
    part[sizeof(part) - 1] = '\0';
    for (int i = 0; i < 5; i++) {
        send_text(fd, part);
        for (int turn = 0; turn < 10; turn++)
            uv_run(&loop, UV_RUN_NOWAIT);
    }
    assert(strncmp(receive(fd, "large", NULL), "HTTP/1.1 413 ", 13) == 0);
    stop(server);
}

static void test_a_client_that_waits_for_100_gets_it(void)
{
    struct http_server *server = start(10000, 10);
    cleanup_fd int fd = dial();
    send_text(fd,
              "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n");
    assert(strcmp(receive(fd, "\r\n\r\n", NULL), "HTTP/1.1 100 Continue\r\n\r\n") == 0);
    send_text(fd, "abc");
    assert(strncmp(receive(fd, "abc", NULL), "HTTP/1.1 200 OK", 15) == 0);
    cleanup_fd int early = dial();
    send_text(early, "POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                     "Expect: 100-continue\r\n\r\n");
    const char *text = receive(early, "early", NULL);
    assert(strncmp(text, "HTTP/1.1 403 Forbidden\r\n", 24) == 0);
    stop(server);
}

static void test_what_cannot_be_framed_is_400_and_closed(void)
{
    static const char *const requests[] = {
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        "ffffffffffffffffff\r\nabc",
    };
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct http_server *server = start(10000, 10);
        cleanup_fd int fd = dial();
        send_text(fd, requests[i]);
        send_text(fd, "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        const char *text = receive(fd, NULL, NULL);
        if (strncmp(text, "HTTP/1.1 400 ", 13) != 0)
            fprintf(stderr, "request %zu\n", i);
        assert(strncmp(text, "HTTP/1.1 400 ", 13) == 0 && !strstr(text + 1, "HTTP/1.1"));
        stop(server);
    }
}

static void test_a_head_over_its_limit_is_431(void)
{
    struct http_server *server = start(10000, 10);
    cleanup_fd int fd = dial();
    char line[5000];
    memset(line, 'x', sizeof(line));
    line[sizeof(line) - 1] = '\0';
    send_text(fd, "GET /");
    send_text(fd, line);
    assert(strncmp(receive(fd, NULL, NULL), "HTTP/1.1 431 ", 13) == 0);
    stop(server);
}

static void test_slow_and_idle_clients_are_cut_off(void)
{
    struct http_server *server = start(50, 10);
    cleanup_fd int idle = dial();
    assert(receive(idle, NULL, NULL)[0] == '\0');
    cleanup_fd int head = dial();
    send_text(head, "GET / HTTP/1.1\r\nHo");
    assert(strncmp(receive(head, NULL, NULL), "HTTP/1.1 408 ", 13) == 0);
    cleanup_fd int body = dial();
    send_text(body, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
    assert(strncmp(receive(body, NULL, NULL), "HTTP/1.1 408 ", 13) == 0);
    stop(server);
}

static void test_a_client_that_takes_nothing_holds_up_the_source_and_is_cut_off(void)
{
    struct http_server *server = start(100, 10);
    cleanup_fd int fd = dial();
    send_text(fd, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int turns = 0; turns < 1000 && ends == 0; turns++)
        uv_run(&loop, UV_RUN_ONCE);
    assert(ends == 1 && streamed < STREAM_CHUNKS / 2);
    stop(server);
}

static void test_a_stream_arrives_whole_and_a_broken_one_has_no_end(void)
{
    struct http_server *server = start(10000, 10);
    cleanup_fd int fd = dial();
    send_text(fd, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    size_t len = 0;
    const char *text = receive(fd, "\r\n0\r\n\r\n", &len);
    assert(strstr(text, "Transfer-Encoding: chunked\r\n") && streamed == STREAM_CHUNKS);
    assert(len > (size_t)STREAM_CHUNKS * STREAM_CHUNK);
    send_text(fd, "GET /abort HTTP/1.1\r\nHost: a\r\n\r\n");
    assert(!strstr(receive(fd, NULL, NULL), "\r\n0\r\n"));
    cleanup_fd int old = dial();
    send_text(old, "GET /stream HTTP/1.0\r\n\r\n");
    assert(strncmp(receive(old, NULL, NULL), "HTTP/1.1 505 ", 13) == 0);
    stop(server);
}

static void test_a_client_that_goes_away_ends_its_exchange(void)
{
    struct http_server *server = start(10000, 10);
    int fd = dial();
    send_text(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    while (!held)
        uv_run(&loop, UV_RUN_NOWAIT);
    close(fd);
    for (int turns = 0; turns < 1000 && held; turns++)
        uv_run(&loop, UV_RUN_NOWAIT);
    assert(!held && ends == 1);
    stop(server);
}

static void test_a_connection_too_many_is_told_so(void)
{
    struct http_server *server = start(10000, 1);
    cleanup_fd int first = dial();
    send_text(first, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    receive(first, "\r\n\r\n", NULL);
    cleanup_fd int second = dial();
    assert(strncmp(receive(second, NULL, NULL), "HTTP/1.1 503 ", 13) == 0);
    send_text(first, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert(strncmp(receive(first, "\r\n\r\n", NULL), "HTTP/1.1 200 ", 13) == 0);
    stop(server);
}

static void test_http_1_0_is_answered_and_closed(void)
{
    struct http_server *server = start(10000, 10);
    cleanup_fd int fd = dial();
    send_text(fd, "GET /a HTTP/1.0\r\n\r\n");
    const char *text = receive(fd, NULL, NULL);
    assert(strncmp(text, "HTTP/1.1 200 OK", 15) == 0 && strstr(text, "Connection: close\r\n"));
    stop(server);
}

/* ---------------------------------------------------------------------- streamed bodies */

#define PIECES_BYTES ((size_t)3 << 20)

/* Sends the body from `*at` on as far as it is taken, in `turns` turns of the loop. */
static void send_body(int fd, size_t *at, size_t end, bool is_chunked, int turns)
{
    static char data[32 + 65536];
    static size_t ready, sent; /* of a chunk that was taken in part */
    if (*at == 0)
        ready = sent = 0;
    for (int i = 0; i < turns && (*at < end || sent < ready); i++) {
        if (sent == ready) {
            size_t n = end - *at < 60000 ? end - *at : 60000;
            ready = is_chunked ? (size_t)snprintf(data, 32, "%zx\r\n", n) : 0;
            for (size_t j = 0; j < n; j++)
                data[ready++] = byte_at((*at)++);
            if (is_chunked)
                ready += (size_t)snprintf(data + ready, 32, *at == end ? "\r\n0\r\n\r\n" : "\r\n");
            sent = 0;
        }
        ssize_t n = send(fd, data + sent, ready - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += n > 0 ? (size_t)n : 0;
        turn();
    }
}

static void begin_pieces(int fd, bool is_chunked, size_t len)
{
    char head[128];
    snprintf(head, sizeof(head), "PUT /pieces HTTP/1.1\r\nHost: a\r\n%s%zu\r\n\r\n",
             is_chunked ? "Transfer-Encoding: chunked\r\nX-Length: " : "Content-Length: ", len);
    send_text(fd, head);
}

static void test_a_streamed_body_comes_in_pieces_and_is_not_kept(void)
{
    for (int is_chunked = 0; is_chunked < 2; is_chunked++) {
        struct http_server *server = start(10000, 10);
        cleanup_fd int fd = dial();
        size_t at = 0;
        begin_pieces(fd, is_chunked, PIECES_BYTES);
        send_body(fd, &at, PIECES_BYTES, is_chunked, 100000);
        assert(strstr(receive(fd, "\r\n\r\n", NULL), "200 OK"));
        assert(pieces.len == PIECES_BYTES && pieces.is_whole && at == PIECES_BYTES);
        assert(pieces.largest <= HTTP_STREAM_PIECES_BYTES);
        /* the connection goes on with what is no stream */
        send_text(fd, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nnext");
        assert(strstr(receive(fd, "next", NULL), "200 OK"));
        stop(server);
    }
}

static void test_who_is_full_gets_no_more_than_one_connection_holds(void)
{
    for (int is_chunked = 0; is_chunked < 2; is_chunked++) {
        struct http_server *server = start(10000, 10);
        cleanup_fd int fd = dial();
        size_t at = 0;
        pieces.full_at = 1;
        begin_pieces(fd, is_chunked, PIECES_BYTES);
        send_body(fd, &at, PIECES_BYTES, is_chunked, 2000);
        assert(pieces.len > 0 && pieces.len <= pieces.largest + HTTP_STREAM_PIECES_BYTES);
        assert(!pieces.is_whole && at < PIECES_BYTES); /* the client is held up */
        size_t before = pieces.len;
        http_resume_body(pieces.exchange);
        send_body(fd, &at, PIECES_BYTES, is_chunked, 2000);
        assert(pieces.len > before && !pieces.is_whole); /* and again */
        pieces.full_at = 0;
        http_resume_body(pieces.exchange);
        send_body(fd, &at, PIECES_BYTES, is_chunked, 100000);
        assert(strstr(receive(fd, "\r\n\r\n", NULL), "200 OK"));
        assert(pieces.len == PIECES_BYTES && pieces.is_whole);
        stop(server);
    }
}

static void test_a_streamed_body_that_breaks_off_is_never_whole(void)
{
    struct http_server *server = start(200, 10);
    cleanup_fd int slow = dial(); /* sends nothing more: body_ms from piece to piece */
    size_t at = 0;
    begin_pieces(slow, false, 100);
    send_body(slow, &at, 50, false, 50);
    for (int i = 0; i < 1000 && pieces.len < 50; i++)
        turn();
    assert(pieces.len == 50);
    receive(slow, NULL, NULL);
    assert(!pieces.is_whole && !pieces.exchange && heads == 1 && ends == 1);

    memset(&pieces, 0, sizeof(pieces));
    int gone = dial();
    begin_pieces(gone, true, 100);
    send_text(gone, "3\r\nabc\r\n");
    for (int i = 0; i < 1000 && pieces.len < 3; i++)
        turn();
    close(gone);
    for (int i = 0; i < 1000 && ends < 2; i++)
        turn();
    assert(pieces.len == 3 && !pieces.is_whole && ends == 2);

    memset(&pieces, 0, sizeof(pieces));
    cleanup_fd int wrong = dial();
    begin_pieces(wrong, true, 100);
    send_text(wrong, "3\r\nabcx\r\n");
    assert(strstr(receive(wrong, NULL, NULL), "HTTP/1.1 400 ") && !pieces.is_whole);
    stop(server);
}

static void test_a_streamed_body_that_waits_for_100_gets_it(void)
{
    struct http_server *server = start(10000, 10);
    cleanup_fd int fd = dial();
    send_text(fd, "PUT /pieces HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                  "Content-Length: 3\r\n\r\n");
    assert(strncmp(receive(fd, "\r\n\r\n", NULL), "HTTP/1.1 100 ", 13) == 0 && pieces.len == 0);
    send_text(fd, "abc");
    assert(strstr(receive(fd, "\r\n\r\n", NULL), "200 OK") && pieces.len == 3);
    stop(server);
}

int main(void)
{
    test_bodies_come_whole_and_connections_are_kept();
    test_pipelined_requests_are_answered_in_order();
    test_a_body_over_its_limit_is_refused_before_it_is_read();
    test_the_answer_to_a_refused_body_arrives_though_the_client_goes_on();
    test_a_client_that_waits_for_100_gets_it();
    test_what_cannot_be_framed_is_400_and_closed();
    test_a_head_over_its_limit_is_431();
    test_slow_and_idle_clients_are_cut_off();
    test_a_client_that_takes_nothing_holds_up_the_source_and_is_cut_off();
    test_a_stream_arrives_whole_and_a_broken_one_has_no_end();
    test_a_client_that_goes_away_ends_its_exchange();
    test_a_connection_too_many_is_told_so();
    test_http_1_0_is_answered_and_closed();
    test_a_streamed_body_comes_in_pieces_and_is_not_kept();
    test_who_is_full_gets_no_more_than_one_connection_holds();
    test_a_streamed_body_that_breaks_off_is_never_whole();
    test_a_streamed_body_that_waits_for_100_gets_it();
    return 0;
}
