/* The network of a sandbox, from inside: see network.h. Set-up child; allocates nothing. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/child.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/listen.h"

struct answer {
    struct nlmsghdr header;
    struct nlmsgerr error; /* with the header of the request it answers */
};

/* A datagram may hold several answers. */
static int read_answers(int sock, unsigned count, struct err *err)
{
    char answers[4096];
    while (count) {
        ssize_t n = recv(sock, answers, sizeof(answers), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot read from rtnetlink");
        struct answer answer;
        for (size_t at = 0; at + sizeof(answer) <= (size_t)n && count; count--) {
            memcpy(&answer, answers + at, sizeof(answer));
            if (answer.header.nlmsg_type != NLMSG_ERROR || answer.header.nlmsg_len < sizeof(answer))
                return err_set(err, EPROTO, "rtnetlink answered with something else");
            if (answer.error.error)
                return err_errno(err, -answer.error.error, "request %u of the network was refused",
                                 answer.header.nlmsg_seq);
            at += NLMSG_ALIGN(answer.header.nlmsg_len);
        }
    }
    return 0;
}

int child_configure_network(const struct network_requests *requests, struct err *err)
{
    cleanup_fd int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (sock < 0 || send(sock, requests->data, requests->len, 0) < 0)
        return err_errno(err, errno, "cannot ask rtnetlink for the network");
    return read_answers(sock, requests->count, err);
}

int child_open_listeners(bool has_ipv6, int ret[INIT_LISTENER_COUNT], struct err *err)
{
    static const struct {
        int type;
        in_port_t port;
    } listeners[INIT_LISTENER_COUNT] = {
        {SOCK_STREAM, 80}, {SOCK_STREAM, 443}, {SOCK_STREAM, 53}, {SOCK_DGRAM, 53}};
    for (size_t i = 0; i < INIT_LISTENER_COUNT; i++) {
        ret[i] = listen_everywhere(has_ipv6, listeners[i].type, listeners[i].port, err);
        if (ret[i] < 0)
            return ret[i];
    }
    return 0;
}

/* Everything a sandbox dials is in its own namespace, to few addresses: without these, some 28,000
 * connections a minute to one name use up the ports that wait in TIME_WAIT. */
int child_tune_network(int root_fd, struct err *err)
{
    static const struct {
        const char *path;
        const char *value;
    } settings[] = {
        {"proc/sys/net/ipv4/tcp_tw_reuse", "1"},
        {"proc/sys/net/ipv4/ip_local_port_range", "16384 60999"},
        {"proc/sys/net/ipv4/tcp_wmem", LIMIT_SANDBOX_TCP_WMEM},
        {"proc/sys/net/ipv4/ip_unprivileged_port_start", "0"}, /* init's listeners (ports.c) */
    };
    for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
        cleanup_fd int fd = openat(root_fd, settings[i].path, O_WRONLY | O_CLOEXEC);
        size_t len = strlen(settings[i].value);
        if (fd < 0 || write(fd, settings[i].value, len) < 0)
            return err_errno(err, errno, "cannot set /%s", settings[i].path);
    }
    return 0;
}
