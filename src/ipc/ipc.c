/* Messages over SOCK_SEQPACKET sockets; see ipc.h. Runs in every daemon and in init; allocates
 * nothing. What a peer sends is checked here against the table before anyone sees it. */
#include "ipc/ipc.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct ipc_kind {
    const char *name;
    uint16_t size;
    uint8_t from;
    uint8_t to;
    uint8_t fds;
};

static const struct ipc_kind ipc_kinds[IPC_TYPE_COUNT] = {
    [IPC_NONE] = {"NONE", 0, IPC_ANY, IPC_ANY, 0},
#define IPC_MESSAGE(name, body, from, to, descriptors, replies)                                    \
    [IPC_##name] = {#name, sizeof(struct msg_##body), IPC_##from, IPC_##to, descriptors},
#include "ipc/messages.def"
#undef IPC_MESSAGE
};

#define IPC_MESSAGE(name, body, from, to, descriptors, replies)                                    \
    _Static_assert(sizeof(struct msg_##body) + sizeof(struct ipc_header) <=                        \
                       LIMIT_IPC_MESSAGE_BYTES,                                                    \
                   #name " is too large");                                                         \
    _Static_assert((descriptors) <= LIMIT_IPC_DESCRIPTORS, #name " has too many descriptors");
#include "ipc/messages.def"
#undef IPC_MESSAGE

const char *ipc_type_name(enum ipc_type type)
{
    return (unsigned)type < IPC_TYPE_COUNT ? ipc_kinds[type].name : "unknown";
}

size_t ipc_type_size(enum ipc_type type)
{
    return (unsigned)type < IPC_TYPE_COUNT ? ipc_kinds[type].size : 0;
}

int ipc_pair(int ret[2], struct err *err)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ret) < 0)
        return err_errno(err, errno, "cannot make a socket pair");
    return 0;
}

/* Room for the control message, aligned as cmsg(3) wants. */
union ipc_control {
    struct cmsghdr align;
    char data[CMSG_SPACE(sizeof(int) * LIMIT_IPC_DESCRIPTORS)];
};

int ipc_send(int sock, enum ipc_type type, uint64_t id, const void *body, const int *fds,
             size_t fd_count, struct err *err)
{
    static const char zeroes[LIMIT_IPC_MESSAGE_BYTES];
    assert(type > IPC_NONE && type < IPC_TYPE_COUNT && fd_count <= ipc_kinds[type].fds);
    struct ipc_header header = {
        .version = IPC_VERSION, .type = (uint16_t)type, .size = ipc_kinds[type].size, .id = id};
    const void *bytes = body ? body : zeroes;
    struct iovec parts[2] = {
        {.iov_base = &header, .iov_len = sizeof(header)},
        {.iov_base = (void *)(uintptr_t)bytes, .iov_len = header.size},
    };
    union ipc_control control = {0};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (fd_count) {
        message.msg_control = control.data;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * fd_count);
    }
    ssize_t n;
    do
        n = sendmsg(sock, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(err, errno, "cannot send %s", ipc_kinds[type].name);
    return 0;
}

int ipc_send_status(int sock, uint64_t id, int code, const char *format, ...)
{
    struct msg_status status = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(status.text, sizeof(status.text), format, args);
    va_end(args);
    return ipc_send(sock, IPC_STATUS, id, &status, NULL, 0, NULL);
}

static void ipc_collect_fds(struct msghdr *message, struct ipc_message *ret)
{
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(message); cmsg; cmsg = CMSG_NXTHDR(message, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
            if (ret->fd_count < LIMIT_IPC_DESCRIPTORS)
                ret->fds[ret->fd_count++] = fd;
            else
                close(fd);
        }
    }
}

static bool ipc_is_allowed(enum ipc_peer allowed, enum ipc_peer peer)
{
    return allowed == IPC_ANY || allowed == peer;
}

/* Why the message may not be taken, or NULL. Peers of init may be of another version: then a body
 * that is shorter or longer than ours is cut or filled with zeroes. */
static const char *ipc_refusal(const struct ipc_message *message, size_t len, enum ipc_peer self,
                               enum ipc_peer peer)
{
    const struct ipc_header *header = &message->header;
    bool with_init = self == IPC_INIT || peer == IPC_INIT;
    if (len < sizeof(*header) || header->size != len - sizeof(*header))
        return "its size is not what it says";
    if (header->type == IPC_NONE || header->type >= IPC_TYPE_COUNT)
        return "its type is unknown";
    const struct ipc_kind *kind = &ipc_kinds[header->type];
    if (!ipc_is_allowed(kind->from, peer) || !ipc_is_allowed(kind->to, self))
        return "this peer may not send it";
    if (!with_init && (header->version != IPC_VERSION || header->size != kind->size))
        return "it is of another version";
    if (message->fd_count > kind->fds)
        return "it has too many descriptors";
    return NULL;
}

int ipc_recv(int sock, enum ipc_peer self, enum ipc_peer peer, struct ipc_message *ret,
             struct err *err)
{
    memset(ret, 0, sizeof(*ret));
    struct iovec parts[2] = {
        {.iov_base = &ret->header, .iov_len = sizeof(ret->header)},
        {.iov_base = ret->body, .iov_len = sizeof(ret->body)},
    };
    union ipc_control control;
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = 2,
                             .msg_control = control.data,
                             .msg_controllen = sizeof(control.data)};
    ssize_t n;
    do
        n = recvmsg(sock, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == ECONNRESET)
        return 0;
    if (n < 0)
        return errno == EAGAIN ? -EAGAIN : err_errno(err, errno, "cannot receive a message");
    ipc_collect_fds(&message, ret);
    if (n ==
        0) { /* the end, or an empty packet, which nobody of us sends: it may carry descriptors */
        ipc_message_close(ret);
        return 0;
    }
    const char *refusal = message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)
                              ? "it is too long"
                              : ipc_refusal(ret, (size_t)n, self, peer);
    if (refusal) {
        ipc_message_close(ret);
        return err_set(err, EPROTO, "refused message %s: %s",
                       ipc_type_name((enum ipc_type)ret->header.type), refusal);
    }
    size_t known = ipc_kinds[ret->header.type].size;
    memset(ret->body + known, 0, sizeof(ret->body) - known);
    return 1;
}

const char *ipc_text(const char *array, size_t size)
{
    return memchr(array, '\0', size) ? array : "";
}

void ipc_set_text(char *array, size_t size, const char *text)
{
    size_t len = strnlen(text, size - 1);
    memcpy(array, text, len);
    memset(array + len, 0, size - len);
}

int ipc_take_fd(struct ipc_message *message, size_t index)
{
    if (index >= message->fd_count)
        return -1;
    int fd = message->fds[index];
    message->fds[index] = -1;
    return fd;
}

void ipc_message_close(struct ipc_message *message)
{
    for (size_t i = 0; i < message->fd_count; i++)
        if (message->fds[i] >= 0)
            close(message->fds[i]);
    message->fd_count = 0;
}
