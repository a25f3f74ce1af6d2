/* What a host holds; for the files of this folder only. */
#pragma once

#include <linux/filter.h>

#include "sandbox/cgroup.h"
#include "sandbox/host.h"
#include "sandbox/network.h"
#include "sandbox/profile.h"
#include "sandbox/row.h"

/* The doctor's findings about the kernel, in host_features.c. */
void sandbox_host_features(void (*tell)(void *ctx, const struct sandbox_finding *), void *ctx);

struct sandbox_host {
    struct row row;
    int range_fd; /* SUBORDINATE: the user namespace of the range (launch.h); else -1 */
    struct ids *ids;
    struct cgroups cgroups;
    struct network_requests network;
    bool has_ipv6;
    int init_fd;                                 /* sealed memfd: the binary paddock-init */
    int seccomp_fds[SECCOMP_PROFILES];           /* sealed memfds: struct sock_filter[] */
    struct sock_fprog filters[SECCOMP_PROFILES]; /* the same, mapped */
};
