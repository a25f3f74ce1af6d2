/* Addresses that a name from the outside must not lead to (IANA's special-purpose registries, RFC
 * 6890). Process: paddock-egress. A pure function, called for each address before connect(2). */
#include "egress/address.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "util/cleanup.h"

static const struct {
    uint32_t net;
    int bits;
} special4[] = {
    {0x00000000, 8},  /* 0.0.0.0/8: this network */
    {0x0a000000, 8},  /* 10.0.0.0/8: private */
    {0x64400000, 10}, /* 100.64.0.0/10: shared, CGNAT; ours inside sandboxes */
    {0x7f000000, 8},  /* 127.0.0.0/8: loopback */
    {0xa9fe0000, 16}, /* 169.254.0.0/16: link-local, metadata services */
    {0xac100000, 12}, /* 172.16.0.0/12: private */
    {0xc0000000, 24}, /* 192.0.0.0/24: IETF protocol assignments */
    {0xc0000200, 24}, /* 192.0.2.0/24: documentation */
    {0xc0586300, 24}, /* 192.88.99.0/24: former 6to4 relays */
    {0xc0a80000, 16}, /* 192.168.0.0/16: private */
    {0xc6120000, 15}, /* 198.18.0.0/15: benchmarking */
    {0xc6336400, 24}, /* 198.51.100.0/24: documentation */
    {0xcb007100, 24}, /* 203.0.113.0/24: documentation */
    {0xe0000000, 3},  /* 224.0.0.0/3: multicast, reserved, broadcast */
};

static bool is_public4(uint32_t address)
{
    for (size_t i = 0; i < ARRAY_LEN(special4); i++)
        if ((address ^ special4[i].net) >> (32 - special4[i].bits) == 0)
            return false;
    return true;
}

static const struct {
    uint8_t net[16];
    int bits;
} special6[] = {
    {{0x20, 0x01}, 23},             /* 2001::/23: Teredo, ORCHID and other protocols */
    {{0x20, 0x01, 0x0d, 0xb8}, 32}, /* documentation */
    {{0x3f, 0xff}, 20},             /* documentation */
};

static bool has_prefix(const uint8_t *address, const uint8_t *net, int bits)
{
    if (memcmp(address, net, (size_t)bits / 8) != 0)
        return false;
    int rest = bits % 8;
    return rest == 0 || (address[bits / 8] ^ net[bits / 8]) >> (8 - rest) == 0;
}

static uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is_public6(const uint8_t *address)
{
    static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t nat64[16] = {0x00, 0x64, 0xff, 0x9b};
    static const uint8_t six_to_four[16] = {0x20, 0x02};
    if (has_prefix(address, mapped, 96) || has_prefix(address, nat64, 96))
        return is_public4(read_u32(address + 12));
    if (has_prefix(address, six_to_four, 16))
        return is_public4(read_u32(address + 2));
    /* Global unicast is 2000::/3; all else is loopback, unique-local, link-local, multicast ... */
    if (address[0] >> 5 != 1)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(special6); i++)
        if (has_prefix(address, special6[i].net, special6[i].bits))
            return false;
    return true;
}

bool egress_address_is_public(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof(in));
        return is_public4(ntohl(in.sin_addr.s_addr));
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof(in6));
        return is_public6(in6.sin6_addr.s6_addr);
    }
    return false;
}
