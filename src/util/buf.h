/*
 * A growable byte buffer with a maximum. The bytes are always followed by a NUL that is not
 * counted, so that `data` of a buffer of text is a C string. Exceeding the maximum is -EMSGSIZE and
 * leaves the buffer as it was; no memory is -ENOMEM.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

struct buf {
    char *data; /* NULL until the first append */
    size_t len;
    size_t capacity;
    size_t max; /* bytes that len may reach */
};

#define BUF_INIT(max_bytes) ((struct buf){.max = (size_t)(max_bytes)})

int buf_append(struct buf *buf, const void *data, size_t len);
int buf_append_string(struct buf *buf, const char *text);
int buf_appendf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
int buf_vappendf(struct buf *buf, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Makes room for `len` more bytes and returns where they go; NULL when over the maximum or out of
 * memory. The caller writes there and adds to buf->len. */
char *buf_reserve(struct buf *buf, size_t len);

/* Removes the first `len` bytes (len <= buf->len). */
void buf_consume(struct buf *buf, size_t len);

/* The text as a C string, "" while nothing was appended. */
const char *buf_text(const struct buf *buf);

void buf_clear(struct buf *buf); /* keeps the memory */
/* Gives the memory of `from`, which holds no bytes, to `to`, which has no memory. */
void buf_move_memory(struct buf *to, struct buf *from);
void buf_free(struct buf *buf); /* wipes nothing; the buffer can be used again */

#define cleanup_buf __attribute__((cleanup(buf_free)))
