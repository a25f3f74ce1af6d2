/* See order.h. unix(7), cmsg(3). */
#include "sandbox/order.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

union control {
    struct cmsghdr align;
    char data[CMSG_SPACE(sizeof(int) * ORDER_FDS)];
};

int order_send(int sock, const char *name, const char *const *environment, const int fds[ORDER_FDS],
               struct err *err)
{
    struct iovec parts[ORDER_VARIABLES];
    size_t count = 0, bytes = 0;
    const char *text = name;
    while (text && count < ORDER_VARIABLES && bytes <= ORDER_BYTES) {
        parts[count] = (struct iovec){(void *)(uintptr_t)text, strlen(text) + 1};
        bytes += parts[count].iov_len;
        text = environment[count++];
    }
    if (text || bytes > ORDER_BYTES)
        return err_set(err, E2BIG, "the environment is too long");
    union control control = {0};
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = count,
                             .msg_control = control.data,
                             .msg_controllen = sizeof(control.data)};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(int) * ORDER_FDS);
    memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * ORDER_FDS);
    ssize_t n;
    do
        n = sendmsg(sock, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n < 0 ? err_errno(err, errno, "cannot give the instance its sandbox") : 0;
}

/* The texts of the packet: the name first. */
static int split(struct order *order, size_t len, struct err *err)
{
    size_t count = 0;
    if (len == 0 || order->text[len - 1] != '\0')
        return err_set(err, EPROTO, "the order of an instance is cut off");
    order->name = order->text;
    for (size_t at = strlen(order->name) + 1; at < len; at += strlen(order->text + at) + 1) {
        assert(count < ORDER_VARIABLES - 1); /* order_send has counted them */
        order->environment[count++] = order->text + at;
    }
    order->environment[count] = NULL;
    return 0;
}

int order_receive(int sock, struct order *ret, struct err *err)
{
    union control control = {0};
    struct iovec part = {ret->text, sizeof(ret->text)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.data,
                             .msg_controllen = sizeof(control.data)};
    struct pollfd ready = {.fd = sock, .events = POLLIN};
    ssize_t n;
    do {
        if (poll(&ready, 1, -1) < 0 && errno != EINTR)
            return err_errno(err, errno, "cannot wait for the order of the instance");
        n = recvmsg(sock, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0)
        return err_errno(err, errno, "cannot read the order of the instance");
    const struct cmsghdr *cmsg = n == 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (n == 0)
        return err_set(err, EPIPE, "the supervisor gave up");
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || !cmsg ||
        cmsg->cmsg_len != CMSG_LEN(sizeof(ret->fds)))
        return err_set(err, EPROTO, "the order of an instance is cut off");
    memcpy(ret->fds, CMSG_DATA(cmsg), sizeof(ret->fds));
    return split(ret, (size_t)n, err);
}
