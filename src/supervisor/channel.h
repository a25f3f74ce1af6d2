/*
 * A message socket on the loop: gives each message to its owner, keeps those that the peer has no
 * room for yet (with duplicates of their descriptors), in order and bounded.
 */
#pragma once

#include <uv.h>

#include "ipc/ipc.h"

struct channel;

struct channel_owner {
    void *ctx;
    /* The message and its descriptors are closed afterwards; what is wanted is taken out. */
    void (*message)(void *ctx, struct ipc_message *message);
    /* The peer is gone, broke the protocol or does not read; called once, nothing follows. The
     * owner closes the channel then or later. */
    void (*broken)(void *ctx, const char *why);
};

/* Takes the socket, which is non-blocking. */
struct channel *channel_open(uv_loop_t *loop, int sock, enum ipc_peer peer,
                             const struct channel_owner *owner);
/* Closes and clears the pointer; nothing when it is NULL. Also from within a callback. */
void channel_close(struct channel **channel);

/* Sends or keeps. The descriptors stay the caller's. A NULL channel swallows: its peer is away. */
void channel_send(struct channel *channel, enum ipc_type type, uint64_t id, const void *body,
                  const int *fds, size_t fd_count);

/* Reads what the peer has sent so far, without waiting for the loop; it ends, whatever the peer
 * goes on sending. */
void channel_drain(struct channel *channel);
