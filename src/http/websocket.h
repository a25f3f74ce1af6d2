/*
 * The frames of a WebSocket (RFC 6455), either side: bytes from the peer in, messages out, and the
 * bytes to send to it. No I/O: the owner of the connection feeds it and sends what it has. No
 * extension, no subprotocol. libwslay does the framing. Used by api (server) and the command line
 * (client).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "util/buf.h"

enum websocket_role { WEBSOCKET_SERVER, WEBSOCKET_CLIENT };

/* The longest message either side takes; a longer one ends it with WEBSOCKET_TOO_BIG. */
#define WEBSOCKET_MESSAGE_BYTES ((size_t)64 * 1024)

/* Close codes (RFC 6455, section 7.4.1). */
enum websocket_code {
    WEBSOCKET_NORMAL = 1000,
    WEBSOCKET_BROKEN = 1002,   /* the peer's frames are wrong */
    WEBSOCKET_REFUSED = 1003,  /* a message that is not understood */
    WEBSOCKET_ABNORMAL = 1006, /* never sent: there was no close */
    WEBSOCKET_TOO_BIG = 1009,
};

struct websocket;

/* A whole message. It may send and close, not free. */
typedef void (*websocket_on_message)(void *ctx, bool is_text, const char *data, size_t len);

/* NULL: out of memory. */
struct websocket *websocket_new(enum websocket_role role, websocket_on_message on_message,
                                void *ctx);
void websocket_free(struct websocket *websocket); /* NULL is allowed */

/* Bytes of the peer, cut anywhere. Pings are answered, and so is the peer's close. 0 or -ENOMEM.
 * What the peer did wrong is no error: a close with its code is in the bytes to send, and
 * websocket_is_over. */
int websocket_feed(struct websocket *websocket, const char *data, size_t len);

/* The bytes to send; the caller sends and consumes them, before it feeds or sends again: what is
 * kept here is not bounded otherwise. */
struct buf *websocket_out(struct websocket *websocket);

/* A message, of any length: longer ones go out as several. -EPIPE: a close was sent, -ENOMEM. */
int websocket_send_bytes(struct websocket *websocket, const void *data, size_t len);
int websocket_send_text(struct websocket *websocket, const char *data, size_t len); /* as one */
int websocket_ping(struct websocket *websocket);
/* The last message to the peer. The reason is cut at 122 bytes. Nothing, when one was sent. */
void websocket_close(struct websocket *websocket, enum websocket_code code, const char *reason);

/* The same, and nothing more of the peer is read: websocket_is_over. */
void websocket_fail(struct websocket *websocket, enum websocket_code code, const char *reason);

/* True when nothing more of the peer is read: it closed, or broke the protocol. Send what there is
 * to send, and end the connection. */
bool websocket_is_over(const struct websocket *websocket);
/* The code of the peer's close, 1005 when it has none; WEBSOCKET_ABNORMAL: there was none. */
int websocket_code_received(const struct websocket *websocket);

/* The handshake (section 4). A key is 16 bytes in base64. */
#define WEBSOCKET_KEY_SIZE 25
#define WEBSOCKET_ACCEPT_SIZE 29
bool websocket_key_is_valid(const char *key, size_t len);
/* A fresh one. 0, or -errno of getrandom(2). */
int websocket_make_key(char ret[WEBSOCKET_KEY_SIZE]);
/* The value of Sec-WebSocket-Accept that answers a valid key (of which the NUL is
 * not looked at). */
void websocket_accept(const char *key, char ret[WEBSOCKET_ACCEPT_SIZE]);
