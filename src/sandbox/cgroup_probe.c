/* Which control group hierarchies the host has, found once at the supervisor's start. */
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/cgroup.h"
#include "util/cleanup.h"
#include "util/fd.h"

#define FOLDER_PREFIX "paddock-"
/* tools/package/paddock-instances.service.in */
#define INSTANCES_UNIT "paddock-instances.service"
#define PROC_CGROUP_MAX (16 * 1024)

static const char *const controller_names[CGROUP_CONTROLLERS] = {"memory", "cpu", "pids"};

/* Makes our folder below the root of a hierarchy; -1 where it may not be made. */
static int make_folder(int root_fd, const char *folder)
{
    if (mkdirat(root_fd, folder, 0755) < 0 && errno != EEXIST)
        return -1;
    return openat(root_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* The path in the line of the v2 tree, from below its root, as openat(2) wants it; NULL: none. */
static const char *find_v2_path(const char *own)
{
    const char *line = own;
    while (line && strncmp(line, "0::/", 4) != 0)
        line = (line = strchr(line, '\n')) ? line + 1 : NULL;
    return line ? line + 4 : NULL;
}

int cgroup_find_own(const char *own, char *ret, size_t size)
{
    static const char daemon[] = "/" CGROUP_DAEMON;
    const char *path = find_v2_path(own);
    if (!path)
        return -ENOENT;
    size_t len = strcspn(path, "\n");
    size_t end = strlen(daemon);
    if (len > end && strncmp(path + len - end, daemon, end) == 0)
        len -= end;
    int n = snprintf(ret, size, "%.*s", (int)len, path);
    return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

int cgroup_find_unit(const char *own, char *ret, size_t size)
{
    const char *line = find_v2_path(own);
    if (!line)
        return -ENOENT;
    size_t len = strcspn(line, "\n");
    const char *slash = memrchr(line, '/', len);
    size_t folder = slash ? (size_t)(slash + 1 - line) : 0;
    int n = snprintf(ret, size, "%.*s" INSTANCES_UNIT, (int)folder, line);
    return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

/* The folder of a v2 tree where ours is made: the unit that systemd delegates for it, beside that
 * of this process, where there is one; else the root of the tree. */
static int open_base(int root_fd)
{
    cleanup_buf struct buf own = BUF_INIT(PROC_CGROUP_MAX);
    char path[PATH_MAX];
    if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", &own, NULL) == 0 &&
        cgroup_find_unit(buf_text(&own), path, sizeof(path)) == 0) {
        int fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0)
            return fd;
    }
    return fcntl(root_fd, F_DUPFD_CLOEXEC, 0);
}

/* Our own group, with this process moved out of the way; -1: it may not be written. */
static int open_own(int tree_fd)
{
    cleanup_buf struct buf own = BUF_INIT(PROC_CGROUP_MAX);
    char path[PATH_MAX];
    if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", &own, NULL) < 0 ||
        cgroup_find_own(buf_text(&own), path, sizeof(path)) < 0)
        return -1;
    cleanup_fd int group = openat(tree_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    cleanup_fd int daemon = group < 0 ? -1 : make_folder(group, CGROUP_DAEMON);
    cleanup_fd int procs = daemon < 0 ? -1 : openat(daemon, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    return procs >= 0 && write(procs, "0", 1) == 1 ? TAKE_FD(group) : -1;
}

static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += len)
        if ((at == text || at[-1] == ' ') && strchr(" \n", at[len]))
            return true;
    return false;
}

static void enable_controllers(int root_fd, struct cgroups *cgroups)
{
    char text[512] = "";
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        char order[32];
        int len = snprintf(order, sizeof(order), "+%s", controller_names[i]);
        int parents[] = {root_fd, cgroups->v2_fd};
        for (size_t j = 0; j < ARRAY_LEN(parents); j++) {
            cleanup_fd int fd = openat(parents[j], "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
            if (fd < 0 || write(fd, order, (size_t)len) < 0)
                continue; /* what is in force is read below */
        }
    }
    cleanup_fd int fd = openat(cgroups->v2_fd, "cgroup.subtree_control", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
        return;
    for (int i = 0; i < CGROUP_CONTROLLERS; i++)
        cgroups->v2_has[i] = has_word(text, controller_names[i]);
}

/* A v2 tree of our own, mounted nowhere: a host with v1 alone still has one in its kernel. */
static int mount_detached_v2(void)
{
    cleanup_fd int context = fsopen("cgroup2", FSOPEN_CLOEXEC);
    if (context < 0 || fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    return fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

static void open_v2(const char *path, struct cgroups *cgroups)
{
    cleanup_fd int tree =
        path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : mount_detached_v2();
    cleanup_fd int root = tree < 0 ? -1 : open_base(tree);
    if (root < 0)
        return;
    cgroups->v2_fd = make_folder(root, cgroups->folder);
    if (cgroups->v2_fd < 0) {
        int own = open_own(tree);
        if (own < 0)
            return;
        close(root);
        root = own;
        cgroups->v2_fd = make_folder(root, cgroups->folder);
    }
    if (cgroups->v2_fd < 0)
        return;
    if (faccessat(cgroups->v2_fd, "cgroup.kill", W_OK, 0) < 0) {
        close(TAKE_FD(cgroups->v2_fd));
        return;
    }
    enable_controllers(root, cgroups);
}

static void open_v1(const struct mntent *entry, struct cgroups *cgroups)
{
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (cgroups->v1_fd[i] >= 0 || !hasmntopt(entry, controller_names[i]))
            continue;
        cleanup_fd int root = open(entry->mnt_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (root >= 0)
            cgroups->v1_fd[i] = make_folder(root, cgroups->folder);
    }
}

void cgroups_open(const char *state_name, struct cgroups *ret)
{
    *ret = (struct cgroups){.v2_fd = -1, .v1_fd = {-1, -1, -1}};
    snprintf(ret->folder, sizeof(ret->folder), FOLDER_PREFIX "%s", state_name);
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    for (struct mntent *entry; mounts && (entry = getmntent(mounts));) {
        if (strcmp(entry->mnt_type, "cgroup2") == 0 && ret->v2_fd < 0)
            open_v2(entry->mnt_dir, ret);
        if (strcmp(entry->mnt_type, "cgroup") == 0)
            open_v1(entry, ret);
    }
    if (mounts)
        endmntent(mounts);
    bool has_v1 = ret->v1_fd[0] >= 0 || ret->v1_fd[1] >= 0 || ret->v1_fd[2] >= 0;
    if (ret->v2_fd < 0)
        open_v2(NULL, ret);
    if (ret->v2_fd >= 0)
        ret->layout = has_v1 ? CGROUP_HYBRID : CGROUP_V2;
    else
        ret->layout = has_v1 ? CGROUP_V1 : CGROUP_NONE;
}

/* Our folder goes too when nothing is left in it: rmdir(2) refuses otherwise. */
static void close_folder(int *fd, const char *folder)
{
    if (*fd < 0)
        return;
    cleanup_fd int root = openat(*fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    close(TAKE_FD(*fd));
    if (root >= 0)
        unlinkat(root, folder, AT_REMOVEDIR);
}

void cgroups_close(struct cgroups *cgroups)
{
    close_folder(&cgroups->v2_fd, cgroups->folder);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++)
        close_folder(&cgroups->v1_fd[i], cgroups->folder);
}

void cgroups_renew(struct cgroups *cgroups)
{
    struct cgroups old = *cgroups;
    cgroups_close(cgroups);
    cgroups_open(old.folder + strlen(FOLDER_PREFIX), cgroups);
}
