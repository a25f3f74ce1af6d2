/* Settings of the kernel that forbid or limit namespaces: what is named as the cause when they
 * cannot be made. Read only. */
#pragma once

#include <stddef.h>

#define HOST_NAMESPACES 7

struct host_settings {
    long max[HOST_NAMESPACES]; /* user.max_KIND_namespaces; -1: there is no such setting */
    long unprivileged_clone; /* kernel.unprivileged_userns_clone (Debian's kernels); 1 if absent */
    long apparmor_restricts; /* kernel.apparmor_restrict_unprivileged_userns; 0 if absent */
};

/* As in the names of the settings: user, mnt, pid, net, ipc, uts, cgroup. */
extern const char *const host_namespace_kinds[HOST_NAMESPACES];

/* `root` is the folder that has proc/sys: "/" but in tests. What cannot be read counts as absent.
 */
void host_settings_read(const char *root, struct host_settings *ret);

/* Why these settings forbid user namespaces, or what remains when they do not: the cause and the
 * exact cure. `is_root`: of the initial user namespace, for whom some do not count. */
struct host_cause {
    const char *cause;
    const char *cure;
};
struct host_cause host_settings_userns(const struct host_settings *settings, int is_root);

/* The kind of namespace with the lowest limit; -1 when none is below `least`. */
int host_settings_tightest(const struct host_settings *settings, long least);
