/*
 * The image's own files, for paddock-image-build: the agent's user, folders, links; and the scrub,
 * after which nothing tells of the host that the image was built on.
 *
 * The tree was written by packages' scripts. Every path is taken beneath the root's descriptor and
 * no symlink is followed.
 */
#include "image/build.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/fd.h"
#include "util/limits.h"
#include "util/tree.h"

#define AGENT_ID 1000

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

/* True when the file has a line of the account: the image that this one is from brought it. */
static bool tree_has_agent(int root_fd, const char *path)
{
    cleanup_buf struct buf text = BUF_INIT(LIMIT_CONFIG_BYTES);
    cleanup_fd int fd = fd_open_beneath(root_fd, path, O_RDONLY, 0, true, NULL);
    if (fd < 0 || fd_read_all(fd, &text) < 0)
        return false;
    return strncmp(buf_text(&text), "agent:", 6) == 0 || strstr(buf_text(&text), "\nagent:");
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
        if (tree_has_agent(root_fd, lines[i].path))
            continue;
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
    if (unlinkat(root_fd, link->path + 1, 0) < 0 && errno != ENOENT) /* of the image it is from */
        return err_errno(err, errno, "cannot replace the link %s", link->path);
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
    if (!keep_top)
        return tree_remove(folder, name, err);
    cleanup_fd int emptied = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (emptied < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot open /%s of the image", path);
    int result = emptied < 0 ? 0 : tree_clear(emptied, err);
    return result < 0 ? err_context(err, result, "/%s of the image", path) : 0;
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

int build_measure(int root_fd, int64_t *ret_size_bytes, struct err *err)
{
    int64_t sum = 0;
    int result = tree_measure(root_fd, &sum, err);
    if (result < 0)
        return result;
    if (syncfs(root_fd) < 0)
        return err_errno(err, errno, "cannot write the image to disk");
    *ret_size_bytes = sum;
    return 0;
}
