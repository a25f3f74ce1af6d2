/* Control groups; see cgroup.h. Supervisor only; every call is a few short writes to cgroupfs.
 * Invariant: a name comes from our own tables (boot ids, names of sandboxes, "init", "task"), so it
 * never holds a slash or a dot. */
#include "sandbox/cgroup.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/name.h"

#define CPU_PERIOD_US 100000
/* What was killed leaves its group in some milliseconds, unless the kernel holds it up. */
#define CGROUP_END_MS 2000

static int open_group(int parent_fd, const char *name)
{
    return openat(parent_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static int make_group(int parent_fd, const char *name, struct err *err)
{
    if (mkdirat(parent_fd, name, 0755) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make the cgroup %s", name);
    int fd = open_group(parent_fd, name);
    return fd < 0 ? err_errno(err, errno, "cannot open the cgroup %s", name) : fd;
}

static int write_value(int group_fd, const char *file, const char *value, struct err *err)
{
    cleanup_fd int fd = openat(group_fd, file, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) < 0)
        return err_errno(err, errno, "cannot write \"%s\" to %s", value, file);
    return 0;
}

static int limit_memory(int group_fd, bool is_v2, int64_t bytes, struct err *err)
{
    char value[32];
    snprintf(value, sizeof(value), "%" PRId64, bytes);
    int result = write_value(group_fd, is_v2 ? "memory.max" : "memory.limit_in_bytes", value, err);
    /* With swap, so that the limit is the limit. A kernel that counts no swap has no such file. */
    const char *swap = is_v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes";
    if (result == 0 && faccessat(group_fd, swap, W_OK, 0) == 0)
        result = write_value(group_fd, swap, is_v2 ? "0" : value, err);
    return result;
}

static int limit_cpu(int group_fd, bool is_v2, int64_t millis, struct err *err)
{
    char value[64];
    int64_t quota_us = millis * (CPU_PERIOD_US / 1000);
    if (is_v2)
        snprintf(value, sizeof(value), "%" PRId64 " %d", quota_us, CPU_PERIOD_US);
    else
        snprintf(value, sizeof(value), "%" PRId64, quota_us);
    return write_value(group_fd, is_v2 ? "cpu.max" : "cpu.cfs_quota_us", value, err);
}

static int limit_group(int group_fd, enum cgroup_controller controller, bool is_v2,
                       const struct sandbox_limits *limits, struct err *err)
{
    char value[32];
    switch (controller) {
    case CGROUP_MEMORY:
        return limits->memory_bytes ? limit_memory(group_fd, is_v2, limits->memory_bytes, err) : 0;
    case CGROUP_CPU:
        return limits->cpu_millis ? limit_cpu(group_fd, is_v2, limits->cpu_millis, err) : 0;
    case CGROUP_PIDS:
        snprintf(value, sizeof(value), "%" PRId64, limits->pids);
        return limits->pids ? write_value(group_fd, "pids.max", value, err) : 0;
    case CGROUP_CONTROLLERS:
        break;
    }
    return 0;
}

/* The group in one v1 hierarchy: made, limited, and its `tasks` opened for the child, which writes
 * "0" there itself: a move of the writing thread takes no lock that waits for an RCU grace period,
 * which a move by pid does. */
static int create_v1(int parent_fd, enum cgroup_controller controller, const char *name,
                     const struct sandbox_limits *limits, struct err *err)
{
    cleanup_fd int group = make_group(parent_fd, name, err);
    if (group < 0)
        return group;
    int result = limit_group(group, controller, false, limits, err);
    if (result < 0)
        return result;
    int tasks = openat(group, "tasks", O_WRONLY | O_CLOEXEC);
    return tasks < 0 ? err_errno(err, errno, "cannot open tasks of the cgroup %s", name) : tasks;
}

static int create_v2(const struct cgroups *cgroups, const char *name, const char *leaf,
                     const struct sandbox_limits *limits, struct err *err)
{
    cleanup_fd int group = make_group(cgroups->v2_fd, name, err);
    if (group < 0)
        return group;
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        int result = 0;
        if (cgroups->v2_has[i])
            result = limit_group(group, (enum cgroup_controller)i, true, limits, err);
        if (result < 0)
            return result;
    }
    return make_group(group, leaf, err);
}

bool cgroups_has(const struct cgroups *cgroups, enum cgroup_controller controller)
{
    return cgroups->v2_has[controller] || cgroups->v1_fd[controller] >= 0;
}

void cgroup_entry_close(struct cgroup_entry *entry)
{
    cleanup_fd_at(&entry->into_fd);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++)
        cleanup_fd_at(&entry->tasks_fd[i]);
}

