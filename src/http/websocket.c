/* The frames of a WebSocket; see websocket.h. Runs in api on a client's bytes and in the command
 * line on the daemon's. Invariant: nothing of the peer is kept but one message that is not whole.
 */
#include "http/websocket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <wslay/wslay.h>

#define REASON_BYTES 122
/* A feed of nothing but pings is answered with as many bytes; and messages of the owner. */
#define OUT_BYTES ((size_t)4 * 1024 * 1024)

struct websocket {
    wslay_event_context_ptr frames;
    const char *in; /* what is being fed */
    size_t in_len;
    bool is_client;
    struct buf out;
    websocket_on_message on_message;
    void *ctx;
};

static ssize_t on_recv(wslay_event_context_ptr frames, uint8_t *data, size_t len, int flags,
                       void *ctx)
{
    struct websocket *websocket = ctx;
    (void)flags;
    if (websocket->in_len == 0) {
        wslay_event_set_error(frames, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    size_t n = len < websocket->in_len ? len : websocket->in_len;
    memcpy(data, websocket->in, n);
    websocket->in += n;
    websocket->in_len -= n;
    return (ssize_t)n;
}

static ssize_t on_send(wslay_event_context_ptr frames, const uint8_t *data, size_t len, int flags,
                       void *ctx)
{
    struct websocket *websocket = ctx;
    (void)flags;
    if (buf_append(&websocket->out, data, len) == 0)
        return (ssize_t)len;
    wslay_event_set_error(frames, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static int on_mask(wslay_event_context_ptr frames, uint8_t *data, size_t len, void *ctx)
{
    (void)ctx;
    if (getrandom(data, len, 0) == (ssize_t)len)
        return 0;
    wslay_event_set_error(frames, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static void on_msg(wslay_event_context_ptr frames, const struct wslay_event_on_msg_recv_arg *arg,
                   void *ctx)
{
    const struct websocket *websocket = ctx;
    (void)frames;
    if (!wslay_is_ctrl_frame(arg->opcode))
        websocket->on_message(websocket->ctx, arg->opcode == WSLAY_TEXT_FRAME,
                              (const char *)arg->msg, arg->msg_length);
}

struct websocket *websocket_new(enum websocket_role role, websocket_on_message on_message,
                                void *ctx)
{
    static const struct wslay_event_callbacks callbacks = {.recv_callback = on_recv,
                                                           .send_callback = on_send,
                                                           .genmask_callback = on_mask,
                                                           .on_msg_recv_callback = on_msg};
    struct websocket *websocket = calloc(1, sizeof(*websocket));
    if (!websocket)
        return NULL;
    websocket->is_client = role == WEBSOCKET_CLIENT;
    int r = websocket->is_client
                ? wslay_event_context_client_init(&websocket->frames, &callbacks, websocket)
                : wslay_event_context_server_init(&websocket->frames, &callbacks, websocket);
    if (r != 0) {
        free(websocket);
        return NULL;
    }
    wslay_event_config_set_max_recv_msg_length(websocket->frames, WEBSOCKET_MESSAGE_BYTES);
    websocket->out = BUF_INIT(OUT_BYTES);
    websocket->on_message = on_message;
    websocket->ctx = ctx;
    return websocket;
}

void websocket_free(struct websocket *websocket)
{
    if (!websocket)
        return;
    wslay_event_context_free(websocket->frames);
    buf_free(&websocket->out);
    free(websocket);
}

/* What is queued becomes bytes to send. */
static int flush(struct websocket *websocket)
{
    return wslay_event_send(websocket->frames) == 0 ? 0 : -ENOMEM;
}

/* The close that libwslay makes of a frame it cannot read has no code: this one has. */
static int close_broken(struct websocket *websocket)
{
    static const char plain[] = "\x88\x02\x03\xea", masked[] = "\x88\x82\0\0\0\0\x03\xea";
    bool is_sent = wslay_event_get_close_sent(websocket->frames);
    wslay_event_shutdown_write(websocket->frames);
    if (is_sent)
        return 0;
    return websocket->is_client ? buf_append(&websocket->out, masked, sizeof(masked) - 1)
                                : buf_append(&websocket->out, plain, sizeof(plain) - 1);
}

int websocket_feed(struct websocket *websocket, const char *data, size_t len)
{
    if (websocket_is_over(websocket))
        return 0;
    websocket->in = data;
    websocket->in_len = len;
    int r = wslay_event_recv(websocket->frames);
    websocket->in_len = 0;
    if (r == 0)
        return flush(websocket);
    wslay_event_shutdown_read(websocket->frames);
    return r == WSLAY_ERR_NOMEM ? -ENOMEM : close_broken(websocket);
}

struct buf *websocket_out(struct websocket *websocket)
{
    return &websocket->out;
}

static int send_message(struct websocket *websocket, uint8_t opcode, const void *data, size_t len)
{
    struct wslay_event_msg message = {opcode, data, len};
    int r = wslay_event_queue_msg(websocket->frames, &message);
    if (r != 0)
        return r == WSLAY_ERR_NO_MORE_MSG ? -EPIPE : -ENOMEM;
    return flush(websocket);
}

int websocket_send_bytes(struct websocket *websocket, const void *data, size_t len)
{
    const char *at = data;
    int r = 0;
    for (size_t n; len && r == 0; at += n, len -= n) {
        n = len < WEBSOCKET_MESSAGE_BYTES ? len : WEBSOCKET_MESSAGE_BYTES;
        r = send_message(websocket, WSLAY_BINARY_FRAME, at, n);
    }
    return r;
}

int websocket_send_text(struct websocket *websocket, const char *data, size_t len)
{
    return send_message(websocket, WSLAY_TEXT_FRAME, data, len);
}

int websocket_ping(struct websocket *websocket)
{
    return send_message(websocket, WSLAY_PING, NULL, 0);
}

void websocket_close(struct websocket *websocket, enum websocket_code code, const char *reason)
{
    size_t len = strnlen(reason, REASON_BYTES);
    if (wslay_event_queue_close(websocket->frames, (uint16_t)code, (const uint8_t *)reason, len) ==
        0)
        flush(websocket);
}

void websocket_fail(struct websocket *websocket, enum websocket_code code, const char *reason)
{
    websocket_close(websocket, code, reason);
    wslay_event_shutdown_read(websocket->frames);
}

bool websocket_is_over(const struct websocket *websocket)
{
    return !wslay_event_get_read_enabled(websocket->frames);
}

int websocket_code_received(const struct websocket *websocket)
{
    return wslay_event_get_status_code_received(websocket->frames);
}
