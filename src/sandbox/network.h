/*
 * The sandbox's network without a wire (DESIGN.md, section 2): lo with its addresses, and routes
 * that make every address local. The rtnetlink requests are the same for every sandbox, so libnl
 * builds them once, at the supervisor's start; the child only sends the bytes, since libnl
 * allocates and a cloned child must not.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "util/err.h"

#define NETWORK_REQUESTS_MAX 2048
#define NETWORK_IPV4 "100.64.0.2"
#define NETWORK_IPV6 "fd00::2"

struct network_requests {
    _Alignas(8) char data[NETWORK_REQUESTS_MAX]; /* struct nlmsghdr..., each with NLM_F_ACK */
    size_t len;
    unsigned count;
};

int network_build_requests(bool with_ipv6, struct network_requests *ret, struct err *err);
