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

#include "egress/call.h"
#include "egress/turn.h"

enum conn_phase { CONN_HANDSHAKE, CONN_HEAD, CONN_EXCHANGE, CONN_H2, CONN_LINGER, CONN_CLOSED };

/* What follows when the answer has been written. */
enum conn_finish {
    FINISH_NONE,  /* it is not complete */
    FINISH_KEEP,  /* the next request may come */
    FINISH_CLOSE, /* a clean end: close_notify, FIN */
    FINISH_RESET, /* an answer that was cut: TCP reset, never a clean end */
};

struct egress_conn {
    struct egress *egress;
    struct egress_sandbox *sandbox;
    int fd;
    bool is_tls;
    SSL *ssl;
    uv_poll_t poll;
    uv_timer_t timer;
    struct turn turn;   /* runs conn_turn */
    uint64_t turn_ends; /* by uv_hrtime() */
    int open_handles;
    int poll_events;
    bool has_unwanted;    /* the socket is readable, and nothing is to be read now */
    uint64_t deadline;    /* the loop's clock */
    uint64_t timer_is_at; /* when the timer looks next; 0: it is not running */

    enum conn_phase phase;
    enum conn_finish finish;
    bool is_wide;          /* it has one of LIMIT_EGRESS_WIDE_SOCKETS */
    bool read_wants_write; /* TLS: the next step of reading needs the socket writable */
    bool input_ended;
    bool has_head_bytes; /* the clock for the head runs */
    size_t lingered_bytes;
    size_t counted_bytes; /* told to the sandbox */
    struct buf in;
    size_t in_used;
    struct buf out;
    size_t out_used;

    /* HTTP/1.1: one call at a time */
    struct call call;
    size_t head_scanned; /* of the head that is not whole */
    struct http1_body body;
    struct buf trailers;
    bool body_ended;   /* the upstream was told */
    bool body_blocked; /* the upstream takes no more for now */
    bool keep_alive;
    bool last_chunk_sent; /* trailers came */
    bool is_tunnel;       /* after 101 */

    struct conn_h2 *h2; /* HTTP/2; conn_h2.c's */
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
struct buf *conn_out(struct egress_conn *conn); /* conn->out, to begin to append to it */
void conn_rest(struct egress_conn *conn);       /* gives up the memory of empty queues */
void conn_shut_down_output(struct egress_conn *conn);

/* conn_h1.c: reads the head at the start of conn->in, and begins its call. */
enum http1_result conn_take_head(struct egress_conn *conn);
/* Moves what is in conn->in to the upstream. */
void conn_feed_body(struct egress_conn *conn);
/* The client sends nothing more, which ends one direction of a tunnel. False: there is none. */
bool conn_end_tunnel_input(struct egress_conn *conn);
/* An answer of our own, outside of any call. */
void conn_h1_refuse(struct egress_conn *conn, int status, const char *reason);
extern const struct call_front conn_h1_front;

/* conn_h2.c. All of them leave the connection be: who calls looks at what they return. */
int conn_h2_open(struct egress_conn *conn);
void conn_h2_close(struct egress_conn *conn); /* its calls end */
/* Uses what is in conn->in. False: the connection must end. */
bool conn_h2_feed(struct egress_conn *conn);
/* Fills conn->out. False: everything is said, or it must end. */
bool conn_h2_fill(struct egress_conn *conn);
size_t conn_h2_large_bytes(const struct egress_conn *conn);
/* Calls that nobody moved for the idle limit end; ms until the next look. */
int64_t conn_h2_on_deadline(struct egress_conn *conn);
bool conn_h2_is_idle(const struct egress_conn *conn); /* no call */
void conn_h2_judge_all(struct egress_conn *conn);     /* as call_judge_again, of each call */
