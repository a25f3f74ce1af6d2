/* What conn_h2.c (requests, the connection) and conn_h2_answer.c (answers) share; nothing for
 * others. */
#pragma once

#include <nghttp2/nghttp2.h>

#include "egress/conn.h"

struct stream {
    struct call call;
    struct conn_h2 *h2;
    struct stream *previous, *next;
    int32_t id;
    uint64_t touched_at; /* the loop's clock */

    struct buf lines; /* of the head, or the trailers, being read: name NUL value NUL ... */
    size_t line_count;
    struct buf pseudo; /* method NUL scheme NUL authority NUL path NUL, as they came */
    size_t method, scheme, authority, path; /* offsets in it; NOT_GIVEN */
    int status;                             /* to refuse the head with; 0: it is good */
    bool is_begun;                          /* the call was */

    struct buf in; /* of the request's body, what the upstream does not take yet */
    size_t in_used;
    bool in_ended, in_told;

    struct buf out; /* of the answer's body */
    size_t out_used;
    struct buf out_trailers;
    size_t out_trailer_count;
    bool out_ended;
    bool has_body; /* nghttp2 asks for it */
    bool is_cut;   /* behind what is in `out` comes a reset */
};
#define NOT_GIVEN ((size_t)-1)

struct conn_h2 {
    struct egress_conn *conn;
    nghttp2_session *session;
    struct stream *streams;
    size_t stream_count;
    size_t block_bytes; /* of the fields of the head, or the trailers, that are read */
    bool is_broken;     /* out of memory: the connection ends */
};

/* conn_h2_answer.c */
extern const struct call_front conn_h2_front;
void conn_h2_reset(struct stream *stream); /* RST_STREAM, INTERNAL_ERROR */
/* conn_h2.c: moves what waits of the body to the upstream, and gives the window back for it. */
void conn_h2_feed_stream(struct stream *stream);
