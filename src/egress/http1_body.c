/*
 * Bodies of requests: where their bytes are and where they end (RFC 9112, section 7). Process:
 * paddock-egress. Invariants: CR LF alone ends a line of framing; a size has at most 15 hexadecimal
 * digits; extensions and trailers are dropped and bounded; no byte behind the body is touched.
 */

#include "egress/http1.h"
#include "util/hex.h"

enum {
    SIZE_FIRST, /* the first digit of a chunk's size */
    SIZE,
    EXTENSION,
    SIZE_LF, /* the LF that ends the size's line */
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER,
    TRAILER_LF,
};

#define SIZE_DIGITS_MAX_VALUE (UINT64_MAX >> 8)

void http1_body_init(struct http1_body *body, enum egress_body kind, uint64_t length)
{
    *body = (struct http1_body){.kind = kind, .left = length, .state = SIZE_FIRST};
    body->is_done = kind == EGRESS_BODY_NONE || (kind == EGRESS_BODY_LENGTH && length == 0);
    if (kind == EGRESS_BODY_CHUNKED)
        body->left = 0;
    else
        body->state = DATA;
}

void http1_body_keep_trailers(struct http1_body *body, struct buf *trailers)
{
    body->trailers = trailers;
}

static bool step_size(struct http1_body *body, char c)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (body->left > SIZE_DIGITS_MAX_VALUE >> 4)
            return false;
        body->left = body->left * 16 + (uint64_t)digit;
        body->state = SIZE;
        return true;
    }
    if (body->state == SIZE_FIRST)
        return false;
    if (c == ';')
        body->state = EXTENSION;
    else if (c == '\r')
        body->state = SIZE_LF;
    else
        return false;
    return true;
}

static bool step_line_end(struct http1_body *body, char c)
{
    if (c != '\n')
        return false;
    if (body->state == DATA_LF) {
        body->state = SIZE_FIRST;
    } else if (body->state == SIZE_LF) {
        body->state = body->left ? DATA : TRAILER;
        body->trailer_line_empty = true;
    } else { /* TRAILER_LF */
        body->is_done = body->trailer_line_empty;
        body->state = TRAILER;
        body->trailer_line_empty = true;
    }
    return true;
}

/* One byte of an extension or a trailer: its text is dropped, its characters are checked. */
static bool step_text(struct http1_body *body, char c)
{
    if (c == '\r') {
        body->state = body->state == EXTENSION ? SIZE_LF : TRAILER_LF;
        return true;
    }
    body->trailer_line_empty = false;
    return http_is_value(&c, 1);
}

static bool step(struct http1_body *body, char c)
{
    switch (body->state) {
    case SIZE_FIRST:
    case SIZE:
        return step_size(body, c);
    case EXTENSION:
    case TRAILER:
        return step_text(body, c);
    case DATA_CR:
        body->state = DATA_LF;
        return c == '\r';
    default:
        return step_line_end(body, c);
    }
}

ssize_t http1_body_step(struct http1_body *body, const char *data, size_t len, size_t *ret_body_len,
                        struct err *err)
{
    size_t used = 0;
    while (!body->is_done && body->state != DATA && used < len) {
        bool is_trailer = body->state == TRAILER || body->state == TRAILER_LF;
        if (is_trailer && body->trailers && buf_append(body->trailers, &data[used], 1))
            return err_set(err, EMSGSIZE, "the trailers are too large");
        if (!step(body, data[used]))
            return err_set(err, EBADMSG, "the request's body is not well-formed chunks");
        if (++body->overhead > LIMIT_EGRESS_CHUNK_OVERHEAD)
            return err_set(err, EBADMSG, "chunk extensions or trailers are larger than 8 KiB");
        used++;
    }
    size_t there = len - used;
    bool has_body = !body->is_done && body->state == DATA;
    *ret_body_len = !has_body ? 0 : there < body->left ? there : (size_t)body->left;
    return (ssize_t)used;
}

void http1_body_take(struct http1_body *body, size_t len)
{
    body->left -= len;
    if (len)
        body->overhead = 0;
    if (body->left || body->state != DATA)
        return;
    if (body->kind == EGRESS_BODY_LENGTH)
        body->is_done = true;
    else
        body->state = DATA_CR;
}
