/* Mounts by descriptor, and the mounts that instances and jails share: /dev, /proc, the new root.
 * Set-up child; allocates nothing. Invariant: below a new root no path is resolved by name through
 * more than one component that an agent could have replaced. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/child.h"
#include "util/cleanup.h"
#include "util/fd.h"

int child_open_root(struct err *err)
{
    /* Nothing that is mounted here may show outside, nor the other way round. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_errno(err, errno, "cannot make the mounts private");
    if (mount("scratch", CHILD_SCRATCH, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0)
        return err_errno(err, errno, "cannot mount a scratch folder over " CHILD_SCRATCH);
    int fd = open(CHILD_SCRATCH, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_errno(err, errno, "cannot open " CHILD_SCRATCH) : fd;
}

/* A descriptor from the supervisor names a place in its mount namespace, where only its own
 * administrators clone mounts: the folder is opened again in ours, and must be the same. */
static int reopen(int fd, struct err *err)
{
    char link[64], path[PATH_MAX];
    struct stat wanted, found;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof(path) - 1);
    if (len < 0)
        return err_errno(err, errno, "cannot read %s", link);
    path[len] = '\0';
    cleanup_fd int own = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (own < 0 || fstat(own, &found) < 0 || fstat(fd, &wanted) < 0)
        return err_errno(err, errno, "cannot open %.200s", path);
    if (found.st_dev != wanted.st_dev || found.st_ino != wanted.st_ino)
        return err_set(err, ESTALE, "%.200s is another folder now", path);
    return TAKE_FD(own);
}

int child_clone_folder(int *fd, bool writable, struct err *err)
{
    cleanup_fd int own = reopen(*fd, err);
    if (own < 0)
        return own;
    cleanup_fd int tree = open_tree(own, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (tree < 0)
        return err_errno(err, errno, "cannot clone the mount of a folder");
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                          (writable ? 0 : MOUNT_ATTR_RDONLY)};
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return err_errno(err, errno, "cannot limit the mount of a folder");
    close(*fd);
    *fd = TAKE_FD(tree);
    return 0;
}

