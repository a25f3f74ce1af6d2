/* The sockets of DNS; see dns.h. Runs in paddock-egress. One uv_poll for UDP, a listener and a
 * bounded number of connections for TCP, each of which holds one query and one answer at a time. */
#include "egress/dns.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress/listener.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78 /* linux/in6.h, which does not go with netinet/in.h */
#endif

#define UDP_BATCH 32

struct egress_dns;

/* A connection: reads a query, answers it, reads the next. */
struct dns_client {
    uv_poll_t poll;
    uv_timer_t idle;
    struct egress_dns *dns;
    int fd;
    int open_handles;
    uint8_t in[2 + LIMIT_DNS_QUERY_BYTES];
    size_t in_len;
    uint8_t out[2 + EGRESS_DNS_ANSWER_MAX];
    size_t out_len, out_sent;
    LIST_ENTRY(dns_client) link;
};

struct egress_dns {
    uv_loop_t *loop;
    uv_poll_t udp;
    int udp_fd;
    struct egress_listener *listener;
    LIST_HEAD(, dns_client) clients;
    size_t client_count;
    bool is_closing, udp_is_closed;
};

/* Room for either kind of packet information. */
union dns_control {
    struct cmsghdr align;
    char data[CMSG_SPACE(sizeof(struct in_pktinfo)) + CMSG_SPACE(sizeof(struct in6_pktinfo))];
};

static void dns_free_when_done(struct egress_dns *dns)
{
    if (!dns->is_closing || !dns->udp_is_closed || dns->client_count)
        return;
    free(dns);
}

/* Which address was asked, in the form in which it becomes the source of the answer. The interface
 * is left to the kernel: all is on the loopback. */
static size_t dns_make_source(struct msghdr *from, union dns_control *ret)
{
    struct cmsghdr *out = &ret->align;
    memset(ret, 0, sizeof(*ret));
    for (struct cmsghdr *in = CMSG_FIRSTHDR(from); in; in = CMSG_NXTHDR(from, in)) {
        if (in->cmsg_level == IPPROTO_IPV6 && in->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(in), sizeof(info));
            if (!IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr))
                info.ipi6_ifindex = 0;
            *out = (struct cmsghdr){.cmsg_level = IPPROTO_IPV6,
                                    .cmsg_type = IPV6_PKTINFO,
                                    .cmsg_len = CMSG_LEN(sizeof(info))};
            memcpy(CMSG_DATA(out), &info, sizeof(info));
            return CMSG_SPACE(sizeof(info));
        }
        if (in->cmsg_level == IPPROTO_IP && in->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(in), sizeof(info));
            info = (struct in_pktinfo){.ipi_spec_dst = info.ipi_addr};
            *out = (struct cmsghdr){.cmsg_level = IPPROTO_IP,
                                    .cmsg_type = IP_PKTINFO,
                                    .cmsg_len = CMSG_LEN(sizeof(info))};
            memcpy(CMSG_DATA(out), &info, sizeof(info));
            return CMSG_SPACE(sizeof(info));
        }
    }
    return 0;
}

/* Reads one datagram and answers it. False: there is none. An answer that cannot be sent is lost,
 * as any datagram may be: the client asks again. */
static bool dns_serve_datagram(int fd)
{
    uint8_t query[LIMIT_DNS_QUERY_BYTES], answer[EGRESS_DNS_ANSWER_MAX];
    struct sockaddr_storage peer;
    union dns_control control, source;
    struct iovec part = {.iov_base = query, .iov_len = sizeof(query)};
    struct msghdr message = {.msg_name = &peer,
                             .msg_namelen = sizeof(peer),
                             .msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT);
    if (n < 0)
        return errno == EINTR;
    size_t len = message.msg_flags & MSG_TRUNC ? 0 : egress_dns_answer(query, (size_t)n, answer);
    if (!len)
        return true;
    part = (struct iovec){.iov_base = answer, .iov_len = len};
    message.msg_controllen = dns_make_source(&message, &source);
    message.msg_control = message.msg_controllen ? &source : NULL;
    message.msg_flags = 0;
    sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return true;
}

static void dns_udp_readable(uv_poll_t *poll, int status, int events)
{
    struct egress_dns *dns = poll->data;
    (void)events;
    if (status < 0) {
        /* an ICMP error was queued on the socket, and libuv has stopped watching it */
        int code;
        socklen_t size = sizeof(code);
        getsockopt(dns->udp_fd, SOL_SOCKET, SO_ERROR, &code, &size);
        uv_poll_start(poll, UV_READABLE, dns_udp_readable);
        return;
    }
    for (int i = 0; i < UDP_BATCH && dns_serve_datagram(dns->udp_fd); i++)
        ;
}

static void dns_client_handle_closed(uv_handle_t *handle)
{
    struct dns_client *client = handle->data;
    struct egress_dns *dns = client->dns;
    if (--client->open_handles > 0)
        return;
    close(client->fd);
    free(client);
    dns->client_count--;
    if (!dns->is_closing && dns->client_count < LIMIT_DNS_CONNECTIONS)
        egress_listener_resume(dns->listener);
    dns_free_when_done(dns);
}

static void dns_client_close(struct dns_client *client)
{
    if (uv_is_closing((uv_handle_t *)&client->poll))
        return;
    LIST_REMOVE(client, link);
    uv_close((uv_handle_t *)&client->poll, dns_client_handle_closed);
    uv_close((uv_handle_t *)&client->idle, dns_client_handle_closed);
}

static void dns_client_idle(uv_timer_t *timer)
{
    dns_client_close(timer->data);
}

