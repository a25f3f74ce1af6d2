/* Jails for single jobs, from the supervisor's side; see instance.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <unistd.h>

#include "sandbox/child.h"
#include "sandbox/host_internal.h"
#include "sandbox/launch.h"
#include "sandbox/process.h"
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

static int clone_folders(struct sandbox_host *host, const struct sandbox_jail_start *start,
                         int *ret, struct err *err)
{
    for (size_t i = 0; i < start->folder_count; i++) {
        ret[i] = sandbox_clone_folder(host, start->block, start->folders[i].fd, "",
                                      start->folders[i].writable, err);
        if (ret[i] < 0)
            return ret[i];
    }
    return 0;
}

/* Absent ones, and file systems that map no ids, are passed over: then the clients' settings are
 * what is readable for all. So they are for all but root. */
static void clone_settings(struct sandbox_host *host, const struct sandbox_jail_start *start,
                           struct child_jail *child)
{
    for (size_t i = 0; i < CHILD_JAIL_SETTINGS; i++)
        if (start->kind == SANDBOX_JAIL_BUILD && host->row.kind == ROW_ROOT)
            child->setting_fds[i] = sandbox_clone_folder(host, start->block, AT_FDCWD,
                                                         child_jail_settings[i], false, NULL);
}

static int prepare(struct sandbox_host *host, struct child_jail *child, struct err *err)
{
    const struct sandbox_jail_start *start = child->start;
    bool is_build = start->kind == SANDBOX_JAIL_BUILD;
    child->limits = (struct sandbox_limits){.memory_bytes = start->memory_bytes,
                                            .pids = is_build ? BUILD_PIDS : JOB_PIDS};
    if (start->folder_count > FOLDERS_MAX || start->inherit_count > CHILD_FDS_MAX - 3)
        return err_set(err, EINVAL, "too many folders or descriptors");
    int result = clone_folders(host, start, child->folder_fds, err);
    if (result < 0)
        return result;
    clone_settings(host, start, child);
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe");
    child->common.go_fd = pipe_fds[0];
    child->common.go_write_fd = pipe_fds[1];
    char group[CGROUP_NAME_MAX];
    group_name(start->name, group);
    return cgroup_create(&host->cgroups, group, "job", &child->limits, &child->common.cgroup, err);
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

static void run_jail(void *child)
{
    child_run_jail(child);
}

static int start_child(struct sandbox_host *host, struct child_jail *child,
                       struct sandbox_process *ret, struct err *err)
{
    bool is_job = child->start->kind == SANDBOX_JAIL_JOB;
    struct launch launch = {.kind = is_job ? LAUNCH_JOB : LAUNCH_BUILD,
                            .block = child->start->block,
                            .into_cgroup_fd = child->common.cgroup.into_fd,
                            .with_network = is_job, /* its own, with nothing in it */
                            .go_write_fd = child->common.go_write_fd,
                            .run = run_jail,
                            .child = child};
    return sandbox_launch(host, &launch, ret, err);
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
                   .binary_fd = start->binary_fd,
                   .row = &host->row,
                   .single_id = 0}, /* its root */
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
