/*
 * The server side of HTTP/1.1 on libuv: listening sockets, connections with bounded buffers and
 * time-outs, one request at a time on each (pipelined ones wait in the buffer), bodies read whole
 * up to the limit of their route, or given on in pieces, answers whole or streamed, with
 * back-pressure both ways. One thread; nothing
 * blocks. Used by api.
 *
 * A request is an exchange. Its callbacks come in this order: on_head; if a body was accepted, then
 * on_body or on_body_too_large, or, of a streamed one, on_body_data for each piece, then on_body;
 * at the end, whatever happened, on_end. on_end never comes from inside a call of a function of
 * this header.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "http/head.h"
#include "util/buf.h"
#include "util/err.h"

struct http_server;
struct http_exchange;

struct http_handler {
    /* A head arrived. Answer at once, or accept the body (also of a request without one). */
    void (*on_head)(void *ctx, struct http_exchange *exchange);
    /* The whole body is there. */
    void (*on_body)(void *ctx, struct http_exchange *exchange);
    /* The body is over the accepted limit: answer; no more of it is kept. */
    void (*on_body_too_large)(void *ctx, struct http_exchange *exchange);
    /* A piece of a streamed body. False: no more until http_resume_body, but for what was read
     * already (HTTP_STREAM_PIECES_BYTES at most). Answers nothing. */
    bool (*on_body_data)(void *ctx, struct http_exchange *exchange, const char *data, size_t len);
    /* The answer is sent or the client is gone; the exchange must not be used afterwards. */
    void (*on_end)(void *ctx, struct http_exchange *exchange);
};

struct http_config {
    const struct http_handler *handler;
    void *ctx;
    size_t max_connections; /* beyond: 503 and closed */
    size_t head_bytes;      /* of request line and headers; beyond: 431 */
    uint64_t idle_ms;       /* between two requests; then closed */
    uint64_t head_ms;       /* from a head's first byte to its last; then 408 */
    uint64_t body_ms;       /* from the head to the end of the body; then 408 */
    uint64_t write_ms;      /* without the client taking a byte; then closed */
};

/* The config is copied. -ENOMEM. */
int http_server_new(uv_loop_t *loop, const struct http_config *config, struct http_server **ret,
                    struct err *err);

/* Accepts connections of a listening socket, which becomes the server's. */
int http_server_listen(struct http_server *server, int fd, bool is_tcp, struct err *err);

/* Closes every listener and connection; freed when the loop has run once more. */
void http_server_close(struct http_server *server);

const struct http_head *http_exchange_head(const struct http_exchange *exchange);
const struct buf *http_exchange_body(const struct http_exchange *exchange);
bool http_exchange_is_tcp(const struct http_exchange *exchange);
void http_exchange_set_user(struct http_exchange *exchange, void *user);
void *http_exchange_user(const struct http_exchange *exchange);

/* From on_head: reads the body up to `max` bytes, then calls on_body. A Content-Length over it
 * calls on_body_too_large at once. Sends 100 Continue to a client that waits for it. */
void http_accept_body(struct http_exchange *exchange, size_t max);

/* The most that on_body_data gets after it said that it is full: what one connection holds. */
#define HTTP_STREAM_PIECES_BYTES ((size_t)256 * 1024)

/* From on_head or later, before any answer: reads the body in pieces, however long it is; body_ms
 * is then the time from one piece to the next. Sends 100 Continue to a client that waits for it. It
 * may be answered at any time. */
void http_stream_body(struct http_exchange *exchange);
void http_resume_body(struct http_exchange *exchange);

struct http_answer {
    int status;
    const char *type;  /* Content-Type, NULL: none */
    const char *extra; /* more headers, each with its CRLF; NULL: none */
    const void *body;
    size_t len;
};

/* The whole answer; copied. An answer before the whole body was read ends the connection. */
void http_answer(struct http_exchange *exchange, const struct http_answer *answer);

/* A streamed answer (chunked). A client of HTTP/1.0 could not tell its end from a break: it gets
 * 505 instead, and false is returned. */
bool http_stream_begin(struct http_exchange *exchange, const struct http_answer *answer,
                       void (*on_drain)(void *ctx, struct http_exchange *exchange));
/* Queues bytes (copied). False: the queue is full; write no more until on_drain was called. */
bool http_stream_write(struct http_exchange *exchange, const void *data, size_t len);
/* 101 with these headers, each with its CRLF, to a request without a body. From here on
 * on_body_data gets the client's bytes, with the same back-pressure, http_stream_write sends bytes
 * as they are, and http_stream_end ends the connection when they are sent. */
bool http_upgrade(struct http_exchange *exchange, const char *extra,
                  void (*on_drain)(void *ctx, struct http_exchange *exchange));
void http_stream_end(struct http_exchange *exchange);
/* Ends the connection, without the last chunk of a stream: the client sees that the answer is not
 * complete. */
void http_stream_abort(struct http_exchange *exchange);