static int create(const struct cgroups *cgroups, const char *name, const char *leaf,
                  const struct sandbox_limits *limits, struct cgroup_entry *ret, struct err *err)
{
    struct cgroup_entry entry = {.into_fd = -1, .tasks_fd = {-1, -1, -1}};
    int result = 0;
    if (cgroups->v2_fd >= 0)
        result = entry.into_fd = create_v2(cgroups, name, leaf, limits, err);
    for (int i = 0; i < CGROUP_CONTROLLERS && result >= 0; i++)
        if (cgroups->v1_fd[i] >= 0)
            result = entry.tasks_fd[i] =
                create_v1(cgroups->v1_fd[i], (enum cgroup_controller)i, name, limits, err);
    if (result < 0) {
        cgroup_entry_close(&entry);
        cgroup_remove(cgroups, name, NULL);
        return result;
    }
    for (int i = 0; i < CGROUP_CONTROLLERS; i++)
        entry.limits[i] = cgroups_has(cgroups, (enum cgroup_controller)i);
    *ret = entry;
    return 0;
}

int cgroup_create(struct cgroups *cgroups, const char *name, const char *leaf,
                  const struct sandbox_limits *limits, struct cgroup_entry *ret, struct err *err)
{
    int result = create(cgroups, name, leaf, limits, ret, err);
    if (result != -ENOENT)
        return result;
    /* Our folder is empty while nothing runs: whoever tidies up may have removed it. */
    cgroups_renew(cgroups);
    return create(cgroups, name, leaf, limits, ret, err);
}

static bool has_folder(int parent_fd, const char *name)
{
    return parent_fd >= 0 && faccessat(parent_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool cgroup_exists(const struct cgroups *cgroups, const char *name)
{
    bool is_there = has_folder(cgroups->v2_fd, name);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++)
        is_there = is_there || has_folder(cgroups->v1_fd[i], name);
    return is_there;
}

int cgroup_kill(const struct cgroups *cgroups, const char *name, struct err *err)
{
    if (cgroups->v2_fd < 0)
        return err_set(err, ENOENT, "there is no cgroup to kill %s through", name);
    cleanup_fd int group = open_group(cgroups->v2_fd, name);
    if (group < 0)
        return err_errno(err, errno, "cannot open the cgroup %s", name);
    return write_value(group, "cgroup.kill", "1", err);
}

/* Calls found for each group directly below; a group's files are not folders. */
static int each_group(int parent_fd, int (*found)(int parent_fd, const char *name, void *ctx),
                      void *ctx)
{
    int fd = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0)
            close(fd);
        return -errno;
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(folder));)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            result = found(parent_fd, entry->d_name, ctx);
    closedir(folder);
    return result;
}

