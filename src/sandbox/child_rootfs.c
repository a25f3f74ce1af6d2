/* The mounts of an instance: /proc, /dev and /tmp, made ahead in a scratch folder; image, common
 * files and upper layer as one overlay, the workspace, the task folder. Set-up child; allocates
 * nothing. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/child.h"
#include "sandbox/common.h"
#include "util/cleanup.h"
#include "util/fd.h"

static int attach_folder(int tree_fd, int dir_fd, const char *name, struct err *err)
{
    cleanup_fd int folder = child_folder(dir_fd, name, 0755, err);
    return folder < 0 ? folder : child_attach(tree_fd, dir_fd, name, err);
}

/* userxattr: the overlay's marks must be in user.*, which root of a namespace may write; index=off:
 * an upper layer that the last instance has not quite let go of is no error. */
static int mount_overlay(const struct child_instance *child, int scratch_fd, struct err *err)
{
    int result = attach_folder(child->order->fds[ORDER_IMAGE], scratch_fd, "lower", err);
    if (result == 0)
        result = attach_folder(child->order->fds[ORDER_COMMON], scratch_fd, "common", err);
    if (result == 0)
        result = attach_folder(child->order->fds[ORDER_OVERLAY], scratch_fd, "over", err);
    if (result == 0)
        result = child_mount(scratch_fd, "root", "overlay", MS_NODEV,
                             "lowerdir=/common/" COMMON_ABOVE ":/lower:/common/" COMMON_BELOW
                             ",upperdir=/over/upper,"
                             "workdir=/over/work,userxattr,index=off",
                             err);
    return result;
}

/* /workspace/task is read-only for all in the sandbox: what init records there is out of the
 * agent's reach. Its mount point also keeps the agent from renaming or replacing it. */
static int mount_workspace(const struct child_instance *child, int root_fd, struct err *err)
{
    int result = attach_folder(child->order->fds[ORDER_WORKSPACE], root_fd, "workspace", err);
    if (result < 0)
        return result;
    cleanup_fd int workspace =
        fd_open_beneath(root_fd, "workspace", O_PATH | O_DIRECTORY, 0, false, err);
    return workspace < 0 ? workspace
                         : attach_folder(child->order->fds[ORDER_TASK], workspace, "task", err);
}

/* The sandbox's own boot id, in a file of the scratch folder that only this bind keeps. Bound after
 * /proc/sys was made read-only: that bind would show the host's again. */
static int hide_boot_id(int scratch_fd, const char *boot_id, struct err *err)
{
    cleanup_fd int fd =
        openat(scratch_fd, "boot_id", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0 || dprintf(fd, "%s\n", boot_id) < 0)
        return err_errno(err, errno, "cannot write the boot id");
    return child_bind(CHILD_SCRATCH "/boot_id", scratch_fd, "proc/sys/kernel/random/boot_id",
                      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
}

int child_mount_base(const struct child_instance *child, struct err *err)
{
    int64_t memory = child->make->limits.memory_bytes;
    cleanup_fd int scratch = child_open_root(err);
    if (scratch < 0)
        return scratch;
    int result = child_mount_proc(scratch, err);
    if (result == 0)
        result = child_tune_network(scratch, err);
    if (result == 0)
        result = child_mask_proc(scratch, err);
    if (result == 0)
        result = hide_boot_id(scratch, child->make->boot_id, err);
    if (result == 0)
        result = child_mount_dev(&child->common, scratch, memory, err);
    if (result == 0)
        result = child_mount_memory(scratch, "tmp", memory / 2, err);
    if (result == 0)
        result = child_enter_root(scratch, err);
    return result < 0 ? result : TAKE_FD(scratch);
}

static int move(const char *name, int scratch_fd, int root_fd, struct err *err)
{
    cleanup_fd int from = fd_open_beneath(scratch_fd, name, O_PATH | O_DIRECTORY, 0, false, err);
    return from < 0 ? from : attach_folder(from, root_fd, name, err);
}

int child_build_rootfs(const struct child_instance *child, struct err *err)
{
    static const char *const made[] = {"dev", "tmp", "proc"}; /* the last is used until then */
    int result = mount_overlay(child, child->scratch_fd, err);
    if (result < 0)
        return result;
    cleanup_fd int root =
        fd_open_beneath(child->scratch_fd, "root", O_PATH | O_DIRECTORY, 0, false, err);
    if (root < 0)
        return root;
    result = mount_workspace(child, root, err);
    for (size_t i = 0; i < ARRAY_LEN(made) && result == 0; i++)
        result = move(made[i], child->scratch_fd, root, err);
    return result < 0 ? result : TAKE_FD(root);
}
