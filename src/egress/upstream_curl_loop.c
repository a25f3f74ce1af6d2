/*
 * libcurl's multi interface on libuv: its sockets become uv_poll handles, its one timer a uv_timer
 * (curl_multi_socket_action(3)). Process: paddock-egress. Ended transfers are looked for after
 * every action, outside of libcurl.
 */
#include <stdlib.h>

#include "egress/upstream_curl.h"

struct upstream_socket {
    uv_poll_t poll;
    curl_socket_t fd;
    struct egress_upstreams *upstreams;
};

static void finish_ended(struct egress_upstreams *upstreams)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(upstreams->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode result = message->data.result;
        struct egress_exchange *exchange = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        upstream_finish(exchange, result);
    }
}

static void act(struct egress_upstreams *upstreams, curl_socket_t fd, int events)
{
    int running;
    curl_multi_socket_action(upstreams->multi, fd, events, &running);
    finish_ended(upstreams);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct upstream_socket *socket = poll->data;
    int flags = 0;
    if (status < 0)
        flags |= CURL_CSELECT_ERR;
    if (events & UV_READABLE)
        flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        flags |= CURL_CSELECT_OUT;
    act(socket->upstreams, socket->fd, flags);
}

static void on_timer(uv_timer_t *timer)
{
    act(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timer(CURLM *multi, long timeout_ms, void *ctx)
{
    (void)multi;
    struct egress_upstreams *upstreams = ctx;
    if (timeout_ms < 0)
        uv_timer_stop(&upstreams->timer);
    else
        uv_timer_start(&upstreams->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

static void on_socket_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static struct upstream_socket *add_socket(struct egress_upstreams *upstreams, curl_socket_t fd)
{
    struct upstream_socket *socket = calloc(1, sizeof(*socket));
    if (!socket)
        return NULL;
    if (uv_poll_init_socket(upstreams->loop, &socket->poll, fd)) {
        free(socket);
        return NULL;
    }
    socket->poll.data = socket;
    socket->fd = fd;
    socket->upstreams = upstreams;
    curl_multi_assign(upstreams->multi, fd, socket);
    return socket;
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
    (void)easy;
    struct egress_upstreams *upstreams = ctx;
    struct upstream_socket *socket = socket_ctx;
    if (what == CURL_POLL_REMOVE) {
        if (socket) {
            uv_poll_stop(&socket->poll);
            uv_close((uv_handle_t *)&socket->poll, on_socket_closed);
            curl_multi_assign(upstreams->multi, fd, NULL);
        }
        return 0;
    }
    if (!socket)
        socket = add_socket(upstreams, fd);
    if (!socket)
        return -1;
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    return uv_poll_start(&socket->poll, events, on_poll) ? -1 : 0;
}

int upstream_loop_open(struct egress_upstreams *upstreams, struct err *err)
{
    upstreams->multi = curl_multi_init();
    if (!upstreams->multi)
        return err_set(err, ENOMEM, "libcurl could not be started");
    CURLM *multi = upstreams->multi;
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, upstreams);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, upstreams);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, UPSTREAM_POOL_SIZE);
    return 0;
}
