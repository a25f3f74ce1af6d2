/* Pipes into programs; see sink.h. Runs in api, on bytes of a client that go on unread. */
#include "api/sink.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "http/server.h"
#include "util/buf.h"
#include "util/fd.h"

/* A client is told to wait when so much is kept; what its connection holds may still come. */
#define SINK_FULL_BYTES ((size_t)256 * 1024)

struct sink {
    uv_poll_t poll;
    int fd;
    struct buf kept;
    bool is_waiting; /* for the pipe to take more */
    bool is_full;    /* the writer waits for on_drain */
    bool is_ending;
    bool is_refused;
    bool is_closed;
    const struct sink_ops *ops;
    void *ctx;
};

static void sink_on_writable(uv_poll_t *poll, int status, int events);

static void sink_wait(struct sink *sink, bool on)
{
    if (sink->is_waiting == on || sink->is_closed)
        return;
    sink->is_waiting = on;
    if (on)
        uv_poll_start(&sink->poll, UV_WRITABLE, sink_on_writable);
    else
        uv_poll_stop(&sink->poll);
}

static void sink_refuse(struct sink *sink)
{
    sink->is_refused = true;
    buf_clear(&sink->kept);
    sink_wait(sink, false);
    sink->ops->on_refused(sink->ctx);
}

/* Gives the pipe what it takes now. */
static void sink_pump(struct sink *sink)
{
    while (sink->kept.len) {
        ssize_t n = write(sink->fd, sink->kept.data, sink->kept.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            sink_wait(sink, true);
            return;
        }
        if (n < 0) {
            sink_refuse(sink);
            return;
        }
        buf_consume(&sink->kept, (size_t)n);
    }
    sink_wait(sink, false);
    if (sink->is_ending) {
        sink->ops->on_ended(sink->ctx);
    } else if (sink->is_full) {
        sink->is_full = false;
        sink->ops->on_drain(sink->ctx);
    }
}

static void sink_on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    sink_pump(poll->data);
}

struct sink *sink_new(uv_loop_t *loop, int fd, const struct sink_ops *ops, void *ctx)
{
    struct sink *sink = calloc(1, sizeof(*sink));
    if (!sink || fd_set_nonblock(fd, true) < 0 || uv_poll_init(loop, &sink->poll, fd) < 0) {
        free(sink);
        close(fd);
        return NULL;
    }
    sink->poll.data = sink;
    sink->fd = fd;
    sink->kept = BUF_INIT(SINK_FULL_BYTES + HTTP_STREAM_PIECES_BYTES);
    sink->ops = ops;
    sink->ctx = ctx;
    return sink;
}

bool sink_write(struct sink *sink, const char *data, size_t len)
{
    if (sink->is_refused || sink->is_closed)
        return true;
    if (buf_append(&sink->kept, data, len) < 0) { /* no memory: what came is not whole */
        sink_refuse(sink);
        return true;
    }
    if (!sink->is_waiting)
        sink_pump(sink);
    sink->is_full = sink->kept.len >= SINK_FULL_BYTES;
    return !sink->is_full;
}

void sink_end(struct sink *sink)
{
    sink->is_ending = true;
    if (!sink->is_refused && !sink->is_waiting)
        sink_pump(sink);
}

static void sink_on_closed(uv_handle_t *handle)
{
    struct sink *sink = handle->data;
    close(sink->fd);
    buf_free(&sink->kept);
    free(sink);
}

void sink_close(struct sink *sink)
{
    if (!sink || sink->is_closed)
        return;
    sink_wait(sink, false);
    sink->is_closed = true;
    uv_close((uv_handle_t *)&sink->poll, sink_on_closed);
}
