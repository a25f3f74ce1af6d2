/*
 * Origins and exchanges of the way out. Process: paddock-egress, the loop's thread. Invariants:
 * after `end` or cancel nothing is told any more; what could call back within a call is put off to
 * a turn; a link is used only for what has the same host, route and trust as it was made for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress/link.h"
#include "util/cleanup.h"

#define SWEEP_MS 1000
#define ORIGIN_IDLE_MS (10ULL * 60 * 1000)

/* ------------------------------------------------------------------------------ exchanges */

static void exchange_free(struct egress_exchange *exchange)
{
    struct egress_upstreams *upstreams = exchange->upstreams;
    turn_cancel(&exchange->turn);
    exchange->origin->exchange_count--;
    exchange->origin->used_at = uv_now(upstreams->loop);
    if (exchange->previous)
        exchange->previous->next = exchange->next;
    else if (upstreams->exchanges == exchange)
        upstreams->exchanges = exchange->next;
    if (exchange->next)
        exchange->next->previous = exchange->previous;
    if (exchange->text)
        explicit_bzero(exchange->text, exchange->text_len);
    free(exchange->text);
    free(exchange->headers);
    buf_free(&exchange->out);
    buf_free(&exchange->trailers);
    buf_free(&exchange->in);
    buf_free(&exchange->lines);
    free(exchange);
}

void exchange_end(struct egress_exchange *exchange, enum egress_failure failure, const char *reason)
{
    exchange->link = NULL;
    if (!exchange->is_cancelled)
        exchange->events->end(exchange->ctx, failure, reason);
    exchange_free(exchange);
}

static void on_exchange_turn(struct turn *turn)
{
    struct egress_exchange *exchange =
        (struct egress_exchange *)((char *)turn - offsetof(struct egress_exchange, turn));
    if (exchange->is_cancelled)
        exchange_free(exchange);
    else if (exchange->failure)
        exchange_end(exchange, exchange->failure, exchange->reason);
    else if (exchange->in_ended)
        link_h2.resume(exchange); /* its link may be gone */
    else if (exchange->link)
        exchange->link->protocol->resume(exchange);
}

void exchange_end_later(struct egress_exchange *exchange, enum egress_failure failure,
                        const char *reason)
{
    exchange->link = NULL;
    exchange->failure = failure;
    snprintf(exchange->reason, sizeof(exchange->reason), "%s", reason);
    turn_ask(exchange->upstreams->turns, &exchange->turn);
}

void exchange_count_interim(struct egress_exchange *exchange, size_t len)
{
    exchange->lines.max -= len < exchange->lines.max ? len : exchange->lines.max;
}

void exchange_writable(struct egress_exchange *exchange)
{
    if (!exchange->out_was_short)
        return;
    exchange->out_was_short = false;
    exchange->events->writable(exchange->ctx);
}

/* ------------------------------------------------------------------------------ waiting */

static void wait_for_link(struct egress_exchange *exchange, bool is_first)
{
    struct origin *origin = exchange->origin;
    exchange->link = NULL;
    exchange->next_waiting = is_first ? origin->waiting : NULL;
    if (!origin->waiting)
        origin->waiting = origin->waiting_last = exchange;
    else if (is_first)
        origin->waiting = exchange;
    else
        origin->waiting_last = origin->waiting_last->next_waiting = exchange;
    origin->waiting_count++;
}

static void stop_waiting(struct egress_exchange *exchange)
{
    struct origin *origin = exchange->origin;
    struct egress_exchange *previous = NULL;
    struct egress_exchange *at = origin->waiting;
    while (at && at != exchange) {
        previous = at;
        at = at->next_waiting;
    }
    if (!at)
        return;
    if (previous)
        previous->next_waiting = exchange->next_waiting;
    else
        origin->waiting = exchange->next_waiting;
    if (origin->waiting_last == exchange)
        origin->waiting_last = previous;
    origin->waiting_count--;
}

/* A request that is sent again goes over a connection that cannot be as stale as the first. */
static struct link *find_link(const struct egress_exchange *exchange)
{
    for (struct link *link = exchange->origin->links; link; link = link->next) {
        bool is_stale = exchange->was_tried && link->was_used && link->protocol == &link_h1;
        if (link->phase == LINK_OPEN && link->only_http1 == exchange->is_alone && !is_stale &&
            !link->is_doomed && link->protocol->has_room(link))
            return link;
    }
    return NULL;
}

