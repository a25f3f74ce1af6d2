/*
 * The REST API: HTTP of clients on one side, messages of the supervisor on the other. Runs in
 * paddock-api: its own user, no capability, no file system; every file arrives as a descriptor. It
 * keeps nothing that must survive it: the supervisor starts it again and sends the listeners anew.
 */
#pragma once

#include <uv.h>

#include "util/err.h"

struct api;

/* Serves on the loop, told by the supervisor's socket which listeners to use; the descriptor
 * becomes the api's. Streams of events get a comment each event_ms. `on_lost` is called once, with
 * a reason, when the supervisor is gone or breaks the protocol: then the process must end. */
int api_open(uv_loop_t *loop, int supervisor_fd, int64_t event_ms,
             void (*on_lost)(void *ctx, const char *reason), void *ctx, struct api **ret,
             struct err *err);

/* Closes listeners and connections; freed when the loop has run out. */
void api_close(struct api *api);