static int remove_leaf(int parent_fd, const char *name, void *ctx)
{
    (void)ctx;
    return unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

static int remove_tree(int parent_fd, const char *name, bool has_leaves, struct err *err)
{
    if (has_leaves) {
        cleanup_fd int group = open_group(parent_fd, name);
        int result = group < 0 ? 0 : each_group(group, remove_leaf, NULL);
        if (result < 0)
            return err_errno(err, -result, "cannot empty the cgroup %s", name);
    }
    if (unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove the cgroup %s", name);
    return 0;
}

int cgroup_remove(const struct cgroups *cgroups, const char *name, struct err *err)
{
    int result = 0;
    if (cgroups->v2_fd >= 0)
        result = remove_tree(cgroups->v2_fd, name, true, err);
    for (int i = 0; i < CGROUP_CONTROLLERS && result == 0; i++)
        if (cgroups->v1_fd[i] >= 0)
            result = remove_tree(cgroups->v1_fd[i], name, false, err);
    return result;
}

/* Where it is counted what the instance was refused: in the group that has the limit. */
static int open_events(const struct cgroups *cgroups, enum cgroup_controller controller,
                       const char *name)
{
    bool is_v1 = cgroups->v1_fd[controller] >= 0;
    const char *file = is_v1 ? "memory.oom_control" : "memory.events";
    if (controller == CGROUP_PIDS)
        file = "pids.events";
    if (!cgroups_has(cgroups, controller))
        return -1;
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", name, file);
    return openat(is_v1 ? cgroups->v1_fd[controller] : cgroups->v2_fd, path, O_RDONLY | O_CLOEXEC);
}

void cgroup_refused(const struct cgroups *cgroups, const char *name, struct sandbox_refused *ret)
{
    cleanup_fd int memory = open_events(cgroups, CGROUP_MEMORY, name);
    cleanup_fd int pids = open_events(cgroups, CGROUP_PIDS, name);
    *ret = (struct sandbox_refused){fd_read_count(memory, "oom_kill"), fd_read_count(pids, "max")};
}

int cgroup_leaf_create(const struct cgroups *cgroups, const char *name, const char *leaf,
                       struct sandbox_group *ret, struct err *err)
{
    struct sandbox_group group = SANDBOX_GROUP_NONE;
    if (cgroups->v2_fd >= 0) {
        cleanup_fd int parent = open_group(cgroups->v2_fd, name);
        if (parent < 0)
            return err_errno(err, errno, "cannot open the cgroup %s", name);
        cleanup_fd int fd = make_group(parent, leaf, err);
        if (fd < 0)
            return fd;
        group.procs_fd = openat(fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
        group.kill_fd = openat(fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
        if (group.procs_fd < 0 || group.kill_fd < 0) {
            int code = errno;
            sandbox_group_close(&group);
            return err_errno(err, code, "cannot open the cgroup %s/%s", name, leaf);
        }
    }
    group.oom_fd = open_events(cgroups, CGROUP_MEMORY, name);
    group.pids_fd = open_events(cgroups, CGROUP_PIDS, name);
    *ret = group;
    return 0;
}

int cgroup_leaf_remove(const struct cgroups *cgroups, const char *name, const char *leaf,
                       struct err *err)
{
    if (cgroups->v2_fd < 0)
        return 0;
    cleanup_fd int parent = open_group(cgroups->v2_fd, name);
    if (parent < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot open the cgroup %s", name);
    return remove_tree(parent, leaf, false, err);
}

static int remove_unused(int parent_fd, const char *name, void *ctx)
{
    const char *const *prefix = ctx;
    if (strncmp(name, *prefix, strlen(*prefix)) == 0)
        unlinkat(parent_fd, name, AT_REMOVEDIR);
    return 0;
}

void cgroup_leaves_remove(const struct cgroups *cgroups, const char *name, const char *prefix)
{
    cleanup_fd int group = cgroups->v2_fd < 0 ? -1 : open_group(cgroups->v2_fd, name);
    if (group >= 0)
        each_group(group, remove_unused, &prefix);
}

/* A group may be left in some of the hierarchies only: each is looked through. */
static int each_hierarchy(const struct cgroups *cgroups,
                          int (*found)(int parent_fd, const char *name, void *ctx), void *ctx)
{
    int result = cgroups->v2_fd < 0 ? 0 : each_group(cgroups->v2_fd, found, ctx);
    for (int i = 0; i < CGROUP_CONTROLLERS && result == 0; i++)
        if (cgroups->v1_fd[i] >= 0)
            result = each_group(cgroups->v1_fd[i], found, ctx);
    return result;
}

struct list_request {
    void (*found)(void *ctx, const char *name);
    void *ctx;
};

static int list_one(int parent_fd, const char *name, void *ctx)
{
    (void)parent_fd;
    const struct list_request *request = ctx;
    if (name_is_valid(name, strlen(name)))
        request->found(request->ctx, name);
    return 0;
}

int cgroup_list(const struct cgroups *cgroups, void (*found)(void *ctx, const char *name),
                void *ctx, struct err *err)
{
    struct list_request request = {found, ctx};
    int result = each_hierarchy(cgroups, list_one, &request);
    return result < 0 ? err_errno(err, -result, "cannot list the cgroups") : 0;
}

/* ----------------------------------------------------------------------------------- the end */

/* True while a process is in the group or below it; a change makes events_fd exceptional. */
static bool is_populated(int events_fd)
{
    char text[128];
    ssize_t n = pread(events_fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return strstr(text, "populated 1");
}

int cgroup_remove_late(const struct cgroups *cgroups, const char *name, struct err *err)
{
    char path[CGROUP_NAME_MAX + sizeof("/cgroup.events")];
    snprintf(path, sizeof(path), "%s/cgroup.events", name);
    cleanup_fd int events =
        cgroups->v2_fd < 0 ? -1 : openat(cgroups->v2_fd, path, O_RDONLY | O_CLOEXEC);
    struct pollfd change = {.fd = events, .events = POLLPRI};
    while (events >= 0 && is_populated(events) && poll(&change, 1, CGROUP_END_MS) > 0)
        ;
    return cgroup_remove(cgroups, name, err);
}

static int end_one(int parent_fd, const char *name, void *ctx)
{
    (void)parent_fd;
    if (strncmp(name, CGROUP_JAIL_PREFIX, strlen(CGROUP_JAIL_PREFIX)) == 0) {
        cgroup_kill(ctx, name, NULL);
        cgroup_remove_late(ctx, name, NULL); /* still not empty: the next start does it */
    }
    return 0;
}

void cgroup_end_jails(const struct cgroups *cgroups)
{
    struct cgroups copy = *cgroups;
    each_hierarchy(cgroups, end_one, &copy);
}
