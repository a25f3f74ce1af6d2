/* What `paddockd --doctor` tells of the host; see host.h. Each finding tries the thing itself;
 * those about the kernel are in host_features.c. */
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
#include "sandbox/row.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define KERNEL_MAJOR 6
#define KERNEL_MINOR 1

typedef void (*tell_fn)(void *ctx, const struct sandbox_finding *);

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
    snprintf(ret->lost, sizeof(ret->lost), "what Paddock needs is not in older kernels");
    snprintf(ret->cure, sizeof(ret->cure), "install Linux %d.%d or later", KERNEL_MAJOR,
             KERNEL_MINOR);
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
    snprintf(ret->lost, sizeof(ret->lost), "no sandbox can be started");
    snprintf(ret->text, sizeof(ret->text), "%.300s", err.message);
    snprintf(
        ret->cure, sizeof(ret->cure),
        "run paddockd as root, with state_dir on ext4, xfs, btrfs or (Linux 6.6 and later) tmpfs");
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
        if (!cgroups_has(&cgroups, (enum cgroup_controller)i))
            snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s", names[i]);
    snprintf(ret->text, sizeof(ret->text), "control groups: %s%s%s", layouts[cgroups.layout],
             *missing ? "; not limited:" : ", memory, cpu and pids are limited", missing);
    if (*missing) {
        ret->level = FINDING_WARN;
        snprintf(ret->lost, sizeof(ret->lost),
                 "for a daemon started like this: a limit of memory holds for each process, one of "
                 "pids for each user in a sandbox, one of cpus is refused");
        snprintf(ret->cure, sizeof(ret->cure), HOST_GROUPS_CURE);
    }
    cgroups_close(&cgroups);
}

/* The setting of this network namespace; a sandbox's own is another. */
static bool is_ipv6_disabled(void)
{
    char value = '0';
    cleanup_fd int fd = open("/proc/sys/net/ipv6/conf/all/disable_ipv6", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &value, 1) == 1 && value == '1';
}

static void find_ipv6(struct sandbox_finding *ret)
{
    cleanup_fd int sock = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_disabled = sock >= 0 && is_ipv6_disabled();
    snprintf(ret->text, sizeof(ret->text), "%s",
             is_disabled ? "IPv6 is disabled: net.ipv6.conf.all.disable_ipv6 is 1"
             : sock >= 0 ? "IPv6 is there"
                         : "there is no IPv6");
    if (sock >= 0 && !is_disabled)
        return;
    ret->level = FINDING_WARN;
    if (is_disabled) {
        snprintf(ret->lost, sizeof(ret->lost), "hosts that have IPv6 alone are not reached");
        snprintf(ret->cure, sizeof(ret->cure),
                 "sysctl -w net.ipv6.conf.all.disable_ipv6=0, if agents need such hosts");
        return;
    }
    snprintf(ret->lost, sizeof(ret->lost), "sandboxes have IPv4 alone, which does for most");
    snprintf(ret->cure, sizeof(ret->cure),
             "boot without ipv6.disable=1, or `modprobe ipv6`, if agents need ::1");
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
    snprintf(ret->lost, sizeof(ret->lost), "no sandbox can be started");
    snprintf(ret->cure, sizeof(ret->cure), "install libseccomp 2.5 or later");
}

void sandbox_host_doctor(int state_fd, void (*tell)(void *ctx, const struct sandbox_finding *),
                         void *ctx)
{
    struct ids *ids = NULL;
    struct sandbox_finding kernel = {.name = "kernel"};
    struct sandbox_finding findings[] = {
        {.name = "idmapped-mounts"}, {.name = "cgroups"}, {.name = "seccomp"}, {.name = "ipv6"}};
    /* Any range will do to try with; it need not be the configured one. */
    ids_new(UINT32_C(0x70000000), 4 * IDS_PER_BLOCK, &ids, NULL);
    find_kernel(&kernel);
    tell(ctx, &kernel);
    sandbox_host_features(tell, ctx);
    struct row row;
    bool is_root = row_find(&row, NULL) < 0 || row.kind == ROW_ROOT;
    if (is_root)
        find_idmap(state_fd, ids, &findings[0]);
    find_cgroups(&findings[1]);
    find_seccomp(&findings[2]);
    find_ipv6(&findings[3]);
    for (size_t i = is_root ? 0 : 1; i < ARRAY_LEN(findings); i++)
        tell(ctx, &findings[i]); /* only root's sandboxes map the ids of mounts */
    ids_free(ids);
}
