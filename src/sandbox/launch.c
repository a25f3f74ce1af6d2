/* See launch.h. Supervisor, and its helper between fork and exit, which runs our own code alone. */
#include "sandbox/launch.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/host_internal.h"
#include "sandbox/inside.h"
#include "sandbox/process.h"
#include "util/cleanup.h"

#define RANGE_OWN 0   /* in the range: our own id */
#define RANGE_FIRST 1 /* in the range: the first subordinate id */

/* The child closes `other_fd`, of who clones it alone; -1: none. */
static pid_t clone_child(const struct launch *launch, uint64_t flags, int *pidfd, int other_fd)
{
    struct clone_args args = {
        .flags = flags | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_CLEAR_SIGHAND | (launch->with_network ? CLONE_NEWNET : 0),
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = flags & CLONE_PARENT ? 0 : SIGCHLD, /* clone3(2): the helper's own */
    };
    if (launch->into_cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)launch->into_cgroup_fd;
    }
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        if (other_fd >= 0)
            close(other_fd);
        launch->run(launch->child);
        _exit(1);
    }
    return pid;
}

/* ---------------------------------------------------------------------------------- root */

/* The kernel counts what a user namespace has (inotify instances, pending signals, processes and
 * the like) for the id that made it too, up to that id's limit. Made by root, all sandboxes would
 * share root's with the host, and one could use it up for everybody. So the first id of the range
 * makes it, which nobody else has. The capabilities stay: clone3(2) needs them. */
static int become_owner(uid_t owner)
{
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
        return -errno;
    return seteuid(owner) < 0 ? -errno : 0;
}

/* Back to root: a supervisor that cannot is not to go on. */
static void become_root_again(void)
{
    if (seteuid(0) < 0 || prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) < 0)
        abort();
}

/* In the child, in its new namespace, the bits of before do not count. */
static pid_t clone_as_root(struct sandbox_host *host, const struct launch *launch, int *pidfd,
                           struct err *err)
{
    uint32_t base = ids_base(host->ids, launch->block);
    int result = become_owner(base);
    pid_t pid = result < 0 ? -1 : clone_child(launch, CLONE_PIDFD, pidfd, -1);
    int code = result < 0 ? -result : errno;
    become_root_again();
    if (pid < 0)
        return err_errno(err, code, "cannot make the namespaces");
    result = process_write_maps(pid, base, err);
    return result < 0 ? result : pid;
}

/* --------------------------------------------------------------------------- subordinate */

struct helper_report {
    int32_t code; /* 0, or a positive errno with the reason */
    int32_t pid;  /* of the child; 0: none */
    char text[512];
};

struct helper {
    struct sandbox_host *host;
    const struct launch *launch;             /* or */
    int (*work)(void *ctx, struct err *err); /* what the sandboxes' root is to do */
    void *ctx;
};

/* setns(2) makes the process undumpable, and so its /proc folder root's. */
static int enter_range(int range_fd, struct err *err)
{
    if (setns(range_fd, CLONE_NEWUSER) < 0)
        return err_errno(err, errno, "cannot enter the user namespace of the subordinate ids");
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot become dumpable");
    return 0;
}

static int write_range_maps(const struct row *row, pid_t pid, enum launch_kind kind,
                            struct err *err)
{
    const struct id_map lines[] = {{0, RANGE_FIRST, row->count}, {row->count, RANGE_OWN, 1}};
    size_t count = kind == LAUNCH_JOB ? 2 : 1;
    int result = process_write_map(pid, "uid_map", lines, count, err);
    return result < 0 ? result : process_write_map(pid, "gid_map", lines, count, err);
}

/* The child inherits that this process is dumpable, for so long as its maps are not written. */
static int help_launch(const struct helper *helper, int report_fd, int32_t *ret_pid,
                       struct err *err)
{
    pid_t pid = clone_child(helper->launch, CLONE_PARENT, NULL, report_fd);
    if (pid < 0)
        return err_errno(err, errno, "cannot make the namespaces");
    *ret_pid = pid;
    return write_range_maps(&helper->host->row, pid, helper->launch->kind, err);
}

/* Becomes the sandboxes' root with all the rights that the range has, over our own files too. */
static int help_work(const struct helper *helper, struct err *err)
{
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 ||
        setresgid(RANGE_FIRST, RANGE_FIRST, RANGE_FIRST) < 0 ||
        setresuid(RANGE_FIRST, RANGE_FIRST, RANGE_FIRST) < 0)
        return err_errno(err, errno, "cannot become root of the sandboxes");
    return helper->work(helper->ctx, err);
}

static _Noreturn void run_helper(const struct helper *helper, int report_fd)
{
    struct helper_report report = {0};
    struct err err = {0};
    int result = enter_range(helper->host->range_fd, &err);
    if (result == 0)
        result = helper->launch ? help_launch(helper, report_fd, &report.pid, &err)
                                : help_work(helper, &err);
    report.code = -result;
    snprintf(report.text, sizeof(report.text), "%.500s", err.message);
    _exit(write(report_fd, &report, sizeof(report)) == sizeof(report) ? 0 : 1);
}

/* Runs the helper and waits for its report: some system calls, no I/O of others. */
static int call_helper(const struct helper *helper, struct helper_report *ret, struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int read_end = ends[0];
    pid_t pid = fork();
    if (pid == 0)
        run_helper(helper, ends[1]);
    int code = errno;
    close(ends[1]);
    if (pid < 0)
        return err_errno(err, code, "cannot fork");
    ssize_t n;
    do
        n = read(read_end, ret, sizeof(*ret));
    while (n < 0 && errno == EINTR);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (n != sizeof(*ret))
        return err_set(err, EIO, "a process of our own broke off");
    ret->text[sizeof(ret->text) - 1] = '\0';
    return ret->code ? err_set(err, ret->code, "%s", ret->text) : 0;
}

