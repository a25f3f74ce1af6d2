/*
 * GET /sandboxes/NAME/terminal: a program with a terminal inside the sandbox, over a WebSocket.
 * Runs in api, on the bytes of a client and of a program, neither of which is looked at. What the
 * one does not take stops the other: nothing is kept but what is on its way. When the client is
 * gone the terminal hangs up, and all that the program started is ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "api/request.h"
#include "api/run.h"
#include "http/upgrade.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define TERMINAL_PING_MS 15000

struct terminal {
    struct run *run;
    struct websocket *websocket;
    uv_timer_t ping;
    char accept[WEBSOCKET_ACCEPT_SIZE];
    bool is_input_full;  /* the program takes no more */
    bool is_output_full; /* nor does the client */
};

/* True: the client takes more. */
static bool terminal_flush(struct terminal *terminal)
{
    struct buf *out = websocket_out(terminal->websocket);
    struct http_exchange *exchange = terminal->run->call->exchange;
    if (exchange && out->len)
        terminal->is_output_full = !http_stream_write(exchange, out->data, out->len);
    buf_clear(out);
    return !terminal->is_output_full;
}

/* Sends what there is, the close too, and ends the connection. */
static void terminal_end(struct terminal *terminal)
{
    struct api_call *call = terminal->run->call;
    uv_timer_stop(&terminal->ping);
    terminal_flush(terminal);
    if (call->exchange && call->is_streaming)
        http_stream_end(call->exchange);
    call->is_streaming = false;
}

static bool terminal_is_open(const struct terminal *terminal)
{
    return terminal->run->call->exchange && terminal->run->call->is_streaming;
}

/* ------------------------------------------------------------------ from the program to it */

static bool terminal_output(struct run *run, int stream, const char *data, size_t len)
{
    struct terminal *terminal = run->extra;
    (void)stream;
    if (!terminal_is_open(terminal) || websocket_send_bytes(terminal->websocket, data, len) < 0)
        return true; /* nobody reads it any more */
    return terminal_flush(terminal);
}

static void terminal_done(struct run *run)
{
    struct terminal *terminal = run->extra;
    cleanup_buf struct buf line = BUF_INIT(16 * MSG_TEXT);
    cleanup_buf struct buf text = BUF_INIT(16 * MSG_TEXT + 64);
    sink_close(run->sink);
    run->sink = NULL;
    if (!terminal_is_open(terminal))
        return;
    if (run_end_line(run, &line) == 0 && buf_appendf(&text, "{\"exit\":%s}", buf_text(&line)) == 0)
        websocket_send_text(terminal->websocket, text.data, text.len);
    websocket_close(terminal->websocket, WEBSOCKET_NORMAL, "the program has ended");
    terminal_end(terminal);
}

/* ------------------------------------------------------------------ from it to the program */

static void terminal_resize(const struct terminal *terminal, const char *data, size_t len)
{
    struct winsize size = {0};
    const struct source *source = terminal->run->sources[RUN_STDOUT];
    if (request_resize(data, len, &size.ws_row, &size.ws_col) < 0)
        websocket_fail(terminal->websocket, WEBSOCKET_REFUSED,
                       "send {\"resize\":{\"rows\":N,\"cols\":N}}, or bytes");
    else if (source)
        ioctl(source_fd(source), TIOCSWINSZ, &size); /* one that has hung up has no size */
}

static void terminal_on_message(void *ctx, bool is_text, const char *data, size_t len)
{
    struct terminal *terminal = ctx;
    if (is_text)
        terminal_resize(terminal, data, len);
    else if (terminal->run->sink && !sink_write(terminal->run->sink, data, len))
        terminal->is_input_full = true;
}

/* The terminal hangs up, as one whose line broke; what does not end of that is ended. */
static void terminal_gone(struct run *run)
{
    sink_close(run->sink);
    run->sink = NULL;
    source_close(run->sources[RUN_STDOUT]);
    run->sources[RUN_STDOUT] = NULL;
    if (!run->is_ended)
        call_tell(run->call, IPC_EXEC_END);
}

static bool terminal_input(struct api_call *call, const char *data, size_t len)
{
    struct run *run = call->state;
    struct terminal *terminal = run->extra;
    if (!terminal_is_open(terminal))
        return true;
    int r = websocket_feed(terminal->websocket, data, len);
    if (r < 0) {
        http_stream_abort(call->exchange);
        return true;
    }
    terminal_flush(terminal);
    if (websocket_is_over(terminal->websocket)) {
        terminal_end(terminal);
        return true;
    }
    return !terminal->is_input_full && !terminal->is_output_full;
}