/* One that is not known yet may take all of them on one connection. */
static void dial_for_waiting(struct origin *origin)
{
    while (origin->waiting) {
        size_t wanted = origin->is_known && !origin->speaks_h2 ? origin->waiting_count : 1;
        if (origin->dialing >= wanted)
            return;
        if (link_open(origin, origin->waiting->is_alone)) {
            struct egress_exchange *exchange = origin->waiting;
            stop_waiting(exchange);
            exchange_end_later(exchange, EGRESS_FAILED_SELF, "out of memory for a connection");
        }
    }
}

void origin_serve(struct origin *origin)
{
    struct egress_exchange *exchange = origin->waiting;
    while (exchange) {
        struct egress_exchange *next = exchange->next_waiting;
        struct link *link = find_link(exchange);
        if (link) {
            stop_waiting(exchange);
            exchange->link = link;
            exchange->was_sent = true;
            link_set_idle(link, false);
            link->protocol->submit(link, exchange);
            link->was_used = true;
        }
        exchange = next;
    }
    dial_for_waiting(origin);
}

void origin_dial_failed(struct origin *origin, bool only_http1, enum egress_failure failure,
                        const char *reason)
{
    struct egress_exchange *exchange = origin->waiting;
    bool is_last = origin->dialing == 0;
    while (exchange) {
        struct egress_exchange *next = exchange->next_waiting;
        if (exchange->is_alone == only_http1) {
            stop_waiting(exchange);
            exchange_end_later(exchange, failure, reason);
            if (!is_last)
                break; /* for the others there are other dials */
        }
        exchange = next;
    }
    dial_for_waiting(origin);
}

static bool can_be_repeated(const struct egress_exchange *exchange)
{
    static const char *const idempotent[] = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"};
    if (exchange->was_tried || exchange->answer_began || exchange->out_began)
        return false;
    if (exchange->was_refused)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(idempotent); i++)
        if (strcmp(exchange->method, idempotent[i]) == 0)
            return true;
    return false;
}

/* RFC 9110, section 9.2.2: only what can be repeated without harm. */
void exchange_lost(struct egress_exchange *exchange, enum egress_failure failure,
                   const char *reason)
{
    if (exchange->is_cancelled || !can_be_repeated(exchange)) {
        exchange_end(exchange, failure, reason);
        return;
    }
    exchange->was_tried = true;
    wait_for_link(exchange, true);
    origin_serve(exchange->origin);
}

/* ------------------------------------------------------------------------------ the calls */

static const char *copy(char **at, const char *data, size_t len)
{
    char *start = *at;
    memcpy(start, data, len);
    start[len] = '\0';
    *at += len + 1;
    return start;
}

static int copy_request(struct egress_exchange *exchange, const struct egress_request *request)
{
    const char *upgrade = request->upgrade ? request->upgrade : "";
    size_t len = strlen(request->method) + strlen(request->target) + strlen(upgrade) + 3;
    for (size_t i = 0; i < request->header_count; i++)
        len += request->headers[i].name_len + request->headers[i].value_len + 2;
    exchange->text = malloc(len);
    exchange->headers = malloc((request->header_count + 1) * sizeof(*exchange->headers));
    exchange->text_len = len;
    if (!exchange->text || !exchange->headers)
        return -ENOMEM;
    char *at = exchange->text;
    exchange->method = copy(&at, request->method, strlen(request->method));
    exchange->target = copy(&at, request->target, strlen(request->target));
    exchange->upgrade = copy(&at, upgrade, strlen(upgrade));
    for (size_t i = 0; i < request->header_count; i++) {
        const struct http_field *from = &request->headers[i];
        struct http_field *to = &exchange->headers[i];
        to->name_len = from->name_len;
        to->value_len = from->value_len;
        to->name = copy(&at, from->name, from->name_len);
        to->value = copy(&at, from->value, from->value_len);
    }
    exchange->header_count = request->header_count;
    return 0;
}

