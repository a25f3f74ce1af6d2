/* The doctor's findings about the kernel: system calls, namespaces, mounts in them. Each thing is
 * tried; the settings are looked at only to name the cause where it fails. */
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/host_internal.h"
#include "sandbox/host_settings.h"
#include "sandbox/host_trial.h"
#include "util/cleanup.h"

#define LANDLOCK_VERSION 1U
/* Each sandbox takes one of every kind, and one more user namespace for its range of ids. */
#define NAMESPACES_LEAST 512

#define NO_SANDBOX "no sandbox can be started"
#define SAY(field, ...) snprintf((field), sizeof(field), __VA_ARGS__)

typedef void (*tell_fn)(void *ctx, const struct sandbox_finding *);

struct call {
    const char *name;
    long (*probe)(void); /* with arguments that no kernel takes */
    const char *lost;
};

static long probe_clone3(void)
{
    return syscall(SYS_clone3, NULL, 0);
}

static long probe_openat2(void)
{
    return syscall(SYS_openat2, -1, NULL, NULL, 0);
}

static long probe_pidfd(void)
{
    return syscall(SYS_pidfd_open, -1, 0);
}

static long probe_close_range(void)
{
    return syscall(SYS_close_range, 1, 0, 0);
}

static long probe_open_tree(void)
{
    return syscall(SYS_open_tree, -1, NULL, ~0U);
}

static long probe_move_mount(void)
{
    return syscall(SYS_move_mount, -1, NULL, -1, NULL, ~0U);
}

static long probe_mount_setattr(void)
{
    return syscall(SYS_mount_setattr, -1, NULL, 0, NULL, 0);
}

static long probe_seccomp(void)
{
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, ~0U, NULL);
}

static long probe_landlock(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION);
}

static const struct call calls[] = {
    {"clone3", probe_clone3, NO_SANDBOX},
    {"openat2", probe_openat2, "files that an agent left cannot be opened safely: " NO_SANDBOX},
    {"pidfd_open", probe_pidfd, "no process can be watched safely: " NO_SANDBOX},
    {"close_range", probe_close_range, NO_SANDBOX},
    {"open_tree", probe_open_tree, NO_SANDBOX},
    {"move_mount", probe_move_mount, NO_SANDBOX},
    {"mount_setattr", probe_mount_setattr, NO_SANDBOX},
    {"seccomp", probe_seccomp, "no process can be shut in: the daemon does not start"},
};

/* A finding for each one that is missing, or one for all. */
static void tell_calls(tell_fn tell, void *ctx)
{
    struct sandbox_finding good = {.name = "system-calls"};
    bool are_all = true;
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        size_t len = strlen(good.text);
        snprintf(good.text + len, sizeof(good.text) - len, "%s%s", i ? ", " : "", calls[i].name);
        if (calls[i].probe() >= 0 || errno != ENOSYS)
            continue;
        struct sandbox_finding bad = {.name = "system-calls", .level = FINDING_FAIL};
        SAY(bad.text, "%s(2) is not there", calls[i].name);
        SAY(bad.lost, "%s", calls[i].lost);
        SAY(bad.cure,
            "run Linux 6.1 or later; in a container, allow the call in its seccomp filter");
        tell(ctx, &bad);
        are_all = false;
    }
    if (are_all)
        tell(ctx, &good);
}

static void tell_landlock(tell_fn tell, void *ctx)
{
    struct sandbox_finding finding = {.name = "landlock"};
    long version = probe_landlock();
    int code = errno;
    SAY(finding.text, "version %ld", version);
    if (version < 1) {
        finding.level = FINDING_FAIL;
        SAY(finding.text, "Landlock cannot be used: %s", strerror(code));
        SAY(finding.lost,
            "api and egress cannot be shut out of the file system: they do not start");
        SAY(finding.cure, "%s",
            code == EOPNOTSUPP
                ? "boot with landlock in the kernel's parameter lsm= (see /sys/kernel/security/lsm)"
                : "run a kernel with CONFIG_SECURITY_LANDLOCK=y; in a container, allow landlock_*");
    }
    tell(ctx, &finding);
}

/* ENOSPC is the answer to a limit, here or in a user namespace around. */
static void explain_limit(struct sandbox_finding *finding, const char *kind)
{
    SAY(finding->cure,
        "sysctl -w user.max_%s_namespaces=15000; in a container or in `unshare`, outside of it",
        kind);
}

static void tell_userns(const struct host_trial *trial, const struct host_settings *settings,
                        tell_fn tell, void *ctx)
{
    struct sandbox_finding finding = {.name = "user-namespaces"};
    /* AppArmor lets them be made, and then forbids what they are for. */
    int code = trial->codes[TRIAL_USER]  ? trial->codes[TRIAL_USER]
               : trial->codes[TRIAL_MAP] ? trial->codes[TRIAL_MAP]
               : trial->codes[TRIAL_MNT] == EPERM || trial->codes[TRIAL_MNT] == EACCES
                   ? trial->codes[TRIAL_MNT]
                   : 0;
    struct host_cause cause = host_settings_userns(settings, geteuid() == 0);
    struct host_cause others = host_settings_userns(settings, 0);
    bool is_for_root =
        geteuid() == 0 && (settings->unprivileged_clone == 0 || settings->apparmor_restricts);
    if (code) {
        finding.level = FINDING_FAIL;
        SAY(finding.text, "cannot be made: %s; %s", strerror(code), cause.cause);
        SAY(finding.lost, NO_SANDBOX ", and the daemon does not start");
        SAY(finding.cure, "%s", cause.cure);
    } else if (is_for_root) {
        SAY(finding.text, "can be made by root; not by users (%s)", others.cause);
    } else {
        SAY(finding.text, "can be made");
    }
    tell(ctx, &finding);
}

