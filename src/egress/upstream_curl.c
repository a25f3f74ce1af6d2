/*
 * The way out with libcurl: exchanges from start to end. Process: paddock-egress, the loop's
 * thread. Invariants: after `end` or cancel nothing is told any more; libcurl is never called from
 * within its own callbacks, so cancelling and going on after a pause are done by
 * upstream_run_deferred.
 */
#include "egress/upstream_curl.h"

#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

static void stop_waiting(struct egress_exchange *exchange)
{
    struct egress_exchange **at = &exchange->upstreams->waiting;
    while (*at && *at != exchange)
        at = &(*at)->next_waiting;
    if (*at)
        *at = exchange->next_waiting;
}

static void exchange_free(struct egress_exchange *exchange)
{
    struct egress_upstreams *upstreams = exchange->upstreams;
    if (exchange->is_waiting)
        stop_waiting(exchange);
    if (exchange->previous)
        exchange->previous->next = exchange->next;
    else if (upstreams->exchanges == exchange)
        upstreams->exchanges = exchange->next;
    if (exchange->next)
        exchange->next->previous = exchange->previous;
    if (exchange->easy) {
        curl_easy_reset(exchange->easy);
        if (upstreams->idle_count < UPSTREAM_IDLE_HANDLES)
            upstreams->idle[upstreams->idle_count++] = exchange->easy;
        else
            curl_easy_cleanup(exchange->easy);
    }
    upstream_easy_free_lists(exchange);
    upstream_tls_end_unref(exchange->tls_end);
    buf_free(&exchange->out);
    buf_free(&exchange->lines);
    free(exchange);
}

static void run_one_deferred(struct egress_exchange *exchange)
{
    if (exchange->is_cancelled) {
        curl_multi_remove_handle(exchange->upstreams->multi, exchange->easy);
        exchange_free(exchange);
        return;
    }
    if (!exchange->is_resumed)
        return;
    exchange->is_resumed = false;
    curl_easy_pause(exchange->easy, (exchange->is_receive_paused ? CURLPAUSE_RECV : 0) |
                                        (exchange->is_send_paused ? CURLPAUSE_SEND : 0));
}

static void upstream_run_deferred(uv_idle_t *idle)
{
    struct egress_upstreams *upstreams = idle->data;
    uv_idle_stop(idle);
    /* Those that are there now: going on may call back, and those calls may defer again. */
    struct egress_exchange *waiting = TAKE_PTR(upstreams->waiting);
    while (waiting) {
        struct egress_exchange *exchange = waiting;
        waiting = exchange->next_waiting;
        exchange->is_waiting = false;
        run_one_deferred(exchange);
    }
}

static void defer(struct egress_exchange *exchange)
{
    struct egress_upstreams *upstreams = exchange->upstreams;
    uv_idle_start(&upstreams->deferred, upstream_run_deferred);
    if (exchange->is_waiting)
        return;
    exchange->is_waiting = true;
    exchange->next_waiting = upstreams->waiting;
    upstreams->waiting = exchange;
}

/* libcurl wants more of the request's body. */
size_t upstream_on_read(char *data, size_t size, size_t count, void *ctx)
{
    struct egress_exchange *exchange = ctx;
    size_t room = size * count;
    if (exchange->is_cancelled)
        return CURL_READFUNC_ABORT;
    size_t there = exchange->out.len - exchange->out_used;
    if (there == 0 && !exchange->out_ended) {
        exchange->is_send_paused = true;
        return CURL_READFUNC_PAUSE;
    }
    size_t len = there < room ? there : room;
    if (len)
        memcpy(data, exchange->out.data + exchange->out_used, len);
    exchange->out_used += len;
    if (exchange->out_used == exchange->out.len) {
        if (exchange->out.capacity > LIMIT_EGRESS_OWN_BUFFER_BYTES)
            buf_free(&exchange->out);
        buf_clear(&exchange->out);
        exchange->out_used = 0;
    }
    if (exchange->out_was_short && exchange->out.len - exchange->out_used == 0) {
        exchange->out_was_short = false;
        exchange->events->writable(exchange->ctx);
        if (exchange->is_cancelled)
            return CURL_READFUNC_ABORT;
    }
    return len;
}

static void send_on(struct egress_exchange *exchange)
{
    if (!exchange->is_send_paused)
        return;
    exchange->is_send_paused = false;
    exchange->is_resumed = true;
    defer(exchange);
}

size_t egress_exchange_write(struct egress_exchange *exchange, const char *data, size_t len,
                             size_t most)
{
    size_t room = most > exchange->out.len ? most - exchange->out.len : 0;
    size_t taken = len < room ? len : room;
    if (taken && buf_append(&exchange->out, data, taken))
        taken = 0;
    if (taken < len)
        exchange->out_was_short = true;
    if (taken)
        send_on(exchange);
    return taken;
}

