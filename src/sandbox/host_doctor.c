/* What `paddockd --doctor` tells of the host; see host.h. Each finding tries the thing itself and,
 * where that fails, names the setting that is known to be the cause. */
#include <fcntl.h>
#include <linux/sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sandbox/host_internal.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define KERNEL_MAJOR 6
#define KERNEL_MINOR 1

typedef void (*tell_fn)(void *ctx, const struct sandbox_finding *);

/* A number in a file of /proc/sys; `missing` where there is no such file. */
static long read_setting(const char *path, long missing)
{
    cleanup_buf struct buf text = BUF_INIT(64);
    if (fd_read_file(AT_FDCWD, path, &text, NULL) < 0)
        return missing;
    return strtol(buf_text(&text), NULL, 10);
}

static void find_kernel(struct sandbox_finding *ret)
{
    struct utsname name = {0};
    char *end = NULL;
    uname(&name);
    long major = strtol(name.release, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    bool is_new = major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR);
    snprintf(ret->text, sizeof(ret->text), "Linux %s", name.release);
    if (is_new)
        return;
    ret->level = FINDING_FAIL;
    snprintf(ret->cure, sizeof(ret->cure), "install Linux %d.%d or later", KERNEL_MAJOR,
             KERNEL_MINOR);
}

static const char *userns_cure(void)
{
    if (read_setting("/proc/sys/user/max_user_namespaces", 1) == 0)
        return "sysctl -w user.max_user_namespaces=15000";
    if (read_setting("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0)
        return "sysctl -w kernel.unprivileged_userns_clone=1";
    if (read_setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) == 1)
        return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or install the AppArmor "
               "profile that comes with paddockd";
    return "allow user namespaces: a container or a security module around paddockd forbids them";
}

static void find_userns(struct ids *ids, struct sandbox_finding *ret)
{
    struct err err = {0};
    snprintf(ret->text, sizeof(ret->text), "user namespaces can be made");
    if (ids && ids_userns(ids, 1, &err) >= 0)
        return;
    ret->level = FINDING_FAIL;
    snprintf(ret->text, sizeof(ret->text), "no sandbox can be made: %.300s", err.message);
    snprintf(ret->cure, sizeof(ret->cure), "%s", userns_cure());
}

static void find_idmap(int state_fd, struct ids *ids, struct sandbox_finding *ret)
{
    struct err err = {0};
    int userns = ids ? ids_userns(ids, 1, NULL) : -1;
    cleanup_fd int tree =
        open_tree(state_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    snprintf(ret->text, sizeof(ret->text), "the file system of the state folder maps ids");
    if (tree >= 0 && userns >= 0 &&
        mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) == 0)
        return;
    err_errno(&err, errno, "the state folder cannot be mounted with a sandbox's ids");
    ret->level = FINDING_FAIL;
    snprintf(ret->text, sizeof(ret->text), "%.300s", err.message);
    snprintf(ret->cure, sizeof(ret->cure),
             "run paddockd as root, with state_dir on ext4, xfs, btrfs or tmpfs");
}

static void find_overlay(struct sandbox_finding *ret)
{
    cleanup_fd int context = fsopen("overlay", FSOPEN_CLOEXEC);
    snprintf(ret->text, sizeof(ret->text), "overlayfs is there");
    if (context >= 0)
        return;
    ret->level = FINDING_FAIL;
    snprintf(ret->text, sizeof(ret->text), "overlayfs is not there: %s", strerror(errno));
    snprintf(ret->cure, sizeof(ret->cure), "modprobe overlay");
}

static void find_cgroups(struct sandbox_finding *ret)
{
    struct cgroups cgroups;
    cgroups_open("doctor", &cgroups);
    static const char *const names[CGROUP_CONTROLLERS] = {"memory", "cpu", "pids"};
    static const char *const layouts[] = {[CGROUP_NONE] = "none",
                                          [CGROUP_V2] = "v2",
                                          [CGROUP_HYBRID] = "v1 with v2",
                                          [CGROUP_V1] = "v1"};
    char missing[64] = "";
    for (int i = 0; i < CGROUP_CONTROLLERS; i++)
        if (cgroups.v1_fd[i] < 0 && !cgroups.v2_has[i])
            snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s", names[i]);
    snprintf(ret->text, sizeof(ret->text), "control groups: %s%s%s", layouts[cgroups.layout],
             *missing ? "; not limited:" : ", memory, cpu and pids are limited", missing);
    if (*missing) {
        ret->level = FINDING_WARN;
        snprintf(ret->cure, sizeof(ret->cure),
                 "run paddockd where it may write the cgroup tree with these controllers enabled "
                 "(systemd: Delegate=yes)");
    }
    cgroups_close(&cgroups);
}

static void find_ipv6(struct sandbox_finding *ret)
{
    cleanup_fd int sock = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(ret->text, sizeof(ret->text), "%s",
             sock >= 0 ? "IPv6 is there" : "no IPv6: sandboxes have IPv4 alone");
    if (sock < 0)
        ret->level = FINDING_WARN;
}

static void find_seccomp(struct sandbox_finding *ret)
{
    struct err err = {0};
    cleanup_buf struct buf program = BUF_INIT(SECCOMP_FILTER_MAX);
    int result = profile_compile(SECCOMP_SANDBOX, &program, &err);
    snprintf(ret->text, sizeof(ret->text), "the sandbox's filter has %zu instructions",
             program.len / sizeof(struct sock_filter));
    if (result == 0)
        return;
    ret->level = FINDING_FAIL;
    snprintf(ret->text, sizeof(ret->text), "%.300s", err.message);
    snprintf(ret->cure, sizeof(ret->cure), "install libseccomp 2.5 or later");
}

void sandbox_host_doctor(int state_fd, void (*tell)(void *ctx, const struct sandbox_finding *),
                         void *ctx)
{
    struct ids *ids = NULL;
    struct sandbox_finding findings[] = {
        {.name = "kernel"},  {.name = "user-namespaces"}, {.name = "idmapped-mounts"},
        {.name = "overlay"}, {.name = "cgroups"},         {.name = "seccomp"},
        {.name = "ipv6"},
    };
    /* Any range will do to try with; it need not be the configured one. */
    ids_new(UINT32_C(0x70000000), 4 * IDS_PER_BLOCK, &ids, NULL);
    find_kernel(&findings[0]);
    find_userns(ids, &findings[1]);
    find_idmap(state_fd, ids, &findings[2]);
    find_overlay(&findings[3]);
    find_cgroups(&findings[4]);
    find_seccomp(&findings[5]);
    find_ipv6(&findings[6]);
    for (size_t i = 0; i < ARRAY_LEN(findings); i++)
        tell(ctx, &findings[i]);
    ids_free(ids);
}
