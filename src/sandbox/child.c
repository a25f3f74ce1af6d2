/* The life of the set-up child of an instance; see child.h. Between clone3 and exec: the host's
 * code with root's rights in new namespaces only. It allocates nothing and returns to nobody. It
 * makes what it can before it is told for which sandbox, then waits for that order (order.h). */
#include "sandbox/child.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc/ipc.h"
#include "sandbox/userns.h"
#include "util/cleanup.h"
#include "util/fd.h"

/* Soft limit of open files: more than any agent needs, less than what makes programs that close
 * "all" descriptors slow. */
#define NOFILE_SOFT 16384
#define NOFILE_HARD 524288

int child_join_cgroups(const struct child_common *common, struct err *err)
{
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        int fd = common->cgroup.tasks_fd[i];
        if (fd >= 0 && write(fd, "0", 1) < 0)
            return err_errno(err, errno, "cannot join a cgroup");
    }
    /* Only now, so that the namespace's root is our group and nothing above it is shown. */
    if (unshare(CLONE_NEWCGROUP) < 0)
        return err_errno(err, errno, "cannot make a cgroup namespace");
    return 0;
}

int child_become_root(const struct child_common *common, struct err *err)
{
    char byte;
    ssize_t n;
    close(common->go_write_fd);
    do
        n = read(common->go_fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1)
        return err_set(err, EPIPE, "the supervisor gave up");
    umask(0);
    if (common->row->kind == ROW_SINGLE)
        return userns_map_self(common->single_id, common->row->uid, common->row->gid, err);
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return err_errno(err, errno, "cannot become root of the namespace");
    /* As it came from a helper of the supervisor it was dumpable (launch.c). */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot become undumpable");
    return 0;
}

static int limit(int resource, int64_t max, const char *what, struct err *err)
{
    struct rlimit limit;
    if (max <= 0)
        return 0;
    if (getrlimit((__rlimit_resource_t)resource, &limit) < 0)
        return err_errno(err, errno, "cannot read the limit of %s", what);
    if (limit.rlim_max > (rlim_t)max)
        limit.rlim_max = (rlim_t)max;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit((__rlimit_resource_t)resource, &limit) < 0)
        return err_errno(err, errno, "cannot set the limit of %s", what);
    return 0;
}

/* RLIMIT_NPROC counts the processes that a user has in this user namespace (since Linux 5.14). Not
 * RLIMIT_AS: programs reserve far more addresses than they ever use. */
static int limit_without_groups(const struct child_common *common,
                                const struct sandbox_limits *limits, struct err *err)
{
    bool has_memory = common->cgroup.limits[CGROUP_MEMORY];
    int result = has_memory ? 0 : limit(RLIMIT_DATA, limits->memory_bytes, "memory", err);
    if (result == 0 && !common->cgroup.limits[CGROUP_PIDS])
        result = limit(RLIMIT_NPROC, limits->pids, "processes", err);
    return result;
}

int child_set_limits(const struct child_common *common, const struct sandbox_limits *limits,
                     struct err *err)
{
    /* A core limit of 1 also keeps cores from the host's handler (core(5)); 0 does not, but a user
     * whose own is 0 cannot raise it. */
    struct rlimit files;
    int result = limit(RLIMIT_CORE, 1, "cores", err);
    if (result < 0)
        return result;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return err_errno(err, errno, "cannot read the limit of open files");
    if (files.rlim_max > NOFILE_HARD)
        files.rlim_max = NOFILE_HARD;
    files.rlim_cur = files.rlim_max < NOFILE_SOFT ? files.rlim_max : NOFILE_SOFT;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        return err_errno(err, errno, "cannot set the limit of open files");
    return limit_without_groups(common, limits, err);
}

int child_place_fds(const int *fds, size_t count, int first, struct err *err)
{
    int high[CHILD_FDS_MAX];
    if (count > CHILD_FDS_MAX)
        return err_set(err, EMFILE, "too many descriptors for a child");
    for (size_t i = 0; i < count; i++)
        high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, CHILD_HIGH_FD);
    for (size_t i = 0; i < count; i++)
        if (high[i] < 0 || fd_move_to(high[i], first + (int)i) < 0)
            return err_errno(err, errno, "cannot place descriptor %d", first + (int)i);
    return 0;
}

void child_exec(int binary_fd, const char *const *argv, const char *const *environment,
                struct err *err)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* execveat(2) changes neither strings nor arrays. */
    syscall(SYS_execveat, binary_fd, "", argv, environment, AT_EMPTY_PATH);
    err_errno(err, errno, "cannot execute %s", argv[0]);
}

/* ------------------------------------------------------------------------- made ahead */

static void sort(int *values, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = i; j > 0 && values[j - 1] > values[j]; j--) {
            int value = values[j];
            values[j] = values[j - 1];
            values[j - 1] = value;
        }
}

/* It may wait for long: of the supervisor's descriptors (the lock of STATE, the sockets of others)
 * it keeps its own only. */