static void tell_namespaces(const struct host_trial *trial, const struct host_settings *settings,
                            tell_fn tell, void *ctx)
{
    static const char *const kinds[] = {
        [TRIAL_MNT] = "mnt", [TRIAL_PID] = "pid", [TRIAL_NET] = "net",
        [TRIAL_IPC] = "ipc", [TRIAL_UTS] = "uts", [TRIAL_CGROUP] = "cgroup",
    };
    struct sandbox_finding finding = {.name = "namespaces"};
    int tight = host_settings_tightest(settings, NAMESPACES_LEAST);
    SAY(finding.text, "mnt, pid, net, ipc, uts and cgroup can be made");
    if (tight >= 0) {
        finding.level = FINDING_WARN;
        SAY(finding.text, "user.max_%s_namespaces is %ld", host_namespace_kinds[tight],
            settings->max[tight]);
        SAY(finding.lost, "fewer sandboxes than that can run at once");
        explain_limit(&finding, host_namespace_kinds[tight]);
    }
    for (int i = TRIAL_MNT; i <= TRIAL_CGROUP; i++) {
        if (trial->codes[i] <= 0)
            continue;
        finding.level = FINDING_FAIL;
        SAY(finding.text, "no %s namespace can be made: %s", kinds[i], strerror(trial->codes[i]));
        SAY(finding.lost, NO_SANDBOX);
        if (trial->codes[i] == ENOSPC)
            explain_limit(&finding, kinds[i]);
        else
            SAY(finding.cure, "run paddockd outside of the container or filter that forbids it");
        break;
    }
    if (trial->codes[TRIAL_MAP] == 0)
        tell(ctx, &finding);
}

static void tell_mounts(const struct host_trial *trial, const struct host_settings *settings,
                        tell_fn tell, void *ctx)
{
    struct sandbox_finding overlay = {.name = "overlay"}, proc = {.name = "proc"};
    struct sandbox_finding mounts = {.name = "mounts", .level = FINDING_FAIL};
    SAY(overlay.text, "overlayfs can be mounted in a user namespace, with userxattr");
    SAY(proc.text, "/proc can be mounted in a sandbox");
    if (trial->codes[TRIAL_MOUNT] > 0) {
        struct host_cause cause = host_settings_userns(settings, geteuid() == 0);
        SAY(mounts.text, "nothing can be mounted in a user namespace: %s; %s",
            strerror(trial->codes[TRIAL_MOUNT]), cause.cause);
        SAY(mounts.lost, NO_SANDBOX);
        SAY(mounts.cure, "%s", cause.cure);
        tell(ctx, &mounts);
    }
    if (trial->codes[TRIAL_OVERLAY] > 0) {
        overlay.level = FINDING_FAIL;
        SAY(overlay.text, "overlayfs cannot be mounted in a user namespace: %s",
            strerror(trial->codes[TRIAL_OVERLAY]));
        SAY(overlay.lost, NO_SANDBOX);
        SAY(overlay.cure, "modprobe overlay (as root), on Linux 6.1 or later with "
                          "CONFIG_OVERLAY_FS");
    }
    if (trial->codes[TRIAL_PROC] > 0) {
        proc.level = FINDING_FAIL;
        SAY(proc.text,
            "/proc cannot be mounted in a user namespace: %s: part of our own is covered",
            strerror(trial->codes[TRIAL_PROC]));
        SAY(proc.lost, NO_SANDBOX);
        SAY(proc.cure,
            "run paddockd where /proc is whole: in a container with systempaths=unconfined, "
            "in a systemd unit without ProtectKernelTunables= and the like");
    }
    if (trial->codes[TRIAL_OVERLAY] >= 0)
        tell(ctx, &overlay);
    if (trial->codes[TRIAL_PROC] >= 0)
        tell(ctx, &proc);
}

void sandbox_host_features(tell_fn tell, void *ctx)
{
    struct host_settings settings;
    struct host_trial trial;
    struct err err = {0};
    host_settings_read("", &settings);
    tell_calls(tell, ctx);
    tell_landlock(tell, ctx);
    if (host_trial_run(&trial, &err) < 0) {
        struct sandbox_finding finding = {.name = "user-namespaces", .level = FINDING_FAIL};
        SAY(finding.text, "%.300s", err.message);
        tell(ctx, &finding);
        return;
    }
    tell_userns(&trial, &settings, tell, ctx);
    tell_namespaces(&trial, &settings, tell, ctx);
    tell_mounts(&trial, &settings, tell, ctx);
}
