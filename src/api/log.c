/* The route of a task's log: a file that init appends to, streamed from an offset, and followed by
 * way of a pipe in which init writes a byte per append and which it closes at the end. Runs in api.
 * Invariant: the stream ends cleanly only when the log was sent to its end. */
#include <stdlib.h>
#include <unistd.h>

#include "api/call.h"
#include "api/request.h"
#include "api/source.h"

#define LOG_CHUNK 65536

struct log_state {
    struct api_call *call;
    struct request_log request;
    int fd;
    int64_t at;
    bool is_full;           /* the client must take some first */
    struct source *watcher; /* NULL: nothing more will be appended */
};

static void log_free(void *state)
{
    struct log_state *log = state;
    source_close(log->watcher);
    if (log->fd >= 0)
        close(log->fd);
    free(log);
}

/* Sends what is there, as far as the client takes it. */
static void log_pump(struct log_state *log)
{
    struct http_exchange *exchange = log->call->exchange;
    char chunk[LOG_CHUNK];
    ssize_t n = 0;
    while (exchange && !log->is_full) {
        n = pread(log->fd, chunk, sizeof(chunk), log->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        log->at += n;
        log->is_full = !http_stream_write(exchange, chunk, (size_t)n);
    }
    if (!exchange || log->is_full || (n == 0 && log->watcher))
        return;
    if (n == 0)
        http_stream_end(exchange);
    else
        http_stream_abort(exchange);
}

static bool log_on_append(void *ctx, struct source *source, const char *data, size_t len)
{
    (void)source;
    (void)data;
    (void)len;
    log_pump(ctx);
    return true;
}

static void log_on_watcher_end(void *ctx, struct source *source)
{
    struct log_state *log = ctx;
    source_close(source);
    log->watcher = NULL;
    log_pump(log);
}

static void log_on_drain(struct api_call *call)
{
    struct log_state *log = call->state;
    log->is_full = false;
    log_pump(log);
}

static void log_on_gone(struct api_call *call)
{
    struct log_state *log = call->state;
    source_close(log->watcher);
    log->watcher = NULL;
}

static void log_on_opened(struct api_call *call, struct ipc_message *message)
{
    struct log_state *log = call->state;
    if (!call_expects(call, message, IPC_TASK_LOG_OPENED))
        return;
    log->fd = ipc_take_fd(message, 0);
    int watcher = ipc_take_fd(message, 1);
    if (log->fd < 0) {
        call_failed(call, "the log did not come");
        return;
    }
    if (watcher >= 0) {
        log->watcher = source_new(call_loop(call), watcher, log_on_append, log_on_watcher_end, log);
        if (!log->watcher) {
            call_failed(call, "cannot watch the log");
            return;
        }
    }
    if (call_stream_begin(call, "text/plain"))
        log_pump(log);
}

void api_task_log(struct api_call *call)
{
    struct err err;
    struct log_state *log = calloc(1, sizeof(*log));
    if (!log) {
        call_failed(call, "out of memory");
        return;
    }
    log->call = call;
    log->fd = -1;
    call->state = log;
    call->state_free = log_free;
    call->on_drain = log_on_drain;
    call->on_gone = log_on_gone;
    if (request_log(call->matched.query, call->matched.query_len, &log->request, &err) < 0) {
        call_text(call, 400, err.message);
        return;
    }
    log->at = log->request.from;
    struct msg_task_log body = {.stream = log->request.stream, .follow = log->request.follow};
    IPC_SET_TEXT(body.name, call->name);
    call_send(call, IPC_TASK_LOG, &body, NULL, 0, log_on_opened);
}
