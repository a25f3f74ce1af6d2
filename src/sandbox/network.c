/* Builds the rtnetlink requests of a sandbox's network; see network.h. Supervisor, at start. */
#include "sandbox/network.h"

#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <netlink/addr.h>
#include <netlink/msg.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/route.h>
#include <string.h>
#include <sys/socket.h>

/* In a new network namespace lo is always the first interface. */
#define LOOPBACK_INDEX 1

static int append(struct network_requests *requests, struct nl_msg *message, const char *what,
                  struct err *err)
{
    if (!message)
        return err_set(err, ENOMEM, "cannot build the request for %s", what);
    struct nlmsghdr *header = nlmsg_hdr(message);
    size_t len = NLMSG_ALIGN(header->nlmsg_len);
    int result = 0;
    if (requests->len + len > sizeof(requests->data))
        result = err_set(err, EMSGSIZE, "the requests for the network are too long");
    else {
        header->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
        header->nlmsg_seq = ++requests->count;
        header->nlmsg_pid = 0; /* the kernel fills in the child's socket */
        memcpy(requests->data + requests->len, header, header->nlmsg_len);
        requests->len += len;
    }
    nlmsg_free(message);
    return result;
}

static int append_link_up(struct network_requests *requests, struct err *err)
{
    struct rtnl_link *link = rtnl_link_alloc();
    struct rtnl_link *change = rtnl_link_alloc();
    struct nl_msg *message = NULL;
    if (link && change) {
        rtnl_link_set_ifindex(link, LOOPBACK_INDEX);
        rtnl_link_set_flags(change, IFF_UP);
        rtnl_link_build_change_request(link, change, 0, &message);
    }
    rtnl_link_put(link);
    rtnl_link_put(change);
    return append(requests, message, "lo", err);
}

static int append_address(struct network_requests *requests, int family, const char *text,
                          struct err *err)
{
    struct rtnl_addr *address = rtnl_addr_alloc();
    struct nl_addr *local = NULL;
    struct nl_msg *message = NULL;
    if (address && nl_addr_parse(text, family, &local) == 0) {
        rtnl_addr_set_ifindex(address, LOOPBACK_INDEX);
        /* Else it is tentative until a work queue has run, and no route may name it yet. */
        if (family == AF_INET6)
            rtnl_addr_set_flags(address, IFA_F_NODAD);
        if (rtnl_addr_set_local(address, local) == 0)
            rtnl_addr_build_add_request(address, NLM_F_CREATE | NLM_F_EXCL, &message);
    }
    nl_addr_put(local);
    rtnl_addr_put(address);
    return append(requests, message, text, err);
}

/* local DEFAULT dev lo src SOURCE: without the source a connect to a closed port can meet itself,
 * the kernel taking the dialled address as the source too. */
static int append_local_route(struct network_requests *requests, int family, const char *any,
                              const char *source, struct err *err)
{
    struct rtnl_route *route = rtnl_route_alloc();
    struct rtnl_nexthop *hop = rtnl_route_nh_alloc();
    struct nl_addr *to = NULL;
    struct nl_addr *from = NULL;
    struct nl_msg *message = NULL;
    if (route && hop && nl_addr_parse(any, family, &to) == 0 &&
        nl_addr_parse(source, family, &from) == 0) {
        rtnl_route_set_family(route, (uint8_t)family);
        rtnl_route_set_table(route, RT_TABLE_LOCAL);
        rtnl_route_set_type(route, RTN_LOCAL);
        rtnl_route_set_scope(route, RT_SCOPE_HOST);
        rtnl_route_set_protocol(route, RTPROT_BOOT);
        rtnl_route_set_dst(route, to);
        rtnl_route_set_pref_src(route, from);
        rtnl_route_nh_set_ifindex(hop, LOOPBACK_INDEX);
        rtnl_route_add_nexthop(route, hop);
        hop = NULL; /* the route's now */
        rtnl_route_build_add_request(route, NLM_F_CREATE | NLM_F_EXCL, &message);
    }
    if (hop)
        rtnl_route_nh_free(hop);
    nl_addr_put(to);
    nl_addr_put(from);
    rtnl_route_put(route);
    return append(requests, message, any, err);
}

int network_build_requests(bool with_ipv6, struct network_requests *ret, struct err *err)
{
    memset(ret, 0, sizeof(*ret));
    int result = append_link_up(ret, err);
    if (result == 0)
        result = append_address(ret, AF_INET, NETWORK_IPV4 "/32", err);
    if (result == 0)
        result = append_local_route(ret, AF_INET, "0.0.0.0/0", NETWORK_IPV4, err);
    if (result == 0 && with_ipv6)
        result = append_address(ret, AF_INET6, NETWORK_IPV6 "/128", err);
    if (result == 0 && with_ipv6)
        result = append_local_route(ret, AF_INET6, "::/0", NETWORK_IPV6, err);
    return result;
}
