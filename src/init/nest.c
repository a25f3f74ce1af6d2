/*
 * Where no control group can be made, the task has a pid namespace of its own, whose first process,
 * the keeper, is killed to end all that is in it: the kernel leaves none. The keeper is a copy of
 * this process that mounts a /proc of its own, drops what rights it has and from then on only reaps
 * orphans. The task itself is a child of init like every other program, cloned into that namespace.
 * pid_namespaces(7).
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/init.h"
#include "sandbox/child.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
/* To the keeper: the task itself has ended. Not SIGTERM, which goes to all at a stop. */
#define SIGNAL_OVER SIGUSR1

static struct {
    bool is_on;
    int self_pidfd;
    struct sock_filter filter[BPF_MAXINSNS]; /* of every program */
    unsigned short filter_len;
} nest = {.self_pidfd = -1};

bool nest_is_on(void)
{
    return nest.is_on;
}

int nest_open(struct err *err)
{
    struct stat st;
    if (!fd_is_sealed(INIT_FD_FILTER) || fstat(INIT_FD_FILTER, &st) < 0)
        return err_set(err, EINVAL, "there is no seccomp filter for programs");
    if (st.st_size <= 0 || st.st_size > (off_t)sizeof(nest.filter) ||
        pread(INIT_FD_FILTER, nest.filter, sizeof(nest.filter), 0) != st.st_size)
        return err_set(err, EINVAL, "cannot read the seccomp filter for programs");
    nest.filter_len = (unsigned short)((size_t)st.st_size / sizeof(nest.filter[0]));
    nest.self_pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (nest.self_pidfd < 0)
        return err_errno(err, errno, "cannot open a descriptor of this process");
    nest.is_on = true;
    return 0;
}

int nest_confine(void)
{
    struct sock_fprog program = {.len = nest.filter_len, .filter = nest.filter};
    if (!nest.is_on)
        return 0; /* it is on init already, and so on all it starts */
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

/* ---------------------------------------------------------------------------- the keeper */

static int drop_rights(struct err *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
        syscall(SYS_capset, &header, none) < 0)
        return err_errno(err, errno, "cannot drop capabilities");
    int result = nest_confine();
    return result < 0 ? err_errno(err, -result, "cannot load the seccomp filter") : 0;
}

/* Every signal is blocked, and kept for us until we take it. Orphans of the task come to us; when
 * it has ended and they have, there is nobody left to keep. */
static _Noreturn void keep(void)
{
    bool is_over = false;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGNAL_OVER);
    for (;;) {
        pid_t pid;
        is_over |= sigwaitinfo(&wanted, NULL) == SIGNAL_OVER;
        do
            pid = waitpid(-1, NULL, WNOHANG);
        while (pid > 0 || (pid < 0 && errno == EINTR));
        if (is_over && pid < 0)
            _exit(0);
    }
}

static _Noreturn void run_keeper(int report_fd)
{
    struct spawn_report report = {0};
    struct err err = {0};
    /* What init holds is none of its business: listeners, the supervisor, the task folder. */
    int result = fd_move_to(report_fd, 0) < 0 || close_range(1, ~0U, 0) < 0
                     ? err_errno(&err, errno, "cannot close what is init's")
                     : drop_rights(&err);
    report.code = -result;
    snprintf(report.text, sizeof(report.text), "%.200s", err.message);
    if (write(0, &report, sizeof(report)) != sizeof(report) || result < 0)
        _exit(1);
    close(0);
    keep();
}

static int read_report(int fd, struct err *err)
{
    struct spawn_report report = {0};
    ssize_t n;
    do
        n = read(fd, &report, sizeof(report));
    while (n < 0 && errno == EINTR);
    if (n != sizeof(report))
        return err_set(err, EIO, "the keeper of the task's namespace broke off");
    report.text[sizeof(report.text) - 1] = '\0';
    return report.code ? err_set(err, report.code, "%s", report.text) : 0;
}

int nest_make(struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    cleanup_fd int read_end = ends[0];
    /* The first child from now on is the first process of a new namespace. A fork by the system
     * call itself: the C library's copies more of its state than there is. */
    pid_t pid = unshare(CLONE_NEWPID) < 0 ? -1 : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        run_keeper(ends[1]);
    int code = errno;
    close(ends[1]);
    cleanup_fd int pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    int result = pid < 0 ? err_errno(err, code, "cannot make the task's pid namespace") : 0;
    if (result == 0 && pidfd < 0) /* it is reaped by us alone: its pid is its own */
        result = err_errno(err, errno, "cannot open a descriptor of the keeper");
    if (result == 0)
        result = read_report(read_end, err);
    if (result == 0)
        return TAKE_FD(pidfd);
    if (pid > 0)
        kill(pid, SIGKILL);
    nest_leave();
    return result;
}

void nest_leave(void)
{
    if (setns(nest.self_pidfd, CLONE_NEWPID) < 0)
        _exit(1); /* every later program would be in the wrong one: better no sandbox */
}

/* The /proc that is there shows the pids of init's namespace, of which the task sees none of its
 * own. It is covered, in a mount namespace of the task's, with the same things hidden again. */
int nest_mount_proc(struct err *err)
{
    if (unshare(CLONE_NEWNS) < 0)
        return err_errno(err, errno, "cannot make a mount namespace");
    cleanup_fd int boot_id = open_tree(AT_FDCWD, BOOT_ID, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    cleanup_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (boot_id < 0 || root < 0)
        return err_errno(err, errno, "cannot open %s", boot_id < 0 ? BOOT_ID : "/");
    int result = child_mount_proc(root, err);
    if (result == 0)
        result = child_mask_proc(root, err);
    return result < 0 ? result : child_attach(boot_id, root, BOOT_ID + 1, err);
}

/* ------------------------------------------------------------------------------ its end */

void nest_kill(int keeper)
{
    syscall(SYS_pidfd_send_signal, keeper, SIGKILL, NULL, 0);
}

void nest_over(int keeper)
{
    syscall(SYS_pidfd_send_signal, keeper, SIGNAL_OVER, NULL, 0);
}
