/*
 * One connection of a sandbox; what conn*.c share, nothing for others. A connection goes through
 * phases: TLS handshake, a request's head, its exchange with an upstream (or our own answer), the
 * next head ..., and at last lingering, so that the peer reads the answer before a reset could eat
 * it. Everything that moves bytes happens in conn_turn, on the loop, never inside an upstream's
 * callback: those only fill the queue and ask for a turn.
 */
#pragma once

#include <openssl/ssl.h>
#include <uv.h>

#include "egress/egress.h"
#include "egress/http1.h"
#include "egress/refuse.h"
#include "egress/turn.h"
#include "egress/upstream.h"
#include "util/secret.h"

enum conn_phase { CONN_HANDSHAKE, CONN_HEAD, CONN_EXCHANGE, CONN_LINGER, CONN_CLOSED };

/* What follows when the answer has been written. */
enum conn_finish {
    FINISH_NONE,  /* it is not complete */
    FINISH_KEEP,  /* the next request may come */
    FINISH_CLOSE, /* a clean end: close_notify, FIN */
    FINISH_RESET, /* an answer that was cut: TCP reset, never a clean end */
};

/* One request and its answer. */
struct conn_request {
    struct egress_exchange *exchange; /* NULL: not started, or over */
    struct policy *policy;            /* by which it was judged */
    const struct policy_rule *rule;
    struct secret secrets[LIMIT_EGRESS_SET_HEADERS]; /* not to be seen in the answer's headers */
    size_t secret_count;
    struct http1_body body;
    bool body_ended;   /* the upstream was told */
    bool body_blocked; /* the upstream takes no more for now */
    bool is_head;
    bool is_http10;
    bool keep_alive;
    bool expects_continue;

    bool head_sent;
    bool is_paused;          /* the upstream waits for room in our queue */
    bool last_chunk_sent;    /* trailers came */
    enum egress_body answer; /* framing to the sandbox; NONE: until close */
    bool answer_is_empty;
    uint64_t answer_left;

    char method[HTTP1_METHOD_MAX];
    char host[POLICY_HOST_MAX];
    uint16_t port;
    struct buf path, query; /* canonical */
    int64_t started_ms;     /* Unix time */
    uint64_t started_at;    /* the loop's clock */
    uint64_t first_byte_at;
    int status;
    uint64_t bytes_out, bytes_in;
};

struct egress_conn {
    struct egress *egress;
    struct egress_sandbox *sandbox;
    int fd;
    bool is_tls;
    SSL *ssl;
    uv_poll_t poll;
    uv_timer_t timer;
    struct turn turn; /* runs conn_turn */
    int open_handles;
    int poll_events;
    uint64_t deadline;    /* the loop's clock */
    uint64_t timer_is_at; /* when the timer looks next; 0: it is not running */

    enum conn_phase phase;
    enum conn_finish finish;
    bool read_wants_write; /* TLS: the next step of reading needs the socket writable */
    bool input_ended;
    bool has_head_bytes; /* the clock for the head runs */
    size_t lingered_bytes;
    size_t counted_bytes; /* told to the sandbox */
    struct buf in;
    size_t in_used;
    struct buf out;
    size_t out_used;
    struct conn_request request;
};

/* conn.c */
void conn_turn(struct egress_conn *conn);
void conn_ask_turn(struct egress_conn *conn); /* soon, from the loop */
void conn_close(struct egress_conn *conn);    /* with FINISH_RESET: by a TCP reset */
void conn_set_deadline(struct egress_conn *conn, int64_t ms);
void conn_touch(struct egress_conn *conn); /* bytes moved: the idle clock starts anew */
/* How many bytes may wait in one direction, by what the whole sandbox holds. */
size_t conn_queue_max(struct egress_conn *conn);

/* conn_io.c */
enum conn_io { CONN_IO_DONE, CONN_IO_WAIT, CONN_IO_END, CONN_IO_FAILED };
enum conn_io conn_handshake(struct egress_conn *conn);
enum conn_io conn_read(struct egress_conn *conn); /* appends to conn->in */
enum conn_io conn_flush(struct egress_conn *conn);
void conn_shut_down_output(struct egress_conn *conn);

/* conn_request.c: judges the head at the start of conn->in and starts the exchange, or answers. */
enum http1_result conn_take_head(struct egress_conn *conn);
/* Moves what is in conn->in to the upstream. */
void conn_feed_body(struct egress_conn *conn);

/* conn_answer.c */
extern const struct egress_exchange_events conn_exchange_events;
/* Our own answer. `decision` is the audit's word. May be called once per request. */
void conn_answer_refusal(struct egress_conn *conn, const struct refusal *refusal,
                         const char *decision);
/* The request cannot go on: an answer of our own if none was begun, else a reset. */
void conn_fail(struct egress_conn *conn, int status, const char *reason, const char *ended_by);
void conn_audit(struct egress_conn *conn, const char *decision, const char *reason,
                const char *ended_by);
void conn_request_clear(struct conn_request *request); /* cancels, frees, wipes */