int egress_upstream_start(struct egress_upstreams *upstreams, const struct egress_request *request,
                          const struct egress_exchange_events *events, void *ctx,
                          struct egress_exchange **ret, struct err *err)
{
    int result = 0;
    struct origin *origin = origin_find(upstreams, request, &result, err);
    if (!origin)
        return result;
    struct egress_exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return err_set(err, ENOMEM, "out of memory for an exchange");
    exchange->upstreams = upstreams;
    exchange->origin = origin;
    origin->exchange_count++;
    exchange->events = events;
    exchange->ctx = ctx;
    exchange->turn.run = on_exchange_turn;
    exchange->body = request->body;
    exchange->body_length = request->body_length;
    exchange->expects_continue = request->expects_continue;
    exchange->takes_trailers = request->takes_trailers;
    exchange->is_head_request = strcmp(request->method, "HEAD") == 0;
    exchange->is_alone = request->upgrade != NULL;
    exchange->out_ended = request->body == EGRESS_BODY_NONE && !request->upgrade;
    exchange->out = BUF_INIT(LIMIT_EGRESS_QUEUE_BYTES);
    exchange->in = BUF_INIT(2 * LIMIT_EGRESS_STREAM_BYTES);
    exchange->lines = BUF_INIT(LIMIT_EGRESS_ANSWER_HEAD_BYTES);
    exchange->trailers = BUF_INIT(LIMIT_EGRESS_CHUNK_OVERHEAD);
    if (copy_request(exchange, request)) {
        exchange_free(exchange);
        return err_set(err, ENOMEM, "out of memory for an exchange");
    }
    exchange->next = upstreams->exchanges;
    if (exchange->next)
        exchange->next->previous = exchange;
    upstreams->exchanges = exchange;
    *ret = exchange;
    exchange->is_held = request->is_held;
    if (exchange->is_held)
        return 0;
    wait_for_link(exchange, false);
    origin_serve(origin);
    return 0;
}

const char *egress_exchange_held(const struct egress_exchange *exchange, size_t *ret_len)
{
    *ret_len = exchange->out.len;
    return buf_text(&exchange->out);
}

void egress_exchange_release(struct egress_exchange *exchange)
{
    exchange->is_held = false;
    wait_for_link(exchange, false);
    origin_serve(exchange->origin);
}

size_t egress_exchange_write(struct egress_exchange *exchange, const char *data, size_t len,
                             size_t most)
{
    if (exchange->link) {
        size_t taken = exchange->link->protocol->write(exchange, data, len, most);
        exchange->out_began = exchange->out_began || taken;
        exchange->out_was_short = taken < len;
        return taken;
    }
    size_t room = most > exchange->out.len ? most - exchange->out.len : 0;
    size_t taken = len < room ? len : room;
    if (taken && buf_append(&exchange->out, data, taken))
        taken = 0;
    exchange->out_was_short = taken < len;
    return taken;
}

void egress_exchange_write_end(struct egress_exchange *exchange, const struct http_field *trailers,
                               size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!http1_fields_append(&exchange->trailers, trailers[i].name, trailers[i].name_len,
                                 trailers[i].value, trailers[i].value_len))
            exchange->trailer_count++;
    exchange->out_ended = true;
    if (exchange->link)
        exchange->link->protocol->write_end(exchange);
}

bool egress_exchange_is_framed(const struct egress_exchange *exchange)
{
    return exchange->link && exchange->link->protocol == &link_h2;
}

const char *egress_exchange_protocol(const struct egress_exchange *exchange)
{
    if (!exchange->link)
        return NULL;
    return exchange->link->protocol == &link_h2 ? "h2" : "http/1.1";
}

const char *egress_exchange_tls(const struct egress_exchange *exchange)
{
    return exchange->link && exchange->link->ssl ? SSL_get_version(exchange->link->ssl) : NULL;
}

bool egress_exchange_was_sent(const struct egress_exchange *exchange)
{
    return exchange->was_sent;
}

size_t egress_exchange_large_bytes(const struct egress_exchange *exchange)
{
    size_t bytes =
        egress_large(&exchange->out) + egress_large(&exchange->in) + egress_large(&exchange->lines);
    if (exchange->link && exchange->link->exchange == exchange)
        bytes += egress_large(&exchange->link->in) + egress_large(&exchange->link->out);
    return bytes;
}

void egress_exchange_resume(struct egress_exchange *exchange)
{
    if (!exchange->is_paused)
        return;
    exchange->is_paused = false;
    turn_ask(exchange->upstreams->turns, &exchange->turn);
}

/* What is made for nobody any more is not made: descriptors and lookups are for those who wait. */
static void give_up_dials(const struct origin *origin)
{
    struct link *link = origin->waiting ? NULL : origin->links;
    while (link) {
        struct link *next = link->next;
        if (link->phase != LINK_OPEN)
            link_close(link);
        link = next;
    }
}

void egress_exchange_cancel(struct egress_exchange *exchange)
{
    if (exchange->is_cancelled)
        return;
    exchange->is_cancelled = true;
    if (exchange->link) {
        exchange->link->protocol->drop(exchange);
    } else {
        stop_waiting(exchange);
        give_up_dials(exchange->origin);
    }
    exchange->link = NULL;
    turn_ask(exchange->upstreams->turns, &exchange->turn);
}

