/* A listening socket of a sandbox's network. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>

#include "util/err.h"

/* Listens on every address of the network namespace the caller is in: [::], which takes IPv4 too,
 * or 0.0.0.0 on a kernel without IPv6. `type`: SOCK_STREAM or SOCK_DGRAM. Returns a CLOEXEC,
 * non-blocking socket, or -errno. ipv6(7). No allocation. */
int listen_everywhere(bool has_ipv6, int type, in_port_t port, struct err *err);
