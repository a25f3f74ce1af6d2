/* The loop of paddock-api: the supervisor's messages, the routes, the list of calls; see api.h and
 * call.h. Peers: clients (HTTP, foreign bytes) and the supervisor (messages, checked by ipc.c).
 * Invariant: each call is in the list exactly while its exchange lives or a reply is awaited. */
#include "api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/access.h"
#include "api/call.h"
#include "api/outcome.h"
#include "api/run.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/name.h"

#define API_IDLE_MS 75000
#define API_HEAD_MS 15000
#define API_BODY_MS 60000
#define API_WRITE_MS 60000
/* How often tokens that will end are looked at, while requests of theirs go on. */
#define API_TOKENS_MS 1000
/* Messages handled before clients have their turn again. */
#define API_MESSAGES_AT_ONCE 64

struct api {
    uv_loop_t *loop;
    uv_poll_t poll;
    int64_t event_ms;
    uv_timer_t event_timer; /* runs while a call streams events */
    uv_timer_t token_timer; /* runs while a call has a token that will end */
    int fd;
    struct http_server *server;
    struct api_call *calls;
    struct access_tokens tokens;
    uint64_t last_id;
    bool is_closing; /* no reply is awaited any more */
    int open_handles;
    void (*on_lost)(void *ctx, const char *reason);
    void *ctx;
};

#define ROUTE(method, pattern, handler, body_max, request, answer, query, statuses, summary)       \
    {method, pattern},
