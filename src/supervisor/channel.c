/*
 * Message sockets on the loop; see channel.h. Invariants: what is sent arrives in order; after
 * `broken` nothing is read or sent; the struct lives until libuv has closed its handle, so that an
 * owner may close from within a callback.
 */
#include "supervisor/channel.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervisor/event.h"
#include "util/limits.h"

struct channel_item {
    struct channel_item *next;
    enum ipc_type type;
    uint64_t id;
    int fds[LIMIT_IPC_DESCRIPTORS];
    size_t fd_count;
    char body[];
};

struct channel {
    uv_poll_t poll;
    int sock;
    enum ipc_peer peer;
    struct channel_owner owner;
    struct channel_item *first, **last;
    size_t count;
    bool is_broken;
    bool is_closed;
};

/* A turn of the loop takes at most so many from one peer: none can hold up the others. */
#define CHANNEL_BURST 64
/* To drain takes at most so many, which is more than a socket holds: all that had come when it
 * began, whatever the peer goes on sending. */
#define CHANNEL_DRAIN LIMIT_CHANNEL_MESSAGES

static void channel_item_free(struct channel_item *item)
{
    for (size_t i = 0; i < item->fd_count; i++)
        close(item->fds[i]);
    free(item);
}

static void channel_break(struct channel *channel, const char *why)
{
    if (channel->is_broken || channel->is_closed)
        return;
    channel->is_broken = true;
    uv_poll_stop(&channel->poll);
    channel->owner.broken(channel->owner.ctx, why);
}

/* Takes one message; false when there is none or the channel is at its end. */
static bool channel_take(struct channel *channel)
{
    cleanup_ipc_message struct ipc_message message;
    struct err err = {0};
    int result = ipc_recv(channel->sock, IPC_SUPERVISOR, channel->peer, &message, &err);
    if (result == -EAGAIN)
        return false;
    if (result == 1)
        channel->owner.message(channel->owner.ctx, &message);
    else
        channel_break(channel, result == 0 ? "it closed its socket" : err.message);
    return !channel->is_broken && !channel->is_closed;
}

static void channel_on_poll(uv_poll_t *poll, int status, int events);

static void channel_listen(struct channel *channel)
{
    if (channel->is_broken || channel->is_closed)
        return;
    uv_poll_start(&channel->poll, UV_READABLE | (channel->first ? UV_WRITABLE : 0),
                  channel_on_poll);
}

static void channel_flush(struct channel *channel)
{
    while (channel->first) {
        struct channel_item *item = channel->first;
        struct err err = {0};
        int result = ipc_send(channel->sock, item->type, item->id, item->body, item->fds,
                              item->fd_count, &err);
        if (result == -EAGAIN)
            break;
        channel->first = item->next;
        if (!channel->first)
            channel->last = &channel->first;
        channel->count--;
        channel_item_free(item);
        if (result < 0) {
            channel_break(channel, err.message);
            return;
        }
    }
    channel_listen(channel);
}

static void channel_on_poll(uv_poll_t *poll, int status, int events)
{
    struct channel *channel = poll->data;
    if (status < 0)
        events = UV_READABLE;
    if (events & UV_READABLE)
        for (int i = 0; i < CHANNEL_BURST && channel_take(channel); i++)
            ;
    if ((events & UV_WRITABLE) && !channel->is_broken && !channel->is_closed)
        channel_flush(channel);
}

struct channel *channel_open(uv_loop_t *loop, int sock, enum ipc_peer peer,
                             const struct channel_owner *owner)
{
    struct channel *channel = must_alloc(sizeof(*channel));
    *channel = (struct channel){.sock = sock, .peer = peer, .owner = *owner};
    channel->last = &channel->first;
    uv_poll_init(loop, &channel->poll, sock);
    channel->poll.data = channel;
    channel_listen(channel);
    return channel;
}

static void channel_on_close(uv_handle_t *handle)
{
    free(handle->data);
}

void channel_close(struct channel **at)
{
    struct channel *channel = *at;
    if (!channel)
        return;
    *at = NULL;
    channel->is_closed = true;
    for (struct channel_item *item = channel->first, *next; item; item = next) {
        next = item->next;
        channel_item_free(item);
    }
    uv_poll_stop(&channel->poll);
    uv_close((uv_handle_t *)&channel->poll, channel_on_close);
    close(channel->sock);
}

/* Descriptors that the caller will close are kept as duplicates. */
static void channel_keep(struct channel *channel, const struct channel_item *from, const void *body,
                         const int *fds)
{
    size_t size = ipc_type_size(from->type);
    struct channel_item *item = must_alloc(sizeof(*item) + size);
    item->type = from->type;
    item->id = from->id;
    if (body)
        memcpy(item->body, body, size);
    for (; item->fd_count < from->fd_count; item->fd_count++) {
        int fd = fcntl(fds[item->fd_count], F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            channel_item_free(item);
            channel_break(channel, "no descriptors are left");
            return;
        }
        item->fds[item->fd_count] = fd;
    }
    *channel->last = item;
    channel->last = &item->next;
    channel->count++;
    channel_listen(channel);
}

void channel_send(struct channel *channel, enum ipc_type type, uint64_t id, const void *body,
                  const int *fds, size_t fd_count)
{
    if (!channel || channel->is_broken)
        return;
    struct err err = {0};
    int result = -EAGAIN;
    if (!channel->first)
        result = ipc_send(channel->sock, type, id, body, fds, fd_count, &err);
    if (result == -EAGAIN && channel->count < LIMIT_CHANNEL_MESSAGES) {
        struct channel_item item = {.type = type, .id = id, .fd_count = fd_count};
        channel_keep(channel, &item, body, fds);
        return;
    }
    if (result < 0)
        channel_break(channel, result == -EAGAIN ? "it does not read" : err.message);
}

void channel_drain(struct channel *channel)
{
    for (int i = 0; i < CHANNEL_DRAIN && channel && !channel->is_broken && channel_take(channel);
         i++)
        ;
}
