/* A growable byte buffer with a maximum; see buf.h. */
#include "util/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_FIRST_CAPACITY 256

char *buf_reserve(struct buf *buf, size_t len)
{
    if (len > buf->max || buf->len > buf->max - len)
        return NULL;
    size_t need = buf->len + len + 1;
    if (need > buf->capacity) {
        size_t capacity = buf->capacity ? buf->capacity : BUF_FIRST_CAPACITY;
        while (capacity < need)
            capacity *= 2;
        if (capacity > buf->max + 1)
            capacity = buf->max + 1;
        char *data = realloc(buf->data, capacity);
        if (!data)
            return NULL;
        buf->data = data;
        buf->capacity = capacity;
    }
    return buf->data + buf->len;
}

static int buf_reserve_error(const struct buf *buf, size_t len)
{
    return len > buf->max || buf->len > buf->max - len ? -EMSGSIZE : -ENOMEM;
}

int buf_append(struct buf *buf, const void *data, size_t len)
{
    char *end = buf_reserve(buf, len);
    if (!end)
        return buf_reserve_error(buf, len);
    if (len)
        memcpy(end, data, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
    return 0;
}

int buf_append_string(struct buf *buf, const char *text)
{
    return buf_append(buf, text, strlen(text));
}

int buf_vappendf(struct buf *buf, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (len < 0)
        return -EINVAL;
    char *end = buf_reserve(buf, (size_t)len);
    if (!end)
        return buf_reserve_error(buf, (size_t)len);
    vsnprintf(end, (size_t)len + 1, format, args);
    buf->len += (size_t)len;
    return 0;
}

int buf_appendf(struct buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int result = buf_vappendf(buf, format, args);
    va_end(args);
    return result;
}

void buf_consume(struct buf *buf, size_t len)
{
    assert(len <= buf->len);
    if (len == 0)
        return;
    memmove(buf->data, buf->data + len, buf->len - len + 1);
    buf->len -= len;
}

const char *buf_text(const struct buf *buf)
{
    return buf->len ? buf->data : "";
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

void buf_move_memory(struct buf *to, struct buf *from)
{
    assert(!to->data && from->len == 0);
    to->data = from->data;
    to->capacity = from->capacity;
    from->data = NULL;
    from->capacity = 0;
}

void buf_free(struct buf *buf)
{
    free(buf->data);
    buf->data = NULL;
    buf->len = 0;
    buf->capacity = 0;
}