static const struct http_route api_paths[] = {
#include "api/routes.def"
};
#undef ROUTE
#define ROUTE(method, pattern, handler, body_max, request, answer, query, statuses, summary)       \
    {api_##handler, body_max},
static const struct api_route api_routes[] = {
#include "api/routes.def"
};
#undef ROUTE

uv_loop_t *call_loop(const struct api_call *call)
{
    return call->api->loop;
}

static void api_call_free(struct api_call *call)
{
    if (call->next)
        call->next->previous = call->previous;
    if (call->previous)
        call->previous->next = call->next;
    else
        call->api->calls = call->next;
    if (call->state)
        call->state_free(call->state);
    free(call);
}

static void api_free_when_closed(struct api *api)
{
    if (api->open_handles == 0 && !api->calls)
        free(api);
}

static void api_call_free_when_done(struct api_call *call)
{
    struct api *api = call->api;
    if (call->exchange || (call->is_waiting && !api->is_closing))
        return;
    api_call_free(call);
    api_free_when_closed(api);
}

void call_send(struct api_call *call, enum ipc_type type, const void *body, const int *fds,
               size_t fd_count,
               void (*on_reply)(struct api_call *call, struct ipc_message *message))
{
    struct err err;
    int r = ipc_send(call->api->fd, type, call->id, body, fds, fd_count, &err);
    if (r < 0) {
        log_warn("request=%llu %s", (unsigned long long)call->id, err.message);
        call_text(call, 503, "The supervisor is busy, try again");
        return;
    }
    call->on_reply = on_reply;
    call->is_waiting = true;
}

void call_tell(struct api_call *call, enum ipc_type type)
{
    struct err err;
    if (ipc_send(call->api->fd, type, call->id, NULL, NULL, 0, &err) < 0)
        log_warn("request=%llu %s", (unsigned long long)call->id, err.message);
}

void call_resume(struct api_call *call)
{
    call->is_waiting = false;
    api_call_free_when_done(call);
}

static void api_refuse_method(struct api_call *call)
{
    char more[96];
    snprintf(more, sizeof(more), "Allow: %s\r\n", call->matched.allow);
    call_refuse(call, 405, more, "Method not allowed");
}

static void api_copy_cut(char *ret, size_t size, const char *text, size_t len)
{
    snprintf(ret, size, "%.*s", (int)(len < size ? len : size), text);
}

/* The target without its query, which may hold what is nobody else's. */
static void api_note_target(struct api_call *call, const struct http_head *head)
{
    const char *query = memchr(head->target, '?', head->target_len);
    size_t len = query ? (size_t)(query - head->target) : head->target_len;
    api_copy_cut(call->path, sizeof(call->path), head->target, len);
    api_copy_cut(call->method, sizeof(call->method), head->method, head->method_len);
}

static struct api_call *api_call_new(struct api *api, struct http_exchange *exchange)
{
    struct api_call *call = calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    call->api = api;
    call->exchange = exchange;
    call->id = ++api->last_id;
    call->began_ms = clock_monotonic_ms();
    api_note_target(call, http_exchange_head(exchange));
    call->next = api->calls;
    if (call->next)
        call->next->previous = call;
    api->calls = call;
    http_exchange_set_user(exchange, call);
    return call;
}

static void api_refuse_name(struct api_call *call, const char *pattern)
{
    const char *kind = "sandbox";
    char text[160];
    if (strncmp(pattern, "/images", 7) == 0)
        kind = "image";
    else if (strncmp(pattern, "/tokens", 7) == 0)
        kind = "token";
    snprintf(text, sizeof(text),
             "The %s name must be 1-63 lowercase letters, digits, or hyphens, with no hyphen at "
             "either end",
             kind);
    call_refuse(call, 400, NULL, text);
}

/* Whether bytes of the client are still to come, or an answer is being streamed to it. */
static bool api_is_transferring(const struct api_call *call)
{
    if (call->is_streaming || call->is_answered) /* one that was refused may have no route */
        return call->is_streaming;
    return !call->is_waiting || CALL_IS_STREAMED(call->route);
}

/* A token that is removed or over ends what is being streamed to its client, and what that has not
 * sent whole. */
static void api_break_off(const struct api_call *call)
{
    if (call->exchange && api_is_transferring(call))
        http_stream_abort(call->exchange);
}

static void api_learn_token(struct api *api, const struct msg_api_token *token)
{
    access_learn(&api->tokens, token);
    for (const struct api_call *call = api->calls; token->removed && call; call = call->next)
        if (strcmp(call->token, token->id) == 0)
            api_break_off(call);
}

static void api_on_token_time(uv_timer_t *timer)
{
    const struct api *api = timer->data;
    int64_t now = clock_unix_ms();
    bool is_needed = false;
    for (const struct api_call *call = api->calls; call; call = call->next) {
        if (call->expires_ms && call->expires_ms <= now)
            api_break_off(call);
        is_needed = is_needed || call->expires_ms;
    }
    if (!is_needed)
        uv_timer_stop(timer);
}

static void api_watch_token(struct api_call *call, const struct msg_api_token *token)
{
    uv_timer_t *timer = &call->api->token_timer;
    memcpy(call->token, token->id, sizeof(call->token));
    memcpy(call->prefix, token->prefix, sizeof(call->prefix));
    call->expires_ms = token->expires_ms;
    if (call->expires_ms && !uv_is_active((uv_handle_t *)timer))
        uv_timer_start(timer, api_on_token_time, API_TOKENS_MS, API_TOKENS_MS);
}

/* A comment, so that nobody on the way takes a silent stream for a dead one. */
static void api_on_event_time(uv_timer_t *timer)
{
    const struct api *api = timer->data;
    bool is_needed = false;
    for (const struct api_call *call = api->calls; call; call = call->next) {
        if (!call->is_events || !call->exchange)
            continue;
        http_stream_write(call->exchange, ":\n\n", 3);
        is_needed = true;
    }
    if (!is_needed)
        uv_timer_stop(timer);
}

void call_keep_alive(struct api_call *call)
{
    uv_timer_t *timer = &call->api->event_timer;
    uint64_t every_ms = (uint64_t)call->api->event_ms;
    call->is_events = true;
    if (!uv_is_active((uv_handle_t *)timer))
        uv_timer_start(timer, api_on_event_time, every_ms, every_ms);
}

/* Over TCP: false when the request has no token that is right, and was answered. */
static bool api_is_let_in(struct api_call *call, const struct msg_api_token **ret)
{
    const char *text;
    int status;
    *ret = NULL;
    if (!http_exchange_is_tcp(call->exchange))
        return true;
    *ret = access_check(&call->api->tokens, http_exchange_head(call->exchange), clock_unix_ms(),
                        &status, &text);
    if (!*ret) {
        call_refuse(call, status, status == 401 ? "WWW-Authenticate: Bearer\r\n" : NULL, text);
        return false;
    }
    api_watch_token(call, *ret);
    return true;
}

/* A streamed body is read when the supervisor has said where it goes. */
static void api_take_body(struct api_call *call)
{
    const struct http_head *head = http_exchange_head(call->exchange);
    if (!CALL_IS_STREAMED(call->route))
        http_accept_body(call->exchange, (size_t)call->route->body_max);
    else if (head->content_length > call->route->body_max)
        call_text(call, 413, "Send an archive smaller than 32 GiB");
    else
        call->route->handle(call);
}

/* Path, name, method, then what the token allows. False: the request was answered. */
static bool api_find_route(struct api_call *call, const struct msg_api_token *token)
{
    struct http_matched *matched = &call->matched;
    enum http_match match = http_route_find(api_paths, ARRAY_LEN(api_paths),
                                            http_exchange_head(call->exchange), matched);
    const struct http_route *path = match == HTTP_NO_SUCH_PATH ? NULL : &api_paths[matched->route];
    const char *refusal = NULL;
    if (!path)
        call_refuse(call, 404, NULL, "Not found");
    else if (matched->name && !name_is_valid(matched->name, matched->name_len))
        api_refuse_name(call, path->pattern);
    else if (match == HTTP_NO_SUCH_METHOD)
        api_refuse_method(call);
    else if (token && (refusal = access_refusal(token, path->method, path->pattern, matched->name,
                                                matched->name_len)))
        call_refuse(call, 403, NULL, refusal);
    else
        return true;
    return false;
}

/* The token, then what is asked for; the body comes later. */
static void api_on_head(void *ctx, struct http_exchange *exchange)
{
    struct api *api = ctx;
    const struct msg_api_token *token;
    struct api_call *call = api_call_new(api, exchange);
    if (!call) {
        static const char text[] = "Out of memory";
        struct http_answer answer = {503, "text/plain;charset=utf-8", "Retry-After: 1\r\n", text,
                                     strlen(text)};
        http_answer(exchange, &answer);
        return;
    }
    if (!api_is_let_in(call, &token) || !api_find_route(call, token))
        return;
    call->route = &api_routes[call->matched.route];
    if (call->matched.name)
        memcpy(call->name, call->matched.name,
               call->matched.name_len); /* checked: LIMIT_NAME_BYTES at most */
    api_take_body(call);
}

static void api_on_body(void *ctx, struct http_exchange *exchange)
{
    (void)ctx;
    struct api_call *call = http_exchange_user(exchange);
    if (CALL_IS_STREAMED(call->route))
        import_whole(call);
    else
        call->route->handle(call);
}

static bool api_on_body_data(void *ctx, struct http_exchange *exchange, const char *data,
                             size_t len)
{
    (void)ctx;
    struct api_call *call = http_exchange_user(exchange);
    return call->on_data ? call->on_data(call, data, len) : import_piece(call, data, len);
}

static void api_on_body_too_large(void *ctx, struct http_exchange *exchange)
{
    (void)ctx;
    struct api_call *call = http_exchange_user(exchange);
    const char *text = "Send a body smaller than 512 KiB";
    if (call->route->body_max == 0)
        text = "This request takes no body";
    else if (call->route->body_max == LIMIT_PROMPT_BYTES)
        text = "Send a prompt smaller than 128 KiB";
    call_text(call, 413, text);
}

/* A line for each request, but for those that only watch the daemon. Status 0: the client left
 * first. */
static void api_log_end(const struct api_call *call)
{
    bool is_watching = strcmp(call->path, "/healthz") == 0 || strcmp(call->path, "/metrics") == 0;
    log_write(is_watching && call->status == 200 ? LOG_DEBUG : LOG_INFO,
              "request=%llu method=%s path=%s status=%d ms=%lld token=%s answered",
              (unsigned long long)call->id, call->method, call->path, call->status,
              (long long)(clock_monotonic_ms() - call->began_ms),
              call->token[0] ? call->token : "-");
}

static void api_on_end(void *ctx, struct http_exchange *exchange)
{
    (void)ctx;
    struct api_call *call = http_exchange_user(exchange);
    if (!call)
        return;
    call->exchange = NULL;
    api_log_end(call);
    if (call->on_gone)
        call->on_gone(call);
    api_call_free_when_done(call);
}

static void api_listen(struct api *api, struct ipc_message *message)
{
    const struct msg_api_listen *body = IPC_BODY(message, msg_api_listen);
    struct err err;
    int fd = ipc_take_fd(message, 0);
    if (fd < 0 || http_server_listen(api->server, fd, body->is_tcp, &err) < 0)
        log_error("cannot listen on %s: %s", IPC_TEXT(body->address),
                  fd < 0 ? "no socket came" : err.message);
    else
        log_info("listening on %s", IPC_TEXT(body->address));
}

static void api_on_task_finished(struct api *api, struct ipc_message *message)
{
    const struct msg_task_state *state = IPC_BODY(message, msg_task_state);
    cleanup_buf struct buf outcome = BUF_INIT(LIMIT_OUTCOME_BYTES);
    struct err err;
    if (outcome_get(api->loop, message, NULL, &outcome, &err) < 0)
        log_error("sandbox=%s cannot judge the task: %s", IPC_TEXT(state->name), err.message);
}

static void api_on_reply(struct api *api, struct ipc_message *message)
{
    struct api_call *call = api->calls;
    while (call && !(call->id == message->header.id && call->is_waiting))
        call = call->next;
    if (!call) {
        log_warn("%s came, which answers nothing",
                 ipc_type_name((enum ipc_type)message->header.type));
        return;
    }
    call->is_waiting = false;
    call->on_reply(call, message);
    api_call_free_when_done(call);
}

static void api_on_message(struct api *api, struct ipc_message *message)
{
    if (message->header.type == IPC_API_LISTEN)
        api_listen(api, message);
    else if (message->header.type == IPC_API_TOKEN)
        api_learn_token(api, IPC_BODY(message, msg_api_token));
    else if (message->header.type == IPC_TASK_FINISHED)
        api_on_task_finished(api, message);
    else
        api_on_reply(api, message);
}

static void api_on_readable(uv_poll_t *poll, int status, int events)
{
    (void)events;
    struct api *api = poll->data;
    struct err err = {.message = "the supervisor is gone"};
    int r = status < 0 ? 0 : 1;
    for (int i = 0; r == 1 && i < API_MESSAGES_AT_ONCE; i++) {
        cleanup_ipc_message struct ipc_message message = {.fd_count = 0};
        r = ipc_recv(api->fd, IPC_API, IPC_SUPERVISOR, &message, &err);
        if (r == 1)
            api_on_message(api, &message);
    }
    if (r == 1 || r == -EAGAIN)
        return;
    uv_poll_stop(poll);
    api->on_lost(api->ctx, err.message);
}

int api_open(uv_loop_t *loop, int supervisor_fd, int64_t event_ms,
             void (*on_lost)(void *ctx, const char *reason), void *ctx, struct api **ret,
             struct err *err)
{
    static const struct http_handler handler = {
        .on_head = api_on_head,
        .on_body = api_on_body,
        .on_body_too_large = api_on_body_too_large,
        .on_body_data = api_on_body_data,
        .on_end = api_on_end,
    };
    struct api *api = calloc(1, sizeof(*api));
    if (!api)
        return err_set(err, ENOMEM, "out of memory");
    struct http_config config = {
        .handler = &handler,
        .ctx = api,
        .max_connections = LIMIT_API_CONNECTIONS,
        .head_bytes = LIMIT_API_HEAD_BYTES,
        .idle_ms = API_IDLE_MS,
        .head_ms = API_HEAD_MS,
        .body_ms = API_BODY_MS,
        .write_ms = API_WRITE_MS,
    };
    api->loop = loop;
    api->fd = supervisor_fd;
    api->on_lost = on_lost;
    api->ctx = ctx;
    /* above those of any api before this one, which had fewer than a thousand requests in each ms
     */
    api->last_id = (uint64_t)clock_unix_ms() << 10;
    int r = uv_poll_init(loop, &api->poll, supervisor_fd);
    if (r == 0)
        r = http_server_new(loop, &config, &api->server, err);
    if (r < 0) {
        free(api);
        return err_errno(err, -r, "cannot serve");
    }
    api->open_handles = 3;
    api->poll.data = api;
    uv_timer_init(loop, &api->token_timer); /* never fails */
    uv_timer_init(loop, &api->event_timer);
    api->event_ms = event_ms;
    api->token_timer.data = api->event_timer.data = api;
    uv_poll_start(&api->poll, UV_READABLE, api_on_readable);
    *ret = api;
    return 0;
}

static void api_on_closed(uv_handle_t *handle)
{
    struct api *api = handle->data;
    api->open_handles--;
    api_free_when_closed(api);
}

static void api_on_poll_closed(uv_handle_t *handle)
{
    const struct api *api = handle->data;
    close(api->fd);
    api_on_closed(handle);
}

void api_close(struct api *api)
{
    struct api_call *next;
    api->is_closing = true;
    for (struct api_call *call = api->calls; call; call = next) {
        next = call->next;
        api_call_free_when_done(call);
    }
    http_server_close(api->server);
    uv_close((uv_handle_t *)&api->event_timer, api_on_closed);
    uv_close((uv_handle_t *)&api->token_timer, api_on_closed);
    uv_close((uv_handle_t *)&api->poll, api_on_poll_closed);
}
