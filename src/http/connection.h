/* A connection and the exchange on it; shared by the .c files of src/http alone. */
#pragma once

#include <llhttp.h>

#include "http/server.h"

/* Bytes read at once, and bytes that may wait to be sent before the source must pause. */
#define HTTP_READ_BYTES 65536
#define HTTP_QUEUE_BYTES ((size_t)256 * 1024)
#define HTTP_QUEUE_LOW_BYTES ((size_t)64 * 1024)
/* After an answer that came before the end of the request, what still comes is read and dropped for
 * so long and so much, so that the client can read the answer before it sees a broken connection.
 */
#define HTTP_LINGER_MS 2000
#define HTTP_LINGER_BYTES ((size_t)1024 * 1024)

enum http_state {
    HTTP_IN_HEAD,   /* between requests, or in a head */
    HTTP_IN_BODY,   /* reading an accepted body */
    HTTP_ANSWERING, /* the handler's turn, or its answer is being sent */
    HTTP_LINGERING, /* answered; dropping what still comes */
    HTTP_CLOSING,   /* handles are being closed */
};

struct http_exchange {
    struct http_connection *connection;
    struct buf head_bytes; /* what head points into */
    struct http_head head;
    struct buf body;
    llhttp_t chunks;      /* decodes a chunked body */
    size_t chunked_bytes; /* raw bytes of it so far */
    bool is_active;       /* between on_head and on_end */
    bool is_body_read;    /* or there is none */
    bool is_too_large;
    bool is_body_streamed;
    bool is_body_paused; /* the taker of a streamed body is full */
    int64_t body_bytes;  /* of a body of known length so far */
    bool is_answered;    /* the whole answer is queued */
    bool is_streaming;
    bool is_raw;  /* upgraded: no HTTP any more, either way */
    bool is_full; /* the writer waits for on_drain */
    bool must_close;
    void (*on_drain)(void *ctx, struct http_exchange *exchange);
    void *user;
};

struct http_connection {
    struct http_server *server;
    struct http_connection *next, *previous;
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
        uv_handle_t any;
    };
    uv_timer_t timer;
    bool is_tcp;
    bool is_at_eof; /* the client sends no more, but may still read */
    bool is_reading;
    enum http_state state;
    int open_handles;
    struct buf in; /* received and not consumed */
    size_t scanned;
    size_t queued; /* bytes given to the kernel's side and not yet taken */
    size_t lingered;
    struct http_exchange exchange;
};

/* connection.c */
int http_connection_accept(struct http_server *server, uv_stream_t *listener, bool is_tcp);
void http_connection_close(struct http_connection *connection, bool reset);
void http_connection_timer(struct http_connection *connection, uint64_t ms);
void http_connection_finish(struct http_connection *connection);

/* answer.c */
bool http_connection_write(struct http_connection *connection, const struct buf *bytes);
/* An answer of the server itself, to a request that no handler sees. */
void http_connection_refuse(struct http_connection *connection, int status, const char *reason);

/* body.c: the body in connection->in. 1: complete, 0: more must come; else the status to refuse it
 * with. */
void http_body_begin(struct http_exchange *exchange);
bool http_body_is_coming(const struct http_exchange *exchange); /* there is one */
int http_body_read(struct http_exchange *exchange, struct buf *in);

/* server.c */
const struct http_config *http_server_config(const struct http_server *server);
uv_loop_t *http_server_loop(struct http_server *server);
bool http_server_add(struct http_server *server, struct http_connection *connection);
void http_server_remove(struct http_server *server, struct http_connection *connection);
char *http_server_scratch(struct http_server *server); /* HTTP_READ_BYTES, for one read at a time */
