/* Events on libuv's loop; see event.h. A handle of libuv lives until its close callback, so each is
 * allocated by itself and frees itself there. */
#include "supervisor/event.h"

#include <stdlib.h>

#include "util/log.h"

struct event {
    union {
        uv_handle_t handle;
        uv_poll_t poll;
        uv_timer_t timer;
    };
    event_fn *fn;
    void *ctx;
};

void *must_alloc(size_t size)
{
    void *memory = calloc(1, size);
    if (!memory) {
        log_error("out of memory: the supervisor ends; instances go on");
        _exit(70);
    }
    return memory;
}

static void event_on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status; /* an error makes the descriptor readable: who reads it finds out */
    (void)events;
    struct event *event = poll->data;
    event->fn(event->ctx);
}

static void event_on_timer(uv_timer_t *timer)
{
    struct event *event = timer->data;
    event->fn(event->ctx);
}

static struct event *event_new(event_fn *fn, void *ctx)
{
    struct event *event = must_alloc(sizeof(*event));
    event->fn = fn;
    event->ctx = ctx;
    return event;
}

struct event *event_watch(uv_loop_t *loop, int fd, event_fn *fn, void *ctx)
{
    struct event *event = event_new(fn, ctx);
    int result = uv_poll_init(loop, &event->poll, fd);
    event->handle.data = event;
    if (result == 0)
        result = uv_poll_start(&event->poll, UV_READABLE, event_on_poll);
    if (result < 0) {
        log_error("cannot watch descriptor %d: %s", fd, uv_strerror(result));
        _exit(70); /* blind to a process: start anew and take over */
    }
    return event;
}

struct event *event_timer(uv_loop_t *loop, int64_t ms, int64_t repeat_ms, event_fn *fn, void *ctx)
{
    struct event *event = event_new(fn, ctx);
    uv_timer_init(loop, &event->timer);
    event->handle.data = event;
    uv_timer_start(&event->timer, event_on_timer, (uint64_t)ms, (uint64_t)repeat_ms);
    return event;
}

static void event_on_close(uv_handle_t *handle)
{
    free(handle->data);
}

void event_free(struct event **event)
{
    if (!*event)
        return;
    if ((*event)->handle.type == UV_POLL)
        uv_poll_stop(&(*event)->poll);
    uv_close(&(*event)->handle, event_on_close);
    *event = NULL;
}