size_t egress_exchange_large_bytes(const struct egress_exchange *exchange)
{
    size_t bytes = 0;
    if (exchange->out.capacity > LIMIT_EGRESS_OWN_BUFFER_BYTES)
        bytes += exchange->out.capacity;
    if (exchange->lines.capacity > LIMIT_EGRESS_OWN_BUFFER_BYTES)
        bytes += exchange->lines.capacity;
    return bytes;
}

void egress_exchange_write_end(struct egress_exchange *exchange)
{
    exchange->out_ended = true;
    send_on(exchange);
}

void egress_exchange_resume(struct egress_exchange *exchange)
{
    if (!exchange->is_receive_paused)
        return;
    exchange->is_receive_paused = false;
    exchange->is_resumed = true;
    defer(exchange);
}

void egress_exchange_cancel(struct egress_exchange *exchange)
{
    exchange->is_cancelled = true;
    defer(exchange);
}

/* The transfer is over; called outside of libcurl's callbacks. */
void upstream_finish(struct egress_exchange *exchange, CURLcode result)
{
    curl_multi_remove_handle(exchange->upstreams->multi, exchange->easy);
    const char *reason = NULL;
    if (result != CURLE_OK) {
        reason = exchange->failure[0]      ? exchange->failure
                 : exchange->curl_error[0] ? exchange->curl_error
                                           : curl_easy_strerror(result);
    } else if (exchange->phase == EXCHANGE_HEAD) {
        reason = "the upstream ended the connection without an answer";
    } else if (exchange->tls_end && !exchange->tls_end->is_clean) {
        reason = "the upstream's connection was cut";
    }
    if (!exchange->is_cancelled && !reason)
        upstream_deliver_trailers(exchange);
    if (!exchange->is_cancelled)
        exchange->events->end(exchange->ctx, reason);
    exchange_free(exchange);
}

int egress_upstream_start(struct egress_upstreams *upstreams, const struct egress_request *request,
                          const struct egress_exchange_events *events, void *ctx,
                          struct egress_exchange **ret, struct err *err)
{
    struct egress_exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return err_set(err, ENOMEM, "out of memory for an exchange");
    exchange->upstreams = upstreams;
    exchange->events = events;
    exchange->ctx = ctx;
    exchange->out = BUF_INIT(LIMIT_EGRESS_QUEUE_BYTES);
    exchange->lines = BUF_INIT(LIMIT_EGRESS_ANSWER_HEAD_BYTES);
    exchange->easy =
        upstreams->idle_count ? upstreams->idle[--upstreams->idle_count] : curl_easy_init();
    int result = exchange->easy ? upstream_easy_prepare(exchange, request, err)
                                : err_set(err, ENOMEM, "out of memory for an exchange");
    if (!result && curl_multi_add_handle(upstreams->multi, exchange->easy))
        result = err_set(err, EIO, "libcurl does not take the request");
    if (result) {
        exchange_free(exchange);
        return result;
    }
    exchange->next = upstreams->exchanges;
    if (exchange->next)
        exchange->next->previous = exchange;
    upstreams->exchanges = exchange;
    *ret = exchange;
    return 0;
}

int egress_upstreams_open(uv_loop_t *loop, const char *proxy, int64_t idle_ms,
                          struct egress_upstreams **ret, struct err *err)
{
    struct egress_upstreams *upstreams = calloc(1, sizeof(*upstreams));
    if (!upstreams)
        return err_set(err, ENOMEM, "out of memory for the upstreams");
    upstreams->loop = loop;
    upstreams->idle_ms = idle_ms;
    upstreams->proxy = strdup(proxy ? proxy : "");
    int result = upstreams->proxy ? upstream_loop_open(upstreams, err)
                                  : err_set(err, ENOMEM, "out of memory for the upstreams");
    if (result) {
        free(upstreams->proxy);
        free(upstreams);
        return result;
    }
    uv_timer_init(loop, &upstreams->timer);
    uv_idle_init(loop, &upstreams->deferred);
    upstreams->timer.data = upstreams->deferred.data = upstreams;
    upstreams->open_handles = 2;
    *ret = upstreams;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct egress_upstreams *upstreams = handle->data;
    if (--upstreams->open_handles > 0)
        return;
    free(upstreams->proxy);
    free(upstreams);
}

void egress_upstreams_close(struct egress_upstreams *upstreams)
{
    if (!upstreams)
        return;
    while (upstreams->exchanges) {
        struct egress_exchange *exchange = upstreams->exchanges;
        curl_multi_remove_handle(upstreams->multi, exchange->easy);
        exchange_free(exchange);
    }
    for (size_t i = 0; i < upstreams->idle_count; i++)
        curl_easy_cleanup(upstreams->idle[i]);
    curl_multi_cleanup(upstreams->multi);
    uv_close((uv_handle_t *)&upstreams->timer, on_closed);
    uv_close((uv_handle_t *)&upstreams->deferred, on_closed);
}
