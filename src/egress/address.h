/* Which addresses an upstream may have. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

/* True for a unicast address of the public Internet. Everything else is not: loopback, private,
 * link-local (cloud metadata), shared (CGNAT), unique-local, multicast, reserved, documentation,
 * and IPv6 forms that carry an IPv4 address which is not public (mapped, NAT64, 6to4). */
bool egress_address_is_public(const struct sockaddr *address);