/* Makes the answer to the query at the front of `in`, if it is whole. False: there is none, or the
 * connection is no DNS. */
static bool dns_client_answer(struct dns_client *client, bool *ret_bad)
{
    if (client->in_len < 2)
        return false;
    size_t len = (size_t)client->in[0] << 8 | client->in[1];
    *ret_bad = len > LIMIT_DNS_QUERY_BYTES;
    if (*ret_bad || client->in_len < 2 + len)
        return false;
    size_t answer = egress_dns_answer(client->in + 2, len, client->out + 2);
    *ret_bad = answer == 0;
    client->out[0] = (uint8_t)(answer >> 8);
    client->out[1] = (uint8_t)answer;
    client->out_len = 2 + answer;
    client->out_sent = 0;
    client->in_len -= 2 + len;
    memmove(client->in, client->in + 2 + len, client->in_len);
    return !*ret_bad;
}

/* Sends what is left of the answer. 0, -EAGAIN or another negative errno. */
static int dns_client_flush(struct dns_client *client)
{
    while (client->out_sent < client->out_len) {
        ssize_t n = send(client->fd, client->out + client->out_sent,
                         client->out_len - client->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        client->out_sent += (size_t)n;
    }
    return 0;
}

/* 0: go on. Negative: the connection is at its end. */
static int dns_client_read(struct dns_client *client)
{
    ssize_t n =
        recv(client->fd, client->in + client->in_len, sizeof(client->in) - client->in_len, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -ECONNRESET;
    client->in_len += (size_t)n;
    return 0;
}

static void dns_client_ready(uv_poll_t *poll, int status, int events)
{
    struct dns_client *client = poll->data;
    bool is_bad = false;
    int result = status < 0 ? -EIO : dns_client_flush(client);
    if (result == 0 && events & UV_READABLE && client->in_len < sizeof(client->in))
        result = dns_client_read(client);
    while (result == 0 && dns_client_answer(client, &is_bad)) {
        uv_timer_again(&client->idle);
        result = dns_client_flush(client);
    }
    if (is_bad || (result < 0 && result != -EAGAIN))
        dns_client_close(client);
    else
        uv_poll_start(poll, result == -EAGAIN ? UV_WRITABLE : UV_READABLE, dns_client_ready);
}

static void dns_accepted(void *ctx, int fd)
{
    struct egress_dns *dns = ctx;
    cleanup_fd int owned = fd;
    struct dns_client *client = calloc(1, sizeof(*client));
    if (!client || uv_poll_init(dns->loop, &client->poll, fd) < 0) {
        free(client);
        return;
    }
    uv_timer_init(dns->loop, &client->idle);
    client->poll.data = client;
    client->idle.data = client;
    client->open_handles = 2;
    client->dns = dns;
    client->fd = TAKE_FD(owned);
    LIST_INSERT_HEAD(&dns->clients, client, link);
    if (++dns->client_count >= LIMIT_DNS_CONNECTIONS)
        egress_listener_pause(dns->listener);
    uv_timer_start(&client->idle, dns_client_idle, LIMIT_DNS_IDLE_MS, LIMIT_DNS_IDLE_MS);
    uv_poll_start(&client->poll, UV_READABLE, dns_client_ready);
}

/* To be told the address of each query, and to be allowed to answer from it: it is nobody's own. */
static int dns_prepare_udp(int fd, struct err *err)
{
    int family = 0, on = 1;
    socklen_t size = sizeof(family);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) < 0)
        return err_errno(err, errno, "cannot examine the DNS socket");
    if (family == AF_INET && setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) < 0)
        return err_errno(err, errno, "cannot set IP_PKTINFO on the DNS socket");
    if (family == AF_INET6 &&
        (setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)) < 0 ||
         setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof(on)) < 0))
        return err_errno(err, errno, "cannot set IPV6_RECVPKTINFO on the DNS socket");
    return 0;
}

static void dns_udp_closed(uv_handle_t *handle)
{
    struct egress_dns *dns = handle->data;
    close(dns->udp_fd);
    dns->udp_is_closed = true;
    dns_free_when_done(dns);
}

int egress_dns_start(uv_loop_t *loop, int udp_fd, int tcp_fd, struct egress_dns **ret,
                     struct err *err)
{
    cleanup_fd int udp = udp_fd, tcp = tcp_fd;
    int result = dns_prepare_udp(udp_fd, err);
    if (result < 0)
        return result;
    struct egress_dns *dns = calloc(1, sizeof(*dns));
    if (!dns)
        return err_errno(err, ENOMEM, "cannot serve DNS");
    dns->loop = loop;
    LIST_INIT(&dns->clients);
    result = uv_poll_init(loop, &dns->udp, udp_fd);
    if (result < 0) {
        free(dns);
        return err_errno(err, -result, "cannot watch the DNS socket");
    }
    dns->udp.data = dns;
    dns->udp_fd = TAKE_FD(udp);
    result = egress_listener_start(loop, TAKE_FD(tcp), dns_accepted, dns, &dns->listener, err);
    if (result < 0) {
        egress_dns_close(dns);
        return result;
    }
    uv_poll_start(&dns->udp, UV_READABLE, dns_udp_readable);
    *ret = dns;
    return 0;
}

void egress_dns_close(struct egress_dns *dns)
{
    if (!dns || dns->is_closing)
        return;
    dns->is_closing = true;
    egress_listener_close(dns->listener);
    uv_close((uv_handle_t *)&dns->udp, dns_udp_closed);
    struct dns_client *client, *next;
    for (client = LIST_FIRST(&dns->clients); client; client = next) {
        next = LIST_NEXT(client, link);
        dns_client_close(client);
    }
}
