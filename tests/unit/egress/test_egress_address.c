/* CASES B7: a name of the outside leads to no address of the inside. */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress/address.h"
#include "util/cleanup.h"

static bool is_public(const char *text)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
        memcpy(&storage, &in, sizeof(in));
    else if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1)
        memcpy(&storage, &in6, sizeof(in6));
    else
        abort();
    return egress_address_is_public((const struct sockaddr *)&storage);
}

static void check(const char *const *addresses, size_t count, bool wanted)
{
    for (size_t i = 0; i < count; i++)
        if (is_public(addresses[i]) != wanted) {
            fprintf(stderr, "%s is %s\n", addresses[i], wanted ? "refused" : "let through");
            abort();
        }
}

int main(void)
{
    static const char *const inside[] = {
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.2",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "fc00::1",
        "fd00::2",
        "fd12:3456:789a::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::7f00:1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2002:a00:1::",
        "2001:db8::1",
        "2001::1",
        "100::1",
        "3fff::1",
        "64:ff9b:1::1",
    };
    static const char *const outside[] = {
        "1.1.1.1",         "8.8.8.8",          "9.255.255.255",   "11.0.0.1",
        "100.63.255.255",  "100.128.0.1",      "126.255.255.255", "128.0.0.1",
        "140.82.121.4",    "169.253.255.255",  "172.15.255.255",  "172.32.0.1",
        "192.167.255.255", "198.17.255.255",   "198.20.0.1",      "223.255.255.255",
        "2606:4700::1111", "2a00:1450:4001::", "::ffff:8.8.8.8",  "64:ff9b::8.8.8.8",
    };
    check(inside, ARRAY_LEN(inside), false);
    check(outside, ARRAY_LEN(outside), true);
    struct sockaddr local = {.sa_family = AF_UNIX};
    assert(!egress_address_is_public(&local));
    return 0;
}
