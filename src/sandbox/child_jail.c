/* The set-up child of a jail: a root of a few read-only folders of the host, the job's own folders,
 * nothing else. Allocates nothing. The host's files that only root may read stay shut by
 * themselves: their owner has no id in the jail. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/child.h"
#include "util/cleanup.h"
#include "util/fd.h"

/* What of the host is seen, read-only: programs and libraries in both kinds, the package clients'
 * settings and the host's network in a build. What is not there is passed over. */
static const struct {
    const char *path;
    bool build_only;
    bool is_recursive;
} host_views[] = {
    {"/usr", false, true},
    {"/bin", false, false},
    {"/sbin", false, false},
    {"/lib", false, false},
    {"/lib32", false, false},
    {"/lib64", false, false},
    {"/libx32", false, false},
    {"/etc/ld.so.cache", false, false},
    {"/etc/alternatives", true, false},
    {"/etc/apt", true, false},
    {"/etc/ca-certificates", true, false},
    {"/etc/debian_version", true, false},
    {"/etc/default", true, false},
    {"/etc/dpkg", true, false},
    {"/etc/group", true, false},
    {"/etc/gai.conf", true, false},
    {"/etc/host.conf", true, false},
    {"/etc/hosts", true, false},
    {"/etc/ld.so.conf", true, false},
    {"/etc/ld.so.conf.d", true, false},
    {"/etc/mime.types", true, false},
    {"/etc/nsswitch.conf", true, false},
    {"/etc/npmrc", true, false},
    {"/etc/os-release", true, false},
    {"/etc/passwd", true, false},
    {"/etc/perl", true, false},
    {"/etc/pki", true, false},
    {"/etc/resolv.conf", true, false},
    {"/etc/ssl", true, false},
    {"/etc/subgid", true, false},
    {"/etc/subuid", true, false},
    {"/opt", true, true},
    {"/run/systemd/resolve", true, false},
    {"/sys", true, true},
    {"/var/lib/dpkg", true, false},
};

/* Folders of its own that a build writes to, all in memory. */
static const char *const build_folders[] = {
    "/tmp",
    "/run",
    "/var",
    "/var/tmp",
    "/var/lib",
    "/var/lib/apt",
    "/var/lib/apt/lists",
    "/var/lib/apt/lists/partial",
    "/var/cache",
    "/var/cache/apt",
    "/var/cache/apt/archives",
    "/var/cache/apt/archives/partial",
    "/var/log",
    "/root",
};

/* Makes every folder above the last component of an absolute path, below root_fd. The root is our
 * own tmpfs: nobody else has put anything there. */
static int make_parents(int root_fd, const char *path, struct err *err)
{
    char part[256];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t len = (size_t)(slash - path - 1);
        if (len >= sizeof(part))
            return err_set(err, ENAMETOOLONG, "the path %s is too long", path);
        memcpy(part, path + 1, len);
        part[len] = '\0';
        if (mkdirat(root_fd, part, 0755) < 0 && errno != EEXIST)
            return err_errno(err, errno, "cannot make /%s", part);
    }
    return 0;
}

/* The place for a mount: an empty folder, or an empty file for a file. */
static int make_target(int root_fd, const char *path, mode_t type, struct err *err)
{
    int result = make_parents(root_fd, path, err);
    if (result < 0)
        return result;
    if (S_ISDIR(type)) {
        if (mkdirat(root_fd, path + 1, 0755) < 0 && errno != EEXIST)
            return err_errno(err, errno, "cannot make %s", path);
        return 0;
    }
    cleanup_fd int fd = openat(root_fd, path + 1, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    return fd < 0 ? err_errno(err, errno, "cannot make %s", path) : 0;
}

/* On a merged-/usr host /bin and /lib are links into /usr: the same links here. */
static int copy_link(int root_fd, const char *path, struct err *err)
{
    char target[256];
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0)
        return err_errno(err, errno, "cannot read the link %s", path);
    target[n] = '\0';
    int result = make_parents(root_fd, path, err);
    if (result == 0 && symlinkat(target, root_fd, path + 1) < 0)
        return err_errno(err, errno, "cannot make the link %s", path);
    return result;
}

static int show_host_path(int root_fd, const char *path, bool is_recursive, struct err *err)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return 0;
    if (S_ISLNK(st.st_mode))
        return copy_link(root_fd, path, err);
    int result = make_target(root_fd, path, st.st_mode, err);
    if (result < 0)
        return result;
    /* Without the mounts below it a folder could show what they cover: the kernel refuses that in
     * a user namespace, and so do we. */
    unsigned recursive = is_recursive ? AT_RECURSIVE : 0;
    cleanup_fd int tree =
        open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | recursive);
    if (tree < 0)
        return err_errno(err, errno, "cannot show %s", path);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
    if (mount_setattr(tree, "", AT_EMPTY_PATH | recursive, &attr, sizeof(attr)) < 0)
        return err_errno(err, errno, "cannot make %s read-only", path);
    return child_attach(tree, root_fd, path + 1, err);
}

static int show_host(int root_fd, bool is_build, struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < ARRAY_LEN(host_views) && result == 0; i++)
        if (is_build || !host_views[i].build_only)
            result = show_host_path(root_fd, host_views[i].path, host_views[i].is_recursive, err);
    return result;
}

/* Settings of the package clients that only root may read, as the supervisor opened them: mounts
 * with the jail's ids. */
static int show_settings(const struct child_jail *child, int root_fd, struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < CHILD_JAIL_SETTINGS && result == 0; i++) {
        if (child->setting_fds[i] < 0)
            continue;
        struct stat st;
        if (fstatat(child->setting_fds[i], "", &st, AT_EMPTY_PATH) < 0)
            return err_errno(err, errno, "cannot examine %s", child_jail_settings[i]);
        result = make_target(root_fd, child_jail_settings[i], st.st_mode, err);
        if (result == 0)
            result = child_attach(child->setting_fds[i], root_fd, child_jail_settings[i] + 1, err);
    }
    return result;
}

