/*
 * The way out: one interface between a sandbox's request and the connection that carries it. A
 * request goes out exactly as given: method, target, headers. Everything happens on the loop's
 * thread, by callbacks; no callback is called from within a call. Back-pressure both ways: the
 * exchange stops reading upstream when told to pause, and tells when it can take more of the
 * request's body.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "egress/egress.h"
#include "egress/trust.h"
#include "http/head.h"
#include "util/buf.h"

struct egress_exchange;

/* What a buffer counts for its sandbox: nothing as long as it is a connection's own. */
static inline size_t egress_large(const struct buf *buf)
{
    return buf->capacity > LIMIT_EGRESS_OWN_BUFFER_BYTES ? buf->capacity : 0;
}

enum egress_body { EGRESS_BODY_NONE, EGRESS_BODY_LENGTH, EGRESS_BODY_CHUNKED };

/* All pointers are copied before egress_upstream_start returns. */
struct egress_request {
    uint64_t owner; /* whose it is: requests of two owners never share a connection */
    const char *method;
    const char *target; /* canonical path and query, sent as it is */
    const char *host; /* canonical; Host header, SNI, and the name the certificate is checked for */
    uint16_t port;
    const char
        *connect_host; /* the rule's upstream, or NULL: resolve `host`, public addresses only */
    uint16_t connect_port;
    bool is_plain;           /* without TLS */
    struct trust_spec trust; /* of the rule's upstream_ca, upstream_cert and upstream_key */
    const struct http_field *headers; /* end-to-end headers, Host and framing left out */
    size_t header_count;
    enum egress_body body;
    uint64_t body_length;
    bool expects_continue; /* Expect: 100-continue goes along; what comes of it is told by `head` */
    bool takes_trailers;   /* TE: trailers goes along */
    /* NULL, or the protocol of an Upgrade (RFC 9110 7.8): over HTTP/1.1, on a connection of its
     * own. After a head with 101 the bytes both ways are the protocol's. */
    const char *upgrade;
    bool is_held; /* nothing is sent, and no connection made, before egress_exchange_release */
};

/* Why an exchange ended. */
enum egress_failure {
    EGRESS_COMPLETE,       /* no failure: the answer is whole */
    EGRESS_FAILED_NAME,    /* the host's name leads to no address */
    EGRESS_FAILED_PRIVATE, /* it leads to addresses that are not public alone */
    EGRESS_FAILED_CONNECT, /* nobody answers there, or a proxy in front refuses */
    EGRESS_FAILED_TIMEOUT, /* nobody said anything there for too long */
    EGRESS_FAILED_TRUST,   /* its certificate is not accepted */
    EGRESS_FAILED_ANSWER,  /* what came is no HTTP that we take */
    EGRESS_FAILED_CUT,     /* it came in part, or not at all */
    EGRESS_FAILED_SELF,    /* out of memory */
};

struct egress_exchange_events {
    /* An interim (1xx) or the final head. Names and values point into the exchange's memory. */
    void (*head)(void *ctx, int status, const char *reason, const struct http_field *headers,
                 size_t count);
    /* Body bytes. Returns false to pause: the same bytes are given again after resume. */
    bool (*body)(void *ctx, const char *data, size_t len);
    /* Trailers of the answer, before `end`. */
    void (*trailers)(void *ctx, const struct http_field *headers, size_t count);
    /* True: so much as LIMIT_EGRESS_STREAM_BYTES of the answer may wait. NULL: it may. */
    bool (*widen)(void *ctx);
    /* There is room for more of the request's body. */
    void (*writable)(void *ctx);
    /* The end; after it the exchange is gone. EGRESS_COMPLETE, or the cause and a text for it: the
     * answer was cut short (head was called) or never came. */
    void (*end)(void *ctx, enum egress_failure failure, const char *reason);
};

/* `proxy`: http://[USER:PASSWORD@]HOST:PORT in front of all upstreams that no rule names, or "". */
int egress_upstreams_open(uv_loop_t *loop, struct turn_queue *turns, const char *proxy,
                          struct egress_upstreams **ret, struct err *err);
/* Ends all exchanges without a callback. The memory goes when the loop has run on. */
void egress_upstreams_close(struct egress_upstreams *upstreams);

/* Closes the connections (if there are `upstreams`) of an owner that asks no more, all of whose
 * exchanges ended or were cancelled. Not to be called from a callback of an exchange. */
void egress_upstreams_leave(struct egress_upstreams *upstreams, uint64_t owner);

/* -ENOMEM, or -EINVAL when CA, certificate or key cannot be used; then there is no exchange. */
int egress_upstream_start(struct egress_upstreams *upstreams, const struct egress_request *request,
                          const struct egress_exchange_events *events, void *ctx,
                          struct egress_exchange **ret, struct err *err);

/* Gives bytes of the request's body, of which at most `most` may wait (LIMIT_EGRESS_QUEUE_BYTES or
 * less). Returns how many were taken; fewer than given: wait for writable. */
size_t egress_exchange_write(struct egress_exchange *exchange, const char *data, size_t len,
                             size_t most);
/* Of a request that is held: what was taken of its body, all of it. */
const char *egress_exchange_held(const struct egress_exchange *exchange, size_t *ret_len);
/* It may go now; once. */
void egress_exchange_release(struct egress_exchange *exchange);
/* The body is complete; `trailers` (count 0: none) go behind a chunked one. */
void egress_exchange_write_end(struct egress_exchange *exchange, const struct http_field *trailers,
                               size_t count);
/* True when the upstream's protocol itself tells an answer's end (HTTP/2): it then needs neither
 * Content-Length nor chunks. From the answer's head on. */
bool egress_exchange_is_framed(const struct egress_exchange *exchange);
/* "h2" or "http/1.1", and its version of TLS as SSL_get_version; NULL: there is no connection. */
const char *egress_exchange_protocol(const struct egress_exchange *exchange);
const char *egress_exchange_tls(const struct egress_exchange *exchange);
/* Its head went to a connection: what is in it is the upstream's, or would have been. */
bool egress_exchange_was_sent(const struct egress_exchange *exchange);
/* Its buffers that are larger than LIMIT_EGRESS_OWN_BUFFER_BYTES. */
size_t egress_exchange_large_bytes(const struct egress_exchange *exchange);
void egress_exchange_resume(struct egress_exchange *exchange); /* after body returned false */
void egress_exchange_cancel(struct egress_exchange *exchange); /* no callback comes any more */
