/* The server's side of a WebSocket's handshake (RFC 6455, section 4.2). Pure. api. */
#pragma once

#include "http/head.h"
#include "http/websocket.h"

/* 0, and the value of Sec-WebSocket-Accept; or the status to refuse the request with, 426 or 400,
 * and why. A refusal by 426 has the headers Upgrade and Sec-WebSocket-Version. */
int http_upgrade_check(const struct http_head *head, char ret[WEBSOCKET_ACCEPT_SIZE],
                       const char **ret_why);
