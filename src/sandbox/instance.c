/* A running sandbox, from the supervisor's side; see instance.h. Nothing here waits, and nothing of
 * a sandbox's content is read: folders are opened by our own names in folders of ours. */
#include "sandbox/instance.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/ipc.h"
#include "sandbox/child.h"
#include "sandbox/host_internal.h"
#include "sandbox/launch.h"
#include "sandbox/order.h"
#include "sandbox/process.h"
#include "util/cleanup.h"
#include "util/fd.h"
#include "util/log.h"

#define CAP_BIT(cap) (UINT64_C(1) << (cap))

/* What root of a sandbox can do to its own files and processes: what the installation of packages
 * needs. CAP_SETPCAP is init's alone: with it, it takes the others from what it starts. */
static const uint64_t instance_capabilities =
    CAP_BIT(CAP_CHOWN) |        /* dpkg gives files to their owners */
    CAP_BIT(CAP_DAC_OVERRIDE) | /* root reads and writes what belongs to others */
    CAP_BIT(CAP_FOWNER) |       /* chmod of what belongs to others */
    CAP_BIT(CAP_FSETID) |       /* set-id bits survive a chown */
    CAP_BIT(CAP_KILL) |         /* ends processes of others */
    CAP_BIT(CAP_SETGID) |       /* apt, init: become another */
    CAP_BIT(CAP_SETUID) |       /* apt, init: become another */
    CAP_BIT(CAP_SETFCAP) |      /* packages whose programs have capabilities */
    CAP_BIT(CAP_SETPCAP);

/* Where init puts the task into a namespace of its own (INIT_NESTS): to make and to enter it. */
static const uint64_t nesting_capabilities = CAP_BIT(CAP_SYS_ADMIN) | CAP_BIT(CAP_SYS_CHROOT);

/* Our one id inside, where there is but one: the agent's. */
#define SINGLE_ID 1000

static void close_child(struct child_instance *child)
{
    cleanup_fd_at(&child->supervisor_fd);
    cleanup_fd_at(&child->common.go_fd);
    cleanup_fd_at(&child->common.go_write_fd);
    cgroup_entry_close(&child->common.cgroup);
}

/* Everything that the child needs, made by the supervisor before the clone. */
static int prepare(struct sandbox_host *host, struct child_instance *child, int *ret_socket,
                   struct err *err)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    child->common.go_fd = pipe_fds[0];
    child->common.go_write_fd = pipe_fds[1];
    int sockets[2];
    int result = ipc_pair(sockets, err);
    if (result < 0)
        return result;
    *ret_socket = sockets[0];
    child->supervisor_fd = sockets[1];
    return cgroup_create(&host->cgroups, child->make->boot_id, "init", &child->make->limits,
                         &child->common.cgroup, err);
}

static void run_instance(void *child)
{
    child_run_instance(child);
}

/* Without a cgroup.kill init ends the task by a pid namespace, which takes more rights. */
static void choose_rights(const struct sandbox_host *host, struct child_instance *child)
{
    bool is_single = host->row.kind == ROW_SINGLE;
    bool nests = host->cgroups.v2_fd < 0;
    uint64_t keep = is_single ? CAP_BIT(CAP_SETPCAP) : instance_capabilities;
    keep |= nests ? nesting_capabilities : 0;
    child->common.keep_capabilities = keep;
    child->common.ambient_capabilities = is_single ? keep : 0;
    child->common.seccomp = &host->filters[nests ? SECCOMP_NESTING : SECCOMP_SANDBOX];
    child->filter_fd = nests ? host->seccomp_fds[SECCOMP_SANDBOX] : -1;
}

static int start_child(struct sandbox_host *host, struct child_instance *child,
                       struct sandbox_process *ret, struct err *err)
{
    struct launch launch = {.kind = LAUNCH_INSTANCE,
                            .block = child->make->block,
                            .into_cgroup_fd = child->common.cgroup.into_fd,
                            .with_network = true,
                            .go_write_fd = child->common.go_write_fd,
                            .run = run_instance,
                            .child = child};
    return sandbox_launch(host, &launch, ret, err);
}