static void terminal_input_resume(struct terminal *terminal)
{
    if (terminal_is_open(terminal) && !terminal->is_input_full && !terminal->is_output_full)
        http_resume_body(terminal->run->call->exchange);
}

static void terminal_on_drain(void *ctx)
{
    struct terminal *terminal = ((struct run *)ctx)->extra;
    terminal->is_input_full = false;
    terminal_input_resume(terminal);
}

static void terminal_on_refused(void *ctx)
{
    struct run *run = ctx;
    sink_close(run->sink);
    run->sink = NULL;
    terminal_on_drain(run);
}

static void terminal_on_client_drain(struct api_call *call)
{
    struct run *run = call->state;
    struct terminal *terminal = run->extra;
    terminal->is_output_full = false;
    terminal_input_resume(terminal);
    run_resume(run);
}

static void terminal_on_time(uv_timer_t *timer)
{
    struct terminal *terminal = timer->data;
    if (terminal_is_open(terminal) && websocket_ping(terminal->websocket) == 0)
        terminal_flush(terminal);
}

/* ------------------------------------------------------------------------------ its life */

static void terminal_started(struct run *run, struct ipc_message *message)
{
    static const struct sink_ops ops = {terminal_on_drain, terminal_on_refused,
                                        terminal_on_refused};
    struct terminal *terminal = run->extra;
    struct source *source = run->sources[RUN_STDOUT];
    (void)message;
    int fd = source ? fcntl(source_fd(source), F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0)
        run->sink = sink_new(call_loop(run->call), fd, &ops, run);
    if (call_upgrade(run->call, terminal->accept))
        uv_timer_start(&terminal->ping, terminal_on_time, TERMINAL_PING_MS, TERMINAL_PING_MS);
}

static void terminal_on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void terminal_free(void *extra)
{
    struct terminal *terminal = extra;
    websocket_free(terminal->websocket);
    uv_close((uv_handle_t *)&terminal->ping, terminal_on_timer_closed);
}

static struct terminal *terminal_new(struct api_call *call, const struct run_ops *ops)
{
    struct terminal *terminal = calloc(1, sizeof(*terminal));
    struct websocket *websocket =
        terminal ? websocket_new(WEBSOCKET_SERVER, terminal_on_message, terminal) : NULL;
    struct run *run = websocket ? run_new(call, ops) : NULL;
    if (!run) {
        websocket_free(websocket);
        free(terminal);
        call_failed(call, "out of memory"); /* nothing, when run_new said it */
        return NULL;
    }
    terminal->websocket = websocket;
    terminal->run = run;
    uv_timer_init(call_loop(call), &terminal->ping); /* never fails */
    terminal->ping.data = terminal;
    run->extra = terminal;
    run->extra_free = terminal_free;
    call->on_data = terminal_input;
    call->on_drain = terminal_on_client_drain;
    return terminal;
}

void api_terminal(struct api_call *call)
{
    static const struct run_ops ops = {terminal_output, terminal_done, terminal_gone,
                                       terminal_started};
    char accept[WEBSOCKET_ACCEPT_SIZE];
    const char *why;
    cleanup_buf struct buf spec = BUF_INIT(LIMIT_SPEC_BYTES);
    struct msg_exec body;
    struct err err;
    int status = http_upgrade_check(http_exchange_head(call->exchange), accept, &why);
    if (status) {
        call_refuse(call, status,
                    status == 426 ? "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" : NULL,
                    why);
        return;
    }
    int r = request_terminal(call->matched.query, call->matched.query_len, &spec, &body, &err);
    if (r < 0) {
        call_text(call, 400, err.message);
        return;
    }
    struct terminal *terminal = terminal_new(call, &ops);
    if (!terminal)
        return;
    memcpy(terminal->accept, accept, sizeof(accept));
    cleanup_fd int fd = fd_sealed("spec", spec.data, spec.len, &err);
    if (fd < 0) {
        call_failed(call, "%s", err.message);
        return;
    }
    IPC_SET_TEXT(body.name, call->name);
    run_send(terminal->run, IPC_EXEC, &body, fd);
}
