/* See listen.h. In the set-up child and in init of a sandbox. */
#include "util/listen.h"

#include <errno.h>
#include <sys/socket.h>

#include "util/cleanup.h"

#define BACKLOG 4096

int listen_everywhere(bool has_ipv6, int type, in_port_t port, struct err *err)
{
    static const int off = 0;
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    const struct sockaddr *address =
        has_ipv6 ? (const struct sockaddr *)&any6 : (const struct sockaddr *)&any4;
    socklen_t len = has_ipv6 ? sizeof(any6) : sizeof(any4);
    cleanup_fd int sock = socket(address->sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0)
        return err_errno(err, errno, "cannot make the listener of port %d", port);
    if (has_ipv6 && setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0)
        return err_errno(err, errno, "cannot make the listener of port %d dual-stack", port);
    if (bind(sock, address, len) < 0 || (type == SOCK_STREAM && listen(sock, BACKLOG) < 0))
        return err_errno(err, errno, "cannot listen on port %d", port);
    return TAKE_FD(sock);
}
