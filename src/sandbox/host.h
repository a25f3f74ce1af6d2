/*
 * What the host offers, found once at start: cgroup layout, IPv6, namespaces; and what every start
 * needs: the compiled seccomp filter, init's binary as a sealed memfd, the pool of ids.
 * Supervisor only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sandbox/ids.h"
#include "sandbox/row.h"
#include "util/buf.h"
#include "util/err.h"

enum cgroup_layout {
    CGROUP_NONE,   /* none may be made: no limits but rlimits; doctor says so */
    CGROUP_V2,     /* controllers in the unified tree */
    CGROUP_HYBRID, /* memory, cpu, pids in v1 hierarchies; kill and freeze in a v2 tree */
    CGROUP_V1,     /* v1 only, no v2 tree: groups are killed through a freezer */
};

enum seccomp_profile { SECCOMP_SANDBOX, SECCOMP_API, SECCOMP_EGRESS, SECCOMP_JAIL };

struct sandbox_host;

struct sandbox_host_config {
    const struct row *row;        /* found by row_find */
    uint32_t ids_base, ids_count; /* of row ROOT alone */
    const char *init_path;        /* the paddock-init binary; copied into a sealed memfd */
    const char *state_name; /* a short token of this STATE ([a-z0-9], 8 characters): names cgroups,
                               so that two daemons with two states do not meet */
};

/* Probes and prepares. Refuses (with the cure in the message) where user namespaces are forbidden:
 * a weaker sandbox is never started instead. May block for some milliseconds: at start only. */
int sandbox_host_open(const struct sandbox_host_config *config, struct sandbox_host **ret,
                      struct err *err);
/* Ends the jails that still run; waits for each, 2 s at most. */
void sandbox_host_close(struct sandbox_host *host);

const struct row *sandbox_host_row(const struct sandbox_host *host);
struct ids *sandbox_host_ids(struct sandbox_host *host);
enum cgroup_layout sandbox_host_cgroups(const struct sandbox_host *host);

/* Which limits no control group holds here. Those of memory and processes are then setrlimit(2)'s:
 * for each process, and for each user in a sandbox. */
struct host_unheld {
    bool memory, cpus, pids;
};
struct host_unheld sandbox_host_unheld(const struct sandbox_host *host);
/* What brings them. */
#define HOST_GROUPS_CURE                                                                           \
    "start paddockd where it may write the tree of control groups and the controllers memory, "    \
    "cpu "                                                                                         \
    "and pids are handed down to it (systemd: a service with Delegate=yes)"
bool sandbox_host_has_ipv6(const struct sandbox_host *host);

/* The BPF of a profile in a sealed memfd, the host's own; see util/confine.h. */
int sandbox_host_seccomp_fd(struct sandbox_host *host, enum seccomp_profile profile);

enum finding_level { FINDING_OK, FINDING_WARN, FINDING_FAIL };

/* What `paddockd --doctor` tells: one finding per call of `tell`, the last of them always made. */
struct sandbox_finding {
    const char *name; /* "user-namespaces", "cgroups", "overlay", "idmapped-mounts", ... */
    enum finding_level level;
    char text[400]; /* what is there, or what is wrong and why */
    char lost[200]; /* what cannot be had so; "" when ok */
    char cure[400]; /* the exact command or setting; "" when ok */
};
void sandbox_host_doctor(int state_fd, void (*tell)(void *ctx, const struct sandbox_finding *),
                         void *ctx);
