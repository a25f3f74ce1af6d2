/* Listeners; see listener.h. Runs in paddock-egress. libuv's own accept closes connections when
 * descriptors run out; here they wait. A reserve of descriptors is left free, because each
 * connection needs another one towards its upstream. */
#include "egress/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/log.h"

/* Connections accepted at one go, so that one sandbox's flood does not hold up the others. */
#define ACCEPT_BATCH 16
#define REST_MS 100

struct egress_listener {
    uv_poll_t poll;
    uv_timer_t rest; /* runs while descriptors are scarce */
    int fd;
    int open_handles;
    bool is_paused; /* by the owner */
    bool is_closing;
    void (*accepted)(void *ctx, int fd);
    void *ctx;
};

/* The number from which on a new descriptor counts as scarce: the lowest free number is given out,
 * so a high one says that most are taken. */
static int listener_scarce_fd(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    rlim_t count = limit.rlim_cur < INT32_MAX ? limit.rlim_cur : INT32_MAX;
    return (int)(count / 2);
}

static void listener_readable(uv_poll_t *poll, int status, int events);

static void listener_update(struct egress_listener *listener)
{
    bool is_resting = uv_is_active((uv_handle_t *)&listener->rest);
    if (listener->is_closing)
        return;
    if (listener->is_paused || is_resting)
        uv_poll_stop(&listener->poll);
    else
        uv_poll_start(&listener->poll, UV_READABLE, listener_readable);
}

static void listener_rested(uv_timer_t *timer)
{
    struct egress_listener *listener = timer->data;
    int probe = fcntl(listener->fd, F_DUPFD_CLOEXEC, 0);
    bool is_scarce = probe < 0 || probe >= listener_scarce_fd();
    if (probe >= 0)
        close(probe);
    if (is_scarce)
        return;
    uv_timer_stop(timer);
    listener_update(listener);
}

static void listener_rest(struct egress_listener *listener)
{
    if (listener->is_closing)
        return;
    uv_timer_start(&listener->rest, listener_rested, REST_MS, REST_MS);
    listener_update(listener);
}

static bool listener_is_shortage(int code)
{
    return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

static void listener_readable(uv_poll_t *poll, int status, int events)
{
    struct egress_listener *listener = poll->data;
    (void)events;
    if (status < 0) {
        log_error("a listener failed: %s", uv_strerror(status));
        listener_rest(listener);
        return;
    }
    for (int i = 0; i < ACCEPT_BATCH && !listener->is_paused && !listener->is_closing; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (listener_is_shortage(errno))
                listener_rest(listener);
            return; /* nobody there, or one that has gone again */
        }
        bool is_scarce = fd >= listener_scarce_fd();
        listener->accepted(listener->ctx, fd);
        if (is_scarce) {
            listener_rest(listener);
            return;
        }
    }
}

static void listener_handle_closed(uv_handle_t *handle)
{
    struct egress_listener *listener = handle->data;
    if (--listener->open_handles > 0)
        return;
    close(listener->fd);
    free(listener);
}

int egress_listener_start(uv_loop_t *loop, int fd, void (*accepted)(void *ctx, int fd), void *ctx,
                          struct egress_listener **ret, struct err *err)
{
    cleanup_fd int owned = fd;
    if (fd < 0)
        return err_set(err, EBADF, "a listener is missing");
    struct egress_listener *listener = calloc(1, sizeof(*listener));
    if (!listener)
        return err_errno(err, ENOMEM, "cannot serve a listener");
    int result = uv_poll_init(loop, &listener->poll, fd);
    if (result < 0) {
        free(listener);
        return err_errno(err, -result, "cannot watch a listener");
    }
    uv_timer_init(loop, &listener->rest);
    listener->poll.data = listener;
    listener->rest.data = listener;
    listener->open_handles = 2;
    listener->fd = TAKE_FD(owned);
    listener->accepted = accepted;
    listener->ctx = ctx;
    listener_update(listener);
    *ret = listener;
    return 0;
}

void egress_listener_pause(struct egress_listener *listener)
{
    listener->is_paused = true;
    listener_update(listener);
}

void egress_listener_resume(struct egress_listener *listener)
{
    listener->is_paused = false;
    listener_update(listener);
}

void egress_listener_close(struct egress_listener *listener)
{
    if (!listener || listener->is_closing)
        return;
    listener->is_closing = true;
    uv_close((uv_handle_t *)&listener->poll, listener_handle_closed);
    uv_close((uv_handle_t *)&listener->rest, listener_handle_closed);
}
