/* See host_settings.h. */
#include "sandbox/host_settings.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "util/cleanup.h"
#include "util/fd.h"

const char *const host_namespace_kinds[HOST_NAMESPACES] = {"user", "mnt", "pid",   "net",
                                                           "ipc",  "uts", "cgroup"};

static long read_setting(const char *root, const char *name, long absent)
{
    char path[PATH_MAX];
    char *end;
    cleanup_buf struct buf text = BUF_INIT(64);
    int len = snprintf(path, sizeof(path), "%s/proc/sys/%s", root, name);
    if (len < 0 || len >= (int)sizeof(path) || fd_read_file(AT_FDCWD, path, &text, NULL) < 0)
        return absent;
    long value = strtol(buf_text(&text), &end, 10);
    return end == buf_text(&text) ? absent : value;
}

void host_settings_read(const char *root, struct host_settings *ret)
{
    for (int i = 0; i < HOST_NAMESPACES; i++) {
        char name[64];
        snprintf(name, sizeof(name), "user/max_%s_namespaces", host_namespace_kinds[i]);
        ret->max[i] = read_setting(root, name, -1);
    }
    ret->unprivileged_clone = read_setting(root, "kernel/unprivileged_userns_clone", 1);
    ret->apparmor_restricts = read_setting(root, "kernel/apparmor_restrict_unprivileged_userns", 0);
}

struct host_cause host_settings_userns(const struct host_settings *settings, int is_root)
{
    if (settings->max[0] == 0)
        return (struct host_cause){"user.max_user_namespaces is 0",
                                   "sysctl -w user.max_user_namespaces=15000"};
    if (!is_root && settings->unprivileged_clone == 0)
        return (struct host_cause){
            "kernel.unprivileged_userns_clone is 0: for root alone",
            "sysctl -w kernel.unprivileged_userns_clone=1, or run paddockd as root"};
    if (!is_root && settings->apparmor_restricts != 0)
        return (struct host_cause){
            "kernel.apparmor_restrict_unprivileged_userns is 1: AppArmor lets root alone use them",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run paddockd as root"};
    return (struct host_cause){
        "no setting of this machine forbids them: a container, a seccomp filter or a security "
        "module around paddockd does",
        "run paddockd outside of it, or have it allow user namespaces and mounts inside them"};
}

int host_settings_tightest(const struct host_settings *settings, long least)
{
    int tightest = -1;
    for (int i = 0; i < HOST_NAMESPACES; i++)
        if (settings->max[i] >= 0 && settings->max[i] < least &&
            (tightest < 0 || settings->max[i] < settings->max[tightest]))
            tightest = i;
    return tightest;
}