int sandbox_instance_make(struct sandbox_host *host, const struct sandbox_make *make,
                          struct sandbox_instance *ret, struct err *err)
{
    struct child_instance child = {
        .common = {.go_fd = -1,
                   .go_write_fd = -1,
                   .cgroup = {.into_fd = -1, .tasks_fd = {-1, -1, -1}},
                   .binary_fd = host->init_fd,
                   .row = &host->row,
                   .single_id = SINGLE_ID},
        .make = make,
        .network = &host->network,
        .has_ipv6 = host->has_ipv6,
        .supervisor_fd = -1,
    };
    choose_rights(host, &child);
    cleanup_fd int sock = -1;
    struct sandbox_process process = {.pidfd = -1};
    int result = prepare(host, &child, &sock, err);
    if (result == 0) {
        result = start_child(host, &child, &process, err);
        if (result < 0)
            cgroup_remove(&host->cgroups, make->boot_id, NULL);
    }
    close_child(&child);
    if (result < 0)
        return err_context(err, result, "cannot make an instance");
    *ret =
        (struct sandbox_instance){.init = process, .socket = TAKE_FD(sock), .block = make->block};
    snprintf(ret->boot_id, sizeof(ret->boot_id), "%s", make->boot_id);
    snprintf(ret->group, sizeof(ret->group), "%s", make->boot_id);
    return 0;
}

static int clone_folders(struct sandbox_host *host, uint32_t block,
                         const struct sandbox_start *start, int ret[ORDER_MOUNTS], struct err *err)
{
    const struct {
        const char *path;
        int dir_fd;
        bool writable;
    } folders[ORDER_MOUNTS] = {
        [ORDER_IMAGE] = {"", start->image_fd, false},
        [ORDER_COMMON] = {"", start->common_fd, false},
        [ORDER_OVERLAY] = {"overlay", start->folder_fd, true},
        [ORDER_WORKSPACE] = {"workspace", start->folder_fd, true},
        [ORDER_TASK] = {"task", start->folder_fd, false},
        [ORDER_TASK_WRITE] = {"task", start->folder_fd, true},
    };
    for (size_t i = 0; i < ORDER_MOUNTS; i++) {
        ret[i] = sandbox_clone_folder(host, block, folders[i].dir_fd, folders[i].path,
                                      folders[i].writable, err);
        if (ret[i] < 0)
            return ret[i];
    }
    return 0;
}

int sandbox_instance_start(struct sandbox_host *host, const struct sandbox_start *start,
                           struct sandbox_instance *instance, struct err *err)
{
    int fds[ORDER_FDS] = {-1, -1, -1, -1, -1, -1, start->listen_fd};
    int result = clone_folders(host, instance->block, start, fds, err);
    if (result == 0)
        result = order_send(instance->socket, start->name, start->environment, fds, err);
    for (size_t i = 0; i < ORDER_MOUNTS; i++)
        cleanup_fd_at(&fds[i]);
    if (result < 0)
        return err_context(err, result, "cannot start %s", start->name);
    snprintf(instance->name, sizeof(instance->name), "%s", start->name);
    return 0;
}

void sandbox_instance_end(struct sandbox_host *host, struct sandbox_instance *instance)
{
    struct err err = {0};
    process_end(instance->init.pidfd);
    instance->init.pidfd = -1;
    if (cgroup_remove_late(&host->cgroups, instance->group, &err) < 0)
        log_error("%s", err.message);
    sandbox_instance_release(instance);
}

