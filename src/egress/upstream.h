/*
 * The way out: one interface, so that another implementation can take a path over; today libcurl's
 * multi interface (upstream_curl.c). A request goes out exactly as given: method, target, headers.
 * Everything happens on the loop's thread, by callbacks; no callback is called from within a call.
 * Back-pressure both ways: the exchange stops reading upstream when told to pause, and tells when
 * it can take more of the request's body.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "egress/egress.h"
#include "http/head.h"
#include "util/buf.h"

struct egress_exchange;

enum egress_body { EGRESS_BODY_NONE, EGRESS_BODY_LENGTH, EGRESS_BODY_CHUNKED };

/* All pointers are copied before egress_upstream_start returns. */
struct egress_request {
    const char *method;
    const char *target; /* canonical path and query, sent as it is */
    const char *host; /* canonical; Host header, SNI, and the name the certificate is checked for */
    uint16_t port;
    const char
        *connect_host; /* the rule's upstream, or NULL: resolve `host`, public addresses only */
    uint16_t connect_port;
    const char *ca_pem; /* of the rule's upstream_ca, or NULL: the system's */
    size_t ca_pem_len;
    const struct http_field *headers; /* end-to-end headers, Host and framing left out */
    size_t header_count;
    enum egress_body body;
    uint64_t body_length;
    bool expects_continue; /* Expect: 100-continue goes along; what comes of it is told by `head` */
};

struct egress_exchange_events {
    /* An interim (1xx) or the final head. Names and values point into the exchange's memory. */
    void (*head)(void *ctx, int status, const char *reason, const struct http_field *headers,
                 size_t count);
    /* Body bytes. Returns false to pause: the same bytes are given again after resume. */
    bool (*body)(void *ctx, const char *data, size_t len);
    /* Trailers of a chunked answer, before `end`. */
    void (*trailers)(void *ctx, const struct http_field *headers, size_t count);
    /* There is room for more of the request's body. */
    void (*writable)(void *ctx);
    /* The end; after it the exchange is gone. reason NULL: the answer is complete; else the cause:
     * the answer was cut short (head was called) or never came. */
    void (*end)(void *ctx, const char *reason);
};

int egress_upstreams_open(uv_loop_t *loop, const char *proxy, int64_t idle_ms,
                          struct egress_upstreams **ret, struct err *err);
void egress_upstreams_close(struct egress_upstreams *upstreams);

int egress_upstream_start(struct egress_upstreams *upstreams, const struct egress_request *request,
                          const struct egress_exchange_events *events, void *ctx,
                          struct egress_exchange **ret, struct err *err);

/* Gives bytes of the request's body, of which at most `most` may wait (LIMIT_EGRESS_QUEUE_BYTES or
 * less). Returns how many were taken; fewer than given: wait for writable. */
size_t egress_exchange_write(struct egress_exchange *exchange, const char *data, size_t len,
                             size_t most);
/* Its buffers that are larger than LIMIT_EGRESS_OWN_BUFFER_BYTES. */
size_t egress_exchange_large_bytes(const struct egress_exchange *exchange);
void egress_exchange_write_end(struct egress_exchange *exchange);
void egress_exchange_resume(struct egress_exchange *exchange); /* after body returned false */
void egress_exchange_cancel(struct egress_exchange *exchange); /* no callback comes any more */
