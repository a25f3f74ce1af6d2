/* Jails for single jobs, from the supervisor's side; see instance.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <unistd.h>

#include "sandbox/child.h"
#include "sandbox/host_internal.h"
#include "sandbox/process.h"
#include "sandbox/start.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define CAP_BIT(cap) (UINT64_C(1) << (cap))
#define FOLDERS_MAX 8
#define JOB_PIDS 64
#define BUILD_PIDS 4096

const char *const child_jail_settings[CHILD_JAIL_SETTINGS] = {"/root/.npmrc", "/etc/apt/auth.conf",
                                                              "/etc/apt/auth.conf.d"};

/* A job reads what an agent wrote whatever its mode; it writes, and removes, only where a folder is
 * writable. A build is root of its namespace in full: the namespace is its wall. */
static uint64_t capabilities(const struct sandbox_jail_start *start)
{
    uint64_t keep = CAP_BIT(CAP_DAC_READ_SEARCH);
    if (start->kind == SANDBOX_JAIL_BUILD)
        return UINT64_MAX;
    for (size_t i = 0; i < start->folder_count; i++)
        if (start->folders[i].writable)
            keep |= CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FOWNER);
    if (start->gives_away)
        keep |= CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_FSETID);
    return keep;
}

/* "jail.NAME": a dot is in no sandbox's name. */
static void group_name(const char *name, char ret[CGROUP_NAME_MAX])
{
    snprintf(ret, CGROUP_NAME_MAX, CGROUP_JAIL_PREFIX "%s", name);
}

static int clone_folders(const struct sandbox_jail_start *start, int userns, int *ret,
                         struct err *err)
{
    for (size_t i = 0; i < start->folder_count; i++) {
        ret[i] =
            sandbox_clone_folder(start->folders[i].fd, "", userns, start->folders[i].writable, err);
        if (ret[i] < 0)
            return ret[i];
    }
    return 0;
}

/* Absent ones, and file systems that map no ids, are passed over: then the clients' settings are
 * what is readable for all. */
static void clone_settings(const struct sandbox_jail_start *start, int userns,
                           struct child_jail *child)
{
    for (size_t i = 0; i < CHILD_JAIL_SETTINGS; i++)
        if (start->kind == SANDBOX_JAIL_BUILD)
            child->setting_fds[i] =
                sandbox_clone_folder(AT_FDCWD, child_jail_settings[i], userns, false, NULL);
}

static int prepare(struct sandbox_host *host, struct child_jail *child, struct err *err)
{
    const struct sandbox_jail_start *start = child->start;
    bool is_build = start->kind == SANDBOX_JAIL_BUILD;
    struct sandbox_limits limits = {.memory_bytes = start->memory_bytes,
                                    .pids = is_build ? BUILD_PIDS : JOB_PIDS};
    if (start->folder_count > FOLDERS_MAX || start->inherit_count > CHILD_FDS_MAX - 3)
        return err_set(err, EINVAL, "too many folders or descriptors");
    int userns = ids_userns(host->ids, start->block, err);
    int result = userns < 0 ? userns : clone_folders(start, userns, child->folder_fds, err);
    if (result < 0)
        return result;
    clone_settings(start, userns, child);
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    child->common.go_fd = pipe_fds[0];
    child->common.go_write_fd = pipe_fds[1];
    char group[CGROUP_NAME_MAX];
    group_name(start->name, group);
    return cgroup_create(&host->cgroups, group, "job", &limits, &child->common.cgroup, err);
}

static void close_child(struct child_jail *child)
{
    for (size_t i = 0; i < FOLDERS_MAX; i++)
        cleanup_fd_at(&child->folder_fds[i]);
    for (size_t i = 0; i < CHILD_JAIL_SETTINGS; i++)
        cleanup_fd_at(&child->setting_fds[i]);
    cleanup_fd_at(&child->common.go_fd);
    cleanup_fd_at(&child->common.go_write_fd);
    cgroup_entry_close(&child->common.cgroup);
}

static int start_child(struct sandbox_host *host, struct child_jail *child,
                       struct sandbox_process *ret, struct err *err)
{
    int pidfd = -1;
    bool with_network = child->start->kind == SANDBOX_JAIL_JOB; /* its own, with nothing in it */
    uint32_t base = ids_base(host->ids, child->start->block);
    pid_t pid = sandbox_clone(child->common.cgroup.into_fd, base, with_network, &pidfd);
    if (pid == 0)
        child_run_jail(child);
    if (pid < 0)
        return err_errno(err, errno, "cannot make the namespaces");
    return sandbox_release_child(pid, pidfd, base, child->common.go_write_fd, ret, err);
}

int sandbox_jail_start(struct sandbox_host *host, const struct sandbox_jail_start *start,
                       struct sandbox_process *ret, struct err *err)
{
    int profile = start->kind == SANDBOX_JAIL_BUILD ? SECCOMP_BUILD : SECCOMP_JAIL;
    int folder_fds[FOLDERS_MAX];
    memset(folder_fds, -1, sizeof(folder_fds));
    struct child_jail child = {
        .common = {.go_fd = -1,
                   .go_write_fd = -1,
                   .cgroup = {.into_fd = -1, .tasks_fd = {-1, -1, -1}},
                   .seccomp = &host->filters[profile],
                   .keep_capabilities = capabilities(start),
                   .binary_fd = start->binary_fd},
        .start = start,
        .folder_fds = folder_fds,
        .setting_fds = {-1, -1, -1},
    };
    int result = prepare(host, &child, err);
    if (result == 0) {
        result = start_child(host, &child, ret, err);
        if (result < 0)
            sandbox_jail_cleanup(host, start->name);
    }
    close_child(&child);
    return result < 0 ? err_context(err, result, "cannot start the jail %s", start->name) : 0;
}

void sandbox_jail_cleanup(struct sandbox_host *host, const char *name)
{
    char group[CGROUP_NAME_MAX];
    group_name(name, group);
    cgroup_kill(&host->cgroups, group, NULL);
    cgroup_remove(&host->cgroups, group, NULL);
}