static int keep_descriptors(const struct child_instance *child, struct err *err)
{
    const struct child_common *common = &child->common;
    int keep[] = {common->go_fd,
                  common->go_write_fd,
                  common->binary_fd,
                  common->cgroup.tasks_fd[CGROUP_MEMORY],
                  common->cgroup.tasks_fd[CGROUP_CPU],
                  common->cgroup.tasks_fd[CGROUP_PIDS],
                  child->filter_fd,
                  child->supervisor_fd};
    unsigned from = STDERR_FILENO + 1;
    sort(keep, ARRAY_LEN(keep));
    for (size_t i = 0; i < ARRAY_LEN(keep); i++) {
        if (keep[i] < (int)from)
            continue;
        if (keep[i] > (int)from && close_range(from, (unsigned)keep[i] - 1, 0) < 0)
            return err_errno(err, errno, "cannot close the supervisor's descriptors");
        from = (unsigned)keep[i] + 1;
    }
    return close_range(from, ~0U, 0) < 0
               ? err_errno(err, errno, "cannot close the supervisor's descriptors")
               : 0;
}

static int clone_folders(int fds[ORDER_MOUNTS], struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < ORDER_MOUNTS && result == 0; i++)
        result = child_clone_folder(
            &fds[i], i == ORDER_OVERLAY || i == ORDER_WORKSPACE || i == ORDER_TASK_WRITE, err);
    return result;
}

static int wait_for_order(struct child_instance *child, struct err *err)
{
    static struct order order;
    prctl(PR_SET_NAME, "paddock-spare");
    int result = order_receive(child->supervisor_fd, &order, err);
    child->order = &order;
    return result;
}

static int become_root_of_base(struct child_instance *child, struct err *err)
{
    int result = child_become_root(&child->common, err);
    if (result == 0)
        result = child->scratch_fd = child_mount_base(child, err);
    return result < 0 ? result : 0;
}

/* All that no sandbox's folder is needed for. Where nothing can be idmapped the folders come first:
 * only the daemon's id reaches them. */
static int make_ready(struct child_instance *child, struct err *err)
{
    const struct child_common *common = &child->common;
    bool is_idmapped = common->row->kind == ROW_ROOT;
    int result = keep_descriptors(child, err);
    /* What needs no id yet runs while the supervisor writes the maps. */
    if (result == 0)
        result = child_join_cgroups(common, err);
    if (result == 0)
        result = child_configure_network(child->network, err);
    if (result == 0)
        result = child_open_listeners(child->has_ipv6, child->listeners, err);
    if (result == 0)
        result = child_set_limits(common, &child->make->limits, err);
    if (result == 0 && is_idmapped)
        result = become_root_of_base(child, err);
    if (result == 0)
        result = wait_for_order(child, err);
    return result;
}

static int follow_order(struct child_instance *child, struct err *err)
{
    struct order *order = child->order;
    int result = 0;
    if (child->common.row->kind != ROW_ROOT) {
        result = clone_folders(order->fds, err);
        if (result == 0)
            result = become_root_of_base(child, err);
    }
    int root = result < 0 ? result : child_build_rootfs(child, err);
    result = root < 0 ? root : child_enter_root(root, err);
    if (result == 0 && sethostname(order->name, strlen(order->name)) < 0)
        result = err_errno(err, errno, "cannot set the hostname");
    return result < 0 ? result : child_write_files(child, err);
}

/* ------------------------------------------------------------------------------- the exec */

/* Leaves init with its descriptors of init_fds.h, and stdin, stdout, stderr on /dev/null. */
static int place_all(const struct child_instance *child, struct err *err)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_errno(err, errno, "cannot open /dev/null");
    const int *given = child->order->fds;
    int fds[INIT_FD_END] = {
        null, null, null, child->supervisor_fd, given[ORDER_LISTENER], given[ORDER_TASK_WRITE]};
    memcpy(fds + INIT_FD_LISTENERS, child->listeners, sizeof(child->listeners));
    fds[INIT_FD_FILTER] = child->filter_fd < 0 ? null : child->filter_fd;
    return child_place_fds(fds, ARRAY_LEN(fds), 0, err);
}

static void fail(int sock, int result, const struct err *err)
{
    struct msg_status status = {.code = -result};
    IPC_SET_TEXT(status.text, err->message);
    ipc_send(sock, IPC_INIT_FAILED, 0, &status, NULL, 0, NULL);
    _exit(1);
}

void child_run_instance(struct child_instance *child)
{
    struct err err = {0};
    setsid(); /* a signal from the supervisor's terminal is not for us */
    int result = make_ready(child, &err);
    if (result == -EPIPE)
        _exit(0); /* nobody wants it */
    if (result == 0)
        result = follow_order(child, &err);
    int sock = fcntl(child->supervisor_fd, F_DUPFD_CLOEXEC, CHILD_HIGH_FD);
    int binary = fcntl(child->common.binary_fd, F_DUPFD_CLOEXEC, CHILD_HIGH_FD);
    if (result == 0 && (sock < 0 || binary < 0))
        result = err_errno(&err, errno, "cannot duplicate a descriptor");
    if (result == 0)
        result = place_all(child, &err);
    if (result == 0 && close_range(INIT_FD_END, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        result = err_errno(&err, errno, "cannot mark the descriptors");
    if (result == 0)
        result = child_drop_privileges(&child->common, &err);
    if (result == 0) {
        const char *const argv[] = {"paddock-init", child->make->boot_id,
                                    child->filter_fd < 0 ? NULL : INIT_NESTS, NULL};
        child_exec(binary, argv, child->order->environment, &err);
        result = -errno;
    }
    fail(sock < 0 ? child->supervisor_fd : sock, result, &err);
    _exit(1);
}