int child_attach(int tree_fd, int dir_fd, const char *path, struct err *err)
{
    cleanup_fd int target = fd_open_beneath(dir_fd, path, O_PATH, 0, false, err);
    if (target < 0)
        return target;
    if (move_mount(tree_fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_errno(err, errno, "cannot attach the mount of /%s", path);
    return 0;
}

/* A folder by this name, whatever is there: what is no folder goes. Returns it as O_PATH. */
int child_folder(int dir_fd, const char *name, mode_t mode, struct err *err)
{
    const int flags = O_PATH | O_DIRECTORY;
    int fd = fd_open_beneath(dir_fd, name, flags, 0, false, NULL);
    if (fd >= 0)
        return fd;
    if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove what is in the place of the folder %s", name);
    if (mkdirat(dir_fd, name, mode) < 0)
        return err_errno(err, errno, "cannot make the folder %s", name);
    return fd_open_beneath(dir_fd, name, flags, 0, false, err);
}

int child_mount(int dir_fd, const char *name, const char *type, unsigned long flags,
                const char *options, struct err *err)
{
    cleanup_fd int target = child_folder(dir_fd, name, 0755, err);
    if (target < 0)
        return target;
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", target);
    if (mount(type, path, type, flags | MS_NOSUID, options) < 0)
        return err_errno(err, errno, "cannot mount %s", name);
    return 0;
}

int child_bind(const char *source, int dir_fd, const char *path, uint64_t attributes,
               struct err *err)
{
    cleanup_fd int tree = open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return err_errno(err, errno, "cannot bind %s", source);
    struct mount_attr attr = {.attr_set = attributes};
    if (attributes && mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return err_errno(err, errno, "cannot change the mount of %s", source);
    return child_attach(tree, dir_fd, path, err);
}

/* What is in a tmpfs is memory of the control group that nothing can reclaim: without a cap below
 * its limit the files alone would fill it, and the next program, or init, would be killed for it.
 */
int child_mount_memory(int dir_fd, const char *name, int64_t max_bytes, struct err *err)
{
    char options[64] = "mode=1777";
    if (max_bytes) /* else the kernel's own: half of the machine's memory */
        snprintf(options, sizeof(options), "mode=1777,size=%" PRId64, max_bytes);
    return child_mount(dir_fd, name, "tmpfs", MS_NODEV, options, err);
}

static int make_device(int dev_fd, const char *name, struct err *err)
{
    char source[32];
    snprintf(source, sizeof(source), "/dev/%s", name);
    cleanup_fd int file = openat(dev_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return err_errno(err, errno, "cannot make %s", source);
    return child_bind(source, dev_fd, name, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
}

static int make_links(int dev_fd, struct err *err)
{
    static const char *const links[][2] = {
        {"/proc/self/fd", "fd"},       {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
        {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
    };
    for (size_t i = 0; i < ARRAY_LEN(links); i++)
        if (symlinkat(links[i][0], dev_fd, links[i][1]) < 0)
            return err_errno(err, errno, "cannot make /dev/%s", links[i][1]);
    return 0;
}

int child_mount_dev(const struct child_common *common, int root_fd, int64_t memory_bytes,
                    struct err *err)
{
    /* With a single id there is no group 5, tty. */
    const char *pts_options = common->row->kind == ROW_SINGLE
                                  ? "newinstance,ptmxmode=0666,mode=0600"
                                  : "newinstance,ptmxmode=0666,mode=0620,gid=5";
    static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
    int result = child_mount(root_fd, "dev", "tmpfs", MS_NOEXEC, "mode=0755,size=64k", err);
    if (result < 0)
        return result;
    cleanup_fd int dev = fd_open_beneath(root_fd, "dev", O_PATH | O_DIRECTORY, 0, false, err);
    if (dev < 0)
        return dev;
    for (size_t i = 0; i < ARRAY_LEN(devices) && result == 0; i++)
        result = make_device(dev, devices[i], err);
    if (result == 0)
        result = make_links(dev, err);
    if (result == 0)
        result = child_mount(dev, "pts", "devpts", MS_NOEXEC, pts_options, err);
    if (result == 0)
        result = child_mount_memory(dev, "shm", memory_bytes / 4, err);
    return result;
}

/* What /proc shows of the host or lets root of a namespace change: hidden or made read-only. */
enum { HIDE_FILE, HIDE_FOLDER, READ_ONLY };
static const struct {
    const char *path;
    int how;
} proc_masks[] = {
    {"kcore", HIDE_FILE},         {"keys", HIDE_FILE},        {"key-users", HIDE_FILE},
    {"kmsg", HIDE_FILE},          {"kallsyms", HIDE_FILE},    {"timer_list", HIDE_FILE},
    {"latency_stats", HIDE_FILE}, {"sched_debug", HIDE_FILE}, {"interrupts", HIDE_FILE},
    {"sysrq-trigger", HIDE_FILE}, {"acpi", HIDE_FOLDER},      {"asound", HIDE_FOLDER},
    {"scsi", HIDE_FOLDER},        {"bus", READ_ONLY},         {"fs", READ_ONLY},
    {"irq", READ_ONLY},           {"sys", READ_ONLY},
};

static int mask_proc_entry(int proc_fd, size_t i, struct err *err)
{
    const uint64_t read_only = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
    const char *path = proc_masks[i].path;
    if (faccessat(proc_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* this kernel has no such thing */
    if (proc_masks[i].how == HIDE_FILE)
        return child_bind("/dev/null", proc_fd, path, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
    if (proc_masks[i].how == HIDE_FOLDER)
        return child_mount(proc_fd, path, "tmpfs", MS_RDONLY | MS_NOEXEC, "mode=0555,size=4k", err);
    char source[64];
    snprintf(source, sizeof(source), "/proc/self/fd/%d/%s", proc_fd, path);
    return child_bind(source, proc_fd, path, read_only, err);
}

int child_mount_proc(int root_fd, struct err *err)
{
    /* The kernel allows a new /proc only while one is in sight that hides nothing: so before the
     * old root is left. */
    int result = child_mount(root_fd, "proc", "proc", MS_NODEV | MS_NOEXEC, NULL, err);
    if (result < 0)
        return err_context(err, result, "a /proc of its own needs the host's /proc unmasked");
    return 0;
}

int child_mask_proc(int root_fd, struct err *err)
{
    cleanup_fd int proc = fd_open_beneath(root_fd, "proc", O_PATH | O_DIRECTORY, 0, false, err);
    int result = proc < 0 ? proc : 0;
    for (size_t i = 0; i < ARRAY_LEN(proc_masks) && result == 0; i++)
        result = mask_proc_entry(proc, i, err);
    return result;
}

int child_enter_root(int root_fd, struct err *err)
{
    /* pivot_root(2): with both arguments "." the old root ends on top of the new one, and the
     * detach takes it away. */
    if (fchdir(root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
        umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return err_errno(err, errno, "cannot enter the new root");
    return 0;
}
