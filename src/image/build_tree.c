/*
 * The image's own files, for paddock-image-build: the agent's user, folders, links; and the scrub,
 * after which nothing tells of the host that the image was built on.
 *
 * The tree was written by packages' scripts. Every path is taken beneath the root's descriptor and
 * no symlink is followed.
 */
#include "image/build.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"

#define AGENT_ID 1000
#define DEPTH_MAX 64

/* ------------------------------------------------------------------------------ furnishing */

static int tree_append_line(int root_fd, const char *path, const char *line, bool is_optional,
                            struct err *err)
{
    cleanup_fd int fd = fd_open_beneath(root_fd, path, O_WRONLY | O_APPEND, 0, true, err);
    if (fd == -ENOENT && is_optional)
        return 0;
    if (fd < 0)
        return fd;
    int result = fd_write_all(fd, line, strlen(line));
    return result < 0 ? err_errno(err, -result, "cannot write %s of the image", path) : 0;
}

static int tree_add_agent(int root_fd, struct err *err)
{
    static const struct {
        const char *path, *line;
        bool is_optional; /* only the package passwd, which is not essential, makes it */
    } lines[] = {
        {"etc/passwd", "agent:x:1000:1000:Coding agent:/home/agent:/bin/bash\n", false},
        {"etc/group", "agent:x:1000:\n", false},
        {"etc/shadow", "agent:*:20000:0:99999:7:::\n", true},
        {"etc/gshadow", "agent:*::\n", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        int result =
            tree_append_line(root_fd, lines[i].path, lines[i].line, lines[i].is_optional, err);
        if (result < 0)
            return result;
    }
    return 0;
}

/* Folders that a sandbox mounts over or the agent works in. */
static int tree_add_folders(int root_fd, struct err *err)
{
    static const struct {
        const char *path;
        mode_t mode;
        unsigned owner;
    } folders[] = {
        {"proc", 0555, 0},
        {"dev", 0755, 0},
        {"sys", 0555, 0},
        {"run", 0755, 0},
        {"tmp", 01777, 0},
        {"home", 0755, 0},
        {"home/agent", 0755, AGENT_ID},
        {"workspace", 0755, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        const char *path = folders[i].path;
        if (mkdirat(root_fd, path, 0755) < 0 && errno != EEXIST)
            return err_errno(err, errno, "cannot make /%s of the image", path);
        cleanup_fd int fd = fd_open_beneath(root_fd, path, O_RDONLY | O_DIRECTORY, 0, false, err);
        if (fd < 0)
            return fd;
        if (fchown(fd, folders[i].owner, folders[i].owner) < 0 || fchmod(fd, folders[i].mode) < 0)
            return err_errno(err, errno, "cannot give /%s of the image away", path);
    }
    return 0;
}

static int tree_add_link(int root_fd, const struct recipe_link *link, struct err *err)
{
    cleanup_fd int target = fd_open_beneath(root_fd, link->target + 1, O_PATH, 0, true, err);
    if (target < 0)
        return err_context(err, target, "the target of the link %s", link->path);
    if (faccessat(target, "", X_OK, AT_EMPTY_PATH) < 0)
        return err_errno(err, errno, "%s, the target of %s", link->target, link->path);
    if (symlinkat(link->target, root_fd, link->path + 1) < 0)
        return err_errno(err, errno, "cannot make the link %s", link->path);
    return 0;
}

int build_furnish(int root_fd, const struct recipe *recipe, struct err *err)
{
    int result = tree_add_agent(root_fd, err);
    if (result == 0)
        result = tree_add_folders(root_fd, err);
    for (size_t i = 0; i < recipe->link_count && result == 0; i++)
        result = tree_add_link(root_fd, &recipe->links[i], err);
    return result;
}

/* -------------------------------------------------------------------------------- walking */

static void cleanup_dir_at(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}
#define cleanup_dir __attribute__((cleanup(cleanup_dir_at)))

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static DIR *tree_open(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    DIR *dir = fdopendir(fd);
    if (!dir)
        close(fd);
    return dir;
}

/* Empties the folder; its own removal is the caller's. Returns 0 or a negative errno. */
static int tree_empty(int dir_fd, const char *name, int depth) /* NOLINT(misc-no-recursion) */
{
    cleanup_dir DIR *dir = tree_open(dir_fd, name);
    if (!dir)
        return -errno;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (is_dot(entry->d_name) || unlinkat(dirfd(dir), entry->d_name, 0) == 0)
            continue;
        if (errno != EISDIR || depth == DEPTH_MAX)
            return errno == EISDIR ? -ELOOP : -errno;
        int result = tree_empty(dirfd(dir), entry->d_name, depth + 1);
        if (result < 0)
            return result;
        if (unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) < 0)
            return -errno;
    }
    return 0;
}