/* A child of ours that nobody has reaped keeps its pid. */
static pid_t clone_in_range(struct sandbox_host *host, const struct launch *launch, int *pidfd,
                            struct err *err)
{
    struct helper helper = {.host = host, .launch = launch};
    struct helper_report report = {0};
    int result = call_helper(&helper, &report, err);
    if (report.pid > 0) {
        *pidfd = (int)syscall(SYS_pidfd_open, report.pid, 0);
        if (*pidfd < 0) {
            result = err_errno(err, errno, "cannot open a descriptor of process %d", report.pid);
            kill(report.pid, SIGKILL);
            waitpid(report.pid, NULL, __WALL);
        }
    }
    return result < 0 ? result : report.pid;
}

/* ---------------------------------------------------------------------------------- both */

int sandbox_launch(struct sandbox_host *host, const struct launch *launch,
                   struct sandbox_process *ret, struct err *err)
{
    uint64_t start_time = 0;
    int pidfd = -1;
    pid_t pid = -1;
    switch (host->row.kind) {
    case ROW_ROOT:
        pid = clone_as_root(host, launch, &pidfd, err);
        break;
    case ROW_SUBORDINATE:
        pid = clone_in_range(host, launch, &pidfd, err);
        break;
    case ROW_SINGLE:
        pid = clone_child(launch, CLONE_PIDFD, &pidfd, -1);
        if (pid < 0)
            pid = err_errno(err, errno, "cannot make the namespaces");
        break;
    }
    int result = pid < 0 ? pid : process_start_time(pid, &start_time, err);
    if (result == 0 && write(launch->go_write_fd, "", 1) != 1)
        result = err_errno(err, errno, "cannot let the child go on");
    if (result < 0) {
        process_end(pidfd);
        return result;
    }
    *ret = (struct sandbox_process){.pid = pid, .pidfd = pidfd, .start_time = start_time};
    return 0;
}

int sandbox_run_inside(struct sandbox_host *host, int (*work)(void *ctx, struct err *err),
                       void *ctx, struct err *err)
{
    if (host->row.kind != ROW_SUBORDINATE)
        return work(ctx, err);
    struct helper helper = {.host = host, .work = work, .ctx = ctx};
    struct helper_report report = {0};
    return call_helper(&helper, &report, err);
}

struct gifts {
    const struct row *row;
    int dir_fd;
    const struct sandbox_gift *list;
    size_t count;
};

static int give_all(void *ctx, struct err *err)
{
    const struct gifts *gifts = ctx;
    bool is_in_range = gifts->row->kind == ROW_SUBORDINATE;
    for (size_t i = 0; i < gifts->count; i++) {
        const struct sandbox_gift *gift = &gifts->list[i];
        bool is_shared = is_in_range && gift->is_shared;
        uint32_t id = gift->id + (is_in_range ? RANGE_FIRST : 0);
        const int flags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
        if (is_shared && fchmodat(gifts->dir_fd, gift->path, 0775, 0) < 0)
            return err_errno(err, errno, "cannot share %s", gift->path);
        if (fchownat(gifts->dir_fd, gift->path, id, is_shared ? RANGE_OWN : id, flags) < 0)
            return err_errno(err, errno, "cannot give %s away", gift->path);
    }
    return 0;
}

int sandbox_give(struct sandbox_host *host, int dir_fd, const struct sandbox_gift *list,
                 size_t count, struct err *err)
{
    struct gifts gifts = {.row = &host->row, .dir_fd = dir_fd, .list = list, .count = count};
    if (host->row.kind == ROW_SINGLE)
        return 0; /* all is of the one id */
    return sandbox_run_inside(host, give_all, &gifts, err);
}

/* ------------------------------------------------------------------------------- folders */

/* A detached copy of a folder as a mount whose ids are those of `userns`. It is private: a copy of
 * a shared mount, as systemd makes all of them, is its peer, and what is mounted on it in a sandbox
 * would appear on the folder out here too (mount_namespaces(7)). */
static int clone_mapped(int userns, int dir_fd, const char *path, uint64_t attributes,
                        struct err *err)
{
    cleanup_fd int tree =
        open_tree(dir_fd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (tree < 0)
        return err_errno(err, errno, "cannot clone the mount of %s", *path ? path : "a folder");
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                          attributes,
                              .propagation = MS_PRIVATE,
                              .userns_fd = (uint64_t)userns};
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return err_errno(err, errno,
                         "cannot map the ids of the mount of %s (does its file system support "
                         "idmapped mounts?)",
                         *path ? path : "a folder");
    return TAKE_FD(tree);
}

int sandbox_clone_folder(struct sandbox_host *host, uint32_t block, int dir_fd, const char *path,
                         bool writable, struct err *err)
{
    if (host->row.kind != ROW_ROOT) {
        int fd = *path ? openat(dir_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC)
                       : fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
        return fd < 0 ? err_errno(err, errno, "cannot open %s", *path ? path : "a folder") : fd;
    }
    int userns = ids_userns(host->ids, block, err);
    if (userns < 0)
        return userns;
    return clone_mapped(userns, dir_fd, path, writable ? 0 : MOUNT_ATTR_RDONLY, err);
}