/* init.sock through /proc/self/fd: with a long name its path is longer than sun_path. */
static int connect_init(int folder_fd, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/init.sock", folder_fd);
    cleanup_fd int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0)
        return err_errno(err, errno, "cannot make a socket");
    if (connect(sock, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return err_set(err, ESRCH, "its init does not answer: %s", strerror(errno));
    return TAKE_FD(sock);
}

static int find_process(pid_t pid, uint64_t start_time, struct sandbox_process *ret,
                        struct err *err)
{
    cleanup_fd int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    uint64_t found = 0;
    if (pidfd < 0)
        return err_set(err, ESRCH, "there is no process %d", (int)pid);
    /* The pidfd is held: the pid cannot go to another between this look and the next use. */
    int result = process_start_time(pid, &found, err);
    if (result < 0)
        return result;
    if (found != start_time)
        return err_set(err, ESRCH, "process %d is another one now", (int)pid);
    *ret = (struct sandbox_process){.pid = pid, .pidfd = TAKE_FD(pidfd), .start_time = found};
    return 0;
}

int sandbox_instance_adopt(struct sandbox_host *host, const struct sandbox_record *record,
                           struct sandbox_instance *ret, struct err *err)
{
    struct sandbox_process process = {.pidfd = -1};
    int result = find_process(record->pid, record->start_time, &process, err);
    int sock = result < 0 ? result : connect_init(record->folder_fd, err);
    if (sock < 0) {
        if (process.pidfd >= 0) /* else it would go on beside its successor */
            syscall(SYS_pidfd_send_signal, process.pidfd, SIGKILL, NULL, 0);
        sandbox_process_release(&process);
        return err_context(err, sock, "cannot take over %s", record->name);
    }
    *ret = (struct sandbox_instance){.init = process, .socket = sock, .block = record->block};
    snprintf(ret->name, sizeof(ret->name), "%s", record->name);
    snprintf(ret->boot_id, sizeof(ret->boot_id), "%s", record->boot_id);
    bool is_ours = cgroup_exists(&host->cgroups, record->boot_id);
    snprintf(ret->group, sizeof(ret->group), "%s", is_ours ? record->boot_id : record->name);
    return 0;
}

bool sandbox_instance_end_unrecorded(int folder_fd)
{
    const struct msg_init_grace at_once = {.grace_ms = 0};
    cleanup_fd int sock = connect_init(folder_fd, NULL);
    return sock >= 0 && ipc_send(sock, IPC_INIT_STOP, 0, &at_once, NULL, 0, NULL) == 0;
}

int sandbox_instance_kill(struct sandbox_host *host, struct sandbox_instance *instance,
                          struct err *err)
{
    if (cgroup_kill(&host->cgroups, instance->group, NULL) == 0)
        return 0;
    if (syscall(SYS_pidfd_send_signal, instance->init.pidfd, SIGKILL, NULL, 0) < 0 &&
        errno != ESRCH)
        return err_errno(err, errno, "cannot kill %s", instance->name);
    return 0;
}

int sandbox_group_kill(struct sandbox_host *host, const char *group, struct err *err)
{
    return cgroup_kill(&host->cgroups, group, err);
}

int sandbox_instance_cleanup(struct sandbox_host *host, const char *group, struct err *err)
{
    return cgroup_remove(&host->cgroups, group, err);
}

int sandbox_instance_cleanup_late(struct sandbox_host *host, const char *group, struct err *err)
{
    return cgroup_remove_late(&host->cgroups, group, err);
}

void sandbox_process_release(struct sandbox_process *process)
{
    cleanup_fd_at(&process->pidfd);
    *process = (struct sandbox_process){.pidfd = -1};
}

void sandbox_instance_release(struct sandbox_instance *instance)
{
    cleanup_fd_at(&instance->socket);
    instance->socket = -1;
    sandbox_process_release(&instance->init);
}

int sandbox_instance_list(struct sandbox_host *host, void (*found)(void *ctx, const char *group),
                          void *ctx, struct err *err)
{
    return cgroup_list(&host->cgroups, found, ctx, err);
}

void sandbox_instance_refused(struct sandbox_host *host, const struct sandbox_instance *instance,
                              struct sandbox_refused *ret)
{
    cgroup_refused(&host->cgroups, instance->group, ret);
}

int sandbox_group_create(struct sandbox_host *host, const struct sandbox_instance *instance,
                         const char *name, struct sandbox_group *ret, struct err *err)
{
    return cgroup_leaf_create(&host->cgroups, instance->group, name, ret, err);
}

int sandbox_group_remove(struct sandbox_host *host, const struct sandbox_instance *instance,
                         const char *name, struct err *err)
{
    return cgroup_leaf_remove(&host->cgroups, instance->group, name, err);
}

void sandbox_groups_remove(struct sandbox_host *host, const struct sandbox_instance *instance,
                           const char *prefix)
{
    cgroup_leaves_remove(&host->cgroups, instance->group, prefix);
}

void sandbox_group_close(struct sandbox_group *group)
{
    cleanup_fd_at(&group->procs_fd);
    cleanup_fd_at(&group->kill_fd);
    cleanup_fd_at(&group->oom_fd);
    cleanup_fd_at(&group->pids_fd);
    *group = SANDBOX_GROUP_NONE;
}
