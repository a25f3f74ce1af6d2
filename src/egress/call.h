/*
 * One request of a sandbox and its answer, whatever protocol the client speaks: judged, forwarded,
 * answered, audited. The front (conn_h1.c, conn_h2.c) reads the request and writes the answer; the
 * call decides what they are. Process: paddock-egress. Invariants: exactly one audit line a call;
 * an answer that was cut upstream is never ended cleanly; no header with a secret of the rule is
 * passed on.
 */
#pragma once

#include "egress/egress.h"
#include "egress/http1.h"
#include "egress/refuse.h"
#include "egress/upstream.h"
#include "util/secret.h"

struct call;
struct usage_reader;

/* What a call asks of its client's side. Everything may be called within a callback of an upstream:
 * it only fills queues, and asks for a turn. */
struct call_front {
    /* An interim answer (1xx, but 101). -EMSGSIZE: too large. */
    int (*interim)(struct call *call, int status, const char *reason,
                   const struct http_field *fields, size_t count);
    /* The answer's head, without framing; call->answer says how its body ends. -EMSGSIZE. */
    int (*head)(struct call *call, int status, const char *reason, const struct http_field *fields,
                size_t count);
    /* 0, -EAGAIN: the queue is full (call_resume when it is not), or -ENOMEM. */
    int (*body)(struct call *call, const char *data, size_t len);
    /* The protocol was changed (101): bytes both ways from here on. NULL: the front has no such. */
    int (*tunnel)(struct call *call, const char *reason, const struct http_field *fields,
                  size_t count);
    int (*trailers)(struct call *call, const struct http_field *fields, size_t count);
    void (*complete)(struct call *call);                              /* the answer is whole */
    void (*refuse)(struct call *call, const struct refusal *refusal); /* all of an answer */
    void (*cut)(struct call *call);      /* of an answer that began, no more comes */
    void (*writable)(struct call *call); /* call_write takes more */
    void (*touched)(struct call *call);  /* bytes moved: the idle clock starts anew */
};

/* A request as the front has read it; texts live until call_begin returns. */
struct call_request {
    const char *method;          /* shorter than HTTP1_METHOD_MAX */
    struct http1_text host;      /* Host; len 0: none */
    struct http1_text authority; /* HTTP/2's, beside Host; len 0: none */
    struct http1_text target;    /* as sent: a path and query, or HTTP/1's absolute form */
    const struct http_field *fields;
    size_t field_count;
    enum egress_body body;
    uint64_t body_length;
    bool expects_continue;
    struct http1_text upgrade; /* HTTP/1.1's Upgrade; len 0: none */
    bool wants_h2c;
};

struct call {
    struct egress *egress;
    struct egress_sandbox *sandbox;
    const struct call_front *front;
    const char *sni; /* NULL: none, or no TLS */
    bool is_tls;
    uint16_t conn_port;   /* that the client connected to */
    const char *protocol; /* of the client: "h2" or "http/1.1" */
    const char *tls;      /* its version, as SSL_get_version; NULL: none */

    struct egress_exchange *exchange; /* NULL: not started, or over */
    struct policy *policy;            /* by which it was judged */
    const struct policy_rule *rule;
    struct secret secrets[LIMIT_EGRESS_SET_HEADERS]; /* not to be seen in the answer's headers */
    size_t secret_count;
    struct policy_push *push; /* a push, held until the refs it changes are judged; else NULL */
    bool is_head;
    bool is_http10;
    bool drops_trailers;        /* of the request: its Connection may name some */
    bool drops_answer_trailers; /* in the same way */
    bool expects_continue;
    bool wants_json;      /* an answer of our own in JSON */
    bool is_upgrade;      /* to WebSocket */
    bool ends_connection; /* what the client sent is no request that others may follow */

    bool was_sent; /* to the upstream, with the rule's secrets */
    bool head_sent;
    bool is_over;            /* its audit line is written */
    bool is_wide;            /* it has one of LIMIT_EGRESS_WIDE_STREAMS */
    bool is_paused;          /* the upstream waits for room in the front's queue */
    enum egress_body answer; /* framing upstream; NONE: until its connection ends */
    bool answer_is_empty;
    uint64_t answer_left;

    char method[HTTP1_METHOD_MAX];
    char host[POLICY_HOST_MAX];
    uint16_t port;
    struct buf path, query;                       /* canonical */
    const char *upstream_protocol, *upstream_tls; /* as the client's; NULL: no answer came */
    int64_t task;                                 /* of the sandbox when it began; 0: none */
    int64_t started_ms;                           /* Unix time */
    uint64_t started_at;                          /* the loop's clock */
    uint64_t first_byte_at;
    int status;
    uint64_t bytes_out, bytes_in;
    enum egress_failure failure; /* of its upstream */
    struct model_usage usage;    /* of a rule with `usage`, once it was sent: requests is 1 */
    struct usage_reader *reader;
    bool has_decoder; /* one of LIMIT_USAGE_DECODERS is for its answer */
};

/* Clears the call for a request that begins now; egress, sandbox, front and what
 * the connection is stay. */
void call_open(struct call *call, const char *method);
/* Judges the request, and forwards it or refuses it. */
void call_begin(struct call *call, const struct call_request *request);
/* Refuses what is no request, by the connection's rules. */
void call_refuse(struct call *call, int status, const char *reason);
/* As egress_exchange_write; everything is taken where nobody listens any more. */
size_t call_write(struct call *call, const char *data, size_t len, size_t most);
void call_write_end(struct call *call, const struct http_field *trailers, size_t count);
void call_resume(struct call *call); /* there is room in the front's queue again */
/* It cannot go on: an answer of our own if none was begun, else a cut. `ended_by` is the audit's
 * word. */
void call_fail(struct call *call, int status, const char *reason, const char *ended_by);
/* Another policy, or a budget, may be in force: what it does not allow ends, as an answer or a cut.
 */
void call_judge_again(struct call *call);
/* The client is gone. */
void call_abandon(struct call *call);
/* Cancels, frees, wipes; without an audit line. */
void call_close(struct call *call);