int build_remove(int dir_fd, const char *path, bool keep_top, struct err *err)
{
    char parent[PATH_MAX];
    if ((size_t)snprintf(parent, sizeof(parent), "%s", path) >= sizeof(parent))
        return err_set(err, ENAMETOOLONG, "cannot remove %s of the image", path);
    char *slash = strrchr(parent, '/');
    const char *name = slash ? slash + 1 : path;
    if (slash)
        *slash = '\0';
    cleanup_fd int folder =
        fd_open_beneath(dir_fd, slash ? parent : ".", O_RDONLY | O_DIRECTORY, 0, false, NULL);
    if (folder == -ENOENT)
        return 0;
    if (folder < 0)
        return err_errno(err, -folder, "cannot open the folder of /%s of the image", path);
    if (!keep_top && unlinkat(folder, name, 0) == 0)
        return 0;
    int result = tree_empty(folder, name, 0);
    if (result == 0 && !keep_top && unlinkat(folder, name, AT_REMOVEDIR) < 0)
        result = -errno;
    return result < 0 && result != -ENOENT
               ? err_errno(err, -result, "cannot remove /%s of the image", path)
               : 0;
}

/* ------------------------------------------------------------------------------- scrubbing */

/* What package clients and packages' scripts leave behind: settings of the host, logs, caches,
 * names. A row that ends with "/" keeps the folder itself. */
static const char *const scrubbed[] = {
    /* apt and dpkg */
    "etc/apt/sources.list",
    "etc/apt/sources.list.d/",
    "etc/apt/apt.conf",
    "etc/apt/auth.conf",
    "etc/apt/auth.conf.d/",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "var/lib/apt/lists/",
    "var/cache/apt/",
    "var/cache/debconf/",
    "var/lib/dpkg/status-old",
    "var/lib/dpkg/diversions-old",
    "var/lib/dpkg/statoverride-old",
    "var/cache/ldconfig/",
    "var/log/",
    "var/tmp/",
    "tmp/",
    "run/",
    /* npm */
    "opt/npm/package.json",
    "opt/npm/package-lock.json",
    "opt/npm/node_modules/.package-lock.json",
    "root/.npmrc",
    "root/.npm",
    /* the host's name, address and identity */
    "etc/hostname",
    "etc/hosts",
    "etc/resolv.conf",
    "etc/machine-id",
    "var/lib/dbus/machine-id",
    "etc/.pwd.lock",
    "etc/passwd-",
    "etc/group-",
    "etc/shadow-",
    "etc/gshadow-",
};

int build_scrub(int root_fd, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(scrubbed); i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s", scrubbed[i]);
        size_t len = strlen(path);
        bool keep_top = path[len - 1] == '/';
        if (keep_top)
            path[len - 1] = '\0';
        int result = build_remove(root_fd, path, keep_top, err);
        if (result < 0)
            return result;
    }
    return 0;
}

/* ------------------------------------------------------------------------------- measuring */

/* Adds the disk space of everything below; a file with more links counts a share for each. */
static int tree_measure(int dir_fd, const char *name, int depth,
                        int64_t *sum) /* NOLINT(misc-no-recursion) */
{
    cleanup_dir DIR *dir = tree_open(dir_fd, name);
    if (!dir)
        return -errno;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;
        if (strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        bool is_folder = S_ISDIR(st.st_mode);
        if (!is_folder || is_dot(entry->d_name))
            *sum += st.st_blocks * 512 / (is_folder ? 1 : (int64_t)st.st_nlink);
        if (!is_folder || is_dot(entry->d_name))
            continue;
        int result =
            depth == DEPTH_MAX ? -ELOOP : tree_measure(dirfd(dir), entry->d_name, depth + 1, sum);
        if (result < 0)
            return result;
    }
    return 0;
}

int build_measure(int root_fd, int64_t *ret_size_bytes, struct err *err)
{
    int64_t sum = 0;
    int result = tree_measure(root_fd, ".", 0, &sum);
    if (result < 0)
        return err_errno(err, -result, "cannot measure the image");
    if (syncfs(root_fd) < 0)
        return err_errno(err, errno, "cannot write the image to disk");
    *ret_size_bytes = sum;
    return 0;
}