static int make_build_folders(int root_fd, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(build_folders); i++)
        if (mkdirat(root_fd, build_folders[i] + 1, i < 4 && i != 2 ? 01777 : 0755) < 0 &&
            errno != EEXIST)
            return err_errno(err, errno, "cannot make %s", build_folders[i]);
    return 0;
}

static int attach_folders(const struct child_jail *child, int root_fd, struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < child->start->folder_count && result == 0; i++) {
        const char *target = child->start->folders[i].target;
        result = make_target(root_fd, target, S_IFDIR, err);
        if (result == 0)
            result = child_attach(child->folder_fds[i], root_fd, target + 1, err);
    }
    return result;
}

static int build_root(const struct child_jail *child, struct err *err)
{
    bool is_build = child->start->kind == SANDBOX_JAIL_BUILD;
    cleanup_fd int scratch = child_open_root(err);
    if (scratch < 0)
        return scratch;
    int result = child_mount(scratch, "root", "tmpfs", MS_NODEV, "mode=0755", err);
    if (result < 0)
        return result;
    cleanup_fd int root = fd_open_beneath(scratch, "root", O_PATH | O_DIRECTORY, 0, false, err);
    if (root < 0)
        return root;
    if (is_build)
        result = make_build_folders(root, err);
    if (result == 0)
        result = show_host(root, is_build, err);
    if (result == 0)
        result = show_settings(child, root, err);
    if (result == 0 && mkdirat(root, "tmp", 01777) < 0 && errno != EEXIST)
        result = err_errno(err, errno, "cannot make /tmp");
    if (result == 0)
        result = child_mount_proc(root, err);
    /* A build mounts /proc again in its chroot, which the kernel allows only where nothing of /proc
     * is hidden. */
    if (result == 0 && !is_build)
        result = child_mask_proc(root, err);
    if (result == 0)
        result = child_mount_dev(&child->common, root, child->limits.memory_bytes, err);
    if (result == 0)
        result = attach_folders(child, root, err);
    return result < 0 ? result : TAKE_FD(root);
}

static int limit_cpu_time(const struct sandbox_jail_start *start, struct err *err)
{
    rlim_t seconds = (rlim_t)start->cpu_seconds;
    struct rlimit limit = {seconds, seconds};
    if (seconds && setrlimit(RLIMIT_CPU, &limit) < 0)
        return err_errno(err, errno, "cannot limit the jail's processor time");
    return 0;
}

/* sched(7): so the removal of a tree takes nothing from a start, or an agent, beside it. */
static int step_back(const struct sandbox_jail_start *start, struct err *err)
{
    const struct sched_param none = {0};
    if (start->is_idle && sched_setscheduler(0, SCHED_IDLE, &none) < 0)
        return err_errno(err, errno, "cannot step back behind what is not idle");
    return 0;
}

static int place_all(const struct sandbox_jail_start *start, struct err *err)
{
    int fds[CHILD_FDS_MAX];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_errno(err, errno, "cannot open /dev/null");
    fds[0] = null;
    fds[1] = start->stdout_fd < 0 ? null : start->stdout_fd;
    fds[2] = start->stderr_fd < 0 ? null : start->stderr_fd;
    for (size_t i = 0; i < start->inherit_count; i++)
        fds[3 + i] = start->inherit[i];
    size_t count = 3 + start->inherit_count;
    int result = child_place_fds(fds, count, 0, err);
    if (result == 0 && close_range((unsigned)count, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        result = err_errno(err, errno, "cannot mark the descriptors");
    return result;
}

static int clone_folders(struct child_jail *child, struct err *err)
{
    const struct sandbox_jail_start *start = child->start;
    int result = 0;
    for (size_t i = 0; i < start->folder_count && result == 0; i++)
        result = child_clone_folder(&child->folder_fds[i], start->folders[i].writable, err);
    return result;
}

static int set_up(struct child_jail *child, struct err *err)
{
    int result = step_back(child->start, err);
    if (result == 0)
        result = child_join_cgroups(&child->common, err);
    if (result == 0 && child->common.row->kind != ROW_ROOT)
        result = clone_folders(child, err);
    if (result == 0)
        result = child_become_root(&child->common, err);
    /* A job is nobody's when its supervisor is gone. */
    if (result == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        result = err_errno(err, errno, "cannot ask for the supervisor's end");
    int root = result < 0 ? result : build_root(child, err);
    result = root < 0 ? root : child_enter_root(root, err);
    if (result == 0)
        result = child_set_limits(&child->common, &child->limits, err);
    return result < 0 ? result : limit_cpu_time(child->start, err);
}

void child_run_jail(struct child_jail *child)
{
    struct err err = {0};
    setsid();
    int binary = fcntl(child->common.binary_fd, F_DUPFD_CLOEXEC, CHILD_HIGH_FD);
    int result =
        binary < 0 ? err_errno(&err, errno, "cannot duplicate a descriptor") : set_up(child, &err);
    if (result == 0)
        result = place_all(child->start, &err);
    if (result == 0)
        result = child_drop_privileges(&child->common, &err);
    if (result == 0)
        child_exec(binary, child->start->argv, child->start->environment, &err);
    /* Its caller reads stderr, and knows this exit status. */
    dprintf(child->start->stderr_fd < 0 ? STDERR_FILENO : child->start->stderr_fd, "jail %s: %s\n",
            child->start->name, err.message);
    _exit(SANDBOX_JAIL_SETUP_FAILED);
}
