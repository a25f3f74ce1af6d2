/*
 * HTTP/1.1 requests as a sandbox sends them (RFC 9110, RFC 9112), read without any leniency: what
 * two readers could understand differently is refused. Pure functions: bytes in, struct out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "egress/upstream.h"
#include "http/head.h"
#include "util/err.h"
#include "util/limits.h"

#define HTTP1_METHOD_MAX 24

struct http1_text {
    const char *data;
    size_t len;
};

/* A request's head. Texts point into the bytes that were parsed. */
struct http1_head {
    struct http_head http;
    size_t len; /* of the head in bytes, its empty line included */
    char method[HTTP1_METHOD_MAX];
    struct http1_text target; /* as sent */
    struct http1_text host;   /* len 0: HTTP/1.0 without Host */
    enum egress_body body;
    uint64_t body_length;
    bool keep_alive;
    struct http1_text upgrade; /* len 0: none */
    bool wants_h2c;
    int status; /* when refused: what to answer, 400, 414, 417, 431 or 505 */
};

enum http1_result { HTTP1_MORE, HTTP1_HEAD, HTTP1_REFUSED };

/* Reads a head from the start of the bytes. HTTP1_MORE: it is not whole yet (and may still become
 * good); *scanned, 0 at first, is then how much of it need not be looked at again. HTTP1_REFUSED:
 * ret->status and err say why; the connection cannot be used any more. */
enum http1_result http1_head_parse(const char *data, size_t len, size_t *scanned,
                                   struct http1_head *ret, struct err *err);

/* True when the header belongs to one connection, not to the message: the fixed ones of RFC 9110
 * 7.6.1, and each that a Connection header among `headers` names. */
bool http1_is_hop_by_hop(const struct http_field *headers, size_t count, const char *name,
                         size_t name_len);

/* True when Connection names fields beside those that never go further: they may be among the
 * trailers, too (RFC 9110, section 7.6.1). */
bool http1_names_own_fields(const struct http_field *headers, size_t count);

/* Splits a target into authority (len 0: none) and path. `scheme` is what an absolute-form target
 * must have, "http" or "https"; anything but origin-form and that is -EINVAL. */
int http1_target_split(struct http1_text target, const char *scheme,
                       struct http1_text *ret_authority, struct http1_text *ret_path,
                       struct err *err);

/* Reads lines "name: value" CR LF up to an empty one, or the end: LIMIT_HTTP_FIELDS at most. 0, or
 * -EBADMSG. They point into the bytes. */
int http1_fields_parse(const char *data, size_t len, struct http_field *ret, size_t *ret_count);

/* Fields kept in a buffer, each as name NUL value NUL. Split: they point there; how many. Append:
 * 0, or -EMSGSIZE, and the buffer is as it was. */
size_t http1_fields_split(const struct buf *lines, struct http_field ret[LIMIT_HTTP_FIELDS]);
int http1_fields_append(struct buf *lines, const char *name, size_t name_len, const char *value,
                        size_t value_len);

/* Where an answer's body ends, by its headers: chunked, a length, or EGRESS_BODY_NONE: neither is
 * given. -EBADMSG: two lengths, or a transfer coding other than chunked. */
int http1_answer_framing(const struct http_field *headers, size_t count, enum egress_body *ret_kind,
                         uint64_t *ret_length, struct err *err);

/* How far a request's body has been read. */
struct http1_body {
    enum egress_body kind;
    uint64_t left; /* bytes left of the body, or of this chunk */
    int state;
    size_t overhead;      /* bytes of framing since the last byte of body */
    struct buf *trailers; /* NULL: they are dropped */
    bool trailer_line_empty;
    bool is_done;
};

/* Trailers are appended to `trailers` as they come, their empty line too. It is the caller's. */
void http1_body_keep_trailers(struct http1_body *body, struct buf *trailers);

void http1_body_init(struct http1_body *body, enum egress_body kind, uint64_t length);

/* Reads framing up to the next byte of body. Returns the bytes of framing used; *ret_body_len bytes
 * of body follow them. -EBADMSG: not a chunked body, or more than LIMIT_EGRESS_CHUNK_OVERHEAD bytes
 * of chunk extensions or trailers (both are dropped). body->is_done: nothing of it follows. */
ssize_t http1_body_step(struct http1_body *body, const char *data, size_t len, size_t *ret_body_len,
                        struct err *err);

/* So many of those bytes were taken. */
void http1_body_take(struct http1_body *body, size_t len);
