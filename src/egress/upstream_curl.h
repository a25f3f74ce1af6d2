/* What the files of the libcurl upstream share; nothing for others. */
#pragma once

#include <curl/curl.h>
#include <uv.h>

#include "egress/upstream.h"
#include "util/limits.h"

/* Easy handles kept for the next exchange: making one costs more than resetting one. */
#define UPSTREAM_IDLE_HANDLES 64
/* Connections kept open to upstreams, all together; one unused for so long is not used again. */
#define UPSTREAM_POOL_SIZE 256L
#define UPSTREAM_POOL_IDLE_S 60L

struct egress_upstreams {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;   /* libcurl's */
    uv_idle_t deferred; /* runs while an exchange waits for upstream_run_deferred */
    int open_handles;   /* of libuv, until close is done */
    char *proxy;        /* "" for none */
    int64_t idle_ms;
    struct egress_exchange *exchanges; /* all of them */
    struct egress_exchange *waiting;   /* for upstream_run_deferred, by next_waiting */
    CURL *idle[UPSTREAM_IDLE_HANDLES];
    size_t idle_count;
};

/* Whether the TLS connection of an answer that ends with it was ended by close_notify. Shared by
 * the exchange and OpenSSL's connection, whichever is freed first. */
struct tls_end {
    int references;
    bool is_clean;
};

enum exchange_phase { EXCHANGE_HEAD, EXCHANGE_BODY };

struct egress_exchange {
    struct egress_upstreams *upstreams;
    struct egress_exchange *previous, *next;
    struct egress_exchange *next_waiting;
    bool is_waiting;
    CURL *easy;
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    const struct egress_exchange_events *events;
    void *ctx;

    struct buf out; /* of the request's body, not yet with libcurl */
    size_t out_used;
    bool out_ended;
    bool out_was_short; /* a write was not taken whole: `writable` is due */

    enum exchange_phase phase;
    struct buf lines; /* header lines of the head (or trailers) being read */
    size_t line_bytes;
    size_t line_count;

    struct tls_end *tls_end; /* NULL: the answer does not end with its connection */

    bool is_head_request;
    bool is_cancelled;
    bool is_resumed; /* libcurl is to be told to go on, outside of its callbacks */
    bool is_receive_paused;
    bool is_send_paused;
    bool may_be_private; /* the rule names the upstream, or a proxy stands in front */
    char failure[256];   /* our own reason to end it, "" for none */
    char curl_error[CURL_ERROR_SIZE];
};

/* upstream_curl_easy.c: sets up the easy handle for the request. */
int upstream_easy_prepare(struct egress_exchange *exchange, const struct egress_request *request,
                          struct err *err);
/* The answer will end with its connection: how that ends is to be known. 0 or -ENOMEM. */
int upstream_watch_tls_end(struct egress_exchange *exchange);
void upstream_tls_end_unref(struct tls_end *end);
/* Frees the lists of headers, wiped: rules put secrets into them. */
void upstream_easy_free_lists(struct egress_exchange *exchange);

/* upstream_curl_answer.c: libcurl's callbacks. */
size_t upstream_on_header(char *line, size_t size, size_t count, void *ctx);
size_t upstream_on_body(char *data, size_t size, size_t count, void *ctx);
void upstream_deliver_trailers(struct egress_exchange *exchange);

/* upstream_curl.c */
size_t upstream_on_read(char *data, size_t size, size_t count, void *ctx);
void upstream_finish(struct egress_exchange *exchange, CURLcode result);

/* upstream_curl_loop.c: libcurl's sockets and timer on the loop. */
int upstream_loop_open(struct egress_upstreams *upstreams, struct err *err);