/* ------------------------------------------------------------------------------ all of it */

static void sweep_origin(struct origin *origin, uint64_t now)
{
    struct link *link = origin->links;
    while (link) {
        struct link *next = link->next;
        if (link->deadline && now >= link->deadline) {
            if (link->is_idle)
                link_close(link);
            else
                link_fail(link, EGRESS_FAILED_TIMEOUT, "no connection was made within 30 s");
            next = origin->links; /* a failure may have changed the list */
        }
        link = next;
    }
}

static void on_sweep(uv_timer_t *timer)
{
    struct egress_upstreams *upstreams = timer->data;
    uint64_t now = uv_now(upstreams->loop);
    for (size_t i = 0; i < ORIGIN_BUCKETS; i++)
        for (struct origin *origin = upstreams->buckets[i]; origin; origin = origin->next)
            sweep_origin(origin, now);
    origins_forget(upstreams, ORIGIN_IDLE_MS);
    if (upstreams->link_count == 0)
        uv_timer_stop(timer);
}

void upstreams_begin_sweep(struct egress_upstreams *upstreams)
{
    uv_timer_start(&upstreams->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
}

/* http://[USER:PASSWORD@]HOST:PORT, as the configuration was checked for. */
static int set_proxy(struct egress_upstreams *upstreams, const char *proxy, struct err *err)
{
    char text[sizeof(upstreams->proxy_authorization)];
    const char *at = strstr(proxy, "://");
    at = at ? at + 3 : proxy;
    const char *user_end = strrchr(at, '@');
    const char *host = user_end ? user_end + 1 : at;
    const char *colon = strrchr(host, ':');
    size_t user_len = user_end ? (size_t)(user_end - at) : 0;
    size_t host_len = colon ? (size_t)(colon - host) : 0;
    bool is_bracketed = host_len > 2 && host[0] == '[';
    if (!host_len || host_len >= sizeof(upstreams->proxy_host) ||
        user_len > sizeof(text) / 4 * 3 - 4)
        return err_set(err, EINVAL, "upstream_proxy must be http://HOST:PORT");
    snprintf(upstreams->proxy_host, sizeof(upstreams->proxy_host), "%.*s",
             (int)(host_len - (is_bracketed ? 2 : 0)), host + is_bracketed);
    upstreams->proxy_port = (uint16_t)strtoul(colon + 1, NULL, 10);
    if (user_len) {
        memcpy(text, at, user_len);
        EVP_EncodeBlock((unsigned char *)upstreams->proxy_authorization, (unsigned char *)text,
                        (int)user_len);
    }
    return 0;
}

int egress_upstreams_open(uv_loop_t *loop, struct turn_queue *turns, const char *proxy,
                          struct egress_upstreams **ret, struct err *err)
{
    struct egress_upstreams *upstreams = calloc(1, sizeof(*upstreams));
    if (!upstreams)
        return err_set(err, ENOMEM, "out of memory for the upstreams");
    upstreams->loop = loop;
    upstreams->turns = turns;
    int result = proxy && *proxy ? set_proxy(upstreams, proxy, err) : 0;
    if (!result)
        result = trust_open(&(struct trust_spec){0}, &upstreams->system, err);
    if (result) {
        free(upstreams);
        return result;
    }
    uv_timer_init(loop, &upstreams->sweep);
    upstreams->sweep.data = upstreams;
    *ret = upstreams;
    return 0;
}

void egress_upstreams_leave(struct egress_upstreams *upstreams, uint64_t owner)
{
    for (size_t i = 0; upstreams && i < ORIGIN_BUCKETS; i++)
        for (struct origin *origin = upstreams->buckets[i]; origin; origin = origin->next)
            while (origin->owner == owner && origin->links)
                link_close(origin->links);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void egress_upstreams_close(struct egress_upstreams *upstreams)
{
    if (!upstreams)
        return;
    while (upstreams->exchanges) {
        upstreams->exchanges->is_cancelled = true;
        if (upstreams->exchanges->link)
            upstreams->exchanges->link->protocol->drop(upstreams->exchanges);
        exchange_free(upstreams->exchanges);
    }
    for (size_t i = 0; i < ORIGIN_BUCKETS; i++) {
        for (struct origin *origin = upstreams->buckets[i]; origin; origin = origin->next) {
            origin->waiting = NULL;
            while (origin->links)
                link_close(origin->links);
        }
    }
    origins_forget(upstreams, 0);
    trust_unref(upstreams->system);
    uv_close((uv_handle_t *)&upstreams->sweep, on_closed);
}
