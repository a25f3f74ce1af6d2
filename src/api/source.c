/* Pipes of programs; see source.h. Runs in api, on bytes that an agent wrote. */
#include "api/source.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define SOURCE_CHUNK 65536
/* A pipe holds 1 MiB at most (/proc/sys/fs/pipe-max-size): a writer that goes on cannot hold a
 * drain up for ever. */
#define SOURCE_DRAIN_BYTES ((size_t)2 * 1024 * 1024)

struct source {
    uv_poll_t poll;
    int fd;
    bool is_paused;
    bool is_at_eof;
    bool is_closed;
    source_on_data on_data;
    void (*on_eof)(void *ctx, struct source *source);
    void *ctx;
};

static void source_stop(struct source *source)
{
    if (!source->is_closed)
        uv_poll_stop(&source->poll);
}

/* One read. Positive: bytes given on; 0: none is there, or the end. */
static ssize_t source_read(struct source *source)
{
    char chunk[SOURCE_CHUNK];
    ssize_t n;
    do
        n = read(source->fd, chunk, sizeof(chunk));
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) {
        source->is_at_eof = true;
        source_stop(source);
        if (source->on_eof)
            source->on_eof(source->ctx, source);
        return 0;
    }
    if (!source->on_data(source->ctx, source, chunk, (size_t)n)) {
        source->is_paused = true;
        source_stop(source);
    }
    return n;
}

static void source_on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    source_read(poll->data);
}

static void source_on_closed(uv_handle_t *handle)
{
    struct source *source = handle->data;
    close(source->fd);
    free(source);
}

struct source *source_new(uv_loop_t *loop, int fd, source_on_data on_data,
                          void (*on_eof)(void *ctx, struct source *source), void *ctx)
{
    struct source *source = calloc(1, sizeof(*source));
    if (!source || uv_poll_init(loop, &source->poll, fd) < 0) {
        free(source);
        close(fd);
        return NULL;
    }
    source->poll.data = source;
    source->fd = fd;
    source->on_data = on_data;
    source->on_eof = on_eof;
    source->ctx = ctx;
    uv_poll_start(&source->poll, UV_READABLE, source_on_readable);
    return source;
}

int source_fd(const struct source *source)
{
    return source->fd;
}

void source_resume(struct source *source)
{
    if (!source->is_paused || source->is_closed)
        return;
    source->is_paused = false;
    if (!source->is_at_eof)
        uv_poll_start(&source->poll, UV_READABLE, source_on_readable);
}

bool source_drain(struct source *source)
{
    size_t total = 0;
    while (!source->is_paused && !source->is_at_eof && total < SOURCE_DRAIN_BYTES) {
        ssize_t n = source_read(source);
        if (n == 0)
            break;
        total += (size_t)n;
    }
    return !source->is_paused;
}

void source_close(struct source *source)
{
    if (!source || source->is_closed)
        return;
    source_stop(source);
    source->is_closed = true;
    uv_close((uv_handle_t *)&source->poll, source_on_closed);
}
